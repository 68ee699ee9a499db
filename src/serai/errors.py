"""Everything that can go wrong, as one small tree by cause.

Three branches say who has to act (design rule 15):

* `LocalError`: Serai or its caller used something wrongly. Fix the call.
* `PeerError`: the program at the other end of a wire misbehaved, died or refused. Look at *it*.
* `MachineError`: the computer would not do it. Look at the installation.

Each leaf says in its docstring what the caller can do. `SeraiError` and the three branches are never raised themselves.
`ExitStatus` and `LimitHit` are facts that errors carry.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Self

__all__ = [
    "AgentFailed",
    "BadExtension",
    "BadFrame",
    "BadManifest",
    "BadRequest",
    "BadSession",
    "BadSettings",
    "BoxFailed",
    "BoxNotFound",
    "BoxRefused",
    "Closed",
    "ExitStatus",
    "FrameTooBig",
    "GuardDown",
    "HookFailed",
    "LimitHit",
    "LocalError",
    "MachineError",
    "ModelFailed",
    "NoAgent",
    "NoApproval",
    "NoCommand",
    "NoEntry",
    "NoGuest",
    "NoModel",
    "NoRecording",
    "NoService",
    "NoSession",
    "NoSnapshot",
    "NoTool",
    "NotAllowed",
    "NotCapable",
    "NotRecorded",
    "NotTrusted",
    "NotWritten",
    "OversizeFrame",
    "PeerError",
    "PeerGone",
    "PeerStalled",
    "PeerTimeout",
    "Refused",
    "SeraiError",
    "SpawnFailed",
    "SurfaceFailed",
    "Trapped",
    "TurnInFlight",
    "TurnLimit",
]

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


class BadExtension(LocalError):
    """An extension's own code cannot be offered as it is. Mend it where the message says."""

    def __init__(self, message: str, *, who: str = "", hint: str = "") -> None:
        super().__init__(message, who=who, hint=hint)
        if hint:
            self.add_note(hint)  # it ends a program's import, where nobody but Python tells of it


class BadSettings(LocalError):
    """The configuration says something that cannot be. `who` is the file; correct it."""

    default_hint = "correct the file"


class BoxNotFound(LocalError):
    """There is no box of that id or generation. Look at the list."""

    default_hint = "`serai box list` shows what there is"


class BoxRefused(LocalError):
    """That cannot be done with this box as it is: its id is taken, it is paused, there are too many. The message says which."""


class Closed(LocalError):
    """The handle was closed on purpose before or during the call. Open a new one."""

    default_hint = "it was closed on purpose: open a new one"


class FrameTooBig(LocalError):
    """A frame that we were asked to send exceeds what the peer's protocol lets it read. Send less."""

    default_hint = "send a smaller frame, or raise the limit if the peer can read more"


class NoApproval(LocalError):
    """There is no such approval, or it is not waiting any more: answered, withdrawn or out of time. Look at the list."""

    default_hint = "`serai policy pending` shows what waits for an answer"


class NoCommand(LocalError):
    """No guest offers a command of that name, and it is none of Serai's own. Look at the list."""

    default_hint = "`serai command list` shows what there is"


class NoAgent(LocalError):
    """There is no agent of that name, or its program is not here. The hint lists those that there are, or says how to have it."""


class NoEntry(LocalError):
    """The session has no entry of that id. Look at its tree."""

    default_hint = "`serai session tree` shows the entries"


class NoGuest(LocalError):
    """There is no guest of that name where it was looked for. Look at the list."""

    default_hint = "`serai guest list` shows what there is"


class NoModel(LocalError):
    """No model fits what was asked for. Look at the list, or describe the model in `models.toml`."""

    default_hint = "name one that the catalogue knows, or describe it in models.toml"


class NoRecording(LocalError):
    """There is no such recording, no such wire in it, or the file is none. Look at the list."""

    default_hint = "`serai record list` shows what there is"


class NoService(LocalError, AttributeError):
    """The host that started this extension does not have what was asked of it. `hasattr` tells beforehand."""


class NoSession(LocalError):
    """There is no session of that id, or several begin so. Look at the list."""

    default_hint = "`serai session list` shows what there is"


class NoSnapshot(LocalError):
    """No copy of that file was kept, so there is nothing to go back to."""

    default_hint = "copies are kept of files that the built-in `write` and `edit` changed"


class BadSession(LocalError):
    """The file is no session, or cannot be read. `who` is the file; nothing in it was changed."""

    default_hint = "the file is left as it is: look at it, or go on with another session"


class NoTool(LocalError):
    """Nobody offers a tool of that name. Look at the list."""

    default_hint = "`serai tool list` shows what there is"


class NotAllowed(LocalError):
    """A call may not run: a rule, a person or the lack of one said no. The hint names what would allow it."""


class NotCapable(LocalError):
    """This agent cannot do that. Its capabilities tell beforehand."""

    default_hint = "`session.capabilities` tells what this agent can do"


class NotTrusted(LocalError):
    """A project's guest was not started: nobody has said that the project may (design rule 12). Look at it, then say so."""

    default_hint = "look at what it would start, then `serai trust` in that folder"


class TurnInFlight(LocalError):
    """The agent is busy with another prompt, which goes on undisturbed. Wait for its end, steer it, or cancel it."""

    default_hint = "wait for the turn to end, steer it with `session.steer`, or cancel it"


class TurnLimit(LocalError):
    """A turn was ended by a limit, such as the number of steps. What was done so far stays; prompt again, or raise the limit."""

    default_hint = "prompt again to go on, or raise the limit"


class AgentFailed(PeerError):
    """A driven agent's turn failed, by its own word or by its end. `kind` says how, in the agent's word or ours:

    `exited` (it ended in the middle, see `exit`), `no_result` (it ended well and gave none), `garbled`, `session_in_use`,
    `bad_session_id`, `not_logged_in`, `bad_flag`, `cwd_unavailable`; else its own, such as `error_max_turns` or `api_error`.
    `details` are its own lines about it, `status` is that of the model's API, `native` all that it said.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "error",
        details: tuple[str, ...] = (),
        status: int = 0,
        native: object = None,
        who: str = "",
        exit: ExitStatus | None = None,
        stderr: str = "",
        limit: LimitHit | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, who=who, exit=exit, stderr=stderr, limit=limit, hint=hint)
        self.kind = kind
        self.details = details
        self.status = status
        self.native = native

    def to_json(self) -> dict[str, object]:
        more = {"kind": self.kind, "details": list(self.details), "status": self.status}
        return super().to_json() | {key: value for key, value in more.items() if value}


class PeerGone(PeerError):
    """The peer exited or closed its end. Nothing more will come: start it again (a supervisor does)."""

    default_hint = "its exit status and stderr say why; start it again"


class PeerStalled(PeerError):
    """The peer does not read what we write, and the byte budget for waiting frames is used up. Wait, or stop it."""

    default_hint = "the peer does not read its input: wait for it to catch up, or stop it"


class PeerTimeout(PeerError, TimeoutError):
    """The peer did not answer within the deadline. The call is forgotten; a late answer is recorded and not used."""

    default_hint = "the peer may still be working: ask again, or raise the limit"


class BadFrame(PeerError):
    """The peer's answer came but cannot be understood. Its author has to fix it; the raw bytes are on record."""

    default_hint = "the answer breaks the protocol: see the frame in the recording"


class OversizeFrame(BadFrame):
    """The peer's answer was longer than the limit. It was skipped; the wire goes on."""

    default_hint = "the answer was skipped: ask for less, or raise the limit"


class BadManifest(PeerError):
    """A guest's folder says something that cannot be: its manifest is missing, broken or lacks a field. `who` is the folder."""

    default_hint = "correct the manifest, or ask the author of the guest"


class BadRequest(PeerError):
    """A guest asked for something that cannot be: there is no such service, or its arguments make no sense. Its author mends it."""


class GuardDown(PeerError):
    """A guest that must hold is not there: it failed, is not ready yet, or cannot be found. Nothing runs (design rule 8)."""

    default_hint = "mend the guard, or disable it on purpose: `serai guest disable NAME`"


class HookFailed(PeerError):
    """A hook failed: it could not be started, ended badly, took too long, or its answer is none. The box is not made."""

    default_hint = "`serai hook check PATH` tells what is wrong with it"

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        who: str = "",
        exit: ExitStatus | None = None,
        stderr: str = "",
        limit: LimitHit | None = None,
        temporary: bool = False,
    ) -> None:
        """`temporary`: the machine would not start it now; it has not run."""
        super().__init__(message, who=who or (f"hook {path}" if path else ""), exit=exit, stderr=stderr, limit=limit)
        self.temporary = temporary

    def __str__(self) -> str:
        return (
            f"{self.who}: {self.message}" if self.who else self.message
        )  # which has it all, in the protocol's own form (spec hooks 1.10)


class ModelFailed(PeerError):
    """A model did not answer, or not in full: its provider refused, broke off or cannot be reached.

    `status` is that of HTTP, 0 without one. `temporary`: the same call may work later, after `wait` seconds if the provider said
    so. `too_long`: the conversation is longer than the model takes.
    """

    default_hint = "look at the provider's message; the conversation is as it was before this call"

    def __init__(
        self,
        message: str,
        *,
        who: str = "",
        id: str = "",
        status: int = 0,
        temporary: bool = False,
        wait: float | None = None,
        too_long: bool = False,
        limit: LimitHit | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, who=who, id=id, limit=limit, hint=hint)
        self.status = status
        self.temporary = temporary
        self.wait = wait
        self.too_long = too_long

    def to_json(self) -> dict[str, object]:
        return super().to_json() | ({"status": self.status} if self.status else {}) | {"temporary": self.temporary}


class Refused(PeerError):
    """The peer understood and said no. Neither a crash nor a time-out: retrying the same call will not help."""

    default_hint = "the peer understood the call and refused it"

    def __init__(self, message: str, *, code: int = 0, data: bytes = b"", who: str = "", id: str = "") -> None:
        super().__init__(message, who=who, id=id)
        self.code = code
        self.data = data

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"code": self.code}


class SurfaceFailed(PeerError):
    """Where a person is reached broke down, or answered what is no answer. Nothing was allowed; ask again."""

    default_hint = "nothing was allowed; mend the surface, or answer with `serai policy answer`"


class Trapped(PeerError):
    """A plugin's code was ended where it stood. `kind` says by what: `trap` (its own fault), `fuel`, `stack`, `limit`, or `denied`:
    it asked the host for what it may not have, or what did not work. Its author mends it, or its owner grants more."""

    default_hint = "the plugin's own code failed, or asked for what it may not have: the message says which"

    def __init__(self, message: str, *, kind: str = "trap", who: str = "", id: str = "", hint: str = "") -> None:
        super().__init__(message, who=who, id=id, hint=hint)
        self.kind = kind

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"kind": self.kind}


class SpawnFailed(MachineError):
    """A program could not be started: it is missing, not executable, or a resource ran out (`errno` says which)."""

    def __init__(self, message: str, *, who: str = "", errno: int = 0, hint: str = "") -> None:
        super().__init__(message, who=who, hint=hint)
        self.errno = errno

    def to_json(self) -> dict[str, object]:
        return super().to_json() | ({"errno": self.errno} if self.errno else {})


class BoxFailed(MachineError):
    """A box could not be started, stopped or reached on this machine. `serai box backends` tells what works here."""

    default_hint = "`serai box backends` tells what works on this machine; `serai box logs ID` what the box said"


class NotWritten(MachineError):
    """A file or folder could not be copied, changed or removed. Make room, or make it writable."""

    default_hint = "make room, or make it readable and writable for you"


class NotRecorded(MachineError):
    """A recording cannot be written where it belongs. Make room or make it writable, or turn recording off on purpose."""

    default_hint = "make the folder writable, or set `record = false` in config.toml"
