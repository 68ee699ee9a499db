"""Extensions as hosts meet them: real programs on real pipes, from the first byte to the exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serai.testing.zot_host import ZotHost
from tests.support.host.zot_guests import open_host
from tests.support.sdk.zot_programs import LAST, write_program

# -- streams ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.wire.print")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_that_is_printed_gets_on_the_wire(tmp_path: Path, unbuffered: str) -> None:
    body = """
import os, subprocess, sys
print("a banner", flush=True)
sys.stdout.write("half a line")

@ext.tool
def loud() -> str:
    print("from a handler")
    os.write(1, b"from a descriptor\\n")
    subprocess.run(["echo", "from a child"], check=True)
    print("x" * 3_000_000)
    return "quiet"
"""
    with ZotHost(write_program(tmp_path, body), environ=os.environ | {"PYTHONUNBUFFERED": unbuffered}) as host:
        assert host.call_text("loud", {}) == "quiet"
        assert host.shutdown() == 0
        told = host.stderr
    for line in ("a banner\n", "half a line", "from a handler\n", "from a descriptor\n", "from a child\n", "x" * 1000):
        assert line in told


@pytest.mark.req("sdk.wire.print")
def test_what_was_printed_before_there_was_an_extension_is_still_no_frame(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "")
    code = (folder / "probe.py").read_text()
    (folder / "probe.py").write_text(f"print('a banner')\n{code}")
    with ZotHost(folder, environ=os.environ | {"PYTHONUNBUFFERED": ""}) as host:
        assert host.hello["name"] == "probe"
        assert host.shutdown() == 0
        assert host.stderr == "a banner\n"


@pytest.mark.req("sdk.wire.optionals")
def test_long_answers_of_many_threads_are_whole_lines(tmp_path: Path) -> None:
    body = "@ext.tool\ndef long(letter: str) -> str: return letter * 400_000"
    with ZotHost(write_program(tmp_path, body)) as host:
        asked = {letter: host.ask("tool_call", name="long", args={"letter": letter}) for letter in "abcdefgh"}
        for letter, id in asked.items():
            assert host.answer(id)["content"] == [{"type": "text", "text": letter * 400_000}]


@pytest.mark.req("sdk.wire.stdin")
def test_nobody_else_reads_from_the_wire(tmp_path: Path) -> None:
    body = """
import subprocess, sys

@ext.tool
def greedy() -> str:
    child = subprocess.run(["cat"], capture_output=True, text=True).stdout
    return repr((sys.stdin.read(), child))
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        asked = [host.ask("tool_call", name="greedy", args={}) for _ in range(3)]
        assert [host.answer(id)["content"][0]["text"] for id in asked] == ["('', '')"] * 3


@pytest.mark.req("sdk.wire.by-hand")
def test_who_starts_it_by_hand_is_told_how_to_try_it(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "")
    ours, theirs = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "probe.py"], cwd=folder, stdin=theirs, capture_output=True, text=True, timeout=50, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "probe is an extension: a host starts it" in ran.stderr
    assert "serai guest check ." in ran.stderr


def test_an_extension_that_is_only_imported_touches_no_stream(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "ext.notify('info', 'x')", end="")
    ran = subprocess.run(
        [sys.executable, "-c", "import probe; print('still here'); print(input())"],
        cwd=folder, input="typed\n", capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("still here\ntyped\n", "")


def test_without_streams_it_says_so(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "")
    ran = subprocess.run(
        ["sh", "-c", '"$0" probe.py <&- >&-', sys.executable], cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == 1
    assert "its standard input or output is closed" in ran.stderr


@pytest.mark.req("zot.sdk.log")
def test_the_log_is_the_standard_librarys_on_stderr(tmp_path: Path) -> None:
    body = """
ext.log.info("before %s", "hello")

@ext.tool
def work() -> str:
    ext.log.warning("100% done")
    ext.log.debug("not shown by default")
    return "fine"
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        host.call_text("work", {})
        assert host.shutdown() == 0
        assert host.stderr == "[probe] INFO before hello\n[probe] WARNING 100% done\n"


# -- the start --------------------------------------------------------------------------------------------------------------------

HEAVY = (
    "asyncio",
    "threading",
    "msgspec",
    "dataclasses",
    "inspect",
    "logging",
    "pathlib",
    "traceback",
    "importlib.metadata",
)


@pytest.mark.req("sdk.life.hello-first")
def test_hello_is_out_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = f"""
import sys
from typing import Annotated, Literal
from serai.sdk import Extension

class Out:
    def write(self, frame):
        if b"hello" in bytes(frame):
            print([name for name in {HEAVY!r} if name in sys.modules], bytes(frame).count(b"\\n"))
        return len(frame)
    def flush(self): pass

ext = Extension("probe", stdin=open("/dev/null", "rb"), stdout=Out())

@ext.tool
async def weather(city: Annotated[str, "where"], unit: Literal["C", "F"] = "C", days: list[int] | None = None) -> str:
    '''The weather.

    Args:
        days: which ones
    '''

@ext.command("tide", "next high water")
def tide(args): pass

@ext.on("turn_end")
def end(): pass

ext.main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.stdout, ran.stderr) == ("[] 5\n", "")


# -- the end ----------------------------------------------------------------------------------------------------------------------

ENDING = """
import asyncio, atexit, sys
atexit.register(lambda: sys.stderr.write("at exit\\n"))

@ext.tool
async def later() -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        print("cleaned up")

@ext.tool
def sync(call: Call) -> None:
    ext.notify("info", "begun")
    call.wait(1000)
    call.check()

@ext.tool
def stuck() -> None:
    ext.notify("info", "begun")
    import time
    while True:
        time.sleep(1000)

@ext.tool
async def stuck_loop() -> None:
    stuck()

@ext.on("turn_end")
def stuck_event() -> None:
    stuck()
"""


@pytest.mark.req("sdk.life.shutdown", "zot.sdk.run")
@pytest.mark.parametrize("how", ["shutdown", "eof", "term"])
@pytest.mark.parametrize(
    "busy",
    [(), ("later", "sync"), ("stuck",), *(pytest.param((name,), marks=pytest.mark.slow) for name in ("stuck_loop", "event"))],
)
def test_each_end_is_clean_and_no_handler_keeps_it(tmp_path: Path, how: str, busy: tuple[str, ...]) -> None:
    folder = write_program(tmp_path, ENDING, end=LAST + 'sys.stderr.write("behind main\\n")\n')
    with ZotHost(folder) as host:
        asked = [host.ask("tool_call", name=name, args={}) for name in busy if name != "event"]
        if busy == ("event",):
            host.tell("turn_end")
        if busy:
            host.hear("notify")
        if how == "term":
            os.kill(host.process.pid, signal.SIGTERM)
        status = host.shutdown() if how == "shutdown" else host._end(close=how == "eof")
        told = host.stderr
        assert all(host.answers[id]["is_error"] for id in asked)
    assert status == (143 if how == "term" else 0)
    assert "at exit\n" in told
    assert ("behind main" in told) is (how != "term" and busy in ((), ("later", "sync")))
    assert ("cleaned up" in told) is ("later" in busy)
    assert "Traceback" not in told
    assert "Fatal" not in told


@pytest.mark.req("sdk.life.shutdown")
def test_what_a_handler_left_running_is_cancelled_too(tmp_path: Path) -> None:
    body = """
import asyncio
tasks = []

async def background() -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        print("cleaned up")

@ext.tool
async def begin() -> str:
    tasks.append(asyncio.create_task(background()))
    await asyncio.sleep(0)
    return "begun"
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        assert host.call_text("begin", {}) == "begun"
        assert host.shutdown() == 0
        assert host.stderr == "cleaned up\n"


class Deaf:
    """A host that reads what an extension says first, and then no more."""

    def __init__(self, folder: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "probe.py"], cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        while b'"ready"' not in self.stdout.readline():
            pass

    def send(self, *frames: dict[str, object]) -> None:
        self.stdin.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))


@pytest.mark.req("sdk.life.shutdown")
@pytest.mark.parametrize("how", ["shutdown", *(pytest.param(how, marks=pytest.mark.slow) for how in ("eof", "term"))])
def test_a_host_that_reads_nothing_keeps_it_neither(tmp_path: Path, how: str) -> None:
    body = """
import threading
stuck = threading.Event()

@ext.tool
def hang() -> None:
    stuck.wait()

@ext.tool
def long() -> str:
    return "x" * 300_000
"""
    deaf = Deaf(write_program(tmp_path, body))
    for number, name in enumerate(("hang", "long", "long", "long")):
        deaf.send({"type": "tool_call", "id": str(number), "name": name, "args": {}})
    deaf.stdout.read(1)  # the first of them is on its way, and gets no further
    if how == "shutdown":
        deaf.send({"type": "shutdown"})
    if how == "term":
        deaf.process.terminate()
    else:
        deaf.stdin.close()
    assert deaf.process.wait(20) == (143 if how == "term" else 0)
    assert deaf.stdout.read().count(b"\n") == 0  # half a frame, and nothing glued to it
    for stream in (deaf.stdin, deaf.stdout, deaf.process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.req("sdk.life.shutdown", "sdk.answer.once")
def test_a_signal_that_follows_a_goodbye_takes_nothing_away(tmp_path: Path) -> None:
    body = """
import asyncio, os
from serai.sdk import dispatcher
dispatcher.GRACE = 30.0  # for what the test does meanwhile, however slow it is

@ext.tool
async def tidy() -> str:
    ext.notify("info", "begun")
    try:
        await asyncio.sleep(1000)
    finally:
        ext.notify("info", "tidying")
        while not os.path.exists("signalled"):
            await asyncio.sleep(0.01)
        print("cleaned up")
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        asked = host.ask("tool_call", name="tidy", args={})
        host.hear("notify")
        host.send({"type": "shutdown"})
        host.hear("notify")
        for _ in range(3):
            os.kill(host.process.pid, signal.SIGTERM)
        (host.folder / "signalled").touch()
        assert host.wait() == 143
        assert host.answers[asked]["is_error"] is True
        assert host.stderr == "cleaned up\n"


@pytest.mark.req("sdk.answer.once")
def test_requests_that_came_before_a_signal_are_answered(tmp_path: Path) -> None:
    body = "import asyncio\n@ext.tool\nasync def later() -> None: await asyncio.sleep(1000)"
    with ZotHost(write_program(tmp_path, body)) as host:
        for _ in range(200):
            host.ask("tool_call", name="later", args={})
        os.kill(host.process.pid, signal.SIGTERM)
        host.send({"type": "shutdown"})
        assert host.wait() == 143  # it complains of every request without an answer


@pytest.mark.req("sdk.life.shutdown")
def test_a_thread_that_an_async_handler_waits_for_keeps_nothing(tmp_path: Path) -> None:
    body = """
import asyncio, threading
stuck = threading.Event()

def wait() -> None:
    ext.notify("info", "begun")
    stuck.wait()

@ext.tool
async def t() -> None:
    await asyncio.to_thread(wait)
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        host.ask("tool_call", name="t", args={})
        host.hear("notify")
        assert host.shutdown() == 0


@pytest.mark.req("sdk.answer.once")
def test_a_library_that_wants_to_exit_ends_no_event_loop(tmp_path: Path) -> None:
    body = """
import asyncio, sys

@ext.on("turn_end")
async def event() -> None:
    sys.exit(3)

async def stray() -> None:
    sys.exit(4)

@ext.tool
async def t() -> str:
    keep.append(asyncio.create_task(stray()))
    return "fine"

keep = []
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        host.tell("turn_end")
        assert [host.call_text("t", {}) for _ in range(3)] == ["fine"] * 3
        assert host.shutdown() == 0
        assert "handler of turn_end raised: SystemExit: 3" in host.stderr
        assert "a task of a handler raised: SystemExit: 4" in host.stderr


@pytest.mark.req("sdk.answer.once", "sdk.wire.stdin")
@pytest.mark.parametrize("child", ["return 'child'", "raise SystemExit(7)", "raise ValueError"])
def test_a_handler_that_forks_answers_once_and_its_copy_ends(tmp_path: Path, child: str) -> None:
    body = f"""
import os

@ext.tool
def fork() -> str:
    pid = os.fork()
    if pid == 0:
        {child}
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        assert host.call_text("fork", {}) == {"r": "0", "S": "7", "V": "1"}[child.removeprefix("raise ")[0]]
        assert host.shutdown() == 0


@pytest.mark.req("sdk.life.shutdown", "sdk.answer.once")
@pytest.mark.parametrize("how", ["shutdown", "term"])
def test_in_a_loop_of_the_authors_it_ends_as_well(tmp_path: Path, how: str) -> None:
    body = """
import asyncio, sys

@ext.tool
async def later() -> None:
    ext.notify("info", "begun")
    try:
        await asyncio.sleep(1000)
    finally:
        print("cleaned up")

async def main() -> None:
    await ext.arun()
    print("and on")
"""
    with ZotHost(write_program(tmp_path, body, end="asyncio.run(main())")) as host:
        asked = host.ask("tool_call", name="later", args={})
        host.hear("notify")
        if how == "term":
            os.kill(host.process.pid, signal.SIGTERM)
        status = host.shutdown() if how == "shutdown" else host.wait()
        assert host.answers[asked]["is_error"] is True
        assert (status, host.stderr) == ((143, "cleaned up\n") if how == "term" else (0, "cleaned up\nand on\n"))


@pytest.mark.req("sdk.life.shutdown")
@pytest.mark.parametrize("how", ["ext.main()", "import asyncio; asyncio.run(ext.arun())"])
def test_a_host_on_a_socket_that_is_reset_is_a_host_that_is_gone(tmp_path: Path, how: str) -> None:
    folder = write_program(tmp_path, "", end=how)
    ours, theirs = socket.socketpair()
    descriptor = theirs.fileno()
    process = subprocess.Popen(
        [sys.executable, "probe.py"], cwd=folder, stdin=descriptor, stdout=descriptor, stderr=subprocess.PIPE
    )
    theirs.close()
    assert ours.recv(1)
    ours.close()  # with more unread: it is reset
    assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == 0


@pytest.mark.req("sdk.wire.print")
def test_without_a_stderr_a_print_goes_nowhere(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "@ext.tool\ndef t() -> str:\n    print('x' * 100_000)\n    return 'fine'")
    manifest = {"name": "probe", "exec": "sh", "args": ["-c", f'exec "{sys.executable}" probe.py 2>&-']}
    (folder / "extension.json").write_text(json.dumps(manifest))
    with ZotHost(folder) as host:
        assert host.call_text("t", {}) == "fine"
        assert host.shutdown() == 0


def test_an_input_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "@ext.tool\ndef t() -> str: return 'fine'")
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    process = subprocess.Popen([sys.executable, "probe.py"], cwd=folder, stdin=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    assert process.stdout is not None
    while b'"ready"' not in process.stdout.readline():
        pass
    os.write(ours, b'{"type":"tool_call","id":"1","name":"t","args":{}}\n')
    assert b"fine" in process.stdout.readline()
    os.close(ours)
    assert process.wait(20) == 0
    process.stdout.close()


@pytest.mark.req("sdk.life.hello-first")
def test_whoever_speaks_while_it_opens_is_heard_behind_hello(tmp_path: Path) -> None:
    body = """
import sys, threading
sys.setswitchinterval(1e-5)
for number in range(100):
    ext.tool(f"t{number}", schema={"type": "object"})(lambda args: "x")

def talk() -> None:
    for _ in range(300):
        ext.notify("info", "early")

threading.Thread(target=talk, daemon=True).start()
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        assert host.hello["type"] == "hello"
        assert len(host.tools) == 100
        assert host.shutdown() == 0


@pytest.mark.req("sdk.wire.too-long")
def test_what_is_too_long_before_hello_is_left_out_or_an_error(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, "ext.notify('info', 'x' * 5_000_000); ext.notify('info', 'short')")) as host:
        assert host.hear("notify")["message"] == "short"
        assert host.shutdown() == 0
        assert "has 5000046 bytes and is left out" in host.stderr
    (tmp_path / "more").mkdir()
    folder = write_program(tmp_path / "more", "ext.tool('t', schema={'description': 'x' * 5_000_000})(lambda args: None)")
    ran = subprocess.run([sys.executable, "probe.py"], cwd=folder, input=b"", capture_output=True, timeout=50, check=False)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"a registration of 5000" in ran.stderr


@pytest.mark.req("sdk.life.shutdown")
def test_a_host_that_vanishes_ends_it_quietly(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, ENDING)) as host:
        host.ask("tool_call", name="sync", args={})
        host.hear("notify")
        assert host.vanish() == 0
        assert host.stderr == "at exit\n"


@pytest.mark.req("sdk.life.shutdown")
@pytest.mark.parametrize("how", ["ext.main()", "import asyncio; asyncio.run(ext.arun())"])
def test_a_defect_of_the_sdk_is_no_good_end(tmp_path: Path, how: str) -> None:
    body = "from serai.sdk.adapters import zot\nzot.Zot.parse_line = lambda self, line: 1 / 0"
    with ZotHost(write_program(tmp_path, body, end=how)) as host:
        assert host.wait() == 1
        assert "ZeroDivisionError" in host.stderr


@pytest.mark.req("sdk.life.shutdown")
def test_ctrl_c_is_no_trace(tmp_path: Path) -> None:
    with ZotHost(write_program(tmp_path, ENDING)) as host:
        os.kill(host.process.pid, signal.SIGINT)
        assert host.wait() == 130
        assert host.stderr == "at exit\n"


def test_an_error_at_import_says_what_to_do(tmp_path: Path) -> None:
    folder = write_program(tmp_path, "@ext.tool\ndef weather(city): pass")
    ran = subprocess.run(
        [sys.executable, "probe.py"], cwd=folder, input="", capture_output=True, text=True, timeout=50, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.search(r"BadExtension: .*weather.*city", ran.stderr)


# -- the example of the design ----------------------------------------------------------------------------------------------------

EXAMPLE = """from serai.sdk import Extension          # a guest, written once
ext = Extension("weather", version="1.0")

@ext.tool
async def weather(city: str) -> str:
    "The current weather in a city."
    return f"{city}: 16 degrees, fog"

ext.main()                               # speaks zot or piglet (MCP, yoi later), as the host that started it expects
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "extension.json").write_text(json.dumps({"name": "weather", "exec": sys.executable, "args": ["weather.py"]}))
    (folder / "weather.py").write_text(EXAMPLE)
    return folder


@pytest.mark.req("sdk.life.example")
def test_the_example_of_the_design_runs_under_the_stand_in(example: Path) -> None:
    with ZotHost(example) as host:
        assert host.hello == {
            "type": "hello",
            "name": "weather",
            "version": "1.0",
            "capabilities": ["commands", "tools", "events", "panels"],
        }
        assert host.tools["weather"] == {
            "type": "register_tool",
            "name": "weather",
            "description": "The current weather in a city.",
            "schema": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        }
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: 16 degrees, fog"
        assert host.call_tool("weather", {"town": "Bern"})["is_error"] is True
        assert host.shutdown() == 0
        assert host.stderr == ""


@pytest.mark.req("sdk.life.example")
async def test_the_example_of_the_design_runs_under_our_host(example: Path, tmp_path: Path) -> None:
    async with open_host(tmp_path, example) as host:
        assert [tool.name for tool in host.tools] == ["weather"]
        assert (await host.call_tool("weather", {"city": "Bern"})).text == "Bern: 16 degrees, fog"
