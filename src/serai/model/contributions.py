"""What a guest offers, whatever its dialect calls it, and how an interceptor answers.

`Contributions` is what a guest has offered so far; the host compares, orders and registers it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from serai.model.tools import ToolSpec

InterceptPoint = Literal["tool_call", "tool_result", "turn_start", "assistant_message"]
OnFailure = Literal["open", "closed"]

EVERY_EVENT = frozenset({"*"})


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/name` for a person to type; `immediate` ones run while a turn does."""

    name: str
    description: str = ""
    immediate: bool = False


class Interceptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wants to be asked at these stages. Higher priority is asked first; `on_failure` says what no answer means (design rule 8)."""

    name: str
    stages: frozenset[InterceptPoint]
    priority: int = 0
    on_failure: OnFailure = "open"


class EventHandler(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wants to be told of these kinds of events, by the tags of `model.events`. Lower priority is told first."""

    name: str
    events: frozenset[str] = EVERY_EVENT
    priority: int = 0


class PromptSection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the system prompt, in ascending order; `tokens` is its author's guess, 0 for none."""

    title: str
    content: str
    order: int = 0
    tokens: int = 0


class Shortcut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key such as `ctrl+g`."""

    key: str
    description: str = ""


class MessageHook(msgspec.Struct, frozen=True, omit_defaults=True):
    """May add to the system prompt for one message. Lower priority first."""

    name: str
    priority: int = 0


class InputTransformer(msgspec.Struct, frozen=True, omit_defaults=True):
    """May change what a person typed, or take it. Lower priority first."""

    name: str
    priority: int = 0


class TransformResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a typed text; `handled`: it was taken, and nothing is left to do."""

    text: str
    handled: bool = False


class Compactor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Shortens a conversation; `threshold` tokens start it, 0 leaves that to the settings."""

    name: str
    threshold: int = 0


class Provider(msgspec.Struct, frozen=True):
    """Streams the models of this API."""

    api: str


class Service(msgspec.Struct, frozen=True, omit_defaults=True):
    """Runs on its own and may want things done (yoi)."""

    name: str
    description: str = ""


class Ingress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Takes events from outside that the host brings to it (yoi)."""

    name: str
    description: str = ""
    sources: tuple[str, ...] = ()


class Contributions(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that one guest offers, each kind in the order it was offered."""

    tools: tuple[ToolSpec, ...] = ()
    commands: tuple[Command, ...] = ()
    interceptors: tuple[Interceptor, ...] = ()
    event_handlers: tuple[EventHandler, ...] = ()
    prompt_sections: tuple[PromptSection, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    message_hooks: tuple[MessageHook, ...] = ()
    input_transformers: tuple[InputTransformer, ...] = ()
    compactors: tuple[Compactor, ...] = ()
    providers: tuple[Provider, ...] = ()
    services: tuple[Service, ...] = ()
    ingresses: tuple[Ingress, ...] = ()


class Pass(msgspec.Struct, frozen=True, tag="pass"):
    """Go on, unchanged."""


class Refuse(msgspec.Struct, frozen=True, omit_defaults=True, tag="refuse"):
    """Stop here. `reason` is for the model or the person; piglet's blocked calls are no errors to the model."""

    reason: str
    is_error: bool = True


class Rewrite(msgspec.Struct, frozen=True, tag="rewrite"):
    """Go on with this instead: arguments at `tool_call`, text at `assistant_message`, a `ToolResult` at `tool_result`."""

    value: Any


InterceptResult = Pass | Refuse | Rewrite
