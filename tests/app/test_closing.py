"""The beginning and the end of an app: what is wanted too early or too late, and what is left when one of them goes wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from serai.app.app import App
from serai.errors import Closed, NoSession
from serai.model.actions import Notice, SubmitPrompt
from serai.model.contributions import Contributions, EventHandler
from serai.model.events import Event, SessionStarted
from serai.record import RecordingFolder
from tests.agents.resident.parts import Answers, conversation, said
from tests.app.houses import Gated, Helper, Person, bring, closed, home_of, opened, prompts_in, sessions_of, unopened
from tests.host.guests import Latch, make

pytestmark = pytest.mark.loops

Monkey = pytest.MonkeyPatch


def files_of(tmp_path: Path) -> list[str]:
    """What is in the folder of sessions, locks included."""
    folder = sessions_of(tmp_path).folder
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def open_files(tmp_path: Path) -> list[str]:
    """Files of this person that this process has open, but for guests' logs."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return [link for link in links if link.startswith(str(tmp_path / "home")) and "/logs/" not in link]


# -- the beginning


class Eager(Helper):
    """Wants something said as soon as it hears of a session."""

    def __init__(self, *texts: str) -> None:
        super().__init__(offers=Contributions(event_handlers=(EventHandler("eager"),)))
        self._texts = texts

    def tell(self, event: Event) -> None:
        super().tell(event)
        if isinstance(event, SessionStarted):
            for text in self._texts:
                self.wants(SubmitPrompt(text))


@pytest.mark.req("app.actions.done", "app.open.early")
async def test_what_a_guest_wants_said_at_the_beginning_of_a_session_is_said(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Eager("hello", "and welcome"))
    person = Person()
    async with opened(tmp_path, answers=Answers([said("answer")]), surface=person) as app:
        await app.idle()
        assert "\n\n".join(prompts_in(conversation(app.session))) == "hello\n\nand welcome"
    assert [action.text for action in person.actions if isinstance(action, Notice)] == []


@pytest.mark.req("app.open.early")
async def test_more_than_may_wait_at_the_beginning_is_refused_and_the_app_is_open(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Eager("one", "two", "three"))
    person = Person()
    async with opened(tmp_path, answers=Answers([said("answer")]), surface=person, limits={"inputs": 2}) as app:
        await app.idle()
        assert "\n\n".join(prompts_in(conversation(app.session))) == "one\n\ntwo"
    assert ["too much waits already" in action.text for action in person.actions if isinstance(action, Notice)] == [True]


@pytest.mark.req("app.open.nothing-left")
async def test_services_that_are_none_leave_nothing(tmp_path: Path) -> None:
    app = unopened(tmp_path, record=True, services=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await app.open()
    assert open_files(tmp_path) == []
    assert files_of(tmp_path) == []
    assert not any(recording.live for recording in RecordingFolder.usual(home_of(tmp_path)).runs())


@pytest.mark.req("app.open.nothing-left")
async def test_an_app_that_is_closed_while_it_opens_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with Latch(tmp_path) as latch:
        app = unopened(tmp_path, make(tmp_path, f"wait({str(latch.path)!r})\nremember()"))
        opening = asyncio.create_task(app.open())
        await asyncio.sleep(0)  # it waits for the guest now
        await closed(app)
        with pytest.raises(Closed, match="closed"):
            await opening
    assert files_of(tmp_path) == []


# -- the end


@pytest.mark.req("app.submit.order", "app.quit.begins-nothing")
async def test_what_is_queued_begins_no_turn_once_somebody_wants_to_quit(tmp_path: Path) -> None:
    model, person = Gated([said("answer")]), Person()
    async with opened(tmp_path, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("first"))
        assert await model.began.get() == "first"
        app.queue("second")
        app.quit()
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        model.go()  # for whoever begins all the same
        await app.idle()
        assert model.began.empty()
        notices = [action.text for action in person.actions if isinstance(action, Notice)]
        assert notices == ["a prompt was not sent: the app is about to be closed"]


class Clings(Helper):
    """Does not let itself be stopped."""

    async def stop(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.req("app.close.nothing-left")
@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_app_whose_loop_ends_while_it_closes_leaves_neither_session_nor_recording_nor_decisions_open(
    monkeypatch: Monkey, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def leave() -> App:
        app = unopened(tmp_path, record=True)
        await app.open()
        await app.submit(">> say kept")
        assert open_files(tmp_path)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        closing.cancel()  # as a second Ctrl-C does; at its end the loop cancels the rest
        return app

    bring(monkeypatch, tmp_path, Clings())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        app = runner.run(leave())
    assert open_files(tmp_path) == []
    assert app.runtime.current is not None
    with pytest.raises(NoSession):
        _ = app.runtime.current.session
    assert not any(recording.live for recording in RecordingFolder.usual(home_of(tmp_path)).runs())
    with sessions_of(tmp_path).open(app.session.id) as stored:
        assert "kept" in repr(stored.messages())
