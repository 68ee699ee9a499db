"""The end of a session's file, read from there: who resumes a conversation does not read all that came before.

The very lines that a whole reading decodes are decoded here, by the same decoder, and nothing is guessed from their bytes; so both
agree on every file. Entries of before there were ids get theirs by counting from the beginning: then, and only then, all is read.
"""

from __future__ import annotations

from typing import NamedTuple

from serai.store.entries import Entry, Meta, Problems, decode_run, may_have_meta, meta_in
from serai.store.file import File
from serai.store.tree import Active, Tree, Until

__all__ = ["End", "find", "load", "look"]


class End(NamedTuple):
    """The active path as far as it was wanted, and the newest meta with its offset in the file."""

    path: list[Entry]
    meta: Meta | None = None
    meta_at: int = 0


def load(file: File, problems: Problems) -> Tree:
    """Everything."""
    entries: list[Entry] = []
    for some in file.forwards(0, problems):
        entries += some
    return Tree(entries, problems.texts)


def look(file: File, problems: Problems, *, until: Until, meta: bool = False) -> End:
    """The path up to there, and the meta when that is wanted too."""
    active = Active(until)
    found: tuple[Meta, int] | None = None
    for at, run in file.backwards(problems):
        if active.done and not may_have_meta(run):  # then only the meta is missing
            continue
        entries = decode_run(run, at, problems)
        for entry in reversed(entries):
            if entry.type != "meta" and not active.done:
                if not entry.id:
                    return _look_at_all(file, until)
                active.tell(entry)
        if meta and found is None:
            found = (last[0], at + last[1]) if (last := meta_in(run)) else None
        if active.done and (found or not meta):
            break
    return End(active.path, *(found or (None, 0)))


def _look_at_all(file: File, until: Until) -> End:
    tree = load(file, Problems())
    return End(tree.path(until), tree.meta)


def find(file: File, id: str) -> Entry | None:
    """The last entry of that id."""
    for at, run in file.backwards(problems := Problems()):
        for entry in reversed(decode_run(run, at, problems)):
            if entry.type == "meta":
                continue
            if not entry.id:
                return load(file, Problems()).get(id)
            if entry.id == id:
                return entry
    return None
