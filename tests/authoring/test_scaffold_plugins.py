"""`serai guest new --dialect yoi`: its tests pass as it stands; what is built of it is tested with the tool chains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serai.authoring import scaffold
from serai.plugins import manifest as manifests
from serai.testing.yoi_host import YoiHost
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.scaffolded_extensions import run_own_tests
from tests.support.cli.shell import Shell
from tests.support.needs import require

TEMPLATES = list(scaffold.PLUGINS)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    return Shell(tmp_path)


@pytest.mark.parametrize("template", [name for name in TEMPLATES if not name.startswith("c-")])
def test_the_tests_of_a_new_plugin_pass(shell: Shell, template: str) -> None:
    if template.startswith("js-"):
        require("node")
    made = shell("guest", "new", "first", "--template", template)
    assert (made.stderr, made.returncode) == ("", 0)
    ran = run_own_tests(shell, shell.cwd / "first")
    assert re.search(rf"^{3 if 'service' in template else 2} passed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("template", ["python-component-service", "js-component-service", "wat-component-tool"])
def test_they_see_when_it_is_broken(shell: Shell, template: str) -> None:
    shell("guest", "new", "first", "--template", template)
    program = shell.cwd / "first" / scaffold.LANGUAGES[scaffold.PLUGINS[template][0]].program
    source = program.read_text()
    for one, other in (
        ("return text", 'return ""'), ("return input.text", 'return ""'), ("event.reply(event.text)", "pass_ = 1"),
        ("(memory.copy (local.get $end) (local.get $from)", "(memory.copy (local.get $from) (local.get $from)"),
    ):  # fmt: skip
        source = source.replace(one, other)
    program.write_text(source)
    ran = run_own_tests(shell, shell.cwd / "first", "-k", "gives_back or answers")
    assert re.search(rf"^{2 if 'service' in template else 1} failed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_nothing_of_the_templates_own_marks_is_left(tmp_path: Path, template: str) -> None:
    language, service = scaffold.PLUGINS[template]
    made = scaffold.create_plugin("first", tmp_path, language=language, service=service)
    for file in made.files:
        text = (made.folder / file).read_text()
        assert not re.search(r"@[A-Z]+@|^%%", text, re.MULTILINE), file
        assert text.endswith("\n"), file
        assert not text.endswith("\n\n"), file
        assert not re.search(r"\n\n\n\n", text), file
    manifest = manifests.parse((made.folder / "plugin.toml").read_bytes())
    assert (manifest.id, bool(manifest.services), bool(manifest.ingresses)) == ("first", service, service)
    assert [tool.name for tool in manifest.tools] == ["example_echo"]


@pytest.mark.slow
@pytest.mark.parametrize("template", ["python-component-tool", "python-component-service", "wat-component-tool"])
def test_a_new_plugin_and_its_tests_are_typed(tmp_path: Path, template: str) -> None:
    language, service = scaffold.PLUGINS[template]
    made = scaffold.create_plugin("first", tmp_path, language=language, service=service)
    files = [str(made.folder / name) for name in made.files if name.endswith(".py")]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", *files]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    shell = InProcessShell(tmp_path)
    for options, said in (
        (["--dialect", "yoi", "--guard"], "a plugin has no interceptors"),
        (["--service"], "only plugins have services"),
        (["--dialect", "yoi", "--lang", "wat", "--service"], "there is no beginning of a service in wat yet"),
        (["--dialect", "yoi", "--lang", "shell"], "there is no beginning in shell for yoi yet"),
        (["--lang", "wat"], "there is no beginning in wat for zot yet"),
    ):
        told = shell("guest", "new", "first", *options)
        assert (told.returncode, os.listdir(shell.cwd)) == (2, [])
        assert said in " ".join(told.stderr.split())


def test_what_is_not_built_does_not_run(tmp_path: Path) -> None:
    made = scaffold.create_plugin("first", tmp_path, language="wat", service=False)
    with pytest.raises(Exception, match="it is not built yet"), YoiHost(made.folder):
        pass
    shutil.rmtree(made.folder)
