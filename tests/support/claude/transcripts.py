"""A folder of transcripts: real ones, trimmed, and such as a test writes row by row."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serai.compat.agentboot.service import ClaudeStore

__all__ = ["FIXTURES", "TranscriptFolder", "assistant", "count_reads", "result", "user", "uuid"]

FIXTURES = Path(__file__).parents[2] / "agents/drivers/claude/transcripts/fixtures"
CWD = "/home/user/_work.d"  # in the fixtures
AT = "2026-02-03T10:{:02}:00.000Z"

Row = dict[str, Any]


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def user(content: Any, minute: int = 0, **more: Any) -> Row:
    return {"type": "user", "message": {"role": "user", "content": content}, "timestamp": AT.format(minute), **more}


def assistant(content: Any, minute: int = 1, *, id: str = "", usage: Any = None, **more: Any) -> Row:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    message = {"id": id, "role": "assistant", "model": "m1", "content": blocks} | ({"usage": usage} if usage else {})
    return {"type": "assistant", "message": message, "timestamp": AT.format(minute), **more}


def result(subtype: str = "success", minute: int = 2, **more: Any) -> Row:
    return {"type": "result", "subtype": subtype, "timestamp": AT.format(minute), **more}


class TranscriptFolder:
    """A root with projects, each a real folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.root = self.folder / "projects"
        self.project = self.folder / "_work.d"
        self.project.mkdir()

    def place(self, project: Path | None = None) -> Path:
        """Where that project's transcripts are; the rule is written out once more, so that a wrong one is seen."""
        place = self.root / re.sub("[^A-Za-z0-9]", "-", str(project or self.project))
        place.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, id: str | int, *rows: Row | bytes, project: Path | None = None) -> Path:
        """A transcript of these rows; bytes go in as they are."""
        path = self.place(project) / f"{uuid(id) if isinstance(id, int) else id}.jsonl"
        path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
        return path

    def real(self, name: str, id: str | int, *, pad: int = 0) -> Path:
        """A recorded one, copied to this project. `pad`: so many bytes of an attachment come back after the first prompt."""
        lines = (FIXTURES / f"{name}.jsonl").read_text().replace(CWD, str(self.project)).splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "attachment")
        for _ in range(-(-pad // 20_000)):
            lines.insert(at, json.dumps({"type": "attachment", "attachment": {"type": "date", "text": "x" * 20_000}}) + "\n")
        return self.write(id, "".join(lines).encode())

    def transcripts(self, **more: Any) -> ClaudeStore:
        return ClaudeStore(self.root, **more)


def count_reads() -> tuple[Callable[[int, int, int], bytes], list[int]]:
    """How bytes are read, and how many each time."""
    counts: list[int] = []

    def read(descriptor: int, size: int, at: int) -> bytes:
        got = os.pread(descriptor, size, at)
        counts.append(len(got))
        return got

    return read, counts
