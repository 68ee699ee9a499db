"""Which Claude Code a file is: what a package says of it, or else its own `--version` (spec agents 2.1)."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest

from serai import paths
from serai.errors import SeraiError
from serai.limits import MIB, Limits
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner

__all__ = ["UNKNOWN", "Versions", "banner", "known", "newer", "refused", "version_in"]

UNKNOWN = "unknown"
_PACKAGE = re.compile(r"@anthropic-ai/claude-code(-[a-z0-9-]+)?")
_PRODUCT = re.compile(r"claude (code|cli)", re.IGNORECASE)
_NUMBER = re.compile(r"v?(\d\S*)")
_INSTALLED = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*")
_SHIMS = (".cmd", ".bat", ".ps1")
# A program of Linux or macOS, or a script. What npm leaves where its install script did not run is none of them.
_HEADS = (b"\x7fELF", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_MOST = MIB  # bytes of a package.json

# What only the Desktop application has: it is another program of the same name (spec agents 5.2 A12).
_DESKTOP = re.compile(r"/Claude\.app/|/claude-desktop/|/AnthropicClaude/|/Claude Desktop/", re.IGNORECASE)


def refused(path: str) -> str:
    """Why a file cannot be it, from looking at it alone; empty when it can."""
    if path.lower().endswith(_SHIMS):  # a shell between us would not pass on signals, nor all arguments (spec agents 7.32)
        return "it is a script of the Windows shell: name the program that it starts"
    if _DESKTOP.search(os.path.realpath(path)) or _DESKTOP.search(path):
        return "it belongs to the Claude Desktop application"
    if not os.path.exists(path):
        return "it does not exist"
    if not os.path.isfile(path):
        return "it is not a file"
    if not os.access(path, os.X_OK):
        return "it is not executable"
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return ""  # to be executed it need not be readable
    return "" if head.startswith(_HEADS) else "it is neither a program nor a script with a #! line"


def banner(text: str) -> str:
    """The version in what `--version` printed; empty when it is not Claude Code's. Desktop says `1.0.0 (Claude)`."""
    if not _PRODUCT.search(text):
        return ""
    return version_in(text) or UNKNOWN


def version_in(text: str) -> str:
    """The first word of the first line that begins with a digit, or with `v` and one."""
    first = text.strip().partition("\n")[0]
    return next((found[1] for word in first.split() if (found := _NUMBER.fullmatch(word))), "")


def newer(one: str, other: str) -> bool:
    """Whether a version is later than another: by number, part by part, a missing part being 0."""
    mine, theirs = _numbers(one), _numbers(other)
    return next((a > b for a, b in zip_longest(mine, theirs, fillvalue=0) if a != b), False)


def _numbers(version: str) -> list[int]:
    """-1 for what is no version: it is lower than all."""
    parts = [re.match(r"\d+", part) for part in version.removeprefix("v").split(".")]
    return [int(part[0]) if part else 0 for part in parts] if parts[0] else [-1]


def known(path: str) -> str:
    """The version, where a package or an installer has written it down beside the file; no process is needed then."""
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    with suppress(OSError, ValueError):  # the wheel has the banner in a file
        return banner(paths.read_regular_file(f"{real}.version", _MOST).decode())
    if os.path.basename(folder) == "versions" and _INSTALLED.fullmatch(name):  # Claude's own installer: …/claude/versions/2.1.3
        return name
    for above in (folder, os.path.dirname(folder)):  # npm: in the package's folder, or in its `bin`
        with suppress(OSError, ValueError):
            about = json.loads(paths.read_regular_file(os.path.join(above, "package.json"), _MOST))
            if isinstance(about, dict) and _PACKAGE.fullmatch(str(about.get("name"))):
                return str(about.get("version") or UNKNOWN)
    return ""


class Versions:
    """What programs say of themselves. Each is asked once, until its file changes (spec agents 2.1 ★)."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, int], str] = {}

    def invalidate(self) -> None:
        """Ask all of them again."""
        self._seen.clear()

    async def of(self, path: str, env: Mapping[str, str], *, limits: Limits, spawner: Spawner | None = None) -> str:
        """Its version. `ValueError` says why it is not Claude Code."""
        if why := refused(path):
            raise ValueError(why)
        if version := known(path):
            return version
        key = _as_it_is(path)
        if key not in self._seen:
            self._seen[key] = await _asked(path, env, limits, spawner)
        return self._seen[key]


def _as_it_is(path: str) -> tuple[str, int, int]:
    about = os.stat(path)
    return os.path.realpath(path), about.st_mtime_ns, about.st_size


async def _asked(path: str, env: Mapping[str, str], limits: Limits, spawner: Spawner | None) -> str:
    if spawner is not None:
        return await _ask(path, env, limits, spawner)
    async with PlainSpawner(limits, watchdog=False) as own:
        return await _ask(path, env, limits, own)


async def _closed(child: Child) -> None:
    """Also for one who is cancelled in this very moment: whoever waits for their end finds nothing left."""
    closing = asyncio.ensure_future(child.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


async def _ask(path: str, env: Mapping[str, str], limits: Limits, spawner: Spawner) -> str:
    try:
        child = await spawner.spawn(Launch(argv=[path, "--version"], env=env, cwd="/", who="claude", stdin="null"))
    except SeraiError as error:
        raise ValueError(error.message) from None
    try:
        said = child.to_noise(child.stdout)
        async with asyncio.timeout(limits.agent_version):
            status = await child.exited
        said.drain()
        text = said.text()
    except TimeoutError:
        raise ValueError(f"it did not tell its version within {limits.agent_version:g} s") from None
    finally:
        await _closed(child)
    if not status.ok:
        raise ValueError(f"it could not tell its version: {status}")
    version = banner(text)
    if not version:
        raise ValueError("it says that it is something else than Claude Code")
    return version
