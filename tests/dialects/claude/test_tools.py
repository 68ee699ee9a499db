"""Claude's tools in neutral words and back: a rule or a guard that is written once holds for each of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.claude.tools import ToolMap
from serai.limits import Limits
from serai.model.tools import BUILT_IN, NativeCall, ToolCall
from serai.policy.engine import Policy
from serai.tools import file_tools, process_tools
from tests.support.policy.rules import HERE, policy, rule

TOOLS = ToolMap()
BOTH_WAYS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("Bash", {"command": "ls", "timeout": 1500, "description": "d"}, "bash", {"command": "ls", "timeout": 1.5, "description": "d"}),
    (
        "Bash",
        {"command": "ls", "run_in_background": True, "dangerouslyDisableSandbox": True},
        "bash",
        {"command": "ls", "run_in_background": True, "dangerouslyDisableSandbox": True},
    ),
    ("PowerShell", {"command": "dir"}, "bash", {"command": "dir", "shell": "powershell"}),
    (
        "Monitor",
        {"command": "tail -f x", "description": "d", "timeout_ms": 300000},
        "bash",
        {"command": "tail -f x", "description": "d", "timeout": 300.0},
    ),
    (
        "Monitor",
        {"ws": {"url": "wss://a.b/c", "protocols": ["x"]}, "description": "d", "timeout_ms": 5},
        "fetch",
        {"url": "wss://a.b/c", "ws": {"url": "wss://a.b/c", "protocols": ["x"]}, "description": "d", "timeout": 0.005},
    ),
    ("Read", {"file_path": "/a", "offset": 3, "limit": 4}, "read", {"path": "/a", "offset": 3, "limit": 4}),
    ("NotebookRead", {"notebook_path": "/a.ipynb", "cell_id": "c"}, "read", {"path": "/a.ipynb", "cell_id": "c"}),
    ("Write", {"file_path": "/a", "content": "x"}, "write", {"path": "/a", "content": "x"}),
    (
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True},
        "edit",
        {"path": "/a", "old": "x", "new": "y", "replace_all": True},
    ),
    (
        "MultiEdit",
        {
            "file_path": "/a",
            "edits": [{"old_string": "x", "new_string": "y"}, {"old_string": "z", "new_string": "", "replace_all": True}],
        },
        "edit",
        {"path": "/a", "edits": [{"old": "x", "new": "y"}, {"old": "z", "new": "", "replace_all": True}]},
    ),
    (
        "NotebookEdit",
        {"notebook_path": "/a.ipynb", "new_source": "1", "cell_id": "c", "edit_mode": "insert"},
        "edit",
        {"path": "/a.ipynb", "new": "1", "cell_id": "c", "edit_mode": "insert"},
    ),
    (
        "Grep",
        {"pattern": "x", "path": "src", "glob": "*.py", "-i": True, "-C": 2, "head_limit": 5, "output_mode": "content", "-n": True},
        "grep",
        {
            "pattern": "x",
            "path": "src",
            "glob": "*.py",
            "ignore_case": True,
            "context": 2,
            "limit": 5,
            "output_mode": "content",
            "-n": True,
        },
    ),
    ("Glob", {"pattern": "**/*.py", "path": "src"}, "find", {"pattern": "**/*.py", "path": "src"}),
    ("LS", {"path": "/a", "ignore": ["x"]}, "find", {"path": "/a", "ignore": ["x"], "pattern": "*"}),
    ("WebFetch", {"url": "https://a.b", "prompt": "p"}, "fetch", {"url": "https://a.b", "prompt": "p"}),
    ("WebSearch", {"query": "q"}, "WebSearch", {"query": "q"}),
    ("Agent", {"prompt": "p", "description": "d"}, "Agent", {"prompt": "p", "description": "d"}),
    ("mcp__x__y", {"file_path": "/a"}, "mcp__x__y", {"file_path": "/a"}),
]


@pytest.mark.parametrize(("name", "input", "neutral", "arguments"), BOTH_WAYS)
def test_a_tool_in_neutral_words_and_back(name: str, input: dict[str, Any], neutral: str, arguments: dict[str, Any]) -> None:
    assert TOOLS.to_neutral(name, input) == (neutral, arguments)
    assert TOOLS.to_native(NativeCall(name, input), arguments) == input


def test_our_own_tools_take_what_we_call_it() -> None:
    """The neutral words are those of Serai's tools: a guard that knows these knows Claude's."""
    offered = [
        make(Limits()).spec
        for make in (
            process_tools.make_bash_tool,
            file_tools.make_edit_tool,
            process_tools.make_find_tool,
            process_tools.make_grep_tool,
            file_tools.make_read_tool,
            file_tools.make_write_tool,
        )
    ]
    ours = {spec.name: set(spec.schema["properties"]) for spec in offered}
    shared = {"Bash": 3, "Read": 3, "Write": 2, "Edit": 4, "MultiEdit": 2, "Grep": 6, "Glob": 2}
    for name, _, neutral, arguments in BOTH_WAYS:
        if name in shared and "run_in_background" not in arguments:
            assert len(arguments.keys() & ours[neutral]) == shared[name]


def test_every_neutral_name_is_one_of_ours() -> None:
    names = {neutral for name, _, neutral, _ in BOTH_WAYS if neutral != name}
    assert names <= BUILT_IN
    assert names == {"bash", "read", "write", "edit", "grep", "find", "fetch"}


def test_a_call_keeps_its_native_form() -> None:
    given = {"file_path": "/a", "content": "x"}
    call = TOOLS.build_call("c1", "Write", given)
    assert call == ToolCall("write", {"path": "/a", "content": "x"}, "c1", "claude", NativeCall("Write", given))
    assert given == {"file_path": "/a", "content": "x"}


def test_tools_of_serai_have_their_own_names() -> None:
    tools = ToolMap({"weather_1": "weather.today"}.get)
    assert tools.to_neutral("mcp__serai__weather_1", {"path": 1}) == ("weather.today", {"path": 1})
    assert tools.to_neutral("mcp__serai__other", {}) == ("mcp__serai__other", {})
    assert tools.to_neutral("mcp__seraix__weather_1", {}) == ("mcp__seraix__weather_1", {})
    assert (tools.is_ours("mcp__serai__weather_1"), tools.is_ours("mcp__serai__other"), tools.is_ours("Bash")) == (
        True,
        False,
        False,
    )
    assert TOOLS.to_neutral("mcp__serai__weather_1", {}) == ("mcp__serai__weather_1", {})


# -- changes


@pytest.mark.parametrize(
    ("name", "input", "change", "expected"),
    [
        ("Bash", {"command": "rm x", "later": 1}, {"command": "ls x"}, {"command": "ls x", "later": 1}),
        ("Bash", {"command": "ls"}, {"timeout": 2}, {"command": "ls", "timeout": 2000}),
        ("Bash", {"command": "ls", "timeout": 7}, {"timeout": 1.5}, {"command": "ls", "timeout": 1500}),
        ("Bash", {"command": "ls", "timeout": 7}, {"command": "ll"}, {"command": "ll", "timeout": 7}),
        ("Monitor", {"command": "a", "timeout_ms": 9}, {"command": "b", "timeout": 1}, {"command": "b", "timeout_ms": 1000}),
        ("Write", {"file_path": "/a", "content": "x"}, {"path": "/b"}, {"file_path": "/b", "content": "x"}),
        (
            "Edit",
            {"file_path": "/a", "old_string": "x", "new_string": "y"},
            {"new": "z"},
            {"file_path": "/a", "old_string": "x", "new_string": "z"},
        ),
        (
            "MultiEdit",
            {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "y"}]},
            {"edits": [{"old": "x", "new": "z"}]},
            {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "z"}]},
        ),
        ("NotebookEdit", {"notebook_path": "/a", "new_source": "x"}, {"new": "y"}, {"notebook_path": "/a", "new_source": "y"}),
        ("Grep", {"pattern": "x", "-i": True}, {"ignore_case": False, "limit": 3}, {"pattern": "x", "-i": False, "head_limit": 3}),
        ("mcp__x__y", {"a": 1}, {"b": True}, {"a": 1, "b": True}),
    ],
)
def test_only_what_changed_is_changed(name: str, input: dict[str, Any], change: dict[str, Any], expected: dict[str, Any]) -> None:
    _, arguments = TOOLS.to_neutral(name, input)
    before = repr(input)
    assert TOOLS.to_native(NativeCall(name, input), arguments | change) == expected
    assert repr(input) == before


def test_what_is_left_out_is_left_out() -> None:
    native = NativeCall("Bash", {"command": "ls", "timeout": 5, "run_in_background": True})
    assert TOOLS.to_native(native, {"command": "ls"}) == {"command": "ls"}


@pytest.mark.parametrize(
    ("name", "input", "arguments"),
    [
        ("Bash", {"command": "ls"}, {"command": "ls", "cwd": "/tmp"}),
        ("Bash", {"command": "ls"}, {"command": "ls", "timeout": "soon"}),
        ("Bash", {"command": "ls"}, {"command": "ls", "timeout": float("nan")}),
        ("Bash", {"command": "ls"}, {"command": "ls", "timeout": -1}),
        ("Bash", {"command": "ls"}, "ls"),
        ("PowerShell", {"command": "dir"}, {"command": "dir"}),
        ("PowerShell", {"command": "dir"}, {"command": "dir", "shell": "bash"}),
        ("Read", {"file_path": "/a"}, {"path": "/a", "file_path": "/b"}),
        ("Read", {"path": "/a"}, {"path": "/b"}),
        ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y"}, {"path": "/a", "edits": [{"old": "x", "new": "z"}]}),
        ("LS", {"path": "/a"}, {"path": "/a", "pattern": "*.py"}),
        ("Monitor", {"ws": {"url": "wss://a"}}, {"url": "wss://b", "ws": {"url": "wss://a"}}),
        ("mcp__x__y", {"a": 1}, None),
    ],
)
def test_what_cannot_be_told_is_an_error(name: str, input: dict[str, Any], arguments: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TOOLS.to_native(NativeCall(name, input), arguments)


def test_arguments_that_nobody_can_look_through_are_an_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deep"):
        TOOLS.to_native(NativeCall("mcp__x__y", {"a": deep}), {"a": [deep]})


_names = st.sampled_from(sorted({name for name, *_ in BOTH_WAYS}))
_keys = st.sampled_from(
    sorted(
        {key for _, input, _, arguments in BOTH_WAYS for key in (*input, *arguments)}
        | {"native_path", "native_native_path", "other"}
    )
)
_values = st.one_of(
    st.text(max_size=3), st.booleans(), st.integers(1, 9), st.none(), st.just({"url": "ws://x"}), st.just([{"old": "a"}])
)
_inputs = st.dictionaries(_keys, _values, max_size=5)


@given(_names, _inputs)
def test_nothing_that_a_call_says_is_hidden(name: str, input: dict[str, Any]) -> None:
    """Each value is there under some name, and comes back as it was."""
    neutral, arguments = TOOLS.to_neutral(name, input)
    extra = {"PowerShell": {"shell"}, "LS": {"pattern"}}.get(name, set())
    if neutral == "fetch" and name == "Monitor":
        extra = {"url"}
    assert len(arguments) == len(input) + len(extra)
    assert TOOLS.to_native(NativeCall(name, input), dict(arguments)) == input


@given(_names, _inputs, _inputs)
def test_what_goes_back_is_what_was_decided_or_nothing_goes_back(name: str, input: dict[str, Any], change: dict[str, Any]) -> None:
    neutral, arguments = TOOLS.to_neutral(name, input)
    decided = {**arguments, **change}
    try:
        back = TOOLS.to_native(NativeCall(name, input), decided)
    except ValueError:
        return
    again, said = TOOLS.to_neutral(name, back)
    assert again == neutral
    for key, value in decided.items():
        if key == "timeout" and isinstance(value, int | float):
            assert said[key] == pytest.approx(value)
        else:
            assert (type(said[key]), said[key]) == (type(value), value)
    assert said.keys() == decided.keys()


# -- what rules and guards make of it


def decide(rules: Policy, name: str, input: Any) -> str:
    return rules.judge(TOOLS.build_call("c1", name, input), HERE).decision


DENIES = policy(
    rule("deny", tool="bash", command="rm *"),
    rule("deny", tool=["write", "edit"], path="/etc/**"),
    rule("deny", tool=["read", "grep", "find"], path="/root/**"),
    rule("deny", tool="fetch", host="evil.example"),
    mode="auto",
)


@pytest.mark.parametrize(
    ("name", "input"),
    [
        ("Bash", {"command": "rm -rf x"}),
        ("Bash", {"command": "ls && rm x", "run_in_background": True}),
        ("PowerShell", {"command": "rm x"}),
        ("Monitor", {"command": "rm x; tail -f y", "timeout_ms": 5, "description": "d"}),
        ("Monitor", {"command": "rm x", "ws": {"url": "wss://fine.example"}}),
        ("Write", {"file_path": "/etc/passwd", "content": ""}),
        ("Write", {"file_path": "/etc/passwd", "path": "/nowhere/project/fine", "content": ""}),
        ("Edit", {"file_path": "/etc/passwd", "old_string": "a", "new_string": "b"}),
        ("MultiEdit", {"file_path": "/etc/passwd", "edits": []}),
        ("NotebookEdit", {"notebook_path": "/etc/x.ipynb", "new_source": ""}),
        ("Read", {"file_path": "/root/.ssh/id"}),
        ("NotebookRead", {"notebook_path": "/root/x.ipynb"}),
        ("Grep", {"pattern": "x", "path": "/root/a"}),
        ("Glob", {"pattern": "/root/a/*"}),
        ("LS", {"path": "/root/a"}),
        ("WebFetch", {"url": "https://evil.example/x", "prompt": "p"}),
        ("Monitor", {"ws": {"url": "wss://evil.example/x"}, "timeout_ms": 5, "description": "d"}),
    ],
)
def test_a_rule_against_something_holds_for_every_tool_that_does_it(name: str, input: dict[str, Any]) -> None:
    assert decide(DENIES, name, input) == "deny"


@pytest.mark.parametrize("input", ["rm x", ["rm", "x"], 3])
def test_input_of_another_shape_is_never_let_through(input: Any) -> None:
    assert decide(DENIES, "Bash", input) != "allow"
    assert decide(DENIES, "Write", input) != "allow"


ALLOWS = policy(
    rule("allow", tool="bash", command="make *"),
    rule("allow", tool=["read", "write", "edit", "find"], path="./**"),
    rule("allow", tool="fetch", host="fine.example"),
)


@pytest.mark.parametrize(
    ("name", "input", "decision"),
    [
        ("Bash", {"command": "make test", "description": "d", "timeout": 1000}, "allow"),
        ("Bash", {"command": "make test", "dangerouslyDisableSandbox": True}, "ask"),
        ("PowerShell", {"command": "make test"}, "ask"),
        ("PowerShell", {"command": "make test", "shell": "x"}, "ask"),
        ("Monitor", {"command": "make watch", "description": "d", "timeout_ms": 5}, "allow"),
        ("Monitor", {"command": "make watch", "ws": {"url": "ws://x"}}, "ask"),
        ("Read", {"file_path": "a", "pages": "1-3", "allow_large": True}, "allow"),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True}, "allow"),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, "allow"),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "x", "cell_id": "c", "edit_mode": "insert"}, "allow"),
        ("Write", {"file_path": "a", "content": "x"}, "allow"),
        ("Write", {"file_path": "/b", "content": "x"}, "ask"),
        ("Write", {"file_path": "a", "path": "/b", "content": "x"}, "ask"),
        ("LS", {"path": ".", "ignore": ["x"]}, "allow"),
        ("WebFetch", {"url": "https://fine.example/", "prompt": "p", "offset": 3}, "allow"),
        ("WebFetch", {"url": "https://other.example/", "prompt": "p"}, "ask"),
        ("WebSearch", {"query": "q"}, "ask"),
        ("mcp__x__write", {"path": "a", "content": "x"}, "ask"),
    ],
)
def test_a_rule_that_allows_is_certain_of_all_that_a_call_says(name: str, input: dict[str, Any], decision: str) -> None:
    assert decide(ALLOWS, name, input) == decision


def test_a_guard_sees_the_path_that_counts() -> None:
    """A second one, under our word, is no path of this tool's."""
    _, arguments = TOOLS.to_neutral("Write", {"path": "decoy", "file_path": "/etc/passwd"})
    assert arguments == {"path": "/etc/passwd", "native_path": "decoy"}
    assert TOOLS.to_native(
        NativeCall("Write", {"path": "decoy", "file_path": "/etc/passwd"}), {"path": "/b", "native_path": "decoy"}
    ) == {
        "path": "decoy",
        "file_path": "/b",
    }
