"""The tool `edit`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.tools.file_tools import count_changes, cut_diff, diff
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.profiles import examples
from tests.support.tool_harness import Tools, is_failure

CODE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.mark.req("resident.tools.edit")
async def test_a_text_that_is_there_once_is_replaced_and_the_change_shown(tools: Tools) -> None:
    path = tools.file("a.py", CODE)
    result = await tools.read_and_edit("a.py", old="return 2", new="return 3")
    assert path.read_text() == CODE.replace("2", "3")
    assert result.text.split("\n") == [
        "a.py: changed", "@@ -3,4 +3,4 @@", " ", " ", " def two():", "-    return 2", "+    return 3"
    ]  # fmt: skip


@pytest.mark.req("resident.tools.edit")
async def test_a_text_that_is_there_more_than_once_is_told_with_its_lines(tools: Tools) -> None:
    path = tools.file("a.py", CODE)
    assert is_failure(await tools.read_and_edit("a.py", old="return", new="yield"), "NOT_UNIQUE", "lines 2, 6", "replace_all")
    assert path.read_text() == CODE
    assert not (await tools("edit", path="a.py", old="return", new="yield", replace_all=True)).is_error
    assert path.read_text() == CODE.replace("return", "yield")


@pytest.mark.req("resident.tools.edit")
async def test_texts_that_overlap_are_more_than_one(tools: Tools) -> None:
    tools.file("a", "aaa\n")
    assert is_failure(await tools.read_and_edit("a", old="aa", new="b"), "NOT_UNIQUE")


@pytest.mark.req("resident.tools.edit")
async def test_a_text_that_is_not_there_is_told_with_what_is_nearly_it(tools: Tools) -> None:
    tools.file("a.py", CODE)
    result = await tools.read_and_edit("a.py", old="def two():\n  return 2", new="x")
    assert is_failure(result, "INVALID_ARGS", "line 5", "white space")
    assert is_failure(await tools("edit", path="a.py", old="three", new="x"), "INVALID_ARGS", "read the file again")


@pytest.mark.req("resident.tools.edit")
async def test_several_changes_are_made_in_order_or_not_at_all(tools: Tools) -> None:
    path = tools.file("a.py", CODE)
    good = [
        {"old": "def one", "new": "def uno"},
        {"old": "uno", "new": "eins"},
        {"old": "return", "new": "yield", "replace_all": True},
    ]
    bad = [*good, {"old": "three", "new": "drei"}]
    assert is_failure(await tools.read_and_edit("a.py", edits=bad), "INVALID_ARGS", "edit 4 of 4", "nothing was changed")
    assert path.read_text() == CODE
    assert not (await tools("edit", path="a.py", edits=good)).is_error
    assert path.read_text() == CODE.replace("one", "eins").replace("return", "yield")
    back = [{"old": "eins", "new": "uno"}, {"old": "uno", "new": "eins"}]
    assert is_failure(await tools("edit", path="a.py", edits=back), "INVALID_ARGS", "change nothing")


@pytest.mark.req("resident.tools.edit-endings")
async def test_line_endings_and_byte_order_marks_stay(tools: Tools) -> None:
    dos = tools.file("dos", b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    assert not (await tools.read_and_edit("dos", old="one\ntwo", new="1\n1.5\n2")).is_error
    assert not (await tools("edit", path="dos", old="three", new="3\n4")).is_error
    assert dos.read_bytes() == b"\xef\xbb\xbf1\r\n1.5\r\n2\r\n3\r\n4\r\n"

    mixed = tools.file("mixed", b"one\r\ntwo\nthree\r\n")
    assert not (await tools.read_and_edit("mixed", old="two\nthree", new="2\n3")).is_error
    assert not (await tools("edit", path="mixed", old="one\n2", new="1\n2")).is_error
    assert mixed.read_bytes() == b"1\r\n2\n3\r\n"


@pytest.mark.req("resident.tools.edit-endings")
async def test_bytes_that_are_no_text_stay_as_they_are(tools: Tools) -> None:
    path = tools.file("latin", b"caf\xe9 one\n\xff\xfe\n")
    result = await tools.read_and_edit("latin", old="one", new="zwö")
    assert path.read_bytes() == "zwö".encode().join([b"caf\xe9 ", b"\n\xff\xfe\n"])
    result.text.encode()


@pytest.mark.req("resident.tools.stale")
async def test_who_has_not_read_a_file_does_not_edit_it(tools: Tools) -> None:
    path = tools.file("a", "one\n")
    assert is_failure(await tools("edit", path="a", old="one", new="two"), "FILE_STALE", "read it first")
    assert path.read_text() == "one\n"
    await tools("write", path="b", content="one\n")
    assert not (await tools("edit", path="b", old="one", new="two")).is_error  # who wrote it knows it
    assert not (await tools("edit", path="b", old="two", new="three")).is_error  # and who changed it


@pytest.mark.req("resident.tools.stale")
async def test_a_file_that_changed_since_it_was_read_is_not_edited(tools: Tools) -> None:
    path = tools.file("a", "one two\n")
    await tools("read", path="a")
    assert not (await tools("bash", command="sed -i s/two/three/ a")).is_error
    assert is_failure(await tools("edit", path="a", old="one", new="1"), "FILE_STALE", "has changed", "read it again")
    assert path.read_text() == "one three\n"
    assert not (await tools.read_and_edit("a", old="one", new="1")).is_error


@pytest.mark.req("resident.tools.stale")
async def test_edits_of_one_file_at_the_same_time_are_all_made(tools: Tools) -> None:
    path = tools.file("a", "".join(f"<{number}>\n" for number in range(10)))
    await tools("read", path="a")
    results = await asyncio.gather(*(tools("edit", path="a", old=f"<{n}>", new=f"[{n}]") for n in range(10)))
    assert not [result.text for result in results if result.is_error]
    assert path.read_text() == "".join(f"[{number}]\n" for number in range(10))


@pytest.mark.req("resident.tools.edit")
async def test_a_change_that_would_grow_without_bounds_is_refused(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(read_file=100_000))
    path = tools.file("a", "x" * 50_000)
    result = await tools.read_and_edit("a", old="x", new="y" * 1_000_000, replace_all=True)
    assert is_failure(result, "FILE_TOO_LARGE")
    assert path.stat().st_size == 50_000


@pytest.mark.req("resident.tools.edit")
def test_the_diff_of_a_long_file_is_short_and_quick() -> None:
    old = [f"line {number}" for number in range(200_000)]
    new = [*old[:100_000], "another", *old[100_001:]]
    assert diff("\n".join(old), "\n".join(new))[0] == "@@ -99998,7 +99998,7 @@"
    everything = diff("\n".join(old), "\n".join(f"{line}!" for line in old))
    assert everything == ["@@ -1,200000 +1,200000 @@ [too many lines to show]"]
    many = cut_diff(diff("\n".join(old[:500]), "\n".join(f"{line}!" for line in old[:500])))
    assert len(many) == 101
    assert many[-1] == "[… 901 more lines]"


@pytest.mark.req("resident.tools.edit")
async def test_guests_are_told_how_much_an_edit_changed(tools: Tools) -> None:
    tools.file("a.txt", "one\ntwo\nthree\n")
    result = await tools.read_and_edit("a.txt", old="two\n", new="2\n2a\n")
    assert result.details["path"] == "a.txt"
    assert {key: result.details[key] for key in ("files", "hunks", "added", "removed")} == {
        "files": 1,
        "hunks": 1,
        "added": 2,
        "removed": 1,
    }
    assert count_changes([]) == {"files": 1, "hunks": 0, "added": 0, "removed": 0}
    written = await tools("write", path="a.txt", content="one\n")
    assert written.details == {"path": "a.txt", "files": 1, "hunks": 1, "added": 1, "removed": 4}


@pytest.mark.req("resident.tools.edit")
@settings(max_examples=examples(100), deadline=None)
@given(old=st.lists(st.sampled_from("abc"), max_size=12), new=st.lists(st.sampled_from("abc"), max_size=12))
def test_a_diff_says_exactly_what_changed(old: list[str], new: list[str]) -> None:
    shown = diff("".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new))
    assert _patch(old, shown) == new


def _patch(lines: list[str], hunks: list[str]) -> list[str]:
    """What a diff makes of these lines, as whoever applies one does it."""
    made: list[str] = []
    taken = 0
    for hunk in hunks:
        if hunk.startswith("@@"):
            start = int(hunk.split()[1].split(",")[0][1:]) - 1
            made += lines[taken:start]
            taken = start
            continue
        sign, line = hunk[0], hunk[1:]
        if sign != "+":
            assert lines[taken] == line
            taken += 1
        if sign != "-":
            made.append(line)
    return made + lines[taken:]


@pytest.mark.req("resident.tools.edit")
async def test_a_long_text_that_is_not_there_is_soon_known_not_to_be(tools: Tools) -> None:
    """Even where all lines are alike and each could be the first of it."""
    tools.file("a", "x\n" * 400_000)
    async with asyncio.timeout(10):
        result = await tools.read_and_edit("a", old="x\n" * 100_000 + " y", new="z")
    assert is_failure(result, "INVALID_ARGS", "not in it", "read the file again")
