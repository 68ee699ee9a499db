"""A person's home and the command in it; and guests for it: what each says is data, beside a small program that says it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import fork_server

Frame = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples" / "zot"

# Says what `says.json` has for it: at the start, and for each request by its type and name (`$pid` is its own number). An entry is
# a list of frames, which get the id of the request; the frame {"die": N} ends it.
GUEST_PROGRAM = """
import json, os, sys

says = json.load(open("says.json"))

def say(frames, id=None):
    text = ""
    for frame in frames:
        if "die" in frame:
            sys.stdout.write(text)
            sys.stdout.flush()
            os._exit(frame["die"])
        if id is not None and frame["type"] != "notify":
            frame = {**frame, "id": id}
        text += json.dumps(frame).replace("$pid", str(os.getpid())) + "\\n"
    sys.stdout.write(text)  # at once: what comes late after hello is too late for a host on a busy machine (spec zot 2.2)
    sys.stdout.flush()

sys.stderr.write(says["stderr"])
sys.stderr.flush()
say(says["start"])
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "shutdown":
        break
    key = frame["type"] + " " + str(frame.get("name") or frame.get("tool_name"))
    say(says["answers"].get(key, []), frame.get("id"))
"""


def write_guest(
    folder: Path,
    *start: Frame,
    tools: Sequence[str] = (),
    commands: Sequence[str] = (),
    answers: Mapping[str, Sequence[Frame]] | None = None,
    stderr: str = "",
    guest_toml: str = "",
    ready: bool = True,
    **manifest: Any,
) -> Path:
    """The folder of a guest with these tools and commands. `start` comes after its hello, `answers` are by type and name."""
    folder.mkdir(parents=True)
    about = {"name": folder.name, "exec": sys.executable, "args": ["-I", "-S", "./guest.py"], **manifest}
    (folder / "extension.json").write_text(json.dumps(about))
    (folder / "guest.py").write_text(GUEST_PROGRAM)
    if guest_toml:
        (folder / "guest.toml").write_text(guest_toml)
    frames: list[Frame] = [{"type": "hello", "name": folder.name}, *start]
    frames += [{"type": "register_tool", "name": name, "description": f"the tool {name}", "schema": {}} for name in tools]
    frames += [{"type": "register_command", "name": name, "description": f"the command {name}"} for name in commands]
    frames += [{"type": "ready"}] if ready else []
    (folder / "says.json").write_text(json.dumps({"start": frames, "answers": answers or {}, "stderr": stderr}))
    return folder


def build_text(*texts: str, **fields: Any) -> Frame:
    """The answer of a tool."""
    return {"type": "tool_result", "content": [{"type": "text", "text": one} for one in texts], **fields}


class Shell:
    """A person's home, a folder to stand in, and the command. Nothing of the machine's own settings is seen."""

    def __init__(self, root: Path) -> None:
        self.home, self.cwd = root / "home", root / "project"
        self.cwd.mkdir()

    def __call__(
        self, *arguments: str | Path, input: str = "", cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return fork_server.run(*map(str, arguments), env=self.env | env, cwd=cwd or self.cwd, input=input)

    def argv(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "serai", *map(str, arguments)]

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {"SERAI_HOME": str(self.home), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def parse_objects(ran: subprocess.CompletedProcess[str]) -> list[Any]:
    """What `--json` printed."""
    return [json.loads(line) for line in ran.stdout.splitlines()]


def read_lines(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """What a command printed that must succeed and complain of nothing."""
    assert (ran.stderr, ran.returncode) == ("", 0)
    return ran.stdout.splitlines()


LIMITED_PROGRAM = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
"""


def run_limited(shell: Shell, most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where no file can be longer than that: as on a full disk, writing fails in the middle."""
    command = [sys.executable, "-c", LIMITED_PROGRAM, str(most), *shell.argv(*arguments)]
    env = shell.env | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=env, cwd=shell.cwd, capture_output=True, text=True, timeout=50, check=False)


def write_package(folder: Path, name: str, module: str) -> None:
    """One that is installed there and offers an agent."""
    about = folder / "acme-1.5.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.5\n")
    with (about / "entry_points.txt").open("a") as file:
        file.write(f"[serai.agents]\n{name} = {module}:open\n" if not file.tell() else f"{name} = {module}:open\n")
