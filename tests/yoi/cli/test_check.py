"""`serai guest check` of a plugin: it is looked at, and nothing else (spec yoi 19)."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.yoi import wat
from tests.yoi.cli.plugins import CORE, EMPTY, INSTANCE, TOOL, plugin, report

FIELDS = ["command", "status", "input_path", "input_kind", "package", "static_inspection", "diagnostics", "safety", "next_steps"]
PACKAGE = [
    "reference", "package", "source", "version", "schema_version", "digest", "package_path", "entries", "surfaces", "tools",
    "permissions",
]  # fmt: skip
SAFETY = {
    "no_network": True,
    "no_plugin_execution": True,
    "no_enablement_config_mutation": True,
    "no_secrets_generated": True,
}
REQUEST = '[[request]]\nscheme = "https"\nhost = "api.example.com"\nmethods = ["GET"]\npath_prefixes = ["/v1"]'
SOCKET = '[[websocket]]\nscheme = "wss"\nhost = "example.com"\npath_prefixes = ["/socket"]'
SERVICE = '[[services]]\nname = "watch"\ndescription = "d"\nlifecycle = "host-managed"'
INGRESS = '[[ingresses]]\nname = "ws"\ndescription = "d"\nsources = ["websocket:wss://example.com/socket"]'


def check(shell: Inside, path: Path, *more: str, status: int = 0) -> dict[str, Any]:
    ran = shell("guest", "check", path, "--json", *more)
    assert ran.returncode == status, ran.stderr
    return report(ran)


@pytest.mark.req("yoi.conform.62", "yoi.conform.63")
def test_the_report_has_these_fields_and_no_others(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    form = check(shell, folder)
    assert list(form) == FIELDS
    assert (form["command"], form["status"], form["input_kind"]) == ("check", "active", "directory")
    assert form["input_path"] == str(folder)
    assert list(form["package"]) == PACKAGE
    assert form["package"]["reference"] == "user:acme.echo"
    assert form["package"]["entries"] == ["plugin.component.wasm", "plugin.toml"]
    assert form["package"]["tools"] == ["echo"]
    assert form["package"]["permissions"] == ["surfaces.tool", "tool.echo"]
    assert form["package"]["digest"].startswith("sha256:")
    assert form["static_inspection"] == {"status": "active", "diagnostics": 0}
    assert form["diagnostics"] == []
    assert form["safety"] == SAFETY
    assert all(isinstance(step, str) for step in form["next_steps"])


@pytest.mark.req("yoi.conform.62", "yoi.conform.63")
def test_a_broken_package_is_rejected_with_its_report(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo", keys="colour = 1")
    form = check(shell, folder, status=1)
    assert list(form) == [field for field in FIELDS if field not in ("package", "static_inspection")]
    assert form["status"] == "rejected"
    [told] = form["diagnostics"]
    assert list(told) == ["kind", "phase", "message"]
    assert (told["kind"], told["phase"]) == ("malformed", "manifest")
    assert "colour" in told["message"]
    assert form["safety"] == SAFETY


@pytest.mark.req("yoi.conform.63")
def test_people_see_the_report_of_a_rejected_one_too(shell: Inside, tmp_path: Path) -> None:
    ran = shell("guest", "check", plugin(tmp_path / "echo", keys="colour = 1"))
    assert ran.returncode == 1
    assert ran.stdout.startswith("rejected")
    assert "colour" in ran.stdout


def test_an_archive_and_a_manifest_are_checked_alike(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    assert shell("guest", "pack", folder).returncode == 0
    packed = check(shell, tmp_path / "echo.yoi-plugin")
    assert packed["input_kind"] == "package"
    assert packed["package"]["digest"] == check(shell, folder / "plugin.toml")["package"]["digest"]


def test_what_is_no_archive_is_rejected(shell: Inside, tmp_path: Path) -> None:
    file = tmp_path / "echo.yoi-plugin"
    file.write_bytes(b"PK\3\4 nothing")
    form = check(shell, file, status=1)
    assert (form["status"], form["input_kind"]) == ("rejected", "package")
    assert form["diagnostics"][0]["phase"] == "discovery"


@pytest.mark.req("yoi.rule.049")
def test_the_whole_set_of_contributions_is_reported(shell: Inside, tmp_path: Path) -> None:
    asks = ("surfaces.tool", "tool.echo", "surfaces.service", "service.watch", "surfaces.ingress", "ingress.ws")
    folder = plugin(tmp_path / "echo", SERVICE, INGRESS, '[[hooks]]\nid = "h"\nfile = "plugin.toml"', permissions=asks)
    assert check(shell, folder)["package"]["surfaces"] == ["hook", "ingress", "service", "tool", "wasm"]


@pytest.mark.req("yoi.rule.091")
@pytest.mark.parametrize("api", ["request", "websocket", "fs"])
def test_a_host_api_needs_no_granted_target_to_be_checked(shell: Inside, tmp_path: Path, api: str) -> None:
    tables = {"request": (REQUEST,), "websocket": (SOCKET,), "fs": ()}[api]
    folder = plugin(tmp_path / "echo", *tables, permissions=("surfaces.tool", "tool.echo", f"host_api.{api}"))
    form = check(shell, folder)
    assert (form["status"], form["diagnostics"]) == ("active", [])


@pytest.mark.req("yoi.rule.091")
@pytest.mark.parametrize("world", [TOOL, INSTANCE])
@pytest.mark.parametrize("text", ["placeholder: build me\n", "", "(component)"])
def test_a_placeholder_of_any_template_makes_it_partial(shell: Inside, tmp_path: Path, world: str, text: str) -> None:
    folder = plugin(tmp_path / "echo", world=world, component=text.encode())
    form = check(shell, folder)
    assert form["status"] == "partial"
    assert [(one["kind"], one["phase"]) for one in form["diagnostics"]] == [("placeholder", "runtime")]
    assert shell("guest", "check", folder, "--strict").returncode == 1


@pytest.mark.parametrize("component", [CORE, b"\0asm", b"\xff\0\xfe"])
def test_what_is_no_component_is_rejected(shell: Inside, tmp_path: Path, component: bytes) -> None:
    form = check(shell, plugin(tmp_path / "echo", component=component), status=1)
    [told] = form["diagnostics"]
    assert told["phase"] == "runtime"
    assert told["message"].startswith("component is incompatible: ")


@pytest.mark.parametrize(
    ("component", "kind", "why"),
    [
        (EMPTY, "api", "it does not export start, handle-tool, handle-ingress, status, stop, which the world instance has"),
        (wat.missing_export("status"), "api", "it does not export status, which the world instance has"),
        (wat.echo("tool"), "api", "it does not export start, "),
        (wat.unknown_import(), "api", "it imports wasi:cli/environment@0.2.0, which no host of plugins has"),
        (wat.echo()[:-4], "malformed", "it ends too soon"),
    ],
)
def test_what_no_host_would_run_is_rejected(shell: Inside, tmp_path: Path, component: bytes, kind: str, why: str) -> None:
    """Else the author hears of it from whoever installs it."""
    form = check(shell, plugin(tmp_path / "echo", component=component), status=1)
    [told] = form["diagnostics"]
    assert (form["status"], told["kind"], told["phase"]) == ("rejected", kind, "runtime")
    assert told["message"].startswith(f"component is incompatible: {why}")


def test_a_tool_that_it_never_asks_for_is_the_authors_mistake(shell: Inside, tmp_path: Path) -> None:
    form = check(shell, plugin(tmp_path / "echo", permissions=("surfaces.tool",)), status=1)
    assert form["static_inspection"] == {"status": "rejected", "diagnostics": 1}
    assert "requested tool permission for `echo` is missing" in form["diagnostics"][0]["message"]


def test_options_of_extensions_have_no_meaning_here(shell: Inside, tmp_path: Path) -> None:
    ran = shell("guest", "check", plugin(tmp_path / "echo"), "--call", "echo={}")
    assert ran.returncode == 2
    assert "only looked at" in ran.stderr


def test_a_folder_that_says_another_dialect_is_no_plugin(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    (folder / "guest.toml").write_text('dialect = "zot"\n')
    ran = shell("guest", "check", folder)
    assert "yoi" not in ran.stdout


def test_nothing_of_a_manifest_reaches_the_terminal_as_it_is(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo", keys='description = "x"', version="1\\u001b[31m")
    ran = shell("guest", "check", folder)
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\\x1b[31m" in ran.stdout


# -- pack -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.conform.62", "yoi.conform.63")
def test_the_report_of_pack(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    ran = shell("guest", "pack", folder, "--json")
    assert ran.returncode == 0
    form = report(ran)
    assert list(form) == ["command", "status", "input_path", "output_path", "package", "safety"]
    assert (form["command"], form["status"]) == ("pack", "packed")
    assert form["input_path"] == str(folder)
    assert form["output_path"] == form["package"]["package_path"] == str(tmp_path / "echo.yoi-plugin")
    assert list(form["package"]) == PACKAGE
    assert form["safety"] == SAFETY


def test_pack_makes_folders_and_overwrites_and_gives_the_same_bytes(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    output = tmp_path / "a" / "b" / "out.yoi-plugin"
    assert shell("guest", "pack", folder, "--output", output).returncode == 0
    first = output.read_bytes()
    output.write_bytes(b"old")
    again = shutil.copytree(folder, tmp_path / "again")
    assert shell("guest", "pack", again, "-o", output).returncode == 0
    assert output.read_bytes() == first
    assert [path.name for path in output.parent.iterdir()] == ["out.yoi-plugin"]


def test_a_packed_file_is_for_everybody_to_read(shell: Inside, tmp_path: Path) -> None:
    """It is made to be given away, and holds no secret: not with the mode of a temporary file."""
    output = tmp_path / "echo.yoi-plugin"
    for _ in range(2):
        assert shell("guest", "pack", plugin(tmp_path / "echo")).returncode == 0
        assert stat.S_IMODE(output.stat().st_mode) == 0o644
        output.chmod(0o600)  # of one that was there before nothing is left


@pytest.mark.req("yoi.conform.63", "yoi.rule.090")
def test_pack_fails_with_one_and_writes_nothing(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo", keys="colour = 1")
    for path in (folder, tmp_path / "none"):
        ran = shell("guest", "pack", path)
        assert ran.returncode == 1
        assert ran.stdout == ""
        assert ran.stderr.startswith("serai: ")
    (tmp_path / "in the way").mkdir()
    assert shell("guest", "pack", plugin(tmp_path / "good"), "-o", tmp_path / "in the way").returncode == 1
    assert sorted(path.name for path in tmp_path.glob("*.yoi-plugin")) == []
    assert sorted(path.name for path in (tmp_path / "in the way").iterdir()) == []


def test_a_link_in_the_folder_is_not_packed(shell: Inside, tmp_path: Path) -> None:
    folder = plugin(tmp_path / "echo")
    (folder / "secret").symlink_to("/etc/passwd")
    ran = shell("guest", "pack", folder)
    assert ran.returncode == 1
    assert "plugin directory contains a symlink entry" in ran.stderr
