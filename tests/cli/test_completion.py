"""`serai completion`: the scripts, and what a shell is offered, asked as the scripts ask."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from serai.agents.factory import AGENTS
from serai.cli import completion
from serai.cli.command_table import COMMANDS
from serai.cli.completion import complete_agents, complete_guests, complete_models, complete_sessions
from serai.store.session_folder import SessionFolder
from tests.support.cli.shell import Shell, write_guest

SHELLS = ("bash", "zsh", "fish")
BASH = shutil.which("bash")
# Asks as bash does when the key is pressed; what is offered, one in a line.
PRESS = """
source <(serai completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 ))
complete -p serai
_serai_completion serai
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete_line(shell: Shell, line: str, kind: str = "bash", **env: str) -> list[tuple[str, str]]:
    """What the command answers to the script of a shell, as kind and value; the last word of the line is the incomplete one."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": words[-1] if kind == "fish" else str(len(words) - 1)}
    ran = shell(cwd=None, input="", _SERAI_COMPLETE=f"{kind}_complete", **asked, **env)
    assert (ran.returncode, ran.stderr) == (0, "")
    text = ran.stdout.strip("\n")
    if kind == "zsh":
        lines = text.splitlines()
        return list(zip(lines[::3], lines[1::3], strict=True))
    pairs = [line.partition(",") for line in text.splitlines()]
    return [(kind, value.partition("\t")[0]) for kind, _, value in pairs]


def complete_values(shell: Shell, line: str, kind: str = "bash", **env: str) -> list[str]:
    return [value for _, value in complete_line(shell, line, kind, **env)]


@pytest.mark.parametrize("kind", SHELLS)
@pytest.mark.req("app.completion.lazy")
def test_every_shell_is_offered_all_commands_and_those_of_groups(shell: Shell, kind: str) -> None:
    assert complete_values(shell, "serai ", kind) == sorted(COMMANDS)
    assert complete_values(shell, "serai model ", kind) == ["list", "show"]
    assert complete_values(shell, "serai mod", kind) == ["model"]


def test_options_of_a_command_that_was_not_imported_yet_are_offered(shell: Shell) -> None:
    assert {"--json", "--cwd", "--home", "--guest"} <= set(complete_values(shell, "serai doctor --"))
    assert complete_values(shell, "serai policy test bash --exp") == ["--expect"]
    assert complete_values(shell, "serai policy test bash --expect d") == ["deny"]


def test_paths_are_the_business_of_the_shell(shell: Shell) -> None:
    assert complete_line(shell, "serai guest list --guest ./gu") == [("file", "./gu")]
    assert complete_line(shell, "serai guest list --cwd ./gu") == [("dir", "./gu")]


@pytest.mark.parametrize("kind", SHELLS)
def test_a_model_is_offered_by_its_key_or_by_its_id(shell: Shell, kind: str) -> None:
    haikus = ["claude-haiku-5-5", "claude-haiku-4-5"]
    assert [one.replace("\\", "") for one in complete_values(shell, "serai model show anthropic/claude-h", kind)] == [
        f"anthropic/{id}" for id in haikus
    ]
    assert complete_values(shell, "serai model show claude-h", kind) == haikus


def build_context(shell: Shell, **params: object) -> click.Context:
    made = click.Context(click.Command("run"))
    made.params = {"cwd": str(shell.cwd), "home": str(shell.home), **params}
    return made


OPTION = click.Option(["--x"])


def complete_option(complete: completion.Completer, shell: Shell, incomplete: str = "", **params: object) -> list[str]:
    return [item.value for item in complete(build_context(shell, **params), OPTION, incomplete)]


def test_agents_are_offered(shell: Shell) -> None:
    assert complete_option(complete_agents, shell) == sorted(AGENTS)
    assert complete_option(complete_agents, shell, "x") == []


def test_the_models_of_the_home_that_the_line_names_are_offered(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "models.toml").write_text('[[models]]\nid = "mine"\nprovider = "acme"')
    assert complete_option(complete_models, shell, "acme/") == ["acme/mine"]
    assert complete_option(complete_models, shell, "acme/", home=None) == []


def test_the_sessions_of_this_folder_are_offered_the_newest_first(shell: Shell) -> None:
    sessions = SessionFolder(shell.home / "sessions")
    made = [
        sessions.create(str(cwd), title=title) for cwd, title in ((shell.cwd, "a"), (shell.cwd, "b\nc, d"), ("/elsewhere", "e"))
    ]
    for number, one in enumerate(made):
        one.close()
        os.utime(shell.home / "sessions" / f"{one.id}.jsonl", (number, number))
    first, second, _ = (one.id for one in made)
    items = complete_sessions(build_context(shell), OPTION, "")
    assert [(item.value, item.help) for item in items] == [(second, "b c; d"), (first, "a")]
    assert complete_option(complete_sessions, shell, first[:20]) == [first]


def test_guests_are_offered_by_name_and_none_is_started(shell: Shell) -> None:
    folder = write_guest(shell.home / "guests" / "weather", tools=["weather"])
    (folder / "guest.py").write_text(f"open({str(shell.home / 'started')!r}, 'w')")
    assert complete_option(complete_guests, shell) == ["weather"]
    assert complete_option(complete_guests, shell, no_installed=True) == []
    assert not (shell.home / "started").exists()


@pytest.mark.req("app.completion.harmless")
@pytest.mark.parametrize("name", ["$(reboot)", "a;b", "a b", "-rf", "*", "a`b`", "a\\b", 'a"b'])
def test_nothing_is_offered_that_a_shell_would_act_upon(shell: Shell, name: str) -> None:
    write_guest(shell.home / "guests" / "odd", name=name)
    write_guest(shell.home / "guests" / "sound")
    assert complete_option(complete_guests, shell) == ["sound"]


@pytest.mark.req("app.completion.harmless")
def test_whatever_is_wrong_nothing_is_offered_and_nothing_said(shell: Shell) -> None:
    shell.home.mkdir()
    for name in ("models.toml", "config.toml", "sessions"):
        (shell.home / name).write_text("= broken")
    assert complete_values(shell, "serai model show ") == []
    for complete in (complete_models, complete_sessions, complete_guests):
        assert complete_option(complete, shell) == []


def test_all_commands_are_offered_without_importing_any(shell: Shell) -> None:
    program = "import sys; from serai.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    asked = {"COMP_WORDS": "serai ", "COMP_CWORD": "1", "_SERAI_COMPLETE": "bash_complete"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=shell.env | asked, capture_output=True, text=True, check=True, timeout=30
    )
    assert "plain,doctor" in ran.stdout
    assert not {home.split(":")[0] for home, _ in COMMANDS.values()} & set(ran.stderr.split())


# -- the scripts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef serai"), ("fish", "--command serai")])
def test_a_script_is_printed_and_nothing_beside_it(shell: Shell, kind: str, mark: str) -> None:
    ran = shell("completion", kind)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert mark in ran.stdout
    assert f"_SERAI_COMPLETE={kind}_complete" in ran.stdout


def test_an_unknown_shell_is_a_usage_error(shell: Shell) -> None:
    ran = shell("completion", "tcsh")
    assert ran.returncode == 2
    assert "'bash', 'zsh', 'fish'" in ran.stderr


def test_on_a_terminal_it_says_how_to_install_it(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    try:
        command = shell.argv("completion", "fish")
        ran = subprocess.run(command, env=shell.env, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=30, check=True)
    finally:
        os.close(theirs)
        os.close(ours)
    assert ran.stderr == "to install it: serai completion fish > ~/.config/fish/completions/serai.fish\n"


@pytest.mark.needs("bash")
@pytest.mark.req("app.completion.lazy")
def test_a_real_bash_is_offered_what_the_command_knows(shell: Shell, tmp_path: Path) -> None:
    assert BASH is not None
    command = [BASH, "--norc", "-c", PRESS, "press", "serai", "model", "show", "anthropic/claude-h"]
    program = tmp_path / "serai"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m serai "$@"\n')
    program.chmod(0o755)
    env = shell.env | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "complete -o nosort -F _serai_completion serai",
        "anthropic/claude-haiku-5-5",
        "anthropic/claude-haiku-4-5",
    ]
