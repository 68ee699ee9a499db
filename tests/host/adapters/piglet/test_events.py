"""What happens is told to guests, and what they answer is done (spec piglet 5.4, 5.5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import ModelFailed
from serai.limits import Limits
from serai.model.actions import Action, AttachImage, DetachImage, Display, NoAction, Notice, SetStatus, SetTitle
from serai.model.tools import ImageBlock
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Person, close_app, create_app, open_app, prompts_in
from tests.support.host.zot_guests import log_of
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note, write_config
from tests.support.piglet_guests.guest_folder import Answer, offer, write
from tests.support.piglet_guests.steps import crash, note, result, say, throw, wait

pytestmark = ONE_LOOP
BUSY = ModelFailed("overloaded", temporary=True)  # one of these, and there is one EventRetry
IMAGE = ImageBlock(b"hi", "image/png")
FROM_SERAI = "serai"


async def flush_events(app: App, guest: str) -> None:
    """Until the guest has answered all that happened so far, and that is done."""
    running: Any = app.host.guest(guest).running
    assert await running._event_dispatcher.flush(30.0)


def types(journal: Path) -> list[str]:
    return [one["type"] for one in read_params(journal, "event/dispatch")]


def list_actions(person: Person) -> list[Action]:
    """What guests wanted seen."""
    return [one for one in person.actions if not (isinstance(one, Notice) and one.source == FROM_SERAI)]


# -- events


@pytest.mark.req("piglet.method.event/dispatch")
async def test_a_run_is_told_with_its_data_an_action_is_done_and_an_error_only_logged(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write(
        tmp_path,
        "meter",
        tools={"look": offer("fine", parameters={"type": "object"})},
        handlers={
            "fails": offer([throw("no meter")], events=["EventTurnStart"]),
            "odd": offer([result("odd")], events=["EventMessagePre"]),
            "nothing": offer([result(None)], events=["EventAgentInit"]),
            "acts": offer([say("a tool has ended")], events=["EventToolEnd"]),
            "all": [],
        },
        journal=journal,
    )
    person = Person()
    model = Answers([reply("I look.", call("look", "c1", city="Bern"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        run = await app.submit("hello")
        assert run is not None
        assert run.text == "done"
        await flush_events(app, "meter")
        assert list_actions(person) == [Notice("a tool has ended", "info", "meter")]
        log = log_of(app.host, "meter")
        assert log.count("EventTurnStart failed: ") == 2
        assert "no meter" in log
        assert "EventMessagePre failed: " in log
    assert [one.keys() for one in read_params(journal, "event/dispatch")] == [{"type", "data"}] * len(types(journal))
    assert [one for one in types(journal) if one != "EventStreamDelta"] == [
        *("EventAgentStart", "EventAgentInit", "EventPromptBuild", "EventMessagePre"),
        *("EventTurnStart", "EventStreamDone", "EventToolStart", "EventToolEnd", "EventTurnEnd"),
        *("EventTurnStart", "EventStreamDone", "EventTurnEnd", "EventAgentEnd"),
    ]
    data = {one["type"]: one["data"] for one in read_params(journal, "event/dispatch")}
    assert data["EventAgentStart"] == {}
    assert data["EventMessagePre"] == {"Content": "hello"}
    assert data["EventPromptBuild"] == {"System": model.requests[0].system}
    assert data["EventToolStart"] == {"ToolCallID": "c1", "ToolName": "look", "Args": {"city": "Bern"}}
    assert data["EventToolEnd"] == {"ToolCallID": "c1", "ToolName": "look", "Result": None, "IsError": False}
    roles = [message["role"] for message in data["EventAgentEnd"]["Messages"]]
    assert roles == ["user", "assistant", "tool_result", "assistant"]


@pytest.mark.req("piglet.edge.15")
async def test_a_handler_that_lists_no_events_gets_all(tmp_path: Path) -> None:
    absent, null, empty = offer([]), offer([], events=None), offer([], events=[])
    folders = [
        write(tmp_path, name, handlers={name: handler}, journal=tmp_path / f"{name}.log")
        for name, handler in {"absent": absent, "null": null, "empty": empty}.items()
    ]
    async with open_app(tmp_path, *folders, answers=Answers([BUSY], [reply("done")])) as app:
        await app.submit("hello")
        for folder in folders:
            await flush_events(app, folder.name)
    told = [[one for one in types(tmp_path / f"{folder.name}.log") if one != "EventStreamDelta"] for folder in folders]
    before = ["EventAgentStart", "EventAgentInit", "EventPromptBuild", "EventMessagePre", "EventTurnStart", "EventRetry"]
    assert told == [[*before, "EventStreamDone", "EventTurnEnd", "EventAgentEnd"]] * 3


@pytest.mark.req("piglet.fix.16")
async def test_each_guest_is_asked_once_in_the_place_of_its_smallest_priority(tmp_path: Path) -> None:
    """`several` has three of each, the first of which comes before those of `one`, the others behind."""
    numbers = {"low": -5, "high": 50, "higher": 60}
    journals = {name: tmp_path / f"{name}.log" for name in ("one", "several")}
    some = {name: offer([say(f"{name} of several")], priority=number) for name, number in numbers.items()}
    meters = {name: offer([], priority=number, events=["EventAgentEnd"]) for name, number in numbers.items()}
    meters["elsewhere"] = offer([], priority=-100, events=["EventRetry"])  # matches nothing here
    changing = {name: offer([], priority=number) for name, number in numbers.items()}
    one = write(
        tmp_path,
        "one",
        hooks={"one": offer("of one", priority=1)},
        transformers={"one": offer("$input, one", priority=1)},
        handlers={"one": offer([], priority=1, events=["EventAgentEnd"])},
        journal=journals["one"],
    )
    several = write(tmp_path, "several", hooks=some, transformers=changing, handlers=meters, journal=journals["several"])
    model = Answers([reply("done")])
    async with open_app(tmp_path, one, several, answers=model) as app:
        await app.submit("typed")
        await flush_events(app, "one")
        await flush_events(app, "several")
        assert [guest.id for guest in app.host.table.handlers["turn_ended"]] == ["piglet:several", "piglet:one"]
    for journal in journals.values():
        assert types(journal) == ["EventAgentEnd"]
        assert read_params(journal, "messageHook/onMessage") == [{"message": "typed, one"}]
        assert len(read_params(journal, "inputTransformer/transform")) == 1
    assert read_params(journals["one"], "inputTransformer/transform") == read_params(
        journals["several"], "inputTransformer/transform"
    )
    both = "low of several\nhigh of several\nhigher of several\n\nof one"
    assert model.requests[0].system.endswith(f"\n\n{both}")


@pytest.mark.req("piglet.fix.17")
async def test_the_agent_waits_for_nobody_events_keep_their_order_and_the_last_are_flushed(tmp_path: Path) -> None:
    go, begun = tmp_path / "go", tmp_path / "begun"
    waits = [note(begun), wait(go), say("taken")]
    slow = write(tmp_path, "slow", handlers={"slow": offer(waits, events=None)}, journal=tmp_path / "slow.log")
    quick = write(tmp_path, "quick", handlers=["quick"], journal=tmp_path / "quick.log")
    person = Person()
    app = create_app(tmp_path, slow, quick, answers=Answers([reply("one")], [reply("two")]), surface=person)
    await app.open()
    try:
        await app.submit("first")
        await app.submit("second")  # both runs are over, and it has not answered the first event
        await flush_events(app, "quick")  # nor has it kept the other one from hearing of all
        await wait_for_note(begun)
        assert types(tmp_path / "slow.log") == ["EventAgentStart"]
        assert list_actions(person) == []
    finally:
        go.touch()
        await close_app(app)
    told = types(tmp_path / "quick.log")
    assert [told.count(one) for one in ("EventAgentStart", "EventSessionLoad", "EventAgentEnd")] == [2, 1, 2]
    # Pieces of one stream that waited are told together; all else is told one by one, in the same order.
    deltas = [
        one["data"]["Delta"] for one in read_params(tmp_path / "slow.log", "event/dispatch") if one["type"] == "EventStreamDelta"
    ]
    assert "".join(deltas) == "".join(
        one["data"]["Delta"] for one in read_params(tmp_path / "quick.log", "event/dispatch") if one["type"] == "EventStreamDelta"
    )
    assert [one for one in types(tmp_path / "slow.log") if one != "EventStreamDelta"] == [
        one for one in told if one != "EventStreamDelta"
    ]
    assert list_actions(person) == [Notice("taken", "info", "slow")] * len(types(tmp_path / "slow.log"))  # also the last was done
    assert read_messages(tmp_path / "slow.log")[-1]["method"] == "shutdown"


@pytest.mark.req("piglet.fix.17")
async def test_the_last_events_are_waited_for_no_longer_than_the_limit(tmp_path: Path) -> None:
    assert Limits().flush == 5.0
    folder = write(tmp_path, "mute", handlers={"mute": [wait()]}, journal=tmp_path / "journal")
    app = create_app(tmp_path, folder, answers=Answers([reply("one")]), limits={"flush": 0.2})
    await app.open()
    try:
        await app.submit("first")
        log = app.host.guest("mute").log
        assert log is not None
    finally:
        begun = asyncio.get_running_loop().time()
        await close_app(app)
    assert asyncio.get_running_loop().time() - begun >= 0.2
    assert "the last events were not taken within 0.2 s" in log.path.read_text()
    assert types(tmp_path / "journal") == ["EventAgentStart"]
    assert read_messages(tmp_path / "journal")[-1]["method"] == "shutdown"


# -- actions


def write_acting_guest(tmp_path: Path, type: str, payload: object = None, **more: Answer) -> Path:
    """A guest that answers the one EventRetry with this action, and other events as told."""
    action = {"action": {"type": type, **({} if payload is None else {"payload": payload})}}
    handlers: dict[str, Any] = {"first": offer(action, events=["EventRetry"])}
    handlers |= {event: offer(answer, events=[event]) for event, answer in more.items()}
    return write(tmp_path, "meter", handlers=handlers, journal=tmp_path / "journal")


@pytest.mark.req("piglet.rule.actions")
@pytest.mark.parametrize(
    ("type", "payload", "expected"),
    [
        ("notify", {"message": "saved", "level": "warn"}, [Notice("saved", "warn", "meter")]),
        ("notify", {"Message": "saved"}, [Notice("saved", "info", "meter")]),
        ("showMessage", {"text": "3 stations"}, [Display("3 stations", "meter")]),
        ("setSessionTitle", {"title": "Weather"}, [SetTitle("Weather")]),
        ("setStatus", {"key": "meter", "text": "3 calls"}, [SetStatus("meter", "3 calls")]),
        ("attachImage", {"data": "aGk=", "mimeType": "image/png"}, [AttachImage(IMAGE)]),
        ("detachImage", None, [DetachImage()]),
        ("sendMessage", {"content": "check the alert"}, []),
        ("quit", None, []),
        ("quit", {}, []),
    ],
)
async def test_an_action_takes_effect(tmp_path: Path, type: str, payload: Any, expected: list[Action]) -> None:
    person, model = Person(), Answers([BUSY], [reply("one")], [reply("two")], [reply("three")])
    async with open_app(tmp_path, write_acting_guest(tmp_path, type, payload), answers=model, surface=person) as app:
        await app.submit("hello")
        await flush_events(app, "meter")
        await app.idle()
        assert list_actions(person) == expected
        assert prompts_in(conversation(app.session)) == ["hello"] + ["check the alert"] * (type == "sendMessage")
        assert app.quitting.is_set() is (type == "quit")
        assert app.runtime.current is not None
        assert app.runtime.current.session.meta.title == ("Weather" if type == "setSessionTitle" else "")
        if type != "quit":
            await app.submit("and more")
            images = [[block for block in one.content if isinstance(block, ImageBlock)] for one in model.requests[-1].messages]
            assert images[-1] == [IMAGE] * (type == "attachImage")
    assert types(tmp_path / "journal") == ["EventRetry"]
    assert "3 stations" not in str([texts(request.messages) for request in model.requests])  # for the person alone


@pytest.mark.req("piglet.rule.actions")
@pytest.mark.parametrize(
    ("type", "payload"),
    [
        ("dance", {"message": "no"}),
        ("", {}),
        ("notify", 7),
        ("notify", {"message": 7}),
        ("showMessage", ["text"]),
        ("setSessionTitle", {"title": ["x"]}),
        ("setStatus", {"key": {}, "text": "x"}),
        ("attachImage", {"data": "no base64!", "mimeType": "image/png"}),
        ("attachImage", {"data": "éééé", "mimeType": "image/png"}),
        ("sendMessage", {"content": 7}),
        ("quit", "now"),
    ],
)
async def test_an_unknown_action_or_a_bad_payload_is_ignored_and_the_next_one_counts(
    tmp_path: Path, type: str, payload: Any
) -> None:
    later = {"action": {"type": "notify", "payload": {"message": "still here"}}}
    folder = write_acting_guest(tmp_path, type, payload, EventAgentEnd=later)
    person, model = Person(), Answers([BUSY], [reply("one")], [reply("two")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        await app.submit("hello")
        await flush_events(app, "meter")
        await app.idle()
        assert list_actions(person) == [Notice("still here", "info", "meter")]
        assert prompts_in(conversation(app.session)) == ["hello"]
        assert not app.quitting.is_set()
        assert app.runtime.current is not None
        assert app.runtime.current.session.meta.title == ""
        assert f"its action {type} is unknown, or its payload bad: ignored" in log_of(app.host, "meter")
    assert types(tmp_path / "journal") == ["EventRetry", "EventAgentEnd"]


@pytest.mark.req("piglet.rule.actions")
@pytest.mark.parametrize(
    ("type", "payload", "service"),
    [
        ("sendMessage", {"content": "check the alert"}, "control.send"),
        ("quit", None, "control.quit"),
        ("setSessionTitle", {"title": "Weather"}, "sessions.set_title"),
    ],
)
async def test_an_events_action_needs_the_grant_of_the_service_that_does_it(
    tmp_path: Path, type: str, payload: Any, service: str
) -> None:
    write_config(tmp_path, '[guest."piglet:meter"]\nservices = []\n')
    later = {"action": {"type": "notify", "payload": {"message": "still here"}}}
    folder = write_acting_guest(tmp_path, type, payload, EventAgentEnd=later)
    person, model = Person(), Answers([BUSY], [reply("one")], [reply("two")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        await app.submit("hello")
        await flush_events(app, "meter")
        await app.idle()
        assert list_actions(person) == [Notice("still here", "info", "meter")]  # to be seen it needs no grant
        assert prompts_in(conversation(app.session)) == ["hello"]
        assert not app.quitting.is_set()
        assert app.runtime.current is not None
        assert app.runtime.current.session.meta.title == ""
        assert f"its action {type} was not done: piglet:meter: {service} is not granted" in log_of(app.host, "meter")


@pytest.mark.req("piglet.method.shortcut/handle")
async def test_a_key_that_a_person_pressed_needs_no_grant(tmp_path: Path) -> None:
    write_config(tmp_path, '[guest."piglet:weather"]\nservices = []\n')
    title = {"action": {"type": "setSessionTitle", "payload": {"title": "Weather"}}}
    odd = {"action": {"type": "attachImage", "payload": {"data": "éééé", "mimeType": "image/png"}}}
    folder = write(tmp_path, "weather", shortcuts={"ctrl+o": odd, "ctrl+t": title, "ctrl+q": {"action": {"type": "quit"}}})
    async with open_app(tmp_path, folder) as app:
        assert (await app.shortcut("ctrl+o")).action == NoAction()
        await app.shortcut("ctrl+t")
        assert app.runtime.current is not None
        assert app.runtime.current.session.meta.title == "Weather"
        await app.shortcut("ctrl+q")
        assert app.quitting.is_set()


@pytest.mark.req("piglet.rule.actions")
@pytest.mark.parametrize("second", ["detachImage", "attachImage"])
async def test_an_image_is_taken_off_again_by_either_action(tmp_path: Path, second: str) -> None:
    image = {"data": "aGk=", "mimeType": "image/png"}
    off = {"action": {"type": second, "payload": image if second == "attachImage" else None}}
    folder = write_acting_guest(tmp_path, "attachImage", image, EventAgentEnd=off)
    person, model = Person(), Answers([BUSY], [reply("one")], [reply("two")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        await app.submit("hello")
        await flush_events(app, "meter")
        assert types(tmp_path / "journal") == ["EventRetry", "EventAgentEnd"]
        await app.submit("and more")
    assert not [block for one in model.requests[-1].messages for block in one.content if isinstance(block, ImageBlock)]


# -- keys


@pytest.mark.req("piglet.method.shortcut/handle")
async def test_a_pressed_key_is_handled_and_its_action_done(tmp_path: Path) -> None:
    sending = {"action": {"type": "sendMessage", "payload": {"content": "from a key"}}}
    folder = write(
        tmp_path,
        "weather",
        shortcuts={
            "ctrl+g": {"action": {"type": "setStatus", "payload": {"key": "wx", "text": "Bern 7"}}},
            "ctrl+n": {"action": None},
            "ctrl+u": {"action": {"type": "dance"}},
            "ctrl+s": sending,
            "ctrl+e": [throw("no station")],
            "ctrl+o": [result("odd")],
            "ctrl+x": [crash()],
        },
        journal=tmp_path / "journal",
    )
    person = Person()
    async with open_app(
        tmp_path, folder, answers=Answers([reply("done")]), surface=person, limits={**SLOW_RESTART, "model_wait": 0.001}
    ) as app:
        person.actions.clear()
        for key in ("ctrl+g", "ctrl+n", "ctrl+u"):
            assert (await app.shortcut(key)).error == ""
        assert person.actions == [SetStatus("wx", "Bern 7")]
        await app.shortcut("ctrl+s")
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["from a key"]

        async def fails(key: str) -> str:
            person.actions.clear()
            outcome = await app.shortcut(key)
            [told] = [one for one in person.actions if isinstance(one, Notice) and key in one.text]
            assert (told.level, told.text) == ("error", outcome.error)
            return told.text

        assert await fails("ctrl+e") == "ext weather shortcut ctrl+e: no station"
        assert (await fails("ctrl+o")).startswith("ext weather shortcut ctrl+o: its answer to shortcut/handle cannot be read")
        assert (await fails("ctrl+x")).startswith("ext weather shortcut ctrl+x: extension weather closed (exit status 3")
        assert (await fails("ctrl+g")).startswith("ext weather shortcut ctrl+g: piglet:weather is")  # it is down
    keys = [one["key"] for one in read_params(tmp_path / "journal", "shortcut/handle")]
    assert keys == ["ctrl+g", "ctrl+n", "ctrl+u", "ctrl+s", "ctrl+e", "ctrl+o", "ctrl+x"]
