"""Files that commit 0ecd570 wrote, read by the program of today.

`data/disk/home` is a SERAI_HOME and `data/disk/project` the project that belongs to it, both written below /tmp/serai-contract:
four sessions (a resident agent with a guest, a driven agent, one with a branch, a label and a compaction, and its fork), a policy
database with remembered decisions and with used and lost approvals, recordings with a zot guest, a piglet guest, Claude's wire and
boxes, the records of two boxes, a granted plugin, and the trust in a project. They are never written again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.contract.place import DATA, Place
from tests.contract.program import Program, Ran

__all__ = ["CLOCK", "copy_place", "iter_outputs"]

DISK = DATA / "disk"
WRITTEN_AT = "/tmp/serai-contract"
CLOCK = 1794988930.0  # the time of all readers: ten seconds after the last of these files was written
RESIDENT, CLAUDE = "b8c09261-2b9a-4c42-a59a-268d4f6ae6d4", "1bd2c58e-0768-4415-a6b7-e7a1f4354eaa"
BRANCHED, FORK = "a156b344-65fc-4a5d-9ca3-02e1dfd267bd", "c394a058-1f2b-4e04-a991-79dccd63a28a"
ZOT, PIGLET, DRIVEN = "20261118T080153-626-2256", "20261118T080154-090-f185", "20261118T080154-308-1a89"
BOX = "20261118T080155-459-58f4"
LOST = "f6563890"  # an approval whose run is gone

READERS: tuple[tuple[str, ...], ...] = (
    ("session", "list"),
    ("session", "list", "--json"),
    *(("session", "show", session, "--full") for session in (RESIDENT, CLAUDE, BRANCHED, FORK)),
    ("session", "show", BRANCHED, "--json"),
    *(("session", "tree", session) for session in (RESIDENT, CLAUDE, BRANCHED, FORK)),
    ("session", "tree", BRANCHED, "--json"),
    ("session", "export", RESIDENT),
    ("session", "export", BRANCHED),
    ("session", "export", BRANCHED, "--json"),
    ("policy", "list"),
    ("policy", "pending"),
    ("policy", "pending", "--all", "--json"),
    ("policy", "test", "bash", '{"command":"make install"}', "--agent", "claude"),
    ("policy", "test", "bash", '{"command":"make test"}', "--agent", "codex"),
    ("record", "list"),
    *(("record", "show", run) for run in (ZOT, PIGLET, DRIVEN, BOX)),
    ("record", "show", PIGLET, "--pairs", "--json"),
    *(("record", "replay", run, "--wire", "1", "--json") for run in (ZOT, PIGLET, DRIVEN)),
    ("box", "list", "--all"),
    ("box", "list", "--all", "--json"),
    ("box", "show", "short", "--json"),
    ("guest", "list"),
    ("guest", "show", "notes-wat"),
    ("guest", "show", "notes-wat", "--json"),
    ("guest", "grant", "notes-wat", "--print"),
    ("config", "show", "--json"),
    ("trust", "--json"),
)
# Commands that write to the old files, and then what is read of them. They come last.
WRITERS: tuple[tuple[str, ...], ...] = (
    ("policy", "answer", LOST, "deny", "--why", "too late", "--remember", "always"),
    ("policy", "pending", "--all"),
    ("policy", "forget", "--all"),
    ("policy", "list"),
    ("guest", "revoke", "notes-wat"),
    ("guest", "list"),
    ("trust", "--withdraw"),
    ("trust", "--json"),
    ("run", "--model", "parrot", "--no-ext", "--session", RESIDENT, "--quiet", "again"),
    ("session", "show", RESIDENT, "--last", "2", "--json"),
)
# Names of internal classes in `record replay`.
_INTERNAL = ((re.compile(r'"event":"\w+"'), '"event":"*"'),)
# Of what the writers wrote: the name of the user, the time, and the length of the system prompt.
_NEW = (
    (re.compile(r"settled by \S+:"), "settled by *:"),
    (re.compile(r'"timestamp":"[^"]*"'), '"timestamp":"*"'),
    (re.compile(r'"inputTokens":\d+'), '"inputTokens":"*"'),
)


def iter_outputs(program: Program, root: Path) -> Iterator[tuple[str, str]]:
    """Returns the file name and the text of each command on a copy of the files."""
    place = copy_place(program, root)
    for number, arguments in enumerate((*READERS, *WRITERS)):
        words = [word for word in arguments if re.fullmatch(r"[a-z]+", word)]
        writes = arguments[0] == "run"
        ran = place(*arguments, clock=0.0 if writes else CLOCK)
        text = _text(place, ran)
        for pattern, instead in (*_INTERNAL, *(_NEW if number >= len(READERS) else ())):
            text = pattern.sub(instead, text)
        yield f"{number:02}-{'-'.join(words[:3])}.txt", text


def copy_place(program: Program, root: Path) -> Place:
    """The files with the modes and times that Serai gave them, and with the new folder where a path has to exist."""
    for name in ("home", "project"):
        shutil.copytree(DISK / name, root / name)
    for name in ("trust.json", "plugins.toml"):
        path = root / "home" / name
        path.write_text(path.read_text().replace(WRITTEN_AT, str(root)))
    for folder, _, files in os.walk(root / "home"):
        os.chmod(folder, 0o700)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o600)
    for age, session in enumerate((FORK, BRANCHED, CLAUDE, RESIDENT)):
        os.utime(root / "home" / "sessions" / f"{session}.jsonl", (CLOCK - age, CLOCK - age))
    return Place(program, root)


def _text(place: Place, ran: Ran) -> str:
    text = f"$ serai {' '.join(ran.arguments)}\n[status {ran.status}]\n{ran.stdout}"
    if ran.stderr:
        text += f"[stderr]\n{ran.stderr}"
    return "\n".join(line.rstrip() for line in place.neutral(text).splitlines()) + "\n"
