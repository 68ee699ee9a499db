"""zot from the extension's side, with the standard library alone (spec zot 2, 3 and 6).

`dialects.zot.peer_side` does the same for fakes and replays. It needs msgspec, which no bundle has and every start would wait for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from serai.sdk import events
from serai.sdk.adapters.jsonrpc import shorten_line
from serai.sdk.answers import Allow, Answer, Block, Display, Failed, Image, Insert, OpenPanel, Prompt, ToolResult, Verdict

if TYPE_CHECKING:
    from serai.sdk.registrations import Registration, Registrations
    from serai.sdk.workers import PendingAnswer

Frame = dict[str, Any]

CAPABILITIES = ["commands", "tools", "events", "panels"]
STAGES = ("tool_call", "turn_start", "assistant_message")  # in this order (spec zot 6)
_ELSEWHERE = (
    "prompt section", "event handler", "shortcut", "message hook", "input transformer", "compactor", "provider", "service",
    "ingress",
)  # fmt: skip
_KINDS = {"tool_call": "tool", "command_invoked": "command", "event_intercept": "question"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]')  # strings, and what gives them their place


class Zot:
    dialect = "zot"
    max_line = 4 * 1024 * 1024  # spec zot 3.1
    host_first = False
    requests = None

    # -- what is said -----------------------------------------------------------------------------------------------------------

    def encode_opening(self, registry: Registrations) -> bytes:
        """All of it at once and before hello_ack is read: nobody takes a pause on a busy machine for the end (spec zot 2.2)."""
        frames: list[Frame] = [{"type": "hello", "name": registry.name, "version": registry.version, "capabilities": CAPABILITIES}]
        frames += [
            _build_frame("register_command", name=name, description=description) for name, description in registry.registered
        ]
        for tool in registry.tools.values():
            frames.append({**_build_frame("register_tool", name=tool.name, description=tool.description), "schema": tool.schema})
        stages = [stage for stage in STAGES if stage in registry.interceptors]
        if registry.events or stages:
            frames.append(_build_frame("subscribe", events=list(registry.events), intercept=stages))
        frames.append({"type": "ready"})
        return b"".join(map(_line, frames))

    def encode_registration(self, offer: Registration, registry: Registrations) -> bytes:  # noqa: ARG002
        """The host has made its table of tools at ready (spec zot 7.47)."""
        return b""

    def list_unsupported(self, registry: Registrations) -> list[str]:
        """What cannot be offered here (spec zot 3.2 has no frame for it)."""
        counted = {kind: sum(offer.kind == kind for offer in registry.offers) for kind in _ELSEWHERE}
        lines = [
            f"it has no {kind}{'es' if kind[-1] == 's' else 's'}: {count} {'is' if count == 1 else 'are'} left out"
            for kind, count in counted.items()
            if count
        ]
        after = [guard for guard in registry.guards.values() if guard.after is not None]
        return [*lines, *(["it shows nobody what came of a tool call, so `after` is never called"] if after else [])]

    def get_answer_types(self) -> dict[str, type[PendingAnswer]]:
        from serai.sdk.workers import KINDS

        return KINDS

    def encode_tool_result(self, id: str, result: ToolResult) -> bytes:
        content = [_build_block(one) for one in result.content]
        return _line({"type": "tool_result", "id": id, "content": content, **({"is_error": True} if result.is_error else {})})

    def encode_command_answer(self, id: str, answer: Answer) -> bytes:
        frame: Frame = {"type": "command_response", "id": id, "action": "noop"}
        match answer:
            case Prompt(text=text):
                frame |= {"action": "prompt", "prompt": text}
            case Insert(text=text):
                frame |= {"action": "insert", "insert": text}
            case Display(text=text):
                frame |= {"action": "display", "display": text}
            case OpenPanel(id=panel, title=title, lines=lines, footer=footer):
                spec = {"id": panel, **_omit_unset(title=title, lines=list(lines), footer=footer)}
                frame |= {"action": "open_panel", "open_panel": spec}
            case Failed(text=text):
                frame["error"] = text or "it failed and gave no reason"
        return _line(frame)

    def encode_verdict(self, id: str, verdict: Verdict) -> bytes:
        """`modified_args` and `replace_text` are there when something is rewritten, and never otherwise (spec zot 4.4)."""
        frame: Frame = {"type": "event_intercept_response", "id": id}
        if isinstance(verdict, Block):
            frame |= {"block": True, **_omit_unset(reason=verdict.reason)}
        elif not isinstance(verdict, Allow):
            frame["modified_args" if isinstance(verdict.value, dict) else "replace_text"] = verdict.value
        return _line(frame, exact=True)

    def notify(self, level: str, message: str) -> bytes:
        return _line({"type": "notify", "level": level, "message": message})

    def render(self, panel: str, title: str, lines: Sequence[str], footer: str) -> bytes:
        return _line(_build_frame("panel_render", panel_id=panel, title=title, lines=list(lines), footer=footer))

    def close_panel(self, panel: str) -> bytes:
        return _line({"type": "panel_close", "panel_id": panel})

    def encode_shutdown_ack(self) -> bytes:
        return _line({"type": "shutdown_ack"})

    # -- what is heard ----------------------------------------------------------------------------------------------------------

    def parse_line(self, line: bytes) -> Iterator[events.Heard]:
        try:
            frame = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            yield events.Unrecognized(f"malformed frame: {error}: {shorten_line(line)}")
            return
        except (RecursionError, ValueError) as error:  # nested beyond what Python reads, or what is no number
            yield from self._report_unread(line[:4096], str(error))
            return
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            yield events.Unrecognized(f"malformed frame: it has no type: {shorten_line(line)}")
            return
        kind = frame["type"]
        if kind in _KINDS and not isinstance(frame.get("id"), str):  # there is nothing to answer with (spec zot 3.1)
            yield events.Unrecognized(f"malformed frame: the id of a {kind} must be a string: {shorten_line(line)}")
            return
        yield _parse_frame(kind, frame)

    def parse_oversized(self, head: bytes, size: int) -> Iterator[events.Heard]:
        return self._report_unread(head, f"it has {size} bytes; this side reads {self.max_line}")

    def _report_unread(self, head: bytes, why: str) -> Iterator[events.Heard]:
        """A request that cannot be read is answered if its head shows what and who it is."""
        members = _parse_head(head)
        kind = _KINDS.get(members.get("type", ""))
        if kind is None or not members.get("id"):
            yield events.Unrecognized(f"a frame was skipped: {why}: {shorten_line(head)}")
        else:
            yield events.OversizeRequest(members["id"], kind, why)


def _parse_head(head: bytes) -> dict[str, str]:
    """The members of a frame that are text, as far as its head shows them: its own, not those of what is in it."""
    members: dict[str, str] = {}
    depth, before = 0, ["", ""]
    for word in _TOKEN.findall(head.decode("utf-8", "replace")):
        depth += (word in "{[") - (word in "}]")
        if depth == 1 and word[0] == '"' and before[1] == ":" and before[0][:1] == '"':
            try:
                members.setdefault(json.loads(before[0]), json.loads(word))
            except ValueError:  # an escape that is none
                pass
        before = [before[1], word]
    return members


def _parse_frame(kind: str, frame: Frame) -> events.Heard:
    match kind:
        case "tool_call":
            return events.ToolCalled(frame["id"], _get_text(frame, "name"), frame.get("args", {}))
        case "command_invoked":
            return events.CommandInvoked(frame["id"], _get_text(frame, "name"), _get_text(frame, "args"))
        case "event_intercept":
            return events.InterceptRequest(frame["id"], _get_text(frame, "event"), _parse_subject(frame))
        case "event":
            data = {key: value for key, value in frame.items() if key not in ("type", "event")}
            return events.EventReceived(events.Event(_get_text(frame, "event"), data))
        case "panel_key":
            return events.KeyPressed(_get_text(frame, "panel_id"), _get_text(frame, "key"), _get_text(frame, "text"))
        case "panel_resize":
            return events.PanelResized(_get_text(frame, "panel_id"), _get_number(frame, "width"), _get_number(frame, "height"))
        case "panel_close":
            return events.PanelClosed(_get_text(frame, "panel_id"))
        case "hello_ack":
            return events.HandshakeDone(_build_about(frame))
        case "shutdown":
            return events.ShutdownRequested()
        case _:
            return events.Unrecognized(f'unknown frame type "{kind[:100]}"')


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _parse_subject(frame: Frame) -> object:
    match frame.get("event"):
        case "tool_call":
            return events.ToolCall(_get_text(frame, "tool_id"), _get_text(frame, "tool_name"), frame.get("tool_args", {}))
        case "turn_start":
            return _get_number(frame, "step")
        case _:
            return _get_text(frame, "text")


def _build_about(frame: Frame) -> dict[str, Any]:
    texts = {key: _get_text(frame, key) for key in ("provider", "model", "cwd", "extension_dir", "data_dir")}
    return {"protocol_version": _get_number(frame, "protocol_version"), "version": _get_text(frame, "zot_version"), **texts}


def _get_text(frame: Frame, key: str) -> str:
    value = frame.get(key)
    return value if isinstance(value, str) else ""


def _get_number(frame: Frame, key: str) -> int:
    value = frame.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _build_frame(type: str, **members: object) -> Frame:
    return {"type": type, **_omit_unset(**members)}


def _omit_unset(**members: object) -> Frame:
    """What is unset is left out (spec zot 3.1)."""
    return {key: value for key, value in members.items() if value}


def _build_block(content: object) -> Frame:
    if isinstance(content, Image):
        from base64 import b64encode

        return {"type": "image", "mime_type": content.mime, "data": b64encode(content.data).decode()}
    return {"type": "text", "text": getattr(content, "text")}  # noqa: B009  (what else there is has been refused before)


def _line(frame: Frame, *, exact: bool = False) -> bytes:
    """One line of UTF-8. Half a surrogate pair, which no encoding has, becomes a question mark, or stays as it is: escaped."""
    text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(frame, allow_nan=False, separators=(",", ":")) if exact else text
        return text.encode("utf-8", "replace") + b"\n"


ADAPTER = Zot
