"""Read from its end a file says the same as read from its beginning, whatever is in it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.errors import NotWritten
from serai.limits import Limits
from serai.store import SessionFolder, StoredSession
from serai.store.entries import ReadProblems
from serai.store.messages import UserMessage
from serai.store.session_file import CHUNK, SessionFile
from serai.store.session_tree import Until, decode_messages, find_entry, load, read_tail
from tests.support.profiles import examples
from tests.support.stored_sessions import META, file_of, line, meta, show, user

LIMIT = 300  # small, so that lines are over it
SMALL = Limits().but(session_line=LIMIT)

names = st.sampled_from(["a", "b", "c", "d", "L0", "L1", "é", "meta"])
texts = st.sampled_from(["", "x", '"id":"a"', '{"type":"meta"}', "\n", "\x1b[0m", "x" * 120, "é" * 90])
talk = st.builds(lambda text: {"content": text}, texts)
datas = {
    "user": talk,
    "assistant": st.builds(lambda text: {"content": [{"text": text}, {"id": "c1", "name": "read"}]}, texts),
    "tool_result": st.just({"toolCallId": "c1", "content": [{"text": "r"}]}),
    "custom_message": st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), texts),
    "compact": st.lists(st.builds(lambda data: {"type": "user", "data": data}, talk), max_size=2) | st.just({"no": "list"}),
    "branch_summary": st.builds(lambda name: {"summary": "s", "fromId": name}, names),
    "label": st.builds(lambda name, text: {"targetId": name, "label": text}, names, texts),
    "ext:x": st.none() | st.integers(),
}


@st.composite
def entry_lines(draw: st.DrawFn) -> bytes:
    type = draw(st.sampled_from(sorted(datas)))
    form: dict[str, Any] = {"type": type}
    if draw(st.integers(0, 9)):  # one in ten is from before there were ids
        form["id"] = draw(names)
    if draw(st.booleans()):
        form["parentId"] = draw(st.none() | names)
    form |= {"ts": "2026-02-03T10:00:00Z", "data": draw(datas[type])}
    if draw(st.booleans()):
        form = dict(reversed(form.items()))
    return json.dumps(form, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([None, (",", ":")]))).encode()


meta_lines = st.builds(
    lambda title, escaped: meta(title=title).rstrip().replace(b'"meta"', b'"m\\u0065ta"' if escaped else b'"meta"'),
    texts,
    st.booleans(),
)
odd_lines = st.sampled_from(
    [
        *(
            b"",
            b"  ",
            b"\r",
            b"noise",
            b"{",
            b"[1]",
            b"null",
            b"\x00\x00",
            b"\xff\xfe",
            b'{"type":5}',
            b'{"id":"a"}',
            b"y" * (LIMIT + 5),
        ),
        b'{"type":"user","id":"a"',
        b'{"type":"user",',
        b'"id":"a"}',
        b'{"type":"user","id":"c"} {"type":"user","id":"d"}',
        b'{"type":"user","id":"b","parentId":"a","id":""}',
        b'{"type":"user","id":null,"data":1}',
        b'{"type":"user","id":"a","data":{"content":"\\ud800"}}',
        b'\xef\xbb\xbf{"type":"user","id":"a","data":{"content":"bom"}}',
        b'{"type":"meta","data":7}',
    ]
)
files = st.builds(
    lambda lines, ending, last: b"".join(line + ending for line in lines) + last,
    st.lists(st.one_of(entry_lines(), entry_lines(), entry_lines(), meta_lines, odd_lines), max_size=14),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
    st.one_of(st.just(b""), entry_lines(), odd_lines),
)


def check_tail(content: bytes, chunk: int, limits: Limits = SMALL) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.jsonl")
        Path(path).write_bytes(content)
        file = SessionFile(path, limits, chunk=chunk)
        try:
            problems = ReadProblems()
            tree = load(file, problems)
            for until in ("leaf", "compact", "root"):
                behind = ReadProblems()
                end = read_tail(file, behind, until=until, meta=True)
                assert end.path == tree.find_path(until)
                assert end.meta == tree.meta
            assert decode_messages(read_tail(file, ReadProblems(), until="compact").path) == tree.decode_messages()
            for id in {entry.id for entry in tree.entries} | {"nobody"}:
                assert find_entry(file, id) == tree.get(id)
        finally:
            file.close()


@pytest.mark.req("store.read.backwards", "piglet.edge.19")
@settings(max_examples=examples(600), deadline=None)
@given(files, st.sampled_from([1, 7, 64, 1000, CHUNK]))
@example(b'{"type":"user","id":"a"}\n' + b"y" * (LIMIT + 5) + b"\n", 64)
@example(b"y" * (LIMIT + 5), 64)
@example(b'{"type":"user","id":"a","data":"' + b"y" * (LIMIT - 35) + b'"}\n', 64)  # exactly the limit, and one less
@example(b'{"type":"user","id":"a","data":"' + b"y" * (LIMIT - 34) + b'"}\n', 64)
def test_both_ways_agree_on_leaf_path_messages_and_meta(content: bytes, chunk: int) -> None:
    check_tail(content, chunk)


class Counting(SessionFile):
    """Counts what is read."""

    def __init__(self, path: str) -> None:
        self.read = 0
        super().__init__(path, Limits())

    def read_piece(self, start: int, size: int) -> bytes:
        found = super().read_piece(start, size)
        self.read += len(found)
        return found


@pytest.mark.req("store.read.backwards")
@pytest.mark.parametrize(("until", "most"), [("leaf", CHUNK), ("compact", 3 * CHUNK)])
def test_who_resumes_reads_the_end_of_the_file_only(tmp_path: Path, until: Until, most: int) -> None:
    with StoredSession(str(file_of(tmp_path, meta()))) as session:
        for number in range(100):
            session.append_user(f"{number} " + "x" * 20_000)
        session.compact([UserMessage("short")])
        for _ in range(5):
            session.append_user("y" * 20_000)
        assert len(show(session)) == 6
    file = Counting(session.file)
    try:
        end = read_tail(file, ReadProblems(), until=until, meta=True)
        assert len(end.path) == (1 if until == "leaf" else 6)
        assert end.meta == session.meta
        assert file.read <= most < file.size / 10
    finally:
        file.close()


@pytest.mark.req("store.read.backwards")
def test_a_meta_at_the_beginning_alone_is_found(tmp_path: Path) -> None:
    """Other writers do not write it again."""
    lines = [user(f"{number:08x}", f"{number - 1:08x}" if number else None, "x" * 1000) for number in range(1000)]
    file = file_of(tmp_path, meta(title="far away"), *lines)
    with StoredSession(str(file)) as session:
        assert session.meta.title == "far away"
        assert session.leaf == f"{999:08x}"
        session.append_user("brings it along")
        assert file.read_bytes().splitlines()[-1].startswith(b'{"type":"meta"')


@pytest.mark.req("store.list.meta-near")
def test_what_we_write_always_has_a_meta_near_its_end(tmp_path: Path) -> None:
    with StoredSession(str(file_of(tmp_path, meta(title="it")))) as session:
        for size in [10, 30_000, 30_000, 200_000, 100, 47_000, 2000, 1000] * 3:
            session.append_user("x" * size)
            end = Path(session.file).read_bytes()[-CHUNK:]
            assert any(b'"title":"it"' in text and text.startswith(b'{"type":"meta"') for text in end.split(b"\n"))
        count = Path(session.file).read_bytes().count(b'{"type":"meta"')
        assert count <= 14  # and not with every entry
        session.compact([])
        assert Path(session.file).read_bytes().splitlines()[-1].startswith(b'{"type":"meta"')


@pytest.mark.req("store.list.meta-near")
def test_a_meta_is_not_written_again_because_another_process_appends(tmp_path: Path) -> None:
    with StoredSession(str(file_of(tmp_path, meta()))) as ours, StoredSession(ours.file) as theirs:
        for _ in range(100):
            ours.append_user("x" * 1000)
            theirs.append_user("y" * 1000)
        assert 3 <= Path(ours.file).read_bytes().count(b'{"type":"meta"') <= 6


@pytest.mark.req("store.list.meta-near")
def test_a_title_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """It would be written again and again, and nobody who lists sessions would find it."""
    sessions = SessionFolder(tmp_path)
    with pytest.raises(NotWritten, match="at most 16384"):
        sessions.create("/app", title="x" * 60_000)
    with sessions.create("/app", title="short") as session:
        before = Path(session.file).read_bytes()
        with pytest.raises(NotWritten, match="title, model and the like take"):
            session.set_title("x" * 60_000)
        assert Path(session.file).read_bytes() == before
        session.set_title("y" * 16_000)
        for size in [48_000, 100, 47_900, 100, 1000, 60_000]:
            session.append_user("x" * size)
            assert [one.meta.title for one in sessions.list()] == ["y" * 16_000]


@pytest.mark.req("store.list.meta-near")
def test_a_meta_to_which_others_added_a_lot_is_not_written_again(tmp_path: Path) -> None:
    with StoredSession(str(file_of(tmp_path, meta(notes="x" * 100_000)))) as session:
        for _ in range(20):
            session.append_user("x")
        session.compact([])
        assert Path(session.file).stat().st_size < 110_000
        session.set_title("still possible")
        with StoredSession(session.file) as again:
            assert (again.meta.title, len(again.meta.others["notes"])) == ("still possible", 100_002)


def test_a_file_of_legacy_lines_is_read_whole(tmp_path: Path) -> None:
    check_tail(b"".join([line("meta", data=META), line("user", data={"content": "a"}), user("x", "L0", "b")]), CHUNK)
