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
from serai.host.adapters.yoi.finder import plan_of
from serai.host.discovery import DiscoveryResult, find_guests
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package import digest
from tests.host.folders import Harness, zot_guest
from tests.yoi.packages.making import enabled, files, granted, on, plugin, plugin_folder

ECHO = files()


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def store(harness: Harness) -> Path:
    return harness.project / ".serai" / "guests"


def ids(found: DiscoveryResult) -> list[str]:
    return [guest.id for guest in found.guests]


def refused(found: DiscoveryResult) -> dict[str, str]:
    return {aside.manifest.folder.name: aside.reason for aside in found.refused}


def problems(found: DiscoveryResult) -> list[tuple[str, str]]:
    return [(problem.folder.name, problem.reason) for problem in found.problems]


# -- on and off


@pytest.mark.req("yoi.rule.053", "yoi.rule.070")
def test_a_plugin_that_was_granted_is_a_guest_with_its_plan(harness: Harness) -> None:
    path = plugin(harness.user)
    found = harness.find(config=enabled(granted("user:echo", ECHO, config={"loud": True})))
    assert (ids(found), found.problems, found.refused) == (["yoi:echo"], (), ())
    [guest] = found.guests
    assert (guest.argv, guest.folder, guest.sources, guest.version) == ((), path, (path,), "0.1.0")
    assert (guest.plan.identity, guest.plan.digest, guest.plan.config) == ("user:echo", digest(ECHO), {"loud": True})
    assert guest.about.identity == "user:echo"


@pytest.mark.req("yoi.rule.060")
def test_a_record_holds_what_a_session_needs(harness: Harness) -> None:
    path = plugin(harness.user)
    found = harness.find(config=enabled(granted("user:echo", ECHO, config={"loud": True})))
    record = found.guests[0].plan
    assert set(msgspec.to_builtins(record)) == {
        "identity", "source", "package_path", "package_label", "digest", "version", "manifest", "enabled_surfaces", "grants",
        "config",
    }  # fmt: skip
    assert (record.source, record.package_path, record.package_label) == ("user", str(path), "echo.yoi-plugin")
    assert (record.version, record.manifest.tools[0].name, record.enabled_surfaces) == ("0.1.0", "echo", ("tool", "wasm"))
    kept = msgspec.json.decode(msgspec.json.encode(plan_of(found.guests)))
    assert msgspec.convert(kept["records"], tuple[ResolvedPlugin, ...]) == (record,)


@pytest.mark.req("yoi.rule.059")
@pytest.mark.parametrize("switch", [{}, {"feature": {}}, {"feature": {"plugins": {"enabled": False}}}])
def test_without_the_switch_no_plugin_is_started(harness: Harness, switch: dict[str, Any]) -> None:
    plugin(harness.user)
    found = harness.find(config={**switch, "plugins": {"enabled": [granted("user:echo", ECHO), {"id": "user:nobody"}]}})
    assert (ids(found), [guest.id for guest in found.disabled], found.problems) == ([], ["yoi:echo"], ())


def test_who_is_not_enabled_is_off_without_a_word(harness: Harness) -> None:
    plugin(harness.user)
    for config in (None, {}, on("user:other")):
        found = harness.find(config=config)
        assert (ids(found), [guest.id for guest in found.disabled]) == ([], ["yoi:echo"])


@pytest.mark.req("yoi.rule.056")
def test_equal_ids_in_two_sources_are_enabled_each_for_itself(harness: Harness) -> None:
    mine, theirs = plugin(harness.user, "x.yoi-plugin"), plugin(store(harness), "x.yoi-plugin", version="0.2.0")
    harness.trust.allow(harness.project)
    found = harness.find(config=on("user:echo"))
    assert ([guest.folder for guest in found.guests], [guest.folder for guest in found.disabled]) == ([mine], [theirs])
    found = harness.find(config=on("project:echo"))
    assert ([guest.folder for guest in found.guests], [guest.folder for guest in found.disabled]) == ([theirs], [mine])
    found = harness.find(config=on("user:echo", "project:echo"))
    assert [guest.folder for guest in found.guests] == [theirs]  # one id, and the project's comes first
    assert [(aside.manifest.folder, aside.reason) for aside in found.shadowed] == [
        (mine, f"the project's {theirs} takes its place")
    ]


@pytest.mark.req("yoi.rule.068")
def test_the_load_order_is_ad_hoc_then_project_then_user_then_name(harness: Harness) -> None:
    plugin(harness.user, "1.yoi-plugin", id="d")
    plugin(harness.user, "2.yoi-plugin", id="c")
    plugin(store(harness), "z.yoi-plugin", id="b")
    zot_guest(harness.user / "cz")
    named = plugin(harness.root / "elsewhere", "y.yoi-plugin", id="z")
    harness.trust.allow(harness.project)
    found = harness.find(named, config=on("user:c", "user:d", "project:b", "user:z"))
    assert ids(found) == ["yoi:z", "yoi:b", "yoi:c", "zot:cz", "yoi:d"]


def test_a_projects_folder_of_the_same_name_hides_no_plugin(harness: Harness) -> None:
    plugin_folder(harness.user / "echo")
    (store(harness) / "echo").mkdir(parents=True)
    assert ids(harness.find(config=on("user:echo"))) == ["yoi:echo"]


# -- named on the command line


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_plugin_named_on_the_command_line_is_the_users(harness: Harness, as_folder: bool) -> None:
    path = plugin_folder(harness.root / "echo") if as_folder else plugin(harness.root)
    found = harness.find(path, config=enabled(granted("user:echo", ECHO)), installed=False)
    assert [(guest.id, guest.scope, guest.plan.identity) for guest in found.guests] == [("yoi:echo", "ad hoc", "user:echo")]
    assert [guest.id for guest in harness.find(path, installed=False).disabled] == ["yoi:echo"]


def test_one_that_is_named_takes_the_place_of_the_installed_one_and_is_no_twin_of_it(harness: Harness) -> None:
    plugin(harness.user)
    path = plugin(harness.root)
    found = harness.find(path, config=enabled(granted("user:echo", ECHO)))
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
    plugin(harness.user)
    found = harness.find(config=enabled({"id": "user:echo", **entry}))
    assert (ids(found), found.problems) == ([], ())
    assert refused(found)["echo.yoi-plugin"].partition("; ")[0] == reason
    assert [guest.id for guest in found.all()] == ["yoi:echo"]


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
    plugin(harness.user)
    found = harness.find(config=on(id))
    [(folder, told)] = problems(found)
    assert (folder, told.partition(";")[0]) == ("serai", f"plugin {id}: {reason}")
    assert told.endswith("or `serai guest revoke user:nobody`") is (id == "user:nobody")
    assert harness.find(config=on(id), installed=False).problems == ()  # nobody looked


def test_what_another_project_has_is_not_missed_here(harness: Harness) -> None:
    assert harness.find(config=on("project:echo")).problems == ()
    store(harness).mkdir(parents=True)
    assert len(harness.find(config=on("project:echo")).problems) == 1


@pytest.mark.req("yoi.conform.07")
def test_enabling_either_of_two_twins_fails(harness: Harness) -> None:
    plugin(harness.user, "a.yoi-plugin")
    plugin(harness.user, "b.yoi-plugin")
    found = harness.find(config=enabled(granted("user:echo", ECHO)))
    assert (ids(found), set(refused(found))) == ([], {"a.yoi-plugin", "b.yoi-plugin"})
    assert problems(found) == [
        (name, "several plugin packages have the identity user:echo") for name in ("a.yoi-plugin", "b.yoi-plugin")
    ]


@pytest.mark.req("yoi.conform.08")
def test_a_broken_one_hides_nobody(harness: Harness) -> None:
    plugin(harness.user)
    zot_guest(harness.user / "weather")
    (harness.user / "broken.yoi-plugin").write_bytes(b"")
    plugin_folder(harness.user / "bad", {"plugin.toml": b"id = 1"})
    found = harness.find(config=on("user:echo"))
    assert (ids(found), [name for name, _ in problems(found)]) == (["yoi:echo", "zot:weather"], ["bad", "broken.yoi-plugin"])


def test_a_changed_package_is_not_the_one_that_was_granted(harness: Harness) -> None:
    config = enabled(granted("user:echo", ECHO))
    plugin(harness.user)
    assert ids(harness.find(config=config)) == ["yoi:echo"]
    plugin(harness.user, content={**ECHO, "more": b""})
    found = harness.find(config=config)
    assert ids(found) == []
    assert "`serai guest grant`" in refused(found)["echo.yoi-plugin"]


# -- a project's


@pytest.mark.req("yoi.rule.058")
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_projects_package_counts_only_as_it_was_trusted(harness: Harness, as_folder: bool) -> None:
    def write(content: dict[str, bytes]) -> Path:
        return plugin_folder(store(harness) / "echo", content) if as_folder else plugin(store(harness), content=content)

    path = write(ECHO)
    other = {**ECHO, "more.txt": b"x"}
    config = enabled(granted("project:echo", ECHO))
    assert [aside.reason for aside in harness.find(config=config).untrusted] == ["it was never trusted"]
    [pinned] = harness.trust.allow(harness.project)
    assert (pinned.id, pinned.folder) == ("yoi:echo", path)
    found = harness.find(config=config)
    assert (ids(found), found.untrusted) == (["yoi:echo"], ())
    write(other)
    found = harness.find(config=enabled(granted("project:echo", other)))
    assert ids(found) == []
    assert [aside.reason for aside in found.untrusted] == [
        f"it has changed since it was trusted: {digest(other)} now, {digest(ECHO)} then"
    ]


@pytest.mark.req("yoi.rule.058")
def test_a_trusted_package_that_is_moved_is_not_trusted(harness: Harness) -> None:
    path = plugin(store(harness))
    harness.trust.allow(harness.project)
    path.rename(path.with_name("other.yoi-plugin"))
    assert [aside.reason for aside in harness.find(config=on("project:echo")).untrusted] == ["it was never trusted"]


@pytest.mark.req("yoi.rule.058")
def test_what_a_projects_settings_enable_counts_only_once_they_are_trusted(harness: Harness) -> None:
    plugin(harness.user)  # which a project has no say about
    folder = Path(paths.config_folder(harness.environ))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("feature.plugins.enabled = true\n")
    plugin(store(harness), id="tide")
    settings = harness.project / ".serai" / "config.toml"
    settings.write_text('[[plugins.enabled]]\nid = "project:tide"\n')

    def found() -> DiscoveryResult:
        config = Config.load(harness.project, environ=harness.environ)
        return harness.find(config=config.settings)

    assert ids(found()) == []
    harness.trust.allow(harness.project)
    assert ids(found()) == ["yoi:tide"]
    settings.write_text('[[plugins.enabled]]\nid = "user:echo"\n[plugins.bounds]\nmemory = 1\n')
    assert ids(found()) == []
    harness.trust.allow(harness.project)
    config = Config.load(harness.project, environ=harness.environ)
    assert [note.partition(": ")[2] for note in config.notes] == [
        "plugins.enabled does not count: a project can enable its own plugins, `project:…`, and nobody else's",
        "plugins.bounds does not count: how much plugins may have is yours to say",
    ]
    assert ids(found()) == []


@pytest.mark.req("yoi.rule.058")
def test_until_then_a_project_may_only_switch_plugins_off(harness: Harness) -> None:
    plugin(harness.user)
    mine = Path(paths.config_folder(harness.environ), "config.toml")
    mine.write_text('feature.plugins.enabled = true\n[[plugins.enabled]]\nid = "user:echo"\n')
    settings = harness.project / ".serai" / "config.toml"
    settings.parent.mkdir()
    settings.write_text("feature.plugins.enabled = false")
    assert ids(harness.find(config=Config.load(harness.project, environ=harness.environ).settings)) == []
    settings.write_text("feature.plugins.enabled = true")
    mine.write_text('feature.plugins.enabled = false\n[[plugins.enabled]]\nid = "user:echo"\n')
    harness.trust.allow(harness.project)
    assert ids(harness.find(config=Config.load(harness.project, environ=harness.environ).settings)) == []


# -- what `serai guest grant` has written


GRANTED = '[feature.plugins]\nenabled = true\n\n[[plugins.enabled]]\nid = "user:echo"\n'


def test_what_was_granted_counts_beside_the_settings(harness: Harness) -> None:
    plugin(harness.user)
    plugin(harness.user, "b.yoi-plugin", id="two")
    folder = Path(paths.config_folder(harness.environ))
    (folder / "plugins.toml").write_text(GRANTED)
    assert ids(harness.find()) == ["yoi:echo"]
    (folder / "config.toml").write_text('[[plugins.enabled]]\nid = "user:two"\n')
    assert ids(harness.find()) == ["yoi:echo", "yoi:two"]
    assert [one["id"] for one in paths.read_settings(harness.environ)["plugins"]["enabled"]] == ["user:two", "user:echo"]
    (folder / "config.toml").write_text("[feature.plugins]\nenabled = false\n")
    assert ids(harness.find()) == []


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
    path = plugin(harness.user)
    config = enabled(granted("user:echo", ECHO))
    plan = plan_of(harness.find(config=config).guests)
    plugin(harness.user, content=files(version="0.2.0"))
    plugin(harness.user, "new.yoi-plugin", id="new")
    (harness.user / "broken.yoi-plugin").write_bytes(b"")
    found = harness.find(config=enabled({"id": "user:echo"}, {"id": "user:new"}, {"id": "user:nobody"}, resolved=plan))
    assert [(guest.id, guest.folder, guest.scope, guest.digest) for guest in found.guests] == [
        ("yoi:echo", path, "user", digest(ECHO))
    ]
    assert (found.refused, found.disabled) == ((), ())
    later = "this session began without it; a new one looks for it"
    assert problems(found) == [("serai", f"plugin {id}: {later}") for id in ("user:new", "user:nobody")]
    path.unlink()
    later_granted = granted("user:echo", files(version="0.2.0"), version="0.2.0")
    assert ids(harness.find(config=enabled(later_granted, resolved=plan))) == ["yoi:echo"]
    assert ids(harness.find(config={"plugins": {"resolved": plan}})) == []  # the switch is off by now


def test_what_was_revoked_is_taken_from_a_session_that_kept_it_too(harness: Harness) -> None:
    plugin(harness.user)
    plan = plan_of(harness.find(config=enabled(granted("user:echo", ECHO))).guests)
    assert ids(harness.find(config=enabled(resolved=plan))) == []


@pytest.mark.req("yoi.conform.15")
def test_one_that_was_named_on_the_command_line_is_in_the_plan_too(harness: Harness) -> None:
    path, other = plugin(harness.root), plugin(harness.root, "other.yoi-plugin", id="other")
    plan = plan_of(harness.find(path, config=enabled(granted("user:echo", ECHO))).guests)
    for named in ((), (path,)):
        found = harness.find(*named, config=enabled({"id": "user:echo"}, resolved=plan), installed=False)
        assert [(guest.id, guest.scope) for guest in found.guests] == [("yoi:echo", "ad hoc")]
    found = harness.find(other, config=enabled({"id": "user:echo"}, resolved=plan))
    assert ids(found) == ["yoi:echo"]
    assert [reason for _, reason in problems(found)] == [
        "this session goes on with the plugins that it began with; a new one takes this too"
    ]


def test_a_projects_store_that_is_too_large_is_told_of(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        plugin(store(harness), f"{number}.yoi-plugin", id=f"p{number}")
    monkeypatch.setattr(finder, "_PROJECTS", 1)
    found = harness.find()
    said = "plugin store has more than 1 bytes of packages: this one is left out"
    assert problems(found) == [("1.yoi-plugin", said), ("2.yoi-plugin", said)]


@pytest.mark.req("yoi.rule.058", "yoi.conform.15")
def test_a_projects_plugin_of_a_plan_needs_trust_for_that_content(harness: Harness) -> None:
    plugin(store(harness))
    harness.trust.allow(harness.project)
    plan = plan_of(harness.find(config=enabled(granted("project:echo", ECHO))).guests)
    plugin(store(harness), content=files(version="0.2.0"))  # which nobody runs
    config = enabled({"id": "project:echo"}, resolved=plan)
    assert ids(harness.find(config=config)) == ["yoi:echo"]
    harness.trust.withdraw(harness.project)
    found = harness.find(config=config)
    assert (ids(found), [aside.reason for aside in found.untrusted]) == ([], ["it was never trusted"])


# -- who has no plugins


def test_who_has_no_plugins_imports_nothing_of_theirs(harness: Harness) -> None:
    zot_guest(harness.user / "weather")
    code = (
        "import sys; from serai.host.discovery import find_guests; "
        f"found = find_guests(cwd={str(harness.project)!r}, environ={harness.environ!r}); assert len(found.guests) == 1; "
        "print([name for name in sys.modules if 'yoi' in name or name == 'serai.host.adapters.yoi.finder'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plugin_in_the_place_of_another_program_is_not_looked_for(harness: Harness) -> None:
    plugin_folder(harness.project / ".zot" / "extensions" / "echo")
    found = find_guests(cwd=harness.project, environ=harness.environ, config=on("project:echo"))
    assert problems(found) == [("echo", "guests of the dialect yoi are not looked for here")]
