"""What goes over a piglet wire, under the seed's names: the life cycle, registrations, calls to a guest, notifications of a guest.

The parameters and results of `host/*` are in `service_messages`; `methods` says which method carries what. A field that is always
written has no default, or one that is written all the same (`always_written`); the others are left out when they have theirs. Every
struct refuses unknown members, because `wire.codec.FoldingDecoder` needs to know of them: a key in another case is folded, and what
is unknown then is dropped (spec piglet FIX-4).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

PROTOCOL_VERSION = "5"

_NULL = Raw(b"null")


def always_written(value: Any) -> Any:
    """A default that is written all the same."""
    return msgspec.field(default_factory=lambda: value)


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """An object that the protocol defines."""


# -- the life cycle (spec piglet 3, 5.10)


class InitializeParams(Wire, frozen=True):
    protocol_version: str = always_written("")
    cwd: str = always_written("")
    config_dir: str = ""


class InitializeResult(Wire, frozen=True):
    name: str = always_written("")
    version: str = always_written("")


class ShutdownParams(Wire, frozen=True):
    """Nothing."""


class CancelParams(Wire, frozen=True):
    """The id as it came: an integer, though a guest of ours may have sent a string (spec piglet 2.3)."""

    id: Raw


# -- registrations (spec piglet 4)


class RegisterToolParams(Wire, frozen=True):
    name: str = always_written("")
    description: str = always_written("")
    parameters: Any = always_written(None)
    prompt_hint: str = ""
    deferred: bool = False
    interrupt_behavior: str = ""


class RegisterCommandParams(Wire, frozen=True):
    name: str = always_written("")
    description: str = always_written("")
    immediate: bool = False


class RegisterPromptSectionParams(Wire, frozen=True):
    title: str = always_written("")
    content: str = always_written("")
    order: int = 0
    token_hint: int = 0


class RegisterInterceptorParams(Wire, frozen=True):
    name: str = always_written("")
    priority: int = 0


class RegisterEventHandlerParams(Wire, frozen=True):
    name: str = always_written("")
    priority: int = 0
    events: list[str] | None = None  # null and empty: all (spec piglet 10.15)


class RegisterShortcutParams(Wire, frozen=True):
    key: str = always_written("")
    description: str = always_written("")


class RegisterMessageHookParams(Wire, frozen=True):
    name: str = always_written("")
    priority: int = 0


class RegisterInputTransformerParams(Wire, frozen=True):
    name: str = always_written("")
    priority: int = 0


class RegisterCompactorParams(Wire, frozen=True):
    name: str = always_written("")
    threshold: int = 0


class RegisterProviderParams(Wire, frozen=True):
    api: str = always_written("")


# -- what the host asks of a guest (spec piglet 5)


class ContentBlock(Wire, frozen=True):
    """`text`, or an image: `data` in base64 with its `mime`."""

    type: str = always_written("")
    text: str = ""
    data: str = ""
    mime: str = ""


class ToolExecuteParams(Wire, frozen=True):
    call_id: str = always_written("")
    name: str = always_written("")
    args: Any = always_written(None)


class ToolExecuteResult(Wire, frozen=True):
    content: list[ContentBlock] | None = always_written(None)
    is_error: bool = False
    error_code: str = ""
    error_hint: str = ""


class CommandExecuteParams(Wire, frozen=True):
    name: str = always_written("")
    args: str = always_written("")


class CommandExecuteResult(Wire, frozen=True):
    """Nothing."""


class InterceptorBeforeParams(Wire, frozen=True):
    name: str = always_written("")
    tool_name: str = always_written("")
    args: Any = always_written(None)


class InterceptorBeforeResult(Wire, frozen=True):
    """Absent, `allow` is false (spec piglet 10.2)."""

    allow: bool = always_written(False)
    args: dict[str, Any] | None = None
    preview: str = ""


class InterceptorAfterParams(Wire, frozen=True):
    name: str = always_written("")
    tool_name: str = always_written("")
    details: Any = None


class InterceptorAfterResult(Wire, frozen=True):
    details: Any = None


class ActionResult(Wire, frozen=True):
    """`payload` is what its `type` makes of it; the keys of known ones are folded (spec piglet 5.4)."""

    type: str = always_written("")
    payload: Raw = _NULL


class EventDispatchParams(Wire, frozen=True):
    type: str = always_written("")
    data: Any = None


class EventDispatchResult(Wire, frozen=True):
    action: ActionResult | None = None


class ShortcutHandleParams(Wire, frozen=True):
    key: str = always_written("")


class ShortcutHandleResult(Wire, frozen=True):
    action: ActionResult | None = None


class MessageHookParams(Wire, frozen=True):
    message: str = always_written("")


class MessageHookResult(Wire, frozen=True):
    injection: str = ""


class InputTransformParams(Wire, frozen=True):
    input: str = always_written("")


class InputTransformResult(Wire, frozen=True):
    output: str = always_written("")
    handled: bool = always_written(False)


class CompactMessage(Wire, frozen=True):
    """`data` is a message of spec piglet 6.2, which `store.messages` reads."""

    type: str = always_written("")
    data: Raw = always_written(_NULL)


class CompactExecuteParams(Wire, frozen=True):
    messages: list[CompactMessage] | None = always_written(None)


class CompactExecuteResult(Wire, frozen=True):
    messages: list[CompactMessage] | None = always_written(None)


class ProviderStreamParams(Wire, frozen=True):
    """`model`, `messages`, `tools` and `options` as spec piglet 5.9 has them."""

    request_id: int
    model: Any = always_written(None)
    system: str = always_written("")
    messages: Any = always_written(None)
    tools: Any = None
    options: Any = None


class ProviderStreamResult(Wire, frozen=True):
    message: Raw = always_written(_NULL)
    error: str = ""


class ProviderToolCall(Wire, frozen=True):
    """`arguments` are a JSON text."""

    id: str = always_written("")
    name: str = always_written("")
    arguments: str = always_written("")


class ProviderDeltaParams(Wire, frozen=True):
    request_id: int = always_written(0)
    type: str = always_written("")
    index: int = 0
    delta: str = ""
    tool: ProviderToolCall | None = None


class EventBusEventParams(Wire, frozen=True):
    topic: str = always_written("")
    subscription_id: int = always_written(0)
    data: Any = always_written(None)


# -- what a guest tells (spec piglet 7.2)


class NotifyParams(Wire, frozen=True):
    message: str = always_written("")
    level: str = ""


class ShowMessageParams(Wire, frozen=True):
    text: str = always_written("")


class LogParams(Wire, frozen=True):
    level: str = always_written("")
    message: str = always_written("")


class SetWidgetParams(Wire, frozen=True):
    key: str = always_written("")
    placement: str = always_written("")
    content: str = always_written("")


class ShowOverlayParams(Wire, frozen=True):
    key: str = always_written("")
    title: str = ""
    content: str = always_written("")
    anchor: str = ""
    width: str = ""


class CloseOverlayParams(Wire, frozen=True):
    key: str = always_written("")


class SetInputTextParams(Wire, frozen=True):
    text: str = always_written("")


class SendMessageParams(Wire, frozen=True):
    content: str = always_written("")


class SteerParams(Wire, frozen=True):
    content: str = always_written("")


class AbortWithMarkerParams(Wire, frozen=True):
    reason: str = always_written("")


class AbortParams(Wire, frozen=True):
    """Nothing."""
