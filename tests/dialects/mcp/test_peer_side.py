"""Both sides of the dialect against each other, and against whatever else may come."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.mcp import events
from serai.dialects.mcp.events import Agreed, Called, Cancelled, Changed, Done, Failed, Listed, Nothing, Pong, Reply
from serai.dialects.mcp.host_side import HostSide
from serai.dialects.mcp.messages import VERSIONS
from serai.dialects.mcp.peer_side import PeerSide
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolResult, ToolSpec
from serai.wire.stream import Oversize

LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
RESOURCE = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "hello"}}
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "number"}}})


def build_server(*tools: ToolSpec, **more: Any) -> PeerSide:
    return PeerSide("serai", "1.2", lambda: tools, **more)


def read_reply(heard: events.PeerEvent | events.HostEvent) -> Any:
    """What a reply says."""
    assert isinstance(heard, Reply), heard
    assert b"\n" not in heard.message
    return json.loads(heard.message)


def ask(side: PeerSide, method: str, params: Any = None, id: Any = 1) -> Any:
    message = {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})
    return read_reply(side.receive(json.dumps(message).encode()))


def call_tool(side: PeerSide, client: HostSide, name: str, **more: Any) -> tuple[Any, Called]:
    call, message = client.call_tool(name, **more)
    heard = side.receive(message)
    assert isinstance(heard, Called), heard
    return call, heard


def receive_answer(client: HostSide, message: bytes | None) -> events.HostEvent:
    assert message is not None
    return client.receive(message)


# -- the handshake


# As Claude Code 2.1.325 says it, inside its control protocol.
CLAUDE = (
    b'{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code",'
    b'"title":"Claude Code","version":"2.1.325"}},"jsonrpc":"2.0","id":0}'
)
CLAUDE_CALLS = (
    b'{"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},"_meta":{"claudecode/toolUseId":"toolu_70",'
    b'"progressToken":2}},"jsonrpc":"2.0","id":2}'
)


@pytest.mark.req("app.mcp.handshake", "app.mcp.call")
def test_what_claude_says_is_understood() -> None:
    side = build_server(ADD)
    answer = read_reply(side.receive(msgspec.Raw(CLAUDE)))
    assert answer["id"] == 0
    assert answer["result"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "serai", "version": "1.2"},
    }
    assert side.client["name"] == "claude-code"
    assert side.notify_tools_changed() is None
    assert side.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == Nothing()
    assert side.notify_tools_changed() is not None
    listed = read_reply(side.receive(b'{"method":"tools/list","jsonrpc":"2.0","id":1}'))
    [tool] = listed["result"]["tools"]
    assert (tool["name"], tool["description"], tool["inputSchema"]) == ("add", "Adds.", ADD.schema)
    heard = side.receive(CLAUDE_CALLS)
    assert isinstance(heard, Called)
    assert (heard.id, heard.name, heard.arguments, heard.tool_use) == (b"2", "add", {"a": 2, "b": 3}, "toolu_70")
    answer = json.loads(side.answer(heard.id, ToolResult.of("5")) or b"")
    assert answer == {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "5"}]}}


@pytest.mark.req("app.mcp.handshake")
@pytest.mark.parametrize(("asks", "gets"), [*((one, one) for one in VERSIONS), ("2026-07-28", VERSIONS[0]), ("x", VERSIONS[0])])
def test_the_version_is_the_clients_if_we_know_it_else_our_newest(asks: str, gets: str) -> None:
    side, client = build_server(), HostSide("me", "3")
    call, message = client.initialize(asks)
    heard = receive_answer(client, read_reply_bytes(side.receive(message)))
    assert isinstance(heard, Agreed)
    assert (heard.call, heard.server.protocol_version, side.version, heard.why) == (call, gets, gets, "")
    assert side.client == {"name": "me", "version": "3"}


def read_reply_bytes(heard: events.PeerEvent) -> bytes:
    assert isinstance(heard, Reply), heard
    return heard.message


@pytest.mark.req("app.mcp.handshake")
def test_a_client_is_told_of_a_version_it_does_not_know() -> None:
    client = HostSide()
    call, _ = client.initialize()
    result = {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {}}
    heard = client.receive(json.dumps({"jsonrpc": "2.0", "id": call.id, "result": result}).encode())
    assert isinstance(heard, Agreed)
    assert "1999-01-01" in heard.why


@pytest.mark.req("app.mcp.handshake")
def test_instructions_are_told_when_there_are_any() -> None:
    answer = ask(build_server(instructions="Be kind."), "initialize", {"protocolVersion": VERSIONS[1], "capabilities": {}})
    assert answer["result"]["instructions"] == "Be kind."


@pytest.mark.req("app.mcp.handshake")
def test_a_ping_is_answered_on_both_sides() -> None:
    side, client = build_server(), HostSide()
    call, message = client.ping()
    assert receive_answer(client, read_reply_bytes(side.receive(message))) == Pong(call)
    reply = client.receive(b'{"jsonrpc":"2.0","id":"p","method":"ping"}')
    assert reply == Reply(b'{"jsonrpc":"2.0","id":"p","result":{}}')


# -- what is refused


@pytest.mark.req("app.mcp.errors")
@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "server/discover", "tools/other", "logging/setLevel", ""])
def test_whatever_is_not_about_tools_is_no_method(method: str) -> None:
    side = build_server()
    if not method:  # which is an answer, as JSON-RPC has it: never answered
        assert isinstance(side.receive(b'{"jsonrpc":"2.0","id":1,"method":""}'), Nothing)
        return
    answer = ask(side, method, {}, id="abc")
    assert (answer["id"], answer["error"]["code"]) == ("abc", -32601)
    assert method in answer["error"]["message"]


@pytest.mark.req("app.mcp.errors")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {}),
        ("initialize", {"protocolVersion": 5}),
        ("initialize", [1]),
        ("tools/list", {"cursor": 5}),
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "add", "arguments": [1]}),
        ("tools/call", {"name": "add", "arguments": "a=1"}),
        ("tools/call", {"name": "none of ours"}),
        ("tools/call", "add"),
    ],
)
def test_parameters_that_do_not_fit_are_told(method: str, params: Any) -> None:
    side = build_server(ADD)
    answer = ask(side, method, params)
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)
    assert not side.pending
    assert "result" in ask(side, "ping")  # and nothing else has suffered


@pytest.mark.req("app.mcp.errors")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"[]", -32600),
        (b'"ping"', -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":4,"method":5}', -32600),
        (b"hello", -32700),
        (b'{"jsonrpc":"2.0",', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000, -32700),
    ],
)
def test_what_is_no_message_is_refused_and_a_batch_is_none(line: bytes, code: int) -> None:
    answer = read_reply(build_server().receive(line))
    assert answer["error"]["code"] == code
    assert answer["id"] == (4 if b'"id":4' in line else None)


@pytest.mark.req("app.mcp.errors")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
        b'{"jsonrpc":"2.0","id":1,"method":7,"error":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b"{}",
        b"",
        b"  \r\n",
    ],
)
def test_what_asks_nothing_is_never_answered(line: bytes) -> None:
    assert isinstance(build_server().receive(line), Nothing)


@pytest.mark.req("app.mcp.errors")
def test_a_message_may_be_spread_over_lines() -> None:
    heard = build_server().receive(b'{"jsonrpc": "2.0",\n "id": 1,\r\n "method": "ping"}\n')
    assert read_reply(heard) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.req("app.mcp.errors")
def test_a_request_that_is_too_long_is_refused_by_its_id() -> None:
    head = b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"add","arguments":{"text":"aaaa'
    answer = read_reply(build_server().oversize(Oversize(1 << 30, head, 1 << 26)))
    assert (answer["id"], answer["error"]["code"]) == ("big", -32600)
    assert isinstance(build_server().oversize(Oversize(1 << 30, b"aaaa", 1 << 26)), Nothing)


# -- lists


@pytest.mark.req("app.mcp.list")
def test_pages_lead_to_every_tool_whatever_comes_and_goes() -> None:
    tools = [ToolSpec(f"tool-{number:02}") for number in range(7)]
    side, client = PeerSide("serai", "1", lambda: tools, page=3), HostSide()
    found: list[str] = []
    cursor = ""
    for _ in range(4):
        _, message = client.list_tools(cursor)
        heard = receive_answer(client, read_reply_bytes(side.receive(message)))
        assert isinstance(heard, Listed)
        found += [tool.name for tool in heard.tools]
        if not (cursor := heard.cursor):
            break
        del tools[0]
    assert found == [f"tool-{number:02}" for number in range(7)]


@pytest.mark.req("app.mcp.list")
def test_without_pages_all_is_told_at_once_and_a_cursor_is_taken() -> None:
    tools = [ToolSpec(name) for name in ("b", "a", "c")]
    answer = ask(build_server(*tools), "tools/list")
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["a", "b", "c"]
    assert "nextCursor" not in answer["result"]
    answer = ask(build_server(*tools), "tools/list", {"cursor": "b"})
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["c"]


@pytest.mark.req("app.mcp.list")
@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"type": ["object", "null"], "properties": {"a": {}}}])
def test_arguments_are_always_an_object(schema: dict[str, Any]) -> None:
    """An API refuses a whole request for one schema that is none."""
    [tool] = ask(build_server(ToolSpec("t", schema=schema)), "tools/list")["result"]["tools"]
    assert tool["inputSchema"] == {**schema, "type": "object"}


@pytest.mark.req("app.mcp.list")
@pytest.mark.parametrize("deferred", [True, False])
def test_the_model_is_told_of_a_tool_at_once_unless_it_is_deferred(deferred: bool) -> None:
    side, client = build_server(ToolSpec("t", deferred=deferred)), HostSide()
    message = read_reply_bytes(side.receive(client.list_tools()[1]))
    assert json.loads(message)["result"]["tools"][0]["_meta"] == {"anthropic/alwaysLoad": not deferred}
    heard = client.receive(message)
    assert isinstance(heard, Listed)
    assert heard.tools[0].deferred is deferred


@pytest.mark.req("app.mcp.names", "app.mcp.list")
def test_a_tool_is_listed_under_its_safe_name_and_called_by_it() -> None:
    long = "a.tool/" + "x" * 80
    side, client = build_server(ToolSpec(long), ADD), HostSide()
    listed = ask(side, "tools/list")["result"]["tools"]
    [safe] = [tool["name"] for tool in listed if tool["name"] != "add"]
    assert len("mcp__serai__" + safe) <= 64
    assert call_tool(side, client, safe)[1].name == long
    assert call_tool(side, client, "add")[1].name == "add"
    assert ask(side, "tools/call", {"name": long}, id=9)["error"]["code"] == -32602


@pytest.mark.req("app.mcp.list")
def test_a_change_is_told_once_the_client_is_ready() -> None:
    side, client = build_server(), HostSide()
    assert side.notify_tools_changed() is None
    side.receive(client.notify_initialized())
    assert receive_answer(client, side.notify_tools_changed()) == Changed()


# -- calls


@pytest.mark.req("app.mcp.call")
def test_a_result_comes_as_it_was_and_its_details_do_not() -> None:
    side, client = build_server(ADD), HostSide()
    content = (
        TextBlock("text"),
        ImageBlock(b"\x00\xff" * 50, "image/gif"),
        OtherBlock("resource", RESOURCE),
        OtherBlock("resource_link", LINK),
    )
    call, heard = call_tool(side, client, "add", arguments={"a": 1})
    message = side.answer(heard.id, ToolResult(content, details={"only": "for people"}))
    assert b"for people" not in (message or b"")
    assert b"structured" not in (message or b"")
    assert receive_answer(client, message) == Done(call, ToolResult(content))


@pytest.mark.req("app.mcp.call")
def test_an_error_says_its_code_and_hint_to_the_model() -> None:
    side, client = build_server(ADD), HostSide()
    call, heard = call_tool(side, client, "add")
    done = receive_answer(client, side.answer(heard.id, ToolResult.error("no", code="PERMISSION_DENIED", hint="ask first")))
    assert done == Done(call, ToolResult((TextBlock("[error:PERMISSION_DENIED] no\nhint: ask first"),), is_error=True))


@pytest.mark.req("app.mcp.call")
@pytest.mark.parametrize(
    ("block", "version"),
    [
        (OtherBlock("resource_link", LINK), "2024-11-05"),
        (OtherBlock("audio", {"type": "audio", "data": "", "mimeType": "audio/wav"}), "2024-11-05"),
        (OtherBlock("resource", {"type": "resource", "resource": {"text": "no uri"}}), "2025-11-25"),
        (OtherBlock("resource", {"type": "resource"}), "2025-11-25"),
        (OtherBlock("resource", {"type": "text", "resource": {}}), "2025-11-25"),
        (OtherBlock("thing", {"type": "thing", "half": "\ud800"}), "2025-11-25"),
        (OtherBlock("thing", [1]), "2025-11-25"),
    ],
)
def test_what_the_client_cannot_take_is_text(block: OtherBlock, version: str) -> None:
    side, client = build_server(ADD), HostSide()
    side.receive(client.initialize(version)[1])
    _, heard = call_tool(side, client, "add")
    done = receive_answer(client, side.answer(heard.id, ToolResult((block,))))
    assert isinstance(done, Done)
    assert isinstance(done.result.content[0], TextBlock)


@pytest.mark.req("app.mcp.call")
def test_a_call_is_answered_once() -> None:
    side, client = build_server(ADD), HostSide()
    call, heard = call_tool(side, client, "add")
    assert isinstance(side.receive(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}'), Nothing)
    assert side.pending == {heard.id}
    assert receive_answer(client, side.fail(heard.id, -32603, "broken")) == Failed(call, -32603, "broken")
    assert side.answer(heard.id, ToolResult()) is None
    assert side.fail(heard.id, -1, "") is None
    assert not side.pending


@pytest.mark.req("app.mcp.call")
def test_a_result_that_is_no_json_leaves_the_call_open_to_fail() -> None:
    side, client = build_server(ADD), HostSide()
    call, heard = call_tool(side, client, "add")
    with pytest.raises(TypeError):
        side.answer(heard.id, ToolResult((OtherBlock("x", object()),)))
    assert receive_answer(client, side.fail(heard.id, -32603, "no JSON")) == Failed(call, -32603, "no JSON")


@pytest.mark.req("app.mcp.cancel")
def test_a_call_that_is_taken_back_is_not_answered() -> None:
    side, client = build_server(ADD), HostSide()
    call, heard = call_tool(side, client, "add")
    message = client.cancel(call)
    assert message is not None
    assert side.receive(message) == Cancelled(heard.id)
    assert side.answer(heard.id, ToolResult()) is None
    assert client.cancel(call) is None
    assert isinstance(side.receive(message), Nothing)


@pytest.mark.req("app.mcp.cancel")
def test_calls_have_deadlines_and_end_with_the_server() -> None:
    client = HostSide()
    late, _ = client.call_tool("a", now=1.0, timeout=2.0)
    other, _ = client.call_tool("b", now=1.0, timeout=9.0)
    assert client.next_deadline() == 3.0
    assert client.expire(3.0) == [late]
    assert b"notifications/cancelled" in (client.encode_cancellation(late) or b"")
    assert client.lose() == [other]


@pytest.mark.req("app.mcp.cancel")
def test_a_lost_client_leaves_no_call_open() -> None:
    side, client = build_server(ADD), HostSide()
    _, heard = call_tool(side, client, "add")
    assert side.lose() == {heard.id}
    assert side.answer(heard.id, ToolResult()) is None


# -- whatever comes


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
METHODS = ["initialize", "ping", "tools/list", "tools/call", "notifications/cancelled", "notifications/initialized", "x"]
frames = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": st.integers(0, 3) | json_values,
        "method": st.sampled_from(METHODS) | json_values,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.just("add") | json_values,
                "arguments": json_values,
                "cursor": st.text(max_size=3) | json_values,
                "requestId": st.integers(0, 3) | json_values,
                "protocolVersion": st.sampled_from(VERSIONS) | json_values,
                "_meta": json_values,
            },
        )
        | json_values,
        "result": json_values,
        "error": json_values,
    },
)


@pytest.mark.req("app.mcp.any")
@given(st.lists(st.binary(max_size=60) | frames.map(lambda frame: json.dumps(frame).encode()), max_size=12))
def test_whatever_comes_is_heard_and_both_sides_live_on(lines: list[bytes]) -> None:
    side, client = build_server(ADD), HostSide()
    client.call_tool("add")
    for line in lines:
        heard = side.receive(line)
        if isinstance(heard, Reply):
            assert json.loads(heard.message)["jsonrpc"] == "2.0"
            assert isinstance(client.receive(heard.message), events.HostEvent)
        elif isinstance(heard, Called):
            assert heard.id in side.pending
        assert isinstance(client.receive(line), events.HostEvent)
    for id in side.pending:
        assert side.answer(id, ToolResult.of("x")) is not None
    assert ask(side, "ping", id="the end")["result"] == {}


@pytest.mark.req("app.mcp.any")
@given(json_values)
def test_any_answer_of_a_server_ends_the_call(result: Any) -> None:
    for method in ("initialize", "list_tools", "call"):
        client = HostSide()
        call, _ = client.call_tool("a") if method == "call" else getattr(client, method)()
        heard = client.receive(json.dumps({"jsonrpc": "2.0", "id": call.id, "result": result}).encode())
        assert isinstance(heard, Agreed | Listed | Done | Failed)
        assert heard.call is call
        assert client.lose() == []


def test_a_server_that_wants_more_of_a_client_is_refused() -> None:
    reply = HostSide().receive(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    assert read_reply(reply)["error"]["code"] == -32601
    assert isinstance(HostSide().receive(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'), Nothing)


def test_blocks_that_a_client_does_not_know_are_kept() -> None:
    client = HostSide()
    call, _ = client.call_tool("a")
    content = [{"type": "hologram", "data": 1}, 5, {"type": "image", "data": "@@@"}, {"type": "text", "text": 5}, {}]
    heard = client.receive(json.dumps({"jsonrpc": "2.0", "id": call.id, "result": {"content": content}}).encode())
    assert isinstance(heard, Done)
    assert [type(block) for block in heard.result.content] == [OtherBlock, OtherBlock, TextBlock, OtherBlock, OtherBlock]
