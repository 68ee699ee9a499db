"""A recording, opened: filters, pairs, exports."""

from __future__ import annotations

import errno
import json
import os
import stat
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from serai.cli import record
from serai.errors import NoRecording, NotRecorded
from serai.limits import Limits
from serai.record import Recorder, Recording, Secrets, TimelineFilter, export_recording, segment
from serai.record.recording import summarize_frame
from serai.record.segment import FrameDirection
from tests.support.recordings import CALL, RESULT, open_folder, open_recording, read_all_bytes


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """Two guests; a call of each, a notice, a line that is no frame."""
    now = monotonic()
    with Recorder(open_folder(tmp_path), command="serai test", secrets=Secrets()) as recorder:
        weather = recorder.open_tap("zot:weather", kind="guest", dialect="zot")
        notes = recorder.open_tap("piglet:notes", kind="guest", dialect="jsonrpc")
        weather.frames("sent", now, CALL % 1)
        notes.frames("sent", now + 1, b'{"jsonrpc":"2.0","id":1,"method":"tool/execute","params":{"city":"Bern"}}\n')
        weather.frames("received", now + 0.25, b"a banner\n" + RESULT % 1 + b'{"type":"notify","text":"hi"}\n')
        notes.frames(
            "received", now + 1.5, b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}\n{"jsonrpc":"2.0","id":1,"method":"host/x"}\n'
        )
        notes.frames("sent", now + 3, b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    with open_recording(open_folder(tmp_path)) as recording:
        yield recording


def list_timeline(recording: Recording, **wanted: Any) -> list[str]:
    items = recording.iter_timeline(TimelineFilter(**wanted))
    return [f"{item.wire}{'>' if item.way == 'sent' else '<'}{item.type}" for item in items if item.way]


ALL = ["1>tool_call", "2>tool/execute", "1<noise", "1<tool_result", "1<notify", "2<error", "2<host/x", "2>result"]


@pytest.mark.req("record.timeline.filters")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ALL),
        ({"who": "zot:weather"}, ["1>tool_call", "1<noise", "1<tool_result", "1<notify"]),
        ({"who": "piglet:*"}, ["2>tool/execute", "2<error", "2<host/x", "2>result"]),
        ({"who": "nobody"}, []),
        ({"wire": 2, "way": "received"}, ["2<error", "2<host/x"]),
        ({"type": "tool_*"}, ["1>tool_call", "1<tool_result"]),
        ({"type": "tool_call"}, ["1>tool_call"]),
        ({"type": "tool?call"}, []),
        ({"text": "Bern"}, ["2>tool/execute"]),
        ({"way": "sent"}, ["1>tool_call", "2>tool/execute", "2>result"]),
    ],
)
def test_a_timeline_can_be_narrowed(recording: Recording, wanted: dict[str, object], expected: list[str]) -> None:
    assert list_timeline(recording, **wanted) == expected


@pytest.mark.req("record.timeline.filters")
def test_a_timeline_can_be_narrowed_by_time(recording: Recording) -> None:
    first = next(item for item in recording.iter_timeline() if item.what == "frame")
    at = [datetime.fromtimestamp(first.at / 1e6 + seconds, UTC) for seconds in (0.1, 1.2)]
    assert list_timeline(recording, since=at[0], until=at[1]) == ["2>tool/execute", "1<noise", "1<tool_result", "1<notify"]


@pytest.mark.req("record.timeline.pairs")
def test_answers_know_their_requests_and_both_the_time_between(recording: Recording) -> None:
    items = {item.number: item for item in recording.iter_timeline(TimelineFilter(pairs=True))}
    pairs = [(items[item.request].type, item.type, item.latency) for item in items.values() if item.request]
    assert pairs == [("tool_call", "tool_result", 250_000), ("tool/execute", "error", 500_000), ("host/x", "result", 1_500_000)]
    assert sorted(item.latency or 0 for item in items.values()) == [250_000, 250_000, 500_000, 500_000, 1_500_000, 1_500_000]


@pytest.mark.req("record.timeline.pairs")
@pytest.mark.parametrize(
    ("frame", "type_", "id", "role"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"a/b"}', "a/b", b"7", "request"),
        (b'{"jsonrpc":"2.0","method":"a/b"}', "a/b", b"", ""),
        (b'{"id":7,"result":null}', "result", b"7", "answer"),
        (b'{"jsonrpc":"2.0","id":7}', "result", b"7", "answer"),
        (b'{"id":7,"result":null,"error":{}}', "error", b"7", "answer"),
        (b'{"id":null,"error":{}}', "error", b"", ""),
        (b'{"type":"tool_call","id":"x"}', "tool_call", b'"x"', "either"),
        (b'{"type":"event","event":"turn_start"}', "event:turn_start", b"", ""),
        (b'{"type":"system","subtype":"init"}', "system:init", b"", ""),
        (
            b'{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}',
            "control_request:can_use_tool",
            b'"r"',
            "either",
        ),
        (
            b'{"type":"control_response","response":{"subtype":"success","request_id":"r"}}',
            "control_response:success",
            b'"r"',
            "either",
        ),
        (b'{"type":"stream_event","event":{"type":"message_start"}}', "stream_event:message_start", b"", ""),
        (b'{"type":7,"id":{"a":1}}', "object", b'{"a":1}', ""),
        (b'{"type":"a","request":"text"}', "a", b"", ""),
        (b"{}", "object", b"", ""),
        (b"[1]", "json", b"", ""),
        (b"hello", "noise", b"", ""),
        (b'{"type":"\xff"}', "object", b"", ""),
        (b"", "noise", b"", ""),
    ],
)
def test_what_a_frame_is_at_a_glance(frame: bytes, type_: str, id: bytes, role: str) -> None:
    assert summarize_frame(frame) == (type_, id, role)


@pytest.mark.req("record.timeline.pairs")
def test_an_id_used_again_pairs_again(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        ways: list[tuple[FrameDirection, bytes]] = [("sent", CALL), ("received", RESULT)] * 2
        for number, (way, frame) in enumerate(ways):
            tap.frames(way, float(number), frame % 1)
    with open_recording(open_folder(tmp_path)) as recording:
        assert [item.request for item in recording.iter_timeline() if item.what == "frame"] == [None, 2, None, 4]


def test_a_file_without_a_word_opens(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.create()
    path = folder.path / "20261110T000000-000-aaaa.000.rec"
    path.touch()
    with open_recording(folder) as recording:
        assert (recording.run, list(recording.iter_timeline())) == ("20261110T000000-000-aaaa", [])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no recording\n", "no recording of Serai"),
        (b"", "no recording of Serai"),
        (b'\x1e{"entry":"recording","format":99,"run":"x","serai":"9"}\n', "format 99"),
    ],
)
def test_a_file_that_is_no_recording_is_an_error(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(content)
    with pytest.raises(NoRecording, match=why):
        Recording.open(path)


def test_a_wire_that_is_not_there_is_an_error_that_names_those_that_are(recording: Recording) -> None:
    with pytest.raises(NoRecording, match="no wire 9") as raised:
        recording.get_wire(9)
    assert raised.value.hint == "it has 1 (zot:weather), 2 (piglet:notes)"


@pytest.mark.req("record.damage.any")
@pytest.mark.parametrize(
    "line",
    [
        b"\x1e>1 99999999999999999999 3\nab\n",
        b"\x1e>99999999999999999999 1 3\nab\n",
        b'\x1e{"entry":"note","text":"x","at":99999999999999999999}\n',
        b'\x1e{"entry":"end","wire":-1}\n',
        b'\x1e{"entry":"end","wire":1,"exit":{"core":"dumped"},"at":1}\n',
        b'\x1e{"entry":"open","wire":1,"who":7}\n',
        b'\x1e{"entry":"note","text":"' + b"x" * 2_000_000 + b'"}\n',
        b"\x1e>1 1 99999999999\n" * 300,
        b"\x1e" * 1000 + b"\n",
    ],
)
def test_a_strangers_file_opens_and_shows_what_is_whole(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(
        b'\x1e{"entry":"recording","format":1,"run":"x"}\n'
        + line
        + b'\x1e{"entry":"note","text":"after","at":4611686018427387903}\n'
    )
    with Recording.open(path) as recording:
        items = list(recording.iter_timeline())
        assert items[-1].text == "after"
        assert [record.format_item(item, recording.wires) and record.dump_item(item, recording.wires) for item in items]


@pytest.mark.slow
@pytest.mark.req("record.damage.any")
def test_a_head_that_announces_more_than_there_is_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(b'\x1e{"entry":"recording","format":1,"run":"x"}\n\x1e>1 1 268435456\none\ntwo\nhal')
    os.truncate(path, 1 << 36)  # sparse: 64 GiB of nothing
    with path.open("rb") as file:
        head, frames = islice(segment.read(file), 2)
    assert isinstance(head, segment.Head)
    assert isinstance(frames, segment.Frames | segment.Damaged)


@pytest.mark.req("record.damage.any")
def test_an_entry_at_the_border_of_two_chunks_ends_a_run(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    for size in range(65530, 65540):
        run = b"x" * (size - 1) + b"\n"
        path.write_bytes(
            b'\x1e{"entry":"recording","format":1,"run":"x"}\n\x1e>1 1 99999\n'
            + run
            + b'\x1e{"entry":"note","text":"after"}\n'
            + b"y" * 99999
        )
        with Recording.open(path) as recording:
            assert [(item.what, item.size) for item in recording.iter_timeline()][:2] == [("frame", size - 1), ("damaged", 0)]
            assert "after" in [item.text for item in recording.iter_timeline()]


@pytest.mark.slow
def test_a_run_of_a_million_lines_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(b'\x1e{"entry":"recording","format":1,"run":"x"}\n\x1e>1 1 300000\n' + b"{}\n" * 100_000)
    tracemalloc.start()
    with Recording.open(path):
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_filter_takes_any_number_of_wires(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    opens = b"".join(b'\x1e{"entry":"open","wire":%d,"who":"w"}\n' % number for number in range(1, 40_000))
    path.write_bytes(b'\x1e{"entry":"recording","format":1,"run":"x"}\n' + opens)
    with Recording.open(path) as recording:
        assert sum(1 for _ in recording.iter_timeline(TimelineFilter(who="w"))) == 39_999


def test_more_frames_than_are_indexed_at_once(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        tap.frames("sent", monotonic(), b"".join(CALL % number for number in range(25_000)))
    with open_recording(open_folder(tmp_path)) as recording:
        numbers = [int(item.id) for item in recording.iter_timeline() if item.what == "frame"]
    assert numbers == list(range(25_000))


def test_parts_that_are_gone_are_told(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=10)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        for number in range(6):
            tap.frames("sent", monotonic(), CALL % number)
            recorder.flush()
    files = folder.find().files
    for number in (0, 2, 3):
        files[number].unlink()
    with open_recording(folder) as recording:
        assert [item.text for item in recording.iter_timeline() if item.what == "note"] == [
            "1 parts of the recording are gone",
            "2 parts of the recording are gone",
        ]


@pytest.mark.req("record.wire.bodies")
def test_half_a_body_is_none(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        tap = recorder.open_tap("m", kind="model", dialect="http", framing="bodies")
        tap.record_body("sent", b"first\nbody")
        tap.record_body("received", b"second\nbody")
    [path] = folder.find().files
    path.write_bytes(path.read_bytes()[:-3])
    with open_recording(folder) as recording:
        assert [item.raw for item in recording.iter_timeline() if item.what == "frame"] == [b"first\nbody"]
        assert recording.damage


def test_a_frame_is_shown_without_the_space_around_it(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        recorder.open_tap("a", kind="guest", dialect="zot").frames("sent", monotonic(), b"\n  \t{}x \r\n\n y\n")
    with open_recording(open_folder(tmp_path)) as recording:
        assert [item.raw for item in recording.iter_timeline() if item.what == "frame"] == [b"{}x", b"y"]


@pytest.mark.req("record.timeline.pairs")
def test_a_clock_set_back_gives_no_negative_time(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        tap.frames("sent", 100.0, CALL % 1)
        tap.frames("received", 50.0, RESULT % 1)
    with open_recording(open_folder(tmp_path)) as recording:
        assert [item.latency for item in recording.iter_timeline(TimelineFilter(pairs=True))] == [0, 0]


def test_a_file_that_goes_while_it_is_opened_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(NoRecording, match="it cannot be read: No such file"):
        Recording([tmp_path / "20261110T000000-000-aaaa.000.rec"])


# -- export


@pytest.mark.req("record.export.one-file")
def test_an_export_opens_like_the_recording_itself(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "bug.rec"
    before = os.umask(0)
    try:
        size = export_recording(recording, path)
    finally:
        os.umask(before)
    assert (path.stat().st_size, stat.S_IMODE(path.stat().st_mode)) == (size, 0o600)
    with Recording.open(path) as again:
        assert (again.run, again.command, list_timeline(again)) == (recording.run, "serai test", ALL)
        assert [(i.at, i.raw, i.latency) for i in again.iter_timeline()] == [
            (i.at, i.raw, i.latency) for i in recording.iter_timeline()
        ]


@pytest.mark.req("record.export.one-file")
def test_only_the_chosen_wires_are_exported(recording: Recording, tmp_path: Path) -> None:
    export_recording(recording, tmp_path / "bug.rec", keep={2}.__contains__)
    assert b"weather" not in (tmp_path / "bug.rec").read_bytes()
    with Recording.open(tmp_path / "bug.rec") as again:
        assert list_timeline(again) == ["2>tool/execute", "2<error", "2<host/x", "2>result"]


@pytest.mark.req("record.export.one-file")
def test_an_existing_file_stays_unless_told_otherwise(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "mine.rec"
    path.write_text("dear to me" * 999)
    with pytest.raises(NotRecorded, match="exists already"):
        export_recording(recording, path)
    assert path.read_text().startswith("dear to me")
    export_recording(recording, path, replace=True)
    with Recording.open(path) as again:
        assert list_timeline(again) == ALL


@pytest.mark.req("record.secrets.lookalikes")
def test_what_looks_like_a_secret_is_not_exported(tmp_path: Path) -> None:
    token = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
    with Recorder(open_folder(tmp_path), secrets=Secrets(), command=f"serai run --with {token}") as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="jsonrpc")
        tap.frames("received", monotonic(), json.dumps({"id": 1, "result": {"said": f"it is\n{token}"}}).encode() + b"\n")
        tap.end(stderr=f"and {token}")
    assert read_all_bytes(open_folder(tmp_path)).count(token.encode()) == 3
    path = tmp_path / "bug.rec"
    with open_recording(open_folder(tmp_path)) as recording:
        export_recording(recording, path)
    assert token.encode() not in path.read_bytes()
    with Recording.open(path) as again:
        [frame] = [item for item in again.iter_timeline() if item.what == "frame"]
        assert json.loads(frame.raw)["result"]["said"] == "it is\n" + "*" * len(token)


@pytest.mark.req("record.secrets.lookalikes", "record.export.one-file")
def test_a_key_in_one_line_does_not_mask_the_frames_behind_it(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), secrets=Secrets()) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="jsonrpc")
        tap.frames("received", monotonic(), b'-----BEGIN PRIVATE KEY-----\n{"id":1,"result":2}\n')
        tap.end(stderr='-----BEGIN RSA PRIVATE KEY-----\nMII "x"')
    with open_recording(open_folder(tmp_path)) as recording:
        export_recording(recording, tmp_path / "bug.rec")
        original = [item.raw for item in recording.iter_timeline()]
    with Recording.open(tmp_path / "bug.rec") as again:
        assert [item.raw for item in again.iter_timeline()] == original
        assert again.damage == 0
        assert "MII" not in again.get_wire(1).stderr


@pytest.mark.req("record.export.one-file")
def test_an_export_that_fails_leaves_nothing_behind(recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "mine.rec").write_text("dear to me")
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(NotRecorded, match="Input/output error"):
        export_recording(recording, tmp_path / "mine.rec", replace=True)
    with pytest.raises(NotRecorded, match="Input/output error"):
        export_recording(recording, tmp_path / "new.rec")
    assert sorted(os.listdir(tmp_path)) == ["mine.rec", "recordings"]
    assert (tmp_path / "mine.rec").read_text() == "dear to me"


def test_a_place_that_cannot_be_written_is_an_error(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="cannot be written"):
        export_recording(recording, tmp_path / "nowhere" / "bug.rec")
    assert os.listdir(tmp_path) == ["recordings"]


@pytest.mark.req("record.timeline.pairs")
def test_in_zot_the_type_of_a_frame_tells_whether_it_asks_or_answers(tmp_path: Path) -> None:
    """The same id is open in three kinds at once, answered out of order, and once more by a frame that is no answer."""
    now = monotonic()
    sent = ["tool_call", "command_invoked", 'event_intercept","event":"tool_call']
    received = ["notify", "event_intercept_response", "tool_result", "tool_result", "command_response", "future"]
    with Recorder(open_folder(tmp_path), secrets=Secrets()) as recorder:
        tap = recorder.open_tap("zot:weather", kind="guest", dialect="zot")
        tap.frames("received", now, b'{"type":"tool_result","id":"1"}\n')  # before anybody asked: it must not look like a request
        for number, kind in enumerate(sent):
            tap.frames("sent", now + number, f'{{"id":"1","type":"{kind}"}}\n'.encode())
        for number, kind in enumerate(received):
            tap.frames("received", now + 10 + number, f'{{"id":"1","type":"{kind}"}}\n'.encode())
        tap.frames("sent", now + 20, b'{"type":"event","event":"turn_end"}\n{"type":"tool_call","id":""}\n{"type":"tool_call"}\n')
    with open_recording(open_folder(tmp_path)) as recording:
        items = {item.number: item for item in recording.iter_timeline()}
    pairs = [(items[item.request].type, item.type, item.latency) for item in items.values() if item.request]
    assert pairs == [
        ("event_intercept:tool_call", "event_intercept_response", 9_000_000),
        ("tool_call", "tool_result", 12_000_000),
        ("command_invoked", "command_response", 13_000_000),
    ]
    assert sum(item.latency is not None for item in items.values()) == 6
