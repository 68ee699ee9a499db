"""The tool `write`."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from serai.tools.workspace import WorkspacePath, hold_file
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Tools, is_failure


@pytest.mark.req("resident.tools.write")
async def test_a_new_file_gets_its_folders_and_the_mode_that_the_umask_says(tools: Tools) -> None:
    before = os.umask(0o027)
    try:
        result = await tools("write", path="a/b/c.txt", content="ä\r\n")
    finally:
        os.umask(before)
    assert result.text == "a/b/c.txt: made, 4 bytes"
    path = tools.folder / "a/b/c.txt"
    assert path.read_bytes() == "ä\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750


@pytest.mark.req("resident.tools.write")
async def test_a_file_that_is_replaced_keeps_its_mode_and_who_has_it_open_keeps_the_old_one(tools: Tools) -> None:
    path = tools.file("run.sh", "old\n")
    path.chmod(0o751)
    with open(path) as reader:
        assert (await tools("write", path="run.sh", content="new\n")).text == "run.sh: replaced (4 bytes before), 4 bytes"
        assert reader.read() == "old\n"  # another file by now: nobody sees half of one
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert os.listdir(tools.folder) == ["run.sh"]


@pytest.mark.req("resident.tools.write")
@pytest.mark.needs("root")
async def test_a_file_that_is_replaced_keeps_its_owner(tools: Tools) -> None:
    path = tools.file("theirs", "old\n")
    os.chown(path, 1234, 1235)
    await tools("write", path="theirs", content="new\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


@pytest.mark.req("resident.tools.write")
async def test_it_goes_through_a_link_to_the_file_that_is_meant(tools: Tools) -> None:
    path = tools.file("real/file", "old\n")
    (tools.folder / "link").symlink_to("real/file")
    (tools.folder / "new").symlink_to("real/new")
    await tools("write", path="link", content="new\n")
    await tools("write", path="new", content="born\n")
    assert path.read_text() == "new\n"
    assert (tools.folder / "real/new").read_text() == "born\n"
    assert (tools.folder / "link").is_symlink()


@pytest.mark.req("resident.tools.write")
async def test_a_folder_is_not_written(tools: Tools) -> None:
    assert is_failure(await tools("write", path="new/", content="x"), "NOT_REGULAR_FILE", "folder")
    assert os.listdir(tools.folder) == []


@pytest.mark.req("resident.tools.stale")
async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    await tools("read", path="a")
    path.write_text("somebody else's work\n")
    assert is_failure(await tools("write", path="a", content="mine"), "FILE_STALE", "read it again")
    assert path.read_text() == "somebody else's work\n"
    await tools("read", path="a")
    assert not (await tools("write", path="a", content="mine")).is_error
    assert not (await tools("write", path="a", content="mine again")).is_error


@pytest.mark.req("resident.tools.stale")
def test_what_somebody_writes_in_the_last_moment_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    with pytest.raises(Exception, match="just now") as caught, hold_file(WorkspacePath(str(path), "a")) as spot:
        _, status = spot.read(100)
        path.write_text("somebody else's\n")
        spot.replace(b"mine", status)
    assert getattr(caught.value, "code", "") == "FILE_STALE"
    assert path.read_text() == "somebody else's\n"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.req("resident.tools.write")
async def test_writers_at_the_same_time_leave_one_whole_file(tools: Tools) -> None:
    texts = [str(number) * 50_000 for number in range(8)]
    results = await asyncio.gather(*(tools("write", path="a", content=text) for text in texts))
    assert not [result.text for result in results if result.is_error]
    assert (tools.folder / "a").read_text() in texts
    assert os.listdir(tools.folder) == ["a"]


@pytest.mark.req("resident.tools.write")
async def test_a_cancelled_write_is_made_whole_or_not_at_all(tools: Tools) -> None:
    tools.file("a", "old")
    writing = asyncio.create_task(tools("write", path="a", content="new" * 100_000))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert not (await tools("write", path="b", content="")).is_error  # one change at a time: the other is over
    assert (tools.folder / "a").read_text() in ("old", "new" * 100_000)
    assert sorted(os.listdir(tools.folder)) == ["a", "b"]


@pytest.mark.req("resident.tools.write")
async def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, spawner: PlainSpawner) -> None:
    """A file system without room, made of a limit on the size of files."""
    import resource
    import signal

    tools = Tools(tmp_path, spawner, QUICK, undo=None)
    path = tools.file("a", "old")
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        result = await tools("write", path="a", content="x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert is_failure(result, "IO_ERROR")
    assert path.read_text() == "old"
    assert os.listdir(tools.folder) == ["a"]
