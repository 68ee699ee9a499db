"""The program behind `grep` and `find`: prints what it finds as it finds it, sorted, and at last what it left out.

It is given one JSON object and opens its folder by itself, without following a link.
"""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import sys

from serai.plain_text import escape_line, spell_literal
from serai.tools.programs.file_walk import FILE, FOLDER, FolderWalk, open_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal, NoReturn, TypedDict

    class _Asked(TypedDict):
        tool: Literal["grep", "find"]
        path: str  # absolute, no link in it
        shown: str  # how it is shown, empty for the working directory
        most: int  # bytes to print
        pattern: str
        glob: str
        limit: int

    class Search(_Asked, total=False):
        """What is asked."""

        ignore_case: bool
        literal: bool
        context: int
        longest: int  # bytes of a file that is looked into
        kind: Literal["file", "directory", "any"]
else:
    Search = dict

# How it ends, besides well.
BAD_PATTERN = 3
NO_WAY = 4  # prints the error's number

_MEMORY = 1 << 30
_BINARY = 8192
_IN_CLASS = re.compile(r"[\\\[\]^&~|]")  # what means something among the characters of [a-z]
_LINE = 400  # characters of a line that are shown


class _Enough(Exception):
    """As much was found as was asked for; it says what to do about it."""


def main(request: str) -> None:
    asked: Search = json.loads(request)
    _limit_itself()
    out = _LimitedOutput(asked["most"])
    try:
        glob = compile_glob(asked["glob"]) if asked["glob"] else None
        search = _compile_pattern(asked) if asked["tool"] == "grep" else None
    except (re.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        _end(BAD_PATTERN, f"the pattern cannot be used: {str(error) or 'it needs too much memory'}")
    try:
        if search is not None:
            _grep(asked, search, glob, out)
        elif glob is not None:
            _find(asked, glob, out)
    except OSError as error:
        _end(NO_WAY, str(error.errno))
    except (MemoryError, RecursionError):
        _end(BAD_PATTERN, "to look for it needs too much memory")
    out.flush()


def _limit_itself() -> None:
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _MEMORY if most == resource.RLIM_INFINITY else min(most, _MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    levels = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # one descriptor for each level of folders
    resource.setrlimit(resource.RLIMIT_NOFILE, (levels, levels))


def _end(code: int, text: str) -> NoReturn:
    os.write(1, text.encode(errors="backslashreplace"))
    os._exit(code)


class _LimitedOutput:
    """Prints lines, up to so many bytes of them."""

    def __init__(self, most: int) -> None:
        self._left = most - 1024  # room for the last remarks
        self._lines: list[bytes] = []

    def add_line(self, text: str) -> None:
        data = text.encode(errors="backslashreplace") + b"\n"
        self._left -= len(data)
        if self._left < 0:
            raise _Enough("there is more than fits: look for something narrower, or in a smaller folder")
        self._lines.append(data)

    def add_remark(self, text: str) -> None:
        self._lines.append(f"[{text}]\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        if self._lines:
            sys.stdout.buffer.write(b"".join(self._lines))
            sys.stdout.buffer.flush()
            self._lines.clear()


# -- find -------------------------------------------------------------------------------------------------------------------------


def _find(asked: Search, glob: Callable[[str], bool], out: _LimitedOutput) -> None:
    tree = FolderWalk(_open_folder(asked["path"]))
    kind, count = asked.get("kind", "any"), 0
    try:
        for path, is_folder, _ in tree:
            if kind != "any" and is_folder != (kind == "directory"):
                continue
            if glob(path):
                if count == asked["limit"]:
                    out.add_remark(f"stopped at {count}: raise limit, or look for something narrower")
                    break
                out.add_line(_format_path(asked, path) + ("/" if is_folder else ""))
                count += 1
    except _Enough as enough:
        out.add_remark(str(enough))
    if not count:
        out.add_remark("nothing found")
    _tell_unread(tree, out)


# -- grep -------------------------------------------------------------------------------------------------------------------------


def _compile_pattern(asked: Search) -> Callable[[str], re.Match[str] | None]:
    source = re.escape(asked["pattern"]) if asked.get("literal") else asked["pattern"]
    return re.compile(source, re.IGNORECASE if asked.get("ignore_case") else 0).search


def _grep(
    asked: Search, search: Callable[[str], re.Match[str] | None], glob: Callable[[str], bool] | None, out: _LimitedOutput
) -> None:
    grep = _Grep(asked, search, out)
    above, name = os.path.split(asked["path"])
    folder = open_folder(above)
    status = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
    tree = FolderWalk(folder)
    try:
        if stat.S_ISREG(status.st_mode):
            grep.search_file(name, folder, asked["shown"])
        else:
            tree = FolderWalk(os.open(name or ".", FOLDER, dir_fd=folder))
            for path, is_folder, here in tree:
                if not is_folder and (glob is None or glob(path)):
                    grep.search_file(path.rpartition("/")[2], here, _format_path(asked, path))
                    out.flush()
    except _Enough as enough:
        out.add_remark(str(enough))
    if not grep.count:
        out.add_remark("no match")
    if grep.too_long:
        out.add_remark(f"{grep.too_long} files longer than {asked.get('longest')} bytes were not searched")
    tree.unread += grep.unread
    _tell_unread(tree, out)


class _Grep:
    """Looks into one file after the other."""

    def __init__(self, asked: Search, search: Callable[[str], re.Match[str] | None], out: _LimitedOutput) -> None:
        self._search = search
        self._out = out
        self._left = self._limit = asked["limit"]
        self._context = asked.get("context", 0)
        self._longest = asked.get("longest", 1 << 24)
        self.too_long = self.unread = 0

    @property
    def count(self) -> int:
        return self._limit - self._left

    def search_file(self, name: str, folder: int, shown: str) -> None:
        lines = self._read_lines(name, folder)
        told = -1  # the last line that was printed
        for at, line in enumerate(lines):
            match = self._search(line)
            if match is None:
                continue
            if not self._left:
                raise _Enough(f"stopped at {self._limit} matches: raise limit, or look for something narrower")
            self._left -= 1
            first = max(at - self._context, told + 1)
            if self._context and 0 <= told < first - 1:
                self._out.add_line("--")
            for other in range(first, at):
                self._out.add_line(f"{shown}-{other + 1}- {_cut(lines[other], 0)}")
            self._out.add_line(f"{shown}:{at + 1}: {_cut(line, match.start())}")
            told = at
            for other in range(at + 1, min(at + 1 + self._context, len(lines))):
                if self._search(lines[other]) is not None:
                    break  # it is a match of its own
                self._out.add_line(f"{shown}-{other + 1}- {_cut(lines[other], 0)}")
                told = other

    def _read_lines(self, name: str, folder: int) -> list[str]:
        """Of a text file; nothing of what is none."""
        try:
            descriptor = os.open(name, FILE, dir_fd=folder)
        except OSError:
            self.unread += _is_file(name, folder)
            return []
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return []
            if status.st_size > self._longest:
                self.too_long += 1
                return []
            try:
                data = file.read(self._longest) or b""
            except OSError:
                self.unread += 1
                return []
        if b"\0" in data[:_BINARY]:
            return []
        text = data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
        lines = (text.replace("\r\n", "\n") if "\r\n" in text else text).split("\n")
        if not lines[-1]:
            lines.pop()
        return lines


def _cut(line: str, at: int) -> str:
    """A long line around its match."""
    if len(line) > _LINE:
        start = max(at - 80, 0)
        line = f"{'…' if start else ''}{line[start : start + _LINE]}{'…' if start + _LINE < len(line) else ''}"
    return line


def _is_file(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False  # gone


# -- both -------------------------------------------------------------------------------------------------------------------------


def _open_folder(path: str) -> int:
    above, name = os.path.split(path)
    return os.open(name or ".", FOLDER, dir_fd=open_folder(above))


def _format_path(asked: Search, path: str) -> str:
    return escape_line(f"{asked['shown'].rstrip('/')}/{path}" if asked["shown"] else path, spell_literal)


def _tell_unread(tree: FolderWalk, out: _LimitedOutput) -> None:
    if tree.unread:
        out.add_remark(f"{tree.unread} places could not be read")


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Whether a path below the folder is meant: without a slash its last name, else all of it. `ValueError` for what leads out."""
    names = pattern.split("/")
    if pattern.startswith("/") or ".." in names:
        raise ValueError("it begins at `path` and stays below: name another `path`, not / or .. in the pattern")
    names = [name for name in names if name not in ("", ".")]
    if not names:
        raise ValueError("it names nothing")
    if len(names) == 1 and "/" not in pattern:
        one = re.compile("".join(_translate_glob(names[0])), re.DOTALL).fullmatch
        return lambda path: one(path.rpartition("/")[2]) is not None
    source = ""
    for number, name in enumerate(names):
        last = number == len(names) - 1
        if name == "**":
            source += ".*" if last else "(?:[^/]*/)*"
        else:
            source += "".join(_translate_glob(name)) + ("" if last else "/")
    whole = re.compile(source, re.DOTALL).fullmatch
    return lambda path: whole(path) is not None


def _translate_glob(name: str) -> Iterator[str]:
    """One name of a glob as a regular expression: `*`, `?`, `[a-z]`, `{a,b}`, and a backslash before what is plain."""
    at, depth = 0, 0
    while at < len(name):
        char = name[at]
        at += 1
        if char == "*":
            yield "[^/]*"
        elif char == "?":
            yield "[^/]"
        elif char == "\\" and at < len(name):
            yield re.escape(name[at])
            at += 1
        elif char == "[" and (end := name.find("]", at + 1 + (name[at : at + 1] in ("!", "^")))) > 0:
            inside = name[at:end]
            no = inside[:1] in ("!", "^")
            plain = _IN_CLASS.sub(r"\\\g<0>", inside[no:])
            yield f"(?!/)[{'^' if no else ''}{plain}]"
            at = end + 1
        elif char == "{" and "}" in name[at:]:
            depth += 1
            yield "(?:"
        elif char == "}" and depth:
            depth -= 1
            yield ")"
        elif char == "," and depth:
            yield "|"
        else:
            yield re.escape(char)
