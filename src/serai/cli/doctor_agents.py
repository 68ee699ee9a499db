"""What `serai doctor` says of agents: which can be used, where the program of a driven one is, and which would be used."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from serai.cli.doctor_checks import Line, Look

__all__ = ["agents"]

_QUICK = 1.0  # seconds for a program to tell its version: nobody waits long for the page


def agents(look: Look) -> Iterator[Line]:
    from serai.agents.factory import AGENTS

    chosen = look.config().agent
    for name, place in AGENTS.items():
        there = find_spec(place.split(":")[0]) is not None
        if there:
            yield _own(name, look, chosen=name == chosen)
        else:
            yield Line("problem", f"{name}: its module is missing", "install Serai again")
    others = {point.name: point for point in metadata.entry_points(group="serai.agents")}
    for name, point in sorted(others.items()):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        if name in AGENTS:
            yield Line("note", f"{name} of {package}: not used, Serai has its own of that name")
        elif find_spec(point.module.partition(".")[0]) is None:  # loading more of it would run it
            yield Line("problem", f"{name} of {package}: its module {point.module} is missing", "install that package again")
        else:
            yield Line("ok", f"{name}: from {package}")
    yield _chosen({*AGENTS, *others}, look)


def _own(name: str, look: Look, *, chosen: bool) -> Line:
    """One of Serai's; a driven one needs a program, which may be missing as long as nobody has chosen it."""
    from serai.agents.factory import AgentLookup, agent_status
    from serai.wire import event_loop

    config = look.config()
    found = event_loop.run(agent_status(name, AgentLookup(look.environ, config.settings, config.limits.but(agent_version=_QUICK))))
    if not found.available:
        return Line("problem" if chosen else "note", f"{name}: {found.why}", found.hint)
    if not found.path:
        return Line("ok", f"{name}: can be used")
    return Line("ok", f"{name}: {found.version}, {found.source}: {found.path}")


def _chosen(known: set[str], look: Look) -> Line:
    from serai.cli.model import origin

    said = next(value for value in look.config().values if value.key == "agent")
    if said.source == "default":
        return Line("ok", f"{said.value} would be used: no other was chosen")
    if said.value not in known:
        return Line("problem", f"agent of {said.file} names one that is not there", f"agents: {', '.join(sorted(known))}")
    return Line("ok", f"{said.value} would be used: {origin(said)}")
