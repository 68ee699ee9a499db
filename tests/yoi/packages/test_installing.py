"""`serai guest add`, `remove`, `enable` of plugins."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from serai.errors import BadManifest, BadSettings, NoGuest
from serai.host.installation import add, choose, has_switch, remove, set_enabled
from tests.host.folders import House
from tests.yoi.packages.making import files, on, plugin, plugin_folder


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "project").mkdir()
    return House(tmp_path)


def test_a_package_file_is_copied_as_it_is(house: House) -> None:
    source = plugin(house.root)
    target = add(str(source), environ=house.environ)
    assert target == house.user / "echo.yoi-plugin"
    assert target.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in house.user.iterdir()] == ["echo.yoi-plugin"]
    assert [guest.id for guest in house.find(config=on("user:echo")).guests] == ["yoi:echo"]


@pytest.mark.parametrize("name", ["other", "other.yoi-plugin"])
def test_it_may_have_another_name(house: House, name: str) -> None:
    assert add(str(plugin(house.root)), environ=house.environ, name=name) == house.user / "other.yoi-plugin"


def test_a_folder_is_copied_as_other_guests_are(house: House) -> None:
    target = add(str(plugin_folder(house.root / "echo")), environ=house.environ)
    assert (target, [guest.id for guest in house.find(config=on("user:echo")).guests]) == (house.user / "echo", ["yoi:echo"])


def test_what_could_not_be_started_is_not_taken(house: House) -> None:
    path = house.root / "x.yoi-plugin"
    path.write_bytes(b"no zip")
    with pytest.raises(BadManifest, match="plugin package has no zip end record"):
        add(str(path), environ=house.environ)
    plugin(house.root, "y.yoi-plugin", {"plugin.toml": files()["plugin.toml"]})
    with pytest.raises(BadManifest, match="not in the package"):
        add(str(house.root / "y.yoi-plugin"), environ=house.environ)
    with pytest.raises(NoGuest):
        add(str(house.root / "nothing.yoi-plugin"), environ=house.environ)
    assert not house.user.exists() or not list(house.user.iterdir())


def test_of_one_id_there_is_one(house: House) -> None:
    add(str(plugin(house.root)), environ=house.environ)
    with pytest.raises(BadSettings, match="already exists"):
        add(str(plugin(house.root)), environ=house.environ)
    with pytest.raises(BadSettings, match="yoi:echo is there already"):
        add(str(plugin(house.root)), environ=house.environ, name="other")
    with pytest.raises(BadSettings, match="yoi:echo is there already"):
        add(str(plugin_folder(house.root / "folder")), environ=house.environ)


@pytest.mark.parametrize("name", ["yoi:echo", "user:echo", "echo", "x.yoi-plugin"])
def test_a_plugin_is_known_by_id_reference_name_and_file_and_removed(house: House, name: str) -> None:
    path = plugin(house.user, "x.yoi-plugin")
    remove(choose(house.find(), name))
    assert not path.exists()
    assert list(house.user.iterdir()) == []


def test_its_switch_is_what_was_granted(house: House) -> None:
    plugin(house.user)
    guest = choose(house.find(), "echo")
    assert has_switch(guest)
    for enabled in (True, False):
        with pytest.raises(BadSettings, match="a plugin runs as far as it was granted") as raised:
            set_enabled(guest, enabled=enabled)
        assert "serai guest grant" in raised.value.hint
