"""What an agent gets of the guests: the tools, and the interceptors that may hold back its messages."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Self

import msgspec

from serai.agents.event_hub import ignore_outcome
from serai.app.pipeline import CallDecision, Pipeline, copy_call
from serai.host.contribution_table import BuiltInOwner, RegisteredTool
from serai.host.host import Host
from serai.model.approvals import Allow, Deny
from serai.model.contributions import Refuse, Rewrite
from serai.model.events import Message
from serai.model.tools import Block, ProgressCallback, TextBlock, ToolBox, ToolCall, ToolResult, ToolSpec

log = logging.getLogger("serai.app")

# The default of spec zot 4.4 is in the dialect; this one is for whoever else gives no reason.
_BLOCKED = "the turn was blocked"
_PASSES = 1000  # of calls that were decided and have not run; beyond it the oldest is decided again


class AgentTools:
    """The app's tools as an agent gets them. Every call is decided exactly once: before it, by `decide`, or in it.

    A decision is for the arguments that came with it (the object, not its value), and is used up by the call. What runs is a copy
    that nobody else holds.
    """

    def __init__(self, host: Callable[[], Host], pipeline: Callable[[], Pipeline]) -> None:
        self._host = host
        self._pipeline = pipeline
        self._passes: OrderedDict[int, tuple[object, CallDecision]] = OrderedDict()
        self._running: dict[int, CallDecision] = {}
        self._let_finish: set[asyncio.Future[Any]] = set()
        self._turns: dict[str, asyncio.Lock | None] = {}  # by guest; its dialect is part of its id

    def list(self) -> Sequence[ToolSpec]:
        return self._host().tools

    async def decide(self, call: ToolCall) -> Allow | Deny | ToolResult:
        """For an agent that wants to know before it says that a tool has started (`RunContext.decide`)."""
        decided = await self._pipeline().decide(call)
        if not decided.allowed:
            return decided.decision if decided.instead is None else decided.instead
        shown = copy_call(decided.call).arguments
        self._passes[id(shown)] = (shown, decided)  # it holds the arguments, so nothing else gets their id
        if len(self._passes) > _PASSES:
            self._passes.popitem(last=False)
        return msgspec.structs.replace(decided.decision, arguments=shown)

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        _, decided = self._passes.pop(id(call.arguments), (None, None))
        if decided is None or decided.call.name != call.name:
            decided = await self._pipeline().decide(call)
        if not decided.allowed:
            return decided.to_result()
        return await self._run(decided, tell)

    async def _run(self, decided: CallDecision, tell: ProgressCallback | None) -> ToolResult:
        lock = self._get_lock(decided.owner)
        if lock is not None and lock.locked() and decided.call.asker == decided.owner:
            why = f"{decided.call.name} would wait for itself: {decided.owner} answers one call after the other"
            return ToolResult.error(why, code="BUSY")
        async with _CallSlot(lock) as turn:
            host, call = self._host(), decided.call
            tool = host.table.tools.get(call.name)
            owner = "" if tool is None or isinstance(tool.owner, BuiltInOwner) else tool.owner.id
            if tool is not None and owner != decided.owner:  # a yes to one guest is none to another
                why = f"{call.name} belongs to {owner or 'serai'} by now, and was decided as that of {decided.owner or 'serai'}"
                return ToolResult.error(why, code="TOOL_UNAVAILABLE", hint="call it again")
            working = self._run_tool(host, decided, tell, turn)
            return await (self._run_shielded(working) if owner and tool is not None and tool.spec.interrupt == "block" else working)

    async def _run_tool(self, host: Host, decided: CallDecision, tell: ProgressCallback | None, turn: _CallSlot) -> ToolResult:
        self._running[number := id(decided.call.arguments)] = decided

        def leave() -> None:
            """Who looks at the result may call a tool of the same guest for that."""
            self._running.pop(number, None)
            turn.release()

        try:
            return await host.run_tool(decided.call, tell=tell, leave=leave)
        finally:
            if self._running.get(number) is decided:
                del self._running[number]

    async def _run_shielded(self, working: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """A guest's tool that blocks is not told that nobody waits for it any more (spec piglet 2.6); its result is dropped then.

        Serai's own know what they may still leave undone, and are told.
        """
        task = asyncio.ensure_future(working)
        self._let_finish.add(task)
        task.add_done_callback(self._let_finish.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(ignore_outcome)
            raise

    def _get_lock(self, owner: str) -> asyncio.Lock | None:
        """A guest whose protocol has one call after the other gets them so, however many an agent makes at once (spec zot 4.1)."""
        if owner not in self._turns:
            guest = self._host().guests.get(owner)
            one_by_one = guest is not None and guest.context.get_adapter(guest.manifest).one_by_one
            self._turns[owner] = asyncio.Lock() if one_by_one else None
        return self._turns[owner]

    def find_running(self, guest: str) -> frozenset[int]:
        """The calls of this guest's tools that run right now, by numbers that are theirs alone as long as they do."""
        return frozenset(number for number, decided in self._running.items() if decided.owner == guest)

    def is_nested(self, guest: str) -> bool:
        """Whether a tool of this guest runs because a guest wants it."""
        return any(decided.owner == guest and ":" in decided.call.asker for decided in self._running.values())

    def may_reach(self, call: ToolCall, path: str) -> bool:
        """Whether this very call was allowed to lead to this real path outside the working directory."""
        decided = self._running.get(id(call.arguments))
        return decided is not None and path in decided.outside


class _CallSlot:
    """A guest's turn at a call, where it takes one after the other; given back at the end, or before."""

    __slots__ = ("_lock",)

    def __init__(self, lock: asyncio.Lock | None) -> None:
        self._lock = lock

    async def __aenter__(self) -> Self:
        if self._lock is not None:
            await self._lock.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class GuestInterceptors:
    """Those guests that may hold back a step, or what the model says (spec zot 4.4)."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host

    @property
    def hold_text(self) -> bool:
        host = self._host()
        return bool(host.table.chains["assistant_message"]) or bool(host.guards_down())

    async def before_step(self, step: int) -> str:
        verdict = await self._host().intercept("turn_start", step)
        return (verdict.reason or _BLOCKED) if isinstance(verdict, Refuse) else ""

    async def filter_message(self, message: Message) -> Message | None:
        verdict = await self._host().intercept("assistant_message", message.text)
        if isinstance(verdict, Refuse):
            return None
        if isinstance(verdict, Rewrite):
            return msgspec.structs.replace(message, content=_replace_text(message.content, verdict.value))
        return message


def _replace_text(content: tuple[Block, ...], text: str) -> tuple[Block, ...]:
    """One text block in the place of the first; what is no text stays."""
    first = next(place for place, block in enumerate(content) if isinstance(block, TextBlock))
    after = (block for block in content[first:] if not isinstance(block, TextBlock))
    return (*content[:first], TextBlock(text), *after)


class GuestTools:
    """Of the app's tools those that guests brought: what an agent with tools of its own is offered."""

    def __init__(self, tools: ToolBox, host: Callable[[], Host], *, only: Collection[str] | None = None) -> None:
        """`only`: these, if they are there."""
        self._tools = tools
        self._host = host
        self._only = only

    def list(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._host().table.tools.values() if self._is_offered(tool)]

    def _is_offered(self, tool: RegisteredTool) -> bool:
        return not isinstance(tool.owner, BuiltInOwner) and (self._only is None or tool.spec.name in self._only)

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        tool = self._host().table.tools.get(call.name)
        if tool is None or not self._is_offered(tool):
            return ToolResult.error(f"no guest has a tool {call.name}", code="TOOL_UNAVAILABLE", hint="use a tool of your own")
        return await self._tools.call(call, tell=tell)
