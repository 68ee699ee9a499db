"""Subscriptions to the bus of a piglet host (spec piglet 7.1, 8.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.sdk.piglet_programs import Driven, write_program

BUS = """
import asyncio, threading
lifted = threading.Event()

@ext.on_init
def start():
    ext.host.bus.subscribe("a", lambda message: ext.host.log("info", f"{message.topic} {message.data}")).ready(30)

@ext.tool
async def listen(count: int) -> list[int]:
    subscription = ext.host.bus.subscribe("b")
    await subscription
    ext.host.show_message("listening")
    found = []
    async for message in subscription:
        found.append(message.data)
        if len(found) == count:
            break
    subscription.close()
    return found

@ext.tool
def flood() -> str:
    subscription = ext.host.bus.subscribe("c").ready(30)
    ext.host.show_message("listening")
    lifted.wait(30)
    first = [subscription.get(30).data for _ in range(64)]
    return f"{first[0]}..{first[-1]}, dropped {subscription.dropped}, then {subscription.get(0)}"

@ext.tool
def lift() -> None:
    lifted.set()
"""


def test_the_bus_brings_messages_to_functions_and_loops_and_drops_what_nobody_takes(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, BUS)) as host:
        initialize = host.ask("initialize", {"cwd": "/"})
        assert host.serve("host/subscribe", {"subscriptionId": 7}) == {"topic": "a"}
        host.answer(initialize)

        def publish(number: int, topic: str, data: int) -> None:
            host.note("eventBus/event", {"topic": topic, "subscriptionId": number, "data": data})

        publish(7, "a", 1)
        publish(99, "a", 5)  # of nobody
        call = host.ask("tool/execute", {"name": "listen", "args": {"count": 3}})
        host.serve("host/subscribe", {"subscriptionId": 8})
        for number in range(3):
            publish(8, "b", number)
        assert host.answer(call)["result"]["content"][0]["text"] == "[0, 1, 2]"
        publish(8, "b", 3)  # closed
        call = host.ask("tool/execute", {"name": "flood", "args": {}})
        host.serve("host/subscribe", {"subscriptionId": 9})
        host.hear("showMessage")
        for number in range(70):
            publish(9, "c", number)
        publish(7, "a", 2)
        host.text("lift")
        assert host.answer(call)["result"]["content"][0]["text"] == "0..63, dropped 6, then None"
        assert [host.hear("log")["params"]["message"] for _ in range(2)] == ["a 1", "a 2"]
        assert host.end() == 0


NO_BUS = """
import asyncio

@ext.tool
def loop() -> str:
    for message in ext.host.bus.subscribe("a"):
        return "heard"
    return "ended"

@ext.tool
def get() -> str:
    return f"got {ext.host.bus.subscribe('a').get()}"

@ext.tool
async def later() -> str:
    async for message in ext.host.bus.subscribe("a"):
        return "heard"
    return "ended"

@ext.tool
def again() -> list[str]:
    subscription, told = ext.host.bus.subscribe("a"), []
    for listen in (subscription.ready, subscription.get, lambda: subscription.get(0), lambda: next(iter(subscription))):
        try:
            told.append(f"heard {listen()}")
        except Refused as error:
            told.append(f"{error.code} {error}")
    return told

@ext.tool
def impatient() -> str:
    subscription = ext.host.bus.subscribe("a")
    try:
        subscription.ready(0)
    except TimeoutError:
        return f"got {subscription.get()}"

@ext.tool
def closed_early() -> str:
    subscription = ext.host.bus.subscribe("a")
    subscription.close()
    try:
        subscription.ready(30)
    except Refused:
        return f"got {subscription.get()}"

@ext.tool
def closed_late() -> str:
    subscription = ext.host.bus.subscribe("a")
    try:
        subscription.get()
    except Refused:
        subscription.close()
        return f"got {subscription.get()}"

@ext.tool
def function() -> str:
    try:
        ext.host.bus.subscribe("a", print).ready(30)
    except Refused as error:
        return f"refused: {error}"
"""
NO = {"code": -32603, "message": "probe has no grant for bus"}


def refuse(host: Driven, name: str) -> Any:
    call = host.ask("tool/execute", {"name": name, "args": {}})
    host.send({"id": host.hear("host/subscribe")["id"], "error": NO})
    return host.answer(call)


@pytest.mark.parametrize("name", ["loop", "get", "later"])
def test_who_listens_to_what_the_host_refused_is_told(tmp_path: Path, name: str) -> None:
    with Driven(write_program(tmp_path, NO_BUS)) as host:
        host.begin()
        assert NO["message"] in refuse(host, name)["error"]["message"]
        assert host.end() == 0


def test_a_refused_subscription_says_so_as_often_as_it_is_asked_and_a_closed_one_has_ended(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, NO_BUS)) as host:
        host.begin()
        told = json.loads(refuse(host, "again")["result"]["content"][0]["text"])
        assert told == [f"-32603 {NO['message']}"] * 4
        for name in ("closed_early", "closed_late"):
            assert refuse(host, name)["result"]["content"][0]["text"] == "got None"
        assert "host/subscribe in 0 seconds" in host.error("tool/execute", name="impatient", args={})["message"]
        assert host.end() == 0


def test_a_function_that_will_never_be_called_is_told_of_on_stderr(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, NO_BUS)) as host:
        host.begin()
        assert refuse(host, "function")["result"]["content"][0]["text"] == f"refused: {NO['message']}"
        assert host.end() == 0
        assert f"the subscription to a failed, and its function is never called: Refused: {NO['message']}" in host.stderr


@pytest.mark.parametrize("name", ["loop", "get", "later"])
def test_a_subscription_that_the_host_never_answered_ends_with_it(tmp_path: Path, name: str) -> None:
    with Driven(write_program(tmp_path, NO_BUS)) as host:
        host.begin()
        call = host.ask("tool/execute", {"name": name, "args": {}})
        host.hear("host/subscribe")
        assert host.end() == 0
        if name != "later":  # that one is cancelled
            text = {"loop": "ended", "get": "got None"}[name]
            assert host.answers[call]["result"]["content"][0]["text"] == text
