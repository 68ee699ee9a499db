"""What `serai doctor` checks, one function for each section. They read; none starts a guest, sends anything or changes a setting.

No line may hold the value of a variable or of a setting: an error often quotes what it is about, and that may be a key in the
wrong place. `serai.app.doctor.redaction` removes what is left. The section on agents says which can be used, where the program of
a driven one is, and which would be used.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from serai import __version__, paths
from serai.app.doctor.redaction import remove_values
from serai.errors import NoModel, NotWritten, SeraiError
from serai.limits import MIB

if TYPE_CHECKING:
    from serai.agents.models.catalogue import Catalogue
    from serai.app.config import Config, ConfigValue
    from serai.host.discovery import DiscoveryProblem, DiscoveryResult
    from serai.host.guest_manifest import GuestManifest
    from serai.model.provider import Model

_LITTLE = 64 * MIB  # of room for what Serai writes: less than one file of a recording
_BUSY = 0.2  # seconds to wait for another process: the page must not take longer than a second
_EXTRA = re.compile(r"""([A-Za-z0-9._-]+).*\bextra\s*==\s*["']([A-Za-z0-9._-]+)["']""")


class CheckLine(NamedTuple):
    """One line of the page: `ok`, a `note` for who wonders, or a `problem`: something is broken."""

    mark: Literal["ok", "note", "problem"]
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Where one looks."""

    cwd: str
    environ: Mapping[str, str] = field(repr=False)
    find: Callable[[], DiscoveryResult]  # the guests there are

    def load_config(self) -> Config:
        from serai.app.config import Config

        return Config.load(self.cwd, environ=self.environ)


Check = Callable[[DoctorContext], Iterator[CheckLine]]


def build_error_line(error: SeraiError) -> CheckLine:
    """A known error, without the values of the file that it is about."""
    file = error.who.partition(": ")[0]  # a rule is named behind its file
    return CheckLine("problem", remove_values(str(error), file), error.hint)


# -- Serai ------------------------------------------------------------------------------------------------------------------------


def _check_serai(_: DoctorContext) -> Iterator[CheckLine]:
    machine = os.uname()
    yield CheckLine("ok", f"version {__version__}")
    yield CheckLine("ok", f"Python {sys.version.split()[0]}, {sys.implementation.name}")
    yield CheckLine("ok", f"{machine.sysname} {machine.release}, {machine.machine}")
    try:
        about = metadata.distribution("serai")
    except metadata.PackageNotFoundError:
        yield CheckLine("note", "not installed as a package: its extras are not known")
        return
    editable = '"editable": true' in (about.read_text("direct_url.json") or "").replace('":true', '": true')
    by = (about.read_text("INSTALLER") or "").strip()
    apart = "in an environment of its own" if sys.prefix != sys.base_prefix else "for the whole machine"
    yield CheckLine("ok", "installed " + (f"by {by} " if by else "") + apart + (", from its sources" if editable else ""))
    extras: dict[str, list[str]] = {}
    for requirement in about.requires or ():
        if found := _EXTRA.match(requirement):
            extras.setdefault(found[2], []).append(found[1])
    yield from (_check_extra(extra, packages) for extra, packages in sorted(extras.items()))


def _check_extra(extra: str, packages: list[str]) -> CheckLine:
    if missing := [package for package in packages if find_spec(package.replace("-", "_")) is None]:
        return CheckLine("note", f"extra {extra}: {', '.join(missing)} not installed", f"pip install 'serai[{extra}]'")
    return CheckLine("ok", f"extra {extra}: {', '.join(f'{package} {_get_version(package)}' for package in packages)}")


def _get_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # importable all the same
        return "of an unknown version"


# -- home -------------------------------------------------------------------------------------------------------------------------


def _check_home(context: DoctorContext) -> Iterator[CheckLine]:
    config, state = paths.config_folder(context.environ), paths.state_folder(context.environ)
    why = ", as SERAI_HOME says" if context.environ.get("SERAI_HOME") else ""
    if config == state:
        yield _check_folder("configuration and state", state, why)
    else:
        yield _check_folder("configuration", config, why)
        yield _check_folder("state", state, why)
    free = shutil.disk_usage(_find_existing_folder(state)).free
    room = f"{_format_size(free)} free for what Serai writes"
    yield CheckLine("ok", room) if free >= _LITTLE else CheckLine("problem", room, "make room: what a run does could not be kept")
    sizes = ((name, *_measure_folder(os.path.join(state, name))) for name in ("recordings", "sessions", "undo"))
    yield CheckLine("ok", "; ".join(f"{name}: {_format_count(files, 'file')}, {_format_size(size)}" for name, files, size in sizes))
    for name, check in (("config.toml", _check_settings), ("models.toml", _check_catalogue), ("policy.toml", _check_user_rules)):
        yield _check_file(os.path.join(config, name), check, context)
    yield from _check_project(context)


def _check_folder(what: str, path: str, why: str) -> CheckLine:
    there = os.path.isdir(path)
    if not os.access(_find_existing_folder(path), os.W_OK | os.X_OK) or (os.path.lexists(path) and not there):
        return CheckLine("problem", f"{what} in {path}{why}: it cannot be written", "make the folder writable for you")
    return CheckLine("ok", f"{what} in {path}{why}" + ("" if there else "; not there yet"))


def _find_existing_folder(path: str) -> str:
    """The folder, or the nearest above it that is there."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _measure_folder(folder: str) -> tuple[int, int]:
    """How many files are in a folder, and how long they are together."""
    try:
        with os.scandir(folder) as items:
            sizes = [item.stat(follow_symlinks=False).st_size for item in items if item.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return 0, 0
    return len(sizes), sum(sizes)


def _check_file(path: str, check: Callable[[DoctorContext], object], context: DoctorContext) -> CheckLine:
    name = os.path.basename(path)
    try:
        check(context)
    except SeraiError as error:
        return build_error_line(error)
    return CheckLine("ok", f"{name}: " + ("read" if os.path.exists(path) else "none"))


def _check_settings(context: DoctorContext) -> None:
    """All that anybody reads of it."""
    from serai.agents.factory import read_agent_settings as read_agents
    from serai.boxes.manager import read_settings as read_boxes
    from serai.host.guest_settings import read_person_settings

    who = os.path.join(paths.config_folder(context.environ), "config.toml")
    found = paths.read_settings(context.environ)
    read_person_settings(found, who=who)
    read_agents(found, who=who)
    paths.is_recording_enabled(context.environ)
    read_boxes(found, who=who)


def _check_project(context: DoctorContext) -> Iterator[CheckLine]:
    """What the project's own settings say, and what of it does not count."""
    file = os.path.join(context.cwd, paths.PROJECT_CONFIG)
    if not os.path.lexists(file):
        return
    try:
        notes = context.load_config().notes
    except SeraiError as error:
        if error.who == file:  # else it was told of already
            yield build_error_line(error)
        return
    yield CheckLine("ok", f"{file}: read")
    yield from (CheckLine("note", note) for note in notes)


def _check_catalogue(context: DoctorContext) -> None:
    from serai.agents.models.catalogue import Catalogue

    Catalogue.load(context.environ)


def _check_user_rules(context: DoctorContext) -> None:
    from serai.policy.rules import USER_FILE, read_file

    path = os.path.join(paths.config_folder(context.environ), USER_FILE)
    if os.path.lexists(path):
        read_file(path)


# -- agents and models ------------------------------------------------------------------------------------------------------------


def _check_agents(context: DoctorContext) -> Iterator[CheckLine]:
    from serai.agents.factory import AGENTS

    chosen = context.load_config().agent
    for name, place in AGENTS.items():
        there = find_spec(place.split(":")[0]) is not None
        if there:
            yield _check_agent(name, context, chosen=name == chosen)
        else:
            yield CheckLine("problem", f"{name}: its module is missing", "install Serai again")
    others = {point.name: point for point in metadata.entry_points(group="serai.agents")}
    for name, point in sorted(others.items()):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        if name in AGENTS:
            yield CheckLine("note", f"{name} of {package}: not used, Serai has its own of that name")
        elif find_spec(point.module.partition(".")[0]) is None:  # loading more of it would run it
            yield CheckLine("problem", f"{name} of {package}: its module {point.module} is missing", "install that package again")
        else:
            yield CheckLine("ok", f"{name}: from {package}")
    yield _check_chosen_agent({*AGENTS, *others}, context)


def _check_models(context: DoctorContext) -> Iterator[CheckLine]:
    from serai.agents.models.catalogue import Catalogue, list_key_variables
    from serai.agents.models.providers import get_sdk

    catalogue = Catalogue.load(context.environ)
    variables = dict.fromkeys(name for model in catalogue if model.api != "parrot" for name in list_key_variables(model.provider))
    there = [name for name in variables if context.environ.get(name, "").strip()]
    yield CheckLine("ok", f"keys that are set: {', '.join(there)}") if there else CheckLine("note", "no key of a provider is set")
    choice = choose_default_model(catalogue, context.load_config(), context.environ)
    if choice.model is None:
        yield CheckLine("problem", choice.why, choice.hint)
        return
    parrot = choice.model.api == "parrot" and not choice.chosen
    yield CheckLine("note" if parrot else "ok", f"{choice.key} would be used: {choice.why}")
    ready, key = check_key(choice.model, context.environ)
    if not ready:
        yield CheckLine("problem", f"{choice.key} has no key", key)
    if (sdk := get_sdk(choice.model)) and find_spec(sdk) is None:
        yield CheckLine("problem", f"{choice.key} needs the package {sdk}", "pip install 'serai[models]'")


# -- guests and policy ------------------------------------------------------------------------------------------------------------


def _check_guests(context: DoctorContext) -> Iterator[CheckLine]:

    found = context.find()
    yield from (CheckLine("ok", f"{_show_guest(one)}: would be started") for one in found.guests)
    yield from (CheckLine("ok", f"{_show_guest(one)}: disabled") for one in found.disabled)
    for aside in found.untrusted:
        yield CheckLine(
            "note", f"{_show_guest(aside.manifest)}: not trusted: {aside.reason}", "look at it, then `serai trust` in that folder"
        )
    yield from (CheckLine("problem", f"{_show_guest(aside.manifest)}: refused: {aside.reason}") for aside in found.refused)
    told = {problem.reason for problem in found.problems}
    yield from (
        CheckLine("note", f"{_show_guest(aside.manifest)}: {aside.reason}") for aside in found.shadowed if aside.reason not in told
    )
    yield from (CheckLine("problem", _problem(problem)) for problem in found.problems)
    yield from (CheckLine("problem", f"guard: {_problem(hidden)}", "nothing runs without it") for hidden in found.hidden_guards)
    if not any((*found.iter_all(), *found.problems, *found.hidden_guards)):
        yield CheckLine("ok", "none")


def _problem(problem: DiscoveryProblem) -> str:
    from serai.host.adapters import DIALECTS

    files = (os.path.join(problem.folder, dialect.manifest) for dialect in DIALECTS.values())
    return str(problem._replace(reason=remove_values(problem.reason, *files)))


def _show_guest(manifest: GuestManifest) -> str:
    guard = "guard " if manifest.settings.guard else ""
    version = f" {manifest.version}" if manifest.version else ""
    return f"{guard}{manifest.id}{version}, {manifest.scope}, in {manifest.folder}"


def _check_policy(context: DoctorContext) -> Iterator[CheckLine]:
    from serai.host.trust import Trust
    from serai.policy import load_rules
    from serai.policy.rules import USER_FILE

    own = os.path.join(paths.config_folder(context.environ), USER_FILE)
    files = [path for path in (os.path.join(context.cwd, paths.PROJECT_POLICY), own) if os.path.lexists(path)]
    trust = Trust.usual(context.environ)
    rules = load_rules(context.cwd, untrusted=lambda content: trust.check_policy(context.cwd, content), environ=context.environ)
    yield CheckLine("ok", f"rules of {', '.join([*files, 'Serai itself'])}")
    yield CheckLine("ok", ", ".join(f"{len(rules.select(decide))} {decide}" for decide in ("deny", "ask", "allow")))
    yield CheckLine("ok" if rules.mode == "manual" else "note", f"mode {rules.mode}")
    yield from (CheckLine("note", note) for note in rules.notes)
    yield _check_pending(context)


def _check_pending(context: DoctorContext) -> CheckLine:
    from serai.policy.decision_store import NAME, DecisionStore

    path = os.path.join(paths.state_folder(context.environ), NAME)
    if not os.path.exists(path):
        return CheckLine("ok", "no approval waits")
    try:
        decisions = DecisionStore(path, busy=_BUSY)
    except NotWritten as error:
        return CheckLine("note", f"approvals cannot be looked at: {error}", error.hint)
    try:
        waiting = len(decisions.list_pending())
    finally:
        decisions.close()
    if not waiting:
        return CheckLine("ok", "no approval waits")
    return CheckLine("note", f"{_format_count(waiting, 'approval')} waiting for an answer", "`serai policy pending` shows them")


# -- boxes, terminal, recordings --------------------------------------------------------------------------------------------------


def _check_boxes(context: DoctorContext) -> Iterator[CheckLine]:
    from serai.boxes import backend as boxes_backend
    from serai.boxes.manager import Boxes

    boxes = Boxes(os.path.join(paths.state_folder(context.environ), "boxes"))
    for name in boxes_backend.BACKENDS:
        backend = boxes.backend(name)
        if backend.missing:
            yield CheckLine("note", f"{name}: does not work here: {backend.missing}")
        else:
            gives = backend.capabilities
            yield CheckLine("ok", f"{name}: works, isolation {gives.isolation}, network {gives.network}")


def _check_terminal(context: DoctorContext) -> Iterator[CheckLine]:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        yield CheckLine("ok", "there is one to ask on")
    except OSError:
        yield CheckLine("note", "there is none to ask on: what a person would be asked is denied")
    if context.environ.get("NO_COLOR"):
        yield CheckLine("ok", "no colours: NO_COLOR is set")
    elif context.environ.get("TERM") == "dumb":
        yield CheckLine("ok", "no colours: this terminal has none")
    else:
        yield CheckLine("ok", "colours" if sys.stdout.isatty() else "no colours: this is not printed on a terminal")


def _check_recordings(context: DoctorContext) -> Iterator[CheckLine]:
    config = context.load_config()
    if not config.record:
        yield CheckLine("note", "off: the settings say `record = false`")
        return
    days, most = config.limits.record_age, config.limits.record_total
    yield CheckLine("ok", f"on: kept for {_format_count(days, 'day')}, at most {_format_size(most)}")


CHECKS: dict[str, Check] = {
    "Serai": _check_serai,
    "home": _check_home,
    "agents": _check_agents,
    "models": _check_models,
    "guests": _check_guests,
    "policy": _check_policy,
    "boxes": _check_boxes,
    "terminal": _check_terminal,
    "recordings": _check_recordings,
}


# -- words ------------------------------------------------------------------------------------------------------------------------


def _format_size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_QUICK = 1.0  # seconds for a program to tell its version: nobody waits long for the page


def _check_agent(name: str, context: DoctorContext, *, chosen: bool) -> CheckLine:
    """One of Serai's; a driven one needs a program, which may be missing as long as nobody has chosen it."""
    from serai.agents.factory import AgentLookup, get_status
    from serai.wire import event_loop

    config = context.load_config()
    found = event_loop.run(get_status(name, AgentLookup(context.environ, config.settings, config.limits.but(agent_version=_QUICK))))
    if not found.available:
        return CheckLine("problem" if chosen else "note", f"{name}: {found.why}", found.hint)
    if not found.path:
        return CheckLine("ok", f"{name}: can be used")
    return CheckLine("ok", f"{name}: {found.version}, {found.source}: {found.path}")


def _check_chosen_agent(known: set[str], context: DoctorContext) -> CheckLine:

    said = next(value for value in context.load_config().values if value.key == "agent")
    if said.source == "default":
        return CheckLine("ok", f"{said.value} would be used: no other was chosen")
    if said.value not in known:
        return CheckLine("problem", f"agent of {said.file} names one that is not there", f"agents: {', '.join(sorted(known))}")
    return CheckLine("ok", f"{said.value} would be used: {describe_origin(said)}")


# -- what would be used -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The model that a run takes when none is named, and why it is that one; None: there is none, and `why` says what is wrong."""

    model: Model | None
    why: str
    hint: str = ""
    chosen: bool = True  # by the person, and not for want of anything else

    @property
    def key(self) -> str:
        return self.model.key if self.model is not None else ""


def choose_default_model(catalogue: Catalogue, config: Config, environ: Mapping[str, str]) -> DefaultModel:
    """What `serai run` would take. What was said is never quoted: it may be a key in the wrong place."""
    from serai.agents.models.catalogue import choose

    said = next(value for value in config.values if value.key == "default_model")
    try:
        found = choose("", catalogue, environ, config.settings)
    except NoModel as error:
        return DefaultModel(None, f"{said.file or said.key} names a model that nobody knows", error.hint)
    if found.why:
        return DefaultModel(found.model, found.why, chosen=False)
    return DefaultModel(found.model, describe_origin(said))


def describe_origin(said: ConfigValue) -> str:
    """Where a value comes from, without the value."""
    return f"{said.file} is set" if said.source == "environment" else f"{said.key} of {said.file} says so"


def check_key(model: Model, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Whether there is what a provider wants to see, and in words which variable that is. Never a value."""
    from serai.agents.models.catalogue import list_key_variables
    from serai.agents.models.providers import resolve_access

    if model.api == "parrot":
        return True, "none needed"
    missing = f"set {' or '.join(list_key_variables(model.provider))}"
    try:
        way = resolve_access(model, environ)
    except SeraiError as error:  # its address, or its key, cannot be used
        return False, error.hint or missing
    if way.key:
        return True, f"{way.variable} is set"
    return way.ready, "none needed" if way.local else "in models.toml" if way.ready else missing
