"""`serai trust` as a person calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from serai.host.trust import Trust
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, parse_objects, write_guest


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "1000")  # so that no path of a test is folded
    return InProcessShell(tmp_path)


def guest_path(shell: Shell, name: str = "one") -> Path:
    return shell.cwd / ".zot" / "extensions" / name


def list_tools(shell: Shell) -> list[str]:
    """Those of guests that really start, in a process of its own."""
    return [form["name"] for form in parse_objects(Shell.__call__(shell, "tool", "list", "--json"))]


def test_a_projects_guest_comes_in_only_once_it_is_trusted(shell: Shell) -> None:
    folder = write_guest(guest_path(shell), tools=["ping"])
    before = Shell.__call__(shell, "tool", "list")
    assert before.stdout == ""
    assert f"not trusted: zot:one in {folder}: it was never trusted; `serai trust` in that folder lets it start\n" in before.stderr
    ran = shell("trust")
    said = ran.stdout.splitlines()
    assert said[0] == f"trusted zot:one: {folder}"
    assert said[1].startswith("  runs ")
    assert said[1].endswith(" -I -S ./guest.py")
    assert said[2:] == ["  before: it was never trusted"]
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert list_tools(shell) == ["ping"]


@pytest.mark.req("policy.rule.project")
def test_no_word_of_a_guest_can_be_taken_for_a_line_of_ours(shell: Shell) -> None:
    """Whatever an 80-column terminal makes of it: each row is ours or has the mark."""
    forged = "trusted nothing".rjust(80) + "  before: the same".rjust(80) + "\n  before: the same"
    folder = write_guest(guest_path(shell), tools=["ping"], args=["-c", forged])
    broken = write_guest(guest_path(shell, "bad" + " " * 100 + "trusted nothing"))
    (broken / "extension.json").write_text("{")
    ran = shell("trust", COLUMNS="80")
    rows = [*ran.stdout.splitlines(), *ran.stderr.splitlines()]
    assert max(map(len, rows)) < 80
    beginnings = [row.partition(" /")[0].partition(" -")[0][:10] for row in rows if not row.startswith("    :+")]
    assert beginnings == ["trusted zo", "  runs", "  before: ", "left out:"], rows
    assert "nothing" in "".join(row for row in rows if row.startswith("    :+"))
    assert str(folder) in "".join(row.removeprefix("    :+") for row in rows)


def test_a_project_is_named_by_its_path(shell: Shell, tmp_path: Path) -> None:
    write_guest(guest_path(shell), tools=["ping"])
    ran = shell("trust", shell.cwd.name, "--json", cwd=tmp_path)
    [form] = parse_objects(ran)
    assert form["project"] == str(shell.cwd)
    assert list_tools(shell) == ["ping"]


def test_what_a_guest_gets_by_being_trusted_is_told(shell: Shell) -> None:
    write_guest(guest_path(shell), tools=["read"], guest_toml='env = ["GIT_KEY"]\nreplace = ["read"]\nkeys = ["anthropic"]\n')
    assert "  gets what it asks for: env GIT_KEY, replace read, key anthropic\n" in shell("trust").stdout
    assert list_tools(shell) == ["read"]
    [form] = parse_objects(shell("trust", "--json"))
    assert form["guests"][0]["asks"] == {"env": ["GIT_KEY"], "replace": ["read"], "keys": ["anthropic"]}


def test_what_has_changed_since_is_told_and_trusted_anew(shell: Shell) -> None:
    folder = write_guest(guest_path(shell), tools=["ping"])
    shell("trust")
    assert "  before: the same\n" in shell("trust").stdout
    with (folder / "guest.py").open("a") as file:
        file.write("# changed\n")
    assert list_tools(shell) == []
    [form] = parse_objects(shell("trust", "--json"))
    [one] = form["guests"]
    assert (one["id"], one["folder"]) == ("zot:one", str(folder))
    assert one["command"][1:] == ["-I", "-S", "./guest.py"]
    assert one["before"] == "it has changed since it was trusted: guest.py"
    assert list_tools(shell) == ["ping"]


def test_trust_is_withdrawn(shell: Shell) -> None:
    write_guest(guest_path(shell), tools=["ping"])
    shell("trust")
    assert shell("trust", "--withdraw").stdout == f"{shell.cwd}: its guests, rules and settings are not trusted any longer\n"
    assert list_tools(shell) == []
    assert "was not trusted before" in shell("trust", "--withdraw").stderr
    assert parse_objects(shell("trust", "--withdraw", "--json")) == [{"project": str(shell.cwd), "withdrawn": False}]


def test_a_project_without_guests_and_rules_has_nothing_to_trust(shell: Shell) -> None:
    ran = shell("trust")
    said = f"{shell.cwd}: there is nothing to trust, it has no guests, and no rules or settings that need it\n"
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", said, 0)
    nothing: dict[str, object] = {"guests": [], "rules": [], "settings": {}, "agents": []}
    assert parse_objects(shell("trust", "--json")) == [{"project": str(shell.cwd), **nothing}]


def test_a_broken_guest_is_left_out_and_told(shell: Shell) -> None:
    write_guest(guest_path(shell), tools=["ping"])
    (write_guest(guest_path(shell, "bad")) / "extension.json").write_text("{")
    ran = shell("trust")
    assert "trusted zot:one: " in ran.stdout
    assert ran.stderr.startswith(f"left out: {guest_path(shell, 'bad')}: parse manifest: ")


def test_what_is_no_folder_is_told(shell: Shell) -> None:
    ran = shell("trust", "nowhere")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "nowhere: not a directory" in ran.stderr


# -- rules ------------------------------------------------------------------------------------------------------------------------


RULES = """
[[rule]]
id = "tests"
decide = "allow"
tool = "bash"
command = ["make test", "pytest *"]

[[rule]]
id = "no-deploy"
decide = "deny"
tool = "bash"
command = "make deploy"
"""


def write_rules(shell: Shell, text: str = RULES) -> Path:
    path = shell.cwd / ".serai" / "policy.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def decide(shell: Shell, command: str) -> str:
    [form] = parse_objects(shell("policy", "test", "bash", json.dumps({"command": command}), "--json"))
    return str(form["decision"])


@pytest.mark.req("policy.rule.project")
def test_what_a_project_allows_counts_once_it_is_trusted_and_what_it_denies_always(shell: Shell) -> None:
    path = write_rules(shell)
    assert [decide(shell, command) for command in ("make test", "make deploy")] == ["ask", "deny"]
    ran = shell("trust")
    assert ran.stdout.splitlines() == [
        f"trusted what is allowed by {path}",
        "  tests: tool bash, command make test or pytest *",
        "  before: they were never trusted",
    ]
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert [decide(shell, command) for command in ("make test", "make deploy")] == ["allow", "deny"]
    assert "  before: the same\n" in shell("trust").stdout


@pytest.mark.req("policy.rule.project")
def test_rules_that_have_changed_have_to_be_trusted_anew(shell: Shell) -> None:
    path = write_rules(shell)
    shell("trust")
    with path.open("a") as file:
        file.write("# changed\n")
    assert decide(shell, "make test") == "ask"
    assert "  before: they have changed since they were trusted\n" in shell("trust").stdout
    assert decide(shell, "make test") == "allow"
    shell("trust", "--withdraw")
    assert [decide(shell, command) for command in ("make test", "make deploy")] == ["ask", "deny"]


def test_what_is_trusted_of_the_rules_is_told_as_json(shell: Shell) -> None:
    write_rules(shell)
    [form] = parse_objects(shell("trust", "--json"))
    assert form["rules"] == [{"id": "tests", "decide": "allow", "tool": "bash", "command": ["make test", "pytest *"]}]


@pytest.mark.parametrize("more", ["[[rule]]\n", "#" * (1 << 20)])
def test_rules_that_cannot_be_read_are_not_trusted_and_neither_is_anything_else(shell: Shell, more: str) -> None:
    write_guest(guest_path(shell), tools=["ping"])
    path = write_rules(shell, RULES + more)
    ran = shell("trust")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.startswith(f"serai: {path}: ")
    path.unlink()
    assert list_tools(shell) == []


def test_a_projects_rules_do_not_act_on_the_terminal(shell: Shell) -> None:
    write_rules(shell, '[[rule]]\nid = "x"\ndecide = "allow"\ntool = "t"\ninput = { a = "\\u001b[2J" }\n')
    assert "  x: tool t, input a \\x1b[2J\n" in shell("trust").stdout


def test_what_cannot_be_seen_in_a_projects_rules_is_spelt_out(shell: Shell) -> None:
    write_rules(shell, '[[rule]]\nid = "x"\ndecide = "allow"\ntool = "t"\ninput = { a = "test\u3164" }\n')
    assert "  x: tool t, input a test\\x3164\n" in shell("trust").stdout


def test_a_long_rule_is_folded_and_what_follows_is_marked(shell: Shell) -> None:
    forged = f"make test{' ' * 60}before: the same"
    write_rules(shell, RULES.replace("make test", forged))
    said = shell("trust", COLUMNS="80").stdout.splitlines()
    said = said[next(number for number, row in enumerate(said) if row.startswith("  tests")) - 1 :]  # its path may be long too
    assert said[-1] == "  before: they were never trusted"
    assert all(row.startswith("    :+") and len(row) < 80 for row in said[2:-1])
    assert "".join([said[1], *(row[6:] for row in said[2:-1])]) == f"  tests: tool bash, command {forged} or pytest *"


@pytest.mark.req("policy.rule.project")
def test_what_was_shown_is_trusted_and_not_what_somebody_writes_meanwhile(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path, allow = write_rules(shell), Trust.allow

    def swapped(self: Trust, *args: Any, **kwargs: Any) -> Any:
        write_rules(shell, RULES.replace("make test", "rm *"))
        return allow(self, *args, **kwargs)

    monkeypatch.setattr(Trust, "allow", swapped)
    assert "command make test or " in shell("trust").stdout
    assert "rm *" in path.read_text()
    assert decide(shell, "rm x") == "ask"
    write_rules(shell)
    assert decide(shell, "make test") == "allow"


@pytest.mark.req("policy.rule.project")
def test_rules_that_come_only_after_the_look_are_not_trusted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    allow = Trust.allow

    def swapped(self: Trust, *args: Any, **kwargs: Any) -> Any:
        write_rules(shell)
        return allow(self, *args, **kwargs)

    monkeypatch.setattr(Trust, "allow", swapped)
    assert "there is nothing to trust" in shell("trust").stderr
    assert decide(shell, "make test") == "ask"


@pytest.mark.req("policy.rule.project")
def test_the_rules_that_count_are_those_that_were_checked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rules(shell)
    shell("trust")
    check = Trust.check_policy

    def swapped(self: Trust, *args: Any) -> str:
        why = check(self, *args)
        write_rules(shell, RULES.replace("make test", "rm *"))
        return why

    monkeypatch.setattr(Trust, "check_policy", swapped)
    assert decide(shell, "rm x") == "ask"
    write_rules(shell)
    assert decide(shell, "make test") == "allow"


# -- settings ---------------------------------------------------------------------------------------------------------------------


SETTINGS = """
agent = "claude"
tools = ["bash"]
record = false
[guest.weather]
env = ["A_TOKEN"]
services = ["tools"]
"""


def write_settings(shell: Shell, text: str = SETTINGS) -> Path:
    path = shell.cwd / ".serai" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def show_agent(shell: Shell) -> str:
    [form] = parse_objects(shell("config", "show", "agent", "--json"))
    return str(form["values"][0]["value"])


@pytest.mark.req("app.config.pinned")
def test_what_a_project_sets_by_being_trusted_is_shown_and_counts_from_then_on(shell: Shell) -> None:
    path = write_settings(shell)
    assert show_agent(shell) == "resident"
    ran = shell("trust")
    assert ran.stdout.splitlines() == [
        f"trusted what is set by {path}",
        '  agent = "claude"',
        '  guest.weather.env = ["A_TOKEN"]',
        "  before: they were never trusted",
    ]
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert show_agent(shell) == "claude"
    [form] = parse_objects(shell("trust", "--json"))
    assert form["settings"] == {"agent": "claude", "guest.weather.env": ["A_TOKEN"]}
    write_settings(shell, SETTINGS.replace("claude", "codex"))
    assert show_agent(shell) == "resident"
    assert "  before: they have changed since they were trusted\n" in shell("trust").stdout
    assert show_agent(shell) == "codex"
    shell("trust", "--withdraw")
    assert show_agent(shell) == "resident"


def test_settings_that_only_narrow_need_no_trust(shell: Shell) -> None:
    write_settings(shell, "tools = []\n")
    assert "there is nothing to trust" in shell("trust").stderr


@pytest.mark.parametrize("text", ["agent = ", "agnet = 'x'", "[guest.a]\nservices = ['x']"])
def test_settings_that_cannot_be_read_are_not_trusted_and_neither_is_anything_else(shell: Shell, text: str) -> None:
    write_guest(guest_path(shell), tools=["ping"])
    path = write_settings(shell, text)
    ran = shell("trust")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.startswith(f"serai: {path}: ")
    assert list_tools(shell) == []


@pytest.mark.req("app.config.pinned")
def test_the_settings_that_were_shown_are_trusted_and_not_what_somebody_writes_meanwhile(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(shell)
    allow = Trust.allow

    def swapped(self: Trust, *args: Any, **kwargs: Any) -> Any:
        write_settings(shell, 'agent = "evil"')
        return allow(self, *args, **kwargs)

    monkeypatch.setattr(Trust, "allow", swapped)
    assert '  agent = "claude"\n' in shell("trust").stdout
    assert show_agent(shell) == "resident"
    write_settings(shell)
    assert show_agent(shell) == "claude"


def test_a_projects_settings_do_not_act_on_the_terminal(shell: Shell) -> None:
    write_settings(shell, 'agent = "\\u001b[2J\u3164"')
    assert '  agent = "\\u001b[2J\\x3164"\n' in shell("trust").stdout


# -- what it has for driven agents


def write_agent_settings(shell: Shell) -> None:
    (shell.cwd / ".claude").mkdir()
    (shell.cwd / ".claude" / "settings.json").write_text("{}")
    (shell.cwd / ".mcp.json").write_text("{}")


@pytest.mark.req("app.driven.trust")
def test_what_a_project_has_for_driven_agents_is_told(shell: Shell) -> None:
    write_agent_settings(shell)
    names = ["  .claude/settings.json", "  .mcp.json"]
    ran = shell("trust")
    assert ran.stdout.splitlines() == ["trusted what driven agents find here", *names, "  before: it was never trusted"]
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert shell("trust").stdout.splitlines()[-1] == "  before: the same"
    (shell.cwd / ".mcp.json").write_text('{"mcpServers": {}}')
    assert shell("trust").stdout.splitlines()[-1] == "  before: it has changed since it was trusted: .mcp.json"
    [form] = parse_objects(shell("trust", "--json"))
    assert form["agents"] == [".claude/settings.json", ".mcp.json"]
    assert Trust(shell.home / "trust.json").check_agents(shell.cwd) == ""
    assert shell("trust", "--withdraw").returncode == 0
    assert Trust(shell.home / "trust.json").check_agents(shell.cwd) == "it was never trusted; look at it, then `serai trust`"


@pytest.mark.req("app.driven.trust")
def test_what_cannot_be_looked_at_whole_is_left_out_and_told(shell: Shell) -> None:
    write_agent_settings(shell)
    os.mkfifo(shell.cwd / ".claude" / "pipe")
    ran = shell("trust")
    why = "there is too much of it, or some of it cannot be read"
    assert (ran.stdout, ran.stderr) == ("", f"left out: what driven agents find in {shell.cwd}: {why}\n")
    [form] = parse_objects(shell("trust", "--json"))
    assert form["agents"] == []
    os.unlink(shell.cwd / ".claude" / "pipe")
    assert "it has changed since it was trusted" in Trust(shell.home / "trust.json").check_agents(shell.cwd)


@pytest.mark.req("app.driven.trust")
def test_no_name_of_a_file_can_be_taken_for_a_line_of_ours(shell: Shell) -> None:
    write_agent_settings(shell)
    (shell.cwd / ".claude" / "x\n  before: the same").write_text("")
    rows = shell("trust").stdout.splitlines()
    assert rows.count("  before: the same") == 0
    assert rows[-1] == "  before: it was never trusted"
