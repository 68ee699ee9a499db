"""Every command of a text, wherever it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.policy.commands import grammar
from serai.policy.commands.reader import CommandPattern, read_command
from serai.policy.commands.shell_text import MOST_TEXT, ShellCommand, ShellWord, Unreadable, scan_commands
from tests.support.policy.command_readers import read_by_grammar, read_by_scanner
from tests.support.policy.command_texts import BOTH, HIDDEN, NOTHING, TREE, UNREAD

RM = CommandPattern("rm *")


@pytest.mark.req("policy.command.tree", "policy.command.own-reader")
@pytest.mark.parametrize("text", BOTH)
def test_a_command_is_found_in_lists_and_pipes_by_both_readers(text: str) -> None:
    assert RM.finds(read_by_scanner(text)) == "yes"
    assert RM.finds(read_by_grammar(text)) in ("yes", "maybe")
    assert RM.finds(read_command(text)) == "yes"


@pytest.mark.req("policy.command.tree")
@pytest.mark.parametrize("text", TREE)
def test_a_command_is_found_wherever_it_stands_in_the_tree(text: str) -> None:
    assert RM.finds(read_command(text)) == "yes"
    assert not read_command(text).unread


@pytest.mark.req("policy.command.own-reader", "policy.command.unread")
@pytest.mark.parametrize("text", TREE)
def test_our_own_reader_gives_up_on_what_it_is_not_certain_about(text: str) -> None:
    reading = read_by_scanner(text)
    assert reading.unread
    assert RM.finds(reading) == "maybe"


@pytest.mark.req("policy.command.tree")
@pytest.mark.parametrize("text", NOTHING)
def test_what_only_looks_like_a_command_is_none(text: str) -> None:
    assert RM.finds(read_command(text)) == "no"


@pytest.mark.req("policy.command.unread")
@pytest.mark.parametrize("text", UNREAD)
def test_what_cannot_be_read_for_certain_says_why_and_is_maybe(text: str) -> None:
    reading = read_command(text)
    assert reading.unread.startswith("the command cannot be read: it ")
    assert reading.commands == ()
    assert RM.finds(reading) == CommandPattern("other").finds(reading) == "maybe"


@pytest.mark.req("policy.command.maybe")
@pytest.mark.parametrize("text", HIDDEN)
def test_what_is_known_only_when_it_runs_is_hidden_and_maybe(text: str) -> None:
    reading = read_command(text)
    assert not reading.unread
    assert reading.hidden
    assert CommandPattern("some other command").finds(reading) == "maybe"


@pytest.mark.req("policy.command.tree")
def test_words_tell_what_is_known_of_them() -> None:
    assert read_command("a 'b c' \"d$e\" $f *.c ~ \"$@\" {x,y} $'z' g\\ h").commands == (
        ShellCommand(
            (
                ShellWord("a"),
                ShellWord("b c"),
                ShellWord("d$e", known=False),
                ShellWord("$f", known=False, one=False),
                ShellWord("*.c", known=False, one=False),
                ShellWord("~", known=False),
                ShellWord("$@", known=False, one=False),
                ShellWord("{x,y}", known=False, one=False),
                ShellWord("$'z'", known=False),
                ShellWord("g h"),
            )
        ),
    )
    assert read_command("").commands == ()
    assert [word.text for word in read_command("grüß 'ж' ☃").commands[0].words] == ["grüß", "ж", "☃"]


@pytest.mark.req("policy.command.bounded")
@pytest.mark.parametrize(
    "text",
    [
        "a" * 10_000_000,
        "a" * (MOST_TEXT + 1),
        "(" * 10_000 + "rm x" + ")" * 10_000,
        "$(" * 10_000 + "rm x" + ")" * 10_000,
        "`" * MOST_TEXT,
        '"$(' * 10_000,
        "cat <<E " * 5_000,
        "[[ a =~ " * 5_000,
        "sudo " * 10_000 + "rm x",
        "eval " * 10_000 + "rm x",
        "a;" * 20_000 + "rm x",
        "find . " + "-exec a ';' " * 5_000 + "-exec rm ';'",
        "{" * MOST_TEXT,
        "a" + "{,}" * 10_000,
        "\ud800",
        "\0",
    ],
    ids=lambda text: repr(text[:8]),
)
def test_no_text_is_too_much(text: str) -> None:
    assert RM.finds(read_command(text)) == "maybe"


@pytest.mark.req("policy.command.bounded")
@given(st.text(st.sampled_from("ab rm$(){}[]<>|&;'\"`\\\n#=!~*?:-EO\t"), max_size=60) | st.text(max_size=20))
def test_reading_never_fails(text: str) -> None:
    assert read_command(text).simple is None or not read_command(text).unread
    for reading in (read_command(text), read_by_grammar(text), read_by_scanner(text)):
        assert reading.unread == "" or not reading.commands


pieces = st.sampled_from(
    [
        *(
            "rm",
            "git",
            "status",
            "-rf",
            "'a b'",
            '"c d"',
            '"$x"',
            "$x",
            "*.c",
            "\\ ",
            "\\\n",
            "A=b",
            "A=$x",
            "é",
            "=",
            "2",
            "{}",
            "~",
            "[",
            "]",
        ),
        *(
            ";",
            "&&",
            "||",
            "|",
            "|&",
            "&",
            "\n",
            "> f",
            "2>&1",
            "< f",
            "<<< w",
            ">> f",
            "# c\n",
            "!",
            "time",
            "sudo",
            "sh -c 'rm x'",
        ),
    ]
)


@pytest.mark.req("policy.command.own-reader")
@given(st.lists(st.tuples(pieces, st.sampled_from([" ", " ", " ", ""])), max_size=8))
def test_both_readers_agree_wherever_both_read(parts: list[tuple[str, str]]) -> None:
    text = "".join(piece + blank for piece, blank in parts)
    try:
        ours, theirs = scan_commands(text), grammar.parse_with_grammar(text)
    except Unreadable:
        return
    assert ours.commands == theirs.commands
    assert sorted(ours.assigned) == sorted(theirs.assigned)


@pytest.mark.req("policy.command.own-reader")
def test_without_the_extra_our_own_reader_reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RM.finds(read_command("if a; then rm x; fi")) == "yes"
    monkeypatch.setattr(grammar, "is_installed", lambda: False)
    assert RM.finds(read_command("if a; then rm x; fi")) == "maybe"
    assert RM.finds(read_command("sudo sh -c 'a && rm x'")) == "yes"
    assert RM.finds(read_command("ls | wc")) == "no"
