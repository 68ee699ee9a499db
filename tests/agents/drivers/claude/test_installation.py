"""Which Claude Code is driven."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude import installation
from serai.agents.drivers.claude.installation import (
    UNKNOWN,
    InstallLocations,
    ProgramFile,
    VersionCache,
    _iter_platforms,
    find_claude,
    find_rejection,
    is_newer,
    parse_banner,
    parse_version,
    read_recorded_version,
    resolve_native,
)
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.errors import BadSettings, NoAgent
from serai.limits import Limits
from serai.wire.plain_process import PlainSpawner
from tests.support.claude.programs import count_runs, environ, npm, places, program

# -- versions ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.A5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2.0.0", "1.9.9"), ("1.3.0", "1.2.9"), ("1.2.4", "1.2.3"), ("1.10.0", "1.9.0"), ("1.2.1", "1.2"), ("2", "1.9.9"),
        ("0", UNKNOWN), ("0.0.0", UNKNOWN), ("2.1.0-beta", "2.0.9"), ("1.0", ""),
    ],
)  # fmt: skip
def test_versions_compare_by_number(one: str, other: str) -> None:
    assert is_newer(one, other)
    assert not is_newer(other, one)


@pytest.mark.req("agents.scenario.A5")
@pytest.mark.parametrize(
    ("one", "other"), [("1.2.3", "1.2.3"), ("1.2", "1.2.0"), ("1", "1.0.0"), (UNKNOWN, UNKNOWN), ("v1.2", "1.2")]
)
def test_equal_versions_are_not_newer(one: str, other: str) -> None:
    assert not is_newer(one, other)
    assert not is_newer(other, one)


_VERSIONS = st.one_of(
    st.just(UNKNOWN), st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
)


@given(_VERSIONS, _VERSIONS, _VERSIONS)
def test_newer_is_an_order(one: str, two: str, three: str) -> None:
    assert not (is_newer(one, two) and is_newer(two, one))
    if is_newer(one, two) and is_newer(two, three):
        assert is_newer(one, three)


@pytest.mark.req("agents.scenario.A6")
@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Claude CLI v1.0.0", "1.0.0"),
        ("1.2.3", "1.2.3"),
        ("Claude CLI version 2.0.0-beta", "2.0.0-beta"),
        ("\n3.4.5 (Claude Code)\nbuilt on 2026-01-02\n", "3.4.5"),
        ("version unknown\n1.2.3", ""),
        ("", ""),
    ],
)
def test_a_version_is_read_from_the_first_line(text: str, version: str) -> None:
    assert parse_version(text) == version


@pytest.mark.req("agents.scenario.A11")
@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.218 (Claude Code)", "2.1.218"),
        ("Claude CLI v1.0.0", "1.0.0"),
        ("2.1.325 (CLAUDE CODE)\n", "2.1.325"),
        ("Claude Code", UNKNOWN),
        ("1.0.0 (Claude)", ""),
        ("claude 1.2.3", ""),
        ("", ""),
    ],
)
def test_a_banner_says_whose_it_is(text: str, version: str) -> None:
    assert parse_banner(text) == version


@pytest.mark.req("agents.scenario.A11")
async def test_a_program_that_says_it_is_another_is_not_taken(tmp_path: Path) -> None:
    desktop = program(tmp_path / "a" / "claude", says="1.0.0 (Claude)")
    old = program(tmp_path / "b" / "claude", says="Claude CLI v1.0.0")
    with pytest.raises(ValueError, match="something else than Claude Code"):
        await VersionCache().get(str(desktop), {}, limits=Limits())
    assert await VersionCache().get(str(old), {}, limits=Limits()) == "1.0.0"
    env = environ(tmp_path, tmp_path / "a")
    program(tmp_path / ".local" / "bin" / "claude", says="Claude CLI v1.0.0")
    found = await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=VersionCache())
    assert (found.source, found.version) == ("installed", "1.0.0")


@pytest.mark.req("agents.rule.54")
async def test_a_program_is_asked_once_until_its_file_changes(tmp_path: Path) -> None:
    file, versions = program(tmp_path / "claude", "1.0.0"), VersionCache()
    for _ in range(3):
        assert await versions.get(str(file), {}, limits=Limits()) == "1.0.0"
    link = tmp_path / "link"
    link.symlink_to(file)
    assert await versions.get(str(link), {}, limits=Limits()) == "1.0.0"
    assert count_runs(file) == 1
    program(file, "1.0.1")  # as long as before
    os.utime(file, ns=(0, 0))
    assert await versions.get(str(file), {}, limits=Limits()) == "1.0.1"
    program(file, "1.0.10")
    os.utime(file, ns=(0, 0))
    assert await versions.get(str(file), {}, limits=Limits()) == "1.0.10"
    assert count_runs(file) == 3
    versions.invalidate()
    assert await versions.get(str(file), {}, limits=Limits()) == "1.0.10"
    assert count_runs(file) == 4


@pytest.mark.req("agents.rule.54")
async def test_one_that_does_not_tell_its_version_is_given_up(tmp_path: Path) -> None:
    mute = program(tmp_path / "claude", body="exec sleep 600")
    assert Limits().agent_version == 5.0
    with pytest.raises(ValueError, match=r"within 0\.3 s"):
        await VersionCache().get(str(mute), {"PATH": os.environ["PATH"]}, limits=Limits().but(agent_version=0.3))
    failing = program(tmp_path / "failing", body="exit 3")
    with pytest.raises(ValueError, match="exit status 3"):
        await VersionCache().get(str(failing), {}, limits=Limits())


async def test_a_spawner_that_is_given_is_used_and_left_open(tmp_path: Path) -> None:
    file = program(tmp_path / "claude")
    async with PlainSpawner() as spawner:
        assert await VersionCache().get(str(file), {}, limits=Limits(), spawner=spawner) == "2.1.300"
        assert not spawner.children


# -- what a file is, without starting it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude.cmd", "claude.BAT", "claude.ps1"])
def test_scripts_of_the_windows_shell_are_refused(tmp_path: Path, name: str) -> None:
    assert "Windows" in find_rejection(str(program(tmp_path / name)))


@pytest.mark.req("agents.scenario.A12")
@pytest.mark.parametrize(
    "place",
    ["Applications/Claude.app/Contents/MacOS", "opt/claude-desktop", "AppData/Local/AnthropicClaude", "usr/lib/claude-desktop/bin"],
)
async def test_the_desktop_application_is_never_taken(tmp_path: Path, place: str) -> None:
    desktop = program(tmp_path / place / "claude")
    env = environ(tmp_path / "home", desktop.parent)
    with pytest.raises(NoAgent, match="Desktop application"):
        await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=VersionCache())
    link = tmp_path / "bin" / "claude"
    link.parent.mkdir()
    link.symlink_to(desktop)
    assert "Desktop" in find_rejection(str(link))
    assert count_runs(desktop) == 0


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    torn = tmp_path / "torn"
    torn.write_text('echo "Error: claude native binary not installed."')  # what npm leaves where its script did not run
    torn.chmod(0o755)
    assert find_rejection(str(plain)) == "it is not executable"
    assert find_rejection(str(torn)) == "it is neither a program nor a script with a #! line"
    assert find_rejection(str(tmp_path)) == "it is not a file"
    assert find_rejection(str(tmp_path / "missing")) == "it does not exist"
    assert find_rejection(sys.executable) == ""


def test_a_version_that_is_written_beside_the_file_needs_no_process(tmp_path: Path) -> None:
    wheel = program(tmp_path / "_bundled" / "claude")
    (tmp_path / "_bundled" / "claude.version").write_text("2.1.325 (Claude Code)\n")
    installed = program(tmp_path / "claude" / "versions" / "2.1.320")
    link = tmp_path / "claude" / "claude"
    link.symlink_to(installed)
    old = npm(tmp_path / "a", "claude-code", "1.0.128", "cli.js")
    new = npm(tmp_path / "b", "claude-code", "2.1.197", "bin/claude.exe")
    platform = npm(tmp_path / "b", "claude-code-linux-x64", "2.1.198", "claude")
    others = npm(tmp_path / "c", "other", "3.0.0", "claude")
    found = [
        read_recorded_version(str(path)) for path in (wheel, installed, link, old, new, platform, others, program(tmp_path / "x"))
    ]
    assert found == ["2.1.325", "2.1.320", "2.1.320", "1.0.128", "2.1.197", "2.1.198", "", ""]
    assert [count_runs(path) for path in (wheel, installed, old, new, platform)] == [0] * 5


# -- where it is looked for -------------------------------------------------------------------------------------------------------


async def test_one_alone_is_taken_without_asking_it(tmp_path: Path) -> None:
    file = program(tmp_path / "bin" / "claude")
    env = environ(tmp_path, file.parent)
    found = await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=VersionCache())
    assert found == ProgramFile(str(file), "", "PATH")
    assert count_runs(file) == 0
    assert (
        await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=VersionCache(), probe=True)
    ).version == "2.1.300"


@pytest.mark.req("agents.rule.53")
async def test_the_newest_is_taken_and_the_path_wins_a_tie(tmp_path: Path) -> None:
    on_path = program(tmp_path / "bin" / "claude", "2.1.9")
    home = program(tmp_path / ".local" / "bin" / "claude", "2.1.10")
    program(tmp_path / "usr" / "bin" / "claude", "2.1.8")
    env = environ(tmp_path, on_path.parent)
    versions = VersionCache()
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=versions) == ProgramFile(
        str(home), "2.1.10", "installed"
    )
    program(on_path, "2.1.10")
    versions.invalidate()
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=versions) == ProgramFile(
        str(on_path), "2.1.10", "PATH"
    )


@pytest.mark.parametrize("place", [".local/bin", ".npm-global/bin", ".claude/local", "node_modules/.bin", ".yarn/bin", "usr/bin"])
async def test_the_usual_places(tmp_path: Path, place: str) -> None:
    file = program(tmp_path / place / "claude")
    env = environ(tmp_path)
    assert (await find_claude(ClaudeOptions(), env, places=places(env, tmp_path))).path == str(file)


async def test_on_the_path_the_other_name_counts_too_and_links_are_followed(tmp_path: Path) -> None:
    file = program(tmp_path / "real" / "program")
    link = tmp_path / "bin" / "anthropic"
    link.parent.mkdir()
    link.symlink_to(file)
    env = environ(tmp_path, link.parent)
    assert (await find_claude(ClaudeOptions(), env, places=places(env, tmp_path))).path == str(file)


async def test_a_projects_own_packages_and_the_folder_itself_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("project/node_modules/.bin", "project", "project/bin"):
        program(tmp_path / place / "claude")
    monkeypatch.chdir(tmp_path / "project")
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/project/node_modules/.bin::bin:."}
    with pytest.raises(NoAgent):
        await find_claude(
            ClaudeOptions(),
            env,
            places=InstallLocations(env, package="none", beside=str(tmp_path / "x"), machine=(str(tmp_path / "usr"),)),
        )


async def test_the_program_inside_the_wheel_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "claude_agent_sdk"
    file = program(package / "_bundled" / "claude")
    (package / "__init__.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    env = environ(tmp_path)
    found = await find_claude(ClaudeOptions(use_bundled=True), env, places=places(env, tmp_path, package="claude_agent_sdk"))
    assert found == ProgramFile(str(file), "", "bundled")
    assert "claude_agent_sdk" not in sys.modules


@pytest.mark.parametrize("place", ["beside", "Resources", "beside/claude-code"])
async def test_an_application_may_have_it_beside_itself(tmp_path: Path, place: str) -> None:
    (tmp_path / "beside").mkdir()
    file = program(tmp_path / place / "claude")
    env = environ(tmp_path)
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path)) == ProgramFile(str(file), "", "bundled")


@pytest.mark.parametrize("nested", [False, True])
async def test_of_npms_packages_the_program_itself_is_taken(tmp_path: Path, nested: bool) -> None:
    modules = tmp_path / "usr" / "lib" / "node_modules"
    wrapper = npm(modules, "claude-code", "2.1.325", "bin/claude.exe")
    link = tmp_path / "usr" / "bin" / "claude"
    link.parent.mkdir(parents=True)
    link.symlink_to(wrapper)
    env = environ(tmp_path, link.parent)
    assert (await find_claude(ClaudeOptions(), env, places=places(env, tmp_path))).path == str(wrapper)
    around = modules / "@anthropic-ai" / "claude-code" / "node_modules" if nested else modules
    platform = npm(around, f"claude-code-{next(_iter_platforms())}", "2.1.325", "claude")
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path)) == ProgramFile(str(platform), "2.1.325", "PATH")
    assert resolve_native(str(platform)) == str(platform)
    link.unlink()
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path)) == ProgramFile(
        str(platform), "2.1.325", "installed"
    )


@pytest.mark.parametrize(
    ("place", "more"), [("node_modules", False), (".npm-global/lib/node_modules", False), ("n/lib/node_modules", True)]
)
async def test_npms_roots(tmp_path: Path, place: str, more: bool) -> None:
    file = npm(tmp_path / place, f"claude-code-{next(_iter_platforms())}", "2.1.325", "claude")
    npm(tmp_path / place, "claude-code", "2.1.325", "bin/claude.exe")
    env = environ(tmp_path, **({"npm_config_prefix": str(tmp_path / "n")} if more else {}))
    assert await find_claude(ClaudeOptions(), env, places=places(env, tmp_path)) == ProgramFile(str(file), "2.1.325", "installed")
    if more:
        program(tmp_path / "n" / "bin" / "npm")
        env = environ(tmp_path, tmp_path / "n" / "bin")
        assert (await find_claude(ClaudeOptions(), env, places=places(env, tmp_path))).path == str(file)


# -- what somebody says -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.A13")
async def test_a_path_that_is_set_is_the_one_and_is_looked_at_before(tmp_path: Path) -> None:
    mine = program(tmp_path / "mine", "1.0.0")
    program(tmp_path / "bin" / "claude", "9.0.0")
    env = environ(tmp_path, tmp_path / "bin", CLAUDE_CLI_PATH=str(tmp_path / "bin" / "claude"))
    versions = VersionCache()
    assert await find_claude(ClaudeOptions(path=str(mine)), env, versions=versions) == ProgramFile(str(mine), "1.0.0", "options")
    assert await find_claude(ClaudeOptions(), env, configured="~/mine", versions=versions) == ProgramFile(
        str(mine), "1.0.0", "settings"
    )
    assert count_runs(mine) == 1
    program(mine, says="1.0.0 (Claude)")
    versions.invalidate()
    with pytest.raises(NoAgent, match="something else than Claude Code") as raised:
        await find_claude(ClaudeOptions(path=str(mine)), env, versions=versions)
    assert raised.value.who == "claude"
    for path, why in ((str(tmp_path / "none"), "does not exist"), ("mine", "not an absolute path"), (str(tmp_path), "not a file")):
        with pytest.raises(NoAgent, match=why):
            await find_claude(ClaudeOptions(path=path), env, versions=versions)
        with pytest.raises(NoAgent, match=f"\\[agents.claude\\].*{why}"):
            await find_claude(ClaudeOptions(), env, configured=path, versions=versions)


@pytest.mark.parametrize("name", ["claude", "anthropic"])
async def test_the_bare_name_as_a_path_means_whichever_there_is(tmp_path: Path, name: str) -> None:
    file = program(tmp_path / "bin" / "claude")
    env = environ(tmp_path, file.parent)
    assert (await find_claude(ClaudeOptions(path=name), env, places=places(env, tmp_path))).path == str(file)


@pytest.mark.req("agents.rule.52")
async def test_the_variable_is_taken_or_is_an_error(tmp_path: Path) -> None:
    file = program(tmp_path / "bin" / "claude")
    env = environ(tmp_path, file.parent)
    found = await find_claude(ClaudeOptions(), {**env, "CLAUDE_CLI_PATH": str(file)}, versions=VersionCache())
    assert found == ProgramFile(str(file), "2.1.300", "CLAUDE_CLI_PATH")
    for bad in (str(tmp_path / "missing"), str(program(tmp_path / "else", says="1.0.0 (Claude)")), "claude"):
        with pytest.raises(NoAgent, match="CLAUDE_CLI_PATH") as raised:
            await find_claude(
                ClaudeOptions(), {**env, "CLAUDE_CLI_PATH": bad}, places=places(env, tmp_path), versions=VersionCache()
            )
        assert "CLAUDE_CLI_PATH" in raised.value.hint


@pytest.mark.req("agents.rule.52")
async def test_the_bundled_and_the_global_one_cannot_both_be_meant(tmp_path: Path) -> None:
    bundled = program(tmp_path / "beside" / "claude", "9.9.9")
    installed = program(tmp_path / "bin" / "claude", "1.0.0")
    env = environ(tmp_path, installed.parent)
    both = [
        (ClaudeOptions(use_bundled=True, use_global=True), env),
        (ClaudeOptions(use_bundled=True), {**env, "CLAUDE_USE_GLOBAL": "1"}),
        (ClaudeOptions(), {**env, "CLAUDE_USE_BUNDLED": "1", "CLAUDE_USE_GLOBAL": "1"}),
    ]
    for options, variables in both:
        with pytest.raises(BadSettings, match="cannot both be meant"):
            await find_claude(options, variables, places=places(env, tmp_path))
    for options, variables, file in (
        (ClaudeOptions(use_bundled=True), env, bundled),
        (ClaudeOptions(), {**env, "CLAUDE_USE_BUNDLED": "1"}, bundled),
        (ClaudeOptions(use_global=True), env, installed),
        (ClaudeOptions(), {**env, "CLAUDE_USE_GLOBAL": "1"}, installed),
    ):
        assert (await find_claude(options, variables, places=places(env, tmp_path))).path == str(file)


async def test_where_there_is_none_it_says_where_it_looked_and_how_to_have_it(tmp_path: Path) -> None:
    env = environ(tmp_path)
    broken = program(tmp_path / ".local" / "bin" / "claude", body="exit 1")
    other = program(tmp_path / "usr" / "bin" / "claude", says="1.0.0 (Claude)")
    with pytest.raises(NoAgent) as raised:
        await find_claude(ClaudeOptions(), env, places=places(env, tmp_path), versions=VersionCache())
    error = raised.value
    assert error.who == "claude"
    for part in (
        "PATH",
        "the package claude-agent-none",
        f"{tmp_path}/node_modules",
        f"{broken}: it could not tell",
        f"{other}: it says",
    ):
        assert part in error.message
    for part in ("claude-agent-sdk", "@anthropic-ai/claude-code", "[agents.claude]"):
        assert part in error.hint
    assert ".org" not in error.hint + error.message


async def test_what_programs_said_can_be_forgotten(tmp_path: Path) -> None:
    file = program(tmp_path / "claude")
    for _ in range(2):
        await find_claude(ClaudeOptions(path=str(file)), environ(tmp_path))
    assert count_runs(file) == 1
    installation.invalidate()
    await find_claude(ClaudeOptions(path=str(file)), environ(tmp_path))
    assert count_runs(file) == 2


async def test_a_program_is_asked_in_the_cleaned_environment(tmp_path: Path) -> None:
    file = program(tmp_path / "claude", body=f'env > "{tmp_path}/env"')
    await find_claude(
        ClaudeOptions(path=str(file)), environ(tmp_path, CLAUDECODE="1", GITHUB_TOKEN="t", NODE_PATH="/n"), versions=VersionCache()
    )
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert not names & {"CLAUDECODE", "GITHUB_TOKEN", "NODE_PATH"}
    assert "HOME" in names
