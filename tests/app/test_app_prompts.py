"""What becomes of what is typed: commands, queued prompts, texts during a turn, keys, and what guests make of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.errors import Closed, GuardDown, NoCommand, NotAllowed, Refused
from serai.model.actions import Action, Display, NoAction, Notice, SubmitPrompt
from serai.model.contributions import Contributions, PromptSection, TransformResult
from serai.model.events import StepStarted, ToolStarted, TurnEnded, TurnStarted
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from tests.support import piglet_guests
from tests.support.agents.scripted_models import Answers, call, conversation, reply
from tests.support.app.apps import Gated, Helper, Person, bring, open_app, prompts_in, sessions_of
from tests.support.host.fake_guests import Fake
from tests.support.host.zot_guests import make
from tests.support.piglet_guests.steps import result, throw

Monkey = pytest.MonkeyPatch
WEATHER = Path(__file__).parents[2] / "examples" / "zot" / "weather-python"


def shout(text: str) -> TransformResult:
    return TransformResult(text.upper())


# -- one after the other


async def test_a_prompt_is_answered(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        assert app.last is None
        result = await app.submit("hello")
        assert result is not None
        assert (result.status, result.text, result.session) == ("success", "You said: hello", app.session.id)
        assert app.last == result


async def test_a_command_shows_what_it_has_to_show_and_no_turn_comes_of_it(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, WEATHER, surface=person) as app:
        assert await app.submit("/weather Bern") is None
    assert person.actions[-1] == Display("Bern: 16 degrees, fog", "weather")
    assert person.events_of(TurnStarted) == []


async def test_the_prompt_of_a_command_becomes_a_turn_once(tmp_path: Path) -> None:
    async with open_app(tmp_path, WEATHER) as app:
        result = await app.submit("/forecast Bern")
        await app.idle()
        assert result is not None
        assert result.text == "You said: What should I wear today? The weather in Bern: 16 degrees, fog."
        assert len(prompts_in(conversation(app.session))) == 1


async def test_a_command_that_nobody_has_or_that_fails_is_an_error_and_no_prompt(tmp_path: Path) -> None:
    async with open_app(tmp_path, WEATHER) as app:
        with pytest.raises(NoCommand, match="unknown command /nobody"):
            await app.submit("/nobody here")
        with pytest.raises(Refused, match="which city"):
            await app.submit("/weather")
        assert conversation(app.session) == []


async def test_a_queued_command_that_goes_wrong_is_told(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, surface=person) as app:
        app.queue("/nobody")
        await app.idle()
    assert Notice("unknown command /nobody", "error", "serai") in person.actions


@pytest.mark.req("app.submit.order")
async def test_two_submits_run_one_after_the_other_in_their_order_also_when_a_guest_takes_longer_for_the_first(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    slow, asked = asyncio.Event(), asyncio.Event()

    async def transform(text: str) -> TransformResult:
        if text == "first":
            asked.set()
            await slow.wait()
        return TransformResult(text)

    bring(monkeypatch, tmp_path, Helper(transform=transform))
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        first = asyncio.create_task(app.submit("first"))
        await asked.wait()
        second = asyncio.create_task(app.submit("second"))
        await asyncio.sleep(0)
        slow.set()
        assert await model.began.get() == "first"
        assert model.began.empty()
        model.go()
        model.go()
        await asyncio.gather(first, second)
        assert prompts_in(conversation(app.session)) == ["first", "second"]


async def test_a_turn_is_not_begun_twice_for_what_is_queued_and_submitted_at_once(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, surface=person) as app:
        app.queue("queued")
        await app.submit("submitted")
        await app.idle()
        assert sorted(prompts_in(conversation(app.session))) == ["queued", "submitted"]
    assert len(person.events_of(TurnStarted)) == len(person.events_of(TurnEnded)) == len(person.events_of(StepStarted)) == 2


# -- during a turn


class Slow(Fake):
    """Its tool runs until the test lets it."""

    def __init__(self) -> None:
        super().__init__("slow", Contributions(tools=(ToolSpec("work", interrupt="block"),)))
        self.go = asyncio.Event()

    async def call_tool(self, call: ToolCall) -> ToolResult:
        await self.go.wait()
        return ToolResult.of("worked")


@pytest.mark.req("app.queue.during-turn")
async def test_what_is_queued_during_a_turn_is_steered_in_when_a_tool_ends_and_the_rest_is_one_turn_after_the_commands(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    slow, person = Slow(), Person()
    ran: list[str] = []

    def note(args: str) -> Action:
        ran.append(f"{args} after {len(model.requests)}")
        return NoAction()

    bring(monkeypatch, tmp_path, slow, Helper(commands={"note": note}))
    model = Gated([reply("", call("work"))], [reply("done")], [reply("both")])
    async with open_app(tmp_path, answers=model, surface=person) as app:
        model.go()
        turn = asyncio.create_task(app.submit("begin"))
        await person.saw_a(ToolStarted)
        app.queue("one")
        app.queue("/note waits")
        app.queue("two")
        slow.go.set()
        assert [await model.began.get() for _ in range(2)] == ["begin", "one\n\ntwo"]
        app.queue("three")
        app.queue("four")
        app.queue(" \n")
        model.go()
        await turn
        assert await model.began.get() == "three\n\nfour"
        assert ran == ["waits after 2"]  # before the new turn
        model.go()
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["begin", "one\n\ntwo", "three\n\nfour"]


@pytest.mark.parametrize("immediate", [True, False])
async def test_a_command_that_is_immediate_runs_during_the_turn_and_any_other_after_it(
    monkeypatch: Monkey, tmp_path: Path, immediate: bool
) -> None:
    ran = asyncio.Event()

    def note(_args: str) -> Action:
        ran.set()
        return NoAction()

    bring(monkeypatch, tmp_path, Helper(commands={"note": note}, immediate=immediate))
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.queue("/note")
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran.is_set() is immediate
        model.go()
        await turn
        await ran.wait()


@pytest.mark.req("piglet.edge.34")
async def test_a_command_during_the_turn_leaves_the_filter_of_tools_and_what_waits_as_they_are(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    ran = asyncio.Event()

    def note(_args: str) -> Action:
        ran.set()
        return NoAction()

    bring(monkeypatch, tmp_path, Helper(commands={"note": note}, immediate=True))
    model = Gated([reply("one")], [reply("two")])
    async with open_app(tmp_path, answers=model) as app:
        await app.runtime.services.ask("fake:helper", "tools", "filter", {"names": ["read"]})
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.queue("this waits")
        app.queue("/note")
        await ran.wait()
        assert app.resident.tools.filter == frozenset({"read"})
        model.go()
        model.go()
        await turn
        await app.idle()
        assert app.resident.tools.filter == frozenset({"read"})
        assert prompts_in(conversation(app.session)) == ["go", "this waits"]


async def test_a_guest_may_name_its_command_as_it_likes(monkeypatch: Monkey, tmp_path: Path) -> None:
    person, ran = Person(), list[str]()

    def clear(args: str) -> Action:
        ran.append(args)
        return NoAction()

    bring(monkeypatch, tmp_path, Helper(commands={"mem:clear": clear}))
    async with open_app(tmp_path, surface=person) as app:
        await app.submit("/mem:clear all")
        app.queue("/mem:clear")
        await app.idle()
        assert ran == ["all", ""]
        assert conversation(app.session) == []
        app.queue("/mem:clear too late")
        await app.host.guests["fake:helper"].stop()
        await app.idle()
    assert Notice("unknown command /mem:clear", "error", "serai") in person.actions


async def test_a_person_can_quit_while_a_turn_runs(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.queue("/quit")
        async with asyncio.timeout(10.0):
            await app.quitting.wait()
        assert not turn.done()
        await app.close()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"


async def test_a_text_is_steered_into_the_turn_that_runs_and_waits_for_the_next_without_one(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    slow, person = Slow(), Person()
    bring(monkeypatch, tmp_path, slow)
    answers = Answers([reply("", call("work"))], [reply("done")])
    async with open_app(tmp_path, answers=answers, surface=person) as app:
        turn = asyncio.create_task(app.submit("begin"))
        await person.saw_a(ToolStarted)
        app.steer("be quick")
        app.steer("  ")
        slow.go.set()
        await turn
        assert prompts_in(answers.requests[1].messages) == ["begin", "be quick"]
        app.steer("/quit once more")  # it is for the model, whatever it looks like
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["begin", "be quick"]
        await app.submit("go on")
        assert prompts_in(conversation(app.session)) == ["begin", "be quick", "go on\n\n/quit once more"]
        assert not app.quitting.is_set()


@pytest.mark.req("app.steer.late")
async def test_what_comes_too_late_for_a_turn_is_the_next_one(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model, limits={"steps": 1}) as app:  # no later step would take it
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.steer("late")
        model.go()
        await turn
        assert await model.began.get() == "late"
        model.go()
        await app.idle()


async def test_more_than_may_wait_is_refused_and_a_guest_that_wants_more_is_told_of(monkeypatch: Monkey, tmp_path: Path) -> None:
    model, person, helper = Gated([reply("done")]), Person(), Helper()
    bring(monkeypatch, tmp_path, helper)
    async with open_app(tmp_path, answers=model, surface=person, limits={"inputs": 1}) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        app.queue("one")
        with pytest.raises(NotAllowed, match="too much waits"):
            app.queue("two")
        helper.wants(SubmitPrompt("three"))
        assert isinstance(person.actions[-1], Notice)
        assert person.actions[-1].text.startswith("a prompt was not sent: too much waits already")
        model.go()
        model.go()
        await turn
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["go", "one"]


async def test_nothing_is_queued_for_an_app_that_is_not_open(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        pass
    with pytest.raises(Closed):
        app.queue("hello")
    with pytest.raises(Closed):
        await app.submit("hello")


# -- input transformers (spec piglet 5.7)


@pytest.mark.req("app.transform.typed")
async def test_a_transformer_changes_what_is_typed_but_no_command_and_nothing_queued_or_steered(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    slow, person, seen = Slow(), Person(), []

    def transform(text: str) -> TransformResult:
        seen.append(text)
        return shout(text)

    bring(monkeypatch, tmp_path, slow, Helper(transform=transform, commands={"say": SubmitPrompt}))
    answers = Answers([reply("", call("work"))], [reply("done")])
    async with open_app(tmp_path, answers=answers, surface=person) as app:
        turn = asyncio.create_task(app.submit("typed"))
        await person.saw_a(ToolStarted)
        app.steer("steered")
        slow.go.set()
        await turn
        await app.submit("/say a command's")
        assert prompts_in(conversation(app.session)) == ["TYPED", "steered", "a command's"]
        assert seen == ["typed"]
        app.queue("typed when nothing runs")
        await app.idle()
        assert prompts_in(conversation(app.session))[-1] == "TYPED WHEN NOTHING RUNS"


async def test_a_text_that_a_guest_has_handled_becomes_no_turn_and_is_kept_nowhere(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper(transform=lambda text: TransformResult(text, handled=True)))
    person = Person()
    async with open_app(tmp_path, surface=person) as app:
        assert await app.submit("hello") is None
        assert conversation(app.session) == []
    assert person.events_of(TurnStarted) == []
    assert sessions_of(tmp_path).list() == []


async def test_a_transformer_that_fails_refuses_the_submission_and_the_next_one_gets_through(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    def transform(text: str) -> TransformResult:
        if text == "bad":
            raise Refused("not that")
        return TransformResult(text)

    helper = Helper(transform=transform)
    bring(monkeypatch, tmp_path, helper)
    async with open_app(tmp_path, limits={"restart_wait": 60.0}) as app:
        with pytest.raises(NotAllowed, match="input transformer helper: not that"):
            await app.submit("bad")
        assert conversation(app.session) == []
        assert await app.submit("good")
        helper.die()
        assert await app.submit("bad")  # who is not there has no say
        assert prompts_in(conversation(app.session)) == ["good", "bad"]


# -- message hooks and sections (spec piglet 5.6, 6.9)


def recall(text: str) -> str:
    if text == "fail":
        raise Refused("it forgot")
    return f"It is about {text}." if text != "nothing" else ""


@pytest.mark.req("app.inject.turn")
async def test_an_injection_is_in_the_system_prompt_of_its_own_turn_alone_also_for_a_queued_one(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    bring(monkeypatch, tmp_path, Helper("one", inject=recall), Helper("two", inject=lambda text: f"Twice {text}."))
    answers = Answers([reply("done")])
    async with open_app(tmp_path, answers=answers) as app:
        await app.submit("bees")
        await app.submit("nothing")
        app.queue("queued")
        await app.idle()
    systems = [request.system for request in answers.requests]
    assert systems[0].endswith("\n\nIt is about bees.\n\nTwice bees.")
    assert systems[1].endswith("\n\nTwice nothing.")
    assert "bees" not in systems[1]
    assert systems[2].endswith("\n\nIt is about queued.\n\nTwice queued.")


async def test_nothing_is_injected_for_what_is_steered(monkeypatch: Monkey, tmp_path: Path) -> None:
    slow, person, seen = Slow(), Person(), []

    def inject(text: str) -> str:
        seen.append(text)
        return ""

    bring(monkeypatch, tmp_path, slow, Helper(inject=inject))
    async with open_app(tmp_path, answers=Answers([reply("", call("work"))], [reply("done")]), surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await person.saw_a(ToolStarted)
        app.steer("steered")
        slow.go.set()
        await turn
    assert seen == ["go"]


async def test_a_hook_that_fails_is_passed_over_with_a_warning(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper("one", inject=recall), Helper("two", inject=lambda text: f"Twice {text}."))
    answers, person = Answers([reply("done")]), Person()
    async with open_app(tmp_path, answers=answers, surface=person) as app:
        assert await app.submit("fail")
    assert answers.requests[0].system.endswith("\n\nTwice fail.")
    assert Notice("one could not add what it wanted to: it forgot", "warn", "serai") in person.actions


async def test_the_sections_of_guests_are_part_of_the_system_prompt(monkeypatch: Monkey, tmp_path: Path) -> None:
    sections = PromptSection("Later", "Be kind.", 20), PromptSection("First", "Be brief.", 10)
    bring(monkeypatch, tmp_path, Helper(offers=Contributions(prompt_sections=sections)))
    answers = Answers([reply("done")])
    async with open_app(tmp_path, answers=answers) as app:
        await app.submit("go")
    assert "# First\n\nBe brief.\n\n# Later\n\nBe kind." in answers.requests[0].system


# -- guards


@pytest.mark.req("app.guard.run")
async def test_no_run_starts_while_a_guard_is_down_and_a_queued_one_is_told(tmp_path: Path) -> None:
    person = Person()
    guard = make(tmp_path, "sys.exit(3)", name="sentry", settings="guard = true\n")
    async with open_app(tmp_path, guard, surface=person) as app:
        with pytest.raises(GuardDown, match="zot:sentry"):
            await app.submit("hello")
        app.queue("hello too")
        await app.idle()
        assert conversation(app.session) == []
    assert person.events_of(TurnStarted) == []
    told = [action.text for action in person.actions if isinstance(action, Notice)]
    assert any(text.startswith("a prompt was not sent: the guard zot:sentry") for text in told)
    assert sessions_of(tmp_path).list() == []


async def test_a_pressed_key_has_its_guests_wish_done(tmp_path: Path) -> None:
    ask = {"action": {"type": "sendMessage", "payload": {"content": "check the alert"}}}
    shortcuts = {"ctrl+g": [result(ask)], "ctrl+n": "hello", "ctrl+x": [throw("no station")]}
    folder = piglet_guests.write(tmp_path, "weather", shortcuts=shortcuts)
    person = Person()
    async with open_app(tmp_path, folder, answers=Answers([reply("done")]), surface=person) as app:
        assert (await app.shortcut("ctrl+g")).action == SubmitPrompt("check the alert")
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["check the alert"]
        assert isinstance((await app.shortcut("ctrl+n")).action, Notice)
        assert [action.text for action in person.actions if isinstance(action, Notice)] == ["hello"]
        outcome = await app.shortcut("ctrl+x")
        assert (outcome.action, outcome.error) == (NoAction(), "ext weather shortcut ctrl+x: no station")
        assert person.actions[-1] == Notice(outcome.error, "error", "serai")
        with pytest.raises(NoCommand, match="no guest has the shortcut"):
            await app.shortcut("ctrl+q")
