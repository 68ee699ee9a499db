"""Files that somebody broke, or made to break us, cost nothing but themselves."""

from __future__ import annotations

import errno
import json
import os
import socket
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude.transcripts.files import FileEnds, InvalidSessionFormat, SessionNotFound, read_summary
from serai.agents.drivers.claude.transcripts.metadata import MetadataBuilder
from serai.agents.drivers.claude.transcripts.rows import parse_row, recover_row
from serai.limits import Limits
from tests.support.claude.transcripts import TranscriptFolder, assistant, user, uuid

MIB = 1 << 20
GOOD = [user("the good session"), assistant("yes")]


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 1000,
        b"\xff\xfe" * 100,
        b"\0" * 300_000,
        b"[" * 200_000 + b"\n",
        b'{"a":' * 200_000 + b"\n",
        b"not a transcript\n" * 10,
        b"[1,2]\n5\nnull\n",
        b"x" * (2 * MIB),
    ],
    ids=["binary", "utf16", "nuls", "brackets", "deep", "text", "no objects", "one line"],
)
def test_what_is_no_transcript_is_left_out_and_said_to_be_none(home: TranscriptFolder, content: bytes) -> None:
    home.write(1, content)
    home.write(2, *GOOD)
    transcripts = home.transcripts()
    listed = {one.session_id: one.status for one in transcripts.list_sessions(home.project)}
    assert transcripts.get_session_events(uuid(1)) == []
    if not content.strip(b"\0"):  # as good as empty
        assert listed == {uuid(1): "", uuid(2): "complete"}
    else:
        assert listed == {uuid(2): "complete"}
        with pytest.raises(InvalidSessionFormat) as wrong:
            transcripts.get_session(uuid(1))
        assert wrong.value.file.endswith(f"{uuid(1)}.jsonl")
        assert "row" in wrong.value.cause


@pytest.mark.parametrize(
    "odd",
    [
        b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n",
        b"\xff\xfe\n",
        b"\0\0\0\n",
        b'{"type":"user","message":{"role":"user","content":' + b"[" * 5000 + b"]" * 5000 + b"}}\n",
        b'{"type":["user"],"timestamp":{},"cwd":7,"version":[],"gitBranch":1e999}\n',
        b'{"type":"assistant","message":{"id":{},"content":{"a":1},"usage":[1],"model":7}}\n',
        b'{"type":"cost-state","totalCostUSD":-1,"totalDuration":"x","modelUsage":{"m":7,"n":{"inputTokens":-5}}}\n',
        b'{"type":"user","promptId":7,"isMeta":"yes","message":null}\n',
        b'{"type":"custom-title","customTitle":{"a":1}}\n',
        b'{"type":"user","timestamp":"9999-99-99T00:00:00Z"}\n',
    ],
)
def test_an_odd_row_hurts_no_other(home: TranscriptFolder, odd: bytes) -> None:
    home.write(1, odd, GOOD[0], odd, GOOD[1], odd)
    transcripts = home.transcripts()
    for one in (*transcripts.list_sessions(home.project), transcripts.get_session(uuid(1))):
        assert (one.first_message, one.last_assistant_message, one.status) == ("the good session", "yes", "complete")
        assert (one.input_tokens, one.total_cost_usd) == (0, 0.0)
    rows = [bytes(event.row) for event in transcripts.get_session_events(uuid(1))]
    assert [row for row in rows if row != odd.strip()] == [json.dumps(row).encode() for row in GOOD]


def test_half_a_character_and_bytes_of_another_encoding_are_replaced(home: TranscriptFolder) -> None:
    home.write(
        1, b'{"type":"user","message":{"content":"cut \\ud83d here"}}\n{"type":"assistant","message":{"content":"caf\xe9"}}\n'
    )
    [one] = home.transcripts().list_sessions(home.project)
    assert (one.first_message, one.last_assistant_message) == ("cut \ufffd here", "caf\ufffd")


def test_what_a_lost_power_leaves_before_a_line_is_taken_off(home: TranscriptFolder) -> None:
    home.write(1, b"\0" * 1000 + json.dumps(GOOD[0]).encode() + b"\n", GOOD[1])
    assert home.transcripts().get_session(uuid(1)).first_message == "the good session"
    assert home.transcripts().list_sessions(home.project)[0].first_message == "the good session"


def test_a_line_over_the_limit_is_skipped_and_counted(home: TranscriptFolder) -> None:
    home.write(1, GOOD[0], user("x" * 200_000), GOOD[1])
    transcripts = home.transcripts(limits=Limits().but(frame=100_000))
    assert [event.type for event in transcripts.get_session_events(uuid(1))] == ["user", "assistant"]
    assert [event.type for event in transcripts.get_session_events(uuid(1), 2)] == ["assistant"]
    assert transcripts.get_session(uuid(1)).last_user_message == "the good session"


def test_what_is_no_file_is_no_session_and_keeps_nobody_waiting(home: TranscriptFolder) -> None:
    home.write(1, *GOOD)
    place = home.place()
    os.mkfifo(place / f"{uuid(2)}.jsonl")
    (place / f"{uuid(3)}.jsonl").mkdir()
    (place / f"{uuid(4)}.jsonl").symlink_to("/dev/zero")
    here = os.open(".", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            os.chdir(place)  # the path of a socket must be short
            listening.bind(f"{uuid(5)}.jsonl")
        finally:
            os.chdir(here)
            os.close(here)
        transcripts = home.transcripts()
        assert [one.session_id for one in transcripts.list_sessions(home.project)] == [uuid(1)]
        for number in (2, 3, 4, 5):
            with pytest.raises(SessionNotFound):
                transcripts.get_session(uuid(number))


def test_a_file_that_becomes_a_fifo_or_goes_between_the_list_and_the_reading(home: TranscriptFolder) -> None:
    file = home.write(1, *GOOD)
    transcripts = home.transcripts()
    found = transcripts._root.find_file(uuid(1))
    file.unlink()
    with pytest.raises(SessionNotFound), transcripts._lines(found):
        pass
    os.mkfifo(file)
    with pytest.raises(InvalidSessionFormat), transcripts._lines(found):
        pass
    assert transcripts._get_summary(found) is None


def test_what_cannot_be_read_is_left_out(home: TranscriptFolder) -> None:
    home.write(1, *GOOD)

    def read(descriptor: int, size: int, at: int) -> bytes:
        raise OSError(errno.EIO, "input/output error", (descriptor, size, at))

    transcripts = home.transcripts(read=read)
    assert transcripts.list_sessions(home.project) == []
    with pytest.raises(InvalidSessionFormat, match="input/output error"):
        transcripts.get_session(uuid(1))


def test_a_long_transcript_costs_no_memory(home: TranscriptFolder) -> None:
    home.write(1, *GOOD)
    with (home.place() / f"{uuid(1)}.jsonl").open("ab") as file:
        row = json.dumps(assistant("answer " * 1000, id="m")).encode() + b"\n"
        for _ in range(3000):  # 21 MB
            file.write(row)
        file.write(json.dumps(user("the end")).encode() + b"\n")
    transcripts = home.transcripts()
    transcripts.get_session_events(uuid(1), 0, 1)
    tracemalloc.start()
    try:
        listed = transcripts.list_sessions(home.project)
        events = transcripts.get_session_events(uuid(1), 3000, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(listed), len(events)) == (1, 3)
    assert peak < 4 * MIB


KEYS = st.sampled_from(["type", "text", "content", "id", "usage"]) | st.text(max_size=5)
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(["user", "assistant", "result", "cost-state", "custom-title", "last-prompt", "summary", "system", ""])
FIELDS = st.sampled_from(
    ["message", "timestamp", "cwd", "isMeta", "promptId", "usage", "modelUsage", "errors", "customTitle", "lastPrompt", "subtype"]
)
ROWS = st.builds(lambda kind, more: {"type": kind} | more, KINDS, st.dictionaries(FIELDS, ANY, max_size=6))


@given(st.lists(ROWS, max_size=6))
def test_rows_of_whatever_shape_are_gathered(rows: list[dict[str, Any]]) -> None:
    builder = MetadataBuilder()
    for row in rows:
        decoded = parse_row(json.dumps(row).encode())
        assert decoded is not None
        builder.add(decoded)
    one = builder.build("id", file="", size=0, modified=1)
    assert one.status in ("complete", "error", "")
    assert builder.rows == len(rows)


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_whatever_bytes_both_ends_have_nothing_is_raised(head: bytes, tail: bytes, gap: bool) -> None:
    read_summary(FileEnds(head, tail, gap))


@given(st.text(), st.integers(0, 400))
def test_whatever_is_cut_off_a_text_the_rest_is_its_beginning(text: str, cut: int) -> None:
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "begin " + text}}).encode()
    _, found = recover_row(line[:-3][: len(line) - cut] if cut else line[:-3])
    assert ("begin " + text).startswith(found.rstrip("\ufffd"))
