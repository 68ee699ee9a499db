"""One guest that speaks zot, started and asked: read as tolerantly as a host reads it, and all that is wrong kept for the rules."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from serai.testing.conformance import quoting
from serai.testing.conformance.report import Finding, failed
from serai.testing.conformance.target import Task
from serai.testing.zot_host.frames import ANSWERS, FRAMES, LONGEST, Flaws, Frame, misplaced, parsed
from serai.testing.zot_host.process import GuestProcess

__all__ = ["Flawed", "Outcome", "Probe", "Request", "compact", "ending", "written"]

_ANSWER = "answer every request exactly once, also when something goes wrong: catch what is thrown, send an error, and flush it"
_JUDGE = "answer at once, also what you cannot judge: everything waits, and after 5 s a host goes on without you"
_NO_SERAI = "No module named 'serai'"  # as Python says it
_PAGE = 4096  # the smallest pipe there is
_FIRST_ID = 64818707086  # zot's ids are the time of the day, in 12 digits: in the morning they begin with 0 (spec zot 3.1)


def written(frame: Frame, *, nan: bool = True) -> bytes:
    """A frame as JSON; half a character, which a guest may have in a name, as an escape. `nan` is what no JSON has."""
    return json.dumps(frame, ensure_ascii=False, allow_nan=nan, separators=(",", ":")).encode(errors="backslashreplace")


def compact(frame: Frame) -> bytes:
    """As zot writes it."""
    return written(frame, nan=False)


class Request(NamedTuple):
    """Something to ask of a guest; `real` if a person has given it. It has a usual id, in the usual form, unless it is given."""

    kind: str
    fields: Frame
    real: bool = False
    id: str = ""
    form: Callable[[Frame], bytes] = compact

    @property
    def what(self) -> str:
        match self.kind:
            case "tool_call":
                return f"the tool call {self.fields['name']}"
            case "command_invoked":
                return f"the command /{self.fields['name']}"
        return f"the question about {self.fields['event']}"


class Outcome(Enum):
    ANSWERED = "answered"
    STRAY = "answered under another id"
    SILENT = "not answered"
    DIED = "ended instead"


class Flawed(NamedTuple):
    """A line of the guest that is not as it should be, and why; `kind` is the type of its frame."""

    line: bytes
    why: str
    kind: str = ""

    @property
    def shown(self) -> str:
        return quoting.frame("guest", self.line)


class Probe:
    """A guest and what it said. Nothing here raises for what a guest does: rules ask afterwards."""

    def __init__(self, task: Task, data: Path, *, ack: bool = True, folders: bool = True, narrow: bool = False) -> None:
        """`ack=False` is a host that never says hello_ack, `folders=False` one that names none there, `narrow` one whose pipe is
        soon full.
        """
        self.task, self.ack, self._folders = task, ack, {}
        if folders:
            self._folders = {"extension_dir": str(task.target.folder), "data_dir": str(data)}
        self.hello: Frame | None = None
        self.registered: list[Frame] = []  # tools and commands as they came
        self.subscribed: list[Frame] = []
        self.events: list[str] = []
        self.intercepts: list[str] = []
        self.ready = False
        self.late: list[Frame] = []  # registered after ready
        self.noise: list[bytes] = []
        self.wrong: list[Flawed] = []
        self.odd: list[Flawed] = []
        self.answers: dict[str, list[Frame]] = {}  # by the id of the request
        self.last_answer: Frame = {}
        self.strays: list[Flawed] = []  # answers that belong to no request
        self.ended = False  # by itself, as it was asked to
        self.left: list[str] = []  # the programs that it left behind then
        self._asked: dict[str, Request] = {}  # by id
        self._silenced = False
        self._lines = 0
        self._opened = 0  # how much was said by then
        self.process = GuestProcess(task.target.argv, cwd=task.target.folder, environ=task.target.environ)
        if narrow:
            with suppress(OSError):  # it may have said more already than such a pipe can hold
                fcntl.fcntl(self.process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PAGE)

    # -- opening ---------------------------------------------------------------------------------------------------------------

    def open(self, like: Probe | None = None) -> Finding | None:
        """Say hello to each other, and hear what it offers; what is wrong if it does not get as far.

        `like` is the same guest as it opened before: one that never says ready has said all when it has said as much.
        """
        patience = self.task.patience
        if not self.hear(lambda: self._lines > 0, patience.hello):
            return self._unopened(patience.hello)
        if self.hello is None:
            return self.failure(
                "its first line is no hello frame",
                hint='write {"type":"hello","name":…} to stdout before anything else: banners and logs belong on stderr',
            )
        if not isinstance(self.hello.get("name"), str) or not self.hello["name"]:
            return self.failure(
                "its hello has no name", hint="put a non-empty string `name` into hello: without it no host takes it in"
            )
        if self.ack:
            about = {"protocol_version": 1, "zot_version": "0.1.0", "provider": "none", "model": "none"}
            self.send({"type": "hello_ack", **about, "cwd": str(self.task.target.folder), **self._folders})
        self.hear(lambda: self.ready or (like is not None and not like.ready and self._offers() >= like._offers()), patience.ready)
        if not self.alive:
            return self.gone()
        self._opened = len(self.process.transcript)
        return None

    def gone(self) -> Finding:
        """It is not there any more, and nobody has asked for that."""
        hint = "stay, and read frames until shutdown or the end of input; its stderr may say why it does not"
        why = f"it ends by itself right after its opening, {ending(self.process.status)}"
        return self.failure(why, hint=hint, frames=quoting.transcript(self.process))

    def speechless(self) -> Finding:
        """It is there, and nobody will ever hear it."""
        hint = "keep stdout open until you end: a host takes its end for the end of the guest"
        return self.failure("it has closed its stdout, and lives on", hint=hint, frames=quoting.transcript(self.process))

    def _offers(self) -> int:
        return len(self.registered) + len(self.events) + len(self.intercepts)

    def _unopened(self, within: float) -> Finding:
        if (status := self.process.status) is not None:
            return self.failure(
                f"it ended before its hello, {ending(status)}", hint=_why_ended(status, quoting.last_words(self.process))
            )
        hint = "write hello at once and flush it: most languages keep what goes into a pipe until much has come together"
        return self.failure(f"it said nothing for {within:g} s", hint=hint)

    # -- saying and hearing ----------------------------------------------------------------------------------------------------

    def write(self, raw: bytes) -> bool:
        """Whether the guest took it, or at least could have."""
        try:
            self.process.write(raw, self.task.patience.answer)
        except (BrokenPipeError, TimeoutError):
            return False
        return True

    def send(self, frame: Frame) -> bool:
        return self.write(compact(frame) + b"\n")

    def ask(self, *requests: Request) -> list[str]:
        """Send requests in one piece, and do not wait; their ids."""
        ids, raw = [], b""
        for request in requests:
            id = request.id or f"{_FIRST_ID + len(self._asked):012}"
            self._asked[id] = request
            ids.append(id)
            raw += request.form({"type": request.kind, "id": id, **request.fields}) + b"\n"
        self.write(raw)
        return ids

    def outcome(self, request: Request) -> Outcome:
        """Ask, and see what becomes of it."""
        strays = len(self.strays)
        [id] = self.ask(request)
        self.hear(lambda: id in self.answers or len(self.strays) > strays, self._limit(request))
        if id in self.answers:
            self.last_answer = self.answers[id][0]
            return Outcome.ANSWERED
        if len(self.strays) > strays:
            return Outcome.STRAY
        return Outcome.SILENT if self.alive else Outcome.DIED

    def _limit(self, request: Request) -> float:
        patience = self.task.patience
        if request.kind == "event_intercept":
            return patience.intercept
        return {"tool_call": patience.tool, "command_invoked": patience.command}[request.kind] if request.real else patience.answer

    def hear(self, enough: Callable[[], bool], within: float) -> bool:
        """Read until it is enough; False when it is not, within that time or before the end."""
        deadline = monotonic() + within
        while not enough():
            if (left := deadline - monotonic()) < 0:
                return False  # one that never stops talking
            try:
                line = self.process.line(left)
            except TimeoutError:
                return False
            if line is None:
                self.is_silenced()
                return False
            self._take(line)
        return True

    @property
    def alive(self) -> bool:
        return self.process.status is None

    def is_silenced(self) -> bool:
        """Whether it has closed its stdout and lives on: one that ends does the first a moment before the second."""
        if self.process.silenced and not self._silenced:
            self._silenced = self.process.wait(self.task.patience.shutdown) is None
        return self._silenced and self.alive

    def _take(self, line: bytes) -> None:
        self._lines += 1
        if len(line) > LONGEST:
            self.wrong.append(Flawed(line, f"a line has more than {LONGEST} bytes: no host reads it"))
        frame = parsed(line)
        if frame is None or not line.endswith(b"\n"):
            self.noise.append(line)
            return
        kind = frame["type"]
        if kind not in FRAMES:
            self.odd.append(Flawed(line, f"there is no frame {kind!r} in the protocol"))
            return
        if kind in ANSWERS.values():
            frame = self._take_answer(frame, line)
        wrong, odd = Flaws.of(frame)
        self.wrong += [Flawed(line, why, kind) for why in wrong]
        self.odd += [Flawed(line, why, kind) for why in odd]
        if not wrong or kind == "hello":
            self._take_opening(kind, frame)

    def _take_answer(self, frame: Frame, line: bytes) -> Frame:
        """Put an answer where it belongs. What is wrong with its id is told once, as an answer that belongs nowhere."""
        id = frame.get("id")
        request = self._asked.get(id) if isinstance(id, str) else None
        if isinstance(id, str) and request and ANSWERS[request.kind] == frame["type"]:
            self.answers.setdefault(id, []).append(frame)
            self.wrong += [Flawed(line, why, frame["type"]) for why in misplaced(request.fields.get("event"), frame)]
        elif not isinstance(id, str):
            self.strays.append(Flawed(line, f"the id of a {frame['type']} has to be the string that came with the request"))
        elif request:
            self.strays.append(Flawed(line, f"a {frame['type']} does not answer that request, a {ANSWERS[request.kind]} would"))
        else:
            self.strays.append(Flawed(line, f"a {frame['type']} has an id that no request had"))
        return {**frame, "id": ""}

    def _take_opening(self, kind: str, frame: Frame) -> None:
        match kind:
            case "hello" if self._lines == 1:
                self.hello = frame
            case "hello":
                self.odd.append(Flawed(written(frame), "it says hello once more"))
            case "register_tool" | "register_command":
                (self.late if self.ready else self.registered).append(frame)
            case "subscribe":
                self.subscribed.append(frame)
                self.events += frame.get("events") or []
                self.intercepts += frame.get("intercept") or []
            case "ready":
                self.ready = True

    def names(self, kind: str) -> list[str]:
        """The names of what it registered: `register_tool` or `register_command`."""
        return [frame["name"] for frame in [*self.registered, *self.late] if frame["type"] == kind]

    # -- ending ----------------------------------------------------------------------------------------------------------------

    def shut_down(self, within: float) -> int | None:
        """Say shutdown and close the input at once, as a host does (spec zot 5.1)."""
        self.send({"type": "shutdown"})
        return self.close_input(within)

    def close_input(self, within: float) -> int | None:
        """No word, only the end of input."""
        self.process.note("end of input")
        self.process.stdin.close()
        return self.end(within)

    def end(self, within: float) -> int | None:
        """Wait for its end, and read what it still says; its exit status, or None."""
        status = self.process.wait(within)
        self.ended = status is not None
        if self.ended and not self.process.stdout.closed:
            self.hear(lambda: False, within)
        return status

    # -- telling ---------------------------------------------------------------------------------------------------------------

    def failure(self, why: str, *, hint: str, frames: Iterable[str] | None = None) -> Finding:
        """A finding with the last frames, and with its stderr when it has ended."""
        stderr = "" if self.alive else quoting.last_words(self.process)
        return failed(why, hint=hint, frames=self.shown() if frames is None else frames, stderr=stderr)

    def shown(self) -> list[str]:
        """The last frames since the opening."""
        return quoting.transcript(self.process, self._opened)

    def unanswered(self, request: Request, outcome: Outcome, *, how: str = "", hint: str = "") -> Finding:
        what = f"{request.what}, {how}," if how else request.what
        hint = hint or _JUDGE if request.kind == "event_intercept" else hint or _ANSWER
        if outcome is Outcome.DIED:
            return self.failure(f"{what} ended it, {ending(self.process.status)}", hint=hint)
        return self.failure(f"{what} got no answer within {self._limit(request):g} s", hint=hint)


def _why_ended(status: int, stderr: str) -> str:
    """What to do about one that ended before it said anything."""
    if _NO_SERAI in stderr:
        return "the Python that starts it has no serai: name one that has in `exec`, or make it one file with `serai guest bundle`"
    if stderr:
        return "its stderr says why; start it by hand as its manifest does"
    if status == 0:
        return "does the program say hello before it ends? One that is made with the SDK has to call ext.main() at its end"
    return "it says nothing on stderr either: start it by hand as its manifest does, and let it say there what is wrong"


def ending(status: int | None) -> str:
    """How it ended, in words."""
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
