"""What can go wrong in an execution: the seed's errors, each below the leaf of `serai.errors` that it is a case of.

Spec agents 1.11 lists them. `Err…` are the seed's own names of the two that it exports.
"""

from __future__ import annotations

from serai.errors import (
    AgentFailed,
    BadSettings,
    Closed,
    ExitStatus,
    LimitHit,
    NoAgent,
    NoApproval,
    NoSession,
    PeerGone,
    PeerTimeout,
    SeraiError,
    SpawnFailed,
    TurnInFlight,
)


class HandleClosed(Closed):
    """The execution is over, so nothing can be answered any more. Execute again."""

    default_hint = "the execution is over: execute again"

    def __init__(self, message: str = "agentboot: execution handle closed", *, who: str = "", id: str = "") -> None:
        super().__init__(message, who=who, id=id)


class UnknownRequestId(NoApproval):
    """Nothing of that id waits for an answer: it never did, or has one, or was withdrawn."""

    default_hint = "it was answered or withdrawn, or never asked"

    def __init__(self, message: str = "agentboot: unknown request id", *, who: str = "", id: str = "") -> None:
        super().__init__(message, who=who, id=id)


class NotDelivered(PeerGone):
    """An answer came too late to be written: the agent's process is gone. What became of the run is what `wait` tells."""

    default_hint = "the agent is gone: `wait()` tells why"


class EncoderClosed(Closed):
    """The input of the process was closed, so nothing can be written to it. Start another one."""

    def __init__(self, message: str = "agentboot: encoder closed", *, who: str = "") -> None:
        super().__init__(message, who=who)


class Cancelled(Closed):
    """The execution was cancelled before it had a result. Execute again."""

    default_hint = "it was cancelled on purpose: execute again"


class DeadlineExceeded(PeerTimeout):
    """The execution took longer than it was given, and was ended. Give it more time."""

    default_hint = "give it a longer `timeout`"


class _Failure(AgentFailed):
    """What the three errors of an agent share: whose it is, and what it comes from."""

    def __init__(
        self,
        message: str,
        *,
        agent: str = "",
        cause: BaseException | None = None,
        kind: str = "error",
        details: tuple[str, ...] = (),
        status: int = 0,
        native: object = None,
        exit: ExitStatus | None = None,
        stderr: str = "",
        hint: str = "",
    ) -> None:
        given = {"kind": kind, "details": details, "status": status, "native": native}
        super().__init__(message, **given, who=agent, exit=exit, stderr=stderr, hint=hint)  # type: ignore[arg-type]
        self.agent = agent
        self.cause = cause
        self.__cause__ = cause


class ProcessError(_Failure):
    """The agent's process ended badly before its work was done. Its exit status and its stderr say why.

    `exit_code` is -1 where it has none, being killed by a signal.
    """

    @property
    def exit_code(self) -> int:
        code = self.exit.code if self.exit is not None else None
        return -1 if code is None else code


class Killed(ProcessError):
    """The process was killed, by us or by somebody else."""


class ProtocolError(_Failure):
    """What the agent said breaks its protocol, or ended too early; `cause` says which."""


class NoTerminalResult(AgentFailed):
    """The agent's output ended without a result. It is the cause of a `ProtocolError`."""

    def __init__(self, message: str = "agentboot: stream ended without a terminal result", *, who: str = "") -> None:
        super().__init__(message, kind="no_result", who=who)


class ResultError(_Failure):
    """The agent itself says that it failed: how in `subtype`, what in `details`."""

    @property
    def subtype(self) -> str:
        return self.kind


class StartFailed(SpawnFailed):
    """The agent's process could not be started. The message says why."""


class InvalidLaunch(BadSettings):
    """A driver's launch spec cannot be started, or it could not make one. Its author mends it."""

    default_hint = "mend the driver, or the options that it was given"


class AgentNotAvailable(NoAgent):
    """The agent's program is not installed, or does not work. Install it."""

    default_hint = "install it, or say where it is"


class AgentNotSupported(NoAgent):
    """No agent of that type is registered with this service. Register one."""


class AgentNotRegistered(NoAgent):
    """Only a registered agent can be the default. Register it first."""


class ReaderNotConfigured(BadSettings):
    """The service was made without a session reader, so it knows no sessions. Give it one."""

    default_hint = "give the service a reader: `AgentService(reader=new_claude_store())`"


class SessionUnknown(NoSession):
    """The session reader knows no session of that id. List them."""

    default_hint = "`list_sessions` tells which there are"


class SessionInUse(TurnInFlight):
    """Another run of this service works on that session. Wait for its end (spec agents 7.24)."""

    default_hint = "wait for the other run to end, or cancel it"


ErrHandleClosed = HandleClosed
ErrUnknownRequestID = UnknownRequestId


def to_seed_error(error: BaseException, *, agent: str, limit: LimitHit | None = None) -> BaseException:
    """The same failure of a session's turn as the seed would tell it; what it has no word for stays as it is."""
    if isinstance(error, _Failure) or not isinstance(error, SeraiError):
        return error
    if isinstance(error, PeerTimeout):
        return DeadlineExceeded(error.message, who=agent, limit=error.limit or limit, stderr=error.stderr)
    if isinstance(error, PeerGone):
        return process_error(agent, error.exit, error.stderr, cause=error)
    if not isinstance(error, AgentFailed):
        return error
    if error.kind == "no_result":
        return ProtocolError("protocol error: the stream ended early", agent=agent, cause=NoTerminalResult(), kind="no_result")
    if error.kind == "garbled":
        return ProtocolError(f"protocol error: {error.message}", agent=agent, cause=error, kind="garbled", stderr=error.stderr)
    if error.exit is not None:
        return process_error(agent, error.exit, error.stderr, cause=error, kind=error.kind)
    return ResultError(
        error.message, agent=agent, cause=error, kind=error.kind, details=error.details, status=error.status,
        native=error.native, stderr=error.stderr, hint=error.hint,
    )  # fmt: skip


def process_error(
    agent: str, exit: ExitStatus | None, stderr: str = "", *, cause: BaseException | None = None, kind: str = "exited"
) -> ProcessError:
    """For a process that ended by itself, and not well."""
    code = exit.code if exit is not None else None
    if code is not None:
        return ProcessError(f"process exited with code {code}", agent=agent, cause=cause, kind=kind, exit=exit, stderr=stderr)
    error = Killed if exit is not None and exit.signal is not None else ProcessError
    return error(
        f"process failed: {exit or 'nobody knows how it ended'}", agent=agent, cause=cause, kind=kind, exit=exit, stderr=stderr
    )
