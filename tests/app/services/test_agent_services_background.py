"""Work on the side that a guest begins."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.session import Session
from serai.app.services.agent_services import BackgroundService
from serai.errors import BadRequest, NotAllowed
from serai.model.actions import Action, SetStatus
from serai.model.events import Event, NoticeEvent
from tests.support.agents.conversations import get_driver
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.service_requests import ServiceCaller, resident


def caller(session: Session, shown: list[Action]) -> ServiceCaller:
    return ServiceCaller(BackgroundService(lambda: get_driver(session).backgrounds, shown.append))


async def test_work_on_the_side_is_shown_while_it_runs_and_told_at_its_end() -> None:
    go = asyncio.Event()
    heard: list[Event] = []
    shown: list[Action] = []
    async with resident(Answers([go, reply("4 to do")])) as session:
        session.listen(heard.append)
        ask = caller(session, shown)
        assert await ask("running") == {"running": False}
        assert await ask("start", prompt="summarise all of the TODOs") == {"key": "summarise all of the…"}
        assert await ask("running") == {"running": True}
        with pytest.raises(NotAllowed, match='background task "summarise all of the…" already running'):
            await ask("start", prompt="summarise all of the TODOs")
        assert shown == [SetStatus("bg", "bg: summarise all of the…")]
        go.set()
        await session.idle()
        while len(shown) < 2:
            await asyncio.sleep(0)
    assert shown[1] == SetStatus("bg", "")
    [notice] = [event.notice.text for event in heard if isinstance(event, NoticeEvent)]
    assert notice == "Background task: summarise all of the TODOs\n\n4 to do"


async def test_work_on_the_side_is_cancelled_all_of_it() -> None:
    shown: list[Action] = []
    async with resident(Answers([asyncio.Event()])) as session:
        ask = caller(session, shown)
        assert await ask("cancel") == {}
        await ask("start", prompt="one")
        await ask("start", prompt="two")
        assert await ask("cancel") == {}
        assert await ask("running") == {"running": False}
        while shown[-1] != SetStatus("bg", ""):
            await asyncio.sleep(0)


async def test_nothing_to_do_is_nothing_to_begin() -> None:
    async with resident(Answers([reply("x")])) as session:
        with pytest.raises(BadRequest, match="the prompt is empty"):
            await caller(session, [])("start", prompt=" ")
