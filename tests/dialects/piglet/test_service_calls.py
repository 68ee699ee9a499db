"""Every method `host/*` in a real app: a guest's JSON in, the answer's JSON out, by the table and the service behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.app.app import App
from serai.app.services.default_groups import build_default_groups
from serai.dialects.piglet import service_calls
from serai.dialects.piglet.messages import CompactMessage
from serai.dialects.piglet.methods import METHODS, Method, decode_params, decode_result
from serai.dialects.piglet.service_calls import (
    NOTIFICATIONS,
    SERVICES,
    build_call,
    build_error,
    build_result,
    describe_cancelled,
    describe_expired,
    find_fallback,
    get_timeout,
)
from serai.dialects.piglet.service_messages import HostAuthGetKeyResult, HostSetConversationMessagesParams, Nothing
from serai.errors import (
    BadRequest,
    BadSettings,
    LimitHit,
    ModelFailed,
    NoEntry,
    NoModel,
    NoSession,
    NoSnapshot,
    NotCapable,
    NoTool,
    NotWritten,
    PeerTimeout,
    Refused,
    SeraiError,
)
from serai.host.adapter import NoServices
from serai.limits import Limits
from serai.model.actions import SetStatus
from serai.model.approvals import Answer
from serai.model.contributions import (
    Command,
    Compactor,
    Contributions,
    EventHandler,
    Interceptor,
    MessageHook,
    PromptSection,
    Shortcut,
)
from serai.model.events import SessionStarted
from serai.model.provider import ModelMessage
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.wire import codec
from tests.support.app.apps import Helper, Person, bring, open_app
from tests.support.app.service_requests import EVERYTHING

Monkey = pytest.MonkeyPatch
GUEST = "fake:weather"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
HOST_METHODS = {method for method in METHODS if method.startswith("host/")}
OFFERS = Contributions(
    tools=(ToolSpec("forecast", "Weather of a city", SCHEMA, deferred=True),),
    commands=(Command("alarm", "Wakes up"),),
    interceptors=(Interceptor("gate", frozenset({"tool_call"})),),
    event_handlers=(EventHandler("meter"),),
    prompt_sections=(PromptSection("Units", "metric", 50, 12), PromptSection("Tone", "kind", 10)),
    shortcuts=(Shortcut("ctrl+g", "Refresh"),),
    message_hooks=(MessageHook("clock"),),
    compactors=(Compactor("digest", 50_000),),
)


class Failed(Exception):
    """The request was answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


class Host:
    """The host as one guest sees it, without the wire."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, method: str, /, **params: Any) -> Any:
        name = f"host/{method}"
        ask = build_call(name, decode_params(name, msgspec.json.encode(params)))
        try:
            result = build_result(name, await self.app.runtime.services.ask(GUEST, *ask))
        except SeraiError as error:
            found = find_fallback(name, error)
            if found is None:
                raise Failed(*build_error(name, error)) from error
            result = found
        line = codec.encode(result)
        assert decode_result(name, line) == result  # the types are what they say, all the way down
        return msgspec.json.decode(line)

    async def fails(self, method: str, /, **params: Any) -> tuple[int, str]:
        with pytest.raises(Failed) as failed:
            await self(method, **params)
        return failed.value.code, failed.value.message


class Weather(Helper):
    """A guest with one of each, whose tool answers with all kinds of content."""

    def __init__(self, **choices: Any) -> None:
        super().__init__("weather", **{"offers": OFFERS, "inject": lambda _text: "", **choices})

    async def call_tool(self, call: ToolCall) -> ToolResult:
        blocks = (TextBlock("fog"), ImageBlock(b"png", "image/png"), OtherBlock("map", {"z": 1}))
        return ToolResult(blocks, details={"for": "people"}) if call.arguments else ToolResult.error("[error:NO_CITY] which?")


@asynccontextmanager
async def open_service_host(monkeypatch: Monkey, tmp_path: Path, **choices: Any) -> AsyncIterator[Host]:
    bring(monkeypatch, tmp_path, Weather())
    async with open_app(tmp_path, **choices) as app:
        app.runtime.services.granted = lambda _: EVERYTHING
        yield Host(app)


# -- the table


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert len(SERVICES) == 52
    assert set(SERVICES) == HOST_METHODS
    assert set(NOTIFICATIONS) == {"sendMessage", "steer", "abort", "abortWithMarker"}


# Every parameter that there is.
PARAMS: dict[str, dict[str, Any]] = {
    "host/listTools": {"filter": "all"},
    "host/executeTool": {"name": "read", "args": {"path": "a"}, "callId": "c9"},
    "host/activateTool": {"name": "zap"},
    "host/setToolFilter": {"names": ["read"]},
    "host/config.get": {"keys": ["defaultModel"]},
    "host/config.readExtension": {"name": "weather"},
    "host/auth.getKey": {"provider": "acme"},
    "host/chat": {"messages": [{"role": "user", "content": "hi"}], "system": "s", "model": "small", "maxTokens": 30},
    "host/agent.run": {"task": "t", "system": "s", "tools": "all", "model": "small", "maxTurns": 3},
    "host/setConversationMessages": {"messages": [{"type": "user", "data": {"content": "x"}}]},
    "host/loadSession": {"path": "p"},
    "host/setSessionTitle": {"title": "t"},
    "host/appendSessionEntry": {"kind": "ext:a:b", "data": {"n": 1}},
    "host/appendCustomMessage": {"role": "user", "content": "c"},
    "host/setLabel": {"targetId": "a1", "label": "good"},
    "host/branchSession": {"entryId": "a1"},
    "host/branchSessionWithSummary": {"entryId": "a1", "summary": "s"},
    "host/switchModel": {"modelId": "acme/m1", "persistDefault": True},
    "host/writeModels": {"overrides": {"acme/m1": {"name": "n", "contextWindow": 1, "maxTokens": 2}}},
    "host/runBackground": {"prompt": "p"},
    "host/showPicker": {"title": "t", "items": [{"id": "b", "label": "Bern", "desc": "CH"}]},
    "host/askUser": {"prompt": "p", "choices": ["yes"]},
    "host/publish": {"topic": "t", "data": [1]},
    "host/undoRestore": {"path": "p"},
    "sendMessage": {"content": "c"},
    "steer": {"content": "c"},
    "abortWithMarker": {"reason": "r"},
}


async def test_every_row_leads_to_an_operation_and_all_that_a_guest_says_gets_there(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        groups = build_default_groups(host.app)
        for method in sorted(HOST_METHODS - {Method.HOST_SUBSCRIBE}) + sorted(NOTIFICATIONS):
            given = PARAMS.get(method, {})
            typed = decode_params(method, msgspec.json.encode(given))
            assert len(given) == len(typed.__struct_fields__), method
            ask = (build_call if method in SERVICES else service_calls.build_notification_call)(method, typed)
            takes = groups[ask.group].operations[ask.what].takes
            assert set(ask.arguments) <= set(takes.__struct_fields__), method
            assert method == Method.HOST_TRIGGER_COMPACT or len(ask.arguments) == len(given)
            msgspec.convert(ask.arguments, takes)


@pytest.mark.req("piglet.fix.28")
def test_what_is_only_done_is_answered_with_an_empty_object() -> None:
    void = {method for method in HOST_METHODS if METHODS[method].result is Nothing}
    assert {"host/loadSession", "host/setSessionTitle", "host/appendSessionEntry", "host/appendCustomMessage", "host/setLabel",
            "host/branchSession", "host/branchSessionWithSummary", "host/runBackground"} <= void  # fmt: skip
    for method in void:
        assert codec.encode(build_result(method, {"id": "of no interest"})) == b"{}\n"


# -- tools


@pytest.mark.req("piglet.method.host/listTools")
@pytest.mark.req("piglet.method.host/toolDefs")
async def test_tools_are_told_by_name_with_all_of_their_schema(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        every = (await host("listTools"))["tools"]
        names = [tool["name"] for tool in every]
        assert names == sorted(names)
        assert {"name": "forecast", "description": "Weather of a city", "parameters": SCHEMA, "deferred": True} in every
        assert all(set(tool) == {"name", "description", "parameters"} for tool in every if tool["name"] != "forecast")
        assert (await host("listTools", filter="nonsense"))["tools"] == every
        safe = [tool["name"] for tool in (await host("listTools", filter="background_safe"))["tools"]]
        assert "read" in safe
        assert not {"forecast", "write"} & set(safe)
        assert (await host("toolDefs"))["tools"] == [{key: tool[key] for key in ("name", "description")} for tool in every]


@pytest.mark.req("piglet.method.host/executeTool")
async def test_a_tool_is_run_as_if_an_agent_had_called_it(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert await host("executeTool", name="forecast", args={"city": "Bern"}, callId="c9") == {
            "content": [
                {"type": "text", "text": "fog"},
                {"type": "image", "data": "cG5n", "mime": "image/png"},
                {"type": "text", "text": '{"z":1}'},
            ]
        }
        failed = await host("executeTool", name="forecast", args=None)
        assert (failed["isError"], failed["errorCode"]) == (True, "NO_CITY")
        assert await host.fails("executeTool", name="zap") == (-32604, "unknown tool: zap")
    async with open_service_host(monkeypatch, tmp_path, mode="manual") as host:
        denied = await host("executeTool", name="write", args={"path": "a.txt", "content": "x"})
        assert (denied["isError"], denied["errorCode"]) == (True, "PERMISSION_DENIED")
        assert not (tmp_path / "project" / "a.txt").exists()


@pytest.mark.req("piglet.method.host/activateTool")
@pytest.mark.req("piglet.method.host/setToolFilter")
async def test_what_the_agent_is_offered_is_chosen(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        tools = host.app.resident.tools

        def told() -> dict[str, Any]:
            return {tool.name: tool.schema for tool in tools.list_specs(compact=True)}

        assert "properties" not in told()["forecast"]
        assert await host("activateTool", name="forecast") == {}
        assert told()["forecast"] == SCHEMA
        for name in ("read", "zap"):
            assert await host.fails("activateTool", name=name) == (-32604, f"tool not found or not deferred: {name}")
        assert await host("setToolFilter", names=["read", "bash"]) == {}
        assert set(told()) == {"read", "bash"}
        for none in (list[str](), None):
            await host("setToolFilter", names=["read"])
            assert await host("setToolFilter", names=none) == {}
            assert len(told()) > 2


# -- settings and keys


@pytest.mark.req("piglet.method.host/config.get")
async def test_known_settings_are_told_as_they_are_now(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path, limits=None) as host:
        keys = ["defaultModel", "smallModel", "agent.compactAt", "agent.maxTurns", "nope"]
        values = (await host("config.get", keys=keys))["values"]
        assert values == {
            "defaultModel": "parrot/parrot", "smallModel": "parrot/parrot", "agent.compactAt": 0, "agent.maxTurns": 30
        }  # fmt: skip
        (tmp_path / "home" / "config.toml").write_text("[limits]\nsteps = 7\n")
        assert await host("config.get", keys=["agent.maxTurns"]) == {"values": {"agent.maxTurns": 7}}
        assert await host("config.get") == await host("config.get", keys=None) == {"values": {}}


@pytest.mark.req("piglet.method.host/config.readExtension")
@pytest.mark.req("piglet.method.host/extensionsDir")
async def test_a_guest_finds_its_own_file_in_the_folder_of_extensions(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        folder = Path((await host("extensionsDir"))["path"])
        assert folder == tmp_path / "home" / "extensions"
        assert await host("config.readExtension", name="weather") == {"content": ""}
        (tmp_path / "home" / "weather.md").write_text(" metric\n")
        assert await host("config.readExtension", name="weather") == {"content": "metric"}
        assert (folder / "weather" / "weather.md").read_text() == " metric\n"
        (folder / "weather" / "weather.md").write_text("imperial")
        assert await host("config.readExtension", name="weather") == {"content": "imperial"}
        assert await host.fails("config.readExtension", name="a/b") == (
            -32603,
            'read extension config: invalid extension name: "a/b"',
        )


@pytest.mark.req("piglet.method.host/auth.getKey")
async def test_a_key_that_is_not_to_be_had_is_an_empty_one(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Weather(keys=("acme",)))
    environ = {"SERAI_HOME": str(tmp_path / "home"), "PATH": os.defpath, "ACME_API_KEY": "sk-acme", "OPENAI_API_KEY": "sk-openai"}
    async with open_app(tmp_path, environ=environ) as app:
        host = Host(app)
        keys = [(await host("auth.getKey", provider=provider))["key"] for provider in ("acme", "openai", "nobody", "")]
        assert keys == ["sk-acme", "", "", ""]
    bring(monkeypatch, tmp_path, Weather())
    async with open_app(tmp_path, environ=environ) as app:
        assert await Host(app)("auth.getKey", provider="acme") == {"key": ""}
    assert "sk-acme" not in repr(HostAuthGetKeyResult("sk-acme"))


# -- models


@pytest.mark.req("piglet.method.host/chat")
async def test_one_call_of_a_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        said = [{"role": "odd", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": ">> say Hello"}]
        answer = await host("chat", system="s", messages=said, model="default", maxTokens=30)
        assert (answer["text"], set(answer["usage"])) == ("Hello", {"input", "output"})
        assert await host("conversationMessages") == {"messages": []}
        asked = {"messages": said[-1:]}
        assert await host.fails("chat", **asked, model="zap") == (-32603, "resolve provider: unknown model: zap")
        assert await host.fails("chat", messages=[]) == (-32603, "chat error: messages must not be empty")
        failure = ">> fail 500 out of order"
        code, why = await host.fails("chat", messages=[{"role": "user", "content": failure}])
        assert code == -32603
        assert why.startswith("chat error: parrot/parrot: ")


@pytest.mark.req("piglet.method.host/agent.run")
@pytest.mark.req("piglet.fix.29")
async def test_a_private_agent(monkeypatch: Monkey, tmp_path: Path) -> None:
    person = Person()
    async with open_service_host(monkeypatch, tmp_path, surface=person) as host:
        (tmp_path / "project" / "a.txt").write_text("four")
        task = '>> say one\n>> call read {"path": "a.txt"}\n>> say two'
        answer = await host("agent.run", task=task, system="s", maxTurns=0)
        assert (answer["text"], answer["turns"]) == ("one\ntwo", 2)
        assert answer["usage"]["input"] > 0
        assert not [event for event in person.events if not isinstance(event, SessionStarted)]
        assert await host("conversationMessages") == {"messages": []}
        task = '>> call write {"path": "b.txt", "content": "x"}\n>> say $results'
        assert "unknown tool: write" in (await host("agent.run", task=task))["text"]
        await host("agent.run", task=task, tools="all")
        assert (tmp_path / "project" / "b.txt").read_text() == "x"
        code, why = await host.fails("agent.run", task=">> fail 500 out of order")
        assert code == -32603
        assert why.startswith("agent error: parrot/parrot: ")


@pytest.mark.req("piglet.method.host/availableModels")
@pytest.mark.req("piglet.method.host/switchModel")
async def test_another_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    described = '[[models]]\nid = "m1"\nname = "M One"\nprovider = "acme"\napi = "parrot"\ncontext_window = 8000\n'
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text(described)
    person = Person()
    async with open_service_host(monkeypatch, tmp_path, surface=person) as host:
        models = (await host("availableModels"))["models"]
        assert models[0] == {
            "id": "m1", "api": "parrot", "displayName": "acme/M One", "provider": "acme", "current": False, "contextWindow": 8000
        }  # fmt: skip
        assert [(model["provider"], model["id"]) for model in models] == sorted((one["provider"], one["id"]) for one in models)
        assert [model["id"] for model in models if model["current"]] == ["parrot"]
        assert await host("switchModel", modelId="acme/m1", persistDefault=True) == {}
        assert [model["id"] for model in (await host("availableModels"))["models"] if model["current"]] == ["m1"]
        assert [(one.key, one.text) for one in person.actions if isinstance(one, SetStatus)] == [("model", "acme/M One")]
        assert (tmp_path / "home" / "config.toml").read_text() == 'default_model = "acme/m1"\n'
        assert await host.fails("switchModel") == (-32603, "modelId is required")
        assert await host.fails("switchModel", modelId="m1") == (-32603, "switch model: unknown model: m1")


@pytest.mark.req("piglet.method.host/syncModels")
@pytest.mark.req("piglet.method.host/writeModels")
async def test_what_is_known_of_models_is_counted_and_changed(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        before = (await host("syncModels"))["updated"]
        assert before == len((await host("availableModels"))["models"])
        override = {"parrot/parrot": {"name": "", "contextWindow": 16000, "maxTokens": 0}}
        assert await host("writeModels", overrides=override) == {"modelsWritten": 1}
        [parrot] = [model for model in (await host("availableModels"))["models"] if model["id"] == "parrot"]
        assert parrot["contextWindow"] == 16000
        assert await host.fails("writeModels", overrides={"no/no": {}}) == (-32603, "write models: unknown model: no/no")
        assert await host("syncModels") == {"updated": before}


# -- the conversation


@pytest.mark.req("piglet.method.host/conversationMessages")
@pytest.mark.req("piglet.method.host/setConversationMessages")
@pytest.mark.req("piglet.method.host/llmSnapshot")
@pytest.mark.req("piglet.method.host/lastAssistantText")
@pytest.mark.req("piglet.method.host/sessionStats")
@pytest.mark.req("piglet.edge.18")
async def test_the_conversation_is_looked_at_and_replaced_in_memory_alone(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert await host("lastAssistantText") == {"text": ""}
        await host.app.submit(">> say Hello")
        said = (await host("conversationMessages"))["messages"]
        assert [message["role"] for message in said] == ["user", "assistant"]
        assert await host("lastAssistantText") == {"text": "Hello"}
        stats = await host("sessionStats")
        assert set(stats) == {
            "turnCount", "model", "totalCost",
            "totalInputTokens", "totalOutputTokens", "totalCacheReadTokens", "totalCacheWriteTokens",
        }  # fmt: skip
        assert (stats["turnCount"], stats["model"], stats["totalOutputTokens"] > 0) == (1, "parrot/parrot", True)
        await host("setToolFilter", names=["read", "bash"])
        snapshot = await host("llmSnapshot")
        assert (len(snapshot["messages"]), [tool["name"] for tool in snapshot["tools"]]) == (2, ["bash", "read"])
        assert "# Units" in snapshot["system"]
        fresh = [{"type": "user", "data": {"content": "fresh"}}, {"type": "odd", "data": 1}]
        assert await host("setConversationMessages", messages=fresh) == {}
        assert [one["content"] for one in (await host("conversationMessages"))["messages"]] == ["fresh"]
        code, why = await host.fails("setConversationMessages", messages=[{"type": "user", "data": 1}])
        assert (code, why.startswith("invalid params: messages[0] is no message: ")) == (-32602, True)
        assert await host("setConversationMessages", messages=None) == {}
        assert await host("conversationMessages") == {"messages": []}
        assert len((await host("sessionEntryInfos"))["entries"]) >= 2  # as it was


@pytest.mark.req("piglet.method.host/conversationMessages")
@pytest.mark.req("piglet.method.host/toggleStepMode")
def test_without_an_agent_of_ours_there_is_nothing_to_show_and_that_is_no_error() -> None:
    error = NotCapable("only the resident's conversation is ours to look into", who="claude")
    shown = {method: codec.encode(found) for method in HOST_METHODS if (found := find_fallback(method, error)) is not None}
    assert shown == {
        "host/conversationMessages": b'{"messages":null}\n',
        "host/lastAssistantText": b'{"text":""}\n',
        "host/toggleStepMode": b'{"on":false}\n',
        "host/auth.getKey": b'{"key":""}\n',
    }
    assert [method for method in HOST_METHODS if find_fallback(method, Refused("no"))] == ["host/auth.getKey"]


# -- sessions


@pytest.mark.req("piglet.method.host/sessions")
@pytest.mark.req("piglet.method.host/forkSession")
@pytest.mark.req("piglet.method.host/loadSession")
@pytest.mark.req("piglet.method.host/setSessionTitle")
@pytest.mark.req("piglet.method.host/sessionTitle")
async def test_sessions_are_listed_forked_and_loaded(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert await host("sessionTitle") == {"title": ""}
        assert await host("setSessionTitle", title="Trip") == {}
        assert await host("sessionTitle") == {"title": "Trip"}
        await host.app.submit(">> say Hello")
        [first] = (await host("sessions"))["sessions"]
        assert (first["title"], first["cwd"], set(first)) == (
            "Trip", str(tmp_path / "project"), {"id", "title", "cwd", "createdAt", "path"}
        )  # fmt: skip
        assert len(first["createdAt"]) == len("2026-02-03T10:00:00Z")
        assert await host("forkSession") == {"parentID": first["id"], "messageCount": 2}
        newest, oldest = (await host("sessions"))["sessions"]
        assert (newest["parentId"], oldest["id"]) == (first["id"], first["id"])
        await host("resetSessionLeaf")
        assert await host("loadSession", path=first["path"]) == {}
        assert await host("lastAssistantText") == {"text": "Hello"}
        outside = tmp_path / "else.jsonl"
        outside.write_bytes(Path(first["path"]).read_bytes())
        code, why = await host.fails("loadSession", path=str(outside))
        assert (code, why) == (-32603, f"load session: {outside} is no session of this person")


@pytest.mark.req("piglet.method.host/appendSessionEntry")
@pytest.mark.req("piglet.method.host/appendCustomMessage")
@pytest.mark.req("piglet.method.host/setLabel")
@pytest.mark.req("piglet.method.host/branchSession")
@pytest.mark.req("piglet.method.host/branchSessionWithSummary")
@pytest.mark.req("piglet.method.host/resetSessionLeaf")
@pytest.mark.req("piglet.method.host/sessionEntryInfos")
@pytest.mark.req("piglet.method.host/sessionFullTree")
async def test_a_session_is_written_to_and_branched(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert host.app.runtime.current is not None
        stored = host.app.runtime.current.session
        await host.app.submit(">> say Hello")
        user = next(one for one in (await host("sessionEntryInfos"))["entries"] if one["type"] == "user")
        assert set(user) - {"parentId"} == {"id", "type", "timestamp", "children"}
        assert await host("appendSessionEntry", kind="ext:weather:seen", data={"n": 1}) == {}
        path = (await host("sessionEntryInfos"))["entries"]
        assert (path[-1]["type"], path[-1]["parentId"], path[-1]["children"]) == ("ext:weather:seen", path[-2]["id"], 0)
        code, why = await host.fails("appendSessionEntry", kind="user", data={})
        assert (code, why) == (-32603, "append session entry: entries of type 'user' are written by the session itself")
        assert await host("appendCustomMessage", role="assistant", content="Noted.") == {}
        assert len((await host("conversationMessages"))["messages"]) == 2  # only when it is read again
        assert len(stored.read_messages()) == 3
        assert await host("setLabel", targetId=user["id"], label="good") == {}
        assert await host.fails("setLabel", targetId="zap", label="x") == (-32603, "set label: entry zap not found")
        assert await host("branchSession", entryId=user["id"]) == {}
        assert [one["role"] for one in (await host("conversationMessages"))["messages"]] == ["user"]
        assert await host("branchSessionWithSummary", entryId=user["id"], summary="A failed") == {}
        assert stored.read_path()[-1].type == "branch_summary"
        assert stored.read_path()[-1].data["summary"] == "A failed"
        for method in ("branchSession", "branchSessionWithSummary"):
            assert await host.fails(method, entryId="zap") == (-32603, "branch session: entry zap not found")
        tree = (await host("sessionFullTree"))["nodes"]
        [labelled] = [node for node in tree if "label" in node]
        assert (labelled["id"], labelled["label"], labelled["preview"]) == (user["id"], "good", ">> say Hello")
        assert (labelled["onActivePath"], labelled["depth"], labelled["children"]) == (
            True,
            user.get("depth", labelled["depth"]),
            3,
        )
        assert await host("setLabel", targetId=user["id"], label="") == {}
        assert not [node for node in (await host("sessionFullTree"))["nodes"] if "label" in node]
        assert await host("resetSessionLeaf") == {}
        assert await host("conversationMessages") == {"messages": []}
        roots = [node for node in (await host("sessionFullTree"))["nodes"] if "parentId" not in node]
        assert len(roots) >= 2


@pytest.mark.req("piglet.method.host/sessionTitle")
@pytest.mark.req("piglet.method.host/setSessionTitle")
async def test_where_no_session_is_kept_that_is_told(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path, keep=False) as host:
        assert await host("sessionTitle") == {"title": ""}
        assert await host("sessions") == {"sessions": []}
        assert await host.fails("setSessionTitle", title="x") == (-32603, "no active session")
        assert await host.fails("sessionFullTree") == (-32603, "no active session")


# -- what runs


@pytest.mark.req("piglet.method.host/runBackground")
@pytest.mark.req("piglet.method.host/cancelBackground")
@pytest.mark.req("piglet.method.host/isBackgroundRunning")
async def test_work_on_the_side(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert await host("cancelBackground") == {}
        assert await host("isBackgroundRunning") == {"running": False}
        assert await host("runBackground", prompt=">> wait 3600\n>> say x") == {}
        assert await host("isBackgroundRunning") == {"running": True}
        code, why = await host.fails("runBackground", prompt=">> wait 3600\n>> say x")
        assert (code, why.startswith("run background: background task ")) == (-32603, True)
        assert why.endswith(" already running")
        assert await host("cancelBackground") == {}
        assert await host("isBackgroundRunning") == {"running": False}
        assert await host.fails("runBackground", prompt=" ") == (-32603, "run background: the prompt is empty")


@pytest.mark.req("piglet.method.host/toggleStepMode")
@pytest.mark.req("piglet.method.host/requestQuit")
@pytest.mark.req("piglet.method.host/abort")
async def test_the_run_is_steered(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        assert await host("waitForIdle") == {}
        assert await host("toggleStepMode") == {"on": True}
        assert host.app.resident.context.step_mode
        assert await host("toggleStepMode") == {"on": False}
        assert await host("abort") == {}
        turn = await host.app.session.send(">> wait 3600")
        assert await host("abort") == {}
        assert (await turn).status == "cancelled"
        assert await host("runBackground", prompt=">> wait 3600") == {}
        assert not host.app.quitting.is_set()
        assert await host("requestQuit") == {}
        assert host.app.quitting.is_set()
        assert await host("isBackgroundRunning") == {"running": False}


@pytest.mark.req("piglet.method.host/hasCompactor")
@pytest.mark.req("piglet.method.host/triggerCompact")
@pytest.mark.req("piglet.fix.30")
async def test_a_guests_compactor_shortens_the_conversation_at_once(monkeypatch: Monkey, tmp_path: Path) -> None:
    answers: list[Sequence[ModelMessage] | SeraiError] = [
        [ModelMessage("user", (TextBlock("Summary: greeted."),))],
        Refused("digest is out of order"),
        [],
    ]

    class Digest(Weather):
        async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
            answer = answers.pop(0)
            if isinstance(answer, SeraiError):
                raise answer
            return answer

    async with open_app(tmp_path) as app:
        app.runtime.services.granted = lambda _: EVERYTHING
        assert await Host(app)("hasCompactor") == {"present": False}
        assert await Host(app).fails("triggerCompact") == (-32603, "no compactor registered")
    bring(monkeypatch, tmp_path, Digest())
    async with open_app(tmp_path) as app:
        app.runtime.services.granted = lambda _: EVERYTHING
        host = Host(app)
        assert await host("hasCompactor") == {"present": True}
        await app.submit(">> say Hello")
        assert await host("triggerCompact") == {"before": 2, "after": 1}
        assert [one["content"] for one in (await host("conversationMessages"))["messages"]] == ["Summary: greeted."]
        assert "compact" in [entry["type"] for entry in (await host("sessionEntryInfos"))["entries"]]
        assert await host.fails("triggerCompact") == (-32603, "compact failed: digest is out of order")
        code, why = await host.fails("triggerCompact")
        assert (code, why.startswith("compact failed: ")) == (-32603, True)
        assert len((await host("conversationMessages"))["messages"]) == 1  # as it was


# -- dialogs


@pytest.mark.req("piglet.method.host/showPicker")
@pytest.mark.req("piglet.method.host/askUser")
async def test_the_person_chooses(monkeypatch: Monkey, tmp_path: Path) -> None:
    items = [{"id": "b", "label": "Bern", "desc": "CH"}, {"id": "o", "label": "Oslo"}]
    person = Person(Answer({"City": "Bern"}), Answer({}), Answer({"Send?": "yes"}), Answer({}))
    async with open_service_host(monkeypatch, tmp_path, surface=person) as host:
        assert await host("showPicker", title="City", items=items) == {"selected": "b"}
        assert await host("showPicker", title="City", items=items) == {"selected": ""}
        assert await host("askUser", prompt="Send?", choices=["yes", "no"]) == {"selected": "yes", "cancelled": False}
        assert await host("askUser", prompt="Send?", choices=["yes", "no"]) == {"selected": "", "cancelled": True}
        for none in (list[str](), None):
            assert await host.fails("askUser", prompt="?", choices=none) == (-32602, "askUser: choices must not be empty")
        assert await host("showPicker", title="City", items=None) == {"selected": ""}


# -- who is there, and copies of files


@pytest.mark.req("piglet.method.host/commands")
@pytest.mark.req("piglet.method.host/shortcuts")
@pytest.mark.req("piglet.method.host/promptSections")
async def test_what_guests_offer_is_told(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        commands = (await host("commands"))["commands"]
        assert {"name": "alarm", "description": "Wakes up"} in commands
        assert [one["name"] for one in commands] == sorted(one["name"] for one in commands)
        assert await host("shortcuts") == {"shortcuts": {"ctrl+g": {"description": "Refresh"}}}
        assert await host("promptSections") == {"sections": [{"title": "Tone"}, {"title": "Units", "tokenHint": 12}]}
        serai, weather = (await host("extInfos"))["extensions"]
        assert (serai["name"], serai["kind"], "read" in serai["tools"]) == ("serai", "builtin", True)
        assert weather == {
            "name": "weather", "kind": "external", "tools": ["forecast"], "commands": ["alarm"], "interceptors": ["gate"],
            "eventHandlers": ["meter"], "shortcuts": ["ctrl+g"], "messageHooks": ["weather"], "compactor": "digest",
        }  # fmt: skip


@pytest.mark.req("piglet.method.host/undoSnapshots")
@pytest.mark.req("piglet.method.host/undoRestore")
async def test_a_file_is_put_back(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_service_host(monkeypatch, tmp_path) as host:
        file = tmp_path / "project" / "a.txt"
        file.write_text("before")
        await host("executeTool", name="write", args={"path": "a.txt", "content": "after"})
        assert await host("undoSnapshots") == {"snapshots": {str(file): 6}}
        assert await host("undoRestore", path=str(file)) == {}
        assert file.read_text() == "before"
        assert await host.fails("undoRestore", path="/zap") == (-32604, "no snapshot for path: /zap")
    assert build_error("host/undoSnapshots", Refused("undo snapshots not available")) == (-32603, "undo snapshots not available")


async def test_what_is_published_is_delivered_before_the_answer(monkeypatch: Monkey, tmp_path: Path) -> None:
    heard: list[Any] = []
    async with open_service_host(monkeypatch, tmp_path) as host:
        host.app.runtime.services.subscribe(GUEST, "weather:alert", lambda _topic, data: heard.append(data))
        assert await host("publish", topic="weather:alert", data={"level": 2}) == {}
        assert heard == [{"level": 2}]
    assert codec.encode(build_result("host/subscribe", {"subscription_id": 43})) == b'{"subscriptionId":43}\n'


# -- what goes wrong


@pytest.mark.parametrize(
    ("method", "error", "code", "text"),
    [
        ("listTools", BadRequest("tools.list: Expected `str`, got `int` - at `filter`"), -32602,
         "invalid params: Expected `str`, got `int` - at `filter`"),
        ("undoRestore", NoSnapshot("no snapshot for path: p"), -32604, "no snapshot for path: p"),
        ("executeTool", NoTool("unknown tool: x", who="piglet:a"), -32604, "unknown tool: x"),
        ("setLabel", NoEntry("entry x not found", who="/s/1.jsonl"), -32603, "set label: entry x not found"),
        ("loadSession", NoSession("there is no session x"), -32603, "load session: there is no session x"),
        ("chat", ModelFailed("overloaded", who="acme/m1"), -32603, "chat error: acme/m1: overloaded"),
        ("chat", NoModel("resolve provider: no model configured"), -32603, "resolve provider: no model configured"),
        ("switchModel", BadSettings("no TOML", who="config.toml"), -32603, "load config: config.toml: no TOML"),
        ("switchModel", NotWritten("it is full", who="config.toml"), -32603, "save config: config.toml: it is full"),
        ("writeModels", NotWritten("it is full", who="models.toml"), -32603, "write models: models.toml: it is full"),
        ("waitForIdle", Refused("stopped"), -32603, "wait for idle: stopped"),
        ("triggerCompact", Refused("broken"), -32603, "compact failed: broken"),
        ("undoRestore", Refused("denied"), -32603, "restore file: denied"),
        ("resetSessionLeaf", Refused("x"), -32603, "reset session leaf: x"),
        ("showPicker", PeerTimeout("nobody answered in time", limit=LimitHit("call", 3600)), -32603,
         "nobody answered in time (limit call = 3600)"),
    ],
)  # fmt: skip
def test_every_failure_has_its_code_and_its_words(method: str, error: SeraiError, code: int, text: str) -> None:
    assert build_error(f"host/{method}", error) == (code, text)


async def test_a_host_without_an_app_refuses_everything_but_keys() -> None:
    for method in HOST_METHODS - {Method.HOST_SUBSCRIBE}:
        ask = build_call(method, decode_params(method, msgspec.json.encode(PARAMS.get(method, {}))))
        with pytest.raises(Refused) as refused:
            await NoServices().ask(GUEST, *ask)
        assert (find_fallback(method, refused.value) is None) == (method != "host/auth.getKey")
        assert build_error(method, refused.value)[0] == -32603


def test_data_that_are_a_bomb_are_refused_before_anybody_is_asked() -> None:
    bomb = msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(Refused, match="invalid params: ") as refused:
        build_call("host/setConversationMessages", HostSetConversationMessagesParams([CompactMessage("user", bomb)]))
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("executeTool", "tool execution cancelled: context canceled"),
        ("chat", "chat cancelled: context canceled"),
        ("agent.run", "chat cancelled: context canceled"),
        ("waitForIdle", "wait for idle cancelled: context canceled"),
        ("showPicker", "picker cancelled: context canceled"),
        ("askUser", "question cancelled: context canceled"),
        ("triggerCompact", "compact cancelled: context canceled"),
        ("noSuchMethod", "host/noSuchMethod cancelled: context canceled"),
    ],
)
def test_what_a_guest_cancels_says_so(method: str, text: str) -> None:
    assert describe_cancelled(f"host/{method}") == text


@pytest.mark.parametrize(
    ("method", "limit", "text"),
    [
        ("executeTool", "service", "tool execution cancelled: context deadline exceeded"),
        ("chat", "service", "chat cancelled: context deadline exceeded"),
        ("agent.run", "service", "chat cancelled: context deadline exceeded"),
        ("triggerCompact", "compact", "compact failed: context deadline exceeded"),
        ("waitForIdle", "call", "wait for idle: context deadline exceeded"),
        ("askUser", "call", "question: context deadline exceeded"),
        ("listTools", "call", "host/listTools: context deadline exceeded"),
    ],
)
def test_nothing_takes_for_ever(method: str, limit: str, text: str) -> None:
    limits = Limits().but(service=1.0, compact=2.0, call=3.0)
    assert get_timeout(f"host/{method}", limits) == getattr(limits, limit)
    assert describe_expired(f"host/{method}") == text
