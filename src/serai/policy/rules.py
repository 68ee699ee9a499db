"""Rules, as a person writes them (TOML in, checked, one object each), and which are in force.

    [[rule]]
    id = "tests"                      # an explanation names it
    decide = "allow"                  # allow, deny or ask
    tool = "bash"
    command = ["make test", "pytest *"]
    because = "they change nothing"

Each key takes one pattern or a list of them, any of which will do; a rule matches when every key that it has does. An unknown key
is an error: with a `comand` that is ignored, a rule would allow everything.

In force are the rules of the command line, of the files named there, of the project, of the person, and those that are shipped. A
project that is not trusted may only narrow (design rule 12): its rules that deny or ask count, those that allow do not. A mode
other than `manual` is never a project's to choose: `auto` and `skip` are a person's own choice.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

from serai import paths
from serai.errors import BadSettings
from serai.limits import MIB
from serai.policy.patterns import HostPattern, PathPattern, compile_glob

if TYPE_CHECKING:
    from serai.policy.commands.reader import CommandPattern

Decide = Literal["allow", "deny", "ask"]
Mode = Literal["manual", "auto", "skip"]
MODES: tuple[str, ...] = get_args(Mode)

_TEXTS = ("who", "owner", "tool")
_KEYS = ("id", "decide", *_TEXTS, "command", "path", "host", "input", "cwd", "because")
_TOP = ("mode", "profiles", "rule")
_MOST = MIB  # of one file; what is longer is no file of rules
_ID = re.compile(r"[\w.:-]{1,80}")

# What the pattern of a flag is about, by the tool it stands behind.
_ABOUT = {"bash": "command", "fetch": "host", "read": "path", "write": "path", "edit": "path", "grep": "path", "find": "path"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. A key that it does not have is empty, and matches everything. `source` is the file or flag it came from."""

    id: str
    decide: Decide
    who: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    input: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cwd: tuple[str, ...] = ()
    because: str = ""
    exactly: str = ""  # the digest of the arguments: only in what is remembered
    source: str = ""

    patterns: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # compiled, by key

    def __post_init__(self) -> None:
        """A `ValueError` says which pattern is none."""
        made: dict[str, Any] = {key: [compile_glob(text) for text in getattr(self, key)] for key in _TEXTS}
        made["command"] = [_compile_command(text) for text in self.command]
        made["path"] = [PathPattern(text) for text in self.path]
        made["cwd"] = [PathPattern(text) for text in self.cwd]
        made["host"] = [HostPattern(text) for text in self.host]
        made["input"] = {name: [compile_glob(text) for text in texts] for name, texts in self.input.items()}
        object.__setattr__(self, "patterns", made)

    def to_json(self) -> dict[str, Any]:
        """As it would stand in a file; what is empty is left out."""
        form: dict[str, Any] = {"id": self.id, "decide": self.decide}
        for key in (*_TEXTS, "command", "path", "host", "cwd"):
            if texts := getattr(self, key):
                form[key] = list(texts) if len(texts) > 1 else texts[0]
        if self.input:
            form["input"] = {name: list(texts) if len(texts) > 1 else texts[0] for name, texts in self.input.items()}
        return form | {key: value for key in ("because", "exactly") if (value := getattr(self, key))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one source says, or all together: rules in their order, the default mode, and the modes of profiles."""

    rules: tuple[Rule, ...] = ()
    mode: str = ""  # empty: it does not say
    profiles: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was not taken, and why

    def select(self, decide: Decide) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.decide == decide)

    def __add__(self, later: Rules) -> Rules:
        """Both; where they say different things of a mode, the first counts."""
        return Rules(
            rules=self.rules + later.rules,
            mode=self.mode or later.mode,
            profiles={**later.profiles, **self.profiles},
            notes=self.notes + later.notes,
        )


def read_file(path: str) -> Rules:
    """The rules of a file that has to be there."""
    return read_toml(read_bytes(path), path)


def _compile_command(text: str) -> CommandPattern:
    from serai.policy.commands.reader import CommandPattern

    return CommandPattern(text)


def read_bytes(path: str) -> bytes:
    """What is in it. A project may put anything there: a pipe, a device, more than fits."""
    hint = "name a file of rules"
    try:
        return paths.read_regular_file(path, _MOST)
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}", who=path, hint=hint) from None


def read_toml(content: bytes, source: str) -> Rules:
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise BadSettings(f"it is no TOML: {error}", who=source) from None
    _check_keys(found, _TOP, source, "the file")
    tables = found.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadSettings("`rule` is a list: begin each rule with [[rule]]", who=source)
    rules = tuple(read_rule(table, source) for table in tables)
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise BadSettings(f"there are two rules `{rule.id}`", who=source, hint="give each its own id")
        seen.add(rule.id)
    profiles = found.get("profiles", {})
    if not isinstance(profiles, dict):
        raise BadSettings("`profiles` is a table of names and modes", who=source)
    modes = {name: _check_mode(mode, source) for name, mode in profiles.items()}
    return Rules(rules=rules, mode=_check_mode(found["mode"], source) if "mode" in found else "", profiles=modes)


def read_rule(table: Mapping[str, Any], source: str) -> Rule:
    """One rule as it stands in a file."""
    id = table.get("id")
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise BadSettings(f"each rule has an `id` of letters, digits and . : _ -, not {id!r}", who=source)
    whose = f"{source}: rule `{id}`"
    _check_keys(table, _KEYS, whose, "a rule")
    decide: Any = table.get("decide")
    if decide not in get_args(Decide):
        raise BadSettings(f"`decide` is allow, deny or ask, not {decide!r}", who=whose)
    if decide == "allow" and not (table.get("tool") or table.get("owner")):  # a key that was forgotten must not allow everything
        raise BadSettings("a rule that allows names its `tool`, or the `owner` of its tools", who=whose, hint='tool = "*" is any')
    because = table.get("because", "")
    if not isinstance(because, str):
        raise BadSettings("`because` is a text", who=whose)
    said = table.get("input", {})
    if not isinstance(said, dict):
        raise BadSettings('`input` is a table of fields and patterns, such as { city = "Bern" }', who=whose)
    texts: dict[str, Any] = {
        key: _parse_texts(table[key], key, whose) for key in (*_TEXTS, "command", "path", "host", "cwd") if key in table
    }
    fields = {name: _parse_texts(value, f"input.{name}", whose, empty=True) for name, value in said.items()}
    try:
        return Rule(id=id, decide=decide, input=fields, because=because, source=source, **texts)
    except ValueError as error:
        raise BadSettings(str(error), who=whose) from None


def parse_rule_flag(flag: str, decide: Decide = "allow", option: str = "--allow") -> Rule:
    """`TOOL[:PATTERN]`, as after `--allow`; of tools that we do not know PATTERN is FIELD=PATTERN."""
    tool, colon, pattern = flag.partition(":")
    source = f"{option} {flag}"
    if not tool or (colon and not pattern):
        raise BadSettings("it is TOOL or TOOL:PATTERN", who=source, hint=f"{option} 'bash:git status'")
    keys: dict[str, Any] = {}
    if pattern and (about := _ABOUT.get(tool)):
        keys[about] = (pattern,)
    elif pattern:
        name, equals, wanted = pattern.partition("=")
        if not name or not equals:
            hint = f"{option} '{tool}:city=Bern'"
            raise BadSettings(f"what is the pattern about? Say FIELD=PATTERN of the input of {tool}", who=source, hint=hint)
        keys["input"] = {name: (wanted,)}
    try:
        return Rule(id=source, decide=decide, tool=(tool,), source="the command line", **keys)
    except ValueError as error:
        raise BadSettings(str(error), who=source, hint="correct the pattern") from None


def _parse_texts(value: Any, key: str, whose: str, *, empty: bool = False) -> tuple[str, ...]:
    """One or several; only a field of the input may well be empty."""
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and (text or empty) for text in texts):
        raise BadSettings(f"`{key}` is a pattern or a list of patterns, not {value!r}", who=whose)
    return tuple(texts)


def _check_mode(value: Any, source: str) -> str:
    if value not in MODES:
        raise BadSettings(f"a mode is {', '.join(MODES)}, not {value!r}", who=source)
    return str(value)


def _check_keys(table: Mapping[str, Any], known: Iterable[str], whose: str, what: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, list(known), 1)
            hint = f"do you mean `{near[0]}`?" if near else f"{what} has {', '.join(known)}"
            raise BadSettings(f"there is no key `{key}`", who=whose, hint=hint)


def load_default_rules() -> Rules:
    """What is shipped: looking around in the working directory is allowed, for everything else a person is asked."""
    return read_file(os.path.join(os.path.dirname(__file__), "default.toml"))


USER_FILE = "policy.toml"


def load_rules(
    project: str,
    *,
    files: Iterable[str] = (),
    allow: Iterable[str] = (),
    mode: str = "",
    untrusted: str | Callable[[bytes], str] = "they are not trusted",
    environ: Mapping[str, str] = os.environ,
) -> Rules:
    """All of them, in that order. `untrusted` says why the project's rules may not allow anything; empty: they may.

    As a function it is given what is in their file: what is checked is then what is read, whoever writes there meanwhile.
    """
    if mode and mode not in MODES:
        raise BadSettings(f"a mode is {', '.join(MODES)}, not {mode!r}", hint="choose one of them")
    found = Rules(rules=tuple(parse_rule_flag(flag) for flag in allow), mode=mode)
    for file in files:
        found += read_file(file)
    found += _read_project_rules(os.path.join(project, paths.PROJECT_POLICY), untrusted)
    own = os.path.join(paths.config_folder(environ), USER_FILE)
    if (content := _read_if_exists(own)) is not None:
        found += read_toml(content, own)
    return found + load_default_rules()


def _read_project_rules(path: str, untrusted: str | Callable[[bytes], str]) -> Rules:
    content = _read_if_exists(path)
    if content is None:
        return Rules()
    rules = read_toml(content, path)
    notes = []
    taken = rules.rules
    why = untrusted if isinstance(untrusted, str) else untrusted(content)
    if why and (left := rules.select("allow")):
        taken = tuple(rule for rule in taken if rule.decide != "allow")
        notes.append(f"{path}: {len(left)} of its rules allow something and do not count: {why}")
    loose = {rules.mode, *rules.profiles.values()} - {"", "manual"}
    if loose:
        notes.append(f"{path}: the mode `{min(loose)}` does not count: a project cannot choose it, say it in your own {USER_FILE}")
    return replace(rules, rules=taken, mode="", profiles={}, notes=tuple(notes))


def _read_if_exists(path: str) -> bytes | None:
    try:
        os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:  # a rule file that cannot be looked at must not be taken for one that is not there
        raise BadSettings(f"cannot be read: {error.strerror}", who=path) from None
    return read_bytes(path)
