"""The copies that undo a change."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from serai.errors import NoSnapshot, NotWritten
from serai.limits import Limits
from serai.tools import FileSnapshots
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Tools, is_failure


@pytest.mark.req("piglet.rule.undo-snapshot")
async def test_before_a_file_is_changed_a_copy_of_it_is_kept(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    await tools("write", path="new", content="x")
    assert tools.undo.list_snapshots() == {}  # there was nothing before
    await tools("read", path="a")
    await tools("edit", path="a", old="one", new="two")
    await tools("write", path="a", content="three\n")
    real = os.path.realpath(path)
    assert tools.undo.list_snapshots() == {real: 4}
    stem = hashlib.sha256(os.fsencode(real)).hexdigest()[:32]
    folder = Path(tools.undo.folder)
    assert sorted(os.listdir(folder)) == [f"{stem}.path", f"{stem}.snap"]
    assert (folder / f"{stem}.snap").read_text() == "two\n"  # the newest
    assert (folder / f"{stem}.path").read_text() == real
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in os.listdir(folder)} == {0o600}


@pytest.mark.req("piglet.fix.25", "piglet.rule.undo-snapshot")
async def test_a_file_is_put_back_with_the_mode_it_has_now_and_the_copy_stays(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    await tools("write", path="a", content="two\n")
    path.chmod(0o754)
    tools.undo.restore(path)
    assert path.read_text() == "one\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o754
    assert list(tools.undo.list_snapshots().values()) == [4]
    path.unlink()
    tools.undo.restore(path)
    assert path.read_text() == "one\n"


@pytest.mark.req("resident.tools.stale")
async def test_a_model_that_does_not_know_of_the_restoring_reads_again(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    await tools("write", path="a", content="two\n")
    tools.undo.restore(path)
    assert is_failure(await tools("edit", path="a", old="one", new="x"), "FILE_STALE")


@pytest.mark.req("resident.undo.none")
def test_without_a_copy_nothing_is_restored(tmp_path: Path) -> None:
    undo = FileSnapshots(tmp_path / "undo")
    with pytest.raises(NoSnapshot, match=f"no snapshot for path: {tmp_path / 'a'}"):
        undo.restore(tmp_path / "a")
    assert undo.list_snapshots() == {}


@pytest.mark.req("piglet.rule.undo-snapshot")
def test_what_is_no_plain_file_or_too_long_is_not_copied(tmp_path: Path) -> None:
    undo = FileSnapshots(tmp_path / "undo", limits=Limits().but(undo=10))
    (tmp_path / "long").write_text("x" * 11)
    (tmp_path / "just").write_text("x" * 10)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert [undo.snapshot(tmp_path / name) for name in ("long", "folder", "pipe", "none", "just")] == [False] * 4 + [True]
    assert undo.list_snapshots() == {os.path.realpath(tmp_path / "just"): 10}


@pytest.mark.req("piglet.rule.undo-snapshot")
async def test_a_file_too_long_for_a_copy_is_changed_without(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(undo=10))
    tools.file("a", "x" * 11)
    assert not (await tools("write", path="a", content="y")).is_error
    tools.file("b", "x" * 11)
    assert not (await tools.read_and_edit("b", old="x" * 11, new="y")).is_error
    assert tools.undo.list_snapshots() == {}


@pytest.mark.req("resident.undo.first")
async def test_without_its_copy_no_file_is_changed(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    Path(tools.undo.folder).write_text("in the way of the folder")
    await tools("read", path="a")
    assert is_failure(await tools("edit", path="a", old="one", new="two"), "IO_ERROR", "left as it is", "undo")
    assert is_failure(await tools("write", path="a", content="two"), "IO_ERROR", "left as it is")
    assert path.read_text() == "one\n"
    with pytest.raises(NotWritten, match="no copy"):
        tools.undo.snapshot(path)


@pytest.mark.req("resident.undo.first")
def test_a_copy_that_breaks_off_leaves_the_older_one(tmp_path: Path) -> None:
    import resource
    import signal

    undo, path = FileSnapshots(tmp_path / "undo"), tmp_path / "a"
    path.write_text("old\n")
    assert undo.snapshot(path)
    path.write_text("x" * 100_000)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(NotWritten, match="too large"):
            undo.snapshot(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert undo.list_snapshots() == {os.path.realpath(path): 4}
    assert len(os.listdir(undo.folder)) == 2


@pytest.mark.req("resident.undo.links")
def test_a_link_put_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    undo, path = FileSnapshots(tmp_path / "undo"), tmp_path / "a"
    path.write_text("old\n")
    undo.snapshot(path)
    (tmp_path / "other").write_text("precious\n")
    path.unlink()
    path.symlink_to("other")
    with pytest.raises(NoSnapshot):
        undo.restore(path)
    assert (tmp_path / "other").read_text() == "precious\n"


@pytest.mark.req("resident.undo.usual")
def test_it_is_usually_kept_with_the_state_of_serai(tmp_path: Path) -> None:
    assert FileSnapshots.usual({"SERAI_HOME": str(tmp_path)}).folder == str(tmp_path / "undo")
