"""One guest that speaks zot, started and asked: read as tolerantly as a host reads it, and everything that is wrong is kept.

`ZotExamination` is what the rules of zot are given: guests to try things with, and one visit that all of them share.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from serai.testing.conformance.examination import NOBODY, GuestExamination, open_examination
from serai.testing.conformance.findings import Finding
from serai.testing.conformance.probe import Flawed, GuestProbe, Task, compact, encode_frame
from serai.testing.guest_process import GuestProcess
from serai.testing.zot_host import ANSWERS, FRAMES, INTERCEPTABLE, LONGEST, Flaws, Frame, find_misplaced, parse_frame

_ANSWER = "answer every request exactly once, also when something goes wrong: catch what is thrown, send an error, and flush it"
_JUDGE = "answer at once, also what you cannot judge: everything waits, and after 5 s a host goes on without you"
_FIRST_ID = 64818707086  # zot's ids are the time of the day, in 12 digits: in the morning they begin with 0 (spec zot 3.1)


class ZotRequest(NamedTuple):
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


class ZotProbe(GuestProbe):
    """A guest and what it said."""

    def __init__(self, task: Task, data: Path, *, ack: bool = True, folders: bool = True, narrow: bool = False) -> None:
        """`ack=False` is a host that never says hello_ack, `folders=False` one that names none there, `narrow` one whose pipe is
        soon full.
        """
        process = GuestProcess(task.target.argv, cwd=task.target.folder, environ=task.target.environ)
        super().__init__(task, process, narrow=narrow)
        self.ack, self._folders = ack, dict[str, str]()
        if folders:
            self._folders = {"extension_dir": str(task.target.folder), "data_dir": str(data)}
        self.hello: Frame | None = None
        self.registered: list[Frame] = []  # tools and commands as they came
        self.subscribed: list[Frame] = []
        self.events: list[str] = []
        self.intercepts: list[str] = []
        self.ready = False
        self.late: list[Frame] = []  # registered after ready
        self._asked: dict[str, ZotRequest] = {}  # by id

    # -- opening ---------------------------------------------------------------------------------------------------------------

    def open(self, like: Any = None) -> Finding | None:
        """Say hello to each other, and hear what it offers; what is wrong if it does not get as far.

        `like` is the same guest as it opened before: one that never says ready has said all when it has said as much.
        """
        patience = self.task.patience
        if not self.hear(lambda: self._lines > 0, patience.hello):
            return self.report_unopened(patience.hello)
        if self.hello is None:
            return self.fail(
                "its first line is no hello frame",
                hint='write {"type":"hello","name":…} to stdout before anything else: banners and logs belong on stderr',
            )
        if not isinstance(self.hello.get("name"), str) or not self.hello["name"]:
            return self.fail(
                "its hello has no name", hint="put a non-empty string `name` into hello: without it no host takes it in"
            )
        if self.ack:
            about = {"protocol_version": 1, "zot_version": "0.1.0", "provider": "none", "model": "none"}
            self.send({"type": "hello_ack", **about, "cwd": str(self.task.target.folder), **self._folders})
        self.hear(lambda: self.ready or (like is not None and not like.ready and self._offers() >= like._offers()), patience.ready)
        if not self.alive:
            return self.report_gone()
        self.opened = len(self.process.transcript)
        return None

    def _offers(self) -> int:
        return len(self.registered) + len(self.events) + len(self.intercepts)

    # -- saying and hearing ----------------------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> bool:
        return self.write(compact(frame) + b"\n")

    def ask(self, *requests: ZotRequest) -> list[str]:
        """Send requests in one piece, and do not wait; their ids."""
        ids, raw = [], b""
        for request in requests:
            id = request.id or f"{_FIRST_ID + len(self._asked):012}"
            self._asked[id] = request
            ids.append(id)
            raw += request.form({"type": request.kind, "id": id, **request.fields}) + b"\n"
        self.write(raw)
        return ids

    def get_limit(self, request: ZotRequest) -> float:
        patience = self.task.patience
        if request.kind == "event_intercept":
            return patience.intercept
        return {"tool_call": patience.tool, "command_invoked": patience.command}[request.kind] if request.real else patience.answer

    def get_hint(self, request: ZotRequest) -> str:
        return _JUDGE if request.kind == "event_intercept" else _ANSWER

    def say_shutdown(self) -> None:
        self.send({"type": "shutdown"})

    def take(self, line: bytes) -> None:
        if len(line) > LONGEST:
            self.wrong.append(Flawed(line, f"a line has more than {LONGEST} bytes: no host reads it"))
        frame = parse_frame(line)
        if frame is None or not line.endswith(b"\n"):
            self.noise.append(line)
            return
        kind = frame["type"]
        if kind not in FRAMES:
            self.odd.append(Flawed(line, f"there is no frame {kind!r} in the protocol"))
            return
        if kind in ANSWERS.values():
            frame = self._take_answer(frame, line)
        wrong, odd = Flaws.from_frame(frame)
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
            self.wrong += [Flawed(line, why, frame["type"]) for why in find_misplaced(request.fields.get("event"), frame)]
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
                self.odd.append(Flawed(encode_frame(frame), "it says hello once more"))
            case "register_tool" | "register_command":
                (self.late if self.ready else self.registered).append(frame)
            case "subscribe":
                self.subscribed.append(frame)
                self.events += frame.get("events") or []
                self.intercepts += frame.get("intercept") or []
            case "ready":
                self.ready = True

    def list_names(self, kind: str) -> list[str]:
        """The names of what it registered: `register_tool` or `register_command`."""
        return [frame["name"] for frame in [*self.registered, *self.late] if frame["type"] == kind]


QUESTIONS: dict[str, Frame] = {
    "tool_call": {"tool_id": "call_1", "tool_name": NOBODY, "tool_args": {}},
    "turn_start": {"step": 1},
    "assistant_message": {"text": "Good morning."},
}


def build_question(event: str, **fields: object) -> ZotRequest:
    """A harmless one; `fields` change it."""
    return ZotRequest("event_intercept", {"event": event, **QUESTIONS[event], **fields})


class ZotExamination(GuestExamination[ZotProbe]):
    """One guest that speaks zot."""

    echo = "echo the `id` of the request as it came, a string, in the answer of its kind"
    refuse = "answer a name that you do not know with an error: is_error for a tool, error for a command"

    def start(self, data: Path, **options: Any) -> ZotProbe:
        return ZotProbe(self.task, data, **options)

    def build_requests(self, probe: ZotProbe) -> list[ZotRequest]:
        requests = []
        if probe.list_names("register_tool"):
            requests.append(ZotRequest("tool_call", {"name": NOBODY, "args": {}}))
        if probe.list_names("register_command"):
            requests.append(ZotRequest("command_invoked", {"name": NOBODY}))
        requests += [build_question(event) for event in INTERCEPTABLE if event in probe.intercepts]
        return requests + self.build_real_requests()

    def list_offered(self, request: ZotRequest) -> list[str]:
        return self.first.list_names("register_tool" if request.kind == "tool_call" else "register_command")

    def list_tools(self, probe: ZotProbe) -> list[tuple[str, object]]:
        tools = [frame for frame in probe.registered if frame["type"] == "register_tool"]
        return [(frame["name"], frame.get("schema", {"type": "object"})) for frame in tools]

    def build_call(self, name: str, args: object) -> ZotRequest:
        return ZotRequest("tool_call", {"name": name, "args": args})

    def is_error(self, answer: Frame) -> bool:
        return bool(answer.get("is_error") or answer.get("error"))

    def build_real_requests(self) -> list[ZotRequest]:
        calls = [ZotRequest("tool_call", {"name": name, "args": args}, real=True) for name, args in self.task.calls]
        for line in self.task.commands:
            name, _, args = line.removeprefix("/").partition(" ")
            fields = {"name": name} | ({"args": args.strip()} if args.strip() else {})
            calls.append(ZotRequest("command_invoked", fields, real=True))
        return calls


def examine(task: Task) -> AbstractContextManager[ZotExamination]:
    """What the rules are given; its scratch folder is gone afterwards."""
    return open_examination(ZotExamination, task)
