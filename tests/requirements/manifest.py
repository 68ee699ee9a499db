"""Reads the manifest and the tests' markers. `python -m tests.requirements.manifest` prints what is covered."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent

# The areas that requirements are planned for: what will prove them.
AREAS = {
    "acp": "agents that speak the Agent Client Protocol",
    "agents": "every further agent",
    "bridges": "Serai offered to other programs",
    "cli": "the command line",
    "cluster": "boxes on several machines",
    "codex": "Codex as an agent",
    "containers": "boxes made by container engines",
    "egress": "the network proxy of boxes",
    "gemini": "Gemini CLI as an agent",
    "opencode": "opencode as an agent",
    "pi": "pi as an agent",
    "plugins": "WASM plugins",
    "ports": "ports of boxes, reached from outside",
    "web": "the HTTP API and its logins",
    "windows": "Windows",
}

# The lowest number of entries of each file, by group: what the specs count.
LOWEST: dict[str, dict[str, int]] = {
    "wire": {"errors": 5, "framing": 10, "codec": 12, "jsonrpc": 14, "process": 11, "channel": 13, "fault": 17},
    "record": {"frames": 1, "wire": 4, "file": 6, "secrets": 5, "timeline": 3, "replay": 2, "cli": 2},
    "host": {"model": 3, "find": 5, "trust": 4, "guard": 4, "life": 7, "reload": 6, "call": 9, "cli": 7},
    "sdk": {"wire": 6, "answer": 7, "life": 6, "import": 2, "schema": 3, "args": 3, "check": 5, "new": 2, "bundle": 3},
    "zot": {"edge": 52, "ours": 41, "frame": 21},
    "hooks": {
        "naive": 32, "bytes": 14, "mode": 10, "owner": 10, "path": 13, "decode": 12, "rule": 71, "scenario": 109, "box": 21,
    },
    "policy": {"decide": 8, "rule": 14, "command": 12, "remember": 5, "pending": 8, "cli": 4},
    "store": {"file": 7, "read": 1, "list": 3, "message": 2, "scribe": 1, "export": 1, "cli": 6},
    "resident": {
        "script": 4, "models": 20, "parrot": 3, "tools": 26, "undo": 4, "fakes": 18, "sdks": 3, "bad": 6, "open": 3, "docs": 1,
    },
    "app": {
        "pipeline": 7, "services": 6, "config": 10, "line": 8, "printing": 6, "doctor": 4, "completion": 2, "demo": 5, "run": 17,
        "docs": 1, "mcp": 15, "driven": 12,
    },
    "piglet": {"method": 88, "fix": 36, "edge": 40},
    "agents": {"scenario": 171, "live": 22, "edge": 36},
    "yoi": {"edge": 36, "conform": 68},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requirement:
    """One promised behaviour. `planned` is the area that will prove it, or None once a test does."""

    id: str
    source: str
    text: str
    planned: str | None = None

    @property
    def file(self) -> str:
        return self.id.split(".")[0]

    @property
    def group(self) -> str:
        return self.id.split(".")[1]


def load(name: str) -> list[Requirement]:
    entries = tomllib.loads((HERE / f"{name}.toml").read_text())["requirement"]
    return [Requirement(**entry) for entry in entries]


def load_all() -> list[Requirement]:
    return [requirement for name in LOWEST for requirement in load(name)]


@cache
def markers() -> list[tuple[str, str]]:
    """`(id, test file)` of every `pytest.mark.req` in the tests, read and not run: a subset of tests changes nothing."""
    return list(_read_markers())


def _read_markers() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        if "pytest.mark.req(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
                for argument in node.args:
                    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                        raise TypeError(f"{path}:{node.lineno}: req takes the ids as plain strings")
                    yield argument.value, str(path.relative_to(TESTS))


def main() -> None:
    covered = {id for id, _ in markers()}
    for name in LOWEST:
        requirements = load(name)
        done = [requirement for requirement in requirements if requirement.id in covered]
        plan = Counter(requirement.planned for requirement in requirements if requirement.planned is not None)
        missing = [r.id for r in requirements if r.planned is None and r.id not in covered]
        planned = ", ".join(f"{count} for {area}" for area, count in sorted(plan.items()))
        print(f"{name:8} {len(done):4} of {len(requirements):4} proved; planned: {planned or 'none'}")
        for id in missing:
            print(f"         missing: {id}")


if __name__ == "__main__":
    main()
