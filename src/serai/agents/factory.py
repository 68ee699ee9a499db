"""`serai.agent(NAME)` opens a session with any agent: one table, plus entry points of the group `serai.agents`.

`list_agent_statuses` says which agents there are, whether each can be used here, and what it can do. A program may be asked for its
version.

`AgentsSettings` is `[agents]` of `config.toml`: what a person has set for the agents that are driven.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import msgspec

from serai.agents.driver import Capabilities
from serai.agents.session import Session
from serai.errors import BadSettings, NoAgent, SeraiError
from serai.limits import AgentLimits

# Name: what opens a session with it. Each takes keyword arguments; `cwd`, `model`, `store`, `limits` and `environ` mean the same
# for all of them.
AGENTS = {
    "resident": "serai.agents.resident.factory:resident",
    "claude": "serai.agents.drivers.claude.factory:claude",
    "mock": "serai.agents.drivers.mock.driver:mock",
}


def agent(name: str = "resident", **options: Any) -> Session:
    """A session with an agent, to be entered: `async with serai.agent("resident", cwd=folder) as session`."""
    session = load_agent_factory(name)(**options)
    if not isinstance(session, Session):
        raise TypeError(f"the entry point of the agent {name} gave {type(session).__name__}, not a Session")
    return session


def load_agent_factory(name: str) -> Callable[..., object]:
    """What opens a session with the agent of that name; `NoAgent` when there is none."""
    if home := AGENTS.get(name):
        module, attribute = home.split(":")
        opener: Callable[..., object] = getattr(import_module(module), attribute)
        return opener
    from importlib.metadata import entry_points  # only here: most runs have no need of it

    others = {point.name: point for point in entry_points(group="serai.agents")}
    if name in others:
        loaded: Callable[..., object] = others[name].load()
        return loaded
    raise NoAgent(f"there is no agent {name}", hint=f"agents: {', '.join(sorted({*AGENTS, *others}))}")


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. `source` says how its program was found, or what it is a part of; `why` why it cannot be used, `hint` what to do.

    Without `capabilities` nothing is known of them: another package's agent is not run to ask it.
    """

    name: str
    available: bool = True
    path: str = ""
    version: str = ""
    source: str = ""
    capabilities: Capabilities | None = None
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class AgentLookup:
    """Where one looks: the environment, and the settings in force."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    limits: AgentLimits = field(default_factory=AgentLimits, repr=False)


async def _describe_resident(_: AgentLookup) -> AgentStatus:
    from serai.agents.resident.driver import Resident

    return AgentStatus(name="resident", source="serai", capabilities=Resident.capabilities)


async def _describe_mock(_: AgentLookup) -> AgentStatus:
    from serai.agents.drivers.mock.driver import Mock

    return AgentStatus(name="mock", source="serai", capabilities=Mock.capabilities)


async def _describe_claude(place: AgentLookup) -> AgentStatus:
    from serai.agents.drivers.claude.installation import find_claude
    from serai.agents.drivers.claude.options import CAPABILITIES, ClaudeOptions

    configured = read_agent_settings(place.settings).claude.path
    try:
        found = await find_claude(ClaudeOptions(), place.environ, limits=place.limits, configured=configured, probe=True)
    except SeraiError as error:
        return AgentStatus(name="claude", available=False, capabilities=CAPABILITIES, why=error.message, hint=error.hint)
    return AgentStatus(name="claude", path=found.path, version=found.version, source=found.source, capabilities=CAPABILITIES)


# Name: who tells about it. Whoever adds an agent to `AGENTS` adds a row here.
ABOUT: dict[str, Callable[[AgentLookup], Awaitable[AgentStatus]]] = {
    "resident": _describe_resident,
    "claude": _describe_claude,
    "mock": _describe_mock,
}


async def get_status(name: str, place: AgentLookup) -> AgentStatus:
    """What is known of an agent of Serai's own."""
    return await ABOUT[name](place)


async def list_agent_statuses(place: AgentLookup) -> list[AgentStatus]:
    """All of them: Serai's own, then those of other packages."""
    own = [await get_status(name, place) for name in AGENTS]
    others = {point.name: point for point in entry_points(group="serai.agents") if point.name not in AGENTS}
    return [*own, *(_describe_other(point) for _, point in sorted(others.items()))]


def _describe_other(point: EntryPoint) -> AgentStatus:
    package = point.dist.name if point.dist else "another package"
    version = point.dist.version if point.dist else ""
    if find_spec(point.module.partition(".")[0]) is None:  # loading more of it would run it
        why, hint = f"its module {point.module} is missing", f"install {package} again"
        return AgentStatus(name=point.name, available=False, version=version, source=package, why=why, hint=hint)
    return AgentStatus(name=point.name, version=version, source=package)


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of them. Empty: what the agent's own settings say, and its program is looked for in the usual places."""

    path: str = ""  # its program
    model: str = ""
    effort: str = ""
    permission_mode: str = ""  # the agent's own
    allowed_tools: tuple[str, ...] = ()  # rules of the agent's own; ours count as well
    hooks: bool = False  # those of the agent's own settings run although they may change what guards have judged
    env: tuple[str, ...] = ()  # names of variables that it gets although they look like secrets


class AgentsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, by name: one that there is not is a typing error."""

    claude: AgentSettings = AgentSettings()


def read_agent_settings(settings: Mapping[str, Any], *, who: str = "config.toml") -> AgentsSettings:
    """The part of the settings that is about them, checked."""
    try:
        found = msgspec.convert(settings.get("agents", {}), AgentsSettings)
    except msgspec.ValidationError as error:
        raise BadSettings(f"agents: {error}".replace("`$.", "`"), who=who) from None
    for name in AgentsSettings.__struct_fields__:
        path = getattr(found, name).path
        if path and not path.startswith(("/", "~/")):  # it would be looked for in the project
            raise BadSettings(f"agents.{name}.path: it is not an absolute path", who=who)
    return found
