"""How a guest's process is started and on which descriptors it is spoken to (spec piglet 1.4, 2.1)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serai.errors import ExitStatus, SeraiError
from serai.host.adapters.piglet.guest import PigletGuest
from serai.host.adapters.piglet.transport import DeferredActions, GuestWire, WireChoice
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.model.actions import Display, Notice
from serai.wire import process_tree
from tests.support.host.zot_guests import AwaitableSurface, Fifo, build_host, close_host, log_of, open_host, pid_of
from tests.support.piglet.journals import ONE_LOOP, wait_for_note
from tests.support.piglet.raw_guests import child_of, write_bare_guest
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import fault, note, where

pytestmark = ONE_LOOP

# Reads both inputs, speaks on one of them, and tells what came on the other.
TWO_WAYS = """
speaks, other, write = {"fd": (3, 0, 4), "stdio": (0, 3, 1)}["WAY"]
first = next(lines(speaks))
say(write, tool("early"), {"jsonrpc": "2.0", "id": 7, "method": "host/extensionsDir"})
note("asked", json.dumps(next(lines(speaks))))
say(write, hello(first["id"]))
heard = b""
while chunk := os.read(other, 65536):
    heard += chunk
note("heard", json.dumps([json.dumps(first), heard.decode()]))
serve(speaks, write)
"""


async def ask_where(host: Host, tool: str = "where") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await host.call_tool(tool)).text)
    return found


# -- both ways (FIX-2)


@pytest.mark.req("piglet.fix.02")
@pytest.mark.parametrize("way", ["fd", "stdio"])
async def test_initialize_goes_both_ways_and_the_side_that_answers_is_the_wire(tmp_path: Path, way: str) -> None:
    folder = write_bare_guest(tmp_path, TWO_WAYS.replace("WAY", way))
    async with open_host(tmp_path, folder) as host:
        assert [tool.name for tool in host.tools] == ["early"]  # what came before the answer counts
        assert json.loads(await wait_for_note(folder / "asked"))["id"] == 7  # and was answered where it was asked
        first, heard = json.loads(await wait_for_note(folder / "heard"))  # to its end: the other input was closed
        assert heard.count("\n") == 1
        assert json.loads(heard) == json.loads(first)
        assert (await host.call_tool("early")).text == "early"
        told = "the descriptors 3 and 4" if way == "fd" else "its standard streams"
        assert f"it speaks on {told}" in log_of(host, "bare")


@pytest.mark.req("piglet.fix.02")
@pytest.mark.parametrize("sdk", ["go", "typescript"])
async def test_guests_of_both_sdks_run_alike(tmp_path: Path, sdk: Any) -> None:
    folder = write(tmp_path, "weather", sdk=sdk, tools={"where": [where()], "look": "fog"}, commands=["go"], sections={"A": "b"})
    async with open_host(tmp_path, folder) as host:
        found = await ask_where(host)
        assert found["fd"] is (sdk == "go")
        assert (await host.call_tool("look")).text == "fog"
        assert [command.name for command in host.commands] == ["go"]
        child = child_of(host, "weather")
        assert (child.stdin == -1) is (sdk == "go")
        assert (3 not in child.extra) is (sdk == "typescript")
    assert child.exited.result() == ExitStatus(code=0)  # it went with the end of the input that it reads


@pytest.mark.parametrize(("way", "fits"), [("fd", "go"), ("stdio", "typescript")])
async def test_a_manifest_may_say_which_way_it_speaks(tmp_path: Path, way: str, fits: Any) -> None:
    folder = write(tmp_path, "weather", sdk=fits, tools={"where": [where()]}, manifest={"transport": way})
    async with open_host(tmp_path, folder) as host:
        found = await ask_where(host)
        assert (found["fd"], found["environ"].get("PIGLET_FD")) == ((True, "1") if way == "fd" else (False, None))
        assert (set(child_of(host, "weather").extra), child_of(host, "weather").stdin == -1) == (
            ({3, 4}, True) if way == "fd" else (set(), False)
        )


BOTH = """
next(lines(3)), next(lines(0))
pieces = {4: [tool("by fd"), hello()], 1: [tool("by stdio"), hello()]}
for fd, messages in pieces.items():
    say(fd, *messages)
open_ = {3: 4, 0: 1}
while open_:
    for fd in select.select(list(open_), [], [])[0]:
        chunk = os.read(fd, 65536)
        if not chunk:
            del open_[fd]
        for line in chunk.splitlines():
            m = json.loads(line)
            if m.get("method") == "tool/execute":
                say(open_[fd], answer(m["id"], f"{m['params']['name']} on {fd}"))
"""


async def test_of_two_answers_one_counts_and_all_that_follows_is_on_its_side(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_bare_guest(tmp_path, BOTH)) as host:
        [offered] = [tool.name for tool in host.tools]
        assert (await host.call_tool(offered)).text == {"by fd": "by fd on 3", "by stdio": "by stdio on 0"}[offered]
        assert host.guest("bare").state is GuestState.READY
        unknown = {"by fd": "by stdio", "by stdio": "by fd"}[offered]
        assert (await host.call_tool(unknown)).code == "UNKNOWN_TOOL"


@pytest.mark.req("piglet.fix.02")
@pytest.mark.parametrize("way", ["fd", "stdio"])
async def test_a_guest_that_has_closed_the_other_side_before_anything_was_said_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    usual = WireChoice.wait_for_answer

    async def first(self: WireChoice, *args: Any) -> Any:
        await wait_for_note(folder / "closed")  # so that there is nobody to write to
        return await usual(self, *args)

    monkeypatch.setattr(WireChoice, "wait_for_answer", first)
    speaks, write_, others = (3, 4, (0, 1)) if way == "fd" else (0, 1, (3, 4))
    body = f"for fd in {others}: os.close(fd)\nnote('closed')\nfirst = next(lines({speaks}))\n"
    folder = write_bare_guest(tmp_path, f"{body}say({write_}, tool('look'), hello())\nserve({speaks}, {write_})")
    async with open_host(tmp_path, folder, limits={"exit_grace": 0.05}) as host:
        assert (await host.call_tool("look")).text == "look"
        assert (host.guest("bare").state, host.guest("bare").generation) == (GuestState.READY, 1)


EARLY = """
way, inputs = "WAY", {"fd": lines(3), "stdio": lines(0)}
for some in inputs.values(): next(some)
def tell(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}
say(1, tell("showMessage", text="one"), tell("sendMessage", content="/quit"), tell("notify", message="two"))
say(1, tell("log", message="three"), {"jsonrpc": "2.0", "id": 7, "method": "host/extensionsDir"})
note("asked", json.dumps(next(inputs["stdio"])))
with open("LATCH", "rb", buffering=0) as latch: latch.read(1)
say({"fd": 4, "stdio": 1}[way], hello(), tell("notify", message="four"))
for m in inputs[way]: pass
"""


@pytest.mark.req("piglet.fix.02")
@pytest.mark.parametrize("way", ["fd", "stdio"])
async def test_what_is_told_on_stdout_before_the_first_answer_counts_once_that_is_the_wire(tmp_path: Path, way: str) -> None:
    window = AwaitableSurface()
    with Fifo(tmp_path) as latch:
        folder = write_bare_guest(tmp_path, EARLY.replace("WAY", way).replace("LATCH", str(latch.path)))
        host = build_host(tmp_path, folder, surface=window)
        starting = asyncio.ensure_future(host.start())
        try:
            assert json.loads(await wait_for_note(folder / "asked"))["id"] == 7  # answered, and so is behind what was told
            assert window.actions == []
            latch.lift()
            await starting
            await window.shown(lambda action: action == Notice("four", "info", "bare"))
            early = [Display("one", "bare"), Notice("two", "info", "bare")] if way == "stdio" else []
            assert window.actions == [*early, Notice("four", "info", "bare")]
            assert ("sendMessage was not done" in log_of(host, "bare")) is (way == "stdio")
            assert "info: three" in log_of(host, "bare")  # as what is printed is
        finally:
            await close_host(host)


async def test_of_what_may_count_later_there_is_an_end() -> None:
    done: list[int] = []
    later = DeferredActions()
    kept = [later.do(partial(done.append, number), 1 << 20) for number in range(9)]
    assert kept == [True] * 7 + [False] * 2
    later.choose(chosen=True)
    later.do(partial(done.append, 9))
    assert done == [*range(7), 9]


PRINTING = """
first = next(lines(3))
say(1, tool("printed"), {"jsonrpc": "2.0", "method": "register/interceptor", "params": {"name": "printed"}})
say(4, tool("real"))
say(4, hello())
for m in lines(3):
    if "id" in m:
        say(1, tool("printed later"), {"jsonrpc": "2.0", "id": m["id"], "result": {"content": [{"type": "text", "text": "a lie"}]}})
        say(4, answer(m["id"], "the truth"))
"""


async def test_what_a_guest_prints_is_never_its_word_however_much_it_looks_like_it(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_bare_guest(tmp_path, PRINTING)) as host:
        for _ in range(3):
            assert (await host.call_tool("real")).text == "the truth"
        assert [tool.name for tool in host.tools] == ["real"]
        assert not host.guest("bare").contributions.interceptors
        assert host.table.shadowed == ()
        assert '"printed later"' in log_of(host, "bare")  # kept, as everything it prints


@pytest.mark.req("piglet.edge.10")
@pytest.mark.parametrize(("sdk", "streams"), [("go", ("stdout", "stderr")), ("typescript", ("stderr",))])
async def test_a_guest_that_prints_megabytes_never_blocks(tmp_path: Path, sdk: Any, streams: tuple[str, ...]) -> None:
    flood = [fault(name, bytes=3 << 20) for name in streams]
    folder = write(
        tmp_path, "chatty", sdk=sdk, at_start=flood, at_init=flood, after_init=flood, tools={"talk": [*flood, note("said")]}
    )
    async with open_host(tmp_path, folder) as host:
        for _ in range(2):
            assert not (await host.call_tool("talk")).is_error
        assert host.guest("chatty").generation == 1


# -- its process (spec piglet 2.1)


@pytest.mark.req("piglet.rule.child-cwd")
async def test_it_runs_in_its_own_folder_and_session_and_has_its_wire_at_3_and_4(tmp_path: Path) -> None:
    async with open_host(tmp_path, write(tmp_path, "weather", tools={"where": [where()]})) as host:
        found, pid = await ask_where(host), pid_of(host, "weather")
        assert (found["folder"], found["cwd"]) == (str(tmp_path / "weather"), str(tmp_path / "project"))
        process = process_tree.read_process(pid)
        assert process is not None
        assert process.session == pid != os.getsid(0)
        child = child_of(host, "weather")
        for number, ours in child.extra.items():
            assert os.readlink(f"/proc/{pid}/fd/{number}") == os.readlink(f"/proc/self/fd/{ours}")
        assert found["fd"]


@pytest.mark.req("piglet.rule.child-environment", "piglet.edge.32")
async def test_it_gets_our_environment_but_for_what_looks_like_a_credential(tmp_path: Path) -> None:
    environ = {"PLAIN": "yes", "ACME_API_KEY": "secret-1", "GITHUB_TOKEN": "secret-2", "PIGLET_FD": "0"}
    folders = [write(tmp_path, name, tools={name: [where()]}) for name in ("one", "two")]
    config = {"guest": {"piglet:two": {"env": ["ACME_API_KEY"]}}}
    async with open_host(tmp_path, *folders, environ=environ, config=config) as host:
        one, two = [(await ask_where(host, name))["environ"] for name in ("one", "two")]
    assert (one["PIGLET_FD"], two["PIGLET_FD"], one["PLAIN"], one["PATH"]) == ("1", "1", "yes", os.environ["PATH"])
    assert not {"ACME_API_KEY", "GITHUB_TOKEN"} & one.keys()
    assert (two.get("ACME_API_KEY"), two.get("GITHUB_TOKEN")) == ("secret-1", None)


@pytest.mark.req("piglet.edge.32")
async def test_no_guest_holds_a_siblings_pipes(tmp_path: Path) -> None:
    folders = [write(tmp_path, name, tools={name: [where()]}) for name in ("one", "two", "three")]
    async with open_host(tmp_path, *folders) as host:
        pipes: list[set[str]] = []
        for name in ("one", "two", "three"):
            place = f"/proc/{pid_of(host, name)}/fd"
            held = {int(number): os.readlink(f"{place}/{number}") for number in os.listdir(place)}
            assert set(held) == {0, 1, 2, 3, 4}
            pipes.append({where for where in held.values() if where.startswith("pipe:")})
        assert not pipes[0] & pipes[1] | pipes[1] & pipes[2] | pipes[0] & pipes[2]
        first = child_of(host, "one")
        await host.guest("one").stop()  # which waits 15 s before it signals
        assert first.exited.result() == ExitStatus(code=0)
        assert not (await host.call_tool("three")).is_error


# A host in a process of its own, in which each pipe in turn lies at 3 and 4, either way around, while the guest is started.
COLLISION = """
import asyncio, os, sys

forbidden = []
sys.addaudithook(lambda name, _args: forbidden.append(name) if name in ("os.fork", "os.forkpty", "subprocess.Popen") else None)
from serai.host.host import Host

home, folder = sys.argv[1:]
os_pipe, turn = os.pipe, {}


def pipe():
    ends = os_pipe()
    turn["made"] += 1
    if turn["made"] != turn["which"]:
        return ends
    os.dup2(ends[0], turn["at"][0], False), os.dup2(ends[1], turn["at"][1], False)
    os.close(ends[0]), os.close(ends[1])
    turn["placed"] = True
    return turn["at"]


async def main():
    environ = {"PATH": os.environ["PATH"], "SERAI_HOME": home}
    for which in (1, 2, 3, 4):
        for at in ((3, 4), (4, 3)):
            turn.update(which=which, at=at, made=0, placed=False)
            os.pipe = pipe
            try:
                async with Host.discover(guests=[folder], environ=environ, config={}) as host:
                    os.pipe = os_pipe
                    result = await host.call_tool("look")
                    print(which, at, turn["placed"], result.text, host.report.to_lines())
            finally:
                os.pipe = os_pipe
            for number in (3, 4):
                os.dup2(0, number)


for number in (3, 4):
    os.dup2(0, number)  # so that nothing else gets them
os.closerange(5, 20)
asyncio.run(main())
print(forbidden)
"""


@pytest.mark.req("piglet.edge.36")
async def test_a_guest_has_its_pipes_at_3_and_4_also_when_ours_have_these_numbers(tmp_path: Path) -> None:
    """And no Python runs between fork and exec: there is no fork."""
    folder = write(tmp_path, "weather", tools={"look": "fog"})
    argv = [sys.executable, "-c", COLLISION, str(tmp_path / "home"), str(folder)]
    ran = await asyncio.to_thread(
        subprocess.run, argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    *rows, forked = ran.stdout.splitlines()
    assert forked == "[]"
    assert rows == [f"{which} {at} True fog []" for which in (1, 2, 3, 4) for at in ((3, 4), (4, 3))]


# -- how it is started (spec piglet 1.4)


@pytest.mark.req("piglet.edge.24")
async def test_python_is_the_python3_of_the_path_and_not_ours(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", tools={"where": [where()]}, runtime="python", entry="main.py")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexport WHICH=theirs\nexec {sys.executable} -SE "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    async with open_host(tmp_path, folder, environ={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}) as host:
        found = await ask_where(host)
        assert (found["environ"]["WHICH"], found["argv"]) == ("theirs", [str(folder / "main.py")])
    async with open_host(tmp_path / "second", folder, environ={"PATH": str(tmp_path / "none")}) as host:
        error = host.guest("weather").error
        assert error is not None
        assert error.message.startswith("start weather: there is no program python3 on the PATH")


@pytest.mark.req("piglet.rule.runtime-paths")
@pytest.mark.parametrize("entry", ["", "start.txt"])
@pytest.mark.parametrize("runtime", ["python3", "ruby", "./bin/run", "absolute"])
async def test_any_other_runtime_is_a_file_in_the_folder_or_an_absolute_path(tmp_path: Path, runtime: str, entry: str) -> None:
    folder = write(tmp_path, "weather", tools={"where": [where()]})
    program = tmp_path / "elsewhere" / "run" if runtime == "absolute" else folder / runtime
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexport STARTED="$0 $*"\nexec {folder / "guest"}\n')
    program.chmod(0o755)
    named = str(program) if runtime == "absolute" else runtime
    (folder / "manifest.yaml").write_text(f"name: weather\nruntime: {named}\n" + (f"entry: {entry}\n" if entry else ""))
    async with open_host(tmp_path, folder) as host:
        started = (await ask_where(host))["environ"]["STARTED"]
        assert started == f"{program} {folder / entry if entry else ''}"


@pytest.mark.req("piglet.rule.runtime-paths")
@pytest.mark.parametrize(
    ("runtime", "why"),
    [
        ("ruby", "/weather/ruby does not exist"),
        ("/nowhere/run", "/nowhere/run does not exist"),
        ("./plain", "is not an executable"),
    ],
)
async def test_a_start_that_fails_says_so_in_one_line(tmp_path: Path, runtime: str, why: str) -> None:
    folder = write(tmp_path, "weather", manifest={"runtime": runtime})
    (folder / "plain").write_text("no program")
    async with open_host(tmp_path, folder) as host:
        guest = host.guest("weather")
        assert guest.error is not None
        assert guest.error.message.startswith("start weather: ")
        assert why in guest.error.message
        assert guest.state is GuestState.GONE
        [line] = host.report.to_lines()
        assert guest.error.message in line


async def test_many_bytes_on_the_side_that_is_not_the_wire_are_no_word(tmp_path: Path) -> None:
    """A guest that prints before it speaks, without an end: its first answer still counts."""
    body = "os.write(1, b'x' * 60000)\nnext(lines(3))\nsay(4, tool('look'), hello())\nserve(3, 4)"
    async with open_host(tmp_path, write_bare_guest(tmp_path, body)) as host:
        assert (await asyncio.wait_for(host.call_tool("look"), 30)).text == "look"


QUIET = """
os.close(0)
note("closed")
read = lines(3)
next(read)
say(4, tool("t"))
while not os.path.exists("go"):
    time.sleep(0.002)
say(4, hello())
for m in read:
    if m.get("method") == "tool/execute":
        os.write(1, b"x" * 300000 + b"\\n")
        say(4, answer(m["id"], "ok"))
"""


@pytest.mark.req("piglet.edge.10")
async def test_who_has_closed_its_input_is_drained_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our first line to its stdin breaks the pipe; what it prints is still read."""
    folder = write_bare_guest(tmp_path, QUIET)
    initialize, ended = PigletGuest.initialize, PigletGuest._handle_end

    async def late(self: PigletGuest) -> None:
        await wait_for_note(folder / "closed")
        await initialize(self)

    def told(self: PigletGuest, side: GuestWire, cause: SeraiError) -> None:
        ended(self, side, cause)
        if side.way == "stdio":
            (folder / "go").touch()

    monkeypatch.setattr(PigletGuest, "initialize", late)
    monkeypatch.setattr(PigletGuest, "_handle_end", told)
    async with open_host(tmp_path, folder, limits={"exit_grace": 0.05}) as host, asyncio.timeout(60):
        assert (await host.call_tool("t")).text == "ok"


@pytest.mark.req("piglet.rule.child-environment")
async def test_on_its_standard_streams_alone_it_is_told_which_dialect_it_is(tmp_path: Path) -> None:
    """Else an extension of several tongues, quicker than our first line, would greet us in another."""
    for name, told in (("stdio", "piglet"), ("fd", None), ("auto", None)):
        folder = write(tmp_path, name, tools={f"where-{name}": [where()]}, stdio=name == "stdio", manifest={"transport": name})
        async with open_host(tmp_path, folder) as host:
            environ = (await ask_where(host, f"where-{name}"))["environ"]
            assert environ.get("SERAI_DIALECT") == told
            assert ("PIGLET_FD" in environ) is (name != "stdio")
