"""What is to be checked (a guest's folder, its manifest, or a Python program alone), and one guest of any dialect, started and
asked.

A guest is read as tolerantly as a host reads it, and everything that is wrong is kept for the rules. Requests are written in
several ways that are all the same JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from serai.errors import BadManifest, NoGuest
from serai.host.adapters import DIALECTS
from serai.host.guest_manifest import GuestFolder, GuestManifest, inspect_folder, read_manifest
from serai.host.guest_settings import AuthorSettings, PersonSettings
from serai.testing.conformance import findings
from serai.testing.conformance.findings import Finding, Patience, fail, warn
from serai.testing.guest_process import GuestProcess, build_python_command

Frame = dict[str, Any]


def encode_frame(frame: Frame, *, nan: bool = True) -> bytes:
    """A frame as JSON; half a character, which a guest may have in a name, as an escape. `nan` is what no JSON has."""
    return json.dumps(frame, ensure_ascii=False, allow_nan=nan, separators=(",", ":")).encode(errors="backslashreplace")


def compact(frame: Frame) -> bytes:
    """As most hosts write it."""
    return encode_frame(frame, nan=False)


def reverse(frame: Frame) -> bytes:
    return compact(dict(reversed(frame.items())))


def pad(frame: Frame) -> bytes:
    return b" \t" + json.dumps(frame, ensure_ascii=False, separators=(" , ", "\t: ")).encode() + b" "


def escape(frame: Frame) -> bytes:
    return _escape_value(frame).encode()


def _escape_value(value: Any) -> str:
    """Every character of every text as an escape, names too."""
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass").hex()
        return '"' + "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_escape_value(key)}:{_escape_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_escape_value, value)) + "]"
    return json.dumps(value)


def with_separators(frame: Frame) -> bytes:
    """Some hosts escape some of these; whoever relies on that has no JSON parser, or cuts its input in more places than it may."""
    return compact({**frame, "note": "next\x85line\u2028line\u2029paragraph"})


PROGRAMS = (".py", ".pyz")  # what the SDK makes; it speaks zot unless it is told otherwise
# What a manifest has to say, and which of its words names the program.
_MANIFEST = {
    "zot": 'extension.json holds an object: "name" and "exec" are texts, "args" is a list of texts',
    "piglet": "manifest.yaml holds a mapping: `name` and `runtime` are texts, `entry` is a file of the folder",
}
_PROGRAM = {"zot": "exec", "piglet": "runtime"}
_MANIFESTS = ", ".join(row.manifest for row in DIALECTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """A guest that can be started, or `argv` is empty and `remarks` say why not."""

    name: str
    dialect: str
    folder: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...] = ()
    manifest: bool = True
    exclusive: bool = False  # only one of it may run at a time
    transport: str = "auto"  # on which descriptors it speaks, where its dialect knows several
    remarks: tuple[Finding, ...] = ()

    @classmethod
    def from_path(cls, path: Path | str, environ: Mapping[str, str]) -> ProbeTarget:
        """The guest at a path; `NoGuest` if there is nothing at all."""
        path = Path(os.path.abspath(path))
        if not path.exists():
            raise NoGuest(
                "there is no such file or folder", who=str(path), hint="name a guest's folder, its manifest, or a program"
            )
        if path.suffix in PROGRAMS and not path.is_dir():
            argv = tuple(build_python_command(path, environ))
            return cls(name=path.name, dialect="zot", folder=path.parent, environ=environ, argv=argv, manifest=False)
        if path.is_file() and path.name not in {row.manifest for row in DIALECTS.values()}:
            raise NoGuest(
                "neither a guest's folder, nor its manifest, nor a Python program",
                who=str(path),
                hint=f"a manifest is one of {_MANIFESTS}",
            )
        return cls._read(path if path.is_dir() else path.parent, environ)

    @classmethod
    def _read(cls, folder: Path, environ: Mapping[str, str]) -> ProbeTarget:
        dialect = "zot"
        try:
            found = inspect_folder(folder) or GuestFolder(
                folder, dialect, (), AuthorSettings()
            )  # without any, as if zot's were missing
            dialect = found.dialect if found.dialect in _MANIFEST else dialect
            manifest = read_manifest(found, "ad hoc", PersonSettings())
        except BadManifest as error:
            remark = fail(error.message, hint=_MANIFEST[dialect])
            return cls(name=folder.name, dialect=dialect, folder=folder, environ=environ, remarks=(remark,))
        argv, remarks = _find_command(manifest, environ)
        if not manifest.enabled:
            remarks = (*remarks, warn("it is disabled, so no host starts it", hint="take `enabled` out of the manifest"))
        return cls(
            name=manifest.name,
            dialect=manifest.dialect,
            folder=folder,
            environ=environ,
            argv=argv,
            exclusive=manifest.settings.exclusive,
            transport=manifest.transport,
            remarks=remarks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be checked, how patiently, and which real calls and commands may be made."""

    target: ProbeTarget
    patience: Patience = field(default_factory=Patience)
    calls: Sequence[tuple[str, object]] = ()
    commands: Sequence[str] = ()


def _find_command(manifest: GuestManifest, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The command line with its program found, or nothing and the reason."""
    program, *arguments = manifest.argv
    if "/" not in program:
        if found := shutil.which(program, path=environ.get("PATH", os.defpath)):
            return (found, *arguments), ()
        hint = "install it, or name a file of the folder with a path: ./run"  # spec zot 1.3, piglet 1.4
        return (), (fail(f"there is no program {program} in the PATH", hint=hint),)
    if os.path.isfile(program) and os.access(program, os.X_OK):
        return (program, *arguments), ()
    if os.path.exists(program):
        return (), (fail(f"{program} cannot be executed", hint="make it an executable file: chmod +x"),)
    return (), (
        fail(f"there is no file {program}", hint=f"`{_PROGRAM[manifest.dialect]}` is relative to the folder of the manifest"),
    )


_NO_SERAI = "No module named 'serai'"  # as Python says it
_PAGE = 4096  # the smallest pipe there is


class RequestOutcome(Enum):
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
        return findings.quote_line("guest", self.line)


class GuestProbe(ABC):
    """A guest and what it said. Nothing here raises for what a guest does: rules ask afterwards."""

    opening = "hello"  # what a guest says first
    key = "exec"  # of the manifest, that names its program
    no_opening = "write hello at once and flush it: most languages keep what goes into a pipe until much has come together"

    def __init__(self, task: Task, process: GuestProcess, *, narrow: bool = False) -> None:
        """`narrow` is a host whose pipe is soon full."""
        self.task, self.process = task, process
        self.noise: list[bytes] = []
        self.wrong: list[Flawed] = []
        self.odd: list[Flawed] = []
        self.answers: dict[Any, list[Any]] = {}  # by the id of the request
        self.last_answer: Any = None
        self.strays: list[Flawed] = []  # answers that belong to no request
        self.ended = False  # by itself, as it was asked to
        self.left: list[str] = []  # the programs that it left behind then
        self.opened = 0  # how much was said by then
        self._silenced = False
        self._lines = 0
        if narrow:
            with suppress(OSError):  # it may have said more already than such a pipe can hold
                fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PAGE)

    # -- what a dialect adds ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, like: Any = None) -> Finding | None:
        """Say hello to each other, and hear what it offers; what is wrong if it does not get as far."""
        ...

    @abstractmethod
    def ask(self, *requests: Any) -> list[Any]:
        """Send requests in one piece, and do not wait; their ids."""
        ...

    @abstractmethod
    def get_limit(self, request: Any) -> float:
        """How long it may take to answer."""
        ...

    @abstractmethod
    def get_hint(self, request: Any) -> str:
        """What to do about a request that was not answered."""
        ...

    @abstractmethod
    def say_shutdown(self) -> None: ...

    @abstractmethod
    def take(self, line: bytes) -> None:
        """Read a line of the guest."""
        ...

    # -- saying and hearing ----------------------------------------------------------------------------------------------------

    def write(self, raw: bytes) -> bool:
        """Whether the guest took it, or at least could have."""
        if self.process.stdin.closed:  # who asks something when all is said gets no answer, as from a host that ends
            return False
        try:
            self.process.write(raw, self.task.patience.answer)
        except (BrokenPipeError, TimeoutError):
            return False
        return True

    def try_request(self, request: Any) -> RequestOutcome:
        """Ask, and see what becomes of it."""
        strays = len(self.strays)
        [id] = self.ask(request)
        self.hear(lambda: id in self.answers or len(self.strays) > strays, self.get_limit(request))
        if id in self.answers:
            self.last_answer = self.answers[id][0]
            return RequestOutcome.ANSWERED
        if len(self.strays) > strays:
            return RequestOutcome.STRAY
        return RequestOutcome.SILENT if self.alive else RequestOutcome.DIED

    def hear(self, enough: Callable[[], bool], within: float) -> bool:
        """Read until it is enough; False when it is not, within that time or before the end."""
        deadline = monotonic() + within
        while not enough():
            if (left := deadline - monotonic()) < 0:
                return False  # one that never stops talking
            try:
                line = self.process.read_line(left)
            except TimeoutError:
                return False
            if line is None:
                self.is_silenced()
                return False
            self._lines += 1
            self.take(line)
        return True

    @property
    def alive(self) -> bool:
        return self.process.status is None

    def is_silenced(self) -> bool:
        """Whether it has closed its output and lives on: one that ends does the first a moment before the second."""
        if self.process.silenced and not self._silenced:
            self._silenced = self.process.wait(self.task.patience.shutdown) is None
        return self._silenced and self.alive

    # -- ending ----------------------------------------------------------------------------------------------------------------

    def shut_down(self, within: float) -> int | None:
        """Say shutdown and close the input at once, as a host does (spec zot 5.1, piglet 8.0)."""
        self.say_shutdown()
        return self.close_input(within)

    def close_input(self, within: float) -> int | None:
        """No word, only the end of input."""
        self.process.note("end of input")
        self.process.stdin.close()
        return self.wait_for_end(within)

    def wait_for_end(self, within: float) -> int | None:
        """Wait for its end, and read what it still says; its exit status, or None."""
        status = self.process.wait(within)
        self.ended = status is not None
        if self.ended and not self.process.stdout.closed:
            self.hear(lambda: False, within)
        return status

    # -- telling ---------------------------------------------------------------------------------------------------------------

    def fail(self, why: str, *, hint: str, frames: Iterable[str] | None = None) -> Finding:
        """A finding with the last frames, and with its stderr when it has ended."""
        stderr = "" if self.alive else findings.quote_stderr(self.process)
        return fail(why, hint=hint, frames=self.quote_tail() if frames is None else frames, stderr=stderr)

    def quote_tail(self) -> list[str]:
        """The last frames since the opening."""
        return findings.quote_tail(self.process, self.opened)

    def report_unanswered(self, request: Any, outcome: RequestOutcome, *, how: str = "", hint: str = "") -> Finding:
        what = f"{request.what}, {how}," if how else request.what
        hint = hint or self.get_hint(request)
        if outcome is RequestOutcome.DIED:
            return self.fail(f"{what} ended it, {describe_exit(self.process.status)}", hint=hint)
        return self.fail(f"{what} got no answer within {self.get_limit(request):g} s", hint=hint)

    def report_unopened(self, within: float) -> Finding:
        """It said nothing, or not what opens."""
        if (status := self.process.status) is not None:
            why = f"it ended before its {self.opening}, {describe_exit(status)}"
            return self.fail(why, hint=self._explain_end(status, findings.quote_stderr(self.process)))
        return self.fail(f"it said nothing for {within:g} s", hint=self.no_opening)

    def report_gone(self) -> Finding:
        """It is not there any more, and nobody has asked for that."""
        hint = "stay, and read frames until shutdown or the end of input; its stderr may say why it does not"
        why = f"it ends by itself right after its opening, {describe_exit(self.process.status)}"
        return self.fail(why, hint=hint, frames=findings.quote_tail(self.process))

    def report_silenced(self) -> Finding:
        """It is there, and nobody will ever hear it."""
        hint = f"keep {self.output} open until you end: a host takes its end for the end of the guest"
        return self.fail(f"it has closed its {self.output}, and lives on", hint=hint, frames=findings.quote_tail(self.process))

    @property
    def output(self) -> str:
        return "stdout"

    def _explain_end(self, status: int, stderr: str) -> str:
        """What to do about one that ended before it said anything."""
        if _NO_SERAI in stderr:
            return (
                f"the Python that starts it has no serai: name one that has in `{self.key}`, "
                "or make it one file with `serai guest bundle`"
            )
        if stderr:
            return "its stderr says why; start it by hand as its manifest does"
        if status == 0:
            return (
                f"does the program say {self.opening} before it ends? "
                "One that is made with the SDK has to call ext.main() at its end"
            )
        return "it says nothing on stderr either: start it by hand as its manifest does, and let it say there what is wrong"


def describe_exit(status: int | None) -> str:
    """How it ended, in words."""
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
