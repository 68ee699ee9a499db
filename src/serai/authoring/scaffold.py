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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serai.errors import BadSettings, NotWritten, SpawnFailed
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

# The languages in which an extension of each dialect can be begun.
DIALECTS: Mapping[str, tuple[str, ...]] = {
    "zot": ("python", "node", "shell"),
    "piglet": ("python", "typescript"),
    "yoi": ("python", "js", "c", "wat"),
}
# Plugins by the names that yoi has for their beginnings: language, and whether there is a service in it (spec yoi 20).
PLUGINS: Mapping[str, tuple[str, bool]] = {
    "python-component-tool": ("python", False),
    "python-component-service": ("python", True),
    "js-component-tool": ("js", False),
    "js-component-service": ("js", True),
    "c-component-tool": ("c", False),
    "wat-component-tool": ("wat", False),
}
_MANIFESTS = {"zot": "extension.json", "piglet": "manifest.yaml", "yoi": "plugin.toml"}
_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)  # a folder, a word in a shell, what a model can say
_WORDS = re.compile(r"[A-Za-z/.][A-Za-z0-9_./-]*(?:,? [A-Za-z0-9_./-]+)*\.?", re.ASCII)  # of YAML: text, and nothing but text
_NO_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
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
    "typescript": Language("extension.ts", "node", "Node 22.18 or newer, or bun, and no package", ()),
    "js": Language("extension.js", "", "Node 18 or newer and the npm package componentize-qjs", ("node",)),
    "c": Language("extension.c", "", "a C compiler for wasm32: `pip install ziglang`", ()),
    "wat": Language("extension.wat", "", "wasmtime: `pip install 'serai[wasm]'`", ()),
}
# What a plugin's folder has besides, and what has another name among the templates.
BESIDE = {"js": ("yoi.js", "package.json"), "c": ("yoi.h",)}
_PLUGIN_NEEDS = {"python": "componentize-py: `pip install componentize-py`"}


@dataclass(frozen=True, slots=True)
class Scaffold:
    folder: Path
    files: tuple[str, ...]


def is_name(name: str) -> bool:
    """Whether an extension can have this name."""
    return _NAME.fullmatch(name) is not None


def create_extension(name: str, into: Path, *, language: str, guard: bool, command: str = "", dialect: str = "zot") -> Scaffold:
    """The folder `name` with a working extension in it. It is there whole, or not at all.

    `command` starts the program, in place of the language's own.
    """
    spoken = LANGUAGES[language]
    about = "Greets people, and refuses rm -rf." if guard else "Greets people."
    flags = {language, *(["guard"] if guard else [])}
    words = {"@NAME@": name, "@PROGRAM@": spoken.program, "@NEEDS@": spoken.needs}
    files = {_MANIFESTS[dialect]: format_manifest(_MANIFEST[dialect](name, language, about, command or spoken.command), dialect)}
    test = f"test_{name}.py"  # pytest wants another name for each that it finds below one folder
    for file in (spoken.program, test, "README.md", ".gitignore", *(["guest.toml"] if guard else [])):
        template = f"{'test_extension.py' if file == test else file.removeprefix('.')}.txt"
        files[file] = _fill_template(_find_template(dialect, template).read_text(encoding="utf-8"), words, flags)
    target = into / name
    with _staging_folder(target) as folder:
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    return Scaffold(target, tuple(files))


def create_plugin(name: str, into: Path, *, language: str, service: bool) -> Scaffold:
    """The folder `name` with the beginning of a plugin: its component is a text until it is built."""
    spoken = LANGUAGES[language]
    kind = "service" if service else "tool"
    flags = {language, kind, f"{language}-{kind}", *(["built"] if language in ("c", "wat") else [])}
    needs = _PLUGIN_NEEDS.get(language, spoken.needs)
    words = {"@NAME@": name, "@PROGRAM@": spoken.program, "@NEEDS@": needs}
    test = f"test_{name}.py"
    files = {}
    for file in (
        "plugin.toml",
        spoken.program,
        *BESIDE.get(language, ()),
        "plugin.component.wasm",
        test,
        "README.md",
        ".gitignore",
    ):
        template = f"{'test_extension.py' if file == test else file.removeprefix('.')}.txt"
        files[file] = _fill_template(_find_template("yoi", template).read_text(encoding="utf-8"), words, flags)
    target = into / name
    with _staging_folder(target) as folder:
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    return Scaffold(target, tuple(files))


def _build_zot_manifest(name: str, language: str, about: str, command: str) -> dict[str, object]:
    described = {"name": name, "version": "0.1.0", "language": language, "description": about}
    return {**described, "exec": command, "args": [LANGUAGES[language].program]}


def _build_piglet_manifest(name: str, language: str, about: str, command: str) -> dict[str, object]:
    runtime = "python" if command == "python3" else command  # which is what the protocol calls it (spec piglet 1.4)
    described = {"name": name, "version": "0.1.0", "description": about}
    return {**described, "runtime": runtime, "entry": LANGUAGES[language].program}


_MANIFEST = {"zot": _build_zot_manifest, "piglet": _build_piglet_manifest}


def get_manifest_file(dialect: str) -> str:
    """The file in which a host of this dialect looks how to start an extension."""
    return _MANIFESTS[dialect]


def format_manifest(manifest: Mapping[str, object], dialect: str = "zot") -> str:
    """A manifest as a person would write it: a line for each member."""
    if dialect == "piglet":
        return "".join(f"{key}: {_format_yaml(value)}\n" for key, value in manifest.items())
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in manifest.items())
    return f"{{\n{lines}\n}}\n"


def _format_yaml(value: object) -> str:
    """Without quotes where nobody can take it for more than text: JSON is YAML, too."""
    if isinstance(value, str) and _WORDS.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def _find_template(dialect: str, name: str) -> Path:
    """The dialect's own, or the one that all have."""
    own = _TEMPLATES / dialect / name
    return own if own.exists() else _TEMPLATES / name


def _fill_template(template: str, words: Mapping[str, str], flags: Collection[str]) -> str:
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
def _staging_folder(target: Path) -> Iterator[Path]:
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
            raise _build_taken_error(target) from None
        raise NotWritten(f"cannot be made: {error.strerror}", who=str(target)) from None


def _refuse_taken(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise _build_taken_error(target)
    try:
        taken = target.is_dir() and any(target.iterdir())
    except OSError:  # not to be looked into, so not ours
        taken = True
    if taken:
        raise _build_taken_error(target)


def _build_taken_error(target: Path) -> BadSettings:
    return BadSettings("it is there already", who=str(target), hint="choose another name, or another folder with --into")


async def find_python_command(environ: Mapping[str, str] = os.environ) -> str:
    """`python3` when the one on the PATH has the SDK, as others can use that too; else this very interpreter."""
    # -P: what lies in the folder we are in does not count. A Python too old for the SDK does not know it.
    return "python3" if await _succeeds(["python3", "-P", "-c", "import serai.sdk"], environ) else sys.executable


async def find_typescript_command(environ: Mapping[str, str] = os.environ) -> str:
    """`node` when it runs TypeScript as it is, else `bun`; empty when neither is there."""
    if await _succeeds(["node", "-e", "process.exit(process.features.typescript ? 0 : 1)"], environ):
        return "node"
    return "bun" if await _succeeds(["bun", "--version"], environ) else ""


async def _succeeds(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    async with PlainSpawner() as spawner:
        try:
            child = await spawner.spawn(Launch(argv=argv, env=environ, who=argv[0], stdin="null"))
            child.drain_noise(child.stdout)
            async with asyncio.timeout(_PATIENCE):
                status = await child.exited
        except (SpawnFailed, TimeoutError):
            return False
    return status.ok
