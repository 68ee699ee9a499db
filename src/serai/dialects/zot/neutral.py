"""Between zot's frames and the neutral words of `serai.model`."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, get_args

import msgspec

from serai.dialects.zot import messages
from serai.dialects.zot.events import PanelRendered
from serai.dialects.zot.messages import NOTHING, CommandResponse, ContentBlock, EventInterceptResponse, PanelRender, PanelSpec
from serai.errors import BadFrame
from serai.model import events
from serai.model.actions import Action, Display, Insert, Level, NoAction, Notice, OpenPanel, Panel, SubmitPrompt
from serai.model.contributions import InterceptPoint, InterceptResult, Pass, Refuse, Rewrite
from serai.model.tools import Block, ImageBlock, TextBlock, ToolResult
from serai.wire.codec import BAD_INPUT, decode

# zot's names for events, and the tags of what happens here. What zot calls a turn is one step of ours.
KINDS: dict[str, str] = {
    "session_start": events.event_kind(events.SessionStarted),
    "turn_start": events.event_kind(events.StepStarted),
    "assistant_message": events.event_kind(events.Message),
    "tool_call": events.event_kind(events.ToolCalled),
    "turn_end": events.event_kind(events.StepEnded),
}
STAGES: dict[str, InterceptPoint] = {"tool_call": "tool_call", "turn_start": "turn_start", "assistant_message": "assistant_message"}
# The values of `panel_key.key`; no others may be sent (spec zot 4.6). Esc is none of them: it closes the panel.
KEYS = (
    "up", "down", "left", "right", "enter", "tab", "backspace", "delete", "home", "end", "pageup", "pagedown", "rune", "unknown",
)  # fmt: skip

PASS = Pass()
NO_CONTENT = "(extension returned no content)"
# Where the guest gives no reason of its own (spec zot 4.4, 7.16); for a message nobody needs one.
_REASONS = {"tool_call": "tool call refused by extension guard", "turn_start": "turn blocked by extension guard"}

_value: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_sorted = msgspec.json.Encoder(order="sorted")


class CommandError(msgspec.Struct, frozen=True):
    """What a command says went wrong, or what is wrong with its answer: shown to the person."""

    text: str


# -- tools (spec zot 4.1) -------------------------------------------------------------------------------------------------------


def to_tool_result(frame: messages.ToolResult, ext: str, what: str) -> ToolResult:
    """What a tool answered to `what`, such as `tool_call weather`. Something is always said: the model never sees nothing."""
    content = frame.content
    if len(content) == 1:  # by far the most common
        (only,) = content
        if only.type == "text" and (text := only.text):
            return ToolResult((TextBlock(text),), frame.is_error)
    is_error = frame.is_error
    blocks: list[Block] = []
    for block in content:
        if block.type == "text":
            if block.text:
                blocks.append(TextBlock(block.text))
        elif block.type == "image":
            try:
                blocks.append(ImageBlock(_decode_base64(block), block.mime_type))
            except ValueError as error:
                tool = what.removeprefix("tool_call ")
                blocks.append(TextBlock(f"extension {ext}/{tool} returned undecodable image: {error}"))
                is_error = True
        else:
            blocks.append(TextBlock(f'[unknown block type "{block.type}" from extension {ext}]'))
    return ToolResult(tuple(blocks) or (TextBlock(NO_CONTENT),), is_error)


def _decode_base64(block: ContentBlock) -> bytes:
    """Standard alphabet with padding. Line breaks do not count: the program `base64` writes them."""
    data = block.data.replace("\n", "").replace("\r", "")
    if len(data) % 4 or data.endswith("==="):  # `a2b_base64` lets a surplus `=` pass
        raise ValueError("incorrect padding")
    return a2b_base64(data, strict_mode=True)


# -- interceptors (spec zot 4.4) ------------------------------------------------------------------------------------------------


def read_verdict(event: str, frame: EventInterceptResponse, asked: object = None) -> InterceptResult:
    """What an interceptor decided on this event. `asked` are the arguments it was asked about.

    Block wins over every rewrite. A rewrite counts only where it belongs and only if it changes something. Raises `BadFrame` for
    arguments that cannot be read: a bad answer, to which the interceptor's `on_failure` applies (design rule 7).
    """
    if frame.block:
        return Refuse(frame.reason or _REASONS.get(event, ""))
    if event == "tool_call" and frame.modified_args is not NOTHING:
        return _read_arguments(frame, asked)
    if event == "assistant_message" and frame.replace_text:
        return Rewrite(frame.replace_text)
    return PASS


def _read_arguments(frame: EventInterceptResponse, asked: object) -> InterceptResult:
    """Objects only; null is absence, a list or a scalar no rewrite (spec zot 4.4, ours)."""
    try:
        arguments = decode(_value, frame.modified_args)
    except BAD_INPUT as error:
        raise BadFrame(f"its modified_args cannot be read: {error}", id=frame.id) from None
    # As text: Python takes true for 1, and neither white space nor the order of keys is a change.
    if not isinstance(arguments, dict) or _sorted.encode(arguments) == _sorted.encode(asked):
        return PASS
    return Rewrite(arguments)


# -- commands (spec zot 4.2), notices (spec zot 4.5), panels (spec zot 4.6) -----------------------------------------------------


def to_action(frame: CommandResponse, *, source: str, owner: str) -> Action | CommandError:
    """What a command wants done. An error beats every action; an unknown action is one. `owner` is the guest's id."""
    if frame.error:
        return CommandError(frame.error)
    match frame.action:
        case "prompt":
            return SubmitPrompt(frame.prompt) if frame.prompt.strip() else NoAction()
        case "insert":
            return Insert(frame.insert)
        case "display":
            return Display(frame.display, source=source)
        case "open_panel":
            return NoAction() if frame.open_panel is None else OpenPanel(to_panel(frame.open_panel, owner))
        case "noop" | "":
            return NoAction()
    return CommandError(f"unknown action {frame.action}")


def to_notice(level: str, message: str, source: str) -> Notice | None:
    """A guest's word to the person; None for an empty one, which is ignored. An unknown level is shown like info."""
    known: Level = level if level in get_args(Level) else "info"  # type: ignore[assignment]
    return Notice(message, known, source=source) if message else None


def to_panel(spec: PanelSpec, owner: str) -> Panel:
    """The panel that `owner`, a guest's id, wants opened. Without a title it has the guest's name."""
    return Panel(spec.id, spec.title or owner.partition(":")[2], spec.lines, spec.footer, owner)


def render_panel(panel: Panel, frame: PanelRender | PanelRendered) -> Panel:
    """The panel as it should look now: without a title it keeps the old one, while lines and footer are replaced."""
    return Panel(panel.id, frame.title or panel.title, frame.lines, frame.footer, panel.owner)


# -- events (spec zot 4.3) ------------------------------------------------------------------------------------------------------


def to_event(event: events.Event) -> messages.Event | None:
    """What a guest is told of an event; None for what zot has no word for."""
    match event:
        case events.SessionStarted():
            return messages.Event("session_start")
        case events.StepStarted(step=step):
            return messages.Event("turn_start", step=step)
        case events.Message(text=text):  # nothing but tool calls: no text, and the member is absent
            return messages.Event("assistant_message", text=text)
        case events.ToolCalled(call=call):
            args: Any = {} if call.arguments is None else call.arguments
            return messages.Event("tool_call", tool_id=call.id, tool_name=call.name, tool_args=args)
        case events.StepEnded(stop=stop, error=error):
            return messages.Event("turn_end", stop=stop, error=error or ("context canceled" if stop == "aborted" else ""))
        case _:
            return None
