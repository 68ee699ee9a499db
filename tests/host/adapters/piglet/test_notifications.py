"""What a guest tells without an answer: to be seen, to be logged, to be said to the agent (spec piglet 7.2)."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.model.actions import Anchor, Display, Notice, Overlay, ScreenState, SetInput, SetWidget, Width
from serai.model.events import ToolStarted
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Gated, Person, open_app, prompts_in, sessions_of
from tests.support.host import zot_guests
from tests.support.host.zot_guests import log_of
from tests.support.piglet.journals import ONE_LOOP, read_messages, read_params
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import Step, ask, fault, say, tell, wait

pytestmark = ONE_LOOP


def write_guest(tmp_path: Path, *steps: Step, **more: Any) -> Path:
    """A guest that takes these steps when its key ctrl+g is pressed."""
    return write(tmp_path, "weather", shortcuts={"ctrl+g": list(steps)}, journal=tmp_path / "journal", **more)


def board(person: Person) -> ScreenState:
    """What is to be seen by now."""
    seen = ScreenState()
    for action in person.actions:
        seen = seen.apply(action)
    return seen


# -- to be seen


@pytest.mark.req("piglet.method.notify")
async def test_a_notice_has_one_of_three_levels(tmp_path: Path) -> None:
    levels: list[dict[str, object]] = [{}, {"level": ""}, {"level": "info"}, {"level": "warn"}, {"level": "error"}]
    levels += [{"level": "loud"}, {"level": "WARN"}]
    steps = [tell("notify", {"message": f"saved {n}", **level}) for n, level in enumerate(levels)]
    person = Person()
    async with open_app(tmp_path, write_guest(tmp_path, *steps), surface=person) as app:
        person.actions.clear()
        await app.shortcut("ctrl+g")
        assert [(one.text, one.level, one.source) for one in person.actions if isinstance(one, Notice)] == [
            (f"saved {n}", level, "weather") for n, level in enumerate(["info", "info", "info", "warn", "error", "info", "info"])
        ]
        assert conversation(app.session) == []


@pytest.mark.req("piglet.method.showMessage")
async def test_a_shown_text_is_for_the_person_alone(tmp_path: Path) -> None:
    model, person = Answers([reply("", call("look"))], [reply("done")]), Person()
    folder = write_guest(
        tmp_path, tell("showMessage", {"text": "3 stations"}), tools={"look": [tell("showMessage", {"text": "4 stations"})]}
    )
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        await app.shortcut("ctrl+g")
        await app.submit("hello")
        assert [one for one in person.actions if isinstance(one, Display)] == [
            Display("3 stations", "weather"),
            Display("4 stations", "weather"),
        ]
        assert "stations" not in str(texts(conversation(app.session)))
    assert "stations" not in str([(request.system, texts(request.messages)) for request in model.requests])


@pytest.mark.req("piglet.method.setInputText")
async def test_the_composer_is_filled_and_nothing_submitted(tmp_path: Path) -> None:
    model, person = Answers([reply("done")]), Person()
    async with open_app(
        tmp_path, write_guest(tmp_path, tell("setInputText", {"text": "/forecast "})), answers=model, surface=person
    ) as app:
        await app.shortcut("ctrl+g")
        await app.idle()
        assert SetInput("/forecast ") in person.actions
        assert board(person).input == "/forecast "
        assert (conversation(app.session), model.requests) == ([], [])


@pytest.mark.req("piglet.method.setWidget")
async def test_the_last_word_for_a_widget_counts_and_an_empty_one_removes_it(tmp_path: Path) -> None:
    def widget(key: str, placement: str, content: str) -> Step:
        return tell("setWidget", {"key": key, "placement": placement, "content": content})

    folder = write(
        tmp_path,
        "weather",
        shortcuts={
            "ctrl+a": [widget("wx", "above-input", "Bern 7"), widget("sun", "below-status", "07:31")],
            "ctrl+b": [widget("wx", "above-input", "Bern 8")],
            "ctrl+c": [widget("wx", "below-status", "Bern 9")],
            "ctrl+d": [widget("sun", "below-status", ""), tell("setWidget", {"key": "wx", "placement": "below-status"})],
        },
    )
    person = Person()

    async def after(key: str) -> dict[str, dict[str, str]]:
        await app.shortcut(key)
        return {**board(person).widgets}  # type: ignore[dict-item]

    async with open_app(tmp_path, folder, surface=person) as app:
        assert await after("ctrl+a") == {"above-input": {"wx": "Bern 7"}, "below-status": {"sun": "07:31"}}
        assert SetWidget("sun", "below-status", "07:31") in person.actions
        assert await after("ctrl+b") == {"above-input": {"wx": "Bern 8"}, "below-status": {"sun": "07:31"}}
        assert await after("ctrl+c") == {"above-input": {}, "below-status": {"sun": "07:31", "wx": "Bern 9"}}
        assert await after("ctrl+d") == {"above-input": {}, "below-status": {}}


@pytest.mark.req("piglet.rule.ui-overlay")
@pytest.mark.req("piglet.method.showOverlay", "piglet.method.closeOverlay")
async def test_overlays_come_to_the_top_are_replaced_by_their_key_and_closed(tmp_path: Path) -> None:
    radar = {"key": "map", "title": "Radar", "content": "rain", "anchor": "top-right", "width": "50%"}
    folder = write(
        tmp_path,
        "weather",
        shortcuts={
            "ctrl+a": [tell("showOverlay", radar), tell("showOverlay", {"key": "sun", "content": "shines"})],
            "ctrl+b": [tell("showOverlay", {**radar, "content": "snow", "width": "40"})],
            "ctrl+c": [tell("closeOverlay", {"key": "nobody's"})],
            "ctrl+d": [tell("closeOverlay", {"key": "map"})],
        },
    )
    person = Person()
    sun = Overlay("sun", "", "shines")
    snow = Overlay("map", "Radar", "snow", Anchor("right", "top"), Width(40, "characters"))
    async with open_app(tmp_path, folder, surface=person) as app:
        await app.shortcut("ctrl+a")
        assert board(person).overlays == (Overlay("map", "Radar", "rain", Anchor("right", "top"), Width(50, "percent")), sun)
        await app.shortcut("ctrl+b")
        assert board(person).overlays == (sun, snow)
        await app.shortcut("ctrl+c")
        assert board(person).overlays == (sun, snow)
        await app.shortcut("ctrl+d")
        assert board(person).overlays == (sun,)


@pytest.mark.req("piglet.method.log")
async def test_a_log_line_has_its_level_and_the_guests_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    levels = ["debug", "info", "warn", "error", "loud", ""]
    steps = [tell("log", {"level": level, "message": f"cache hit {n}"}) for n, level in enumerate(levels)]
    steps.append(tell("log", {"message": "cache hit 6"}))
    person = Person()
    with caplog.at_level(logging.DEBUG, "serai"):
        async with open_app(tmp_path, write_guest(tmp_path, *steps), surface=person) as app:
            person.actions.clear()
            await app.shortcut("ctrl+g")
            assert person.actions == []  # it is for the log
            assert "debug: cache hit 0" in log_of(app.host, "weather")
    told = [(one.levelname, one.getMessage()) for one in caplog.records if "cache hit" in one.getMessage()]
    expected = ["DEBUG", "INFO", "WARNING", "ERROR", "INFO", "INFO", "INFO"]
    assert told == [(level, f"ext=weather cache hit {n}") for n, level in enumerate(expected)]


# -- to be said to the agent


def send_message(content: str) -> Step:
    return tell("sendMessage", {"content": content})


@pytest.mark.req("piglet.method.sendMessage")
async def test_a_message_when_idle_goes_the_way_of_what_is_typed(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        shortcuts={
            "ctrl+g": [send_message("check the alert")],
            "ctrl+c": [send_message("/forecast  Bern")],
            "ctrl+e": [send_message("  ")],
        },
        commands=["forecast"],
        hooks={"clock": "It is noon."},
        transformers={"alias": "$input, please"},
        journal=tmp_path / "journal",
    )
    model = Answers([reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        await app.shortcut("ctrl+g")
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["check the alert, please"]
        await app.shortcut("ctrl+c")
        await app.idle()
        await app.shortcut("ctrl+e")
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["check the alert, please"]
    assert read_params(tmp_path / "journal", "command/execute") == [{"name": "forecast", "args": "Bern"}]
    assert read_params(tmp_path / "journal", "inputTransformer/transform") == [{"input": "check the alert"}]
    assert model.requests[0].system.endswith("\n\nIt is noon.")


@pytest.mark.req("piglet.method.sendMessage")
async def test_a_message_while_a_run_is_active_waits_in_the_queue(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        shortcuts={"ctrl+g": [send_message("one"), send_message("/forecast"), send_message("two")]},
        commands=["forecast"],
        transformers=["alias"],
        journal=tmp_path / "journal",
    )
    model = Gated([reply("first")], [reply("second")])
    async with open_app(tmp_path, folder, answers=model) as app:
        turn = asyncio.create_task(app.submit("begin"))
        await model.began.get()
        await app.shortcut("ctrl+g")
        assert (len(model.requests), read_messages(tmp_path / "journal", "command/execute")) == (0, [])
        model.go()
        await turn
        assert await model.began.get() == "one\n\ntwo"
        assert len(read_messages(tmp_path / "journal", "command/execute")) == 1  # commands first (spec piglet 6.8)
        model.go()
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["begin", "one\n\ntwo"]
    assert read_params(tmp_path / "journal", "inputTransformer/transform") == [{"input": "begin"}]  # what waited is not changed


@pytest.mark.req("piglet.method.steer")
async def test_a_steering_text_is_for_the_run_or_the_next_one(tmp_path: Path) -> None:
    go = tmp_path / "go"
    steer = tell("steer", {"content": "use metric"})
    folder = write_guest(tmp_path, steer, tools={"look": [wait(go), say("fine")]}, hooks=["hook"])
    person, model = Person(), Answers([reply("", call("look"))], [reply("done")], [reply("more")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("begin"))
        await person.saw_a(ToolStarted)
        await app.shortcut("ctrl+g")
        go.touch()
        await turn
        assert prompts_in(model.requests[1].messages) == ["begin", "use metric"]
        await app.shortcut("ctrl+g")  # idle: it starts nothing
        await app.idle()
        assert len(model.requests) == 2
        await app.submit("go on")
        assert prompts_in(model.requests[2].messages) == ["begin", "use metric", "go on\n\nuse metric"]
    assert read_params(tmp_path / "journal", "messageHook/onMessage") == [{"message": "begin"}, {"message": "go on"}]
    [info] = sessions_of(tmp_path).list()
    assert "use metric" in Path(info.path).read_text()


async def interrupt_run(app: App, model: Gated, key: str = "ctrl+g") -> None:
    """A run that is ended by the key; its model never answers."""
    turn = asyncio.create_task(app.submit("begin"))
    await model.began.get()
    await app.shortcut(key)
    ended = await turn
    assert ended is not None
    assert ended.status == "cancelled"


@pytest.mark.req("piglet.method.abort")
@pytest.mark.parametrize("raw", ['{"jsonrpc":"2.0","method":"abort","params":null}', '{"jsonrpc":"2.0","method":"abort"}'])
async def test_abort_ends_the_run_and_leaves_no_mark(tmp_path: Path, raw: str) -> None:
    folder = write_guest(tmp_path, fault("raw", line=raw))
    asking = write(tmp_path, "asking", shortcuts={"ctrl+h": [ask("host/abort", quiet=True)]})
    model = Gated([reply("never")])
    async with open_app(tmp_path, folder, asking, answers=model) as app:
        await app.shortcut("ctrl+g")  # nothing runs: nothing happens
        assert conversation(app.session) == []
        await interrupt_run(app, model)
        told = texts(conversation(app.session))
        assert told == ["user: begin"]
        await interrupt_run(app, model, "ctrl+h")
        assert texts(conversation(app.session)) == told * 2  # host/abort does the same
    messages = [json.loads(line).get("in", {}) for line in (tmp_path / "journal").read_text().splitlines()]
    assert [message for message in messages if message and "method" not in message] == []  # no reply


@pytest.mark.req("piglet.fix.33")
@pytest.mark.req("piglet.method.abortWithMarker")
async def test_abort_with_a_marker_is_kept_in_memory_and_on_disk(tmp_path: Path) -> None:
    folder = write_guest(tmp_path, tell("abortWithMarker", {"reason": "plan mode"}))
    model = Gated([reply("never")], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        await interrupt_run(app, model)
        assert texts(conversation(app.session)) == ["user: begin", "user: [Request interrupted: plan mode]"]
        model.go()
        await app.submit("go on")
        assert prompts_in(model.requests[-1].messages) == ["begin", "[Request interrupted: plan mode]", "go on"]
    [info] = sessions_of(tmp_path).list()
    entries = [json.loads(line) for line in Path(info.path).read_text().splitlines()]
    said_ = [entry["data"]["content"] for entry in entries if entry["type"] == "user"]
    assert said_ == ["begin", "[Request interrupted: plan mode]", "go on"]


@pytest.mark.req("piglet.method.abortWithMarker")
async def test_while_nothing_runs_there_are_few_marks_and_a_reason_is_short(tmp_path: Path) -> None:
    folder = write_guest(
        tmp_path, *(tell("abortWithMarker", {"reason": reason}) for reason in ("x" * 100_000, *map(str, range(20))))
    )
    async with open_app(tmp_path, folder, answers=Answers([reply("one")])) as app:
        marks = [f"user: [Request interrupted: {reason}]" for reason in (f"{'x' * 500}…", *map(str, range(9)))]
        for _ in range(2):
            await app.shortcut("ctrl+g")
            assert texts(conversation(app.session)) == marks
        await app.submit("go on")
        await app.shortcut("ctrl+g")
        assert texts(conversation(app.session)) == [*marks, "user: go on", "assistant: one", *marks]
    [info] = sessions_of(tmp_path).list()
    assert Path(info.path).read_text().count("Request interrupted") == 20


@pytest.mark.req("piglet.method.steer", "piglet.method.abortWithMarker", "piglet.method.abort", "piglet.method.sendMessage")
async def test_without_an_agent_nothing_comes_of_it(tmp_path: Path) -> None:
    words = [
        tell("steer", {"content": "x"}),
        tell("abortWithMarker", {"reason": "y"}),
        tell("abort"),
        tell("sendMessage", {"content": "z"}),
    ]
    folder = write(tmp_path, "weather", tools={"look": [*words, say("fine")]}, commands={"again": "still here"})
    async with zot_guests.open_host(tmp_path, folder) as host:
        assert (await host.call_tool("look")).text == "fine"
        assert (await host.run_command("again")).error == ""
        for word in ("steer", "abortWithMarker", "abort", "sendMessage"):
            assert f"{word} was not done: " in log_of(host, "weather")
