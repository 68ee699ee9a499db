"""Every request gets one answer: what handlers return and raise, and what goes out for it."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest

from serai.sdk import (
    Allow,
    Block,
    Call,
    Cancelled,
    Display,
    Failed,
    Image,
    Insert,
    Nothing,
    OpenPanel,
    Prompt,
    Rewrite,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
    image,
    text,
)
from tests.support.sdk.pipe_host import Talk

PNG = b"\x89PNG\r\n\x1a\n rest"


class Sky(enum.Enum):
    FOG = "fog"


@dataclasses.dataclass
class Weather:
    city: str
    sky: Sky = Sky.FOG


# -- tools ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.sdk.content", "zot.sdk.tool")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("plain", [{"type": "text", "text": "plain"}]),
        ("", [{"type": "text", "text": ""}]),
        (None, []),
        (Text("a"), [{"type": "text", "text": "a"}]),
        (
            [text("a"), "b", image(PNG)],
            [
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b"},
                {"type": "image", "mime_type": "image/png", "data": base64.b64encode(PNG).decode()},
            ],
        ),
        (Image(b"<svg/>", "image/svg+xml"), [{"type": "image", "mime_type": "image/svg+xml", "data": "PHN2Zy8+"}]),
        (ToolResult("a", text("b")), [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        (5, [{"type": "text", "text": "5"}]),
        (True, [{"type": "text", "text": "true"}]),
        ({"a": [1, None]}, [{"type": "text", "text": '{"a": [1, null]}'}]),
        (["a", "b"], [{"type": "text", "text": '["a", "b"]'}]),
        ([], [{"type": "text", "text": "[]"}]),
        (Weather("Bern"), [{"type": "text", "text": '{"city": "Bern", "sky": "fog"}'}]),
        ({"at": dt.date(2026, 1, 2), "in": Path("a/b")}, [{"type": "text", "text": '{"at": "2026-01-02", "in": "a/b"}'}]),
    ],
)
def test_what_a_tool_may_return(talk: Talk, value: object, content: list[Any]) -> None:
    talk.ext.tool("t", schema={})(lambda args: value)
    talk.start()
    answer = talk.call("t")
    assert answer["content"] == content
    assert "is_error" not in answer


@pytest.mark.req("zot.sdk.content")
def test_an_error_result_says_so_and_the_type_of_an_image_is_told_by_its_bytes(talk: Talk) -> None:
    talk.ext.tool("t", schema={})(lambda args: ToolResult.error("no harbour"))
    talk.start()
    assert talk.call("t")["is_error"] is True
    starts = {b"\xff\xd8\xff\xe0": "image/jpeg", b"GIF89a": "image/gif", b"RIFF....WEBPVP8 ": "image/webp", PNG: "image/png"}
    assert {data: image(data).mime for data in starts} == starts
    with pytest.raises(ValueError, match=r'image\(data, "image/svg\+xml"\)'):
        image(b"<svg/>")
    with pytest.raises(TypeError, match="bytes, not of str"):
        image("path.png")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text, not int"):
        image(PNG, 5)  # type: ignore[arg-type]


@pytest.mark.req("sdk.answer.wrong-type", "sdk.answer.once")
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, "a set"),
        (b"bytes", "a bytes"),
        (object(), "an object"),
        ({"a": {1}}, "a set"),
        ((one for one in [1]), "a generator"),
        (math.nan, "cannot be told as JSON"),
        ({(1, 2): 3}, "cannot be told as JSON"),
        (ToolResult(5), "a result with an int in it"),  # type: ignore[arg-type]
        (ToolResult(Text(5)), "a result with a Text in it"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_result_is_an_error_that_names_its_type(
    talk: Talk, capfd: pytest.CaptureFixture[str], value: object, says: str
) -> None:
    talk.ext.tool("t", schema={})(lambda args: value)
    talk.start()
    answer = talk.call("t")
    assert answer["is_error"] is True
    assert answer["content"][0]["text"].startswith("t failed: it returned ")
    assert says in answer["content"][0]["text"]
    assert "tool t failed" in capfd.readouterr().err


@pytest.mark.req("sdk.answer.raises", "sdk.answer.once")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_exception_is_told_by_name_and_its_trace_goes_to_stderr(
    talk: Talk, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    def deeper() -> None:
        raise ValueError("no city") from KeyError("cause")

    def sync(args: Any) -> None:
        deeper()

    async def later(args: Any) -> None:
        deeper()

    talk.ext.tool("t", schema={})(sync if kind == "sync" else later)
    talk.start()
    answer = talk.call("t")
    assert (answer["content"][0]["text"], answer["is_error"]) == ("t failed: ValueError: no city", True)
    told = capfd.readouterr().err
    assert "[probe] tool t failed: ValueError: no city\n" in told
    assert f"test_answers.py:{deeper.__code__.co_firstlineno + 1} in deeper: raise ValueError" in told
    assert "because of KeyError: 'cause'" in told
    assert "sdk/" not in told  # its own frames are nobody's business
    assert len(told.splitlines()) < 10


class Proxy:
    """As libraries have them for what is bound later."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("nothing is bound here")


class MuteError(ToolError):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.req("sdk.answer.once")
def test_not_even_a_value_that_cannot_be_looked_at_costs_an_answer_or_a_thread() -> None:
    talk = Talk(concurrency=1)

    @talk.ext.tool("t", schema={})
    def tool(args: Any) -> Any:
        if args == "proxy":
            return Proxy()
        raise {"mute": MuteError, "long": ToolError}[args]("x" * 5_000_000)

    @talk.ext.tool("later", schema={})
    async def later(args: Any) -> Any:
        return tool(args)

    talk.start()
    for name in ("t", "later"):
        assert talk.text(name, "proxy").startswith(f"{name} failed: it returned a Proxy")
        assert talk.text(name, "mute") == "MuteError"
        assert talk.text(name, "long") == f"tool {name} failed, and its error cannot be told"
    talk.close()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.req("sdk.answer.raises", "sdk.answer.once")
@pytest.mark.parametrize(
    ("error", "told", "traced"),
    [
        (ToolError("there is no such city"), "there is no such city", False),
        (ToolError(), "t failed and gave no reason", False),
        (SystemExit(3), "t failed: SystemExit: 3", True),
        (KeyboardInterrupt(), "t failed: KeyboardInterrupt", True),
        (Cancelled(), "t was cancelled", False),
        (Mute(), "t failed: Mute", True),
        (ValueError("x" * 10_000), "t failed: ValueError: " + "x" * 2000, True),
        (ValueError("half \ud800 a pair"), "t failed: ValueError: half ? a pair", True),
    ],
)
def test_whatever_is_raised_is_one_error_result(
    talk: Talk, capfd: pytest.CaptureFixture[str], error: BaseException, told: str, traced: bool
) -> None:
    def tool(args: Any) -> None:
        raise error

    talk.ext.tool("t", schema={})(tool)
    talk.start()
    assert talk.text("t") == told
    assert ("tool t failed" in capfd.readouterr().err) is traced


@pytest.mark.req("sdk.answer.nobody")
def test_who_is_not_there_is_told_in_the_protocols_words_and_a_question_to_nobody_passes(talk: Talk) -> None:
    talk.start()
    answer = talk.call("nope")
    assert (answer["content"], answer["is_error"]) == ([{"type": "text", "text": 'no handler for tool "nope"'}], True)
    answer = talk.command("nope")
    assert (answer["action"], answer["error"]) == ("noop", "no handler for /nope")
    assert talk.question("tool_call", tool_name="bash", tool_args={}) == {}
    assert talk.question("something_new") == {}


@pytest.mark.req("zot.edge.51")
@pytest.mark.parametrize("args", [None, 5, "text", [], [1], True, {"a": None}])
def test_arguments_are_whatever_json_came(talk: Talk, args: object) -> None:
    seen: list[object] = []
    talk.ext.tool("raw", schema={})(seen.append)

    @talk.ext.tool
    def typed(city: str = "Bern") -> str:
        return city

    talk.start()
    talk.answer(talk.ask("tool_call", name="raw", args=args))
    assert seen == [args]
    answer = talk.answer(talk.ask("tool_call", name="typed", args=args))
    assert answer.get("is_error", False) is (args is not None)  # null is how some say that there are none


@pytest.mark.req("zot.edge.51")
def test_what_is_no_json_is_no_argument(talk: Talk) -> None:
    talk.ext.tool("raw", schema={})(lambda args: "called")
    talk.start()
    key = ("tool_result", "nan")
    talk._asked[key] = "tool_call"
    talk.write(b'{"type":"tool_call","id":"nan","name":"raw","args":{"x":NaN}}\n')
    assert talk.answer(key)["content"][0]["text"] == "the request could not be read: NaN is no JSON"


def test_a_tool_with_a_schema_may_take_nothing(talk: Talk) -> None:
    talk.ext.tool("raw", schema={})(lambda: "fine")
    talk.start()
    assert talk.text("raw", {"a": 1}) == "fine"


def test_a_call_without_arguments_has_none(talk: Talk) -> None:
    talk.ext.tool("raw", schema={})(lambda args: args)
    talk.start()
    assert talk.answer(talk.ask("tool_call", name="raw"))["content"] == [{"type": "text", "text": "{}"}]


@pytest.mark.req("sdk.args.errors")
def test_arguments_that_do_not_fit_are_told_to_the_model_and_to_nobody_else(talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    @talk.ext.tool
    def weather(city: str, days: int, call: Call) -> str:
        return f"{city} {days} {call.name} {call.cancelled}"

    talk.start()
    assert talk.text("weather", {"city": "Bern", "days": "3"}) == "Bern 3 weather False"
    answer = talk.call("weather", {"days": "many"})
    assert answer["is_error"] is True
    told = answer["content"][0]["text"]
    assert "city" in told
    assert "days" in told
    assert capfd.readouterr().err == ""


# -- commands ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.sdk.responses")
@pytest.mark.parametrize(
    ("value", "members"),
    [
        ("shown", {"action": "display", "display": "shown"}),
        (Display("shown"), {"action": "display", "display": "shown"}),
        (Prompt("ask"), {"action": "prompt", "prompt": "ask"}),
        (Insert("typed"), {"action": "insert", "insert": "typed"}),
        (Nothing(), {"action": "noop"}),
        (None, {"action": "noop"}),
        (Failed("no tide"), {"action": "noop", "error": "no tide"}),
        (Failed(""), {"action": "noop", "error": "it failed and gave no reason"}),
        (OpenPanel("p"), {"action": "open_panel", "open_panel": {"id": "p"}}),
        (
            OpenPanel("p", "Tides", ["a", ""], "esc"),
            {"action": "open_panel", "open_panel": {"id": "p", "title": "Tides", "lines": ["a", ""], "footer": "esc"}},
        ),
    ],
)
def test_what_a_command_may_return(talk: Talk, value: object, members: dict[str, Any]) -> None:
    talk.ext.command("c")(lambda args: value)
    talk.start()
    answer = talk.command("c")
    assert {key: value for key, value in answer.items() if key not in ("type", "id")} == members


@pytest.mark.req("sdk.answer.wrong-type", "sdk.answer.raises")
@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda args: 5, "/c failed: it returned an int; a command returns text"),
        (lambda args: Display(5), "/c failed: it returned Display with an int in it instead of text"),  # type: ignore[arg-type]
        (lambda args: OpenPanel("p", lines=[5]), "/c failed: it returned OpenPanel with an int in it"),  # type: ignore[list-item]
        (lambda args: 1 / 0, "/c failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_command_that_fails_is_told_to_the_person(talk: Talk, act: Any, error: str) -> None:
    talk.ext.command("c")(act)
    talk.start()
    answer = talk.command("c")
    assert answer["action"] == "noop"
    assert answer["error"].startswith(error)


def test_a_command_gets_what_stands_behind_it(talk: Talk) -> None:
    talk.ext.command("c")(json.dumps)
    talk.start()
    assert talk.command("c", "two  words")["display"] == '"two  words"'
    assert talk.answer(talk.ask("command_invoked", name="c"))["display"] == '""'


# -- interceptors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req(
    "zot.sdk.intercept_tool_call",
    "zot.sdk.intercept_turn_start",
    "zot.sdk.intercept_assistant_message",
    "zot.ours.4.4-sdk-omits-args",
    "sdk.wire.optionals",
)
@pytest.mark.parametrize(
    ("stage", "value", "members"),
    [
        ("tool_call", None, {}),
        ("tool_call", True, {}),
        ("tool_call", Allow(), {}),
        ("tool_call", False, {"block": True}),
        ("tool_call", Block("harbour closed"), {"block": True, "reason": "harbour closed"}),
        ("tool_call", Rewrite({"command": "ls"}), {"modified_args": {"command": "ls"}}),
        ("tool_call", Rewrite({}), {"modified_args": {}}),
        ("tool_call", Rewrite({"path": "f\udc80"}), {"modified_args": {"path": "f\udc80"}}),
        ("turn_start", None, {}),
        ("turn_start", Block("enough"), {"block": True, "reason": "enough"}),
        ("assistant_message", Rewrite("better"), {"replace_text": "better"}),
        ("assistant_message", Rewrite(""), {"block": True}),
        ("assistant_message", Block(), {"block": True}),
    ],
)
def test_what_an_interceptor_may_return(talk: Talk, stage: str, value: object, members: dict[str, Any]) -> None:
    getattr(talk.ext, f"intercept_{stage}")(lambda subject: value)
    talk.start()
    assert talk.question(stage, tool_name="bash", tool_args={"command": "x"}, step=1, text="t") == members


@pytest.mark.req("sdk.answer.guard-closed")
@pytest.mark.parametrize(
    ("stage", "act", "reason"),
    [
        ("tool_call", lambda subject: 1 / 0, "intercept tool_call failed: ZeroDivisionError: division by zero"),
        ("tool_call", lambda subject: "no", "intercept tool_call failed: it returned a str"),
        ("tool_call", lambda subject: 0, "intercept tool_call failed: it returned an int"),
        ("tool_call", lambda subject: Rewrite(None), "intercept tool_call failed: it returned Rewrite of a NoneType"),
        ("tool_call", lambda subject: Rewrite({"a": math.nan}), "intercept tool_call failed: ValueError"),
        ("tool_call", lambda subject: Rewrite({"a": object()}), "intercept tool_call failed: TypeError"),
        ("tool_call", lambda subject: Rewrite({"a": "x" * 5_000_000}), "the answer has 5000"),
        ("turn_start", lambda step: Rewrite(5), "intercept turn_start failed: it returned Rewrite of an int; at turn_start"),
        ("assistant_message", lambda text: Rewrite({}), "intercept assistant_message failed: it returned Rewrite of a dict"),
        ("turn_start", lambda step: Block(5), "intercept turn_start failed: it returned a Block"),  # type: ignore[arg-type]
    ],
)
def test_a_guard_that_stumbles_blocks_and_says_why(talk: Talk, stage: str, act: Any, reason: str) -> None:
    talk.ext.intercept(stage)(act)
    talk.start()
    answer = talk.question(stage, tool_name="bash", tool_args={}, text="t")
    assert answer["block"] is True
    assert answer["reason"].startswith(reason)
    assert answer.keys() == {"block", "reason"}


@pytest.mark.req("zot.sdk.intercept_tool_call", "zot.sdk.intercept_turn_start", "zot.sdk.intercept_assistant_message")
def test_an_interceptor_gets_what_it_is_about(talk: Talk) -> None:
    seen: list[object] = []
    for stage in ("tool_call", "turn_start", "assistant_message"):
        talk.ext.intercept(stage)(seen.append)
    talk.start()
    talk.question("tool_call", tool_id="call_9", tool_name="bash", tool_args={"command": "make"})
    talk.question("tool_call", tool_name="odd", tool_args=None)
    talk.question("turn_start", step=3)
    talk.question("assistant_message", text="hello")
    assert seen == [ToolCall("call_9", "bash", {"command": "make"}), ToolCall("", "odd", None), 3, "hello"]
