"""What is asked of the guests of a house: tools, commands, shortcuts, models. The owner is looked up at the moment of the call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from serai.errors import ModelFailed, NoCommand, SeraiError
from serai.host.adapter import Streams
from serai.host.commands import Typed, parse
from serai.host.house import House
from serai.host.judging import Gate, Judge, invalid
from serai.host.registry import Registry
from serai.model.actions import Action, CommandResult, NoAction
from serai.model.contributions import Command, InterceptPoint, Refuse, Rewrite, Shortcut
from serai.model.provider import Chunk, Completion, Model, ModelProvider, ModelRequest
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec

__all__ = ["Asking", "BuiltInCommand", "GuestProvider"]

BuiltInCommand = Callable[[str], Awaitable[Action | None]]


class Asking:
    """The half of a host that is asked; `Host` is the other one, which takes guests in."""

    _registry: Registry
    _judge: Judge
    _built_in_commands: Mapping[str, BuiltInCommand]

    @property
    @abstractmethod
    def house(self) -> House: ...

    @abstractmethod
    def _why_shut(self) -> str:
        """Why nobody is to be asked at all, or ""."""

    # -- tools ------------------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._registry.table.tools.values()]

    def list(self) -> Sequence[ToolSpec]:
        """The `ToolBox` protocol."""
        return self.tools

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        """The `ToolBox` protocol."""
        return await self.call_tool(call, tell=tell)

    async def call_tool(
        self, call: ToolCall | str, arguments: Any = None, *, gate: Gate | None = None, tell: ProgressCallback | None = None
    ) -> ToolResult:
        """Interceptors, then `gate` on the final call if there is one, then the owner. Never raises for what a guest does wrong."""
        if type(call) is not ToolCall:
            assert isinstance(call, str)
            call = ToolCall(call, {} if arguments is None else arguments)
        table = self._registry.made or self._registry.table
        if call.name not in table.tools:
            return self._no_tool(call.name)
        if not table.plain or gate is not None:
            decided = await self._judge.decide(call, gate)
            if isinstance(decided, ToolResult):
                return decided
            call = decided
        return await self.run_tool(call, tell=tell)

    async def run_tool(
        self, call: ToolCall, *, tell: ProgressCallback | None = None, leave: Callable[[], None] | None = None
    ) -> ToolResult:
        """The owner, then the interceptors of results: for a call that was decided elsewhere (`serai.app.pipeline`).

        A tool that did not run to an answer has no result to look at (spec piglet 5.3). `leave` is called before others look at
        it: the owner is done.
        """
        table = self._registry.made or self._registry.table
        tool = table.tools.get(call.name)
        if tool is None:
            return self._no_tool(call.name)
        if problem := tool.check(call.arguments):
            return invalid(call, problem)
        plain = table.plain or tool.owner.down
        try:
            result = await (tool.run(call) if tell is None else tool.watched(call, tell))
        except SeraiError as error:
            return tool.owner.failed(call, error)
        if plain:
            return result
        if leave is not None:
            leave()
        return await self._judge.after(call, result)

    def _no_tool(self, name: str) -> ToolResult:
        if why := self._why_shut():
            return ToolResult.error(f"{name} is not available: the host is {why}", code="TOOL_UNAVAILABLE")
        return ToolResult.error(f'unknown tool "{name}"', code="UNKNOWN_TOOL")

    # -- who may say no -----------------------------------------------------------------------------------------------------------

    async def intercept(self, stage: InterceptPoint, subject: Any) -> Refuse | Rewrite | None:
        """What the interceptors of a stage make of this: for whoever runs a model. None: they let it pass unchanged."""
        return await self._judge.intercept(stage, subject)

    def guards_down(self) -> str:
        """Why nothing may run, or ""."""
        return self._judge.guards_down()

    def not_guarded(self) -> str:
        """The same, and a guard that was ready and will be back: why nothing may begin."""
        return self._judge.down()

    def require_guards(self) -> None:
        """Raises `GuardDown` unless every guard is ready: a run does not start before (design rule 8)."""
        self._judge.require_guards()

    # -- commands and shortcuts ---------------------------------------------------------------------------------------------------

    @property
    def commands(self) -> Sequence[Command]:
        """What guests offer for a person to type, beside Serai's own."""
        return [command for _, command in self._registry.table.commands.values()]

    async def run_command(self, name: str, args: str = "") -> CommandResult:
        """Serai's own first, then guests'. What it wants shown is shown; what it wants done is the caller's to do."""
        name = name.removeprefix("/")
        if built_in := self._built_in_commands.get(name):
            outcome = CommandResult(await built_in(args) or NoAction())
            self.house.act(outcome.action)
            return outcome
        owner = self._registry.table.commands.get(name)
        if owner is None:
            raise NoCommand(f"unknown command /{name}")
        if down := self._judge.down():
            return CommandResult(NoAction(), f"/{name} refused: {down}", "BLOCKED")
        return await owner[0].run_command(name, args.strip())

    def parse(self, text: str) -> Typed | None:
        """The command that a person typed, whether or not somebody has it; None when it is for the model."""

        def known(name: str) -> bool:
            owner = self._registry.table.commands.get(name)
            return owner is not None and self.house.adapter(owner[0].manifest).free_names

        return parse(text, known)

    async def typed(self, text: str) -> CommandResult | None:
        """What a person typed: run as a command, or None when it is for the model."""
        typed = self.parse(text)
        return None if typed is None else await self.run_command(*typed)

    @property
    def shortcuts(self) -> Sequence[Shortcut]:
        """The keys that guests want to be told of."""
        return [shortcut for _, shortcut in self._registry.table.shortcuts.values()]

    async def run_shortcut(self, key: str) -> CommandResult:
        """A key such as `ctrl+g` was pressed. What goes wrong is told as a notice too: nobody waits for a key (spec piglet 5.5)."""
        owner = self._registry.table.shortcuts.get(key)
        if owner is None:
            raise NoCommand(f"no guest has the shortcut {key}")
        if down := self._judge.down():
            refused = f"shortcut {key} refused: {down}"
            self.house.notify("error", refused)
            return CommandResult(NoAction(), refused, "BLOCKED")
        return await owner[0].handle(key)

    # -- models -----------------------------------------------------------------------------------------------------------------

    def provider(self, api: str) -> ModelProvider | None:
        """Who streams the models of this API, if a guest does (spec piglet 5.9)."""
        return GuestProvider(api, self._registry) if api in self._registry.table.providers else None


class GuestProvider:
    """The guest that streams the models of an API, whichever process of whichever guest that is when it is asked."""

    def __init__(self, api: str, registry: Registry) -> None:
        self.api = api
        self._registry = registry

    async def models(self) -> Sequence[Model]:
        """None of its own: it serves those of the catalogue."""
        return ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        guest = self._registry.table.providers.get(self.api)
        if guest is None:
            raise ModelFailed(f"no guest streams models of the API {self.api} any more", hint="choose another model")
        if guest.running is None:
            hint = "it is started again by itself; or choose another model"
            raise ModelFailed(guest.why_down(), who=guest.id, temporary=True, hint=hint)
        answer = cast("Streams", guest.running).stream(self.api, request)
        async with aclosing(cast("AsyncGenerator[Chunk | Completion, None]", answer)) as pieces:
            async for piece in pieces:
                yield piece
