"""Who is found where, who wins, who is only reported, and what stops a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadManifest, BadSettings
from serai.host import adapters
from serai.host.discovery import DiscoveryResult, find_guests, find_piglet_home, find_zot_home
from tests.support.host import unprivileged_user
from tests.support.host.guest_folders import Harness, folders, list_reasons, write_zot_guest


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.project.mkdir()
    return harness


# -- places


@pytest.mark.req("host.find.places")
@pytest.mark.req("zot.rule.1.2-places")
def test_guests_are_found_in_every_place_in_load_order(harness: Harness, tmp_path: Path) -> None:
    for place in (".serai/guests", ".zot/extensions", ".piglet/extensions"):
        write_zot_guest(harness.project / place / f"of{place.replace('/', '-')}")
    write_zot_guest(harness.user / "user-b", name="a-first")
    write_zot_guest(harness.user / "user-a", name="b-second")
    write_zot_guest(tmp_path / "zot" / "extensions" / "zots")
    write_zot_guest(tmp_path / ".config" / "piglet" / "extensions" / "piglets")
    adhoc = [write_zot_guest(tmp_path / "z-first"), write_zot_guest(tmp_path / "a-then")]
    harness.trust.allow(harness.project)
    found = harness.find(*adhoc, config={"guests": {"homes": True}})
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
def test_only_direct_folders_with_a_manifest_count_and_missing_places_are_fine(harness: Harness) -> None:
    assert harness.find() == DiscoveryResult()
    write_zot_guest(harness.user / "weather" / "deeper" / "inner").parent.joinpath("x").touch()
    write_zot_guest(harness.user / ".git")
    (harness.user / "empty").mkdir()
    (harness.user / "file").write_text("plain")
    assert harness.find() == DiscoveryResult()


@pytest.mark.req("zot.edge.43")
def test_a_link_to_a_folder_is_followed_and_keeps_its_name(harness: Harness, tmp_path: Path) -> None:
    write_zot_guest(tmp_path / "work" / "copy", name="weather", exec="./run")
    harness.user.mkdir(parents=True)
    (harness.user / "linked").symlink_to(tmp_path / "work" / "copy")
    [guest] = harness.find().guests
    assert (guest.id, guest.folder) == ("zot:weather", harness.user / "linked")
    assert guest.argv == (str(harness.user / "linked" / "run"),)


@pytest.mark.req("host.find.homes")
@pytest.mark.req("zot.rule.1.2-trust")
def test_foreign_homes_are_searched_only_when_switched_on(harness: Harness, tmp_path: Path) -> None:
    write_zot_guest(tmp_path / "zot" / "extensions" / "zots")
    assert harness.find().guests == ()
    assert folders(harness.find(config={"guests": {"homes": ["piglet"]}})) == []
    assert folders(harness.find(config={"guests": {"homes": ["zot"]}})) == ["zots"]


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
    assert find_zot_home({"HOME": "/me", **environ}, platform) == Path(home)


def test_piglets_home_is_where_piglet_has_it() -> None:
    assert find_piglet_home({"HOME": "/me"}) == Path("/me/.config/piglet")
    assert find_piglet_home({"HOME": "/me", "XDG_CONFIG_HOME": "/c"}) == Path("/c/piglet")


@pytest.mark.req("zot.edge.44")
def test_relative_paths_are_made_absolute_before_anything_uses_them(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_zot_guest(tmp_path / "adhoc", exec="./run")
    write_zot_guest(harness.project / ".zot" / "extensions" / "weather", exec="bin/run")
    write_zot_guest(tmp_path / "zot" / "extensions" / "zots", exec="../run")
    harness.trust.allow(harness.project)
    monkeypatch.chdir(tmp_path)
    environ = {**harness.environ, "ZOT_HOME": "zot"}
    found = find_guests(cwd=Path("project"), guests=[Path("adhoc")], config={"guests": {"homes": True}}, environ=environ)
    monkeypatch.chdir("/")
    assert [guest.argv[0] for guest in found.guests] == [
        str(tmp_path / "adhoc" / "run"),
        str(harness.project / ".zot/extensions/weather/bin/run"),
        f"{tmp_path}/zot/extensions/zots/../run",
    ]
    assert all(guest.folder.is_absolute() and guest.file.is_file() for guest in found.guests)


@pytest.mark.req("zot.rule.1.2-no-ext")
def test_without_the_installed_ones_only_what_is_named_is_left(harness: Harness, tmp_path: Path) -> None:
    write_zot_guest(harness.user / "mine")
    write_zot_guest(harness.project / ".zot" / "extensions" / "projects")
    harness.trust.allow(harness.project)
    found = harness.find(write_zot_guest(tmp_path / "x"), installed=False, config={"guests": {"homes": True}})
    assert folders(found) == ["x"]
    assert (found.untrusted, found.disabled, found.shadowed) == ((), (), ())


def test_a_place_of_the_persons_own_inside_the_project_is_the_persons(tmp_path: Path) -> None:
    write_zot_guest(tmp_path / ".serai" / "guests" / "weather")
    found = find_guests(cwd=tmp_path, config={}, environ={"SERAI_HOME": str(tmp_path / ".serai")})
    assert [(guest.scope, guest.name) for guest in found.guests] == [("user", "weather")]
    assert (found.shadowed, found.untrusted) == ((), ())


# -- what a folder says


def test_what_is_found_says_all_that_the_manifest_says(harness: Harness) -> None:
    folder = write_zot_guest(
        harness.user / "weather",
        exec="./run",
        args=["main.py", "--hook=lib.js", "sh -c 'exec more.rb'"],
        version="1.2",
        language="py",
        description="d",
    )
    for name in ("run", "main.py", "lib.js", "more.rb", "unnamed.py"):
        (folder / name).touch()
    (folder / "guest.toml").write_text("exclusive = true")
    [guest] = harness.find().guests
    assert (guest.id, guest.dialect, guest.version, guest.language, guest.description) == ("zot:weather", "zot", "1.2", "py", "d")
    assert guest.argv == (str(folder / "run"), "main.py", "--hook=lib.js", "sh -c 'exec more.rb'")
    assert [path.name for path in guest.sources] == ["extension.json", "guest.toml", "run", "main.py", "lib.js", "more.rb"]
    assert guest.settings.exclusive


@pytest.mark.req("zot.edge.45")
def test_a_bare_program_is_no_file_of_the_folder_even_if_there_is_one(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "weather", exec="run")
    (folder / "run").touch(mode=0o755)
    [guest] = harness.find().guests
    assert guest.argv == ("run",)
    assert guest.sources == (folder / "extension.json",)


@pytest.mark.req("zot.rule.1.2-one-bad-guest", "zot.rule.1.3-required")
def test_each_broken_guest_is_one_problem_and_the_others_load(harness: Harness, tmp_path: Path) -> None:
    for name, content in {"a": "{", "b": "{}", "c": '{"name": "c"}', "d": '{"name": 1, "exec": "x"}'}.items():
        (harness.user / name).mkdir(parents=True)
        (harness.user / name / "extension.json").write_text(content)
    (harness.user / "e" / "extension.json").mkdir(parents=True)
    (harness.user / "f").mkdir()
    os.mkfifo(harness.user / "f" / "extension.json")
    (harness.user / "g").mkdir()
    (harness.user / "g" / "extension.json").symlink_to("gone")
    (harness.user / "h").mkdir()
    (harness.user / "h" / "extension.json").write_bytes(b" " * (1024 * 1024 + 1))
    write_zot_guest(harness.user / "sound")
    found = harness.find()
    assert folders(found) == ["sound"]
    assert [(name, reason[:31]) for name, reason in list_reasons(found)] == [
        ("a", "parse manifest: Input data was "),
        ("b", "manifest: name is required"),
        ("c", "manifest: exec is required"),
        ("d", "parse manifest: Expected `str |"),
        ("e", "read manifest: extension.json i"),
        ("f", "read manifest: extension.json i"),
        ("g", "read manifest: extension.json: "),
        ("h", "read manifest: extension.json i"),
    ]
    assert str(found.problems[1]) == f"{harness.user / 'b'}: manifest: name is required"


def test_what_is_named_and_not_there_is_a_problem(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "bare").mkdir()
    found = harness.find(tmp_path / "gone", tmp_path / "file", tmp_path / "bare")
    assert list_reasons(found) == [
        ("gone", "there is no such folder"),
        ("file", "not a directory; a guest is a folder with a manifest, and `serai guest bundle` prints the one for a bundle"),
        ("bare", "read manifest: there is none of extension.json, manifest.yaml, plugin.toml, guest.toml"),
    ]
    assert [problem.folder.name for problem in found.hidden_guards] == ["gone", "file", "bare"]  # they may have been guards


@pytest.mark.req("host.find.unbuilt")
def test_dialects_that_are_not_built_are_said_and_do_not_stop_others(harness: Harness) -> None:
    tomls = {"alone": "guard = false", "later": 'dialect = "serai"', "typo": 'dialect = "zott"', "bare": 'dialect = "zot"'}
    for name, text in tomls.items():
        (harness.user / name).mkdir(parents=True)
        (harness.user / name / "guest.toml").write_text(text)
    (harness.user / "wasm").mkdir()
    (harness.user / "wasm" / "plugin.toml").write_text("")
    write_zot_guest(harness.user / "sound")
    found = harness.find()
    assert folders(found) == ["sound"]
    assert dict(list_reasons(found)) == {
        "alone": "guest.toml: it stands alone here, so it has to name a `dialect`",
        "bare": "read manifest: extension.json: No such file or directory",
        "later": "the dialect serai is not built yet",
        "typo": "guest.toml: there is no dialect zott",
        "wasm": "plugin.toml: the key `schema_version` is missing",
    }


def test_of_several_manifests_the_first_of_the_table_counts_and_the_others_are_reported(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "both")
    (folder / "plugin.toml").touch()
    (folder / "manifest.yaml").touch()
    found = harness.find()
    assert [guest.dialect for guest in found.guests] == ["zot"]
    assert list_reasons(found) == [("both", "it has several manifests: extension.json counts, manifest.yaml, plugin.toml not")]


def test_the_author_may_choose_among_several_manifests(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "both", guest_toml='dialect = "yoi"')
    (folder / "plugin.toml").touch()
    assert list_reasons(harness.find()) == [("both", "plugin.toml: the key `schema_version` is missing")]
    (folder / "guest.toml").write_text('dialect = "zot"')
    found = harness.find()
    assert ([guest.dialect for guest in found.guests], list_reasons(found)) == (["zot"], [])  # and nothing is left to report


@pytest.mark.req("zot.rule.1.3-enabled")
def test_who_is_disabled_is_skipped_without_a_word_and_can_be_listed(harness: Harness) -> None:
    write_zot_guest(harness.user / "by-author", enabled=False)
    write_zot_guest(harness.user / "by-person")
    write_zot_guest(harness.user / "null", enabled=None)
    found = harness.find(config={"guest": {"by-person": {"enabled": False}}})
    assert folders(found) == ["null"]
    assert [guest.name for guest in found.disabled] == ["by-author", "by-person"]
    assert (found.problems, found.hidden_guards) == ((), ())


def test_a_mistake_in_the_persons_settings_names_their_file(harness: Harness) -> None:
    harness.user.mkdir(parents=True)
    (harness.user.parent / "config.toml").write_text("[guest.weather]\ngaurd = true\n")
    with pytest.raises(BadSettings, match="gaurd") as raised:
        harness.find()
    assert raised.value.who == str(harness.user.parent / "config.toml")


def test_the_persons_settings_are_read_from_their_file(harness: Harness) -> None:
    write_zot_guest(harness.user / "weather")
    (harness.user.parent / "config.toml").write_text('[guest."zot:weather"]\nenv = ["A_TOKEN"]\n')
    assert harness.find().guests[0].settings.env == ("A_TOKEN",)


# -- who wins


@pytest.mark.req("zot.ours.1.2-name-priority", "zot.ours.1.2-loser-reported")
def test_of_one_name_the_order_is_ad_hoc_project_user_and_then_the_folders_name(harness: Harness, tmp_path: Path) -> None:
    order = [
        write_zot_guest(tmp_path / "z-adhoc", name="weather"),
        write_zot_guest(harness.project / ".zot/extensions/y-project", name="weather"),
        write_zot_guest(harness.user / "a-user", name="weather"),
        write_zot_guest(harness.user / "b-user", name="weather"),
    ]
    harness.trust.allow(harness.project)
    for first, winner in enumerate(order):
        found = harness.find(*order[:1] if first == 0 else ())
        assert [guest.folder for guest in found.guests] == [winner]  # only the winner would be started
        assert [problem.folder for problem in found.problems] == order[first + 1 :]
        assert [aside.manifest.folder for aside in found.shadowed] == order[first + 1 :]
        assert all(f"zot:weather is there already, from {winner}" in problem.reason for problem in found.problems)
        if first > 0:
            (winner / "extension.json").unlink()


@pytest.mark.req("zot.edge.46")
def test_of_two_named_ones_with_one_name_the_first_wins_every_time(harness: Harness, tmp_path: Path) -> None:
    one, two = write_zot_guest(tmp_path / "one", name="weather"), write_zot_guest(tmp_path / "two", name="weather")
    assert [guest.folder for guest in harness.find(one, two).guests] == [one]
    assert [guest.folder for guest in harness.find(two, one).guests] == [two]
    assert list_reasons(harness.find(two, one)) == [("one", f"zot:weather is there already, from {two}: this one is not started")]


def test_a_folder_that_is_found_twice_is_one_guest_and_no_problem(harness: Harness) -> None:
    folder = write_zot_guest(harness.project / ".zot" / "extensions" / "weather")
    found = harness.find(folder, folder)
    assert [guest.scope for guest in found.guests] == ["ad hoc"]
    assert (found.problems, found.shadowed, found.untrusted) == ((), (), ())


@pytest.mark.req("zot.edge.42")
@pytest.mark.parametrize(
    "content", ['{"name": "other", "exec": "x", "enabled": false}', "{", None], ids=["disabled", "broken", "empty"]
)
def test_a_projects_folder_hides_the_persons_of_the_same_name(harness: Harness, content: str | None) -> None:
    write_zot_guest(harness.user / "weather")
    write_zot_guest(harness.user / "sound")
    hider = harness.project / ".zot" / "extensions" / "weather"
    hider.mkdir(parents=True)
    if content is not None:
        (hider / "extension.json").write_text(content)
    found = harness.find()
    assert folders(found) == ["sound"]
    assert [(aside.manifest.folder, aside.reason) for aside in found.shadowed] == [(harness.user / "weather", f"hidden by {hider}")]
    assert found.hidden_guards == ()


def test_a_projects_folders_do_not_hide_each_other(harness: Harness) -> None:
    write_zot_guest(harness.project / ".zot" / "extensions" / "same", name="one")
    write_zot_guest(harness.project / ".piglet" / "extensions" / "same", name="two")
    harness.trust.allow(harness.project)
    assert [guest.name for guest in harness.find().guests] == ["one", "two"]


# -- trust and guards


@pytest.mark.req("zot.rule.1.2-trust")
def test_a_projects_guests_wait_for_trust(harness: Harness) -> None:
    write_zot_guest(harness.project / ".zot" / "extensions" / "weather", guest_toml='env = ["A_TOKEN"]\nreplace = ["read"]')
    [untrusted] = harness.find().untrusted
    assert (untrusted.manifest.id, untrusted.reason) == ("zot:weather", "it was never trusted")
    assert untrusted.manifest.settings.asked == ("env A_TOKEN", "replace read")
    assert harness.find().guests == ()
    harness.trust.allow(harness.project)
    found = harness.find()
    assert found.untrusted == ()
    assert (found.guests[0].settings.env, found.guests[0].settings.replace) == (("A_TOKEN",), ("read",))


def test_an_untrusted_guest_does_not_take_the_place_of_the_persons(harness: Harness) -> None:
    write_zot_guest(harness.project / ".zot" / "extensions" / "theirs", name="weather")
    write_zot_guest(harness.user / "mine", name="weather", guest_toml="guard = true")
    found = harness.find()
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
def test_a_guard_that_a_project_hides_is_told(harness: Harness, toml: str, config: dict[str, Any], trusted: bool) -> None:
    mine = write_zot_guest(harness.user / "keeper", guest_toml=toml)
    hider = write_zot_guest(harness.project / ".zot" / "extensions" / "keeper", name="other")
    if trusted:
        harness.trust.allow(harness.project)
    [hidden] = harness.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"the project's {hider} hides this guard")


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(("toml", "config"), GUARDS)
def test_a_guard_that_a_project_displaces_by_its_id_is_told(harness: Harness, toml: str, config: dict[str, Any]) -> None:
    mine = write_zot_guest(harness.user / "keeper", guest_toml=toml)
    winner = write_zot_guest(harness.project / ".zot" / "extensions" / "innocent", name="keeper")
    harness.trust.allow(harness.project)
    [hidden] = harness.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"the project's {winner} takes the place of this guard")


def test_the_person_may_put_another_guard_in_a_guards_place_and_disable_guards(harness: Harness, tmp_path: Path) -> None:
    write_zot_guest(harness.user / "keeper", guest_toml="guard = true")
    write_zot_guest(harness.user / "off", guest_toml="guard = true", enabled=False)
    write_zot_guest(harness.project / ".zot" / "extensions" / "off")
    assert harness.find(write_zot_guest(tmp_path / "mine", name="keeper", guest_toml="guard = true")).hidden_guards == ()


@pytest.mark.req("host.trust.hidden-guard")
@pytest.mark.parametrize(("toml", "config"), GUARDS)
def test_a_guard_that_any_other_displaces_by_its_id_is_told(harness: Harness, toml: str, config: dict[str, Any]) -> None:
    """One that was just added and sorts first is no better than a project's."""
    mine = write_zot_guest(harness.user / "keeper", guest_toml=toml)
    winner = write_zot_guest(harness.user / "aaa", name="keeper")
    [hidden] = harness.find(config=config).hidden_guards
    assert (hidden.folder, hidden.reason) == (mine, f"{winner} takes the place of this guard")


@pytest.mark.req("host.trust.hidden-guard")
def test_what_is_named_for_this_run_and_is_no_guard_does_not_take_the_place_of_one(harness: Harness, tmp_path: Path) -> None:
    mine = write_zot_guest(harness.user / "keeper", guest_toml="guard = true")
    evil = write_zot_guest(tmp_path / "evil", name="keeper")
    assert [str(hidden) for hidden in harness.find(evil).hidden_guards] == [f"{mine}: {evil} takes the place of this guard"]


# -- guards that the settings name


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("key", ["keeper", "zot:keeper"])
@pytest.mark.parametrize("trusted", [False, True])
def test_a_disabled_guest_of_a_project_does_not_stand_in_for_a_guard(harness: Harness, key: str, trusted: bool) -> None:
    write_zot_guest(harness.project / ".zot" / "extensions" / "x", name="keeper", enabled=False)
    if trusted:
        harness.trust.allow(harness.project)
    [hidden] = harness.find(config={"guest": {key: {"guard": True}}}).hidden_guards
    assert str(hidden) == hidden.reason == f"the guard {key} is named in the settings and was not found"
    assert hidden.folder == harness.user.parent / "config.toml"


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("installed", [True, False])
def test_a_guest_with_an_id_for_a_name_does_not_stand_in_for_a_guard(harness: Harness, tmp_path: Path, installed: bool) -> None:
    found = harness.find(
        write_zot_guest(tmp_path / "x", name="zot:keeper"), config={"guest": {"zot:keeper": {"guard": True}}}, installed=installed
    )
    assert [hidden.reason for hidden in found.hidden_guards] == ["the guard zot:keeper is named in the settings and was not found"]


@pytest.mark.req("host.guard.missing")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_guard_of_the_persons_own_may_be_there_or_disabled(harness: Harness, enabled: bool) -> None:
    write_zot_guest(harness.user / "x", name="keeper", enabled=enabled)
    config = {"guest": {"keeper": {"guard": True}, "zot:keeper": {"guard": True}, "gone": {"guard": True, "enabled": False}}}
    assert harness.find(config=config).hidden_guards == ()


# -- guards that were trusted


@pytest.fixture
def trusted_guard(harness: Harness) -> Path:
    folder = write_zot_guest(harness.project / ".zot" / "extensions" / "gate", args=["gate.py"], guest_toml="guard = true")
    (folder / "gate.py").write_text("one")
    harness.trust.allow(harness.project)
    assert (folders(harness.find()), harness.find().hidden_guards) == (["gate"], ())
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
    harness: Harness, trusted_guard: Path, change: Callable[[Path], object], why: str
) -> None:
    change(trusted_guard)
    [hidden] = harness.find().hidden_guards
    assert hidden.folder == trusted_guard
    assert hidden.reason.startswith(f"this guard was trusted: {why}")
    assert hidden.reason.endswith("; `serai trust` takes it as it is now")
    harness.trust.allow(harness.project)
    assert harness.find().hidden_guards == ()


def test_the_person_may_switch_a_projects_guard_off(harness: Harness, trusted_guard: Path) -> None:
    assert harness.find(config={"guest": {"gate": {"enabled": False}}}).hidden_guards == ()
    assert harness.find(trusted_guard).hidden_guards == ()
    assert harness.find(installed=False).hidden_guards == ()
    harness.trust.withdraw(harness.project)
    assert harness.find().hidden_guards == ()


# -- what cannot be seen


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("target", ["nowhere", "loop"])
def test_a_link_that_leads_nowhere_may_have_been_a_guard(harness: Harness, target: str) -> None:
    for place in (harness.user, harness.project / ".zot" / "extensions"):
        place.mkdir(parents=True)
        (place / "loop").symlink_to(target)
    found = harness.find()
    [hidden] = found.hidden_guards  # a project's own counts for nothing
    assert hidden.folder == harness.user / "loop"
    assert hidden.reason.startswith("it cannot be told whether this is a guard: read manifest: ")
    assert [problem.folder.parent for problem in found.problems] == [harness.project / ".zot/extensions", harness.user]


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("target", ["nowhere", "guests"])
def test_a_place_that_cannot_be_searched_may_have_a_guard(harness: Harness, target: str) -> None:
    harness.user.parent.mkdir(parents=True)
    harness.user.symlink_to(target)
    found = harness.find()
    [hidden] = found.hidden_guards
    assert hidden.folder == harness.user
    assert hidden.reason.startswith("it cannot be told whether there is a guard: cannot be searched: ")
    assert [problem.folder for problem in found.problems] == [harness.user]


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize("mode", ["0o600", "0o300", "0o000"])
def test_a_place_that_cannot_be_entered_may_have_a_guard(mode: str) -> None:
    with unprivileged_user.make_folder() as folder:
        write_zot_guest(folder / "home" / "guests" / "keeper", guest_toml="guard = true")
        script = f"os.chmod('home/guests', {mode}); print(*(h.reason for h in find().hidden_guards), sep='\\n')"
        told = unprivileged_user.run(folder, script).splitlines()
    assert len(told) == 1
    assert told[0].startswith("it cannot be told whether th")
    assert told[0].endswith("Permission denied")


def test_a_projects_link_that_leads_nowhere_hides_nothing(harness: Harness) -> None:
    write_zot_guest(harness.user / "weather")
    (harness.project / ".zot" / "extensions").mkdir(parents=True)
    (harness.project / ".zot" / "extensions" / "weather").symlink_to("nowhere")
    assert folders(harness.find()) == ["weather"]


def test_a_guest_toml_that_is_long_or_slow_to_read_is_not_read(harness: Harness) -> None:
    write_zot_guest(harness.user / "long", guest_toml="#" * 8200)
    write_zot_guest(harness.user / "slow", guest_toml="a." * 2000 + "a = 1")
    write_zot_guest(harness.user / "deep", guest_toml="a = " + "[" * 8000)
    assert [(name, reason[:50]) for name, reason in list_reasons(harness.find())] == [
        ("deep", "guest.toml: maximum recursion depth exceeded"),
        ("long", "read manifest: guest.toml is longer than 8192 bytes"[:50]),
        ("slow", "guest.toml: a line with more than 50 dots"),
    ]


def test_an_empty_path_is_a_mistake_and_not_this_folder(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_zot_guest(tmp_path / "here"))
    with pytest.raises(BadSettings, match="the path is empty"):
        find_guests(cwd=harness.project, guests=[""], config={}, environ=harness.environ)
    with pytest.raises(BadSettings, match="the path is empty"):
        find_guests(cwd="", config={}, environ=harness.environ)


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(
    ("toml", "manifest", "reason"),
    [
        ("guard = true", "{", "this guard cannot be read: parse manifest: "),
        ("guard = ", '{"name": "a", "exec": "x"}', "it cannot be told whether this is a guard: guest.toml: "),
    ],
)
def test_a_guard_that_cannot_be_read_is_not_taken_for_none(harness: Harness, toml: str, manifest: str, reason: str) -> None:
    for folder in (harness.user / "keeper", harness.project / ".zot" / "extensions" / "theirs"):
        folder.mkdir(parents=True)
        (folder / "guest.toml").write_text(toml)
        (folder / "extension.json").write_text(manifest)
    [hidden] = harness.find().hidden_guards  # a project's own counts for nothing
    assert hidden.folder == harness.user / "keeper"
    assert hidden.reason.startswith(reason)


# -- the table


def test_every_manifest_file_belongs_to_one_dialect() -> None:
    assert [row.manifest for row in adapters.DIALECTS.values()] == ["extension.json", "manifest.yaml", "plugin.toml", "guest.toml"]


def test_an_adapter_that_is_not_built_is_a_clear_error() -> None:
    with pytest.raises(BadManifest, match="the dialect serai is not built yet"):
        adapters.load_adapter("serai")
    with pytest.raises(BadManifest, match="the dialect nonsense is not built yet"):
        adapters.load_adapter("nonsense")


def test_an_adapter_is_imported_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters.DIALECTS, "zot", adapters.DialectRow("extension.json", "os.path:join"))
    found: object = adapters.load_adapter("zot")
    assert found is os.path.join


@pytest.mark.req("host.find.entry-points")
def test_other_packages_add_dialects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").write_text("[serai.guests]\nother = os.path:join\n")
    assert not adapters.is_built("other")
    monkeypatch.syspath_prepend(tmp_path)
    assert adapters.is_built("other")
    found: object = adapters.load_adapter("other")
    assert found is os.path.join
