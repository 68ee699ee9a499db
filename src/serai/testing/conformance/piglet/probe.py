"""One guest that speaks piglet, started and asked: read as tolerantly as a host reads it, and everything that is wrong is kept.

`PigletExamination` is what the rules of piglet are given: guests to try things with, and one visit that all of them share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from serai.testing.conformance.examination import NOBODY, FirstVisit, GuestExamination, open_examination
from serai.testing.conformance.findings import Finding
from serai.testing.conformance.probe import Flawed, Frame, GuestProbe, RequestOutcome, Task, compact
from serai.testing.piglet_host import messages
from serai.testing.piglet_host.host import PigletProcess, Transport

_ANSWER = "answer every request exactly once, also when something goes wrong: catch what is thrown, and send an error"
_JUDGE = "answer at once, also what you cannot judge: everything waits for an interceptor"
_PLACES: dict[Transport, str] = {"fd": "FD 4", "stdio": "stdout"}
# What each method is about, in words.
_WHAT = {
    "tool/execute": "the tool call {name}",
    "command/execute": "the command /{name}",
    "interceptor/before": "the question of {name} before a tool",
    "interceptor/after": "the question of {name} after a tool",
    "event/dispatch": "the event {type}",
}


class PigletRequest(NamedTuple):
    """Something to ask of a guest; `real` if a person has given it. It has a usual id, in the usual form, unless it is given."""

    kind: str
    fields: Frame
    real: bool = False
    id: int | None = None
    form: Callable[[Frame], bytes] = compact

    @property
    def what(self) -> str:
        return _WHAT.get(self.kind, "the request {kind}").format(**{"kind": self.kind, **self.fields})


class PigletProbe(GuestProbe):
    """A guest and what it said. What it asks of its host is served, as far as it does no harm."""

    opening = "answer to initialize"
    key = "runtime"
    no_opening = (
        "read FD 3 and write FD 4 if PIGLET_FD is 1, else stdin and stdout; answer initialize at once, and flush what you write: "
        "most languages keep what goes into a pipe until much has come together"
    )
    process: PigletProcess

    def __init__(
        self, task: Task, data: Path, *, transport: Transport, services: bool = True, bare: bool = False, narrow: bool = False
    ) -> None:
        """`services=False` is a host that refuses what the guest asks, `bare` one that names no folder for its configuration."""
        environ = {**task.target.environ, "SERAI_DIALECT": "piglet"}  # as Serai says it: else who speaks several has to guess
        process = PigletProcess(task.target.argv, cwd=task.target.folder, environ=environ, transport=transport)
        super().__init__(task, process, narrow=narrow)
        self.transport, self._services = transport, services
        self._about = {"protocolVersion": "5", "cwd": str(data)} | ({} if bare else {"configDir": str(data / task.target.name)})
        self.registrations: list[tuple[str, messages.Message, bytes]] = []  # the method, its params, and the line
        self.late: list[tuple[str, messages.Message, bytes]] = []  # after the answer to initialize
        self.requested: list[str] = []  # what it asked of its host
        self.printed: list[bytes] = []  # what it wrote to stdout beside its wire
        self.config_dir, self.name = data / task.target.name, task.target.name
        self.manifest = {"runtime": ""}
        self._initialized = False
        self._asked: dict[int, PigletRequest] = {}
        self._subscriptions: dict[int, str] = {}
        self._last = 0

    # -- opening ---------------------------------------------------------------------------------------------------------------

    def open(self, like: Any = None) -> Finding | None:  # noqa: ARG002 - nothing is said after the answer
        limit = self.task.patience.hello
        [id] = self.ask(PigletRequest("initialize", self._about))
        if not self.hear(lambda: id in self.answers, limit):
            return self._report_uninitialized(limit)
        if error := self.answers[id][0].get("error"):
            hint = "answer initialize with a result: who answers with an error is not taken in"
            return self.fail(f"it answers initialize with an error: {error}", hint=hint)
        self._initialized = True
        if not self.alive:
            return self.report_gone()
        self.opened = len(self.process.transcript)
        return None

    def _report_uninitialized(self, limit: float) -> Finding:
        if self._lines and self.alive:
            hint = "answer initialize when all is registered, also when you have nothing to register"
            return self.fail(f"it does not answer initialize within {limit:g} s", hint=hint)
        return self.report_unopened(limit)

    @property
    def output(self) -> str:
        return _PLACES[self.transport]

    # -- saying and hearing ----------------------------------------------------------------------------------------------------

    def send(self, **members: object) -> bool:
        return self.write(compact({"jsonrpc": "2.0", **members}) + b"\n")

    def ask(self, *requests: PigletRequest) -> list[int]:
        ids, raw = [], b""
        for request in requests:
            id = self._make_id() if request.id is None else request.id
            self._asked[id] = request
            ids.append(id)
            raw += request.form({"jsonrpc": "2.0", "id": id, "method": request.kind, "params": request.fields}) + b"\n"
        self.write(raw)
        return ids

    def _make_id(self) -> int:
        """Requests and subscriptions have one counter (spec piglet 2.3)."""
        self._last += 1
        return self._last

    def get_limit(self, request: PigletRequest) -> float:
        patience = self.task.patience
        match request.kind:
            case "tool/execute" if request.real:
                return patience.tool
            case "command/execute" if request.real:
                return patience.command
            case "interceptor/before" | "interceptor/after":
                return patience.intercept
        return patience.answer

    def get_hint(self, request: PigletRequest) -> str:
        return _JUDGE if request.kind.startswith("interceptor/") else _ANSWER

    def say_shutdown(self) -> None:
        """A notification, without params (spec piglet 5.10)."""
        self.send(method="shutdown")

    def wait_for_end(self, within: float) -> int | None:
        status = super().wait_for_end(within)
        if self.transport == "fd" and (printed := self.process.printed):
            self.printed = [printed.encode()]
        return status

    # -- reading ---------------------------------------------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        if len(line.rstrip(b"\n")) > messages.LONGEST:
            self.wrong.append(Flawed(line, f"a line has more than {messages.LONGEST} bytes: the host takes that for a crash"))
        message = messages.parse_message(line)
        if message is None:
            if line.strip():  # blank lines are skipped (spec piglet 2.2)
                self.noise.append(line)
        elif not message.get("method"):
            self._take_answer(message, line)
        elif message.get("id") is None:
            self._take_notification(message, line)
        else:
            self._take_request(message, line)

    def _take_answer(self, message: messages.Message, line: bytes) -> None:
        id = message.get("id")
        request = self._asked.get(id) if messages.is_id(id) else None  # type: ignore[arg-type]
        if request is None:
            why = "an answer has an id that no request had" if messages.is_id(id) else "the id of an answer is no integer"
            self.strays.append(Flawed(line, why))
            return
        self.answers.setdefault(id, []).append(message)
        error = message.get("error")
        if error is not None:
            if not isinstance(error, dict) or not messages.is_id(error.get("code")) or not isinstance(error.get("message"), str):
                self.wrong.append(Flawed(line, "an error needs code (an integer) and message (a string)", request.kind))
        elif "result" not in message:
            self.wrong.append(Flawed(line, "an answer needs result or error", request.kind))
        elif request.kind in messages.RESULTS:
            self._judge(messages.Flaws.from_result(request.kind, message["result"]), line, request.kind)

    def _take_notification(self, message: messages.Message, line: bytes) -> None:
        method = message["method"]
        if method not in messages.NOTIFICATIONS:
            self.odd.append(Flawed(line, f"there is no notification {method!r} in the protocol"))
            return
        flaws = messages.Flaws.from_params(method, message.get("params"))
        self._judge(flaws, line, method)
        if method in messages.REGISTER and not flaws.wrong:
            (self.late if self._initialized else self.registrations).append(
                (method, messages.read_params(method, message.get("params")), line)
            )

    def _take_request(self, message: messages.Message, line: bytes) -> None:
        id, method, params = message["id"], message["method"], message.get("params")
        self.requested.append(str(method))
        if not messages.is_id(id):
            self.wrong.append(Flawed(line, "the id of a request is no integer: piglet drops it, and never answers", "request"))
            return
        if method not in messages.REQUESTS:
            self.odd.append(Flawed(line, f"there is no request {method!r} in the protocol"))
            self.send(id=id, error={"code": -32601, "message": f"method not found: {method}"})
            return
        flaws = messages.Flaws.from_params(method, params)
        self._judge(flaws, line, method)
        try:
            if flaws.wrong:
                raise messages.HostError(-32602, f"invalid params: {flaws.wrong[0]}")  # noqa: TRY301 - as every refusal
            self._serve(id, method, params or {})
        except messages.HostError as error:
            self.send(id=id, error={"code": error.code, "message": error.message})

    def _serve(self, id: int, method: str, params: messages.Message) -> None:
        if not self._services:
            raise messages.HostError(-32603, "host app not available")
        usual = messages.ANSWERS[method]
        result = usual(self, params) if callable(usual) else usual
        if result is not messages.LATER:
            self.send(id=id, result=result)

    def _judge(self, flaws: messages.Flaws, line: bytes, kind: str) -> None:
        self.wrong += [Flawed(line, why, kind) for why in flaws.wrong]
        self.odd += [Flawed(line, why, kind) for why in flaws.odd]

    # -- what a served guest asks about ----------------------------------------------------------------------------------------

    def registered(self, method: str) -> list[messages.Message]:
        return [params for kind, params, _ in self.registrations + self.late if kind == method]

    def list_names(self, method: str, key: str = "name") -> list[str]:
        return [params[key] for params in self.registered(method)]

    @property
    def tools(self) -> dict[str, messages.Message]:
        return {params["name"]: params for params in self.registered("register/tool")}

    @property
    def commands(self) -> dict[str, messages.Message]:
        return {params["name"]: params for params in self.registered("register/command")}

    def execute_tool(self, name: str, args: object, call_id: str = "") -> Any:
        """Its own tool, as it asked for it."""
        if (
            self.try_request(PigletRequest("tool/execute", {"callId": call_id, "name": name, "args": args}, real=True))
            is not RequestOutcome.ANSWERED
        ):
            raise messages.HostError(-32603, "tool execution cancelled")
        if error := self.last_answer.get("error"):
            raise messages.HostError(-32603, str(error))
        return self.last_answer.get("result")

    def publish(self, topic: str, data: object) -> None:
        for subscription, wanted in self._subscriptions.items():
            if wanted == topic:
                self.send(method="eventBus/event", params={"topic": topic, "subscriptionId": subscription, "data": data})

    def subscribe(self, topic: str) -> int:
        subscription = self._make_id()
        self._subscriptions[subscription] = topic
        return subscription


_TALK = [
    {"type": "user", "data": {"content": "Good morning.", "timestamp": "2026-02-03T10:00:00Z"}},
    {"type": "assistant", "data": {"content": [{"text": "Good morning to you."}], "model": "m1", "provider": "acme"}},
]


def build_call(name: str, args: object, *, real: bool = False) -> PigletRequest:
    return PigletRequest("tool/execute", {"callId": "call_1", "name": name, "args": args}, real)


def build_command(name: str, args: str = "", *, real: bool = False) -> PigletRequest:
    return PigletRequest("command/execute", {"name": name, "args": args}, real)


class PigletExamination(GuestExamination[PigletProbe]):
    """One guest that speaks piglet, on FD 3 and 4 or, if it says nothing there, on stdin and stdout (spec piglet FIX-2)."""

    unopened = "`manifest` and `handshake`"
    settles = True
    echo = "echo the `id` of the request as it came, an integer"
    refuse = "answer a name that you do not know with an error: -32602, `unknown tool: x`"

    def __init__(self, task: Task, scratch: Path) -> None:
        super().__init__(task, scratch)
        self.transport: Transport = "stdio" if task.target.transport == "stdio" else "fd"

    def start(self, data: Path, **options: Any) -> PigletProbe:
        return PigletProbe(self.task, data, transport=self.transport, **options)

    def make_visit(self) -> FirstVisit[PigletProbe]:
        """One that is mute on FD 3 and 4 may speak on stdin and stdout; if it is mute there too, the first is told."""
        visit = super().make_visit()
        mute = visit.problem is not None and visit.probe is not None and not visit.probe.answers
        if mute and self.target.transport == "auto":
            self.transport = "stdio"
            again = super().make_visit()
            if again.problem is None or (again.probe is not None and again.probe.answers):
                return again
            self.transport = "fd"
        return visit

    @property
    def tried_here(self) -> list[PigletProbe]:
        """Those that were spoken to where it speaks."""
        return [probe for probe in self.seen if probe.transport == self.transport]

    def build_requests(self, probe: PigletProbe) -> list[PigletRequest]:
        requests: list[PigletRequest] = []
        if probe.list_names("register/tool"):
            requests.append(build_call(NOBODY, {}))
        if probe.list_names("register/command"):
            requests.append(build_command(NOBODY))
        interceptors = dict.fromkeys(probe.list_names("register/interceptor"))
        requests += [PigletRequest("interceptor/before", {"name": name, "toolName": NOBODY, "args": {}}) for name in interceptors]
        requests += self.build_harmless(probe)[:1] + self.build_real_requests()
        return requests or [PigletRequest("serai/check", {})]  # an unknown method: any guest answers that

    def build_harmless(self, probe: PigletProbe) -> list[PigletRequest]:
        """What may be asked without doing anything: no shortcut, for it acts, and no model."""
        requests: list[PigletRequest] = []
        if probe.list_names("register/messageHook"):
            requests.append(PigletRequest("messageHook/onMessage", {"message": "Good morning."}))
        if probe.list_names("register/inputTransformer"):
            requests.append(PigletRequest("inputTransformer/transform", {"input": "Good morning."}))
        if probe.list_names("register/compactor"):
            requests.append(PigletRequest("compact/execute", {"messages": _TALK}))
        return requests

    def list_offered(self, request: PigletRequest) -> list[str]:
        return self.first.list_names("register/tool" if request.kind == "tool/execute" else "register/command")

    def list_tools(self, probe: PigletProbe) -> list[tuple[str, object]]:
        return [(tool["name"], tool.get("parameters") or {"type": "object"}) for tool in probe.registered("register/tool")]

    def build_call(self, name: str, args: object) -> PigletRequest:
        return build_call(name, args)

    def is_error(self, answer: messages.Message) -> bool:
        result = answer.get("result")
        return answer.get("error") is not None or (isinstance(result, dict) and bool(result.get("isError")))

    def build_real_requests(self) -> list[PigletRequest]:
        calls = [build_call(name, args, real=True) for name, args in self.task.calls]
        for line in self.task.commands:
            name, _, args = line.removeprefix("/").partition(" ")
            calls.append(build_command(name, " ".join(args.split()), real=True))  # spec piglet 5.2
        return calls


def examine(task: Task) -> AbstractContextManager[PigletExamination]:
    """What the rules are given; its scratch folder is gone afterwards."""
    return open_examination(PigletExamination, task)
