"""The file: private, appended to by several at once, cut anywhere, full disks, and what others put into it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serai.errors import BadSession, Closed, NotWritten
from serai.limits import Limits
from serai.store import SessionFolder, StoredSession
from tests.support.stored_sessions import create, every_kind, lines_in, read_tree, show

CHILD = """
import sys
from serai.store import StoredSession
with StoredSession(sys.argv[1]) as session:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        session.append_user(f"{sys.argv[2]} {number} " + "x" * (number % 7 * 300))
"""

ENDLESS = """
import sys
from serai.store import StoredSession
with StoredSession(sys.argv[1]) as session:
    for number in range(int(sys.argv[2]), 10**9):
        session.append_user(f"{number} " + "x" * (number % 50 * 1000), sync=number % 20 == 0)
        print(number, flush=True)
"""

FULL = """
import os, resource, sys
from serai.errors import NotWritten
from serai.store import StoredSession
session = StoredSession(sys.argv[1])
session.append_user("before")
size = os.stat(sys.argv[1]).st_size
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
try:
    session.append_user("x" * 5000)
except NotWritten as error:
    print("refused", sys.argv[1] in str(error), os.stat(sys.argv[1]).st_size - size)
session.append_user("small")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
session.append_user("after")
"""


def start_child(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.req("piglet.rule.session-file")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_are_for_this_user_and_the_folder_for_the_group_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with create(tmp_path) as session:
            session.append_user("a")
            with session.fork() as fork:
                assert mode(fork.file) == 0o600
    finally:
        os.umask(before)
    assert mode(session.file) == mode(session.file + ".lock") == 0o600
    assert mode(tmp_path / "sessions") == 0o750
    name = Path(session.file).name.removesuffix(".jsonl")
    assert len(name) == 36
    assert name[14] == "4"  # a uuid4
    assert session.meta.id == session.id == name
    assert sorted(path.suffix for path in (tmp_path / "sessions").iterdir()) == [".jsonl", ".jsonl", ".lock"]


def test_a_folder_that_is_open_to_others_is_closed_and_a_private_one_stays_so(tmp_path: Path) -> None:
    for before, after in ((0o777, 0o750), (0o700, 0o700)):
        folder = tmp_path / oct(before)
        folder.mkdir()
        folder.chmod(before)
        SessionFolder(folder).create("/app").close()
        assert mode(folder) == after


@pytest.mark.req("piglet.rule.session-file")
def test_an_append_waits_for_who_holds_the_lock(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        with open(session.file + ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            thread = threading.Thread(target=lambda: session.append_user("b"))
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
            assert len(lines_in(session.file)) == 2
            fcntl.flock(lock, fcntl.LOCK_UN)
            thread.join()
        assert show(session) == ["user: a", "user: b"]


def test_a_lock_that_is_never_given_back_is_an_error(tmp_path: Path) -> None:
    with create(tmp_path, Limits().but(session_lock=0.02)) as session:
        with open(session.file + ".lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(NotWritten, match="session_lock = 0.02"):
                session.append_user("a")
        session.append_user("b")
        assert show(session) == ["user: b"]


def read_one_chain(path: str) -> list[str]:
    """The texts in the file, after it was seen that each entry is a child of the one before it."""
    forms = [form for form in lines_in(path) if form["type"] != "meta"]
    ids = [form["id"] for form in forms]
    assert len(set(ids)) == len(ids)
    assert [form.get("parentId") for form in forms] == [None, *ids[:-1]]
    return [form["data"]["content"].split(" x")[0].strip() for form in forms]


@pytest.mark.req("store.file.writers")
def test_two_processes_and_four_threads_append_to_one_session(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        with start_child(CHILD, session.file, "p", 500) as first, start_child(CHILD, session.file, "q", 500) as second:
            for process in (first, second):
                assert process.stdout
                assert process.stdout.readline() == "ready\n"
            threads = [
                threading.Thread(target=lambda name=name: [session.append_user(f"{name} {number}") for number in range(125)])
                for name in ("t0", "t1", "t2", "t3")
            ]
            for process in (first, second):
                assert process.stdin
                process.stdin.write("go\n")
                process.stdin.flush()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (first.returncode, second.returncode) == (0, 0)
        texts = read_one_chain(session.file)
        for name, count in (("p", 500), ("q", 500), ("t0", 125), ("t3", 125)):
            assert [text for text in texts if text.startswith(name + " ")] == [f"{name} {number}" for number in range(count)]
        assert len(texts) == 1500
        assert len(session.read_messages()) == 1500


@pytest.mark.req("store.file.writers")
def test_a_thread_waits_while_another_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of the file is the process's: it does not keep its threads apart."""
    inside, go_on = threading.Semaphore(0), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        inside.release()
        go_on.wait()
        return write(descriptor, data)

    with create(tmp_path) as session:
        monkeypatch.setattr(os, "write", slow)
        threads = [threading.Thread(target=session.append_user, args=(text,)) for text in "ab"]
        for thread in threads:
            thread.start()
        assert inside.acquire()
        assert not inside.acquire(timeout=0.1)
        go_on.set()
        for thread in threads:
            thread.join()
        assert sorted(read_one_chain(session.file)) == ["a", "b"]


def test_what_others_changed_is_not_changed_back(tmp_path: Path) -> None:
    with create(tmp_path) as ours, StoredSession(ours.file) as theirs:
        theirs.set_title("theirs")
        first = theirs.append_user("a")
        ours.set_model("m2")
        assert ours.append_user("b").parent == first.id
        assert (ours.meta.title, ours.meta.model) == ("theirs", "m2")
        with StoredSession(ours.file) as third:
            assert (third.meta.title, third.meta.model, third.leaf) == ("theirs", "m2", ours.leaf)


@pytest.mark.req("store.file.kill")
def test_a_writer_killed_at_random_moments_loses_nothing_that_it_had_appended(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        path = session.file
    chance = random.Random(7)
    count = 0
    for _ in range(6):
        with start_child(ENDLESS, path, count) as writer:
            assert writer.stdout
            for _ in range(chance.randrange(1, 80)):
                promised = int(writer.stdout.readline())
            for _ in range(chance.randrange(20_000)):  # somewhere between two
                pass
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split()
        promised = int(rest[-1]) if rest else promised
        with StoredSession(path) as session:
            numbers = [int(text.removeprefix("user: ").split(" ")[0]) for text in show(session)]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > promised
            assert session.read_tree().find_path() == session.read_path()
            count = len(numbers)


@pytest.mark.slow
@pytest.mark.req("store.file.cut", "piglet.rule.session-read")
def test_cut_at_every_byte_it_loads_and_the_next_append_repairs_it(tmp_path: Path) -> None:
    with create(tmp_path, title="t") as session:
        ids = list(every_kind(session))
        content = Path(session.file).read_bytes()
        path = Path(session.file)
    # An entry is there as soon as its closing brace is.
    ends = [end for end in range(len(content) + 1) if content[end : end + 1] == b"\n"]
    kinds = [json.loads(text) for text in content.splitlines()]
    expected: list[str] = []
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        there = [form for form, end in zip(kinds, ends, strict=True) if end <= size]
        expected = [form["id"] for form in there if form["type"] != "meta"]
        if not there:
            with pytest.raises(BadSession, match="session file has no metadata"):
                StoredSession(str(path))
            continue
        with StoredSession(str(path)) as cut:
            tree = cut.read_tree()
            torn = size not in ends and size - 1 not in ends
            assert [entry.id for entry in tree.entries] == expected
            assert len(tree.problems) == torn
            assert (cut.leaf, cut.read_path(), cut.read_messages()) == (
                expected[-1] if expected else "",
                tree.find_path(),
                tree.decode_messages(),
            )
            assert cut.meta == tree.meta
            new_one = cut.append_user("repaired")
            assert new_one.parent == (expected[-1] if expected else "")
        again = read_tree(path)
        assert [entry.id for entry in again.entries] == [*expected, new_one.id]
        assert again.leaf == new_one
        assert len(again.problems) == torn
    assert expected == ids


@pytest.mark.req("store.file.full-disk")
def test_a_full_disk_costs_the_entry_that_did_not_fit_and_no_other(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        ran = subprocess.run([sys.executable, "-c", FULL, session.file], capture_output=True, text=True, check=True, env=os.environ)
        assert ran.stdout == "refused True 0\n"
        assert show(session) == ["user: before", "user: small", "user: after"]
        assert session.problems == ()
        read_one_chain(session.file)


@pytest.mark.req("store.file.full-disk")
def test_what_cannot_even_be_cut_back_is_closed_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) - 50])

    def no(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with create(tmp_path) as session:
        session.append_user("a")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", half)
            patched.setattr(os, "ftruncate", no)
            with pytest.raises(NotWritten, match="No space left"):
                session.append_user("lost")
        session.append_user("b")
        assert show(session) == ["user: a", "user: b"]
        assert len(session.problems) == 1


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with create(tmp_path) as session:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
            session.append_user("whole")
        assert show(session) == ["user: whole"]


def record_calls(monkeypatch: pytest.MonkeyPatch, name: str, done: list[str]) -> None:
    """Have every call of a function of `os` noted."""
    real = getattr(os, name)

    def note(*arguments: object) -> object:
        done.append(name)
        return real(*arguments)

    monkeypatch.setattr(os, name, note)


@pytest.mark.req("store.file.sync")
def test_a_sync_puts_what_was_appended_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("write", "fdatasync", "fsync"):
        record_calls(monkeypatch, name, done)
    with create(tmp_path) as session:
        assert done == ["fsync", "fsync"]  # the file and its folder
        done.clear()
        session.append_user("a")
        assert done == ["write"]
        session.append_user("b", sync=True)
        assert done == ["write", "write", "fdatasync"]
        session.sync()
        assert done[3:] == ["fdatasync"]


def test_a_sync_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with create(tmp_path) as session:
        session.append_user("a")
        monkeypatch.setattr(os, "fdatasync", no)
        with pytest.raises(NotWritten, match="cannot be synced"):
            session.sync()


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = create(tmp_path)
    session.append_user("a")
    session.close()
    session.close()
    assert session.closed
    for act in (
        lambda: session.append_user("b"),
        session.read_messages,
        session.read_tree,
        session.sync,
        session.fork,
        lambda: session.set_title("x"),
    ):
        with pytest.raises(Closed):
            act()


def test_a_file_that_was_removed_is_not_written_into_the_void(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        os.unlink(session.file)
        with pytest.raises(NotWritten, match="removed"):
            session.append_user("b")


def test_a_file_that_somebody_emptied_gets_its_meta_again(tmp_path: Path) -> None:
    with create(tmp_path, title="t") as session:
        session.append_user("a")
        os.truncate(session.file, 0)
        assert session.append_user("b").parent == ""
        with StoredSession(session.file) as again:
            assert (again.meta.title, show(again)) == ("t", ["user: b"])
