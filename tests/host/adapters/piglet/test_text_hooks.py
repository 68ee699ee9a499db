"""What guests make of what is typed, what they add to the prompt, and in which order (spec piglet 5.6, 5.7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.errors import NotAllowed
from serai.host.guest import Guest, GuestState
from serai.model.actions import Notice
from serai.model.events import Event, TurnEnded
from tests.support.agents.scripted_models import Answers, conversation, reply
from tests.support.app.apps import Person, open_app, prompts_in, sessions_of
from tests.support.host.zot_guests import wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import ask, crash, result, say, throw

pytestmark = ONE_LOOP


@pytest.mark.req("piglet.method.messageHook/onMessage")
async def test_a_hook_gets_the_changed_text_and_adds_to_the_system_prompt(tmp_path: Path) -> None:
    clock = write(tmp_path, "clock", hooks={"clock": "It is noon."}, journal=tmp_path / "journal")
    nothing = write(tmp_path, "nothing", hooks={"empty": [result({"injection": ""})]})
    absent = write(tmp_path, "absent", hooks={"absent": [result({})]})
    alias = write(tmp_path, "alias", transformers={"alias": "show git status"}, sections={"Units": "Use metric."})
    model = Answers([reply("done")])
    async with open_app(tmp_path, clock, nothing, absent, alias, answers=model) as app:
        await app.submit("!s")
        without = app.resident.context.build_prompt(app.resident.tools)
    assert read_params(tmp_path / "journal", "messageHook/onMessage") == [{"message": "show git status"}]
    assert model.requests[0].system == f"{without}\n\nIt is noon."
    assert "# Units\n\nUse metric." in without


@pytest.mark.req("piglet.method.messageHook/onMessage")
async def test_a_hook_may_ask_the_host_before_it_answers(tmp_path: Path) -> None:
    """Spec piglet 2.5: it narrows the tools, and the very run that it was asked for has only those."""
    narrow = ask("host/setToolFilter", {"names": ["look"]}, quiet=True)
    folder = write(tmp_path, "plan", hooks={"plan": [narrow, say("Only look.")]}, tools=["look", "change"])
    model = Answers([reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        await app.submit("hello")
    assert model.requests[0].system.endswith("\n\nOnly look.")
    assert "change" not in {tool.name for tool in model.requests[0].tools}


@pytest.mark.req("piglet.rule.message-hook-failure")
async def test_of_hooks_that_fail_only_their_own_words_are_missing(tmp_path: Path) -> None:
    folders = [
        write(tmp_path, "first", hooks={"first": "From the first."}),
        write(tmp_path, "broken", hooks={"broken": [throw("it forgot")]}),
        write(tmp_path, "odd", hooks={"odd": [result({"injection": 7})]}),
        write(tmp_path, "fatal", hooks={"fatal": [crash()]}),
        write(tmp_path, "last", hooks={"last": "From the last."}),
    ]
    person, model = Person(), Answers([reply("one")], [reply("two")])
    async with open_app(tmp_path, *folders, answers=model, surface=person, limits=SLOW_RESTART) as app:
        assert await app.submit("hello")
    assert model.requests[0].system.endswith("\n\nFrom the first.\n\nFrom the last.")
    warned = [one.text for one in person.actions if isinstance(one, Notice) and "could not add" in one.text and one.level == "warn"]
    assert [text.split()[0] for text in warned] == ["broken", "odd", "fatal"]
    assert warned[0] == "broken could not add what it wanted to: it forgot"


@pytest.mark.req("piglet.method.inputTransformer/transform")
async def test_the_output_of_one_is_the_input_of_the_next_and_handled_starts_nothing(tmp_path: Path) -> None:
    first = write(tmp_path, "first", transformers={"first": "$input, first"}, journal=tmp_path / "first.log")
    second = write(tmp_path, "second", transformers={"second": "$input, second"}, journal=tmp_path / "second.log")
    model = Answers([reply("done")])
    async with open_app(tmp_path, first, second, answers=model) as app:
        await app.submit("typed")
        assert prompts_in(conversation(app.session)) == ["typed, first, second"]
    assert read_params(tmp_path / "first.log", "inputTransformer/transform") == [{"input": "typed"}]
    assert read_params(tmp_path / "second.log", "inputTransformer/transform") == [{"input": "typed, first"}]


@pytest.mark.req("piglet.method.inputTransformer/transform")
async def test_what_is_handled_is_nowhere(tmp_path: Path) -> None:
    taking = [result({"output": "mine", "handled": True})]
    first = write(tmp_path, "first", transformers={"first": taking})
    later = write(tmp_path, "later", transformers={"later": offer([], priority=9)}, hooks=["later"], journal=tmp_path / "later.log")
    model = Answers([reply("done")])
    async with open_app(tmp_path, first, later, answers=model) as app:
        assert await app.submit("typed") is None
        app.queue("typed, too")
        await app.idle()
        assert (conversation(app.session), model.requests) == ([], [])
    assert [message["method"] for message in read_messages(tmp_path / "later.log")] == ["initialize", "shutdown"]
    assert list(sessions_of(tmp_path).list()) == []


@pytest.mark.req("piglet.rule.transformer-failure")
async def test_an_error_fails_the_submission_and_a_guest_that_is_down_is_passed_over(tmp_path: Path) -> None:
    folder = write(
        tmp_path, "alias", transformers={"expand": [throw("no such alias")]}, tools={"fatal": [crash()]}, commands={"say": "said"}
    )
    model = Answers([reply("done")])
    async with open_app(tmp_path, folder, answers=model, limits={**SLOW_RESTART, "model_wait": 0.001}) as app:
        with pytest.raises(NotAllowed) as raised:
            await app.submit("!s")
        assert raised.value.message == "input transformer expand: input transform: no such alias"
        assert conversation(app.session) == []
        await app.submit("/say hello")  # a command is not transformed
        await app.host.call_tool("fatal")
        await wait_for_state(app.host, "alias", GuestState.BACKING_OFF)
        await app.submit("!s")
        assert prompts_in(conversation(app.session)) == ["!s"]


@pytest.mark.req("piglet.rule.order-stable")
async def test_all_sort_ascending_and_equal_numbers_keep_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guests in load order, and the sections of one guest as it registered them."""
    numbers = {"d": 2, "b": 1, "a": 1, "c": 1, "e": 0}
    folders = []
    for name, number in numbers.items():
        sections = {f"{name.upper()} {n}": offer(content="-", order=number) for n in (2, 1)}
        folders.append(
            write(
                tmp_path,
                name,
                hooks={name: offer(f"By {name}.", priority=number)},
                transformers={name: offer(f"${{input}}{name}", priority=number)},
                handlers={name: offer([], priority=number, events=["EventAgentEnd"])},
                sections=sections,
            )
        )
    told: list[str] = []
    tell = Guest.tell

    def noting(guest: Guest, event: Event) -> None:
        told.extend([guest.manifest.name] if isinstance(event, TurnEnded) else [])
        tell(guest, event)

    monkeypatch.setattr(Guest, "tell", noting)
    model = Answers([reply("done")])
    async with open_app(tmp_path, *folders, answers=model) as app:
        await app.submit("typed ")
        assert prompts_in(conversation(app.session)) == ["typed ebacd"]
    assert told == ["e", "b", "a", "c", "d"]
    system = model.requests[0].system
    assert system.endswith("\n\nBy e.\n\nBy b.\n\nBy a.\n\nBy c.\n\nBy d.")
    titles = [line[2:] for line in system.splitlines() if line.startswith("# ") and line[-1].isdigit()]
    assert titles == ["E 2", "E 1", "B 2", "B 1", "A 2", "A 1", "C 2", "C 1", "D 2", "D 1"]
