"""A private SQLite file that several processes share."""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.database import MEMORY, Database
from serai.errors import NotWritten


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.req("policy.pending.durable")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_its_files_and_its_folder_are_for_this_user_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "state" / "x.db"
    before = os.umask(umask)
    try:
        db = Database(str(path), "things")
        db.ensure_table("things", {"id": "TEXT"})
        found = {name: mode(path.parent / name) for name in os.listdir(path.parent)}
        db.close()
    finally:
        os.umask(before)
    assert found == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600}
    assert mode(path.parent) == 0o700


def test_a_folder_that_was_there_before_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    Database(str(tmp_path / "home" / "x.db"), "things").close()
    assert mode(tmp_path / "home") == 0o755
    assert mode(tmp_path / "home" / "x.db") == 0o600


def test_a_file_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    sqlite3.connect(path).close()
    path.touch()
    path.chmod(0o644)
    Database(str(path), "things").close()
    assert mode(path) == 0o600


def test_opened_twice_in_one_process_it_loses_nothing_to_another_process_that_comes_and_goes(tmp_path: Path) -> None:
    """Who closes a descriptor of the file drops the process's locks on it, and the last one out throws the log away."""
    path = str(tmp_path / "x.db")
    first = Database(path, "things")
    first.ensure_table("things", {"id": "TEXT"})
    second = Database(path, "things")
    other = (
        "import sqlite3, sys; rows = sqlite3.connect(sys.argv[1]); print(rows.execute('SELECT count(*) FROM things').fetchone()[0])"
    )
    counts = []
    for number in range(2):
        counts.append(
            subprocess.run([sys.executable, "-c", other, path], check=True, capture_output=True, text=True).stdout.strip()
        )
        with first.transaction() as rows:
            rows.execute("INSERT INTO things VALUES (?)", [str(number)])
    first.close()
    second.close()
    assert counts == ["0", "1"]


def test_many_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    failed: list[Exception] = []

    def open_and_close(path: str, together: threading.Barrier) -> None:
        together.wait()
        try:
            db = Database(path, "things")
            db.ensure_table("things", {"id": "TEXT"})
            db.close()
        except NotWritten as error:
            failed.append(error)

    for number in range(8):
        together = threading.Barrier(8)
        threads = [threading.Thread(target=open_and_close, args=(str(tmp_path / f"{number}.db"), together)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_transaction_is_whole_or_not_at_all(tmp_path: Path) -> None:
    db = Database(str(tmp_path / "x.db"), "things")
    db.ensure_table("things", {"id": "TEXT"})
    with pytest.raises(ZeroDivisionError), db.transaction() as rows:
        rows.execute("INSERT INTO things VALUES ('one')")
        raise ZeroDivisionError
    assert db.rows.execute("SELECT count(*) FROM things").fetchone()[0] == 0
    db.close()


def test_an_older_table_gets_the_columns_that_it_lacks_and_keeps_its_rows(tmp_path: Path) -> None:
    db = Database(str(tmp_path / "x.db"), "things")
    db.ensure_table("things", {"id": "TEXT PRIMARY KEY"})
    with db.transaction() as rows:
        rows.execute("INSERT INTO things (id) VALUES ('one')")
    db.ensure_table("things", {"id": "TEXT PRIMARY KEY", "colour": "TEXT NOT NULL DEFAULT 'red'"})
    assert [tuple(row) for row in db.rows.execute("SELECT id, colour FROM things")] == [("one", "red")]
    db.close()


def _broken(tmp_path: Path) -> str:
    (tmp_path / "x.db").write_bytes(b"this is no database, and it is long enough to be looked at" * 100)
    return str(tmp_path / "x.db")


def _below_a_file(tmp_path: Path) -> str:
    (tmp_path / "file").write_text("")
    return str(tmp_path / "file" / "x.db")


def _a_folder(tmp_path: Path) -> str:
    (tmp_path / "x.db").mkdir()
    return str(tmp_path / "x.db")


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        (_broken, "move the file away: a new one is made"),
        (_below_a_file, "make room, or make it readable and writable for you"),
        (_a_folder, "there is a folder in its place: move it away"),
    ],
)
def test_where_it_cannot_be_the_error_names_the_file_and_says_what_to_do_and_nothing_is_left_open(
    tmp_path: Path, place: Callable[[Path], str], hint: str
) -> None:
    path = place(tmp_path)
    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotWritten, match="things cannot be opened") as caught:
        Database(path, "things")
    assert (caught.value.who, caught.value.hint) == (path, hint)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_in_its_place_is_left_as_it_is(tmp_path: Path) -> None:
    before = mode(_a_folder(tmp_path))
    with pytest.raises(NotWritten):
        Database(str(tmp_path / "x.db"), "things")
    assert mode(tmp_path / "x.db") == before


def test_a_broken_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = _broken(tmp_path)
    before = Path(path).read_bytes()
    with pytest.raises(NotWritten):
        Database(path, "things")
    assert Path(path).read_bytes() == before


def test_who_holds_the_file_too_long_is_told_to_who_waits(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    first = Database(path, "things")
    second = Database(path, "things", busy=0.01)
    told = pytest.raises(NotWritten, match=r"x\.db: things cannot be used: database is locked")
    with first.transaction(), told as caught, second.transaction():
        pass
    assert caught.value.hint == "another process holds the file: try again when it is done"
    first.close()
    second.close()


def test_who_only_reads_waits_for_no_writer_and_cannot_write(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    db = Database(path, "things")
    db.ensure_table("things", {"id": "TEXT"})
    reader = Database(path, "things", 0.0, reads=True)
    with db.transaction() as rows:
        rows.execute("INSERT INTO things VALUES ('one')")
        assert reader.rows.execute("SELECT * FROM things").fetchall() == []
    assert len(reader.rows.execute("SELECT * FROM things").fetchall()) == 1
    with pytest.raises(NotWritten, match="readonly"), reader.translate_errors():
        reader.rows.execute("DELETE FROM things")
    reader.close()
    db.close()


def test_scrubbing_waits_for_nobody_who_reads_and_says_whether_it_is_done(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    db = Database(path, "things", 40.0)
    db.ensure_table("things", {"id": "TEXT"})
    reader = Database(path, "things", reads=True)
    reader.rows.execute("BEGIN")
    reader.rows.execute("SELECT * FROM things").fetchall()
    db.ensure_table("others", {"id": "TEXT"})
    assert db.scrub() is False
    assert os.path.getsize(path + "-wal") > 0
    reader.rows.execute("ROLLBACK")
    assert db.scrub() is True
    assert os.path.getsize(path + "-wal") == 0
    assert db.rows.execute("PRAGMA busy_timeout").fetchone()[0] == 40_000  # as it was
    reader.close()
    db.close()


def test_a_file_that_was_taken_away_or_replaced_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    db = Database(path, "things")
    assert not db.has_moved()
    os.rename(path, path + ".old")
    assert db.has_moved()
    Path(path).touch()
    assert db.has_moved()
    db.close()
    memory = Database(MEMORY, "things")
    assert not memory.has_moved()
    memory.close()


def test_a_text_that_is_no_utf_8_is_an_error_of_ours(tmp_path: Path) -> None:
    db = Database(str(tmp_path / "x.db"), "things")
    with pytest.raises(NotWritten, match="surrogates not allowed") as caught, db.translate_errors():
        db.rows.execute("SELECT ?", ["\udcff"])
    assert caught.value.hint == "give texts that are UTF-8"
    db.close()


def test_in_memory_nothing_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db = Database(MEMORY, "things")
    db.ensure_table("things", {"id": "TEXT"})
    db.scrub()
    db.close()
    assert os.listdir(tmp_path) == []
