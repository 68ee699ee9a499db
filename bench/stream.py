"""The streams that are read here: what Claude Code prints, made up in its captured shape, always the same.

Of their lines 95 % are small deltas of text and of tool arguments; each turn ends with a tool's result, which the real program
prints twice in one line (for the model and for the person). A word in twenty is not ASCII; three quarters of the results have no
such word.

stream   about 100 MB in many prompts; the line of each result has about 50 KB
turn     the same as the answer to a single prompt
talk     a single prompt as well; results are as long as in the recordings: a few lines, and one in forty 50 KB
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

__all__ = ["Stream", "build"]

BUILD = Path(__file__).parent / "build"
TURNS = 800
TURNS_OF_A_PROMPT = 20
TEXT_DELTAS = 225
RESULT_LINES, FEW_LINES = 420, 20
# Whether there are several prompts, and how many of the results are long.
KINDS = {"stream": (True, 1.0), "turn": (False, 1.0), "talk": (False, 1 / 40)}
PROSE = """
the a file test of in it passes now because function returns when we read lines from its pipe and then error is this that was not
empty so I will look at how they are made here before any change to them can be right let me run all tests again with one more case
for an old name which should have been found by the first search but only its second half did match what he wrote
"""
ASCII = PROSE.split()
WORDS = [*ASCII, "größer", "…", "✓", "日本"]
SESSION = "e651c161-4ca4-4748-bab1-c991d47b4497"
MODEL = "claude-opus-5-5"

Line = dict[str, Any]


class Stream(NamedTuple):
    """What was written. Who reads it proves with `events` (lines), `text` (characters of text deltas and of tool results) and
    `pieces` (bytes of the lines that are deltas) that nothing was dropped or cut."""

    path: str
    size: int
    events: int
    text: int
    pieces: int

    @classmethod
    def of(cls, arguments: list[str]) -> Stream:
        """As a worker gets it on its command line."""
        path, *numbers = arguments
        return cls(path, *map(int, numbers))


def build(name: str = "stream") -> Stream:
    """The stream's file, written when it is not there or older than this module."""
    path, about = BUILD / f"{name}.jsonl", BUILD / f"{name}.json"
    if not about.exists() or about.stat().st_mtime < Path(__file__).stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        about.write_text(json.dumps(_write(path, Writer(Random(3), *KINDS[name]))))
    return Stream(str(path), *json.loads(about.read_text()))


def _write(path: Path, writer: Writer) -> tuple[int, int, int, int]:
    """Its bytes, events, characters of text and bytes of deltas."""
    size = events = text = pieces = 0
    with path.open("wb") as file:
        for line in writer.lines():
            # Compact and not escaped to ASCII, as JavaScript writes it.
            written = file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            size += written
            events += 1
            text += _text(line)
            if line.get("event", {}).get("type") == "content_block_delta":
                pieces += written
    return size, events, text, pieces


def _text(line: Line) -> int:
    if line["type"] == "user":
        return len(line["message"]["content"][0]["content"])
    return len(line.get("event", {}).get("delta", {}).get("text", ""))


class Writer:
    """Writes the lines of one session, with their members in the order of the real ones."""

    def __init__(self, random: Random, prompts: bool, long_results: float) -> None:
        self._random = random
        self._of_a_prompt = TURNS_OF_A_PROMPT if prompts else TURNS
        self._long_results = long_results
        self._message = ""  # the id of the answer being written

    def lines(self) -> Iterator[Line]:
        for turn in range(TURNS):
            if turn % self._of_a_prompt == 0:
                yield self._init()
            yield {"type": "system", "subtype": "status", "status": "requesting", "session_id": SESSION, "uuid": self._uuid()}
            yield from self._turn()
            if (turn + 1) % self._of_a_prompt == 0:
                yield self._result(turn + 1)

    def _turn(self) -> Iterator[Line]:
        """One answer of the model, a text and a tool's call; then the tool's result."""
        self._message = self._id("msg")
        yield self._event("message_start", message=self._answer([]))
        pieces = [f"{self._words(WORDS, self._random.randint(1, 5))} " for _ in range(TEXT_DELTAS)]
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        yield from self._block(0, {"type": "text", "text": ""}, deltas, {"type": "text", "text": "".join(pieces)})
        arguments = {"command": f"sed -n '{self._random.randint(1, 99)},400p' src/pipe.py", "description": "read a file"}
        written = json.dumps(arguments)
        deltas = [{"type": "input_json_delta", "partial_json": written[at : at + 12]} for at in range(0, len(written), 12)]
        call = {"type": "tool_use", "id": self._id("toolu"), "name": "Bash"}
        yield from self._block(1, {**call, "input": {}}, deltas, {**call, "input": arguments})
        yield self._event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 420})
        yield self._event("message_stop")
        yield self._tool_result(call["id"])

    def _block(self, index: int, start: Line, deltas: list[Line], whole: Line) -> Iterator[Line]:
        yield self._event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield self._event("content_block_delta", index=index, delta=delta)
        yield {"type": "assistant", "message": self._answer([whole]), **self._common(), "request_id": self._id("req")}
        yield self._event("content_block_stop", index=index)

    def _event(self, kind: str, **members: Any) -> Line:
        event = {"type": kind, **members}
        own = {"session_id": SESSION, "parent_tool_use_id": None, "uuid": self._uuid(), "api_message_id": self._message}
        return {"type": "stream_event", "event": event, **own}

    def _answer(self, content: list[Line]) -> Line:
        usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
        head = {"id": self._message, "type": "message", "role": "assistant", "model": MODEL}
        return {**head, "content": content, "stop_reason": None, "stop_sequence": None, "usage": usage}

    def _tool_result(self, call: str) -> Line:
        words = WORDS if self._random.random() < 0.25 else ASCII
        lines = RESULT_LINES if self._random.random() < self._long_results else self._random.randint(1, FEW_LINES)
        output = "\n".join(f'\t{self._words(words, 9)} = "{self._random.random():.6f}"' for _ in range(lines))
        content = [{"tool_use_id": call, "type": "tool_result", "content": output, "is_error": False}]
        copy = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        return {"type": "user", "message": {"role": "user", "content": content}, **self._common(), "tool_use_result": copy}

    def _init(self) -> Line:
        head = {"type": "system", "subtype": "init", "cwd": "/home/user/project", "session_id": SESSION}
        tools = ["Task", "Bash", "Edit", "Read", "WebFetch", "Write"]
        tail = {"permissionMode": "default", "claude_code_version": "2.1.325", "uuid": self._uuid()}
        return {**head, "tools": tools, "mcp_servers": [], "model": MODEL, **tail}

    def _result(self, turns: int) -> Line:
        """Its type comes late, as in the real ones."""
        usage = {"input_tokens": 100, "output_tokens": 420}
        head = {"duration_api_ms": 30, "stop_reason": "end_turn", "session_id": SESSION, "total_cost_usd": 0.0008, "usage": usage}
        tail = {"result": "All done.", "type": "result", "duration_ms": 40, "uuid": self._uuid()}
        return {**head, "is_error": False, "num_turns": turns, "subtype": "success", **tail}

    def _common(self) -> Line:
        own = {"parent_tool_use_id": None, "session_id": SESSION, "uuid": self._uuid()}
        return {**own, "timestamp": "2026-11-15T06:49:53.521Z"}

    def _words(self, words: list[str], count: int) -> str:
        return " ".join(self._random.choices(words, k=count))

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._random.getrandbits(80):020x}"

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
