"""Host services over the wire: the conversation in memory, and sessions on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from serai.model.actions import SetTitle
from serai.model.events import Usage
from serai.model.tools import TextBlock
from tests.support.agents.scripted_models import Answers, call, reply
from tests.support.app.apps import open_app, sessions_of
from tests.support.piglet.journals import ONE_LOOP
from tests.support.piglet.service_clients import ServiceClient, open_client

pytestmark = ONE_LOOP


async def roles(host: ServiceClient) -> list[str]:
    return [message["role"] for message in (await host("conversationMessages"))["messages"]]


def newest_meta(host: ServiceClient) -> dict[str, Any]:
    found: dict[str, Any] = [entry["data"] for entry in host.entries() if entry["type"] == "meta"][-1]
    return found


# -- the conversation in memory


@pytest.mark.req("piglet.fix.21")
@pytest.mark.req("piglet.method.host/conversationMessages")
@pytest.mark.req("piglet.method.host/lastAssistantText")
@pytest.mark.req("piglet.method.host/sessionStats")
async def test_the_conversation_is_shown_as_it_is_in_memory(tmp_path: Path) -> None:
    model = Answers(
        [reply("Let me look.", call("read", path="a.txt"), usage=Usage(100, 10, 5, 2))], [reply("Hello", usage=Usage(200, 20))]
    )
    async with open_client(tmp_path, answers=model) as host:
        assert await host("conversationMessages") == {"messages": []}
        assert await host("lastAssistantText") == {"text": ""}
        assert (await host("sessionStats"))["turnCount"] == 0
        await host.app.submit("hi")
        first, calling, outcome, last = (await host("conversationMessages"))["messages"]
        assert (first["role"], first["content"]) == ("user", "hi")
        text, wanted = calling["content"]
        assert (calling["role"], text) == ("assistant", {"text": "Let me look.", "type": "text"})
        assert (wanted["type"], wanted["name"], wanted["arguments"]) == ("tool_call", "read", {"path": "a.txt"})
        assert (outcome["role"], outcome["toolCallId"], outcome["toolName"]) == ("tool_result", wanted["id"], "read")
        assert (last["role"], last["content"]) == ("assistant", [{"text": "Hello", "type": "text"}])
        assert await host("lastAssistantText") == {"text": "Hello"}
        cost = (300 * 1 + 30 * 2 + 5 * 0.1 + 2 * 1.5) / 1e6
        assert await host("sessionStats") == {
            "turnCount": 2, "totalInputTokens": 300, "totalOutputTokens": 30, "totalCacheReadTokens": 5,
            "totalCacheWriteTokens": 2, "totalCost": pytest.approx(cost), "model": "test/m1",
        }  # fmt: skip
        # The newest one that has a text, and the first text of it.
        await host("setConversationMessages", messages=[
            {"type": "assistant", "data": {"content": [{"text": "older"}], "usage": {"inputTokens": 7, "outputTokens": 1}}},
            {"type": "assistant", "data": {"content": [{"thinking": "hm"}, {"text": ""}, {"text": "one"}, {"text": "two"}]}},
            {"type": "assistant", "data": {"content": [{"id": "c9", "name": "read", "arguments": None}]}},
        ])  # fmt: skip
        assert await host("lastAssistantText") == {"text": "one"}
        stats = await host("sessionStats")
        assert (stats["turnCount"], stats["totalInputTokens"], stats["totalOutputTokens"]) == (3, 7, 1)


@pytest.mark.req("piglet.method.host/setConversationMessages")
@pytest.mark.req("piglet.edge.18")
async def test_the_conversation_is_replaced_in_memory_alone(tmp_path: Path) -> None:
    model = Answers([reply("Hello")])
    async with open_client(tmp_path, answers=model) as host:
        await host.app.submit("hi")
        before = host.entries()
        fresh = [{"type": "user", "data": {"content": "fresh"}}, {"type": "odd", "data": 1}, {"type": "compact", "data": []}]
        assert await host("setConversationMessages", messages=fresh) == {}
        assert [one["content"] for one in (await host("conversationMessages"))["messages"]] == ["fresh"]
        for undecodable in ([{"type": "user", "data": 1}], [7], "all", [{"data": {"content": "x"}, "type": ["user"]}]):
            code, why = await host.fails("setConversationMessages", messages=undecodable)
            assert (code, why.startswith("invalid params: ")) == (-32602, True), why
        assert await roles(host) == ["user"]  # as it was
        assert host.entries() == before
        await host.app.submit("and?")
        assert [_text(message) for message in model.requests[-1].messages] == ["fresh", "and?"]
        nothing: list[dict[str, Any]] = [{"messages": None}, {"messages": []}, {}]
        for none in nothing:
            assert await roles(host) != []
            assert await host("setConversationMessages", **none) == {}
            assert await host("conversationMessages") == {"messages": []}
            await host.app.submit("again")
            assert [_text(message) for message in model.requests[-1].messages] == ["again"]


@pytest.mark.req("piglet.fix.04")
async def test_the_keys_of_new_messages_match_in_any_case(tmp_path: Path) -> None:
    model = Answers([reply("Hello")])
    async with open_client(tmp_path, answers=model) as host:
        new = [{"type": "user", "data": {"Content": "F"}}, {"type": "assistant", "data": {"Content": [{"Text": "G"}]}}]
        assert await host("setConversationMessages", messages=new) == {}
        await host.app.submit("and?")
        assert [_text(message) for message in model.requests[-1].messages] == ["F", "G", "and?"]


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


@pytest.mark.req("piglet.method.host/llmSnapshot")
async def test_the_snapshot_is_what_the_next_call_carries(tmp_path: Path) -> None:
    model = Answers([reply("Hello")])
    async with open_client(tmp_path, offers={"sections": {"Units": "Use metric."}}, answers=model) as host:
        await host.app.submit("hi")
        await host("setToolFilter", names=["write", "read", "host"])
        snapshot = await host("llmSnapshot")
        assert set(snapshot) == {"system", "messages", "tools"}
        assert [message["role"] for message in snapshot["messages"]] == ["user", "assistant"]
        await host.app.submit("more")
        asked = model.requests[-1]
        assert snapshot["system"] == asked.system
        assert "# Units\n\nUse metric." in snapshot["system"]
        assert [_text(message) for message in asked.messages] == ["hi", "Hello", "more"]
        assert [tool["name"] for tool in snapshot["tools"]] == [tool.name for tool in asked.tools] == ["host", "read", "write"]
        assert [tool["parameters"] for tool in snapshot["tools"]] == [tool.schema for tool in asked.tools]


# -- sessions on disk


@pytest.mark.req("piglet.method.host/sessions")
@pytest.mark.req("piglet.method.host/forkSession")
@pytest.mark.req("piglet.method.host/loadSession")
@pytest.mark.req("piglet.method.host/setSessionTitle")
@pytest.mark.req("piglet.method.host/sessionTitle")
@pytest.mark.req("piglet.fix.28", "piglet.fix.20")
async def test_a_session_is_titled_forked_and_left_for_another(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        assert await host("sessionTitle") == {"title": ""}
        assert await host("setSessionTitle", title="Trip") == {}
        assert newest_meta(host)["title"] == "Trip"
        assert await host("sessionTitle") == {"title": "Trip"}
        assert SetTitle("Trip") in host.person.actions
        await host.app.submit(">> say Hello")
        [first] = (await host("sessions"))["sessions"]
        assert first == {
            "id": host.app.session.id, "title": "Trip", "cwd": str(tmp_path / "project"), "createdAt": first["createdAt"],
            "path": str(tmp_path / "home" / "sessions" / f"{host.app.session.id}.jsonl"),
        }  # fmt: skip
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["createdAt"])

        await host("appendSessionEntry", kind="ext:weather:seen", data=1)
        assert await host("forkSession") == {"parentID": first["id"], "messageCount": 2}
        newest, oldest = (await host("sessions"))["sessions"]
        assert (newest["parentId"], newest["id"], oldest["id"]) == (first["id"], host.app.session.id, first["id"])
        assert (newest_meta(host)["forkPoint"], await host("sessionTitle")) == (2, {"title": ""})
        await host.app.submit(">> say Aside")
        assert [entry["type"] for entry in host.entries() if entry["type"] in ("user", "assistant")] == ["user", "assistant"] * 2
        assert "Aside" not in Path(first["path"]).read_text()

        assert await host("loadSession", path=first["path"]) == {}
        assert (host.app.session.id, await host("lastAssistantText")) == (first["id"], {"text": "Hello"})
        await host("setSessionTitle", title="Again")
        assert newest_meta(host)["title"] == "Again"
        outside = tmp_path / "else.jsonl"
        outside.write_bytes(Path(first["path"]).read_bytes())
        for path in (outside, tmp_path / "home" / "sessions" / ".." / ".." / "else.jsonl"):
            assert await host.fails("loadSession", path=str(path)) == (
                -32603, f"load session: {path} is no session of this person"
            )  # fmt: skip
        code, why = await host.fails("loadSession", path=str(tmp_path / "home" / "sessions" / "none.jsonl"))
        assert (code, why.startswith("load session: ")) == (-32603, True)
        assert host.app.session.id == first["id"]


@pytest.mark.req("piglet.method.host/loadSession")
async def test_a_call_without_a_result_is_repaired_where_a_session_is_loaded(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        assert app.runtime.current is not None
        await app.submit(">> say Hello")
        stored = app.runtime.current.session
    leaf = [json.loads(line) for line in Path(stored.file).read_text().splitlines()][-1]["id"]
    entry = {
        "type": "assistant", "id": "0badf00d", "parentId": leaf, "ts": "2026-02-03T10:00:00Z",
        "data": {"content": [{"id": "c1", "name": "read", "arguments": {}}]},
    }  # fmt: skip
    with Path(stored.file).open("a") as file:
        file.write(json.dumps(entry) + "\n")
    async with open_client(tmp_path) as host:
        assert await host("loadSession", path=stored.file) == {}
        *_, calling, outcome = (await host("conversationMessages"))["messages"]
        assert calling["content"][0]["id"] == outcome["toolCallId"] == "c1"
        assert (outcome["role"], outcome["isError"]) == ("tool_result", True)
        assert outcome["content"][0]["text"].startswith("[error:TOOL_INTERRUPTED] ")


@pytest.mark.req("piglet.method.host/appendSessionEntry")
@pytest.mark.req("piglet.method.host/appendCustomMessage")
@pytest.mark.req("piglet.fix.28")
async def test_what_is_written_to_a_session_is_on_disk_and_not_in_memory(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        await host.app.submit(">> say Hello")
        assert await host("appendSessionEntry", kind="ext:weather:seen", data={"n": 1}) == {}
        assert (host.entries()[-1]["type"], host.entries()[-1]["data"]) == ("ext:weather:seen", {"n": 1})
        for kind in ("meta", "user", "assistant", "tool_result", "compact", "branch_summary", "custom_message", "label"):
            assert await host.fails("appendSessionEntry", kind=kind, data={}) == (
                -32603, f"append session entry: entries of type {kind!r} are written by the session itself"
            )  # fmt: skip
        assert await host("appendCustomMessage", role="assistant", content="Noted.") == {}
        assert await host("appendCustomMessage", role="user", content="Thanks.") == {}
        assert (host.entries()[-1]["type"], host.entries()[-1]["data"]) == (
            "custom_message", {"role": "user", "content": "Thanks."}
        )  # fmt: skip
        assert await roles(host) == ["user", "assistant"]
        await host("loadSession", path=(await host("sessions"))["sessions"][0]["path"])
        assert await roles(host) == ["user", "assistant", "assistant", "user"]
        assert await host("lastAssistantText") == {"text": "Noted."}


@pytest.mark.req("piglet.method.host/setLabel")
@pytest.mark.req("piglet.method.host/branchSession")
@pytest.mark.req("piglet.method.host/branchSessionWithSummary")
@pytest.mark.req("piglet.method.host/resetSessionLeaf")
@pytest.mark.req("piglet.method.host/sessionEntryInfos")
@pytest.mark.req("piglet.method.host/sessionFullTree")
@pytest.mark.req("piglet.fix.28")
async def test_a_session_is_labelled_and_branched(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        await host.app.submit(f">> say {'x' * 70}")
        path = (await host("sessionEntryInfos"))["entries"]
        ids = [entry["id"] for entry in host.entries() if "id" in entry]
        assert [entry["id"] for entry in path] == ids  # from root to leaf, all of them
        assert [entry.get("parentId") for entry in path] == [None, *ids[:-1]]
        assert [entry["children"] for entry in path] == [1] * (len(ids) - 1) + [0]
        assert all(set(entry) - {"parentId"} == {"id", "type", "timestamp", "children"} for entry in path)
        [user] = [entry["id"] for entry in path if entry["type"] == "user"]

        assert await host("setLabel", targetId=user, label="good") == {}
        assert (host.entries()[-1]["type"], host.entries()[-1]["data"]) == ("label", {"targetId": user, "label": "good"})
        assert await host.fails("setLabel", targetId="zap", label="x") == (-32603, "set label: entry zap not found")
        assert await host("branchSession", entryId=user) == {}
        assert await roles(host) == ["user"]
        assert (host.entries()[-1]["type"], host.entries()[-1]["parentId"]) == ("branch_summary", user)
        left = host.entries()[-1]["id"]
        assert await host("branchSessionWithSummary", entryId=user, summary="A failed") == {}
        assert host.entries()[-1]["data"] == {"summary": "A failed", "fromId": left}
        for method in ("branchSession", "branchSessionWithSummary"):
            assert await host.fails(method, entryId="zap") == (-32603, "branch session: entry zap not found")

        nodes = (await host("sessionFullTree"))["nodes"]
        [labelled] = [node for node in nodes if "label" in node]
        assert labelled == {
            "id": user, **({"parentId": labelled["parentId"]} if "parentId" in labelled else {}), "type": "user",
            "timestamp": labelled["timestamp"], "children": 3, "onActivePath": True, "depth": labelled["depth"],
            "preview": f">> say {'x' * 53}...", "label": "good",
        }  # fmt: skip
        by_id = {node["id"]: place for place, node in enumerate(nodes)}
        assert all(by_id[node["parentId"]] < by_id[node["id"]] for node in nodes if "parentId" in node)
        below = [node for node in nodes if node.get("parentId") == user]
        assert [node["onActivePath"] for node in below] == [True, False, False]  # the active one first
        assert {node["depth"] for node in below} == {labelled["depth"] + 1}
        assert nodes[by_id[user] + 1] == below[0]  # depth first
        assert await host("setLabel", targetId=user, label="") == {}
        assert not [node for node in (await host("sessionFullTree"))["nodes"] if "label" in node]

        assert await host("resetSessionLeaf") == {}
        assert await host("conversationMessages") == {"messages": []}
        roots = [node for node in (await host("sessionFullTree"))["nodes"] if "parentId" not in node]
        assert [(node["id"] == ids[0], node["onActivePath"]) for node in roots] == [(True, False), (False, True)]
        await host.app.submit(">> say Anew")
        assert await roles(host) == ["user", "assistant"]
    again = sessions_of(tmp_path).open(host.app.session.id)
    assert len(again.read_messages()) == 2
    again.close()


@pytest.mark.req("piglet.method.host/sessionFullTree")
@pytest.mark.req("piglet.method.host/triggerCompact")
async def test_what_was_compacted_is_in_the_tree_with_its_tokens(tmp_path: Path) -> None:
    async with open_client(tmp_path, offers={"compactor": "Summary: greeted."}, answers=Answers([reply("Hello")])) as host:
        await host.app.submit("hi")
        assert await host("triggerCompact") == {"before": 2, "after": 1}
        [compact] = [node for node in (await host("sessionFullTree"))["nodes"] if node["type"] == "compact"]
        assert compact["tokensBefore"] == 100
        assert "preview" not in compact


@pytest.mark.req("piglet.method.host/sessionTitle")
@pytest.mark.req("piglet.method.host/setSessionTitle")
async def test_where_no_session_is_kept_that_is_told(tmp_path: Path) -> None:
    async with open_client(tmp_path, keep=False) as host:
        assert await host("sessionTitle") == {"title": ""}
        assert await host("sessions") == {"sessions": []}
        writing: dict[str, dict[str, Any]] = {
            "setSessionTitle": {"title": "x"}, "sessionFullTree": {}, "sessionEntryInfos": {}, "forkSession": {},
            "resetSessionLeaf": {}, "setLabel": {"targetId": "a", "label": "b"}, "branchSession": {"entryId": "a"},
            "appendSessionEntry": {"kind": "ext:a:b", "data": 1}, "appendCustomMessage": {"role": "user", "content": "x"},
        }  # fmt: skip
        for method, params in writing.items():
            assert await host.fails(method, **params) == (-32603, "no active session")
