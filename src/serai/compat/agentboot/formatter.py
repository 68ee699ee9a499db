"""Claude Code's frames as text for people (spec agents 2.15). One formatter for each stream.

It remembers the names of tools by the ids of their uses, to label results; ids are never shown. A frame with nothing to show is
"", which is not sent on. No input makes it raise, and no terminal escape gets out; a value of another type than expected reads as
empty. Uses of tools (spec agents 5.2 F14) and their results (spec agents 5.2 F18) have a row for each tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from serai.dialects.claude.messages import FromCli
from serai.plain_text import strip_output, strip_text
from serai.wire import codec
from serai.wire.codec import Noise, Unknown

_WIDE = 120  # characters of one value in a line
_HUGE = 1e15


def to_plain(text: str) -> str:
    """Without escapes and control characters; newlines and tabs stay. A lone carriage return begins a line."""
    return strip_text(strip_output(text))


def cut(text: str, most: int = _WIDE) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def to_line(text: str, most: int = _WIDE) -> str:
    """All in one line, and not too long a one."""
    return cut(" ".join(to_plain(text).split()), most)


def format_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def to_text(value: Any, most: int = _WIDE) -> str:
    """Any JSON value in a line."""
    if isinstance(value, str):
        return to_line(value, most)
    try:
        return to_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str), most)
    except (ValueError, RecursionError):
        return "…"


class JsonFields:
    """The members of an object that should be one."""

    def __init__(self, value: Any) -> None:
        self.members: Mapping[str, Any] = value if isinstance(value, Mapping) else {}

    def get_text(self, *names: str) -> str:
        """The first of them that is a text and says something, as it is."""
        return next((value for name in names if isinstance(value := self.members.get(name), str) and value), "")

    def get_line(self, *names: str, most: int = _WIDE) -> str:
        """The same, in a line."""
        return to_line(self.get_text(*names), most)

    def find_number(self, *names: str) -> float | None:
        """The first of them that is a number, of a size that can be."""
        for value in (self.members.get(name) for name in names):
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE:
                return value
        return None

    def find_int(self, *names: str) -> int | None:
        number = self.find_number(*names)
        return None if number is None else int(number)

    def get_list(self, name: str) -> list[Any]:
        value = self.members.get(name)
        return list(value) if isinstance(value, list | tuple) else []

    def get_object(self, name: str) -> JsonFields:
        return JsonFields(self.members.get(name))

    def is_true(self, name: str) -> bool:
        return self.members.get(name) is True


Line = Callable[[JsonFields], str]
More = Callable[[JsonFields], Iterator[str]]

MARKS = {"completed": "☑", "in_progress": "▶"}  # of a todo; else it is open
_DETAIL_LINES = 10  # lines of a detail


def format_use(tool: str, input: Any) -> str:
    """What is done, for people. Never raises, whatever the input is."""
    given = JsonFields(input)
    row = _LINES.get(tool)
    return row(given) if row is not None else _join(to_line(tool) or "Tool", _format_pairs(given))


def list_details(tool: str, input: Any) -> list[str]:
    """What else is worth seeing of it: why, or what changes."""
    more = _DETAILS.get(tool)
    return [] if more is None else list(more(JsonFields(input)))


def format_read_subject(input: Any) -> str:
    """What a `Read` reads."""
    given = JsonFields(input)
    return _join(_format_path(given), _format_range(given))


def format_reads(inputs: list[Any]) -> str:
    """Several `Read`s in a row."""
    reads = [read for one in inputs if (read := format_read_subject(one))]
    return _join(f"Read {format_count(len(inputs), 'file')}:", cut(", ".join(reads), 240)) if reads else f"Read {len(inputs)} files"


# -- parts


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _format_path(given: JsonFields) -> str:
    return given.get_line("file_path", "notebook_path", "path")


def _format_pairs(given: JsonFields) -> str:
    """Sorted by key (spec agents 5.2 F15), so that it looks the same every time."""
    return " ".join(f"{to_line(str(key), 40)}={to_text(given.members[key], 80)}" for key in sorted(given.members, key=str))


def _quote(text: str) -> str:
    return f'"{text}"' if text else ""


def _format_folder(given: JsonFields) -> str:
    path = given.get_line("path")
    return f"in {path}" if path else ""


def _format_range(given: JsonFields) -> str:
    """The lines from `offset` on, `limit` of them."""
    start, limit = given.find_int("offset"), given.find_int("limit")
    if start is None and limit is None:
        return ""
    start = 1 if start is None else start
    return f"L{start}-" if limit is None else f"L{start}-{start + limit - 1}"


def _count_lines(text: str) -> int:
    return len(text.splitlines())


# -- rows


def _format_bash(given: JsonFields) -> str:
    """`$` and what is run: several lines are one, cut where it is too long."""
    return f"$ {given.get_line('command')}".rstrip()


def _format_write(given: JsonFields) -> str:
    content = given.get_text("content")
    return _join("Write", _format_path(given), f"({format_count(_count_lines(content), 'line')})" if content else "")


def _format_edit(given: JsonFields) -> str:
    return _join("Edit", _format_path(given), "(replace_all)" if given.is_true("replace_all") else "")


def _format_multi_edit(given: JsonFields) -> str:
    return _join("MultiEdit", _format_path(given), f"({format_count(len(given.get_list('edits')), 'edit')})")


def _format_bash_output(given: JsonFields) -> str:
    wanted = given.get_line("filter")
    return _join("BashOutput", given.get_line("bash_id", "task_id"), f"/{wanted}/" if wanted else "")


def _format_grep(given: JsonFields) -> str:
    return _join(
        "Grep",
        _quote(given.get_line("pattern")),
        _format_folder(given),
        given.get_line("glob", "type"),
        _bracket(given.get_line("output_mode")),
    )


def _bracket(text: str) -> str:
    return f"({text})" if text else ""


def _format_task(name: str, given: JsonFields) -> str:
    kind, what = given.get_line("subagent_type"), given.get_line("description")
    return _join(name, f"{kind}:" if kind and what else kind, what)


def _format_todos(given: JsonFields) -> str:
    return _join("TodoWrite", format_count(len(given.get_list("todos")), "todo"))


def _format_notebook(given: JsonFields) -> str:
    return _join("NotebookEdit", _format_path(given), _bracket(_join(given.get_line("edit_mode"), given.get_line("cell_type"))))


def _format_plan(given: JsonFields) -> str:
    return _join("ExitPlanMode", f"({format_count(len(given.get_text('plan')), 'character')})")


def _format_slash_command(given: JsonFields) -> str:
    command = given.get_line("command")
    return command if command.startswith("/") else _join("SlashCommand", command)


def _format_ask(given: JsonFields) -> str:
    """A list of questions, or one question by itself."""
    asked = [text for one in given.get_list("questions") if (text := _format_question(one))] or [given.get_line("question")]
    return _join("AskUserQuestion", _quote(asked[0]), f"+{len(asked) - 1} more" if len(asked) > 1 else "")


def _format_question(one: Any) -> str:
    return to_line(one) if isinstance(one, str) else JsonFields(one).get_line("question", "header")


_LINES: Mapping[str, Line] = {
    "Read": lambda given: _join("Read", _format_path(given), _format_range(given)),
    "Write": _format_write,
    "Edit": _format_edit,
    "MultiEdit": _format_multi_edit,
    "Bash": _format_bash,
    "BashOutput": _format_bash_output,
    "KillBash": lambda given: _join("KillBash", given.get_line("shell_id", "bash_id")),
    "KillShell": lambda given: _join("KillShell", given.get_line("shell_id", "bash_id")),
    "Grep": _format_grep,
    "Glob": lambda given: _join("Glob", given.get_line("pattern"), _format_folder(given)),
    "WebFetch": lambda given: _join("WebFetch", given.get_line("url")),
    "WebSearch": lambda given: _join("WebSearch", _quote(given.get_line("query"))),
    "Task": lambda given: _format_task("Task", given),
    "Agent": lambda given: _format_task("Agent", given),  # its later name
    "TodoWrite": _format_todos,
    "NotebookEdit": _format_notebook,
    "ExitPlanMode": _format_plan,
    "SlashCommand": _format_slash_command,
    "AskUserQuestion": _format_ask,
}


# -- details (spec agents 5.2 F12)


def _iter_description(given: JsonFields) -> Iterator[str]:
    if text := given.get_line("description"):
        yield text


def _iter_signed(sign: str, text: str) -> Iterator[str]:
    lines = to_plain(text).splitlines()
    for line in lines[:_DETAIL_LINES]:
        yield f"{sign} {cut(line)}"
    if len(lines) > _DETAIL_LINES:
        yield f"{sign} … +{len(lines) - _DETAIL_LINES} more lines"


def _iter_diff(given: JsonFields) -> Iterator[str]:
    yield from _iter_signed("-", given.get_text("old_string"))
    yield from _iter_signed("+", given.get_text("new_string"))


def _iter_diffs(given: JsonFields) -> Iterator[str]:
    for one in given.get_list("edits")[:_DETAIL_LINES]:
        yield from _iter_diff(JsonFields(one))


def _iter_todos(given: JsonFields) -> Iterator[str]:
    for one in given.get_list("todos"):
        todo = JsonFields(one)
        yield f"{MARKS.get(todo.get_text('status'), '☐')} {todo.get_line('content', 'activeForm')}".rstrip()


def _iter_questions(given: JsonFields) -> Iterator[str]:
    for one in given.get_list("questions"):
        labels = [label for option in JsonFields(one).get_list("options") if (label := _format_label(option))]
        yield _join(_format_question(one), f"[{' | '.join(labels)}]" if labels else "")


def _format_label(option: Any) -> str:
    return to_line(option) if isinstance(option, str) else JsonFields(option).get_line("label")


_DETAILS: Mapping[str, More] = {
    "Bash": _iter_description,
    "Edit": _iter_diff,
    "MultiEdit": _iter_diffs,
    "Write": lambda given: _iter_signed("+", given.get_text("content")),
    "NotebookEdit": lambda given: _iter_signed("+", given.get_text("new_source")),
    "TodoWrite": _iter_todos,
    "AskUserQuestion": _iter_questions,
    "ExitPlanMode": lambda given: _iter_signed("|", given.get_text("plan")),
    "Task": lambda given: _iter_signed("|", given.get_text("prompt")),
    "Agent": lambda given: _iter_signed("|", given.get_text("prompt")),
    "WebFetch": lambda given: _iter_signed("|", given.get_text("prompt")),
}


UNKNOWN = "Result"  # the name of a tool that nobody told of
_FEW, _FIRST = 3, 5  # lines that are shown

Summary = Callable[[str, list[str]], str]


def format_result(tool: str, content: Any, *, is_error: bool) -> str:
    """`✓` or `✗`, the tool, and what is worth seeing of its result. Empty: nothing is."""
    name = to_line(tool) or UNKNOWN
    lines = to_plain(extract_text(content)).strip("\n").splitlines()
    if is_error:
        return _format_lines(f"✗ {name}", lines, lines[:_FIRST], "lines")
    return _SUMMARIES.get(tool, _format_first)(name, lines)


def extract_text(content: Any) -> str:
    """A result is a text, blocks, or absent (spec agents 2.5)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    parts = []
    for one in content:
        block = JsonFields(one)
        kind = block.get_text("type")
        parts.append(block.get_text("text") if kind == "text" else f"[{to_line(kind)}]" if kind else "")
    return "\n".join(part for part in parts if part)


def _format_lines(head: str, lines: list[str], some: list[str], what: str = "", *, above: bool = False) -> str:
    """The head and some of the lines; how many are left, where they would stand."""
    left = len(lines) - len(some)
    more = [f"  +{left} more {what}".rstrip()] if left > 0 else []
    body = [f"  {cut(line)}" for line in some]
    return "\n".join([head, *(more + body if above else body + more)])


def _format_first(name: str, lines: list[str]) -> str:
    return _format_lines(f"✓ {name}", lines, lines[:_FIRST], "lines")


def _format_line_count(name: str, lines: list[str]) -> str:
    return f"✓ {name}: {format_count(len(lines), 'line')}"


def _format_last(name: str, lines: list[str]) -> str:
    """How a command ended is what matters."""
    return _format_lines(f"✓ {name}", lines, lines[-_FEW:], above=True)


def _format_matches(name: str, lines: list[str]) -> str:
    return _format_lines(f"✓ {name}: {len(lines)} {'match' if len(lines) == 1 else 'matches'}", lines, lines[:_FEW])


def _format_nothing(_name: str, _lines: list[str]) -> str:
    """Its use said it all."""
    return ""


def _format_todos_result(_name: str, _lines: list[str]) -> str:
    return "✓ Todos updated"


_SUMMARIES: Mapping[str, Summary] = {
    "Read": _format_line_count,
    "Bash": _format_last,
    "BashOutput": _format_last,
    "Grep": _format_matches,
    "Glob": _format_matches,
    "Edit": _format_nothing,
    "MultiEdit": _format_nothing,
    "NotebookEdit": _format_nothing,
    "Write": _format_nothing,
    "TodoWrite": _format_todos_result,
}


_REMEMBERED_USES = 4096  # tool uses that are remembered; the older half is forgotten when there are more
_SERVER_RESULT = "_tool_result"  # how the types of their blocks end: web_search_tool_result, …


class TranscriptFormatter:
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
        given = _to_fields(frame)
        kind = given.get_text("type")
        row = self._KINDS.get(kind)
        return to_plain(row(self, given)) if row is not None else ""

    # -- what is said

    def _format_assistant(self, frame: JsonFields) -> str:
        """The text first, then the tools (spec agents 5.2 F19). `message` may be a text, as in the seed."""
        message = frame.members.get("message")
        if isinstance(message, str):
            return message
        lane = frame.get_text("parent_tool_use_id")
        texts: list[str] = []
        uses: list[JsonFields] = []
        others: list[str] = []
        for block in map(JsonFields, JsonFields(message).get_list("content")):
            match block.get_text("type"):
                case "text":
                    texts.append(self._format_text(block.get_text("text"), lane))
                case "thinking" if self._verbose:
                    texts.append(_add_mark("[THINKING]", block.get_text("thinking")))
                case "tool_use" | "server_tool_use":
                    self._remember(block, inside=True)
                    uses.append(block)
                case "tool_result":
                    others.append(self._format_tool_result(block))
                case kind if kind.endswith(_SERVER_RESULT):
                    others.append(self._format_server_result(block, kind))
        return _join_lines(*texts, *self._iter_uses(uses), *others)

    def _format_text(self, text: str, lane: str) -> str:
        """A block that has streamed already is not said again; it comes before its end does (spec agents 2.10)."""
        return "" if text and "".join(self._streamed.pop(lane, ())) == text else text

    def _iter_uses(self, uses: list[JsonFields]) -> Iterator[str]:
        """Reads in a row are one, unless somebody wants to see all (spec agents 5.2 F17)."""
        waiting: list[JsonFields] = []
        for use in uses:
            if use.get_text("name") == "Read" and not self._details:
                waiting.append(use)
                continue
            yield from self._iter_reads(waiting)
            waiting = []
            yield self._format_use(use)
        yield from self._iter_reads(waiting)

    def _iter_reads(self, uses: list[JsonFields]) -> Iterator[str]:
        if len(uses) == 1:
            yield self._format_use(uses[0])
        elif uses:
            yield format_reads([use.members.get("input") for use in uses])

    def _format_use(self, use: JsonFields) -> str:
        tool, input = use.get_text("name", "tool_name"), use.members.get("input")
        more = list_details(tool, input) if self._details else []
        return "\n".join([format_use(tool, input), *(f"  {line}" for line in more)])

    def _remember(self, use: JsonFields, *, inside: bool = False) -> None:
        id = use.get_text("id", "tool_use_id", "tool_id")
        if not id:
            return
        self._names[id] = use.get_text("name", "tool_name")
        if inside:
            self._inside[id] = None
        if len(self._names) > _REMEMBERED_USES:
            self._names = dict(list(self._names.items())[_REMEMBERED_USES // 2 :])
            self._inside = dict(list(self._inside.items())[-_REMEMBERED_USES // 2 :])

    def _format_standalone_use(self, use: JsonFields) -> str:
        """A use that comes by itself, if it was not seen inside a message (spec agents 5.2 F20)."""
        if use.get_text("id", "tool_use_id", "tool_id") in self._inside:
            return ""
        self._remember(use)
        return self._format_use(use)

    def _format_tool_result(self, block: JsonFields) -> str:
        tool = self._names.get(block.get_text("tool_use_id", "tool_id"), "") or block.get_text("tool_name")
        return format_result(tool, block.members.get("content"), is_error=block.is_true("is_error"))

    def _format_server_result(self, block: JsonFields, kind: str) -> str:
        """Of a tool that ran at the provider: what it found is for the model."""
        tool = self._names.get(block.get_text("tool_use_id"), "") or kind.removesuffix(_SERVER_RESULT)
        found = block.members.get("content")
        error = JsonFields(found).get_line("error_code") if JsonFields(found).get_text("type").endswith("_error") else ""
        if error:
            return f"✗ {to_line(tool)}: {error}"
        return f"✓ {to_line(tool)}" + (f": {len(found)} results" if isinstance(found, list | tuple) else "")

    def _format_user(self, frame: JsonFields) -> str:
        message = frame.members.get("message")
        content = message if isinstance(message, str) else JsonFields(message).members.get("content")
        if isinstance(content, str):
            return _add_mark("[USER]", content)
        parts = []
        for block in map(JsonFields, content if isinstance(content, list | tuple) else ()):
            match block.get_text("type"):
                case "text":
                    parts.append(_add_mark("[USER]", block.get_text("text")))
                case "tool_result":
                    parts.append(self._format_tool_result(block))
                case "image" | "document" as kind:
                    parts.append(f"[USER] [{kind}]")
        return _join_lines(*parts)

    # -- pieces

    def _format_stream_event(self, frame: JsonFields) -> str:
        event, lane = frame.get_object("event"), frame.get_text("parent_tool_use_id")
        if event.get_text("type") == "content_block_start":
            self._streamed[lane] = []
        if event.get_text("type") != "content_block_delta":
            return ""
        delta = event.get_object("delta")
        match delta.get_text("type"):
            case "text_delta":
                text = delta.get_text("text")
                self._streamed.setdefault(lane, []).append(text)
                return text
            case "thinking_delta" if self._verbose:
                return delta.get_text("thinking")
        return ""

    def _format_delta(self, frame: JsonFields) -> str:
        """A piece in the seed's form."""
        return frame.get_text("delta", "text")

    # -- what happens

    def _format_system(self, frame: JsonFields) -> str:
        row = _SYSTEM.get(frame.get_text("subtype"))
        return row(frame) if row is not None else ""

    def _format_rate_limit(self, frame: JsonFields) -> str:
        """Only when it matters: it is told also when all is well."""
        about = frame.get_object("rate_limit_info")
        status = about.get_line("status")
        if status in ("", "allowed"):
            return ""
        return f"[RETRY] rate limit {status}: {about.get_line('rateLimitType') or 'unknown'}"

    def _format_result(self, frame: JsonFields) -> str:
        """`is_error` counts even with the subtype `success` (spec agents 2.11)."""
        subtype, failed = frame.get_line("subtype"), bool(frame.members.get("is_error"))
        good = not failed and subtype in ("", "success")
        parts = ["[RESULT]", "SUCCESS" if good else "ERROR"]
        if not good and subtype not in ("", "success"):
            parts.append(f"({subtype})")
        parts += _iter_usage(frame)
        errors = (
            [] if good else [to_text(one, 400) for one in frame.get_list("errors")] or [frame.get_line("error", "result", most=400)]
        )
        denied = [JsonFields(one).get_line("tool_name") or "a tool" for one in frame.get_list("permission_denials")]
        told = [f"  {one}" for one in errors if one]
        return _join_lines(" ".join(parts), *told, f"  denied: {', '.join(denied)}" if denied else "")

    _KINDS: Mapping[str, Callable[[TranscriptFormatter, JsonFields], str]] = {
        "system": _format_system,
        "assistant": _format_assistant,
        "user": _format_user,
        "stream_event": _format_stream_event,
        "stream_delta": _format_delta,
        "text_delta": _format_delta,
        "tool_use": _format_standalone_use,
        "tool_result": _format_tool_result,
        "rate_limit_event": _format_rate_limit,
        "result": _format_result,
    }


def _to_fields(frame: FromCli | Unknown | Noise | Mapping[str, Any] | bytes | str) -> JsonFields:
    if isinstance(frame, Mapping):
        return JsonFields(frame)
    try:
        if isinstance(frame, Unknown | Noise):
            frame = frame.raw
        if not isinstance(frame, bytes | str):
            frame = codec.encode(frame)
        return JsonFields(msgspec.json.decode(frame))
    except codec.BAD_INPUT:  # what is no frame shows nothing
        return JsonFields(None)


def _join_lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _add_mark(mark: str, text: str) -> str:
    return f"{mark} {text}" if text.strip() else ""


def _iter_usage(frame: JsonFields) -> Iterator[str]:
    if (duration := frame.find_int("duration_ms")) is not None:
        yield f"{duration}ms"
    if (cost := frame.find_number("total_cost_usd", "cost_usd")) is not None:
        yield f"${cost:.4f}"
    usage = frame.get_object("usage")
    counts = [(usage.find_int("input_tokens"), "in"), (usage.find_int("output_tokens"), "out")]
    if told := [f"{count} {way}" for count, way in counts if count is not None]:
        yield f"tokens {', '.join(told)}"


# -- system messages: what has no row is not shown (spec agents 5.2 F1, F2)


def _format_init(frame: JsonFields) -> str:
    version = frame.get_line("claude_code_version")
    told = [
        f"Claude Code {version}" if version else "",
        frame.get_line("model"),
        frame.get_line("permissionMode"),
        frame.get_line("cwd"),
    ]
    return f"[INIT] {', '.join(one for one in told if one)}".rstrip()


def _format_retry(frame: JsonFields) -> str:
    """Old and other programs spell its members otherwise (spec agents 2.10)."""
    attempt = frame.find_int("attempt", "retry", "retries", "retryCount")
    delay = frame.find_number("retry_delay_ms", "delay_ms", "delayMs", "retry_after_ms")
    reason = frame.get_line("error", "message", "reason") or to_text(frame.members.get("error") or "", 120)
    status = frame.find_int("error_status")
    head = "[RETRY] the model could not be asked" + (f" (attempt {attempt})" if attempt is not None else "")
    wait = f", retry in {_format_duration(delay)}" if delay is not None else ""
    why = " ".join(part for part in (reason, f"({status})" if status is not None else "") if part)
    return head + wait + (f": {why}" if why else "")


def _format_duration(milliseconds: float) -> str:
    return f"{milliseconds:g}ms" if milliseconds < 1000 else f"{round(milliseconds / 1000, 1):g}s"


def _format_task_started(frame: JsonFields) -> str:
    return f"[TASK] started: {frame.get_line('description') or 'a task'}"


def _format_task_ended(frame: JsonFields) -> str:
    return f"[TASK] {frame.get_line('status') or 'over'}: {frame.get_line('summary', 'description') or 'a task'}"


_SYSTEM: Mapping[str, Callable[[JsonFields], str]] = {
    "init": _format_init,
    "api_retry": _format_retry,
    "rate_limit": _format_retry,
    "task_started": _format_task_started,
    "task_notification": _format_task_ended,
}
