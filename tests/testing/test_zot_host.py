"""The stand-in zot host: it is on its own, lets nothing pass that is not in the protocol, and leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.testing import guest_process, zot_host
from serai.testing.guest_process import GuestProcess, Misbehaved, find_command
from serai.testing.zot_host import FRAMES, LONGEST, Flaws, Frame, ZotHost, parse_frame
from tests.support.processes import lives

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "zot"
BROKEN = ROOT / "tests" / "broken_guests"

OPENING = '{"type":"hello","name":"x","version":""}\\n{"type":"ready"}'
HELLO = f"print('{OPENING}', flush=True); input(); input(); "  # until there is a request
NOTICE = '{"type":"notify","level":"info","message":"%s"}'
RESULT = '{"type":"tool_result","id":"101502000000","content":[]}'


def write_program(folder: Path, text: str) -> Path:
    (folder / "guest.py").write_text(text)
    return folder / "guest.py"


OWN = ("serai.testing.zot_host", "serai.testing.guest_process")


# -- on its own -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.standin.independent")
def test_it_imports_the_standard_library_and_itself() -> None:
    allowed = {*sys.stdlib_module_names}
    for module in (Path(zot_host.__file__), Path(guest_process.__file__)):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            strange = [name for name in names if name.split(".")[0] not in allowed and name not in OWN]
            assert not strange, module


@pytest.mark.req("sdk.standin.independent")
def test_importing_it_loads_nothing_else_of_serai() -> None:
    told = "import sys, serai.testing.zot_host; print(*(name for name in sys.modules if name.startswith('serai')))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=30)
    own = {"serai", "serai.lazy", "serai.version", "serai.testing"}  # the packages around it
    assert [name for name in ran.stdout.split() if name not in own and name not in OWN] == []


# -- strict -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.standin.strict")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('print(\'{"type":"ready"}\')', "first frame must be hello"),
        ('print(\'{"type":"hello","name":"","version":""}\')', "first frame must be hello"),
        ('print(\'{"type":"hello","name":"x"}\')', "hello needs version"),
        ("import sys; sys.exit('no luck')", "(?s)ended without hello, exit status 1.*no luck"),
        (HELLO + "print('starting up')", "(?s)frames only.*← starting up"),
        (HELLO + "print()", "frames only"),
        (HELLO + 'print(\'{"type":"notify","level":"info","message":NaN}\')', "frames only"),
        (HELLO + 'print(\'{"type":"dance"}\')', "no frame of the protocol: dance"),
        (HELLO + 'print(\'{"type":"tool_result","id":1,"content":[]}\')', "id is of a wrong type: a string is wanted"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1","content":null}\')', "needs content"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1"}\')', "needs content"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1","content":[],"is_error":null}\')', "is_error is null"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1","content":[{"type":"sound"}]}\')', "no block of the type"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1","content":[{"type":"image","mime_type":"","data":"_"}]}\')', "not base64"),
        (HELLO + 'print(\'{"type":"register_tool","name":"x"}\')', "a schema is an object"),
        (HELLO + 'print(\'{"type":"subscribe","events":"turn_end"}\')', "a list of strings is wanted"),
        (HELLO + 'print(\'{"type":"command_response","id":"1","action":"dance"}\')', "there is no action 'dance'"),
        (HELLO + 'print(\'{"type":"notify","level":"loud","message":""}\')', "there is no level 'loud'"),
        (HELLO + 'print(\'{"type":"hello","name":"x","version":""}\')', "a second hello"),
        (HELLO + f"print('{NOTICE}' % ('x' * ({LONGEST} - {len(NOTICE)} + 2)))", f"a line of {LONGEST + 1} bytes, and no host "),
        (HELLO + 'print(\'{"type":"command_response","id":"1","action":"display"}\')', "display does nothing without display"),
        (HELLO + 'print(\'{"type":"command_response","id":"1","action":"prompt","prompt":""}\')', "prompt does nothing without"),
        (HELLO + 'print(\'{"type":"command_response","id":"1","action":"open_panel"}\')', "open_panel does nothing without"),
        (HELLO + 'print(\'{"type":"ready","set":1}\')', "ready has no field set"),
        (HELLO + 'print(\'{"type":"tool_result","id":"1","content":[]}\')', "nobody asked for"),
        (HELLO + 'print(\'{"type":"command_response","id":"101502000000","action":""}\')', "nobody asked for"),
        (HELLO + f"print('{RESULT}\\n{RESULT}')", "answered 101502000000 twice"),
        (HELLO + "pass", "without an answer to 101502000000"),
        (HELLO + f"print('{RESULT}', end='')", "last line has no end"),
    ],
)
def test_it_sees_what_an_extension_does_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "extension.json").write_text(json.dumps({"name": "x", "exec": "python3", "args": ["-c", text]}))
    with pytest.raises(Misbehaved, match=complaint), ZotHost(tmp_path) as host:
        host.ask("tool_call", name="x", args={})
        host.eof()


@pytest.mark.req("sdk.standin.strict")
def test_the_longest_line_is_read_and_an_error_needs_no_action(tmp_path: Path) -> None:
    says = f"print('{NOTICE}' % ('x' * ({LONGEST} - {len(NOTICE)} + 1)), flush=True)\n"
    error = '{"type":"command_response","id":"%s","action":"display","error":"no luck"}'
    asks = f"import json\nid = json.loads(input())['id']\nprint('{error}' % id, flush=True)\n"
    with ZotHost(write_program(tmp_path, f"print('{OPENING}', flush=True)\ninput()\n{says}{asks}")) as host:
        assert len(json.dumps(host.hear("notify"), separators=(",", ":"))) + 1 == LONGEST
        assert host.run_command("x")["error"] == "no luck"


@pytest.mark.req("sdk.standin.strict")
@pytest.mark.parametrize(
    ("event", "field", "complaint"),
    [
        ("tool_call", '"replace_text":"ls"', "replace_text does nothing at tool_call: it is for assistant_message"),
        ("turn_start", '"modified_args":{}', "modified_args does nothing at turn_start: it is for tool_call"),
        ("assistant_message", '"modified_args":{}', "modified_args does nothing at assistant_message"),
        ("tool_call", '"modified_args":{}', ""),
        ("assistant_message", '"replace_text":"hush"', ""),
    ],
)
def test_a_rewrite_is_for_its_own_event(tmp_path: Path, event: str, field: str, complaint: str) -> None:
    answer = f'{{"type":"event_intercept_response","id":"101502000000",{field}}}'
    with ZotHost(write_program(tmp_path, HELLO + f"print('{answer}', flush=True)")) as host:
        if not complaint:
            assert host.intercept(event)["type"] == "event_intercept_response"
            return
        with pytest.raises(Misbehaved, match=complaint):
            host.intercept(event)


def test_reading_a_long_line_takes_time_that_grows_with_its_length_alone(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text("import sys\nsys.stdout.write('x' * (96 << 20) + '\\n')\n")
    process = GuestProcess([sys.executable, "guest.py"], cwd=tmp_path, environ=os.environ)
    try:
        before = time.thread_time()  # our own work, however busy the machine is
        line = process.read_line(60)
        taken = time.thread_time() - before
    finally:
        process.kill()
    assert line is not None
    assert len(line) == (96 << 20) + 1
    assert taken < 2  # put together anew with each piece that comes, it takes ten times as long


@pytest.mark.parametrize("text", ["x", "x\\n"])
def test_one_that_never_stops_talking_does_not_stop_the_clock(tmp_path: Path, text: str) -> None:
    (tmp_path / "guest.py").write_text(f"import os\nwhile True:\n    os.write(1, b'{text}' * 1000)\n")
    process = GuestProcess([sys.executable, "guest.py"], cwd=tmp_path, environ=os.environ)
    try:
        assert process.wait(0.05) is None
        if text == "x":
            with pytest.raises(TimeoutError):
                process.read_line(0.05)
    finally:
        process.kill()


class Hasty(ZotHost):
    """Waits for a hello as long as that takes on a busy machine, and only for what follows its own first frame not."""

    def send(self, frame: Frame) -> None:
        self.patience = 0.3
        super().send(frame)


@pytest.mark.req("sdk.standin.strict")
def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(Misbehaved, match=r"no ready within 0\.3 s"), Hasty(BROKEN / "no-ready"):
        pass
    deaf = write_program(tmp_path, f"import signal\nprint('{OPENING}', flush=True)\nsignal.pause()\n")
    with ZotHost(deaf) as host:
        host.patience = 0.3
        with pytest.raises(Misbehaved, match="does not read its input"):
            host.write(b"x" * (1 << 20))
        with pytest.raises(Misbehaved, match=r"no notify within 0\.3 s"):
            host.hear("notify")
        with pytest.raises(Misbehaved, match=r"did not end within 0\.3 s"):
            host.vanish()


def test_writing_to_one_that_has_ended_says_so(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, f"print('{OPENING}', flush=True)\ninput()\n")) as host:
        host.process.wait(30)
        with pytest.raises(Misbehaved, match="has closed its input"):
            host.tell("turn_end", stop="end")


def test_a_complaint_shows_the_last_frames_of_both_sides_and_the_end_of_stderr(tmp_path: Path) -> None:
    text = "import sys; print('what is this?', file=sys.stderr, flush=True); print('oops ' * 100)"
    (tmp_path / "extension.json").write_text(json.dumps({"name": "x", "exec": "python3", "args": ["-c", HELLO + text]}))
    with pytest.raises(Misbehaved) as caught, ZotHost(tmp_path) as host:
        host.call_tool("x", {})
    lines = str(caught.value).splitlines()
    assert '← {"type":"ready"}' in lines
    assert '→ {"type": "tool_call", "id": "101502000000", "name": "x", "args": {}}' in lines
    assert [line for line in lines if line.startswith("← oops oops") and line.endswith("(501 bytes)")]
    assert lines[-1] == "its stderr: what is this?"


KINDS = st.sampled_from([*FRAMES])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "data", "id", "lines"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted({key for required, optional in FRAMES.values() for key in (*required, *optional)}))


@pytest.mark.req("sdk.standin.strict")
@given(KINDS, st.dictionaries(FIELDS, JSON, max_size=5))
def test_whatever_a_frame_holds_its_flaws_are_told(kind: str, fields: Frame) -> None:
    frame = parse_frame(json.dumps({**fields, "type": kind}).encode())
    assert frame is not None
    wrong, odd = Flaws.from_frame(frame)
    required, optional = FRAMES[kind]
    strange = fields.keys() - required.keys() - optional.keys() - {"type"}
    missing = {key for key in required if fields.get(key) is None}
    assert len(wrong) + len(odd) >= len(strange) + len(missing)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_whatever_a_line_is_it_is_a_frame_or_none(line: bytes) -> None:
    frame = parse_frame(line)
    assert frame is None or isinstance(frame["type"], str)


# -- for an author's tests --------------------------------------------------------------------------------------------------------


def test_it_has_what_an_author_needs() -> None:
    with ZotHost(EXAMPLES / "weather-python") as host:
        assert host.hello["name"] == "weather"
        assert set(host.tools) == {"weather"}
        assert set(host.commands) == {"weather", "forecast"}
        assert host.hear("notify")["message"] == "the weather station is open"
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: 16 degrees, fog"
        assert host.call_tool("weather", {})["is_error"]
        with pytest.raises(Misbehaved, match="weather answered with an error: weather needs a city"):
            host.call_text("weather", {})
        assert host.run_command("weather", "Bern")["display"] == "Bern: 16 degrees, fog"
        assert host.run_command("weather")["error"]
        assert host.shutdown() == 0


@pytest.mark.needs("node")
def test_it_asks_tells_and_plays_the_panel() -> None:
    with ZotHost(EXAMPLES / "guard-python") as guard:
        assert guard.intercepts == ["tool_call", "turn_start", "assistant_message"]
        assert guard.intercept("turn_start", step=1) == {"type": "event_intercept_response", "id": "101502000000"}
        assert guard.eof() == 0
    with ZotHost(EXAMPLES / "words-node") as words:
        assert words.events == ["turn_end", "tool_call"]
        words.tell("turn_end", stop="end")
        assert json.loads(words.call_text("seen", {})) == {"turn_end": 1, "tool_call": 0}
    with ZotHost(EXAMPLES / "panel-python") as panel:
        panel.run_command("pick")
        panel.press("harbours", "rune", "h")
        panel.resize("harbours", 8, 20)
        assert [panel.hear("panel_render")["lines"][0] for _ in range(2)] == ["> Cuxhaven", "> Cuxhav"]
        panel.close_panel("harbours")
        panel.press("harbours", "down")
        assert panel.shutdown() == 0
        assert [frame["type"] for frame in panel.heard] == ["shutdown_ack"]


def test_a_silent_host_says_no_hello_ack() -> None:
    with ZotHost(EXAMPLES / "weather-python", ack=False) as host:
        assert [who for who, _ in host.process.transcript if who == "host"] == []
        assert host.shutdown() == 0
    with pytest.raises(Misbehaved, match="no ready"), ZotHost(BROKEN / "waits-for-ack", ack=False, patience=0.5):
        pass


TELLS = """
import json, os, sys
print(json.dumps({"type": "hello", "name": "tells", "version": ""}))
print(json.dumps({"type": "ready"}), flush=True)
ack = json.loads(input())
told = [sys.prefix, os.getcwd(), os.environ.get("TIDE"), ack["cwd"], ack["extension_dir"], ack["data_dir"], sys.argv[1:]]
print(json.dumps({"type": "notify", "level": "info", "message": json.dumps(told)}))
"""


def read_notification(path: Path, **options: Any) -> list[Any]:
    with ZotHost(path, **options) as host:
        values: list[Any] = json.loads(host.hear("notify")["message"])
        return values


@pytest.mark.parametrize("how", ["a program", "a folder", "a manifest"])
def test_python3_is_the_python_of_the_tests(tmp_path: Path, how: str) -> None:
    path = write_program(tmp_path, TELLS)
    if how != "a program":
        (tmp_path / "extension.json").write_text('{"name":"tells","exec":"python3","args":["guest.py"]}')
        path = tmp_path if how == "a folder" else tmp_path / "extension.json"
    folder = str(tmp_path)
    assert read_notification(path) == [sys.prefix, folder, os.environ.get("TIDE"), folder, folder, folder, []]


def test_a_guest_gets_the_environment_the_folders_and_the_arguments_it_is_given(tmp_path: Path) -> None:
    options = {"environ": {"TIDE": "high"}, "cwd": "/", "data_dir": tmp_path / "data", "arguments": ["--dialect", "zot"]}
    folder = str(tmp_path)
    expected = [sys.prefix, folder, "high", "/", folder, f"{folder}/data", ["--dialect", "zot"]]
    assert read_notification(write_program(tmp_path, TELLS), **options) == expected


def test_a_guest_is_not_helped_with_its_buffers_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    path = write_program(tmp_path, TELLS.replace('"TIDE"', '"PYTHONUNBUFFERED"'))
    assert read_notification(path)[2] is None
    assert read_notification(path, environ=os.environ)[2] == "1"


def test_a_bundle_gets_nothing_but_python(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "guest.pyz", "w") as bundle:
        bundle.writestr("__main__.py", TELLS.replace("sys.prefix", "[sys.flags.no_site, sys.flags.ignore_environment]"))
    assert read_notification(tmp_path / "guest.pyz")[0] == [1, 1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "extension.json: it cannot be read: No such file"),
        ("{", "extension.json: it is no JSON: "),
        ("\xff", "extension.json: it is no JSON: "),
        ("[" * 100_000, "extension.json: it is no JSON: "),
        ("[]", "extension.json: a manifest is an object"),
        ('{"name":"x"}', "extension.json: a manifest is an object, and its `exec` a text"),
        ('{"name":"x","exec":["y"]}', "extension.json: a manifest is an object, and its `exec` a text"),
        ('{"name":"x","exec":"python3","args":"x"}', "extension.json: `args` has to be a list of texts"),
        ('{"name":"x","exec":"./run"}', "/run cannot be started: Exec format error"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(tmp_path: Path, text: str | None, complaint: str) -> None:
    (tmp_path / "run").write_text("no program")
    (tmp_path / "run").chmod(0o755)
    if text is not None:
        (tmp_path / "extension.json").write_text(text, "latin-1")
    with pytest.raises(Misbehaved, match=f"^{tmp_path}.*{complaint}"), ZotHost(tmp_path):
        pass


@pytest.mark.parametrize("name", ["nowhere", "nowhere.py", "nowhere.pyz", "nowhere/extension.json"])
def test_a_path_where_nothing_is_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misbehaved, match=f"^{tmp_path / name}: there is no such file or folder$"), ZotHost(tmp_path / name):
        pass


def test_one_that_ends_by_itself_can_be_waited_for(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, HELLO + f"print('{RESULT}', flush=True)\nraise SystemExit(5)")) as host:
        id = host.ask("tool_call", name="x", args={})
        assert host.wait() == 5
        assert id in host.answers
    with ZotHost(EXAMPLES / "weather-python") as host:
        host.patience = 0.3
        with pytest.raises(Misbehaved, match="no end within"):
            host.wait()


def test_a_program_that_the_machine_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misbehaved, match="words-node needs the program node: install it"):
        find_command(EXAMPLES / "words-node", {"PATH": str(tmp_path)})


ECHO = f"""
import json, sys
print('{OPENING}', flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "tool_call":
        content = [{{"type": "text", "text": frame["args"]}}]
        print(json.dumps({{"type": "tool_result", "id": frame["id"], "content": content}}), flush=True)
"""


def test_a_host_and_a_guest_that_both_have_much_to_say_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, ECHO)) as host:
        asked = {host.ask("tool_call", name="echo", args=str(number) * 100_000): str(number) for number in range(10)}
        assert all(host.answer(id)["content"][0]["text"] == number * 100_000 for id, number in asked.items())
        assert host.eof() == 0


# -- nothing is left --------------------------------------------------------------------------------------------------------------

FAMILY = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stays = "import os, signal; os.setpgid(0, 0); print(flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", stays], stdout=subprocess.PIPE)
child.stdout.readline()
print(json.dumps({"type": "hello", "name": "family", "version": ""}))
print(json.dumps({"type": "notify", "level": "info", "message": f"{os.getpid()} {child.pid}"}))
print(json.dumps({"type": "ready"}), flush=True)
HOW
"""


@pytest.mark.req("sdk.standin.strict")
@pytest.mark.parametrize("how", ["signal.pause()", "sys.exit(0)", "print('and what now?', flush=True); signal.pause()"])
def test_no_process_is_left_behind_whatever_it_does(tmp_path: Path, how: str) -> None:
    pids: list[int] = []
    try:
        with ZotHost(write_program(tmp_path, FAMILY.replace("HOW", how))) as host:
            pids = [int(word) for word in host.hear("notify")["message"].split()]
            assert lives(pids[1])
            if "what now" in how:
                host.hear("notify")
    except Misbehaved:
        assert "what now" in how
    assert len(pids) == 2
    assert not [pid for pid in pids if lives(pid)]


@pytest.mark.req("sdk.standin.strict")
@pytest.mark.parametrize("how", ["signal.pause()", "sys.exit(0)"])
def test_no_process_is_left_behind_in_a_session_of_its_own(tmp_path: Path, how: str) -> None:
    away = FAMILY.replace("os.setpgid(0, 0)", "os.setsid()").replace("HOW", how)
    with ZotHost(write_program(tmp_path, away)) as host:
        guest, child = (int(word) for word in host.hear("notify")["message"].split())
        assert os.getsid(child) == child != guest
        assert host.process.find_survivors(0.0) != []
    assert not [pid for pid in (guest, child) if lives(pid)]


@pytest.mark.req("sdk.standin.strict")
def test_who_is_just_becoming_another_program_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows neither environment nor arguments for that moment, which a busy machine makes long."""
    away = FAMILY.replace("os.setpgid(0, 0)", "os.setsid()").replace("HOW", "signal.pause()")
    read = Path.read_bytes
    with ZotHost(write_program(tmp_path, away)) as host:
        child = host.hear("notify")["message"].split()[1]
        hidden = [Path("/proc", child, name) for name in ("environ", "cmdline")] * 100

        def slow(path: Path) -> bytes:
            if path not in hidden:
                return read(path)
            hidden.remove(path)
            return b""

        monkeypatch.setattr(Path, "read_bytes", slow)
        assert host.process.find_survivors(0.0) != []
    assert not lives(int(child))


@pytest.mark.req("sdk.standin.strict")
def test_what_takes_a_while_to_die_is_waited_for(tmp_path: Path) -> None:
    """Killed, it gives up its memory first, and its environment with it: from then on nothing tells whose it was."""
    away = FAMILY.replace("os.setpgid(0, 0)", "os.setsid(); ballast = bytes([1]) * (256 << 20)").replace("HOW", "sys.exit(0)")
    with ZotHost(write_program(tmp_path, away)) as host:
        child = int(host.hear("notify")["message"].split()[1])
    assert not lives(child)


def test_whom_it_may_not_kill_it_does_not_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a program that became another user's. Nobody asks about it again and again, either."""
    away = FAMILY.replace("os.setpgid(0, 0)", "os.setsid()").replace("HOW", "sys.exit(0)")
    asked: list[int] = []

    def refused(descriptor: int, _number: int) -> None:
        asked.append(descriptor)
        raise PermissionError

    with ZotHost(write_program(tmp_path, away)) as host:
        child = int(host.hear("notify")["message"].split()[1])
        host.wait()
        monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    assert len(asked) == 1
    assert lives(child)
    os.kill(child, signal.SIGKILL)


INNER = """
import json, os
from serai.testing.zot_host import ZotHost
print(json.dumps({"type": "hello", "name": "outer", "version": ""}))
with ZotHost("inner.py") as host:
    print(json.dumps({"type": "notify", "level": "info", "message": str(host.process.pid)}))
    print(json.dumps({"type": "ready"}), flush=True)
    input()
    os._exit(0)
"""


def test_what_a_guest_takes_in_itself_is_not_left_either(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(f"import signal\nprint('{OPENING}', flush=True)\nsignal.pause()\n")
    with ZotHost(write_program(tmp_path, INNER)) as host:
        inner = int(host.hear("notify")["message"])
        assert lives(inner)
        assert host.wait() == 0
        assert lives(inner)
    assert not lives(inner)


@pytest.mark.req("sdk.standin.strict")
def test_no_process_is_left_behind_when_the_handshake_fails(tmp_path: Path) -> None:
    text = "import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n"
    with pytest.raises(Misbehaved) as caught, ZotHost(write_program(tmp_path, text)):
        pass
    pid = int(str(caught.value).splitlines()[1].removeprefix("← "))
    assert not lives(pid)


def test_a_signal_is_a_negative_status(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, f"import os\nprint('{OPENING}', flush=True)\ninput()\nos.kill(os.getpid(), 9)\n")) as host:
        assert host.eof() == -signal.SIGKILL
