"""Sessions on disk: `python -m bench.workers.store WHAT FILE…` does one thing once, in a fresh process, and says how long it took.

`make` writes the files that the others read. Imports are not timed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from time import perf_counter

from serai.limits import Limits
from serai.store import SessionFolder, StoredSession
from serai.store.entries import ReadProblems
from serai.store.session_file import SessionFile
from serai.store.session_tree import load

ENTRIES = 100_000
SESSIONS = 1000
SIZE = 1_000_000  # of a session in the list: a beginning, a hole and an end, so that making them does not take long
TS = "2026-02-03T10:00:01.123456789Z"
META = {"id": "6f1c", "cwd": "/app", "model": "m1", "title": "A title", "createdAt": TS}
USAGE = {"inputTokens": 1200, "outputTokens": 333, "cacheReadTokens": 9000, "cacheWriteTokens": 0, "cost": 0.01}
WORDS = (
    "def",
    "return",
    "the",
    "file",
    "import",
    "os.path",
    "error:",
    "line 12",
    "\n",
    "    ",
    '"quoted"',
    "(self)",
    "é",
    "->",
    "\t",
)


def line(type: str, data: object, **more: str) -> bytes:
    return json.dumps({"type": type} | more | {"ts": TS, "data": data}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def talk(count: int, *, small: bool) -> Iterator[bytes]:
    """A conversation as a file: a text, an answer with a call, its result of some KB, another answer; or only short texts."""
    chance = random.Random(7)
    source = " ".join(chance.choice(WORDS) for _ in range(20_000))

    def text(least: int, most: int) -> str:
        start = chance.randrange(len(source) - most)
        return source[start : start + chance.randrange(least, most)]

    def answer(*content: object) -> dict[str, object]:
        return {"content": content, "model": "m1", "provider": "p", "usage": USAGE, "stopReason": "stop", "timestamp": TS}

    yield line("meta", META)
    parent: dict[str, str] = {}
    for number in range(count):
        id = f"{chance.getrandbits(32):08x}"
        kind = 0 if small else number % 4
        call = {
            "type": "tool_call",
            "id": f"call_{number}",
            "name": "read",
            "arguments": {"path": "/app/src/main.py", "offset": 12},
        }
        result = {"toolCallId": f"call_{number - 1}", "toolName": "read", "isError": False, "timestamp": TS}
        if kind == 0:
            yield line("user", {"content": text(80, 200) if small else text(50, 400), "timestamp": TS}, id=id, **parent)
        elif kind == 2:
            yield line("tool_result", {"content": [{"type": "text", "text": text(100, 3500)}]} | result, id=id, **parent)
        else:
            said = {"type": "text", "text": text(50, 600 if kind == 1 else 900)}
            yield line("assistant", answer(said, call) if kind == 1 else answer(said), id=id, **parent)
        parent = {"parentId": id}


def make(folder: str) -> None:
    for name, small in (("mixed", False), ("small", True)):
        with open(os.path.join(folder, f"{name}.jsonl"), "wb") as file:
            file.writelines(talk(ENTRIES, small=small))
        _rows(os.path.join(folder, name))
    resumed = os.path.join(folder, "resumed.jsonl")
    shutil.copyfile(os.path.join(folder, "mixed.jsonl"), resumed)
    with StoredSession(resumed) as session:
        session.compact([])
        for number in range(100):
            session.append_user(f"{number} " + "x" * 1000)
    listed = os.path.join(folder, "listed")
    os.mkdir(listed)
    for number in range(SESSIONS):
        with open(os.path.join(listed, f"{number:04}.jsonl"), "wb") as file:
            file.write(line("meta", META))
            file.seek(SIZE - 1000)
            file.write(b"\n" + line("user", {"content": "x"}, id="a") + line("meta", META))


def _rows(path: str) -> None:
    """The same entries as rows of sqlite."""
    tree = load(SessionFile(path + ".jsonl", Limits()), ReadProblems())
    rows = sqlite3.connect(path + ".db")
    with rows:
        rows.execute("create table entries (place integer primary key, id text, parent text, type text, ts text, data text)")
        values = ((entry.id, entry.parent, entry.type, entry.ts, bytes(entry.raw).decode()) for entry in tree.entries)
        rows.executemany("insert into entries (id, parent, type, ts, data) values (?, ?, ?, ?, ?)", values)
    rows.close()


# -- what is measured: each gives how many things it did


def read(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    return len(os.read(descriptor, os.fstat(descriptor).st_size))


def load_serai(path: str) -> int:
    return len(load(SessionFile(path, Limits()), ReadProblems()).entries)


def load_json(path: str) -> int:
    with open(path, "rb") as file:
        return len([json.loads(text) for text in file])


def load_sqlite(path: str) -> int:
    rows = sqlite3.connect(path.replace(".jsonl", ".db")).execute("select id, parent, type, ts, data from entries order by place")
    return len([(id, parent, type, ts, json.loads(data)) for id, parent, type, ts, data in rows])


def resume(path: str) -> int:
    return len(StoredSession(path).read_messages())


def resume_whole(path: str) -> int:
    return len(load(SessionFile(path, Limits()), ReadProblems()).decode_messages())


def list_serai(folder: str) -> int:
    return len(SessionFolder(folder).list())


def list_whole(folder: str) -> int:
    with os.scandir(folder) as items:
        return len([read(item.path) for item in items])


TEXT = {"content": "x" * 900, "timestamp": TS}


def append_serai(path: str, *, sync: bool) -> Callable[[], int]:
    session = SessionFolder(path).create("/app")

    def run() -> int:
        for _ in range(300 if sync else 10_000):
            session.append("user", TEXT, sync=sync)
        return 300 if sync else 10_000

    return run


def append_raw(path: str, *, sync: bool) -> Callable[[], int]:
    descriptor = os.open(os.path.join(path, "raw"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    text = line("user", TEXT, id="a1b2c3d4", parentId="a1b2c3d4")

    def run() -> int:
        for _ in range(300 if sync else 10_000):
            os.write(descriptor, text)
            if sync:
                os.fdatasync(descriptor)
        return 300 if sync else 10_000

    return run


def append_sqlite(path: str, *, sync: bool) -> Callable[[], int]:
    rows = sqlite3.connect(os.path.join(path, "rows.db"), isolation_level=None)
    rows.execute("pragma journal_mode = wal")
    rows.execute(f"pragma synchronous = {'full' if sync else 'off'}")
    rows.execute("create table entries (place integer primary key, id text, parent text, type text, ts text, data text)")

    def run() -> int:
        for _ in range(300 if sync else 10_000):
            row = ("a1b2c3d4", "a1b2c3d4", "user", TS, json.dumps(TEXT))
            rows.execute("insert into entries (id, parent, type, ts, data) values (?, ?, ?, ?, ?)", row)
        return 300 if sync else 10_000

    return run


WHATS: dict[str, Callable[[str], int]] = {
    "read": read,
    "load": load_serai,
    "json": load_json,
    "sqlite": load_sqlite,
    "resume": resume,
    "resume-whole": resume_whole,
    "list": list_serai,
    "list-whole": list_whole,
}
APPENDS = {"append": append_serai, "append-raw": append_raw, "append-sqlite": append_sqlite}


def measured(what: str, path: str) -> dict[str, float]:
    name, _, synced = what.partition("+")
    if name in APPENDS:
        with tempfile.TemporaryDirectory(dir=path) as folder:
            run = APPENDS[name](folder, sync=bool(synced))
            start = perf_counter()
            count = run()
            taken = perf_counter() - start
    else:
        start = perf_counter()
        count = WHATS[name](path)
        taken = perf_counter() - start
    return {"ms": taken * 1e3, "count": count, "us": taken / count * 1e6}


if __name__ == "__main__":
    what_, path_ = sys.argv[1:]
    if what_ == "make":
        make(path_)
    else:
        print(json.dumps(measured(what_, path_)), flush=True)
        os._exit(0)  # what was loaded need not be given back
