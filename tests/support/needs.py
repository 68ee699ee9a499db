"""What some tests need of the machine beyond Python and the base system. A test whose need is missing is skipped.

Mark a test with `@pytest.mark.needs("node")`, or call `require("node")` in a helper.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable

import pytest

__all__ = ["NEEDS", "has", "missing", "require", "runs_typescript", "summary"]

# Each need with its remedy: a Debian package, or a sentence.
NEEDS = {
    "node": "nodejs",
    "typescript": "esbuild",  # or Node 22.18, which runs TypeScript by itself
    "jq": "jq",
    "bwrap": "bubblewrap",
    "bash": "bash",
    "namespaces": "allow namespaces",
    "user-namespaces": "allow user namespaces",  # to an ordinary user, also where root runs the tests
    "root": "run as root",
    "user": "run as an ordinary user",
}
_PREFIX = "needs "


@functools.cache
def runs_typescript() -> bool:
    """Whether node runs TypeScript without a compiler, as 22.18 and newer do."""
    if not (node := shutil.which("node")):
        return False
    command = [node, "-e", "process.exit(process.features.typescript ? 0 : 1)"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@functools.cache
def _allows_namespaces(*, ordinary: bool) -> bool:
    """Whether this user, or an ordinary one, can make namespaces: the kernel may allow them to root alone."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true"]
    if ordinary and os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    try:
        return subprocess.run(command, cwd="/", capture_output=True, timeout=60, check=False).returncode == 0
    except FileNotFoundError:
        return False


def has(name: str) -> bool:
    """Whether this machine, and the user that runs the tests, has what `name` stands for."""
    match name:
        case "typescript":
            return shutil.which("node") is not None and (runs_typescript() or shutil.which("esbuild") is not None)
        case "namespaces":
            return _allows_namespaces(ordinary=False)
        case "user-namespaces":
            return _allows_namespaces(ordinary=True)
        case "root" | "user":
            return (os.geteuid() == 0) == (name == "root")
        case _ if name in NEEDS:
            return shutil.which(name) is not None
    raise pytest.UsageError(f"needs: {name!r} is unknown; use one of {', '.join(NEEDS)}")


def missing(names: Iterable[str]) -> str:
    """Returns the reason to skip a test with these needs, or an empty string."""
    lacking = [name for name in dict.fromkeys(names) if not has(name)]
    return _PREFIX + ", ".join(lacking) if lacking else ""


def require(*names: str) -> None:
    """Skips the test that calls it when one of the needs is missing."""
    if reason := missing(names):
        pytest.skip(reason)


def summary(reasons: Iterable[str]) -> str:
    """Returns one line about the skipped tests, by their reasons: how many, what they need, and what to install."""
    reasons = list(reasons)
    counts: Counter[str] = Counter()
    others = 0
    for reason in reasons:
        if found := re.search(rf"\b{_PREFIX}(.+)", reason):
            counts.update(found[1].split(", "))
        else:
            others += 1
    if not reasons:
        return ""
    needed = [name for name in NEEDS if counts[name]]
    parts = [f"{name} ({counts[name]})" for name in needed] + ([f"other things ({others}, shown by -rs)"] if others else [])
    packages = [NEEDS[name] for name in needed if " " not in NEEDS[name]]
    remedies = [f"apt-get install {' '.join(packages)}"] if packages else []
    remedies += [NEEDS[name] for name in needed if " " in NEEDS[name]]
    line = f"{len(reasons)} skipped: this machine lacks {', '.join(parts)}"
    return f"{line}; to run them: {'; '.join(remedies)}" if remedies else line
