"""What the rules of zot are given: guests to try things with, and one visit that all of them know."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from serai.testing.conformance.report import Failed, Finding, Skip, Unopened
from serai.testing.conformance.target import Task
from serai.testing.conformance.zot.probe import Outcome, Probe, Request
from serai.testing.zot_host.frames import INTERCEPTABLE, Frame

__all__ = ["NOBODY", "Examination", "Tried", "Visit", "examine", "question"]

NOBODY = "serai_check_no_such_name"
QUESTIONS: dict[str, Frame] = {
    "tool_call": {"tool_id": "call_1", "tool_name": NOBODY, "tool_args": {}},
    "turn_start": {"step": 1},
    "assistant_message": {"text": "Good morning."},
}
_AGAIN = "hosts start it again and again, at a reload the new one first; if only one may run, say `exclusive = true` in guest.toml"


def question(event: str, **fields: object) -> Request:
    """A harmless one; `fields` change it."""
    return Request("event_intercept", {"event": event, **QUESTIONS[event], **fields})


@dataclass(frozen=True, slots=True)
class Tried:
    """A request of the visit, and what became of it."""

    request: Request
    outcome: Outcome
    answer: Frame | None
    problem: Finding | None

    @property
    def nobody(self) -> bool:
        """Whether it asked for a name that does not exist."""
        return self.request.fields.get("name") == NOBODY


@dataclass(slots=True)
class Visit:
    """How a guest opens, and what it makes of one request of each kind."""

    probe: Probe | None = None
    problem: Finding | None = None
    status: int | None = None  # with which it ends when it is asked to
    tried: list[Tried] = field(default_factory=list)

    @property
    def reliable(self) -> list[Request]:
        """What it answers when nothing is wrong, the cheapest first: what is asked to see whether it is well."""
        answered = [tried.request for tried in self.tried if tried.outcome is Outcome.ANSWERED]
        return sorted(answered, key=lambda request: request.real)


class Examination:
    """One guest, started as often as its rules need it. Rules run in threads: what they share is behind a lock."""

    def __init__(self, task: Task, scratch: Path) -> None:
        self.task, self.patience, self.target = task, task.patience, task.target
        self.seen: list[Probe] = []  # all that were tried, once they are over
        self._scratch = scratch
        self._lock, self._visiting = Lock(), Lock()
        self._running: dict[int, Probe] = {}
        self._count = 0
        self._abandoned = False
        self._visit: Visit | None = None

    @contextmanager
    def probe(self, *, ack: bool = True, folders: bool = True, narrow: bool = False) -> Iterator[Probe]:
        """A fresh guest, not opened yet (options: see `Probe`). Afterwards nothing of it is left."""
        with self._lock:
            if self._abandoned:
                raise Skip("the check was ended")
            self._count += 1
            data = self._scratch / str(self._count)  # each has its own: they run at the same time
            data.mkdir()
            probe = Probe(self.task, data, ack=ack, folders=folders, narrow=narrow)
            self._running[probe.process.pid] = probe
        try:
            yield probe
        finally:
            if probe.ended:
                probe.process.stdin.close()
                probe.process.stdout.close()
                probe.left = probe.process.survivors(self.patience.leave)
            with self._lock:
                self.seen.append(probe)
                del self._running[probe.process.pid]
            probe.process.kill()

    @contextmanager
    def opened(
        self, *, folders: bool = True, narrow: bool = False, what: str = "started once more", hint: str = _AGAIN
    ) -> Iterator[Probe]:
        """A fresh guest, past its opening; a rule that needs one has nothing to judge when there is none."""
        first = self.first
        with self.probe(folders=folders, narrow=narrow) as probe:
            if problem := probe.open(first):
                raise Failed(replace(problem, why=f"{what}, {problem.why}", hint=hint))
            yield probe

    def stop_listening(self, probe: Probe) -> None:
        """Close our end of its stdout while nobody is being started: a process that is not yet another would hold it open too."""
        probe.process.note("end of output")
        with self._lock:
            probe.process.stdout.close()

    @property
    def first(self) -> Probe:
        """The guest of the visit, as it opened."""
        visit = self.visit
        if visit.problem is not None:
            raise Unopened("it does not open", visit.problem, see="`manifest` and `hello`")
        assert visit.probe is not None
        return visit.probe

    @property
    def visit(self) -> Visit:
        with self._visiting:
            if self._visit is None:
                self._visit = self._pay_visit()
            return self._visit

    def abandon(self) -> None:
        """End all guests, so that whoever waits for one waits no longer."""
        with self._lock:
            self._abandoned = True
            for pid in self._running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _pay_visit(self) -> Visit:
        if not self.target.argv:
            [problem, *_] = [remark for remark in self.target.remarks if remark.status == "failed"]
            raise Unopened("it cannot be started", problem, see="`manifest`")
        visit, waiting, lives = Visit(), list[Request](), True
        try:
            with self.probe() as probe:
                visit.probe = probe
                visit.problem = probe.open()
                if visit.problem is None:
                    waiting = self._requests(probe)
                    if not waiting:  # no answer will show that it is there
                        probe.hear(lambda: False, self.patience.hold)
                    visit.problem = None if probe.alive else probe.gone()
                if visit.problem is None:
                    lives = self._try(probe, waiting, visit)
                    visit.problem = probe.speechless() if probe.is_silenced() else None
            while not lives:  # one that ends at a request is started again for the next, and at last for a usual end
                lives = not waiting
                with self.probe() as again:
                    if again.open(visit.probe) is not None:
                        break
                    lives = self._try(again, waiting, visit) or lives
        except OSError as error:
            visit.problem = Finding(
                status="failed",
                why=f"it cannot be started: {error.strerror}",
                hint="a script needs a first line that names its interpreter, such as #!/bin/sh",
            )
        return visit

    def _requests(self, probe: Probe) -> list[Request]:
        """One of each kind that it serves: names that do not exist, questions, and what a person has given."""
        requests = []
        if probe.names("register_tool"):
            requests.append(Request("tool_call", {"name": NOBODY, "args": {}}))
        if probe.names("register_command"):
            requests.append(Request("command_invoked", {"name": NOBODY}))
        requests += [question(event) for event in INTERCEPTABLE if event in probe.intercepts]
        return requests + self.real()

    def real(self) -> list[Request]:
        """The calls and commands that a person has given."""
        calls = [Request("tool_call", {"name": name, "args": args}, real=True) for name, args in self.task.calls]
        for line in self.task.commands:
            name, _, args = line.removeprefix("/").partition(" ")
            fields = {"name": name} | ({"args": args.strip()} if args.strip() else {})
            calls.append(Request("command_invoked", fields, real=True))
        return calls

    def _try(self, probe: Probe, waiting: list[Request], visit: Visit) -> bool:
        """Ask one after the other, until all are asked or the guest has ended. Whether it lived: then it was shut down."""
        while waiting and probe.alive and not probe.is_silenced():
            request = waiting.pop(0)
            outcome = probe.outcome(request)
            problem = None
            if outcome in (Outcome.SILENT, Outcome.DIED):
                problem = probe.unanswered(request, outcome)
            answer = probe.last_answer if outcome is Outcome.ANSWERED else None
            visit.tried.append(Tried(request, outcome, answer, problem))
        if not probe.alive:
            return False
        if probe.is_silenced():
            return True
        visit.status = probe.shut_down(self.patience.shutdown)
        return True


@contextmanager
def examine(task: Task) -> Iterator[Examination]:
    """What the rules are given; its scratch folder is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="serai-check-", ignore_cleanup_errors=True) as scratch:
        yield Examination(task, Path(scratch))
