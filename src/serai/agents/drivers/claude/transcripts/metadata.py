"""What is known of a session, gathered from its rows in their order (spec agents 4.2), and the filters of a list (spec agents
4.3).

Real transcripts have no `result` row; one at the end counts more than what was gathered. A filter says whether a session is kept;
None keeps all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from serai.agents.drivers.claude.transcripts import rows
from serai.store import entries

SessionStatus = Literal["active", "complete", "error", ""]


class SessionMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session of the agent's own, as its transcript tells.

    The fields down to `error` are the origin's. `partial`: the file is long and only its head and tail were read, so texts are cut
    where they are very long, and turns (and tokens, when the program did not write their sum) are what those parts show at least.
    """

    session_id: str
    project_path: str  # where it began; "" when nobody knows
    status: SessionStatus
    start_time: datetime | None = None
    end_time: datetime | None = None
    duration_ms: int = 0
    first_message: str = ""
    last_user_message: str = ""
    last_assistant_message: str = ""
    last_result: str = ""
    num_turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    total_cost_usd: float = 0.0
    error: str = ""
    title: str = ""
    cwd: str = ""  # where it was last
    model: str = ""
    git_branch: str = ""
    version: str = ""
    cache_creation_tokens: int = 0
    file: str = ""
    size: int = 0
    partial: bool = False


class Tokens(NamedTuple):
    """In the order of the four fields of the metadata."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0


_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_MODEL_USAGE = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_SYNTHETIC = "<synthetic>"  # the model of what no model said, such as the API's failure


class MetadataBuilder:
    """Tell it the rows; then it tells what they say. `longest`: of a text that is kept, for listings of thousands."""

    def __init__(self, longest: int | None = None) -> None:
        self.rows = 0
        self.messages = 0  # of the session itself; `aside` are those of a sub-agent, which older programs wrote among them
        self.aside = 0
        self.partial = False
        self._longest = longest
        self._begun = self._ended = 0
        self._cwds: list[str] = []  # the first and the last
        self._version = self._branch = self._model = ""
        self._first = self._user = self._earlier = self._tool = self._said = self._said_id = ""
        self._titles: dict[str, str] = {}
        self._prompts: set[str] = set()
        self._unnamed = 0  # prompts of before they had ids
        self._usages: dict[str, Tokens] = {}
        self._failure: str | None = None
        self._costs: rows.TranscriptRow | None = None
        self._result: rows.TranscriptRow | None = None

    def mark_gap(self) -> None:
        """What follows is not what comes next in the file."""
        self.partial = True
        self._earlier, self._user = self._user, ""

    def add(self, row: rows.TranscriptRow) -> None:
        self.rows += 1
        if at := entries.parse_time(rows.to_string(row.timestamp)):
            self._begun = self._begun or at
            self._ended = at
        if cwd := rows.to_string(row.cwd):
            self._cwds[1:] = [cwd]
        self._version = rows.to_string(row.version) or self._version
        self._branch = rows.to_string(row.git_branch) or self._branch
        match row.type:
            case "user" | "assistant" if row.is_sidechain is True:
                self.aside += 1
            case "user":
                self._add_user_row(row)
            case "assistant":
                self._add_assistant_row(row)
            case "result":
                self._result = row
            case "cost-state":
                self._costs = row
            case "custom-title" | "ai-title" | "last-prompt" | "summary":
                self._titles |= {key: value for key in _TITLES if isinstance(value := getattr(row, key), str) and value}
            case _:
                pass

    def begin_with(self, text: str) -> None:
        """The beginning of a first message that is too long to be read for a listing."""
        self._first = self._first or self._truncate(text)
        self._user = self._user or self._first

    def _add_user_row(self, row: rows.TranscriptRow) -> None:
        self.messages += 1
        self._result = None  # something came after it: it is not how the session ended
        if row.is_meta is True or row.is_compact_summary is True:
            return
        content = rows.parse_message(row).content
        text = rows.extract_prompt(content)
        if prompt := rows.to_string(row.prompt_id):
            self._prompts.add(prompt)
        elif text.strip():
            self._unnamed += 1
        if text.strip():
            self._user = self._truncate(text)
            self._first = self._first or self._user
        elif not rows.extract_said_text(content):
            self._tool = self._truncate(rows.extract_text(content)) or self._tool

    def _add_assistant_row(self, row: rows.TranscriptRow) -> None:
        self.messages += 1
        self._result = None
        message = rows.parse_message(row)
        text = rows.extract_said_text(message.content)
        id = rows.to_string(message.id)
        if text:  # one row for each block, so the rows of one message belong together
            self._said = self._truncate(self._said + text if id and id == self._said_id else text)
            self._said_id = id
        self._usages[id or f"row {self.rows}"] = _read_tokens(message)
        self._failure = text if row.is_api_error is True else None
        model = rows.to_string(message.model)
        if model and model != _SYNTHETIC:
            self._model = model

    def _truncate(self, text: str) -> str:
        return text[: self._longest]

    def build(self, id: str, *, file: str, size: int, modified: int, index_path: str = "", live: bool = False) -> SessionMetadata:
        """All of it; `index_path` is what the folder's index says of the project, `modified` the file's time in nanoseconds."""
        tokens, cost, duration, turns, last_result, error = self._sum_totals()
        if error is not None:
            status: SessionStatus = "error"
        elif live:
            status = "active"
        else:
            status = "complete" if self.rows else ""
        user = self._user or (self._titles.get("last_prompt", "") if self.partial else "") or self._earlier
        return SessionMetadata(
            session_id=id,
            project_path=self._cwds[0] if self._cwds else index_path,
            status=status,
            start_time=rows.to_datetime(self._begun),
            end_time=rows.to_datetime(self._ended or modified),
            duration_ms=duration,
            first_message=self._first,
            last_user_message=user or self._tool,
            last_assistant_message=self._said,
            last_result=self._truncate(last_result),
            num_turns=turns,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cache_read_tokens=tokens.cache_read,
            total_cost_usd=cost,
            error=self._truncate(error or ""),
            title=self._find_title(),
            cwd=self._cwds[-1] if self._cwds else "",
            model=self._model,
            git_branch=self._branch,
            version=self._version,
            cache_creation_tokens=tokens.cache_creation,
            file=file,
            size=size,
            partial=self.partial,
        )

    def _find_title(self) -> str:
        return next((self._titles[key] for key in _TITLES if self._titles.get(key, "").strip()), self._first)

    def _sum_totals(self) -> tuple[Tokens, float, int, int, str, str | None]:
        """Tokens, cost, duration, turns, the last result, and the error if there is one."""
        tokens = Tokens(*map(sum, zip(*self._usages.values(), strict=True))) if self._usages else Tokens()
        cost, duration = 0.0, 0
        turns = len(self._prompts) + self._unnamed
        if (costs := self._costs) is not None:
            cost, duration = rows.to_amount(costs.total_usd), rows.to_count(costs.total_ms)
            if isinstance(costs.model_usage, dict):
                models = [_read_counts(usage, _MODEL_USAGE) for usage in costs.model_usage.values()]
                tokens = Tokens(*map(sum, zip(*models, strict=True))) if models else Tokens()
        row = self._result
        if row is None:
            return tokens, cost, duration, turns, "", self._failure
        if isinstance(row.usage, dict):
            tokens = _read_counts(row.usage, _USAGE)
        cost = rows.to_amount(row.total_cost_usd) or cost
        duration, turns = rows.to_count(row.duration_ms) or duration, rows.to_count(row.num_turns) or turns
        return tokens, cost, duration, turns, rows.to_string(row.result), _find_error(row)


_TITLES = ("custom_title", "ai_title", "last_prompt", "summary")  # the first that there is; else the first message


def _find_error(row: rows.TranscriptRow) -> str | None:
    """The text of a `result` that is an error, in the order of spec agents 1.11."""
    if not (rows.to_string(row.subtype).startswith("error") or row.is_error is True):
        return None
    lines = [line for line in row.errors if isinstance(line, str) and line] if isinstance(row.errors, list) else []
    return "; ".join(lines) or rows.to_string(row.error) or rows.to_string(row.result)


def _read_tokens(message: rows.RowMessage) -> Tokens:
    return _read_counts(message.usage, _USAGE)


def _read_counts(usage: Any, names: tuple[str, ...]) -> Tokens:
    return Tokens(*(rows.to_count(usage.get(name)) for name in names)) if isinstance(usage, dict) else Tokens()


SessionFilter = Callable[[SessionMetadata], bool]

# Marks of what no person typed.
NOISE = ("<local-command-caveat>", "<ide_opened_file>", "<local-command-")
_SHORT = 5


def exclude_short(shortest: int) -> SessionFilter:
    """Drops those whose first and last message both have fewer characters than that, blanks around them not counted."""

    def keep(session: SessionMetadata) -> bool:
        return any(len(text.strip()) >= shortest for text in (session.first_message, session.last_user_message))

    return keep


def exclude_patterns(patterns: Iterable[str]) -> SessionFilter:
    """Drops those whose first message has one of these in it; the last one is looked at when there is no first."""
    marks = tuple(pattern for pattern in patterns if pattern)  # an empty one is in everything

    def keep(session: SessionMetadata) -> bool:
        text = session.first_message if session.first_message.strip() else session.last_user_message
        return not any(mark in text for mark in marks)

    return keep


def combine(*filters: SessionFilter | None) -> SessionFilter:
    """Keeps what each of them keeps."""

    def keep(session: SessionMetadata) -> bool:
        return all(one is None or one(session) for one in filters)

    return keep


default_filter: SessionFilter = combine(exclude_short(_SHORT), exclude_patterns(NOISE))
