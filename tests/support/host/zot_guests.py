"""Real guests for tests of the host: zot extensions made from a few lines of Python, and a host that takes them in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from serai.host.guest import GuestState
from serai.host.host import Host
from serai.model.actions import Action
from serai.model.events import Event
from serai.model.surface import ScriptedSurface
from serai.wire import process_tree

# What every guest of the tests can say. A `body` follows; it begins with `hello(…)` and usually ends with a loop over `frames()`.
PRELUDE = '''\
import json, os, sys, time

def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def send(*frames, **frame):
    raw(b"".join(json.dumps(one).encode() + b"\\n" for one in (*frames, *([frame] if frame else []))))

def frames():
    """What the host says, up to its shutdown or the end of input."""
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if frame["type"] == "shutdown":
            return
        yield frame

def tool(name, schema=None, description=""):
    return {"type": "register_tool", "name": name, "description": description, "schema": schema or {"type": "object"}}

def command(name, description=""):
    return {"type": "register_command", "name": name, "description": description}

def subscribe(events=(), intercept=()):
    return {"type": "subscribe", "events": list(events), "intercept": list(intercept)}

def hello(*registrations, ready=True):
    send({"type": "hello", "name": "a guest", "version": "1"}, *registrations, *([{"type": "ready"}] if ready else []))

def answer(id, text, **more):
    """A tool's result."""
    send(type="tool_result", id=id, content=[{"type": "text", "text": text}], **more)

def respond(id, action="noop", **more):
    """What came of a command."""
    send(type="command_response", id=id, action=action, **more)

def judge(id, **more):
    """An interceptor's verdict; nothing more means: go on."""
    send(type="event_intercept_response", id=id, **more)

def wait(path):
    """Read nothing and say nothing before the test lifts the latch there."""
    with open(path, "rb", buffering=0) as latch:
        latch.read(1)

def remember(*registrations, tools=("heard",), latch=None, **verdicts):
    """Serve for ever: the tool `heard` gives all frames so far as JSON, any other its arguments; questions pass unless told."""
    hello(*(tool(name) for name in tools), *registrations)
    if latch:
        wait(latch)
    heard = []
    for frame in frames():
        heard.append(frame)
        if frame["type"] == "tool_call":
            answer(frame["id"], json.dumps(heard if frame["name"] == "heard" else frame["args"]))
        elif frame["type"] == "command_invoked":
            respond(frame["id"])
        elif frame["type"] == "event_intercept":
            judge(frame["id"], **verdicts.get(frame["event"], {}))
'''

# For what is expected to happen: generous, so that a busy machine does not turn it into something else. Starts again come quickly.
LIMITS: dict[str, float | None] = {
    "hello": 30.0,
    "ready": 30.0,
    "ready_idle": 30.0,  # a guest that a busy machine holds up between two frames is not one that never says ready
    "tool": 30.0,
    "command": 30.0,
    "intercept": 30.0,
    "exit_grace": 15.0,
    "drain_grace": 15.0,
    "stop_polite": 15.0,
    "stop_term": 15.0,
    "restart_wait": 0.01,
}
# For guests that do not leave by themselves.
STUBBORN: dict[str, float | None] = {"stop_polite": 0.05, "stop_term": 5.0}


def make(place: Path, body: str, *, name: str = "probe", settings: str = "", **manifest: object) -> Path:
    """The folder of a guest that runs `body`; `settings` is its `guest.toml`."""
    folder = place / name
    folder.mkdir(parents=True)
    said = {"name": name, "exec": sys.executable, "args": ["-I", "-S", "guest.py"], **manifest}
    (folder / "extension.json").write_text(json.dumps(said))
    (folder / "guest.py").write_text(f"{PRELUDE}\n{body}\n")
    if settings:
        (folder / "guest.toml").write_text(settings)
    return folder


def build_host(
    tmp_path: Path,
    *folders: Path,
    limits: Mapping[str, float | None] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Host:
    """A host for these guests that is not started yet."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "SERAI_HOME": str(tmp_path / "home"), **(environ or {})}
    all_limits = {**LIMITS, **(limits or {})}
    return Host.discover(tmp_path / "project", guests=folders, environ=env, config=config or {}, limits=all_limits, **options)


@asynccontextmanager
async def open_host(tmp_path: Path, *folders: Path, **options: Any) -> AsyncIterator[Host]:
    """A host with these guests, which all had their chance. At the end nothing that it started runs any more."""
    host = build_host(tmp_path, *folders, **options)
    try:
        await host.start()
        yield host
    finally:
        await close_host(host)


async def close_host(host: Host) -> None:
    """Close the host, and see that nothing is left."""
    await host.close()
    tag = host._spawner.tag if host._spawner is not None else ""
    left = [process for process in process_tree.scan_processes().values() if tag and process.alive and process.carries(tag)]
    assert not left, f"left running: {left}"


class Fifo:
    """Something a guest waits at until the test lets it go on: `wait(path)` in its body."""

    def __init__(self, place: Path, name: str = "latch") -> None:
        self.path = place / name
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def lift(self) -> None:
        """For one guest that waits, or will."""
        os.write(self._descriptor, b".")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


async def wait_for_state(host: Host, id: str, state: GuestState) -> None:
    """Wait until a guest is in this state."""
    await wait_until(host, lambda: host.guest(id).state is state)


async def wait_until(host: Host, fits: Callable[[], bool]) -> None:
    """Wait until the state of the host fits; looked at whenever somebody's state or offer is another."""
    before, done = host.context._on_change, asyncio.get_running_loop().create_future()

    def look() -> None:
        before()
        if not done.done() and fits():
            done.set_result(None)

    host.context._on_change = look
    if not fits():
        await done


def log_of(host: Host, id: str) -> str:
    """The log of a guest that was started."""
    log = host.guest(id).log
    assert log is not None
    return log.path.read_text()


async def read_frames(host: Host, tool: str = "heard") -> list[dict[str, Any]]:
    """All frames that a guest of `remember` has had by now; its wire is in order, so nothing is on the way any more."""
    result = await host.call_tool(tool)
    assert not result.is_error, result
    frames: list[dict[str, Any]] = json.loads(result.text)
    return frames


class AwaitableSurface(ScriptedSurface):
    """A surface that tests can wait at."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(answers)
        self._waiting: list[tuple[Callable[[Action], bool], asyncio.Future[Action]]] = []

    def act(self, action: Action) -> None:
        super().act(action)
        for fits, future in self._waiting:
            if not future.done() and fits(action):
                future.set_result(action)

    async def shown(self, fits: Callable[[Action], bool]) -> Action:
        """The first action that fits, shown already or still to come."""
        for action in self.actions:
            if fits(action):
                return action
        future: asyncio.Future[Action] = asyncio.get_running_loop().create_future()
        self._waiting.append((fits, future))
        return await future

    def events_of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


# First in a body: leaves a line with the number of every process that was started from this folder.
NOTE = "with open('pids', 'a') as file: file.write(f'{os.getpid()}\\n')\n"


def pids(folder: Path) -> list[int]:
    """The processes of a guest that begins with `NOTE`, in the order of their starts."""
    note = folder / "pids"
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def pid_of(host: Host, id: str) -> int:
    """The process that serves."""
    running = host.guest(id).running
    assert running is not None
    return running.pid


async def wait_until_reaped(*processes: int) -> None:
    """Wait until not even a zombie is left of them."""
    while any(process_tree.read_process(pid) is not None for pid in processes):
        await asyncio.sleep(0)


def record_states(host: Host, id: str) -> list[GuestState]:
    """The states of a guest from now on, as they come."""
    before, seen = host.context._on_change, [host.guest(id).state]

    def look() -> None:
        before()
        if host.guest(id).state is not seen[-1]:
            seen.append(host.guest(id).state)

    host.context._on_change = look
    return seen


async def kill_guest(host: Host, id: str = "probe") -> None:
    """Kill a guest, and wait until its host knows."""
    guest = host.guest(id)
    run = guest.run
    os.kill(pid_of(host, id), signal.SIGKILL)
    await wait_until(host, lambda: guest.run is not run)
