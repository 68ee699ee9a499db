"""The pattern language, and its three answers."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.policy.commands.reader import CommandPattern, read_command
from serai.policy.commands.shell_text import CommandReading, ShellCommand, ShellWord

ALLOWED = [
    ("git status", "git status"),
    ("git push *", "git push"),
    ("git push *", "git push origin main"),
    ("git * main", "git push main"),
    ("git ** main", "git main"),
    ("git ** main", "git push origin main"),
    ("rm ** -*r* **", "rm -rf x"),
    ("rm ** -*r* **", "rm x -fr y"),
    ("*", "anything at all"),
    ("**", "anything at all"),
    ("make test-?", "make test-a"),
    ("echo '*'", "echo '*'"),
    ("echo \\* x", "echo '*' x"),
    ('echo "a b" *', "echo 'a b' c"),
    ("npm run a*b*c", "npm run a1b2b3c"),
    ("./run *", "./run x"),
]
REFUSED = [
    ("git status", "git status -s"),
    ("git status", "git"),
    ("git * main", "git main"),
    ("git * main", "git a b main"),
    ("git push *", "git pull"),
    ("make test-?", "make test-"),
    ("make test-?", "make test-ab"),
    ("echo '*'", "echo x"),
    ("rm ** -*r* **", "rm x y"),
    ("npm run a*b*c", "npm run acb"),
    ("'*'", "x"),
    ("g*t status", "/x/git status"),
]


@pytest.mark.req("policy.command.pattern")
@pytest.mark.parametrize(("pattern", "text", "answer"), [(*row, True) for row in ALLOWED] + [(*row, False) for row in REFUSED])
def test_a_pattern_means_what_it_says(pattern: str, text: str, *, answer: bool) -> None:
    simple = read_command(text).simple
    assert simple is not None
    assert CommandPattern(pattern).allows(simple) is answer


@pytest.mark.req("policy.command.pattern")
@pytest.mark.parametrize(
    "text", ["", "  ", "git 'status", 'git "status', "git \\", "git\nstatus", "a\0", "x " * 100, "make test\u3164", "make '\u2800'"]
)
def test_a_bad_pattern_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        CommandPattern(text)


def test_a_pattern_is_a_value() -> None:
    assert CommandPattern("git status") == CommandPattern("git status") != CommandPattern("git  push")
    assert len({CommandPattern("a"), CommandPattern("a")}) == 1
    assert repr(CommandPattern("git *")) == "Pattern('git *')"


def _build_reading(*words: ShellWord | str, more: bool = False) -> CommandReading:
    return CommandReading(None, (ShellCommand(tuple(ShellWord(word) if isinstance(word, str) else word for word in words), more),))


X = ShellWord("$x", known=False)
XS = ShellWord("$x", known=False, one=False)


@pytest.mark.req("policy.command.maybe")
@pytest.mark.parametrize(
    ("pattern", "reading", "answer"),
    [
        ("rm *", _build_reading("rm", XS), "yes"),
        ("rm *", _build_reading("/bin/rm", "x"), "yes"),
        ("/bin/rm *", _build_reading("/bin/rm", "x"), "yes"),
        ("/bin/rm *", _build_reading("rm", "x"), "no"),
        ("rm * x", _build_reading("rm", X, "x"), "yes"),
        ("rm * x", _build_reading("rm", XS, "x"), "maybe"),
        ("rm x", _build_reading("rm", X), "maybe"),
        ("rm x", _build_reading("rm", X, "y"), "no"),
        ("rm x y", _build_reading("rm", X, "y"), "maybe"),
        ("rm x y", _build_reading("rm", XS), "maybe"),
        ("rm x", _build_reading("rm", "x", XS), "maybe"),
        ("rm x", _build_reading("rm", more=True), "maybe"),
        ("rm *", _build_reading("rm", more=True), "yes"),
        ("rm", _build_reading("rm", "x", more=True), "no"),
        ("git push *", _build_reading("git", more=True), "maybe"),
        ("git push *", _build_reading("git", "pull", more=True), "no"),
        ("rm ** -r **", _build_reading("rm", XS, "x"), "maybe"),
        ("rm ** -r **", _build_reading("rm", X, "x", "-r"), "yes"),
        ("rm *", _build_reading(X, "x"), "maybe"),
        ("rm *", _build_reading(XS, "x"), "maybe"),
        ("rm *", CommandReading(None, unread="no"), "maybe"),
        ("rm *", CommandReading(None, (), hidden=("something",)), "maybe"),
        ("rm *", CommandReading(None, (ShellCommand((ShellWord("rm"),)),), hidden=("something",)), "yes"),
        ("rm *", CommandReading(None), "no"),
    ],
)
def test_what_is_not_known_is_maybe(pattern: str, reading: CommandReading, answer: str) -> None:
    assert CommandPattern(pattern).finds(reading) == answer


words = st.lists(st.sampled_from(["a", "b", "ab", "-r", ""]), min_size=1, max_size=4)
globs = st.lists(st.sampled_from(["a", "b", "a*", "*b", "?", "*", "**", "-*r*"]), min_size=1, max_size=4)


def _as_regex(pattern: list[str]) -> re.Pattern[str]:
    """The same language over words that each end with a newline, by the library's own means."""
    parts = []
    for index, word in enumerate(pattern):
        if word == "**" or (word == "*" and index == len(pattern) - 1):
            parts.append(r"(?:[^\n]*\n)*")
        else:
            parts.append(re.escape(word).replace(r"\*", r"[^\n]*").replace(r"\?", r"[^\n]") + r"\n")
    return re.compile("".join(parts))


@pytest.mark.req("policy.command.pattern")
@given(globs, words)
def test_a_pattern_agrees_with_a_plain_definition(pattern: list[str], command: list[str]) -> None:
    expected = _as_regex(pattern).fullmatch("".join(word + "\n" for word in command)) is not None
    assert CommandPattern(" ".join(pattern)).allows(command) is expected


@pytest.mark.req("policy.command.maybe")
@given(globs, st.lists(st.sampled_from(["a", "b", "-r", X, XS]), min_size=1, max_size=3))
def test_maybe_covers_every_value_and_yes_holds_for_all(pattern: list[str], command: list[ShellWord | str]) -> None:
    """Each unknown word is replaced by some values; what then matches was not `no`, what does not was not `yes`."""
    answer = CommandPattern(" ".join(pattern)).finds(_build_reading(*command))
    values: list[list[list[str]]] = []
    for word in command:
        if isinstance(word, str):
            values.append([[word]])
        else:
            values.append([["a"], ["b"], ["-r"], ["ab"], *([[], ["a", "b"], ["b", "-r"]] if not word.one else [])])
    for choice in product(*values):
        matched = CommandPattern(" ".join(pattern)).finds(_build_reading(*(word for part in choice for word in part)))
        assert not (matched == "yes" and answer == "no")
        assert not (matched == "no" and answer == "yes")


@pytest.mark.req("policy.command.bounded")
def test_matching_stays_quick_on_hostile_words() -> None:
    hostile = CommandPattern("rm " + "*a" * 30 + " ** " * 20 + "*b*b*b*b*c")
    assert not hostile.allows(["rm", "a" * 60_000, *["b" * 100] * 500])
