"""`serai agent`: the agents there are, whether each can be used here, and what it lets others do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from serai.cli import telling
from serai.cli.agent_sessions import sessions, show
from serai.cli.opening import JSON, NamedPath

if TYPE_CHECKING:
    from serai.agents.factory import AgentStatus

__all__ = ["agent"]

_COLUMNS = ("", "agent", "version", "guards", "rewrite", "from", "can")


@click.group()
def agent() -> None:
    """List the agents there are, whether each can be used here, and what it can do."""


agent.add_command(sessions)
agent.add_command(show)


@agent.command("list")
@click.option("--cwd", type=NamedPath(exists=True, file_okay=False), default=".", help="The project; this folder by default.")
@JSON
def list_(*, cwd: str, as_json: bool) -> None:
    """The agents there are; the one that would be used has a star.

    `guards` says which of its calls guards and rules see: each of them, those that it asks about, or none; `rewrite` whether they
    can change what is called.
    """
    from serai.agents.factory import AgentLookup, agent_statuses
    from serai.app.config import Config
    from serai.wire import event_loop

    config = Config.load(cwd)
    found = event_loop.run(agent_statuses(AgentLookup(os.environ, config.settings, config.limits)))
    if as_json:
        for one in found:
            click.echo(telling.as_json(_form(one, used=one.name == config.agent)))
        return
    telling.table([_COLUMNS, *(_row(one, used=one.name == config.agent) for one in found)])
    for one in found:
        if not one.available:
            telling.tell(f"{one.name}: {one.why}")
            telling.tell(f"  {one.hint}")
    if config.agent not in {one.name for one in found}:
        telling.tell(f"the settings name the agent {config.agent}, and there is none of that name")


def _form(one: AgentStatus, *, used: bool) -> dict[str, Any]:
    import msgspec

    form: dict[str, Any] = {"name": one.name, "available": one.available, "used": used}
    form |= {key: value for key in ("path", "version", "source") if (value := getattr(one, key))}
    if one.capabilities is not None:
        form["capabilities"] = msgspec.to_builtins(one.capabilities)
    return form | ({"why": one.why, "hint": one.hint} if not one.available else {})


def _row(one: AgentStatus, *, used: bool) -> tuple[str, ...]:
    where = ": ".join(filter(None, (one.source, one.path))) if one.available else "not here"
    first = ("*" if used else "", one.name, one.version or "-")
    if (can := one.capabilities) is None:
        return *first, "-", "-", where, "-"
    others = [name for name in can.__struct_fields__ if name not in ("guards", "rewrite") and getattr(can, name)]
    return *first, can.guards, "yes" if can.rewrite else "no", where, ", ".join(others)
