"""The commands for plugins among the others of `serai guest`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from serai.cli.command_table import LazyCommand, serai
from serai.cli.guest import PLUGINS, ext, guest
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.yoi.plugin_manifests import write_plugin


@pytest.mark.parametrize("name", PLUGINS)
def test_its_line_is_the_first_of_its_own_help(name: str) -> None:
    stands_for = guest.commands[name]
    assert isinstance(stands_for, LazyCommand)
    assert ext.commands[name] is stands_for
    command = stands_for.load()
    assert command.name == name
    assert (command.help or "").splitlines()[0].rstrip() == stands_for.short_help


@pytest.mark.parametrize("name", PLUGINS)
def test_it_shows_its_own_help(in_process_shell: InProcessShell, name: str) -> None:
    ran = in_process_shell("guest", name, "--help")
    assert (ran.returncode, ran.stdout.startswith(f"Usage: serai guest {name}")) == (0, True)


def test_status_and_restart_say_whose_instance_it_is(in_process_shell: InProcessShell) -> None:
    for name in ("status", "restart"):
        said = " ".join(in_process_shell("guest", name, "--help").stdout.split())
        assert "of this very process" in said or "in this very process" in said


@pytest.mark.parametrize("name", ["grant", "revoke", "status", "restart", "show"])
def test_names_are_completed(in_process_shell: InProcessShell, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(in_process_shell.home / "guests" / "echo")
    monkeypatch.setenv("SERAI_HOME", str(in_process_shell.home))
    monkeypatch.chdir(in_process_shell.cwd)
    complete = ShellComplete(serai, {}, "serai", "_SERAI_COMPLETE")
    assert [item.value for item in complete.get_completions(["guest", name], "ac")] == ["acme.echo"]


def test_add_tells_what_to_do_next(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    assert in_process_shell("guest", "pack", folder).returncode == 0
    ran = in_process_shell("guest", "add", f"{folder}.yoi-plugin")
    assert ran.returncode == 0, ran.stderr
    assert "`serai guest grant acme.echo` shows what it asks for" in ran.stderr
    assert in_process_shell("guest", "grant", "acme.echo", "--yes").returncode == 0
    assert "user:acme.echo  active" in in_process_shell("guest", "list").stdout
