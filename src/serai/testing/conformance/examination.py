"""What the rules of a dialect are given: guests to try things with, and one visit that all of them know."""

from __future__ import annotations

import os
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from serai.testing.conformance.findings import Finding, RuleFailed, Skip, Unopened
from serai.testing.conformance.probe import GuestProbe, RequestOutcome, Task

NOBODY = "serai_check_no_such_name"
AGAIN = "hosts start it again and again, at a reload the new one first; if only one may run, say `exclusive = true` in guest.toml"

P = TypeVar("P", bound=GuestProbe)
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class TriedRequest:
    """A request of the visit, and what became of it."""

    request: Any
    outcome: RequestOutcome
    answer: Any
    problem: Finding | None

    @property
    def has_unknown_name(self) -> bool:
        """Whether it asked for a name that does not exist."""
        return bool(self.request.fields.get("name") == NOBODY)


@dataclass(slots=True)
class FirstVisit(Generic[P]):
    """How a guest opens, and what it makes of one request of each kind."""

    probe: P | None = None
    problem: Finding | None = None
    status: int | None = None  # with which it ends when it is asked to
    tried: list[TriedRequest] = field(default_factory=list)

    @property
    def reliable(self) -> list[Any]:
        """What it answers when nothing is wrong, the cheapest first: what is asked to see whether it is well."""
        answered = [tried.request for tried in self.tried if tried.outcome is RequestOutcome.ANSWERED]
        return sorted(answered, key=lambda request: bool(request.real))


class GuestExamination(ABC, Generic[P]):
    """One guest, started as often as its rules need it. Rules run in threads: what they share is behind a lock."""

    unopened = "`manifest` and `hello`"  # the rules that tell why a guest does not open
    settles = False  # whether a guest is given a moment after its opening: what follows an answer comes at once, or not at all
    echo = ""  # what to do about an answer under another id
    refuse = ""  # how to answer a name that one does not know

    def __init__(self, task: Task, scratch: Path) -> None:
        self.task, self.patience, self.target = task, task.patience, task.target
        self.seen: list[P] = []  # all that were tried, once they are over
        self._scratch = scratch
        self._lock, self._visiting = Lock(), Lock()
        self._running: dict[int, P] = {}
        self._count = 0
        self._abandoned = False
        self._visit: FirstVisit[P] | None = None

    # -- what a dialect adds ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, data: Path, **options: Any) -> P:
        """A fresh guest with a folder of its own."""

    @abstractmethod
    def build_requests(self, probe: P) -> list[Any]:
        """One of each kind that it serves: names that do not exist, questions, and what a person has given."""

    @abstractmethod
    def build_real_requests(self) -> list[Any]:
        """The calls and commands that a person has given."""

    @abstractmethod
    def list_offered(self, request: Any) -> list[str]:
        """The names that it has for a request of this kind."""

    @abstractmethod
    def list_tools(self, probe: P) -> list[tuple[str, object]]:
        """Its tools with their schemas."""

    @abstractmethod
    def build_call(self, name: str, args: object) -> Any:
        """A call of a tool."""

    @abstractmethod
    def is_error(self, answer: Any) -> bool:
        """Whether an answer to a call or a command says that it failed."""

    # -- guests ----------------------------------------------------------------------------------------------------------------

    @contextmanager
    def probe(self, **options: Any) -> Iterator[P]:
        """A fresh guest, not opened yet (options: see the dialect's probe). Afterwards nothing of it is left."""
        with self._lock:
            if self._abandoned:
                raise Skip("the check was ended")
            self._count += 1
            data = self._scratch / str(self._count)  # each has its own: they run at the same time
            data.mkdir()
            probe = self.start(data, **options)
            self._running[probe.process.pid] = probe
        try:
            yield probe
        finally:
            if probe.ended:
                probe.process.stdin.close()
                probe.process.stdout.close()
                probe.left = probe.process.find_survivors(self.patience.leave)
            with self._lock:
                self.seen.append(probe)
                del self._running[probe.process.pid]
            probe.process.kill()

    @contextmanager
    def open_probe(self, *, what: str = "started once more", hint: str = AGAIN, **options: Any) -> Iterator[P]:
        """A fresh guest, past its opening; a rule that needs one has nothing to judge when there is none."""
        first = self.first
        with self.probe(**options) as probe:
            if problem := probe.open(first):
                raise RuleFailed(replace(problem, why=f"{what}, {problem.why}", hint=hint))
            yield probe

    def stop_listening(self, probe: P) -> None:
        """Close our end of its output while nobody is being started: a process that is not yet another would hold it open too."""
        probe.process.note("end of output")
        with self._lock:
            probe.process.stdout.close()

    @property
    def first(self) -> P:
        """The guest of the visit, as it opened."""
        visit = self.visit
        if visit.problem is not None:
            raise Unopened("it does not open", visit.problem, see=self.unopened)
        assert visit.probe is not None
        return visit.probe

    @property
    def visit(self) -> FirstVisit[P]:
        with self._visiting:
            if self._visit is None:
                self._visit = self.make_visit()
            return self._visit

    def abandon(self) -> None:
        """End all guests, so that whoever waits for one waits no longer."""
        with self._lock:
            self._abandoned = True
            for pid in self._running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def make_visit(self) -> FirstVisit[P]:
        if not self.target.argv:
            [problem, *_] = [remark for remark in self.target.remarks if remark.status == "failed"]
            raise Unopened("it cannot be started", problem, see="`manifest`")
        visit, waiting, lives = FirstVisit[P](), list[Any](), True
        try:
            with self.probe() as probe:
                visit.probe = probe
                visit.problem = probe.open()
                if visit.problem is None:
                    waiting = self.build_requests(probe)
                    if not waiting or self.settles:  # no answer will show that it is there
                        probe.hear(lambda: False, self.patience.hold)
                    visit.problem = None if probe.alive else probe.report_gone()
                if visit.problem is None:
                    lives = self._try_requests(probe, waiting, visit)
                    visit.problem = probe.report_silenced() if probe.is_silenced() else None
            while not lives:  # one that ends at a request is started again for the next, and at last for a usual end
                lives = not waiting
                with self.probe() as again:
                    if again.open(visit.probe) is not None:
                        break
                    lives = self._try_requests(again, waiting, visit) or lives
        except OSError as error:
            visit.problem = Finding(
                status="failed",
                why=f"it cannot be started: {error.strerror}",
                hint="a script needs a first line that names its interpreter, such as #!/bin/sh",
            )
        return visit

    def _try_requests(self, probe: P, waiting: list[Any], visit: FirstVisit[P]) -> bool:
        """Ask one after the other, until all are asked or the guest has ended. Whether it lived: then it was shut down."""
        while waiting and probe.alive and not probe.is_silenced():
            request = waiting.pop(0)
            outcome = probe.try_request(request)
            problem = None
            if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                problem = probe.report_unanswered(request, outcome)
            answer = probe.last_answer if outcome is RequestOutcome.ANSWERED else None
            visit.tried.append(TriedRequest(request, outcome, answer, problem))
        if not probe.alive:
            return False
        if probe.is_silenced():
            return True
        visit.status = probe.shut_down(self.patience.shutdown)
        return True


@contextmanager
def open_examination(make: Callable[[Task, Path], E], task: Task) -> Iterator[E]:
    """What the rules are given; its scratch folder is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="serai-check-", ignore_cleanup_errors=True) as scratch:
        yield make(task, Path(scratch))
