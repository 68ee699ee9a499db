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


def plain(text: str) -> str:
    """Without escapes and control characters; newlines and tabs stay. A lone carriage return begins a line."""
    return strip_text(strip_output(text))


def cut(text: str, most: int = _WIDE) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def one_line(text: str, most: int = _WIDE) -> str:
    """All in one line, and not too long a one."""
    return cut(" ".join(plain(text).split()), most)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown(value: Any, most: int = _WIDE) -> str:
    """Any JSON value in a line."""
    if isinstance(value, str):
        return one_line(value, most)
    try:
        return one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str), most)
    except (ValueError, RecursionError):
        return "…"


class JsonFields:
    """The members of an object that should be one."""

    def __init__(self, value: Any) -> None:
        self.members: Mapping[str, Any] = value if isinstance(value, Mapping) else {}

    def text(self, *names: str) -> str:
        """The first of them that is a text and says something, as it is."""
        return next((value for name in names if isinstance(value := self.members.get(name), str) and value), "")

    def line(self, *names: str, most: int = _WIDE) -> str:
        """The same, in a line."""
        return one_line(self.text(*names), most)

    def number(self, *names: str) -> float | None:
        """The first of them that is a number, of a size that can be."""
        for value in (self.members.get(name) for name in names):
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE:
                return value
        return None

    def whole(self, *names: str) -> int | None:
        number = self.number(*names)
        return None if number is None else int(number)

    def items(self, name: str) -> list[Any]:
        value = self.members.get(name)
        return list(value) if isinstance(value, list | tuple) else []

    def inner(self, name: str) -> JsonFields:
        return JsonFields(self.members.get(name))

    def true(self, name: str) -> bool:
        return self.members.get(name) is True


Line = Callable[[JsonFields], str]
More = Callable[[JsonFields], Iterator[str]]

MARKS = {"completed": "☑", "in_progress": "▶"}  # of a todo; else it is open
_DETAIL_LINES = 10  # lines of a detail


def one_liner(tool: str, input: Any) -> str:
    """What is done, for people. Never raises, whatever the input is."""
    given = JsonFields(input)
    row = _LINES.get(tool)
    return row(given) if row is not None else _join(one_line(tool) or "Tool", _pairs(given))


def details(tool: str, input: Any) -> list[str]:
    """What else is worth seeing of it: why, or what changes."""
    more = _DETAILS.get(tool)
    return [] if more is None else list(more(JsonFields(input)))


def read_subject(input: Any) -> str:
    """What a `Read` reads."""
    given = JsonFields(input)
    return _join(_path(given), _range(given))


def grouped_reads(inputs: list[Any]) -> str:
    """Several `Read`s in a row."""
    subjects = [subject for one in inputs if (subject := read_subject(one))]
    return (
        _join(f"Read {counted(len(inputs), 'file')}:", cut(", ".join(subjects), 240)) if subjects else f"Read {len(inputs)} files"
    )


# -- parts


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _path(given: JsonFields) -> str:
    return given.line("file_path", "notebook_path", "path")


def _pairs(given: JsonFields) -> str:
    """Sorted by key (spec agents 5.2 F15), so that it looks the same every time."""
    return " ".join(f"{one_line(str(key), 40)}={shown(given.members[key], 80)}" for key in sorted(given.members, key=str))


def _quoted(text: str) -> str:
    return f'"{text}"' if text else ""


def _in(given: JsonFields) -> str:
    path = given.line("path")
    return f"in {path}" if path else ""


def _range(given: JsonFields) -> str:
    """The lines from `offset` on, `limit` of them."""
    start, limit = given.whole("offset"), given.whole("limit")
    if start is None and limit is None:
        return ""
    start = 1 if start is None else start
    return f"L{start}-" if limit is None else f"L{start}-{start + limit - 1}"


def _line_count(text: str) -> int:
    return len(text.splitlines())


# -- rows


def _bash(given: JsonFields) -> str:
    """`$` and what is run: several lines are one, cut where it is too long."""
    return f"$ {given.line('command')}".rstrip()


def _write(given: JsonFields) -> str:
    content = given.text("content")
    return _join("Write", _path(given), f"({counted(_line_count(content), 'line')})" if content else "")


def _edit(given: JsonFields) -> str:
    return _join("Edit", _path(given), "(replace_all)" if given.true("replace_all") else "")


def _multi_edit(given: JsonFields) -> str:
    return _join("MultiEdit", _path(given), f"({counted(len(given.items('edits')), 'edit')})")


def _bash_output(given: JsonFields) -> str:
    wanted = given.line("filter")
    return _join("BashOutput", given.line("bash_id", "task_id"), f"/{wanted}/" if wanted else "")


def _grep(given: JsonFields) -> str:
    return _join(
        "Grep", _quoted(given.line("pattern")), _in(given), given.line("glob", "type"), _bracketed(given.line("output_mode"))
    )


def _bracketed(text: str) -> str:
    return f"({text})" if text else ""


def _task(name: str, given: JsonFields) -> str:
    kind, what = given.line("subagent_type"), given.line("description")
    return _join(name, f"{kind}:" if kind and what else kind, what)


def _todos(given: JsonFields) -> str:
    return _join("TodoWrite", counted(len(given.items("todos")), "todo"))


def _notebook(given: JsonFields) -> str:
    return _join("NotebookEdit", _path(given), _bracketed(_join(given.line("edit_mode"), given.line("cell_type"))))


def _plan(given: JsonFields) -> str:
    return _join("ExitPlanMode", f"({counted(len(given.text('plan')), 'character')})")


def _slash(given: JsonFields) -> str:
    command = given.line("command")
    return command if command.startswith("/") else _join("SlashCommand", command)


def _ask(given: JsonFields) -> str:
    """A list of questions, or one question by itself."""
    asked = [text for one in given.items("questions") if (text := _question(one))] or [given.line("question")]
    return _join("AskUserQuestion", _quoted(asked[0]), f"+{len(asked) - 1} more" if len(asked) > 1 else "")


def _question(one: Any) -> str:
    return one_line(one) if isinstance(one, str) else JsonFields(one).line("question", "header")


_LINES: Mapping[str, Line] = {
    "Read": lambda given: _join("Read", _path(given), _range(given)),
    "Write": _write,
    "Edit": _edit,
    "MultiEdit": _multi_edit,
    "Bash": _bash,
    "BashOutput": _bash_output,
    "KillBash": lambda given: _join("KillBash", given.line("shell_id", "bash_id")),
    "KillShell": lambda given: _join("KillShell", given.line("shell_id", "bash_id")),
    "Grep": _grep,
    "Glob": lambda given: _join("Glob", given.line("pattern"), _in(given)),
    "WebFetch": lambda given: _join("WebFetch", given.line("url")),
    "WebSearch": lambda given: _join("WebSearch", _quoted(given.line("query"))),
    "Task": lambda given: _task("Task", given),
    "Agent": lambda given: _task("Agent", given),  # its later name
    "TodoWrite": _todos,
    "NotebookEdit": _notebook,
    "ExitPlanMode": _plan,
    "SlashCommand": _slash,
    "AskUserQuestion": _ask,
}


# -- details (spec agents 5.2 F12)


def _described(given: JsonFields) -> Iterator[str]:
    if text := given.line("description"):
        yield text


def _signed(sign: str, text: str) -> Iterator[str]:
    lines = plain(text).splitlines()
    for line in lines[:_DETAIL_LINES]:
        yield f"{sign} {cut(line)}"
    if len(lines) > _DETAIL_LINES:
        yield f"{sign} … +{len(lines) - _DETAIL_LINES} more lines"


def _diff(given: JsonFields) -> Iterator[str]:
    yield from _signed("-", given.text("old_string"))
    yield from _signed("+", given.text("new_string"))


def _diffs(given: JsonFields) -> Iterator[str]:
    for one in given.items("edits")[:_DETAIL_LINES]:
        yield from _diff(JsonFields(one))


def _todo_list(given: JsonFields) -> Iterator[str]:
    for one in given.items("todos"):
        todo = JsonFields(one)
        yield f"{MARKS.get(todo.text('status'), '☐')} {todo.line('content', 'activeForm')}".rstrip()


def _asked(given: JsonFields) -> Iterator[str]:
    for one in given.items("questions"):
        labels = [label for option in JsonFields(one).items("options") if (label := _label(option))]
        yield _join(_question(one), f"[{' | '.join(labels)}]" if labels else "")


def _label(option: Any) -> str:
    return one_line(option) if isinstance(option, str) else JsonFields(option).line("label")


_DETAILS: Mapping[str, More] = {
    "Bash": _described,
    "Edit": _diff,
    "MultiEdit": _diffs,
    "Write": lambda given: _signed("+", given.text("content")),
    "NotebookEdit": lambda given: _signed("+", given.text("new_source")),
    "TodoWrite": _todo_list,
    "AskUserQuestion": _asked,
    "ExitPlanMode": lambda given: _signed("|", given.text("plan")),
    "Task": lambda given: _signed("|", given.text("prompt")),
    "Agent": lambda given: _signed("|", given.text("prompt")),
    "WebFetch": lambda given: _signed("|", given.text("prompt")),
}


UNKNOWN = "Result"  # the name of a tool that nobody told of
_FEW, _FIRST = 3, 5  # lines that are shown

Summary = Callable[[str, list[str]], str]


def summary(tool: str, content: Any, *, is_error: bool) -> str:
    """`✓` or `✗`, the tool, and what is worth seeing of its result. Empty: nothing is."""
    name = one_line(tool) or UNKNOWN
    lines = plain(content_text(content)).strip("\n").splitlines()
    if is_error:
        return _listed(f"✗ {name}", lines, lines[:_FIRST], "lines")
    return _SUMMARIES.get(tool, _first)(name, lines)


def content_text(content: Any) -> str:
    """A result is a text, blocks, or absent (spec agents 2.5)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    parts = []
    for one in content:
        block = JsonFields(one)
        kind = block.text("type")
        parts.append(block.text("text") if kind == "text" else f"[{one_line(kind)}]" if kind else "")
    return "\n".join(part for part in parts if part)


def _listed(head: str, lines: list[str], some: list[str], what: str = "", *, above: bool = False) -> str:
    """The head and some of the lines; how many are left, where they would stand."""
    left = len(lines) - len(some)
    more = [f"  +{left} more {what}".rstrip()] if left > 0 else []
    body = [f"  {cut(line)}" for line in some]
    return "\n".join([head, *(more + body if above else body + more)])


def _first(name: str, lines: list[str]) -> str:
    return _listed(f"✓ {name}", lines, lines[:_FIRST], "lines")


def _count(name: str, lines: list[str]) -> str:
    return f"✓ {name}: {counted(len(lines), 'line')}"


def _last(name: str, lines: list[str]) -> str:
    """How a command ended is what matters."""
    return _listed(f"✓ {name}", lines, lines[-_FEW:], above=True)


def _matches(name: str, lines: list[str]) -> str:
    return _listed(f"✓ {name}: {len(lines)} {'match' if len(lines) == 1 else 'matches'}", lines, lines[:_FEW])


def _nothing(_name: str, _lines: list[str]) -> str:
    """Its use said it all."""
    return ""


def _todos_result(_name: str, _lines: list[str]) -> str:
    return "✓ Todos updated"


_SUMMARIES: Mapping[str, Summary] = {
    "Read": _count,
    "Bash": _last,
    "BashOutput": _last,
    "Grep": _matches,
    "Glob": _matches,
    "Edit": _nothing,
    "MultiEdit": _nothing,
    "NotebookEdit": _nothing,
    "Write": _nothing,
    "TodoWrite": _todos_result,
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
        given = _given(frame)
        kind = given.text("type")
        row = self._KINDS.get(kind)
        return plain(row(self, given)) if row is not None else ""

    # -- what is said

    def _assistant(self, frame: JsonFields) -> str:
        """The text first, then the tools (spec agents 5.2 F19). `message` may be a text, as in the seed."""
        message = frame.members.get("message")
        if isinstance(message, str):
            return message
        lane = frame.text("parent_tool_use_id")
        texts: list[str] = []
        uses: list[JsonFields] = []
        others: list[str] = []
        for block in map(JsonFields, JsonFields(message).items("content")):
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
        return _join_lines(*texts, *self._uses(uses), *others)

    def _text(self, text: str, lane: str) -> str:
        """A block that has streamed already is not said again; it comes before its end does (spec agents 2.10)."""
        return "" if text and "".join(self._streamed.pop(lane, ())) == text else text

    def _uses(self, uses: list[JsonFields]) -> Iterator[str]:
        """Reads in a row are one, unless somebody wants to see all (spec agents 5.2 F17)."""
        waiting: list[JsonFields] = []
        for use in uses:
            if use.text("name") == "Read" and not self._details:
                waiting.append(use)
                continue
            yield from self._reads(waiting)
            waiting = []
            yield self._use(use)
        yield from self._reads(waiting)

    def _reads(self, uses: list[JsonFields]) -> Iterator[str]:
        if len(uses) == 1:
            yield self._use(uses[0])
        elif uses:
            yield grouped_reads([use.members.get("input") for use in uses])

    def _use(self, use: JsonFields) -> str:
        tool, input = use.text("name", "tool_name"), use.members.get("input")
        more = details(tool, input) if self._details else []
        return "\n".join([one_liner(tool, input), *(f"  {line}" for line in more)])

    def _remember(self, use: JsonFields, *, inside: bool = False) -> None:
        id = use.text("id", "tool_use_id", "tool_id")
        if not id:
            return
        self._names[id] = use.text("name", "tool_name")
        if inside:
            self._inside[id] = None
        if len(self._names) > _REMEMBERED_USES:
            self._names = dict(list(self._names.items())[_REMEMBERED_USES // 2 :])
            self._inside = dict(list(self._inside.items())[-_REMEMBERED_USES // 2 :])

    def _standalone(self, use: JsonFields) -> str:
        """A use that comes by itself, if it was not seen inside a message (spec agents 5.2 F20)."""
        if use.text("id", "tool_use_id", "tool_id") in self._inside:
            return ""
        self._remember(use)
        return self._use(use)

    def _tool_result(self, block: JsonFields) -> str:
        tool = self._names.get(block.text("tool_use_id", "tool_id"), "") or block.text("tool_name")
        return summary(tool, block.members.get("content"), is_error=block.true("is_error"))

    def _server_result(self, block: JsonFields, kind: str) -> str:
        """Of a tool that ran at the provider: what it found is for the model."""
        tool = self._names.get(block.text("tool_use_id"), "") or kind.removesuffix(_SERVER_RESULT)
        found = block.members.get("content")
        error = JsonFields(found).line("error_code") if JsonFields(found).text("type").endswith("_error") else ""
        if error:
            return f"✗ {one_line(tool)}: {error}"
        return f"✓ {one_line(tool)}" + (f": {len(found)} results" if isinstance(found, list | tuple) else "")

    def _user(self, frame: JsonFields) -> str:
        message = frame.members.get("message")
        content = message if isinstance(message, str) else JsonFields(message).members.get("content")
        if isinstance(content, str):
            return _marked("[USER]", content)
        parts = []
        for block in map(JsonFields, content if isinstance(content, list | tuple) else ()):
            match block.text("type"):
                case "text":
                    parts.append(_marked("[USER]", block.text("text")))
                case "tool_result":
                    parts.append(self._tool_result(block))
                case "image" | "document" as kind:
                    parts.append(f"[USER] [{kind}]")
        return _join_lines(*parts)

    # -- pieces

    def _stream(self, frame: JsonFields) -> str:
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

    def _delta(self, frame: JsonFields) -> str:
        """A piece in the seed's form."""
        return frame.text("delta", "text")

    # -- what happens

    def _system(self, frame: JsonFields) -> str:
        row = _SYSTEM.get(frame.text("subtype"))
        return row(frame) if row is not None else ""

    def _rate_limit(self, frame: JsonFields) -> str:
        """Only when it matters: it is told also when all is well."""
        about = frame.inner("rate_limit_info")
        status = about.line("status")
        if status in ("", "allowed"):
            return ""
        return f"[RETRY] rate limit {status}: {about.line('rateLimitType') or 'unknown'}"

    def _result(self, frame: JsonFields) -> str:
        """`is_error` counts even with the subtype `success` (spec agents 2.11)."""
        subtype, failed = frame.line("subtype"), bool(frame.members.get("is_error"))
        good = not failed and subtype in ("", "success")
        parts = ["[RESULT]", "SUCCESS" if good else "ERROR"]
        if not good and subtype not in ("", "success"):
            parts.append(f"({subtype})")
        parts += _spent(frame)
        errors = [] if good else [shown(one, 400) for one in frame.items("errors")] or [frame.line("error", "result", most=400)]
        denied = [JsonFields(one).line("tool_name") or "a tool" for one in frame.items("permission_denials")]
        told = [f"  {one}" for one in errors if one]
        return _join_lines(" ".join(parts), *told, f"  denied: {', '.join(denied)}" if denied else "")

    _KINDS: Mapping[str, Callable[[TranscriptFormatter, JsonFields], str]] = {
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


def _given(frame: FromCli | Unknown | Noise | Mapping[str, Any] | bytes | str) -> JsonFields:
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


def _marked(mark: str, text: str) -> str:
    return f"{mark} {text}" if text.strip() else ""


def _spent(frame: JsonFields) -> Iterator[str]:
    if (duration := frame.whole("duration_ms")) is not None:
        yield f"{duration}ms"
    if (cost := frame.number("total_cost_usd", "cost_usd")) is not None:
        yield f"${cost:.4f}"
    usage = frame.inner("usage")
    counts = [(usage.whole("input_tokens"), "in"), (usage.whole("output_tokens"), "out")]
    if told := [f"{count} {way}" for count, way in counts if count is not None]:
        yield f"tokens {', '.join(told)}"


# -- system messages: what has no row is not shown (spec agents 5.2 F1, F2)


def _init(frame: JsonFields) -> str:
    version = frame.line("claude_code_version")
    told = [f"Claude Code {version}" if version else "", frame.line("model"), frame.line("permissionMode"), frame.line("cwd")]
    return f"[INIT] {', '.join(one for one in told if one)}".rstrip()


def _retry(frame: JsonFields) -> str:
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


def _task_started(frame: JsonFields) -> str:
    return f"[TASK] started: {frame.line('description') or 'a task'}"


def _task_over(frame: JsonFields) -> str:
    return f"[TASK] {frame.line('status') or 'over'}: {frame.line('summary', 'description') or 'a task'}"


_SYSTEM: Mapping[str, Callable[[JsonFields], str]] = {
    "init": _init,
    "api_retry": _retry,
    "rate_limit": _retry,
    "task_started": _task_started,
    "task_notification": _task_over,
}
