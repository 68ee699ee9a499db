"""Frames of Claude Code as neutral events (spec agents 2.5, 2.10), and the outcome of a turn (spec agents 1.11, 2.11, 2.12).

What a driver, a store and a surface may rely on, for the main lane and for each sub-agent's:

    { step started, pieces*, [message], tool called*, [message], usage, step ended, (tool started, tool ended)*, step settled }+

A text comes once: in pieces when it streams, in one otherwise; the message that follows is the same text whole. A call is reported
when its block is finished, and has an end in any case; one that was refused has no start. Each event has the line that it came in;
pieces that came together (`FrameTranslator.translate_pieces`) have theirs as one array.

`classify_start_failure` says why the program did not start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from serai.dialects.claude import blocks
from serai.dialects.claude.frame_reader import read_stream_ids
from serai.dialects.claude.lanes import FinishedBlock, Lane, LaneTracker, StreamingBlock, to_usage
from serai.dialects.claude.messages import Assistant, Result, StreamEvent, System, ToolProgress, User
from serai.dialects.claude.system_events import read_limit_notice, translate_system_frame
from serai.dialects.claude.tools import ASKER, ToolMap, decode_json, to_block, to_blocks
from serai.errors import AgentFailed
from serai.model import events
from serai.model.events import Event, TurnResult, Usage
from serai.model.tools import Block, TextBlock, ToolCall, ToolResult
from serai.plain_text import strip_text
from serai.wire.codec import Unknown

_Pair = TypeVar("_Pair", bound=tuple[object, bytes])  # a frame and its line
_SYNTHETIC = "<synthetic>"  # the model of a message that the program itself made
_DENIED = ("permission-rule", "user-rejected")  # why a call did not run, when somebody or something said no
_TURNED_AWAY = ("<tool_use_error>Error: No such tool", "<tool_use_error>InputValidationError")
_PIECES: dict[type, tuple[type, Callable[..., Event]]] = {
    blocks.TextDelta: (blocks.Text, events.Text),
    blocks.ThinkingDelta: (blocks.Thinking, events.Thinking),
    blocks.InputJsonDelta: (blocks.ToolUse, events.ToolInput),
}


class FrameTranslator:
    """One session. Feed it every frame in order; `end` each turn."""

    def __init__(self, tools: ToolMap | None = None) -> None:
        self._tracker = LaneTracker(tools or ToolMap())
        self._main = self._tracker.main
        self._lanes = self._tracker.lanes
        self.session = ""  # its id: an init's counts, others fill it in
        self.model = ""
        self.mode = ""  # of its permissions
        self.version = ""
        self._folds: dict[type, Callable[[Any, bytes], list[Event]]] = {
            StreamEvent: self._translate_stream,
            Assistant: self._translate_assistant,
            User: self._translate_user,
            System: self._translate_system,
            ToolProgress: self._translate_progress,
            Result: self._translate_result,
            Unknown: self._translate_unknown,
        }
        self._streams: dict[type, Callable[[Lane, Any, Raw], list[Event]]] = {
            blocks.ContentBlockDelta: self._translate_delta,
            blocks.ContentBlockStart: self._translate_block_start,
            blocks.ContentBlockStop: self._translate_block_stop,
            blocks.MessageStart: self._translate_message_start,
            blocks.MessageDelta: self._translate_message_delta,
            blocks.MessageStop: self._translate_message_stop,
        }

    @property
    def tasks(self) -> dict[str, str]:
        """What works beside the conversation: the type of each, by its id (spec agents 2.11)."""
        return self._tracker.tasks.types

    def find_call(self, tool_use_id: str) -> ToolCall | None:
        """A call that has no result yet."""
        opened = self._tracker.calls.get(tool_use_id)
        return None if opened is None else opened.call

    def find_lane(self, tool_use_id: str) -> str:
        """Whose call that is: the sub-agent's lane, empty for the main one."""
        opened = self._tracker.calls.get(tool_use_id)
        return "" if opened is None else opened.lane.name

    def start(self, call: ToolCall) -> list[Event]:
        """It may run, with these final arguments: told once, however often this is said."""
        opened = self._tracker.calls.get(call.id)
        if opened is None or opened.started:
            return []
        opened.call = call
        return self._tracker.start_call(opened, None)

    def translate(self, frame: object, line: bytes) -> list[Event]:
        """What a frame says; `line` is its JSON. Frames that only answer or ask something say nothing here."""
        fold = self._folds.get(type(frame))
        return [] if fold is None else fold(frame, line)

    def end(self, interrupted: bool = False, *, gone: bool = False) -> list[Event]:
        """The turn is over: nothing of it is open any more, and steps count from 1 again.

        Sub-agents that work in the background go on, unless the program itself is `gone`.
        """
        return self._tracker.end(interrupted=interrupted, gone=gone)

    # -- pieces -------------------------------------------------------------------------------------------------------------------

    def translate_pieces(self, frames: Iterator[_Pair]) -> tuple[list[Event], _Pair | None]:
        """The next frames as far as they are pieces of one block, as one event, and the first that is not: to be folded next.

        By far the most frames are such pieces: what they cost is what a stream costs. The event has all their lines, as an array; a
        piece that comes alone is as `fold` tells it.
        """
        first = next(frames, None)
        if first is None or type(frame := first[0]) is not StreamEvent or type(frame.event) is not blocks.ContentBlockDelta:
            return [], first
        index, kind = frame.event.index, type(frame.event.delta)
        part = self._main.parts.get(index)
        if part is None or part.whole or kind not in _PIECES or frame.parent_tool_use_id is not None:
            return [], first
        texts: list[str] = [frame.event.delta.text]  # type: ignore[union-attr]  # by the table, which checkers cannot see
        lines = [first[1]]
        other = None
        for pair in frames:
            frame, line = pair
            if type(frame) is not StreamEvent or type(event := frame.event) is not blocks.ContentBlockDelta:
                other = pair
                break
            delta = event.delta
            if type(delta) is not kind or event.index != index or frame.parent_tool_use_id is not None:
                other = pair
                break
            texts.append(delta.text)  # type: ignore[union-attr]  # the same kind
            lines.append(line)
        if len(lines) == 1:
            return self.translate(*first), other
        return _join_pieces(kind, part, index, "".join(texts), lines), other

    def _translate_stream(self, frame: StreamEvent, line: bytes) -> list[Event]:
        event, native = frame.event, Raw(line)
        lane = self._tracker.get_lane(frame.parent_tool_use_id)
        fold = self._streams.get(type(event))
        if fold is None:
            return []
        if frame.abandoned_blocks is not None and isinstance(event, blocks.MessageDelta | blocks.MessageStop):
            return [*self._tracker.retract_blocks(lane, frame.abandoned_blocks, native), *fold(lane, event, native)]
        return fold(lane, event, native)

    def _translate_delta(self, lane: Lane, event: blocks.ContentBlockDelta, native: Raw) -> list[Event]:
        form = _PIECES.get(type(event.delta))
        if form is None:  # signatures and citations: they are in the full block
            return []
        kind, make = form
        found: list[Event] = []
        part = lane.parts.get(event.index)
        if part is None:  # its start was not told
            found += self._tracker.begin(lane, read_stream_ids(native).api_message_id or lane.id, "", native)
            lane.streams = True
            part = lane.parts[event.index] = StreamingBlock(kind)
        text: str = event.delta.text  # type: ignore[union-attr]  # by the table
        if not text:
            return found
        part.told += len(text)
        if kind is blocks.ToolUse and not part.whole:
            part.pieces.append(text)
        return [*found, make(text=text, index=event.index, lane=lane.name, native=native)]

    def _translate_block_start(self, lane: Lane, event: blocks.ContentBlockStart, native: Raw) -> list[Event]:
        block = event.content_block
        found = self._tracker.begin(lane, read_stream_ids(native).api_message_id or lane.id, "", native)
        lane.streams = True
        if isinstance(block, blocks.ToolUse):
            lane.parts[event.index] = StreamingBlock(blocks.ToolUse, block.id, block.name)
        else:
            lane.parts[event.index] = StreamingBlock(type(block))
        return found

    def _translate_block_stop(self, lane: Lane, event: blocks.ContentBlockStop, native: Raw) -> list[Event]:
        """A call whose full form did not come is made of its pieces, here and once (spec agents 2.10)."""
        part = lane.parts.get(event.index)
        if part is None or part.whole or part.kind is not blocks.ToolUse or not part.id:
            return []
        text = "".join(part.pieces)
        part.pieces.clear()
        part.whole = True
        call = blocks.ToolUse(part.id, part.name, _parse_input(text))
        return self._tracker.open_call(lane, call, read_stream_ids(native).uuid, event.index, native)

    def _translate_message_start(self, lane: Lane, event: blocks.MessageStart, native: Raw) -> list[Event]:
        message = event.message
        found = self._tracker.begin(lane, message.id or read_stream_ids(native).api_message_id or "", message.model, native)
        lane.streams = True
        lane.record_usage(message.usage)
        return found

    def _translate_message_delta(self, lane: Lane, event: blocks.MessageDelta, native: Raw) -> list[Event]:
        if not lane.begun:
            return []
        lane.stop = event.delta.stop_reason or lane.stop
        lane.aborted = lane.aborted or not lane.stop  # the model itself always has a reason
        lane.record_usage(event.usage, final=True)
        return self._tracker.finish(lane, native)

    def _translate_message_stop(self, lane: Lane, event: blocks.MessageStop, native: Raw) -> list[Event]:  # noqa: ARG002
        found = self._tracker.finish(lane, native)
        lane.streams = False
        return found

    # -- whole blocks -------------------------------------------------------------------------------------------------------------

    def _translate_assistant(self, frame: Assistant, line: bytes) -> list[Event]:
        native = Raw(line)
        lane = self._tracker.get_lane(frame.parent_tool_use_id)
        message = frame.message
        found: list[Event] = []
        if frame.supersedes:
            found.append(events.OtherEvent(kind="retracted", lane=lane.name, native=native))
            found += self._tracker.retract(lane, frame.supersedes, native)
        found += self._tracker.begin(lane, message.id, message.model, native)
        lane.record_usage(message.usage)
        lane.stop = message.stop_reason or lane.stop
        if message.model == _SYNTHETIC and (frame.error or frame.is_api_error_message):
            # Not the model's words: why there are none.
            lane.error = (
                "\n".join(block.text for block in message.content if isinstance(block, blocks.Text)) or frame.error or "error"
            )
            return [*found, *self._tracker.finish(lane, native)]
        if frame.error:
            lane.error = frame.error
        for block in message.content:
            found += self._translate_block(lane, block, frame, native)
        if message.stop_reason and not lane.streams:  # not made piece by piece: this was all
            found += self._tracker.finish(lane, native)
        return found

    def _translate_block(self, lane: Lane, block: blocks.Block, frame: Assistant, native: Raw) -> list[Event]:
        if isinstance(block, blocks.ToolUse):
            index, _ = lane.claim(blocks.ToolUse, block.id)
            lane.count += 1
            return self._tracker.open_call(lane, block, frame.uuid, index, native)
        index, part = lane.claim(type(block))
        lane.count += 1
        rest = part.told if part is not None else 0
        found: list[Event] = []
        if isinstance(block, blocks.Thinking):
            if text := block.thinking[rest:]:
                found.append(events.Thinking(text=text, index=index, lane=lane.name, native=native))
            return found
        if isinstance(block, blocks.RedactedThinking):
            return found
        if isinstance(block, blocks.Text) and (text := block.text[rest:]):
            found.append(events.Text(text=text, index=index, lane=lane.name, native=native))
        if frame.aborted:  # cut off: no part of what the model said in the end
            lane.aborted = True
            return [*found, events.OtherEvent(kind="retracted", lane=lane.name, native=native)]
        if not isinstance(block, blocks.Text) or block.text:
            lane.said.append(FinishedBlock(to_block(block), frame.uuid, index))
        return found

    # -- results ------------------------------------------------------------------------------------------------------------------

    def _translate_user(self, frame: User, line: bytes) -> list[Event]:
        native = Raw(line)
        lane = self._tracker.get_lane(frame.parent_tool_use_id)
        found = [] if lane.streams else self._tracker.finish(lane, native)
        said = frame.message.content
        results = [block for block in said if isinstance(block, blocks.ToolResult)] if isinstance(said, list) else []
        if not results:
            kind = "replay" if frame.isReplay else "synthetic" if frame.isSynthetic else "text"
            return [*found, events.OtherEvent(kind=f"user/{kind}", lane=lane.name, native=native)]
        refused = _read_refusals(frame.tool_result_meta)
        details = decode_json(frame.tool_use_result) if len(results) == 1 else None
        for block in results:
            opened = self._tracker.calls.get(block.tool_use_id)
            if opened is None:  # of before, or long over
                found.append(events.OtherEvent(kind="user/tool_result", lane=lane.name, native=native))
                continue
            content = to_blocks(block.content)
            code = refused.get(block.tool_use_id)
            if code is None and not (block.is_error and _is_turned_away(content)):
                found += self._tracker.start_call(opened, native)
            result = ToolResult(content, bool(block.is_error), code or "", details=details)
            found += self._tracker.end_call(opened, result, native)
        return found

    def _translate_progress(self, frame: ToolProgress, line: bytes) -> list[Event]:
        native = Raw(line)
        opened = self._tracker.calls.get(frame.tool_use_id)
        text = f"{frame.elapsed_time_seconds:g} s"
        if opened is None:
            call = ToolCall(frame.tool_name, {}, frame.tool_use_id, ASKER)
            return [events.ToolProgress(call=call, text=text, lane=frame.parent_tool_use_id or "", native=native)]
        return [
            *self._tracker.start_call(opened, native),
            events.ToolProgress(call=opened.call, text=text, lane=opened.lane.name, native=native),
        ]

    def _translate_result(self, frame: Result, line: bytes) -> list[Event]:
        """The driver makes a turn's end of it; here only what the model said is over."""
        self.session = self.session or frame.session_id
        self._main.streams = False
        return self._tracker.finish(self._main, Raw(line))

    # -- all the rest -------------------------------------------------------------------------------------------------------------

    def _translate_system(self, frame: System, line: bytes) -> list[Event]:
        native = Raw(line)
        if frame.subtype == "init":
            return self._translate_init(frame, native)
        self.session = self.session or frame.session_id
        if frame.subtype == "status" and frame.permissionMode:
            self.mode = frame.permissionMode
        if frame.subtype == "api_retry":
            self._tracker.discard_streamed(self._main)
        found: list[Event] = []
        over = self._lanes.get(self._tracker.tasks.update(frame))
        if over is not None and over.name:
            found += self._tracker.leave(over, native)
        if frame.retracted_message_uuids:
            found.append(events.OtherEvent(kind="retracted", native=native))
            for lane in list(self._lanes.values()):
                found += self._tracker.retract(lane, frame.retracted_message_uuids, native)
        return [*found, *translate_system_frame(frame, native)]

    def _translate_init(self, frame: System, native: Raw) -> list[Event]:
        """At the start of every turn (spec agents 2.5): it is no second session."""
        self.session = frame.session_id or self.session
        self.model = frame.model or self.model
        self.version = frame.claude_code_version or self.version
        before, self.mode = self.mode, frame.permissionMode or self.mode
        return [events.StateChanged(state=f"mode:{self.mode}", native=native)] if before and self.mode != before else []

    def _translate_unknown(self, frame: Unknown, line: bytes) -> list[Event]:
        native = Raw(line)
        if frame.kind == "rate_limit_event" and (notice := read_limit_notice(native)) is not None:
            return [events.NoticeEvent(notice=notice, native=native)]
        return [events.OtherEvent(kind=frame.kind or "unknown", native=native)]


def _join_pieces(kind: type, part: StreamingBlock, index: int, text: str, lines: list[bytes]) -> list[Event]:
    """Pieces of one block that came together; `kind` is that of their deltas."""
    if not text:
        return []
    of, make = _PIECES[kind]
    part.told += len(text)
    if of is blocks.ToolUse:
        part.pieces.append(text)
    return [make(text=text, index=index, native=Raw(b"".join((b"[", b",".join(lines), b"]"))))]


def _parse_input(text: str) -> Any:
    """A call's input as it streamed; the text itself when it is no JSON."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


def _read_refusals(meta: Raw) -> dict[str, str]:
    """Which calls never ran, and our word for why: a person, a rule or a mode said no, or something else was wrong."""
    found: dict[str, str] = {}
    entries = decode_json(meta)
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(id := entry.get("id"), str):
            continue
        decision = entry.get("permission_decision")
        said_no = isinstance(decision, dict) and decision.get("decision") == "reject"
        kind = entry.get("non_execution_kind")
        if said_no or kind in _DENIED:
            found[id] = "DENIED"
        elif kind:
            found[id] = ""
    return found


def _is_turned_away(content: tuple[Block, ...]) -> bool:
    """Whether a call was turned away before anybody was asked: there is no such tool, or it does not take that."""
    first = content[0] if content else None
    return isinstance(first, TextBlock) and first.text.startswith(_TURNED_AWAY)


# What its word for an error lets a person do.
HINTS: Final = {
    "api_error": "the model's API failed: try again, or look at its status",
    "bad_flag": "the program does not take these options: look at its version, and at the options of the session",
    "bad_session_id": "a session's id is a UUID: leave it out, or give one",
    "budget_exhausted": "raise the budget, or prompt again to go on",
    "cwd_unavailable": "the working directory is gone: start in one that is there",
    "error_max_budget_usd": "raise the budget, or prompt again to go on",
    "error_max_turns": "raise the number of turns, or prompt again to go on",
    "not_logged_in": "log in with `claude` and /login, or set ANTHROPIC_API_KEY",
    "prompt_too_long": "the conversation is too long for the model: shorten it with /compact, or begin another one",
    "session_in_use": "the session is open elsewhere, or its id was used before: resume it, or take another id",
}
_BY_STATUS: Final = {
    401: "the API key or the login is not taken: check ANTHROPIC_API_KEY, or log in with `claude` and /login",
    403: "the API key or the login may not do this: check whose it is",
    429: "too many requests, or too much used: wait, then prompt again",
    529: "the API is overloaded: wait, then prompt again",
}
_NO_SESSION: Final = re.compile(r"No conversation found", re.IGNORECASE)
_NOT_LOGGED_IN: Final = re.compile(
    r"not logged in|please run /login|invalid api key|no api key|oauth token .*expired", re.IGNORECASE
)
# What it writes to its stderr when it does not start; the first that fits counts (spec agents 2.12).
_STARTED: Final = (
    ("session_in_use", re.compile(r"session id \S+ is already in use", re.IGNORECASE)),
    ("bad_session_id", re.compile(r"invalid session id|is not a valid uuid|no conversation found with session id", re.IGNORECASE)),
    ("not_logged_in", _NOT_LOGGED_IN),
    ("cwd_unavailable", re.compile(r"current directory no longer exists|\buv_cwd\b|\bgetcwd\b", re.IGNORECASE)),
    (
        "bad_flag",
        re.compile(
            r"^error: (unknown option|unknown command|option '|missing required argument|required option|too many arguments)"
            r"|^error: .*--[a-z][\w-]*.* (requires|can only be used|cannot be used|must be)"
            r"|^--[a-z][\w-]* cannot be used"
            r"|^error: (invalid mcp config|settings file not found|invalid settings)",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
)


class ClaudeTurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is there for every error, also for one that calls itself a success. `usage.cost_usd` is that of the program so far:
    the last result's counts, and costs are never summed. `steps` are those that the program counts.
    """

    status: str
    text: str = ""
    error: AgentFailed | None = None
    usage: Usage = Usage()
    steps: int = 0
    seconds: float = 0.0
    session_id: str = ""
    queued: int = 0  # prompts that wait
    origin: str = ""  # whose prompt it was: empty or `human` for a person's
    uuids: tuple[str, ...] = ()  # of the prompts that it answers
    index: int = 0  # of the results of the program
    reason: str = ""  # its own word for why the turn ended
    native: Any = None

    @property
    def interrupted(self) -> bool:
        return self.reason.startswith("aborted_")

    def answers(self, uuid: str = "") -> bool:
        """Whether it is the end of our prompt, and not of a turn that the program began itself (spec agents 2.11)."""
        if uuid and self.uuids:
            return uuid in self.uuids
        return self.origin in ("", "human")

    def to_turn_result(self) -> TurnResult:
        """In neutral words."""
        status = self.status if self.status in ("success", "cancelled") else "error"
        return TurnResult(
            status=status,  # type: ignore[arg-type]
            text=self.text,
            session=self.session_id,
            error="" if self.error is None else self.error.message,
            steps=self.steps,
            usage=self.usage,
            seconds=self.seconds,
            native=self.native,
        )


def read_outcome(result: Result, line: bytes, *, stderr: str = "") -> ClaudeTurnOutcome:
    """What a result says; `stderr` is the tail of the program's, for the error."""
    native = Raw(line)
    failed = bool(result.is_error) or result.subtype != "success"
    reason = result.terminal_reason or ""
    error = _build_error(result, native, stderr) if failed else None
    used = to_usage(result.usage) if result.usage is not None else Usage()
    origin = result.origin.get("kind") if isinstance(result.origin, dict) else result.origin
    return ClaudeTurnOutcome(
        status="success" if not failed else "cancelled" if reason.startswith("aborted_") else "error",
        text="" if failed else result.result or "",
        error=error,
        usage=msgspec.structs.replace(used, cost_usd=result.total_cost_usd),
        steps=result.num_turns,
        seconds=result.duration_ms / 1000,
        session_id=result.session_id,
        queued=result.queued_turn_count or 0,
        origin=origin if isinstance(origin, str) else "",
        uuids=tuple(dict.fromkeys(filter(None, (result.user_message_uuid, *(result.user_message_uuids or ()))))),
        index=result.result_index or 0,
        reason=reason,
        native=native,
    )


def classify_start_failure(stderr: str) -> str:
    """Why the program did not start, by what it wrote to its stderr; empty when that does not tell."""
    text = strip_text(stderr)
    return next((kind for kind, pattern in _STARTED if pattern.search(text)), "")


def _build_error(result: Result, native: Raw, stderr: str) -> AgentFailed:
    details = _collect_details(result)
    kind = _classify_error(result, details)
    status = result.api_error_status or 0
    said = "; ".join(details)
    what = _describe_error(result, kind)
    hint = _BY_STATUS.get(status) or HINTS.get(kind, "")
    if any(map(_NO_SESSION.search, details)):
        hint = "look at the list of its sessions; one that was never prompted is not kept"
    aborted = (result.terminal_reason or "").startswith("aborted_")  # its details are for its makers
    message = f"{what}: {said}" if said and not aborted else what
    return AgentFailed(message, kind=kind, details=details, status=status, native=native, who=ASKER, stderr=stderr, hint=hint)


def _collect_details(result: Result) -> tuple[str, ...]:
    """Its lines about the error or, without any, the first other text that there is (spec agents 1.11)."""
    errors = tuple(strip_text(error if isinstance(error, str) else _encode_json(error)) for error in result.errors or () if error)
    if errors:
        return errors
    for other in (result.error, result.result, result.startup_failure_reason):
        if other:
            return (strip_text(other if isinstance(other, str) else _encode_json(other)),)
    return ()


def _classify_error(result: Result, details: tuple[str, ...]) -> str:
    """Its own word: the subtype, unless that says success; then why the turn ended."""
    if result.subtype not in ("", "success"):
        return result.subtype
    if any(map(_NOT_LOGGED_IN.search, details)) and not result.api_error_status:
        return "not_logged_in"
    return result.terminal_reason if result.terminal_reason not in (None, "", "completed") else "error"


def _describe_error(result: Result, kind: str) -> str:
    """Never "error result: success" (spec agents 1.11)."""
    if (result.terminal_reason or "").startswith("aborted_"):
        return f"the turn was interrupted ({result.terminal_reason})"
    if kind == "api_error":
        return f"the model's API failed (status {result.api_error_status})" if result.api_error_status else "the model's API failed"
    if kind == "not_logged_in":
        return "it has no login"
    return f"returned an error result ({kind})"


def _encode_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        return str(value)
