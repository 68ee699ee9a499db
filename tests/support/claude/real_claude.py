"""An isolated place for the real Claude Code: folders of its own, a model API on loopback, an environment from nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import serai
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.limits import Limits
from serai.model.approvals import Approval, Decision, Question
from serai.model.events import Event
from serai.testing.models.server import FakeModels
from tests.support.processes import Ends

TAG = "SERAI_TEST_HOUSE"
# For what is expected to happen on a busy machine; what must be quick says so itself.
LIMITS = Limits().but(agent_first=50.0, exit_grace=15.0, drain_grace=15.0)
# Sleeps in a session of its own, as tools of the real program do, and tells when it has begun.
SLEEPER = "import os,time; os.setsid() if os.getpid() != os.getsid(0) else 0; open('begun','w').close(); time.sleep(300)"


def build_sleep_prompt(background: bool = False) -> str:
    """A prompt whose tool runs for as long as nobody ends it; `begun` is there when it does."""
    more = ', "run_in_background": true' if background else ""
    return f'>> call Bash {{"command": "python3 -c \\"{SLEEPER}\\""{more}}}\n>> say slept'


@dataclass(slots=True)
class Real:
    """`program` is the real Claude Code."""

    program: Path
    root: Path
    models: FakeModels
    tag: str = field(default_factory=lambda: uuid4().hex)

    @property
    def cwd(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def environ(self) -> dict[str, str]:
        """All that it knows."""
        folders = {"CONFIG": ".config", "DATA": ".local/share", "CACHE": ".cache", "STATE": ".local/state"}
        return {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.defpath)),
            "HOME": str(self.home),
            "TMPDIR": str(self.root / "tmp"),
            **{f"XDG_{name}_HOME": str(self.home / folder) for name, folder in folders.items()},
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "SHELL": "/bin/bash",
            "USER": "tester",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "CLAUDE_CLI_PATH": str(self.program),
            TAG: self.tag,
            **self.models.env(),
        }

    def agent(self, **more: Any) -> Session:
        """A session with it."""
        limits = more.pop("limits", LIMITS)
        options = ClaudeOptions(model="claude-sonnet-4-5", **more.pop("options", {}))
        return serai.agent("claude", cwd=self.cwd, environ=self.environ, settings={}, options=options, limits=limits, **more)

    # -- what is left

    def processes(self) -> set[int]:
        """Every process that runs with this tag, in any session."""
        mark = f"{TAG}={self.tag}".encode()
        found = set()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if mark in file.read().split(b"\0"):
                            found.add(int(name))
                except OSError:  # it has ended, or is not ours
                    pass
        return found

    async def leftovers(self, seconds: float = 30.0) -> set[int]:
        """What still runs when the time is up."""
        with Ends(self.processes()) as ends:
            return await asyncio.to_thread(ends.left_after, seconds)

    async def until(self, there: Callable[[], bool], *, seconds: float = 40.0) -> None:
        """Somebody else's work, which tells nobody: looked at now and then."""
        end = monotonic() + seconds
        while not there():
            assert monotonic() < end, "it did not happen in time"
            await asyncio.sleep(0.02)

    async def begun(self) -> None:
        """Until the tool of `sleeping` runs."""
        await self.until((self.cwd / "begun").exists)

    def end(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@asynccontextmanager
async def open_harness(program: Path, root: Path, **models: Any) -> AsyncIterator[Real]:
    for name in ("project", "home", "tmp"):
        (root / name).mkdir()
    async with FakeModels(**models) as server:
        real = Real(program, root, server)
        try:
            yield real
        finally:
            real.end()


Answering = Callable[[Approval | Question], Decision | Awaitable[Decision] | None]


async def collect_events(turn: Turn, answer: Answering | None = None) -> list[Event]:
    """A turn's events; what it asks is answered by `answer`, unless that is None."""
    seen: list[Event] = []
    async for event in turn:
        seen.append(event)
        if isinstance(event, Approval | Question) and answer is not None:
            decision = answer(event)
            if isinstance(decision, Awaitable):
                decision = await decision
            if decision is not None:
                await event.decide(decision)
    return seen


def select_events(seen: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in seen if isinstance(event, kind)]
