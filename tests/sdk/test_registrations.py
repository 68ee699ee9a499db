"""What an extension offers: the frames it opens with, and what is wrong with it at import."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from serai.sdk import BadExtension, Display, Extension
from tests.support.sdk.pipe_host import Talk


@pytest.mark.req("zot.sdk.run", "zot.sdk.extension", "zot.sdk.command", "zot.sdk.tool")
def test_everything_is_said_before_anything_is_heard_and_in_the_protocols_order(talk: Talk) -> None:
    ext = talk.ext

    @ext.intercept("assistant_message")
    @ext.intercept("turn_start")
    @ext.intercept("tool_call")
    def judge(subject: object) -> None: ...

    @ext.tool
    def zebra(size: int = 1) -> None:
        """A striped one."""

    @ext.on("turn_end")
    @ext.on("session_start")
    def hear() -> None: ...

    @ext.tool("ant", description="small", schema={"type": "object", "title": "its own"})
    def raw(args: Any) -> None: ...

    @ext.command("tide", "next high water")
    def tide() -> None: ...

    @ext.command
    def harbour(args: str) -> None:
        """Which one is it?

        More of it.
        """

    assert talk.start() == [
        {"type": "hello", "name": "probe", "version": "1", "capabilities": ["commands", "tools", "events", "panels"]},
        {"type": "register_command", "name": "tide", "description": "next high water"},
        {"type": "register_command", "name": "harbour", "description": "Which one is it?"},
        {
            "type": "register_tool",
            "name": "zebra",
            "description": "A striped one.",
            "schema": {
                "type": "object",
                "properties": {"size": {"type": "integer", "default": 1}},
                "additionalProperties": False,
            },
        },
        {"type": "register_tool", "name": "ant", "description": "small", "schema": {"type": "object", "title": "its own"}},
        {
            "type": "subscribe",
            "events": ["session_start", "turn_end"],
            "intercept": ["tool_call", "turn_start", "assistant_message"],
        },
        {"type": "ready"},
    ]


@pytest.mark.req("zot.sdk.run")
def test_who_wants_no_events_does_not_subscribe(talk: Talk) -> None:
    assert [frame["type"] for frame in talk.start()] == ["hello", "ready"]


@pytest.mark.req("zot.sdk.command")
def test_each_use_of_a_command_is_one_frame_and_the_last_handler_serves(talk: Talk) -> None:
    talk.ext.command("tide", "first")(lambda: "one")
    talk.ext.command("tide", "second")(lambda: Display("two"))
    described = [frame["description"] for frame in talk.start() if frame["type"] == "register_command"]
    assert described == ["first", "second"]
    assert talk.command("tide")["display"] == "two"


@pytest.mark.req("zot.sdk.notify", "zot.sdk.panel-render-close")
def test_what_is_said_before_there_is_a_host_comes_behind_the_opening(talk: Talk) -> None:
    talk.ext.notify("warn", "the data is old")
    talk.ext.panel("tides").close()
    assert [frame["type"] for frame in talk.start()] == ["hello", "ready"]
    assert talk.hear("notify") == {"type": "notify", "level": "warn", "message": "the data is old"}
    assert talk.hear("panel_close") == {"type": "panel_close", "panel_id": "tides"}


def handler(args: str) -> None: ...


def three(one: str, two: str, three: str) -> None: ...


def keyword(args: str, *, must: int) -> None: ...


class Callable:
    def __call__(self, args: str) -> str:
        return args


@pytest.mark.req("sdk.import.twice")
@pytest.mark.parametrize("offer", ["tool", "on", "intercept", "panel", "key"])
def test_two_of_one_name_are_told_with_both_places(offer: str) -> None:
    ext = Extension("probe")

    def first(args: str) -> None: ...

    def second(args: str) -> None: ...

    panel = ext.panel("p")
    use: dict[str, Any] = {
        "tool": ext.tool("same"),
        "on": ext.on("turn_end"),
        "intercept": ext.intercept("tool_call"),
        "panel": lambda _: ext.panel("q"),
        "key": panel.key,
    }
    use[offer](first)
    with pytest.raises(BadExtension, match="^two|two handlers") as raised:
        use[offer](second)
    if offer != "panel":
        places = [f"test_registrations.py:{function.__code__.co_firstlineno}" for function in (first, second)]
        assert all(place in str(raised.value) for place in places)
    assert raised.value.hint


@pytest.mark.req("sdk.import.handler")
@pytest.mark.parametrize(
    ("offer", "text"),
    [
        (lambda ext: ext.command("tide")(three), "needs 3 arguments and is given (args)"),
        (lambda ext: ext.command("tide")(keyword), "keyword-only"),
        (lambda ext: ext.command("tide")(5), "is no function"),
        (lambda ext: ext.command("two words")(handler), "cannot be typed"),
        (lambda ext: ext.command("/tide")(handler), "cannot be typed"),
        (lambda ext: ext.command("")(lambda args: None), "needs a name"),
        (lambda ext: ext.tool("two words")(handler), "cannot be called by models"),
        (lambda ext: ext.tool("x" * 65)(handler), "cannot be called by models"),
        (lambda ext: ext.tool("raw", schema={})(three), "needs 3 arguments and is given (args)"),
        (lambda ext: ext.tool("raw", schema=[])(handler), "a schema is an object"),
        (lambda ext: ext.on("turn_ended")(handler), 'no event "turn_ended"'),
        (lambda ext: ext.on("turn_end")(three), "needs 3 arguments and is given (event)"),
        (lambda ext: ext.intercept("turn_end")(handler), 'no question "turn_end"'),
        (lambda ext: ext.intercept_turn_start(three), "needs 3 arguments and is given (step)"),
        (lambda ext: ext.panel("p").key(three), "needs 3 arguments and is given (key, text)"),
        (lambda ext: ext.panel("p").closed(handler), "needs 1 arguments and is given nothing"),
        (lambda ext: ext.tool(5), "5 is neither a name nor a function"),
        (lambda ext: ext.tool(classmethod(lambda cls: None)), "is neither a name nor a function"),
        (lambda ext: ext.on(handler), "@ext.on needs the name of an event"),
        (lambda ext: ext.intercept(handler), "@ext.intercept needs the name of an event"),
        (lambda ext: ext.tool("t", timeout="3")(lambda: 1), "'3' is no time-out"),
        (lambda ext: ext.tool("t", timeout=0)(lambda: 1), "0 is no time-out"),
        (lambda ext: ext.tool("t", timeout=float("nan"))(lambda: 1), "nan is no time-out"),
        (lambda ext: ext.tool("t", timeout=float("inf"))(lambda: 1), "inf is no time-out"),
        (lambda ext: ext.tool("t", timeout=True)(lambda: 1), "True is no time-out"),
        (lambda ext: ext.tool("t", description=5)(lambda: 1), "a description is text, not 5"),
        (lambda ext: ext.command("c", 5)(lambda: 1), "a description is text, not 5"),
        (lambda ext: ext.panel(5), "the id of a panel is text"),
        (lambda ext: ext.panel("p", title=5), "a title is text"),
        (lambda ext: Extension(5), "the name of an extension is text"),  # type: ignore[arg-type]
        (lambda ext: Extension(" "), "needs a name"),
        (lambda ext: Extension("x", concurrency=0), "concurrency is 0"),
    ],
)
def test_what_cannot_be_served_is_an_error_at_import(offer: Any, text: str) -> None:
    with pytest.raises(BadExtension) as raised:
        offer(Extension("probe"))
    assert text in str(raised.value)
    assert raised.value.hint


def test_methods_partials_objects_and_decorated_functions_are_handlers_too(talk: Talk) -> None:
    class Sea:
        level = 3

        def tide(self, args: str) -> str:
            return f"{args}{self.level}"

    def two(prefix: str, args: str) -> str:
        return prefix + args

    @functools.wraps(handler)
    def wrapped(*args: Any) -> str:
        return f"wrapped {args[0]}"

    async def later(args: str) -> str:
        return f"later {args}"

    talk.ext.command("method")(Sea().tide)
    talk.ext.command("partial")(functools.partial(two, "p"))
    talk.ext.command("object")(Callable())
    talk.ext.command("wrapped")(wrapped)
    talk.ext.command("disguised")(lambda args: later(f"{args}"))
    talk.start()
    shown = {name: talk.command(name, "x")["display"] for name in ("method", "partial", "object", "wrapped", "disguised")}
    assert shown == {"method": "x3", "partial": "px", "object": "x", "wrapped": "wrapped x", "disguised": "later x"}
