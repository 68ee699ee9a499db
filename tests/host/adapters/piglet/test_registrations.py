"""What each of the ten registrations brings about, with all that it can say (spec piglet 4)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from serai.model.actions import Display, Notice
from serai.model.events import Compacted
from serai.model.tools import ToolCall
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Gated, Person, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import log_of
from tests.support.piglet.journals import ONE_LOOP, read_messages, read_params, wait_for_note, write_config, write_models
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import delta, note, relay, say, tell, wait

pytestmark = ONE_LOOP


# -- tools


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string", "Minlength": 1, "x-Odd": None}},
    "required": ["city"],
    "x-order": [3, 1.50, {"B": 1, "a": 2}],
}


@pytest.mark.req("piglet.rule.tool-deferred")
@pytest.mark.req("piglet.method.register/tool")
async def test_a_tool_is_offered_as_it_was_registered(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        tools={
            "weather": offer("$city: fog", description="Forecast", parameters=SCHEMA, promptHint="for towns"),
            "later": offer("", deferred=True, interruptBehavior="block"),
            "odd": offer("", interruptBehavior="sometimes"),
        },
    )
    model = Answers([reply("", call("weather", city="Bern"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        await app.submit("go")
        tools = {tool.name: tool for tool in app.host.tools}
        invalid = await app.host.call_tool("weather", {"town": "Bern"})
    assert (tools["weather"].description, tools["weather"].schema) == ("Forecast", SCHEMA)
    sent = {tool.name: tool for tool in model.requests[0].tools}["weather"]
    assert (sent.description, json.dumps(sent.schema)) == ("Forecast", json.dumps(SCHEMA))  # also in its order
    assert "# Tool Usage Notes\n\n## weather — for towns" in model.requests[0].system
    assert [(tools[name].deferred, tools[name].interrupt) for name in ("weather", "later", "odd")] == [
        (False, "cancel"),
        (True, "block"),
        (False, "cancel"),
    ]
    assert texts(model.requests[1].messages)[-1] == "tool: Bern: fog"
    assert invalid.code == "INVALID_ARGS"


@pytest.mark.req("piglet.method.register/tool")
@pytest.mark.parametrize("granted", [True, False])
async def test_a_built_ins_name_is_only_to_be_had_with_a_grant(tmp_path: Path, granted: bool) -> None:
    write_config(tmp_path, '[guest."piglet:weather"]\nreplace = ["read"]' if granted else "")
    folder = write(tmp_path, "weather", tools={"read": offer("mine", parameters={"type": "object"})})
    person = Person()
    async with open_app(tmp_path, folder, surface=person) as app:
        (tmp_path / "project" / "a.txt").write_text("ours")
        result = await app.call_tool(ToolCall("read", {"path": "a.txt"}))
        assert ("mine" in result.text, "ours" in result.text) == (granted, not granted)
        assert app.host.table.tools["read"].owner.id == ("piglet:weather" if granted else "serai")
    told = [one.text for one in person.actions if isinstance(one, Notice) and "shadowed" in one.text]
    assert [text.startswith("piglet:weather: its tool read is shadowed by that of serai") for text in told] == [True] * (
        not granted
    )


@pytest.mark.req("piglet.method.register/tool", "piglet.rule.cancel-block-tools")
async def test_a_tool_that_blocks_is_not_told_of_an_abort_and_any_other_is(tmp_path: Path) -> None:
    journal, go, done = tmp_path / "journal", tmp_path / "go", tmp_path / "done"
    begun = [tmp_path / "careful-begun", tmp_path / "light-begun"]
    folder = write(
        tmp_path,
        "weather",
        tools={
            "careful": offer([note(begun[0]), wait(go), note(done, "careful ended")], interruptBehavior="block"),
            "light": offer([note(begun[1]), wait()], interruptBehavior="whatever"),
        },
        journal=journal,
    )
    model = Answers([reply("", call("careful", "c1"), call("light", "c2"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        for path in begun:
            await wait_for_note(path)
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        go.touch()
        assert await wait_for_note(done) == "careful ended"  # it said nothing of having been cancelled
        while app.works_for("piglet:weather"):
            await asyncio.sleep(0)
        assert "tool: careful ended" not in texts(conversation(app.session))
    ids = {one["params"]["name"]: one["id"] for one in read_messages(journal, "tool/execute")}
    assert read_params(journal, "$/cancelRequest") == [{"id": ids["light"]}]


@pytest.mark.req("piglet.rule.cancel-block-tools")
async def test_nor_does_a_host_alone_tell_it_when_its_caller_gives_up(tmp_path: Path) -> None:
    journal, begun = tmp_path / "journal", {name: tmp_path / name for name in ("careful", "light")}
    blocks = offer([note(begun["careful"]), wait()], interruptBehavior="block")
    folder = write(tmp_path, "weather", tools={"careful": blocks, "light": [note(begun["light"]), wait()]}, journal=journal)
    async with zot_guests.open_host(tmp_path, folder) as host:
        for name, path in begun.items():
            calling = asyncio.create_task(host.call_tool(name))
            await wait_for_note(path)
            calling.cancel()
            await asyncio.wait([calling])
    ids = {one["params"]["name"]: one["id"] for one in read_messages(journal, "tool/execute")}
    assert read_params(journal, "$/cancelRequest") == [{"id": ids["light"]}]


# -- commands and keys


@pytest.mark.req("piglet.method.register/command")
async def test_only_an_immediate_command_runs_while_the_agent_streams(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        commands={
            "now": offer("now ran", description="at once", immediate=True),
            "later": offer("later ran", description="behind"),
        },
        journal=tmp_path / "journal",
    )
    model, person = Gated([reply("done")]), Person()
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        found = {one.name: (one.description, one.immediate) for one in app.host.commands}
        assert found == {"now": ("at once", True), "later": ("behind", False)}
        turn = asyncio.create_task(app.submit("hello"))
        await model.began.get()
        app.queue("/later")
        app.queue("/now")
        await person.shown(lambda action: action == Display("now ran", "weather"))
        assert not turn.done()
        assert [one["name"] for one in read_params(tmp_path / "journal", "command/execute")] == ["now"]
        model.go()
        await turn
        await person.shown(lambda action: action == Display("later ran", "weather"))
        await app.idle()
    assert len(model.requests) == 1  # neither was for the model


@pytest.mark.req("piglet.method.register/shortcut")
async def test_a_key_is_bound_to_the_guest_that_registered_it(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        shortcuts={
            "ctrl+g": offer("refreshed", description="Refresh"),
            "shift+alt+ctrl+x": "odd order",
            "ctrl+1": "no letter",
            "g": "no modifier",
            "meta+g": "no such modifier",
        },
        journal=tmp_path / "journal",
    )
    person = Person()
    async with open_app(tmp_path, folder, write(tmp_path, "other", shortcuts=["alt+o"]), surface=person) as app:
        found = {one.key: one.description for one in app.host.shortcuts}
        assert found == {"ctrl+g": "Refresh", "ctrl+alt+shift+x": "the shortcut shift+alt+ctrl+x", "alt+o": "the shortcut alt+o"}
        await app.shortcut("ctrl+g")
        await app.shortcut("ctrl+alt+shift+x")
        assert [one for one in person.actions if isinstance(one, Notice) and one.source == "weather"] == [
            Notice("refreshed", "info", "weather"),
            Notice("odd order", "info", "weather"),
        ]
        for key in ("ctrl+1", "g", "meta+g"):
            assert f"its register/shortcut is not taken: its key {key} is none" in log_of(app.host, "weather")
    assert read_params(tmp_path / "journal", "shortcut/handle") == [{"key": "ctrl+g"}, {"key": "shift+alt+ctrl+x"}]


# -- the prompt


@pytest.mark.req("piglet.method.register/promptSection")
async def test_a_section_is_part_of_the_system_prompt_in_its_place(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "weather",
        tools={"host": offer([relay()], parameters={"type": "object"})},
        sections={
            "Last": offer(content="In the end.", order=40, tokenHint=12),
            "Middle": "Use metric.",
            "First": offer(content="To begin with.", order=-1),
        },
    )
    model = Answers([reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        await app.submit("hello")
        told = await app.call_tool(ToolCall("host", {"method": "host/promptSections"}))
    expected = "# First\n\nTo begin with.\n\n# Middle\n\nUse metric.\n\n# Last\n\nIn the end."
    assert expected in model.requests[0].system
    assert "12" not in model.requests[0].system.partition("# First")[2]  # what it costs is for display only
    sections = json.loads(told.text)["result"]["sections"]
    assert sections == [{"title": "First"}, {"title": "Middle"}, {"title": "Last", "tokenHint": 12}]


# -- who is asked


@pytest.mark.req("piglet.method.register/interceptor")
async def test_an_interceptor_is_asked_before_and_after_under_its_name_and_the_highest_first(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write(
        tmp_path,
        "weather",
        tools={"look": "fine"},
        interceptors={"low": interceptor(priority=-3), "usual": interceptor(), "high": interceptor(priority=2000)},
        at_init=[tell("register/interceptor", {"name": "bare"})],  # without a priority: 0
        journal=journal,
    )
    async with open_app(tmp_path, folder) as app:
        assert (await app.call_tool(ToolCall("look", {}))).text == "fine"
    asked = [
        (message["method"], message["params"]["name"])
        for message in read_messages(journal)
        if message["method"].startswith(("interceptor", "tool"))
    ]
    names = ["high", "bare", "usual", "low"]
    before, after = ([(f"interceptor/{when}", name) for name in names] for when in ("before", "after"))
    assert asked == [*before, ("tool/execute", "look"), *after]


@pytest.mark.req("piglet.method.register/eventHandler")
async def test_a_handler_receives_the_listed_events_the_lowest_first(tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    some = ["EventTurnStart", "EventAgentEnd"]
    meter = write(tmp_path, "meter", handlers={"meter": offer(priority=9, events=some)}, journal=tmp_path / "meter.log")
    usual = write(tmp_path, "usual", handlers={"usual": offer(events=["EventAgentEnd"])}, journal=tmp_path / "usual.log")
    first = write(tmp_path, "first", handlers={"first": offer([note(ends)], priority=-1, events=["EventAgentEnd"])})
    async with open_app(tmp_path, meter, usual, first, answers=Answers([reply("done")])) as app:
        await app.submit("hello")
        await wait_for_note(ends)
        assert [guest.id for guest in app.host.table.handlers["turn_ended"]] == ["piglet:first", "piglet:usual", "piglet:meter"]
    assert [one["type"] for one in read_params(tmp_path / "meter.log", "event/dispatch")] == some
    assert [one["type"] for one in read_params(tmp_path / "usual.log", "event/dispatch")] == ["EventAgentEnd"]


@pytest.mark.req("piglet.method.register/messageHook")
async def test_a_message_hook_sees_each_user_message_before_the_model_does_the_lowest_first(tmp_path: Path) -> None:
    go, begun = tmp_path / "go", tmp_path / "begun"
    late = write(tmp_path, "late", hooks={"late": offer("From the last.", priority=500)}, journal=tmp_path / "late.log")
    usual = write(tmp_path, "usual", hooks={"usual": [say("From the usual one.")]})
    first = write(tmp_path, "first", hooks={"first": offer([note(begun), wait(go), say("From the first.")], priority=-1)})
    model = Answers([reply("one")], [reply("two")])
    async with open_app(tmp_path, late, usual, first, answers=model) as app:
        turn = asyncio.create_task(app.submit("hello"))
        await wait_for_note(begun)
        assert (model.requests, read_messages(tmp_path / "late.log", "messageHook/onMessage")) == ([], [])
        go.touch()
        await turn
        await app.submit("and more")
    assert read_params(tmp_path / "late.log", "messageHook/onMessage") == [{"message": "hello"}, {"message": "and more"}]
    for request in model.requests:
        assert request.system.endswith("\n\nFrom the first.\n\nFrom the usual one.\n\nFrom the last.")


@pytest.mark.req("piglet.method.register/inputTransformer")
async def test_a_transformer_sees_what_is_typed_before_it_is_submitted_the_lowest_first(tmp_path: Path) -> None:
    late = write(tmp_path, "late", transformers={"late": offer("$input, late", priority=500)})
    usual = write(tmp_path, "usual", transformers={"usual": [say("$input, usual")]})
    first = write(tmp_path, "first", transformers={"first": offer("$input, first", priority=-1)}, journal=tmp_path / "journal")
    model = Answers([reply("done")])
    async with open_app(tmp_path, late, usual, first, answers=model) as app:
        await app.submit("typed")
        assert texts(conversation(app.session))[0] == "user: typed, first, usual, late"
    assert read_params(tmp_path / "journal", "inputTransformer/transform") == [{"input": "typed"}]


# -- compactors and models


@pytest.mark.req("piglet.method.register/compactor")
@pytest.mark.parametrize(
    ("threshold", "setting", "expected"),
    [(100, 0, True), (101, 0, False), (0, 100, True), (0, 101, False), (0, 0, False), (101, 100, False)],
)
async def test_a_threshold_counts_tokens_and_0_means_the_setting(
    tmp_path: Path, threshold: int, setting: int, expected: bool
) -> None:
    write_config(tmp_path, f"compact_at = {setting}")
    old = tell("register/compactor", {"name": "old", "threshold": 1})  # the slot is the last one's
    folder = write(
        tmp_path, "digest", at_init=[old], compactor=offer("in short", name="digest", threshold=threshold), tools={"look": "fine"}
    )
    answers = [[reply("", call("look", f"c{n}"))] for n in range(4)]
    person, model = Person(), Answers(*answers, [reply("done")])  # each of 100 tokens
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        compactor = app.host.texts.compactor
        assert compactor is not None
        assert (compactor.name, compactor.threshold) == ("digest", threshold)
        await app.submit("hello")
        if expected:
            await person.saw_a(Compacted)
        await app.idle()
        assert bool([event for event in person.events if isinstance(event, Compacted)]) is expected
        assert ("user: in short" in texts(conversation(app.session))) is expected


@pytest.mark.req("piglet.method.register/compactor")
async def test_of_two_guests_the_last_has_the_slot(tmp_path: Path) -> None:
    folders = [write(tmp_path, name, compactor=offer("", name=name, threshold=5)) for name in ("first", "second")]
    async with open_app(tmp_path, *folders) as app:
        assert app.host.texts.compactor is not None
        assert app.host.texts.compactor.name == "second"


MODELS = """
[[models]]
id = "m1"
provider = "acme"
api = "acme-api"
[[models]]
id = "m2"
provider = "acme"
api = "other-api"
base_url = "http://127.0.0.1:9/v1"
"""


@pytest.mark.req("piglet.method.register/provider")
async def test_every_model_of_its_api_is_streamed_by_the_guest(tmp_path: Path) -> None:
    write_models(tmp_path, MODELS)
    journal = tmp_path / "journal"
    folder = write(
        tmp_path, "streamer", providers={"acme-api": [delta("Hel"), say("lo")], "anthropic": "from anthropic"}, journal=journal
    )
    async with open_app(tmp_path, folder, model="acme/m1") as app:
        assert app.host.provider("other-api") is None
        result = await app.submit("hello")
        assert result is not None
        assert result.text == "Hello"
        await app.session.set_model("claude")  # a standard one, without a key of ours
        result = await app.submit("and you?")
        assert result is not None
        assert result.text == "from anthropic"
    streamed = [one["model"]["api"] for one in read_params(journal, "provider/stream")]
    assert streamed == ["acme-api", "anthropic"]


@pytest.mark.req("piglet.method.register/promptSection")
async def test_a_guest_that_offers_too_many_bytes_is_taken_with_the_rest(tmp_path: Path) -> None:
    folder = write(tmp_path, "fat", sections={"A": "a" * 3000, "B": "b" * 8000, "C": "c"})
    async with zot_guests.open_host(tmp_path, folder, limits={"registered": 10_000}) as host:
        assert [section.title for section in host.texts.list_sections()] == ["A", "C"]
        [told] = host.report.to_lines()
    assert "its register/promptSection of 8" in told
    assert "it offers too much (limit registered = 10000)" in told
