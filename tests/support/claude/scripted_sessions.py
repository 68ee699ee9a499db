"""Sessions with a scripted Claude Code, and what came of their turns."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import serai
from serai.agents.drivers.claude.driver import Claude
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import SeraiError
from serai.limits import Limits
from serai.model.approvals import Allow, Approval, Decision, Question
from serai.model.events import Event, Message, TurnResult
from serai.testing.claude.script import Script, ScriptedClaude
from tests.support.claude.captures import LIMITS, session

__all__ = [
    "LIMITS", "QUICK", "Answering", "Seen", "driver_of", "dump_json", "get_payload", "play", "poll", "program", "read",
    "scripted_session", "wait_for",
]  # fmt: skip

Json = dict[str, Any]
# For those who do not do what is asked of them.
QUICK = LIMITS.but(agent_stop=0.2, interrupt=0.5)
Answering = Callable[[Approval | Question], Decision | Awaitable[Decision | None] | None]


@dataclass
class Seen:
    """What came of a turn."""

    turn: Turn
    events: list[Event] = field(default_factory=list)
    error: SeraiError | None = None

    def of(self, kind: type[Any], *, lane: str | None = "") -> list[Any]:
        return [one for one in self.events if isinstance(one, kind) and (lane is None or one.lane == lane)]

    @property
    def result(self) -> TurnResult:
        assert self.turn.outcome is not None
        return self.turn.outcome

    @property
    def said(self) -> list[str]:
        return [message.text for message in self.of(Message)]


def scripted_session(
    place: Path, *scripts: Script | Path, options: tuple[str, ...] = (), limits: Limits = LIMITS, **more: Any
) -> tuple[ScriptedClaude, Session]:
    """A Claude that plays these scripts, one for each start, and a session with it that is not open yet."""
    claude = ScriptedClaude(place / "bin", *scripts, options=options)
    return claude, session(claude, place, limits=limits, **more)


def program(place: Path, source: str, **more: Any) -> Session:
    """A session with a program of the test's own: `source` is Python, with `say`, `hear` and `version` there already."""
    (place / "bin").mkdir(exist_ok=True)
    body = place / "bin" / "program.py"
    body.write_text(PROGRAM + source, "utf-8")
    path = place / "bin" / "claude"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "{body}" "$@"\n', "utf-8")
    path.chmod(0o755)
    environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(place)}
    return serai.agent("claude", cwd=place, environ=environ, settings={}, **{"limits": LIMITS, "path": str(path), **more})


PROGRAM = """\
import json, os, sys, time, signal
if "--version" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit(0)

def say(type, **more):
    os.write(1, json.dumps({"type": type, "session_id": "s-1", **more}).encode() + b"\\n")

def hear():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None

def reply(request, response):
    say("control_response", response={"subtype": "success", "request_id": request["request_id"], "response": response})

def greet():
    "initialize and the prompt; the latter"
    first, prompt = hear(), hear()
    applied = {"hooks_applied": True, "hook_on_failure_supported": True} if first["request"].get("hooks") else {}
    reply(first, {"claude_code_version": "2.1.325", **applied})
    return prompt

def init(**more):
    say("system", subtype="init", claude_code_version="2.1.325", model="fake", permissionMode="default", **more)

def answer(id):
    "what the host says to a request of ours; whatever else it says meanwhile is kept"
    while True:
        line = hear()
        if line["type"] == "control_response" and line["response"]["request_id"] == id:
            return line["response"]["response"]
        kept.append(line)

def ask(id, **request):
    say("control_request", request_id=id, request=request)
    return answer(id)

def called(id, name, **input):
    block = {"type": "tool_use", "id": id, "name": name, "input": input}
    say("assistant", message={"id": "m-" + id, "model": "fake", "content": [block]}, parent_tool_use_id=None)

def told(id, content, is_error=False):
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
    say("user", message={"role": "user", "content": [block]}, parent_tool_use_id=None)

def tool(id, name, *, mode="default", hook={}, request={}, **input):
    "a call as the real one makes it: the hook, then the request; what was said to each"
    called(id, name, **input)
    about = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input, "permission_mode": mode, **hook}
    said = ask("h-" + id, subtype="hook_callback", callback_id="guard", tool_use_id=id, input=about)["hookSpecificOutput"]
    how = said["permissionDecision"]
    asked = {"tool_name": name, "tool_use_id": id, "input": said.get("updatedInput", input), "decision_reason_type": "hook"}
    asked |= {"decision_reason": said.get("permissionDecisionReason"), **request}
    decided = ask("r-" + id, subtype="can_use_tool", **asked) if how == "ask" else None
    told(id, "ran" if how == "allow" or (decided or {}).get("behavior") == "allow" else "did not", how == "deny")
    return {"hook": said, "request": decided}

def rest():
    while hear():
        pass

kept = []

def result(text, **more):
    about = {"subtype": "success", "is_error": False, "num_turns": 1, "duration_ms": 5, "result": text}
    say("result", **{**about, **more})

"""


def driver_of(opened: Session) -> Claude:
    assert isinstance(opened.driver, Claude)
    return opened.driver


async def play(opened: Session, prompt: Any = "go", answer: Answering | None = lambda _: Allow()) -> Seen:
    """One turn to its end; what it asks is answered by `answer`, unless that is None or gives None."""
    seen = Seen(opened.turn(prompt))
    await read(seen, answer)
    return seen


async def read(seen: Seen, answer: Answering | None = lambda _: Allow()) -> Seen:
    try:
        async for event in seen.turn:
            seen.events.append(event)
            if isinstance(event, Approval | Question) and not event.answered and answer is not None:
                decision = answer(event)
                if isinstance(decision, Awaitable):
                    decision = await decision
                if decision is not None:
                    await event.decide(decision)
    except SeraiError as error:
        seen.error = error
    return seen


async def wait_for(opened: Session, what: Callable[[Event], bool]) -> Event:
    """The next event for which `what` holds, whether or not a turn runs."""
    found: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def look(event: Event) -> None:
        if not found.done() and what(event):
            found.set_result(event)

    stop = opened.listen(look)
    try:
        async with asyncio.timeout(30):
            return await found
    finally:
        stop()


async def poll(there: Callable[[], Any], seconds: float = 30.0) -> None:
    """For what another process does and tells nobody."""
    async with asyncio.timeout(seconds):
        while not there():
            await asyncio.sleep(0.01)


def get_payload(answers: dict[str, Json], request: str) -> Json:
    """The payload of an answer that was no error."""
    assert answers[request]["subtype"] == "success", answers[request]
    payload: Json = answers[request]["response"]
    return payload


def dump_json(value: object) -> str:
    """All of a value, to look for what must not be in it."""
    return json.dumps(value, default=str)


# A sub-agent in the background: it asks after the result of the turn that began it, and when it has ended a turn follows.
AGENT = """
prompt = greet()
init()
called("t1", "Task", description="look", run_in_background=True)
say("system", subtype="task_started", task_id="a1", tool_use_id="t1", task_type="local_agent", is_backgrounded=True)
told("t1", "Async agent launched")
{before}
result("it looks", user_message_uuid=prompt["uuid"])
{after}
say("system", subtype="task_updated", task_id="a1", patch={{"status": "completed"}})
say("system", subtype="task_notification", task_id="a1", status="completed", summary="seen")
say("system", subtype="background_tasks_changed", tasks=[])
init()
block = {{"type": "text", "text": "it has looked"}}
say("assistant", message={{"id": "m9", "model": "fake", "content": [block]}}, parent_tool_use_id=None)
result(json.dumps(decided), origin={{"kind": "task-notification"}})
rest()
"""
ASKS = """
block = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "ls"}}
say("assistant", message={"id": "m5", "model": "fake", "content": [block]}, parent_tool_use_id="t1")
about = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t2", "input": {"command": "ls"}, "agent_id": "a1"}
say("control_request", request_id="r1", request=about)
"""
