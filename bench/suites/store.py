"""Sessions on disk: loading, resuming, listing, appending."""

from __future__ import annotations

import os
import subprocess
import tempfile

from bench.harness import ROOT, Host, Sample, interleaved, worker
from bench.report import Column, Floor, Section, Table

NOTE = """\
A session of 100,000 entries, read from the page cache into a fresh process: "mixed" has texts, answers with calls and results of
some KB, 1 KB each on average; "small" has texts alone, 290 bytes each. "read" is one `read` of the whole file into memory: the
physical limit. Ours knows every entry's id, parent, type and time, has seen that each line is sound, and leaves the data to whoever
asks for it; json (the standard library's, line by line) and sqlite (all rows, their data by json) have decoded that too: they do
not come without. What is done for each entry counts most when entries are small, next to a read that counts bytes.
Resuming: 100 entries after a compact at the end of the mixed session, messages decoded, next to a whole load of the same file.
Listing: 1,000 sessions of 1 MB (sparse files: a beginning, a hole, an end), next to reading them all. Appending: entries of 1 KB;
ours with the lock, a look at the file's size and a proof that the line can be read back; sqlite in WAL mode. With sync each is on
the disk before the next: then it is the disk that is measured.
"""

LOADING = (Column("ms", "ms", ",.0f"), Column("us", "us/entry", ",.2f"), Column("x", "x read", ",.2f"))
ALL = (Column("ms", "ms", ",.2f"), Column("x", "x ours", ",.1f"))
APPENDING = (Column("us", "us/entry", ",.1f"), Column("x", "x raw", ",.1f"))


def _measure(path: str, whats: dict[str, str], base: str, repetitions: int = 3) -> dict[str, Sample]:
    """Each of them, and how many times as long it took as `base`."""
    rows = interleaved([Host(name, worker("store", what, path)) for name, what in whats.items()], repetitions)
    return _compared(rows, rows[base])


def _compared(rows: dict[str, Sample], base: Sample) -> dict[str, Sample]:
    for sample in rows.values():
        sample["x"] = sample["ms"] / base["ms"]
    return rows


def _load(path: str) -> dict[str, Sample]:
    """The slow ones need no more than two looks."""
    rows = _measure(path, {"read": "read", "serai": "load"}, "read", 7)
    del rows["read"]["us"]  # it knows no entries
    return rows | _compared(interleaved([Host(name, worker("store", name, path)) for name in ("json", "sqlite")], 2), rows["read"])


def run() -> Section:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(worker("store", "make", folder), check=True, cwd=ROOT)
        mixed, small = (_load(os.path.join(folder, f"{name}.jsonl")) for name in ("mixed", "small"))
        resume = _measure(os.path.join(folder, "resumed.jsonl"), {"serai": "resume", "whole load": "resume-whole"}, "serai")
        listed = _measure(os.path.join(folder, "listed"), {"serai": "list", "read all": "list-whole"}, "serai")
        appends = {"raw write": "append-raw", "serai": "append", "sqlite": "append-sqlite"}
        append = _measure(folder, appends, "raw write")
        synced = _measure(folder, {name: what + "+sync" for name, what in appends.items()}, "raw write")
    tables = [
        Table("Load 100,000 entries, mixed", LOADING, mixed),
        Table("Load 100,000 entries, small", LOADING, small),
        Table("Resume the last 100 of 100,000 entries", ALL, resume),
        Table("List 1,000 sessions of 1 MB", ALL, listed),
        Table("Append", APPENDING, append),
        Table("Append and sync", APPENDING, synced),
    ]
    floors = [
        Floor("Load of 100,000 mixed entries, next to reading the file", mixed["serai"]["x"], "at most", 4.0),
        Floor("Whole load, next to resuming from the end", resume["whole load"]["x"], "at least", 10.0),
        Floor("Reading all sessions, next to listing them", listed["read all"]["x"], "at least", 2.0),
    ]
    return Section("Sessions", NOTE, tables, floors)
