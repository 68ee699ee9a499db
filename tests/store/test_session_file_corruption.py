"""What others put into a session's file: nothing of it raises, and the good lines count. And what is not put into it."""

from __future__ import annotations

import logging
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadSession, NoSession, NotWritten
from serai.limits import MIB, Limits
from serai.store import StoredSession
from serai.store.messages import UserMessage
from tests.support.stored_sessions import META, create, file_of, line, meta, show, user


@pytest.mark.req("piglet.rule.session-read")
@pytest.mark.parametrize("content", [b"", b"\n\n", b"noise\n", user("a", None, "x"), line("meta", data=5)])
def test_a_file_without_meta_is_no_session(tmp_path: Path, content: bytes) -> None:
    path = file_of(tmp_path, content)
    with pytest.raises(BadSession, match="session file has no metadata") as caught:
        StoredSession(str(path))
    assert caught.value.who == str(path)
    assert path.read_bytes() == content


def test_what_is_no_file_is_no_session_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("fifo.jsonl", "folder.jsonl"):
        with pytest.raises(BadSession, match="no regular file"):
            StoredSession(str(tmp_path / name))
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(BadSession, match="cannot be read"):
        StoredSession(str(tmp_path / "loop.jsonl"))
    with pytest.raises(NoSession, match="no such session"):
        StoredSession(str(tmp_path / "none.jsonl"))


GOOD = user("good", None, "good")
HOSTILE = {
    "11 MiB": b'{"type":"user","id":"x","data":"' + b"x" * (11 * MIB) + b'"}',
    "no UTF-8": b"\xff\xfe\xfd",
    "no object": b"[1, 2]",
    "a number": b"17",
    "NULs": b"\x00" * 100_000,
    "half": GOOD[:40],
    "two on a line": GOOD.strip() + GOOD.strip(),
    "deep": b'{"type":"user","id":"x","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep and open": b'{"type":"user","id":"x","data":' + b"[" * 100_000,
    "wrong type": b'{"type":["user"],"id":"x"}',
    "wrong id": b'{"type":"user","id":5}',
    "wrong parent": b'{"type":"user","id":"x","parentId":{}}',
    "wrong ts": b'{"type":"user","id":"x","ts":1}',
    "wrong tokens": b'{"type":"user","id":"x","tokensBefore":"many"}',
    "half a token": b'{"type":"user","id":"x","tokensBefore":1.5}',
    "no type": b'{"id":"x","data":{}}',
}


@pytest.mark.req("store.file.hostile", "piglet.rule.session-read")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_line_hurts_itself_alone(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    before, after = user("a", None, "before"), user("b", "a", "after")
    path = file_of(tmp_path, meta(), before, HOSTILE[name], b"\n", after)
    with caplog.at_level(logging.WARNING), StoredSession(str(path)) as session:
        assert show(session) == ["user: before", "user: after"]
        assert [entry.id for entry in session.read_tree().entries] == ["a", "b"]
        [problem] = session.problems
        assert problem.startswith(f"byte {len(meta() + before)}: ")
        assert session.append_user("c").parent == "b"
    assert caplog.records
    assert str(path) in caplog.text


MENDED = {
    "CRLF": user("x", "a", "it")[:-1] + b"\r",
    "a mark": b"\xef\xbb\xbf" + user("x", "a", "it")[:-1],
    "spaces": b"  " + user("x", "a", "it")[:-1] + b"  ",
    "nulls": b'{"type":"user","id":"x","parentId":"a","ts":null,"tokensBefore":null,"data":{"content":"it"}}',
    "a float": b'{"type":"user","id":"x","parentId":"a","tokensBefore":3.0,"data":{"content":"it"}}',
    "a huge number": b'{"type":"user","id":"x","parentId":"a","big":1e999,"data":{"content":"it"}}',
    "unknown keys": b'{"type":"user","id":"x","parentId":"a","more":[{}],"data":{"content":"it","other":1}}',
    "no time": b'{"type":"user","id":"x","parentId":"a","ts":"soon","data":{"content":"it"}}',
}


@pytest.mark.req("store.file.hostile")
@pytest.mark.parametrize("name", MENDED)
def test_an_odd_line_that_can_be_understood_is(tmp_path: Path, name: str) -> None:
    path = file_of(tmp_path, meta(), user("a", None, "before"), MENDED[name], b"\n", user("b", "x", "after"))
    with StoredSession(str(path)) as session:
        assert show(session) == ["user: before", "user: it", "user: after"]
        assert (session.problems, session.read_tree().problems) == ((), ())


@pytest.mark.req("store.file.hostile")
@pytest.mark.parametrize("data", [b"5", b"[]", b"null", b'"x"', b'{"content":5}', b'{"content":1e999}', b'{"content":{"a":{}}}'])
@pytest.mark.parametrize("type", ["user", "assistant", "tool_result", "custom_message", "compact", "label", "branch_summary"])
def test_data_that_is_not_what_its_type_says_is_passed_over(tmp_path: Path, type: str, data: bytes) -> None:
    odd = b'{"type":"%s","id":"x","parentId":"a","data":%s}\n' % (type.encode(), data)
    path = file_of(tmp_path, meta(), user("a", None, "before"), odd, user("b", "x", "after"))
    with StoredSession(str(path)) as session:
        texts = show(session)
        assert texts[-1] == "user: after"
        assert "user: before" in texts or (type, data) in (("compact", b"[]"), ("compact", b"null"))
        skipped = type in ("user", "assistant", "tool_result", "custom_message") and len(texts) == 2
        assert len(session.problems) == skipped
        assert [row.id for row in session.read_tree().list_rows()] == ["a", "x", "b"]
        session.fork().close()


@pytest.mark.req("store.file.hostile")
def test_a_line_of_gigabytes_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = file_of(tmp_path, meta(), user("a", None, "before"))
    with open(path, "r+b") as file:
        file.seek(100 * MIB)  # a hole: as good as a line
        file.write(b"\n" + user("b", "a", "after"))
    tracemalloc.start()
    try:
        with StoredSession(str(path)) as session:
            assert show(session) == ["user: before", "user: after"]
            assert len(session.read_tree().entries) == 2
        assert tracemalloc.get_traced_memory()[1] < 25 * MIB
    finally:
        tracemalloc.stop()


def test_text_of_another_encoding_is_replaced_and_kept(tmp_path: Path) -> None:
    path = file_of(tmp_path, meta(), b'{"type":"user","id":"a","data":{"content":"caf\xe9 \\ud83d"}}\n')
    with StoredSession(str(path)) as session:
        assert show(session) == ["user: caf\ufffd \ufffd"]
        with session.fork() as fork:
            assert show(fork) == show(session)


def test_the_problems_of_a_file_of_noise_are_counted(tmp_path: Path) -> None:
    path = file_of(tmp_path, meta(), b"noise\n" * 5000)
    with StoredSession(str(path)) as session:
        tree = session.read_tree()
        assert (len(tree.problems), tree.problems[-1]) == (101, "and 4900 more")


def test_a_line_is_as_long_as_the_limit_allows(tmp_path: Path) -> None:
    limits = Limits().but(session_line=2000)
    with StoredSession(str(file_of(tmp_path, line("meta", data=META))), limits=limits) as session:
        with pytest.raises(NotWritten):
            session.append_user("x" * 2000)
        session.append_user("x" * 1800)
        session.compact([UserMessage("short")])
        assert show(session) == ["user: short"]


@pytest.mark.req("store.file.limit")
def test_an_entry_over_the_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("a")
        before = Path(session.file).read_bytes()
        with pytest.raises(NotWritten, match=f"limit session_line = {10 * MIB}"):
            session.append_user("x" * 10 * MIB)
        assert Path(session.file).read_bytes() == before
        session.append_user("x" * (10 * MIB - 500))
        assert len(session.read_messages()) == 2


@pytest.mark.req("store.file.limit")
@pytest.mark.parametrize("data", [object(), {1: {2: object()}}])
def test_what_is_no_json_is_refused(tmp_path: Path, data: Any) -> None:
    with create(tmp_path) as session:
        before = Path(session.file).read_bytes()
        with pytest.raises(NotWritten, match="no JSON"):
            session.append_entry("ext:x", data)
        assert Path(session.file).read_bytes() == before


def test_data_laid_out_over_lines_is_one_line(tmp_path: Path) -> None:
    from msgspec import Raw

    with create(tmp_path) as session:
        entry = session.append_entry("ext:x", Raw(b'{\n "a": [1,\n 2]\n}'))
        assert entry.data == session.read_path()[-1].data == {"a": [1, 2]}
        with pytest.raises(NotWritten, match="no JSON"):
            session.append_entry("ext:x", Raw(b'{"a":'))
        assert session.read_path()[-1].id == entry.id
        assert session.problems == ()
