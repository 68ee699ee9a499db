"""No input makes reading long: the work is counted, not the time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from serai.policy.commands import grammar
from serai.policy.commands.reader import CommandPattern, read_command, read_with
from serai.policy.commands.shell_text import (
    MOST_COMMANDS,
    MOST_TEXT,
    MOST_WITHIN,
    MOST_WORDS,
    ParsedText,
    TooComplex,
    scan_commands,
)

RM = CommandPattern("rm *")

HOSTILE: dict[str, str | list[str]] = {
    "words behind wrappers": "nohup " * 16 + "a " * 32_000,
    "a few of them": "nohup " * 16 + "a " * (MOST_WORDS - 16),
    "env": "env " * 16_000,
    "less env": "env " * MOST_WORDS,
    "eval": "eval " * 8_000,
    "less eval": "eval " * (MOST_WORDS - 1),
    "argv": ["env"] * 200_000,
    "less argv": ["env"] * MOST_WORDS,
    "long argv": ["env", "a" * (MOST_TEXT + 1)],
    "commands": "a;" * 30_000,
    "texts": "PAGER='a;a;a;a' " * 2_000,
    "text": "sh -c '" + "a;" * 30_000 + "'",
    "nested texts": "eval " * 15 + "'" + "a " * 2_000 + "'",
    "each -exec": "find " + "-exec a " * 1_000,
    "only -exec": "find " + "-exec " * 2_000,
    "each -c": "script " + "-c 'a;a' " * 1_000 + "f",
}


@pytest.mark.req("policy.command.bounded")
@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE.keys())
def test_only_so_many_words_are_looked_at(command: str | Sequence[str]) -> None:
    sizes: list[int] = []

    def counting(text: str) -> ParsedText:
        sizes.append(len(text))
        return scan_commands(text)

    reading = read_with(counting, command)
    assert len(reading.commands) <= MOST_COMMANDS
    assert sum(len(found.words) for found in reading.commands) <= 2 * MOST_WORDS
    assert sum(sizes) <= MOST_TEXT + MOST_WITHIN
    assert RM.finds(reading) == RM.finds(read_command(command)) == "maybe"


@pytest.mark.req("policy.command.bounded")
@pytest.mark.parametrize(
    "text",
    [
        *("a@" * 30_000, "a(b " * 10_000, "${" * 30_000, "))" * 30_000, "|!" * 30_000, "[[ a " * 10_000, "a;" * 4_000 + "(a)"),
        *("# it's\n" + "))" * 10_000 + "'", 'echo "it\'s" ' + "a@" * 10_000 + "'", "a=(" + "b " * 30_000 + ")"),
    ],
    ids=lambda text: repr(text[:8]),
)
def test_the_parser_gets_no_text_that_takes_it_long(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(grammar, "_load_parser", lambda: pytest.fail("the parser was asked"))
    with pytest.raises(TooComplex):
        grammar.parse_with_grammar(text)


@pytest.mark.req("policy.command.bounded")
def test_a_file_in_a_here_document_is_not_too_much() -> None:
    body = "def f(a, b):\n    return [a(b), {a: b}, (a | b) & it]  # it's\n" * 100
    assert CommandPattern("cat *").finds(read_command(f"cat > x.py <<'E'\n{body}E")) == "yes"
    assert RM.finds(read_command(f"cat > x.py <<'E'\n{body}E")) == "no"


@pytest.mark.req("policy.command.bounded")
def test_a_script_of_many_lines_is_not_too_much() -> None:
    text = "if a; then\n" + "  echo 'one (two)' \"$x\" | b\n" * 200 + "fi; rm x"
    assert RM.finds(read_command(text)) == "yes"
