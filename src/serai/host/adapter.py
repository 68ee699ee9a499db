"""Between the host and a dialect: what an adapter is given to start a guest, and what it returns.

The host is neutral; everything about a dialect is in `host/adapters/<dialect>`. An adapter has a function `async def start(taking:
StartContext) -> GuestConnection`: it starts the guest and returns once it is ready, or raises and leaves nothing behind.

`get_error_code` has a code for each kind of failure of a call, for models and scripts (design rule 7). `Services` is what a guest
may request from Serai: the app answers; a host that is used alone answers nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from serai.errors import Refused, SeraiError
from serai.host.guest_log import GuestLog
from serai.host.guest_manifest import GuestManifest
from serai.limits import HostLimits
from serai.model.actions import Action, Panel
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, TransformResult
from serai.model.events import Event
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from serai.model.tools import ToolCall, ToolResult
from serai.wire.channel import Tap
from serai.wire.event_loop import Deadlines
from serai.wire.process import Spawner

_CODES: dict[str, str] = {
    "PeerTimeout": "TIMEOUT",
    "PeerGone": "TOOL_UNAVAILABLE",
    "PeerStalled": "TOOL_UNAVAILABLE",
    "Closed": "TOOL_UNAVAILABLE",
    "BadFrame": "BAD_ANSWER",
    "OversizeFrame": "BAD_ANSWER",
    "FrameTooBig": "INVALID_ARGS",  # more than the guest can read: who asked can ask for less
    "Refused": "REFUSED",
    "Trapped": "FAILED",  # a plugin ended where it stood
}


def get_error_code(error: SeraiError) -> str:
    """The code of an error that ended the call of a tool."""
    return _CODES.get(type(error).__name__, "FAILED")


def get_command_error_code(error: SeraiError) -> str:
    """The same for a command."""
    code = get_error_code(error)
    return "COMMAND_UNAVAILABLE" if code == "TOOL_UNAVAILABLE" else code


def find_start_hint(stderr: str) -> str:
    """What to do about a guest that never began, where its last words show it; else nothing."""
    if "No module named 'serai'" in stderr:
        return "the Python that starts it has no serai: name one that has it in `exec`, or bundle it (`serai guest bundle`)"
    if "ERR_UNKNOWN_FILE_EXTENSION" in stderr and '".ts"' in stderr:
        return "this node runs no TypeScript: 22.18 and newer do, and so does bun (`runtime: bun` in manifest.yaml)"
    return ""


class Services(Protocol):
    """Host services, whatever dialect the asking guest speaks."""

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any]) -> Any:
        """Do it and give the result as JSON data; `Refused` says why not.

        Whoever is cancelled here ends what they asked for: the process of the guest is gone, or does not want it any more.
        """
        ...

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        """Have `deliver(topic, data)` called for what is published, in order, until what this gives back is called.

        It belongs to one process of the guest, whose adapter ends it: a reload must not mix two. `Refused` says why not.
        """
        ...


class NoServices:
    """Nobody is there to serve."""

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ARG002
        raise Refused(f"{group}.{what} is not to be had: this host runs without an app", who=guest)

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:  # noqa: ARG002
        raise Refused(f"{topic} is not to be had: this host runs without an app", who=guest)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """What guests are told of the host they are in."""

    cwd: str
    agent: str = ""
    provider: str = ""
    model: str = ""


class GuestListener(Protocol):
    """Who is told what a running guest does. Called from the loop, never concurrently; must not block or raise."""

    def on_change(self) -> None:
        """Its contributions are others now."""
        ...

    def on_action(self, action: Action) -> None:
        """It wants something shown or done."""
        ...

    def on_panel_render(self, panel: str, change: Callable[[Panel], Panel]) -> None:
        """It draws its panel anew, if that is the one that is open."""
        ...

    def on_panel_close(self, panel: str) -> None:
        """It closes its panel."""
        ...

    def on_end(self, cause: SeraiError) -> None:
        """It is gone, though nobody stopped it. Once, last."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """One start of one guest."""

    manifest: GuestManifest
    limits: HostLimits
    env: Mapping[str, str]
    spawner: Spawner
    deadlines: Deadlines
    log: GuestLog
    about: HostInfo
    services: Services
    listener: GuestListener
    tap: Callable[[int], Tap | None]  # by the process's number
    config: str  # the folder for its own settings, `<config>/extensions/<name>`; nobody makes it for it (spec piglet 1.1)
    greeted: Callable[[], None]  # to be called when its first word has come: others may start meanwhile
    environ: Mapping[str, str] = field(default_factory=dict)  # ours, which tells where Serai keeps its things; not for the guest
    memory: dict[str, Any] = field(default_factory=dict)  # what its adapter keeps from one life of this guest to the next

    @property
    def who(self) -> str:
        return self.manifest.id


class GuestConnection(Protocol):
    """A guest that is ready. Whatever it does wrong is a `SeraiError`; the host decides what that means."""

    @property
    def contributions(self) -> Contributions: ...

    @property
    def complaints(self) -> tuple[str, ...]:
        """What it offered and could not be taken, for a person to read."""
        ...

    @property
    def pid(self) -> int: ...

    async def idle(self) -> None:
        """Wait until no answer is waited for any more."""
        ...

    def call_tool(self, call: ToolCall) -> Awaitable[ToolResult]: ...

    async def run_command(self, name: str, args: str) -> Action: ...

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any, /) -> InterceptResult:
        """`subject` is a `ToolCall`, a step's number, a text, or a `(ToolCall, ToolResult)`, by stage."""
        ...

    def tell(self, event: Event) -> None:
        """Queue an event; never waits, never raises."""
        ...

    def press(self, panel: str, key: str, text: str = "") -> None:
        """A key for its open panel."""
        ...

    def resize(self, panel: str, width: int, height: int) -> None: ...

    def close_panel(self, panel: str) -> None:
        """Somebody else closed its panel."""
        ...

    async def stop(self) -> None:
        """Say goodbye and see to its end. Bounded, idempotent, never raises; `GuestListener.on_end` is not called."""
        ...


class SupportsTransform(Protocol):
    """A running guest that offers an input transformer."""

    async def transform(self, text: str) -> TransformResult: ...


class SupportsInject(Protocol):
    """A running guest that offers a message hook."""

    async def inject(self, text: str) -> str:
        """What it adds to the system prompt for this text; empty: nothing."""
        ...


class SupportsCompact(Protocol):
    """A running guest that offers a compactor."""

    async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]: ...


class SupportsShortcuts(Protocol):
    """A running guest that offers shortcuts."""

    async def run_shortcut(self, key: str) -> Action:
        """What it wants done for that key; carried out already, but for what only the caller can do (`Prompt`)."""
        ...


class SupportsStream(Protocol):
    """A running guest that offers a provider."""

    def stream(self, api: str, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        """As `ModelProvider.stream`; every failure is a `ModelFailed`."""
        ...


class ErrorText(Protocol):
    """A dialect's words for a guest's tool or command that failed."""

    def __call__(self, what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str: ...


class Adapter(NamedTuple):
    """How one dialect takes guests in, the limits it sets, and how it speaks of failures."""

    start: Callable[[StartContext], Awaitable[GuestConnection]]
    limits: Mapping[str, float | None]
    explain: ErrorText
    last_wins: bool = False  # of two guests in one place the later has the name that both want, as its protocol has it
    late_tools: bool = False  # a tool that is offered after the start counts at once, as its protocol has it
    free_names: bool = False  # a command's name is all up to the first blank, whatever that is (spec piglet 5.2)
    one_by_one: bool = False  # an agent's calls reach a guest one after the other, as its protocol has it
