"""What is said of a plugin without reading its package."""

from __future__ import annotations

import msgspec
import pytest

from serai.plugins.authorization import inspect
from serai.plugins.grants import Grants
from serai.plugins.manifest import Runtime
from tests.support.yoi.resolved_plugins import GRANTS, MANIFEST, permissions, record, target

replace = msgspec.structs.replace


def test_a_plugin_that_has_all_it_asks_for() -> None:
    seen = inspect(record())
    assert seen.eligible
    assert seen.diagnostics == ()
    assert (seen.runtime.eligible, seen.runtime.status) == (True, "wasm-component/yoi:plugin/instance@1.0.0")
    assert [row.permission for row in seen.host_apis] == [
        "host_api.request", "host_api.websocket", "host_api.fs",
        "host_api.request target https://api.example.com GET,POST /v1",
        "host_api.request grant https://api.example.com GET,POST /v1",
        "host_api.websocket target wss://example.com /socket", "host_api.websocket grant wss://example.com /socket",
    ]  # fmt: skip
    assert [(row.name, row.external_write) for row in seen.tools] == [("example_echo", False), ("example_write", True)]
    assert [row.name for row in (*seen.services, *seen.ingresses)] == ["svc", "ws"]
    assert msgspec.to_builtins(seen.tools[0]) == {
        "name": "example_echo", "permission": "tool.example_echo", "requested": True, "granted": True, "eligible": True,
        "external_write": False,
    }  # fmt: skip


def test_a_plugin_that_has_nothing() -> None:
    seen = inspect(record(grants=Grants()))
    assert not seen.eligible
    assert [row.requested for row in seen.rows] == [True] * len(seen.rows)
    assert not any(row.granted or row.eligible for row in seen.rows)
    assert "tool.example_echo: granted surfaces.tool permission is missing" in seen.diagnostics
    assert [row.diagnostic for row in seen.host_apis if " target " in row.permission] == [
        "no enabled request grant matches this target", "no enabled websocket grant matches this target",
    ]  # fmt: skip


@pytest.mark.req("yoi.rule.064")
def test_it_reads_no_package() -> None:
    assert inspect(record(package_path="/nowhere/at/all.yoi-plugin")).eligible


@pytest.mark.req("yoi.rule.064")
@pytest.mark.parametrize("api", ["request", "websocket"])
def test_a_grant_without_a_declaration(api: str) -> None:
    stray = target(
        scheme="wss" if api == "websocket" else "https",
        host="elsewhere",
        path_prefixes=("/x",),
        methods=("GET",) if api == "request" else (),
    )
    seen = inspect(record(grants=replace(GRANTS, **{api: (*getattr(GRANTS, api), stray)})))
    rows = [row for row in seen.host_apis if row.permission.startswith(f"host_api.{api} grant-only ")]
    assert [(row.eligible, row.requested, row.diagnostic) for row in rows] == [
        (False, False, f"enabled {api} grant has no matching manifest declaration")
    ]
    assert rows[0].permission.endswith("elsewhere GET /x" if api == "request" else "elsewhere /x")
    assert len([row for row in seen.host_apis if row.permission.startswith(f"host_api.{api} grant ")]) == 1


@pytest.mark.req("yoi.rule.064")
def test_every_target_and_every_grant_has_its_row() -> None:
    declared = (
        target(path_prefixes=("/a", "/b")),
        target(host="other", path_prefixes=("/",)),
        target(host="*", path_prefixes=("/w",)),
    )
    granted = (target(path_prefixes=("/a/1",)), target(host="z", path_prefixes=("/",)))
    seen = inspect(record(replace(MANIFEST, request=declared, websocket=()), replace(GRANTS, request=granted, websocket=())))
    assert [(row.permission, row.eligible, row.diagnostic) for row in seen.host_apis if "request " in row.permission] == [
        ("host_api.request target https://h.example GET /a,/b", True, "enabled request grants cover only a part of this target"),
        ("host_api.request target https://other GET /", False, "no enabled request grant matches this target"),
        ("host_api.request target https://* GET /w [broad-request]", True,
         "enabled request grants cover only a part of this target; broad request target"),
        ("host_api.request grant https://h.example GET /a/1", True, None),
        ("host_api.request grant https://z GET /", True,
         "only the part of this grant that the manifest declares counts for request"),
    ]  # fmt: skip


def test_a_broad_target_is_told_and_eligible() -> None:
    wide = (target(),)
    seen = inspect(record(replace(MANIFEST, request=wide), replace(GRANTS, request=wide)))
    assert seen.eligible
    assert "host_api.request target https://h.example GET * [broad-request]: broad request target" in seen.diagnostics


def test_only_what_is_selected() -> None:
    seen = inspect(record(enabled_surfaces=("service",)))
    assert (len(seen.tools), len(seen.services), len(seen.ingresses)) == (0, 1, 0)


def test_grants_of_other_contents() -> None:
    seen = inspect(record(grants=replace(GRANTS, version="9")))
    why = "plugin grant version binding does not match enabled package version"
    assert {row.diagnostic for row in seen.rows} == {why}
    assert not any(row.granted or row.eligible for row in seen.rows)


def test_runtimes_that_cannot_be() -> None:
    bare = replace(MANIFEST, runtime=None, services=(), ingresses=())
    seen = inspect(record(bare))
    assert (seen.runtime.eligible, seen.runtime.status, seen.runtime.diagnostic) == (
        False,
        "none",
        "plugin manifest declares no runtime",
    )
    assert inspect(record(bare, enabled_surfaces=("hook",))).runtime.eligible
    old = inspect(record(replace(MANIFEST, runtime=Runtime(kind="wasm", entry="x"))))
    assert (old.runtime.eligible, old.runtime.status) == (False, "wasm/")


def test_a_permission_of_one_side_alone() -> None:
    seen = inspect(record(replace(MANIFEST, permissions=()), replace(GRANTS, permissions=permissions("host_api.fs"))))
    assert [(row.permission, row.requested, row.granted, row.diagnostic) for row in seen.host_apis[:1]] == [
        ("host_api.fs", False, True, "requested host_api.fs permission is missing")
    ]
