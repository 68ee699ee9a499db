"""Which changes of which files are told, and which are not."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from serai.errors import Closed
from serai.host import file_watcher
from serai.host.file_watcher import FileWatcher, find_sources

pytestmark = pytest.mark.loops


class Heard:
    """What a watcher told, one call after the other."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[frozenset[str]] = asyncio.Queue()

    async def next(self) -> frozenset[str]:
        return await asyncio.wait_for(self.calls.get(), 20)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def watcher(heard: Heard) -> AsyncIterator[FileWatcher]:
    watcher = FileWatcher(heard.calls.put_nowait, debounce=0.05)
    yield watcher
    await watcher.close()


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """A guest's folder, with a file to change at the end of a test that shows that nothing else was told."""
    folder = tmp_path / "guest"
    folder.mkdir()
    (folder / "main.py").write_text("1")
    (tmp_path / "last.py").write_text("1")
    return folder


async def change_last(watcher: FileWatcher, heard: Heard, guest: Path) -> frozenset[str]:
    """Change another key's file, and give what is told first."""
    file = guest.parent / "last.py"
    watcher.watch("last", [file])
    file.write_text(file.read_text() + "more")
    return await heard.next()


def write_in_place(file: Path) -> None:
    file.write_text("another text")


def write_by_rename(file: Path) -> None:
    (file.parent / ".tmp~").write_text("another text")
    (file.parent / ".tmp~").rename(file)


def recreate(file: Path) -> None:
    file.unlink()
    file.write_text("another text")


def write_with_backup(file: Path) -> None:
    file.rename(file.with_suffix(".py~"))
    file.write_text("another text")


@pytest.mark.req("host.reload.hot")
@pytest.mark.parametrize("save", [write_in_place, write_by_rename, recreate, write_with_backup])
async def test_a_saved_file_is_told_however_it_is_saved(
    watcher: FileWatcher, heard: Heard, guest: Path, save: Callable[[Path], None]
) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    save(guest / "main.py")
    assert await heard.next() == {"zot:a"}
    (guest / "main.py").write_text("and once more")
    assert await heard.next() == {"zot:a"}


async def test_a_file_saved_while_it_was_already_watched_is_told(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    assert await change_last(watcher, heard, guest) == {"last"}  # so the thread has seen both
    write_by_rename(guest / "main.py")
    assert await heard.next() == {"zot:a"}


async def test_same_content_is_no_change(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    assert await change_last(watcher, heard, guest) == {"last"}
    os.utime(guest / "main.py", ns=(1, 1))
    (guest / ".tmp").write_text("1")
    (guest / ".tmp").rename(guest / "main.py")
    (guest / "main.py").read_text()
    assert await change_last(watcher, heard, guest) == {"last"}
    (guest / "main.py").write_text("2")
    assert await heard.next() == {"zot:a"}


@pytest.mark.req("host.reload.own-files")
async def test_what_a_guest_writes_is_not_told(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", find_sources(guest, [Path("main.py")]))
    assert await change_last(watcher, heard, guest) == {"last"}
    for name in ("cache.py", "state.json", "main.pyc"):
        (guest / name).write_text("written by the guest")
    assert await change_last(watcher, heard, guest) == {"last"}


async def test_a_file_that_is_gone_is_waited_for(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    assert await change_last(watcher, heard, guest) == {"last"}
    (guest / "main.py").unlink()
    assert await change_last(watcher, heard, guest) == {"last"}
    (guest / "main.py").write_text("back, and another")
    assert await heard.next() == {"zot:a"}


async def test_a_file_that_two_guests_share_is_told_for_both(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    watcher.watch("zot:b", [guest / "main.py"])
    write_in_place(guest / "main.py")
    assert await heard.next() == {"zot:a", "zot:b"}


async def test_the_target_of_a_link_counts(watcher: FileWatcher, heard: Heard, guest: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real.py"
    target.parent.mkdir()
    target.write_text("1")
    (guest / "link.py").symlink_to(target)
    watcher.watch("zot:a", [guest / "link.py"])
    assert await change_last(watcher, heard, guest) == {"last"}
    write_in_place(target)
    assert await heard.next() == {"zot:a"}


async def test_a_forgotten_key_is_not_told(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    watcher.watch("zot:a", [guest / "main.py"])
    watcher.forget("zot:a")
    watcher.forget("zot:never")
    write_in_place(guest / "main.py")
    assert await change_last(watcher, heard, guest) == {"last"}


async def test_watching_again_replaces_the_files_and_loses_no_change(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    (guest / "old.py").write_text("1")
    watcher.watch("zot:a", [guest / "old.py", guest / "main.py"])
    assert await change_last(watcher, heard, guest) == {"last"}
    write_in_place(guest / "main.py")
    watcher.watch("zot:a", [guest / "main.py"])
    assert await heard.next() == {"zot:a"}
    write_in_place(guest / "old.py")
    assert await change_last(watcher, heard, guest) == {"last"}


async def test_a_folder_that_comes_later_and_one_that_is_made_anew_are_seen(
    watcher: FileWatcher, heard: Heard, guest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watcher, "_LOOK", 0.05)
    file = guest / "later" / "main.py"
    watcher.watch("zot:a", [file])
    assert await change_last(watcher, heard, guest) == {"last"}
    file.parent.mkdir()
    file.write_text("1")
    assert await heard.next() == {"zot:a"}
    shutil.rmtree(file.parent)
    file.parent.mkdir()
    file.write_text("another")
    assert await heard.next() == {"zot:a"}


async def test_without_notification_files_are_looked_at_and_that_is_said_once(
    watcher: FileWatcher, heard: Heard, guest: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(folders: list[str]) -> None:
        raise OSError(28, "no watches left")

    monkeypatch.setattr(file_watcher, "_open_notifier", none_left)
    monkeypatch.setattr(file_watcher, "_LOOK", 0.02)
    with caplog.at_level(logging.WARNING, "serai.host"):
        watcher.watch("zot:a", [guest / "main.py"])
        write_in_place(guest / "main.py")
        assert await heard.next() == {"zot:a"}
        assert await change_last(watcher, heard, guest) == {"last"}
    assert caplog.text.count("no watches left") == 1


async def test_a_file_too_large_to_read_has_changed_when_its_size_or_time_has(
    watcher: FileWatcher, heard: Heard, guest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watcher, "_HASHED", 0)
    watcher.watch("zot:a", [guest / "main.py"])
    write_in_place(guest / "main.py")
    assert await heard.next() == {"zot:a"}


async def test_three_hundred_guests_have_one_thread(watcher: FileWatcher, heard: Heard, tmp_path: Path) -> None:
    threads = threading.active_count()
    for i in range(300):
        (tmp_path / f"g{i}").mkdir()
        (tmp_path / f"g{i}" / "main.py").write_text("1")
        watcher.watch(f"zot:g{i}", find_sources(tmp_path / f"g{i}", []))
    (tmp_path / "g299" / "main.py").write_text("another")
    assert await heard.next() == {"zot:g299"}
    assert threading.active_count() <= threads + 1


async def test_a_receiver_that_fails_is_called_again(guest: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()

    def fail(keys: frozenset[str]) -> None:
        heard.calls.put_nowait(keys)
        raise ValueError("not my day")

    watcher = FileWatcher(fail, debounce=0.01)
    watcher.watch("zot:a", [guest / "main.py"])
    write_in_place(guest / "main.py")
    await heard.next()
    (guest / "main.py").write_text("and again")
    assert await heard.next() == {"zot:a"}
    await watcher.close()
    assert "not my day" in caplog.text


async def test_a_closed_watcher_has_no_thread_and_no_descriptor_and_can_be_closed_again(heard: Heard, guest: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    watcher = FileWatcher(heard.calls.put_nowait, debounce=0.01)
    watcher.watch("zot:a", [guest / "main.py"])
    write_in_place(guest / "main.py")
    await heard.next()
    await watcher.close()
    await watcher.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "serai-watcher"]
    while len(os.listdir("/proc/self/fd")) > descriptors:  # the library's thread closes its own, a moment later
        await asyncio.sleep(0)
    with pytest.raises(Closed):
        watcher.watch("zot:a", [])


async def test_a_watcher_that_never_watched_can_be_closed() -> None:
    await FileWatcher(lambda keys: None).close()


def test_each_change_of_a_guests_files_makes_all_of_it_wait_anew(guest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(file_watcher, "monotonic", lambda: now)
    monkeypatch.setattr(FileWatcher, "_start", lambda self: None)  # the test is the thread
    (guest / "b.py").write_text("1")
    (guest / "other.py").write_text("1")
    watcher = FileWatcher(lambda keys: None, debounce=0.5)
    watcher.watch("zot:a", [guest / "main.py", guest / "b.py"])
    watcher.watch("zot:b", [guest / "other.py"])
    watcher._learn()
    for name in ("main.py", "b.py", "other.py"):
        write_in_place(guest / name)
    watcher._touch_at([str(guest / "main.py"), str(guest / "other.py")])
    now = 100.4
    watcher._touch_at([str(guest / "b.py")])
    now = 100.6
    assert watcher._take_settled() == {"zot:b"}
    now = 100.95
    assert watcher._take_settled() == {"zot:a"}
    assert watcher._take_settled() == frozenset()


# -- which files ----------------------------------------------------------------------------------------------------------------


def test_sources_are_what_is_named_and_what_lies_there_as_source(tmp_path: Path) -> None:
    files = ["main.py", "src/x.ts", "lib/deep/er/y.mjs", "run.sh", "plugin.wasm", "extension.json", "dist/entry.js"]
    others = [
        *(
            "state.json",
            "notes.md",
            "x.log",
            "x.db",
            "x.txt",
            "dist/other.js",
            ".git/hook.py",
            ".hidden/x.py",
            "node_modules/a/b.js",
        ),
        *("__pycache__/m.py", "venv/lib/z.py"),
    ]
    for name in (*files, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    named = [Path("extension.json"), tmp_path / "dist" / "entry.js", Path("missing.toml")]
    assert find_sources(tmp_path, named) == {tmp_path / name for name in (*files, "missing.toml")}


def test_sources_are_at_most_two_thousand_and_the_named_ones_are_among_them(tmp_path: Path) -> None:
    for i in range(2_100):
        (tmp_path / f"a{i}.py").touch()
    (tmp_path / "z.py").touch()
    found = find_sources(tmp_path, [Path("z.py")])
    assert len(found) == 2_000
    assert tmp_path / "z.py" in found


async def test_a_pipe_among_the_files_holds_nobody_up(watcher: FileWatcher, heard: Heard, guest: Path) -> None:
    os.mkfifo(guest / "pipe.py")
    assert find_sources(guest, []) == {guest / "main.py"}
    watcher.watch("stuck", [guest / "pipe.py", guest / "main.py"])
    assert await change_last(watcher, heard, guest) == {"last"}
    (guest / "main.py").unlink()
    os.mkfifo(guest / "main.py")
    assert await change_last(watcher, heard, guest) == {"last"}


def test_a_folder_of_a_circle_of_links_or_of_nothing_has_sources_too(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "x.py").touch()
    assert find_sources(tmp_path, []) == {tmp_path / "x.py"}
    assert find_sources(tmp_path / "none", [Path("main.py")]) == {tmp_path / "none" / "main.py"}
