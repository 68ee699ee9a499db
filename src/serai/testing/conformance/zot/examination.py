"""What the rules of zot are given: guests to try things with, and one visit that all of them know."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from serai.testing.conformance.examining import NOBODY, Examining, scratched
from serai.testing.conformance.target import Task
from serai.testing.conformance.zot.probe import Probe, Request
from serai.testing.zot_host.frames import INTERCEPTABLE, Frame

__all__ = ["NOBODY", "Examination", "examine", "question"]

QUESTIONS: dict[str, Frame] = {
    "tool_call": {"tool_id": "call_1", "tool_name": NOBODY, "tool_args": {}},
    "turn_start": {"step": 1},
    "assistant_message": {"text": "Good morning."},
}


def question(event: str, **fields: object) -> Request:
    """A harmless one; `fields` change it."""
    return Request("event_intercept", {"event": event, **QUESTIONS[event], **fields})


class Examination(Examining[Probe]):
    """One guest that speaks zot."""

    echo = "echo the `id` of the request as it came, a string, in the answer of its kind"
    refuse = "answer a name that you do not know with an error: is_error for a tool, error for a command"

    def start(self, data: Path, **options: Any) -> Probe:
        return Probe(self.task, data, **options)

    def requests(self, probe: Probe) -> list[Request]:
        requests = []
        if probe.names("register_tool"):
            requests.append(Request("tool_call", {"name": NOBODY, "args": {}}))
        if probe.names("register_command"):
            requests.append(Request("command_invoked", {"name": NOBODY}))
        requests += [question(event) for event in INTERCEPTABLE if event in probe.intercepts]
        return requests + self.real()

    def offered(self, request: Request) -> list[str]:
        return self.first.names("register_tool" if request.kind == "tool_call" else "register_command")

    def tools(self, probe: Probe) -> list[tuple[str, object]]:
        tools = [frame for frame in probe.registered if frame["type"] == "register_tool"]
        return [(frame["name"], frame.get("schema", {"type": "object"})) for frame in tools]

    def call(self, name: str, args: object) -> Request:
        return Request("tool_call", {"name": name, "args": args})

    def is_error(self, answer: Frame) -> bool:
        return bool(answer.get("is_error") or answer.get("error"))

    def real(self) -> list[Request]:
        calls = [Request("tool_call", {"name": name, "args": args}, real=True) for name, args in self.task.calls]
        for line in self.task.commands:
            name, _, args = line.removeprefix("/").partition(" ")
            fields = {"name": name} | ({"args": args.strip()} if args.strip() else {})
            calls.append(Request("command_invoked", fields, real=True))
        return calls


def examine(task: Task) -> AbstractContextManager[Examination]:
    """What the rules are given; its scratch folder is gone afterwards."""
    return scratched(Examination, task)
