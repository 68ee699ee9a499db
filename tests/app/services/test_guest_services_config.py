"""Settings for guests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from serai.app.services.guest_services import ConfigService
from serai.errors import BadRequest, BadSettings, Refused
from tests.support.app.service_requests import ServiceCaller


def caller(home: Path, settings: dict[str, Any] | None = None, **environ: str) -> ServiceCaller:
    return ServiceCaller(ConfigService(lambda: settings or {}, {"SERAI_HOME": str(home), **environ}, lambda _guest: str(home)))


async def test_known_keys_have_values_and_others_are_left_out(tmp_path: Path) -> None:
    keys = ["default_model", "small_model", "agent.max_turns", "agent.compact_at", "nope", "guest", "limits"]
    assert await caller(tmp_path)("get", keys=keys) == {
        "values": {"default_model": "parrot/parrot", "small_model": "parrot/parrot", "agent.max_turns": 30, "agent.compact_at": 0}
    }


async def test_the_spelling_of_others_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[[models]]\nid = "m1"\nprovider = "acme"\n')
    ask = caller(tmp_path, {"default_model": "parrot", "small_model": "m1", "limits": {"steps": 7}})
    keys = ["defaultModel", "smallModel", "agent.maxTurns", "agent.compactAt"]
    assert await ask("get", keys=keys) == {
        "values": {"defaultModel": "parrot/parrot", "smallModel": "acme/m1", "agent.maxTurns": 7, "agent.compactAt": 0}
    }


async def test_settings_are_read_again_each_time_and_a_broken_file_is_told(tmp_path: Path) -> None:
    settings: dict[str, Any] = {}

    def read() -> dict[str, Any]:
        if not settings:
            raise BadSettings("no TOML", who="config.toml")
        return settings

    ask = ServiceCaller(ConfigService(read, {"SERAI_HOME": str(tmp_path)}, lambda _guest: str(tmp_path)))
    with pytest.raises(BadSettings):
        await ask("get", keys=["agent.max_turns"])
    settings["limits"] = {"steps": 3}
    assert await ask("get", keys=["agent.max_turns"]) == {"values": {"agent.max_turns": 3}}


async def test_a_model_that_nobody_knows_costs_the_other_values_nothing(tmp_path: Path) -> None:
    ask = caller(tmp_path, {"default_model": "gone/gone"})
    assert await ask("get", keys=["default_model", "agent.max_turns"]) == {"values": {"agent.max_turns": 30}}


async def test_a_guests_own_file_is_read_where_it_belongs_and_copied_there_from_the_old_place(tmp_path: Path) -> None:
    ask = caller(tmp_path)
    assert await ask("read", name="weather") == {"content": ""}
    assert not (tmp_path / "extensions").exists()
    old, new = tmp_path / "weather.md", tmp_path / "extensions" / "weather" / "weather.md"
    old.write_text("\n old place \n")
    assert await ask("read", name="weather") == {"content": "old place"}
    assert [file.read_text() for file in (old, new)] == ["\n old place \n"] * 2
    assert new.stat().st_mode & 0o777 == 0o600
    new.write_text("new place")
    assert await ask("read", name="weather") == {"content": "new place"}
    assert old.read_text() == "\n old place \n"


@pytest.mark.parametrize("link", ["file", "folder", "extensions"])
async def test_nothing_is_copied_to_where_a_link_leads(tmp_path: Path, link: str) -> None:
    own, elsewhere = tmp_path / "home" / "extensions", tmp_path / "elsewhere"
    elsewhere.mkdir()
    own.parent.mkdir()
    (tmp_path / "home" / "weather.md").write_text("old")
    if link == "extensions":
        own.symlink_to(elsewhere)
    elif link == "folder":
        own.mkdir()
        (own / "weather").symlink_to(elsewhere)
    else:
        (own / "weather").mkdir(parents=True)
        (own / "weather" / "weather.md").symlink_to(elsewhere / "new.md")
    assert await caller(tmp_path / "home")("read", name="weather") == {"content": "old"}
    assert list(elsewhere.iterdir()) == []


async def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "weather.md").write_text("old")
    (tmp_path / "extensions").write_text("no folder")
    assert await caller(tmp_path)("read", name="weather") == {"content": "old"}
    assert "weather.md was not copied" in caplog.text


async def test_each_guest_has_its_file_in_the_folder_it_belongs_to(tmp_path: Path) -> None:
    for home in ("serai", "piglet"):
        (tmp_path / home / "extensions" / "weather").mkdir(parents=True)
        (tmp_path / home / "extensions" / "weather" / "weather.md").write_text(home)
    config = ConfigService(dict, {}, lambda guest: str(tmp_path / ("piglet" if guest == "piglet:weather" else "serai")))
    assert await ServiceCaller(config, guest="piglet:weather")("read", name="weather") == {"content": "piglet"}
    assert await ServiceCaller(config, guest="zot:weather")("read", name="weather") == {"content": "serai"}


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "a/b", "a\\b", "/etc/passwd", "a\0b"])
async def test_a_name_that_leads_elsewhere_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match='invalid extension name: "') as bad:
        await caller(tmp_path)("read", name=name)
    assert bad.value.message.isprintable()


async def test_what_is_no_file_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "long.md").write_bytes(b"x" * (1024 * 1024 + 1))
    for name, why in (("pipe", "is not a file"), ("folder", "is not a file"), ("long", "is longer than")):
        with pytest.raises(Refused, match=why):
            await caller(tmp_path)("read", name=name)
    # Only of these: what watched the files of an earlier test may be closed by its thread just now.
    assert not [link for link in map(_link, os.listdir("/proc/self/fd")) if link.startswith(str(tmp_path))]


def _link(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # closed by now, as that of the listing itself
        return ""
