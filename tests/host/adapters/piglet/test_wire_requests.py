"""What goes over a guest's wire when somebody gives up, asks too much, or says what nobody waits for (spec piglet 2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serai.errors import LimitHit, PeerTimeout
from serai.host.adapters.piglet import ADAPTER
from serai.host.guest import GuestState
from serai.limits import HOUR, Limits
from serai.model.contributions import Interceptor
from serai.model.provider import Model, ModelRequest
from serai.model.tools import ToolCall
from tests.support.app import apps
from tests.support.host.zot_guests import log_of, open_host
from tests.support.piglet.journals import ONE_LOOP, read_messages, read_params, wait_for_note
from tests.support.piglet.raw_guests import rpc_of
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import ask, echo, fault, note, say, seen, tell, wait

pytestmark = ONE_LOOP


# -- giving up


@pytest.mark.req("piglet.rule.cancel-outgoing", "piglet.method.$/cancelRequest")
async def test_who_gives_up_is_forgotten_tells_the_guest_and_hears_no_late_answer(tmp_path: Path) -> None:
    begun, journal = tmp_path / "begun", tmp_path / "journal"
    tools = {"slow": [note(begun), wait(), say("late")], "look": "fog", "heard": [seen("$/cancelRequest", 1)]}
    async with open_host(tmp_path, write(tmp_path, "weather", tools=tools, journal=journal)) as host:
        call = asyncio.create_task(host.call_tool("slow"))
        await wait_for_note(begun)
        rpc = rpc_of(host, "weather")
        [id] = rpc.connection._calls.waiting
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not rpc.connection._calls.waiting
        assert json.loads((await host.call_tool("heard")).text) == [{"id": id}]
        answers = [json.loads(line)["out"] for line in journal.read_text().splitlines() if '"out"' in line]
        assert read_params(journal, "$/cancelRequest") == [{"id": id}]
        while not any(message.get("id") == id for message in answers):  # it answers all the same
            await asyncio.sleep(0.002)
            answers = [json.loads(line)["out"] for line in journal.read_text().splitlines() if '"out"' in line]
        assert (await host.call_tool("look")).text == "fog"  # behind that answer on the wire
        assert f"an answer to {id!r}, which nobody waits for" in log_of(host, "weather")
        assert host.guest("weather").state is GuestState.READY


@pytest.mark.req("piglet.method.$/cancelRequest")
async def test_a_guest_that_gives_up_ends_what_is_done_for_it(tmp_path: Path) -> None:
    begun, over, go = tmp_path / "begun", tmp_path / "over", tmp_path / "go"
    folder = write(tmp_path, "weather", tools={"call": [ask("host/executeTool", {"name": "slow", "args": {}}, cancel_when=go)]})
    other = write(tmp_path, "other", tools={"slow": [note(begun), wait(), note(over)]})
    async with apps.open_app(tmp_path, folder, other) as app:
        call = asyncio.create_task(app.host.call_tool("call"))
        await wait_for_note(begun)
        go.touch()
        answer = json.loads((await call).text)
        assert answer["error"]["code"] == -32603
        assert "cancelled: context canceled" in answer["error"]["message"]
        await wait_for_note(over)  # the other's handler was told so, too


@pytest.mark.req("piglet.edge.08", "piglet.edge.37")
async def test_what_nobody_waits_for_is_ignored(tmp_path: Path) -> None:
    """Cancellations of what is over or never was, answers to nothing, deltas of no stream."""
    strange = [
        ask("host/extensionsDir", quiet=True),
        tell("$/cancelRequest", {"id": 1}),  # answered already
        tell("$/cancelRequest", {"id": 4711}),
        tell("$/cancelRequest", {"id": "nobody"}),
        tell("$/cancelRequest", {"id": None}),
        tell("$/cancelRequest", {}),
        tell("$/cancelRequest"),
        fault("stranger"),
        fault("raw", line='{"jsonrpc":"2.0","id":4711,"error":{"code":1,"message":"for nobody"}}'),
        fault("raw", line='{"jsonrpc":"2.0","id":4712}'),
        tell("provider/delta", {"requestId": 999, "type": "text_delta", "delta": "for nobody"}),
        tell("provider/delta", {"requestId": -1, "type": "unheard of"}),
        tell("eventBus/event", {"topic": "x", "subscriptionId": 12, "data": 1}),
        say("still here"),
    ]
    async with open_host(tmp_path, write(tmp_path, "weather", tools={"odd": strange}, at_init=strange[:-1])) as host:
        for _ in range(2):
            assert (await host.call_tool("odd")).text == "still here"
        guest = host.guest("weather")
        assert (guest.generation, guest.error, host.report.to_lines()) == (1, None, [])


@pytest.mark.req("piglet.edge.08")
async def test_a_guest_that_answered_before_it_was_cancelled_is_told_nothing_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is cancelled in the moment in which the answer is there."""
    journal = tmp_path / "journal"
    async with open_host(tmp_path, write(tmp_path, "weather", tools={"look": "fog"}, journal=journal)) as host:
        rpc = rpc_of(host, "weather")
        usual = rpc.handle_run

        def received(run: bytes) -> None:
            usual(run)
            call.cancel()

        monkeypatch.setattr(rpc, "handle_run", received)
        call = asyncio.create_task(host.call_tool("look"))
        with pytest.raises(asyncio.CancelledError):
            await call
        monkeypatch.undo()
        assert (await host.call_tool("look")).text == "fog"
        assert read_messages(journal, "$/cancelRequest") == []


# -- much at once


@pytest.mark.req("piglet.edge.31")
@pytest.mark.parametrize("sdk", ["go", "typescript"])
async def test_long_messages_get_through_both_ways_at_once(tmp_path: Path, sdk: Any) -> None:
    """Neither pipe holds one of them: who stops reading while it writes would wait for ever."""
    flood = tell("log", {"level": "debug", "message": "y" * 300_000})
    tools = {"echo": offer([flood, echo(), flood], parameters={"type": "object"})}
    async with open_host(tmp_path, write(tmp_path, "weather", sdk=sdk, tools=tools)) as host:
        texts = [f"{number}" + "x" * 1_000_000 for number in range(8)]
        results = await asyncio.wait_for(asyncio.gather(*(host.call_tool("echo", {"text": text}) for text in texts)), 60)
        assert [json.loads(result.text)["args"]["text"] for result in results] == texts


# -- time-outs


@pytest.mark.req("piglet.rule.timeout-callbacks")
async def test_every_callback_has_its_time(tmp_path: Path) -> None:
    limits = Limits().but(**ADAPTER.limits)
    assert (limits.intercept, limits.inject, limits.transform, limits.shortcut, limits.event) == (30.0, 10.0, 10.0, 60.0, 60.0)
    assert (limits.tool, limits.command, limits.provider) == (HOUR, HOUR, HOUR)
    journal = tmp_path / "journal"
    folder = write(
        tmp_path,
        "mute",
        tools={"mute": [wait()], "look": "fog"},
        commands={"mute": [wait()]},
        interceptors={"gate": interceptor(before=[wait()], after=[wait()])},
        hooks={"clock": [wait()]},
        transformers={"alias": [wait()]},
        shortcuts={"ctrl+g": [wait()]},
        handlers={"meter": offer([wait()], events=["EventTurnStart"])},
        providers={"acme": [wait()]},
        compactor=[wait()],
        journal=journal,
    )
    names = ("tool", "command", "intercept", "inject", "transform", "shortcut", "event", "provider", "compact")
    async with open_host(tmp_path, folder, limits=dict.fromkeys(names, 0.2)) as host:
        guest: Any = host.guest("mute").running
        gate, call = Interceptor("gate", frozenset({"tool_call"})), ToolCall("look", {})

        async def stream() -> None:
            async for _ in guest.stream("acme", ModelRequest(Model("m", "acme", api="acme"), ())):
                pass

        asked: dict[str, Callable[[], Awaitable[Any]]] = {
            "tool": lambda: guest.call_tool(ToolCall("mute", {})),
            "command": lambda: guest.run_command("mute", ""),
            "intercept": lambda: guest.intercept(gate, "tool_call", call),
            "inject": lambda: guest.inject("text"),
            "transform": lambda: guest.transform("text"),
            "shortcut": lambda: guest.run_shortcut("ctrl+g"),
            "event": lambda: guest._dispatch("EventTurnStart", {}),
            "compact": lambda: guest.compact(()),
        }
        outcomes = await asyncio.gather(*(ask() for ask in asked.values()), stream(), return_exceptions=True)
        for name, outcome in zip(asked, outcomes, strict=False):
            assert isinstance(outcome, PeerTimeout), (name, outcome)
            assert outcome.limit == LimitHit(name, 0.2)
        streamed = outcomes[-1]
        assert isinstance(streamed, Exception)
        assert "limit provider = 0.2" in str(streamed)
        taken_back = {one["id"] for one in read_params(journal, "$/cancelRequest")}
        while len(taken_back) < len(outcomes):
            await asyncio.sleep(0.002)
            taken_back = {one["id"] for one in read_params(journal, "$/cancelRequest")}
        assert taken_back == {one["id"] for one in read_messages(journal) if "id" in one} - {1}
        assert host.guest("mute").state is GuestState.READY
