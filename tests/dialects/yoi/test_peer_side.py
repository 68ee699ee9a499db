"""The plugin's side: documents within their bounds, and an edge that lets nothing out."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi import messages, output_commands, peer_side
from serai.dialects.yoi.peer_side import Event, Output, PeerSide, ToolError
from tests.support.yoi.ingress_documents import NOW, URL, event, record

texts = st.text(st.characters(), max_size=50)


class Plugin:
    """Does as its input says."""

    def __init__(self, config: Any) -> None:
        self.config = config
        if config == "bad":
            raise RuntimeError("no such config")

    def tool(self, name: str, value: Any) -> Any:
        if name == "fail":
            raise ToolError("denied", "not today", value)
        if name == "exit":
            sys.exit(3)
        if name != "echo":
            raise ToolError("unsupported_tool", f"there is no tool `{name}`")
        return value

    def ingress(self, name: str, given: Event) -> Any:
        if name == "fail":
            raise RuntimeError("no")
        if name == "large":
            return {"data": "x" * 70_000}
        return [peer_side.build_websocket_send(given, "reply", f"{given.payload['text']}!")] if name == "chat" else given.payload


def start_exports(config: str = "null") -> PeerSide:
    exports = PeerSide(Plugin)
    assert exports.start(config) == '{"state":"ready","data":null}'
    return exports


def error_of(text: str) -> dict[str, Any]:
    output = messages.read_output(text, strict=True)
    error: dict[str, Any] = json.loads(output.content or "")["error"]
    assert output.summary == f"tool error: {error['code']}"
    return error


def test_it_needs_the_standard_library_and_nothing_else() -> None:
    code = "import sys; from serai.dialects.yoi import peer_side; print(*sys.modules)"
    found = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.split())
    assert {name for name in found if name.startswith("serai.dialects.yoi.")} == {"serai.dialects.yoi.peer_side"}
    assert not found & {"msgspec", "serai.model", "serai.wire", "serai.errors", "serai.limits", "asyncio", "typing_extensions"}


# -- outputs --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize("summary", ["", " ", "\n\t"])
def test_a_blank_summary_becomes_tool_completed(summary: str) -> None:
    assert messages.read_output(peer_side.build_tool_output(summary, "x")).summary == "tool completed"
    assert messages.read_output(peer_side.build_json_output([1], summary)).summary == "tool completed"


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize("char", ["x", "é", "🎈", '"', "\\", "\x01", "\ud800"])
@pytest.mark.parametrize("size", [0, 100, 60_416, 60_417, 200_000])
def test_an_output_is_cut_until_it_fits(char: str, size: int) -> None:
    text = peer_side.build_tool_output(char * size, char * size)
    assert len(text.encode()) <= 65_536
    output = messages.read_output(text, strict=True)
    assert output.content is not None
    assert len(output.content.encode()) <= 60_416
    if size <= 100:
        assert output.content == (char * size).replace("\ud800", "?")
    else:
        assert output.content.endswith("…") or len((char * size).encode(errors="replace")) <= 60_416
        assert len(text.encode()) > 60_000


@pytest.mark.req("yoi.rule.095")
def test_a_structured_result_is_whole_or_an_error() -> None:
    assert json.loads(messages.read_output(peer_side.build_json_output({"a": [1, "é"]}, "s")).content or "") == {"a": [1, "é"]}
    for value in ("x" * 60_417, '"' * 20_000):
        with pytest.raises(ToolError) as caught:
            peer_side.build_json_output(value)
        assert caught.value.code == "invalid_output"
    for odd in (object(), float("nan"), {1: {2}}):
        with pytest.raises(ToolError) as caught:
            peer_side.build_json_output(odd)
        assert caught.value.code == "serialization"


@pytest.mark.req("yoi.rule.095", "yoi.rule.013")
def test_an_error_output() -> None:
    assert error_of(peer_side.build_error_output("denied", "no", {"a": 1})) == {
        "code": "denied",
        "message": "no",
        "details": {"a": 1},
    }
    assert error_of(peer_side.build_error_output("denied", "no")) == {"code": "denied", "message": "no"}
    assert error_of(peer_side.build_error_output("own code", "no"))["code"] == "failed"
    assert error_of(peer_side.build_error_output("failed", "no", "x" * 70_000)) == {"code": "failed", "message": "no"}
    assert error_of(peer_side.build_error_output("failed", "no", object())) == {"code": "failed", "message": "no"}
    assert len(error_of(peer_side.build_error_output("failed", "é" * 5000))["message"].encode()) <= 4096


# -- the edge -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.095")
def test_a_call_before_start_says_so() -> None:
    answer = '{"error":{"message":"plugin instance has not been started"}}'
    exports = PeerSide(Plugin)
    assert exports.handle_tool("echo", "1") == exports.handle_ingress("chat", "{}") == exports.status() == exports.stop() == answer
    exports = start_exports()
    assert exports.stop() == '{"state":"stopped","data":null}'
    assert exports.status() == answer


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize("text", ["{", "", "nothing", "[" * 5000])
def test_bad_input_is_an_error_output(text: str) -> None:
    assert error_of(start_exports().handle_tool("echo", text))["code"] == "invalid_input"


@pytest.mark.req("yoi.rule.095")
def test_nothing_that_is_raised_leaves_an_export() -> None:
    exports = start_exports()
    assert error_of(exports.handle_tool("fail", "[1]")) == {"code": "denied", "message": "not today", "details": [1]}
    assert error_of(exports.handle_tool("none", "1"))["code"] == "unsupported_tool"
    assert error_of(exports.handle_tool("exit", "1")) == {"code": "failed", "message": "SystemExit: 3"}
    assert error_of(exports.handle_tool("echo", json.dumps({"a": "\x01" * 15_000})))["code"] == "invalid_output"
    assert json.loads(exports.handle_ingress("fail", messages.encode_event(event()))) == {"error": {"message": "RuntimeError: no"}}
    assert "error" in json.loads(exports.handle_ingress("chat", "[]"))
    assert "error" in json.loads(exports.handle_ingress("large", messages.encode_event(event())))
    assert json.loads(PeerSide(Plugin).start('"bad"')) == {"error": {"message": "RuntimeError: no such config"}}
    assert error_of(PeerSide(lambda _: 1 // 0).call("echo", "1"))["message"].startswith("ZeroDivisionError: ")


@pytest.mark.req("yoi.rule.095")
def test_an_exception_that_cannot_be_told_is_still_caught() -> None:
    class Mute(BaseException):
        def __str__(self) -> str:
            raise RuntimeError

    class Bad:
        def tool(self, name: str, value: Any) -> Any:
            raise Mute

        def stop(self) -> None:
            raise Mute

    exports = PeerSide(lambda _: Bad())
    assert error_of(exports.call("x", "1"))["message"] == "Mute"
    assert exports.stop() == '{"error":{"message":"Mute"}}'
    assert exports.status() == '{"state":"ready","data":null}'  # what could not be stopped is still there


def test_a_life_of_a_plugin() -> None:
    exports = PeerSide(Plugin)
    exports.start("no JSON at all")
    assert exports._made.config is None
    exports = start_exports('{"a": 1}')
    assert exports._made.config == {"a": 1}
    assert messages.read_output(exports.handle_tool("echo", '"text"')).content == "text"
    assert messages.read_output(exports.handle_tool("echo", '{"a": 1}')).content == '{"a":1}'
    assert messages.read_output(exports.handle_tool("echo", "null")).content is None
    assert messages.read_output(peer_side.encode_answer(Output("s", "c"))).summary == "s"
    assert messages.read_status(exports.status(), "status").state == "ready"
    assert messages.read_status(exports.stop(), "stop").state == "stopped"


def test_a_plugin_may_say_how_it_is() -> None:
    class Told:
        def __init__(self, given: Any, config: Any) -> None:
            self.given = given

        def status(self) -> Any:
            return self.given

    for said, state in (("waiting", "waiting"), ({"state": "busy", "data": 1}, "busy"), (None, "ready")):
        exports = PeerSide(partial(Told, said))
        exports.start("null")
        assert messages.read_status(exports.status(), "status").state == state


# -- commands -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.096")
def test_a_command_takes_its_ids_and_its_moment_from_the_event() -> None:
    given = peer_side.read_event(messages.encode_event(event()))
    assert peer_side.build_websocket_send(given, "reply", "hi!") == {
        "correlation_id": "event-1:reply", "source_event_id": "event-1", "command_id": "reply", "kind": "websocket_send",
        "payload": {"url": URL, "text": "hi!"}, "requested_at": NOW,
    }  # fmt: skip
    assert peer_side.build_websocket_send(given._replace(created_at=""), "reply", "")["requested_at"] == "1970-01-01T00:00:00Z"
    assert peer_side.build_status_update(given, "s", status=1)["payload"] == {"status": 1}
    assert peer_side.build_command(given, "a\nb\x7f\x9b", "k", {})["correlation_id"] == "event-1:a-b--"
    long = peer_side.build_command(given, "x" + "é" * 100, "k", {})["correlation_id"]
    assert len(long.encode()) in (127, 128)
    assert long.startswith("event-1:xé")


@pytest.mark.req("yoi.rule.096")
@pytest.mark.parametrize(("command_id", "event_id"), [("", "e"), ("c", ""), ("", "")])
def test_an_empty_id_is_refused(command_id: str, event_id: str) -> None:
    with pytest.raises(ValueError, match="needs an id"):
        peer_side.build_command(Event("k", "s", correlation_id=event_id), command_id, "websocket_send", {})


@pytest.mark.req("yoi.rule.096")
def test_what_the_kit_answers_is_what_the_host_lets_through() -> None:
    answer = start_exports().handle_ingress("chat", messages.encode_event(event()))
    output = messages.read_service(answer)
    batch = output_commands.check(
        output.commands, event=event(), record=record(), now=NOW, websocket=lambda url, text: "", request=lambda descriptor: "",
    )  # fmt: skip
    assert [ready.payload for ready in batch.ready] == [output_commands.WebSocketSend(URL, "hi!")]
    assert messages.read_service(peer_side.build_service_output()).value == {"accepted": True, "data": None}


def test_what_an_absent_field_of_an_event_means() -> None:
    assert peer_side.read_event('{"kind": "k", "source": "s", "further": 1}') == Event("k", "s", "", None, "", 1, "")


@pytest.mark.req("yoi.rule.095")
@given(texts, texts, texts)
def test_whatever_comes_in_a_document_goes_out(name: str, text: str, config: str) -> None:
    exports = PeerSide(Plugin)
    exports.start(config)
    for answer in (exports.handle_tool(name, text), exports.handle_ingress(name, text), exports.status(), exports.stop()):
        messages.parse_json(answer)


@given(texts, texts)
def test_any_output_of_the_kit_is_one_for_the_host(summary: str, content: str) -> None:
    messages.read_output(peer_side.build_tool_output(summary, content), strict=True)
    messages.read_output(peer_side.build_error_output(summary, content, content), strict=True)
    messages.read_status(peer_side.build_status(summary, content), "status") if summary != "failed" else None
