"""Which piglet guests there are, in which order they are taken in, and who has a name that several want (spec piglet 1)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadSettings
from serai.host.discovery import find_piglet_home, read_piglet_disabled
from serai.host.guest import GuestState
from serai.host.trust import Trust
from tests.support import piglet_guests
from tests.support.host.guest_folders import Harness, folders, list_ids, write_zot_guest
from tests.support.host.zot_guests import build_host, close_host, log_of, open_host, pid_of, wait_for_state
from tests.support.piglet_guests.steps import wait

HOMES = {"guests": {"homes": ["piglet"]}}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def write_manifest(folder: Path, name: str = "", *, text: str = "", guest_toml: str = "") -> Path:
    """A folder with a `manifest.yaml`; nothing of it is ever run."""
    folder.mkdir(parents=True)
    (folder / "manifest.yaml").write_text(text or f"name: {name or folder.name}\nruntime: ./run\n")
    if guest_toml:
        (folder / "guest.toml").write_text(guest_toml)
    return folder


# -- finding ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.discovery-walk")
def test_direct_folders_are_looked_at_by_name_and_what_is_none_of_them_is_passed_over_silently(harness: Harness) -> None:
    write_manifest(harness.user / "b-folder", "a")
    write_manifest(harness.user / "a-folder", "z")
    write_manifest(harness.user / "stale" / "deeper", "deeper")
    (harness.user / "file").write_text("name: file\nruntime: x\n")
    (harness.user / "manifest.yaml").write_text("name: top\nruntime: x\n")
    (harness.user / "empty").mkdir()
    found = harness.find()
    assert list_ids(found) == ["piglet:z", "piglet:a"]  # by folder, whatever they are called
    assert found.problems == ()


@pytest.mark.req("piglet.rule.discovery-walk")
def test_where_there_is_no_place_nothing_is_found_and_nothing_is_wrong(harness: Harness) -> None:
    found = harness.find(config=HOMES)
    assert (found.guests, found.problems, found.hidden_guards) == ((), (), ())


@pytest.mark.req("piglet.rule.discovery-bad-manifest")
@pytest.mark.parametrize("text", ["name: [", "runtime: ./run\n", "name: bad\n", "name: a/b\nruntime: x\n", "- a list\n"])
def test_a_bad_manifest_is_told_and_the_others_load(harness: Harness, text: str) -> None:
    bad = write_manifest(harness.user / "bad", text=text)
    write_manifest(harness.user / "good")
    found = harness.find()
    assert list_ids(found) == ["piglet:good"]
    ((folder, reason),) = found.problems
    assert folder == bad
    assert str(bad / "manifest.yaml") in reason


@pytest.mark.req("piglet.rule.config-home")
def test_piglets_own_home_has_one_name_and_is_searched_only_when_it_is_switched_on(harness: Harness) -> None:
    assert find_piglet_home({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/piglet")
    assert find_piglet_home({"HOME": "/h"}) == Path("/h/.config/piglet")
    write_manifest(harness.root / ".config" / "piglet" / "extensions" / "weather")
    assert list_ids(harness.find()) == []
    assert [(guest.id, guest.scope) for guest in harness.find(config=HOMES).guests] == [("piglet:weather", "piglet home")]


@pytest.mark.req("piglet.rule.project-trust")
def test_a_projects_guests_start_once_they_are_trusted_and_nothing_in_it_can_change_that(harness: Harness) -> None:
    folder = write_manifest(harness.project / ".piglet" / "extensions" / "weather", guest_toml="guard = false\n")
    (harness.project / ".serai").mkdir()
    (harness.project / ".serai" / "config.toml").write_text('[guest.weather]\nenabled = true\n[guests]\nhomes = ["piglet"]\n')
    (harness.project / ".piglet" / "config.yaml").write_text("allowProjectExtensions: true\n")
    assert list_ids(harness.find()) == []
    assert [aside.manifest.folder for aside in harness.find().untrusted] == [folder]
    harness.trust.allow(harness.project)
    assert list_ids(harness.find()) == ["piglet:weather"]


# -- the same name in project and home --------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.edge.23")
def test_a_trusted_projects_guest_takes_the_place_of_the_persons_of_the_same_manifest_name(harness: Harness) -> None:
    theirs = write_manifest(harness.project / ".piglet" / "extensions" / "one", "weather")
    mine = write_manifest(harness.user / "two", "weather")
    same_folder = write_manifest(harness.user / "one", "other")
    found = harness.find()
    assert folders(found) == ["one", "two"]  # nobody has allowed the project anything
    assert [guest.folder for guest in found.guests] == [same_folder, mine]
    harness.trust.allow(harness.project)
    found = harness.find()
    assert [guest.folder for guest in found.guests] == [theirs, same_folder]  # a folder's name is nothing
    assert [(aside.manifest.folder, aside.reason) for aside in found.shadowed] == [
        (mine, f"the project's {theirs} takes its place")
    ]
    assert (found.problems, found.hidden_guards) == ((), ())


@pytest.mark.req("piglet.edge.23")
def test_the_list_of_those_that_are_off_has_manifest_names_exactly_and_comes_after_that(harness: Harness) -> None:
    write_manifest(harness.project / ".piglet" / "extensions" / "one", "weather")
    write_manifest(harness.user / "two", "weather")
    write_manifest(harness.user / "three", "Weather")
    write_manifest(harness.user / "weather", "clock")
    write_zot_guest(harness.user / "zot", name="weather")
    harness.trust.allow(harness.project)
    found = harness.find(config={"disabled_extensions": ["weather"]})
    assert list_ids(found) == ["piglet:Weather", "piglet:clock"]  # neither the project's nor, in its place, the person's
    assert sorted(manifest.folder.name for manifest in found.disabled) == ["one", "two", "zot"]
    assert found.problems == ()


def test_a_projects_guest_does_not_take_the_place_of_a_guard(harness: Harness) -> None:
    write_manifest(harness.project / ".piglet" / "extensions" / "one", "gate")
    guard = write_manifest(harness.user / "two", "gate", guest_toml="guard = true\n")
    harness.trust.allow(harness.project)
    assert [problem.folder for problem in harness.find().hidden_guards] == [guard]


def test_a_folder_that_hides_a_zot_guest_by_its_name_hides_no_piglet_one(harness: Harness) -> None:
    (harness.project / ".zot" / "extensions" / "weather").mkdir(parents=True)
    write_manifest(harness.user / "weather")
    write_zot_guest(harness.root / "zot" / "extensions" / "weather")
    found = harness.find(config={"guests": {"homes": ["zot"]}})
    assert list_ids(found) == ["piglet:weather"]
    assert [aside.manifest.id for aside in found.shadowed] == ["zot:weather"]


# -- those that are off -----------------------------------------------------------------------------------------------------------


def test_piglets_own_list_counts_for_piglet_guests_when_its_home_is_switched_on(harness: Harness) -> None:
    home = harness.root / ".config" / "piglet"
    write_manifest(home / "extensions" / "weather")
    write_manifest(home / "extensions" / "clock")
    write_zot_guest(harness.user / "weather")
    (home / "config.yaml").write_text("defaultModel: x\ndisabled_extensions: [weather, nobody]\n")
    found = harness.find(config=HOMES)
    assert list_ids(found) == ["zot:weather", "piglet:clock"]
    assert [manifest.id for manifest in found.disabled] == ["piglet:weather"]


@pytest.mark.parametrize(
    "text", ["disabled_extensions: weather\n", "a: [", "disabled_extensions: [1]\n", "a: !!int ''\n", "[weather]\n", "a: \xff\n"]
)
def test_while_that_list_cannot_be_read_no_piglet_guest_starts(harness: Harness, text: str) -> None:
    home = harness.root / ".config" / "piglet"
    write_manifest(home / "extensions" / "weather")
    gate = write_manifest(home / "extensions" / "gate", guest_toml="guard = true\n")
    write_manifest(harness.user / "mine")
    write_zot_guest(harness.user / "weather")
    named = write_manifest(harness.root / "named")
    (home / "config.yaml").write_bytes(text.encode("latin-1"))
    found = harness.find(named, config=HOMES)
    assert list_ids(found) == ["zot:weather"]  # wherever it lies: the list could have named it
    assert [problem.folder.name for problem in found.problems] == ["named", "mine", "gate", "weather"]
    assert all(str(home / "config.yaml") in problem.reason for problem in found.problems)
    assert [problem.folder for problem in found.hidden_guards] == [gate]
    assert list_ids(harness.find(named)) == ["piglet:named", "piglet:mine", "zot:weather"]  # that home is not switched on


@pytest.mark.parametrize("trusted", [False, True])
def test_nor_a_projects_which_has_to_be_trusted_all_the_same(harness: Harness, trusted: bool) -> None:
    home = harness.root / ".config" / "piglet"
    guard = write_manifest(harness.project / ".piglet" / "extensions" / "ours", guest_toml="guard = true\n")
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("a: [")
    if trusted:
        harness.trust.allow(harness.project)
    found = harness.find(config=HOMES)
    assert [aside.manifest.folder for aside in found.untrusted] == ([] if trusted else [guard])
    assert [problem.folder for problem in found.hidden_guards] == ([guard] if trusted else [])


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\nb: *a\n",
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 9)),
        "<<: {a: b}\n",
        "a: " + "[" * 1000,
        "a: [" + "x," * 10_000 + "]\n",
        "a: " + "x" * 100_000,
        "a: " + "x" * (2 << 20),
    ],
    ids=["alias", "merged", "inline", "deep", "wide", "long", "endless"],
)
def test_what_is_small_to_write_and_large_to_build_is_not_read_there_either(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(BadSettings, match=r"config.yaml: (is not|cannot be) read: "):
        read_piglet_disabled(tmp_path)


@pytest.mark.parametrize("named", [True, False])
def test_a_guard_that_the_person_has_put_on_the_list_is_off(harness: Harness, named: bool) -> None:
    if named:
        write_manifest(harness.user / "gate", guest_toml="guard = true\n")
    found = harness.find(config={"disabled_extensions": ["gate"], "guest": {"piglet:gate": {"guard": True}}})
    assert (list_ids(found), found.hidden_guards) == ([], ())


# -- who has a name ---------------------------------------------------------------------------------------------------------------


def write_same_offers(place: Path, folder: str, **more: Any) -> Path:
    """A guest in that folder with a tool, a command and a shortcut that others offer too."""
    return piglet_guests.write(place, folder, tools={"same": folder}, commands={"same": []}, shortcuts={"ctrl+g": []}, **more)


@pytest.mark.req("piglet.fix.01")
@pytest.mark.parametrize("late", ["a", "b"])
async def test_the_last_in_the_order_of_folders_has_a_name_however_the_handshakes_end(tmp_path: Path, late: str) -> None:
    place, go = tmp_path / "home" / "guests", tmp_path / "go"
    for name, called in (("a", "z-called"), ("b", "a-called")):
        write_same_offers(place, name, manifest={"name": called}, at_init=[wait(go)] if name == late else None)
    host = build_host(tmp_path)
    starting = asyncio.create_task(host.start())
    try:
        await asyncio.sleep(0)
        await wait_for_state(host, "a-called" if late == "a" else "z-called", GuestState.READY)
        go.touch()
        await starting
        assert list(host.guests) == ["piglet:z-called", "piglet:a-called"]
        assert (await host.call_tool("same")).text == "b"
        assert host.table.commands["same"][0].id == host.table.shortcuts["ctrl+g"][0].id == "piglet:a-called"
        assert host.report.to_lines() == [
            f"piglet:z-called: its {what} is shadowed by that of piglet:a-called"
            for what in ("tool same", "command same", "shortcut ctrl+g")
        ]
        assert log_of(host, "z-called").count("its tool same is shadowed by that of piglet:a-called") == 1
    finally:
        await close_host(host)


@pytest.mark.req("piglet.fix.01")
async def test_a_projects_guest_has_a_name_before_all_of_the_persons(tmp_path: Path) -> None:
    write_same_offers(tmp_path / "home" / "guests", "z")
    write_same_offers(tmp_path / "project" / ".piglet" / "extensions", "a")
    Trust.usual({"SERAI_HOME": str(tmp_path / "home")}).allow(tmp_path / "project")
    async with open_host(tmp_path) as host:
        assert (await host.call_tool("same")).text == "a"


@pytest.mark.req("piglet.fix.11", "piglet.edge.26", "piglet.rule.crash-in-place")
async def test_stopping_the_later_of_two_restores_the_earlier_and_nothing_else_does(tmp_path: Path) -> None:
    folders = [write_same_offers(tmp_path, name) for name in ("earlier", "later")]
    async with open_host(tmp_path, *folders, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        later = host.guest("later")
        assert host.table.commands["same"][0] is later
        assert (await host.call_tool("same")).text == "later"
        os.kill(pid_of(host, "later"), signal.SIGKILL)
        await wait_for_state(host, "later", GuestState.BACKING_OFF)
        assert (await host.call_tool("same")).code == "TOOL_UNAVAILABLE"
        assert host.table.commands["same"][0] is later
        await later.stop()
        assert host.table.commands["same"][0] is host.guest("earlier")
        assert (await host.call_tool("same")).text == "earlier"
        assert host.table.shadowed == ()


@pytest.mark.req("piglet.fix.11")
async def test_stopping_the_earlier_takes_nothing_from_the_later(tmp_path: Path) -> None:
    folders = [write_same_offers(tmp_path, name) for name in ("earlier", "later")]
    async with open_host(tmp_path, *folders) as host:
        await host.guest("earlier").stop()
        assert (await host.call_tool("same")).text == "later"
        assert host.table.shortcuts["ctrl+g"][0].id == "piglet:later"
