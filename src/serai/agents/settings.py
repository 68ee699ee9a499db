"""`[agents]` of `config.toml`: what a person has set for the agents that are driven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from serai.errors import BadSettings


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
