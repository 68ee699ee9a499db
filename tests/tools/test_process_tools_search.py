"""The tools `grep` and `find`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.limits import KIB, MIB
from serai.tools.programs.search import compile_glob
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Started, Tools, is_failure, lines

TREE = {
    "README.md": "hello\n",
    "src/a.py": "import os\nprint('Hello')\n",
    "src/deep/b.py": "hello = 1\r\nhello += 1\r\n",
    "src/c.ts": "hello()\n",
    "node_modules/x/index.js": "hello\n",
    ".git/config": "hello\n",
    "__pycache__/a.pyc": "hello\n",
    ".env": "hello\n",
    "binary": "\0hello\n",
}


@pytest.fixture
def tree(tools: Tools, tmp_path: Path) -> Tools:
    for name, content in TREE.items():
        tools.file(name, content)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("hello\n")
    (tools.folder / "out").symlink_to(tmp_path / "outside")
    (tools.folder / "secret").symlink_to(tmp_path / "outside" / "secret.py")
    (tools.folder / "src" / "loop").symlink_to("..")
    os.mkfifo(tools.folder / "pipe")
    return tools


@pytest.mark.req("resident.tools.grep")
async def test_matching_lines_come_sorted_from_text_files_inside(tree: Tools) -> None:
    assert lines(await tree("grep", pattern="^hel+o")) == [
        ".env:1: hello", "README.md:1: hello", "src/c.ts:1: hello()", "src/deep/b.py:1: hello = 1", "src/deep/b.py:2: hello += 1"
    ]  # fmt: skip


@pytest.mark.req("resident.tools.grep")
async def test_what_is_looked_for_can_be_said_in_several_ways(tree: Tools) -> None:
    assert lines(await tree("grep", pattern="HELLO", ignore_case=True, glob="*.py", path="src")) == [
        "src/a.py:2: print('Hello')", "src/deep/b.py:1: hello = 1", "src/deep/b.py:2: hello += 1"
    ]  # fmt: skip
    assert lines(await tree("grep", pattern="hello()", literal=True)) == ["src/c.ts:1: hello()"]
    assert lines(await tree("grep", pattern="print", path="src/a.py", context=1)) == [
        "src/a.py-1- import os", "src/a.py:2: print('Hello')"
    ]  # fmt: skip
    assert lines(await tree("grep", pattern="hello", glob="src/**/*.{ts,js}")) == ["src/c.ts:1: hello()"]
    assert lines(await tree("grep", pattern="hello", path="node_modules")) == ["node_modules/x/index.js:1: hello"]
    assert lines(await tree("grep", pattern="nowhere")) == ["[no match]"]


@pytest.mark.req("resident.tools.grep")
async def test_lines_around_matches_are_shown_once(tools: Tools) -> None:
    tools.file("a", "".join(f"{'x' if number in (3, 5, 12) else '.'}{number}\n" for number in range(1, 15)))
    assert lines(await tools("grep", pattern="x", context=1)) == [
        "a-2- .2", "a:3: x3", "a-4- .4", "a:5: x5", "a-6- .6", "--", "a-11- .11", "a:12: x12", "a-13- .13"
    ]  # fmt: skip


@pytest.mark.req("resident.tools.search-bounded")
async def test_more_matches_than_asked_for_are_not_told_and_that_is(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(tool_output=4 * KIB, read_file=1 * MIB))
    tools.file("a", "match\n" * 300)
    tools.file("big", "match\n" + "x" * MIB)
    assert lines(await tools("grep", pattern="match", limit=3)) == [
        "a:1: match", "a:2: match", "a:3: match", "[stopped at 3 matches: raise limit, or look for something narrower]"
    ]  # fmt: skip
    result = await tools("grep", pattern="match", limit=2000)
    assert "more than fits" in result.text
    assert len(result.text.encode()) <= 4 * KIB
    assert lines(await tools("grep", pattern="match", path="big")) == [
        "[no match]", f"[1 files longer than {MIB} bytes were not searched]"
    ]  # fmt: skip
    for number in range(20):
        tools.file(f"many/{number:02}", "")
    *found, remark = lines(await tools("find", pattern="many/*", limit=5))
    assert found == [f"many/{number:02}" for number in range(5)]
    assert remark.startswith("[stopped at 5")


@pytest.mark.req("resident.tools.search-bounded")
async def test_a_line_of_ten_megabytes_is_shown_around_its_match(tools: Tools) -> None:
    tools.file("a", b"x" * 5 * MIB + b"needle" + b"y" * 5 * MIB)
    (line,) = lines(await tools("grep", pattern="needle"))
    assert "needle" in line
    assert len(line) < 500


@pytest.mark.req("resident.tools.search-alone")
async def test_a_pattern_that_takes_for_ever_ends_at_its_time(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, Started(spawner), QUICK.but(search=0.2))
    tools.file("a", "aaaaa\n")
    tools.file("b", "a" * 60 + "!\n")
    result = await tools("grep", pattern="^(a+)+$")
    assert is_failure(result, "TIMEOUT", "a:1: aaaaa", "not everything", "simpler")
    assert not spawner.children


@pytest.mark.req("resident.tools.search-alone")
async def test_a_pattern_that_needs_all_memory_gets_none(tools: Tools) -> None:
    tools.file("a", "a\n")
    result = await tools("grep", pattern="(?:" * 5000 + "a" + ")" * 5000)
    assert is_failure(result, "INVALID_ARGS", "pattern")


@pytest.mark.req("resident.tools.search-alone")
async def test_a_cancelled_search_leaves_nothing_running(tools: Tools, spawner: PlainSpawner) -> None:
    tools.file("b", "a" * 60 + "!\n")
    searching = asyncio.create_task(tools("grep", pattern="^(a+)+$"))
    while not spawner.children:
        await asyncio.sleep(0)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert not spawner.children


@pytest.mark.req("resident.tools.find")
async def test_files_and_folders_are_found_by_name_or_by_path(tree: Tools) -> None:
    assert lines(await tree("find", pattern="*.py")) == ["src/a.py", "src/deep/b.py"]
    assert lines(await tree("find", pattern="src/*.py")) == ["src/a.py"]
    assert lines(await tree("find", pattern="**/b.*")) == ["src/deep/b.py"]
    assert lines(await tree("find", pattern="*.{ts,md}")) == ["README.md", "src/c.ts"]
    assert lines(await tree("find", pattern="[!a].py", path="src")) == ["src/deep/b.py"]
    assert lines(await tree("find", pattern="d*", type="directory")) == ["src/deep/"]
    assert lines(await tree("find", pattern="d*", type="file")) == ["[nothing found]"]
    assert lines(await tree("find", pattern="**", path="src")) == [
        "src/a.py", "src/c.ts", "src/deep/", "src/deep/b.py", "src/loop"
    ]  # fmt: skip
    assert is_failure(await tree("find", pattern="*", path="README.md"), "INVALID_ARGS", "folder")


@pytest.mark.req("resident.tools.find")
async def test_links_are_named_and_never_followed(tree: Tools) -> None:
    found = lines(await tree("find", pattern="*"))
    assert {"out", "secret", "src/loop"} <= set(found)
    assert not [name for name in found if "secret.py" in name]
    assert is_failure(await tree("find", pattern="*", path="out"), "PERMISSION_DENIED")


@pytest.mark.req("resident.tools.find")
async def test_names_that_are_no_line_of_text_are_told_in_one(tools: Tools) -> None:
    tools.file("two\nlines", "x")
    tools.file("\udcff", "x")
    assert lines(await tools("find", pattern="*")) == ["two\\nlines", "\\udcff"]
    assert lines(await tools("grep", pattern="x")) == ["two\\nlines:1: x", "\\udcff:1: x"]


@pytest.mark.req("resident.tools.find")
async def test_a_deep_tree_is_walked(tools: Tools) -> None:
    here = os.open(tools.folder, os.O_PATH)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT, dir_fd=here))
    os.close(here)
    (found,) = lines(await tools("find", pattern="bottom"))
    assert found == "d/" * 300 + "bottom"


@pytest.mark.req("resident.tools.find")
@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "x/a.py", ".py"], ["a.pyc", "a.py/x"]),
        ("a?c", ["abc", "x/a.c"], ["ac", "a/c"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
        ("**/a", ["a", "x/a", "x/y/a"], ["ba", "a/x"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("./a", ["a"], ["x/a"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[]]x", ["]x"], ["x"]),
        ("[^a]", ["b"], ["a"]),
        ("{a,b*}.c", ["a.c", "bb.c"], ["c.c", "{a,b*}.c"]),
        ("{a", ["{a"], ["a"]),
        (r"\*", ["*"], ["a"]),
        ("a(b)+|$", ["a(b)+|$"], ["abb"]),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = compile_glob(pattern)
    assert [path for path in yes if not matches(path)] == []
    assert [path for path in no if matches(path)] == []


@pytest.mark.req("resident.tools.find")
@given(
    name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: name not in (".", "..")
    )
)
def test_a_name_with_every_sign_made_plain_finds_itself_alone(name: str) -> None:
    matches = compile_glob("".join(f"\\{char}" for char in name))
    assert matches(name)
    assert matches(f"folder/{name}")
    assert not matches(f"{name}x")
