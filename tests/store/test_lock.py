"""Who may write: locks between processes, threads and forks, and a file that is not the one it was."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.errors import BadSession, Closed, NotWritten
from serai.limits import Limits
from serai.store import StoredSession
from tests.store.helpers import file_of, lines_in, meta, new, said, user

SHORT = Limits().but(session_lock=0.05)


def in_child(act: Callable[[], object]) -> int:
    """Fork, do it there, and how that ended: 0, 7 for `NotWritten`, 8 for anything else; -14 when it hung."""
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        try:
            act()
            os._exit(0)
        except NotWritten:
            os._exit(7)
        except BaseException:
            os._exit(8)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.req("store.file.writers")
def test_a_forked_process_has_a_lock_of_its_own(tmp_path: Path) -> None:
    with new(tmp_path, SHORT) as session:
        session.user("a")
        with session._disk.locked():  # which keeps the child out, and not only others
            assert in_child(lambda: session.user("b")) == 7
        assert said(session) == ["user: a"]
        assert in_child(lambda: session.user("c")) == 0
        session.user("d")
        assert said(session) == ["user: a", "user: c", "user: d"]


@pytest.mark.req("store.file.writers")
def test_a_process_forked_in_the_middle_of_an_append_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait()
        return write(descriptor, data)

    with new(tmp_path, SHORT) as session:
        session.user("a")
        monkeypatch.setattr(os, "write", slow)
        thread = threading.Thread(target=session.user, args=("b",))
        thread.start()
        inside.wait()
        assert in_child(lambda: session.user("c")) == 7
        assert in_child(session.close) == 0
        go_on.set()
        thread.join()
        assert said(session) == ["user: a", "user: b"]


@pytest.mark.req("store.file.writers")
def test_a_forked_process_does_not_keep_the_lock_of_a_parent_that_died(tmp_path: Path) -> None:
    with new(tmp_path, SHORT) as session:
        session.user("a")
        ready, wait = os.pipe(), os.pipe()
        parent = os.fork()
        if not parent:
            with session._disk.locked():
                if not os.fork():  # somebody who never touches the session
                    os.close(wait[1])
                    os.write(ready[1], b"x")
                    os.read(wait[0], 1)
                    os._exit(0)
                os.read(ready[0], 1)
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(parent, 0)
        try:
            session.user("b")
        finally:
            for descriptor in (*ready, *wait):
                os.close(descriptor)
        assert said(session) == ["user: a", "user: b"]


def test_a_forked_process_leaks_no_descriptors(tmp_path: Path) -> None:
    with new(tmp_path) as session:
        session.user("a")
        gc.collect()  # what others left would be closed in between
        before = len(os.listdir("/proc/self/fd"))

        def act() -> None:
            session.user("b")
            assert len(os.listdir("/proc/self/fd")) == before

        assert in_child(act) == 0


def replaced(path: str, *more: bytes) -> None:
    """As an editor does it: another file under the name."""
    Path(path + ".new").write_bytes(Path(path).read_bytes() + b"".join(more))
    os.rename(path + ".new", path)


@pytest.mark.req("store.file.writers")
@pytest.mark.parametrize("appended", [False, True])
def test_a_file_that_was_replaced_is_gone_on_with(tmp_path: Path, *, appended: bool) -> None:
    with StoredSession(str(file_of(tmp_path, meta(), user("a", None, "one")))) as session:
        if appended:
            session.user("two")
        os.link(session.file, session.file + ".backup")
        backup = Path(session.file).read_bytes()
        replaced(session.file, user("z", "a", "theirs"), meta(title="their title"))
        assert said(session) == ["user: one", "user: theirs"]
        assert session.meta.title == "their title"
        replaced(session.file, user("y", "z", "again"))
        assert session.user("ours").parent == "y"
        assert said(session) == ["user: one", "user: theirs", "user: again", "user: ours"]
        assert Path(session.file + ".backup").read_bytes() == backup
        session.sync()
        os.rename(session.file, session.file + ".away")
        with pytest.raises(NotWritten, match="removed"):
            session.user("nowhere")
        assert len(said(session)) == 4  # what it has can still be read
        os.rename(session.file + ".away", session.file)
        session.user("back")
        os.rename(session.file, session.file + ".away")
        os.mkdir(session.file)
        with pytest.raises(BadSession, match="no regular file"):
            session.user("nowhere")


@pytest.mark.req("store.file.writers")
def test_a_file_that_was_replaced_by_one_of_the_same_length_is_looked_at_again(tmp_path: Path) -> None:
    with StoredSession(str(file_of(tmp_path, meta(), user("a", None, "one")))) as session:
        Path(session.file + ".new").write_bytes(meta() + user("z", None, "two"))
        os.rename(session.file + ".new", session.file)
        assert session.user("ours").parent == "z"
        assert said(session) == ["user: two", "user: ours"]


@pytest.mark.req("piglet.rule.session-file")
def test_a_lock_that_was_removed_is_not_held_beside_another(tmp_path: Path) -> None:
    with new(tmp_path, SHORT) as ours, StoredSession(ours.file, limits=SHORT) as theirs:
        ours.user("a")
        os.unlink(ours.file + ".lock")
        theirs.user("b")
        with ours._disk.locked(), pytest.raises(NotWritten, match="lock"):
            theirs.user("c")
        with theirs._disk.locked(), pytest.raises(NotWritten, match="lock"):
            ours.user("d")
        assert said(ours) == ["user: a", "user: b"]


@pytest.mark.req("piglet.rule.session-file")
def test_whoever_comes_by_a_link_takes_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    with new(tmp_path, SHORT) as session:
        link = tmp_path / "links" / "x.jsonl"
        link.symlink_to(session.file)
        with StoredSession(str(link), limits=SHORT) as linked:
            with session._disk.locked(), pytest.raises(NotWritten, match="lock"):
                linked.user("a")
            linked.user("b")
        assert os.listdir(tmp_path / "links") == ["x.jsonl"]
        assert said(session) == ["user: b"]


def test_a_machine_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with new(tmp_path) as session:
        monkeypatch.setattr(fcntl, "flock", no)
        with pytest.raises(NotWritten, match="cannot be locked: No locks available"):
            session.user("a")


def caught(act: Callable[[], object], found: list[object]) -> None:
    try:
        found.append(act())
    except BaseException as error:
        found.append(error)


@pytest.mark.req("store.file.writers")
def test_who_closes_waits_for_an_append_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        inside.set()
        go_on.wait()
        return write(descriptor, data)

    session = new(tmp_path)
    monkeypatch.setattr(os, "write", slow)
    found: list[object] = []
    appending = threading.Thread(target=caught, args=(lambda: session.user("a"), found))
    appending.start()
    inside.wait()
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go_on.set()
    for thread in (appending, closing):
        thread.join()
    [entry] = found
    assert lines_in(session.file)[-1]["id"] == entry.id  # type: ignore[attr-defined]


@pytest.mark.req("store.file.writers")
def test_who_closes_does_not_wait_for_one_that_waits_for_the_lock(tmp_path: Path) -> None:
    session = new(tmp_path, Limits().but(session_lock=60))
    session.user("a")
    with open(session.file + ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: list[object] = []
        appending = threading.Thread(target=caught, args=(lambda: session.user("b"), found))
        appending.start()
        while not session._disk._turn.locked():
            pass
        session.close()
        appending.join()
    assert isinstance(found[0], Closed)


def test_a_sync_in_a_thread_does_not_hold_up_appends_and_survives_a_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    fdatasync = os.fdatasync

    def slow(descriptor: int) -> None:
        inside.set()
        go_on.wait()
        fdatasync(descriptor)

    session = new(tmp_path)
    session.user("a")
    monkeypatch.setattr(os, "fdatasync", slow)
    found: list[object] = []
    syncing = threading.Thread(target=caught, args=(session.sync, found))
    syncing.start()
    inside.wait()
    session.user("b")
    session.close()
    go_on.set()
    syncing.join()
    assert found == [None]
