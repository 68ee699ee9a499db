"""What guests tell each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.app.services.guest_services import Bus, BusService, build_bash_tail
from serai.app.services.router import NO_GRANTS, AppServices
from serai.errors import BadRequest, Refused
from serai.limits import Limits
from serai.model.events import ToolProgress
from serai.model.tools import ToolCall
from tests.support.app.service_requests import EVERYTHING, GUEST


def harness(
    *guests: str, **options: Any
) -> tuple[AppServices, Callable[[str, str], Callable[[], None]], list[tuple[str, str, Any]]]:
    """The bus behind the real router; how a guest subscribes, and what they were told."""
    told: list[tuple[str, str, Any]] = []
    services = AppServices({"bus": BusService(Bus(), **options)}, granted=lambda who: EVERYTHING if who in guests else NO_GRANTS)

    def subscribe(guest: str, topic: str) -> Callable[[], None]:
        return services.subscribe(guest, topic, lambda topic, data: told.append((guest, topic, data)))

    return services, subscribe, told


async def test_all_subscribers_are_told_in_order_the_publisher_included() -> None:
    services, subscribe, told = harness("fake:a", "fake:b")
    for guest in ("fake:a", "fake:b", "fake:a"):
        subscribe(guest, "alert")
    assert await services.ask("fake:a", "bus", "publish", {"topic": "alert", "data": {"level": 2}}) == {}
    assert told == [(guest, "alert", {"level": 2}) for guest in ("fake:a", "fake:b", "fake:a")]


async def test_topics_are_exact() -> None:
    services, subscribe, told = harness("fake:a")
    for topic in ("alert", "alert*", ""):
        subscribe("fake:a", topic)
    await services.ask("fake:a", "bus", "publish", {"topic": "alert:1", "data": 1})
    await services.ask("fake:a", "bus", "publish", {"topic": "Alert", "data": 1})
    assert told == []


async def test_one_subscription_ends_and_the_others_of_the_same_guest_go_on() -> None:
    """Two processes of one guest are there during a reload: each ends its own."""
    services, subscribe, told = harness("fake:a")
    end = subscribe("fake:a", "t")
    subscribe("fake:a", "t")
    end()
    end()
    await services.ask("fake:a", "bus", "publish", {"topic": "t", "data": 1})
    assert told == [("fake:a", "t", 1)]


@pytest.mark.req("app.services.grants")
async def test_who_may_not_use_the_bus_may_not_listen_to_it_either() -> None:
    services, subscribe, _ = harness("fake:a")
    with pytest.raises(Refused, match=r'bus.subscribe is not granted: `services = \["bus"\]`'):
        subscribe("fake:b", "t")
    del services.groups["bus"]
    with pytest.raises(BadRequest, match="there is no service bus.subscribe"):
        subscribe("fake:a", "t")


def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bus, told = Bus(), []

    def broken(topic: str, data: Any) -> None:
        raise RuntimeError("gone")

    bus.subscribe("fake:a", "t", broken)
    bus.subscribe("fake:b", "t", lambda topic, data: told.append(data))
    with caplog.at_level(logging.ERROR, "serai.app"):
        assert bus.publish("t", 1) == 1
    assert told == [1]
    assert "fake:a could not be told of t" in caplog.text


def test_who_is_gone_is_told_nothing_not_even_what_is_under_way() -> None:
    bus, told = Bus(), []

    def leave(topic: str, data: Any) -> None:
        end()

    bus.subscribe("fake:a", "t", leave)
    end = bus.subscribe("fake:b", "t", lambda topic, data: told.append(data))
    assert bus.publish("t", 1) == 1
    assert bus.publish("t", 2) == 1
    assert told == []


def test_who_publishes_while_it_is_told_gets_through() -> None:
    bus, told = Bus(), []

    def again(topic: str, data: Any) -> None:
        told.append(data)
        if data < 3:
            bus.publish("t", data + 1)

    bus.subscribe("fake:a", "t", again)
    bus.publish("t", 1)
    assert told == [1, 2, 3]


async def test_a_guest_has_no_end_of_subscriptions() -> None:
    _, subscribe, _ = harness("fake:a", "fake:b", limits=Limits().but(registrations=2))
    end, _ = subscribe("fake:a", "t"), subscribe("fake:a", "t")
    with pytest.raises(Refused, match=r"too many subscriptions \(limit registrations = 2\)"):
        subscribe("fake:a", "t")
    subscribe("fake:b", "t")
    end()
    subscribe("fake:a", "t")


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
    assert build_bash_tail(progress(text)) == {"ToolCallID": "c1", "ToolName": "bash", "Partial": partial}


@pytest.mark.req("piglet.rule.bus-bash-tail")
@settings(deadline=None)  # a busy machine is no defect
@given(st.text(max_size=300))
def test_the_tail_of_a_command_is_never_long_and_never_more_than_a_line(text: str) -> None:
    tail = build_bash_tail(progress(text))
    if tail is None:
        assert not text.strip()
    else:
        assert 0 < len(tail["Partial"]) <= 80
        assert len(tail["Partial"].splitlines()) == 1
        assert tail["Partial"] in text


def test_other_tools_have_no_tail() -> None:
    assert build_bash_tail(progress("one", "grep")) is None
    assert build_bash_tail(progress("\n")) is None
