"""A stand-in host for zot extensions, written from the spec alone: it shares no code with Serai, so the two check each other.

It is strict where a real host is tolerant. Every line that an extension writes must be a frame of spec zot 3.2 with the
fields and types of that section, and every request must be answered exactly once, by the right kind of answer.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Frame = dict[str, Any]

PATIENCE = 30.0  # for what is expected to happen: a busy machine is no failure

# Spec zot 3.2: the required and the optional fields of each frame that an extension may send.
FRAMES: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "hello": ({"name": str, "version": str}, {"capabilities": list}),
    "register_command": ({"name": str}, {"description": str}),
    "register_tool": ({"name": str, "schema": dict}, {"description": str}),
    "subscribe": ({}, {"events": list, "intercept": list}),
    "ready": ({}, {}),
    "command_response": (
        {"id": str, "action": str},
        {"prompt": str, "insert": str, "display": str, "open_panel": dict, "error": str},
    ),
    "tool_result": ({"id": str, "content": list}, {"is_error": bool}),
    "event_intercept_response": ({"id": str}, {"block": bool, "reason": str, "modified_args": dict, "replace_text": str}),
    "panel_render": ({"panel_id": str}, {"title": str, "lines": list, "footer": str}),
    "panel_close": ({"panel_id": str}, {}),
    "notify": ({"level": str, "message": str}, {}),
    "shutdown_ack": ({}, {}),
}
BLOCKS: dict[str, dict[str, type]] = {"text": {"text": str}, "image": {"mime_type": str, "data": str}}
ANSWERS = {"tool_call": "tool_result", "command_invoked": "command_response", "event_intercept": "event_intercept_response"}


class Misbehaved(AssertionError):
    """The extension did what the protocol does not allow, or did not do what it asks for."""


def checked(line: bytes) -> Frame:
    """One line as a frame, or `Misbehaved`."""
    try:
        frame = json.loads(line)
    except ValueError:
        raise Misbehaved(f"stdout carries frames only, not {line[:200]!r}") from None
    if not isinstance(frame, dict) or frame.get("type") not in FRAMES:
        raise Misbehaved(f"no frame of the protocol: {line[:200]!r}")
    required, optional = FRAMES[frame["type"]]
    check_fields(frame, required, optional)
    for block in frame.get("content", []):
        check_fields(block, BLOCKS[block["type"]], {})
    if "open_panel" in frame:
        check_fields(frame["open_panel"], {"id": str}, {"title": str, "lines": list, "footer": str})
    return frame


def check_fields(value: Frame, required: dict[str, type], optional: dict[str, type]) -> None:
    missing = required.keys() - value.keys()
    wrong = [key for key, kind in (required | optional).items() if key in value and not isinstance(value[key], kind)]
    unknown = value.keys() - required.keys() - optional.keys() - {"type"}
    if missing or wrong or unknown:
        raise Misbehaved(f"missing {sorted(missing)}, of a wrong type {wrong}, unknown {sorted(unknown)} in {value}")


def command_line(folder: Path, manifest: Frame, path: str) -> list[str]:
    """The program and its arguments (spec zot 1.3): a bare name comes from the PATH, all else is relative to the folder."""
    program = manifest["exec"]
    found = os.path.join(folder, program) if "/" in program else shutil.which(program, path=path)
    if found is None or not os.access(found, os.X_OK):
        raise Misbehaved(f"{folder.name} needs the program {program}: install it")
    return [found, *manifest.get("args", [])]


class StandIn:
    """One extension, started and past its handshake; used as a context, which leaves no process behind."""

    def __init__(self, folder: Path, *, cwd: Path | None = None) -> None:
        self.manifest: Frame = json.loads((folder / "extension.json").read_text())
        self.tools: dict[str, Frame] = {}
        self.commands: dict[str, Frame] = {}
        self.events: list[str] = []
        self.intercepts: list[str] = []
        self.answers: dict[str, Frame] = {}
        self.heard: list[Frame] = []  # what answers nothing, in order of arrival
        self._asked: dict[str, str] = {}
        self._folder, self._cwd = folder.absolute(), cwd or folder.absolute()
        self._rest = b""
        self._lines: list[bytes] = []

    def __enter__(self) -> Self:
        command = command_line(self._folder, self.manifest, os.environ.get("PATH", os.defpath))
        self._stderr = tempfile.TemporaryFile()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=self._folder, stdin=pipe, stdout=pipe, stderr=self._stderr, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        try:
            self._shake_hands()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clean_up()

    # -- what a host says ----------------------------------------------------------------------------------------------------

    def write(self, raw: bytes) -> None:
        """Bytes as they are, for what is no frame."""
        view = memoryview(raw)
        while view:
            view = view[os.write(self._stdin.fileno(), view) :]

    def send(self, frame: Frame) -> None:
        self.write(json.dumps(frame, ensure_ascii=False).encode() + b"\n")

    def ask(self, kind: str, **fields: object) -> str:
        """Send a request, and do not wait; its id."""
        id = self.promise(kind)
        self.send({"type": kind, "id": id, **fields})
        return id

    def promise(self, kind: str) -> str:
        """An id under which an answer may come."""
        id = f"{101502000000 + len(self._asked)}"
        self._asked[id] = ANSWERS[kind]
        return id

    def answer(self, id: str) -> Frame:
        """Wait for the answer to a request."""
        deadline = time.monotonic() + PATIENCE
        while id not in self.answers:
            self._take(self._next_line(deadline, f"answer to {id}"))
        return self.answers[id]

    def hear(self, kind: str) -> Frame:
        """Take the oldest frame of a kind that is no answer; wait for it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := [frame for frame in self.heard if frame["type"] == kind]):
            self._take(self._next_line(deadline, kind))
        self.heard.remove(found[0])
        return found[0]

    def tool(self, name: str, args: object) -> Frame:
        return self.answer(self.ask("tool_call", name=name, args=args))

    def command(self, name: str, args: str = "") -> Frame:
        return self.answer(self.ask("command_invoked", name=name, **({"args": args} if args else {})))

    def intercept(self, event: str, **fields: object) -> Frame:
        """The verdict alone, without type and id."""
        answer = self.answer(self.ask("event_intercept", event=event, **fields))
        return {key: value for key, value in answer.items() if key not in ("type", "id")}

    def key(self, panel: str, key: str, text: str = "") -> None:
        self.send({"type": "panel_key", "panel_id": panel, "key": key, **({"text": text} if text else {})})

    # -- the end ---------------------------------------------------------------------------------------------------------------

    def leave(self, *, shutdown: bool = True, close: bool = True) -> int:
        """Send shutdown, close the input, or both (spec zot 5.1); the exit status, once all is read and every request answered."""
        if shutdown:
            self.send({"type": "shutdown"})
        if close:
            self._stdin.close()
        deadline = time.monotonic() + PATIENCE
        while (line := self._next_line(deadline, "end", ends=True)) is not None:
            self._take(line)
        status = self.process.wait(PATIENCE)
        if unanswered := self._asked.keys() - self.answers.keys():
            raise Misbehaved(f"left without an answer to {sorted(unanswered)}; its stderr: {self.stderr}")
        return status

    def vanish(self) -> int:
        """Be gone as a killed host is: both pipes at once, no word; the exit status."""
        self._stdout.close()
        self._stdin.close()
        return self.process.wait(PATIENCE)

    @property
    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    # -- within ----------------------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        deadline = time.monotonic() + PATIENCE
        hello = checked(self._next_line(deadline, "hello") or b"")
        if hello["type"] != "hello" or not hello["name"]:
            raise Misbehaved(f"the first frame must be hello with a name, not {hello}")
        where = {"cwd": str(self._cwd), "extension_dir": str(self._folder), "data_dir": str(self._folder)}
        about = {"protocol_version": 1, "zot_version": "0.1.0", "provider": "none", "model": "none"}
        self.send({"type": "hello_ack", **about, **where})
        while (frame := self._take(self._next_line(deadline, "ready")))["type"] != "ready":
            match frame["type"]:
                case "register_tool":
                    self.tools[frame["name"]] = frame
                case "register_command":
                    self.commands[frame["name"]] = frame
                case "subscribe":
                    self.events += frame.get("events", [])
                    self.intercepts += frame.get("intercept", [])

    def _take(self, line: bytes | None) -> Frame:
        frame = checked(line or b"")
        if frame["type"] not in ANSWERS.values():
            if frame["type"] in ("notify", "panel_render", "panel_close", "shutdown_ack"):
                self.heard.append(frame)
            return frame
        id = frame["id"]
        if id in self.answers:
            raise Misbehaved(f"answered twice: {self.answers[id]} and {frame}")
        if self._asked.get(id) != frame["type"]:
            raise Misbehaved(f"an answer that nobody asked for: {frame}")
        self.answers[id] = frame
        return frame

    def _next_line(self, deadline: float, awaited: str, *, ends: bool = False) -> bytes | None:
        while not self._lines:
            if not select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Misbehaved(f"no {awaited} within {PATIENCE:g} s; its stderr: {self.stderr}")
            chunk = os.read(self._stdout.fileno(), 65536)
            if not chunk:
                if ends and not self._rest:
                    return None
                raise Misbehaved(f"ended without {awaited}, after {self._rest!r}; its stderr: {self.stderr}")
            *self._lines, self._rest = (self._rest + chunk).split(b"\n")
        return self._lines.pop(0)

    def _clean_up(self) -> None:
        self.process.kill()
        for file in (self._stdin, self._stdout, self._stderr):
            file.close()
        self.process.wait()
