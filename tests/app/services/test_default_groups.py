"""All groups over a real app: each is there, and none lets a guest past the pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.app.app import App
from serai.app.services.default_groups import build_default_groups
from serai.app.services.router import ServiceGrants
from serai.errors import PeerTimeout, Refused
from serai.host.guest_settings import GROUPS
from serai.host.host import Host
from serai.model.actions import SetStatus, SetTitle
from serai.model.approvals import Answer, Question
from serai.model.surface import ScriptedSurface
from serai.policy import Approver, CallContext, approver
from serai.policy.approver import ApprovalOutcome
from tests.support.app.service_requests import EVERYTHING, GUEST

# What every group is asked without arguments, and needs nothing but an app.
PLAIN = (
    ("tools", "list"), ("tools", "names"), ("conversation", "messages"), ("conversation", "snapshot"),
    ("conversation", "last_text"), ("conversation", "stats"), ("sessions", "list"), ("sessions", "title"),
    ("sessions", "entries"), ("sessions", "tree"),
    ("models", "list"), ("models", "sync"), ("background", "running"), ("background", "cancel"), ("control", "wait_idle"),
    ("control", "has_compactor"), ("control", "abort"), ("undo", "snapshots"), ("guests", "commands"), ("guests", "shortcuts"),
    ("guests", "sections"), ("guests", "infos"), ("guests", "folder"),
)  # fmt: skip


class Asker:
    def __init__(self, app: App, surface: ScriptedSurface) -> None:
        self.app = app
        self.surface = surface

    async def __call__(self, group: str, what: str, **arguments: Any) -> Any:
        answer = await self.app.runtime.services.ask(GUEST, group, what, arguments)
        return msgspec.json.decode(msgspec.json.encode(answer))


@asynccontextmanager
async def open_asker(tmp_path: Path, *, granted: ServiceGrants | None = EVERYTHING, **choices: Any) -> AsyncIterator[Asker]:
    """A guest that asks an app with parrot; what it may is `granted`, or for the app to say."""
    project = tmp_path / "project"
    project.mkdir()
    surface = ScriptedSurface([lambda request: Answer({request.items[0].text: "yes"})])  # type: ignore[union-attr]
    environ = {"SERAI_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "sk-secret"}
    given = {"model": "parrot", "installed": False, "record": False, "surface": surface, "environ": environ}
    async with App(cwd=project, **{**given, **choices}) as app:
        if granted is not None:
            app.runtime.services.granted = lambda _: granted
        yield Asker(app, surface)


async def test_every_group_is_there_and_answers_in_json(tmp_path: Path) -> None:
    async with open_asker(tmp_path) as ask:
        assert set(build_default_groups(ask.app)) == set(GROUPS)
        for group, what in PLAIN:
            assert isinstance(await ask(group, what), dict), (group, what)
        assert await ask("config", "get", keys=["agent.maxTurns"]) == {"values": {"agent.maxTurns": 30}}
        assert await ask("chat", "chat", messages=[{"content": ">> say Hello"}], model="parrot") == {
            "text": "Hello",
            "usage": {"input": 3, "output": 2},
        }
        assert await ask("credentials", "key", provider="anthropic") == {"key": ""}


async def test_a_guest_has_no_services_until_the_runtime_knows_it(tmp_path: Path) -> None:
    async with open_asker(tmp_path, granted=None) as ask:
        for group in GROUPS:
            with pytest.raises(Refused, match="is not granted"):
                await ask(group, "list")


@pytest.mark.req("app.services.decided")
async def test_a_guests_calls_and_its_private_agents_are_decided_by_the_policy(tmp_path: Path) -> None:
    async with open_asker(tmp_path) as ask:
        direct = await ask("tools", "call", name="write", arguments={"path": "a.txt", "content": "x"})
        assert (direct["is_error"], direct["code"]) == (True, "PERMISSION_DENIED")
        task = '>> call write {"path": "a.txt", "content": "x"}\n>> say $results'
        private = await ask("chat", "run", task=task, tools="all", model="parrot")
        assert "PERMISSION_DENIED" in private["text"]
        assert not (tmp_path / "project" / "a.txt").exists()


@pytest.mark.req("app.services.decided")
async def test_what_is_allowed_is_done_and_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def beside(*_: object, **__: object) -> None:
        raise AssertionError("a call that bypasses the pipeline, or goes through it twice")

    async with open_asker(tmp_path, allow=["write"]) as ask:
        monkeypatch.setattr(Host, "call_tool", beside)
        assert not (await ask("tools", "call", name="write", arguments={"path": "a.txt", "content": "x"}))["is_error"]
        task = '>> call write {"path": "b.txt", "content": "y"}\n>> say done'
        assert (await ask("chat", "run", task=task, tools="all", model="parrot"))["text"] == "done"
        assert [(tmp_path / "project" / name).read_text() for name in ("a.txt", "b.txt")] == ["x", "y"]


async def test_a_guest_asks_the_person(tmp_path: Path) -> None:
    async with open_asker(tmp_path) as ask:
        assert await ask("dialogs", "ask", prompt="Send?", choices=["yes", "no"]) == {"selected": "yes", "cancelled": False}
        [question] = ask.surface.asked
        assert (question.agent, question.session) == (GUEST, ask.app.session.id)


@pytest.mark.req("piglet.method.host/askUser", "piglet.method.host/showPicker")
async def test_a_dialog_that_nobody_answers_in_its_hour_is_a_failure_and_no_dismissal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other than an approval, it waits as long as any request of a guest may take."""
    waited: list[float | None] = []

    async def silence(
        _approver: Approver, request: Question, _situation: CallContext, *, timeout: float | None = None
    ) -> ApprovalOutcome:
        waited.append(timeout)
        return approver.deny_timeout(request, timeout or 0, written=True)

    monkeypatch.setattr(Approver, "ask", silence)
    async with open_asker(tmp_path, limits={"approval": 0.01}) as ask:
        with pytest.raises(PeerTimeout, match=r"nobody answered in time \(limit call = 3600\)"):
            await ask("dialogs", "ask", prompt="Send?", choices=["yes", "no"])
        with pytest.raises(PeerTimeout):
            await ask("dialogs", "pick", title="Send?", items=[{"id": "a"}])
    assert waited == [3600.0, 3600.0]


async def test_another_session_is_taken_up_and_the_filter_ends(tmp_path: Path) -> None:
    async with open_asker(tmp_path) as ask:
        await ask.app.submit(">> say Hello")
        await ask("tools", "filter", names=["read"])
        await ask("sessions", "set_title", title="Trip")
        assert SetTitle("Trip") in ask.surface.actions
        parent = (await ask("sessions", "list"))["sessions"][0]
        fork = await ask("sessions", "fork")
        assert fork == {"parent_id": parent["id"], "message_count": 2}
        assert len((await ask("conversation", "messages"))["messages"]) == 2
        assert len((await ask("conversation", "snapshot"))["tools"]) > 1
        await ask("sessions", "reset")
        assert await ask("conversation", "messages") == {"messages": []}
        await ask("sessions", "load", path=parent["path"])
        assert await ask("conversation", "last_text") == {"text": "Hello"}


async def test_another_model_is_shown_and_kept(tmp_path: Path) -> None:
    async with open_asker(tmp_path) as ask:
        await ask("models", "switch", model="parrot/parrot", persist=True)
        assert [action.key for action in ask.surface.actions if isinstance(action, SetStatus)] == ["model"]
        assert (tmp_path / "home" / "config.toml").read_text() == 'default_model = "parrot/parrot"\n'
        assert [model["id"] for model in (await ask("models", "list"))["models"] if model["current"]] == ["parrot"]


async def test_what_is_published_reaches_who_listens(tmp_path: Path) -> None:
    heard: list[tuple[str, Any]] = []
    async with open_asker(tmp_path) as ask:
        end = ask.app.runtime.services.subscribe(GUEST, "news", lambda topic, data: heard.append((topic, data)))
        assert await ask("bus", "publish", topic="news", data=1) == {}
        end()
        await ask("bus", "publish", topic="news", data=2)
    assert heard == [("news", 1)]
