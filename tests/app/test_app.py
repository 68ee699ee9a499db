"""The whole app: its life, what guests want of it, its events, its conversations; and what cannot harm it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from serai.app.app import App
from serai.errors import BadSettings, Closed, GuardDown, NoAgent, NoModel, NoSession, NotCapable, SpawnFailed, TurnInFlight
from serai.host.guest import GuestState
from serai.model.actions import Action, AttachImage, DetachImage, Notice, Quit, SetTitle, SubmitPrompt
from serai.model.contributions import Contributions, EventHandler
from serai.model.events import Event, SessionStarted, TurnStarted, event_kind
from serai.model.surface import HeadlessSurface
from serai.model.tools import ImageBlock, ToolCall
from serai.record import RecordingFolder
from tests.support.agents.event_order import is_in_order
from tests.support.agents.scripted_models import Answers, conversation, reply, texts
from tests.support.app.apps import (
    Gated,
    Helper,
    Person,
    bring,
    build_environ,
    close_app,
    create_app,
    list_session_files,
    open_app,
    prompts_in,
    sessions_of,
)
from tests.support.host.fake_guests import Fake
from tests.support.host.zot_guests import Fifo, make, pid_of, read_frames, wait_for_state

Monkey = pytest.MonkeyPatch
GUARDING = "remember(subscribe(intercept=['tool_call', 'turn_start']), tool_call={'block': True, 'reason': 'not here'})"
IMAGE, OTHER = ImageBlock(b"one", "image/png"), ImageBlock(b"two", "image/png")


def guard(tmp_path: Path) -> Path:
    return make(tmp_path, GUARDING, name="guard", settings="guard = true\n")


# -- abort and quit


async def test_a_turn_that_is_aborted_is_cancelled_and_the_next_one_works(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        await app.abort()  # nothing runs: nothing happens
        turn = asyncio.create_task(app.submit("first"))
        await model.began.get()
        await app.abort("enough")
        result = await turn
        assert result is not None
        assert (result.status, result.error) == ("cancelled", "enough")
        assert app.last == result
        model.go()
        again = await app.submit("second")
        assert again is not None
        assert again.text == "done"
        assert prompts_in(conversation(app.session)) == ["first", "[Request interrupted: enough]", "second"]


@pytest.mark.req("piglet.fix.33")
async def test_a_mark_between_two_turns_is_found_by_the_model_in_memory_and_on_disk(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("first")
        await app.abort("by a guest", mark=True)
        assert prompts_in(conversation(app.session))[-1] == "[Request interrupted: by a guest]"
        id = app.session.id
    with sessions_of(tmp_path).open(id) as stored:
        assert "[Request interrupted: by a guest]" in repr(stored.read_messages())


async def test_quit_is_a_request_and_the_caller_that_opened_the_app_closes_it(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        assert not app.quitting.is_set()
        assert await app.submit("/quit") is None
        assert app.quitting.is_set()
        with pytest.raises(Closed, match="about to be closed"):
            await app.submit("still here")


# -- what guests want done


@pytest.mark.req("app.actions.done")
async def test_what_a_guest_wants_is_done(monkeypatch: Monkey, tmp_path: Path) -> None:
    helper, person = Helper(), Person()
    bring(monkeypatch, tmp_path, helper)
    async with open_app(tmp_path, surface=person) as app:
        helper.wants(SubmitPrompt("a guest's own"))
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["a guest's own"]
        helper.wants(SetTitle("Bees"))
        helper.wants(SetTitle("  "))
        helper.wants(Quit())
        assert app.quitting.is_set()
    assert [one.meta.title for one in sessions_of(tmp_path).list()] == ["Bees"]
    assert SetTitle("Bees") in person.actions  # it is seen too
    assert not any(isinstance(action, SubmitPrompt | Quit) for action in person.actions)  # those were the app's to do


async def test_an_image_goes_with_the_next_prompt_alone_and_a_second_one_takes_it_off(monkeypatch: Monkey, tmp_path: Path) -> None:
    helper, answers = Helper(), Answers([reply("done")])
    bring(monkeypatch, tmp_path, helper)
    async with open_app(tmp_path, answers=answers) as app:
        sent = []
        one, other = AttachImage(IMAGE), AttachImage(OTHER)
        wishes: list[list[Action]] = [[one], [], [one, other], [one, DetachImage()], [one, other, one]]
        for actions in wishes:
            for action in actions:
                helper.wants(action)
            await app.submit("look")
            sent.append([block for block in answers.requests[-1].messages[-1].content if isinstance(block, ImageBlock)])
        assert sent == [[IMAGE], [], [], [], [IMAGE]]
        await app.submit("given", images=[OTHER])
        assert OTHER in answers.requests[-1].messages[-1].content


@pytest.mark.req("app.images.kept")
async def test_an_image_waits_for_a_prompt_that_really_begins(monkeypatch: Monkey, tmp_path: Path) -> None:
    model = Gated([reply("done")])
    taken = asyncio.Event()

    def inject(text: str) -> str:
        if text == "second" and not taken.is_set():  # a queued one is quicker while it is prepared
            taken.set()
            app.session.turn("between").start()
        return ""

    helper = Helper(inject=inject)
    bring(monkeypatch, tmp_path, helper)
    async with open_app(tmp_path, answers=model) as app:
        helper.wants(AttachImage(IMAGE))
        second = asyncio.create_task(app.submit("second"))
        assert await model.began.get() == "between"
        model.go()
        assert await model.began.get() == "second"
        model.go()
        await second
        assert IMAGE not in model.requests[0].messages[-1].content
        assert IMAGE in model.requests[1].messages[-1].content


# -- events


class Listening(Fake):
    def __init__(self, name: str = "listener") -> None:
        super().__init__(name, Contributions(event_handlers=(EventHandler(name),)))


@pytest.mark.req("app.events.order")
async def test_events_reach_store_guests_and_surface_in_one_order(monkeypatch: Monkey, tmp_path: Path) -> None:
    listener, person = Listening(), Person()
    bring(monkeypatch, tmp_path, listener)
    kept: list[int] = []

    def tell(event: Event) -> None:
        if isinstance(event, TurnStarted):
            kept.append(len(app.runtime.current.session.read_messages()))  # type: ignore[union-attr]
        listener.told.append(event)

    monkeypatch.setattr(listener, "tell", tell)
    async with open_app(tmp_path, surface=person) as app:
        await app.submit('hello\n>> say one\n>> call read {"path": "none"}\n>> say two')
    assert kept == [1]  # the store is told first: what cannot be kept must not be acted upon
    assert listener.told == person.events
    assert [event.seq for event in listener.told] == list(range(1, len(listener.told) + 1))
    assert isinstance(listener.told[0], SessionStarted)
    assert is_in_order(listener.told[1:])


@pytest.mark.req("app.events.slow-guest")
async def test_a_guest_that_reads_nothing_does_not_hold_the_turn_and_hears_all_of_it_later(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        events = "events=['session_start', 'turn_start', 'turn_end', 'assistant_message']"
        guest = make(tmp_path, f"remember(subscribe({events}), latch={str(latch.path)!r})")
        async with open_app(tmp_path, guest) as app:
            for text in ("one", "two"):
                await app.submit(text)
            latch.lift()
            frames = [frame for frame in await read_frames(app.host) if frame["type"] == "event"]
    turn = ["turn_start", "assistant_message", "turn_end"]
    assert [frame["event"] for frame in frames] == ["session_start", *turn, *turn]
    assert [frame["text"] for frame in frames if "text" in frame] == ["You said: one", "You said: two"]


class Broken(HeadlessSurface):
    """Fails at everything it is told."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def act(self, action: Action) -> None:
        self.failed.append(type(action).__name__)
        raise RuntimeError("no screen")

    def tell(self, event: Event) -> None:
        self.failed.append(event_kind(event))
        raise RuntimeError("no screen")


@pytest.mark.req("app.surface.broken")
async def test_a_surface_that_fails_harms_nobody(monkeypatch: Monkey, tmp_path: Path) -> None:
    helper, broken = Helper(), Broken()
    bring(monkeypatch, tmp_path, helper, Listening())
    (tmp_path / "project" / ".serai").mkdir(parents=True)
    (tmp_path / "project" / ".serai" / "config.toml").write_text('agent = "other"\n')  # nobody trusts it: told at the start
    async with open_app(tmp_path, surface=broken) as app:
        helper.wants(Notice("hello"))
        helper.wants(SetTitle("Bees"))
        result = await app.submit("hello")
        assert result is not None
        assert result.status == "success"
        app.queue("/nobody")
        await app.idle()
        assert len(conversation(app.session)) == 2
    assert {"Notice", "SetTitle", "session_started", "turn_started", "turn_ended"} <= set(broken.failed)


# -- guards


async def test_a_run_waits_for_no_guard_but_refuses_until_it_is_back(tmp_path: Path) -> None:
    slowly = {"restart_wait": 60.0, "restart_wait_most": 60.0}
    async with open_app(tmp_path, guard(tmp_path), limits=slowly) as app:
        assert await app.submit("before")
        os.kill(pid_of(app.host, "guard"), signal.SIGKILL)
        await wait_for_state(app.host, "guard", GuestState.BACKING_OFF)
        with pytest.raises(GuardDown, match="zot:guard is backing off"):
            await app.submit("while it is down")
        await app.host.reload("guard")
        assert await app.submit("after")
        assert prompts_in(conversation(app.session)) == ["before", "after"]


# -- two conversations


async def test_two_conversations_are_kept_apart(tmp_path: Path) -> None:
    person = Person()
    other = sessions_of(tmp_path).create(str(tmp_path / "project"))
    async with open_app(tmp_path, surface=person) as app:
        await app.submit("in the first")
        first = app.session.id
        app.resident.tools.restrict(("read",))
        await app.swap(other)
        assert (app.session.id, app.resident.session_id, app.situation().session) == (other.id,) * 3
        assert len(app.resident.tools.list_offered()) > 1  # a filter of tools ends with its conversation (FIX-24)
        assert conversation(app.session) == []
        await app.submit("in the second")
        fork = other.fork()
        await app.swap(fork)
        assert prompts_in(conversation(app.session)) == ["in the second"]
        await app.submit("in the fork")
    assert [event.session for event in person.events if isinstance(event, SessionStarted)] == [first, other.id, fork.id]
    said_in = {}
    for id in (first, other.id, fork.id):
        with sessions_of(tmp_path).open(id) as stored:
            said_in[id] = [message.content for message in stored.read_messages() if type(message).__name__ == "UserMessage"]
    assert said_in == {first: ["in the first"], other.id: ["in the second"], fork.id: ["in the second", "in the fork"]}


async def test_a_session_that_is_left_before_anything_was_said_is_gone(tmp_path: Path) -> None:
    other = sessions_of(tmp_path).create(str(tmp_path / "project"))
    async with open_app(tmp_path) as app:
        await app.swap(other)
        assert [one.id for one in sessions_of(tmp_path).list()] == [other.id]
    assert [one.id for one in sessions_of(tmp_path).list()] == [other.id]  # somebody else made it


async def test_the_conversation_in_memory_is_what_the_stored_one_says(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("hello")
        assert app.runtime.current is not None
        app.runtime.current.session.reset()
        app.refresh()
        assert conversation(app.session) == []
        await app.submit("again")
        assert texts(conversation(app.session)) == ["user: again", "assistant: You said: again"]


async def test_no_conversation_is_changed_while_a_turn_runs_and_none_that_is_kept_nowhere(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    other = sessions_of(tmp_path).create(str(tmp_path / "project"))
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        with pytest.raises(TurnInFlight):
            await app.swap(other)
        with pytest.raises(TurnInFlight):
            app.refresh()
        model.go()
        await turn
    async with open_app(tmp_path, keep=False) as app:
        with pytest.raises(NotCapable):
            await app.swap(other)
    other.close()


# -- its life


@pytest.mark.req("app.close.nothing-left")
async def test_what_is_closed_leaves_no_process_and_no_empty_session(tmp_path: Path) -> None:
    app = create_app(tmp_path, guard(tmp_path))
    await app.open()
    assert len(sessions_of(tmp_path).list()) == 1
    await asyncio.gather(close_app(app), app.close())
    await close_app(app)
    assert list_session_files(tmp_path) == []
    with pytest.raises(Closed, match="an app is opened once"):
        await app.open()


async def test_a_conversation_in_which_something_was_said_stays_and_goes_on(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("hello")
        id = app.session.id
    for wanted in (id[:8], "latest"):
        async with open_app(tmp_path, session=wanted) as app:
            assert app.session.id == id
            assert prompts_in(conversation(app.session)) == ["hello"]
    assert [one.id for one in sessions_of(tmp_path).list()] == [id]


async def test_to_close_ends_the_turn_that_runs_and_keeps_what_was_said(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.queue("never")
    result = await turn
    assert result is not None
    assert result.status == "cancelled"
    (listed,) = sessions_of(tmp_path).list()
    with sessions_of(tmp_path).open(listed.id) as stored:
        assert "go" in repr(stored.read_messages())
        assert "never" not in repr(stored.read_messages())


async def test_an_app_is_opened_once_and_says_so(tmp_path: Path) -> None:
    app = create_app(tmp_path)
    with pytest.raises(Closed, match="the app is not open"):
        await app.submit("hello")
    async with app:
        with pytest.raises(Closed, match="an app is opened once"):
            await app.open()
        assert await app.submit("it still works")
    await App().close()  # one that never was open


@pytest.mark.req("app.open.nothing-left")
@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"agent": "nobody"}, NoAgent),
        ({"model": "no-such-model"}, NoModel),
        ({"session": "no-such-session"}, NoSession),
        ({"cwd": "no-such-folder"}, BadSettings),
        ({"options": {"nonsense": 1}}, TypeError),
    ],
    ids=["agent", "model", "session", "folder", "option"],
)
async def test_what_cannot_be_opened_leaves_nothing(tmp_path: Path, choices: dict[str, object], error: type[Exception]) -> None:
    app = create_app(tmp_path, record=True, **choices)  # type: ignore[arg-type]
    with pytest.raises(error):
        await app.open()
    await app.close()
    assert list_session_files(tmp_path) == []
    assert not any(recording.live for recording in RecordingFolder.usual(build_environ(tmp_path)).list_runs())


@pytest.mark.req("app.open.nothing-left")
async def test_an_agent_that_does_not_start_leaves_no_guest_no_session_and_no_open_recording(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    app = create_app(tmp_path, guard(tmp_path), record=True)

    async def fail() -> None:
        raise SpawnFailed("it does not start")

    monkeypatch.setattr("serai.agents.session.Session.open", lambda self: fail())
    with pytest.raises(SpawnFailed):
        await app.open()
    assert not app.host.guest("guard").running
    await close_app(app)
    assert list_session_files(tmp_path) == []
    (recording,) = RecordingFolder.usual(build_environ(tmp_path)).list_runs()
    assert not recording.live


# -- tools


async def test_a_tool_is_called_for_a_person_through_the_same_door(tmp_path: Path) -> None:
    async with open_app(tmp_path, guard(tmp_path), mode="manual") as app:
        blocked = await app.call_tool(ToolCall("bash", {"command": "true"}))
    async with open_app(tmp_path, mode="manual") as app:
        denied = await app.call_tool(ToolCall("bash", {"command": "true"}))
    assert (blocked.code, denied.code) == ("BLOCKED", "PERMISSION_DENIED")
