"""Claude Code's frames as text for people (spec agents 2.15). One formatter for each stream.

It remembers the names of tools by the ids of their uses, to label results; ids are never shown. What has nothing to show is "",
and nobody sends that on. Nothing that comes in makes it raise, and no terminal escape gets out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from serai.dialects.claude.messages import FromCli
from serai.dialects.claude.rendering.oneliners import details, grouped_reads, one_liner
from serai.dialects.claude.rendering.plain import Given, one_line, plain, shown
from serai.dialects.claude.rendering.results import summary
from serai.wire import codec
from serai.wire.codec import Noise, Unknown

__all__ = ["Formatter"]

_MOST = 4096  # tool uses that are remembered; the older half is forgotten when there are more
_SERVER_RESULT = "_tool_result"  # how the types of their blocks end: web_search_tool_result, …


class Formatter:
    """`verbose` shows thinking; `details` adds to a use of a tool why, or what it changes."""

    def __init__(self, *, verbose: bool = False, details: bool = False) -> None:
        self._verbose = verbose
        self._details = details
        # Each is changed by one operation only, so that threads may share a formatter (spec agents 5.2 F22).
        self._names: dict[str, str] = {}  # by the id of the use
        self._inside: dict[str, None] = {}  # ids of those that were shown inside a message
        self._streamed: dict[str, list[str]] = {}  # the text block that streams, by lane

    def show(self, frame: FromCli | Unknown | Noise | Mapping[str, Any] | bytes | str) -> str:
        """What a person sees of it: a frame, its line, or the object that the line is."""
        given = _given(frame)
        kind = given.text("type")
        row = self._KINDS.get(kind)
        return plain(row(self, given)) if row is not None else ""

    # -- what is said

    def _assistant(self, frame: Given) -> str:
        """The text first, then the tools (spec agents 5.2 F19). `message` may be a text, as in the seed."""
        message = frame.members.get("message")
        if isinstance(message, str):
            return message
        lane = frame.text("parent_tool_use_id")
        texts: list[str] = []
        uses: list[Given] = []
        others: list[str] = []
        for block in map(Given, Given(message).items("content")):
            match block.text("type"):
                case "text":
                    texts.append(self._text(block.text("text"), lane))
                case "thinking" if self._verbose:
                    texts.append(_marked("[THINKING]", block.text("thinking")))
                case "tool_use" | "server_tool_use":
                    self._remember(block, inside=True)
                    uses.append(block)
                case "tool_result":
                    others.append(self._tool_result(block))
                case kind if kind.endswith(_SERVER_RESULT):
                    others.append(self._server_result(block, kind))
        return _lines(*texts, *self._uses(uses), *others)

    def _text(self, text: str, lane: str) -> str:
        """A block that has streamed already is not said again; it comes before its end does (spec agents 2.10)."""
        return "" if text and "".join(self._streamed.pop(lane, ())) == text else text

    def _uses(self, uses: list[Given]) -> Iterator[str]:
        """Reads in a row are one, unless somebody wants to see all (spec agents 5.2 F17)."""
        waiting: list[Given] = []
        for use in uses:
            if use.text("name") == "Read" and not self._details:
                waiting.append(use)
                continue
            yield from self._reads(waiting)
            waiting = []
            yield self._use(use)
        yield from self._reads(waiting)

    def _reads(self, uses: list[Given]) -> Iterator[str]:
        if len(uses) == 1:
            yield self._use(uses[0])
        elif uses:
            yield grouped_reads([use.members.get("input") for use in uses])

    def _use(self, use: Given) -> str:
        tool, input = use.text("name", "tool_name"), use.members.get("input")
        more = details(tool, input) if self._details else []
        return "\n".join([one_liner(tool, input), *(f"  {line}" for line in more)])

    def _remember(self, use: Given, *, inside: bool = False) -> None:
        id = use.text("id", "tool_use_id", "tool_id")
        if not id:
            return
        self._names[id] = use.text("name", "tool_name")
        if inside:
            self._inside[id] = None
        if len(self._names) > _MOST:
            self._names = dict(list(self._names.items())[_MOST // 2 :])
            self._inside = dict(list(self._inside.items())[-_MOST // 2 :])

    def _standalone(self, use: Given) -> str:
        """A use that comes by itself, if it was not seen inside a message (spec agents 5.2 F20)."""
        if use.text("id", "tool_use_id", "tool_id") in self._inside:
            return ""
        self._remember(use)
        return self._use(use)

    def _tool_result(self, block: Given) -> str:
        tool = self._names.get(block.text("tool_use_id", "tool_id"), "") or block.text("tool_name")
        return summary(tool, block.members.get("content"), is_error=block.true("is_error"))

    def _server_result(self, block: Given, kind: str) -> str:
        """Of a tool that ran at the provider: what it found is for the model."""
        tool = self._names.get(block.text("tool_use_id"), "") or kind.removesuffix(_SERVER_RESULT)
        found = block.members.get("content")
        error = Given(found).line("error_code") if Given(found).text("type").endswith("_error") else ""
        if error:
            return f"✗ {one_line(tool)}: {error}"
        return f"✓ {one_line(tool)}" + (f": {len(found)} results" if isinstance(found, list | tuple) else "")

    def _user(self, frame: Given) -> str:
        message = frame.members.get("message")
        content = message if isinstance(message, str) else Given(message).members.get("content")
        if isinstance(content, str):
            return _marked("[USER]", content)
        parts = []
        for block in map(Given, content if isinstance(content, list | tuple) else ()):
            match block.text("type"):
                case "text":
                    parts.append(_marked("[USER]", block.text("text")))
                case "tool_result":
                    parts.append(self._tool_result(block))
                case "image" | "document" as kind:
                    parts.append(f"[USER] [{kind}]")
        return _lines(*parts)

    # -- pieces

    def _stream(self, frame: Given) -> str:
        event, lane = frame.inner("event"), frame.text("parent_tool_use_id")
        if event.text("type") == "content_block_start":
            self._streamed[lane] = []
        if event.text("type") != "content_block_delta":
            return ""
        delta = event.inner("delta")
        match delta.text("type"):
            case "text_delta":
                text = delta.text("text")
                self._streamed.setdefault(lane, []).append(text)
                return text
            case "thinking_delta" if self._verbose:
                return delta.text("thinking")
        return ""

    def _delta(self, frame: Given) -> str:
        """A piece in the seed's form."""
        return frame.text("delta", "text")

    # -- what happens

    def _system(self, frame: Given) -> str:
        row = _SYSTEM.get(frame.text("subtype"))
        return row(frame) if row is not None else ""

    def _rate_limit(self, frame: Given) -> str:
        """Only when it matters: it is told also when all is well."""
        about = frame.inner("rate_limit_info")
        status = about.line("status")
        if status in ("", "allowed"):
            return ""
        return f"[RETRY] rate limit {status}: {about.line('rateLimitType') or 'unknown'}"

    def _result(self, frame: Given) -> str:
        """`is_error` counts even with the subtype `success` (spec agents 2.11)."""
        subtype, failed = frame.line("subtype"), bool(frame.members.get("is_error"))
        good = not failed and subtype in ("", "success")
        parts = ["[RESULT]", "SUCCESS" if good else "ERROR"]
        if not good and subtype not in ("", "success"):
            parts.append(f"({subtype})")
        parts += _spent(frame)
        errors = [] if good else [shown(one, 400) for one in frame.items("errors")] or [frame.line("error", "result", most=400)]
        denied = [Given(one).line("tool_name") or "a tool" for one in frame.items("permission_denials")]
        told = [f"  {one}" for one in errors if one]
        return _lines(" ".join(parts), *told, f"  denied: {', '.join(denied)}" if denied else "")

    _KINDS: Mapping[str, Callable[[Formatter, Given], str]] = {
        "system": _system,
        "assistant": _assistant,
        "user": _user,
        "stream_event": _stream,
        "stream_delta": _delta,
        "text_delta": _delta,
        "tool_use": _standalone,
        "tool_result": _tool_result,
        "rate_limit_event": _rate_limit,
        "result": _result,
    }


def _given(frame: FromCli | Unknown | Noise | Mapping[str, Any] | bytes | str) -> Given:
    if isinstance(frame, Mapping):
        return Given(frame)
    try:
        if isinstance(frame, Unknown | Noise):
            frame = frame.raw
        if not isinstance(frame, bytes | str):
            frame = codec.encode(frame)
        return Given(msgspec.json.decode(frame))
    except codec.BAD_INPUT:  # what is no frame shows nothing
        return Given(None)


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _marked(mark: str, text: str) -> str:
    return f"{mark} {text}" if text.strip() else ""


def _spent(frame: Given) -> Iterator[str]:
    if (duration := frame.whole("duration_ms")) is not None:
        yield f"{duration}ms"
    if (cost := frame.number("total_cost_usd", "cost_usd")) is not None:
        yield f"${cost:.4f}"
    usage = frame.inner("usage")
    counts = [(usage.whole("input_tokens"), "in"), (usage.whole("output_tokens"), "out")]
    if told := [f"{count} {way}" for count, way in counts if count is not None]:
        yield f"tokens {', '.join(told)}"


# -- system messages: what has no row is not shown (spec agents 5.2 F1, F2)


def _init(frame: Given) -> str:
    version = frame.line("claude_code_version")
    told = [f"Claude Code {version}" if version else "", frame.line("model"), frame.line("permissionMode"), frame.line("cwd")]
    return f"[INIT] {', '.join(one for one in told if one)}".rstrip()


def _retry(frame: Given) -> str:
    """Old and other programs spell its members otherwise (spec agents 2.10)."""
    attempt = frame.whole("attempt", "retry", "retries", "retryCount")
    delay = frame.number("retry_delay_ms", "delay_ms", "delayMs", "retry_after_ms")
    reason = frame.line("error", "message", "reason") or shown(frame.members.get("error") or "", 120)
    status = frame.whole("error_status")
    head = "[RETRY] the model could not be asked" + (f" (attempt {attempt})" if attempt is not None else "")
    wait = f", retry in {_duration(delay)}" if delay is not None else ""
    why = " ".join(part for part in (reason, f"({status})" if status is not None else "") if part)
    return head + wait + (f": {why}" if why else "")


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:g}ms" if milliseconds < 1000 else f"{round(milliseconds / 1000, 1):g}s"


def _task_started(frame: Given) -> str:
    return f"[TASK] started: {frame.line('description') or 'a task'}"


def _task_over(frame: Given) -> str:
    return f"[TASK] {frame.line('status') or 'over'}: {frame.line('summary', 'description') or 'a task'}"


_SYSTEM: Mapping[str, Callable[[Given], str]] = {
    "init": _init,
    "api_retry": _retry,
    "rate_limit": _retry,
    "task_started": _task_started,
    "task_notification": _task_over,
}
