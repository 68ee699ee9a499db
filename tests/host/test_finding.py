"""Who is found where, who wins, who is only reported, and what stops a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadManifest, BadSettings
from serai.host import adapters
from serai.host.discovery import DiscoveryResult, find_guests, piglet_home, zot_home
from tests.host import unprivileged
from tests.host.folders import House, folders, zot_guest


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.project.mkdir()
    return house


def reasons(found: DiscoveryResult) -> list[tuple[str, str]]:
    return [(problem.folder.name, problem.reason) for problem in found.problems]


# -- places


@pytest.mark.req("host.find.places")
@pytest.mark.req("zot.rule.1.2-places")
def test_guests_are_found_in_every_place_in_load_order(house: House, tmp_path: Path) -> None:
    for place in (".serai/guests", ".zot/extensions", ".piglet/extensions"):
        zot_guest(house.project / place / f"of{place.replace('/', '-')}")
    zot_guest(house.user / "user-b", name="a-first")
    zot_guest(house.user / "user-a", name="b-second")
    zot_guest(tmp_path / "zot" / "extensions" / "zots")
    zot_guest(tmp_path / ".config" / "piglet" / "extensions" / "piglets")
    adhoc = [zot_guest(tmp_path / "z-first"), zot_guest(tmp_path / "a-then")]
    house.trust.allow(house.project)
    found = house.find(*adhoc, config={"guests": {"homes": True}})
    assert folders(found) == [
        "z-first",
        "a-then",
        "of.serai-guests",
        "of.zot-extensions",
        "of.piglet-extensions",
        "user-b",
        "user-a",
        "zots",
        "piglets",
    ]
    scopes = ["ad hoc", "ad hoc", "project", "project", "project", "user", "user", "zot home", "piglet home"]
    assert [guest.scope for guest in found.guests] == scopes
    assert found.problems == ()


@pytest.mark.req("zot.rule.1.2-places")
def test_only_direct_folders_with_a_manifest_count_and_missing_places_are_fine(house: House) -> None:
    assert house.find() == DiscoveryResult()
    zot_guest(house.user / "weather" / "deeper" / "inner").parent.joinpath("x").touch()
    zot_guest(house.user / ".git")
    (house.user / "empty").mkdir()
    (house.user / "file").write_text("plain")
    assert house.find() == DiscoveryResult()


@pytest.mark.req("zot.edge.43")
def test_a_link_to_a_folder_is_followed_and_keeps_its_name(house: House, tmp_path: Path) -> None:
    zot_guest(tmp_path / "work" / "copy", name="weather", exec="./run")
    house.user.mkdir(parents=True)
    (house.user / "linked").symlink_to(tmp_path / "work" / "copy")
    [guest] = house.find().guests
    assert (guest.id, guest.folder) == ("zot:weather", house.user / "linked")
    assert guest.argv == (str(house.user / "linked" / "run"),)


@pytest.mark.req("host.find.homes")
@pytest.mark.req("zot.rule.1.2-trust")
def test_foreign_homes_are_searched_only_when_switched_on(house: House, tmp_path: Path) -> None:
    zot_guest(tmp_path / "zot" / "extensions" / "zots")
    assert house.find().guests == ()
    assert folders(house.find(config={"guests": {"homes": ["piglet"]}})) == []
    assert folders(house.find(config={"guests": {"homes": ["zot"]}})) == ["zots"]


@pytest.mark.req("zot.rule.1.1-home")
@pytest.mark.parametrize(
    ("environ", "platform", "home"),
    [
        ({"ZOT_HOME": "/z", "XDG_STATE_HOME": "/s"}, "linux", "/z"),
        ({"ZOT_HOME": "/z"}, "darwin", "/z"),
        ({"ZOT_HOME": "", "XDG_STATE_HOME": "/s"}, "linux", "/s/zot"),
        ({"XDG_STATE_HOME": ""}, "linux", "/me/.local/state/zot"),
        ({"XDG_STATE_HOME": "/s"}, "darwin", "/me/Library/Application Support/zot"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/zot"),
    ],
)
def test_zots_home_is_where_zot_has_it(environ: dict[str, str], platform: str, home: str) -> None:
    assert zot_home({"HOME": "/me", **environ}, platform) == Path(home)


def test_piglets_home_is_where_piglet_has_it() -> None:
    assert piglet_home({"HOME": "/me"}) == Path("/me/.config/piglet")
    assert piglet_home({"HOME": "/me", "XDG_CONFIG_HOME": "/c"}) == Path("/c/piglet")


@pytest.mark.req("zot.edge.44")
def test_relative_paths_are_made_absolute_before_anything_uses_them(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zot_guest(tmp_path / "adhoc", exec="./run")
    zot_guest(house.project / ".zot" / "extensions" / "weather", exec="bin/run")
    zot_guest(tmp_path / "zot" / "extensions" / "zots", exec="../run")
    house.trust.allow(house.project)
    monkeypatch.chdir(tmp_path)
    environ = {**house.environ, "ZOT_HOME": "zot"}
    found = find_guests(cwd=Path("project"), guests=[Path("adhoc")], config={"guests": {"homes": True}}, environ=environ)
    monkeypatch.chdir("/")
    assert [guest.argv[0] for guest in found.guests] == [
        str(tmp_path / "adhoc" / "run"),
        str(house.project / ".zot/extensions/weather/bin/run"),
        f"{tmp_path}/zot/extensions/zots/../run",
    ]
    assert all(guest.folder.is_absolute() and guest.file.is_file() for guest in found.guests)


@pytest.mark.req("zot.rule.1.2-no-ext")
def test_without_the_installed_ones_only_what_is_named_is_left(house: House, tmp_path: Path) -> None:
    zot_guest(house.user / "mine")
    zot_guest(house.project / ".zot" / "extensions" / "projects")
    house.trust.allow(house.project)
    found = house.find(zot_guest(tmp_path / "x"), installed=False, config={"guests": {"homes": True}})
    assert folders(found) == ["x"]
    assert (found.untrusted, found.disabled, found.shadowed) == ((), (), ())


def test_a_place_of_the_persons_own_inside_the_project_is_the_persons(tmp_path: Path) -> None:
    zot_guest(tmp_path / ".serai" / "guests" / "weather")
    found = find_guests(cwd=tmp_path, config={}, environ={"SERAI_HOME": str(tmp_path / ".serai")})
    assert [(guest.scope, guest.name) for guest in found.guests] == [("user", "weather")]
    assert (found.shadowed, found.untrusted) == ((), ())


# -- what a folder says


def test_what_is_found_says_all_that_the_manifest_says(house: House) -> None:
    folder = zot_guest(
        house.user / "weather",
        exec="./run",
        args=["main.py", "--hook=lib.js", "sh -c 'exec more.rb'"],
        version="1.2",
        language="py",
        description="d",
    )
    for name in ("run", "main.py", "lib.js", "more.rb", "unnamed.py"):
        (folder / name).touch()
    (folder / "guest.toml").write_text("exclusive = true")
    [guest] = house.find().guests
    assert (guest.id, guest.dialect, guest.version, guest.language, guest.description) == ("zot:weather", "zot", "1.2", "py", "d")
    assert guest.argv == (str(folder / "run"), "main.py", "--hook=lib.js", "sh -c 'exec more.rb'")
    assert [path.name for path in guest.sources] == ["extension.json", "guest.toml", "run", "main.py", "lib.js", "more.rb"]
    assert guest.settings.exclusive


@pytest.mark.req("zot.edge.45")
def test_a_bare_program_is_no_file_of_the_folder_even_if_there_is_one(house: House) -> None:
    folder = zot_guest(house.user / "weather", exec="run")
    (folder / "run").touch(mode=0o755)
    [guest] = house.find().guests
    assert guest.argv == ("run",)
    assert guest.sources == (folder / "extension.json",)


@pytest.mark.req("zot.rule.1.2-one-bad-guest", "zot.rule.1.3-required")
def test_each_broken_guest_is_one_problem_and_the_others_load(house: House, tmp_path: Path) -> None:
    for name, content in {"a": "{", "b": "{}", "c": '{"name": "c"}', "d": '{"name": 1, "exec": "x"}'}.items():
        (house.user / name).mkdir(parents=True)
        (house.user / name / "extension.json").write_text(content)
    (house.user / "e" / "extension.json").mkdir(parents=True)
    (house.user / "f").mkdir()
    os.mkfifo(house.user / "f" / "extension.json")
    (house.user / "g").mkdir()
    (house.user / "g" / "extension.json").symlink_to("gone")
    (house.user / "h").mkdir()
    (house.user / "h" / "extension.json").write_bytes(b" " * (1024 * 1024 + 1))
    zot_guest(house.user / "sound")
    found = house.find()
    assert folders(found) == ["sound"]
    assert [(name, reason[:31]) for name, reason in reasons(found)] == [
        ("a", "parse manifest: Input data was "),
        ("b", "manifest: name is required"),
        ("c", "manifest: exec is required"),
        ("d", "parse manifest: Expected `str |"),
        ("e", "read manifest: extension.json i"),
        ("f", "read manifest: extension.json i"),
        ("g", "read manifest: extension.json: "),
        ("h", "read manifest: extension.json i"),
    ]
    assert str(found.problems[1]) == f"{house.user / 'b'}: manifest: name is required"


def test_what_is_named_and_not_there_is_a_problem(house: House, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "bare").mkdir()
    found = house.find(tmp_path / "gone", tmp_path / "file", tmp_path / "bare")
    assert reasons(found) == [
        ("gone", "there is no such folder"),
        ("file", "not a directory; a guest is a folder with a manifest, and `serai guest bundle` prints the one for a bundle"),
        ("bare", "read manifest: there is none of extension.json, manifest.yaml, plugin.toml, guest.toml"),
    ]
    assert [problem.folder.name for problem in found.hidden_guards] == ["gone", "file", "bare"]  # they may have been guards


@pytest.mark.req("host.find.unbuilt")
def test_dialects_that_are_not_built_are_said_and_do_not_stop_others(house: House) -> None:
    tomls = {"alone": "guard = false", "later": 'dialect = "serai"', "typo": 'dialect = "zott"', "bare": 'dialect = "zot"'}
    for name, text in tomls.items():
        (house.user / name).mkdir(parents=True)
        (house.user / name / "guest.toml").write_text(text)
    (house.user / "wasm").mkdir()
    (house.user / "wasm" / "plugin.toml").write_text("")
    zot_guest(house.user / "sound")
    found = house.find()
    assert folders(found) == ["sound"]
    assert dict(reasons(found)) == {
        "alone": "guest.toml: it stands alone here, so it has to name a `dialect`",
        "bare": "read manifest: extension.json: No such file or directory",
        "later": "the dialect serai is not built yet",
        "typo": "guest.toml: there is no dialect zott",
        "wasm": "plugin.toml: the key `schema_version` is missing",
    }


def test_of_several_manifests_the_first_of_the_table_counts_and_the_others_are_reported(house: House) -> None:
    folder = zot_guest(house.user / "both")
    (folder / "plugin.toml").touch()
    (folder / "manifest.yaml").touch()
    found = house.find()
    assert [guest.dialect for guest in found.guests] == ["zot"]
    assert reasons(found) == [("both", "it has several manifests: extension.json counts, manifest.yaml, plugin.toml not")]


def test_the_author_may_choose_among_several_manifests(house: House) -> None:
    folder = zot_guest(house.user / "both", guest_toml='dialect = "yoi"')
    (folder / "plugin.toml").touch()
    assert reasons(house.find()) == [("both", "plugin.toml: the key `schema_version` is missing")]
    (folder / "guest.toml").write_text('dialect = "zot"')
    found = house.find()
    assert ([guest.dialect for guest in found.guests], reasons(found)) == (["zot"], [])  # and nothing is left to report


@pytest.mark.req("zot.rule.1.3-enabled")
def test_who_is_disabled_is_skipped_without_a_word_and_can_be_listed(house: House) -> None:
    zot_guest(house.user / "by-author", enabled=False)
    zot_guest(house.user / "by-person")
    zot_guest(house.user / "null", enabled=None)
    found = house.find(config={"guest": {"by-person": {"enabled": False}}})
    assert folders(found) == ["null"]
    assert [guest.name for guest in found.disabled] == ["by-author", "by-person"]
    assert (found.problems, found.hidden_guards) == ((), ())


def test_a_mistake_in_the_persons_settings_names_their_file(house: House) -> None:
    house.user.mkdir(parents=True)
    (house.user.parent / "config.toml").write_text("[guest.weather]\ngaurd = true\n")
    with pytest.raises(BadSettings, match="gaurd") as raised:
        house.find()
    assert raised.value.who == str(house.user.parent / "config.toml")


def test_the_persons_settings_are_read_from_their_file(house: House) -> None:
    zot_guest(house.user / "weather")
    (house.user.parent / "config.toml").write_text('[guest."zot:weather"]\nenv = ["A_TOKEN"]\n')
    assert house.find().guests[0].settings.env == ("A_TOKEN",)


# -- who wins


@pytest.mark.req("zot.ours.1.2-name-priority", "zot.ours.1.2-loser-reported")
def test_of_one_name_the_order_is_ad_hoc_project_user_and_then_the_folders_name(house: House, tmp_path: Path) -> None:
    order = [
        zot_guest(tmp_path / "z-adhoc", name="weather"),
        zot_guest(house.project / ".zot/extensions/y-project", name="weather"),
        zot_guest(house.user / "a-user", name="weather"),
        zot_guest(house.user / "b-user", name="weather"),
    ]
    house.trust.allow(house.project)
    for first, winner in enumerate(order):
        found = house.find(*order[:1] if first == 0 else ())
        assert [guest.folder for guest in found.guests] == [winner]  # only the winner would be started
        assert [problem.folder for problem in found.problems] == order[first + 1 :]
        assert [aside.manifest.folder for aside in found.shadowed] == order[first + 1 :]
        assert all(f"zot:weather is there already, from {winner}" in problem.reason for problem in found.problems)
        if first > 0:
            (winner / "extension.json").unlink()


@pytest.mark.req("zot.edge.46")
def test_of_two_named_ones_with_one_name_the_first_wins_every_time(house: House, tmp_path: Path) -> None:
    one, two = zot_guest(tmp_path / "one", name="weather"), zot_guest(tmp_path / "two", name="weather")
    assert [guest.folder for guest in house.find(one, two).guests] == [one]
    assert [guest.folder for guest in house.find(two, one).guests] == [two]
    assert reasons(house.find(two, one)) == [("one", f"zot:weather is there already, from {two}: this one is not started")]


def test_a_folder_that_is_found_twice_is_one_guest_and_no_problem(house: House) -> None:
    folder = zot_guest(house.project / ".zot" / "extensions" / "weather")
    found = house.find(folder, folder)
    assert [guest.scope for guest in found.guests] == ["ad hoc"]
    assert (found.problems, found.shadowed, found.untrusted) == ((), (), ())


@pytest.mark.req("zot.edge.42")
@pytest.mark.parametrize(
    "content", ['{"name": "other", "exec": "x", "enabled": false}', "{", None], ids=["disabled", "broken", "empty"]
)
def test_a_projects_folder_hides_the_persons_of_the_same_name(house: House, content: str | None) -> None:
    zot_guest(house.user / "weather")
    zot_guest(house.user / "sound")
    hider = house.project / ".zot" / "extensions" / "weather"
    hider.mkdir(parents=True)
    if content is not None:
        (hider / "extension.json").write_text(content)
    found = house.find()
    assert folders(found) == ["sound"]
    assert [(aside.manifest.folder, aside.reason) for aside in found.shadowed] == [(house.user / "weather", f"hidden by {hider}")]
    assert found.hidden_guards == ()


def test_a_projects_folders_do_not_hide_each_other(house: House) -> None:
    zot_guest(house.project / ".zot" / "extensions" / "same", name="one")
    zot_guest(house.project / ".piglet" / "extensions" / "same", name="two")
    house.trust.allow(house.project)
    assert [guest.name for guest in house.find().guests] == ["one", "two"]


# -- trust and guards


@pytest.mark.req("zot.rule.1.2-trust")
def test_a_projects_guests_wait_for_trust(house: House) -> None:
    zot_guest(house.project / ".zot" / "extensions" / "weather", guest_toml='env = ["A_TOKEN"]\nreplace = ["read"]')
    [untrusted] = house.find().untrusted
    assert (untrusted.manifest.id, untrusted.reason) == ("zot:weather", "it was never trusted")
    assert untrusted.manifest.settings.asked == ("env A_TOKEN", "replace read")
    assert house.find().guests == ()
    house.trust.allow(house.project)
    found = house.find()
    assert found.untrusted == ()
    assert (found.guests[0].settings.env, found.guests[0].settings.replace) == (("A_TOKEN",), ("read",))


def test_an_untrusted_guest_does_not_take_the_place_of_the_persons(house: House) -> None:
    zot_guest(house.project / ".zot" / "extensions" / "theirs", name="weather")
    zot_guest(house.user / "mine", name="weather", guest_toml="guard = true")
    found = house.find()
    assert folders(found) == ["mine"]
    assert (len(found.untrusted), found.hidden_guards) == (1, ())


GUARDS: list[tuple[str, dict[str, Any]]] = [
    ("guard = true", {}),
    ("", {"guest": {"keeper": {"guard": True}}}),
    ("", {"guest": {"zot:keeper": {"guard": True}}}),
]


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(("toml", "config"), GUARDS)
@pytest.mark.parametrize("trusted", [False, True])
def test_a_guard_that_a_project_hides_is_told(house: House, toml: str, config: dict[str, Any], trusted: bool) -> None:
    mine = zot_guest(house.user / "keeper", guest_toml=toml)
    hider = zot_guest(house.project / ".zot" / "extensions" / "keeper", name="other")
    if trusted:
        house.trust.allow(house.project)
    [hidden] = house.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"the project's {hider} hides this guard")


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(("toml", "config"), GUARDS)
def test_a_guard_that_a_project_displaces_by_its_id_is_told(house: House, toml: str, config: dict[str, Any]) -> None:
    mine = zot_guest(house.user / "keeper", guest_toml=toml)
    winner = zot_guest(house.project / ".zot" / "extensions" / "innocent", name="keeper")
    house.trust.allow(house.project)
    [hidden] = house.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"the project's {winner} takes the place of this guard")


def test_the_person_may_put_another_guard_in_a_guards_place_and_disable_guards(house: House, tmp_path: Path) -> None:
    zot_guest(house.user / "keeper", guest_toml="guard = true")
    zot_guest(house.user / "off", guest_toml="guard = true", enabled=False)
    zot_guest(house.project / ".zot" / "extensions" / "off")
    assert house.find(zot_guest(tmp_path / "mine", name="keeper", guest_toml="guard = true")).hidden_guards == ()


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(("toml", "config"), GUARDS)
def test_a_guard_that_any_other_displaces_by_its_id_is_told(house: House, toml: str, config: dict[str, Any]) -> None:
    """One that was just added and sorts first is no better than a project's."""
    mine = zot_guest(house.user / "keeper", guest_toml=toml)
    winner = zot_guest(house.user / "aaa", name="keeper")
    [hidden] = house.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"{winner} takes the place of this guard")


@pytest.mark.req("host.trust.hidden-guard")
def test_what_is_named_for_this_run_and_is_no_guard_does_not_take_the_place_of_one(house: House, tmp_path: Path) -> None:
    mine = zot_guest(house.user / "keeper", guest_toml="guard = true")
    evil = zot_guest(tmp_path / "evil", name="keeper")
    assert [str(hidden) for hidden in house.find(evil).hidden_guards] == [f"{mine}: {evil} takes the place of this guard"]


# -- guards that the settings name


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("key", ["keeper", "zot:keeper"])
@pytest.mark.parametrize("trusted", [False, True])
def test_a_disabled_guest_of_a_project_does_not_stand_in_for_a_guard(house: House, key: str, trusted: bool) -> None:
    zot_guest(house.project / ".zot" / "extensions" / "x", name="keeper", enabled=False)
    if trusted:
        house.trust.allow(house.project)
    [hidden] = house.find(config={"guest": {key: {"guard": True}}}).hidden_guards
    assert str(hidden) == hidden.reason == f"the guard {key} is named in the settings and was not found"
    assert hidden.folder == house.user.parent / "config.toml"


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("installed", [True, False])
def test_a_guest_with_an_id_for_a_name_does_not_stand_in_for_a_guard(house: House, tmp_path: Path, installed: bool) -> None:
    found = house.find(
        zot_guest(tmp_path / "x", name="zot:keeper"), config={"guest": {"zot:keeper": {"guard": True}}}, installed=installed
    )
    assert [hidden.reason for hidden in found.hidden_guards] == ["the guard zot:keeper is named in the settings and was not found"]


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_guard_of_the_persons_own_may_be_there_or_disabled(house: House, enabled: bool) -> None:
    zot_guest(house.user / "x", name="keeper", enabled=enabled)
    config = {"guest": {"keeper": {"guard": True}, "zot:keeper": {"guard": True}, "gone": {"guard": True, "enabled": False}}}
    assert house.find(config=config).hidden_guards == ()


# -- guards that were trusted


@pytest.fixture
def trusted_guard(house: House) -> Path:
    folder = zot_guest(house.project / ".zot" / "extensions" / "gate", args=["gate.py"], guest_toml="guard = true")
    (folder / "gate.py").write_text("one")
    house.trust.allow(house.project)
    assert (folders(house.find()), house.find().hidden_guards) == (["gate"], ())
    return folder


def disable(folder: Path) -> None:
    manifest = folder / "extension.json"
    manifest.write_text(manifest.read_text().replace("}", ', "enabled": false}'))


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (disable, "it is disabled now"),
        (lambda folder: (folder / "gate.py").write_text("two"), "it has changed since it was trusted: gate.py"),
        (lambda folder: (folder / "guest.toml").write_text(""), "it has changed since it was trusted: guest.toml"),
        (lambda folder: (folder / "extension.json").write_text("{"), "parse manifest: "),
        (lambda folder: folder.rename(folder.with_name("other")), "it is not there any more"),
    ],
)
def test_a_guard_of_a_trusted_project_is_not_switched_off_by_a_change(
    house: House, trusted_guard: Path, change: Callable[[Path], object], why: str
) -> None:
    change(trusted_guard)
    [hidden] = house.find().hidden_guards
    assert hidden.folder == trusted_guard
    assert hidden.reason.startswith(f"this guard was trusted: {why}")
    assert hidden.reason.endswith("; `serai trust` takes it as it is now")
    house.trust.allow(house.project)
    assert house.find().hidden_guards == ()


def test_the_person_may_switch_a_projects_guard_off(house: House, trusted_guard: Path) -> None:
    assert house.find(config={"guest": {"gate": {"enabled": False}}}).hidden_guards == ()
    assert house.find(trusted_guard).hidden_guards == ()
    assert house.find(installed=False).hidden_guards == ()
    house.trust.withdraw(house.project)
    assert house.find().hidden_guards == ()


# -- what cannot be seen


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("target", ["nowhere", "loop"])
def test_a_link_that_leads_nowhere_may_have_been_a_guard(house: House, target: str) -> None:
    for place in (house.user, house.project / ".zot" / "extensions"):
        place.mkdir(parents=True)
        (place / "loop").symlink_to(target)
    found = house.find()
    [hidden] = found.hidden_guards  # a project's own counts for nothing
    assert hidden.folder == house.user / "loop"
    assert hidden.reason.startswith("it cannot be told whether this is a guard: read manifest: ")
    assert [problem.folder.parent for problem in found.problems] == [house.project / ".zot/extensions", house.user]


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("target", ["nowhere", "guests"])
def test_a_place_that_cannot_be_searched_may_have_a_guard(house: House, target: str) -> None:
    house.user.parent.mkdir(parents=True)
    house.user.symlink_to(target)
    found = house.find()
    [hidden] = found.hidden_guards
    assert hidden.folder == house.user
    assert hidden.reason.startswith("it cannot be told whether there is a guard: cannot be searched: ")
    assert [problem.folder for problem in found.problems] == [house.user]


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("mode", ["0o600", "0o300", "0o000"])
def test_a_place_that_cannot_be_entered_may_have_a_guard(mode: str) -> None:
    with unprivileged.folder() as folder:
        zot_guest(folder / "home" / "guests" / "keeper", guest_toml="guard = true")
        script = f"os.chmod('home/guests', {mode}); print(*(h.reason for h in find().hidden_guards), sep='\\n')"
        told = unprivileged.run(folder, script).splitlines()
    assert len(told) == 1
    assert told[0].startswith("it cannot be told whether th")
    assert told[0].endswith("Permission denied")


def test_a_projects_link_that_leads_nowhere_hides_nothing(house: House) -> None:
    zot_guest(house.user / "weather")
    (house.project / ".zot" / "extensions").mkdir(parents=True)
    (house.project / ".zot" / "extensions" / "weather").symlink_to("nowhere")
    assert folders(house.find()) == ["weather"]


def test_a_guest_toml_that_is_long_or_slow_to_read_is_not_read(house: House) -> None:
    zot_guest(house.user / "long", guest_toml="#" * 8200)
    zot_guest(house.user / "slow", guest_toml="a." * 2000 + "a = 1")
    zot_guest(house.user / "deep", guest_toml="a = " + "[" * 8000)
    assert [(name, reason[:50]) for name, reason in reasons(house.find())] == [
        ("deep", "guest.toml: maximum recursion depth exceeded"),
        ("long", "read manifest: guest.toml is longer than 8192 bytes"[:50]),
        ("slow", "guest.toml: a line with more than 50 dots"),
    ]


def test_an_empty_path_is_a_mistake_and_not_this_folder(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(zot_guest(tmp_path / "here"))
    with pytest.raises(BadSettings, match="the path is empty"):
        find_guests(cwd=house.project, guests=[""], config={}, environ=house.environ)
    with pytest.raises(BadSettings, match="the path is empty"):
        find_guests(cwd="", config={}, environ=house.environ)


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(
    ("toml", "manifest", "reason"),
    [
        ("guard = true", "{", "this guard cannot be read: parse manifest: "),
        ("guard = ", '{"name": "a", "exec": "x"}', "it cannot be told whether this is a guard: guest.toml: "),
    ],
)
def test_a_guard_that_cannot_be_read_is_not_taken_for_none(house: House, toml: str, manifest: str, reason: str) -> None:
    for folder in (house.user / "keeper", house.project / ".zot" / "extensions" / "theirs"):
        folder.mkdir(parents=True)
        (folder / "guest.toml").write_text(toml)
        (folder / "extension.json").write_text(manifest)
    [hidden] = house.find().hidden_guards  # a project's own counts for nothing
    assert hidden.folder == house.user / "keeper"
    assert hidden.reason.startswith(reason)


# -- the table


def test_every_manifest_file_belongs_to_one_dialect() -> None:
    assert [row.manifest for row in adapters.DIALECTS.values()] == ["extension.json", "manifest.yaml", "plugin.toml", "guest.toml"]


def test_an_adapter_that_is_not_built_is_a_clear_error() -> None:
    with pytest.raises(BadManifest, match="the dialect serai is not built yet"):
        adapters.adapter("serai")
    with pytest.raises(BadManifest, match="the dialect nonsense is not built yet"):
        adapters.adapter("nonsense")


def test_an_adapter_is_imported_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters.DIALECTS, "zot", adapters.DialectRow("extension.json", "os.path:join"))
    found: object = adapters.adapter("zot")
    assert found is os.path.join


@pytest.mark.req("host.find.entry-points")
def test_other_packages_add_dialects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").write_text("[serai.guests]\nother = os.path:join\n")
    assert not adapters.is_built("other")
    monkeypatch.syspath_prepend(tmp_path)
    assert adapters.is_built("other")
    found: object = adapters.adapter("other")
    assert found is os.path.join
