"""`serai guest add`, `remove`, `enable` of plugins."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from serai.errors import BadManifest, BadSettings, NoGuest
from serai.host.installation import add, choose, has_switch, remove, set_enabled
from tests.support.host.guest_folders import Harness
from tests.support.yoi.plugin_packages import enable_ids, files, write_folder, write_package


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def test_a_package_file_is_copied_as_it_is(harness: Harness) -> None:
    source = write_package(harness.root)
    target = add(str(source), environ=harness.environ)
    assert target == harness.user / "echo.yoi-plugin"
    assert target.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in harness.user.iterdir()] == ["echo.yoi-plugin"]
    assert [guest.id for guest in harness.find(config=enable_ids("user:echo")).guests] == ["yoi:echo"]


@pytest.mark.parametrize("name", ["other", "other.yoi-plugin"])
def test_it_may_have_another_name(harness: Harness, name: str) -> None:
    assert add(str(write_package(harness.root)), environ=harness.environ, name=name) == harness.user / "other.yoi-plugin"


def test_a_folder_is_copied_as_other_guests_are(harness: Harness) -> None:
    target = add(str(write_folder(harness.root / "echo")), environ=harness.environ)
    assert (target, [guest.id for guest in harness.find(config=enable_ids("user:echo")).guests]) == (
        harness.user / "echo",
        ["yoi:echo"],
    )


def test_what_could_not_be_started_is_not_taken(harness: Harness) -> None:
    path = harness.root / "x.yoi-plugin"
    path.write_bytes(b"no zip")
    with pytest.raises(BadManifest, match="plugin package has no zip end record"):
        add(str(path), environ=harness.environ)
    write_package(harness.root, "y.yoi-plugin", {"plugin.toml": files()["plugin.toml"]})
    with pytest.raises(BadManifest, match="not in the package"):
        add(str(harness.root / "y.yoi-plugin"), environ=harness.environ)
    with pytest.raises(NoGuest):
        add(str(harness.root / "nothing.yoi-plugin"), environ=harness.environ)
    assert not harness.user.exists() or not list(harness.user.iterdir())


def test_of_one_id_there_is_one(harness: Harness) -> None:
    add(str(write_package(harness.root)), environ=harness.environ)
    with pytest.raises(BadSettings, match="already exists"):
        add(str(write_package(harness.root)), environ=harness.environ)
    with pytest.raises(BadSettings, match="yoi:echo is there already"):
        add(str(write_package(harness.root)), environ=harness.environ, name="other")
    with pytest.raises(BadSettings, match="yoi:echo is there already"):
        add(str(write_folder(harness.root / "folder")), environ=harness.environ)


@pytest.mark.parametrize("name", ["yoi:echo", "user:echo", "echo", "x.yoi-plugin"])
def test_a_plugin_is_known_by_id_reference_name_and_file_and_removed(harness: Harness, name: str) -> None:
    path = write_package(harness.user, "x.yoi-plugin")
    remove(choose(harness.find(), name))
    assert not path.exists()
    assert list(harness.user.iterdir()) == []


def test_its_switch_is_what_was_granted(harness: Harness) -> None:
    write_package(harness.user)
    guest = choose(harness.find(), "echo")
    assert has_switch(guest)
    for enabled in (True, False):
        with pytest.raises(BadSettings, match="a plugin runs as far as it was granted") as raised:
            set_enabled(guest, enabled=enabled)
        assert "serai guest grant" in raised.value.hint
