"""Where a piglet host is heard, how a program begins, and how it ends (spec piglet 2.1, 2.2, 8.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.dialects.piglet.methods import METHODS
from serai.sdk import events
from serai.sdk.adapters.piglet import Piglet
from tests.support.profiles import examples
from tests.support.sdk.piglet_programs import Driven, write_program

GREET = "@ext.tool\ndef greet(name: str) -> str:\n    'Greet.'\n    print('printed', flush=True)\n    return f'Hello, {name}!'\n"
INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"5","cwd":"/work"}}\n'
LINE = 4 * 1024 * 1024
NAMES = ["id", "name", "args", "toolName", "message", "messages", "model", "requestId", "subscriptionId", "cwd", "code", "data"]


@pytest.mark.req("piglet.rule.sdk-transport")
def test_descriptors_3_and_4_are_the_wire_and_stdout_is_free(tmp_path: Path) -> None:
    body = f"""{GREET}
@ext.tool
def wires() -> str:
    import subprocess
    return subprocess.run(["ls", "/proc/self/fd"], close_fds=False, capture_output=True, text=True).stdout
"""
    with Driven(write_program(tmp_path, body)) as host:
        assert [one["method"] for one in host.begin()] == ["register/tool", "register/tool"]
        assert host.text("greet", name="Ada") == "Hello, Ada!"
        assert len(host.text("wires").split()) == 4  # three streams, and the listing's own: no child gets the wire
        assert host.end() == 0
        assert host.stdout == "printed\n"


@pytest.mark.req("piglet.rule.sdk-transport")
@pytest.mark.parametrize("value", [None, "0", "true", "", " 1"])
def test_without_the_very_1_it_is_the_standard_streams(tmp_path: Path, value: str | None) -> None:
    environ = {} if value is None else {"PIGLET_FD": value}
    with Driven(write_program(tmp_path, GREET), fd=False, environ=environ, opening=INITIALIZE) as host:
        assert host.answer(1)["result"] == {"name": "probe", "version": "1.2"}
        assert host.text("greet", name="Ada") == "Hello, Ada!"
        assert host.end() == 0
        assert "printed\n" in host.stderr


@pytest.mark.req("piglet.rule.sdk-transport")
def test_a_host_that_speaks_late_is_understood_all_the_same(tmp_path: Path) -> None:
    """What a zot host would have waited for is out by then; it is no message to this one (spec piglet FIX-2)."""
    with Driven(write_program(tmp_path, GREET), fd=False) as host:
        while b'"ready"' not in host._rest:
            host._rest += host._read(30)
        assert all("method" not in (line := json.loads(one)) and "id" not in line for one in host._rest.splitlines())
        host._rest = b""
        host.write(b"\n")  # a blank line is none
        assert [one["method"] for one in host.begin()] == ["register/tool"]
        assert host.text("greet", name="Ada") == "Hello, Ada!"
        assert host.end() == 0


@pytest.mark.req("piglet.rule.sdk-transport")
def test_a_shutdown_request_is_answered_and_ends_it_and_a_notification_does_not(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GREET)) as host:
        host.begin()
        host.note("shutdown")
        assert host.text("greet", name="Ada") == "Hello, Ada!"
        assert host.answer(host.ask("shutdown")) == {"jsonrpc": "2.0", "id": host._next_id, "result": None}
        assert host.process.wait(30) == 0  # though its input is still open


@pytest.mark.req("piglet.rule.sdk-transport")
def test_it_ends_at_the_end_of_input_before_it_was_even_spoken_to(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GREET)) as host:
        assert host.end() == 0
        assert (host.said, host.stderr) == ([], "")


def test_descriptors_that_are_not_there_are_told(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GREET), fd=False, environ={"PIGLET_FD": "1"}) as host:
        assert host.end() == 1
        assert "descriptor 3 or 4, where its host was to be heard, is closed" in host.stderr


UNREAD: dict[str, tuple[str, dict[str, object]]] = {
    "a tool that nobody has": ("tool/execute", {"name": "nope"}),
    "a command that nobody has": ("command/execute", {"name": "nope"}),
    "a guard that nobody has": ("interceptor/before", {"name": "nope", "toolName": "x", "args": {}}),
    "a method that nobody has": ("klingon/attack", {}),
    "a second beginning": ("initialize", {"cwd": "/work"}),
}


@pytest.mark.slow
@pytest.mark.req("piglet.rule.sdk-transport")
@pytest.mark.parametrize("what", UNREAD)
def test_a_host_that_sends_and_does_not_read_is_read_to_its_end(tmp_path: Path, what: str) -> None:
    """What needs no handler is answered all the same, and not by the thread that reads."""
    method, params = UNREAD[what]
    with Driven(write_program(tmp_path, GREET)) as host:
        host.begin()
        lines = [json.dumps({"jsonrpc": "2.0", "id": 1000 + number, "method": method, "params": params}) for number in range(5000)]
        host.write("\n".join([*lines, ""]).encode())
        assert host.end_unheard() == 0


def test_lines_of_4_mib_pass_both_ways_and_longer_ones_are_errors(tmp_path: Path) -> None:
    body = """
@ext.tool
def size(text: str) -> str: return str(len(text))

@ext.tool
def long(size: int) -> str: return "x" * size

@ext.tool
async def chat(size: int) -> str:
    try:
        return (await ext.host.chat("x" * size)).text
    except (ValueError, Refused) as error:
        return str(error)
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()

        def call(length: int, id: int) -> bytes:
            head = b'{"jsonrpc":"2.0","id":%d,"method":"tool/execute","params":{"name":"size","args":{"text":"' % id
            return head + b"x" * (length - len(head) - 5) + b'"}}}\n'[:5]

        whole = call(LINE, 900)
        assert len(whole) == LINE
        host.write(whole)
        assert host.answer(900)["result"]["content"][0]["text"].isdecimal()
        host.write(call(LINE + 1, 901))
        assert host.answer(901)["error"] == {
            "code": -32603,
            "message": f"the request could not be read: it has {LINE + 1} bytes; this side reads {LINE}",
        }
        answer = host.call("tool/execute", name="long", args={"size": LINE})
        assert answer["isError"]
        assert f"and piglet carries {LINE}" in answer["content"][0]["text"]
        assert f"and piglet carries {LINE}" in host.text("chat", size=LINE)
        asked = host.ask("tool/execute", {"name": "chat", "args": {"size": 1}})
        request = host.hear("host/chat")
        host.write(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%s"}}\n' % (request["id"], b"x" * LINE))
        assert "the answer could not be read" in host.answer(asked)["result"]["content"][0]["text"]


def test_what_is_no_message_changes_nothing(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GREET)) as host:
        host.write(
            b'nonsense\n[1,2]\n\n\r\n3\n{"id":77,"result":1}\n{"id":"x"}\n{"method":"later"}\n{"id":{},"method":"shutdown"}\n'
        )
        host.begin()
        assert host.error("klingon/attack") == {"code": -32601, "message": "unknown method: klingon/attack"}
        assert host.error("tool/execute", name="nope") == {"code": -32602, "message": "unknown tool: nope"}
        assert host.error("command/execute", name="nope") == {"code": -32602, "message": "unknown command: nope"}
        assert host.answer(host.ask("tool/execute", [1]))["error"]["code"] == -32602
        assert host.error("tool/execute", name=5) == {"code": -32602, "message": "invalid params: name is no text"}
        for id in ("text", 0, 10**12):
            asked = host.ask("tool/execute", {"name": "greet", "args": {"name": "Ada"}}, id=id)
            assert host.answer(asked)["id"] == id
        host.send({"ID": 5000, "Method": "tool/execute", "Params": {"NAME": "greet", "Args": {"name": "Ada"}}})
        assert host.answer(5000)["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]
        assert host.end() == 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@example({"id": float("inf"), "method": "initialize"})
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": VALUES,
            "ID": VALUES,
            "method": st.sampled_from([*METHODS, "", "x"]) | VALUES,
            "params": VALUES,
            "result": VALUES,
            "error": VALUES,
        },
    )
)
def test_no_message_makes_the_adapter_fail(message: dict[str, object]) -> None:
    adapter = Piglet()
    line = json.dumps(message).encode()
    for item in (*adapter.parse_line(line), *adapter.parse_oversized(line[:40], 10**7)):
        if isinstance(item, events.UnsupportedRequest):
            assert json.loads(adapter.encode_error(item.id, item.code, item.why))["id"] == json.loads(item.id)
