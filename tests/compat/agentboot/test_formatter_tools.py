"""Uses of tools in a line, and what came of them in a few (spec agents 5.2 F12, F14-F18)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot.formatter import _LINES, TranscriptFormatter, format_use, list_details
from tests.support.agentboot.formatter_frames import assistant, result_of, text, use, user

TODOS = [{"content": "one", "status": "completed"}, {"content": "two", "status": "in_progress"}, {"content": "three"}]
ASKED = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}


@pytest.mark.req("agents.scenario.F14")
@pytest.mark.parametrize(
    ("tool", "input", "line"),
    [
        ("Read", {"file_path": "/a.py"}, "Read /a.py"),
        ("Read", {"file_path": "/a.py", "offset": 10, "limit": 21}, "Read /a.py L10-30"),
        ("Read", {"file_path": "/a.py", "offset": 10}, "Read /a.py L10-"),
        ("Read", {"file_path": "/a.py", "limit": 5}, "Read /a.py L1-5"),
        ("Write", {"file_path": "/a.py", "content": "1\n2\n3\n"}, "Write /a.py (3 lines)"),
        ("Edit", {"file_path": "/a.py", "old_string": "x", "new_string": "y"}, "Edit /a.py"),
        ("Edit", {"file_path": "/a.py", "replace_all": True}, "Edit /a.py (replace_all)"),
        ("MultiEdit", {"file_path": "/a.py", "edits": [{}, {}]}, "MultiEdit /a.py (2 edits)"),
        ("Bash", {"command": "cd /x\n  make\n"}, "$ cd /x make"),
        ("Bash", {"command": "x" * 500}, "$ " + "x" * 119 + "…"),
        ("BashOutput", {"bash_id": "bash_1", "filter": "err.*"}, "BashOutput bash_1 /err.*/"),
        ("BashOutput", {"bash_id": "bash_1"}, "BashOutput bash_1"),
        ("KillBash", {"shell_id": "bash_1"}, "KillBash bash_1"),
        ("Grep", {"pattern": "def x", "path": "src", "glob": "*.py", "output_mode": "count"}, 'Grep "def x" in src *.py (count)'),
        ("Glob", {"pattern": "**/*.py", "path": "src"}, "Glob **/*.py in src"),
        ("WebFetch", {"url": "http://localhost/x", "prompt": "what?"}, "WebFetch http://localhost/x"),
        ("WebSearch", {"query": "weather in Bern"}, 'WebSearch "weather in Bern"'),
        ("Task", {"subagent_type": "Explore", "description": "look around", "prompt": "…"}, "Task Explore: look around"),
        ("TodoWrite", {"todos": TODOS}, "TodoWrite 3 todos"),
        (
            "NotebookEdit",
            {"notebook_path": "/n.ipynb", "edit_mode": "insert", "cell_type": "code"},
            "NotebookEdit /n.ipynb (insert code)",
        ),
        ("ExitPlanMode", {"plan": "x" * 42}, "ExitPlanMode (42 characters)"),
        ("SlashCommand", {"command": "/compact now"}, "/compact now"),
        ("AskUserQuestion", {"questions": [ASKED, ASKED]}, 'AskUserQuestion "Which colour?" +1 more'),
        ("AskUserQuestion", {"question": "Which colour?", "options": ["Red"]}, 'AskUserQuestion "Which colour?"'),
    ],
)
def test_each_tool_has_its_line(tool: str, input: dict[str, Any], line: str) -> None:
    assert TranscriptFormatter().show(assistant(use(tool, **input))) == line


@pytest.mark.req("agents.scenario.F14", "agents.scenario.F12")
def test_details_say_why_and_what_changes() -> None:
    def lines(tool: str, **input: Any) -> list[str]:
        plain, full = (TranscriptFormatter(details=wanted).show(assistant(use(tool, **input))) for wanted in (False, True))
        first, *more = full.split("\n")
        assert first == plain
        return more

    assert lines("Bash", command="ls", description="What is here") == ["  What is here"]
    assert lines("Edit", file_path="/a", old_string="x\ny", new_string="z") == ["  - x", "  - y", "  + z"]
    assert lines("MultiEdit", file_path="/a", edits=[{"old_string": "x", "new_string": "z"}]) == ["  - x", "  + z"]
    assert lines("TodoWrite", todos=TODOS) == ["  ☑ one", "  ▶ two", "  ☐ three"]
    assert lines("AskUserQuestion", questions=[ASKED]) == ["  Which colour? [Red | Blue]"]
    assert lines("Write", file_path="/a", content="\n".join("abcdefghijkl"))[-2:] == ["  + j", "  + … +2 more lines"]
    assert lines("Grep", pattern="x") == []


@pytest.mark.req("agents.scenario.F15")
def test_another_tool_shows_its_input_sorted() -> None:
    told = TranscriptFormatter().show(assistant(use("mcp__zoo__feed", who="lion", amount=3, when={"hour": 9}, now=True)))
    assert told == 'mcp__zoo__feed amount=3 now=true when={"hour":9} who=lion'


@pytest.mark.req("agents.scenario.F16")
@pytest.mark.parametrize("tool", [*sorted(_LINES), "Unheard", ""])
def test_an_empty_input_harms_nobody(tool: str) -> None:
    for formatter in (TranscriptFormatter(), TranscriptFormatter(details=True)):
        odd: tuple[Any, ...] = ({}, None, [], "text")
        for input in odd:
            shown = formatter.show(assistant({"type": "tool_use", "id": "toolu_1", "name": tool, "input": input}))
            assert shown.splitlines()[0].strip()
        assert formatter.show(assistant({"type": "tool_use"})) == "Tool"
    names = {"Bash": "$", "SlashCommand": "SlashCommand", "": "Tool"}
    assert format_use(tool, {}).startswith(names.get(tool, tool))


_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.none() | st.text() | st.dictionaries(st.text(), st.text()))
)
_inputs = [
    *(
        "file_path",
        "path",
        "offset",
        "limit",
        "content",
        "old_string",
        "new_string",
        "replace_all",
        "edits",
        "command",
        "description",
    ),
    *(
        "bash_id",
        "filter",
        "pattern",
        "glob",
        "output_mode",
        "url",
        "query",
        "subagent_type",
        "todos",
        "plan",
        "questions",
        "question",
    ),
]


@pytest.mark.req("agents.scenario.F16")
@given(st.sampled_from([*sorted(_LINES), "Unheard"]), st.dictionaries(st.sampled_from(_inputs), _values))
def test_no_input_at_all_makes_it_raise(tool: str, input: dict[str, Any]) -> None:
    assert "\n" not in format_use(tool, input)
    assert all("\n" not in line for line in list_details(tool, input))


@pytest.mark.req("agents.scenario.F17")
def test_reads_in_a_row_are_one_line_unless_somebody_wants_to_see_all() -> None:
    reads = [
        use("Read", f"toolu_{name}", file_path=f"/{name}", **more) for name, more in (("a", {}), ("b", {"limit": 3}), ("c", {}))
    ]
    message = assistant(text("I read."), *reads[:2], use("Bash", command="ls"), reads[2])
    assert TranscriptFormatter().show(message) == "I read.\nRead 2 files: /a, /b L1-3\n$ ls\nRead /c"
    assert TranscriptFormatter(details=True).show(message) == "I read.\nRead /a\nRead /b L1-3\n$ ls\nRead /c"


@pytest.mark.req("agents.scenario.F18")
@pytest.mark.parametrize(
    ("tool", "lines", "told"),
    [
        ("Read", 7, "✓ Read: 7 lines"),
        ("Read", 1, "✓ Read: 1 line"),
        ("Bash", 10, "✓ Bash\n  +7 more\n  l8\n  l9\n  l10"),
        ("Bash", 2, "✓ Bash\n  l1\n  l2"),
        ("Bash", 0, "✓ Bash"),
        ("Grep", 5, "✓ Grep: 5 matches\n  l1\n  l2\n  l3\n  +2 more"),
        ("Grep", 1, "✓ Grep: 1 match\n  l1"),
        ("Edit", 9, ""),
        ("TodoWrite", 2, "✓ Todos updated"),
        ("Fly", 20, "✓ Fly\n  l1\n  l2\n  l3\n  l4\n  l5\n  +15 more lines"),
        ("", 1, "✓ Result\n  l1"),
    ],
)
def test_a_result_in_a_few_lines(tool: str, lines: int, told: str) -> None:
    formatter = TranscriptFormatter()
    if tool:
        formatter.show(assistant(use(tool)))
    content = "\n".join(f"l{number}" for number in range(1, lines + 1))
    assert formatter.show(user([result_of(content=content)])) == told


@pytest.mark.req("agents.scenario.F18")
def test_an_error_is_told_also_of_a_tool_whose_success_is_silent() -> None:
    formatter = TranscriptFormatter()
    formatter.show(assistant(use("Edit", file_path="/a")))
    assert formatter.show(user([result_of(content="String not found", is_error=True)])) == "✗ Edit\n  String not found"
