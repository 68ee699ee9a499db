"""What a check reports: a finding for each rule, or several, and the report that holds them.

In what a finding quotes of a guest, look-alikes of secrets are masked before the text is cut: a cut may remove what shows that it
is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from serai.record import secret_patterns
from serai.testing.guest_process import SHOWN, GuestProcess, format_line

_TAIL = 600  # of stderr, in a finding
_BEFORE = 1 << 16  # bytes around what is shown: longer than a key
_LINES = 300  # of what was said: more than a key has


def quote_line(who: str, raw: bytes) -> str:
    """One line of the host or the guest. Of a long one only the beginning is shown."""
    return format_line(who, secret_patterns.mask(raw[:_BEFORE]) + raw[_BEFORE:])


def mask_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Lines of a guest, masked as one text: a key goes over several."""
    whole = secret_patterns.mask(b"".join(lines))  # as long as it was
    return [whole[start:end] for start, end in pairwise(accumulate(map(len, lines), initial=0))]


def quote_tail(process: GuestProcess, since: int = 0) -> list[str]:
    """The last of what was said: from the host (→) and from the guest (←)."""
    said = process.transcript[-_LINES:]
    safe = iter(mask_lines([raw for who, raw in said if who == "guest"]))
    read = [(who, next(safe) if who == "guest" else raw) for who, raw in said]
    shown = min(SHOWN, len(process.transcript) - since)
    return [format_line(who, raw if who == "guest" else secret_patterns.mask(raw)) for who, raw in read[len(read) - shown :]]


def quote_stderr(process: GuestProcess) -> str:
    """The end of its stderr."""
    return secret_patterns.mask_text(process.read_stderr_tail(_BEFORE))[-_TAIL:].strip()


Status = Literal["passed", "warned", "failed", "skipped"]
_WORST: tuple[Status, ...] = ("passed", "skipped", "warned", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a check waits for what a guest has to do, in seconds. The defaults are those of the protocol where it has one."""

    hello: float = 10.0
    ready: float = 3.0
    answer: float = 10.0  # to what takes no work: an unknown name, arguments that do not fit
    tool: float = 60.0
    command: float = 30.0
    intercept: float = 5.0
    hold: float = 0.2  # for so long the host does not read
    idle: float = 2.0  # for so long it asks nothing
    shutdown: float = 2.0
    terminate: float = 1.0
    leave: float = 1.0  # for what a guest has started, to end after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule found: in one sentence, with the frames that show it (→ to the guest, ← from it) and what to do about it."""

    status: Status
    why: str = ""
    frames: tuple[str, ...] = ()
    stderr: str = ""
    hint: str = ""
    rule: str = ""
    requirements: tuple[str, ...] = ()

    def details(self) -> Iterator[str]:
        """What there is to say besides `why`, a line each."""
        yield from self.frames
        for line in self.stderr.splitlines():
            yield f"stderr: {line}"
        if self.hint:
            yield f"what to do: {self.hint}"


def fail(why: str, *, hint: str, frames: Iterable[str] = (), stderr: str = "") -> Finding:
    """The guest breaks the protocol here; a rule fills in the rest."""
    return Finding(status="failed", why=why, hint=hint, frames=tuple(frames), stderr=stderr)


def warn(why: str, *, hint: str, frames: Iterable[str] = ()) -> Finding:
    """A host lives with it, and the guest would be better without it."""
    return Finding(status="warned", why=why, hint=hint, frames=tuple(frames))


class Skip(Exception):
    """A rule has nothing to judge in this guest, for this reason."""


class Unopened(Skip):
    """A rule cannot judge because the guest does not even open. The rules of the `opening` say why; without them, this one does."""

    def __init__(self, what: str, problem: Finding, *, see: str) -> None:
        super().__init__(f"{what}: see {see}")
        self.problem = replace(problem, why=f"{what}: {problem.why}")


class RuleFailed(Exception):
    """A rule cannot judge this guest, and that is the guest's fault."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.why)
        self.finding = finding


class Rule(NamedTuple):
    """What a guest has to do. `judge` gets what its dialect's table makes of a check, and gives what is wrong: nothing is good.

    A rule that comes `last` looks at everything that the others have seen; one of the `opening` says why a guest does not open;
    one that takes `long` begins before the others.
    """

    name: str
    text: str
    judge: Callable[[Any], Iterable[Finding]]
    requirements: tuple[str, ...] = ()
    last: bool = False
    opening: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, in the order of the rules."""

    guest: str
    dialect: str
    findings: Sequence[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a warning is no failure."""
        return not self.of("failed")

    def of(self, *statuses: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status in statuses]

    def rules(self) -> dict[str, Status]:
        """Each rule with the worst that was found."""
        worst: dict[str, Status] = {}
        for finding in self.findings:
            worst[finding.rule] = max(worst.get(finding.rule, "passed"), finding.status, key=_WORST.index)
        return worst

    def summary(self) -> dict[Status, int]:
        """How many rules went how."""
        counts = Counter(self.rules().values())
        return {status: counts[status] for status in ("passed", "warned", "failed", "skipped")}

    def __str__(self) -> str:
        """All that is wrong, for a person."""
        lines = []
        for finding in self.of("failed", "warned"):
            lines += [f"{self.guest}: {finding.rule}: {finding.why}", *(f"    {line}" for line in finding.details())]
        return "\n".join(lines) or f"{self.guest}: nothing is wrong"
