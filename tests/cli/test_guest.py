"""`serai guest …` and `serai ext …` as a person calls them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.shell import EXAMPLES, Shell, build_text, parse_objects, write_guest

WEATHER = EXAMPLES / "weather-python"
TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"


def home_guest_path(shell: Shell, name: str) -> Path:
    """Where a guest of the person's own lies."""
    return shell.home / "guests" / name


def project_guest_path(shell: Shell, name: str) -> Path:
    """Where a guest of the project lies."""
    return shell.cwd / ".zot" / "extensions" / name


# -- the list ---------------------------------------------------------------------------------------------------------------------


def test_the_list_has_the_columns_of_the_protocol(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "one"), version="1.2", language="python")
    write_guest(home_guest_path(shell, "folder"), name="two", enabled=False)
    ran = shell("guest", "list")
    assert ran.stdout.splitlines() == [
        "scope  name  version  enabled  language  dir",
        f"user   one   1.2      yes      python    {home_guest_path(shell, 'one')}",
        f"user   two   -        no       -         {home_guest_path(shell, 'folder')}",
    ]
    assert (ran.stderr, ran.returncode) == ("", 0)


def test_the_list_starts_nobody_and_records_nothing(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "one"))
    shell("guest", "list")
    assert not (shell.home / "logs").exists()
    assert not (shell.home / "recordings").exists()


@pytest.mark.req("host.cli.json")
def test_the_list_as_json_says_who_would_come_in_and_why_others_not(shell: Shell, tmp_path: Path) -> None:
    write_guest(home_guest_path(shell, "one"), version="1.2", guest_toml='env = ["KEY"]\nreplace = ["read"]\n')
    write_guest(home_guest_path(shell, "off"), enabled=False)
    write_guest(project_guest_path(shell, "new"))
    named = write_guest(tmp_path / "other", name="one")
    forms = parse_objects(shell("guest", "list", "--json", "-e", named))
    assert [(form["id"], form["scope"], form["state"]) for form in forms] == [
        ("zot:one", "ad hoc", "found"),
        ("zot:off", "user", "disabled"),
        ("zot:new", "project", "untrusted"),
        ("zot:one", "user", "shadowed"),
    ]
    assert forms[2]["reason"] == "it was never trusted"
    assert (forms[1]["enabled"], forms[3]["enabled"]) == (False, True)
    shadowed = forms[3]
    assert shadowed["asks"] == {"env": ["KEY"], "replace": ["read"], "keys": []}
    assert shadowed["folder"] == str(home_guest_path(shell, "one"))
    assert shadowed["command"][1:] == ["-I", "-S", "./guest.py"]
    assert {"name", "dialect", "version", "language", "description", "guard"} <= shadowed.keys()


def test_the_list_tells_beside_itself_who_does_not_come_in_as_it_should(shell: Shell, tmp_path: Path) -> None:
    write_guest(home_guest_path(shell, "broken")).joinpath("extension.json").write_text("{")
    write_guest(home_guest_path(shell, "same"), guest_toml="guard = true")
    write_guest(project_guest_path(shell, "same"), name="another")
    ran = shell("guest", "list")
    assert ran.returncode == 0
    told = ran.stderr.splitlines()
    assert any(line.startswith(f"extension load: {home_guest_path(shell, 'broken')}: parse manifest: ") for line in told)
    stranger = f"zot:another in {project_guest_path(shell, 'same')}: it was never trusted"
    assert f"not trusted: {stranger}; `serai trust` in that folder lets it start" in told
    assert f"shadowed: zot:same in {home_guest_path(shell, 'same')}: hidden by {project_guest_path(shell, 'same')}" in told
    assert any(line.startswith(f"guard: {home_guest_path(shell, 'same')}: ") for line in told)


def test_the_live_list_says_how_it_went(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "good"), tools=["ping"], commands=["go"])
    write_guest(home_guest_path(shell, "bad"), exec="./missing")
    write_guest(home_guest_path(shell, "off"), enabled=False)
    ran = shell("guest", "list", "--live")
    head, *rows = (line.split() for line in ran.stdout.splitlines())
    assert head == ["scope", "name", "version", "state", "seconds", "tools", "commands", "dir"]
    by_name = {row[1]: row for row in rows}
    assert by_name["good"][3] == "ready"
    assert by_name["good"][5:7] == ["ping", "go"]
    assert by_name["bad"][3] == "gone"
    assert by_name["off"][3:7] == ["disabled", "-", "-", "-"]
    assert f"extension load: {home_guest_path(shell, 'bad')}: zot:bad is gone: " in ran.stderr
    forms = {form["name"]: form for form in parse_objects(shell("guest", "list", "--live", "--json"))}
    assert (forms["good"]["state"], forms["good"]["tools"], forms["good"]["commands"]) == ("ready", ["ping"], ["go"])
    assert forms["good"]["pid"] > 1
    assert forms["bad"]["error"]["message"]
    assert forms["off"]["state"] == "disabled"


def test_the_live_list_masks_what_a_guest_said_on_its_way_out(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "bad"), {"die": 3}, stderr=f"cannot log in with {TOKEN}\n")
    said = f"cannot log in with {'*' * len(TOKEN)}"
    plain, form = shell("guest", "list", "--live"), shell("guest", "list", "--live", "--json")
    assert said in plain.stderr
    assert TOKEN not in plain.stdout + plain.stderr + form.stdout + form.stderr
    [row] = parse_objects(form)
    assert row["why"].endswith(said)
    assert row["error"]["stderr"].strip() == said


def test_an_empty_list_says_so(shell: Shell) -> None:
    ran = shell("guest", "list")
    assert (ran.stdout, ran.returncode) == ("", 0)
    assert "there are no guests" in ran.stderr


@pytest.mark.req("host.cli.plain")
def test_nothing_in_a_manifest_acts_on_the_terminal(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "one"), name="a\x1b[2J\nb", version="\x07\x9b")
    for arguments in (["list"], ["list", "--json"], ["list", "--live"], ["disable", "one"]):
        ran = shell("guest", *arguments)
        assert ran.returncode == 0
        assert not set("\x1b\x07\x9b") & set(ran.stdout + ran.stderr)


# -- coming and going -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.cli.alias")
@pytest.mark.req("zot.ours.1.4-canonical-path")
@pytest.mark.parametrize("words", [("guest", "add"), ("ext", "add"), ("ext", "install")])
def test_a_guest_is_added_from_the_folder_one_stands_in(shell: Shell, tmp_path: Path, words: tuple[str, str]) -> None:
    folder = write_guest(tmp_path / "source", tools=["ping"], answers={"tool_call ping": [build_text("pong")]})
    ran = shell(*words, ".", cwd=folder)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"added zot:source: {home_guest_path(shell, 'source')}\n", "", 0)
    assert shell("tool", "call", "ping").stdout == "pong\n"
    again = shell(*words, ".", cwd=folder)
    assert again.returncode == 1
    assert "already exists; remove it first" in again.stderr


def test_what_an_added_guest_asks_for_is_told_with_how_to_grant_it(shell: Shell, tmp_path: Path) -> None:
    source = write_guest(tmp_path / "source", guest_toml='env = ["GIT_KEY"]\nreplace = ["read"]\n', tools=["read"])
    ran = shell("guest", "add", source, "--name", "reader")
    assert ran.stdout == f"added zot:source: {home_guest_path(shell, 'reader')}\n"
    first, *lines = ran.stderr.splitlines()
    assert first == f"it asks for env GIT_KEY, replace read; to grant that, write into {shell.home / 'config.toml'}:"
    assert "its tool read is shadowed" in shell("tool", "list").stderr
    (shell.home / "config.toml").write_text("\n".join(lines))
    [form] = parse_objects(shell("guest", "list", "--json"))
    assert form["asks"] == {"env": [], "replace": [], "keys": []}
    granted = shell("tool", "list")
    assert (granted.stdout, granted.stderr) == ("read  zot:source  the tool read\n", "")


def test_an_added_guest_that_cannot_come_in_is_told(shell: Shell, tmp_path: Path) -> None:
    broken = write_guest(tmp_path / "broken")
    (broken / "extension.json").write_text("{}")
    ran = shell("guest", "add", broken, "--json")
    assert parse_objects(ran) == [{"folder": str(home_guest_path(shell, "broken"))}]
    assert ran.stderr == "it cannot be started: manifest: name is required\n"
    assert "`serai guest enable off` switches it on" in shell("guest", "add", write_guest(tmp_path / "off", enabled=False)).stderr
    write_guest(project_guest_path(shell, "same"))
    assert "not started here: hidden by " in shell("guest", "add", write_guest(tmp_path / "same")).stderr


@pytest.mark.parametrize(("source", "said"), [("nowhere", "not a directory: nowhere"), (".", "source lacks extension.json")])
def test_what_is_no_guest_is_not_added(shell: Shell, source: str, said: str) -> None:
    ran = shell("guest", "add", source)
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert said in ran.stderr


@pytest.mark.parametrize(
    "words", [("guest", "add"), ("guest", "list", "-e"), ("guest", "list", "--home"), ("trust",), ("trust", "--cwd")]
)
def test_an_empty_path_is_not_the_folder_one_stands_in(shell: Shell, tmp_path: Path, words: tuple[str, ...]) -> None:
    here = write_guest(tmp_path / "here")
    write_guest(here / ".zot" / "extensions" / "one")
    ran = shell(*words, "", cwd=here)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "the path is empty" in ran.stderr
    assert not shell.home.exists()


def test_a_guest_is_cloned(shell: Shell, tmp_path: Path) -> None:
    folder = write_guest(tmp_path / "kept.git")
    git = ["git", "-c", "user.name=a", "-c", "user.email=b@c", "-C", str(folder)]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    ran = shell("guest", "add", f"file://{folder}", "--json")
    assert ran.returncode == 0, ran.stderr
    [form] = parse_objects(ran)
    assert (form["id"], form["folder"]) == ("zot:kept.git", str(home_guest_path(shell, "kept")))
    failed = shell("guest", "add", f"file://{tmp_path}/nowhere.git")
    assert failed.returncode == 1
    assert "git clone failed" in failed.stderr


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yes\n", "no\n"])
def test_nothing_is_removed_without_a_yes(shell: Shell, answer: str) -> None:
    folder = write_guest(home_guest_path(shell, "one"))
    ran = shell("guest", "remove", "one", input=answer)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", f"remove {folder} ? [y/N] aborted\n", 0)
    assert folder.is_dir()


@pytest.mark.parametrize(("words", "answer"), [(("guest", "remove"), "y\n"), (("ext", "rm"), "Y\n")])
def test_a_guest_is_removed_with_a_yes(shell: Shell, words: tuple[str, str], answer: str) -> None:
    folder = write_guest(home_guest_path(shell, "one"))
    ran = shell(*words, "one", input=answer)
    assert (ran.stdout, ran.returncode) == (f"removed zot:one: {folder}\n", 0)
    assert not folder.exists()


def test_a_guest_is_removed_without_a_question(shell: Shell) -> None:
    folder = write_guest(home_guest_path(shell, "one"))
    ran = shell("guest", "remove", "one", "-y", "--json")
    assert parse_objects(ran) == [{"id": "zot:one", "folder": str(folder), "removed": True}]
    assert ran.stderr == ""
    assert not folder.exists()


def test_what_is_only_named_on_the_line_is_never_removed(shell: Shell, tmp_path: Path) -> None:
    folder = write_guest(tmp_path / "one")
    ran = shell("guest", "remove", "one", "-e", folder, input="y\n")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "it was named on the command line" in ran.stderr
    assert folder.is_dir()


@pytest.mark.req("zot.rule.1.4-enable-disable")
def test_a_guest_is_switched_off_and_on(shell: Shell) -> None:
    folder = write_guest(home_guest_path(shell, "one"), odd={"kept": [1]})
    before = json.loads((folder / "extension.json").read_text())
    ran = shell("guest", "disable", "one")
    assert (ran.stdout, ran.returncode) == (f"disabled zot:one: {folder}\n", 0)
    assert json.loads((folder / "extension.json").read_text()) == before | {"enabled": False}
    ran = shell("guest", "enable", "one", "--json")
    assert parse_objects(ran) == [{"id": "zot:one", "folder": str(folder), "enabled": True}]
    assert json.loads((folder / "extension.json").read_text()) == before | {"enabled": True}


def test_a_trusted_guest_that_is_switched_has_to_be_trusted_again(shell: Shell) -> None:
    write_guest(project_guest_path(shell, "one"))
    shell("trust")
    shell("guest", "disable", "one")
    ran = shell("guest", "enable", "one")
    assert "extension.json; `serai trust` lets it in" in ran.stderr


@pytest.mark.req("zot.ours.1.4-either-name")
@pytest.mark.parametrize("name", ["zot:inner", "inner", "outer"])
def test_the_verbs_know_a_guest_by_id_by_its_own_name_and_by_its_folder(shell: Shell, name: str) -> None:
    folder = write_guest(home_guest_path(shell, "outer"), name="inner")
    shell("tool", "list")  # so that there is a log
    assert f"zot:inner: {folder}" in shell("guest", "disable", name).stdout
    assert f"zot:inner: {folder}" in shell("guest", "enable", name).stdout
    assert shell("guest", "logs", name).returncode == 0
    assert f"zot:inner: {folder}" in shell("guest", "remove", "--yes", name).stdout


@pytest.mark.req("zot.ours.1.4-project-first")
@pytest.mark.parametrize("trusted", [True, False])
def test_the_verbs_take_the_projects_guest_first(shell: Shell, trusted: bool) -> None:
    write_guest(home_guest_path(shell, "one"))
    write_guest(project_guest_path(shell, "one"))
    if trusted:
        shell("trust")
    assert str(project_guest_path(shell, "one")) in shell("guest", "disable", "one").stdout
    assert str(project_guest_path(shell, "one")) in shell("guest", "enable", "one").stdout
    shell("guest", "remove", "-y", "one")
    assert not project_guest_path(shell, "one").exists()
    assert home_guest_path(shell, "one").is_dir()


def test_an_unknown_name_is_told_with_those_there_are(shell: Shell) -> None:
    write_guest(home_guest_path(shell, "one"))
    ran = shell("ext", "remove", "two")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "there is no guest two; there is zot:one" in ran.stderr
