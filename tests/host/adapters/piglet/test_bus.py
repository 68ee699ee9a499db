"""What real guests tell each other over the bus: in order, without waiting, and for living processes (spec piglet 7.1)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.host.guest import GuestState
from serai.host.host import Host
from tests.support.app.apps import PATIENT, open_app
from tests.support.host.zot_guests import log_of, pid_of, wait_for_state, wait_until
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note
from tests.support.piglet.raw_guests import write_bare_guest
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import Step, ask, crash, hear, note, publish, relay, seen, subscribe, tell, throw, wait

pytestmark = ONE_LOOP

EVENT = "eventBus/event"


def write_publisher(tmp_path: Path, name: str = "publisher") -> Path:
    return write(tmp_path, name, tools={"host": [relay()]}, journal=tmp_path / f"{name}.journal")


def write_listener(tmp_path: Path, name: str = "listener", **more: Any) -> Path:
    """Subscribes to `alert` when its tool `listen` is called; `heard` tells what has come."""
    tools = {
        "listen": [ask("host/subscribe", {"topic": "alert"})],
        "heard": [seen(EVENT)],
        "die": [crash()],
        **more.pop("tools", {}),
    }
    return write(tmp_path, name, tools=tools, journal=tmp_path / f"{name}.journal", **more)


async def listen(host: Host) -> int:
    answer = json.loads((await host.call_tool("listen")).text)
    return int(answer["result"]["subscriptionId"])


async def say(host: Host, data: object, topic: str = "alert") -> dict[str, Any]:
    """The publisher's raw answer."""
    asked = {"method": "host/publish", "params": {"topic": topic, "data": data}}
    answer: dict[str, Any] = json.loads((await host.call_tool("host", asked)).text)
    return answer


async def flood(app: App, count: int, size: int) -> None:
    """So many events of that size, as if somebody published them."""
    for number in range(count):
        await app.runtime.services.ask("piglet:listener", "bus", "publish", {"topic": "alert", "data": [number, "x" * size]})


async def read_events(host: Host) -> list[Any]:
    """The params of all events so far; its wire is in order, so nothing is on the way any more."""
    told: list[Any] = json.loads((await host.call_tool("heard")).text)
    return told


def lines(journal: Path) -> list[dict[str, Any]]:
    """Everything that a guest had of its host, answers too."""
    return [line["in"] for line in map(json.loads, journal.read_text().splitlines()) if "in" in line]


def subscriptions(app: App, guest: str) -> int:
    bus: Any = app.runtime.services.groups["bus"]
    return int(bus._bus.count(guest))


# -- what comes


@pytest.mark.req("piglet.method.eventBus/event", "piglet.rule.envelope-ids")
async def test_each_subscription_to_a_published_topic_is_told_of_it(tmp_path: Path) -> None:
    more = {"other": [ask("host/subscribe", {"topic": "alert:2"})]}
    data = {"level": 2, "Where": ["Bern", None, 1.5], "n": 12345678901234567890, "é": "\u2028"}
    async with open_app(tmp_path, write_listener(tmp_path, tools=more), write_publisher(tmp_path)) as app:
        first, second = await listen(app.host), await listen(app.host)
        await app.host.call_tool("other")
        assert await say(app.host, data) == {"result": {}}
        assert await say(app.host, "nobody hears", topic="alert:1") == {"result": {}}
        assert await say(app.host, None) == {"result": {}}
        told = await read_events(app.host)
    assert told == [
        {"topic": "alert", "subscriptionId": id, "data": data} for data in (data, None) for id in (first, second)
    ]  # fmt: skip
    journal = tmp_path / "listener.journal"
    for frame in read_messages(journal, EVENT):
        assert sorted(frame) == ["jsonrpc", "method", "params"]  # a notification
    # Subscriptions are numbered by the counter of the host's own requests (spec piglet 2.3).
    numbers = [frame["id"] for frame in read_messages(journal) if "id" in frame]
    assert not {first, second} & set(numbers)
    assert first == numbers[1] + 1


@pytest.mark.req("piglet.method.eventBus/event")
async def test_who_publishes_has_its_own_event_before_the_answer_and_all_have_them_in_the_order_of_subscription(
    tmp_path: Path,
) -> None:
    """Also while it publishes several at once."""
    burst = [publish("alert", number) for number in range(5)]
    folder = write_listener(tmp_path, tools={"burst": burst})
    async with open_app(tmp_path, folder) as app:
        ids = [await listen(app.host) for _ in range(3)]
        await asyncio.gather(*(app.host.call_tool("burst") for _ in range(4)))
        await read_events(app.host)
    journal = tmp_path / "listener.journal"
    sent = [line["out"] for line in map(json.loads, journal.read_text().splitlines()) if "out" in line]
    published = {one["id"]: one["params"]["data"] for one in sent if one.get("method") == "host/publish"}
    expected: list[Any] = []
    for line in lines(journal):
        if line.get("method") == EVENT:
            expected.append((line["params"]["subscriptionId"], line["params"]["data"]))
        elif not line.get("method") and line["id"] in published:
            assert expected[:3] == [(id, published[line["id"]]) for id in ids]
            del expected[:3]
    assert len(published) == 20
    assert expected == []


# A guest of one thread: it publishes while it is at work on an event, and reads no line before that is said.
HANDLER = """
say(4, tool("start"), hello())
open_call = None
for m in lines(3):
    if m.get("method") == "tool/execute":
        open_call = m["id"]
        say(4, {"jsonrpc": "2.0", "id": 1, "method": "host/subscribe", "params": {"topic": "chain"}})
    elif m.get("id") == 1 and "result" in m:
        say(4, {"jsonrpc": "2.0", "id": 2, "method": "host/publish", "params": {"topic": "chain", "data": 1}})
    elif m.get("method") == "eventBus/event":
        n = m["params"]["data"]
        if n == 2000:
            say(4, answer(open_call, str(n)))
        else:
            say(4, {"jsonrpc": "2.0", "id": 2 + n, "method": "host/publish", "params": {"topic": "chain", "data": n + 1}})
"""


@pytest.mark.req("piglet.edge.29")
async def test_a_guest_may_publish_inside_its_own_handler(tmp_path: Path) -> None:
    async with open_app(tmp_path, write_bare_guest(tmp_path, HANDLER)) as app:
        async with asyncio.timeout(60.0):
            assert (await app.host.call_tool("start")).text == "2000"


@pytest.mark.req("piglet.edge.29")
async def test_two_that_answer_each_other_on_the_bus_do_not_lock_up(tmp_path: Path) -> None:
    ping = [subscribe("pong"), *(step for n in range(20) for step in (publish("ping", n), hear("pong")))]
    pong = [subscribe("ping"), note(tmp_path / "there"), *(step for n in range(20) for step in (hear("ping"), publish("pong", n)))]
    one, two = write(tmp_path, "one", tools={"ping": ping}), write(tmp_path, "two", tools={"pong": pong})
    async with open_app(tmp_path, one, two) as app, asyncio.timeout(60.0):
        other = asyncio.create_task(app.host.call_tool("pong"))
        await wait_for_note(tmp_path / "there")
        await app.host.call_tool("ping")
        await other


# -- who does not read


@pytest.mark.req("piglet.rule.bus-outbox")
async def test_who_does_not_read_holds_nobody_up_and_misses_the_oldest(tmp_path: Path) -> None:
    folders = write_listener(tmp_path), write_publisher(tmp_path)
    many = 4000
    async with open_app(tmp_path, *folders) as app:
        host = app.host
        await listen(host)
        slow, pid = host.guest("listener"), pid_of(host, "listener")
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60.0):
                for number in range(many):
                    await app.runtime.services.ask(
                        "piglet:publisher", "bus", "publish", {"topic": "alert", "data": [number, "x" * 500]}
                    )
                assert await say(host, "the last") == {"result": {}}  # the publisher has its answer, and others are served
            assert slow.state is GuestState.READY
            waiting = asyncio.create_task(read_events(host))  # a request is never dropped
            await asyncio.sleep(0)
        finally:
            os.kill(pid, signal.SIGCONT)
        data = [one["data"] if isinstance(one["data"], str) else one["data"][0] for one in await waiting]
        assert data[-1] == "the last"
        before, after = data[: len(data) - 1024], data[-1024:-1]
        assert after == list(range(many - 1023, many))  # of those that waited the newest 1024, in order
        assert before == list(range(len(before)))  # what was on the wire already
        assert len(data) < many
        remark = "of what is published not all reaches it: it does not read (limit events = 1024), or it was too long"
        assert log_of(host, "listener").count(remark) == 1
        await say(host, "afterwards")
        assert (await read_events(host))[-1]["data"] == "afterwards"


@pytest.mark.req("piglet.rule.bus-outbox")
async def test_the_answers_of_one_that_does_not_read_come_all_and_in_their_place(tmp_path: Path) -> None:
    """Events that are dropped take nothing else with them."""
    steps = [note(tmp_path / "asked"), *[ask("host/extensionsDir")] * 3]
    async with open_app(tmp_path, write_listener(tmp_path, tools={"asks": steps}), limits={**PATIENT, "events": 2}) as app:
        host = app.host
        await listen(host)
        pid = pid_of(host, "listener")
        os.kill(pid, signal.SIGSTOP)
        try:
            await flood(app, 1000, 2000)
            calls = [asyncio.create_task(host.call_tool("asks")) for _ in range(5)]
            await asyncio.sleep(0)
        finally:
            os.kill(pid, signal.SIGCONT)
        for call in calls:
            assert (await call).text.count('"path"') == 3


# -- who is gone


@pytest.mark.req("piglet.fix.32")
async def test_a_crash_ends_its_subscriptions_and_its_next_process_hears_nothing_of_them(tmp_path: Path) -> None:
    journal = tmp_path / "listener.journal"
    async with open_app(tmp_path, write_listener(tmp_path), write_publisher(tmp_path)) as app:
        host = app.host
        await listen(host)
        await listen(host)
        await say(host, 1)
        assert len(await read_events(host)) == 2
        before = pid_of(host, "listener")
        await host.call_tool("die")
        await wait_until(host, lambda: host.guest("listener").state is GuestState.READY and pid_of(host, "listener") != before)
        assert subscriptions(app, "piglet:listener") == 0
        assert await say(host, 2) == {"result": {}}
        assert await read_events(host) == []
        assert [one["data"] for one in read_params(journal, EVENT)] == [1, 1]
        await listen(host)  # and it may subscribe anew
        await say(host, 3)
        assert [one["data"] for one in await read_events(host)] == [3]


@pytest.mark.req("piglet.fix.32")
@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_publishing_to_one_that_is_gone_writes_nothing_and_fails_nobody(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_app(tmp_path, write_listener(tmp_path), write_publisher(tmp_path), limits={**PATIENT, **SLOW_RESTART}) as app:
        await listen(app.host)
        if how == "crash":
            await app.host.call_tool("die")
            await wait_for_state(app.host, "listener", GuestState.BACKING_OFF)
        else:
            await app.host.guest("listener").stop()
        assert subscriptions(app, "piglet:listener") == 0
        assert await say(app.host, 1) == {"result": {}}
    assert read_messages(tmp_path / "listener.journal", EVENT) == []
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.req("piglet.fix.32")
async def test_while_it_is_being_stopped_it_is_told_nothing_more(tmp_path: Path) -> None:
    """Its last events may take a while; the bus is over at once (spec piglet 8.0)."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    folder = write_listener(tmp_path, handlers={"slow": [note(begun), wait(go)]})
    async with open_app(tmp_path, folder, write_publisher(tmp_path), limits={**PATIENT, "flush": 30.0}) as app:
        await listen(app.host)
        await say(app.host, 1)
        await app.submit("hello")
        await wait_for_note(begun)
        stopping = asyncio.create_task(app.host.guest("listener").stop())
        await wait_until(app.host, lambda: app.host.guest("listener").state is GuestState.STOPPED)
        await say(app.host, 2)
        go.touch()
        await stopping
    assert [one["data"] for one in read_params(tmp_path / "listener.journal", EVENT)] == [1]


@pytest.mark.req("piglet.fix.32")
@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_reload_mixes_nothing(tmp_path: Path, exclusive: bool) -> None:
    """The new process has the subscriptions that it made itself, all of them and no others."""
    folder = write_listener(tmp_path)
    (folder / "guest.toml").write_text(f"exclusive = {str(exclusive).lower()}\n")
    old, new = tmp_path / "listener.journal", tmp_path / "new.journal"
    async with open_app(tmp_path, folder, write_publisher(tmp_path)) as app:
        host = app.host
        await listen(host)
        await listen(host)
        tools = {"heard": [seen(EVENT)]}
        write(tmp_path, "listener", tools=tools, at_init=[tell("log", {"message": "hi"}), subscribe("alert")], journal=new)
        before = pid_of(host, "listener")
        await host.reload("listener")
        assert pid_of(host, "listener") != before
        await asyncio.gather(*host.guest("listener")._leaving)  # the old one is gone
        assert subscriptions(app, "piglet:listener") == 1
        await say(host, 1)
        assert [one["data"] for one in await read_events(host)] == [1]
    assert read_messages(old, EVENT) == []


@pytest.mark.req("piglet.fix.32")
async def test_an_old_process_that_crashes_while_the_new_one_starts_takes_nothing_of_it_along(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    async with open_app(tmp_path, write_listener(tmp_path), write_publisher(tmp_path)) as app:
        host = app.host
        await listen(host)
        journal = tmp_path / "new.journal"
        write(
            tmp_path,
            "listener",
            tools={"heard": [seen(EVENT)]},
            at_init=[subscribe("alert"), note(begun), wait(go)],
            journal=journal,
        )
        old = pid_of(host, "listener")
        reloading = asyncio.create_task(host.reload("listener"))
        await wait_for_note(begun)
        os.kill(old, signal.SIGKILL)
        await wait_until(host, lambda: host.guest("listener").running is None)
        go.touch()
        await reloading
        await wait_for_state(host, "listener", GuestState.READY)
        assert subscriptions(app, "piglet:listener") == 1
        await say(host, 1)
        assert [one["data"] for one in await read_events(host)] == [1]


@pytest.mark.req("piglet.fix.32")
@pytest.mark.parametrize("end", [[throw("no")], [crash()]], ids=["refuses", "crashes"])
async def test_one_that_never_came_in_has_no_subscription_left(tmp_path: Path, end: list[Step]) -> None:
    folder = write(tmp_path, "listener", at_init=[subscribe("alert")], initialize=end, journal=tmp_path / "journal")
    async with open_app(tmp_path, folder, write_publisher(tmp_path)) as app:
        assert app.host.guest("listener").state is GuestState.GONE
        assert len(lines(tmp_path / "journal")) == 2  # it was asked, and its subscription answered
        await asyncio.gather(*app.host.guest("listener")._leaving)
        assert subscriptions(app, "piglet:listener") == 0
