"""`serai guest new` of a plugin: its report and its refusals (spec yoi 19). What the beginnings hold is tested elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.authoring.scaffold import PLUGINS
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.yoi.plugin_manifests import SAFETY, check_plugin, parse_report


@pytest.mark.req("yoi.conform.62", "yoi.rule.090")
@pytest.mark.parametrize("template", PLUGINS)
def test_the_report_of_new(in_process_shell: InProcessShell, template: str) -> None:
    ran = in_process_shell("guest", "new", "mine", "--template", template, "--json")
    assert ran.returncode == 0, ran.stderr
    form = parse_report(ran)
    assert list(form) == ["command", "template", "destination", "files", "safety", "next_steps"]
    assert (form["command"], form["template"], form["safety"]) == ("new", template, SAFETY)
    folder = in_process_shell.cwd / "mine"
    assert form["destination"] == str(folder)
    there = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert sorted(form["files"]) == there
    assert all(isinstance(step, str) for step in form["next_steps"])
    assert not in_process_shell.home.exists()  # nothing was enabled


@pytest.mark.req("yoi.rule.091")
@pytest.mark.parametrize("template", PLUGINS)
def test_what_was_just_begun_is_partial(in_process_shell: InProcessShell, template: str) -> None:
    """Each beginning has a placeholder, whatever its template, and none is refused for what nobody has granted."""
    assert in_process_shell("guest", "new", "mine", "--template", template).returncode == 0
    form = check_plugin(in_process_shell, in_process_shell.cwd / "mine")
    assert form["status"] == "partial"
    assert [one["kind"] for one in form["diagnostics"]] == ["placeholder"]


@pytest.mark.req("yoi.conform.64", "yoi.conform.63")
def test_an_unknown_template_is_refused(in_process_shell: InProcessShell) -> None:
    ran = in_process_shell("guest", "new", "mine", "--template", "cobol-component-tool")
    assert (ran.returncode, ran.stdout) == (1, "")
    supported = ", ".join(PLUGINS)
    assert f"unsupported plugin template `cobol-component-tool` (supported: {supported})" in ran.stderr
    assert not (in_process_shell.cwd / "mine").exists()


@pytest.mark.req("yoi.conform.64", "yoi.conform.63")
@pytest.mark.parametrize("what", ["link", "file", "full"])
def test_a_destination_that_is_taken_is_refused(in_process_shell: InProcessShell, tmp_path: Path, what: str) -> None:
    target = in_process_shell.cwd / "mine"
    if what == "link":
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    elif what == "file":
        target.write_text("here already")
    else:
        target.mkdir()
        (target / "a").write_text("here already")
    ran = in_process_shell("guest", "new", "mine", "--template", "python-component-tool")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("serai: ")
    assert not list(tmp_path.rglob("plugin.toml"))


@pytest.mark.req("yoi.conform.64")
def test_an_empty_folder_and_one_that_is_not_there_will_do(in_process_shell: InProcessShell) -> None:
    (in_process_shell.cwd / "mine").mkdir()
    for name in ("mine", "other"):
        assert in_process_shell("guest", "new", name, "--template", "python-component-tool").returncode == 0
        assert (in_process_shell.cwd / name / "plugin.toml").is_file()
