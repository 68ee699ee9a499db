"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from serai import atomic_file


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_what_was_written_takes_its_place_with_its_mode(tmp_path: Path, mode: int, sync: bool) -> None:
    file = tmp_path / "file"
    for content in (b"first", b"second\n" * 100_000):
        atomic_file.write_atomically(file, content, mode=mode, sync=sync)
        assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (content, mode)
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_alone_is_one_in_the_folder_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    atomic_file.write_atomically("file", b"here")
    assert (tmp_path / "file").read_bytes() == b"here"


def test_who_reads_meanwhile_has_the_old(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with atomic_file.atomic_writer(file) as draft:
        draft.write(b"new")
        draft.flush()
        assert file.read_bytes() == b"old"
        [name] = (name for name in os.listdir(tmp_path) if name != "file")
        assert name.startswith(atomic_file.PREFIX)
    assert file.read_bytes() == b"new"


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_what_breaks_off_leaves_what_was_there_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def half() -> None:
        with atomic_file.atomic_writer(file) as draft:
            draft.write(b"half")
            raise error

    with pytest.raises(type(error)):
        half()
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


def test_where_nothing_can_be_written_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_file.write_atomically(tmp_path / "folder", b"")
    with pytest.raises(FileNotFoundError):
        atomic_file.write_atomically(tmp_path / "none" / "file", b"")
    assert os.listdir(tmp_path) == ["folder"]
