"""Copies of what ran, by digest: a session goes on with them when the file is another by then (spec yoi 10.2)."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from serai.errors import BadManifest
from serai.plugins import package_store
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package import compute_digest, pack
from serai.plugins.package_store import find_copy, keep_copy, load_package, read_package
from tests.support.host.guest_folders import Harness
from tests.support.yoi.plugin_packages import enable, files, grant, write_folder, write_package

ECHO = files()
CHANGED = "resolved plugin package digest does not match current package content"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def record_of(harness: Harness) -> ResolvedPlugin:
    found = harness.find(config=enable(grant("user:echo", ECHO)))
    record: ResolvedPlugin = found.guests[0].plan
    return record


@pytest.mark.req("yoi.conform.16", "yoi.edge.34")
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_file_that_is_another_by_now_is_not_what_runs(harness: Harness, as_folder: bool) -> None:
    _ = write_folder(harness.user / "echo") if as_folder else write_package(harness.user)
    record = record_of(harness)
    assert load_package(record, harness.environ).digest == record.digest
    evil = {**ECHO, "plugin.component.wasm": b"evil"}
    _ = write_folder(harness.user / "echo", evil) if as_folder else write_package(harness.user, content=evil)
    with pytest.raises(BadManifest, match=CHANGED):
        load_package(record, harness.environ)


@pytest.mark.req("yoi.rule.061", "yoi.conform.16")
def test_the_copy_takes_the_place_of_a_file_that_was_replaced_or_is_gone(harness: Harness) -> None:
    path = write_package(harness.user)
    record = record_of(harness)
    keep_copy(load_package(record, harness.environ), harness.environ)
    for content in (pack({**ECHO, "plugin.component.wasm": b"evil"}), b"no zip", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        package = load_package(record, harness.environ)
        assert (package.digest, dict(package.files)) == (record.digest, ECHO)
    assert find_copy("sha256:" + "0" * 64, harness.environ) is None


@pytest.mark.req("yoi.edge.34")
def test_what_is_given_to_run_are_the_bytes_that_were_verified(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes between any two readings is read once: there is no second reading to be fooled."""
    path = write_package(harness.user)
    record = record_of(harness)
    opened: list[object] = []
    real = os.open

    def counting(name: str | bytes | os.PathLike[str], *args: int, **more: int) -> int:
        opened.append(os.fspath(name))
        return real(name, *args, **more)

    monkeypatch.setattr(os, "open", counting)
    package = load_package(record, harness.environ)
    assert opened.count(str(path)) == 1
    assert package.digest == compute_digest(package.files) == record.digest


@pytest.mark.req("yoi.rule.061", "yoi.conform.16")
@pytest.mark.parametrize("what", ["another", "cut", "nothing", "link"])
def test_a_copy_is_verified_when_it_is_read(harness: Harness, what: str) -> None:
    write_package(harness.user).rename(harness.root / "gone")
    package = read_package(harness.root / "gone")
    path = keep_copy(package, harness.environ)
    assert path is not None
    evil = pack({**ECHO, "plugin.component.wasm": b"evil"})
    if what == "link":
        path.unlink()
        (harness.root / "evil").write_bytes(path.name.encode())
        path.symlink_to(harness.root / "evil")
    else:
        path.write_bytes({"another": evil, "cut": path.read_bytes()[:-1], "nothing": b""}[what])
    assert find_copy(package.digest, harness.environ) is None


def test_copies_are_for_this_user_alone_whatever_the_umask_says(harness: Harness) -> None:
    package = read_package(write_package(harness.user))
    before = os.umask(0)
    try:
        path = keep_copy(package, harness.environ)
    finally:
        os.umask(before)
    assert path == harness.root / "serai" / "plugins" / f"{package.digest.removeprefix('sha256:')}.yoi-plugin"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    inode = path.stat().st_ino
    assert keep_copy(package, harness.environ) == path
    assert path.stat().st_ino == inode  # it was there


def test_old_copies_go_and_those_in_use_stay(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_store, "_COPIES", 3)
    kept: list[Path] = []
    for number in range(5):
        path = keep_copy(read_package(write_package(harness.user, version=f"{number}")), harness.environ)
        assert path is not None
        os.utime(path, (number, number))
        kept.append(path)
    first = read_package(write_package(harness.user, version="2"))
    assert keep_copy(first, harness.environ) == kept[2]  # now the newest
    keep_copy(read_package(write_package(harness.user, version="9")), harness.environ)
    assert [path.exists() for path in kept] == [False, False, True, False, True]
    monkeypatch.setattr(package_store, "_COPIES_SIZE", 1)
    last = keep_copy(first, harness.environ)
    assert last is not None
    assert list(last.parent.iterdir()) == [last]


@pytest.mark.parametrize("size", [0, 10, -1])
def test_a_copy_that_was_cut_off_is_written_anew(harness: Harness, size: int) -> None:
    """A crash of the machine may leave half of it: the next start with the same package mends it."""
    package = read_package(write_package(harness.user))
    path = keep_copy(package, harness.environ)
    assert path is not None
    whole = path.read_bytes()
    os.truncate(path, size % len(whole))
    assert find_copy(package.digest, harness.environ) is None
    assert keep_copy(package, harness.environ) == path
    assert path.read_bytes() == whole
    assert find_copy(package.digest, harness.environ) == package


def test_a_copy_is_on_the_disk_before_it_has_its_name(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        done.append(("sync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def renaming(old: str, new: Path) -> None:
        done.append(("rename", os.stat(old).st_size))
        rename(old, new)

    package = read_package(write_package(harness.user))
    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", renaming)
    path = keep_copy(package, harness.environ)
    assert path is not None
    size = path.stat().st_size
    assert done == [("sync", size), ("rename", size)]


def test_copies_that_nobody_writes_any_more_go(harness: Harness) -> None:
    package = read_package(write_package(harness.user))
    path = keep_copy(package, harness.environ)
    assert path is not None
    now = time.time()
    old, young = path.parent / ".draft-old", path.parent / ".draft-young"
    for one, age in ((old, 3700), (young, 3000)):
        one.write_bytes(b"half")
        os.utime(one, (now - age, now - age))
    keep_copy(package, harness.environ)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_copy_that_cannot_be_kept_stops_nobody(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    package = read_package(write_package(harness.user))
    (harness.root / "serai" / "plugins").write_text("in the way")
    assert keep_copy(package, harness.environ) is None
    assert "a plugin's copy cannot be kept" in caplog.text


def test_what_is_no_digest_leads_nowhere(harness: Harness) -> None:
    for digest_ in ("", "sha256:", "sha256:../../x", "md5:" + "0" * 64, "sha256:" + "A" * 64):
        assert find_copy(digest_, harness.environ) is None
