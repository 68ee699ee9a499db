"""A recording played by a real child process, and a session with it whose person answers as the recorded one did."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import serai
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.dialects.claude.tools import ToolMap
from serai.errors import SeraiError
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.events import Event, TurnResult
from serai.testing.claude.script import Given, ScriptedClaude

FOLDER = Path(__file__).parents[2] / "captures" / "claude"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
LIMITS = Limits().but(agent_first=50.0, exit_grace=15.0, drain_grace=15.0)
Json = dict[str, Any]


class Capture:
    """A recording, read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = FOLDER / f"{name}.jsonl"
        self.rows: list[Json] = [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def lines(self, way: str, type: str = "") -> list[Json]:
        lines = [row["line"] for row in self.rows if row["dir"] == way and isinstance(row.get("line"), dict)]
        return [line for line in lines if not type or line.get("type") == type]

    @property
    def answers(self) -> dict[str, Json]:
        """What the recorded host answered, by the id of the request."""
        return {line["response"]["request_id"]: line["response"] for line in self.lines("in", "control_response")}

    @property
    def asked(self) -> dict[str, Json]:
        """What the program asked of its host for, by id."""
        return {line["request_id"]: line["request"] for line in self.lines("out", "control_request")}

    @property
    def result(self) -> Json | None:
        results = self.lines("out", "result")
        return results[-1] if results else None

    def blocks(self, frame: str, kind: str, *, main: bool = True) -> list[Json]:
        """Content blocks of a kind, without what the program says in the model's place; `main`: only those of the agent itself."""
        lines = [line for line in self.lines("out", frame) if line["message"].get("model") != "<synthetic>"]
        lines = [line for line in lines if not (main and line.get("parent_tool_use_id"))]
        contents = [line["message"]["content"] for line in lines if isinstance(line["message"]["content"], list)]
        return [block for content in contents for block in content if block["type"] == kind]

    def decision(self, ask: Approval | Question) -> Decision:
        """What the recorded person said."""
        recorded = self.answers.get(ask.id, {})
        said = recorded.get("response") or {}
        if said.get("behavior") == "deny":
            return Deny(said["message"], interrupt=bool(said.get("interrupt")))
        if said.get("behavior") != "allow":
            return Deny("no answer was recorded")
        given = said.get("updatedInput")
        if isinstance(ask, Question):
            assert given is not None
            return Answer(given["answers"])
        remember: Any = "project" if said.get("updatedPermissions") else "once"
        if given is None or given == self.asked[ask.id]["input"]:
            return Allow(remember=remember)
        return Allow(ToolMap().build_call("", self.asked[ask.id]["tool_name"], given).arguments, remember=remember)


@dataclass
class Played:
    """What came of it."""

    events: list[Event] = field(default_factory=list)
    result: TurnResult | None = None
    error: BaseException | None = None
    given: Given | None = None

    def of(self, kind: type[Any], *, lane: str | None = "") -> list[Any]:
        return [one for one in self.events if isinstance(one, kind) and (lane is None or one.lane == lane)]

    @property
    def frames(self) -> list[Json]:
        assert self.given is not None
        return self.given.frames


Watch = Callable[[Event, Session, Turn], Any]


def session(claude: ScriptedClaude, cwd: Path, **more: Any) -> Session:
    environ = {"PATH": os.pathsep.join((str(claude.folder), os.environ.get("PATH", os.defpath))), "HOME": str(cwd)}
    return serai.agent("claude", cwd=cwd, environ=environ, settings={}, **{"limits": LIMITS, "path": str(claude.path), **more})


async def play(capture: Capture, place: Path, *options: str, watch: Watch | None = None, **more: Any) -> Played:
    """Play it to its end. `watch` sees each event first, and may do something about it."""
    claude = ScriptedClaude(place / "bin", capture.path, options=options)
    played = Played()
    async with session(claude, place, **more) as opened:
        turn = opened.turn("go")
        try:
            async for event in turn:
                played.events.append(event)
                done = watch(event, opened, turn) if watch is not None else None
                if done is not None:
                    await done
                elif isinstance(event, Approval | Question):
                    await event.decide(capture.decision(event))
        except SeraiError as error:
            played.error = error
        played.result = turn.outcome
    played.given = claude.given()
    return played
