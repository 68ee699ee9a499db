"""`serai config` as a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.limits import Limits
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, parse_objects


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return InProcessShell(tmp_path)


def write_home_config(shell: Shell, text: str) -> Path:
    shell.home.mkdir(exist_ok=True)
    path = shell.home / "config.toml"
    path.write_text(text)
    return path


def write_project_config(shell: Shell, text: str) -> Path:
    path = shell.cwd / ".serai" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.req("app.config.show")
def test_each_value_is_shown_with_where_it_comes_from(shell: Shell) -> None:
    own, other = (
        write_home_config(shell, 'agent = "claude"\n[guest."zot:a"]\nenv = ["X"]\n'),
        write_project_config(shell, "agent = 'x'\n[limits]\nsteps = 5\n"),
    )
    ran = shell("config", "show", SERAI_DEFAULT_MODEL="parrot")
    rows = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines()}
    assert rows["agent"] == ['"claude"', "person:", str(own)]
    assert rows["default_model"] == ['"parrot"', "environment:", "SERAI_DEFAULT_MODEL"]
    assert rows["small_model"][:2] == ["-", "default"]
    assert rows["home"] == [f'"{shell.home}"', "environment:", "SERAI_HOME"]
    assert rows['guest."zot:a".env'] == ['["X"]', "person:", str(own)]
    assert rows["limits.steps"] == ["5", "project:", str(other)]
    assert "limits.frame" not in rows
    assert ran.stderr == f"{other}: agent does not count: they were never trusted; look at them, then `serai trust`\n"
    assert ran.returncode == 0


@pytest.mark.req("app.config.show")
def test_all_has_every_limit_with_its_reason(shell: Shell) -> None:
    said = shell("config", "show", "--all").stdout
    for name, _, _, why in Limits.explain():
        assert f"limits.{name} " in said
        assert f"default ({why})\n" in said


@pytest.mark.req("app.config.show")
def test_one_value_alone_is_on_stdout_and_its_source_is_not(shell: Shell) -> None:
    own = write_home_config(shell, '[guest."zot:a"]\nenv = ["X"]\n[limits]\ntool = "none"\n')
    ran = shell("config", "show", "limits.steps")
    assert (ran.stdout, ran.returncode) == ("30\n", 0)
    assert ran.stderr.startswith("default (of the model for one prompt; ")
    assert shell("config", "show", "limits.tool").stdout == '"none"\n'
    for key in ('guest."zot:a".env', "guest.zot:a.env"):
        ran = shell("config", "show", key)
        assert (ran.stdout, ran.stderr) == ('["X"]\n', f"person: {own}\n")


def test_a_table_is_shown_whole(shell: Shell) -> None:
    assert len(shell("config", "show", "limits").stdout.splitlines()) == len(Limits.explain())
    assert shell("config", "show", "guests").stdout.startswith("guests.homes  false  default")


@pytest.mark.parametrize(("key", "hint"), [("agnet", "there is agent"), ("limts", "there is limits"), ("zzz", "--all` lists them")])
def test_a_key_that_there_is_not_names_those_that_are_near(shell: Shell, key: str, hint: str) -> None:
    ran = shell("config", "show", key)
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.startswith(f"serai: there is no setting '{key}'\n")
    assert hint in ran.stderr


@pytest.mark.req("app.config.show")
def test_as_json_it_is_one_object_with_values_and_notes(shell: Shell) -> None:
    other = write_project_config(shell, "record = false\ntools = []\n")
    [form] = parse_objects(shell("config", "show", "--json"))
    values = {value["key"]: value for value in form["values"]}
    assert values["tools"] == {"key": "tools", "value": [], "source": "project", "file": str(other), "note": ""}
    assert values["default_model"]["value"] == ""
    assert form["notes"] == [f"{other}: record does not count: what is recorded is yours to say"]
    [form] = parse_objects(shell("config", "show", "agent", "--json"))
    assert [value["value"] for value in form["values"]] == ["resident"]


@pytest.mark.req("app.config.masked")
def test_what_looks_like_a_secret_is_masked_by_its_looks_or_by_its_name(shell: Shell) -> None:
    token = "sk-" + "a1" * 16
    write_home_config(shell, f'system_prompt = "use {token} now"\n[boxes]\napi_key = "hunter2hunter2"\n')
    for more in ((), ("--json",), ("--all",)):
        said = shell("config", "show", *more).stdout
        assert token not in said
        assert "hunter2" not in said
        assert "use *" in said
    assert shell("config", "show", "boxes.api_key").stdout == f'"{"*" * 14}"\n'


def test_what_a_project_names_does_not_act_on_the_terminal(shell: Shell) -> None:
    write_project_config(shell, '[guest."\\u001b[2J\u3164"]\nguard = true\nenv = ["A"]\n')
    ran = shell("config", "show")
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\u3164" not in ran.stdout + ran.stderr


def test_the_folder_and_the_home_can_be_named(shell: Shell, tmp_path: Path) -> None:
    write_project_config(shell, "tools = []\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text('agent = "other"\n')
    ran = shell("config", "show", "--cwd", shell.cwd, "--home", elsewhere, "--json", cwd=tmp_path)
    values = {value["key"]: value["value"] for value in parse_objects(ran)[0]["values"]}
    assert (values["agent"], values["tools"], values["home"]) == ("other", [], str(elsewhere))
    assert shell("config", "show", "--cwd", "").returncode == 2


@pytest.mark.req("app.config.show")
def test_the_files_are_told_whether_they_are_there_or_not(shell: Shell) -> None:
    own = write_home_config(shell, "")
    other = shell.cwd / ".serai" / "config.toml"
    assert shell("config", "path").stdout == f"{own}\n{other}\n"
    assert parse_objects(shell("config", "path", "--json")) == [
        {"source": "person", "file": str(own), "exists": True},
        {"source": "project", "file": str(other), "exists": False},
    ]


@pytest.mark.req("app.config.errors")
def test_a_mistake_names_the_file_and_what_to_do(shell: Shell) -> None:
    path = write_project_config(shell, "agnet = 'x'")
    ran = shell("config", "show")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.startswith(f"serai: {path}: there is no setting 'agnet'\nat its top the file has ")


@pytest.mark.req("app.config.show", "app.config.errors")
@pytest.mark.parametrize("place", ["limits.steps", "guest.x.limits.tool", "prompt_order.x", "boxes.max_boxes"])
def test_a_number_that_nobody_can_write_down_is_an_error_and_no_defect(shell: Shell, place: str) -> None:
    write_project_config(shell, f"{place} = 0x{'f' * 5000}\n")
    ran = shell("config", "show")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "/.serai/config.toml: " in ran.stderr
    assert place.partition(".")[0] in ran.stderr
    assert len(ran.stderr) < 1000
