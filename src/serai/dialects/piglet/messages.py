"""What goes over a piglet wire, under the seed's names: the life cycle, registrations, calls to a guest, notifications of a guest.

The parameters and results of `host/*` are in `service_messages`; `methods` says which method carries what. A field that is always
written has no default, or one that is written all the same (`always`); the others are left out when they have theirs. Every struct
refuses unknown members, because `wire.codec.FoldingDecoder` needs to know of them: a key in another case is folded, and what is
unknown then is dropped (spec piglet FIX-4).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

PROTOCOL_VERSION = "5"

_NULL = Raw(b"null")


def always(value: Any) -> Any:
    """A default that is written all the same."""
    return msgspec.field(default_factory=lambda: value)


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """An object that the protocol defines."""


# -- the life cycle (spec piglet 3, 5.10)


class InitializeParams(Wire, frozen=True):
    protocol_version: str = always("")
    cwd: str = always("")
    config_dir: str = ""


class InitializeResult(Wire, frozen=True):
    name: str = always("")
    version: str = always("")


class ShutdownParams(Wire, frozen=True):
    """Nothing."""


class CancelParams(Wire, frozen=True):
    """The id as it came: an integer, though a guest of ours may have sent a string (spec piglet 2.3)."""

    id: Raw


# -- registrations (spec piglet 4)


class RegisterToolParams(Wire, frozen=True):
    name: str = always("")
    description: str = always("")
    parameters: Any = always(None)
    prompt_hint: str = ""
    deferred: bool = False
    interrupt_behavior: str = ""


class RegisterCommandParams(Wire, frozen=True):
    name: str = always("")
    description: str = always("")
    immediate: bool = False


class RegisterPromptSectionParams(Wire, frozen=True):
    title: str = always("")
    content: str = always("")
    order: int = 0
    token_hint: int = 0


class RegisterInterceptorParams(Wire, frozen=True):
    name: str = always("")
    priority: int = 0


class RegisterEventHandlerParams(Wire, frozen=True):
    name: str = always("")
    priority: int = 0
    events: list[str] | None = None  # null and empty: all (spec piglet 10.15)


class RegisterShortcutParams(Wire, frozen=True):
    key: str = always("")
    description: str = always("")


class RegisterMessageHookParams(Wire, frozen=True):
    name: str = always("")
    priority: int = 0


class RegisterInputTransformerParams(Wire, frozen=True):
    name: str = always("")
    priority: int = 0


class RegisterCompactorParams(Wire, frozen=True):
    name: str = always("")
    threshold: int = 0


class RegisterProviderParams(Wire, frozen=True):
    api: str = always("")


# -- what the host asks of a guest (spec piglet 5)


class ContentBlock(Wire, frozen=True):
    """`text`, or an image: `data` in base64 with its `mime`."""

    type: str = always("")
    text: str = ""
    data: str = ""
    mime: str = ""


class ToolExecuteParams(Wire, frozen=True):
    call_id: str = always("")
    name: str = always("")
    args: Any = always(None)


class ToolExecuteResult(Wire, frozen=True):
    content: list[ContentBlock] | None = always(None)
    is_error: bool = False
    error_code: str = ""
    error_hint: str = ""


class CommandExecuteParams(Wire, frozen=True):
    name: str = always("")
    args: str = always("")


class CommandExecuteResult(Wire, frozen=True):
    """Nothing."""


class InterceptorBeforeParams(Wire, frozen=True):
    name: str = always("")
    tool_name: str = always("")
    args: Any = always(None)


class InterceptorBeforeResult(Wire, frozen=True):
    """Absent, `allow` is false (spec piglet 10.2)."""

    allow: bool = always(False)
    args: dict[str, Any] | None = None
    preview: str = ""


class InterceptorAfterParams(Wire, frozen=True):
    name: str = always("")
    tool_name: str = always("")
    details: Any = None


class InterceptorAfterResult(Wire, frozen=True):
    details: Any = None


class ActionResult(Wire, frozen=True):
    """`payload` is what its `type` makes of it; the keys of known ones are folded (spec piglet 5.4)."""

    type: str = always("")
    payload: Raw = _NULL


class EventDispatchParams(Wire, frozen=True):
    type: str = always("")
    data: Any = None


class EventDispatchResult(Wire, frozen=True):
    action: ActionResult | None = None


class ShortcutHandleParams(Wire, frozen=True):
    key: str = always("")


class ShortcutHandleResult(Wire, frozen=True):
    action: ActionResult | None = None


class MessageHookParams(Wire, frozen=True):
    message: str = always("")


class MessageHookResult(Wire, frozen=True):
    injection: str = ""


class InputTransformParams(Wire, frozen=True):
    input: str = always("")


class InputTransformResult(Wire, frozen=True):
    output: str = always("")
    handled: bool = always(False)


class CompactMessage(Wire, frozen=True):
    """`data` is a message of spec piglet 6.2, which `store.messages` reads."""

    type: str = always("")
    data: Raw = always(_NULL)


class CompactExecuteParams(Wire, frozen=True):
    messages: list[CompactMessage] | None = always(None)


class CompactExecuteResult(Wire, frozen=True):
    messages: list[CompactMessage] | None = always(None)


class ProviderStreamParams(Wire, frozen=True):
    """`model`, `messages`, `tools` and `options` as spec piglet 5.9 has them."""

    request_id: int
    model: Any = always(None)
    system: str = always("")
    messages: Any = always(None)
    tools: Any = None
    options: Any = None


class ProviderStreamResult(Wire, frozen=True):
    message: Raw = always(_NULL)
    error: str = ""


class ProviderToolCall(Wire, frozen=True):
    """`arguments` are a JSON text."""

    id: str = always("")
    name: str = always("")
    arguments: str = always("")


class ProviderDeltaParams(Wire, frozen=True):
    request_id: int = always(0)
    type: str = always("")
    index: int = 0
    delta: str = ""
    tool: ProviderToolCall | None = None


class EventBusEventParams(Wire, frozen=True):
    topic: str = always("")
    subscription_id: int = always(0)
    data: Any = always(None)


# -- what a guest tells (spec piglet 7.2)


class NotifyParams(Wire, frozen=True):
    message: str = always("")
    level: str = ""


class ShowMessageParams(Wire, frozen=True):
    text: str = always("")


class LogParams(Wire, frozen=True):
    level: str = always("")
    message: str = always("")


class SetWidgetParams(Wire, frozen=True):
    key: str = always("")
    placement: str = always("")
    content: str = always("")


class ShowOverlayParams(Wire, frozen=True):
    key: str = always("")
    title: str = ""
    content: str = always("")
    anchor: str = ""
    width: str = ""


class CloseOverlayParams(Wire, frozen=True):
    key: str = always("")


class SetInputTextParams(Wire, frozen=True):
    text: str = always("")


class SendMessageParams(Wire, frozen=True):
    content: str = always("")


class SteerParams(Wire, frozen=True):
    content: str = always("")


class AbortWithMarkerParams(Wire, frozen=True):
    reason: str = always("")


class AbortParams(Wire, frozen=True):
    """Nothing."""
