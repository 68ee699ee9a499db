"""What a resident works with: its model, its tools, its rules. Everything but the conversation, which is the run's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serai.agents.joining import Compactor, Decide, Interceptors, NoInterceptors
from serai.agents.resident.prompting import PromptParts, system_prompt
from serai.agents.resident.toolset import ToolSet, is_compact
from serai.limits import Limits
from serai.model.provider import Model, ModelOptions, ModelProvider
from serai.model.tools import ToolCall

__all__ = ["House"]


@dataclass(slots=True, kw_only=True)
class House:
    """Shared by the turns of one session and its background runs. Whoever changes it is heard from the next step on."""

    model: Model
    provider: ModelProvider
    limits: Limits = field(default_factory=Limits)
    decide: Decide | None = None
    interceptors: Interceptors = field(default_factory=NoInterceptors)
    compactor: Compactor | None = None
    compact_at: Callable[[], int] = lambda: 0  # tokens at which the compactor is asked after a step; 0: never (spec piglet 5.8)
    parts: Callable[[], PromptParts] = PromptParts
    options: ModelOptions = field(default_factory=ModelOptions)
    step_mode: bool = False
    asker: str = "resident"  # whose its calls are
    leads_outside: Callable[[ToolCall], Sequence[str]] = lambda _call: ()  # the paths of a call that are not the agent's to go
    approved: dict[int, frozenset[str]] = field(default_factory=dict)  # those that a person allowed, by the very call (`id`)

    def system(self, tools: ToolSet, extra: str = "") -> str:
        compact = is_compact(self.model)
        return system_prompt(self.parts(), tools.offered(), tools.deferred(compact=compact), extra)
