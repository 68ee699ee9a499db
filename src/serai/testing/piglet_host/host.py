"""The stand-in host itself: it opens, asks, serves and ends as spec piglet 2 to 8 say, and is strict with every message.

It starts an extension's program as its manifest says, with the wire on FD 3 and 4 or on stdin and stdout.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from serai.testing.guest_process import GuestProcess, Misbehaved, StrictHost, copy_environ, with_python
from serai.testing.piglet_host import messages as wire

Transport = Literal["fd", "stdio"]
_INTERPRETERS = {"bun": ["bun", "run"], "node": ["node"], "deno": ["deno", "run", "--allow-all"], "python": ["python3"]}
# Its wire becomes FD 3 and 4, its stdin is empty and its stdout goes into a file: what it prints disturbs nobody (spec piglet 2.1).
_ON_FD = 'noise=$1; shift; exec 3<&0 4>&1 </dev/null >>"$noise"; exec "$@"'


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `manifest.yaml` says (spec piglet 1.3)."""
    file = folder / "manifest.yaml"
    try:
        said: object = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise Misbehaved(f"read manifest {file}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise Misbehaved(f"parse manifest {file}: {error}") from None
    manifest: dict[str, Any] = said if isinstance(said, dict) else {}
    for key in ("name", "runtime"):
        if not isinstance(manifest.get(key), str) or not manifest[key]:
            raise Misbehaved(f"manifest {file}: {key} is required")
    return manifest


def build_argv(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The command line of a runtime (spec piglet 1.4)."""
    runtime, entry = manifest["runtime"], manifest.get("entry") or ""
    if runtime in _INTERPRETERS:
        return [*_INTERPRETERS[runtime], os.path.join(folder, entry)]
    program = runtime if os.path.isabs(runtime) else os.path.join(folder, runtime)
    return [program, os.path.join(folder, entry)] if entry else [program]


class PigletProcess(GuestProcess):
    """The program of an extension. Its wire is `stdin` and `stdout` of this object, wherever that is on its own side."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], transport: Transport) -> None:
        self._noise = tempfile.NamedTemporaryFile(prefix="serai-stdout-")
        environ = {name: value for name, value in environ.items() if name != "PIGLET_FD"}
        if transport == "fd":
            environ["PIGLET_FD"] = "1"
            argv = ["/bin/sh", "-c", _ON_FD, "sh", self._noise.name, *argv]
        try:
            super().__init__(argv, cwd=cwd, environ=environ)
        except BaseException:
            self._noise.close()
            raise

    @property
    def printed(self) -> str:
        """What went to stdout beside the wire."""
        return Path(self._noise.name).read_text(errors="replace")

    def kill(self) -> None:
        super().kill()
        self._noise.close()


_GRACE = 0.2  # seconds from the end of its input to SIGKILL (spec piglet 2.7)


class PigletHost(StrictHost):
    """One extension, started and past its handshake; used as a context, which leaves no process behind.

    `path` is the folder of the extension or its manifest, or a Python program alone. `answers` take the place of the usual answers
    to `host/*`: a result, a `HostError`, `LATER`, or a function of the params that gives one of them. `patience` is how long it
    waits for what has to come, in seconds. `strict=False` keeps what is wrong in `flaws` and goes on.
    """

    process: PigletProcess

    def __init__(
        self,
        path: Path | str,
        *,
        transport: Transport = "fd",
        answers: Mapping[str, object | Callable[[wire.Message], object]] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        config_dir: Path | str | None = None,
        protocol: str = "5",
        patience: float = 30.0,  # for what is expected to happen: a busy machine is no failure
        strict: bool = True,
    ) -> None:
        self.environ = with_python(copy_environ() if environ is None else environ)
        path = Path(os.path.abspath(path))
        self.folder = path if path.is_dir() else path.parent
        if path.suffix == ".py":
            self.manifest: Mapping[str, Any] = {"name": path.stem, "runtime": "python", "entry": path.name}
        else:
            self.manifest = read_manifest(self.folder)
        self.name: str = self.manifest["name"]
        self.cwd, self.config_dir = str(cwd or self.folder), Path(config_dir or self.folder)
        self.transport, self.protocol, self.patience, self.strict = transport, protocol, patience, strict
        self.scripted = dict(answers or {})
        self.about: object = None  # the result of initialize
        self.tools: dict[str, wire.Message] = {}
        self.commands: dict[str, wire.Message] = {}
        self.seen: list[wire.Message] = []  # every message of the extension, in order
        self.heard: list[wire.Message] = []  # notifications that `hear` has not taken yet
        self.asked: dict[object, wire.Message] = {}  # its requests that have no answer yet, by id
        self.cancelled: list[object] = []  # ids of its requests that it has taken back
        self.answers: dict[int, wire.Message] = {}
        self.deltas: dict[int, list[wire.Message]] = {}  # by request id
        self.flaws: list[str] = []
        self._open: dict[int, str] = {}
        self._subscriptions: dict[int, str] = {}
        self._last = 0

    def __enter__(self) -> Self:
        argv = build_argv(self.folder, self.manifest)
        try:
            self.process = PigletProcess(argv, cwd=self.folder, environ=self.environ, transport=self.transport)
        except OSError as error:
            raise Misbehaved(f"start {self.name}: {error.strerror}") from None
        try:
            about = {"protocolVersion": self.protocol, "cwd": self.cwd, "configDir": str(self.config_dir)}
            answer = self.answer(self.ask("initialize", about))
            if "error" in answer:
                self._complain(f"initialize {self.name}: {answer['error'].get('message')}")
            self.about = answer.get("result")
        except BaseException:
            self.process.kill()
            raise
        return self

    # -- for an author's tests -------------------------------------------------------------------------------------------------

    def execute_tool(self, name: str, args: object = None, call_id: str = "call_1") -> Any:
        return self.call("tool/execute", {"callId": call_id, "name": name, "args": args})

    def tool_text(self, name: str, args: object = None) -> str:
        """Call a tool that must not fail; the texts of its result."""
        result = self.execute_tool(name, args)
        text = "\n".join(wire.extract_texts(result))
        if result.get("isError"):
            self._complain(f"{name} answered with an error: {text}")
        return text

    def execute_command(self, name: str, args: str = "") -> Any:
        return self.call("command/execute", {"name": name, "args": args})

    def before(self, name: str, tool: str, args: object) -> Any:
        return self.call("interceptor/before", {"name": name, "toolName": tool, "args": args})

    def after(self, name: str, tool: str, details: object = None) -> Any:
        given = {} if details is None else {"details": details}
        return self.call("interceptor/after", {"name": name, "toolName": tool, **given})

    def dispatch(self, event: str, data: object = None) -> Any:
        return self.call("event/dispatch", {"type": event, "data": {} if data is None else data})

    def shortcut(self, key: str) -> Any:
        return self.call("shortcut/handle", {"key": key})

    def on_message(self, message: str) -> Any:
        return self.call("messageHook/onMessage", {"message": message})

    def transform(self, input: str) -> Any:
        return self.call("inputTransformer/transform", {"input": input})

    def compact(self, messages: list[wire.Message]) -> Any:
        return self.call("compact/execute", {"messages": messages})

    def stream(self, **params: object) -> tuple[list[wire.Message], Any]:
        """Ask a provider; its deltas and its result. The request id is another than that of the envelope (spec piglet 2.3)."""
        self._last += 1
        request, model = self._last, {"id": "m1", "name": "M One", "api": "acme", "provider": "acme"}
        usual = {"requestId": request, "model": model, "system": "", "messages": [], "options": {}}
        result = self.call("provider/stream", usual | params)
        return self.deltas.pop(request, []), result

    def registered(self, method: str) -> list[wire.Message]:
        """The params of all registrations of a kind, such as `register/tool`, as they came."""
        return [wire.read_params(method, message.get("params")) for message in self.seen if message.get("method") == method]

    def hear(self, method: str) -> wire.Message:
        """Take the params of the oldest notification of a method, such as `showMessage`; wait for it."""
        while not (found := [message for message in self.heard if message["method"] == method]):
            self._handle_line(self._read_line(method))
        self.heard.remove(found[0])
        return found[0].get("params") or {}

    def hear_request(self, method: str) -> wire.Message:
        """Wait for a request of the extension that has no answer yet (`LATER`); the message."""
        while not (found := [message for message in self.asked.values() if message["method"] == method]):
            self._handle_line(self._read_line(method))
        return found[0]

    def hear_cancel(self, id: object) -> None:
        """Wait until the extension takes this request of its own back."""
        while id not in self.cancelled:
            self._handle_line(self._read_line(f"$/cancelRequest for {id!r}"))

    # -- as bare as the wire ---------------------------------------------------------------------------------------------------

    def call(self, method: str, params: object = None) -> Any:
        """Ask, and wait; the result. An error is a `HostError` with its code and message."""
        answer = self.answer(self.ask(method, params))
        if "error" in answer:
            raise wire.HostError(answer["error"]["code"], answer["error"]["message"])
        return answer.get("result")

    def ask(self, method: str, params: object = None) -> int:
        """Send a request, and do not wait; its id."""
        self._last += 1
        self._open[self._last] = method
        self.send(id=self._last, method=method, **({} if params is None else {"params": params}))
        return self._last

    def answer(self, id: int) -> wire.Message:
        """Wait for the answer to a request; the whole message."""
        while id not in self.answers:
            self._handle_line(self._read_line(f"answer to {self._open[id]}"))
        return self.answers[id]

    def notify(self, method: str, params: object = None) -> None:
        self.send(method=method, **({} if params is None else {"params": params}))

    def cancel(self, id: int) -> None:
        self.notify("$/cancelRequest", {"id": id})

    def reply(self, message: wire.Message, result: object = None, *, error: wire.HostError | None = None) -> None:
        """Answer a request of the extension; what it has taken back it may be answered all the same."""
        del self.asked[message["id"]]
        told = {"result": result} if error is None else {"error": {"code": error.code, "message": error.message}}
        self.send(id=message["id"], **told)

    def publish(self, topic: str, data: object) -> None:
        for subscription, wanted in self._subscriptions.items():
            if wanted == topic:
                self.notify("eventBus/event", {"topic": topic, "subscriptionId": subscription, "data": data})

    def subscribe(self, topic: str) -> int:
        self._last += 1
        self._subscriptions[self._last] = topic
        return self._last

    def send(self, **members: object) -> None:
        line = json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False).encode()
        if len(line) > wire.LONGEST:
            raise ValueError(f"a line of {len(line)} bytes: nobody reads more than {wire.LONGEST}")
        self.write(line + b"\n")

    # -- the end ---------------------------------------------------------------------------------------------------------------

    def stop(self) -> int | None:
        """`shutdown` as a notification, the end of its input, 200 ms (spec piglet 8.0); the status, or None: kill it."""
        self.notify("shutdown")
        self.process.stdin.close()
        return self.process.wait(_GRACE)

    def end(self) -> int:
        """The same without the haste: the exit status, once all is read."""
        self.notify("shutdown")
        return self.eof()

    def eof(self) -> int:
        """Close its input without a word; the exit status."""
        self.process.stdin.close()
        return self.wait()

    def shutdown(self) -> int:
        """`shutdown` as a request, which is answered with null (spec piglet 5.10); the exit status."""
        if (result := self.call("shutdown")) is not None:
            self._complain(f"answered shutdown with {result!r}")
        return self.wait()

    def wait(self) -> int:
        """Read on until it ends; the exit status."""
        while (line := self._read_line("end", ends=True)) is not None:
            self._handle_line(line)
        return self._wait_for_exit()

    @property
    def who(self) -> str:
        return self.name

    @property
    def printed(self) -> str:
        """What it printed beside the wire; on stdio there is no such thing."""
        return self.process.printed

    # -- within ----------------------------------------------------------------------------------------------------------------

    def _handle_line(self, line: bytes | None) -> None:
        message = wire.parse_message(line or b"")
        if len(line or b"") > wire.LONGEST + 1:
            self._report_flaw(f"a line of {len(line or b'') - 1} bytes, and no host reads more than {wire.LONGEST}")
        elif message is None:
            self._report_flaw("the wire carries JSON-RPC only")
        else:
            self.seen.append(message)
            if not message.get("method"):
                self._take_answer(message)
            elif message.get("id") is None:
                self._take_notification(message)
            else:
                self._take_request(message)

    def _take_answer(self, message: wire.Message) -> None:
        id = message["id"]
        if not wire.is_id(id) or id not in self._open:
            return self._report_flaw(f"an answer to {id!r}, which nobody asked for")
        if id in self.answers:
            return self._report_flaw(f"answered {id} twice")
        error = message.get("error")
        if error is not None:
            if not isinstance(error, dict) or not wire.is_id(error.get("code")) or not isinstance(error.get("message"), str):
                self._report_flaw("an error needs code (an integer) and message (a string)")
        elif "result" not in message:
            self._report_flaw("an answer needs result or error")
        elif (method := self._open[id]) in wire.RESULTS:
            self._judge(wire.Flaws.from_result(method, message["result"]))
        self.answers[id] = {key: value for key, value in message.items() if key != "error" or value is not None}
        return None

    def _take_notification(self, message: wire.Message) -> None:
        method, params = message["method"], message.get("params")
        if method not in wire.NOTIFICATIONS:
            return self._report_flaw(f"no notification of the protocol: {method}")
        flaws = wire.Flaws.from_params(method, params)
        self._judge(flaws)
        if flaws.wrong:
            return None
        told = wire.read_params(method, params)
        match method:
            case "register/tool":
                self.tools[told["name"]] = told  # the last one wins (spec piglet 3)
            case "register/command":
                self.commands[told["name"]] = told
            case "provider/delta":
                self.deltas.setdefault(told["requestId"], []).append(told)
            case "$/cancelRequest":
                self.cancelled.append(told.get("id"))
        if method not in wire.REGISTER:
            self.heard.append(message)
        return None

    def _take_request(self, message: wire.Message) -> None:
        id, method, params = message["id"], message["method"], message.get("params") or {}
        if not wire.is_id(id):
            return self._report_flaw(f"the id {id!r} is no integer: piglet drops such a request")
        if id in self.asked:
            self._report_flaw(f"a second request under the id {id}, while the first is open")
        self.asked[id] = message
        if method not in wire.REQUESTS:
            self._report_flaw(f"no request of the protocol: {method}")
            return self.reply(message, error=wire.HostError(-32601, f"method not found: {method}"))
        flaws = wire.Flaws.from_params(method, params)
        self._judge(flaws)
        if flaws.wrong:
            return self.reply(message, error=wire.HostError(-32602, f"invalid params: {flaws.wrong[0]}"))
        try:
            result = self._compute_result(method, params)
        except wire.HostError as error:
            return self.reply(message, error=error)
        if isinstance(result, wire.HostError):
            self.reply(message, error=result)
        elif result is not wire.LATER:
            self.reply(message, result)
        return None

    def _compute_result(self, method: str, params: wire.Message) -> object:
        if method in self.scripted:
            scripted = self.scripted[method]
            return scripted(params) if callable(scripted) else scripted
        usual = wire.ANSWERS[method]
        return usual(self, params) if callable(usual) else usual

    def _judge(self, flaws: wire.Flaws) -> None:
        if flaws.wrong or flaws.odd:
            self._report_flaw("; ".join([*flaws.wrong, *flaws.odd]))

    def _report_flaw(self, why: str) -> None:
        self.flaws.append(why)
        if self.strict:
            self._complain(why)
