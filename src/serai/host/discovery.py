"""Which guests there are, which of them are started, and why the others are not.

Places in order: each `--guest PATH`, the project's folders, the user's, and zot's and piglet's own homes where the person has
switched them on. Discovery only reads: nothing is started here, and what a project says counts only once it is trusted. Of
piglet's home its list of disabled extensions counts as well (spec piglet 1.2).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from serai import paths
from serai.errors import BadManifest, BadSettings
from serai.host.adapters import DIALECTS, ENDINGS, by_name, load_finder, load_reader, orders_by_folder
from serai.host.guest_manifest import (
    PROJECT_PLACES,
    GuestManifest,
    Scope,
    find_packed_dialect,
    inspect_folder,
    list_folders,
    read_manifest,
)
from serai.host.guest_settings import DISABLED, PersonSettings, list_keys, read_person_settings
from serai.host.trust import Trust
from serai.limits import MIB

_LONGEST = 1 * MIB  # of what is looked at; what is read as YAML is bound more tightly


class _Yaml(Protocol):
    """Who reads the manifests of piglet guests reads its settings: within the same bounds."""

    def read_yaml(self, text: str) -> tuple[Any, Any]: ...


def read_piglet_disabled(folder: Path) -> frozenset[str]:
    """The names in `disabled_extensions` of its `config.yaml`; none when there is no such file.

    What cannot be read is a `BadSettings`: nobody knows then who is meant to be off.
    """
    path = os.path.join(folder, "config.yaml")
    try:
        content = paths.read_regular_file(path, _LONGEST)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}", who=path) from None
    try:
        _, said = cast(_Yaml, load_reader("piglet")).read_yaml(content.decode())
    except ValueError as error:
        raise BadSettings(f"is not read: {error}", who=path) from None
    if said is None:
        return frozenset()
    names = said.get(DISABLED, []) if isinstance(said, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadSettings(f"{DISABLED} is a list of names", who=path)
    return frozenset(names)


_A_FOLDER = "a guest is a folder with a manifest, and `serai guest bundle` prints the one for a bundle"


class DiscoveryProblem(NamedTuple):
    """A folder that does not give a guest as it should, and the reason."""

    folder: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


class _Nowhere(DiscoveryProblem):
    """A guard that is nowhere; `folder` is the file that names it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.reason


class SkippedGuest(NamedTuple):
    """A guest that is there and is not started, and the reason."""

    manifest: GuestManifest
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult:
    """What was found. `guests` are to be started, in load order; everybody else is in one of the other lists.

    `shadowed` guests gave way to another: to a project's folder or guest of the same name, or to an earlier guest with the same id
    (which is a problem too); or it is not known who is meant to be off. `hidden_guards` are guests that must hold and cannot,
    whether hidden, displaced, changed, not to be read or not there at all: nothing may run then (design rule 8). `refused` guests
    are switched on, but what they were granted is not for them as they are now.
    """

    guests: tuple[GuestManifest, ...] = ()
    disabled: tuple[GuestManifest, ...] = ()
    untrusted: tuple[SkippedGuest, ...] = ()
    shadowed: tuple[SkippedGuest, ...] = ()
    refused: tuple[SkippedGuest, ...] = ()
    problems: tuple[DiscoveryProblem, ...] = ()
    hidden_guards: tuple[DiscoveryProblem, ...] = ()

    def iter_all(self) -> Iterator[GuestManifest]:
        """Every guest whose manifest can be read, those to be started first."""
        yield from self.guests
        yield from self.disabled
        for aside in (*self.untrusted, *self.refused, *self.shadowed):
            yield aside.manifest


def find_guests(
    *,
    cwd: Path | str,
    guests: Sequence[Path | str] = (),
    installed: bool = True,
    config: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    trust: Trust | None = None,
) -> DiscoveryResult:
    """Look everywhere. `installed=False` (`--no-ext`) leaves only what `guests` names; relative paths count from here on."""
    settings = os.path.join(paths.config_folder(environ), "config.toml")
    person = read_person_settings(paths.read_settings(environ) if config is None else config, who=settings)
    unsettled = ""
    if "piglet" in person.homes:
        try:
            person = person.with_off("piglet", read_piglet_disabled(find_piglet_home(environ)))
        except BadSettings as error:
            unsettled = str(error)
    search = _Search(person, trust or Trust.usual(environ), unsettled)
    project = Path(paths.absolute_path(cwd))
    search.restore_kept(_get_own_place(environ))
    for path in guests:
        search.add_ad_hoc(Path(paths.absolute_path(path)))
    search.take_kept()
    if installed:
        for place in _list_places(project, person, environ):
            search.add_place(place)
        search.check_trusted_guards(project)
        search.check_wanted(Path(settings), project)
    search.check_named_guards(Path(settings), project / paths.PROJECT_CONFIG)
    return search.to_result()


def find_zot_home(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where zot keeps its things (spec zot 1.1)."""
    if said := environ.get("ZOT_HOME"):
        return _to_absolute(said)
    if platform == "darwin":
        return _find_home(environ) / "Library" / "Application Support" / "zot"
    if platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return _to_absolute(local) / "zot"
    state = environ.get("XDG_STATE_HOME")
    return (_to_absolute(state) if state else _find_home(environ) / ".local" / "state") / "zot"


def find_piglet_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where piglet keeps its things (spec piglet 1.1)."""
    config = environ.get("XDG_CONFIG_HOME")
    return (_to_absolute(config) if config else _find_home(environ) / ".config") / "piglet"


class _Place(NamedTuple):
    path: Path
    scope: Scope
    ours: bool = False  # one of Serai's own, where guests of every dialect are looked for


def _list_places(cwd: Path, person: PersonSettings, environ: Mapping[str, str]) -> list[_Place]:
    own = [_Place(_get_own_place(environ), "user", ours=True)]
    if "zot" in person.homes:
        own.append(_Place(find_zot_home(environ) / "extensions", "zot home"))
    if "piglet" in person.homes:
        own.append(_Place(find_piglet_home(environ) / "extensions", "piglet home"))
    # A place of the person's own that happens to lie in the project is the person's, once.
    taken = {os.path.realpath(place.path) for place in own}
    project = [_Place(cwd / name, "project", ours=name == PROJECT_PLACES[0]) for name in PROJECT_PLACES]
    return [place for place in project if os.path.realpath(place.path) not in taken] + own


def _get_own_place(environ: Mapping[str, str]) -> Path:
    return _to_absolute(paths.config_folder(environ)) / "guests"


@dataclass(slots=True)
class _Search:
    """The lists of `DiscoveryResult` as they grow. The order of calls is the load order."""

    person: PersonSettings
    trust: Trust
    unsettled: str = ""  # why nobody knows which piglet guests are meant to be off
    guests: dict[str, GuestManifest] = field(default_factory=dict)  # by id: the first of an id wins
    disabled: list[GuestManifest] = field(default_factory=list)
    untrusted: list[SkippedGuest] = field(default_factory=list)
    shadowed: list[SkippedGuest] = field(default_factory=list)
    refused: list[SkippedGuest] = field(default_factory=list)
    problems: list[DiscoveryProblem] = field(default_factory=list)
    hidden_guards: list[DiscoveryProblem] = field(default_factory=list)
    hiding: dict[str, Path] = field(default_factory=dict)  # the project's folders by their names, whatever is in them
    held: set[Path] = field(default_factory=set)  # the project's folders whose guests are started, or stopped by the person's word
    kept: dict[str, list[GuestManifest]] = field(default_factory=dict)  # by dialect: guests that are not to be looked for

    def to_result(self) -> DiscoveryResult:
        return DiscoveryResult(
            guests=tuple(self.guests.values()),
            disabled=tuple(self.disabled),
            untrusted=tuple(self.untrusted),
            shadowed=tuple(self.shadowed),
            refused=tuple(self.refused),
            problems=tuple(self.problems),
            hidden_guards=tuple(self.hidden_guards),
        )

    def restore_kept(self, place: Path) -> None:
        """Which guests the settings hold already: of those dialects nobody looks for any (spec yoi 10.2)."""
        for dialect in self.person.own:
            if (finding := load_finder(dialect)) is not None and (kept := finding.restore_guests(self.person, place)) is not None:
                self.kept[dialect] = kept

    def _list_kept(self, scope: Scope) -> list[GuestManifest]:
        return [one for kept in self.kept.values() for one in kept if one.scope == scope]

    def take_kept(self) -> None:
        """Those that were named on the command line when they were found."""
        for manifest in self._list_kept("ad hoc"):
            self._take(manifest)

    def add_ad_hoc(self, folder: Path) -> None:
        if any(folder == one.folder for kept in self.kept.values() for one in kept):
            return
        if os.path.isfile(folder) and not find_packed_dialect(folder):
            self._report_missing(folder, "not a directory", hint=_A_FOLDER)
        elif not os.path.isdir(folder) and not os.path.isfile(folder):
            self._report_missing(folder, "not a directory" if os.path.lexists(folder) else "there is no such folder")
        elif (manifest := self._read(folder, "ad hoc")) is not None:
            for settled in self._resolve_plan(manifest):
                self._take(settled)
        elif not any(problem.folder == folder for problem in self.problems):
            self._report_missing(folder, f"read manifest: there is none of {', '.join(row.manifest for row in DIALECTS.values())}")

    def _report_missing(self, folder: Path, reason: str, *, hint: str = "") -> None:
        """The person named it and counts on it: a guard whose path was mistyped must not be none (design rule 7)."""
        self.problems.append(DiscoveryProblem(folder, f"{reason}; {hint}" if hint else reason))
        self.hidden_guards.append(DiscoveryProblem(folder, f"it cannot be told whether this is a guard: {reason}"))

    def add_place(self, place: _Place) -> None:
        try:
            folders = list_folders(place.path)
        except BadManifest as error:
            self.problems.append(DiscoveryProblem(place.path, error.message))
            if place.scope != "project":
                self.hidden_guards.append(
                    DiscoveryProblem(place.path, f"it cannot be told whether there is a guard: {error.message}")
                )
            return
        read_here = [*self._find_in(place), *self._list_kept(place.scope)] if place.ours else []
        for folder in folders:
            hider = None if place.scope == "project" else self.hiding.get(folder.name)
            manifest = self._read(folder, place.scope, hidden=hider is not None, ours=place.ours)
            if hider is not None and (manifest is None or not by_name(manifest.dialect)):
                self._hide(folder, manifest, hider)
            elif manifest is not None:
                read_here.append(manifest)
        for manifest in sorted(read_here, key=_get_sort_key):
            self._take(manifest)
        if place.scope == "project":  # for the later places: one project's folders do not hide each other
            self.hiding |= {folder.name: folder for folder in reversed(folders) if os.path.isdir(folder)}

    def _find_in(self, place: _Place) -> list[GuestManifest]:
        """The guests there that a dialect's own finder finds."""
        found: list[GuestManifest] = []
        paths = list_folders(place.path, endings=ENDINGS)
        for dialect in DIALECTS.keys() - self.kept:
            # Only where there may be one: who has no such guests does not pay for its import.
            if any(map(partial(_may_hold_guest, dialect), paths)) and (finding := load_finder(dialect)) is not None:
                here, wrong = finding.find_in(place.path, place.scope, self.person)
                found += here
                self.problems += [DiscoveryProblem(path, reason) for path, reason in wrong]
        return found

    def _resolve_plan(self, manifest: GuestManifest) -> list[GuestManifest]:
        """One that was named on the command line. Where a plan is kept it is not in that plan."""
        if (finding := load_finder(manifest.dialect)) is None:
            return [manifest]
        if manifest.dialect not in self.kept:
            return finding.resolve_plans([manifest], self.person)
        reason = "this session goes on with the plugins that it began with; a new one takes this too"
        self.problems.append(DiscoveryProblem(manifest.folder, reason))
        return []

    def check_wanted(self, settings: Path, project: Path) -> None:
        """What a finder's settings want and was not there. It has files of its own beside ours."""
        there = list(self.to_result().iter_all())
        for dialect in self.person.own:
            if (finding := load_finder(dialect)) is not None:
                mine = [manifest for manifest in there if manifest.dialect == dialect]
                self.problems += [
                    DiscoveryProblem(settings.parent, reason) for reason in finding.describe_missing(mine, self.person, project)
                ]

    def check_trusted_guards(self, project: Path) -> None:
        """A project's guard that was trusted has to be there as it was: any change may have come with the last `git pull`."""
        reasons = {problem.folder: problem.reason for problem in self.problems}
        reasons |= {aside.manifest.folder: aside.reason for aside in self.untrusted}
        reasons |= {manifest.folder: "it is disabled now" for manifest in self.disabled}
        for folder in self.trust.find_lost_guards(project, frozenset(self.held)):
            why = reasons.get(folder, "it is not there any more")
            self.hidden_guards.append(
                DiscoveryProblem(folder, f"this guard was trusted: {why}; `serai trust` takes it as it is now")
            )

    def check_named_guards(self, settings: Path, project: Path) -> None:
        """A guard that settings name has to be there; disabled it may be, but not by somebody's project."""
        aside = [
            *self.disabled,
            *(one.manifest for one in (*self.shadowed, *self.refused)),
        ]  # and who is shadowed was told of already
        there = [*self.guests.values(), *(manifest for manifest in aside if manifest.scope != "project")]
        keys = {key for manifest in there for key in list_keys(manifest.dialect, manifest.name)}
        for lost in sorted(self.person.guards - keys):
            self.hidden_guards.append(_Nowhere(settings, f"the guard {lost} is named in the settings and was not found"))
        for lost in sorted(self.person.project_guards - keys):
            self.hidden_guards.append(
                _Nowhere(project, f"the guard {lost} is named in the project's {paths.CONFIG} and was not found")
            )

    def _read(self, path: Path, scope: Scope, *, hidden: bool = False, ours: bool = True) -> GuestManifest | None:
        """The guest of a folder; None if it has no manifest, or one that was reported. A hidden one is nobody's problem."""
        guard: bool | None = None  # not known yet
        try:
            folder = inspect_folder(path)
            if folder is None:
                return None
            guard = folder.author.guard is True
            if scope != "ad hoc" and folder.dialect in DIALECTS and DIALECTS[folder.dialect].finder:
                if not ours:
                    self.problems.append(DiscoveryProblem(path, f"guests of the dialect {folder.dialect} are not looked for here"))
                return None  # else its finder has found it, if it is one
            hidden = hidden and not by_name(folder.dialect)
            manifest = read_manifest(folder, scope, self.person)
        except BadManifest as error:
            if not hidden:
                self.problems.append(DiscoveryProblem(path, error.message))
            if guard is not False and scope != "project":  # what cannot be read may say `guard = true`: the person may count on it
                what = "this guard cannot be read" if guard else "it cannot be told whether this is a guard"
                self.hidden_guards.append(DiscoveryProblem(path, f"{what}: {error.message}"))
            return None
        if folder.others and not hidden and not folder.author.dialect:  # whoever chose knows of the others
            taken, others = DIALECTS[folder.dialect].manifest, ", ".join(DIALECTS[name].manifest for name in folder.others)
            self.problems.append(DiscoveryProblem(path, f"it has several manifests: {taken} counts, {others} not"))
        return manifest

    def _take(self, manifest: GuestManifest) -> None:
        """Put a guest where it belongs. Only what may start takes part in the contest for an id."""
        winner = self.guests.get(manifest.id)
        if winner is not None and os.path.realpath(winner.folder) == os.path.realpath(manifest.folder):
            self._hold(manifest)
            return  # the same one, found again
        if not manifest.active:
            self.disabled.append(manifest)
            if not manifest.settings.enabled:
                self._hold(manifest)
            return
        if manifest.scope == "project":
            if reason := self.trust.check(manifest):
                self.untrusted.append(SkippedGuest(manifest, reason))
                return
            manifest = manifest.as_trusted()
        self._hold(manifest)
        if manifest.refused:
            self.refused.append(SkippedGuest(manifest, manifest.refused))
            if manifest.settings.guard:
                self.hidden_guards.append(DiscoveryProblem(manifest.folder, f"this guard is not started: {manifest.refused}"))
            return
        if self.unsettled and manifest.dialect == "piglet":  # wherever it lies, that list could name it
            self._leave_out(manifest, f"it may be meant to be off: {self.unsettled}")
            return
        if winner is None:
            self.guests[manifest.id] = manifest
        else:
            reason = f"{manifest.id} is there already, from {winner.folder}: this one is not started"
            if by_name(manifest.dialect) and winner.scope == "project" != manifest.scope:  # as it should be (spec piglet 1.2)
                reason = f"the project's {winner.folder} takes its place"
            else:
                self.problems.append(DiscoveryProblem(manifest.folder, reason))
            self.shadowed.append(SkippedGuest(manifest, reason))
            # The person may put another guard in its place by naming it now; nobody else, and nothing that is no guard.
            if manifest.settings.guard and not (winner.scope == "ad hoc" and winner.settings.guard):
                whose = "the project's " if winner.scope == "project" else ""
                self.hidden_guards.append(
                    DiscoveryProblem(manifest.folder, f"{whose}{winner.folder} takes the place of this guard")
                )

    def _leave_out(self, manifest: GuestManifest, reason: str) -> None:
        """Nothing defaults to yes (design rule 7), and a guard that does not run holds up everything."""
        self.problems.append(DiscoveryProblem(manifest.folder, reason))
        self.shadowed.append(SkippedGuest(manifest, reason))
        if manifest.settings.guard:
            self.hidden_guards.append(DiscoveryProblem(manifest.folder, f"this guard is not started: {reason}"))

    def _hold(self, manifest: GuestManifest) -> None:
        if manifest.scope == "project":
            self.held.add(manifest.folder)

    def _hide(self, folder: Path, manifest: GuestManifest | None, hider: Path) -> None:
        """A project's folder hides the person's of the same name, even when it is disabled, broken or empty (spec zot 1.2)."""
        if manifest is None:
            return
        self.shadowed.append(SkippedGuest(manifest, f"hidden by {hider}"))
        # Whoever sends a project must not be able to switch a guard off by the name of a folder (design rule 12).
        if manifest.settings.guard and manifest.active:
            self.hidden_guards.append(DiscoveryProblem(folder, f"the project's {hider} hides this guard"))


def _get_sort_key(manifest: GuestManifest) -> tuple[str, str]:
    """In which the guests of one place are loaded: by name, or by folder where the protocol has it so (spec piglet 1.2)."""
    folder = manifest.folder.name
    return (folder if orders_by_folder(manifest.dialect) else manifest.name, folder)


def _may_hold_guest(dialect: str, path: Path) -> bool:
    """Whether a finder of that dialect should look at it."""
    row = DIALECTS[dialect]
    return bool(row.finder) and (path.name.endswith(row.ending) or os.path.lexists(path / row.manifest))


def _to_absolute(path: Path | str) -> Path:
    return Path(os.path.abspath(path))


def _find_home(environ: Mapping[str, str]) -> Path:
    return _to_absolute(environ.get("HOME") or os.path.expanduser("~"))
