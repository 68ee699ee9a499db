"""What agents there are, whether each can be used here, and what it can do. A program may be asked for its version."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import msgspec

from serai.agents.driver import Capabilities
from serai.agents.opening import AGENTS
from serai.agents.settings import read
from serai.errors import SeraiError
from serai.limits import Limits

__all__ = ["ABOUT", "About", "Place", "about", "abouts"]


class About(msgspec.Struct, frozen=True, kw_only=True):
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
class Place:
    """Where one looks: the environment, and the settings in force."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits, repr=False)


async def _resident(_: Place) -> About:
    from serai.agents.resident.resident import Resident

    return About(name="resident", source="serai", capabilities=Resident.capabilities)


async def _mock(_: Place) -> About:
    from serai.agents.drivers.mock.driver import Mock

    return About(name="mock", source="serai", capabilities=Mock.capabilities)


async def _claude(place: Place) -> About:
    from serai.agents.drivers.claude.finding import find
    from serai.agents.drivers.claude.options import CAPABILITIES, Options

    configured = read(place.settings).claude.path
    try:
        found = await find(Options(), place.environ, limits=place.limits, configured=configured, probe=True)
    except SeraiError as error:
        return About(name="claude", available=False, capabilities=CAPABILITIES, why=error.message, hint=error.hint)
    return About(name="claude", path=found.path, version=found.version, source=found.source, capabilities=CAPABILITIES)


# Name: who tells about it. Whoever adds an agent to `AGENTS` adds a row here.
ABOUT: dict[str, Callable[[Place], Awaitable[About]]] = {"resident": _resident, "claude": _claude, "mock": _mock}


async def about(name: str, place: Place) -> About:
    """What is known of an agent of Serai's own."""
    return await ABOUT[name](place)


async def abouts(place: Place) -> list[About]:
    """All of them: Serai's own, then those of other packages."""
    own = [await about(name, place) for name in AGENTS]
    others = {point.name: point for point in entry_points(group="serai.agents") if point.name not in AGENTS}
    return [*own, *(_other(point) for _, point in sorted(others.items()))]


def _other(point: EntryPoint) -> About:
    package = point.dist.name if point.dist else "another package"
    version = point.dist.version if point.dist else ""
    if find_spec(point.module.partition(".")[0]) is None:  # loading more of it would run it
        why, hint = f"its module {point.module} is missing", f"install {package} again"
        return About(name=point.name, available=False, version=version, source=package, why=why, hint=hint)
    return About(name=point.name, version=version, source=package)
