"""What the tests of desks and memories share: a clock, approvals, surfaces that misbehave, and a process that asks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serai.model.approvals import Approval, Decision, Question, QuestionItem
from serai.model.surface import HeadlessSurface
from serai.model.tools import ToolCall
from serai.policy.approver import ApprovalOutcome, Approver
from serai.policy.call_facts import CallContext
from serai.policy.decision_store import DecisionStore
from serai.policy.engine import Policy
from serai.policy.rules import Rules

ROOT = Path(__file__).parents[3]
HERE = CallContext(cwd="/", session="s1", agent="claude")
SECRET = "sesame-7Q4c"
MOMENT = 77.0  # a time-out that passes when the test says so: the fixture `time_is_up`


class Clock:
    """A clock that somebody sets."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def approval(command: str = "make test", *, id: str = "1", call: str = "call-1", tool: str = "bash", **more: Any) -> Approval:
    return Approval(id=id, agent="claude", session="s1", call=ToolCall(tool, {"command": command}, id=call, asker="claude"), **more)


def question(text: str = "Which?", *, id: str = "q") -> Question:
    return Question(id=id, agent="claude", session="s1", items=(QuestionItem(text),))


class AskedSurface(HeadlessSurface):
    """Calls a function of the request, which may wait; tells when it is asked."""

    interactive = True

    def __init__(self, answer: Callable[[Approval | Question], Any]) -> None:
        self._answer = answer
        self.asked: list[Approval | Question] = []
        self.reached = asyncio.Event()

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.append(request)
        self.reached.set()
        answer = self._answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer  # type: ignore[no-any-return]


async def block() -> Any:
    """Hangs, and lets itself be cancelled."""
    await asyncio.Event().wait()


def make_approver(
    surface: Any = None, *, decisions: DecisionStore | None = None, rules: Rules | None = None, **more: Any
) -> Approver:
    policy = Policy(rules or Rules(), memory=decisions)
    return Approver(policy, surface or HeadlessSurface(), decisions=decisions, **more)


@contextmanager
def open_asker(file: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m tests.support.policy.approval_process`, ended with the test."""
    argv = [sys.executable, "-m", "tests.support.policy.approval_process", file, *arguments]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ) as child:
        try:
            yield child
        finally:
            child.kill()


def read(child: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def say(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(text + "\n")
    child.stdin.flush()


async def start_deciding(at: Approver, surface: AskedSurface, request: Approval | None = None) -> asyncio.Task[ApprovalOutcome]:
    deciding = asyncio.create_task(at.decide(request or approval(), HERE))
    await surface.reached.wait()
    return deciding


def read_disk(file: str) -> bytes:
    """Everything on disk."""
    folder = Path(file).parent
    return b"".join((folder / name).read_bytes() for name in sorted(os.listdir(folder)))
