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
from tests.app.services.parts import Desk


class House:
    """What stands for the app: it swaps as the app does."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path / "sessions")
        self.current = CurrentSession(self.folder.new("/app", model="m1"))
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
        self.ask = Desk(group)

    def must_be_idle(self) -> None:
        if self.busy:
            raise TurnInFlight("busy")

    async def swap(self, stored: StoredSession) -> None:
        self.current.swap(stored)

    def refresh(self) -> None:
        self.refreshed += 1

    def said(self) -> list[str]:
        return [message.content for message in self.current.session.messages() if isinstance(message, UserMessage)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.current.close()


async def test_sessions_are_listed_the_newest_first(house: House) -> None:
    first = house.current.session
    first.title("Trip")
    house.folder.new("/other").close()
    newest, oldest = (await house.ask("list"))["sessions"]
    assert newest["cwd"] == "/other"
    assert oldest == {
        "id": first.id,
        "title": "Trip",
        "cwd": "/app",
        "created_at": f"{first.meta.created[:19]}Z",
        "path": first.file,
    }


async def test_another_session_is_loaded_and_from_then_on_meant(house: House) -> None:
    with house.folder.new("/other") as other:
        other.user("from before")
    old = house.current.session
    assert await house.ask("load", path=other.file) == {}
    assert old.closed
    assert house.current.session.id == other.id
    await house.ask("say", role="user", content="and now")
    assert house.said() == ["from before", "and now"]


async def test_nothing_from_outside_the_folder_becomes_a_session(house: House, tmp_path: Path) -> None:
    with Folder(tmp_path / "elsewhere").new("/x") as foreign:
        path = Path(foreign.file)
    link = Path(house.folder.folder) / "link.jsonl"
    link.symlink_to(path)
    plain = Path(house.folder.folder) / "notes.txt"
    plain.write_text("x")
    for wanted in (path, link, plain, Path("/etc/passwd"), Path(house.folder.folder) / ".." / "elsewhere" / path.name, "a\0b"):
        with pytest.raises(NotAllowed, match="is no session of this person"):
            await house.ask("load", path=str(wanted))
    with pytest.raises(NoSession):
        await house.ask("load", path=str(link.with_name("gone.jsonl")))


async def test_a_fork_begins_where_the_conversation_is(house: House) -> None:
    parent = house.current.session
    parent.user("one")
    parent.user("two")
    assert await house.ask("fork") == {"parent_id": parent.id, "message_count": 2}
    assert house.current.session.id != parent.id
    house.current.session.user("three")
    assert house.said() == ["one", "two", "three"]
    listed = {one["id"]: one for one in (await house.ask("list"))["sessions"]}
    assert listed[house.current.session.id]["parent_id"] == parent.id
    assert "parent_id" not in listed[parent.id]


async def test_a_session_that_cannot_be_taken_up_is_closed_again(house: House) -> None:
    taken: list[StoredSession] = []

    async def swap(stored: StoredSession) -> None:
        taken.append(stored)
        raise TurnInFlight("no")

    ask = Desk(SessionService(house.folder, house.current, swap=swap, refresh=house.refresh, idle=house.must_be_idle))
    with pytest.raises(TurnInFlight):
        await ask("fork")
    assert taken[0].closed
    assert not os.path.exists(taken[0].file)
    assert not house.current.session.closed


@pytest.mark.parametrize("what", ["fork", "reset", "load", "branch"])
async def test_while_a_turn_runs_no_other_conversation_is_taken_up(house: House, what: str) -> None:
    entry = house.current.session.user("one")
    house.busy = True
    arguments = {"load": {"path": house.current.session.file}, "branch": {"entry_id": entry.id}}.get(what, {})
    with pytest.raises(TurnInFlight):
        await house.ask(what, **arguments)
    assert (house.said(), house.refreshed) == (["one"], 0)


async def test_a_title_is_kept_and_shown(house: House) -> None:
    assert await house.ask("title") == {"title": ""}
    assert await house.ask("set_title", title="Trip plan") == {}
    assert await house.ask("title") == {"title": "Trip plan"}
    assert house.titles == ["Trip plan"]


async def test_a_guests_entry_is_no_message_and_no_entry_of_ours(house: House) -> None:
    entry = await house.ask("append", kind="ext:weather:seen", data={"n": 1})
    found = house.current.session.tree().get(entry["id"])
    assert found is not None
    assert (found.type, found.data) == ("ext:weather:seen", {"n": 1})
    assert house.said() == []
    for kind in ("user", "assistant", "compact", "meta", "label", "event", ""):
        with pytest.raises(NotAllowed):
            await house.ask("append", kind=kind, data={})


async def test_a_role_that_nobody_has_says_nothing(house: House) -> None:
    with pytest.raises(BadRequest, match="user or assistant, not 'system'"):
        await house.ask("say", role="system", content="x")


async def test_a_branch_and_a_reset_go_on_from_elsewhere_and_refresh_the_conversation(house: House) -> None:
    first = house.current.session.user("one")
    house.current.session.user("two")
    await house.ask("branch", entry_id=first.id, summary="A failed")
    assert (house.said(), house.refreshed) == (["one"], 1)
    await house.ask("reset")
    assert (house.said(), house.refreshed) == ([], 2)
    with pytest.raises(NoEntry, match="entry nope not found"):
        await house.ask("branch", entry_id="nope")
    assert house.refreshed == 2


async def test_the_tree_and_its_active_path_are_told(house: House) -> None:
    session = house.current.session
    first = session.user("one")
    second = session.user("two")
    await house.ask("label", target_id=first.id, label="good")
    branch = session.branch(first.id)
    entries = (await house.ask("entries"))["entries"]
    assert entries == [
        {"id": first.id, "type": "user", "timestamp": first.ts, "children": 2},
        {"id": branch.id, "parent_id": first.id, "type": "branch_summary", "timestamp": branch.ts, "children": 0},
    ]
    nodes = {node["id"]: node for node in (await house.ask("tree"))["nodes"]}
    assert nodes[first.id] == {**entries[0], "on_active_path": True, "depth": 0, "preview": "one", "label": "good"}
    assert (nodes[second.id]["on_active_path"], nodes[second.id]["depth"]) == (False, 1)
    with pytest.raises(NoEntry):
        await house.ask("label", target_id="nope", label="x")


async def test_where_nothing_is_kept_there_is_no_session(house: House) -> None:
    ask = Desk(SessionService(None, None, swap=house.swap, refresh=house.refresh, idle=house.must_be_idle))
    assert await ask("list") == {"sessions": []}
    assert await ask("title") == {"title": ""}
    for what in ("fork", "reset", "entries", "tree"):
        with pytest.raises(NoSession, match="no active session"):
            await ask(what)
    with pytest.raises(NoSession, match="no active session"):
        await ask("append", kind="x", data=None)
