"""What a person has trusted, and that nothing else starts."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.errors import BadSettings
from serai.host.finding import find
from tests.host.folders import House, folders, zot_guest


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A project with one guest whose program, entry and settings are files of its folder, trusted."""
    house = House(tmp_path)
    folder = zot_guest(weather(house), exec="./run", args=["main.py", "../shared.py"], guest_toml="exclusive = true")
    for file in (folder / "run", folder / "main.py", folder / "data.txt", folder.parent / "shared.py"):
        file.write_text("one")
    house.trust.allow(house.project)
    return house


def weather(house: House) -> Path:
    return house.project / ".zot" / "extensions" / "weather"


def reason(house: House) -> str:
    return "; ".join(aside.reason for aside in house.find().untrusted)


def test_what_was_trusted_starts_and_is_told(house: House) -> None:
    assert folders(house.find()) == ["weather"]
    [pinned] = house.trust.allow(house.project)
    assert (pinned.id, pinned.scope) == ("zot:weather", "project")


@pytest.mark.req("host.trust.pinned")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run", "it has changed since it was trusted: run"),
        ("main.py", "it has changed since it was trusted: main.py"),
        ("../shared.py", "it has changed since it was trusted: ../shared.py"),
    ],
)
def test_a_changed_file_is_not_trusted_any_more_and_named(house: House, name: str, said: str) -> None:
    (weather(house) / name).write_text("two")
    assert reason(house) == said
    house.trust.allow(house.project)
    assert reason(house) == ""


def test_a_change_of_the_guests_settings_counts(house: House) -> None:
    (weather(house) / "guest.toml").write_text('env = ["A_TOKEN"]')
    assert reason(house) == "it has changed since it was trusted: guest.toml"


@pytest.mark.req("host.trust.pinned")
def test_a_change_of_the_command_line_counts(house: House) -> None:
    manifest = weather(house) / "extension.json"
    manifest.write_text(manifest.read_text().replace("./run", "sh"))
    assert reason(house) == "its command line has changed since it was trusted"


@pytest.mark.parametrize("name", ["run", "guest.toml"])
def test_a_file_that_went_counts(house: House, name: str) -> None:
    (weather(house) / name).unlink()
    assert reason(house) == f"it has changed since it was trusted: {name}"


def test_a_file_that_the_guest_writes_does_not_count(house: House) -> None:
    (weather(house) / "data.txt").write_text("two")
    assert reason(house) == ""


@pytest.mark.req("host.trust.later")
def test_a_new_guest_waits_for_the_next_time(house: House) -> None:
    zot_guest(weather(house).with_name("later"))
    assert (folders(house.find()), reason(house)) == (["weather"], "it was never trusted")
    house.trust.allow(house.project)
    assert folders(house.find()) == ["later", "weather"]


@pytest.mark.req("host.trust.pinned")
def test_a_link_that_is_bent_elsewhere_counts_even_with_the_same_content(house: House, tmp_path: Path) -> None:
    for copy in ("one", "two"):
        zot_guest(tmp_path / copy, name="linked")
    link = weather(house).with_name("linked")
    link.symlink_to(tmp_path / "one")
    house.trust.allow(house.project)
    assert reason(house) == ""
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert reason(house) == f"it was moved since it was trusted: to {tmp_path / 'two'}"


def test_a_link_inside_is_pinned_by_what_it_leads_to(house: House, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("one")
    (weather(house) / "main.py").unlink()
    (weather(house) / "main.py").symlink_to(outside)
    house.trust.allow(house.project)
    assert reason(house) == ""
    outside.write_text("two")
    assert reason(house) == "it has changed since it was trusted: main.py"


@pytest.mark.req("host.trust.pinned")
def test_a_project_is_known_by_its_real_path(house: House, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(house.project)
    assert folders(find(cwd=tmp_path / "alias", config={}, environ=house.environ)) == ["weather"]
    os.rename(house.project, tmp_path / "elsewhere")
    assert find(cwd=tmp_path / "elsewhere", config={}, environ=house.environ).guests == ()


def test_trust_can_be_withdrawn(house: House) -> None:
    assert house.trust.withdraw(house.project)
    assert reason(house) == "it was never trusted"
    assert not house.trust.withdraw(house.project)


def test_one_project_says_nothing_of_another(house: House, tmp_path: Path) -> None:
    zot_guest(tmp_path / "second" / ".serai" / "guests" / "other")
    house.trust.allow(tmp_path / "second")
    house.trust.withdraw(tmp_path / "second")
    assert folders(house.find()) == ["weather"]


def test_what_cannot_be_read_is_not_pinned(house: House) -> None:
    broken = weather(house).with_name("broken")
    broken.mkdir()
    (broken / "extension.json").write_text("{")
    assert [manifest.name for manifest in house.trust.allow(house.project)] == ["weather"]


def test_the_file_is_the_persons_alone_and_nothing_else_is_left(house: House) -> None:
    assert stat.S_IMODE(house.trust.file.stat().st_mode) == 0o600
    assert os.listdir(house.trust.file.parent) == ["trust.json"]


def test_names_that_are_no_text_can_be_trusted_too(house: House) -> None:
    odd = weather(house).with_name(os.fsdecode(b"od\xffd"))
    zot_guest(odd, name="odd")
    house.trust.allow(house.project)
    assert reason(house) == ""


@pytest.mark.parametrize("content", [b"", b"{", b'{"projects": 1}', b"\xff", b"[" * 100_000, b'{"version": 2}'])
def test_a_damaged_file_is_an_error_that_names_it(house: House, content: bytes) -> None:
    house.trust.file.write_bytes(content)
    acts: list[Callable[[], object]] = [house.find, lambda: house.trust.allow(house.project)]
    for act in acts:
        with pytest.raises(BadSettings) as raised:
            act()
        assert raised.value.who == str(house.trust.file)
    assert house.trust.file.read_bytes() == content


def test_a_file_that_cannot_be_written_is_an_error_that_names_it_and_the_old_one_stays(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BadSettings, match="cannot be written: No space left on device") as raised:
        house.trust.withdraw(house.project)
    assert raised.value.who == str(house.trust.file)
    assert os.listdir(house.trust.file.parent) == ["trust.json"]
    assert reason(house) == ""


def test_only_a_folder_can_be_trusted(house: House, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="not a directory"):
        house.trust.allow(tmp_path / "gone")
