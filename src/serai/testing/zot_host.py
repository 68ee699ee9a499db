"""A stand-in host for zot extensions, for tests: ours and yours.

    with ZotHost("my-extension") as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: 16 degrees, fog"
        assert host.shutdown() == 0

It is written from the specification alone (spec zot 2 to 5) and imports nothing of Serai but `serai.testing.guest_process`, so
that it and Serai's own host check each other. It is strict where a real host is tolerant: every line that an extension writes must
be a frame of spec zot 3.2, and every request is answered exactly once, by the right kind of answer. What is wrong is a
`Misbehaved`, with the last frames and the end of stderr.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from serai.testing.guest_process import GuestProcess, Misbehaved, StrictHost, copy_environ, find_command, with_python

__all__ = ["Frame", "Misbehaved", "ZotHost"]

Frame = dict[str, Any]
Texts = list[str]  # a list of strings, as a type of a field
LONGEST = 4 * 1024 * 1024  # bytes of a line, with its end (spec zot 3.1)

# Spec zot 3.2: the required and the optional fields of each frame that an extension may send.
FRAMES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "hello": ({"name": str, "version": str}, {"capabilities": Texts}),
    "register_command": ({"name": str}, {"description": str}),
    "register_tool": ({"name": str}, {"description": str, "schema": object}),
    "subscribe": ({}, {"events": Texts, "intercept": Texts}),
    "ready": ({}, {}),
    "command_response": (
        {"id": str, "action": str},
        {"prompt": str, "insert": str, "display": str, "open_panel": dict, "error": str},
    ),
    "tool_result": ({"id": str, "content": list}, {"is_error": bool}),
    "event_intercept_response": ({"id": str}, {"block": bool, "reason": str, "modified_args": dict, "replace_text": str}),
    "panel_render": ({"panel_id": str}, {"title": str, "lines": Texts, "footer": str}),
    "panel_close": ({"panel_id": str}, {}),
    "notify": ({"level": str, "message": str}, {}),
    "shutdown_ack": ({}, {}),
}
BLOCKS: dict[str, dict[str, object]] = {"text": {"text": str}, "image": {"mime_type": str, "data": str}}
PANEL: dict[str, object] = {"title": str, "lines": Texts, "footer": str}
ANSWERS = {"tool_call": "tool_result", "command_invoked": "command_response", "event_intercept": "event_intercept_response"}
ACTIONS = ("prompt", "insert", "display", "open_panel", "noop", "")
LEVELS = ("info", "success", "warn", "error")
EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
INTERCEPTABLE = ("tool_call", "turn_start", "assistant_message")
_REWRITES = {"modified_args": "tool_call", "replace_text": "assistant_message"}  # what may be rewritten, and where
# Required, and yet every host does without them (spec zot 2.2, 3.2, 7.10).
FORGIVEN = {("hello", "version"), ("command_response", "action"), ("tool_result", "content")}

_WORDS: dict[object, str] = {str: "a string", bool: "true or false", list: "a list", dict: "an object", Texts: "a list of strings"}


class Flaws(NamedTuple):
    """What is `wrong` with a frame, so that a host cannot use it, and what is `odd`, so that a host reads over it."""

    wrong: list[str]
    odd: list[str]

    @classmethod
    def from_frame(cls, frame: Frame) -> Flaws:
        """Those of a frame that has a type of the protocol."""
        flaws, kind = cls([], []), frame["type"]
        flaws._check_fields(kind, frame, *FRAMES[kind])
        for number, block in enumerate(frame["content"] if isinstance(frame.get("content"), list) else ()):
            if not isinstance(block, dict) or not isinstance(block.get("type"), str) or block["type"] not in BLOCKS:
                flaws.wrong.append(f"content[{number}] is no block of the type text or image")
            else:
                flaws._check_fields(f"content[{number}]", block, BLOCKS[block["type"]], {})
                if isinstance(data := block.get("data"), str) and not is_base64(data):
                    flaws.wrong.append(f"content[{number}].data is not base64 in the standard alphabet with padding")
        if isinstance(panel := frame.get("open_panel"), dict):
            flaws._check_fields("open_panel", panel, {"id": str}, PANEL)
        if kind == "command_response" and isinstance(action := frame.get("action"), str) and action not in ACTIONS:
            flaws.wrong.append(f"there is no action {action!r}")
        if kind == "command_response" and _is_idle(frame):
            flaws.odd.append(f"the action {frame['action']} does nothing without {frame['action']}")
        if kind == "notify" and isinstance(level := frame.get("level"), str) and level not in LEVELS:
            flaws.odd.append(f"there is no level {level!r}")
        return flaws

    def _check_fields(self, what: str, value: Frame, required: Mapping[str, object], optional: Mapping[str, object]) -> None:
        for key, kind in required.items():
            if value.get(key) is None:
                (self.odd if (what, key) in FORGIVEN else self.wrong).append(f"{what} needs {key} ({_WORDS[kind]})")
            elif not _fits(value[key], kind):
                self.wrong.append(f"{key} is of a wrong type: {_WORDS[kind]} is wanted")
        for key, kind in optional.items():
            if key in value and value[key] is None:
                # Some hosts rewrite the arguments to null for a literal null (spec zot 4.4); else it is absence (spec zot 3.1).
                (self.wrong if key == "modified_args" else self.odd).append(f"{key} is null: leave out what is not set")
            elif key in value and not _fits(value[key], kind):
                self.wrong.append(f"{key} is of a wrong type: {_WORDS[kind]} is wanted")
        self.odd.extend(f"{what} has no field {key}" for key in sorted(value.keys() - required.keys() - optional.keys() - {"type"}))


def _fits(value: object, kind: object) -> bool:
    if kind is Texts:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(kind, type) and isinstance(value, kind)


def _is_idle(response: Frame) -> bool:
    """Whether it names an action and not with what; an error comes before every action (spec zot 4.2)."""
    action = response.get("action")
    return (
        action in ("prompt", "insert", "display", "open_panel") and not response.get("error") and response.get(action) in (None, "")
    )


def find_misplaced(event: object, answer: Frame) -> list[str]:
    """What an answer rewrites that cannot be rewritten at that event (spec zot 4.4)."""
    rewritten = [field for field in _REWRITES if answer.get(field) not in (None, "")]
    return [f"{field} does nothing at {event}: it is for {_REWRITES[field]}" for field in rewritten if _REWRITES[field] != event]


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def parse_frame(line: bytes) -> Frame | None:
    """A line as an object with a type; None when it is no frame at all."""
    try:
        frame = json.loads(line.decode(), parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("type"), str) else None


def reject_constant(word: str) -> None:
    """`NaN` and its like, which Python would read."""
    raise ValueError(word)


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
        self.environ = with_python(copy_environ() if environ is None else environ)
        self.folder, self.argv = find_command(path, self.environ)
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
            self._handle_line(self._read_line(kind))
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
            self._handle_line(self._read_line(f"answer to {id}"))
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
        return self._wait_for_exit()

    @property
    def who(self) -> str:
        return self.folder.name

    def _end(self, *, close: bool) -> int:
        if close:
            self.process.stdin.close()
        while (line := self._read_line("end", ends=True)) is not None:
            self._handle_line(line)
        status = self._wait_for_exit()
        if unanswered := sorted(self._asked.keys() - self.answers.keys()):
            self._complain(f"left without an answer to {', '.join(unanswered)}")
        return status

    # -- within ----------------------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        self.hello = self._handle_line(self._read_line("hello"))
        if self.hello["type"] != "hello" or not self.hello["name"]:
            self._complain("the first frame must be hello with a name")
        if self.ack:
            about = {"protocol_version": 1, "zot_version": "0.1.0", "provider": "none", "model": "none"}
            where = {"cwd": self.cwd, "extension_dir": str(self.folder), "data_dir": self.data_dir}
            self.send({"type": "hello_ack", **about, **where})
        while self._handle_line(self._read_line("ready"))["type"] != "ready":
            pass

    def _handle_line(self, line: bytes | None) -> Frame:
        frame = self._read_frame(line or b"")
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
        if id in self._about and (useless := find_misplaced(self._about[id], frame)):
            self._complain("; ".join(useless))
        self.answers[id] = frame

    def _read_frame(self, line: bytes) -> Frame:
        """One line as a frame of the protocol, without a flaw."""
        if len(line) > LONGEST:
            self._complain(f"a line of {len(line)} bytes, and no host reads more than {LONGEST}")
        frame = parse_frame(line)
        if frame is None:
            self._complain("stdout carries frames only")
        if frame["type"] not in FRAMES:
            self._complain(f"no frame of the protocol: {frame['type']}")
        wrong, odd = Flaws.from_frame(frame)
        if frame["type"] == "register_tool" and not isinstance(frame.get("schema"), dict):
            wrong.append("a schema is an object")
        if wrong or odd:
            self._complain("; ".join([*wrong, *odd]))
        return frame

    def _read_line(self, awaited: str, *, ends: bool = False) -> bytes | None:
        line = super()._read_line(awaited, ends=ends)
        if line is not None and not line.endswith(b"\n"):
            self._complain("its last line has no end")
        return line
