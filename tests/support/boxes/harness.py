"""What the tests of boxes share: boxes in a folder of their own, a hook that mints and revokes, and a look at what is left."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serai.boxes import Box, Boxes, Hook
from serai.boxes.backends.local import find_processes
from serai.boxes.box_records import BoxStore
from serai.limits import Limits
from serai.wire import process_tree

# Patient with what should happen, quick with what should not.
LIMITS = Limits().but(hook_timeout=20.0, hook_grace=0.2, hook_eof=0.5, box_start=20.0)

MINT = """\
#!/bin/sh
# Mints a token (a file in $TOKENS) at a box's birth and revokes it at its death. Notes what it was told.
request=$(cat)
printf '%s\\n' "$request" >> "$TOKENS/../told"
case $request in
*'"box.create"'*)
    token=$(od -An -N6 -tx1 /dev/urandom | tr -d ' \\n')
    : > "$TOKENS/$token"
    printf '{"files":[{"path":"/root/.token","content":"secret-%s"}],"state":"%s"}' "$token" "$token"
    ;;
*)
    token=$(printf '%s' "$request" | sed 's/.*"state":"\\([^"]*\\)".*/\\1/')
    rm -f "$TOKENS/$token"
    ;;
esac
"""


def write_script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


async def read_output(box: Box, command: str) -> str:
    """What a command in the box prints; it must succeed."""
    result = await box.exec(command)
    assert result.exit_code == 0, result
    return result.text


def kill_box_server(generation: str) -> None:
    """The box server is the launcher's child. An ordinary user may not see its environment, and so not find it."""
    holders = find_processes(generation)
    [launcher] = [one for one in holders if not any(one.parent == other.pid for other in holders)]
    below = [process for pid in process_tree.walk_children([launcher.pid]) if (process := process_tree.read_process(pid))]
    [server] = [process for process in below if process.parent == launcher.pid]
    process_tree.kill_process(server)


def find_control_groups(generation: str) -> list[str]:
    """Folders of that name in any hierarchy."""
    return glob.glob(f"/sys/fs/cgroup/**/serai/{generation}", recursive=True)


class Harness:
    """A home for boxes, tokens that a hook mints, and what the hook was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = str(folder / "boxes")
        self._seen: set[str] = set()
        self.tokens_folder = folder / "tokens"
        self.tokens_folder.mkdir(exist_ok=True)
        self.mint = Hook(str(write_script(folder / "mint", MINT)), "mint", {"TOKENS": str(self.tokens_folder)})

    def boxes(self, **options: Any) -> Boxes:
        return Boxes(self.home, **{"limits": LIMITS, **options})

    @property
    def tokens(self) -> list[str]:
        return sorted(os.listdir(self.tokens_folder))

    @property
    def told(self) -> list[dict[str, Any]]:
        path = self.folder / "told"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def events(self) -> list[str]:
        return [request["event"] for request in self.told]

    def hook(self, name: str, text: str, env: Mapping[str, str] | None = None) -> Hook:
        return Hook(str(write_script(self.folder / name, text)), name, env or {})

    def left(self) -> list[str]:
        """What is left of boxes that were seen here: folders, answers of their hooks, processes and control groups."""
        folders = [name for name in os.listdir(self.home) if not name.startswith("boxes.db") and name != "logs"]
        folders += [path for name in self.generations for path in glob.glob(f"/dev/shm/serai-*/{name}*")]
        processes = [f"{process}" for name in self.generations for process in find_processes(name)]
        return folders + processes + [path for name in self.generations for path in find_control_groups(name)]

    @property
    def generations(self) -> set[str]:
        """Of all boxes that were seen here, also of those that never got a folder: a test that looks sees those of now."""
        if os.path.isdir(self.home):
            self._seen.update(name for name in os.listdir(self.home) if len(name) == 16)
            store = BoxStore(self.home)
            self._seen.update(record.generation for record in store.list_all())
            store.close()
        return self._seen

    async def clear(self) -> None:
        """For a test that failed half-way: a kept box would stay for ever."""
        if os.path.isdir(self.home) and self.left():
            async with self.boxes() as boxes:
                for record in await boxes.list():
                    await boxes.destroy(record.generation)
