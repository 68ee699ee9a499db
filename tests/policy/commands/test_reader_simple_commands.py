"""What an allow rule may match: one simple command of plain words."""

from __future__ import annotations

import pytest

from serai.policy.commands.reader import CommandPattern, read_command
from tests.support.policy.command_texts import INVISIBLE

PLAIN = {
    "git status": ("git", "status"),
    "  git   status  ": ("git", "status"),
    "git 'status'": ("git", "status"),
    'git "status"': ("git", "status"),
    "g'i't sta\"tus\"": ("git", "status"),
    "git commit -m 'it is; done && $(over) `x` | # > y'": ("git", "commit", "-m", "it is; done && $(over) `x` | # > y"),
    'git commit -m "a; b | c > d"': ("git", "commit", "-m", "a; b | c > d"),
    "git log --format=%h,%s v1@x": ("git", "log", "--format=%h,%s", "v1@x"),
    "echo ''": ("echo", ""),
    "ls grüße/ж.txt": ("ls", "grüße/ж.txt"),
    "env git status": ("env", "git", "status"),
    "eval x": ("eval", "x"),
    "./git status": ("./git", "status"),
}


@pytest.mark.req("policy.command.simple")
@pytest.mark.parametrize(("text", "words"), PLAIN.items())
def test_one_simple_command_of_plain_words_is_simple(text: str, words: tuple[str, ...]) -> None:
    assert read_command(text).simple == words


# Each of these is, or might somewhere be, more than the command `git status`.
NOT_PLAIN = [
    *("", " ", "''", "'' x"),
    *("git status;", "git status; rm x", "git status;rm x", "git status &", "git status & rm x", "git status && rm x"),
    *("git status || rm x", "git status | sh", "git status |& sh", "git status\nrm x", "git status\n", "\ngit status"),
    *(
        "git status\r",
        "git status\rrm x",
        "git status\r\nrm x",
        "git status\x0brm",
        "git status\x0c",
        "git\tstatus",
        "git status\0",
    ),
    *(
        "git status > x",
        "git status >> x",
        "git status >| x",
        "git status <> x",
        "git status < x",
        "git status 2>&1",
        "git status >&2",
    ),
    *("git status &> x", "git status <<< x", "git status << E", "git status <(rm x)", "git status >(rm x)"),
    *("git status $(rm x)", "git status `rm x`", "git status $x", "git status ${x}", "git status $((1))", "git status $'x'"),
    *('git status $"x"', "git${IFS}status", "git$IFS'status'", "git status $@", "git status $", 'git "$(rm x)"', 'git "`rm x`"'),
    *('git "$x"', 'git "a\\b"', 'git "a!b"', "git status !x", "git status !!", "^git^rm"),
    *("git \\status", "git status\\", "git sta\\\ntus", "\\git status", "git status \\"),
    *(
        "A=b git status",
        "PATH=/tmp git status",
        "GIT_PAGER=x git status",
        "LD_PRELOAD=./x.so git status",
        "A= git status",
        "a+=b git",
    ),
    *("'A'=b git status", "git=status", "!git status", "! git status", "time git status", "{ git status; }", "{git status}"),
    *(
        "(git status)",
        "((git))",
        "[[ git ]]",
        "[ git ]",
        "if git status",
        "then git",
        "coproc git status",
        "function git",
        "do git",
    ),
    *("foreach git", "repeat 3 git", "select git", "- git status", "noglob git status", "%1", "%git status", "=git status"),
    *("git =status", "git ~", "git ~/x", "git x:~", "git a=~", "git *", "git ?", "git [a]", "git {a,b}", "git {}", "git status #"),
    *("git status # x", "#git status", "git status#", "git ^x", "git a^b", "git 'status", 'git "status', "git status'"),
    *("git 'a''b'", 'git "a""b"', "git @(a)", "git +(a)", "git status()", "git () { rm x; }", "git;", ";git status"),
    # Spaces, invisible characters and look-alikes of separators.
    *("git\u00a0status", "git \u00a0status", "git\u2003status", "git\u3000status", "git\u200bstatus", "git status\u200b"),
    *("git status\u2028rm x", "git status\u0085rm", "git \u202estatus", "git \ufeffstatus", "\ufeffgit status", "git status\u00ad"),
    *("git status\u037e rm x", "git status\uff1b rm", "git status \uff5c sh", "git \u2018status\u2019", "git \u201cstatus\u201d"),
    *("git status\ud800", "git status\U000e0020", "git sta\u0301tus", "git 'sta\u200btus'", "git 'a\tb'", "git 'a\nb'"),
    *(f"git status{char}" for char in INVISIBLE),
    *(f"git 'status{char}'" for char in INVISIBLE),
    "git " + "a" * 70_000,
]


@pytest.mark.req("policy.command.simple")
@pytest.mark.parametrize("text", NOT_PLAIN)
def test_anything_more_is_not_simple(text: str) -> None:
    assert read_command(text).simple is None


@pytest.mark.req("policy.command.exact-name")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "/tmp/git status",
            "./git status",
            "git/ status",
            "Git status",
            "git  Status",
            "g\u0456t status",
            "git \u0455tatus",
            "\u0261it status",
        ),
        *("git status x", "git", "git -c core.pager=x status", "git --exec-path=. status", "env git status", "command git status"),
        *(
            "'git status'",
            "git 'status '",
            "git ' status'",
            "git status ''",
            "git.exe status",
            "sudo git status",
            "eval git status",
        ),
    ],
)
def test_an_allow_rule_takes_the_words_exactly(text: str) -> None:
    reading = read_command(text)
    assert reading.simple is not None
    assert not CommandPattern("git status").allows(reading.simple)
    assert CommandPattern("git status").allows(("git", "status"))


@pytest.mark.req("policy.command.argv")
def test_the_words_of_an_argv_are_taken_as_they_are() -> None:
    reading = read_command(["git", "$(rm x); a\n", ""])
    assert reading.simple == ("git", "$(rm x); a\n", "")
    assert [word.known for word in reading.commands[0].words] == [True, True, True]
    assert CommandPattern("rm *").finds(reading) == "no"


@pytest.mark.req("policy.command.argv")
def test_an_argv_is_looked_behind_too() -> None:
    assert CommandPattern("rm *").finds(read_command(["sudo", "sh", "-c", "ls; rm x"])) == "yes"
    assert CommandPattern("rm *").finds(read_command(["/bin/rm", "-rf"])) == "yes"
    assert CommandPattern("rm *").finds(read_command(["xargs", "sh"])) == "maybe"


@pytest.mark.req("policy.command.argv", "policy.command.unread")
@pytest.mark.parametrize("argv", [[], ["git", "a\0b"], ["git", b"x"], [None]])
def test_what_is_no_argv_is_unread(argv: list[str]) -> None:
    reading = read_command(argv)
    assert reading.simple is None
    assert reading.unread
    assert CommandPattern("rm *").finds(reading) == "maybe"
