"""Names, what is there, and what has to go."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serai.errors import NoRecording, NotRecorded
from serai.record import Recorder, RecordingFolder
from serai.record.recording_folder import make_run_name
from tests.support.recordings import open_folder, record_calls

NAMES = ("20261110T000000-000-aaaa", "20261112T000000-001-bbbb", "20261112T000000-002-cccb")


@pytest.fixture
def folder(tmp_path: Path) -> RecordingFolder:
    folder = open_folder(tmp_path)
    folder.create()
    for number, name in enumerate(NAMES):
        for part in range(number + 1):
            (folder.path / f"{name}.{part:03}.rec").write_bytes(b"x" * 100)
    (folder.path / "notes.txt").write_text("somebody else's")
    (folder.path / "20261340T000000-000-aaaa.000.rec").write_text("no such month")
    return folder


def list_names(folder: RecordingFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_runs_are_listed_by_age_with_their_files_in_order(folder: RecordingFolder) -> None:
    runs = folder.list_runs()
    assert [(run.name, len(run.files), run.size) for run in runs] == [(NAMES[0], 1, 100), (NAMES[1], 2, 200), (NAMES[2], 3, 300)]
    assert runs[0].started == datetime(2026, 11, 10, tzinfo=UTC)
    assert [file.name[-7:] for file in runs[2].files] == ["000.rec", "001.rec", "002.rec"]


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert open_folder(tmp_path).list_runs() == []
    with pytest.raises(NoRecording, match="nothing was recorded yet"):
        open_folder(tmp_path).find()


@pytest.mark.parametrize(("wanted", "name"), [("", NAMES[2]), ("20261110", NAMES[0]), ("bbbb", NAMES[1]), (NAMES[1], NAMES[1])])
def test_a_run_is_found_by_its_name_or_a_part_of_it(folder: RecordingFolder, wanted: str, name: str) -> None:
    assert folder.find(wanted).name == name


@pytest.mark.parametrize(
    ("wanted", "why"), [("nonsense", "there is no recording nonsense"), ("20261112", "2 recordings"), ("b", "2 rec")]
)
def test_a_name_that_fits_none_or_several_is_an_error(folder: RecordingFolder, wanted: str, why: str) -> None:
    with pytest.raises(NoRecording, match=why):
        folder.find(wanted)


@pytest.mark.req("record.file.age-and-size")
def test_what_is_too_old_goes_and_nothing_of_anybody_else(folder: RecordingFolder) -> None:
    removed = folder.prune(days=2, now=datetime(2026, 11, 13, tzinfo=UTC))
    assert [file.name for file in removed] == [f"{NAMES[0]}.000.rec"]
    assert len(list_names(folder)) == 7
    assert "notes.txt" in list_names(folder)


@pytest.mark.req("record.file.age-and-size")
def test_the_oldest_files_go_until_the_rest_fits(folder: RecordingFolder) -> None:
    folder.prune(total=250)
    assert list_names(folder) == [f"{NAMES[2]}.001.rec", f"{NAMES[2]}.002.rec", "20261340T000000-000-aaaa.000.rec", "notes.txt"]


@pytest.mark.req("record.file.age-and-size")
def test_no_age_is_too_great(folder: RecordingFolder) -> None:
    assert folder.prune(days=10**12) == []


def test_the_latest_run_is_the_one_that_began_last() -> None:
    names = [make_run_name() for _ in range(50)]
    assert [name[:19] for name in names] == sorted(name[:19] for name in names)


@pytest.mark.req("record.file.in-use")
def test_a_file_that_cannot_be_locked_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path)
    folder.create()
    monkeypatch.setattr("fcntl.flock", _refuse_locks)
    with pytest.raises(NotRecorded, match="No locks available"):
        Recorder(folder)
    assert list_names(folder) == []


def _refuse_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.req("record.file.in-use")
def test_a_file_that_is_written_stays_and_is_known_to_be(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        record_calls(recorder)
        assert folder.find().live
        assert folder.prune(days=-1, total=0) == []
        assert folder.find().live
    assert not folder.find().live
    assert len(folder.prune(total=0)) == 1


@pytest.mark.req("record.file.in-use")
def test_the_file_of_a_killed_writer_is_not_in_use(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from serai.record import RecordingFolder, Recorder
recorder = Recorder(RecordingFolder(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.read()
"""
    folder = open_folder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert folder.find().live
        process.send_signal(signal.SIGKILL)
    assert not folder.find().live
    assert len(folder.prune(total=0)) == 1


@pytest.mark.req("record.file.in-use")
def test_a_child_does_not_inherit_the_file(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)):
        held = [os.get_inheritable(int(number)) for number in os.listdir("/proc/self/fd") if _is_recording(number)]
    assert held == [False]


def _is_recording(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").endswith(".rec")
    except OSError:  # the listing's own
        return False
