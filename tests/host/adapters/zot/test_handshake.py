"""From spawn to ready: what a guest gets, what it may do on the way, and what becomes of one that does it wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from serai.errors import BadFrame, PeerGone, PeerTimeout
from serai.host.adapters.zot import LIMITS
from serai.host.guest import GuestState
from serai.model.actions import Notice
from serai.record.secrets import Secrets
from serai.wire import process_tree
from serai.wire.plain_process import PlainChild, PlainSpawner
from serai.wire.process import Child, Launch
from tests.support.host.zot_guests import NOTE, AwaitableSurface, build_host, log_of, make, open_host, pids, read_frames, wait_until
from tests.support.processes import MemoryTap

pytestmark = pytest.mark.loops

WELL = "remember(tools=('well',))"


@pytest.mark.req("zot.edge.01", "zot.ours.2.2-handshake-failure-terminates")
@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("send(type='ready')", 'first frame must be hello (got "ready")'),
        ("send(type='register_tool', name='early')", 'first frame must be hello (got "register_tool")'),
        ("send(type='greetings')", 'first frame must be hello (got "greetings")'),
        ("raw(b'Welcome to my extension!\\n')", "parse hello: "),
        ("raw(b'\\n')", "parse hello: "),
        ("send(type='hello')", "parse hello: "),
        ("send(type='hello', name='')", "parse hello: its name is empty"),
        ("send(type='hello', name=5)", "parse hello: "),
    ],
)
async def test_a_guest_whose_first_line_is_no_hello_is_killed_and_reaped(tmp_path: Path, first: str, why: str) -> None:
    folder = make(tmp_path, f"{NOTE}{first}\ntime.sleep(1000)")
    async with open_host(tmp_path, folder) as host:
        guest = host.guest("probe")
        assert (guest.state, type(guest.error)) == (GuestState.GONE, BadFrame)
        assert why in str(guest.error)
        (pid,) = pids(folder)
        assert process_tree.read_process(pid) is None
        assert host._spawner is not None
        assert not host._spawner.children


@pytest.mark.req("zot.edge.02", "zot.ours.2.2-hello-timeout", "zot.ours.2.2-handshake-failure-terminates")
async def test_a_mute_guest_fails_alone_at_its_deadline_and_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, started = PlainSpawner.spawn, dict[str, int]()

    async def spawn(spawner: PlainSpawner, launch: Launch) -> PlainChild:
        child = await usual(spawner, launch)
        started[launch.who] = child.pid  # it may be killed before it can tell it itself
        return child

    monkeypatch.setattr(PlainSpawner, "spawn", spawn)
    mute = make(tmp_path, "time.sleep(1000)", name="mute", settings="[limits]\nhello = 0.4\n")
    well = make(tmp_path, WELL, name="well")
    async with open_host(tmp_path, mute, well) as host:
        guest = host.guest("mute")
        assert (guest.state, type(guest.error)) == (GuestState.GONE, PeerTimeout)
        assert "zot:mute: no hello within 0.4 s (limit hello = 0.4)" in str(guest.error)
        assert guest.error is not None
        assert "flush" in guest.error.hint
        assert process_tree.read_process(started["zot:mute"]) is None
        assert not (await host.call_tool("well")).is_error
    assert LIMITS["hello"] == 10.0


@pytest.mark.req("zot.ours.2.2-handshake-failure-terminates", "zot.ours.5.2-reaped")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "sys.stderr.write('no such module\\n'); sys.exit(3)",
            "exited before hello (exit status 3); stderr ended with: no such module",
        ),
        ("hello(ready=False); os._exit(4)", "exited before ready (exit status 4)"),
        ("os.close(1); time.sleep(1000)", "closed its output before hello"),
    ],
)
async def test_a_guest_that_ends_before_it_is_ready_says_why(tmp_path: Path, body: str, why: str) -> None:
    folder = make(tmp_path, NOTE + body)
    grace = {"exit_grace": 0.1} if why.startswith("closed") else {}  # an exit that is expected may be seen late
    async with open_host(tmp_path, folder, limits={"ready_idle": 30.0, **grace}) as host:
        guest = host.guest("probe")
        assert (guest.state, type(guest.error)) == (GuestState.GONE, PeerGone)
        assert why in str(guest.error)
        assert process_tree.read_process(pids(folder)[0]) is None


async def test_a_python_without_the_sdk_is_told_what_to_do(tmp_path: Path) -> None:
    folder = make(tmp_path, "import serai.sdk")  # it is started with -I -S
    async with open_host(tmp_path, folder) as host:
        error = host.guest("probe").error
        assert error is not None
        assert error.hint.startswith("the Python that starts it has no serai: name one that has it in `exec`")


@pytest.mark.req("zot.edge.03", "zot.rule.2.1-log")
async def test_the_name_in_the_hello_is_nobodys_name(tmp_path: Path) -> None:
    window = AwaitableSurface()
    folder = make(
        tmp_path,
        "send(type='hello', name='somebody else')\nsend(type='notify', message='up')\nsend(type='ready')\nsys.stdin.read()",
    )
    async with open_host(tmp_path, folder, surface=window) as host:
        assert list(host.guests) == ["zot:probe"]
        assert host.report.ok
        assert host.report.to_lines() == []
        assert window.actions == [Notice("up", "info", "probe")]
        log = host.guest("probe").log
        assert log is not None
        assert log.path.name == "ext-probe.log"
        assert "somebody else" not in log.path.read_text()


@pytest.mark.req("zot.edge.04", "zot.edge.06")
async def test_what_a_guest_pours_out_with_its_hello_counts_already(tmp_path: Path) -> None:
    """All in one write, so that no ack can have been written in between."""
    body = """
pour = [
    {"type": "hello", "name": "probe"}, tool("heard"), command("greet"), subscribe(["turn_start"], ["turn_start"]),
    {"type": "notify", "level": "warn", "message": "almost there"}, {"type": "ready"},
]
raw(b"".join(json.dumps(frame).encode() + b"\\n" for frame in pour))
got = []
for frame in frames():
    got.append(frame)
    if frame["type"] == "tool_call": answer(frame["id"], json.dumps(got))
"""
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, body), surface=window) as host:
        assert window.actions == [Notice("almost there", "warn", "probe")]
        row = host.report.guests[0]
        assert (row.tools, row.commands, row.intercepts, row.events) == (("heard",), ("greet",), ("turn_start",), ("step_started",))
        assert [frame["type"] for frame in await read_frames(host)] == ["hello_ack", "tool_call"]


@pytest.mark.req("zot.rule.2.2-ack-at-once", "zot.frame.hello_ack")
async def test_a_guest_is_welcomed_before_it_is_ready(tmp_path: Path) -> None:
    """It says nothing more until it has its ack; were that to wait for `ready`, both would wait for ever."""
    body = """
send(type="hello", name="probe")
ack = json.loads(sys.stdin.buffer.readline())
send(**tool("ack"))
send(type="ready")
for frame in frames(): answer(frame["id"], json.dumps(ack))
"""
    folder = make(tmp_path, body)
    async with open_host(tmp_path, folder, limits={"ready_idle": 25.0}) as host:
        ack = json.loads((await host.call_tool("ack")).text)
        assert ack["type"] == "hello_ack"
        assert ack["protocol_version"] == 1
        assert ack["cwd"] == str(tmp_path / "project")
        assert ack["extension_dir"] == ack["data_dir"] == str(folder)


@pytest.mark.req("zot.edge.05", "zot.edge.06")
async def test_a_guest_that_falls_silent_counts_as_ready_and_the_waits_run_side_by_side(tmp_path: Path) -> None:
    """Each chatters until the other has been welcomed: one after the other, both would be cut off instead."""
    body = """
hello(tool("me"), ready=False)
sys.stdin.buffer.readline()
open("welcomed", "w").close()
while not os.path.exists("../OTHER/welcomed"):
    send(type="notify", message="still here")
    time.sleep(0.005)
for frame in frames(): answer(frame["id"], "fine")
"""
    one = make(tmp_path, body.replace("OTHER", "two"), name="one")
    two = make(tmp_path, body.replace("OTHER", "one").replace("me", "you", 1), name="two")
    async with open_host(tmp_path, one, two, limits={"ready_idle": 0.25, "ready": 20.0}) as host:
        for name in ("one", "two"):
            assert host.guest(name).state is GuestState.READY
            assert "no ready frame; auto-readying after idle (legacy SDK?)" in log_of(host, name)
        assert not (await host.call_tool("me")).is_error
    assert (LIMITS["ready_idle"], LIMITS["ready"]) == (0.25, 3.0)


@pytest.mark.req("zot.edge.05")
async def test_a_guest_that_chatters_and_never_is_ready_is_cut_off(tmp_path: Path) -> None:
    body = """
hello(tool("me"), ready=False)
import threading
def chatter():
    while True:
        send(type="notify", message="wait")
        time.sleep(0.01)
threading.Thread(target=chatter, daemon=True).start()
for frame in frames():
    if frame["type"] == "tool_call": answer(frame["id"], "fine")
"""
    async with open_host(tmp_path, make(tmp_path, body), limits={"ready": 0.3, "ready_idle": 20.0}) as host:
        assert "timed out waiting for ready frame; proceeding" in log_of(host, "probe")
        assert (await host.call_tool("me")).text == "fine"


@pytest.mark.req("zot.rule.1.3-args", "zot.rule.2.1-cwd")
async def test_a_guest_runs_in_its_folder_with_its_arguments_as_they_are(tmp_path: Path) -> None:
    args = ["$HOME", "a  b", "*", '"quoted"', "", "; echo", "ä"]
    body = """
hello(tool("me"))
for frame in frames():
    if "id" in frame: answer(frame["id"], json.dumps([os.getcwd(), sys.argv[1:]]))
"""
    folder = make(tmp_path, body, args=["-I", "-S", "guest.py", *args])
    async with open_host(tmp_path, folder) as host:
        assert json.loads((await host.call_tool("me")).text) == [str(folder), args]


@pytest.mark.req("zot.rule.2.1-log")
async def test_the_log_has_its_stderr_and_our_remarks_and_grows_from_run_to_run(tmp_path: Path) -> None:
    body = "sys.stderr.write('a word\\n'); sys.stderr.flush()\nhello({'type': 'nonsense'})\nsys.stdin.read()"
    folder = make(tmp_path, body, version="1.2")
    for run in (1, 2):
        async with open_host(tmp_path, folder) as host:
            log = host.guest("probe").log
            assert log is not None
        text = log.path.read_text()
        assert log.path == Path(log.path.parent, "ext-probe.log")
        assert log.path.parent.name == "logs"
        assert log.path.is_relative_to(tmp_path / "home")
        assert text.count("a word\n") == run
        assert text.count("starts probe 1.2") == run
        assert text.count('unknown frame type "nonsense"') == run


class Counting:
    """A spawner that looks around whenever it is asked."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.plain = PlainSpawner()
        self._look = look

    async def spawn(self, launch: Launch) -> Child:
        self._look()
        return await self.plain.spawn(launch)


@pytest.mark.req("host.life.alone")
async def test_many_guests_start_a_few_at_a_time_and_a_mute_one_holds_up_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design rule 9: at most twice as many as there are cores, each with a deadline from its own spawn."""
    monkeypatch.setattr("serai.host.guest_context.os.cpu_count", lambda: 1)
    under_way: list[int] = []
    spawned = 0
    greeted: set[object] = set()

    class Tap(MemoryTap):
        def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
            greeted.add(self)  # its first word: from then on it only waits, and another may start

    class Recorder:
        secrets = Secrets()

        def open_tap(self, *_: object, **__: object) -> Tap:
            return Tap()

    def look() -> None:
        nonlocal spawned
        spawned += 1
        under_way.append(spawned - len(greeted))

    folders = [make(tmp_path, WELL, name=f"well{number}") for number in range(8)]
    spawner = Counting(look)
    recorder: Any = Recorder()
    host = build_host(tmp_path, make(tmp_path, "time.sleep(1000)", name="mute"), *folders, spawner=spawner, recorder=recorder)
    starting = asyncio.create_task(host.start())
    await asyncio.sleep(0)
    await wait_until(host, lambda: sum(guest.state is GuestState.READY for guest in host.guests.values()) == 8)
    assert host.guest("mute").state is GuestState.STARTING
    assert max(under_way) == 2
    await asyncio.wait_for(host.close(), 10)
    assert (await starting).guests[0].state == "stopped"
    assert not spawner.plain.children
    await spawner.plain.close()


@pytest.mark.req("zot.edge.05")
async def test_the_waits_of_more_guests_than_may_start_at_once_do_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start takes the machine, to wait does not: whoever has said hello makes room for the next.

    Each chatters until all have been welcomed: were a place kept while it waits, the first would be cut off instead.
    """
    monkeypatch.setattr("serai.host.guest_context.os.cpu_count", lambda: 1)
    body = """
send(type="hello", name="x")
sys.stdin.buffer.readline()
open("welcomed", "w").close()
while not all(os.path.exists(f"../silent{number}/welcomed") for number in range(6)):
    send(type="notify", message="still here")
    time.sleep(0.01)
for frame in frames(): pass
"""
    folders = [make(tmp_path, body, name=f"silent{number}") for number in range(6)]
    async with open_host(tmp_path, *folders, limits={"ready_idle": 0.5, "ready": 20.0}) as host:
        assert [guest.state for guest in host.guests.values()] == [GuestState.READY] * 6
        for folder in folders:
            assert "no ready frame; auto-readying after idle" in log_of(host, folder.name)
