"""What the app hands to its agent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from serai import agents
from serai.agents.driver import NeedsApproval
from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.app.joining import GuestInterceptors
from serai.app.mcp import GuestTools
from serai.errors import SeraiError
from serai.host.trust import Trust
from serai.model.approvals import Allow, Deny
from serai.model.contributions import PromptSection
from serai.model.provider import ModelMessage
from serai.model.tools import ToolCall
from serai.wire.channel import Tap

if TYPE_CHECKING:
    from serai.app.opening import Choices, House

__all__ = ["for_driven", "for_resident", "own_session", "session_of"]


def session_of(house: House, choices: Choices, trust: Trust) -> Session:
    """The app hands the same to every agent that is driven; the resident gets what is ours as well."""
    config = house.config
    options = for_resident(house) if config.agent == "resident" else for_driven(house, choices, trust)
    common = {
        "cwd": house.cwd,
        "store": house.current,
        "limits": house.limits,
        "environ": house.environ,
        "settings": config.settings,
    }
    session = agents.agent(config.agent, **{**common, **options, **choices.get("options", {})})
    if isinstance(session.driver, Resident):
        session.driver.tools.only(config.tools)
    return session


def for_resident(house: House) -> dict[str, Any]:
    config = house.config

    def sections() -> list[PromptSection]:  # the host is made after the agent, of which guests are told
        return house.host.texts.sections()

    async def compact(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return await house.host.texts.compact(messages)

    def compact_at() -> int:
        """What the compactor's author says, else the person; 0: only when the model is nearly full (spec piglet 4)."""
        compactor = house.host.texts.compactor
        return 0 if compactor is None else compactor.threshold or config.compact_at

    return {
        "model": config.model,
        "shelf": house.shelf,
        "tools": house.tools,
        "decide": house.tools.decide,
        "interceptors": GuestInterceptors(lambda: house.host),
        "sections": sections,
        "compactor": compact,
        "compact_at": compact_at,
    }


def for_driven(house: House, choices: Choices, trust: Trust) -> dict[str, Any]:
    """What a program gets that has its own model, tools and settings: ours besides, and somebody who decides about its calls."""

    def sections() -> list[PromptSection]:
        return house.host.texts.sections()

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        return await house.pipeline.judge(call)

    starts = count(1)

    def tap(pid: int) -> Tap | None:
        recorder, name = house.recorder, house.config.agent
        return None if recorder is None else recorder.wire(name, kind="agent", dialect=name, generation=next(starts), pid=pid)

    if (untrusted := trust.check_agents(house.cwd)) and _has_settings(house, trust):
        house.notes.append(f"{house.config.agent} starts without what this project has for it: {untrusted}")
    return {
        "model": choices.get("model", ""),  # the settings' own is for our models
        "spawner": house.spawner,
        "tools": GuestTools(house.tools, lambda: house.host, only=house.config.tools),
        "judge": judge,
        "interceptors": GuestInterceptors(lambda: house.host),
        "sections": sections,
        "tap": tap,
        "trusted": lambda: not trust.check_agents(house.cwd),
    }


def _has_settings(house: House, trust: Trust) -> bool:
    """Whether the project has anything that the agent would take from it; what it remembers of a project is not pinned."""
    names = ("CLAUDE.md", "CLAUDE.local.md")
    here = house.config.agent == "claude"
    return here and (trust.for_agents(house.cwd) != {} or any(os.path.lexists(os.path.join(house.cwd, name)) for name in names))


def own_session(agent: str, wanted: str, environ: Mapping[str, str]) -> str:
    """The id of a session that a driven agent has kept itself, by the beginning of it; empty when it has none."""
    if agent != "claude":
        return ""
    from serai.agents.drivers.claude.transcripts.reader import Transcripts  # seldom needed

    try:
        return Transcripts(environ=environ).resolve(wanted)
    except SeraiError:
        return ""
