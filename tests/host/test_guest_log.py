"""A guest's log: whose it is, what is in it, and that it stays small."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import SpawnFailed
from serai.host.guest_log import GuestLog, build_log_path, open_log, to_safe_name

NAMES = st.text(max_size=150) | st.text(alphabet="a/._-0f", max_size=30)
REMARK = re.compile(rb"\[serai\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*)")


def texts(log: GuestLog) -> list[str]:
    return [match[1].decode() for match in map(REMARK.fullmatch, log.path.read_bytes().splitlines()) if match]


@pytest.mark.req("zot.edge.41")
def test_a_plain_name_is_kept_and_any_other_is_made_harmless(tmp_path: Path) -> None:
    assert build_log_path(tmp_path, "my-weather_2.0").name == "ext-my-weather_2.0.log"
    log = GuestLog(tmp_path, "../team/weather")
    log.close()
    assert log.path.parent == tmp_path
    assert re.fullmatch(r"ext-_._team_weather-[0-9a-f]{16}\.log", log.path.name)


@pytest.mark.req("zot.edge.41")
@given(NAMES, NAMES)
def test_different_names_have_different_files_in_the_folder(one: str, other: str) -> None:
    first, second = to_safe_name(one), to_safe_name(other)
    assert (first == second) == (one == other)
    assert re.fullmatch(r"(?!\.)[A-Za-z0-9._-]{1,120}", first)


def test_a_name_that_looks_like_a_changed_one_is_not_taken_for_it() -> None:
    changed = to_safe_name("a/b")
    assert to_safe_name(changed) != changed


@pytest.mark.req("host.life.log")
def test_the_childs_stderr_and_our_remarks_are_appended_to_one_private_file(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "logs"
    log = GuestLog(folder, "weather")
    for start in ("first", "second"):
        log.close()
        log = GuestLog(folder, "weather")
        log.remark(f"{start} start")
        subprocess.run([sys.executable, "-c", f"import os; os.write(2, b'{start} child')"], stderr=log.descriptor, check=True)
        log.remark("ended")
    log.close()
    assert texts(log) == ["first start", "ended", "second start", "ended"]
    assert b"\nfirst child\n" in log.path.read_bytes()  # and the remark after it began a line of its own
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_a_log_that_others_could_read_is_private_again(tmp_path: Path) -> None:
    build_log_path(tmp_path, "weather").touch(mode=0o644)
    log = GuestLog(tmp_path, "weather")
    log.close()
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_a_remark_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather")
    log.remark("two\nlines\x1b[2J \udcff für")
    log.remark("x" * 100_000)
    log.close()
    first, second = texts(log)
    assert first == r"two\nlines\x1b[2J \udcff für"
    assert len(second) < 5000


def test_the_tail_is_what_was_written_since_this_start(tmp_path: Path) -> None:
    build_log_path(tmp_path, "weather").write_bytes(b"of an earlier start\n")
    log = GuestLog(tmp_path, "weather")
    assert log.read_tail(100) == b""
    os.write(log.descriptor, b"one two")
    assert (log.read_tail(100), log.read_tail(3), log.read_tail(0)) == (b"one two", b"two", b"")
    log.path.unlink()
    assert log.read_tail(100) == b"one two"
    log.close()
    assert log.read_tail(100) == b""


@pytest.mark.req("host.life.log")
def test_a_log_that_grows_keeps_its_last_half_beside_it(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather", limit=100)
    os.write(log.descriptor, b"a" * 100)
    log.trim()
    assert log.path.stat().st_size == 100
    os.write(log.descriptor, b"b" * 30)
    log.trim()
    older = log.path.with_name("ext-weather.log.1")
    assert (log.path.read_bytes(), older.read_bytes()) == (b"", b"a" * 20 + b"b" * 30)
    assert stat.S_IMODE(older.stat().st_mode) == 0o600
    os.write(log.descriptor, b"c" * 10)  # a child that has it open goes on at the new end
    assert log.path.read_bytes() == b"c" * 10
    assert log.read_tail(45) == b"a" * 5 + b"b" * 30 + b"c" * 10
    log.close()


def test_the_tail_after_a_cut_has_nothing_of_an_earlier_start(tmp_path: Path) -> None:
    build_log_path(tmp_path, "weather").write_bytes(b"o" * 90)
    log = GuestLog(tmp_path, "weather", limit=100)
    os.write(log.descriptor, b"n" * 20)
    log.trim()
    assert log.read_tail(1000) == b"n" * 20
    log.close()


def test_a_log_that_was_too_long_before_is_cut_when_it_is_opened(tmp_path: Path) -> None:
    build_log_path(tmp_path, "weather").write_bytes(b"o" * 500)
    log = GuestLog(tmp_path, "weather", limit=100)
    assert (log.path.stat().st_size, log.read_tail(100)) == (0, b"")
    log.close()


def test_remarks_alone_cannot_fill_the_disk(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather", limit=500)
    for number in range(100):
        log.remark(f"remark {number}")
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 750
    assert b"remark 99" in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_another_serai_that_cuts_the_same_log_does_no_harm(tmp_path: Path) -> None:
    build_log_path(tmp_path, "weather").write_bytes(b"o" * 90)
    ours, theirs = GuestLog(tmp_path, "weather"), GuestLog(tmp_path, "weather", limit=50)
    os.write(ours.descriptor, b"new")
    assert ours.read_tail(100) == b"new"
    ours.close()
    theirs.close()


def test_a_full_disk_is_told_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = GuestLog(tmp_path, "weather")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with caplog.at_level(logging.WARNING, "serai.host"):
        monkeypatch.setattr("os.write", full)
        log.remark("one")
        log.remark("two")
    monkeypatch.undo()
    assert [record.getMessage() for record in caplog.records] == [f"{log.path}: the log cannot be kept: No space left on device"]
    log.close()


def test_closing_twice_and_remarks_after_it_are_harmless(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather")
    log.close()
    log.close()
    log.remark("late")
    log.trim()
    assert (log.descriptor, log.path.read_bytes()) == (-1, b"")


def test_the_descriptor_is_not_for_every_child(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather")
    assert not os.get_inheritable(log.descriptor)
    log.close()


def make_link(path: Path) -> None:
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("make", "reason"), [(make_link, "it is a link"), (os.mkfifo, "it is not a file"), (Path.mkdir, "directory")]
)
def test_what_cannot_be_a_log_is_refused_with_file_and_reason(tmp_path: Path, make: object, reason: str) -> None:
    assert callable(make)
    make(path := build_log_path(tmp_path, "weather"))
    with pytest.raises(SpawnFailed, match=f"open log: {re.escape(str(path))}: .*{reason}") as raised:
        GuestLog(tmp_path, "weather")
    assert raised.value.who == "weather"


def test_a_folder_that_cannot_be_made_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(SpawnFailed, match="open log: .*ext-weather.log: File exists"):
        GuestLog(tmp_path / "logs", "weather")


def test_what_is_no_file_is_not_opened_as_a_log_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ext-weather.log")
    with pytest.raises(OSError, match="it is not a file"):
        open_log(tmp_path / "ext-weather.log")
    (tmp_path / "ext-other.log").write_text("a line")
    with open_log(tmp_path / "ext-other.log") as file:
        assert file.read() == b"a line"


def test_an_older_log_that_is_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    log = GuestLog(tmp_path, "weather", limit=10)
    os.write(log.descriptor, b"x" * 20)
    log.trim()
    os.write(log.descriptor, b"new")
    (tmp_path / "ext-weather.log.1").unlink()
    os.mkfifo(tmp_path / "ext-weather.log.1")
    assert log.read_tail(100) == b""
    log.close()
