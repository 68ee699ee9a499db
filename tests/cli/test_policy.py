"""`serai policy test|list` as a person calls them; `test_policy_approvals` has the rest."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from serai.model.approvals import Remember
from serai.policy import DecisionStore, RememberedDecision
from serai.policy.rules import parse_rule_flag, read_toml
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, parse_objects, read_lines

RULES = """
[[rule]]
id = "no-force-push"
decide = "deny"
tool = "bash"
command = ["git push ** --force* **", "git push ** -f **"]
because = "others have the old history"

[[rule]]
id = "ask-push"
decide = "ask"
tool = "bash"
command = "git push *"

[[rule]]
id = "tests"
decide = "allow"
tool = "bash"
command = ["make test", "pytest *"]
because = "they change nothing"

[[rule]]
id = "weather-of-bern"
decide = "allow"
who = "claude"
owner = "zot:weather"
tool = "weather"
input = { city = "Bern" }
"""
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e"
TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    return InProcessShell(tmp_path)


@pytest.fixture
def rules(shell: Shell) -> Path:
    """The person's own."""
    shell.home.mkdir()
    path = shell.home / "policy.toml"
    path.write_text(RULES)
    return path


def remember(shell: Shell, flag: str, scope: Remember = "always", key: str = "", *, deny: bool = False) -> RememberedDecision:
    decisions = DecisionStore.usual({"SERAI_HOME": str(shell.home)})
    rule = replace(parse_rule_flag(flag, "deny" if deny else "allow"), id="remembered-1")
    kept = decisions.remember(rule, scope, key, None)
    decisions.close()
    return kept


def encode_call(command: str) -> str:
    return json.dumps({"command": command})


# -- test -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.cli.test", "policy.decide.explain")
def test_what_a_rule_denies_is_told_with_the_rule_its_file_its_reason_and_what_would_change_it(shell: Shell, rules: Path) -> None:
    assert read_lines(shell("policy", "test", "bash", encode_call("cd x && git push --force"))) == [
        "bash: denied",
        "  because the rule `no-force-push` denies it: others have the old history",
        f"  the rule is from {rules}",
        "",
        "how it was decided, the first that says something counts:",
        "  1. deny rules: this decides",
        "",
        "to allow it:",
        f"  change the rule `no-force-push` of {rules}: nothing else gets past a rule that denies",
    ]


@pytest.mark.req("policy.cli.test", "policy.decide.explain")
def test_what_no_rule_decides_is_told_with_the_flag_and_the_rule_that_would_allow_it(shell: Shell, rules: Path) -> None:
    said = read_lines(shell("policy", "test", "bash", encode_call("make all")))
    assert said[:3] == [
        "bash: a person is asked",
        "  because no rule decides it, and in the mode `manual` a person is asked",
        "  without a person it is denied",
    ]
    [allow] = [line for line in said if line.startswith("  4. allow rules: ")]
    assert "`tests` does not: the command is not `make test` or `pytest *`" in allow
    assert said[-10:] == [
        "",
        "to allow it without asking, for one run:",
        "  --allow 'bash:make all'",
        f"to allow it for good, in {rules}:",
        "  [[rule]]",
        '  id = "my-rule-1"',
        '  decide = "allow"',
        "  owner = \"built-in\"  # Serai's own tool or the agent's, and no guest's of that name",
        '  tool = "bash"',
        '  command = "make all"',
    ]


@pytest.mark.req("policy.cli.test")
def test_what_is_allowed_needs_no_advice(shell: Shell, rules: Path) -> None:
    said = read_lines(shell("policy", "test", "bash", encode_call("make test")))
    assert said[0] == "bash: allowed"
    assert said[1] == "  because the rule `tests` allows it: they change nothing"
    assert said[-1] == "  4. allow rules: this decides"


def read_proposal(shell: Shell, rules: Path, tool: str, arguments: dict[str, object], *more: str) -> tuple[str, list[str]]:
    """The rule that would allow it for good as it is shown, and the comment before it."""
    said = read_lines(shell("policy", "test", tool, json.dumps(arguments), *more))
    [at] = [number for number, line in enumerate(said) if line.startswith(f"to allow it for good, in {rules}")]
    return "\n".join(said[at + 1 :]), [line for line in said[at + 1 :] if line.startswith("  # ")]


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bash", {"command": "make all"}),
        ("bash", {"command": "make all | tee 'a * b'"}),
        ("bash", {"command": "ls", "cwd": "/etc"}),
        ("bash", {"command": "ls; pwd", "cwd": "/etc"}),
        ("write", {"path": "a*b\\c", "content": "x"}),
        ("read", {"path": "/etc/passwd\0"}),
        ("read", {"path": "/etc/passwd", "weird": 1}),
        ("fetch", {"url": "https://example.com", "method": "PUT"}),
        ("fetch", {"url": "http://[::1]:8080/x"}),
        ("weather", {"city": f"Ber*n {HOSTILE}", "days": 3, "hot": None}),
        ("weather", {"a.b": 1}),
        ("weather", {"city": "Bern", "x": ""}),
        ("weather", {"x": ""}),
        ("weather", {"": "x"}),
        ("weather", {"city": "Bern", "cwd": "/etc"}),
        ("weather", {}),
        ("dialect:tool", {"x y": "1"}),
    ],
)
def test_the_rule_that_is_proposed_would_allow_the_call(shell: Shell, rules: Path, tool: str, arguments: dict[str, object]) -> None:
    text, _ = read_proposal(shell, rules, tool, arguments)
    [rule] = read_toml(text.encode(), "the advice").rules
    assert rule.tool == (tool,)
    rules.write_text(RULES + text)
    again = shell("policy", "test", tool, json.dumps(arguments), "--expect", "allow", "--json")
    assert parse_objects(again)[0]["rule"] == "my-rule-1"
    assert again.returncode == 0


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("tool", "arguments", "comments"),
    [
        ("bash", {"command": "make a && make b"}, []),
        ("weather", {"city": "Bern"}, []),
        ("weather", {"city": "Bern", "x": ""}, []),
        ("weather", {"a": {"b": 1}}, ["  # every call of weather: give it a pattern if that is too much"]),
    ],
)
def test_the_rule_that_is_proposed_is_about_just_this_call_or_says_what_else_it_allows(
    shell: Shell, rules: Path, tool: str, arguments: dict[str, object], comments: list[str]
) -> None:
    text, said = read_proposal(shell, rules, tool, arguments)
    assert said == comments
    rules.write_text(RULES + text)
    more = json.dumps({**arguments, "env": "x"})
    assert parse_objects(shell("policy", "test", tool, more, "--json"))[0]["decision"] == ("allow" if comments else "ask")


@pytest.mark.req("policy.cli.test")
def test_where_no_rule_can_say_it_none_is_proposed(shell: Shell, rules: Path) -> None:
    said = read_lines(shell("policy", "test", "weather", '{"cwd": "\\u0000"}'))
    assert said[-1] == "no rule can allow it: it has a path with a NUL in it"
    assert "  [[rule]]" not in said


@pytest.mark.req("policy.cli.test")
def test_a_tool_with_a_colon_in_its_name_is_allowed_by_a_rule_as_no_flag_can_say_it(shell: Shell, rules: Path) -> None:
    text, _ = read_proposal(shell, rules, "mcp:foo", {"x": "y"})
    said = read_lines(shell("policy", "test", "mcp:foo", '{"x": "y"}'))
    assert f"to allow it for good, in {rules}, or for one run in a file that --policy FILE names:" in said
    assert not [line for line in said if "--allow" in line]
    (shell.cwd / "more.toml").write_text(text)
    more = ["--policy", "more.toml", "--expect", "allow"]
    assert shell("policy", "test", "mcp:foo", '{"x": "y"}', *more).returncode == 0
    [form] = parse_objects(shell("policy", "test", "mcp:foo", '{"x": "y"}', "--json"))
    assert (form["would_allow"], form["why_not"]) == ("", "no flag can say it: allow it with a rule in --policy FILE")


@pytest.mark.req("policy.cli.test")
def test_a_flag_that_could_not_be_copied_is_not_shown(shell: Shell, rules: Path) -> None:
    odd = {"path": "/tmp/a\nb"}
    said = read_lines(shell("policy", "test", "read", json.dumps(odd)))
    assert not [line for line in said if "--allow" in line]
    assert '  path = "/tmp/a\\nb"' in said


@pytest.mark.req("policy.cli.test", "policy.rule.native")
def test_of_an_agents_own_name_for_a_tool_the_name_that_rules_have_is_told(shell: Shell) -> None:
    said = read_lines(shell("policy", "test", "Bash", encode_call("ls")))
    assert said[-2:] == [
        "to allow it without asking:",
        "  `Bash` is an agent's own name: rules that allow mean the tool `bash`, so try serai policy test bash",
    ]
    [form] = parse_objects(shell("policy", "test", "Bash", encode_call("ls"), "--json"))
    assert (form["would_allow"], form["why_not"]) == ("", said[-1].strip())
    assert '  tool = "Bash"' in read_lines(shell("policy", "test", "Bash", encode_call("ls"), "--owner", "zot:shell"))


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("tool", "arguments", "note"),
    [
        ("bash", {"cmd": "ls"}, "bash takes a `command`, and this call has none: its arguments are `cmd`\n"),
        ("bash", {}, "bash takes a `command`, and this call has none: its arguments are nothing\n"),
        ("read", {"pth": "x", "n": 1}, "read takes a `path`, and this call has none: its arguments are `pth`, `n`\n"),
        ("fetch", {"link": "https://x.example"}, "fetch takes a `url`, and this call has none: its arguments are `link`\n"),
        ("bash", {"command": "ls"}, ""),
        ("read", {"file_path": "x"}, ""),
        ("fetch", {"url": "nonsense"}, ""),
        ("grep", {}, ""),
        ("weather", {}, ""),
    ],
)
def test_what_a_tool_of_ours_lacks_is_told_beside(shell: Shell, tool: str, arguments: dict[str, object], note: str) -> None:
    text = json.dumps(arguments)
    assert shell("policy", "test", tool, text).stderr == note
    assert parse_objects(shell("policy", "test", tool, text, "--json"))[0]["notes"] == note.splitlines()
    assert shell("policy", "test", tool, text, "--owner", "zot:own").stderr == ""


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("tool", "arguments", "flag"),
    [
        ("bash", {"command": "make all"}, ["--allow", "bash:make all"]),
        ("write", {"path": "/srv/a b"}, ["--allow", "write:/srv/a b"]),
        ("fetch", {"url": "https://Example.com/x"}, ["--allow", "fetch:example.com:443"]),
        ("bash", {"command": "echo grüß"}, ["--allow", "bash:echo grüß"]),
        ("bash", {"command": "git status && ls"}, ["--allow", "bash"]),
        ("weather", {"city": "Bern"}, ["--allow", "weather"]),
    ],
)
def test_the_flag_that_is_proposed_would_allow_the_call_and_says_when_it_would_every_other(
    shell: Shell, tool: str, arguments: dict[str, object], flag: list[str]
) -> None:
    text = json.dumps(arguments)
    [form] = parse_objects(shell("policy", "test", tool, text, "--json"))
    assert shlex.split(form["would_allow"]) == flag
    wide = ":" not in flag[1]
    assert form["wider"] is wide
    assert f"  {form['would_allow']}" + f"   (every call of {tool})" * wide in read_lines(shell("policy", "test", tool, text))
    another = json.dumps(dict.fromkeys(arguments, "http://another.example"))
    assert parse_objects(shell("policy", "test", tool, another, "--json", *flag))[0]["decision"] == ("allow" if wide else "ask")
    [form] = parse_objects(shell("policy", "test", tool, text, "--json", *flag))
    assert (form["decision"], form["would_allow"]) == ("allow", "")


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("git push", "change the rule `ask-push` of {rules}: rules that ask come before those that allow"),
        (
            "$X push -f",
            "write the call more plainly, or change the rule `no-force-push` of {rules}: what it cannot see is always asked",
        ),
    ],
)
def test_where_no_flag_would_help_none_is_proposed_but_an_answer_that_is_remembered(
    shell: Shell, rules: Path, command: str, advice: str
) -> None:
    said = read_lines(shell("policy", "test", "bash", encode_call(command)))
    assert said[-3:] == [
        "to allow it without asking:",
        f"  {advice.format(rules=rules)}",
        "  or, when it is asked, answer for the next time too: serai policy answer ID allow --remember project",
    ]
    [form] = parse_objects(shell("policy", "test", "bash", encode_call(command), "--json"))
    assert (form["would_allow"], form["why_not"]) == ("", advice.format(rules=rules))


@pytest.mark.req("policy.cli.test", "policy.decide.explain")
@pytest.mark.parametrize(("command", "unseen"), [("git push", False), ("$X push -f", True), ("echo 'x", True)])
def test_what_is_asked_without_an_ask_rule_says_that_no_rule_was_needed(
    shell: Shell, rules: Path, command: str, unseen: bool
) -> None:
    decides = "what cannot be seen is asked, as if a rule said so: this decides" if unseen else "this decides"
    assert f"  3. ask rules: {decides}" in read_lines(shell("policy", "test", "bash", encode_call(command)))


@pytest.mark.req("policy.cli.test")
def test_a_command_that_cannot_be_read_is_told_to_be_asked_whatever_is_allowed(shell: Shell) -> None:
    said = read_lines(shell("policy", "test", "bash", encode_call("echo 'x"), "--allow", "bash", "--mode", "auto"))
    assert said[0] == "bash: a person is asked"
    assert "  3. ask rules: what cannot be seen is asked, as if a rule said so: this decides" in said
    assert "  a command that cannot be read is always asked, whatever rule allows it: write it more plainly" in said


@pytest.mark.req("policy.cli.test")
def test_what_is_remembered_is_named_and_how_to_forget_it(shell: Shell) -> None:
    one = remember(shell, "bash:make all", deny=True)
    said = read_lines(shell("policy", "test", "bash", encode_call("make all")))
    assert said[0] == "bash: denied"
    assert said[1].startswith("  because a person denied this ")
    assert said[2] == f"  remembered as {one.id}, everywhere, until it is forgotten"
    assert said[-2:] == ["to allow it:", f"  a person said no for the next time too: serai policy forget {one.id}"]


@pytest.mark.req("policy.cli.test")
def test_as_json_it_has_the_decision_the_rule_the_steps_and_what_would_allow_it(shell: Shell, rules: Path) -> None:
    [form] = parse_objects(shell("policy", "test", "bash", encode_call("git push -f"), "--json"))
    assert form == {
        "decision": "deny",
        "stage": "deny rules",
        "why": "the rule `no-force-push` denies it: others have the old history",
        "rule": "no-force-push",
        "source": str(rules),
        "steps": [{"stage": "deny rules", "said": "the rule `no-force-push` denies it: others have the old history"}],
        "would_allow": "",
        "wider": False,
        "why_not": f"change the rule `no-force-push` of {rules}: nothing else gets past a rule that denies",
        "notes": [],
    }


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("options", "decision"),
    [
        ([], "ask"),
        (["--agent", "claude", "--owner", "zot:weather"], "allow"),
        (["--agent", "codex", "--owner", "zot:weather"], "ask"),
        (["--agent", "claude"], "ask"),
        (["--agent", "claude", "--guest", "zot:other", "--owner", "zot:weather"], "ask"),
        (["--mode", "auto"], "allow"),
        (["--mode", "skip"], "allow"),
        (["--allow", "weather:city=B*"], "allow"),
        (["--allow", "weather:city=C*"], "ask"),
        (["--session", "s1"], "allow"),
        (["--session", "s2"], "ask"),
        (["--profile", "ci"], "allow"),
        (["--policy", "more.toml"], "deny"),
    ],
)
def test_each_option_counts(shell: Shell, rules: Path, options: list[str], decision: str) -> None:
    rules.write_text(RULES + '[profiles]\nci = "auto"\n')
    (shell.cwd / "more.toml").write_text('[[rule]]\nid = "none"\ndecide = "deny"\ntool = "weather"\n')
    remember(shell, "weather", "session", "s1")
    ran = shell("policy", "test", "weather", '{"city": "Bern"}', "--expect", decision, "--json", *options)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert parse_objects(ran)[0]["decision"] == decision


@pytest.mark.req("policy.cli.test")
def test_the_working_directory_counts(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    asked = [shell("policy", "test", "read", '{"path": "../other/x"}', "--json", *more) for more in ([], ["--cwd", "../other"])]
    assert [parse_objects(ran)[0]["decision"] for ran in asked] == ["ask", "allow"]


@pytest.mark.req("policy.cli.test")
def test_the_arguments_may_come_from_stdin_and_need_not_be_there(shell: Shell) -> None:
    assert parse_objects(shell("policy", "test", "read", "-", "--json", input='{"path": "x"}'))[0]["decision"] == "allow"
    assert parse_objects(shell("policy", "test", "grep", "--json"))[0]["decision"] == "allow"


@pytest.mark.req("policy.cli.test")
def test_what_is_otherwise_than_expected_fails(shell: Shell) -> None:
    ran = shell("policy", "test", "read", '{"path": "x"}', "--expect", "deny")
    assert ran.stdout.startswith("read: allowed\n")
    assert (ran.stderr, ran.returncode) == ("expected deny, and it is allow\n", 1)


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(("term", "no_color", "coloured"), [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)])
def test_there_are_colours_unless_somebody_wants_none(shell: InProcessShell, term: str, no_color: str, coloured: bool) -> None:
    shell.coloured = True
    argv = ["policy", "test", "bash", encode_call("ls")]
    assert ("\x1b[" in shell(*argv, TERM=term, NO_COLOR=no_color).stdout) is coloured


@pytest.mark.req("policy.cli.test")
def test_words_that_are_no_text_are_told_like_any_other(shell: Shell) -> None:
    odd = "\udcff"
    options = [word for name in ("--agent", "--guest", "--owner", "--session", "--profile") for word in (name, odd)]
    said = read_lines(shell("policy", "test", odd, *options))
    assert said[0] == "\\udcff: a person is asked"
    assert parse_objects(shell("policy", "test", odd, *options, "--json"))[0]["decision"] == "ask"


@pytest.mark.req("policy.cli.test")
def test_it_leaves_nothing_behind(shell: Shell) -> None:
    shell("policy", "test", "read", '{"path": "x"}')
    assert not shell.home.exists()
    assert list(shell.cwd.iterdir()) == []


@pytest.mark.req("policy.cli.test")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["bash", "{"], 2, "JSON: not JSON: "),
        (["bash", "[1]"], 2, 'JSON: the arguments are an object, such as {"path": "x"}'),
        (["bash", '{"a": "\udcff"}'], 2, "JSON: not JSON: "),
        (["bash", "-"], 2, "stdin: not JSON: "),
        (["bash", '{"a":' + "[" * 5000 + "]" * 5000 + "}"], 2, "JSON: not JSON: "),
        ([""], 2, "name a tool, such as bash"),
        ([], 2, "Missing argument 'TOOL'"),
        (["bash", "--mode", "yolo"], 2, "'yolo' is not one of"),
        (["bash", "--expect", "yes"], 2, "'yes' is not one of"),
        (["bash", "--cwd", ""], 2, "the path is empty"),
        (["bash", "--cwd", "nowhere"], 1, "nowhere: not a directory\nname the working directory\n"),
        (["bash", "--policy", "nowhere.toml"], 1, "nowhere.toml: cannot be read: No such file or directory\n"),
        (["bash", "--policy", "."], 1, "name a file of rules\n"),
        (["bash", "--policy", f"./{HOSTILE}"], 1, "\\x1b[2J\\x202e: cannot be read"),
        (["bash", "--allow", ""], 1, "it is TOOL or TOOL:PATTERN\n--allow 'bash:git status'\n"),
        (["bash", "--allow", "weather:Bern"], 1, "Say FIELD=PATTERN of the input of weather"),
        (["bash", "--allow", "bash:'"], 1, "has a quote that is not closed"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(shell: Shell, arguments: list[str], status: int, said: str) -> None:
    ran = shell("policy", "test", *arguments)
    assert (ran.stdout, ran.returncode) == ("", status)
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.req("policy.cli.test")
def test_a_mistake_in_the_persons_rules_is_told_with_file_and_rule(shell: Shell, rules: Path) -> None:
    rules.write_text('[[rule]]\nid = "x"\ndecide = "allow"\ntool = "bash"\ncomand = "ls"\n')
    for command in (["test", "bash"], ["list"]):
        ran = shell("policy", *command)
        said = f"serai: {rules}: rule `x`: there is no key `comand`\ndo you mean `command`?\n"
        assert (ran.stdout, ran.stderr, ran.returncode) == ("", said, 1)


@pytest.mark.req("policy.cli.test", "policy.cli.list")
def test_nothing_that_is_told_acts_on_the_terminal_and_nothing_is_masked(shell: Shell, rules: Path) -> None:
    rules.write_text(
        f'[[rule]]\nid = "r"\ndecide = "ask"\ntool = "odd*"\ninput = {{ a = "{TOKEN}" }}\nbecause = "{TOKEN} \\u001b[2J"\n'
    )
    tool, arguments = f"odd {HOSTILE}", json.dumps({"a": TOKEN, HOSTILE: HOSTILE, "path": HOSTILE})
    for ran in (
        shell("policy", "test", tool, arguments),
        shell("policy", "test", tool, arguments, "--json"),
        shell("policy", "test", f"more {HOSTILE}", arguments, "--agent", HOSTILE, "--session", HOSTILE),
        shell("policy", "list"),
        shell("policy", "list", "--json"),
    ):
        assert ran.returncode == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.stdout + ran.stderr)
        assert TOKEN in ran.stdout


@pytest.mark.req("policy.cli.test", "policy.rule.project")
def test_what_a_project_does_not_get_is_told_beside(shell: Shell) -> None:
    path = shell.cwd / ".serai" / "policy.toml"
    path.parent.mkdir()
    path.write_text('mode = "auto"\n' + RULES)
    ran = shell("policy", "test", "bash", encode_call("make test"))
    assert ran.stdout.startswith("bash: a person is asked\n")
    told = ran.stderr.splitlines()
    assert len(told) == 2
    assert told[0].startswith(f"{path}: 2 of its rules allow something and do not count: they were never trusted")
    assert "the mode `auto` does not count" in told[1]
    assert parse_objects(shell("policy", "test", "bash", encode_call("make test"), "--json"))[0]["notes"] == told
    assert shell("trust").returncode == 0
    ran = shell("policy", "test", "bash", encode_call("make test"))
    assert ran.stdout.startswith("bash: allowed\n")
    assert ran.stderr.splitlines() == told[1:]


# -- list -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.cli.list")
def test_list_shows_the_rules_in_their_order_with_their_sources_the_mode_and_what_is_remembered(shell: Shell, rules: Path) -> None:
    one = remember(shell, "bash:make all", "project", "/srv/project")
    rules.write_text('mode = "auto"\n' + RULES + '[profiles]\ncareful = "manual"\n')
    assert read_lines(shell("policy", "list", "--allow", "read:/usr/**")) == [
        "the first of these that says something counts:",
        "1. deny rules",
        "   no-force-push: tool bash, command git push ** --force* ** or git push ** -f **",
        "     because others have the old history",
        f"     from {rules}",
        "2. remembered",
        f"   {one.id} allow: tool bash, command make all",
        "     in /srv/project, until it is forgotten",
        "3. ask rules",
        "   ask-push: tool bash, command git push *",
        f"     from {rules}",
        "4. allow rules",
        "   --allow read:/usr/**: tool read, path /usr/**",
        "     from the command line",
        "   tests: tool bash, command make test or pytest *",
        "     because they change nothing",
        f"     from {rules}",
        "   weather-of-bern: who claude, owner zot:weather, tool weather, input city Bern",
        f"     from {rules}",
        "   default.look-around: owner built-in, tool read or grep or find, path ./**",
        "     because looking at what is in the working directory changes nothing",
        "     from what Serai ships",
        "5. mode auto: what no rule decides is allowed",
        "   profile careful: manual",
        f"your own rules are in {rules}",
    ]


@pytest.mark.req("policy.cli.list")
def test_list_without_any_rules_says_where_to_write_them(shell: Shell) -> None:
    said = read_lines(shell("policy", "list"))
    assert said[1:4] == ["1. deny rules: there are none", "2. remembered: nothing", "3. ask rules: there are none"]
    assert said[-2:] == [
        "5. mode manual: what no rule decides is asked of a person, and without one it is denied",
        f"your own rules are in {shell.home / 'policy.toml'}, which is not there yet",
    ]


@pytest.mark.req("policy.cli.list")
def test_list_as_json(shell: Shell, rules: Path) -> None:
    one = remember(shell, "bash:make all", "session", "s1", deny=True)
    [form] = parse_objects(shell("policy", "list", "--json"))
    assert [rule["id"] for rule in form["rules"]] == [
        "no-force-push",
        "ask-push",
        "tests",
        "weather-of-bern",
        "default.look-around",
    ]
    assert form["rules"][1] == {"id": "ask-push", "decide": "ask", "tool": "bash", "command": "git push *", "source": str(rules)}
    assert form["remembered"] == [
        {
            "id": one.id,
            "scope": "session",
            "key": "s1",
            "expires": None,
            "rule": {"id": "remembered-1", "decide": "deny", "tool": "bash", "command": "make all"},
        }
    ]
    assert (form["mode"], form["profiles"], form["notes"]) == ("manual", {}, [])


@pytest.mark.req("policy.cli.list")
def test_a_long_rule_is_shown_in_full(shell: Shell, rules: Path) -> None:
    wide = "make " + " ".join(f"target-{number}" for number in range(40))
    rules.write_text(f'[[rule]]\nid = "wide"\ndecide = "deny"\ncommand = "{wide}"\n')
    assert f"   wide: command {wide}" in read_lines(shell("policy", "list"))
