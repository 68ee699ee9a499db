"""Services about the agent (spec piglet 7.1, 7.2): steering the run, its conversation, and background work.

`ControlService` says something to the agent, stops it or compacts its conversation. `ConversationService` reads and replaces the
conversation in memory; the session on disk stays. `BackgroundService` begins work on the side (spec piglet 6.7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from serai.agents.resident import conversation
from serai.agents.resident.driver import BackgroundRuns, Resident
from serai.agents.resident.run_context import is_small_model
from serai.agents.session import Session
from serai.app.services.router import Data, NoArguments, Operation
from serai.app.services.tool_services import dump_spec
from serai.errors import BadRequest, NotCapable, TurnInFlight
from serai.model.actions import Action, SetStatus
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock
from serai.store import entries
from serai.store.messages import StoredMessage, decode_message, encode, from_model_message, sum_usage, to_model_message
from serai.wire import codec


class BackgroundArgs(msgspec.Struct, frozen=True):
    prompt: str


class BackgroundService:
    """`backgrounds` are the agent's; `show` tells the person what runs, as status `bg`. `ready` raises while a guard is down."""

    def __init__(
        self,
        backgrounds: Callable[[], BackgroundRuns],
        show: Callable[[Action], None],
        *,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._backgrounds = backgrounds
        self._show = show
        self._ready = ready
        self._watching: set[asyncio.Task[str]] = set()
        self.operations: Mapping[str, Operation[Any]] = {
            "start": Operation(BackgroundArgs, self.start),
            "cancel": Operation(NoArguments, self.cancel),
            "running": Operation(NoArguments, self.running),
        }

    async def start(self, guest: str, wanted: BackgroundArgs) -> Data:
        """Begin it; its answer is told to the person at its end."""
        if not wanted.prompt.strip():
            raise BadRequest("start: the prompt is empty", who=guest)
        self._ready()
        backgrounds = self._backgrounds()
        key = backgrounds.start(wanted.prompt)
        self._show(SetStatus("bg", f"bg: {key}"))
        task = asyncio.get_running_loop().create_task(backgrounds.result(key), name=f"watch {key}")
        self._watching.add(task)
        task.add_done_callback(lambda task: self._finish(task, backgrounds))
        return {"key": key}

    async def cancel(self, _guest: str, _arguments: NoArguments) -> Data:
        """All of it."""
        await self._backgrounds().cancel()
        return {}

    async def running(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"running": bool(self._backgrounds().running)}

    def _finish(self, task: asyncio.Task[str], backgrounds: BackgroundRuns) -> None:
        self._watching.discard(task)
        if not task.cancelled():
            task.exception()  # it is told by whoever runs it
        left = backgrounds.running
        self._show(SetStatus("bg", f"bg: {left[-1]}" if left else ""))


class AbortArgs(Protocol):
    """Ends the turn that runs; `mark`: the conversation says so, also when none runs."""

    def __call__(self, reason: str, *, mark: bool) -> Awaitable[object]: ...


class ContentArgs(msgspec.Struct, frozen=True):
    content: str


class ReasonArgs(msgspec.Struct, frozen=True):
    reason: str = ""


class DeliveryArgs(msgspec.Struct, frozen=True):
    registered: bool = False  # by the compactor of a guest alone: Serai's own summary is not wanted


class ControlService:
    """`queue` takes a text as if a person had typed it, `steer` one for the turn that runs; `idle` waits until all is done.

    `running` is what that guest does for the run: calls of its tools, judgements; `registered`: a guest offers a compactor.
    """

    def __init__(
        self,
        session: Session,
        resident: Callable[[], Resident],
        *,
        queue: Callable[[str], object],
        steer: Callable[[str], object],
        idle: Callable[[str], Awaitable[object]],
        running: Callable[[str], frozenset[object]] = lambda _guest: frozenset(),
        patience: float = 5.0,
        registered: Callable[[], bool] = lambda: False,
        abort: AbortArgs,
        quit: Callable[[], object],
    ) -> None:
        self._session = session
        self._resident = resident
        self._queue = queue
        self._steer = steer
        self._idle = idle
        self._running = running
        self._patience = patience  # seconds
        self._registered = registered
        self._abort = abort
        self._quit = quit
        self.operations: Mapping[str, Operation[Any]] = {
            "wait_idle": Operation(NoArguments, self.wait_idle),
            "step_mode": Operation(NoArguments, self.step_mode),
            "quit": Operation(NoArguments, self.quit),
            "abort": Operation(NoArguments, self.abort),
            "abort_with_marker": Operation(ReasonArgs, self.abort_with_marker),
            "has_compactor": Operation(NoArguments, self.has_compactor),
            "compact": Operation(DeliveryArgs, self.compact),
            "send": Operation(ContentArgs, self.send),
            "steer": Operation(ContentArgs, self.steer),
        }

    async def wait_idle(self, guest: str, _arguments: NoArguments) -> Data:
        """Until nothing runs or waits, also on the side; before the first turn that is at once (FIX-27).

        A tool may want to know when its run is over, and end meanwhile. One that goes on waits for itself, as does one that judges,
        and is told so.
        """
        before = self._running(guest)
        idle = asyncio.ensure_future(self._idle(guest))
        try:
            await asyncio.wait([idle], timeout=self._patience if before else None)
            if not idle.done() and before & self._running(guest):
                raise TurnInFlight("it still works for the turn itself, and would wait for its own end", who=guest)
            await idle
        finally:
            idle.cancel()
        return {}

    async def step_mode(self, _guest: str, _arguments: NoArguments) -> Data:
        """Have the person asked before every call, or no longer; which of the two it is now."""
        runtime = self._resident().context
        runtime.step_mode = not runtime.step_mode
        return {"on": runtime.step_mode}

    async def quit(self, _guest: str, _arguments: NoArguments) -> Data:
        """Have the run ended, once nothing works on the side any more (spec piglet 7.1)."""
        with suppress(NotCapable):
            await self._resident().backgrounds.cancel()
        self._quit()
        return {}

    async def abort(self, _guest: str, _arguments: NoArguments) -> Data:
        """End the turn that runs, if one does."""
        await self._abort("", mark=False)
        return {}

    async def abort_with_marker(self, guest: str, wanted: ReasonArgs) -> Data:
        """The same, and the model finds `[Request interrupted: …]` where it was, in memory and on disk (FIX-33)."""
        await self._abort(wanted.reason or f"by {guest}", mark=True)
        return {}

    async def has_compactor(self, _guest: str, _arguments: NoArguments) -> Data:
        """`present`: whether `compact` can do something; the resident has a summary of its own. `registered`: a guest has one."""
        return {"present": self._session.capabilities.compact, "registered": self._registered()}

    async def compact(self, guest: str, wanted: DeliveryArgs) -> Data:
        """Shorten the conversation now, on disk too (FIX-30); how many messages it was, and is."""
        if wanted.registered:
            if not self._registered():
                raise NotCapable("no compactor registered", who=guest, hint="a guest offers one with register/compactor")
            return (await self._resident().compaction.compact())._asdict()
        before = self._count_messages()
        await self._session.compact()
        return {"before": before, "after": self._count_messages()}

    async def send(self, guest: str, wanted: ContentArgs) -> Data:
        self._queue(_check_content(wanted, "send", guest))
        return {}

    async def steer(self, guest: str, wanted: ContentArgs) -> Data:
        self._steer(_check_content(wanted, "steer", guest))
        return {}

    def _count_messages(self) -> int:
        try:
            return len(self._resident().conversation.messages)
        except NotCapable:  # a driven agent's conversation is its own
            return 0


def _check_content(wanted: ContentArgs, what: str, guest: str) -> str:
    if not wanted.content.strip():
        raise BadRequest(f"{what}: the content is empty", who=guest)
    return wanted.content


_TYPES = ("user", "assistant", "tool_result")


class Tagged(msgspec.Struct, frozen=True):
    """A message as an entry of a session has it."""

    type: str
    data: Any = None


class ReplacementArgs(msgspec.Struct, frozen=True):
    messages: list[Tagged] | None = None


class ConversationService:
    """`resident` is the agent; `idle` raises while anything works on its conversation."""

    def __init__(self, resident: Callable[[], Resident], idle: Callable[[], None]) -> None:
        self._resident = resident
        self._must_be_idle = idle
        self.operations: Mapping[str, Operation[Any]] = {
            "messages": Operation(NoArguments, self.messages),
            "set": Operation(ReplacementArgs, self.set),
            "snapshot": Operation(NoArguments, self.snapshot),
            "last_text": Operation(NoArguments, self.last_text),
            "stats": Operation(NoArguments, self.stats),
        }

    async def messages(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"messages": dump_messages(self._resident().conversation.messages)}

    async def set(self, guest: str, wanted: ReplacementArgs) -> Data:
        """In memory alone. None clears it; what is no message is left out, what is a broken one is an error."""
        resident = self._resident()
        self._must_be_idle()
        said = list(_decode_messages(wanted.messages or (), guest))
        resident.conversation.replace(conversation.repair_messages(map(to_model_message, said)), sum_usage(said))
        return {}

    async def snapshot(self, _guest: str, _arguments: NoArguments) -> Data:
        """What the model would be told by the next call."""
        resident = self._resident()
        runtime, tools = resident.context, resident.tools
        said = conversation.cap_messages(resident.conversation.messages, runtime.limits.history)
        told = tools.list_specs(compact=is_small_model(runtime.model))
        return {"system": runtime.build_prompt(tools), "messages": dump_messages(said), "tools": [dump_spec(tool) for tool in told]}

    async def last_text(self, _guest: str, _arguments: NoArguments) -> Data:
        """The first text of the newest answer that has one."""
        texts = (
            block.text
            for message in reversed(self._resident().conversation.messages)
            if message.role == "assistant"
            for block in message.content
            if isinstance(block, TextBlock) and block.text
        )
        return {"text": next(texts, "")}

    async def stats(self, _guest: str, _arguments: NoArguments) -> Data:
        resident = self._resident()
        usage = resident.conversation.sum_usage()  # of the answers in memory, not of what was compacted away (spec piglet 7.1)
        return {
            "turn_count": sum(message.role == "assistant" for message in resident.conversation.messages),
            "total_input_tokens": usage.input,
            "total_output_tokens": usage.output,
            "total_cache_read_tokens": usage.cache_read,
            "total_cache_write_tokens": usage.cache_write,
            "total_cost": usage.cost_usd or 0.0,
            "model": resident.context.model.key,
        }


def dump_messages(said: Sequence[ModelMessage]) -> list[Any]:
    """As spec piglet 6.2 has them, each with its `role` and the `type` of its parts (FIX-21)."""
    names = {call.id: call.name for message in said for call in message.calls}
    kept = (from_model_message(message, tool=names.get(message.call_id, ""), timestamp=entries.ZERO) for message in said)
    return [msgspec.json.decode(encode(message, tagged=False)) for message in kept]


def _decode_messages(tagged: Iterable[Tagged], guest: str) -> Iterable[StoredMessage]:
    for place, message in enumerate(tagged):
        if message.type in _TYPES:
            try:
                yield decode_message(message.type, Raw(codec.encode(message.data)))
            except (*codec.BAD_INPUT, TypeError) as error:
                raise BadRequest(f"conversation.set: messages[{place}] is no message: {error}", who=guest) from None
