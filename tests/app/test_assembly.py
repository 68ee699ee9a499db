"""What is chosen for an app, by whoever opens it and in settings, has its effect: rules, tools, recordings, sessions, services."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serai.app.services.router import Data, NoArguments, Operation
from serai.errors import BadSettings, NoSession
from serai.host.trust import Trust
from serai.model.actions import Notice
from serai.model.approvals import Approval
from serai.model.tools import ToolCall
from serai.policy import CallContext, DecisionStore
from serai.record import Recorder, RecordingFolder
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.apps import Helper, Person, bring, build_environ, create_app, open_app
from tests.support.piglet.journals import write_config

TRUE = ToolCall("bash", {"command": "true"})
DEAD = "1:1:another boot"  # a process that certainly runs no more


def list_offered(model: Answers) -> list[list[str]]:
    """The tools that the model was told of, with each request."""
    return [[tool.name for tool in request.tools] for request in model.requests]


# -- rules and tools


@pytest.mark.req("app.choices.untrusted")
async def test_what_a_projects_rules_allow_counts_once_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "project" / ".serai").mkdir(parents=True)
    (tmp_path / "project" / ".serai" / "policy.toml").write_text('[[rule]]\nid = "all"\ntool = "bash"\ndecide = "allow"\n')
    async with open_app(tmp_path, mode="manual") as app:
        assert (await app.call_tool(TRUE)).code == "PERMISSION_DENIED"
    Trust.usual(build_environ(tmp_path)).allow(tmp_path / "project")
    async with open_app(tmp_path, mode="manual") as app:
        assert not (await app.call_tool(TRUE)).is_error


@pytest.mark.req("app.choices.tools")
async def test_an_agent_has_the_tools_that_the_settings_name_in_every_conversation(tmp_path: Path) -> None:
    write_config(tmp_path, 'tools = ["read"]\n')
    model = Answers([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        await app.submit("one")
        assert app.runtime.current is not None
        await app.swap(app.runtime.current.session.fork())
        await app.submit("two")
    assert list_offered(model) == [["read"], ["read"]]


# -- recordings


@pytest.mark.req("app.choices.record")
async def test_who_wants_no_recording_has_none(tmp_path: Path) -> None:
    write_config(tmp_path, "record = false\n")
    async with open_app(tmp_path, record=True) as app:
        assert app.runtime.recorder is None
    assert RecordingFolder.usual(build_environ(tmp_path)).list_runs() == []


@pytest.mark.req("app.choices.record")
async def test_a_recorder_that_is_somebody_elses_stays_open(tmp_path: Path) -> None:
    with Recorder(RecordingFolder(tmp_path / "mine")) as recorder:
        async with open_app(tmp_path, record=recorder):
            pass
        [run] = recorder.folder.list_runs()
        assert run.live
        recorder.note("and it goes on")
        assert recorder.flush()
        assert b"and it goes on" in b"".join(file.read_bytes() for file in (tmp_path / "mine").iterdir())


@pytest.mark.req("app.choices.record")
async def test_the_secrets_of_the_given_environment_are_on_no_record(tmp_path: Path) -> None:
    environ = {**build_environ(tmp_path), "WEATHER_TOKEN": "quite-unlike-a-key"}
    async with open_app(tmp_path, record=True, environ=environ) as app:
        assert app.runtime.recorder is not None
        tap = app.runtime.recorder.open_tap("zot:weather", kind="guest", dialect="zot")
        tap.frames("received", 0.0, b'{"say":"quite-unlike-a-key"}\n')
    [run] = RecordingFolder.usual(environ).list_runs()
    recorded = b"".join(file.read_bytes() for file in run.files)
    assert b"zot:weather" in recorded
    assert b"quite-unlike-a-key" not in recorded


# -- sessions


@pytest.mark.req("app.choices.session")
async def test_the_latest_session_is_that_of_this_folder(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with open_app(tmp_path) as app:
        await app.submit("here")
        mine = app.session.id
    async with open_app(tmp_path, cwd=other) as app:
        await app.submit("there, and later")
    async with open_app(tmp_path, session="latest") as app:
        assert app.session.id == mine


@pytest.mark.req("app.choices.session")
async def test_who_keeps_nothing_goes_on_with_nothing(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("kept")
        id = app.session.id
    for session in (id, "latest"):
        with pytest.raises(NoSession, match="goes on with no other"):
            await create_app(tmp_path, keep=False, session=session).open()


@pytest.mark.req("app.choices.session")
async def test_a_person_is_told_what_waits_of_the_session_they_go_on_with_and_of_no_other(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("hello")
        id = app.session.id
    with closing(DecisionStore.usual(build_environ(tmp_path))) as decisions:
        for session, tool in ((id, "bash"), ("another", "fetch")):
            request = Approval(id="1", agent="resident", session=session, call=ToolCall(tool, {}, id="1"))
            decisions.ask(request, CallContext(cwd="/", session=session), tool, 600.0)
        decisions._db.rows.execute("UPDATE approvals SET owner = ?", [DEAD])
    person = Person()
    async with open_app(tmp_path, session=id, surface=person):
        told = [action.text for action in person.actions if isinstance(action, Notice)]
    assert told == ["an approval still waits from a run that was killed: bash 1"]
    person = Person()
    async with open_app(tmp_path, surface=person):
        assert not person.actions


# -- the rest


@pytest.mark.req("app.open.nothing-left")
@pytest.mark.parametrize("name", ["none", "file"])
async def test_an_app_works_in_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadSettings, match="it is no folder") as raised:
        await create_app(tmp_path, cwd=tmp_path / name).open()
    assert raised.value.who == str(tmp_path / name)
    assert not (tmp_path / "home").exists()


class Mine:
    """A group in the place of Serai's own."""

    def __init__(self) -> None:
        self.operations: Mapping[str, Operation[Any]] = {"folder": Operation(NoArguments, self.folder)}

    async def folder(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"path": "mine"}


async def test_services_that_are_given_take_the_place_of_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path, services={"guests": Mine()}) as app:
        assert await app.runtime.services.ask("fake:helper", "guests", "folder", {}) == {"path": "mine"}
        assert await app.runtime.services.ask("fake:helper", "control", "wait_idle", {}) == {}
