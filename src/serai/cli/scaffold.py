"""What `serai guest new` makes: the folder of a working extension, from the files in `templates/`.

A template has `@NAME@` and the like for what differs, and lines `%% guard`, `%% else`, `%% end` around what only a guard has.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serai.errors import BadSettings, NotWritten, SpawnFailed
from serai.wire.process import Launch, PlainSpawner

__all__ = ["DIALECTS", "LANGUAGES", "Language", "Made", "is_name", "make", "manifest_text", "python_command"]

DIALECTS = ("zot",)
_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)  # a folder, a word in a shell, what a model can say
_PATIENCE = 10.0  # seconds, for a Python to say whether it has the SDK


@dataclass(frozen=True, slots=True)
class Language:
    """How an extension in it is started, and what it needs for that."""

    program: str
    command: str
    needs: str
    tools: tuple[str, ...]  # what must be on the PATH


LANGUAGES: Mapping[str, Language] = {
    "python": Language("extension.py", "python3", "Python 3.11 or newer with serai installed", ()),
    "node": Language("extension.mjs", "node", "Node 18 or newer, and no package", ("node",)),
    "shell": Language("extension.sh", "sh", "a POSIX shell and jq 1.6 or newer", ("jq",)),
}


@dataclass(frozen=True, slots=True)
class Made:
    folder: Path
    files: tuple[str, ...]


def is_name(name: str) -> bool:
    """Whether an extension can have this name."""
    return _NAME.fullmatch(name) is not None


def make(name: str, into: Path, *, language: str, guard: bool, command: str = "", dialect: str = "zot") -> Made:
    """The folder `name` with a working extension in it. It is there whole, or not at all.

    `command` starts the program, in place of the language's own.
    """
    spoken = LANGUAGES[language]
    manifest = {
        "name": name,
        "version": "0.1.0",
        "language": language,
        "description": "Greets people, and refuses rm -rf." if guard else "Greets people.",
        "exec": command or spoken.command,
        "args": [spoken.program],
    }
    flags = {language, *(["guard"] if guard else [])}
    words = {"@NAME@": name, "@PROGRAM@": spoken.program, "@NEEDS@": spoken.needs}
    files = {"extension.json": manifest_text(manifest)}
    test = f"test_{name}.py"  # pytest wants another name for each that it finds below one folder
    for file in (spoken.program, test, "README.md", ".gitignore", *(["guest.toml"] if guard else [])):
        template = _TEMPLATES / dialect / f"{'test_extension.py' if file == test else file.removeprefix('.')}.txt"
        files[file] = _filled(template.read_text(encoding="utf-8"), words, flags)
    target = into / name
    with _beside(target) as folder:
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    return Made(target, tuple(files))


def manifest_text(manifest: Mapping[str, object]) -> str:
    """A manifest as a person would write it: a line for each member."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in manifest.items())
    return f"{{\n{lines}\n}}\n"


def _filled(template: str, words: Mapping[str, str], flags: Collection[str]) -> str:
    lines, wanted = [], True
    for line in template.splitlines():
        match line.split():
            case ["%%", "else"]:
                wanted = not wanted
            case ["%%", "end"]:
                wanted = True
            case ["%%", flag]:
                wanted = flag in flags
            case _ if wanted:
                lines.append(line)
    text = "\n".join(lines) + "\n"
    for word, value in words.items():
        text = text.replace(word, value)
    return text


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A hidden folder that becomes the target once it is filled, in one step; whatever goes wrong, it is gone afterwards."""
    _refuse_taken(target)
    temporary = target.with_name(f".serai-{secrets.token_hex(8)}")
    try:
        temporary.mkdir()
        try:
            yield temporary
            temporary.rename(target)  # over an empty folder too, but over nothing else
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # somebody was quicker
            raise _taken(target) from None
        raise NotWritten(f"cannot be made: {error.strerror}", who=str(target)) from None


def _refuse_taken(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise _taken(target)
    try:
        taken = target.is_dir() and any(target.iterdir())
    except OSError:  # not to be looked into, so not ours
        taken = True
    if taken:
        raise _taken(target)


def _taken(target: Path) -> BadSettings:
    return BadSettings("it is there already", who=str(target), hint="choose another name, or another folder with --into")


async def python_command(environ: Mapping[str, str] = os.environ) -> str:
    """`python3` when the one on the PATH has the SDK, as others can use that too; else this very interpreter."""
    # -P: what lies in the folder we are in does not count. A Python too old for the SDK does not know it.
    launch = Launch(argv=["python3", "-P", "-c", "import serai.sdk"], env=environ, who="python3", stdin="null")
    async with PlainSpawner() as spawner:
        try:
            child = await spawner.spawn(launch)
            child.to_noise(child.stdout)
            async with asyncio.timeout(_PATIENCE):
                status = await child.exited
        except (SpawnFailed, TimeoutError):
            return sys.executable
    return "python3" if status.ok else sys.executable
