"""Whole apps whose agent is a scripted Claude Code: a real process that asks as the program does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from serai.app.app import App
from serai.model.events import Message, Text, ToolEnded
from serai.store.session_folder import SessionFolder
from serai.testing.claude.script import Script, ScriptedClaude
from tests.support.app.apps import PATIENT, Person, build_environ, close_app
from tests.support.stored_sessions import show

LIMITS: Mapping[str, float | None] = {**PATIENT, "agent_first": 50.0, "agent_version": 50.0, "interrupt": 30.0, "agent_stop": 10.0}


class Harness:
    """An app with a scripted Claude, found through the PATH; what it plays is in `scripts`, one for each start."""

    def __init__(self, tmp_path: Path, *scripts: Script) -> None:
        self.root = tmp_path
        self.project = tmp_path / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.claude = ScriptedClaude(tmp_path / "bin", *scripts)

    @property
    def environ(self) -> dict[str, str]:
        """Nothing of this person's: no other Claude Code is found either."""
        home = build_environ(self.root)
        return {**home, "PATH": f"{self.claude.folder}:/usr/bin:/bin", "HOME": str(self.root / "person"), "CLAUDE_USE_GLOBAL": "1"}

    @asynccontextmanager
    async def opened(self, *guests: Path, **choices: Any) -> AsyncIterator[App]:
        """In manual mode: what no rule decides is asked. At the end nothing that it started runs any more."""
        usual: dict[str, Any] = {"cwd": self.project, "environ": self.environ, "guests": guests, "installed": False}
        usual |= {"agent": "claude", "mode": "manual", "record": False, "limits": LIMITS}
        app = App(**{**usual, **choices})
        await app.open()
        try:
            yield app
        finally:
            await close_app(app)

    def answer(self, request: str, start: int = 0) -> dict[str, Any]:
        """What the host answered to a request of the program's."""
        response: dict[str, Any] = self.claude.given(start).answers()[request]["response"]
        return response

    def prompts(self, start: int = 0) -> list[Any]:
        """The content of what the program was told to do."""
        return [frame["message"]["content"] for frame in self.claude.given(start).frames if frame["type"] == "user"]

    def initialize(self, start: int = 0) -> dict[str, Any]:
        request: dict[str, Any] = self.claude.given(start).frames[0]["request"]
        return request


def hello(text: str = "hello") -> Script:
    return Script().init().text(text).result(text)


def shell(command: str, *, text: str = "done") -> Script:
    """A turn with one command, which really runs if it may."""
    return Script().init().calls("t1", command=command).text(text).result(text)


def list_results(person: Person) -> list[str]:
    """What became of each call."""
    return [event.result.text for event in person.events if isinstance(event, ToolEnded)]


def join_text(person: Person) -> str:
    """All that the agent said, as a surface gets it piece by piece."""
    return "".join(event.text for event in person.events if isinstance(event, Text))


def read_conversation(harness: Harness) -> list[str]:
    """What the only session of the store has."""
    sessions = SessionFolder.usual(harness.environ)
    [one] = sessions.list()
    with sessions.open(one.id) as session:
        return show(session)


def read_outcomes(harness: Harness) -> list[str]:
    """How its turns have ended, as it is kept."""
    sessions = SessionFolder.usual(harness.environ)
    [one] = sessions.list()
    rows = [json.loads(line) for line in Path(one.path).read_text("utf-8").splitlines()]
    events = [row["data"] for row in rows if row["type"] == "event"]
    return [event["result"]["status"] for event in events if event["type"] == "turn_ended"]


def messages(person: Person) -> Sequence[str]:
    return [event.text for event in person.events if isinstance(event, Message)]
