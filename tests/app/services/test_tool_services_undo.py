"""Copies of files, for guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.app.services.tool_services import UndoService
from serai.errors import NoSnapshot, NotAllowed, Refused
from serai.tools.workspace import FileSnapshots as Copies
from tests.support.app.service_requests import ServiceCaller


async def allow_path(_guest: str, _path: str) -> str:
    return ""


async def test_a_file_is_put_back_as_it_was(tmp_path: Path) -> None:
    copies, file = Copies(tmp_path / "undo"), tmp_path / "a.txt"
    ask = ServiceCaller(UndoService(copies, allow_path, str(tmp_path)))
    assert await ask("snapshots") == {"snapshots": {}}
    file.write_text("before")
    copies.snapshot(file)
    file.write_text("after")
    assert await ask("snapshots") == {"snapshots": {str(file): 6}}
    assert await ask("restore", path=str(file)) == {}
    assert file.read_text() == "before"


async def test_only_the_very_path_is_put_back(tmp_path: Path) -> None:
    copies, file = Copies(tmp_path / "undo"), tmp_path / "a.txt"
    file.write_text("before")
    copies.snapshot(file)
    file.write_text("after")
    link = tmp_path / "link"
    link.symlink_to(file)
    for path in (tmp_path / "b.txt", link, tmp_path / "." / ".." / tmp_path.name / "a.txt"):
        with pytest.raises(NoSnapshot, match="no snapshot for path: "):
            await ServiceCaller(UndoService(copies, allow_path, str(tmp_path)))("restore", path=str(path))
    assert file.read_text() == "after"


async def test_where_no_copies_are_kept_that_is_told() -> None:
    for what, arguments in (("snapshots", {}), ("restore", {"path": "/x"})):
        with pytest.raises(Refused, match="undo snapshots not available"):
            await ServiceCaller(UndoService(None, allow_path, "/"))(what, **arguments)


@pytest.mark.req("app.services.decided")
async def test_only_what_may_be_written_is_put_back(tmp_path: Path) -> None:
    copies, file = Copies(tmp_path / "undo"), tmp_path / "a.txt"
    file.write_text("before")
    copies.snapshot(file)
    file.write_text("after")

    async def never(guest: str, path: str) -> str:
        return f"{guest} must not write {path}"

    with pytest.raises(NotAllowed, match=f"must not write {file}"):
        await ServiceCaller(UndoService(copies, never, str(tmp_path)))("restore", path=str(file))
    assert file.read_text() == "after"


async def test_another_projects_files_are_no_business_of_this_one(tmp_path: Path) -> None:
    copies, here, there = Copies(tmp_path / "undo"), tmp_path / "here", tmp_path / "here-too"
    for folder in (here, there):
        folder.mkdir()
        (folder / "a.txt").write_text("before")
        copies.snapshot(folder / "a.txt")
    ask = ServiceCaller(UndoService(copies, allow_path, str(here)))
    assert await ask("snapshots") == {"snapshots": {str(here / "a.txt"): 6}}
    with pytest.raises(NoSnapshot):
        await ask("restore", path=str(there / "a.txt"))
