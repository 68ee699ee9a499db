"""An extension of the SDK behind the exports of a plugin, without a component: what it answers, whatever its author's code does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi import messages, peer_side
from serai.errors import BadExtension, NoService
from serai.sdk import Extension, IngressEvent, ToolError, ToolResult, image
from serai.sdk.adapters import load
from serai.sdk.adapters import yoi as kit
from serai.sdk.adapters.piglet import Piglet
from serai.sdk.adapters.zot import Zot
from serai.sdk.current_call import Call

EVENT = {
    "kind": "websocket_text", "source": "websocket:wss://example.com/feed", "ingress_name": "in", "attempt": 1,
    "payload": {"url": "wss://example.com/feed", "text": "hi"}, "created_at": "2026-02-03T04:05:06.789Z", "correlation_id": "evt-1",
}  # fmt: skip


def start_ext(ext: Extension, functions: dict[str, Any] | None = None, config: Any = None) -> peer_side.PeerSide:
    exports = kit.exports(ext, functions)
    assert messages.read_status(exports.start(json.dumps(config)), "start").state == "ready"
    return exports


def call_tool(exports: peer_side.PeerSide, tool: str, arguments: Any) -> messages.ToolOutput:
    return messages.read_output(exports.handle_tool(tool, json.dumps(arguments)), strict=True)


def error_of(output: messages.ToolOutput) -> dict[str, Any]:
    assert output.content is not None
    error: dict[str, Any] = json.loads(output.content)["error"]
    assert output.summary == f"tool error: {error['code']}"
    return error


@dataclass
class Place:
    name: str
    height: int


RETURNED: list[tuple[Any, messages.ToolOutput]] = [
    ("fine", messages.ToolOutput("fine")),
    ("", messages.ToolOutput("tool completed")),
    ("  ", messages.ToolOutput("tool completed")),
    (None, messages.ToolOutput("tool completed")),
    ("a\nb", messages.ToolOutput("tool completed", "a\nb")),
    ("x" * 1025, messages.ToolOutput("tool completed", "x" * 1025)),
    ({"a": [1, None]}, messages.ToolOutput("tool completed", '{"a":[1,null]}')),
    ([1, 2], messages.ToolOutput("tool completed", "[1,2]")),
    (7, messages.ToolOutput("tool completed", "7")),
    (Place("Bern", 540), messages.ToolOutput("tool completed", '{"name":"Bern","height":540}')),
    (ToolResult("one", "two"), messages.ToolOutput("tool completed", "one\ntwo")),
    ("\ud800", messages.ToolOutput("?")),
]


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize(("value", "output"), RETURNED)
def test_what_a_tool_returns_is_an_output(value: Any, output: messages.ToolOutput) -> None:
    ext = Extension("some")

    @ext.tool
    def sync() -> Any:
        return value

    @ext.tool("async")
    async def later() -> Any:
        await asyncio.sleep(0)  # a pause for others, of whom there are none
        return value

    exports = start_ext(ext)
    assert call_tool(exports, "sync", {}) == call_tool(exports, "async", {}) == output
    assert messages.read_output(kit.exports(ext).call("sync", "{}")) == output  # the world without a start


FAILURES: list[tuple[BaseException, str, str]] = [
    (ToolError("no such town"), "failed", "no such town"),
    (ToolError("not you", code="DENIED"), "denied", "not you"),
    (ZeroDivisionError("by zero"), "failed", "bad failed: ZeroDivisionError: by zero"),
    (SystemExit(3), "failed", "SystemExit: 3"),
    (KeyboardInterrupt(), "failed", "KeyboardInterrupt"),
    (RecursionError("deep"), "failed", "bad failed: RecursionError: deep"),
    (MemoryError(), "failed", "bad failed: MemoryError"),
    (GeneratorExit(), "failed", "GeneratorExit"),
]


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(("error", "code", "text"), FAILURES)
def test_what_a_tool_raises_stays_inside(error: BaseException, code: str, text: str, awaited: bool) -> None:
    ext = Extension("some")

    async def later() -> None:
        raise error

    @ext.tool
    def bad() -> Any:
        if awaited:
            return later()
        raise error

    told = error_of(call_tool(start_ext(ext), "bad", {}))
    assert (told["code"], told["message"]) == (code, text)


def test_a_code_of_its_own_and_a_hint_are_told_beside_the_protocols() -> None:
    ext = Extension("some")

    @ext.tool
    def bad() -> str:
        raise ToolError("there is no such file", code="FILE_NOT_FOUND", hint="list the folder")

    details = {"code": "FILE_NOT_FOUND", "hint": "list the folder"}
    assert error_of(call_tool(start_ext(ext), "bad", {})) == {
        "code": "failed",
        "message": "there is no such file",
        "details": details,
    }


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize(
    "text", ["", "{", "nul", "[]", "7", "null", '{"town": []}', "{}", '{"town": "Bern", "more": 1}', "[" * 100_000]
)
def test_a_bad_input_is_invalid_input(text: str) -> None:
    ext = Extension("some")

    @ext.tool
    def weather(town: str) -> str:
        raise AssertionError(f"called with {town}")

    told = error_of(messages.read_output(start_ext(ext).handle_tool("weather", text)))
    assert told["code"] == "invalid_input"
    assert told["message"]


@given(st.text(), st.text())
def test_any_texts_give_an_output(name: str, text: str) -> None:
    ext = Extension("some")

    @ext.tool
    def weather(town: str, days: int = 1) -> str:
        return town * days

    messages.read_output(start_ext(ext).handle_tool(name, text), strict=True)
    exports = start_ext(ext)
    assert "error" in json.loads(exports.handle_ingress(name, text))


def test_an_unknown_tool_is_unsupported() -> None:
    assert error_of(call_tool(start_ext(Extension("some")), "nothing", {}))["code"] == "unsupported_tool"


def test_what_no_plugin_can_answer_is_invalid_output() -> None:
    ext = Extension("some")

    @ext.tool
    def picture() -> Any:
        return image(b"\x89PNG\r\n\x1a\n")

    @ext.tool
    def thing() -> Any:
        return object()

    @ext.tool
    def long() -> Any:
        return ["x" * 1000] * 100

    exports = start_ext(ext)
    for name in ("picture", "thing", "long"):
        assert error_of(call_tool(exports, name, {}))["code"] == "invalid_output"


@pytest.mark.req("yoi.rule.095")
def test_a_call_before_the_start_and_after_the_stop_is_told() -> None:
    exports = kit.exports(Extension("some"))
    before = {"error": {"message": "plugin instance has not been started"}}
    for _ in range(2):
        texts = exports.handle_tool("x", "{}"), exports.handle_ingress("in", json.dumps(EVENT)), exports.status(), exports.stop()
        assert [json.loads(text) for text in texts] == [before] * 4
        exports.start("null")
        assert json.loads(exports.stop()) == {"state": "stopped", "data": None}


def test_who_really_waits_is_told_that_nobody_would_wake_it() -> None:
    ext = Extension("some")
    cleaned: list[str] = []

    class Never:
        def __await__(self) -> Any:
            yield self

    @ext.tool
    async def waits() -> str:
        try:
            await Never()
        finally:
            cleaned.append("up")
        return "never"

    told = error_of(call_tool(start_ext(ext), "waits", {}))
    assert "has no event loop" in told["message"]
    assert cleaned == ["up"]


def test_a_tool_sees_its_call() -> None:
    ext = Extension("some")
    seen: list[tuple[str, bool]] = []

    @ext.tool
    def looks(call: Call) -> None:
        assert ext.call is call
        seen.append((call.name, call.cancelled))

    @ext.tool("raw", schema={"type": "object"})
    def raw(args: Any) -> Any:
        return args

    exports = start_ext(ext)
    call_tool(exports, "looks", {})
    assert seen == [("looks", False)]
    assert ext.call is None
    assert call_tool(exports, "raw", {"any": [1]}).content == '{"any":[1]}'


# -- services and ingresses -------------------------------------------------------------------------------------------------------


def test_a_service_starts_tells_and_stops() -> None:
    ext = Extension("some")
    service = ext.service("feed", description="it feeds")
    lived: list[Any] = []

    @ext.on_init
    async def init() -> None:
        lived.append("init")

    @service.start
    async def start(config: Any) -> None:
        lived.append(config)

    @service.status
    def status() -> dict[str, int]:
        return {"lived": len(lived)}

    @service.stop
    def stop() -> None:
        lived.append("stop")

    exports = start_ext(ext, config={"town": "Bern"})
    assert json.loads(exports.status()) == {"state": "ready", "data": {"lived": 2}}
    assert json.loads(exports.stop()) == {"state": "stopped", "data": None}
    assert lived == ["init", {"town": "Bern"}, "stop"]


@pytest.mark.req("yoi.rule.095")
@pytest.mark.parametrize("where", ["start", "status", "stop"])
def test_what_a_service_raises_is_an_error_document(where: str) -> None:
    ext = Extension("some")
    service = ext.service("feed")

    def bad() -> None:
        raise SystemExit("enough")

    getattr(service, where)(bad)
    exports = kit.exports(ext)
    answers = {"start": exports.start("null"), "status": exports.status(), "stop": exports.stop()}
    assert json.loads(answers[where]) == {"error": {"message": "SystemExit: enough"}}
    with pytest.raises(messages.BadDocument, match="returned error"):
        messages.read_status(answers[where], where)  # type: ignore[arg-type]


@pytest.mark.req("yoi.rule.096")
def test_the_commands_of_an_ingress_carry_the_events_ids() -> None:
    ext = Extension("some")

    @ext.ingress("in", kinds=["websocket_text"])
    async def hear(event: IngressEvent) -> dict[str, str]:
        event.reply(event.text.upper())
        event.send("wss://example.com/other", "there")
        event.request("GET", "https://example.com/")
        event.report("well", heard=1)
        return {"heard": event.text}

    answer = json.loads(start_ext(ext).handle_ingress("in", json.dumps(EVENT)))
    assert (answer["accepted"], answer["data"]) == (True, {"heard": "hi"})
    commands = answer["output_commands"]
    assert [one["correlation_id"] for one in commands] == ["evt-1:1", "evt-1:2", "evt-1:3", "evt-1:4"]
    assert {one["source_event_id"] for one in commands} == {"evt-1"}
    assert {one["requested_at"] for one in commands} == {"2026-02-03T04:05:06.789Z"}
    assert [(one["kind"], one["payload"]) for one in commands] == [
        ("websocket_send", {"url": "wss://example.com/feed", "text": "HI"}),
        ("websocket_send", {"url": "wss://example.com/other", "text": "there"}),
        ("host_request_dispatch", {"method": "GET", "url": "https://example.com/", "headers": [], "body": None}),
        ("diagnostic_status_update", {"message": "well", "status": {"heard": 1}}),
    ]


@pytest.mark.req("yoi.rule.096")
def test_a_long_id_is_cut_and_an_empty_one_is_refused() -> None:
    ext = Extension("some")

    @ext.ingress("in")
    def hear(event: IngressEvent) -> None:
        event.reply("yes")

    exports = start_ext(ext)
    [command] = json.loads(exports.handle_ingress("in", json.dumps({**EVENT, "correlation_id": "é" * 100})))["output_commands"]
    assert command["correlation_id"] == "é" * 64
    assert command["source_event_id"] == "é" * 100
    assert "needs an id" in exports.handle_ingress("in", json.dumps({**EVENT, "correlation_id": ""}))


def test_an_ingress_that_raises_asks_for_nothing() -> None:
    ext = Extension("some")

    @ext.ingress("in")
    def hear(event: IngressEvent) -> None:
        event.reply("too soon")
        raise ValueError("no")

    @ext.ingress("other")
    def refuse(event: IngressEvent) -> bool:
        return False

    exports = start_ext(ext)
    assert json.loads(exports.handle_ingress("in", json.dumps(EVENT))) == {"error": {"message": "ValueError: no"}}
    assert json.loads(exports.handle_ingress("other", json.dumps(EVENT))) == {"accepted": False, "data": None}
    assert "no ingress" in exports.handle_ingress("third", json.dumps(EVENT))
    assert "error" in json.loads(exports.handle_ingress("in", "[]"))


@pytest.mark.parametrize("name", ["", ".a", "a.", "a b", "é", "x" * 129, 7])
def test_a_name_that_no_manifest_takes_is_refused(name: Any) -> None:
    ext = Extension("some")
    with pytest.raises(BadExtension):
        ext.service(name)
    with pytest.raises(BadExtension):
        ext.ingress(name)(lambda event: None)


def test_two_of_one_name_are_refused() -> None:
    ext = Extension("some")
    service = ext.service("feed")
    service.start(lambda: None)
    with pytest.raises(BadExtension, match="two handlers for its start"):
        service.start(lambda: None)
    with pytest.raises(BadExtension, match='two services are named "feed"'):
        ext.service("feed")
    ext.ingress("in")(lambda event: None)
    with pytest.raises(BadExtension, match='two ingresses are named "in"'):
        ext.ingress("in")(lambda event: None)


# -- the host ---------------------------------------------------------------------------------------------------------------------


def test_the_interfaces_of_the_host() -> None:
    asked: list[tuple[str, Any]] = []

    def answering(name: str, reply: Any) -> Any:
        def function(*arguments: Any) -> str:
            asked.append((name, arguments))
            return json.dumps(reply)

        return function

    entries = [{"name": "a.txt", "kind": "file"}, {"name": "b", "kind": "dir"}]
    headers = [{"name": "Via", "value": "one"}, {"name": "via", "value": "two"}]
    functions = {
        "fs": SimpleNamespace(
            read=answering("read", {"path": "a", "content": "text", "truncated": True}),
            list=answering("list", {"path": ".", "entries": entries, "truncated": False}),
            write=answering("write", {"path": "a", "bytes_written": 4}),
        ),
        "request": SimpleNamespace(
            request=answering("request", {"status": 404, "headers": headers, "body": '{"a":1}', "truncated": False})
        ),
        "websocket": SimpleNamespace(
            open=answering("open", {"handle": 3, "url": "wss://x/"}),
            send_text=answering("send", {"sent": True, "bytes": 2}),
            recv=answering("recv", {"type": "text", "text": "yo"}),
            close=answering("close", {"closed": True}),
        ),
    }
    ext = Extension("some")
    start_ext(ext, functions)
    host = ext.host
    assert host.dialect == "yoi"
    assert host.fs.read("a") == ("text", True)
    with pytest.raises(ToolError, match="longer than a plugin can read"):
        host.fs.read_text("a")
    assert [tuple(one) for one in host.fs.list()] == [("a.txt", "file"), ("b", "dir")]
    assert host.fs.write("a", "text") == 4
    response = host.request("GET", "https://x/", headers={"Accept": "text/html"})
    assert (response.status, response.headers, response.json()) == (404, {"via": "one"}, {"a": 1})
    with host.websocket.open("wss://x/") as socket:
        socket.send("hi")
        assert socket.receive(1.5) == "yo"
    assert [name for name, _ in asked] == ["read", "read", "list", "write", "request", "open", "send", "recv", "close"]
    assert dict(asked)["recv"] == (3, 1500)
    assert json.loads(dict(asked)["write"][0]) == {"path": "a", "content": "text"}
    assert json.loads(dict(asked)["request"][0])["headers"] == [{"name": "Accept", "value": "text/html"}]
    with pytest.raises(NoService, match="the host speaks yoi, which has no host services"):
        _ = host.chat


def test_an_interface_that_was_not_asked_for_is_not_there() -> None:
    ext = Extension("some")
    start_ext(ext)
    with pytest.raises(NoService, match="built without the host interface fs") as caught:
        _ = ext.host.fs
    assert 'api = "fs"' in caught.value.hint
    assert not hasattr(ext.host, "request")


@pytest.mark.parametrize("name", ["fs", "request", "websocket"])
def test_other_hosts_have_no_such_interface(name: str) -> None:
    ext = Extension("some")
    with pytest.raises(NoService, match="no host has started"):
        getattr(ext.host, name)
    for dialect in ("zot", "piglet"):
        ext.host.dialect = dialect
        with pytest.raises(NoService, match=f"the host speaks {dialect}, and only hosts that speak yoi have {name}"):
            getattr(ext.host, name)


def test_other_hosts_leave_services_and_ingresses_out_and_say_so() -> None:
    ext = Extension("some")
    ext.service("feed")
    ext.ingress("in")(lambda event: None)
    assert Zot().list_unsupported(ext._registry) == ["it has no services: 1 is left out", "it has no ingresses: 1 is left out"]
    assert Piglet().list_unsupported(ext._registry) == [
        "it has no services: they are left out",
        "it has no ingresses: they are left out",
    ]
    assert b"feed" not in Piglet().encode_opening(ext._registry)


def test_yoi_has_no_wire() -> None:
    with pytest.raises(BadExtension, match="over no wire") as caught:
        load("yoi")
    assert "serai guest build" in caught.value.hint


def test_what_is_said_to_nobody_is_dropped() -> None:
    ext = Extension("some")

    @ext.tool
    def says() -> str:
        ext.notify("info", "hello")
        return "said"

    assert call_tool(start_ext(ext), "says", {}).summary == "said"


# -- for the build ----------------------------------------------------------------------------------------------------------------


def test_the_one_extension_of_a_program_is_found() -> None:
    module = ModuleType("program")
    with pytest.raises(BadExtension, match="program.py has no extension"):
        kit.found_in(module)
    vars(module)["ext"] = vars(module)["same"] = ext = Extension("some")
    assert kit.found_in(module) is ext
    vars(module)["other"] = Extension("other")
    with pytest.raises(BadExtension, match="has 2 extensions"):
        kit.found_in(module)


def test_what_it_offers_is_told_and_what_no_plugin_has() -> None:
    ext = Extension("some", "1.2")

    @ext.tool
    def weather(town: str) -> str:
        """The weather."""
        return town

    ext.service("feed", description="it feeds")
    ext.ingress("in", kinds=["a"], sources=["websocket:wss://x/"], description="way in")(lambda event: None)
    ext.command("one")(lambda: None)
    ext.command("two")(lambda: None)
    told = kit.described(ext)
    assert (told["name"], told["version"], told["missing"]) == ("some", "1.2", {"command": 2})
    [tool] = told["tool"]
    assert (tool["name"], tool["description"], tool["parameters"]["required"]) == ("weather", "The weather.", ["town"])
    assert told["service"] == [{"name": "feed", "description": "it feeds"}]
    assert told["ingress"] == [{"name": "in", "description": "way in", "event_kinds": ["a"], "sources": ["websocket:wss://x/"]}]
