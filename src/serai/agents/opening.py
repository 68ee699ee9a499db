"""`serai.agent(NAME)`: the one door to every agent. One table, plus entry points of the group `serai.agents`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from serai.agents.session import Session
from serai.errors import NoAgent

__all__ = ["AGENTS", "agent", "opener"]

# Name: what opens a session with it. Each takes keyword arguments; `cwd`, `model`, `store`, `limits` and `environ` mean the same
# for all of them.
AGENTS = {
    "resident": "serai.agents.resident.opening:resident",
    "claude": "serai.agents.drivers.claude.opening:claude",
    "mock": "serai.agents.drivers.mock.opening:mock",
}


def agent(name: str = "resident", **options: Any) -> Session:
    """A session with an agent, to be entered: `async with serai.agent("resident", cwd=folder) as session`."""
    session = opener(name)(**options)
    if not isinstance(session, Session):
        raise TypeError(f"the entry point of the agent {name} gave {type(session).__name__}, not a Session")
    return session


def opener(name: str) -> Callable[..., object]:
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
