"""Both sides, each missing for itself, and the binding before everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from serai.host.adapters.yoi.offer import build_offer
from serai.plugins import authorization
from serai.plugins.bounds import DEFAULT
from serai.plugins.grants import FsGrant, Grants, ResolvedPlugin
from serai.plugins.manifest import HostApi, Permission, PluginManifest, Target
from serai.plugins.targets import parse_url
from tests.support.yoi.resolved_plugins import DIGEST, GRANTS, IDENTITY, MANIFEST, OTHER, permissions, record, target

replace = msgspec.structs.replace
URL = parse_url("https://api.example.com/v1/x?token=1")
SOCKET = parse_url("wss://example.com/socket")
ALL: list[Callable[[ResolvedPlugin], str]] = [
    lambda made: authorization.find_tool_refusal(made, "example_echo"),
    lambda made: authorization.find_tool_refusal(made, "example_write"),
    lambda made: authorization.find_service_refusal(made, "svc"),
    lambda made: authorization.find_ingress_refusal(made, "ws"),
    lambda made: authorization.find_api_refusal(made, "request"),
    lambda made: authorization.find_api_refusal(made, "websocket"),
    lambda made: authorization.find_api_refusal(made, "fs"),
    lambda made: authorization.find_request_refusal(made, "GET", URL),
    lambda made: authorization.find_websocket_refusal(made, SOCKET),
]


def build(asked: tuple[str, ...], given: tuple[str, ...], **manifest: Any) -> ResolvedPlugin:
    """A record whose manifest asks for some permissions, and whose grants give some."""
    return record(
        replace(MANIFEST, permissions=permissions(*asked), **manifest),
        replace(GRANTS, permissions=permissions(*given)),
        digest=DIGEST,
    )


def test_all_of_it_is_allowed_when_all_is_granted() -> None:
    assert [check(record()) for check in ALL] == [""] * len(ALL)
    assert authorization.find_binding_refusal(record()) == ""


@pytest.mark.req("yoi.edge.07", "yoi.conform.17")
@pytest.mark.parametrize(
    ("asked", "given", "reason"),
    [
        (("surfaces.tool", "tool.example_echo"), ("surfaces.tool", "tool.example_echo"), ""),
        ((), ("surfaces.tool", "tool.example_echo"), "requested surfaces.tool permission is missing"),
        (("surfaces.tool", "tool.example_echo"), (), "granted surfaces.tool permission is missing"),
        (("tool.example_echo",), ("surfaces.tool", "tool.example_echo"), "requested surfaces.tool permission is missing"),
        (("surfaces.tool", "tool.example_echo"), ("tool.example_echo",), "granted surfaces.tool permission is missing"),
        (("surfaces.tool",), ("surfaces.tool", "tool.example_echo"), "requested tool permission for `example_echo` is missing"),
        (("surfaces.tool", "tool.example_echo"), ("surfaces.tool",), "granted tool permission for `example_echo` is missing"),
        (
            ("surfaces.tool", "tool.example_echo"),
            ("surfaces.tool", "tool.other"),
            "granted tool permission for `example_echo` is missing",
        ),
        (("surfaces.tool", "service.example_echo"), ("surfaces.tool",), "requested tool permission for `example_echo` is missing"),
        (("surfaces.service", "tool.example_echo"), ("surfaces.tool",), "requested surfaces.tool permission is missing"),
    ],
)
def test_a_tool(asked: tuple[str, ...], given: tuple[str, ...], reason: str) -> None:
    assert authorization.find_tool_refusal(build(asked, given), "example_echo") == reason


def test_a_tool_that_nobody_declared() -> None:
    assert authorization.find_tool_refusal(record(), "example_other") == "requested tool is not declared by plugin manifest"


@pytest.mark.req("yoi.conform.18")
@pytest.mark.parametrize(
    ("asked", "given", "reason"),
    [
        ("tool_namespace.example_", "tool_namespace.example_", ""),
        ("tool_namespace.example_", "tool.example_echo", ""),
        ("tool.example_echo", "tool_namespace.ex", ""),
        ("tool_namespace.example_", "tool_namespace.other_", "granted tool permission for `example_echo` is missing"),
        ("tool_namespace.other_", "tool_namespace.example_", "requested tool permission for `example_echo` is missing"),
        ("tool_namespace.example_echo_", "tool.example_echo", "requested tool permission for `example_echo` is missing"),
    ],
)
def test_a_namespace_of_tools(asked: str, given: str, reason: str) -> None:
    assert authorization.find_tool_refusal(build(("surfaces.tool", asked), ("surfaces.tool", given)), "example_echo") == reason


@pytest.mark.req("yoi.edge.06")
def test_an_empty_namespace_is_no_tool_at_all() -> None:
    empty = (*permissions("surfaces.tool"), Permission(kind="tool_namespace", namespace=""))
    both = record(replace(MANIFEST, permissions=empty), replace(GRANTS, permissions=empty))
    assert authorization.find_tool_refusal(both, "example_echo") == "requested tool permission for `example_echo` is missing"
    granted = record(MANIFEST, replace(GRANTS, permissions=empty))
    assert authorization.find_tool_refusal(granted, "example_echo") == "granted tool permission for `example_echo` is missing"


@pytest.mark.req("yoi.conform.19")
@pytest.mark.parametrize(
    ("asked", "given", "reason"),
    [
        (True, True, ""),
        (False, True, "requested external_write permission is missing"),
        (True, False, "granted external_write permission is missing"),
    ],
)
def test_a_tool_that_writes_elsewhere(asked: bool, given: bool, reason: str) -> None:
    usual = ("surfaces.tool", "tool.example_write", "tool.example_echo")
    made = build(usual + ("external_write",) * asked, usual + ("external_write",) * given)
    assert authorization.find_tool_refusal(made, "example_write") == reason
    assert authorization.find_tool_refusal(made, "example_echo") == ""


@pytest.mark.req("yoi.conform.20", "yoi.conform.21")
@pytest.mark.parametrize(("kind", "name"), [("service", "svc"), ("ingress", "ws")])
def test_a_service_and_an_ingress(kind: str, name: str) -> None:
    check = authorization.find_service_refusal if kind == "service" else authorization.find_ingress_refusal
    surface, own = f"surfaces.{kind}", f"{kind}.{name}"
    for asked, given, reason in (
        ((surface, own), (surface, own), ""),
        ((own,), (surface, own), f"requested surfaces.{kind} permission is missing"),
        ((surface, own), (own,), f"granted surfaces.{kind} permission is missing"),
        ((surface,), (surface, own), f"requested {kind} permission for `{name}` is missing"),
        ((surface, own), (surface,), f"granted {kind} permission for `{name}` is missing"),
        ((surface, own), (surface, f"{kind}.{name[:1]}"), f"granted {kind} permission for `{name}` is missing"),
        ((surface, own), (surface, f"tool_namespace.{name}"), f"granted {kind} permission for `{name}` is missing"),
    ):
        assert check(build(asked, given), name) == reason


@pytest.mark.req("yoi.conform.22")
@pytest.mark.parametrize("api", ["request", "websocket", "fs"])
def test_a_host_interface_is_requested_and_granted(api: HostApi) -> None:
    own = f"host_api.{api}"
    assert authorization.find_api_refusal(build((own,), (own,)), api) == ""
    assert authorization.find_api_refusal(build((), (own,)), api) == f"requested {own} permission is missing"
    assert authorization.find_api_refusal(build((own,), ()), api) == f"granted {own} permission is missing"
    others = tuple(f"host_api.{other}" for other in ("request", "websocket", "fs") if other != api)
    assert authorization.find_api_refusal(build(others, (own,)), api) == f"requested {own} permission is missing"
    assert authorization.find_api_refusal(build((own,), others), api) == f"granted {own} permission is missing"


@pytest.mark.req("yoi.conform.22", "yoi.rule.063")
@pytest.mark.parametrize("api", ["request", "websocket"])
@pytest.mark.parametrize("useless", [(), (Target(),), (Target(scheme="https", host="h"), Target(scheme="ftp", host=""))])
def test_a_host_interface_has_usable_targets_on_both_sides(api: HostApi, useless: tuple[Target, ...]) -> None:
    undeclared = record(replace(MANIFEST, **{api: useless}))
    assert authorization.find_api_refusal(undeclared, api) == f"manifest host_api.{api} target declaration is missing"
    ungranted = record(grants=replace(GRANTS, **{api: useless}))
    assert authorization.find_api_refusal(ungranted, api) == f"enabled host_api.{api} grants are missing"


@pytest.mark.req("yoi.conform.22", "yoi.rule.063")
@pytest.mark.parametrize(
    "scopes",
    [(), (FsGrant(root="/data"),), (FsGrant(root="data", operations=("read",)),), (FsGrant(root="", operations=("read",)),)],
)
def test_files_need_a_root_and_an_operation(scopes: tuple[FsGrant, ...]) -> None:
    reason = "granted host_api.fs scope allowlist is missing"
    assert authorization.find_api_refusal(record(grants=replace(GRANTS, fs=scopes)), "fs") == reason
    usable = (*scopes, FsGrant(root="/data", operations=("write",)))
    assert authorization.find_api_refusal(record(grants=replace(GRANTS, fs=usable)), "fs") == ""


BINDINGS = [
    ({"id": ""}, "plugin grant is missing a source-qualified package id binding"),
    ({"id": "example.echo"}, "plugin grant package id binding is not a valid source-qualified plugin id"),
    ({"id": "user:example.echo"}, "plugin grant package id binding does not match enabled package"),
    ({"digest": ""}, "plugin grant is missing a deterministic digest binding"),
    ({"digest": OTHER}, "plugin grant digest binding does not match enabled package digest"),
    ({"digest": DIGEST.removeprefix("sha256:")}, "plugin grant digest binding does not match enabled package digest"),
    ({"version": ""}, "plugin grant is missing an exact package version binding"),
    ({"version": "0.1.0 "}, "plugin grant version binding does not match enabled package version"),
]


@pytest.mark.req("yoi.edge.05", "yoi.conform.23", "yoi.rule.062")
@pytest.mark.parametrize(("changes", "reason"), BINDINGS)
def test_grants_for_other_contents_are_grants_for_nobody(changes: dict[str, str], reason: str) -> None:
    made = record(grants=replace(GRANTS, **changes))
    assert authorization.find_binding_refusal(made) == reason
    assert [check(made) for check in ALL] == [reason] * len(ALL)
    assert not authorization.allows_private(
        record(grants=replace(GRANTS, request=(target(host="*", private=True),), **changes)), "request", URL
    )


@pytest.mark.req("yoi.conform.23")
def test_the_binding_is_checked_in_its_order() -> None:
    wrong = replace(GRANTS, id="", digest="", version="")
    assert "id binding" in authorization.find_binding_refusal(record(grants=wrong))
    assert "digest binding" in authorization.find_binding_refusal(record(grants=replace(wrong, id=IDENTITY)))
    assert "version binding" in authorization.find_binding_refusal(record(grants=replace(wrong, id=IDENTITY, digest=DIGEST)))


@pytest.mark.req("yoi.edge.05")
def test_empty_grants_give_nothing() -> None:
    made = record(grants=Grants())
    assert authorization.find_binding_refusal(made) == ""
    assert [check(made).partition(" ")[0] for check in ALL[:-2]] == ["granted"] * (len(ALL) - 2)
    assert all(check(made) for check in ALL)
    assert not authorization.allows_private(made, "request", URL)


@pytest.mark.req("yoi.edge.05")
@pytest.mark.parametrize("what", ["permissions", "request", "websocket", "fs"])
def test_whatever_is_granted_needs_the_binding(what: str) -> None:
    assert authorization.find_binding_refusal(record(grants=Grants(**{what: getattr(GRANTS, what)}))) == BINDINGS[0][1]


@pytest.mark.req("yoi.rule.062")
def test_it_is_checked_again_at_every_use() -> None:
    """The same functions, nothing remembered: a record whose grants are gone is refused the next time."""
    assert authorization.find_tool_refusal(record(), "example_echo") == ""
    assert authorization.find_tool_refusal(record(grants=Grants()), "example_echo") == "granted surfaces.tool permission is missing"
    assert authorization.find_tool_refusal(record(), "example_echo") == ""


UNDECLARED = "host_api.request target GET https://api.example.com/v1/x is not declared by the plugin manifest"
UNCOVERED = "host_api.request target GET https://api.example.com/v1/x is not covered by enabled request grants"


@pytest.mark.req("yoi.rule.030")
@pytest.mark.parametrize(
    ("declared", "granted", "reason"),
    [
        (target(host="api.example.com"), target(host="*"), ""),
        (target(host="*"), target(host="api.example.com", path_prefixes=("/v",)), ""),
        (target(host="other"), target(host="*"), UNDECLARED),
        (target(host="*"), target(host="other"), UNCOVERED),
        (target(host="*"), target(host="*", methods=("PUT",)), UNCOVERED),
    ],
)  # fmt: skip
def test_a_url_matches_one_of_each_side(declared: Target, granted: Target, reason: str) -> None:
    made = record(replace(MANIFEST, request=(declared,)), replace(GRANTS, request=(granted,)))
    assert authorization.find_request_refusal(made, "GET", URL) == reason
    several = record(replace(MANIFEST, request=(Target(), declared)), replace(GRANTS, request=(Target(), granted)))
    assert authorization.find_request_refusal(several, "GET", URL) == reason


@pytest.mark.req("yoi.rule.030")
def test_a_websocket_matches_one_of_each_side() -> None:
    where = "host_api.websocket target wss://example.com/socket is not"
    assert (
        authorization.find_websocket_refusal(record(replace(MANIFEST, websocket=())), SOCKET)
        == f"{where} declared by the plugin manifest"
    )
    assert (
        authorization.find_websocket_refusal(record(grants=replace(GRANTS, websocket=())), SOCKET)
        == f"{where} covered by enabled WebSocket grants"
    )


@pytest.mark.parametrize(
    ("url", "granted", "fine"),
    [
        ("http://10.0.0.5/", {"host": "10.0.0.5"}, True),
        ("http://localhost:8000/", {"host": "localhost"}, True),
        ("http://intra/", {"host": "intra"}, False),
        ("http://intra/", {"host": "intra", "private": True}, True),
        ("http://10.0.0.5/", {"host": "*"}, False),
        ("http://10.0.0.5/", {"host": "*", "private": True}, True),
        ("http://10.0.0.5/x", {"host": "10.0.0.5", "path_prefixes": ("/y",)}, False),
        ("http://10.0.0.5/x", {"host": "10.0.0.5", "methods": ("PUT",)}, False),
    ],
)
def test_who_may_go_to_private_addresses(url: str, granted: dict[str, Any], fine: bool) -> None:
    made = record(grants=replace(GRANTS, request=(target(**{"scheme": "http"} | granted),)))
    assert authorization.allows_private(made, "request", parse_url(url), "GET") is fine
    assert not authorization.allows_private(made, "websocket", parse_url(url))
    assert not authorization.allows_private(made, "fs", parse_url(url))


def test_the_method_counts_where_it_is_given() -> None:
    made = record(grants=replace(GRANTS, request=(target(scheme="http", host="10.0.0.5", methods=("PUT",)),)))
    url = parse_url("http://10.0.0.5/")
    assert authorization.allows_private(made, "request", url)
    assert authorization.allows_private(made, "request", url, "PUT")
    assert not authorization.allows_private(made, "request", url, "GET")


@pytest.mark.req("yoi.edge.08")
def test_a_record_without_surfaces_has_nothing_on() -> None:
    made = record(enabled_surfaces=())
    assert [authorization.find_surface_refusal(made, surface) for surface in ("tool", "service", "ingress")] == [
        "plugin tool surface is not enabled", "plugin service surface is not enabled", "plugin ingress surface is not enabled",
    ]  # fmt: skip
    assert authorization.find_surface_refusal(record(), "tool") == ""


@pytest.mark.req("yoi.edge.08", "yoi.rule.062")
def test_registration_asks_the_same() -> None:
    assert build_offer(record(enabled_surfaces=()), DEFAULT, None, "example.echo").empty
    assert list(build_offer(record(), DEFAULT, None, "example.echo").tools) == ["example_echo", "example_write"]
    without = replace(GRANTS, permissions=tuple(one for one in GRANTS.permissions if one.kind != "external_write"))
    assert list(build_offer(record(grants=without), DEFAULT, None, "example.echo").tools) == ["example_echo"]


def test_a_manifest_holds_no_more_than_it_says() -> None:
    nothing = record(PluginManifest(schema_version=1, id="example.echo", name="x", version="0.1.0", tools=MANIFEST.tools))
    assert authorization.find_tool_refusal(nothing, "example_echo") == "requested surfaces.tool permission is missing"
