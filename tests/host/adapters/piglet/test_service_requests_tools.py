"""Host services over the wire: tools, settings, keys, and which guests there are."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from serai.errors import SeraiError
from serai.model.tools import ToolResult
from tests.support.agents.scripted_models import MODEL, Answers, call, reply
from tests.support.app.apps import build_environ
from tests.support.host import zot_guests as zot
from tests.support.piglet.journals import ONE_LOOP, read_params, write_config
from tests.support.piglet.service_clients import ID, open_client
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import fail, result

pytestmark = ONE_LOOP

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORECAST = {"forecast": offer("$city: fog", description="Weather of a city", parameters=SCHEMA, deferred=True)}


# -- tools


@pytest.mark.req("piglet.method.host/listTools")
@pytest.mark.req("piglet.method.host/toolDefs")
async def test_tools_are_told_by_name_with_all_of_their_schema(tmp_path: Path) -> None:
    async with open_client(tmp_path, offers={"tools": FORECAST}) as host:
        every = (await host("listTools"))["tools"]
        names = [tool["name"] for tool in every]
        assert names == sorted({"bash", "edit", "find", "forecast", "grep", "host", "read", "write"})
        assert every[names.index("forecast")] == {
            "name": "forecast", "description": "Weather of a city", "parameters": SCHEMA, "deferred": True
        }  # fmt: skip
        assert all(set(tool) == {"name", "description", "parameters"} for tool in every if tool["name"] != "forecast")
        for which in ("all", "nonsense", ""):
            assert (await host("listTools", filter=which))["tools"] == every
        safe = [tool["name"] for tool in (await host("listTools", filter="background_safe"))["tools"]]
        assert safe == ["find", "grep", "read"]  # of no guest (spec piglet 6.7)
        assert (await host("toolDefs"))["tools"] == [{key: tool[key] for key in ("name", "description")} for tool in every]


@pytest.mark.req("piglet.method.host/executeTool")
async def test_a_tool_is_run_on_the_path_of_every_call(tmp_path: Path) -> None:
    tools = {
        **FORECAST,
        "broken": [fail("no station", code="FILE_NOT_FOUND", hint="try a bigger town")],
        "map": {"content": [{"type": "image", "data": "cG5n", "mime": "image/png"}]},
    }
    redirect = interceptor(before=[result({"allow": True, "args": {"path": "b.txt"}})])
    async with open_client(tmp_path, offers={"tools": tools}) as host:
        (host.app.runtime.cwd / Path("a.txt")).write_text("hello")
        (host.app.runtime.cwd / Path("b.txt")).write_text("rewritten")
        read = await host("executeTool", name="read", args={"path": "a.txt"}, callId="c9")
        assert set(read) == {"content"}
        assert [(one["type"], "hello" in one["text"]) for one in read["content"]] == [("text", True)]
        assert await host("executeTool", name="forecast", args={"city": "Bern"}, callId="c9") == {
            "content": [{"type": "text", "text": "Bern: fog"}]
        }
        assert await host("executeTool", name="map") == {"content": [{"type": "image", "data": "cG5n", "mime": "image/png"}]}
        assert [one["callId"] for one in read_params(host.journal, "tool/execute")] == ["c9", ""]
        assert await host("executeTool", name="broken", args=None) == {
            "content": [{"type": "text", "text": "[error:FILE_NOT_FOUND] no station\nhint: try a bigger town"}],
            "isError": True,
            "errorCode": "FILE_NOT_FOUND",
            "errorHint": "try a bigger town",
        }
        invalid = await host("executeTool", name="forecast", args={"city": 7})
        assert (invalid["isError"], invalid["errorCode"]) == (True, "INVALID_ARGS")
        assert await host.fails("executeTool", name="zap", args={}) == (-32604, "unknown tool: zap")
        await host("setToolFilter", names=["host"])  # it is the agent's alone (spec piglet 6.6)
        assert "isError" not in await host("executeTool", name="read", args={"path": "a.txt"})

    async with open_client(tmp_path, others=[write(tmp_path, "guard", interceptors={"guard": redirect})]) as host:
        [block] = (await host("executeTool", name="read", args={"path": "a.txt"}))["content"]
        assert "rewritten" in block["text"]
    async with open_client(tmp_path, others=[write(tmp_path, "guard", interceptors={"guard": "not today"})]) as host:
        blocked = await host("executeTool", name="write", args={"path": "c.txt", "content": "x"})
        assert blocked == {"content": [{"type": "text", "text": "not today"}]}  # no failure (spec piglet 5.3)
    (tmp_path / "guard" / "manifest.yaml").unlink()
    async with open_client(tmp_path, mode="manual") as host:
        denied = await host("executeTool", name="write", args={"path": "c.txt", "content": "x"})
        assert (denied["isError"], denied["errorCode"]) == (True, "PERMISSION_DENIED")
    assert not (tmp_path / "project" / "c.txt").exists()


@pytest.mark.req("piglet.method.host/setToolFilter")
async def test_a_filter_counts_from_the_next_call_of_the_model_on(tmp_path: Path) -> None:
    narrow = call("host", method="host/setToolFilter", params={"names": ["read", "host", "zap"]})
    model = Answers([reply("", narrow)], [reply("", call("bash", command="true"))], [reply("done")])
    async with open_client(tmp_path, answers=model) as host:
        await host.app.submit("go")
        offered = [[tool.name for tool in request.tools] for request in model.requests]
        assert "bash" in offered[0]
        assert offered[1:] == [["host", "read"]] * 2
        [refused] = [message for message in model.requests[2].messages if message.role == "tool"][1:]
        assert "unknown tool: bash" in ToolResult(refused.content).text
        nothing: list[list[str] | None] = [[], None]
        for none in nothing:
            assert await host("setToolFilter", names=["read"]) == {}
            assert await host("setToolFilter", names=none) == {}
            await host.app.submit("go on")
            assert [tool.name for tool in model.requests[-1].tools] == offered[0]


@pytest.mark.req("piglet.fix.24")
async def test_no_command_changes_the_filter_and_another_session_ends_it(tmp_path: Path) -> None:
    model = Answers([reply("done")])
    async with open_client(tmp_path, answers=model) as host:
        assert await host("setToolFilter", names=["read"]) == {}
        for line in ("/ask {}", "/nothing-of-the-kind", "/help"):
            with suppress(SeraiError):
                await host.app.submit(line)
        await host.app.submit("go")
        assert [tool.name for tool in model.requests[-1].tools] == ["read"]
        await host("forkSession")
        await host.app.submit("go on")
        assert len(model.requests[-1].tools) > 1


@pytest.mark.req("piglet.method.host/activateTool")
async def test_a_deferred_tool_is_told_in_full_once_it_is_activated(tmp_path: Path) -> None:
    model, small = Answers([reply("done")]), msgspec.structs.replace(MODEL, base_url="http://127.0.0.1:9/v1")
    options = {"model": small, "provider": model}
    async with open_client(tmp_path, offers={"tools": FORECAST}, options=options) as host:
        await host.app.submit("one")
        assert await host("activateTool", name="forecast") == {}
        await host.app.submit("two")
        await host("forkSession")  # for the rest of the process
        await host.app.submit("three")
        for name in ("read", "zap"):
            assert await host.fails("activateTool", name=name) == (-32604, f"tool not found or not deferred: {name}")
    schemas = [{tool.name: tool.schema for tool in request.tools}["forecast"] for request in model.requests]
    assert "properties" not in schemas[0]
    assert schemas[1:] == [SCHEMA] * 2


# -- settings and keys


@pytest.mark.req("piglet.method.host/config.get")
async def test_settings_are_told_as_they_are_now(tmp_path: Path) -> None:
    keys = ["defaultModel", "smallModel", "agent.compactAt", "agent.maxTurns", "nope"]
    async with open_client(tmp_path, limits={}) as host:
        assert await host("config.get", keys=keys) == {
            "values": {"defaultModel": "parrot/parrot", "smallModel": "parrot/parrot", "agent.compactAt": 0, "agent.maxTurns": 30}
        }
        (tmp_path / "home" / "models.toml").write_text('[[models]]\nid = "m1"\nprovider = "acme"\napi = "parrot"\n')
        write_config(tmp_path, 'small_model = "m1"\ncompact_at = 5000\n[limits]\nsteps = 7\n')
        assert await host("config.get", keys=keys) == {
            "values": {"defaultModel": "parrot/parrot", "smallModel": "acme/m1", "agent.compactAt": 5000, "agent.maxTurns": 7}
        }
        assert await host("config.get") == await host("config.get", keys=["nope"]) == {"values": {}}


@pytest.mark.req("piglet.method.host/config.readExtension")
@pytest.mark.req("piglet.method.host/extensionsDir")
async def test_a_guest_finds_its_file_in_the_folder_of_extensions(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        folder = Path((await host("extensionsDir"))["path"])
        assert folder == tmp_path / "home" / "extensions"
        assert read_params(host.journal, "initialize")[0]["configDir"] == str(folder / "weather")
        assert await host("config.readExtension", name="weather") == {"content": ""}
        old, new = tmp_path / "home" / "weather.md", folder / "weather" / "weather.md"
        old.write_text("\n metric \n")
        assert await host("config.readExtension", name="weather") == {"content": "metric"}
        assert new.read_text() == "\n metric \n"
        new.write_text("imperial\n")
        assert await host("config.readExtension", name="weather") == {"content": "imperial"}
        for name in ("a/b", "../weather", "a\\b"):
            code, why = await host.fails("config.readExtension", name=name)
            assert (code, why) == (-32603, f"read extension config: invalid extension name: {msgspec.json.encode(name).decode()}")


@pytest.mark.req("piglet.method.host/auth.getKey")
async def test_a_key_is_had_only_where_it_is_granted_and_is_never_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    variables = {"ACME_API_KEY": "sk-acme-env", "OTHER_API_KEY": "sk-other-env", "OPENAI_API_KEY": "sk-openai-env"}
    environ = {**build_environ(tmp_path), **variables}
    write_config(tmp_path, f'[guest."{ID}"]\nkeys = ["acme", "other", "nobody"]\n')
    model = '[[models]]\nid = "m1"\nprovider = "acme"\nheaders = { Authorization = "Bearer sk-acme-file" }\n'
    (tmp_path / "home" / "models.toml").write_text(model)
    async with open_client(tmp_path, environ=environ, record=True) as host:
        granted = {provider: await host("auth.getKey", provider=provider) for provider in ("acme", "other", "openai", "nobody", "")}
        assert granted == {
            "acme": {"key": "sk-acme-file"}, "other": {"key": "sk-other-env"},
            "openai": {"key": ""}, "nobody": {"key": ""}, "": {"key": ""},
        }  # fmt: skip
    write_config(tmp_path, "")
    async with open_client(tmp_path, environ=environ) as host:
        assert await host("auth.getKey", provider="acme") == {"key": ""}
    told = {file: file.read_bytes() for file in _files(tmp_path / "home") if file.suffix != ".toml"}
    assert [file for file, content in told.items() if b"host/auth.getKey" in content]  # a recording, which has its frames
    assert not [file for file, content in told.items() if b"sk-acme-file" in content or b"sk-other-env" in content]
    assert not [key for key in ("sk-acme-file", "sk-other-env") if key in caplog.text]


def _files(folder: Path) -> list[Path]:
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names]


# -- who is there


@pytest.mark.req("piglet.method.host/extInfos")
@pytest.mark.req("piglet.method.host/commands")
@pytest.mark.req("piglet.method.host/shortcuts")
@pytest.mark.req("piglet.method.host/promptSections")
async def test_guests_are_told_with_all_that_they_offer(tmp_path: Path) -> None:
    offers = {
        "version": "0.2.0",
        "tools": {"forecast": "fog"},
        "commands": {"alarm": offer("up", description="Wakes up")},
        "sections": {"Units": offer(content="metric", order=50, tokenHint=12), "Tone": offer(content="kind", order=10)},
        "interceptors": ["gate"],
        "handlers": ["meter"],
        "shortcuts": {"ctrl+g": offer("", description="Refresh")},
        "hooks": ["clock"],
        "compactor": offer("short", name="digest"),
    }
    bare = write(tmp_path, "bare", runtime="python", entry="src/main.py", version="")
    other = zot.make(tmp_path, "hello(tool('peek'))\nfor frame in frames(): pass", name="lens", version="3")
    async with open_client(tmp_path, offers=offers, others=[bare, other]) as host:
        serai, *found = (await host("extInfos"))["extensions"]
        tools = ["bash", "edit", "find", "grep", "read", "write"]
        assert (sorted(serai["tools"]), serai) == (tools, {"name": "serai", "kind": "builtin", "tools": serai["tools"]})
        by_name = {one["name"]: one for one in found}
        mine = by_name["weather"]
        assert (set(mine.pop("tools")), set(mine.pop("commands"))) == ({"forecast", "host"}, {"alarm", "ask"})
        assert by_name == {
            "weather": {
                "name": "weather", "version": "0.2.0", "kind": "external", "runtime": "./guest", "interceptors": ["gate"],
                "eventHandlers": ["meter"], "shortcuts": ["ctrl+g"], "messageHooks": ["clock"], "compactor": "digest",
            },
            "bare": {"name": "bare", "kind": "external", "runtime": "python"},
            "lens": {"name": "lens", "version": "3", "kind": "external", "tools": ["peek"]},
        }  # fmt: skip
        assert [one["name"] for one in found] == [guest.manifest.name for guest in host.app.host.guests.values()]
        commands = (await host("commands"))["commands"]
        assert {"name": "alarm", "description": "Wakes up"} in commands
        assert [one["name"] for one in commands] == sorted(one["name"] for one in commands)
        assert await host("shortcuts") == {"shortcuts": {"ctrl+g": {"description": "Refresh"}}}
        assert await host("promptSections") == {"sections": [{"title": "Tone"}, {"title": "Units", "tokenHint": 12}]}


# -- copies of files


@pytest.mark.req("piglet.method.host/undoSnapshots")
@pytest.mark.req("piglet.method.host/undoRestore")
async def test_a_file_is_put_back(tmp_path: Path) -> None:
    model = Answers([reply("", call("write", path="a.txt", content="after"))], [reply("done")])
    async with open_client(tmp_path, answers=model) as host:
        file = tmp_path / "project" / "a.txt"
        file.write_text("before")
        assert await host("undoSnapshots") == {"snapshots": {}}
        await host.app.submit("change it")
        assert file.read_text() == "after"
        assert await host("undoSnapshots") == {"snapshots": {str(file): 6}}
        assert await host("undoRestore", path=str(file)) == {}
        assert file.read_text() == "before"
        for path in ("a.txt", "/zap"):  # the exact one
            assert await host.fails("undoRestore", path=path) == (-32604, f"no snapshot for path: {path}")
