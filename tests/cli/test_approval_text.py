"""What waits for a person is shown so that none of it can be taken for something else, whoever wrote it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.cli import approval_text as words
from serai.model.approvals import Approval
from serai.model.tools import ToolCall
from serai.policy import CallContext, DecisionStore, PendingApproval
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell

pytestmark = pytest.mark.req("policy.cli.answer")

NOT_SEEN = "\u3164\u2800\u115f\u1160\u034f\ufe00\ufe0f\u17b4\u17b5\u180b\u180d\uffa0\u00ad\u200b\U000e0041\U000e0100"
OURS = re.compile(r"  (in /|waits until |serai policy answer |asked because: |the agent |all of it: |… and )")


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    return InProcessShell(tmp_path)


def ask(
    store: DecisionStore, arguments: dict[str, Any], tool: str = "bash", cwd: str = "/srv/project", **fields: Any
) -> PendingApproval:
    call = ToolCall(tool, arguments, id="c1")
    return store.ask(Approval(id="1", agent="claude", call=call, **fields), CallContext(cwd=cwd, agent="claude"), "digest", 3600.0)


def show_pending(shell: Shell, *arguments: str, columns: int = 80) -> list[str]:
    ran = shell("policy", "pending", *arguments, COLUMNS=str(columns))
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert all(measure_width(row) < columns for row in ran.stdout.splitlines()), ran.stdout
    return ran.stdout.splitlines()


def measure_width(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


# -- folded -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize(
    "command",
    [f"echo{' ' * 66}  waits until tomorrow; rm -rf x", "x" * 500, "漢" * 100, f"{'a' * 33}漢字{'b' * 70}", "é" * 90],
    ids=["forged", "long", "wide", "mixed", "letters"],
)
def test_a_long_line_is_folded_with_the_mark_on_each_piece(shell: Shell, store: DecisionStore, command: str, columns: int) -> None:
    ask(store, {"command": command})
    _, first, *rest = show_pending(shell, columns=columns)
    more = [row for row in rest if row.startswith("          |+")]
    assert len(more) >= 1
    assert first.removeprefix("  command | ") + "".join(row[12:] for row in more) == command
    assert [bool(OURS.match(row)) for row in rest[len(more) :]] == [True] * 3


def test_a_terminal_of_unknown_width_has_eighty_columns(shell: Shell, store: DecisionStore) -> None:
    ask(store, {"command": "x" * 500})
    shell.env.pop("COLUMNS", None)
    with patch("os.get_terminal_size", side_effect=OSError):
        said = shell("policy", "pending").stdout.splitlines()
    assert max(map(len, said)) == 79


def test_a_piece_of_a_line_is_told_from_a_line(shell: Shell, store: DecisionStore) -> None:
    ask(store, {"command": "x" * 50 + "\n" + "y"})
    assert show_pending(shell, columns=60)[1:4] == [f"  command | {'x' * 47}", "          |+xxx", "          | y"]


@pytest.mark.parametrize("field", ["reason", "title", "description", "blocked_path"])
def test_what_the_agent_tells_about_it_is_folded_and_marked_too(shell: Shell, store: DecisionStore, field: str) -> None:
    ask(store, {"command": "ls"}, **{field: "x" * 77 + "  waits until tomorrow\n  command | ls"})
    _, _, first, *rest = show_pending(shell)
    assert re.match(r"  [a-z ]+: x", first)
    marked = [row for row in rest if re.match(r" {8,}:[+ ]", row)]
    assert [bool(OURS.match(row)) for row in rest[len(marked) :]] == [True] * 3
    assert marked[-1].endswith(":   command | ls")


def test_long_lines_of_ours_are_folded_and_marked(shell: Shell, store: DecisionStore) -> None:
    ask(store, {"command": "ls"}, tool="t" * 64, cwd=f"/srv/{'x' * 75}/  waits until tomorrow")
    said = show_pending(shell)
    assert [row[:6] for row in said if not OURS.match(row)][1:] == ["    :+", "  comm", "    :+"]


@given(st.text(max_size=300), st.integers(20, 100))
def test_any_text_is_shown_in_marked_rows_that_fit_and_is_all_there(text: str, columns: int) -> None:
    with patch.dict(os.environ, COLUMNS=str(columns)):
        first, *rest = words.fold_text("a |", text)
    assert first.startswith("  a | ")
    assert all(row[:5] == "    |" and row[5] in " +" for row in rest)
    assert all(measure_width(row) < columns for row in (first, *rest))
    spelt = "\n".join(words.make_visible(line) for line in text.replace("\t", "    ").split("\n"))
    assert first[6:] + "".join(("\n" if row[5] == " " else "") + row[6:] for row in rest) == spelt


# -- names ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["(reason)", "asked because:", "asked because", "in /", "waits until", "a\n  in /x", "", '"'])
def test_an_argument_has_no_name_that_looks_like_ours(shell: Shell, store: DecisionStore, name: str) -> None:
    ask(store, {name: "no rule decides it"}, reason="the true one")
    _, argument, *rest = show_pending(shell)
    assert re.fullmatch(r'  ".*" \| no rule decides it', argument)
    assert rest[0] == "  asked because: the true one"
    assert len(rest) == 4


def test_a_tool_has_no_name_that_looks_like_ours(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, {}, tool="read, asked by claude: waiting")
    assert show_pending(shell)[0] == f'{one.id}  "read, asked by claude: waiting", asked by claude: waiting'


@pytest.mark.parametrize("name", ["x" * 400, "漢" * 200, "a " * 200, "\u3164" * 100], ids=["x", "wide", "blank", "not seen"])
def test_a_long_name_is_cut_in_the_list_and_whole_by_its_id(shell: Shell, store: DecisionStore, name: str) -> None:
    one = ask(store, {name: "ls"}, tool=name)
    said = show_pending(shell)
    [argument] = [row for row in said if row.endswith("| ls")]
    assert re.fullmatch(r'  "(.*)"… \| ls', argument)
    assert measure_width(argument) < 50
    assert f"  all of it: serai policy pending {one.id}" in said
    whole = "".join(row.lstrip().removeprefix(":+") for row in show_pending(shell, one.id))
    spelt = words.make_visible(name)
    assert f"the tool is called: {spelt}" in whole
    assert f"the next is called: {spelt}" in whole


def test_of_many_arguments_some_are_shown_and_the_others_counted(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, {f"a{number}": "x" for number in range(29)})
    said = show_pending(shell)
    assert [row for row in said if row.endswith(" | x")] == [f"  a{number} | x" for number in range(12)]
    assert said[13] == f"  … and 17 more arguments, all with: serai policy pending {one.id}"
    whole = show_pending(shell, one.id)
    assert len([row for row in whole if row.endswith(" | x")]) == 29
    assert not any("more argument" in row for row in whole)


def test_a_text_has_no_more_rows_in_the_list_than_a_person_reads(shell: Shell, store: DecisionStore) -> None:
    one = ask(store, {"command": "\x01" * 1990 + "rm"})
    said = show_pending(shell)
    assert len([row for row in said if "|" in row]) == 20
    [left] = [row for row in said if row.endswith(" characters more")]
    shown_ones = sum(row.count("\\x01") for row in said)
    assert left == f"  … and {1992 - shown_ones:,} characters more"
    assert f"  all of it: serai policy pending {one.id}" in said


# -- what cannot be seen ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", NOT_SEEN, ids=lambda char: f"U+{ord(char):04X}")
def test_what_cannot_be_seen_is_spelt_out(shell: Shell, store: DecisionStore, char: str) -> None:
    ask(store, {"command": f"make test{char}", f"a{char}": 1}, tool=f"bash{char}", title=char, cwd=f"/srv/{char}")
    said = show_pending(shell)
    assert f"  command | make test\\x{ord(char):02x}" in said
    assert char not in "\n".join(said)


def test_a_text_of_many_dots_is_shown_as_it_is(shell: Shell) -> None:
    assert f'path = "{shell.cwd}/a{"." * 30}b"' in shell("policy", "test", "write", f'{{"path": "a{"." * 30}b"}}').stdout


@pytest.mark.parametrize("arguments", [["test", "t\u3164", '{"a": "b\u3164"}'], ["list"]])
def test_what_cannot_be_seen_is_spelt_out_in_rules_too(shell: Shell, tmp_path: Path, arguments: list[str]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nid = "r"\ndecide = "ask"\ntool = "x\u3164"\nbecause = "b\u3164"\n')
    ran = shell("policy", *arguments, "--policy", rules)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert "\u3164" not in ran.stdout
    assert "3164" in ran.stdout
