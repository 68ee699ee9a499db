"""The extensions of examples/zot do what their authors promise, under a host that shares no code with Serai."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shlex
import struct
import subprocess
import tomllib
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.testing.zot_host import Frame, ZotHost
from tests.support.needs import require
from tests.support.profiles import examples

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "zot"

# What each example needs, and a program that fails when the machine's is missing or too old.
NEEDS = {
    "weather-python": ["python3"],
    "words-node": ["node"],
    "disk-shell": ["sh", "jq"],
    "guard-python": ["python3"],
    "panel-python": ["python3"],
}
PROBES = {
    "python3": (["-c", "import sys; sys.exit(sys.version_info < (3, 10))"], "3.10"),
    "node": (["-e", "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)"], "18"),
    "jq": (["-n", "halt"], "1.6"),
    "sh": (["-c", ":"], "POSIX"),
}
# What each offers: tools, commands, events, interceptors.
OFFERS: dict[str, tuple[set[str], set[str], set[str], set[str]]] = {
    "weather-python": ({"weather"}, {"weather", "forecast"}, set(), set()),
    "words-node": ({"count_words", "png_dot", "seen"}, {"words"}, {"turn_end", "tool_call"}, set()),
    "disk-shell": ({"disk_free"}, {"disk"}, set(), set()),
    "guard-python": (set(), set(), set(), {"tool_call", "turn_start", "assistant_message"}),
    "panel-python": ({"picked"}, {"pick"}, set(), set()),
}
# One good request for each, to see that it is well.
REQUESTS: dict[str, tuple[str, Frame]] = {
    "weather-python": ("tool_call", {"name": "weather", "args": {"city": "Bern"}}),
    "words-node": ("tool_call", {"name": "count_words", "args": {"text": "one two"}}),
    "disk-shell": ("tool_call", {"name": "disk_free", "args": {"path": "/"}}),
    "guard-python": ("event_intercept", {"event": "turn_start", "step": 1}),
    "panel-python": ("tool_call", {"name": "picked", "args": {}}),
}
NO_FRAMES = [
    b"",
    b"\r",
    b"not json",
    b"{",
    b"null",
    b"17",
    b"[1, 2]",
    b'"tool_call"',
    b"{}",
    b'{"type":7,"id":"1"}',
    b'{"type":null}',
    b'{"type":["shutdown"]}',
    b'{"type":"dance","id":"1","steps":3}',
    b'{"type":"error","message":"an old protocol had this"}',
    b'{"type":"tool_call","id":12,"name":"weather","args":{}}',
    b'{"type":"tool_call","name":"weather","args":{}}',
    b'{"type":"command_invoked","id":null,"name":"weather"}',
    b'{"type":"event_intercept","id":1,"event":"tool_call"}',
    b'{"type":"event","event":"session_start","mood":"good"}',
    b'{"type":"event","event":{"toString":1}}',
    b'{"type":"panel_key","panel_id":"none","key":"up"}',
    b'{"type":"panel_resize","panel_id":"none","width":1,"height":1}',
    b'{"type":"hello_ack","protocol_version":1}',
    b"\xff\xfe{}",
    b"[" * 100_000,
]

every_example = pytest.mark.parametrize("name", sorted(NEEDS))


@functools.cache
def probe(program: str) -> str | None:
    """Why a program of this machine will not do; none if it does."""
    arguments, version = PROBES[program]
    try:
        ran = subprocess.run([program, *arguments], capture_output=True, timeout=60, check=False)
    except OSError as error:
        return f"{program} does not start ({error.strerror}): install {program} {version} or newer"
    return f"{program} is too old or broken: install {version} or newer" if ran.returncode else None


def open_example(name: str, *, cwd: Path | None = None) -> ZotHost:
    require(*(program for program in NEEDS[name] if program in ("node", "jq")))
    for program in NEEDS[name]:
        if why := probe(program):
            pytest.fail(f"examples/zot/{name}: {why}", pytrace=False)
    return ZotHost(EXAMPLES / name, cwd=cwd)


def ask_well(host: ZotHost, name: str, **unknown: object) -> str:
    kind, fields = REQUESTS[name]
    return host.ask(kind, **fields, **unknown)


def is_well(answer: Frame) -> bool:
    return not any(answer.get(key) for key in ("is_error", "error", "block"))


def join_text(result: Frame) -> str:
    [block] = result["content"]
    assert block["type"] == "text"
    return str(block["text"])


# -- what all of them do ------------------------------------------------------------------------------------------------------


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == NEEDS.keys() == OFFERS.keys() == REQUESTS.keys()


@every_example
def test_it_introduces_itself_with_what_it_offers(name: str) -> None:
    with open_example(name) as host:
        offered = (set(host.tools), set(host.commands), set(host.events), set(host.intercepts))
        assert offered == OFFERS[name]
        assert all(tool["schema"]["type"] == "object" for tool in host.tools.values())
        assert all(thing["description"] for thing in [*host.tools.values(), *host.commands.values()])
        assert (host.shutdown(), host.stderr) == (0, "")


@every_example
def test_its_manifest_has_the_fields_of_the_spec_and_names_a_program_of_the_machine_or_of_the_folder(name: str) -> None:
    manifest = json.loads((EXAMPLES / name / "extension.json").read_text())
    assert manifest.keys() <= {"name", "version", "language", "description", "exec", "args"}
    assert manifest["name"]
    assert not os.path.isabs(manifest["exec"])


@every_example
@pytest.mark.parametrize("way", ["shutdown", "shutdown alone", "end of input"])
def test_shutdown_and_the_end_of_input_each_end_it_with_status_0(name: str, way: str) -> None:
    with open_example(name) as host:
        pending = ask_well(host, name)
        status = host.eof() if way == "end of input" else host.shutdown(close=way == "shutdown")
        assert (status, host.stderr) == (0, "")
        assert is_well(host.answers[pending])
        said = [frame for frame in host.heard if frame["type"] == "shutdown_ack"]
        assert said == ([] if way == "end of input" else [{"type": "shutdown_ack"}])


@every_example
def test_a_last_line_without_its_newline_is_served(name: str) -> None:
    with open_example(name) as host:
        kind, fields = REQUESTS[name]
        id = host.promise(kind)
        host.write(json.dumps({"type": kind, "id": id, **fields}).encode())
        assert (host.eof(), host.stderr) == (0, "")
        assert is_well(host.answers[id])


@every_example
def test_it_ends_when_its_host_is_gone(name: str) -> None:
    with open_example(name) as host:
        ask_well(host, name)
        host.vanish()
        assert "Traceback" not in host.stderr


@every_example
def test_what_is_no_frame_or_an_unknown_one_is_passed_over(name: str) -> None:
    with open_example(name) as host:
        for line in NO_FRAMES:
            host.write(line + b"\n")
        assert is_well(host.answer(ask_well(host, name)))
        said = [frame for frame in host.heard if frame["type"] != "notify"]
        assert (host.shutdown(), host.stderr, said) == (0, "", [])


@every_example
def test_unknown_fields_and_crlf_line_ends_are_passed_over(name: str) -> None:
    with open_example(name) as host:
        assert is_well(host.answer(ask_well(host, name, priority=3, session={"id": 1}, null=None)))
        kind, fields = REQUESTS[name]
        id = host.promise(kind)
        host.write(json.dumps({"type": kind, "id": id, **fields}).encode() + b"\r\n")
        assert is_well(host.answer(id))


@every_example
def test_a_tool_or_command_that_it_does_not_have_is_refused(name: str) -> None:
    with open_example(name) as host:
        for unknown in ("dance", "", "toString", "üben", "a\nb", None, {"toString": 1}):
            refused = host.answer(host.ask("tool_call", name=unknown, args={}))
            assert refused["is_error"]
            assert "there is no" in join_text(refused)
            assert "there is no" in host.answer(host.ask("command_invoked", name=unknown, args="x"))["error"]
        assert (host.shutdown(), host.stderr) == (0, "")


@every_example
def test_many_requests_at_once_get_one_answer_each(name: str) -> None:
    with open_example(name) as host:
        good = [ask_well(host, name) for _ in range(15)]
        bad = [host.ask("tool_call", name="dance", args={}) for _ in range(15)]
        assert all(is_well(host.answer(id)) for id in reversed(good))
        assert all(host.answer(id)["is_error"] for id in bad)
        assert (host.shutdown(), host.stderr) == (0, "")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["city", "delay", "text", "path", "toString", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@every_example
def test_whatever_json_the_model_makes_of_the_arguments_gets_one_answer(name: str) -> None:
    with open_example(name) as host:

        @settings(max_examples=examples(25), deadline=None, database=None)
        @given(ANY_JSON)
        def run(args: object) -> None:
            asked = [host.ask("tool_call", name=tool, args=args) for tool in ("dance", *host.tools)]
            asked += [host.ask("command_invoked", name=command, args=args) for command in host.commands]
            asked += [host.ask("event_intercept", event=event, tool_name="x", tool_args=args) for event in host.intercepts]
            for id in asked:
                host.answer(id)

        run()
        assert host.shutdown() == 0


# -- weather-python -----------------------------------------------------------------------------------------------------------


def test_weather_is_told_by_tool_and_command_and_stays_the_same_from_run_to_run() -> None:
    for _ in range(2):
        with open_example("weather-python") as host:
            assert host.call_tool("weather", {"city": "Bern"}) == {
                "type": "tool_result",
                "id": "101502000000",
                "content": [{"type": "text", "text": "Bern: 16 degrees, fog"}],
            }
            shown = host.run_command("weather", " Bern ")
            assert (shown["action"], shown["display"]) == ("display", "Bern: 16 degrees, fog")
            asked = host.run_command("forecast", "Bern")
            assert (asked["action"], "Bern: 16 degrees, fog" in asked["prompt"]) == ("prompt", True)
            assert join_text(host.call_tool("weather", {"city": "Zürich"})).startswith("Zürich: ")
            host.write(
                b'{"type":"tool_call","id":"%s","name":"weather","args":{"city":"\\ud800"}}\n' % host.promise("tool_call").encode()
            )
            assert (host.shutdown(), host.stderr) == (0, "")


def test_weather_gives_one_notice_right_after_its_hello() -> None:
    with open_example("weather-python") as host:
        assert host.heard == [{"type": "notify", "level": "info", "message": "the weather station is open"}]
        host.eof()
        assert len(host.heard) == 1


@pytest.mark.parametrize(
    "args", [{}, {"city": ""}, {"city": 7}, [], None, {"city": "Bern", "delay": -1}, {"city": "Bern", "delay": True}]
)
def test_weather_refuses_arguments_that_make_no_sense(args: object) -> None:
    with open_example("weather-python") as host:
        assert host.call_tool("weather", args)["is_error"]
        assert "which city" in host.run_command("weather")["error"]
        assert is_well(host.call_tool("weather", {"city": "Bern"}))


def test_a_slow_weather_station_holds_up_neither_other_requests_nor_the_end() -> None:
    with open_example("weather-python") as host:
        slow = [host.ask("tool_call", name="weather", args={"city": "Bern", "delay": 50}) for _ in range(5)]
        quick = [host.ask("tool_call", name="weather", args={"city": str(n)}) for n in range(40)]
        commands = [host.ask("command_invoked", name="weather", args=str(n)) for n in range(40)]
        for number in range(40):
            assert join_text(host.answer(quick[number])).startswith(f"{number}: ")
            assert host.answer(commands[number])["display"].startswith(f"{number}: ")
        assert not host.answers.keys() & set(slow)
        assert (host.shutdown(), host.stderr) == (0, "")
        assert {join_text(host.answers[id]) for id in slow} == {"the weather station has closed"}
        assert all(host.answers[id]["is_error"] for id in slow)


# -- words-node ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "count"), [("", "0 words"), ("one", "1 word"), ("  to be\nor\tnot ", "4 words"), ("süß\u2028日本", "2 words")]
)
def test_words_are_counted(words: str, count: str) -> None:
    with open_example("words-node") as host:
        assert join_text(host.call_tool("count_words", {"text": words})) == count
        assert (host.shutdown(), host.stderr) == (0, "")


def test_words_counts_a_text_of_a_mebibyte() -> None:
    with open_example("words-node") as host:
        assert join_text(host.call_tool("count_words", {"text": "word " * 200_000})) == "200000 words"


def test_words_inserts_the_text_with_its_count() -> None:
    with open_example("words-node") as host:
        inserted = host.run_command("words", "to  be")
        assert (inserted["action"], inserted["insert"]) == ("insert", "to  be (2 words)")
        assert "which text" in host.run_command("words")["error"]
        assert "needs a text" in join_text(host.call_tool("count_words", {"text": 3}))


def test_the_dot_is_a_whole_png_of_one_pixel() -> None:
    with open_example("words-node") as host:
        [image] = host.call_tool("png_dot", {})["content"]
    assert (image["type"], image["mime_type"]) == ("image", "image/png")
    data = base64.b64decode(image["data"], validate=True)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += size + 12
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (1, 1, 8, 2, 0, 0, 0)
    assert len(zlib.decompress(chunks[b"IDAT"])) == 1 + 3  # the row's filter, then red, green and blue


def test_words_counts_the_events_it_subscribed_to_and_no_others() -> None:
    with open_example("words-node") as host:
        assert json.loads(join_text(host.call_tool("seen", {}))) == {"turn_end": 0, "tool_call": 0}
        host.tell("tool_call", tool_id="c1", tool_name="bash", tool_args={})
        for event in ("turn_start", "turn_end", "assistant_message", "toString"):
            host.tell(event)
        host.tell("turn_end", stop="end")
        assert json.loads(join_text(host.call_tool("seen", {}))) == {"turn_end": 2, "tool_call": 1}
        assert (host.shutdown(), host.stderr) == (0, "")


# -- disk-shell ---------------------------------------------------------------------------------------------------------------


def test_disk_measures_the_disk_of_a_path() -> None:
    size = os.statvfs("/")
    with open_example("disk-shell") as host:
        told = join_text(host.call_tool("disk_free", {"path": "/"}))
        measured = re.fullmatch(r"(\d+\.\d) GiB free of (\d+\.\d) GiB on /", told)
        assert measured, told
        assert float(measured[2]) == pytest.approx(size.f_blocks * size.f_frsize / 2**30, abs=0.5)
        assert float(measured[1]) <= float(measured[2])
        assert (host.shutdown(), host.stderr) == (0, "")


@pytest.mark.parametrize("folder", ["plain", "with space", "quo'te\"$(touch x)`", "-rf", "новый"])
def test_disk_takes_any_path_and_starts_where_the_agent_works(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    with open_example("disk-shell", cwd=tmp_path) as host:
        relative, absolute = (host.call_tool("disk_free", {"path": path}) for path in (folder, str(tmp_path / folder)))
        assert is_well(relative)
        assert " GiB on " in join_text(absolute)
        shown = host.run_command("disk", folder)
        assert (shown["action"], " GiB on " in shown["display"]) == ("display", True)
        assert (host.shutdown(), host.stderr) == (0, "")
    assert os.listdir(tmp_path) == [folder]


def test_disk_says_why_it_cannot_measure(tmp_path: Path) -> None:
    with open_example("disk-shell", cwd=tmp_path) as host:
        assert " GiB on " in host.run_command("disk")["display"]
        assert "No such file" in host.run_command("disk", "nowhere")["error"]
        assert "No such file" in join_text(host.call_tool("disk_free", {"path": "nowhere"}))
        for args in ({}, {"path": ""}, {"path": "/" + "x" * 200_000}, {"path": "/\0"}, {"path": ["/"]}, "/"):
            refused = host.call_tool("disk_free", args)
            assert refused["is_error"]
            assert "needs a path" in join_text(refused)
        assert (host.shutdown(), host.stderr) == (0, "")


# -- guard-python -------------------------------------------------------------------------------------------------------------


def ask_verdict(host: ZotHost, event: str, **fields: object) -> Frame:
    """What it says of an event, without type and id."""
    return {key: value for key, value in host.intercept(event, **fields).items() if key not in ("type", "id")}


@pytest.mark.parametrize(
    "args",
    [
        {"command": "rm -rf /"},
        {"command": "cd /tmp && sudo rm  -rf build; ls"},
        {"command": "rm -fr x"},
        {"command": "rm -r -f x"},
        {"command": "rm -v --recursive --force x"},
        {"command": "sh -c '/bin/rm -Rf x'"},
        {"argv": ["rm", "-rf", "x"]},
        {"steps": [{"run": "ls"}, {"run": "rm -rf x"}]},
        {"rm -rf x": 1},
        "rm -rf x",
    ],
    ids=str,
)
@pytest.mark.parametrize("tool", ["bash", "weather"])
def test_the_guard_blocks_rm_rf_wherever_it_stands_in_the_arguments(tool: str, args: object) -> None:
    with open_example("guard-python") as host:
        verdict = ask_verdict(host, "tool_call", tool_id="call_1", tool_name=tool, tool_args=args)
        assert verdict.keys() == {"block", "reason"}
        assert verdict["block"] is True
        assert verdict["reason"].startswith(f"{tool}: rm -rf is not run here")


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("bash", {"command": "ls -l"}),
        ("bash", {"command": "rm -r build"}),
        ("bash", {"command": "rm -f --verbose x; grep -r x"}),
        ("bash", {"command": "firm -rf"}),
        ("bash", {"city": "Paris"}),
        ("weather", {"city": "Bern"}),
        ("weather", ["Paris"]),
        ("weather", None),
    ],
    ids=str,
)
def test_the_guard_allows_the_rest_as_it_is(tool: str, args: object) -> None:
    with open_example("guard-python") as host:
        assert ask_verdict(host, "tool_call", tool_id="call_1", tool_name=tool, tool_args=args) == {}


def test_the_guard_rewrites_one_argument_and_keeps_the_others() -> None:
    with open_example("guard-python") as host:
        verdict = ask_verdict(host, "tool_call", tool_id="call_1", tool_name="weather", tool_args={"city": "Paris", "delay": 0})
        assert verdict == {"modified_args": {"city": "Bern", "delay": 0}}


def test_the_guard_lets_nobody_give_a_file_to_everybody() -> None:
    with open_example("guard-python") as host:
        args = {"command": "touch x; chmod 777 x", "timeout": 5}
        verdict = ask_verdict(host, "tool_call", tool_id="call_1", tool_name="bash", tool_args=args)
        assert verdict == {"modified_args": {"command": "touch x; chmod 755 x", "timeout": 5}}


def test_the_guard_ends_a_turn_after_fifty_steps() -> None:
    with open_example("guard-python") as host:
        assert [ask_verdict(host, "turn_start", step=step) for step in (1, 50)] == [{}, {}]
        verdict = ask_verdict(host, "turn_start", step=51)
        assert (verdict["block"], "50 steps" in verdict["reason"]) == (True, True)


def test_the_guard_replaces_the_password_in_messages() -> None:
    with open_example("guard-python") as host:
        assert ask_verdict(host, "assistant_message", text="nothing to see") == {}
        verdict = ask_verdict(host, "assistant_message", text="Psst, the password is hunter2.\nYes, the password is hunter2!")
        assert verdict == {"replace_text": "Psst, the password is *******.\nYes, the password is *******!"}


def test_the_guard_allows_what_it_was_not_asked_to_judge_and_blocks_what_it_cannot_judge() -> None:
    with open_example("guard-python") as host:
        assert ask_verdict(host, "full_moon") == {}
        assert ask_verdict(host, "turn_start", step=None) == {}
        for event, fields in (("turn_start", {"step": "many"}), ("assistant_message", {"text": 7})):
            verdict = ask_verdict(host, event, **fields)
            assert verdict["block"]
            assert "could not judge" in verdict["reason"]
        assert (host.shutdown(), host.stderr) == (0, "")


def test_the_guard_is_set_up_as_a_guard_for_serai() -> None:
    assert tomllib.loads((EXAMPLES / "guard-python" / "guest.toml").read_text()) == {"guard": True}


# -- panel-python -------------------------------------------------------------------------------------------------------------

PANEL = "harbours"


def read_rows(render: Frame) -> list[str]:
    assert "title" not in render  # a render without a title keeps the old one
    return [str(line) for line in render["lines"]]


def press(host: ZotHost, *keys: str) -> Frame:
    """Press keys at once, runes as themselves; the picture after the last of them."""
    for key in keys:
        host.press(PANEL, *(("rune", key) if len(key) == 1 else (key,)))
    return [host.hear("panel_render") for _ in keys][-1]


def test_the_panel_opens_with_all_harbours() -> None:
    with open_example("panel-python") as host:
        opened = host.run_command("pick")
        assert (opened["action"], opened["open_panel"]["id"], opened["open_panel"]["title"]) == ("open_panel", PANEL, "Harbours")
        assert opened["open_panel"]["lines"][:2] == ["> Antwerp", "  Bergen"]
        assert (len(opened["open_panel"]["lines"]), "esc close" in opened["open_panel"]["footer"]) == (8, True)
        assert join_text(host.call_tool("picked", {})) == "nothing was picked yet"
        assert (host.shutdown(), host.stderr) == (0, "")


def test_keys_move_the_cursor_in_order_and_not_beyond_the_ends() -> None:
    with open_example("panel-python") as host:
        host.run_command("pick")
        assert read_rows(press(host, "down", "down", "up", "down"))[2] == "> Cuxhaven"
        assert read_rows(press(host, "up", "up", "up", "up"))[0] == "> Antwerp"
        assert read_rows(press(host, *["down"] * 20))[-1] == "> Valparaíso"
        assert read_rows(press(host, "home"))[0] == "> Antwerp"
        assert read_rows(press(host, "end"))[-1] == "> Valparaíso"
        for key in ("left", "tab", "pageup", "delete", "unknown", "f13"):
            assert read_rows(press(host, key))[-1] == "> Valparaíso"


def test_runes_filter_the_list_and_backspace_takes_them_back() -> None:
    with open_example("panel-python") as host:
        host.run_command("pick")
        assert read_rows(press(host, "E", "r")) == ["> Antwerp", "  Bergen", "  Rotterdam"]
        assert read_rows(press(host, "down", "backspace", "backspace", "ń")) == ["> Gdańsk"]
        assert "filter: ń_" in press(host, "tab")["footer"]
        assert read_rows(press(host, "z", " ")) == ["  no harbour has this name"]
        assert read_rows(press(host, "enter")) == ["  no harbour has this name"]
        assert len(read_rows(press(host, "backspace", "backspace", "backspace", "backspace"))) == 8
        assert host.run_command("pick", "hus")["open_panel"]["lines"] == ["> Husum"]


def test_enter_closes_the_panel_and_tells_the_choice() -> None:
    with open_example("panel-python") as host:
        host.run_command("pick")
        press(host, "h", "u")
        host.press(PANEL, "enter")
        assert host.hear("panel_close") == {"type": "panel_close", "panel_id": PANEL}
        assert host.hear("notify") == {"type": "notify", "level": "success", "message": "picked Husum"}
        host.press(PANEL, "down")  # was on its way when the panel closed
        assert join_text(host.call_tool("picked", {})) == "Husum"
        assert host.run_command("pick")["open_panel"]["lines"][0] == "> Antwerp"
        host.eof()
        assert (host.heard, host.stderr) == ([], "")


def test_the_host_may_close_the_panel() -> None:
    with open_example("panel-python") as host:
        host.run_command("pick")
        host.close_panel("another")
        press(host, "down")
        host.close_panel(PANEL)
        for key in ("down", "enter"):
            host.press(PANEL, key)
        assert join_text(host.call_tool("picked", {})) == "nothing was picked yet"
        host.eof()
        assert (host.heard, host.stderr) == ([], "")


@pytest.mark.parametrize(
    ("width", "first"),
    [(5, "> Ant"), (200, "> Antwerp"), (0, "> Antwerp"), (-3, "> Antwerp"), ("wide", "> Antwerp"), (None, "> Antwerp")],
)
def test_a_resize_cuts_the_lines_and_a_senseless_one_changes_nothing(width: object, first: str) -> None:
    with open_example("panel-python") as host:
        host.run_command("pick")
        host.resize(PANEL, width, 28)
        assert read_rows(host.hear("panel_render"))[0] == first


# -- the readme ---------------------------------------------------------------------------------------------------------------


def test_the_readme_lists_every_example_with_all_it_offers() -> None:
    table = dict(re.findall(r"^\| \[([a-z-]+)\]\([^)]+\) \| (.*)$", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert table.keys() == NEEDS.keys()
    for name, (tools, commands, _events, intercepts) in OFFERS.items():
        needs, offers, _shows = table[name].split(" | ")
        assert set(re.findall(r"`(\w+)`", needs)) == set(NEEDS[name])
        assert set(re.findall(r"`(/?\w+)`", offers)) == tools | {f"/{command}" for command in commands} | intercepts


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text()):
        assert (EXAMPLES / target).is_file(), target


README_LINES = re.findall(r"^serai (.+)$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", README_LINES)
def test_what_the_readme_runs_is_there_to_be_run(line: str) -> None:
    words = shlex.split(line)
    folder = ROOT / words[words.index("--guest") + 1]
    with open_example(folder.name) as host:
        match words:
            case ["tool", "call", tool, args, *_]:
                answer = host.call_tool(tool, json.loads(args))
            case ["command", "run", command, *rest]:
                answer = host.run_command(command, rest[0] if rest[0] != "--guest" else "")
            case _:
                pytest.fail(f"no command of Serai: {line}")
        assert is_well(answer)
