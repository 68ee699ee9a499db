"""A call as rules look at it: who asks for what, and what its arguments really mean. Each part is worked out when a rule asks.

A part that cannot be known (a path with a NUL, a URL that two programs read in two ways) says so: a rule that denies then asks,
and a rule that allows does not match.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, product, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from serai.model.approvals import Remember
from serai.model.tools import ToolCall
from serai.plain_text import escape_surrogates
from serai.policy.patterns import list_candidates, normalise_path, parse_host, resolve_path

if TYPE_CHECKING:
    from serai.policy.commands.shell_text import CommandReading

_log = logging.getLogger(__name__)

# Arguments that lead somewhere, by the names that tools give them.
PATHS = (
    *("path", "paths", "file", "files", "file_path", "filePath", "filename", "notebook_path"),
    *("directory", "dir", "folder", "source", "destination", "target"),
)
URLS = ("url", "urls", "uri")
_COMMANDS = ("cmd", "script", "command_line", "commandLine", "shell_command")  # what some call a command; only to find it
_FROM_HERE = ("grep", "find")  # without a path they look through the working directory
GLOBS = {"find": ("pattern", "glob"), "grep": ("glob", "include")}  # arguments that are patterns of paths
_BRACES = re.compile(r"\{[\w-][\w./-]*(?:,[\w-][\w./-]*)*\}")  # alternatives that are names, as in *.{ts,tsx}
CWD = ("cwd", "workdir")

_MOST = 1000  # paths or URLs of one call that are looked at: each costs a few looks at the disk, or a moment
_MOST_NAMES = 20_000  # names in all of its paths together
_MOST_TEXTS = 1000  # other texts in its arguments that might be paths
_DEEPEST = 50  # an argument nested deeper is not looked into

# What a call of a tool may say besides what rules speak of, and still be the same call: texts and numbers that neither lead
# anywhere nor run anything. Whatever else it says (`env`, `absolute_path`, `method`) makes another call of it.
_TEXTS = ("old", "new", "old_string", "new_string", "old_text", "new_text", "oldText", "newText")
_LINES = ("offset", "limit", "line", "lines", "start_line", "end_line", "max_lines", "head_limit", "max_results", "encoding")
_CELLS = ("cell_id", "cell_number", "cell_type", "edit_mode")  # of a notebook
BESIDE: Mapping[str, frozenset[str]] = {
    "bash": frozenset({"description", "timeout", "timeout_ms", "background", "run_in_background"}),
    "read": frozenset({*_LINES, "pages", "allow_large", *_CELLS}),
    "write": frozenset({"content", "encoding"}),
    "edit": frozenset({*_TEXTS, "edits", "replace_all", "replaceAll", "count", "encoding", *_CELLS}),
    "grep": frozenset(
        {*_LINES, "pattern", "query", "regex", "literal", "type", "output_mode", "context", "before", "after", "multiline"}
        | {"ignore_case", "ignoreCase", "case_sensitive", "-A", "-B", "-C", "-n", "-i", "-o"}
    ),
    "find": frozenset({*_LINES, "type", "depth", "max_depth", "hidden", "ignore_case", "ignore"}),
    "fetch": frozenset({"prompt", "timeout", "format", "max_length", "offset"}),
}


BESIDE_COMMAND = BESIDE["bash"] | {"command", *CWD}


class CallContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a call is made. `owner` is the guest that offers the tool, empty for a built-in or an agent's own."""

    cwd: str
    project: str = ""
    session: str = ""
    agent: str = ""
    owner: str = ""
    profile: str = ""

    def get_scope_key(self, scope: Remember) -> str:
        """Whose a remembered decision of this scope is: this session's, this project's, or nobody's in particular."""
        found = {"project": os.path.realpath(self.project or self.cwd), "session": self.session}.get(scope, "")
        return escape_surrogates(found)  # as it is kept: a path may be no text


class FoundValues(NamedTuple):
    """The values of one kind in the arguments, and why there may be others."""

    values: tuple[Any, ...] = ()
    odd: str = ""


class CallFacts:
    """One call in its situation."""

    def __init__(self, call: ToolCall, situation: CallContext) -> None:
        self.call = call
        self.situation = situation
        self.who = call.asker or situation.agent or "unnamed"
        said = {} if call.arguments is None else call.arguments
        self.arguments: dict[str, Any] = said if isinstance(said, dict) else {}
        self.odd = "" if isinstance(said, dict) else "arguments that are no object of names and values"

    @cached_property
    def cwd(self) -> str:
        """The session's folder, links followed; looked up when a rule asks, for that takes a while."""
        return os.path.realpath(self.situation.cwd)

    @property
    def is_guest(self) -> bool:
        """Whether a guest asks: their ids have a colon."""
        return ":" in self.who

    @cached_property
    def cwds(self) -> FoundValues:
        """Where the call may run: in the session's folder, unless it names one itself."""
        said = [self.arguments[name] for name in CWD if self.arguments.get(name) not in (None, "")]
        return _resolve_paths(said, (self.cwd,)) if said else FoundValues((self.cwd,), self.odd)

    @property
    def names_cwd(self) -> bool:
        """Whether it names a folder of its own to run in."""
        return any(self.arguments.get(name) not in (None, "") for name in CWD)

    @cached_property
    def reading(self) -> CommandReading | None:
        """What its command runs; None when it has none."""
        command = self.arguments.get("command")
        return None if command is None else _read_command(command)

    @cached_property
    def readings(self) -> tuple[CommandReading, ...]:
        """The same for a rule that must not be got around: whatever some tool may take for a command."""
        others = (self.arguments[name] for name in _COMMANDS if self.arguments.get(name) is not None)
        return (*((self.reading,) if self.reading is not None else ()), *map(_read_command, others))

    @cached_property
    def leaves(self) -> FoundValues:
        """`(dotted name, value)` of everything that it says; of a list each under the list's name."""
        found: list[tuple[str, Any]] = []
        odd = self.odd
        waiting = [(name, value, 1) for name, value in reversed(self.arguments.items())]
        while waiting and len(found) < _MOST_NAMES:
            name, value, depth = waiting.pop()
            if isinstance(value, dict | list) and value and depth < _DEEPEST:
                inside = value.items() if isinstance(value, dict) else ((None, item) for item in value)
                waiting += [(name if key is None else f"{name}.{key}", item, depth + 1) for key, item in inside][::-1]
            else:
                found.append((name, value))
        if waiting:
            odd = "more arguments than can be looked at"
        return FoundValues(tuple(found), odd)

    @cached_property
    def texts(self) -> FoundValues:
        """Where else it may lead: each text under a name that is not one of a path's, resolved like a path."""
        said = [
            text
            for name, text in self.leaves.values
            if isinstance(text, str) and text and "\n" not in text and len(text) <= 4096 and name not in (*PATHS, "command")
        ]
        odd = "more texts than can be looked at" if len(said) > _MOST_TEXTS else self.leaves.odd
        found = _resolve_paths(said[:_MOST_TEXTS], self._bases)
        named = tuple(
            normalise_path(text, base) for one in said[:_MOST_TEXTS] for text in list_candidates(one)[0] for base in self._bases
        )
        return FoundValues(tuple(dict.fromkeys((*found.values, *named))), odd or found.odd)

    @cached_property
    def places(self) -> FoundValues:
        """Where its paths lead, resolved; every meaning that a tool may give them."""
        found = _resolve_paths(self._paths, self._bases)
        many = f"more than {_MOST} paths" if len(self._paths) == _MOST else ""
        return FoundValues(found.values, self.odd or self.cwds.odd or many or found.odd)

    @cached_property
    def named(self) -> tuple[str, ...]:
        """Its paths as they are written, from the root on, no link followed: a rule against `**/.env` means the link too."""
        texts = [text for said in self._paths for text in list_candidates(said)[0]]
        return tuple(dict.fromkeys(normalise_path(text, base) for text in texts for base in self._bases))

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Folders whose files it reads without naming them."""
        return tuple(filter(os.path.isdir, self.places.values)) if self.call.name == "grep" else ()

    @cached_property
    def hosts(self) -> FoundValues:
        """`(host, port)` of its URLs."""
        found: list[tuple[str, int]] = []
        odd = self.odd
        urls = [said for name in URLS for said in _to_sequence(self.arguments.get(name))]
        for said in urls[:_MOST]:
            try:
                found.append(parse_host(said if isinstance(said, str) else ""))
            except ValueError as error:
                odd = str(error)
        return FoundValues(tuple(found), f"more than {_MOST} URLs" if len(urls) > _MOST else odd)

    @cached_property
    def digest(self) -> str:
        """Of the arguments, however their keys are ordered. What cannot be written down is like nothing else."""
        try:
            return hashlib.sha256(msgspec.json.encode(self.call.arguments, order="deterministic")).hexdigest()
        except _UNWRITABLE:
            return secrets.token_hex(32)

    def get_field(self, name: str) -> FoundValues:
        """The texts under a dotted name: of a list each, of what is no text its JSON."""
        values: list[Any] = [self.arguments]
        for key in name.split("."):
            values = [item for value in values for item in _to_sequence(value)]
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
        found: list[str] = []
        odd = self.odd
        for text in (item for value in values for item in _to_sequence(value)):
            try:
                found.append(to_text(text))
            except _UNWRITABLE:
                odd = f"a `{name}` that is nested too deep, or no JSON"
        return FoundValues(tuple(found), odd)

    @cached_property
    def _bases(self) -> tuple[str, ...]:
        """Where a relative path may begin."""
        return tuple(dict.fromkeys((self.cwd, *self.cwds.values)))

    @cached_property
    def _paths(self) -> tuple[Any, ...]:
        """As they are said, and what patterns of paths among the arguments can reach."""
        said = [value for name in PATHS for value in _to_sequence(self.arguments.get(name))]
        if not said and self.call.name in _FROM_HERE:
            said = ["."]
        below = [value for value in said if isinstance(value, str)]
        patterns = [value for name in GLOBS.get(self.call.name, ()) for value in _to_sequence(self.arguments.get(name))]
        reached = [_find_glob_root(pattern) if isinstance(pattern, str) else pattern for pattern in patterns]
        joined = (os.path.join(base, reach) for reach in reached if isinstance(reach, str) for base in below)
        # Alone too: a pattern may be taken from the working directory on, and `~` means something only at the start.
        return tuple(islice(chain(said, reached, joined), _MOST))


_UNWRITABLE = (RecursionError, ValueError, TypeError, OverflowError)  # of what is no JSON, or too deep for it


def _resolve_paths(said: Iterable[Any], bases: Sequence[str]) -> FoundValues:
    """Where each leads for tools that go step by step, and for those that take `a/..` away first."""
    found: dict[str, None] = {}
    odd = ""
    names = 0
    for one in said:
        texts, why = list_candidates(one)
        odd = why or odd
        names += sum(text.count("/") + 1 for text in texts)
        if names > _MOST_NAMES:  # each name is a look at the disk
            return FoundValues(tuple(found), "more paths than can be followed")
        for text, base in product(texts, bases):
            for path in dict.fromkeys((text, normalise_path(text, base))):
                place, why = resolve_path(path, base)
                odd = why or odd
                if place:
                    found[place] = None
    return FoundValues(tuple(found), odd)


def to_text(value: Any) -> str:
    """A value as patterns see it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read_command(command: Any) -> CommandReading:
    """Whatever is wrong with it, there is a reading: what cannot be read is asked, never passed over."""
    from serai.policy.commands.reader import read_command  # few calls are commands, and what reads them takes a while to import
    from serai.policy.commands.shell_text import CommandReading

    if not isinstance(command, str) and not (isinstance(command, list) and all(isinstance(word, str) for word in command)):
        return CommandReading(None, unread="the command is neither a text nor a list of words")
    try:
        return read_command(command)
    except Exception as error:
        _log.exception("a command could not be read")
        return CommandReading(None, unread=f"the command cannot be read: {type(error).__name__}")


def _find_glob_root(pattern: str) -> str:
    """The highest folder that a pattern of paths can look into."""
    names = _BRACES.sub("*", pattern).split("/")
    fixed = list(takewhile(lambda name: not any(char in name for char in "*?[{!(\\"), names))
    rest = "/".join(names[len(fixed) :])
    if any(sign in rest for sign in ("..", "{", "(", "\\")):
        return "/"  # up again behind a star, or alternatives that may be anything: anywhere
    return "/".join(fixed) or ("/" if pattern.startswith("/") else ".")


def _to_sequence(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
