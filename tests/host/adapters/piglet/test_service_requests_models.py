"""Host services over the wire: calls of a model, private agents, and which models there are."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from serai.model.actions import SetStatus
from serai.model.events import SessionStarted
from serai.testing.models.server import FakeModels
from tests.support.piglet.journals import ONE_LOOP, read_params, write_models
from tests.support.piglet.service_clients import open_client
from tests.support.piglet_guests.guest_folder import offer
from tests.support.piglet_guests.steps import echo, throw

pytestmark = ONE_LOOP

MODELS = """\
[[models]]
id = "m1"
name = "M One"
provider = "acme"
api = "acme-api"
base_url = "http://127.0.0.1:9/v1"
context_window = 8000
max_tokens = 500
cost = { input = 1.0, output = 2.0 }

[[models]]
id = "bad"
provider = "acme"
api = "broken-api"
"""
# What streams the models of acme: one says what it was asked, the other fails with what another attempt might mend.
PROVIDERS = {"acme-api": [echo()], "broken-api": [throw("overloaded")]}


@pytest.mark.req("piglet.method.host/chat")
async def test_a_chat_is_one_call_without_tools_and_leaves_nothing(tmp_path: Path) -> None:
    write_models(tmp_path, MODELS)
    said = [
        {"role": "odd", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    async with open_client(tmp_path, offers={"providers": PROVIDERS}) as host:
        await host.app.submit(">> say earlier")
        before = (await host("conversationMessages"), host.entries())
        answer = await host("chat", system="Title it", messages=said, model="acme/m1", maxTokens=30)
        assert (set(answer), answer["usage"]) == ({"text", "usage"}, {"input": 5, "output": 1})
        asked = json.loads(answer["text"])
        assert (asked["system"], asked["model"]["id"], asked["options"]["maxTokens"]) == ("Title it", "m1", 30)
        assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "user"]
        assert asked["messages"][0]["content"] == "a"
        assert "tools" not in asked
        default = await host("chat", messages=[{"content": ">> say Hello"}])
        assert default["text"] == "Hello"
        assert min(default["usage"].values()) > 0
        failed = await host.fails("chat", messages=said, model="acme/bad")
        assert (failed[0], failed[1].startswith("chat error: acme/bad: "), "overloaded" in failed[1]) == (-32603, True, True)
        assert [one["model"]["id"] for one in read_params(host.journal, "provider/stream")] == ["m1", "bad"]  # once each
        for model, why in (("zap", "unknown model: zap"), ("acme/zap", "unknown model: acme/zap")):
            assert await host.fails("chat", messages=said, model=model) == (-32603, f"resolve provider: {why}")
        assert (await host("conversationMessages"), host.entries()) == before


@pytest.mark.req("piglet.method.host/agent.run")
@pytest.mark.req("piglet.fix.29")
async def test_a_private_agent_works_and_leaves_nothing(tmp_path: Path) -> None:
    write_models(tmp_path, MODELS)
    async with open_client(tmp_path, offers={"providers": PROVIDERS, "handlers": ["meter"]}) as host:
        (tmp_path / "project" / "a.txt").write_text("four")
        before = host.entries()
        task = '>> say one\n>> call read {"path": "a.txt"}\n>> say two'
        answer = await host("agent.run", task=task, maxTurns=0)
        assert (set(answer), answer["text"], answer["turns"]) == ({"text", "turns", "usage"}, "one\ntwo", 2)
        single = await host("agent.run", task=">> say one")
        assert answer["usage"]["input"] > single["usage"]["input"] > 0  # summed
        asked = json.loads((await host("agent.run", task="count", system="Be brief.", model="acme/m1"))["text"])
        assert asked["system"].startswith("Be brief.")
        assert [tool["name"] for tool in asked["tools"]] == ["find", "grep", "read"]
        asked = json.loads((await host("agent.run", task="count", tools="all", model="acme/m1"))["text"])
        assert {"ask", "host", "write"} & {tool["name"] for tool in asked["tools"]} == {"host", "write"}
        work = '>> call write {"path": "b.txt", "content": "x"}\n>> say $results'
        assert "unknown tool: write" in (await host("agent.run", task=work, tools="background_safe"))["text"]
        assert not (tmp_path / "project" / "b.txt").exists()
        await host("agent.run", task=work, tools="all")
        assert (tmp_path / "project" / "b.txt").read_text() == "x"
        steps = "\n".join(f'>> say {step}\n>> call read {{"path": "a.txt"}}' for step in range(31))
        for most, turns in ((2, 2), (0, 30), (-1, 30)):
            assert (await host("agent.run", task=steps, maxTurns=most))["turns"] == turns
        code, why = await host.fails("agent.run", task=">> fail 500 out of order")
        assert (code, why.startswith("agent error: parrot/parrot: "), "out of order" in why) == (-32603, True, True)
        assert host.entries() == before
        assert await host("conversationMessages") == {"messages": []}
        assert not [event for event in host.person.events if not isinstance(event, SessionStarted)]
        await host.app.submit(">> say Hello")  # events of this one are told, behind all others
        await host("extensionsDir")
    told = [one["data"] for one in read_params(tmp_path / "journal", "event/dispatch") if one["type"] == "EventMessagePre"]
    assert told == [{"Content": ">> say Hello"}]


@pytest.mark.req("piglet.method.host/availableModels")
@pytest.mark.req("piglet.method.host/switchModel")
async def test_another_model_is_chosen_and_streams_the_next_turn(tmp_path: Path) -> None:
    write_models(tmp_path, MODELS)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = {"forecast": offer("fog", parameters=schema, deferred=True)}
    async with open_client(tmp_path, offers={"providers": PROVIDERS, "tools": tools}) as host:
        models = (await host("availableModels"))["models"]
        assert [(one["provider"], one["id"]) for one in models] == sorted((one["provider"], one["id"]) for one in models)
        assert models[:2] == [
            {"id": "bad", "api": "broken-api", "displayName": "acme/bad", "provider": "acme", "current": False},
            {
                "id": "m1", "api": "acme-api", "displayName": "acme/M One", "provider": "acme", "contextWindow": 8000,
                "maxTokens": 500, "costInput": 1.0, "costOutput": 2.0, "current": False,
            },
        ]  # fmt: skip
        assert {one.get("reasoning") for one in models} == {True, None}
        assert await _current(host) == ["parrot/parrot"]

        assert await host("switchModel", modelId="acme/m1") == {}
        assert await _current(host) == ["acme/m1"]
        assert [one for one in host.person.actions if isinstance(one, SetStatus)] == [SetStatus("model", "acme/M One")]
        assert not (tmp_path / "home" / "config.toml").exists()
        await host.app.submit("hello")
        [streamed] = read_params(host.journal, "provider/stream")
        assert streamed["model"]["id"] == "m1"
        [told] = [tool for tool in streamed["tools"] if tool["name"] == "forecast"]
        assert "properties" not in (told["parameters"] or {})  # this machine serves it: told anew, as a small model is
        assert [one["data"]["model"] for one in host.entries() if one["type"] == "assistant"] == ["m1"]

        assert await host("switchModel", modelId="parrot/parrot", persistDefault=True) == {}
        assert tomllib.loads((tmp_path / "home" / "config.toml").read_text()) == {"default_model": "parrot/parrot"}
        for none in ({}, {"modelId": ""}):
            assert (await host.fails("switchModel", **none))[1] == "modelId is required"
        for unknown in ("m1", "acme/M One", "acme/zap"):  # the exact key
            assert await host.fails("switchModel", modelId=unknown) == (-32603, f"switch model: unknown model: {unknown}")
        assert await _current(host) == ["parrot/parrot"]


async def _current(host: Any) -> list[str]:
    return [f"{one['provider']}/{one['id']}" for one in (await host("availableModels"))["models"] if one["current"]]


@pytest.mark.req("piglet.method.host/syncModels")
async def test_models_are_read_anew_and_servers_of_this_machine_asked(tmp_path: Path) -> None:
    async with FakeModels() as server, open_client(tmp_path) as host:
        before = (await host("syncModels"))["updated"]
        assert before == len((await host("availableModels"))["models"])
        write_models(tmp_path, f'[[models]]\nid = "m1"\nprovider = "here"\nbase_url = "{server.url}/v1"\n')
        assert await host("syncModels") == {"updated": before + 3}
        found = [one["id"] for one in (await host("availableModels"))["models"] if one["provider"] == "here"]
        assert found == ["fake-1", "fake-small-1", "m1"]


@pytest.mark.req("piglet.method.host/writeModels")
async def test_what_is_known_of_models_is_changed_and_counts_at_once(tmp_path: Path) -> None:
    file = write_models(tmp_path, MODELS)
    async with open_client(tmp_path) as host:
        overrides = {
            "acme/m1": {"name": "", "contextWindow": 16000, "maxTokens": 0},
            "parrot/parrot": {"name": "Grey parrot", "maxTokens": 7},
        }
        assert await host("writeModels", overrides=overrides) == {"modelsWritten": 3}  # of `acme/bad` it says something too
        models = {f"{one['provider']}/{one['id']}": one for one in (await host("availableModels"))["models"]}
        assert (models["acme/m1"]["displayName"], models["acme/m1"]["contextWindow"], models["acme/m1"]["maxTokens"]) == (
            "acme/M One", 16000, 500
        )  # fmt: skip
        assert (models["parrot/parrot"]["displayName"], models["parrot/parrot"]["maxTokens"]) == ("parrot/Grey parrot", 7)
        written = file.read_text()
        assert written.startswith(MODELS)  # what the person wrote stays
        assert "16000" in written
        assert await host.fails("writeModels", overrides={"no/no": {}}) == (-32603, "write models: unknown model: no/no")
        assert file.read_text() == written
