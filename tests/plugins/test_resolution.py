"""From enablements and packages to records: the six failures in their order, and what a record holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serai.plugins.grants import Enablement, Grants, ResolvedPlugin, is_pinned, split_identity
from serai.plugins.manifest import Permission
from serai.plugins.resolution import DiscoveredPackage, PackageDiagnostic, PluginPlan, check_record, plan, resolve
from tests.support.yoi.resolved_plugins import DIGEST, GRANTS, IDENTITY, MANIFEST, OTHER, discover, enablement, plugin, record

FIRST: dict[str, tuple[dict[str, Any], str, str]] = {
    "id unqualified": (
        {"id": "example.echo"}, "ambiguous",
        "plugin enablement id must be source-qualified as user:<id>, project:<id>, or builtin:<id>",
    ),
    "id malformed": ({"id": "site:x"}, "malformed", "plugin enablement id is not a valid source-qualified plugin id"),
    "package": ({"id": "user:example.echo"}, "missing", "enabled plugin package was not discovered"),
    "digest": ({"digest": OTHER}, "digest", "enabled plugin digest does not match package digest"),
    "version": ({"version": "0.1"}, "version", "enabled plugin version does not match package version"),
    "grant": (
        {"grants": msgspec.structs.replace(GRANTS, id="")}, "grant",
        "plugin grant is missing a source-qualified package id binding",
    ),
    "surfaces": ({"surfaces": ("tool", "hook")}, "surface", "enabled plugin requested undeclared surface `hook`"),
}  # fmt: skip
NO_HOOKS = msgspec.structs.replace(MANIFEST, hooks=())


def get_refusal(of: Enablement, *packages: DiscoveredPackage) -> PackageDiagnostic:
    result = resolve(of, packages)
    assert isinstance(result, PackageDiagnostic)
    assert result.phase == "resolution"
    return result


@pytest.mark.req("yoi.conform.14")
@pytest.mark.parametrize("which", FIRST)
def test_each_failure_has_its_kind_and_text(which: str) -> None:
    changes, kind, message = FIRST[which]
    said = get_refusal(enablement(**changes), discover(NO_HOOKS))
    assert (said.kind, said.message) == (kind, message)


@pytest.mark.req("yoi.conform.14")
@pytest.mark.parametrize("start", range(2, len(FIRST)))
def test_the_first_failure_wins(start: int) -> None:
    """With everything wrong from here on, the first of it is told."""
    names = list(FIRST)[start:]
    changes: dict[str, Any] = {}
    for name in names:
        changes |= FIRST[name][0]
    assert get_refusal(enablement(**changes), discover(NO_HOOKS)).kind == FIRST[names[0]][1]


@pytest.mark.req("yoi.conform.14")
def test_several_packages_of_one_identity_are_none() -> None:
    said = get_refusal(enablement(), discover(), discover(path="/p/f.yoi-plugin"))
    assert (said.kind, said.message) == ("duplicate", "several plugin packages have the enabled identity")
    assert (said.source, said.identity, said.package, said.digest) == ("project", IDENTITY, "e.yoi-plugin", DIGEST)


@pytest.mark.req("yoi.rule.056")
def test_who_a_package_is_says_its_manifest() -> None:
    package = DiscoveredPackage.of(plugin(), source="user", path="/u/whatever.yoi-plugin", label="whatever.yoi-plugin")
    assert package.identity == "user:example.echo"
    theirs, mine = discover(), package
    for of, source in ((IDENTITY, "project"), ("user:example.echo", "user")):
        result = resolve(Enablement(id=of), [theirs, mine])
        assert isinstance(result, ResolvedPlugin)
        assert result.source == source


@pytest.mark.req("yoi.rule.045")
@pytest.mark.parametrize(
    "pin",
    [
        DIGEST.removeprefix("sha256:"),
        DIGEST.upper(),
        "SHA256:" + DIGEST.partition(":")[2],
        "sha256:",
        DIGEST + " ",
        DIGEST[:-1],
        "",
    ],
)
def test_a_pin_is_the_very_text(pin: str) -> None:
    assert is_pinned(DIGEST, DIGEST)
    assert not is_pinned(pin, DIGEST)
    assert not is_pinned(pin, pin) or pin.startswith("sha256:")
    if pin:
        assert get_refusal(Enablement(id=IDENTITY, digest=pin), discover()).kind == "digest"


@pytest.mark.req("yoi.rule.060")
def test_what_a_record_holds() -> None:
    result = resolve(enablement(surfaces=("tool", "ingress", "tool"), config={"level": [1, None]}), [discover()])
    assert isinstance(result, ResolvedPlugin)
    assert result == ResolvedPlugin(
        identity=IDENTITY, source="project", package_path="/p/.serai/guests/e.yoi-plugin", package_label="e.yoi-plugin",
        digest=DIGEST, version="0.1.0", manifest=MANIFEST, enabled_surfaces=("ingress", "tool"), grants=GRANTS,
        config={"level": [1, None]},
    )  # fmt: skip
    kept = PluginPlan(records=(result,), diagnostics=(get_refusal(enablement(version="2"), discover()),))
    assert msgspec.json.decode(msgspec.json.encode(kept), type=PluginPlan) == kept
    assert set(msgspec.to_builtins(result)) == {
        "identity", "source", "package_path", "package_label", "digest", "version", "manifest", "enabled_surfaces", "grants",
        "config",
    }  # fmt: skip


@pytest.mark.req("yoi.edge.08")
def test_no_list_selects_all_that_is_declared() -> None:
    result = resolve(enablement(surfaces=()), [discover()])
    assert isinstance(result, ResolvedPlugin)
    assert result.enabled_surfaces == ("hook", "ingress", "service", "tool", "wasm")


@pytest.mark.req("yoi.edge.05")
def test_empty_grants_need_no_binding() -> None:
    result = resolve(enablement(grants=Grants()), [discover()])
    assert isinstance(result, ResolvedPlugin)
    assert result.grants.empty


def test_of_several_for_one_plugin_the_last_counts() -> None:
    bare, drifted = enablement(grants=Grants()), enablement(digest=OTHER)
    made = plan([bare, enablement(), drifted], [discover()])
    assert [one.grants for one in made.records] == [GRANTS]
    assert [one.kind for one in made.diagnostics] == ["duplicate", "digest"]
    assert not made.empty
    assert PluginPlan().empty


def test_a_message_is_bounded_and_tells_no_secret() -> None:
    said = PackageDiagnostic(kind="io", phase="discovery", message="password=hunter2 " + "é" * 300)
    assert len(said.message.encode()) <= 240
    assert "hunter2" not in said.message


def test_a_record_that_was_kept_is_checked() -> None:
    check_record(record())
    for changes, why in (
        ({"identity": "user:example.echo"}, "does not fit its own manifest"),
        ({"version": "9"}, "does not fit its own manifest"),
        ({"digest": OTHER}, "plugin grant digest binding does not match enabled package digest"),
        ({"manifest": msgspec.structs.replace(MANIFEST, schema_version=2)}, "plugin schema/API version is unsupported"),
        ({"package_path": "/p/e.yoi-plugin"}, "has no path of a package"),
        ({"package_path": "p/.serai/guests/e.yoi-plugin"}, "has no path of a package"),
        ({"manifest": NO_HOOKS}, "enabled plugin requested undeclared surface `hook`"),
    ):
        with pytest.raises(ValueError, match=why):
            check_record(msgspec.structs.replace(record(), **changes))


def test_identities() -> None:
    assert split_identity("builtin:a") == ("builtin", "a")
    for text in ("", "a", ":a", "user:", "user:.a", "User:a", "user:a:b", "site:a"):
        assert split_identity(text) is None
    assert Permission(kind="external_write").label == "external_write"
