"""The host itself: it opens, asks and ends as spec zot 2 to 5 have it, and is strict with every answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from serai.testing.zot_host.frames import ANSWERS, FRAMES, LONGEST, Flaws, Frame, misplaced, parsed
from serai.testing.zot_host.process import GuestProcess, Misbehaved, ambient, command_line, with_python
from serai.testing.zot_host.strict import StrictHost

__all__ = ["ZotHost"]


class ZotHost(StrictHost):
    """One extension, started and past its handshake; used as a context, which leaves no process behind.

    `path` is the folder of the extension, its manifest, or a Python program alone. `ack=False` is a host that never says
    hello_ack, `patience` is how long it waits for what has to come, in seconds.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        ack: bool = True,
        environ: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        data_dir: Path | str | None = None,
        arguments: Sequence[str] = (),
        patience: float = 30.0,  # for what is expected to happen: a busy machine is no failure
    ) -> None:
        self.environ = with_python(ambient() if environ is None else environ)
        self.folder, self.argv = command_line(path, self.environ)
        self.argv += arguments
        self.cwd, self.data_dir = (str(given or self.folder) for given in (cwd, data_dir))
        self.ack, self.patience = ack, patience
        self.hello: Frame = {}
        self.tools: dict[str, Frame] = {}
        self.commands: dict[str, Frame] = {}
        self.events: list[str] = []
        self.intercepts: list[str] = []
        self.answers: dict[str, Frame] = {}
        self.heard: list[Frame] = []  # what answers nothing, in order of arrival
        self._asked: dict[str, str] = {}
        self._about: dict[str, object] = {}  # the events that it was asked about

    def __enter__(self) -> Self:
        try:
            self.process = GuestProcess(self.argv, cwd=self.folder, environ=self.environ)
        except OSError as error:
            raise Misbehaved(f"{self.folder}: {self.argv[0]} cannot be started: {error.strerror}") from None
        try:
            self._shake_hands()
        except BaseException:
            self.process.kill()
            raise
        return self

    # -- for an author's tests -------------------------------------------------------------------------------------------------

    def call_tool(self, name: str, args: object) -> Frame:
        """Call a tool; its `tool_result`."""
        return self.answer(self.ask("tool_call", name=name, args=args))

    def call_text(self, name: str, args: object) -> str:
        """Call a tool that must not fail; the texts of its result."""
        result = self.call_tool(name, args)
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        if result.get("is_error"):
            self._complain(f"{name} answered with an error: {text}")
        return text

    def run_command(self, name: str, args: str = "") -> Frame:
        """Run a command; its `command_response`."""
        return self.answer(self.ask("command_invoked", name=name, **({"args": args} if args else {})))

    def intercept(self, event: str, **fields: object) -> Frame:
        """Ask about an event, such as `intercept("turn_start", step=1)`; the `event_intercept_response`."""
        return self.answer(self.ask("event_intercept", event=event, **fields))

    def tell(self, event: str, **fields: object) -> None:
        """Tell an event; there is no answer."""
        self.send({"type": "event", "event": event, **fields})

    def press(self, panel: str, key: str, text: str = "") -> None:
        """Press a key in a panel: `press("tides", "up")`, `press("tides", "rune", "ü")`."""
        self.send({"type": "panel_key", "panel_id": panel, "key": key, **({"text": text} if text else {})})

    def resize(self, panel: str, width: object, height: object) -> None:
        self.send({"type": "panel_resize", "panel_id": panel, "width": width, "height": height})

    def close_panel(self, panel: str) -> None:
        self.send({"type": "panel_close", "panel_id": panel})

    def hear(self, kind: str) -> Frame:
        """Take the oldest frame of a kind that is no answer, such as `notify`; wait for it."""
        while not (found := [frame for frame in self.heard if frame["type"] == kind]):
            self._take(self._line(kind))
        self.heard.remove(found[0])
        return found[0]

    # -- as bare as the wire ---------------------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        self.write(json.dumps(frame, ensure_ascii=False).encode() + b"\n")

    def ask(self, kind: str, **fields: object) -> str:
        """Send a request, and do not wait; its id."""
        id = self.promise(kind)
        self._about[id] = fields.get("event")
        self.send({"type": kind, "id": id, **fields})
        return id

    def promise(self, kind: str) -> str:
        """An id under which an answer may come."""
        id = f"{101502000000 + len(self._asked)}"
        self._asked[id] = ANSWERS[kind]
        return id

    def answer(self, id: str) -> Frame:
        """Wait for the answer to a request."""
        while id not in self.answers:
            self._take(self._line(f"answer to {id}"))
        return self.answers[id]

    # -- the end ---------------------------------------------------------------------------------------------------------------

    def shutdown(self, *, close: bool = True) -> int:
        """Send shutdown and close the input (spec zot 5.1); the exit status, once all is read and every request answered."""
        self.send({"type": "shutdown"})
        return self._end(close=close)

    def eof(self) -> int:
        """Close the input without a word, as a host that is killed does; the exit status."""
        return self._end(close=True)

    def wait(self) -> int:
        """Read on until it ends by itself, with its input open; the exit status, once every request is answered."""
        return self._end(close=False)

    def vanish(self) -> int:
        """Be gone: both pipes at once, no word; the exit status."""
        self.process.stdout.close()
        self.process.stdin.close()
        return self._exit_status()

    @property
    def who(self) -> str:
        return self.folder.name

    def _end(self, *, close: bool) -> int:
        if close:
            self.process.stdin.close()
        while (line := self._line("end", ends=True)) is not None:
            self._take(line)
        status = self._exit_status()
        if unanswered := sorted(self._asked.keys() - self.answers.keys()):
            self._complain(f"left without an answer to {', '.join(unanswered)}")
        return status

    # -- within ----------------------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        self.hello = self._take(self._line("hello"))
        if self.hello["type"] != "hello" or not self.hello["name"]:
            self._complain("the first frame must be hello with a name")
        if self.ack:
            about = {"protocol_version": 1, "zot_version": "0.1.0", "provider": "none", "model": "none"}
            where = {"cwd": self.cwd, "extension_dir": str(self.folder), "data_dir": self.data_dir}
            self.send({"type": "hello_ack", **about, **where})
        while self._take(self._line("ready"))["type"] != "ready":
            pass

    def _take(self, line: bytes | None) -> Frame:
        frame = self._checked(line or b"")
        match frame["type"]:
            case "hello" if self.hello:
                self._complain("a second hello")
            case "register_tool":
                self.tools.setdefault(frame["name"], frame)
            case "register_command":
                self.commands.setdefault(frame["name"], frame)
            case "subscribe":
                self.events += frame.get("events", [])
                self.intercepts += frame.get("intercept", [])
            case "notify" | "panel_render" | "panel_close" | "shutdown_ack":
                self.heard.append(frame)
            case "tool_result" | "command_response" | "event_intercept_response":
                self._take_answer(frame)
        return frame

    def _take_answer(self, frame: Frame) -> None:
        id = frame["id"]
        if id in self.answers:
            self._complain(f"answered {id} twice")
        if self._asked.get(id) != frame["type"]:
            self._complain("an answer that nobody asked for")
        if id in self._about and (useless := misplaced(self._about[id], frame)):
            self._complain("; ".join(useless))
        self.answers[id] = frame

    def _checked(self, line: bytes) -> Frame:
        """One line as a frame of the protocol, without a flaw."""
        if len(line) > LONGEST:
            self._complain(f"a line of {len(line)} bytes, and no host reads more than {LONGEST}")
        frame = parsed(line)
        if frame is None:
            self._complain("stdout carries frames only")
        if frame["type"] not in FRAMES:
            self._complain(f"no frame of the protocol: {frame['type']}")
        wrong, odd = Flaws.of(frame)
        if frame["type"] == "register_tool" and not isinstance(frame.get("schema"), dict):
            wrong.append("a schema is an object")
        if wrong or odd:
            self._complain("; ".join([*wrong, *odd]))
        return frame

    def _line(self, awaited: str, *, ends: bool = False) -> bytes | None:
        line = super()._line(awaited, ends=ends)
        if line is not None and not line.endswith(b"\n"):
            self._complain("its last line has no end")
        return line
