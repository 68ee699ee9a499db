"""Between piglet's objects and the neutral words of `serai.model`. What happens is put into piglet's words in its adapter."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from serai.dialects.piglet import messages
from serai.dialects.piglet.messages import ActionResult, ContentBlock, ToolExecuteResult, Wire
from serai.model import actions, contributions
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolResult, ToolSpec
from serai.wire.codec import BAD_INPUT, FoldingDecoder, decode, replace_surrogates

PASS = contributions.Pass()
_STAGES: frozenset[contributions.InterceptPoint] = frozenset({"tool_call", "tool_result"})
_LEVELS: dict[str, actions.Level] = {"warn": "warn", "error": "error"}
_MODIFIERS = ("ctrl", "alt", "shift")
_sorted = msgspec.json.Encoder(order="sorted")
_content: FoldingDecoder[list[ContentBlock]] = FoldingDecoder(list[ContentBlock])


# -- what a guest registers (spec piglet 4) ---------------------------------------------------------------------------------------

Contribution = (
    ToolSpec
    | contributions.Command
    | contributions.PromptSection
    | contributions.Interceptor
    | contributions.EventHandler
    | contributions.Shortcut
    | contributions.MessageHook
    | contributions.InputTransformer
    | contributions.Compactor
    | contributions.Provider
)


def find_fault(params: Wire) -> str:
    """Why a registration cannot be taken; empty when it can (FIX-10)."""
    for field in ("name", "key", "title", "api"):
        if not getattr(params, field, "-").strip():
            return f"its {field} is empty"
    if isinstance(params, messages.RegisterToolParams) and not isinstance(params.parameters, dict | bool | None):
        return f"the parameters of its tool {params.name} are no JSON object"
    if isinstance(params, messages.RegisterShortcutParams) and parse_shortcut_key(params.key) is None:
        return f"its key {params.key} is none: ctrl, alt or shift joined by + to one letter a-z"
    return ""


def to_contribution(params: Wire) -> Contribution:
    """What a registration offers; `find_fault` has been asked. Types of events stay as they are spelt: what they are made of is the
    adapter's to know."""
    match params:
        case messages.RegisterToolParams():
            return _to_tool_spec(params)
        case messages.RegisterCommandParams():
            return contributions.Command(params.name, params.description, params.immediate)
        case messages.RegisterPromptSectionParams():
            return contributions.PromptSection(params.title, params.content, params.order, params.token_hint)
        case messages.RegisterInterceptorParams():
            return contributions.Interceptor(params.name, _STAGES, params.priority, "closed")  # no answer blocks (spec piglet 5.3)
        case messages.RegisterEventHandlerParams():
            return contributions.EventHandler(params.name, frozenset(params.events or ("*",)), params.priority)
        case messages.RegisterShortcutParams():
            return contributions.Shortcut(parse_shortcut_key(params.key) or params.key, params.description)
        case messages.RegisterMessageHookParams():
            return contributions.MessageHook(params.name, params.priority)
        case messages.RegisterInputTransformerParams():
            return contributions.InputTransformer(params.name, params.priority)
        case messages.RegisterCompactorParams():
            return contributions.Compactor(params.name, params.threshold)
        case messages.RegisterProviderParams():
            return contributions.Provider(params.api)
    raise TypeError(f"{type(params).__name__} registers nothing")


def _to_tool_spec(params: messages.RegisterToolParams) -> ToolSpec:
    """Its schema unmodified, also when it describes no object; none at all takes any object, and so does the schema `true`."""
    said = params.parameters
    return ToolSpec(
        params.name,
        params.description,
        said if isinstance(said, dict) else {"not": {}} if said is False else {"type": "object"},
        params.prompt_hint,
        params.deferred,
        "block" if params.interrupt_behavior == "block" else "cancel",
    )


def parse_shortcut_key(text: str) -> str | None:
    """The key in its one spelling: ctrl, alt, shift in this order, then a letter; None when it is no such key (spec piglet 4)."""
    *modifiers, letter = text.strip().lower().split("+")
    sound = 0 < len(modifiers) == len(set(modifiers) & set(_MODIFIERS))
    if not sound or len(letter) != 1 or not "a" <= letter <= "z":
        return None
    return "+".join([*(modifier for modifier in _MODIFIERS if modifier in modifiers), letter])


# -- tools (spec piglet 5.1) ------------------------------------------------------------------------------------------------------


def to_tool_result(result: ToolExecuteResult) -> ToolResult:
    """What a tool answered.

    Its code and hint also stand in its text, for the model (spec piglet 5.1); `isError` counts (FIX-12).
    """
    content, is_broken = _read_blocks(result.content or ())
    if result.error_code and content and isinstance(first := content[0], TextBlock) and not first.text.startswith("[error:"):
        hint = f"\nhint: {result.error_hint}" if result.error_hint else ""
        content = (TextBlock(f"[error:{result.error_code}] {first.text}{hint}"), *content[1:])
    return ToolResult(content, result.is_error or is_broken, result.error_code, result.error_hint)


def to_blocks(content: Iterable[ContentBlock]) -> tuple[Block, ...]:
    """An image that cannot be decoded becomes a text that says so; what is of an unknown type becomes its text."""
    return _read_blocks(content)[0]


def _read_blocks(content: Iterable[ContentBlock]) -> tuple[tuple[Block, ...], bool]:
    found: list[Block] = []
    is_broken = False
    for block in content:
        if block.type != "image":
            found.append(TextBlock(block.text))
            continue
        try:
            found.append(ImageBlock(_decode_base64(block.data), block.mime))
        except ValueError as error:
            found.append(TextBlock(f"[an image that cannot be decoded: {error}]"))
            is_broken = True
    return tuple(found), is_broken


def to_content_blocks(content: Iterable[Block]) -> list[ContentBlock]:
    """The other way. What piglet has no type for is text, as JSON."""
    return [_to_content_block(block) for block in content]


def _to_content_block(block: Block) -> ContentBlock:
    match block:
        case TextBlock(text=text):
            return ContentBlock("text", text)
        case ImageBlock(data=data, mime=mime):
            return ContentBlock("image", "", b2a_base64(data, newline=False).decode(), mime)
        case OtherBlock(native=native):
            return ContentBlock("text", msgspec.json.encode(replace_surrogates(native)).decode())


def _decode_base64(text: str) -> bytes:
    """Standard alphabet with padding, else `ValueError`. Line breaks do not count: the program `base64` writes them."""
    data = text.replace("\n", "").replace("\r", "")
    if len(data) % 4 or data.endswith("==="):  # `a2b_base64` lets a surplus `=` pass
        raise ValueError("incorrect padding")
    return a2b_base64(data, strict_mode=True)


# -- interceptors (spec piglet 5.3) -----------------------------------------------------------------------------------------------


def read_before(result: messages.InterceptorBeforeResult, name: str, asked: Any) -> contributions.InterceptResult:
    """What the interceptor of that name says to a call with these arguments. A block is no error to the model (spec piglet 10.4),
    and its text is that of this answer alone (FIX-15). Null arguments, or equal ones, change nothing."""
    if not result.allow:
        return contributions.Refuse(result.preview or f"blocked by interceptor: {name}", is_error=False)
    if result.args is None or _is_same(result.args, {} if asked is None else asked):
        return PASS
    return contributions.Rewrite(result.args)


def build_details(result: ToolResult) -> Any:
    """What an after interceptor is shown of a result: its details, or else what the model will see (FIX-14)."""
    if result.details is not None:
        return result.details
    return {"content": msgspec.to_builtins(to_content_blocks(result.content)), "isError": result.is_error}


def read_after(result: messages.InterceptorAfterResult, shown: ToolResult, told: Any = None) -> contributions.InterceptResult:
    """What an after interceptor makes of a result; `told` is what `build_details` gave for it, where that is at hand.

    Details replace details, absent ones by nothing; where there were none, an object with `content` or `output` replaces what the
    model sees, and anything else is kept as details (FIX-14).
    """
    details = result.details
    if shown.details is not None:
        return PASS if _is_same(details, shown.details) else contributions.Rewrite(msgspec.structs.replace(shown, details=details))
    if details is None or _is_same(details, build_details(shown) if told is None else told):
        return PASS
    content = _replace_content(details, shown.content)
    if content is None:
        return contributions.Rewrite(msgspec.structs.replace(shown, details=details))
    return PASS if content == shown.content else contributions.Rewrite(msgspec.structs.replace(shown, content=content))


def _replace_content(details: Any, shown: Sequence[Block]) -> tuple[Block, ...] | None:
    """The content that these details put in the place of what was shown; None when they are about something else."""
    if not isinstance(details, dict):
        return None
    said = details.get("content")
    if isinstance(said, list):
        try:
            return to_blocks(decode(_content, msgspec.json.encode(said)))
        except BAD_INPUT:
            return None
    text = said if isinstance(said, str) else details.get("output")
    if not isinstance(text, str):
        return None
    return (TextBlock(text), *(block for block in shown if not isinstance(block, TextBlock)))  # images stay


def _is_same(one: Any, other: Any) -> bool:
    """As text: Python takes true for 1, and neither white space nor the order of keys is a change."""
    return _encode_canonical(one) == _encode_canonical(other)


def _encode_canonical(value: Any) -> bytes:
    """Paired only when it must be: that is a walk through all of it in Python, and each call is compared four times."""
    try:
        return _sorted.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return _sorted.encode(replace_surrogates(value))


# -- what a guest wants done (spec piglet 5.4, 7.2) -------------------------------------------------------------------------------


class _Title(Wire, frozen=True):
    title: str = ""


class _Status(Wire, frozen=True):
    key: str = ""
    text: str = ""


class _Image(Wire, frozen=True):
    data: str = ""
    mime_type: str = ""


_PAYLOADS: dict[str, FoldingDecoder[Any]] = {
    "notify": FoldingDecoder(messages.NotifyParams),
    "showMessage": FoldingDecoder(messages.ShowMessageParams),
    "setSessionTitle": FoldingDecoder(_Title),
    "setStatus": FoldingDecoder(_Status),
    "attachImage": FoldingDecoder(_Image),
    "detachImage": FoldingDecoder(messages.AbortParams),
    "sendMessage": FoldingDecoder(messages.SendMessageParams),
    "quit": FoldingDecoder(messages.AbortParams),
}


def to_action(result: ActionResult, source: str) -> actions.Action | None:
    """What the answer to an event or a shortcut wants done (spec piglet 5.4); None for an unknown type or a bad payload. `source`
    is what the guest is called."""
    if result.type not in _PAYLOADS:
        return None
    raw = bytes(result.payload)
    try:
        return _build_action(result.type, decode(_PAYLOADS[result.type], b"{}" if raw in (b"", b"null") else raw), source)
    except (*BAD_INPUT, ValueError):  # which is what bad base64 is, too
        return None


def _build_action(type: str, payload: Any, source: str) -> actions.Action:
    match type:
        case "notify":
            return _to_notice(payload, source) or actions.NoAction()
        case "showMessage":
            return actions.Display(payload.text, source=source)
        case "setSessionTitle":  # an empty one is no title
            return actions.SetTitle(payload.title) if payload.title.strip() else actions.NoAction()
        case "setStatus":
            return actions.SetStatus(payload.key, payload.text)
        case "attachImage":
            return actions.AttachImage(ImageBlock(_decode_base64(payload.data), payload.mime_type))
        case "detachImage":
            return actions.DetachImage()
        case "sendMessage":
            return actions.SubmitPrompt(payload.content) if payload.content.strip() else actions.NoAction()
        case _:
            return actions.Quit()


def notification_to_action(method: str, params: Any, source: str) -> actions.Action | None:
    """What a notification wants seen (spec piglet 7.2); None for one that is no matter of the surface, such as `steer`."""
    match method:
        case "notify":
            return _to_notice(params, source) or actions.NoAction()
        case "showMessage":
            return actions.Display(params.text, source=source)
        case "setWidget":
            below = params.placement == "below-status"
            return actions.SetWidget(params.key, "below-status" if below else "above-input", params.content)
        case "showOverlay":
            where = actions.parse_anchor(params.anchor), actions.parse_width(params.width)
            return actions.ShowOverlay(actions.Overlay(params.key, params.title, params.content, *where))
        case "closeOverlay":
            return actions.CloseOverlay(params.key)
        case "setInputText":
            return actions.SetInput(params.text)
        case _:
            return None


def _to_notice(params: messages.NotifyParams, source: str) -> actions.Notice | None:
    """None for an empty one, which nobody could see; an unknown level is shown like info (spec piglet 7.2)."""
    return actions.Notice(params.message, _LEVELS.get(params.level, "info"), source=source) if params.message else None
