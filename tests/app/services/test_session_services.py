"""Sessions for guests: a list, another one, and what is written to the current one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.app.services.session_services import SessionService
from serai.errors import BadRequest, NoEntry, NoSession, NotAllowed, TurnInFlight
from serai.store.messages import UserMessage
from serai.store.session_folder import CurrentSession
from serai.store.session_folder import SessionFolder as Folder
from serai.store.stored_session import StoredSession
from tests.support.app.service_requests import ServiceCaller


class Harness:
    """What stands for the app: it swaps as the app does."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path / "sessions")
        self.current = CurrentSession(self.folder.create("/app", model="m1"))
        self.busy = False
        self.refreshed = 0
        self.titles: list[str] = []
        group = SessionService(
            self.folder,
            self.current,
            swap=self.swap,
            refresh=self.refresh,
            idle=self.must_be_idle,
            titled=self.titles.append,
        )
        self.ask = ServiceCaller(group)

    def must_be_idle(self) -> None:
        if self.busy:
            raise TurnInFlight("busy")

    async def swap(self, stored: StoredSession) -> None:
        self.current.swap(stored)

    def refresh(self) -> None:
        self.refreshed += 1

    def said(self) -> list[str]:
        return [message.content for message in self.current.session.read_messages() if isinstance(message, UserMessage)]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    harness.current.close()


async def test_sessions_are_listed_the_newest_first(harness: Harness) -> None:
    first = harness.current.session
    first.set_title("Trip")
    harness.folder.create("/other").close()
    newest, oldest = (await harness.ask("list"))["sessions"]
    assert newest["cwd"] == "/other"
    assert oldest == {
        "id": first.id,
        "title": "Trip",
        "cwd": "/app",
        "created_at": f"{first.meta.created[:19]}Z",
        "path": first.file,
    }


async def test_another_session_is_loaded_and_from_then_on_meant(harness: Harness) -> None:
    with harness.folder.create("/other") as other:
        other.append_user("from before")
    old = harness.current.session
    assert await harness.ask("load", path=other.file) == {}
    assert old.closed
    assert harness.current.session.id == other.id
    await harness.ask("say", role="user", content="and now")
    assert harness.said() == ["from before", "and now"]


async def test_nothing_from_outside_the_folder_becomes_a_session(harness: Harness, tmp_path: Path) -> None:
    with Folder(tmp_path / "elsewhere").create("/x") as foreign:
        path = Path(foreign.file)
    link = Path(harness.folder.folder) / "link.jsonl"
    link.symlink_to(path)
    plain = Path(harness.folder.folder) / "notes.txt"
    plain.write_text("x")
    for wanted in (path, link, plain, Path("/etc/passwd"), Path(harness.folder.folder) / ".." / "elsewhere" / path.name, "a\0b"):
        with pytest.raises(NotAllowed, match="is no session of this person"):
            await harness.ask("load", path=str(wanted))
    with pytest.raises(NoSession):
        await harness.ask("load", path=str(link.with_name("gone.jsonl")))


async def test_a_fork_begins_where_the_conversation_is(harness: Harness) -> None:
    parent = harness.current.session
    parent.append_user("one")
    parent.append_user("two")
    assert await harness.ask("fork") == {"parent_id": parent.id, "message_count": 2}
    assert harness.current.session.id != parent.id
    harness.current.session.append_user("three")
    assert harness.said() == ["one", "two", "three"]
    listed = {one["id"]: one for one in (await harness.ask("list"))["sessions"]}
    assert listed[harness.current.session.id]["parent_id"] == parent.id
    assert "parent_id" not in listed[parent.id]


async def test_a_session_that_cannot_be_taken_up_is_closed_again(harness: Harness) -> None:
    taken: list[StoredSession] = []

    async def swap(stored: StoredSession) -> None:
        taken.append(stored)
        raise TurnInFlight("no")

    ask = ServiceCaller(
        SessionService(harness.folder, harness.current, swap=swap, refresh=harness.refresh, idle=harness.must_be_idle)
    )
    with pytest.raises(TurnInFlight):
        await ask("fork")
    assert taken[0].closed
    assert not os.path.exists(taken[0].file)
    assert not harness.current.session.closed


@pytest.mark.parametrize("what", ["fork", "reset", "load", "branch"])
async def test_while_a_turn_runs_no_other_conversation_is_taken_up(harness: Harness, what: str) -> None:
    entry = harness.current.session.append_user("one")
    harness.busy = True
    arguments = {"load": {"path": harness.current.session.file}, "branch": {"entry_id": entry.id}}.get(what, {})
    with pytest.raises(TurnInFlight):
        await harness.ask(what, **arguments)
    assert (harness.said(), harness.refreshed) == (["one"], 0)


async def test_a_title_is_kept_and_shown(harness: Harness) -> None:
    assert await harness.ask("title") == {"title": ""}
    assert await harness.ask("set_title", title="Trip plan") == {}
    assert await harness.ask("title") == {"title": "Trip plan"}
    assert harness.titles == ["Trip plan"]


async def test_a_guests_entry_is_no_message_and_no_entry_of_ours(harness: Harness) -> None:
    entry = await harness.ask("append", kind="ext:weather:seen", data={"n": 1})
    found = harness.current.session.read_tree().get(entry["id"])
    assert found is not None
    assert (found.type, found.data) == ("ext:weather:seen", {"n": 1})
    assert harness.said() == []
    for kind in ("user", "assistant", "compact", "meta", "label", "event", ""):
        with pytest.raises(NotAllowed):
            await harness.ask("append", kind=kind, data={})


async def test_a_role_that_nobody_has_says_nothing(harness: Harness) -> None:
    with pytest.raises(BadRequest, match="user or assistant, not 'system'"):
        await harness.ask("say", role="system", content="x")


async def test_a_branch_and_a_reset_go_on_from_elsewhere_and_refresh_the_conversation(harness: Harness) -> None:
    first = harness.current.session.append_user("one")
    harness.current.session.append_user("two")
    await harness.ask("branch", entry_id=first.id, summary="A failed")
    assert (harness.said(), harness.refreshed) == (["one"], 1)
    await harness.ask("reset")
    assert (harness.said(), harness.refreshed) == ([], 2)
    with pytest.raises(NoEntry, match="entry nope not found"):
        await harness.ask("branch", entry_id="nope")
    assert harness.refreshed == 2


async def test_the_tree_and_its_active_path_are_told(harness: Harness) -> None:
    session = harness.current.session
    first = session.append_user("one")
    second = session.append_user("two")
    await harness.ask("label", target_id=first.id, label="good")
    branch = session.branch(first.id)
    entries = (await harness.ask("entries"))["entries"]
    assert entries == [
        {"id": first.id, "type": "user", "timestamp": first.ts, "children": 2},
        {"id": branch.id, "parent_id": first.id, "type": "branch_summary", "timestamp": branch.ts, "children": 0},
    ]
    nodes = {node["id"]: node for node in (await harness.ask("tree"))["nodes"]}
    assert nodes[first.id] == {**entries[0], "on_active_path": True, "depth": 0, "preview": "one", "label": "good"}
    assert (nodes[second.id]["on_active_path"], nodes[second.id]["depth"]) == (False, 1)
    with pytest.raises(NoEntry):
        await harness.ask("label", target_id="nope", label="x")


async def test_where_nothing_is_kept_there_is_no_session(harness: Harness) -> None:
    ask = ServiceCaller(SessionService(None, None, swap=harness.swap, refresh=harness.refresh, idle=harness.must_be_idle))
    assert await ask("list") == {"sessions": []}
    assert await ask("title") == {"title": ""}
    for what in ("fork", "reset", "entries", "tree"):
        with pytest.raises(NoSession, match="no active session"):
            await ask(what)
    with pytest.raises(NoSession, match="no active session"):
        await ask("append", kind="x", data=None)
