"""The settings for this person in this folder, and where each value comes from.

Later ones win: what is shipped, the person's `config.toml`, the project's `.serai/config.toml`, variables, the command line. A
`config.toml` is checked as a whole; one that cannot be understood is an error.

A project's settings are somebody else's (design rule 12): until `serai trust` they may only narrow, and `find_rule` says of
every key what a project may do with it. A value that does not count is noted with the reason and is never an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from serai import paths
from serai.agents.factory import read_agent_settings as read_agents
from serai.errors import BadSettings
from serai.host.guest_settings import PROJECT, PersonSettings, are_related, read_person_settings
from serai.host.trust import Trust
from serai.limits import Limits

RESIDENT = "resident"
Path = tuple[str, ...]
_MOST, _LONGEST = 12, 80  # words in a list, and characters of one: a project may have chosen them
_LONGEST_ERROR = 400  # characters of what is wrong with a project's file: it quotes that file
_LARGEST = 1 << 53
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Top(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody below reads of the settings, or not before it is needed. The rest is `host.guest_settings`' to check."""

    record: bool = True
    agent: Annotated[str, msgspec.Meta(min_length=1)] = RESIDENT
    tools: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    default_model: str = ""
    small_model: str = ""
    system_prompt: str = ""
    prompt_order: dict[str, Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]] = {}
    compact_at: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] = 0
    boxes: dict[str, Any] = {}
    agents: dict[str, dict[str, Any]] = {}


def parse_project(content: bytes, who: str) -> dict[str, Any]:
    """A project's file."""
    try:
        found = paths.parse_settings(content, who=who)
        check_settings(found, who)
    except BadSettings as error:
        raise BadSettings(_truncate(error.message, _LONGEST_ERROR), who=who, hint=error.hint) from None
    return found


def check_settings(settings: Mapping[str, Any], who: str) -> PersonSettings:
    """All of it but `[boxes]`, which whoever makes boxes checks further; the part about guests as it was read."""
    try:
        msgspec.convert(settings, _Top)
    except msgspec.ValidationError as error:
        raise BadSettings(str(error).replace("`$.", "`"), who=who) from None
    for key in ("boxes", "plugins"):
        if not _can_be_shown(settings.get(key, {})):
            raise BadSettings(f"{key}: a number beyond {_LARGEST}", who=who)
    read_agents(settings, who=who)
    return read_person_settings(settings, who=who)


def _can_be_shown(value: object) -> bool:
    """Whether it has no number that is too long to be written down."""
    if isinstance(value, dict | list):
        return all(map(_can_be_shown, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int) or abs(value) <= _LARGEST


def flatten(settings: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every value with its path. A table that is empty says nothing."""
    for key, value in settings.items():
        if key == "guest":
            for name, table in value.items():
                for what, one in table.items():
                    if what == "limits":
                        yield from (((key, name, what, limit), number) for limit, number in one.items())
                    else:
                        yield (key, name, what), one
        elif key in ("agents", "feature"):
            yield from (((key, name, what), one) for name, table in value.items() for what, one in table.items())
        elif key in ("guests", "boxes", "limits", "plugins"):
            yield from (((key, name), one) for name, one in value.items())
        else:
            yield (key,), value


def format_key(path: Path) -> str:
    return ".".join(part if _BARE.fullmatch(part) else dumps(part, ensure_ascii=False) for part in path)


def format_list(words: Sequence[str]) -> str:
    """The first of them, and how many there are besides."""
    others = [f"and {len(words) - _MOST} others"] if len(words) > _MOST else []
    return ", ".join([*(_truncate(word, _LONGEST) for word in words[:_MOST]), *others])


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# The limits that a project may lower. All others hold something up: a frame that is refused, a guest that is given up too early or
# an interceptor that has no time lets through what it would have stopped; a shorter log, recording, session or undo loses what
# was done; a hook that is cut off does not give back what it was lent.
LOWERED = frozenset({
    "tool", "command", "approval", "steps", "background_steps", "tools_at_once", "model_calls", "model_attempts", "model_wait_told",
    "model_connect", "model_idle", "model_answer", "shell", "shell_most", "search", "tool_output", "tool_result", "read_file",
})  # fmt: skip
DIALECTS_OWN = frozenset({"tool", "command"})  # dialects have lower ones: only the host knows what is lower (`apply_limits`)

_NO_GUARD = "unless it is a guard anyway"


class ProjectValue(NamedTuple):
    """What a project says, what there is without it, and what the person says of guests."""

    path: Path
    value: Any
    now: Any
    person: PersonSettings


class ProjectVerdict(NamedTuple):
    """What counts of it, None for nothing; and why the rest does not."""

    counts: Any
    in_vain: str = ""
    note: str = ""


class ProjectRule(NamedTuple):
    """`never`, once it is `trusted`, or always as far as it is `narrower`; `take` says what counts then."""

    when: Literal["never", "trusted", "narrower"]
    take: Callable[[ProjectValue], ProjectVerdict]


def _build_never_rule(why: str) -> ProjectRule:
    return ProjectRule("never", lambda _: ProjectVerdict(None, why))


def _judge_tools(proposal: ProjectValue) -> ProjectVerdict:
    if proposal.now is None:
        return ProjectVerdict(tuple(dict.fromkeys(proposal.value)))
    left = [dumps(name, ensure_ascii=False) for name in proposal.value if name not in proposal.now]
    return ProjectVerdict(
        tuple(name for name in proposal.now if name in proposal.value), f"{format_list(left)} is not among yours" if left else ""
    )


def _judge_limit(proposal: ProjectValue) -> ProjectVerdict:
    if proposal.path[-1] not in LOWERED:
        return ProjectVerdict(None, "a project cannot change this limit: something may rely on it")
    if proposal.value == "none" or (proposal.now is not None and proposal.value >= proposal.now):
        return ProjectVerdict(None, "a project can only lower a limit")
    note = "for each guest but guards, where it is lower" if proposal.path[-1] in DIALECTS_OWN else ""
    return ProjectVerdict(proposal.value, note=note)


def _judge_guest_limit(proposal: ProjectValue) -> ProjectVerdict:
    if _concerns_guard(proposal):
        return ProjectVerdict(None, "a project cannot lower a limit of a guard")
    found = _judge_limit(proposal)
    return found if found.counts is None else found._replace(note=_NO_GUARD)


def _judge_guard(proposal: ProjectValue) -> ProjectVerdict:
    return ProjectVerdict(True) if proposal.value else ProjectVerdict(None, "a project cannot take a guard back")


def _judge_enabled(proposal: ProjectValue) -> ProjectVerdict:
    if proposal.value:
        return ProjectVerdict(None, "a project cannot switch a guest on")
    if _concerns_guard(proposal):
        return ProjectVerdict(None, "a project cannot switch a guard off")
    return ProjectVerdict(False, note="unless it is a guard")


def _judge_services(proposal: ProjectValue) -> ProjectVerdict:
    if _concerns_guard(proposal):
        return ProjectVerdict(None, "a project cannot take services from a guard")
    both = tuple(proposal.value) if proposal.now is None else tuple(group for group in proposal.now if group in proposal.value)
    return ProjectVerdict(both, note=_NO_GUARD)


def _judge_plugins(proposal: ProjectValue) -> ProjectVerdict:
    if proposal.path[1] != "enabled":
        return ProjectVerdict(None, "how much plugins may have is yours to say")
    if any(str(one.get("id", "")).partition(":")[0] != "project" for one in proposal.value):
        return ProjectVerdict(None, "a project can enable its own plugins, `project:…`, and nobody else's")
    return ProjectVerdict((*(proposal.now or ()), *proposal.value))


def _judge_feature(proposal: ProjectValue) -> ProjectVerdict:
    return ProjectVerdict(None, "a project cannot switch plugins on") if proposal.value else ProjectVerdict(False)


def _concerns_guard(proposal: ProjectValue) -> bool:
    """Whether it is about a guest that the person calls a guard. What an author calls one is known only to the host."""
    return any(are_related(proposal.path[1], guard) for guard in proposal.person.guards)


_TAKEN = ProjectRule("trusted", lambda proposal: ProjectVerdict(proposal.value))
_ADDED = ProjectRule("trusted", lambda proposal: ProjectVerdict(tuple(dict.fromkeys((*(proposal.now or ()), *proposal.value)))))

PROJECT_MAY: dict[str, ProjectRule] = {
    "record": _build_never_rule("what is recorded is yours to say"),
    "guests.*": _build_never_rule("where guests are looked for is yours to say"),
    "boxes.*": _build_never_rule("boxes and their hooks are yours to set"),
    "feature.*.enabled": ProjectRule("narrower", _judge_feature),
    "plugins.*": ProjectRule("trusted", _judge_plugins),
    "disabled_extensions": _build_never_rule("a project switches a guest off with `enabled = false` under [guest.NAME]"),
    "agent": _TAKEN,
    "agents.*.path": _build_never_rule("which program is started is yours to say"),
    "agents.*.model": _TAKEN,
    "agents.*.effort": _TAKEN,
    "agents.*.permission_mode": _build_never_rule("what an agent may do without asking is yours to say"),
    "agents.*.allowed_tools": _build_never_rule("what an agent may do without asking is yours to say"),
    "agents.*.hooks": _build_never_rule("what an agent may do without asking is yours to say"),
    "agents.*.env": _build_never_rule("what an agent gets to know is yours to say"),
    "default_model": _TAKEN,
    "small_model": _TAKEN,
    "system_prompt": _TAKEN,
    "prompt_order": _TAKEN,
    "compact_at": _TAKEN,
    "tools": ProjectRule("narrower", _judge_tools),
    "limits.*": ProjectRule("narrower", _judge_limit),
    "guest.*.env": _ADDED,
    "guest.*.replace": _ADDED,
    "guest.*.keys": _ADDED,
    "guest.*.exclusive": _TAKEN,
    "guest.*.watch": _TAKEN,
    "guest.*.guard": ProjectRule("narrower", _judge_guard),
    "guest.*.enabled": ProjectRule("narrower", _judge_enabled),
    "guest.*.services": ProjectRule("narrower", _judge_services),
    "guest.*.limits.*": ProjectRule("narrower", _judge_guest_limit),
}


def select_trusted_settings(content: bytes, *, who: str) -> dict[str, object]:
    """What of a project's settings counts only once they are trusted, by key: that is what trusting them gives away."""
    return {format_key(path): value for path, value in flatten(parse_project(content, who)) if find_rule(path).when == "trusted"}


def find_rule(path: Path) -> ProjectRule:
    """Its row: what somebody named is a star."""
    return PROJECT_MAY[".".join("*" if place % 2 else part for place, part in enumerate(path))]


Source = Literal["flag", "environment", "project", "person", "default"]

_SHIPPED: dict[str, tuple[object, str]] = {
    "agent": (RESIDENT, ""),
    "default_model": ("", "the first that a key is there for, else the offline parrot"),
    "small_model": ("", "the same as default_model"),
    "tools": (None, "all that there are"),
    "system_prompt": ("", "Serai's own"),
    "prompt_order": ({}, ""),
    "compact_at": (0, "only when the model is nearly full"),
    "record": (True, ""),
    "agents.claude.path": ("", "looked for where it is usually installed"),
    "guests.homes": (False, ""),
    "disabled_extensions": ((), ""),
    "feature.plugins.enabled": (False, ""),
    "plugins.preset": ("default", ""),
}
_VARIABLES = {
    "default_model": ("SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL"),
    "small_model": ("SERAI_SMALL_MODEL", "PIGLET_SMALL_MODEL"),
}
_FLAGS = ("agent", "default_model", "small_model", "tools", "system_prompt", "record", "limits")
_TABLES = ("agents", "guests", "guest", "feature", "plugins", "boxes", "limits")


class ConfigValue(NamedTuple):
    """One value in force. `file` is the file or the variable that it comes from; `note` says what else there is to know."""

    key: str
    value: object
    source: Source
    file: str = ""
    note: str = ""

    def __repr__(self) -> str:  # a value may be a secret
        return f"Value({self.key!r}, source={self.source!r}, file={self.file!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is in force in a folder.

    `settings` have the form of `config.toml`: `Host.discover(config=…)` and the agents' `settings=` take them, limits included.
    `limits` are for everything that is no guest. `files` are those that were looked for: the person's, the project's.
    """

    cwd: str
    settings: Mapping[str, Any] = field(repr=False)
    limits: Limits = field(repr=False)
    agent: str = RESIDENT
    model: str = ""
    small_model: str = ""
    compact_at: int = 0  # tokens after which a guest's compactor is asked that does not say it itself
    record: bool = True
    tools: tuple[str, ...] | None = None  # None: all that there are
    values: tuple[ConfigValue, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    files: tuple[str, str]
    _load: Callable[[], Config] = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        cwd: str | os.PathLike[str],
        *,
        environ: Mapping[str, str] = os.environ,
        trust: Trust | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Config:
        """Read it all. `flags` are the command line's, in that form: what is empty was not given, a limit of None has no end."""
        folder = paths.absolute_path(os.fspath(cwd))
        person_file, project_file = _get_config_files(folder, environ)
        mine = paths.read_settings_in(os.path.dirname(person_file))
        merge = _SettingsMerge(mine, person_file, check_settings(mine, person_file))
        content = b"" if _is_same_file(person_file, project_file) else paths.read_project_settings(folder)
        if content:
            untrusted = (trust or Trust.usual(environ)).check_config(folder, content)
            merge.add_project(parse_project(content, project_file), project_file, untrusted)
        merge.add_environment(environ)
        merge.add_flags(flags or {})
        found = {key: merge.values[key].value for key in _SHIPPED}
        return cls(
            cwd=folder,
            settings=merge.build_settings(),
            limits=merge.limits,
            agent=str(found["agent"]),
            model=str(found["default_model"]),
            small_model=str(found["small_model"]),
            compact_at=merge.compact_at,
            record=bool(found["record"]),
            tools=merge.tools,
            values=tuple(merge.sort_values()),
            notes=tuple(merge.iter_notes(project_file)),
            files=(person_file, project_file),
            _load=lambda: cls.load(cwd, environ=environ, trust=trust, flags=flags),
        )

    def reload(self) -> Config:
        """The same, read anew."""
        return self._load()


class _SettingsMerge:
    """The values as they are put together, one source after the other."""

    def __init__(self, mine: Mapping[str, Any], file: str, person: PersonSettings) -> None:
        self._mine, self._person = mine, person
        self._in_vain: dict[str, list[str]] = {}  # keys by reason
        self._changes: dict[str, Any] = {}  # of the settings: of the project's what is no guest's, and the flags
        self._project: dict[str, Any] = {"guest": {}, "limits": {}}  # what counts of the project's for guests
        self.limits = Limits().but(**person.limits)
        self.values = {key: ConfigValue(key, value, "default", note=note) for key, (value, note) in _SHIPPED.items()}
        self.values |= {
            f"limits.{name}": ConfigValue(f"limits.{name}", value, "default", note=why) for name, value, _, why in Limits.explain()
        }
        for path, value in flatten(mine):
            self._set_value(path, value, "person", file)

    @property
    def tools(self) -> tuple[str, ...] | None:
        found = self.values["tools"].value
        return tuple(found) if isinstance(found, list | tuple) else None

    @property
    def compact_at(self) -> int:
        found = self.values["compact_at"].value
        return found if isinstance(found, int) else 0

    def add_project(self, said: Mapping[str, Any], file: str, untrusted: str) -> None:
        for path, value in flatten(said):
            row, key = find_rule(path), format_key(path)
            if row.when == "trusted" and untrusted:
                self._in_vain.setdefault(untrusted, []).append(key)
                continue
            outcome = row.take(ProjectValue(path, value, self._get_current(path), self._person))
            if outcome.in_vain:
                self._in_vain.setdefault(outcome.in_vain, []).append(key)
            if outcome.counts is not None:
                self._apply(path, value, outcome)
                self._set_value(path, outcome.counts, "project", file, outcome.note)

    def _apply(self, path: Path, value: Any, outcome: ProjectVerdict) -> None:
        """Put what counts where it is looked for: guests have it merged only when it is known which they are."""
        match path:
            case ("guest", name, "limits", limit):
                self._project["guest"].setdefault(name, {}).setdefault("limits", {})[limit] = value
            case ("guest", name, what):
                self._project["guest"].setdefault(name, {})[what] = value
            case ("limits", name):
                self.limits = self.limits.but(**{name: value})
                place = self._project["limits"] if name in DIALECTS_OWN else self._changes.setdefault("limits", {})
                place[name] = value
            case ("plugins", what):
                self._changes["plugins"] = {**self._changes.get("plugins", self._mine.get("plugins", {})), what: outcome.counts}
            case ("feature", name, what):
                self._changes["feature"] = {name: {what: outcome.counts}}
            case _:
                self._changes[path[0]] = outcome.counts

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for key, names in _VARIABLES.items():
            name = next((name for name in names if environ.get(name, "").strip()), "")
            if name:
                self._set_value((key,), environ[name].strip(), "environment", name)
        for key, value, name in (
            ("home", paths.config_folder(environ), "SERAI_HOME"),
            ("no_color", bool(environ.get("NO_COLOR")), "NO_COLOR"),
        ):
            said = bool(environ.get(name))
            self._set_value((key,), value, "environment" if said else "default", name if said else "")
        own = os.path.join(paths.config_folder(environ), "prompt.md")
        if os.path.exists(own):  # it comes before what is configured (spec piglet 6.9)
            self.values["system_prompt"] = self.values["system_prompt"]._replace(note=f"{own} comes first")

    def add_flags(self, flags: Mapping[str, object]) -> None:
        """A person's own act in this moment: nothing is stronger."""
        for key in flags:
            if key not in _FLAGS:
                raise BadSettings(f"there is no flag {key!r}", who="the command line", hint=f"there is {', '.join(_FLAGS)}")
        given: dict[str, Any] = {key: value for key, value in flags.items() if value not in (None, "")}
        if isinstance(limits := given.get("limits"), Mapping):
            given["limits"] = limits = {name: "none" if value is None else value for name, value in limits.items()}
            for name in limits:
                self._project["limits"].pop(name, None)
        self.limits = self.limits.but(**check_settings(given, "the command line").limits)
        self._changes |= given | {"limits": {**self._changes.get("limits", {}), **given.get("limits", {})}}
        for path, value in flatten(given):
            self._set_value(path, value, "flag", "")

    def build_settings(self) -> Mapping[str, Any]:
        found = {**self._mine, **self._changes, "limits": {**self._mine.get("limits", {}), **self._changes.get("limits", {})}}
        found[PROJECT] = {key: value for key, value in self._project.items() if value}
        return {key: value for key, value in found.items() if value or key not in ("limits", PROJECT)}

    def iter_notes(self, file: str) -> Iterator[str]:
        for reason, keys in self._in_vain.items():
            yield f"{file}: {format_list(keys)} {'does' if len(keys) == 1 else 'do'} not count: {reason}"

    def sort_values(self) -> Iterator[ConfigValue]:
        """Those of the top first, then by table."""
        places = {name: place for place, name in enumerate(_TABLES)}
        return iter(sorted(self.values.values(), key=lambda value: places.get(value.key.partition(".")[0], -1)))

    def _get_current(self, path: Path) -> object:
        """What there is of it so far. None: nothing, or no end."""
        if path[0] == "limits":
            number: float | None = getattr(self.limits, path[1])
            return number
        known = self.values.get(format_key(path))
        return None if known is None or known.value == "none" else known.value

    def _set_value(self, path: Path, value: object, source: Source, file: str, note: str = "") -> None:
        key = format_key(path)
        if path[0] == "limits":
            note = note or self.values[key].note
        self.values[key] = ConfigValue(key, value, source, file, note)


def _get_config_files(folder: str, environ: Mapping[str, str]) -> tuple[str, str]:
    return os.path.join(paths.config_folder(environ), paths.CONFIG), os.path.join(folder, paths.PROJECT_CONFIG)


def _is_same_file(one: str, other: str) -> bool:
    """Whether the person's own file is what lies in the project, as in a home that is called `.serai`."""
    return os.path.realpath(one) == os.path.realpath(other)
