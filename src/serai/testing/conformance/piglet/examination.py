"""What the rules of piglet are given: guests to try things with, and one visit that all of them know."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from serai.testing.conformance.examining import NOBODY, Examining, Visit, scratched
from serai.testing.conformance.piglet.probe import Probe, Request
from serai.testing.conformance.target import Task
from serai.testing.piglet_host.messages import Message
from serai.testing.piglet_host.process import Transport

__all__ = ["NOBODY", "Examination", "call", "command", "examine"]

_TALK = [
    {"type": "user", "data": {"content": "Good morning.", "timestamp": "2026-02-03T10:00:00Z"}},
    {"type": "assistant", "data": {"content": [{"text": "Good morning to you."}], "model": "m1", "provider": "acme"}},
]


def call(name: str, args: object, *, real: bool = False) -> Request:
    return Request("tool/execute", {"callId": "call_1", "name": name, "args": args}, real)


def command(name: str, args: str = "", *, real: bool = False) -> Request:
    return Request("command/execute", {"name": name, "args": args}, real)


class Examination(Examining[Probe]):
    """One guest that speaks piglet, on FD 3 and 4 or, if it says nothing there, on stdin and stdout (spec piglet FIX-2)."""

    unopened = "`manifest` and `handshake`"
    settles = True
    echo = "echo the `id` of the request as it came, an integer"
    refuse = "answer a name that you do not know with an error: -32602, `unknown tool: x`"

    def __init__(self, task: Task, scratch: Path) -> None:
        super().__init__(task, scratch)
        self.transport: Transport = "stdio" if task.target.transport == "stdio" else "fd"

    def start(self, data: Path, **options: Any) -> Probe:
        return Probe(self.task, data, transport=self.transport, **options)

    def pay_visit(self) -> Visit[Probe]:
        """One that is mute on FD 3 and 4 may speak on stdin and stdout; if it is mute there too, the first is told."""
        visit = super().pay_visit()
        mute = visit.problem is not None and visit.probe is not None and not visit.probe.answers
        if mute and self.target.transport == "auto":
            self.transport = "stdio"
            again = super().pay_visit()
            if again.problem is None or (again.probe is not None and again.probe.answers):
                return again
            self.transport = "fd"
        return visit

    @property
    def tried_here(self) -> list[Probe]:
        """Those that were spoken to where it speaks."""
        return [probe for probe in self.seen if probe.transport == self.transport]

    def requests(self, probe: Probe) -> list[Request]:
        requests: list[Request] = []
        if probe.names("register/tool"):
            requests.append(call(NOBODY, {}))
        if probe.names("register/command"):
            requests.append(command(NOBODY))
        interceptors = dict.fromkeys(probe.names("register/interceptor"))
        requests += [Request("interceptor/before", {"name": name, "toolName": NOBODY, "args": {}}) for name in interceptors]
        requests += self.harmless(probe)[:1] + self.real()
        return requests or [Request("serai/check", {})]  # an unknown method: any guest answers that

    def harmless(self, probe: Probe) -> list[Request]:
        """What may be asked without doing anything: no shortcut, for it acts, and no model."""
        requests: list[Request] = []
        if probe.names("register/messageHook"):
            requests.append(Request("messageHook/onMessage", {"message": "Good morning."}))
        if probe.names("register/inputTransformer"):
            requests.append(Request("inputTransformer/transform", {"input": "Good morning."}))
        if probe.names("register/compactor"):
            requests.append(Request("compact/execute", {"messages": _TALK}))
        return requests

    def offered(self, request: Request) -> list[str]:
        return self.first.names("register/tool" if request.kind == "tool/execute" else "register/command")

    def tools(self, probe: Probe) -> list[tuple[str, object]]:
        return [(tool["name"], tool.get("parameters") or {"type": "object"}) for tool in probe.registered("register/tool")]

    def call(self, name: str, args: object) -> Request:
        return call(name, args)

    def is_error(self, answer: Message) -> bool:
        result = answer.get("result")
        return answer.get("error") is not None or (isinstance(result, dict) and bool(result.get("isError")))

    def real(self) -> list[Request]:
        calls = [call(name, args, real=True) for name, args in self.task.calls]
        for line in self.task.commands:
            name, _, args = line.removeprefix("/").partition(" ")
            calls.append(command(name, " ".join(args.split()), real=True))  # spec piglet 5.2
        return calls


def examine(task: Task) -> AbstractContextManager[Examination]:
    """What the rules are given; its scratch folder is gone afterwards."""
    return scratched(Examination, task)
