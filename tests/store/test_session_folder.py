"""The folder of sessions, and the one that is meant."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from serai.errors import Closed, NoSession, NotWritten
from serai.store import CurrentSession, SessionFolder, StoredSession
from tests.support.stored_sessions import file_of, line, lines_in, meta, show, user


def write_session(folder: Path, name: str, created: str, *lines: bytes, cwd: str = "/app") -> Path:
    return file_of(folder, meta(id=name, cwd=cwd, createdAt=created), *lines, name=f"{name}.jsonl")


def test_a_new_session_is_listed_with_what_it_is_about(tmp_path: Path) -> None:
    sessions = SessionFolder(tmp_path / "a" / "b")
    assert sessions.list() == []
    with sessions.create("/app", model="m", title="t", agent="claude", agent_session="theirs") as session:
        session.append_user("x")
        [listed] = sessions.list()
    assert (listed.id, listed.path, listed.meta, listed.size) == (
        session.id,
        session.file,
        session.meta,
        os.path.getsize(session.file),
    )
    assert (listed.meta.agent, listed.meta.agent_session) == ("claude", "theirs")
    assert lines_in(session.file)[0]["data"]["agentSession"] == "theirs"
    assert listed.meta.at == pytest.approx(listed.modified, abs=60)


def test_the_usual_folder_is_in_the_home(tmp_path: Path) -> None:
    assert SessionFolder.usual({"SERAI_HOME": str(tmp_path)}).folder == str(tmp_path / "sessions")


def test_the_newest_comes_first_whatever_its_folder(tmp_path: Path) -> None:
    write_session(tmp_path, "old", "2026-01-01T10:00:00Z")
    write_session(tmp_path, "new", "2026-01-01T13:00:00.5+01:00", cwd="/other")  # noon and a bit in UTC
    write_session(tmp_path, "mid", "2026-01-01T12:00:00Z")
    write_session(tmp_path, "unset", "0001-01-01T00:00:00Z")
    assert [one.id for one in SessionFolder(tmp_path).list()] == ["new", "mid", "old", "unset"]


def test_the_last_title_is_listed_wherever_it_is(tmp_path: Path) -> None:
    filler = user("a", None, "x" * 200_000)
    file_of(tmp_path, meta(title="old"), filler, meta(title="at the end"), name="a.jsonl")
    file_of(tmp_path, meta(title="old"), meta(title="at the beginning"), filler, name="b.jsonl")
    file_of(tmp_path, meta(title="short"), user("a", None, "said"), name="c.jsonl")
    file_of(tmp_path, meta(title="whole"), meta(title="torn")[:-10], name="d.jsonl")
    file_of(tmp_path, meta(title="said"), user("a", None, '{"type":"meta","data":{"title":"fake"}}'), name="e.jsonl")
    found = {one.id: one.meta.title for one in SessionFolder(tmp_path).list()}
    assert found == {"a": "at the end", "b": "at the beginning", "c": "short", "d": "whole", "e": "said"}


@pytest.mark.req("piglet.edge.22", "store.list.one-bad")
def test_one_bad_file_hurts_itself_alone(tmp_path: Path) -> None:
    good = write_session(tmp_path, "good", "2026-01-01T10:00:00Z")
    huge = line("user", "x", None, "x" * 11_000_000)
    file_of(tmp_path, meta(id="huge", title="huge"), huge, name="huge.jsonl")
    file_of(tmp_path, huge, name="only-huge.jsonl")
    file_of(tmp_path, b"", name="empty.jsonl")
    file_of(tmp_path, b"noise\n" * 100_000, name="noise.jsonl")
    file_of(tmp_path, b"\x00" * 100_000, name="nul.jsonl")
    file_of(tmp_path, b'{"type":"meta","data":' + b"[" * 200_000, name="deep.jsonl")
    file_of(tmp_path, line("meta", data={"title": 5}), name="wrong.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    (tmp_path / "link.jsonl").symlink_to(good)
    (tmp_path / "good.jsonl.lock").touch()
    (tmp_path / "half.jsonl.part").write_bytes(meta())
    (tmp_path / os.fsdecode(b"\xff.jsonl")).write_bytes(meta())
    listing = SessionFolder(tmp_path).scan()
    assert sorted(one.id for one in listing.sessions) == ["good", "huge", "link", "\udcff"]
    bad = sorted(problem.split(".jsonl: ")[0] for problem in listing.problems)
    assert bad == ["deep", "empty", "fifo", "folder", "gone", "loop", "noise", "nul", "only-huge", "wrong"]
    assert "empty.jsonl: session file has no metadata" in listing.problems


@pytest.mark.req("store.list.bounded")
def test_listing_a_thousand_sessions_reads_none_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        with open(tmp_path / f"{number:04}.jsonl", "wb") as file:
            file.write(meta(title="first"))
            file.seek(1_000_000)  # a hole: nobody looks there
            file.write(b"\n" + (meta(title=f"last {number}") if number % 2 else user("a", None, "x" * 1000)))
    opened: list[str] = []
    read: list[int] = []
    real_open, real_pread = os.open, os.pread

    def counted_open(path: str, flags: int) -> int:
        opened.append(path)
        return real_open(path, flags)

    def counted_pread(descriptor: int, size: int, offset: int) -> bytes:
        read.append(size)
        return real_pread(descriptor, size, offset)

    monkeypatch.setattr(os, "open", counted_open)
    monkeypatch.setattr(os, "pread", counted_pread)
    found = SessionFolder(tmp_path).list()
    monkeypatch.undo()
    assert len(found) == len(opened) == len(set(opened)) == 1000
    assert {one.meta.title for one in found} == {"first"} | {f"last {number}" for number in range(1, 1000, 2)}
    assert sum(read) <= 1500 * 65_536
    assert max(read) <= 65_536


def test_a_session_is_found_by_its_id_or_the_beginning_of_it(tmp_path: Path) -> None:
    for name in ("abc", "abcd", "abx"):
        write_session(tmp_path, name, "2026-01-01T10:00:00Z")
    sessions = SessionFolder(tmp_path)
    for wanted, id in (("abc", "abc"), ("abcd", "abcd"), ("abx", "abx")):
        with sessions.open(wanted) as session:
            assert session.id == id
    with pytest.raises(NoSession, match=re.escape("3 sessions are called ab…")):
        sessions.open("ab")
    for wanted in ("", "x", "../tests", "/etc/passwd", "abc\0", "."):
        with pytest.raises(NoSession, match="there is no session"):
            sessions.open(wanted)


def test_the_latest_is_the_one_where_something_happened_last(tmp_path: Path) -> None:
    sessions = SessionFolder(tmp_path / "sessions")
    (tmp_path / "here").mkdir()
    here = str(tmp_path / "here")
    assert sessions.find_latest(here) is None
    with sessions.create(here) as old, sessions.create(here) as new, sessions.create("/elsewhere") as other:
        for seconds, session in enumerate((new, old, other)):
            session.append_user("x")
            os.utime(session.file, (1000 + seconds, 1000 + seconds))
        latest = sessions.find_latest(here)
        assert latest is not None
        assert latest.id == old.id
        (tmp_path / "link").symlink_to(here)
        assert sessions.find_latest(str(tmp_path / "link")) == latest


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritten):
        SessionFolder(tmp_path / "file" / "sessions").create("/app")
    with pytest.raises(NotWritten):
        SessionFolder(tmp_path / "file").create("/app")
    with pytest.raises(NoSession):
        SessionFolder(tmp_path / "file").list()


def test_a_full_disk_leaves_no_half_of_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(28, "No space left on device")

    sessions = SessionFolder(tmp_path)
    monkeypatch.setattr(os, "fsync", no)
    with pytest.raises(NotWritten, match="No space left"):
        sessions.create("/app")
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_who_was_killed_are_cleaned_away(tmp_path: Path) -> None:
    old, young = tmp_path / "old.jsonl.part", tmp_path / "young.jsonl.part"
    for path in (old, young, tmp_path / "notes.part"):
        path.write_bytes(meta())
    for path in (old, tmp_path / "notes.part"):
        os.utime(path, (0, 0))
    SessionFolder(tmp_path).create("/app").close()
    assert [path.name for path in sorted(tmp_path.glob("*.part"))] == ["notes.part", "young.jsonl.part"]


@pytest.mark.req("piglet.fix.20")
def test_after_a_swap_everybody_acts_on_the_new_session(tmp_path: Path) -> None:
    sessions = SessionFolder(tmp_path)
    current = CurrentSession()
    with pytest.raises(NoSession, match="no active session"):
        current.session.append_user("nowhere")
    first = sessions.create("/app")
    current.swap(first)
    current.session.append_user("a")
    fork = current.fork()
    current.session.append_user("b")
    assert current.session is fork
    assert first.closed
    with pytest.raises(Closed):
        first.append_user("lost")
    loaded = sessions.open(first.id)
    current.swap(loaded)
    current.swap(loaded)
    current.session.append_user("c")
    assert show(loaded) == ["user: a", "user: c"]
    with StoredSession(fork.file) as again:
        assert show(again) == ["user: a", "user: b"]
    current.close()
    current.close()
    assert loaded.closed
