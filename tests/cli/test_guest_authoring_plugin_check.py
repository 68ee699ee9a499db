"""`serai guest check` of a plugin: it is looked at, and nothing else (spec yoi 19)."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from tests.support.cli.in_process_shell import InProcessShell
from tests.support.yoi import components
from tests.support.yoi.plugin_manifests import CORE, EMPTY, INSTANCE, SAFETY, TOOL, check_plugin, parse_report, write_plugin

FIELDS = ["command", "status", "input_path", "input_kind", "package", "static_inspection", "diagnostics", "safety", "next_steps"]
PACKAGE = [
    "reference", "package", "source", "version", "schema_version", "digest", "package_path", "entries", "surfaces", "tools",
    "permissions",
]  # fmt: skip
REQUEST = '[[request]]\nscheme = "https"\nhost = "api.example.com"\nmethods = ["GET"]\npath_prefixes = ["/v1"]'
SOCKET = '[[websocket]]\nscheme = "wss"\nhost = "example.com"\npath_prefixes = ["/socket"]'
SERVICE = '[[services]]\nname = "watch"\ndescription = "d"\nlifecycle = "host-managed"'
INGRESS = '[[ingresses]]\nname = "ws"\ndescription = "d"\nsources = ["websocket:wss://example.com/socket"]'


@pytest.mark.req("yoi.conform.62", "yoi.conform.63")
def test_the_report_has_these_fields_and_no_others(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    form = check_plugin(in_process_shell, folder)
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
def test_a_broken_package_is_rejected_with_its_report(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", keys="colour = 1")
    form = check_plugin(in_process_shell, folder, status=1)
    assert list(form) == [field for field in FIELDS if field not in ("package", "static_inspection")]
    assert form["status"] == "rejected"
    [told] = form["diagnostics"]
    assert list(told) == ["kind", "phase", "message"]
    assert (told["kind"], told["phase"]) == ("malformed", "manifest")
    assert "colour" in told["message"]
    assert form["safety"] == SAFETY


@pytest.mark.req("yoi.conform.63")
def test_people_see_the_report_of_a_rejected_one_too(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    ran = in_process_shell("guest", "check", write_plugin(tmp_path / "echo", keys="colour = 1"))
    assert ran.returncode == 1
    assert ran.stdout.startswith("rejected")
    assert "colour" in ran.stdout


def test_an_archive_and_a_manifest_are_checked_alike(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    assert in_process_shell("guest", "pack", folder).returncode == 0
    packed = check_plugin(in_process_shell, tmp_path / "echo.yoi-plugin")
    assert packed["input_kind"] == "package"
    assert packed["package"]["digest"] == check_plugin(in_process_shell, folder / "plugin.toml")["package"]["digest"]


def test_what_is_no_archive_is_rejected(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    file = tmp_path / "echo.yoi-plugin"
    file.write_bytes(b"PK\3\4 nothing")
    form = check_plugin(in_process_shell, file, status=1)
    assert (form["status"], form["input_kind"]) == ("rejected", "package")
    assert form["diagnostics"][0]["phase"] == "discovery"


@pytest.mark.req("yoi.rule.049")
def test_the_whole_set_of_contributions_is_reported(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    asks = ("surfaces.tool", "tool.echo", "surfaces.service", "service.watch", "surfaces.ingress", "ingress.ws")
    folder = write_plugin(tmp_path / "echo", SERVICE, INGRESS, '[[hooks]]\nid = "h"\nfile = "plugin.toml"', permissions=asks)
    assert check_plugin(in_process_shell, folder)["package"]["surfaces"] == ["hook", "ingress", "service", "tool", "wasm"]


@pytest.mark.req("yoi.rule.091")
@pytest.mark.parametrize("api", ["request", "websocket", "fs"])
def test_a_host_api_needs_no_granted_target_to_be_checked(in_process_shell: InProcessShell, tmp_path: Path, api: str) -> None:
    tables = {"request": (REQUEST,), "websocket": (SOCKET,), "fs": ()}[api]
    folder = write_plugin(tmp_path / "echo", *tables, permissions=("surfaces.tool", "tool.echo", f"host_api.{api}"))
    form = check_plugin(in_process_shell, folder)
    assert (form["status"], form["diagnostics"]) == ("active", [])


@pytest.mark.req("yoi.rule.091")
@pytest.mark.parametrize("world", [TOOL, INSTANCE])
@pytest.mark.parametrize("text", ["placeholder: build me\n", "", "(component)"])
def test_a_placeholder_of_any_template_makes_it_partial(
    in_process_shell: InProcessShell, tmp_path: Path, world: str, text: str
) -> None:
    folder = write_plugin(tmp_path / "echo", world=world, component=text.encode())
    form = check_plugin(in_process_shell, folder)
    assert form["status"] == "partial"
    assert [(one["kind"], one["phase"]) for one in form["diagnostics"]] == [("placeholder", "runtime")]
    assert in_process_shell("guest", "check", folder, "--strict").returncode == 1


@pytest.mark.parametrize("component", [CORE, b"\0asm", b"\xff\0\xfe"])
def test_what_is_no_component_is_rejected(in_process_shell: InProcessShell, tmp_path: Path, component: bytes) -> None:
    form = check_plugin(in_process_shell, write_plugin(tmp_path / "echo", component=component), status=1)
    [told] = form["diagnostics"]
    assert told["phase"] == "runtime"
    assert told["message"].startswith("component is incompatible: ")


@pytest.mark.parametrize(
    ("component", "kind", "why"),
    [
        (EMPTY, "api", "it does not export start, handle-tool, handle-ingress, status, stop, which the world instance has"),
        (components.missing_export("status"), "api", "it does not export status, which the world instance has"),
        (components.echo("tool"), "api", "it does not export start, "),
        (components.unknown_import(), "api", "it imports wasi:cli/environment@0.2.0, which no host of plugins has"),
        (components.echo()[:-4], "malformed", "it ends too soon"),
    ],
)
def test_what_no_host_would_run_is_rejected(
    in_process_shell: InProcessShell, tmp_path: Path, component: bytes, kind: str, why: str
) -> None:
    """Else the author hears of it from whoever installs it."""
    form = check_plugin(in_process_shell, write_plugin(tmp_path / "echo", component=component), status=1)
    [told] = form["diagnostics"]
    assert (form["status"], told["kind"], told["phase"]) == ("rejected", kind, "runtime")
    assert told["message"].startswith(f"component is incompatible: {why}")


def test_a_tool_that_it_never_asks_for_is_the_authors_mistake(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    form = check_plugin(in_process_shell, write_plugin(tmp_path / "echo", permissions=("surfaces.tool",)), status=1)
    assert form["static_inspection"] == {"status": "rejected", "diagnostics": 1}
    assert "requested tool permission for `echo` is missing" in form["diagnostics"][0]["message"]


def test_options_of_extensions_have_no_meaning_here(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    ran = in_process_shell("guest", "check", write_plugin(tmp_path / "echo"), "--call", "echo={}")
    assert ran.returncode == 2
    assert "only looked at" in ran.stderr


def test_a_folder_that_says_another_dialect_is_no_plugin(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    (folder / "guest.toml").write_text('dialect = "zot"\n')
    ran = in_process_shell("guest", "check", folder)
    assert "yoi" not in ran.stdout


def test_nothing_of_a_manifest_reaches_the_terminal_as_it_is(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", keys='description = "x"', version="1\\u001b[31m")
    ran = in_process_shell("guest", "check", folder)
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\\x1b[31m" in ran.stdout


# -- pack -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.conform.62", "yoi.conform.63")
def test_the_report_of_pack(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    ran = in_process_shell("guest", "pack", folder, "--json")
    assert ran.returncode == 0
    form = parse_report(ran)
    assert list(form) == ["command", "status", "input_path", "output_path", "package", "safety"]
    assert (form["command"], form["status"]) == ("pack", "packed")
    assert form["input_path"] == str(folder)
    assert form["output_path"] == form["package"]["package_path"] == str(tmp_path / "echo.yoi-plugin")
    assert list(form["package"]) == PACKAGE
    assert form["safety"] == SAFETY


def test_pack_makes_folders_and_overwrites_and_gives_the_same_bytes(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    output = tmp_path / "a" / "b" / "out.yoi-plugin"
    assert in_process_shell("guest", "pack", folder, "--output", output).returncode == 0
    first = output.read_bytes()
    output.write_bytes(b"old")
    again = shutil.copytree(folder, tmp_path / "again")
    assert in_process_shell("guest", "pack", again, "-o", output).returncode == 0
    assert output.read_bytes() == first
    assert [path.name for path in output.parent.iterdir()] == ["out.yoi-plugin"]


def test_a_packed_file_is_for_everybody_to_read(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    """It is made to be given away, and holds no secret: not with the mode of a temporary file."""
    output = tmp_path / "echo.yoi-plugin"
    for _ in range(2):
        assert in_process_shell("guest", "pack", write_plugin(tmp_path / "echo")).returncode == 0
        assert stat.S_IMODE(output.stat().st_mode) == 0o644
        output.chmod(0o600)  # of one that was there before nothing is left


@pytest.mark.req("yoi.conform.63", "yoi.rule.090")
def test_pack_fails_with_one_and_writes_nothing(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo", keys="colour = 1")
    for path in (folder, tmp_path / "none"):
        ran = in_process_shell("guest", "pack", path)
        assert ran.returncode == 1
        assert ran.stdout == ""
        assert ran.stderr.startswith("serai: ")
    (tmp_path / "in the way").mkdir()
    assert in_process_shell("guest", "pack", write_plugin(tmp_path / "good"), "-o", tmp_path / "in the way").returncode == 1
    assert sorted(path.name for path in tmp_path.glob("*.yoi-plugin")) == []
    assert sorted(path.name for path in (tmp_path / "in the way").iterdir()) == []


def test_a_link_in_the_folder_is_not_packed(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    (folder / "secret").symlink_to("/etc/passwd")
    ran = in_process_shell("guest", "pack", folder)
    assert ran.returncode == 1
    assert "plugin directory contains a symlink entry" in ran.stderr
