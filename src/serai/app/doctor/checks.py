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
from serai.app.doctor.redaction import without_values
from serai.errors import NotWritten, SeraiError
from serai.limits import MIB

if TYPE_CHECKING:
    from serai.app.config import Config
    from serai.host.discovery import DiscoveryProblem, DiscoveryResult
    from serai.host.guest_manifest import GuestManifest

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

    def config(self) -> Config:
        from serai.app.config import Config

        return Config.load(self.cwd, environ=self.environ)


Check = Callable[[DoctorContext], Iterator[CheckLine]]


def error_line(error: SeraiError) -> CheckLine:
    """A known error, without the values of the file that it is about."""
    file = error.who.partition(": ")[0]  # a rule is named behind its file
    return CheckLine("problem", without_values(str(error), file), error.hint)


# -- Serai ------------------------------------------------------------------------------------------------------------------------


def _serai(_: DoctorContext) -> Iterator[CheckLine]:
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
    yield from (_extra(extra, packages) for extra, packages in sorted(extras.items()))


def _extra(extra: str, packages: list[str]) -> CheckLine:
    if missing := [package for package in packages if find_spec(package.replace("-", "_")) is None]:
        return CheckLine("note", f"extra {extra}: {', '.join(missing)} not installed", f"pip install 'serai[{extra}]'")
    return CheckLine("ok", f"extra {extra}: {', '.join(f'{package} {_version(package)}' for package in packages)}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # importable all the same
        return "of an unknown version"


# -- home -------------------------------------------------------------------------------------------------------------------------


def _home(look: DoctorContext) -> Iterator[CheckLine]:
    config, state = paths.config_folder(look.environ), paths.state_folder(look.environ)
    why = ", as SERAI_HOME says" if look.environ.get("SERAI_HOME") else ""
    if config == state:
        yield _folder("configuration and state", state, why)
    else:
        yield _folder("configuration", config, why)
        yield _folder("state", state, why)
    free = shutil.disk_usage(_there(state)).free
    room = f"{_size(free)} free for what Serai writes"
    yield CheckLine("ok", room) if free >= _LITTLE else CheckLine("problem", room, "make room: what a run does could not be kept")
    sizes = ((name, *_content(os.path.join(state, name))) for name in ("recordings", "sessions", "undo"))
    yield CheckLine("ok", "; ".join(f"{name}: {_counted(files, 'file')}, {_size(size)}" for name, files, size in sizes))
    for name, check in (("config.toml", _settings), ("models.toml", _catalogue), ("policy.toml", _own_rules)):
        yield _file(os.path.join(config, name), check, look)
    yield from _project(look)


def _folder(what: str, path: str, why: str) -> CheckLine:
    there = os.path.isdir(path)
    if not os.access(_there(path), os.W_OK | os.X_OK) or (os.path.lexists(path) and not there):
        return CheckLine("problem", f"{what} in {path}{why}: it cannot be written", "make the folder writable for you")
    return CheckLine("ok", f"{what} in {path}{why}" + ("" if there else "; not there yet"))


def _there(path: str) -> str:
    """The folder, or the nearest above it that is there."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _content(folder: str) -> tuple[int, int]:
    """How many files are in a folder, and how long they are together."""
    try:
        with os.scandir(folder) as items:
            sizes = [item.stat(follow_symlinks=False).st_size for item in items if item.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return 0, 0
    return len(sizes), sum(sizes)


def _file(path: str, check: Callable[[DoctorContext], object], look: DoctorContext) -> CheckLine:
    name = os.path.basename(path)
    try:
        check(look)
    except SeraiError as error:
        return error_line(error)
    return CheckLine("ok", f"{name}: " + ("read" if os.path.exists(path) else "none"))


def _settings(look: DoctorContext) -> None:
    """All that anybody reads of it."""
    from serai.agents.settings import read_agent_settings as read_agents
    from serai.boxes.manager import read as read_boxes
    from serai.host.guest_settings import read_person_settings

    who = os.path.join(paths.config_folder(look.environ), "config.toml")
    found = paths.read_settings(look.environ)
    read_person_settings(found, who=who)
    read_agents(found, who=who)
    paths.recording_enabled(look.environ)
    read_boxes(found, who=who)


def _project(look: DoctorContext) -> Iterator[CheckLine]:
    """What the project's own settings say, and what of it does not count."""
    file = os.path.join(look.cwd, paths.PROJECT_CONFIG)
    if not os.path.lexists(file):
        return
    try:
        notes = look.config().notes
    except SeraiError as error:
        if error.who == file:  # else it was told of already
            yield error_line(error)
        return
    yield CheckLine("ok", f"{file}: read")
    yield from (CheckLine("note", note) for note in notes)


def _catalogue(look: DoctorContext) -> None:
    from serai.agents.models.catalogue import Catalogue

    Catalogue.load(look.environ)


def _own_rules(look: DoctorContext) -> None:
    from serai.policy.rules import USER_FILE, read_file

    path = os.path.join(paths.config_folder(look.environ), USER_FILE)
    if os.path.lexists(path):
        read_file(path)


# -- agents and models ------------------------------------------------------------------------------------------------------------


def _agents(look: DoctorContext) -> Iterator[CheckLine]:

    yield from agents(look)


def _models(look: DoctorContext) -> Iterator[CheckLine]:
    from serai.agents.models.catalogue import Catalogue, variables_of
    from serai.agents.models.providers import sdk_of
    from serai.app.doctor.model_choice import default_model, key_status

    catalogue = Catalogue.load(look.environ)
    variables = dict.fromkeys(name for model in catalogue if model.api != "parrot" for name in variables_of(model.provider))
    there = [name for name in variables if look.environ.get(name, "").strip()]
    yield CheckLine("ok", f"keys that are set: {', '.join(there)}") if there else CheckLine("note", "no key of a provider is set")
    choice = default_model(catalogue, look.config(), look.environ)
    if choice.model is None:
        yield CheckLine("problem", choice.why, choice.hint)
        return
    parrot = choice.model.api == "parrot" and not choice.chosen
    yield CheckLine("note" if parrot else "ok", f"{choice.key} would be used: {choice.why}")
    ready, key = key_status(choice.model, look.environ)
    if not ready:
        yield CheckLine("problem", f"{choice.key} has no key", key)
    if (sdk := sdk_of(choice.model)) and find_spec(sdk) is None:
        yield CheckLine("problem", f"{choice.key} needs the package {sdk}", "pip install 'serai[models]'")


# -- guests and policy ------------------------------------------------------------------------------------------------------------


def _guests(look: DoctorContext) -> Iterator[CheckLine]:

    found = look.find()
    yield from (CheckLine("ok", f"{_guest(one)}: would be started") for one in found.guests)
    yield from (CheckLine("ok", f"{_guest(one)}: disabled") for one in found.disabled)
    for aside in found.untrusted:
        yield CheckLine(
            "note", f"{_guest(aside.manifest)}: not trusted: {aside.reason}", "look at it, then `serai trust` in that folder"
        )
    yield from (CheckLine("problem", f"{_guest(aside.manifest)}: refused: {aside.reason}") for aside in found.refused)
    told = {problem.reason for problem in found.problems}
    yield from (
        CheckLine("note", f"{_guest(aside.manifest)}: {aside.reason}") for aside in found.shadowed if aside.reason not in told
    )
    yield from (CheckLine("problem", _problem(problem)) for problem in found.problems)
    yield from (CheckLine("problem", f"guard: {_problem(hidden)}", "nothing runs without it") for hidden in found.hidden_guards)
    if not any((*found.all(), *found.problems, *found.hidden_guards)):
        yield CheckLine("ok", "none")


def _problem(problem: DiscoveryProblem) -> str:
    from serai.host.adapters import DIALECTS

    files = (os.path.join(problem.folder, dialect.manifest) for dialect in DIALECTS.values())
    return str(problem._replace(reason=without_values(problem.reason, *files)))


def _guest(manifest: GuestManifest) -> str:
    guard = "guard " if manifest.settings.guard else ""
    version = f" {manifest.version}" if manifest.version else ""
    return f"{guard}{manifest.id}{version}, {manifest.scope}, in {manifest.folder}"


def _policy(look: DoctorContext) -> Iterator[CheckLine]:
    from serai.host.trust import Trust
    from serai.policy import load_rules
    from serai.policy.rules import USER_FILE

    own = os.path.join(paths.config_folder(look.environ), USER_FILE)
    files = [path for path in (os.path.join(look.cwd, paths.PROJECT_POLICY), own) if os.path.lexists(path)]
    trust = Trust.usual(look.environ)
    rules = load_rules(look.cwd, untrusted=lambda content: trust.check_policy(look.cwd, content), environ=look.environ)
    yield CheckLine("ok", f"rules of {', '.join([*files, 'Serai itself'])}")
    yield CheckLine("ok", ", ".join(f"{len(rules.by(decide))} {decide}" for decide in ("deny", "ask", "allow")))
    yield CheckLine("ok" if rules.mode == "manual" else "note", f"mode {rules.mode}")
    yield from (CheckLine("note", note) for note in rules.notes)
    yield _waiting(look)


def _waiting(look: DoctorContext) -> CheckLine:
    from serai.policy.decision_store import NAME, DecisionStore

    path = os.path.join(paths.state_folder(look.environ), NAME)
    if not os.path.exists(path):
        return CheckLine("ok", "no approval waits")
    try:
        decisions = DecisionStore(path, busy=_BUSY)
    except NotWritten as error:
        return CheckLine("note", f"approvals cannot be looked at: {error}", error.hint)
    try:
        waiting = len(decisions.pending())
    finally:
        decisions.close()
    if not waiting:
        return CheckLine("ok", "no approval waits")
    return CheckLine("note", f"{_counted(waiting, 'approval')} waiting for an answer", "`serai policy pending` shows them")


# -- boxes, terminal, recordings --------------------------------------------------------------------------------------------------


def _boxes(look: DoctorContext) -> Iterator[CheckLine]:
    from serai.boxes import backend as boxes_backend
    from serai.boxes.manager import Boxes

    boxes = Boxes(os.path.join(paths.state_folder(look.environ), "boxes"))
    for name in boxes_backend.BACKENDS:
        backend = boxes.backend(name)
        if backend.missing:
            yield CheckLine("note", f"{name}: does not work here: {backend.missing}")
        else:
            gives = backend.capabilities
            yield CheckLine("ok", f"{name}: works, isolation {gives.isolation}, network {gives.network}")


def _terminal(look: DoctorContext) -> Iterator[CheckLine]:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        yield CheckLine("ok", "there is one to ask on")
    except OSError:
        yield CheckLine("note", "there is none to ask on: what a person would be asked is denied")
    if look.environ.get("NO_COLOR"):
        yield CheckLine("ok", "no colours: NO_COLOR is set")
    elif look.environ.get("TERM") == "dumb":
        yield CheckLine("ok", "no colours: this terminal has none")
    else:
        yield CheckLine("ok", "colours" if sys.stdout.isatty() else "no colours: this is not printed on a terminal")


def _recordings(look: DoctorContext) -> Iterator[CheckLine]:
    config = look.config()
    if not config.record:
        yield CheckLine("note", "off: the settings say `record = false`")
        return
    days, most = config.limits.record_age, config.limits.record_total
    yield CheckLine("ok", f"on: kept for {_counted(days, 'day')}, at most {_size(most)}")


CHECKS: dict[str, Check] = {
    "Serai": _serai,
    "home": _home,
    "agents": _agents,
    "models": _models,
    "guests": _guests,
    "policy": _policy,
    "boxes": _boxes,
    "terminal": _terminal,
    "recordings": _recordings,
}


# -- words ------------------------------------------------------------------------------------------------------------------------


def _size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_QUICK = 1.0  # seconds for a program to tell its version: nobody waits long for the page


def agents(look: DoctorContext) -> Iterator[CheckLine]:
    from serai.agents.factory import AGENTS

    chosen = look.config().agent
    for name, place in AGENTS.items():
        there = find_spec(place.split(":")[0]) is not None
        if there:
            yield _own(name, look, chosen=name == chosen)
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
    yield _chosen({*AGENTS, *others}, look)


def _own(name: str, look: DoctorContext, *, chosen: bool) -> CheckLine:
    """One of Serai's; a driven one needs a program, which may be missing as long as nobody has chosen it."""
    from serai.agents.factory import AgentLookup, agent_status
    from serai.wire import event_loop

    config = look.config()
    found = event_loop.run(agent_status(name, AgentLookup(look.environ, config.settings, config.limits.but(agent_version=_QUICK))))
    if not found.available:
        return CheckLine("problem" if chosen else "note", f"{name}: {found.why}", found.hint)
    if not found.path:
        return CheckLine("ok", f"{name}: can be used")
    return CheckLine("ok", f"{name}: {found.version}, {found.source}: {found.path}")


def _chosen(known: set[str], look: DoctorContext) -> CheckLine:
    from serai.app.doctor.model_choice import value_origin

    said = next(value for value in look.config().values if value.key == "agent")
    if said.source == "default":
        return CheckLine("ok", f"{said.value} would be used: no other was chosen")
    if said.value not in known:
        return CheckLine("problem", f"agent of {said.file} names one that is not there", f"agents: {', '.join(sorted(known))}")
    return CheckLine("ok", f"{said.value} would be used: {value_origin(said)}")
