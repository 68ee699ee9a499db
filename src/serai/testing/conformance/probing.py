"""One guest of any dialect, started and asked: read as tolerantly as a host reads it, and all that is wrong kept for the rules."""

from __future__ import annotations

import fcntl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from time import monotonic
from typing import Any, NamedTuple, Protocol

from serai.testing.conformance import quoting
from serai.testing.conformance.report import Finding, failed
from serai.testing.conformance.target import Task
from serai.testing.zot_host.process import GuestProcess

__all__ = ["Asked", "Flawed", "Outcome", "Probing", "ending"]

_NO_SERAI = "No module named 'serai'"  # as Python says it
_PAGE = 4096  # the smallest pipe there is


class Asked(Protocol):
    """Something to ask of a guest; `real` if a person has given it."""

    @property
    def what(self) -> str: ...
    @property
    def real(self) -> bool: ...


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


class Probing(ABC):
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
    def limit(self, request: Any) -> float:
        """How long it may take to answer."""
        ...

    @abstractmethod
    def hint(self, request: Any) -> str:
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

    def outcome(self, request: Any) -> Outcome:
        """Ask, and see what becomes of it."""
        strays = len(self.strays)
        [id] = self.ask(request)
        self.hear(lambda: id in self.answers or len(self.strays) > strays, self.limit(request))
        if id in self.answers:
            self.last_answer = self.answers[id][0]
            return Outcome.ANSWERED
        if len(self.strays) > strays:
            return Outcome.STRAY
        return Outcome.SILENT if self.alive else Outcome.DIED

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
        return quoting.transcript(self.process, self.opened)

    def unanswered(self, request: Any, outcome: Outcome, *, how: str = "", hint: str = "") -> Finding:
        what = f"{request.what}, {how}," if how else request.what
        hint = hint or self.hint(request)
        if outcome is Outcome.DIED:
            return self.failure(f"{what} ended it, {ending(self.process.status)}", hint=hint)
        return self.failure(f"{what} got no answer within {self.limit(request):g} s", hint=hint)

    def unopened(self, within: float) -> Finding:
        """It said nothing, or not what opens."""
        if (status := self.process.status) is not None:
            why = f"it ended before its {self.opening}, {ending(status)}"
            return self.failure(why, hint=self._why_ended(status, quoting.last_words(self.process)))
        return self.failure(f"it said nothing for {within:g} s", hint=self.no_opening)

    def gone(self) -> Finding:
        """It is not there any more, and nobody has asked for that."""
        hint = "stay, and read frames until shutdown or the end of input; its stderr may say why it does not"
        why = f"it ends by itself right after its opening, {ending(self.process.status)}"
        return self.failure(why, hint=hint, frames=quoting.transcript(self.process))

    def speechless(self) -> Finding:
        """It is there, and nobody will ever hear it."""
        hint = f"keep {self.output} open until you end: a host takes its end for the end of the guest"
        return self.failure(f"it has closed its {self.output}, and lives on", hint=hint, frames=quoting.transcript(self.process))

    @property
    def output(self) -> str:
        return "stdout"

    def _why_ended(self, status: int, stderr: str) -> str:
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


def ending(status: int | None) -> str:
    """How it ended, in words."""
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
