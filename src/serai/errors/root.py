"""The root of the tree and its three branches, which are never raised themselves; and the facts that errors carry."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Self

__all__ = ["ExitStatus", "LimitHit", "LocalError", "MachineError", "PeerError", "SeraiError"]

# How much of a stderr tail fits in a one-paragraph message; the whole tail is in the `stderr` attribute.
_STDERR_IN_MESSAGE = 600


class ExitStatus(NamedTuple):
    """How a process ended: by a code, by a signal, or (when somebody else reaped it) unknown."""

    code: int | None = None
    signal: int | None = None

    @property
    def ok(self) -> bool:
        return self.code == 0

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit status {self.code}"
        if self.signal is None:
            return "exit status unknown"
        from signal import Signals  # seldom needed, and an extension's start waits for this module

        try:
            return f"killed by {Signals(self.signal).name}"
        except ValueError:  # real-time signals have no name
            return f"killed by signal {self.signal}"


class LimitHit(NamedTuple):
    """The limit that ended something: its name in `serai.limits.Limits` and the value in force."""

    name: str
    value: float

    def __str__(self) -> str:
        return f"limit {self.name} = {int(self.value) if self.value % 1 == 0 else self.value}"


class SeraiError(Exception):
    """The root. Catch it to catch everything that Serai raises on purpose.

    Attributes are always there, empty when they do not apply:

    * `who`: the peer, box or file concerned (`zot:weather`, `claude`);
    * `id`: the call that failed;
    * `exit`, `stderr`: how the peer ended and the last bytes it wrote to stderr;
    * `limit`: the limit that was hit;
    * `hint`: what to do now.
    """

    abstract: ClassVar[bool] = True
    default_hint: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        who: str = "",
        id: str = "",
        exit: ExitStatus | None = None,
        stderr: str = "",
        limit: LimitHit | None = None,
        hint: str = "",
    ) -> None:
        if type(self).__dict__.get("abstract", False):
            raise TypeError(f"{type(self).__name__} is a branch of the error tree; raise one of its leaves")
        super().__init__(message)
        self.message = message
        self.who = who
        self.id = id
        self.exit = exit
        self.stderr = stderr
        self.limit = limit
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        text = f"{self.who}: {self.message}" if self.who else self.message
        because = [str(part) for part in (self.exit, self.limit) if part is not None]
        if because:
            text += f" ({'; '.join(because)})"
        tail = self.stderr.strip()
        if tail:
            cut = tail[-_STDERR_IN_MESSAGE:]
            text += f"; stderr ended with: {'…' if len(cut) < len(tail) else ''}{cut}"
        return text

    def for_call(self, id: str) -> Self:
        """The same error for one of the calls it took down; its `__cause__` is this one root (design rule 6)."""
        copy = type(self).__new__(type(self))
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.id = id
        copy.__cause__ = self
        return copy

    def to_json(self) -> dict[str, object]:
        """What `--json` prints and what a recording keeps; empty attributes are left out."""
        form: dict[str, object] = {"error": type(self).__name__, "message": self.message}
        if self.exit is not None:
            form["exit"] = self.exit._asdict()
        if self.limit is not None:
            form["limit"] = self.limit._asdict()
        form |= {key: value for key in ("who", "id", "stderr", "hint") if (value := getattr(self, key))}
        return form


class LocalError(SeraiError):
    """Our side: a call that could not have worked."""

    abstract = True


class PeerError(SeraiError):
    """Their side: the peer broke its protocol, its promise or its neck."""

    abstract = True


class MachineError(SeraiError):
    """The computer's side: missing programs, exhausted descriptors, refused permissions."""

    abstract = True
