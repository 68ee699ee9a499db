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
from tests.support.stored_sessions import create, file_of, lines_in, meta, show, user

SHORT = Limits().but(session_lock=0.05)


def run_in_child(act: Callable[[], object]) -> int:
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
    with create(tmp_path, SHORT) as session:
        session.append_user("a")
        with session._disk.lock():  # which keeps the child out, and not only others
            assert run_in_child(lambda: session.append_user("b")) == 7
        assert show(session) == ["user: a"]
        assert run_in_child(lambda: session.append_user("c")) == 0
        session.append_user("d")
        assert show(session) == ["user: a", "user: c", "user: d"]


@pytest.mark.req("store.file.writers")
def test_a_process_forked_in_the_middle_of_an_append_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait()
        return write(descriptor, data)

    with create(tmp_path, SHORT) as session:
        session.append_user("a")
        monkeypatch.setattr(os, "write", slow)
        thread = threading.Thread(target=session.append_user, args=("b",))
        thread.start()
        inside.wait()
        assert run_in_child(lambda: session.append_user("c")) == 7
        assert run_in_child(session.close) == 0
        go_on.set()
        thread.join()
        assert show(session) == ["user: a", "user: b"]


@pytest.mark.req("store.file.writers")
def test_a_forked_process_does_not_keep_the_lock_of_a_parent_that_died(tmp_path: Path) -> None:
    with create(tmp_path, SHORT) as session:
        session.append_user("a")
        ready, wait = os.pipe(), os.pipe()
        parent = os.fork()
        if not parent:
            with session._disk.lock():
                if not os.fork():  # somebody who never touches the session
                    os.close(wait[1])
                    os.write(ready[1], b"x")
                    os.read(wait[0], 1)
                    os._exit(0)
                os.read(ready[0], 1)
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(parent, 0)
        try:
            session.append_user("b")
        finally:
            for descriptor in (*ready, *wait):
                os.close(descriptor)
        assert show(session) == ["user: a", "user: b"]


def test_a_forked_process_leaks_no_descriptors(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        gc.collect()  # what others left would be closed in between
        before = len(os.listdir("/proc/self/fd"))

        def act() -> None:
            session.append_user("b")
            assert len(os.listdir("/proc/self/fd")) == before

        assert run_in_child(act) == 0


def replace_file(path: str, *more: bytes) -> None:
    """As an editor does it: another file under the name."""
    Path(path + ".new").write_bytes(Path(path).read_bytes() + b"".join(more))
    os.rename(path + ".new", path)


@pytest.mark.req("store.file.writers")
@pytest.mark.parametrize("appended", [False, True])
def test_a_file_that_was_replaced_is_gone_on_with(tmp_path: Path, *, appended: bool) -> None:
    with StoredSession(str(file_of(tmp_path, meta(), user("a", None, "one")))) as session:
        if appended:
            session.append_user("two")
        os.link(session.file, session.file + ".backup")
        backup = Path(session.file).read_bytes()
        replace_file(session.file, user("z", "a", "theirs"), meta(title="their title"))
        assert show(session) == ["user: one", "user: theirs"]
        assert session.meta.title == "their title"
        replace_file(session.file, user("y", "z", "again"))
        assert session.append_user("ours").parent == "y"
        assert show(session) == ["user: one", "user: theirs", "user: again", "user: ours"]
        assert Path(session.file + ".backup").read_bytes() == backup
        session.sync()
        os.rename(session.file, session.file + ".away")
        with pytest.raises(NotWritten, match="removed"):
            session.append_user("nowhere")
        assert len(show(session)) == 4  # what it has can still be read
        os.rename(session.file + ".away", session.file)
        session.append_user("back")
        os.rename(session.file, session.file + ".away")
        os.mkdir(session.file)
        with pytest.raises(BadSession, match="no regular file"):
            session.append_user("nowhere")


@pytest.mark.req("store.file.writers")
def test_a_file_that_was_replaced_by_one_of_the_same_length_is_looked_at_again(tmp_path: Path) -> None:
    with StoredSession(str(file_of(tmp_path, meta(), user("a", None, "one")))) as session:
        Path(session.file + ".new").write_bytes(meta() + user("z", None, "two"))
        os.rename(session.file + ".new", session.file)
        assert session.append_user("ours").parent == "z"
        assert show(session) == ["user: two", "user: ours"]


@pytest.mark.req("piglet.rule.session-file")
def test_a_lock_that_was_removed_is_not_held_beside_another(tmp_path: Path) -> None:
    with create(tmp_path, SHORT) as ours, StoredSession(ours.file, limits=SHORT) as theirs:
        ours.append_user("a")
        os.unlink(ours.file + ".lock")
        theirs.append_user("b")
        with ours._disk.lock(), pytest.raises(NotWritten, match="lock"):
            theirs.append_user("c")
        with theirs._disk.lock(), pytest.raises(NotWritten, match="lock"):
            ours.append_user("d")
        assert show(ours) == ["user: a", "user: b"]


@pytest.mark.req("piglet.rule.session-file")
def test_whoever_comes_by_a_link_takes_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    with create(tmp_path, SHORT) as session:
        link = tmp_path / "links" / "x.jsonl"
        link.symlink_to(session.file)
        with StoredSession(str(link), limits=SHORT) as linked:
            with session._disk.lock(), pytest.raises(NotWritten, match="lock"):
                linked.append_user("a")
            linked.append_user("b")
        assert os.listdir(tmp_path / "links") == ["x.jsonl"]
        assert show(session) == ["user: b"]


def test_a_machine_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with create(tmp_path) as session:
        monkeypatch.setattr(fcntl, "flock", no)
        with pytest.raises(NotWritten, match="cannot be locked: No locks available"):
            session.append_user("a")


def catch(act: Callable[[], object], found: list[object]) -> None:
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

    session = create(tmp_path)
    monkeypatch.setattr(os, "write", slow)
    found: list[object] = []
    appending = threading.Thread(target=catch, args=(lambda: session.append_user("a"), found))
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
    session = create(tmp_path, Limits().but(session_lock=60))
    session.append_user("a")
    with open(session.file + ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: list[object] = []
        appending = threading.Thread(target=catch, args=(lambda: session.append_user("b"), found))
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

    session = create(tmp_path)
    session.append_user("a")
    monkeypatch.setattr(os, "fdatasync", slow)
    found: list[object] = []
    syncing = threading.Thread(target=catch, args=(session.sync, found))
    syncing.start()
    inside.wait()
    session.append_user("b")
    session.close()
    go_on.set()
    syncing.join()
    assert found == [None]
