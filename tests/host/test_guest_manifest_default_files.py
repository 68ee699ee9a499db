"""The files a guest ships for its settings: where they go, and where they never do (spec piglet 1.5)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadManifest
from serai.host.discovery import find_piglet_home
from serai.host.guest_manifest import GuestManifest, inspect_folder, read_manifest, write_default_files
from serai.host.guest_settings import PersonSettings
from serai.host.installation import add
from serai.host.trust import Trust
from tests.support import piglet_guests
from tests.support.host.guest_folders import Harness
from tests.support.host.zot_guests import log_of, open_host

PROMPT = {"src": "defaults/prompt.md", "dest": "extensions/weather/prompt.md"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def weather(place: Path, *defaults: Mapping[str, Any], **more: Any) -> Path:
    folder = piglet_guests.write(place, "weather", manifest={"defaults": list(defaults)}, **more)
    (folder / "defaults").mkdir(exist_ok=True)
    (folder / "defaults" / "prompt.md").write_text("Be brief.")
    return folder


def manifest_of(folder: Path) -> GuestManifest:
    found = inspect_folder(folder)
    assert found is not None
    return read_manifest(found, "user", PersonSettings())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("piglet.rule.seeding")
def test_they_are_put_below_the_config_folder_with_their_parents_and_for_all_to_read(tmp_path: Path) -> None:
    guest = manifest_of(weather(tmp_path, PROMPT, {"src": "./defaults//prompt.md", "dest": "./extensions/weather//a/b.md"}))
    old = os.umask(0o077)
    try:
        assert write_default_files(guest, str(tmp_path / "config")) == ()
    finally:
        os.umask(old)
    config = tmp_path / "config"
    assert (config / "extensions/weather/prompt.md").read_text() == "Be brief."
    own = config / "extensions/weather"
    assert {mode(path) for path in (own.parent, own, own / "a")} == {0o755}
    assert {mode(path) for path in (own / "prompt.md", own / "a/b.md")} == {0o644}
    assert mode(config) == 0o700  # the person's own
    assert sorted(os.listdir(own)) == ["a", "prompt.md"]


@pytest.mark.req("piglet.rule.seeding")
@pytest.mark.parametrize("there", ["file", "folder", "link", "dangling link"])
def test_what_is_there_is_never_overwritten_whatever_it_is(tmp_path: Path, there: str) -> None:
    guest = manifest_of(weather(tmp_path, PROMPT))
    place = tmp_path / "config" / "extensions" / "weather"
    place.mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    match there:
        case "file":
            (place / "prompt.md").write_text("mine")
        case "folder":
            (place / "prompt.md").mkdir()
        case "link":
            (place / "prompt.md").symlink_to(tmp_path / "mine")
        case "dangling link":
            (place / "prompt.md").symlink_to(tmp_path / "nowhere")
    assert write_default_files(guest, str(tmp_path / "config")) == ()
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    if there in ("file", "link"):
        assert (place / "prompt.md").read_text() == "mine"


@pytest.mark.req("piglet.rule.seeding")
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("missing", "No such file or directory"),
        ("link out", "it lies outside of the guest's folder"),
        ("pipe", "it is not a file"),
        ("folder", "it is not a file"),
        ("too long", "it is longer than 4 MiB"),
    ],
)
def test_a_source_that_cannot_be_had_is_a_warning_and_the_others_are_put(tmp_path: Path, what: str, why: str) -> None:
    folder = weather(tmp_path, {"src": "odd", "dest": "extensions/weather/odd"}, PROMPT)
    (tmp_path / "secret").write_text("secret")
    match what:
        case "link out":
            (folder / "odd").symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(folder / "odd")
        case "folder":
            (folder / "odd").mkdir()
        case "too long":
            with open(folder / "odd", "wb") as file:
                file.truncate((4 << 20) + 1)
    told = write_default_files(manifest_of(folder), str(tmp_path / "config"))
    assert told == (f"its default odd is not put into extensions/weather/odd: {why}",)
    assert sorted(os.listdir(tmp_path / "config" / "extensions" / "weather")) == ["prompt.md"]


@pytest.mark.req("piglet.rule.seeding-escape")
def test_no_link_below_the_config_folder_is_followed(tmp_path: Path) -> None:
    guest = manifest_of(weather(tmp_path, PROMPT))
    (tmp_path / "elsewhere" / "weather").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "extensions").symlink_to(tmp_path / "elsewhere")
    (told,) = write_default_files(guest, str(tmp_path / "config"))
    assert told.endswith("prompt.md is not put into extensions/weather/prompt.md: something on its way is no folder, or a link")
    assert os.listdir(tmp_path / "elsewhere" / "weather") == []


@pytest.mark.req("piglet.rule.seeding-escape")
@pytest.mark.parametrize(
    "dest", ["/etc/motd", "../x", "extensions/../../x", "extensions/weather/../x", "~/x", "~root/x", "", ".", "//x"]
)
def test_a_destination_that_leads_out_is_refused_before_anything_runs(harness: Harness, dest: str) -> None:
    weather(harness.user, PROMPT | {"dest": dest})
    found = harness.find()
    assert found.guests == ()
    ((_, reason),) = found.problems
    assert f"defaults: dest {dest!r}" in reason


@pytest.mark.req("piglet.rule.seeding-escape")
@pytest.mark.parametrize(
    "dest",
    [
        *("config.toml", "policy.toml", "policy.db-wal", "trust.json", "sessions/x", "guests/x/y.py", "notes.md"),
        *("extensions/other/json.py", "extensions/Weather/x", "extensions/x", "extensions/weather", "Extensions/weather/x"),
        *("extensions/weather/manifest.yaml", "extensions/weather/Guest.toml", "extensions/weather/a/extension.json"),
    ],
)
async def test_a_name_of_ours_or_of_another_guest_is_reported_and_not_written_and_the_guest_runs(tmp_path: Path, dest: str) -> None:
    folder = weather(tmp_path, PROMPT | {"dest": dest}, PROMPT, tools={"look": "fog"})
    async with open_host(tmp_path, folder) as host:
        assert (await host.call_tool("look")).text == "fog"
        (told,) = host.report.to_lines()
        assert told.startswith(f"piglet:weather: its default defaults/prompt.md is not put into {dest}: ")
        assert told.removeprefix("piglet:weather: ") in log_of(host, "weather")
    seeded = [path.relative_to(tmp_path / "home").as_posix() for path in (tmp_path / "home").rglob("*") if _is_prompt(path)]
    assert seeded == ["extensions/weather/prompt.md"]


def _is_prompt(path: Path) -> bool:
    return path.is_file() and path.read_bytes() == b"Be brief."


@pytest.mark.req("piglet.rule.seeding-escape")
def test_a_guest_that_is_called_like_anothers_folder_puts_nothing_there(tmp_path: Path) -> None:
    place = tmp_path / "piglet" / "extensions"
    gate = piglet_guests.write(place, "weather", manifest={"name": "gate"})
    there = sorted(os.listdir(gate))
    folder = weather(tmp_path / "from", PROMPT | {"dest": "extensions/weather/json.py"}).rename(place / "mine")
    (told,) = write_default_files(manifest_of(folder), str(tmp_path / "piglet"))
    assert told.endswith("is not put into extensions/weather/json.py: another guest lies there")
    assert sorted(os.listdir(gate)) == there


@pytest.mark.req("piglet.rule.seeding-escape")
@pytest.mark.parametrize(("runtime", "entry", "dest"), [("run", "", "run"), ("python", "./src/main.py", "SRC/main.py")])
def test_where_it_lies_itself_its_program_is_not_put(tmp_path: Path, runtime: str, entry: str, dest: str) -> None:
    folder = weather(tmp_path / "piglet" / "extensions")
    (folder / "manifest.yaml").write_text(
        f"name: weather\nruntime: {runtime}\nentry: {entry}\ndefaults:\n"
        f"- {{src: defaults/prompt.md, dest: extensions/weather/{dest}}}\n"
        "- {src: defaults/prompt.md, dest: extensions/weather/prompt.md}\n"
    )
    (told,) = write_default_files(manifest_of(folder), str(tmp_path / "piglet"))
    assert told.endswith(f"is not put into extensions/weather/{dest}: its manifest names that file as its program")
    assert not (folder / dest).exists()
    assert (folder / "prompt.md").exists()


@pytest.mark.req("piglet.rule.seeding-escape")
@pytest.mark.parametrize("src", ["/etc/passwd", "../secret", "a/../../secret", "~/secret", ""])
def test_a_source_outside_of_the_guests_folder_is_refused_too(tmp_path: Path, src: str) -> None:
    folder = weather(tmp_path, PROMPT | {"src": src})
    with pytest.raises(BadManifest, match="defaults: src"):
        manifest_of(folder)


def test_there_is_an_end_to_them(tmp_path: Path) -> None:
    with pytest.raises(BadManifest, match="defaults: 101 files; 100 are the most"):
        manifest_of(weather(tmp_path, *({"src": "a", "dest": f"extensions/weather/{number}"} for number in range(101))))


@pytest.mark.req("piglet.rule.seeding")
def test_they_are_put_in_place_when_a_guest_is_installed(harness: Harness) -> None:
    add(str(weather(harness.root, PROMPT)), environ=harness.environ)
    assert (harness.root / "serai" / "extensions" / "weather" / "prompt.md").read_text() == "Be brief."


@pytest.mark.req("piglet.rule.seeding")
async def test_and_before_each_start_and_what_is_missing_is_in_log_and_report(tmp_path: Path) -> None:
    folder = weather(tmp_path, PROMPT, {"src": "gone", "dest": "extensions/weather/gone"}, tools=["look"])
    seeded = tmp_path / "home" / "extensions" / "weather" / "prompt.md"
    async with open_host(tmp_path, folder) as host:
        assert seeded.read_text() == "Be brief."
        why = "its default gone is not put into extensions/weather/gone: No such file or directory"
        assert why in log_of(host, "weather")
        assert host.report.to_lines() == [f"piglet:weather: {why}"]
        seeded.unlink()
        (folder / "gone").write_text("here")
        await host.reload("weather")
        assert seeded.read_text() == "Be brief."
        assert seeded.with_name("gone").read_text() == "here"
        assert host.report.to_lines() == []


@pytest.mark.req("piglet.rule.seeding", "piglet.rule.config-home")
async def test_those_of_piglets_home_go_there(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    place = find_piglet_home(environ)
    weather(place / "extensions", PROMPT, tools=["look"])
    async with open_host(tmp_path, environ=environ, config={"guests": {"homes": ["piglet"]}}) as host:
        assert list(host.guests) == ["piglet:weather"]
        assert (place / "extensions" / "weather" / "prompt.md").read_text() == "Be brief."
        assert not (tmp_path / "home" / "extensions").exists()


@pytest.mark.req("piglet.rule.seeding", "piglet.rule.project-trust")
@pytest.mark.parametrize("trusted", [False, True])
async def test_a_projects_guest_seeds_once_it_is_trusted(tmp_path: Path, trusted: bool) -> None:
    weather(tmp_path / "project" / ".piglet" / "extensions", PROMPT)
    if trusted:
        Trust.usual({"SERAI_HOME": str(tmp_path / "home")}).allow(tmp_path / "project")
    async with open_host(tmp_path) as host:
        assert list(host.guests) == (["piglet:weather"] if trusted else [])
    assert (tmp_path / "home" / "extensions").exists() == trusted


async def test_a_guest_that_is_switched_off_seeds_nothing(tmp_path: Path) -> None:
    weather(tmp_path / "home" / "guests", PROMPT)
    async with open_host(tmp_path, config={"disabled_extensions": ["weather"]}) as host:
        assert not host.guests
    assert not (tmp_path / "home" / "extensions").exists()
