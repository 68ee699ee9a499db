"""What guests tell each other."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.app.services.bus import Bus, BusGroup, bash_tail
from serai.errors import Refused
from serai.limits import Limits
from serai.model.events import ToolProgress
from serai.model.tools import ToolCall
from tests.app.services.parts import GUEST, Desk

Delivery = tuple[str, str, int, Any]


def desks(*guests: str, **options: Any) -> tuple[list[Delivery], list[Desk]]:
    told: list[Delivery] = []
    group = BusGroup(Bus(), lambda *delivery: told.append(delivery), **options)
    return told, [Desk(group, guest=guest) for guest in guests]


async def test_all_subscribers_are_told_in_order_the_publisher_included() -> None:
    told, [a, b] = desks("fake:a", "fake:b")
    first = await a("subscribe", topic="alert")
    second = await b("subscribe", topic="alert")
    third = await a("subscribe", topic="alert")
    ids = [one["subscription_id"] for one in (first, second, third)]
    assert len(set(ids)) == 3
    assert await a("publish", topic="alert", data={"level": 2}) == {}
    assert told == [(guest, "alert", id, {"level": 2}) for guest, id in zip(("fake:a", "fake:b", "fake:a"), ids, strict=True)]


async def test_topics_are_exact() -> None:
    told, [a] = desks("fake:a")
    for topic in ("alert", "alert*", ""):
        await a("subscribe", topic=topic)
    await a("publish", topic="alert:1", data=1)
    await a("publish", topic="Alert", data=1)
    assert told == []


def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bus, told = Bus(), []

    def broken(topic: str, id: int, data: Any) -> None:
        raise RuntimeError("gone")

    bus.subscribe("fake:a", "t", broken)
    bus.subscribe("fake:b", "t", lambda topic, id, data: told.append(data))  # noqa: A006
    with caplog.at_level(logging.ERROR, "serai.app"):
        assert bus.publish("t", 1) == 1
    assert told == [1]
    assert "fake:a could not be told of t" in caplog.text


def test_who_is_gone_is_told_nothing_not_even_what_is_under_way() -> None:
    bus, told = Bus(), []

    def leave(topic: str, id: int, data: Any) -> None:
        bus.drop("fake:b")

    bus.subscribe("fake:a", "t", leave)
    bus.subscribe("fake:b", "t", lambda topic, id, data: told.append(data))  # noqa: A006
    assert bus.publish("t", 1) == 1
    assert bus.publish("t", 2) == 1
    assert told == []


def test_who_publishes_while_it_is_told_gets_through() -> None:
    bus, told = Bus(), []

    def again(topic: str, id: int, data: Any) -> None:
        told.append(data)
        if data < 3:
            bus.publish("t", data + 1)

    bus.subscribe("fake:a", "t", again)
    bus.publish("t", 1)
    assert told == [1, 2, 3]


async def test_a_guest_has_no_end_of_subscriptions() -> None:
    _, [a, b] = desks("fake:a", "fake:b", limits=Limits().but(registrations=2))
    for _ in range(2):
        await a("subscribe", topic="t")
    with pytest.raises(Refused, match=r"too many subscriptions \(limit registrations = 2\)"):
        await a("subscribe", topic="t")
    await b("subscribe", topic="t")


# -- the tail of a command --------------------------------------------------------------------------------------------------------


def progress(text: str, tool: str = "bash") -> ToolProgress:
    return ToolProgress(call=ToolCall(tool, {"command": "make"}, "c1", asker=GUEST), text=text)


@pytest.mark.req("piglet.rule.bus-bash-tail")
@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("one\n", "one"),
        ("one\ntwo\nthr", "thr"),
        ("one\n\n \n", "one"),
        ("x" * 79 + "é", "x" * 79 + "é"),
        ("start" + "é" * 80 + "\r\n", "é" * 80),
    ],
)
def test_the_tail_of_a_command_is_the_end_of_its_last_line(text: str, partial: str) -> None:
    assert bash_tail(progress(text)) == {"ToolCallID": "c1", "ToolName": "bash", "Partial": partial}


@pytest.mark.req("piglet.rule.bus-bash-tail")
@settings(deadline=None)  # a busy machine is no defect
@given(st.text(max_size=300))
def test_the_tail_of_a_command_is_never_long_and_never_more_than_a_line(text: str) -> None:
    tail = bash_tail(progress(text))
    if tail is None:
        assert not text.strip()
    else:
        assert 0 < len(tail["Partial"]) <= 80
        assert len(tail["Partial"].splitlines()) == 1
        assert tail["Partial"] in text


def test_other_tools_have_no_tail() -> None:
    assert bash_tail(progress("one", "grep")) is None
    assert bash_tail(progress("\n")) is None
