"""What a run of the resident works with: its model, its tools, its rules. Everything but the conversation, which is the run's.

`build_system_prompt` has the parts of the prompt in the order of spec piglet 6.9. `ToolSet` says which tools a model is offered and
with how much detail (spec piglet 6.6); tools are looked up by name at every call, so that a guest that was restarted is reached and
one that is down answers for itself (FIX-23). `RunOutput` is what a run may report and ask; it is shut when the run is over, and
what comes later is dropped (FIX-22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from serai.agents.driver import Compactor, DecideCall, Interceptors, NoInterceptors
from serai.agents.event_hub import EventHub
from serai.agents.models.providers import is_local
from serai.limits import AgentLimits
from serai.model.approvals import Approval, Decision, Deny
from serai.model.contributions import PromptSection
from serai.model.events import Event
from serai.model.provider import Model, ModelMessage, ModelOptions, ModelProvider
from serai.model.tools import ToolBox, ToolCall, ToolSpec

# When a person has written none.
DEFAULT = """\
You are an assistant who works on a person's machine with the tools you are given. Work step by step: look before you change \
something, use the tools instead of guessing, and say at the end in a few sentences what you did and what you found. When a tool \
fails, read what it says and do something about it. When a call is denied, do not try to get the same thing in another way: say \
what you would have needed it for."""


class PromptParts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person and the guests have to say. `base` is the text of `prompt.md` or of the settings."""

    base: str = DEFAULT
    sections: tuple[PromptSection, ...] = ()
    order: Mapping[str, int] = msgspec.field(default_factory=dict)  # by title, over the sections' own
    guidelines: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # by tool, beside its hint


def build_system_prompt(parts: PromptParts, tools: Iterable[ToolSpec], deferred: Iterable[ToolSpec] = (), extra: str = "") -> str:
    """All of it. `deferred` are the tools that the model is told of by name only; `extra` is for this turn alone."""
    sections = sorted(parts.sections, key=lambda section: parts.order.get(section.title, section.order))
    texts = [parts.base.strip()] + [f"# {section.title}\n\n{section.content.strip()}" for section in sections]
    notes = [_note(tool, parts) for tool in sorted(tools, key=lambda tool: tool.name) if tool.hint or tool.name in parts.guidelines]
    if notes:
        texts.append("\n\n".join(["# Tool Usage Notes", *notes]))
    listed = [f"- **{tool.name}**: {tool.description}" for tool in sorted(deferred, key=lambda tool: tool.name)]
    if listed:
        texts.append("\n".join(["# Available Tools", "", *listed]))
    return "\n\n".join(text for text in [*texts, extra.strip()] if text)


def _note(tool: ToolSpec, parts: PromptParts) -> str:
    head = f"## {tool.name} — {tool.hint}" if tool.hint else f"## {tool.name}"
    bullets = [f"- {line}" for line in parts.guidelines.get(tool.name, ())]
    return "\n".join([head, "", *bullets]) if bullets else head


class RunOutput:
    """What a run may say and ask. Without a hub nobody hears it, and nobody is there to approve anything."""

    def __init__(self, hub: EventHub | None = None) -> None:
        self._hub = hub
        self._requests = 0
        self._stopped = False

    def stop(self) -> None:
        """Nothing new is begun; how it ends is still told."""
        self._stopped = True

    def shut(self) -> None:
        """Nothing is told any more."""
        self._stopped = True
        self._hub = None

    def raise_if_stopped(self) -> None:
        """Before something is begun. Some swallow their cancellation: then this is it."""
        if self._stopped:
            raise asyncio.CancelledError

    def emit(self, event: Event) -> None:
        if self._hub is not None:
            self._hub.emit(event)

    async def ask(self, approval: Approval) -> Decision:
        return Deny("nobody is there to approve it") if self._hub is None else await self._hub.ask(approval)

    def new_id(self, kind: str) -> str:
        self._requests += 1
        return f"{kind}-{self._requests}" if self._hub is None else self._hub.new_id(kind)

    @property
    def crowded(self) -> bool:
        """Whoever reads the turn is far behind."""
        return self._hub is not None and self._hub.turn is not None and self._hub.turn.crowded

    async def wait_for_room(self) -> None:
        """Wait until they have caught up."""
        if self._hub is not None:
            await self._hub.wait_for_room()
        await asyncio.sleep(0)

    def report_answer(self, message: ModelMessage, model: str) -> None:
        """All that the model said, for who keeps the conversation: what is shown of it may be less."""
        if self._hub is not None:
            self._hub.report_answer(message, model)

    def report_compaction(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        if self._hub is not None:
            self._hub.report_compaction(messages, tokens)


_BARE: dict[str, object] = {"type": "object"}


class ToolSet:
    """The agent's view of a tool box. The filter is about the agent alone: whoever else uses the box does not see it."""

    def __init__(self, box: ToolBox, *, only: Collection[str] | None = None, background: bool = False) -> None:
        """`background`: only what may run for a background agent."""
        self.box = box
        self._background = background
        self._only = None if only is None else frozenset(only)
        self._activated: set[str] = set()

    @property
    def filter(self) -> frozenset[str] | None:
        return self._only

    def restrict(self, names: Collection[str] | None) -> None:
        """Offer these alone, until somebody says otherwise or another session is loaded; None ends it (FIX-24)."""
        self._only = None if names is None else frozenset(names)

    def copy_from(self, other: ToolSet) -> None:
        """With its filter, and what was activated there."""
        self._only = other._only
        self._activated = set(other._activated)

    def activate(self, name: str) -> None:
        """Tell the model all about a deferred tool from now on."""
        self._activated.add(name)

    def list_offered(self) -> list[ToolSpec]:
        """Sorted by name."""
        return sorted((tool for tool in self.box.list() if self._fits(tool)), key=lambda tool: tool.name)

    def list_deferred(self, *, compact: bool) -> list[ToolSpec]:
        """Those that the model is told of by name only: never, unless it is a small one (compact mode)."""
        return [tool for tool in self.list_offered() if compact and self._is_deferred(tool)]

    def list_specs(self, *, compact: bool) -> tuple[ToolSpec, ...]:
        """As the model is told of them."""
        return tuple(self._to_spec(tool, compact) for tool in self.list_offered())

    def _to_spec(self, tool: ToolSpec, compact: bool) -> ToolSpec:
        if not tool.deferred:
            return tool
        if compact and self._is_deferred(tool):
            return msgspec.structs.replace(tool, schema=_BARE)
        return msgspec.structs.replace(tool, deferred=False)  # it is told in full

    def find(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.box.list() if tool.name == name and self._fits(tool)), None)

    def _fits(self, tool: ToolSpec) -> bool:
        return (self._only is None or tool.name in self._only) and (tool.background or not self._background)

    def _is_deferred(self, tool: ToolSpec) -> bool:
        return tool.deferred and tool.name not in self._activated


def is_small_model(model: Model) -> bool:
    """Whether this machine serves it: such models are small, and are told less (compact mode)."""
    return bool(model.base_url) and is_local(model.base_url)


@dataclass(slots=True, kw_only=True)
class RunContext:
    """Shared by the turns of one session and its background runs. Whoever changes it is heard from the next step on."""

    model: Model
    provider: ModelProvider
    limits: AgentLimits = field(default_factory=AgentLimits)
    decide: DecideCall | None = None
    interceptors: Interceptors = field(default_factory=NoInterceptors)
    compactor: Compactor | None = None
    compact_at: Callable[[], int] = lambda: 0  # tokens at which the compactor is asked after a step; 0: never (spec piglet 5.8)
    parts: Callable[[], PromptParts] = PromptParts
    options: ModelOptions = field(default_factory=ModelOptions)
    step_mode: bool = False
    asker: str = "resident"  # whose its calls are
    leads_outside: Callable[[ToolCall], Sequence[str]] = lambda _call: ()  # the paths of a call that are not the agent's to go
    approved: dict[int, frozenset[str]] = field(default_factory=dict)  # those that a person allowed, by the very call (`id`)

    def build_prompt(self, tools: ToolSet, extra: str = "") -> str:
        compact = is_small_model(self.model)
        return build_system_prompt(self.parts(), tools.list_offered(), tools.list_deferred(compact=compact), extra)
