"""`serai guest new --dialect piglet`: what it makes works as it stands, in each of its languages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serai.authoring import scaffold
from serai.testing.piglet_host.host import PigletHost
from tests.support import needs
from tests.support.cli.scaffolded_extensions import ADA, BAD, LANGUAGES, run_own_tests, write_programs
from tests.support.cli.shell import Shell, parse_objects
from tests.support.typescript import copy_runnable, write_node

NEED = pytest.mark.needs("typescript")
every_language = pytest.mark.parametrize("language", ["python", pytest.param("typescript", marks=NEED)])


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """With a python3 that has serai, and a node that runs TypeScript if there is one, before all others on the PATH."""
    (tmp_path / "bin").mkdir()
    node = [str(write_node(tmp_path / "bin"))] if needs.has("typescript") else []
    path = [*node, os.path.dirname(sys.executable), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    return Shell(tmp_path)


def run_new(shell: Shell, name: str, language: str, *options: str) -> subprocess.CompletedProcess[str]:
    return shell("guest", "new", name, "--dialect", "piglet", "--lang", language, *options)


@pytest.mark.req("sdk.new.works")
@pytest.mark.parametrize("guard", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "guard"])
@pytest.mark.parametrize("language", ["python", pytest.param("typescript", marks=[NEED, pytest.mark.slow])])
def test_the_tests_of_a_new_extension_pass(shell: Shell, language: str, guard: bool) -> None:
    made = run_new(shell, "first", language, *(["--guard"] if guard else []))
    assert (made.stderr, made.returncode) == ("", 0)
    ran = run_own_tests(shell, shell.cwd / "first")
    assert re.search(rf"^{5 if guard else 4} passed", ran.stdout, re.MULTILINE), ran.stdout
    assert ran.returncode == 0


@pytest.mark.slow
@every_language
def test_the_tests_of_a_new_extension_see_when_it_is_broken(shell: Shell, language: str) -> None:
    run_new(shell, "first", language, "--guard")
    program = shell.cwd / "first" / scaffold.LANGUAGES[language].program
    program.write_text(program.read_text().replace("Hello", "Hullo").replace("rm -rf", "rm -fr"))
    ran = run_own_tests(shell, shell.cwd / "first", "-k", "greets or guard")
    assert re.search(r"^3 failed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.req("sdk.new.works")
@pytest.mark.parametrize("guard", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "guard"])
@every_language
def test_a_new_extension_serves_a_real_host(shell: Shell, language: str, guard: bool) -> None:
    run_new(shell, "first", language, *(["--guard"] if guard else []))
    called = shell("tool", "call", "greet", ADA, "--guest", "first")
    assert (called.stdout, called.stderr, called.returncode) == ("Hello, Ada!\n", "", 0)
    typed = shell("command", "run", "greet", "Ada", "--guest", "first")
    assert (typed.stdout, typed.stderr, typed.returncode) == ("[first] Hello, Ada!\n", "", 0)
    odd = shell("tool", "call", "greet", BAD, "--guest", "first")
    blocked = "greet: rm -rf is not run here; delete files by name\n"  # which is no error in this protocol (spec piglet 5.3)
    assert (odd.stdout, odd.returncode) == (blocked if guard else "Hello, rm -rf /!\n", 0)
    [listed] = parse_objects(shell("guest", "list", "--json", "--guest", "first"))
    assert (listed["id"], listed["version"], listed["guard"]) == ("piglet:first", "0.1.0", guard)
    assert "prompt section Manners: Greet people" in shell("guest", "show", "first", "--guest", "first").stdout


def test_a_new_guard_holds_when_it_cannot_start(shell: Shell) -> None:
    run_new(shell, "gate", "python", "--guard")
    run_new(shell, "hello", "python")
    (shell.cwd / "gate" / "extension.py").write_text("raise SystemExit(1)\n")
    assert shell("tool", "call", "greet", ADA, "--guest", "hello", "--guest", "gate").returncode == 4


@pytest.mark.slow
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guard"])
def test_a_new_extension_and_its_tests_are_typed(shell: Shell, tmp_path: Path, guard: bool) -> None:
    run_new(shell, "my-first", "python", *(["--guard"] if guard else []))
    files = [shell.cwd / "my-first" / name for name in ("extension.py", "test_my-first.py")]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", *map(str, files)]
    ran = subprocess.run(command, env=shell.env, cwd=shell.cwd, capture_output=True, text=True, timeout=55, check=False)
    assert (ran.stdout, ran.returncode) == ("Success: no issues found in 2 source files\n", 0)


@pytest.mark.parametrize("guard", [False, True])
@every_language
def test_nothing_of_the_templates_own_marks_is_left(tmp_path: Path, language: str, guard: bool) -> None:
    made = scaffold.create_extension("first", tmp_path, language=language, guard=guard, dialect="piglet")
    texts = {file: (made.folder / file).read_text() for file in made.files}
    for file, text in texts.items():
        assert not re.search(r"@[A-Z]+@|^%%", text, re.MULTILINE), file
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
    guarding = {"manifest.yaml", "README.md", "test_first.py", scaffold.LANGUAGES[language].program}
    assert {file for file, text in texts.items() if "rm -rf" in text} == (guarding if guard else set())


@pytest.mark.parametrize("name", ["x", "7", "1e3", "no", "null", "True", "_x", "Weather-2_b", "0x1f", "2026-02-03"])
def test_every_name_is_the_same_name_in_the_manifest(tmp_path: Path, name: str) -> None:
    made = scaffold.create_extension(name, tmp_path, language="python", guard=False, dialect="piglet")
    manifest = yaml.safe_load((made.folder / "manifest.yaml").read_text())
    assert manifest == {
        "name": name, "version": "0.1.0", "description": "Greets people.", "runtime": "python", "entry": "extension.py",
    }  # fmt: skip


def test_it_tells_what_it_made(shell: Shell) -> None:
    ran = run_new(shell, "first", "typescript", "--guard")
    told, _, _ = ran.stdout.partition("next:\n")
    files = ["manifest.yaml", "extension.ts", "test_first.py", "README.md", ".gitignore", "guest.toml"]
    assert told.split() == ["made", "piglet:first:", "./first", *files]
    assert sorted(os.listdir(shell.cwd / "first")) == sorted(files)


# -- what starts it ---------------------------------------------------------------------------------------------------------------


def test_this_interpreter_starts_it_where_no_other_has_the_sdk(shell: Shell, tmp_path: Path) -> None:
    ran = shell("guest", "new", "first", "--dialect", "piglet", PATH=write_programs(tmp_path / "no", python3="exit 1"))
    manifest = yaml.safe_load((shell.cwd / "first" / "manifest.yaml").read_text())
    assert (manifest["runtime"], manifest["entry"]) == (sys.executable, "extension.py")
    assert (f"manifest.yaml names {sys.executable}" in ran.stderr, ran.returncode) == (True, 0)


@pytest.mark.parametrize(
    ("there", "runtime", "told"),
    [
        ({"node": "exit 0", "bun": "exit 0"}, "node", ""),
        ({"node": "exit 1", "bun": "exit 0"}, "bun", ""),
        ({"node": "exit 1"}, "node", "it needs Node 22.18 or newer, or bun; neither is on your PATH: install one\n"),
        ({}, "node", "it needs Node 22.18 or newer, or bun; neither is on your PATH: install one\n"),
    ],
)
def test_typescript_is_started_by_what_runs_it_here(
    shell: Shell, tmp_path: Path, there: dict[str, str], runtime: str, told: str
) -> None:
    path = write_programs(tmp_path / "only", **there)
    ran = shell("guest", "new", "first", "--dialect", "piglet", "--lang", "typescript", PATH=path)
    assert yaml.safe_load((shell.cwd / "first" / "manifest.yaml").read_text())["runtime"] == runtime
    assert (ran.stderr, ran.returncode) == (told, 0)


# -- what is refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.new.refuses")
@pytest.mark.parametrize(("dialect", "language"), [("piglet", "shell"), ("piglet", "node"), ("zot", "typescript")])
def test_a_language_that_a_dialect_has_no_beginning_in_is_refused(shell: Shell, dialect: str, language: str) -> None:
    ran = shell("guest", "new", "first", "--dialect", dialect, "--lang", language)
    assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 2, [])
    there = " or ".join(["python", "typescript"] if dialect == "piglet" else LANGUAGES)
    assert f"there is no beginning in {language} for {dialect} yet: --lang may be {there}" in ran.stderr


def test_the_help_says_which_language_goes_with_which_dialect(shell: Shell) -> None:
    said = " ".join(shell("guest", "new", "--help").stdout.split())
    assert "with zot python, node, shell; with piglet python, typescript; with yoi python, js, c, wat." in said


# -- a bundle of it ---------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.bundle.bare")
def test_a_bundle_of_a_piglet_extension_runs_without_serai(shell: Shell, tmp_path: Path) -> None:
    run_new(shell, "first", "python", "--guard")
    told = shell("guest", "bundle", "first", "-o", "first.pyz")
    assert (told.returncode, "the manifest.yaml that starts it, in a folder with it:" in told.stdout) == (0, True)
    [form] = parse_objects(shell("guest", "bundle", "first", "-o", "first.pyz", "--json"))
    assert form["manifest"] == yaml.safe_load(told.stdout.partition("with it:\n")[2])
    assert form["manifest"]["entry"] == "first.pyz"
    assert not {"manifest.yaml", "guest.toml", "test_first.py"} & set(form["files"])
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "manifest.yaml").write_text(json.dumps(form["manifest"]))
    (shell.cwd / "first.pyz").rename(folder / "first.pyz")
    bare = {"PATH": write_programs(tmp_path / "bare", python3=f'exec "{sys.executable}" -S -E "$@"')}
    with PigletHost(folder, environ=bare) as host:
        assert host.tool_text("greet", {"name": "Ada"}) == "Hello, Ada!"
        assert host.shutdown() == 0


def test_what_is_no_python_is_not_bundled(shell: Shell) -> None:
    run_new(shell, "first", "typescript")
    ran = shell("guest", "bundle", copy_runnable(shell.cwd / "first", shell.cwd / "second"))
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "what is not Python cannot be bundled" in ran.stderr
