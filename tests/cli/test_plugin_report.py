"""Plugins in `serai guest list` and `show`: the status of each, and reports of the origin's form (spec yoi 19, 11.5)."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from serai.plugins import package_store as stores
from serai.wire.plain_process import PlainSpawner
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects, write_guest
from tests.support.yoi import components
from tests.support.yoi.plugin_manifests import parse_report, write_plugin

ALWAYS = [
    "reference", "status", "configured", "discovered", "resolved", "static_eligible", "declared_surfaces", "enabled_surfaces",
    "requested_permissions", "configured_grants", "configured_request_grants", "configured_websocket_grants",
    "configured_fs_grants", "tools", "diagnostics",
]  # fmt: skip
KNOWN = ["local_ref", "source", "package", "package_path", "version", "schema_version", "api_version", "digest"]
BROAD = '[[request]]\nscheme = "https"\nhost = "api.example.com"\nmethods = ["GET"]'


@pytest.fixture
def store(in_process_shell: InProcessShell) -> Path:
    return in_process_shell.home / "guests"


def list_items(shell: InProcessShell, *more: str | Path) -> dict[str, dict[str, Any]]:
    """The plugins that `list` reports, by reference."""
    return {item["reference"]: item for item in parse_report(shell("guest", "list", "--json", *more))["items"]}


def grant(shell: InProcessShell, path: Path, *flags: str) -> None:
    assert shell("guest", "grant", path, "--yes", *flags).returncode == 0


# -- status -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.conform.61")
def test_one_that_nobody_enabled_is_disabled(in_process_shell: InProcessShell, store: Path) -> None:
    write_plugin(store / "echo")
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["configured"], item["discovered"], item["resolved"]) == ("disabled", False, True, False)
    assert item["diagnostics"] == []


@pytest.mark.req("yoi.conform.61")
def test_one_that_may_all_it_asks_for_is_active(in_process_shell: InProcessShell, store: Path) -> None:
    grant(in_process_shell, write_plugin(store / "echo"))
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["static_eligible"], item["diagnostics"]) == ("active", True, [])
    assert [(tool["name"], tool["eligible"]) for tool in item["tools"]] == [("echo", True)]


@pytest.mark.req("yoi.conform.61")
def test_a_service_alone_is_active_too(in_process_shell: InProcessShell, store: Path) -> None:
    service = '[[services]]\nname = "watch"\ndescription = "d"'
    grant(in_process_shell, write_plugin(store / "echo", service, tools=(), permissions=("surfaces.service", "service.watch")))
    assert list_items(in_process_shell)["user:acme.echo"]["status"] == "active"


@pytest.mark.req("yoi.conform.61")
def test_one_whose_tool_works_beside_a_diagnostic_is_partial(in_process_shell: InProcessShell, store: Path) -> None:
    asks = ("surfaces.tool", "tool.echo", "host_api.fs")
    grant(in_process_shell, write_plugin(store / "echo", permissions=asks))  # and no folder
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["static_eligible"]) == ("partial", False)
    assert "granted host_api.fs scope allowlist is missing" in item["diagnostics"][0]["message"]
    grant(
        in_process_shell,
        write_plugin(store / "broad", BROAD, id="broad", permissions=("surfaces.tool", "tool.echo", "host_api.request")),
    )
    item = list_items(in_process_shell)["user:broad"]
    assert (item["status"], item["static_eligible"]) == ("partial", True)


@pytest.mark.req("yoi.conform.61")
def test_one_of_which_nothing_works_is_rejected(in_process_shell: InProcessShell, store: Path) -> None:
    grant(in_process_shell, write_plugin(store / "echo", permissions=("surfaces.tool",)))
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["resolved"]) == ("rejected", True)


@pytest.mark.req("yoi.conform.61")
def test_one_that_has_changed_is_rejected(in_process_shell: InProcessShell, store: Path) -> None:
    folder = write_plugin(store / "echo")
    grant(in_process_shell, folder)
    (folder / "README.md").write_text("new")
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["configured"], item["discovered"], item["resolved"]) == ("rejected", True, True, False)
    assert [one["kind"] for one in item["diagnostics"]] == ["digest"]


@pytest.mark.req("yoi.conform.61")
def test_one_that_is_nowhere_is_missing(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    grant(in_process_shell, write_plugin(tmp_path / "echo"))
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["configured"], item["discovered"]) == ("missing", True, False)
    assert item["local_ref"] == "acme.echo"
    assert [one["kind"] for one in item["diagnostics"]] == ["missing"]


@pytest.mark.req("yoi.conform.61")
def test_a_broken_package_is_rejected_and_not_missing(in_process_shell: InProcessShell, store: Path) -> None:
    folder = write_plugin(store / "acme.echo")
    grant(in_process_shell, folder)
    write_plugin(folder, keys="colour = 1")
    item = list_items(in_process_shell)["user:acme.echo"]
    assert (item["status"], item["configured"], item["discovered"]) == ("rejected", True, False)
    assert {one["kind"] for one in item["diagnostics"]} == {"malformed", "missing"}
    (store / "bad.yoi-plugin").write_bytes(b"no zip")
    assert list_items(in_process_shell)["user:bad"]["status"] == "rejected"  # by the file's name: it has no other


@pytest.mark.req("yoi.conform.61")
def test_what_cannot_be_said_of_one_is_said_of_all(in_process_shell: InProcessShell, store: Path) -> None:
    store.mkdir(parents=True)
    (in_process_shell.home / "config.toml").write_text("[plugins.bounds]\npackages = 1\n")
    for name in ("one", "two"):
        write_plugin(store / name, id=name)
    found = list_items(in_process_shell)
    assert list(found) == ["<global>", "user:one"]
    assert found["<global>"]["diagnostics"][0]["kind"] == "bounds"
    assert "local_ref" not in found["<global>"]


def test_one_that_is_switched_off_or_not_trusted_says_so(in_process_shell: InProcessShell, store: Path) -> None:
    grant(in_process_shell, write_plugin(store / "echo"))
    (in_process_shell.home / "config.toml").write_text("[feature.plugins]\nenabled = false\n")
    item = list_items(in_process_shell)["user:acme.echo"]
    assert item["status"] == "disabled"
    assert "switched off" in item["diagnostics"][0]["message"]
    (in_process_shell.home / "config.toml").write_text("")
    grant(in_process_shell, write_plugin(in_process_shell.cwd / ".serai" / "guests" / "echo"))
    item = list_items(in_process_shell)["project:acme.echo"]
    assert item["status"] == "rejected"
    assert "`serai trust`" in item["diagnostics"][0]["message"]
    trusted = in_process_shell("trust")
    assert trusted.returncode == 0
    assert "is a plugin, sha256:" in trusted.stdout
    assert list_items(in_process_shell)["project:acme.echo"]["status"] == "active"


@pytest.mark.parametrize("switch", ['[guest."yoi:acme.echo"]\nenabled = false\n', 'disabled_extensions = ["acme.echo"]\n'])
def test_the_hint_for_one_that_is_switched_off_names_what_does_it(
    in_process_shell: InProcessShell, store: Path, switch: str
) -> None:
    """And no command that refuses plugins."""
    grant(in_process_shell, write_plugin(store / "echo"))
    (in_process_shell.home / "config.toml").write_text(switch)
    ran = in_process_shell("guest", "list")
    assert "it is switched off in your settings: `enabled` of its [guest.…], or disabled_extensions" in ran.stderr
    assert "serai guest enable" not in ran.stdout + ran.stderr
    assert in_process_shell("guest", "enable", "acme.echo").returncode != 0


# -- reports ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.conform.62")
def test_the_reports_have_these_fields_and_no_others(in_process_shell: InProcessShell, store: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    asks = ("surfaces.tool", "tool.echo", "host_api.request", "host_api.fs")
    grant(in_process_shell, write_plugin(store / "echo", BROAD, permissions=asks), "--fs", f"{tmp_path}/data:read")
    form = parse_report(in_process_shell("guest", "list", "--json"))
    assert list(form) == ["workspace", "items"]
    assert form["workspace"] == str(in_process_shell.cwd)
    shown = parse_report(in_process_shell("guest", "show", "acme.echo", "--json"))
    assert shown == form["items"][0]
    assert sorted(shown) == sorted([*ALWAYS, *KNOWN, "static_runtime"])
    assert (shown["package"], shown["package_path"]) == ("echo", str(store / "echo"))
    assert shown["configured_request_grants"] == ["https://api.example.com GET * [broad-request]"]
    assert shown["configured_fs_grants"] == [f"{tmp_path}/data read"]
    [tool] = shown["tools"]
    assert list(tool) == ["name", "permission", "requested", "granted", "eligible", "external_write"]
    assert list(shown["static_runtime"]) == ["runtime", "host_apis", "tools", "services", "ingresses"]
    assert [list(one) for one in shown["diagnostics"]] == [["kind", "message"]] * len(shown["diagnostics"])


@pytest.mark.req("yoi.conform.62")
def test_what_is_not_known_is_left_out(in_process_shell: InProcessShell, store: Path, tmp_path: Path) -> None:
    grant(in_process_shell, write_plugin(tmp_path / "gone", id="gone"))
    write_plugin(store / "echo")
    found = list_items(in_process_shell)
    assert sorted(found["user:gone"]) == sorted([*ALWAYS, "local_ref", "source"])
    assert sorted(found["user:acme.echo"]) == sorted([*ALWAYS, *KNOWN])
    assert found["user:acme.echo"]["tools"][0]["diagnostic"] == "granted surfaces.tool permission is missing"


@pytest.mark.req("yoi.rule.049")
def test_list_reports_the_whole_set_of_contributions(in_process_shell: InProcessShell, store: Path) -> None:
    write_plugin(store / "echo", '[[services]]\nname = "watch"\ndescription = "d"', keys='surfaces = ["hook"]')
    assert list_items(in_process_shell)["user:acme.echo"]["declared_surfaces"] == ["hook", "service", "tool", "wasm"]


@pytest.mark.req("yoi.rule.092")
def test_items_are_in_order_and_not_too_many(in_process_shell: InProcessShell) -> None:
    found = [f"p{place:03}" for place in reversed(range(130))]
    lines = [f'[[plugins.enabled]]\nid = "user:{name}"\n' for name in found]
    in_process_shell.home.mkdir()
    (in_process_shell.home / "config.toml").write_text("[feature.plugins]\nenabled = true\n" + "".join(lines))
    listed = list(list_items(in_process_shell))
    assert listed == [f"user:{name}" for name in sorted(found)][:128]


@pytest.mark.req("yoi.rule.092")
def test_list_has_three_diagnostics_and_show_forty_eight(in_process_shell: InProcessShell, store: Path) -> None:
    folder = write_plugin(
        store / "echo",
        *[BROAD.replace("api", f"api{place}") for place in range(60)],
        permissions=("surfaces.tool", "tool.echo", "host_api.request"),
    )
    grant(in_process_shell, folder)
    listed = list_items(in_process_shell)["user:acme.echo"]["diagnostics"]
    shown = parse_report(in_process_shell("guest", "show", "user:acme.echo", "--json"))["diagnostics"]
    assert (len(listed), len(shown)) == (3, 48)
    assert listed == shown[:3]
    assert shown == sorted(shown, key=lambda one: (one["kind"], one["message"]))


@pytest.mark.req("yoi.rule.092", "yoi.conform.63")
def test_show_takes_a_bare_id_where_only_one_has_it(in_process_shell: InProcessShell, store: Path) -> None:
    write_plugin(store / "echo")
    for name in ("acme.echo", "yoi:acme.echo", "user:acme.echo"):
        assert parse_report(in_process_shell("guest", "show", name, "--json"))["reference"] == "user:acme.echo"
    write_plugin(in_process_shell.cwd / ".serai" / "guests" / "other")
    ran = in_process_shell("guest", "show", "acme.echo")
    assert ran.returncode == 1
    assert "project:acme.echo or user:acme.echo" in ran.stderr
    assert parse_report(in_process_shell("guest", "show", "project:acme.echo", "--json"))["package"] == "other"
    assert in_process_shell("guest", "show", "nobody").returncode == 1


def test_people_see_it_too(in_process_shell: InProcessShell, store: Path, tmp_path: Path) -> None:
    grant(in_process_shell, write_plugin(store / "echo"))
    grant(in_process_shell, write_plugin(tmp_path / "gone", id="gone"))
    listed = in_process_shell("guest", "list")
    assert listed.returncode == 0
    assert "user:acme.echo  active" in listed.stdout
    what = "`serai guest add` its folder or file, or `serai guest revoke user:gone`"
    assert listed.stderr == f"user:gone: missing: enabled plugin package was not discovered; {what}\n"
    assert in_process_shell("guest", "show", "gone").stdout.endswith(
        f"  missing: enabled plugin package was not discovered; {what}\n"
    )
    shown = in_process_shell("guest", "show", "acme.echo").stdout
    assert shown.startswith("user:acme.echo 1.0.0: active\n")
    assert "  tool echo\n" in shown


# -- others, and nothing else -----------------------------------------------------------------------------------------------------


def test_the_rows_of_other_dialects_are_as_they_were(in_process_shell: InProcessShell, store: Path, tmp_path: Path) -> None:
    extension = write_guest(tmp_path / "words", tools=["count"])
    [before] = parse_objects(in_process_shell("guest", "list", "--json", "-e", extension))
    assert before["id"] == "zot:words"
    write_plugin(store / "echo")
    rows = parse_objects(in_process_shell("guest", "list", "--json", "-e", extension))
    assert rows[0] == before
    assert [list(row) for row in rows[1:]] == [["workspace", "items"]]
    assert "zot:words" not in json.dumps(rows[1])


def test_without_plugins_there_is_no_report(in_process_shell: InProcessShell) -> None:
    ran = in_process_shell("guest", "list", "--json")
    assert ran.stdout == ""
    assert "there are no guests" in ran.stderr


@pytest.mark.req("yoi.rule.055", "yoi.rule.090")
def test_looking_executes_and_compiles_and_writes_nothing(
    in_process_shell: InProcessShell, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process, no connection, no file: the component would not even compile."""
    folder = write_plugin(store / "echo", component=components.echo() + b"\7\1\xff")  # a section of types with no type in it
    grant(in_process_shell, folder)
    write_plugin(tmp_path / "broken", keys="colour = 1")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it looks at a plugin, and does nothing else")

    monkeypatch.setattr(PlainSpawner, "spawn", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(stores, "keep_copy", refuse)
    before = read_tree(tmp_path)
    for words in (["list"], ["list", "--json"], ["show", "acme.echo"], ["show", "acme.echo", "--json"], ["check", str(folder)]):
        ran = in_process_shell("guest", *words)
        assert ran.returncode == 0, ran.stderr
    for words in (["show", "nobody"], ["check", str(tmp_path / "broken")], ["pack", str(tmp_path / "broken")]):
        assert in_process_shell("guest", *words).returncode == 1
    assert read_tree(tmp_path) == before
    assert in_process_shell("guest", "pack", folder, "-o", tmp_path / "out.yoi-plugin").returncode == 0
    assert {path for path in read_tree(tmp_path) if path not in before} == {"out.yoi-plugin"}


def read_tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below it, with its time and content."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("name", ["./nothing", "nothing.yoi-plugin"])
def test_to_grant_what_is_not_there_says_so(in_process_shell: InProcessShell, name: str) -> None:
    ran = in_process_shell("guest", "grant", name, "--yes")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"serai: {in_process_shell.cwd / name}: there is no such plugin")
    assert "name a plugin's folder, or its file" in ran.stderr
    assert not (in_process_shell.home / "plugins.toml").exists()


@pytest.mark.req("yoi.rule.090", "yoi.conform.63")
def test_errors_go_to_stderr(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    for words in (["show", "nobody"], ["pack", str(tmp_path / "none")], ["grant", "nobody"], ["revoke", "nobody"]):
        ran = in_process_shell("guest", *words)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("serai: ")
