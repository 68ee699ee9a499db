"""Plugins among all guests: who is started, who is off, refused, not trusted, and why (spec yoi 9, 10)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai import paths
from serai.app.config import Config
from serai.errors import BadSettings
from serai.host.adapters.yoi import finder
from serai.host.adapters.yoi.finder import build_plan
from serai.host.discovery import DiscoveryResult, find_guests
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package import compute_digest
from tests.support.host.guest_folders import Harness, list_ids, list_reasons, write_zot_guest
from tests.support.yoi.plugin_packages import enable, enable_ids, files, grant, write_folder, write_package

ECHO = files()


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def store(harness: Harness) -> Path:
    return harness.project / ".serai" / "guests"


def list_refused(found: DiscoveryResult) -> dict[str, str]:
    return {aside.manifest.folder.name: aside.reason for aside in found.refused}


# -- on and off


@pytest.mark.req("yoi.rule.053", "yoi.rule.070")
def test_a_plugin_that_was_granted_is_a_guest_with_its_plan(harness: Harness) -> None:
    path = write_package(harness.user)
    found = harness.find(config=enable(grant("user:echo", ECHO, config={"loud": True})))
    assert (list_ids(found), found.problems, found.refused) == (["yoi:echo"], (), ())
    [guest] = found.guests
    assert (guest.argv, guest.folder, guest.sources, guest.version) == ((), path, (path,), "0.1.0")
    assert (guest.plan.identity, guest.plan.digest, guest.plan.config) == ("user:echo", compute_digest(ECHO), {"loud": True})
    assert guest.about.identity == "user:echo"


@pytest.mark.req("yoi.rule.060")
def test_a_record_holds_what_a_session_needs(harness: Harness) -> None:
    path = write_package(harness.user)
    found = harness.find(config=enable(grant("user:echo", ECHO, config={"loud": True})))
    record = found.guests[0].plan
    assert set(msgspec.to_builtins(record)) == {
        "identity", "source", "package_path", "package_label", "digest", "version", "manifest", "enabled_surfaces", "grants",
        "config",
    }  # fmt: skip
    assert (record.source, record.package_path, record.package_label) == ("user", str(path), "echo.yoi-plugin")
    assert (record.version, record.manifest.tools[0].name, record.enabled_surfaces) == ("0.1.0", "echo", ("tool", "wasm"))
    kept = msgspec.json.decode(msgspec.json.encode(build_plan(found.guests)))
    assert msgspec.convert(kept["records"], tuple[ResolvedPlugin, ...]) == (record,)


@pytest.mark.req("yoi.rule.059")
@pytest.mark.parametrize("switch", [{}, {"feature": {}}, {"feature": {"plugins": {"enabled": False}}}])
def test_without_the_switch_no_plugin_is_started(harness: Harness, switch: dict[str, Any]) -> None:
    write_package(harness.user)
    found = harness.find(config={**switch, "plugins": {"enabled": [grant("user:echo", ECHO), {"id": "user:nobody"}]}})
    assert (list_ids(found), [guest.id for guest in found.disabled], found.problems) == ([], ["yoi:echo"], ())


def test_who_is_not_enabled_is_off_without_a_word(harness: Harness) -> None:
    write_package(harness.user)
    for config in (None, {}, enable_ids("user:other")):
        found = harness.find(config=config)
        assert (list_ids(found), [guest.id for guest in found.disabled]) == ([], ["yoi:echo"])


@pytest.mark.req("yoi.rule.056")
def test_equal_ids_in_two_sources_are_enabled_each_for_itself(harness: Harness) -> None:
    mine, theirs = write_package(harness.user, "x.yoi-plugin"), write_package(store(harness), "x.yoi-plugin", version="0.2.0")
    harness.trust.allow(harness.project)
    found = harness.find(config=enable_ids("user:echo"))
    assert ([guest.folder for guest in found.guests], [guest.folder for guest in found.disabled]) == ([mine], [theirs])
    found = harness.find(config=enable_ids("project:echo"))
    assert ([guest.folder for guest in found.guests], [guest.folder for guest in found.disabled]) == ([theirs], [mine])
    found = harness.find(config=enable_ids("user:echo", "project:echo"))
    assert [guest.folder for guest in found.guests] == [theirs]  # one id, and the project's comes first
    assert [(aside.manifest.folder, aside.reason) for aside in found.shadowed] == [
        (mine, f"the project's {theirs} takes its place")
    ]


@pytest.mark.req("yoi.rule.068")
def test_the_load_order_is_ad_hoc_then_project_then_user_then_name(harness: Harness) -> None:
    write_package(harness.user, "1.yoi-plugin", id="d")
    write_package(harness.user, "2.yoi-plugin", id="c")
    write_package(store(harness), "z.yoi-plugin", id="b")
    write_zot_guest(harness.user / "cz")
    named = write_package(harness.root / "elsewhere", "y.yoi-plugin", id="z")
    harness.trust.allow(harness.project)
    found = harness.find(named, config=enable_ids("user:c", "user:d", "project:b", "user:z"))
    assert list_ids(found) == ["yoi:z", "yoi:b", "yoi:c", "zot:cz", "yoi:d"]


def test_a_projects_folder_of_the_same_name_hides_no_plugin(harness: Harness) -> None:
    write_folder(harness.user / "echo")
    (store(harness) / "echo").mkdir(parents=True)
    assert list_ids(harness.find(config=enable_ids("user:echo"))) == ["yoi:echo"]


# -- named on the command line


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_plugin_named_on_the_command_line_is_the_users(harness: Harness, as_folder: bool) -> None:
    path = write_folder(harness.root / "echo") if as_folder else write_package(harness.root)
    found = harness.find(path, config=enable(grant("user:echo", ECHO)), installed=False)
    assert [(guest.id, guest.scope, guest.plan.identity) for guest in found.guests] == [("yoi:echo", "ad hoc", "user:echo")]
    assert [guest.id for guest in harness.find(path, installed=False).disabled] == ["yoi:echo"]


def test_one_that_is_named_takes_the_place_of_the_installed_one_and_is_no_twin_of_it(harness: Harness) -> None:
    write_package(harness.user)
    path = write_package(harness.root)
    found = harness.find(path, config=enable(grant("user:echo", ECHO)))
    assert [guest.folder for guest in found.guests] == [path]
    assert [aside.manifest.scope for aside in found.shadowed] == ["user"]


def test_a_file_that_is_no_plugin_is_no_guest(harness: Harness) -> None:
    path = harness.root / "x.yoi-plugin"
    path.write_bytes(b"no zip")
    [problem] = harness.find(path).problems
    assert problem.reason == "plugin package has no zip end record in its last 65557 bytes"


# -- refused


@pytest.mark.req("yoi.conform.14")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"digest": "sha256:00"}, "enabled plugin digest does not match package digest"),
        ({"version": "9"}, "enabled plugin version does not match package version"),
        (
            {"grants": {"permissions": [{"kind": "external_write"}]}},
            "plugin grant is missing a source-qualified package id binding",
        ),
        ({"surfaces": ["service"]}, "enabled plugin requested undeclared surface `service`"),
        ({"digest": "sha256:00", "version": "9", "surfaces": ["hook"]}, "enabled plugin digest does not match package digest"),
        ({"version": "9", "surfaces": ["hook"]}, "enabled plugin version does not match package version"),
    ],
)
def test_one_that_is_enabled_as_something_else_is_refused(harness: Harness, entry: dict[str, Any], reason: str) -> None:
    write_package(harness.user)
    found = harness.find(config=enable({"id": "user:echo", **entry}))
    assert (list_ids(found), found.problems) == ([], ())
    assert list_refused(found)["echo.yoi-plugin"].partition("; ")[0] == reason
    assert [guest.id for guest in found.iter_all()] == ["yoi:echo"]


@pytest.mark.req("yoi.conform.14")
@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("echo", "plugin enablement id must be source-qualified as user:<id>, project:<id>, or builtin:<id>"),
        ("moon:echo", "plugin enablement id is not a valid source-qualified plugin id"),
        ("user:nobody", "enabled plugin package was not discovered"),
    ],
)
def test_an_enablement_without_a_package_is_a_problem(harness: Harness, id: str, reason: str) -> None:
    write_package(harness.user)
    found = harness.find(config=enable_ids(id))
    [(folder, told)] = list_reasons(found)
    assert (folder, told.partition(";")[0]) == ("serai", f"plugin {id}: {reason}")
    assert told.endswith("or `serai guest revoke user:nobody`") is (id == "user:nobody")
    assert harness.find(config=enable_ids(id), installed=False).problems == ()  # nobody looked


def test_what_another_project_has_is_not_missed_here(harness: Harness) -> None:
    assert harness.find(config=enable_ids("project:echo")).problems == ()
    store(harness).mkdir(parents=True)
    assert len(harness.find(config=enable_ids("project:echo")).problems) == 1


@pytest.mark.req("yoi.conform.07")
def test_enabling_either_of_two_twins_fails(harness: Harness) -> None:
    write_package(harness.user, "a.yoi-plugin")
    write_package(harness.user, "b.yoi-plugin")
    found = harness.find(config=enable(grant("user:echo", ECHO)))
    assert (list_ids(found), set(list_refused(found))) == ([], {"a.yoi-plugin", "b.yoi-plugin"})
    assert list_reasons(found) == [
        (name, "several plugin packages have the identity user:echo") for name in ("a.yoi-plugin", "b.yoi-plugin")
    ]


@pytest.mark.req("yoi.conform.08")
def test_a_broken_one_hides_nobody(harness: Harness) -> None:
    write_package(harness.user)
    write_zot_guest(harness.user / "weather")
    (harness.user / "broken.yoi-plugin").write_bytes(b"")
    write_folder(harness.user / "bad", {"plugin.toml": b"id = 1"})
    found = harness.find(config=enable_ids("user:echo"))
    assert (list_ids(found), [name for name, _ in list_reasons(found)]) == (
        ["yoi:echo", "zot:weather"],
        ["bad", "broken.yoi-plugin"],
    )


def test_a_changed_package_is_not_the_one_that_was_granted(harness: Harness) -> None:
    config = enable(grant("user:echo", ECHO))
    write_package(harness.user)
    assert list_ids(harness.find(config=config)) == ["yoi:echo"]
    write_package(harness.user, content={**ECHO, "more": b""})
    found = harness.find(config=config)
    assert list_ids(found) == []
    assert "`serai guest grant`" in list_refused(found)["echo.yoi-plugin"]


# -- a project's


@pytest.mark.req("yoi.rule.058")
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_projects_package_counts_only_as_it_was_trusted(harness: Harness, as_folder: bool) -> None:
    def write(content: dict[str, bytes]) -> Path:
        return write_folder(store(harness) / "echo", content) if as_folder else write_package(store(harness), content=content)

    path = write(ECHO)
    other = {**ECHO, "more.txt": b"x"}
    config = enable(grant("project:echo", ECHO))
    assert [aside.reason for aside in harness.find(config=config).untrusted] == ["it was never trusted"]
    [pinned] = harness.trust.allow(harness.project)
    assert (pinned.id, pinned.folder) == ("yoi:echo", path)
    found = harness.find(config=config)
    assert (list_ids(found), found.untrusted) == (["yoi:echo"], ())
    write(other)
    found = harness.find(config=enable(grant("project:echo", other)))
    assert list_ids(found) == []
    assert [aside.reason for aside in found.untrusted] == [
        f"it has changed since it was trusted: {compute_digest(other)} now, {compute_digest(ECHO)} then"
    ]


@pytest.mark.req("yoi.rule.058")
def test_a_trusted_package_that_is_moved_is_not_trusted(harness: Harness) -> None:
    path = write_package(store(harness))
    harness.trust.allow(harness.project)
    path.rename(path.with_name("other.yoi-plugin"))
    assert [aside.reason for aside in harness.find(config=enable_ids("project:echo")).untrusted] == ["it was never trusted"]


@pytest.mark.req("yoi.rule.058")
def test_what_a_projects_settings_enable_counts_only_once_they_are_trusted(harness: Harness) -> None:
    write_package(harness.user)  # which a project has no say about
    folder = Path(paths.config_folder(harness.environ))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("feature.plugins.enabled = true\n")
    write_package(store(harness), id="tide")
    settings = harness.project / ".serai" / "config.toml"
    settings.write_text('[[plugins.enabled]]\nid = "project:tide"\n')

    def found() -> DiscoveryResult:
        config = Config.load(harness.project, environ=harness.environ)
        return harness.find(config=config.settings)

    assert list_ids(found()) == []
    harness.trust.allow(harness.project)
    assert list_ids(found()) == ["yoi:tide"]
    settings.write_text('[[plugins.enabled]]\nid = "user:echo"\n[plugins.bounds]\nmemory = 1\n')
    assert list_ids(found()) == []
    harness.trust.allow(harness.project)
    config = Config.load(harness.project, environ=harness.environ)
    assert [note.partition(": ")[2] for note in config.notes] == [
        "plugins.enabled does not count: a project can enable its own plugins, `project:…`, and nobody else's",
        "plugins.bounds does not count: how much plugins may have is yours to say",
    ]
    assert list_ids(found()) == []


@pytest.mark.req("yoi.rule.058")
def test_until_then_a_project_may_only_switch_plugins_off(harness: Harness) -> None:
    write_package(harness.user)
    mine = Path(paths.config_folder(harness.environ), "config.toml")
    mine.write_text('feature.plugins.enabled = true\n[[plugins.enabled]]\nid = "user:echo"\n')
    settings = harness.project / ".serai" / "config.toml"
    settings.parent.mkdir()
    settings.write_text("feature.plugins.enabled = false")
    assert list_ids(harness.find(config=Config.load(harness.project, environ=harness.environ).settings)) == []
    settings.write_text("feature.plugins.enabled = true")
    mine.write_text('feature.plugins.enabled = false\n[[plugins.enabled]]\nid = "user:echo"\n')
    harness.trust.allow(harness.project)
    assert list_ids(harness.find(config=Config.load(harness.project, environ=harness.environ).settings)) == []


# -- what `serai guest grant` has written


GRANTED = '[feature.plugins]\nenabled = true\n\n[[plugins.enabled]]\nid = "user:echo"\n'


def test_what_was_granted_counts_beside_the_settings(harness: Harness) -> None:
    write_package(harness.user)
    write_package(harness.user, "b.yoi-plugin", id="two")
    folder = Path(paths.config_folder(harness.environ))
    (folder / "plugins.toml").write_text(GRANTED)
    assert list_ids(harness.find()) == ["yoi:echo"]
    (folder / "config.toml").write_text('[[plugins.enabled]]\nid = "user:two"\n')
    assert list_ids(harness.find()) == ["yoi:echo", "yoi:two"]
    assert [one["id"] for one in paths.read_settings(harness.environ)["plugins"]["enabled"]] == ["user:two", "user:echo"]
    (folder / "config.toml").write_text("[feature.plugins]\nenabled = false\n")
    assert list_ids(harness.find()) == []


def test_the_file_of_grants_holds_nothing_else(harness: Harness) -> None:
    folder = Path(paths.config_folder(harness.environ))
    folder.mkdir(parents=True)
    for text in ("record = false", "[plugins]\npreset = 'upstream'", "plugins = 1", "feature = 1", "plugins.enabled = 1"):
        (folder / "plugins.toml").write_text(text)
        with pytest.raises(BadSettings, match="more in it than what plugins were granted"):
            harness.find()


@pytest.mark.parametrize("text", ["plugins = 1", "plugins.enabled = 1", "feature = 1", "feature.plugins = 1", "feature.x = {}"])
def test_settings_that_are_none_are_told_also_with_grants_beside_them(harness: Harness, text: str) -> None:
    folder = Path(paths.config_folder(harness.environ))
    folder.mkdir(parents=True)
    (folder / "plugins.toml").write_text(GRANTED)
    (folder / "config.toml").write_text(text)
    with pytest.raises(BadSettings):
        harness.find()


# -- a plan that is kept


@pytest.mark.req("yoi.conform.15")
def test_a_plan_that_is_kept_is_used_as_it_is_and_nobody_looks(harness: Harness) -> None:
    path = write_package(harness.user)
    config = enable(grant("user:echo", ECHO))
    plan = build_plan(harness.find(config=config).guests)
    write_package(harness.user, content=files(version="0.2.0"))
    write_package(harness.user, "new.yoi-plugin", id="new")
    (harness.user / "broken.yoi-plugin").write_bytes(b"")
    found = harness.find(config=enable({"id": "user:echo"}, {"id": "user:new"}, {"id": "user:nobody"}, resolved=plan))
    assert [(guest.id, guest.folder, guest.scope, guest.digest) for guest in found.guests] == [
        ("yoi:echo", path, "user", compute_digest(ECHO))
    ]
    assert (found.refused, found.disabled) == ((), ())
    later = "this session began without it; a new one looks for it"
    assert list_reasons(found) == [("serai", f"plugin {id}: {later}") for id in ("user:new", "user:nobody")]
    path.unlink()
    later_granted = grant("user:echo", files(version="0.2.0"), version="0.2.0")
    assert list_ids(harness.find(config=enable(later_granted, resolved=plan))) == ["yoi:echo"]
    assert list_ids(harness.find(config={"plugins": {"resolved": plan}})) == []  # the switch is off by now


def test_what_was_revoked_is_taken_from_a_session_that_kept_it_too(harness: Harness) -> None:
    write_package(harness.user)
    plan = build_plan(harness.find(config=enable(grant("user:echo", ECHO))).guests)
    assert list_ids(harness.find(config=enable(resolved=plan))) == []


@pytest.mark.req("yoi.conform.15")
def test_one_that_was_named_on_the_command_line_is_in_the_plan_too(harness: Harness) -> None:
    path, other = write_package(harness.root), write_package(harness.root, "other.yoi-plugin", id="other")
    plan = build_plan(harness.find(path, config=enable(grant("user:echo", ECHO))).guests)
    for named in ((), (path,)):
        found = harness.find(*named, config=enable({"id": "user:echo"}, resolved=plan), installed=False)
        assert [(guest.id, guest.scope) for guest in found.guests] == [("yoi:echo", "ad hoc")]
    found = harness.find(other, config=enable({"id": "user:echo"}, resolved=plan))
    assert list_ids(found) == ["yoi:echo"]
    assert [reason for _, reason in list_reasons(found)] == [
        "this session goes on with the plugins that it began with; a new one takes this too"
    ]


def test_a_projects_store_that_is_too_large_is_told_of(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write_package(store(harness), f"{number}.yoi-plugin", id=f"p{number}")
    monkeypatch.setattr(finder, "_PROJECTS", 1)
    found = harness.find()
    said = "plugin store has more than 1 bytes of packages: this one is left out"
    assert list_reasons(found) == [("1.yoi-plugin", said), ("2.yoi-plugin", said)]


@pytest.mark.req("yoi.rule.058", "yoi.conform.15")
def test_a_projects_plugin_of_a_plan_needs_trust_for_that_content(harness: Harness) -> None:
    write_package(store(harness))
    harness.trust.allow(harness.project)
    plan = build_plan(harness.find(config=enable(grant("project:echo", ECHO))).guests)
    write_package(store(harness), content=files(version="0.2.0"))  # which nobody runs
    config = enable({"id": "project:echo"}, resolved=plan)
    assert list_ids(harness.find(config=config)) == ["yoi:echo"]
    harness.trust.withdraw(harness.project)
    found = harness.find(config=config)
    assert (list_ids(found), [aside.reason for aside in found.untrusted]) == ([], ["it was never trusted"])


# -- who has no plugins


def test_who_has_no_plugins_imports_nothing_of_theirs(harness: Harness) -> None:
    write_zot_guest(harness.user / "weather")
    code = (
        "import sys; from serai.host.discovery import find_guests; "
        f"found = find_guests(cwd={str(harness.project)!r}, environ={harness.environ!r}); assert len(found.guests) == 1; "
        "print([name for name in sys.modules if 'yoi' in name or name == 'serai.host.adapters.yoi.finder'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plugin_in_the_place_of_another_program_is_not_looked_for(harness: Harness) -> None:
    write_folder(harness.project / ".zot" / "extensions" / "echo")
    found = find_guests(cwd=harness.project, environ=harness.environ, config=enable_ids("project:echo"))
    assert list_reasons(found) == [("echo", "guests of the dialect yoi are not looked for here")]
