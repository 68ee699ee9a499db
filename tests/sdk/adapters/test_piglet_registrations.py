"""What is offered to a piglet host, and when (spec piglet 3, 4, 8.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.sdk import BadExtension, Extension
from tests.support.sdk.piglet_programs import Driven, write_program

ALL = """
@ext.provider("acme")
async def stream(request, deltas): ...

@ext.tool(deferred=True, prompt_hint="weather by city", interrupt="block")
def weather(city: str) -> str:
    "Forecast."

ext.prompt_section("Units", "Use metric.", order=40, tokens=12)

@ext.shortcut("ctrl+g")
def refresh():
    "Refresh."

@ext.command(immediate=True)
def forecast(args):
    "Show forecast."

@ext.intercept(name="guard", priority=2000)
def guard(call): ...

@ext.after(name="guard", priority=2000)
def seen(done): ...

@ext.on_event("EventTurnEnd", priority=100)
def meter(event): ...

@ext.on_event()
def every(event): ...

@ext.message_hook(priority=500)
def clock(message): ...

@ext.input_transformer(name="alias", priority=10)
def short(text): ...

@ext.compactor(threshold=50000)
def digest(messages): ...

@ext.tool
def plain() -> str: ...
"""


def list_sent(said: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(one["method"], one["params"]) for one in said]


@pytest.mark.req("piglet.rule.sdk-registration")
def test_all_ten_kinds_are_registered_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, ALL)) as host:
        said = list_sent(host.begin())
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
        weather = said[1][1]
        assert isinstance(weather, dict)
        assert weather.pop("parameters").items() >= {key: schema[key] for key in ("type", "properties", "required")}.items()
        said[-1][1].pop("parameters")  # type: ignore[attr-defined]
        assert said == [
            ("register/provider", {"api": "acme"}),
            (
                "register/tool",
                {
                    "name": "weather",
                    "description": "Forecast.",
                    "promptHint": "weather by city",
                    "deferred": True,
                    "interruptBehavior": "block",
                },
            ),
            ("register/promptSection", {"title": "Units", "content": "Use metric.", "order": 40, "tokenHint": 12}),
            ("register/shortcut", {"key": "ctrl+g", "description": "Refresh."}),
            ("register/command", {"name": "forecast", "description": "Show forecast.", "immediate": True}),
            ("register/interceptor", {"name": "guard", "priority": 2000}),
            ("register/eventHandler", {"name": "meter", "priority": 100, "events": ["EventTurnEnd"]}),
            ("register/eventHandler", {"name": "every"}),
            ("register/messageHook", {"name": "clock", "priority": 500}),
            ("register/inputTransformer", {"name": "alias", "priority": 10}),
            ("register/compactor", {"name": "digest", "threshold": 50000}),
            ("register/tool", {"name": "plain", "description": ""}),
        ]
        assert host.end() == 0
        assert host.stderr == ""


@pytest.mark.req("piglet.rule.sdk-registration")
def test_init_callbacks_come_first_may_ask_the_host_and_what_they_offer_is_among_the_rest(tmp_path: Path) -> None:
    body = """
ext.notify("success", "before there was a host")

@ext.on_init
async def first():
    model = (await ext.host.config.get("defaultModel"))["defaultModel"]
    ext.prompt_section("Model", model)

@ext.on_init
def second():
    ext.prompt_section("Where", f"{ext.cwd} {ext.config_dir} {ext.data_dir} {ext.host.protocol_version}")
    ext.host.log("debug", "nearly there")

ext.prompt_section("Static", "x")
"""
    with Driven(write_program(tmp_path, body)) as host:
        initialize = host.ask("initialize", {"protocolVersion": "5", "cwd": "/work", "configDir": "/config/probe"})
        assert host.hear("notify")["params"] == {"message": "before there was a host", "level": "info"}
        assert host.serve("host/config.get", {"Values": {"defaultModel": "acme/m1"}}) == {"keys": ["defaultModel"]}
        assert host.answer(initialize)["result"] == {"name": "probe", "version": "1.2"}
        assert [one["method"] for one in host.said] == ["log", *["register/promptSection"] * 3]
        assert [one["params"]["content"] for one in host.said[1:]] == ["x", "acme/m1", "/work /config/probe /config/probe 5"]


def test_an_init_callback_that_fails_is_the_end_of_the_start(tmp_path: Path) -> None:
    body = "@ext.on_init\ndef start():\n    raise ToolError('no licence')\n@ext.tool\ndef t() -> str: ..."
    with Driven(write_program(tmp_path, body)) as host:
        assert host.error("initialize", cwd="/") == {"code": -32603, "message": "no licence"}
        assert host.said == []


def test_what_is_offered_later_is_registered_at_once(tmp_path: Path) -> None:
    body = """
@ext.tool
def more() -> str:
    @ext.tool
    def late() -> str:
        return "late is fine"
    return "done"
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        assert host.text("more") == "done"
        assert [one["params"]["name"] for one in host.said] == ["late"]
        assert host.text("late") == "late is fine"


def test_what_piglet_cannot_carry_is_told_once_and_no_error(tmp_path: Path) -> None:
    body = """
@ext.intercept("turn_start")
def turn(step): ...

@ext.panel("p")
def keys(key): ...

@ext.tool
def t() -> str: return "fine"
"""
    with Driven(write_program(tmp_path, body)) as host:
        assert [one["method"] for one in host.begin()] == ["register/tool"]
        assert host.text("t") == "fine"
        assert host.end() == 0
        assert host.stderr.splitlines() == [
            "[probe] the host speaks piglet: it asks nobody at turn_start, so that interceptor is never called",
            '[probe] the host speaks piglet: it sends no keys of panels, so the handlers of the panel "p" are never called',
        ]


def nothing() -> None: ...


def three(one: str, two: str, three: str) -> None: ...


@pytest.mark.parametrize(
    ("offer", "text"),
    [
        (lambda ext: ext.tool("t", interrupt="never")(nothing), 'interrupt is "cancel" or "block"'),
        (lambda ext: ext.shortcut("g+ctrl")(nothing), '"g+ctrl" is no shortcut'),
        (lambda ext: ext.shortcut("ctrl+g")(three), "needs 3 arguments and is given nothing"),
        (lambda ext: ext.prompt_section(" ", "x"), "a prompt section needs a title"),
        (lambda ext: ext.prompt_section("x", "y", order=1.5), "an order is a whole number"),
        (lambda ext: ext.on_event(nothing), "@ext.on_event needs the name of an event"),
        (lambda ext: ext.on_event(priority="high")(nothing), "a priority is a whole number"),
        (lambda ext: ext.message_hook(three), "needs 3 arguments and is given (message)"),
        (lambda ext: ext.provider("")(nothing), "a provider needs an API"),
        (lambda ext: ext.intercept("turn_start", priority=3)(nothing), "has neither name nor priority"),
        (lambda ext: [ext.compactor(nothing), ext.compactor(nothing)], "two functions compact the conversation"),
        (lambda ext: [ext.after(nothing), ext.after(nothing)], "two functions see what came of tool calls"),
        (lambda ext: [ext.after(nothing), ext.intercept(priority=3)(nothing)], "has two priorities, 0 and 3"),
        (lambda ext: [ext.on_event(name="a")(nothing), ext.on_event(name="a")(nothing)], 'two event handlers are named "a"'),
        (lambda ext: [ext.provider("a")(nothing), ext.provider("a")(nothing)], "two providers are for the API a"),
    ],
)
def test_what_cannot_be_offered_is_an_error_at_import(offer: Any, text: str) -> None:
    with pytest.raises(BadExtension) as raised:
        offer(Extension("probe"))
    assert text in str(raised.value)
    assert raised.value.hint


def test_two_functions_of_one_name_are_told_apart() -> None:
    ext = Extension("probe")
    ext.message_hook(nothing)
    ext.message_hook(nothing)
    assert [hook.name for hook in ext._registry.message_hooks] == ["nothing", "nothing 2"]
