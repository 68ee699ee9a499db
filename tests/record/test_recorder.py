"""What goes on record, and what it costs nobody."""

from __future__ import annotations

import asyncio
import base64
import errno
import fcntl
import json
import logging
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from serai.errors import ExitStatus, NotRecorded, PeerGone, SeraiError
from serai.limits import Limits
from serai.record import Recorder, Recording, RecordingFolder, Secrets, segment
from serai.record.segment import Dropped, Frames, Note
from serai.wire import PlainSpawner
from serai.wire.stream import Oversize
from tests.support.recordings import CALL, RESULT, open_folder, open_recording, read_all_bytes, record_calls, record_peer


def read_entries(data: bytes) -> list[segment.Entry]:
    import io

    return list(segment.read(io.BufferedReader(io.BytesIO(data))))


def read_notes(folder: RecordingFolder) -> list[str]:
    return [entry.text for entry in read_entries(read_all_bytes(folder)) if isinstance(entry, Note)]


def read_frames(folder: RecordingFolder, way: str) -> bytes:
    return b"".join(entry.run for entry in read_entries(read_all_bytes(folder)) if isinstance(entry, Frames) and entry.way == way)


# -- what is on record


@pytest.mark.req("record.frames.exact", "record.wire.about", "record.wire.end")
async def test_a_conversation_with_a_real_peer(tmp_path: Path, spawner: PlainSpawner) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, command="serai test") as recorder:
        async with record_peer(recorder, spawner, "dies", after=2) as rpc:
            for number in range(2):
                await rpc.call("hello", {"number": number}, timeout=15)
            with pytest.raises(PeerGone):
                await rpc.call("hello", {"number": 2}, timeout=15)
            pid = rpc.channel.child.pid
    sent = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"hello","params":{"number":%d}}\n' % (n + 1, n) for n in range(3))
    assert read_frames(folder, "sent") == sent
    assert read_frames(folder, "received") == b"".join(b'{"jsonrpc":"2.0","id":%d,"result":{"ok":true}}\n' % n for n in (1, 2))
    with open_recording(folder) as recording:
        [wire] = recording.wires.values()
        assert (recording.command, wire.who, wire.kind, wire.dialect) == ("serai test", "test:dies", "guest", "jsonrpc")
        assert (wire.generation, wire.pid) == (1, pid)
        assert 0 < recording.started <= wire.started <= wire.ended
        assert (wire.error, wire.exit) == ("PeerGone", ExitStatus(code=3))
        assert wire.stderr == "fatal: the habit got the better of me\n"


@pytest.mark.req("record.wire.oversize")
def test_a_frame_over_the_limit_is_on_record_in_its_place(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="jsonrpc")
        tap.frames("received", monotonic(), b"before\n")
        tap.skipped(monotonic(), Oversize(size=99, head=b'{"id":7', limit=64))
        tap.frames("received", monotonic(), b"after\n")
    with open_recording(open_folder(tmp_path)) as recording:
        texts = [item.raw.decode() or item.text for item in recording.iter_timeline()][1:]
    assert texts == ["before", 'a frame of 99 bytes (limit 64) was skipped: {"id":7', "after"]


@pytest.mark.req("record.wire.bodies")
def test_a_body_is_one_frame_whatever_line_ends_it_holds(tmp_path: Path) -> None:
    request, answer = b'{\n "model": "m",\n "messages": []\n}', b"data: {}\n\ndata: [DONE]\n\n"
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("model:m", kind="model", dialect="http", framing="bodies")
        tap.record_body("sent", request)
        tap.record_body("received", answer)
        tap.end()
    with open_recording(open_folder(tmp_path)) as recording:
        assert [item.raw for item in recording.iter_timeline() if item.what == "frame"] == [request, answer]
        assert recording.get_wire(1).framing == "bodies"


def test_taps_are_independent_and_an_end_counts_once(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        first, second = (recorder.open_tap(who, kind="hook", dialect="hookproto", generation=2) for who in "ab")
        second.end(exit=ExitStatus(code=0), stderr="said")
        second.ended(monotonic(), PeerGone("again"))
        first.ended(monotonic(), PeerGone("ended", exit=ExitStatus(signal=9)))
    with open_recording(open_folder(tmp_path)) as recording:
        assert [(w.who, w.why, str(w.exit), w.stderr) for w in recording.wires.values()] == [
            ("a", "ended", "killed by SIGKILL", ""),
            ("b", "", "exit status 0", "said"),
        ]
        assert [item.what for item in recording.iter_timeline()] == ["open", "open", "end", "end"]


def test_what_comes_after_the_close_is_nobodys_trouble(tmp_path: Path) -> None:
    recorder = Recorder(open_folder(tmp_path))
    tap = recorder.open_tap("a", kind="guest", dialect="zot")
    recorder.close()
    recorder.close()
    before = read_all_bytes(open_folder(tmp_path))
    tap.frames("sent", monotonic(), b"late\n")
    tap.end()
    recorder.note("late")
    assert read_all_bytes(open_folder(tmp_path)) == before
    assert recorder.flush()


# -- the files


@pytest.mark.req("record.file.private")
def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.path.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        with Recorder(folder):
            pass
    finally:
        os.umask(before)
    [run] = folder.list_runs()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in run.files] == [0o600]


@pytest.mark.req("record.file.private")
def test_the_folders_above_are_for_their_owner_alone_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        RecordingFolder(tmp_path / "state" / "serai" / "recordings").create()
    finally:
        os.umask(before)
    made = [tmp_path / name for name in ("state", "state/serai", "state/serai/recordings")]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3


@pytest.mark.req("record.file.batch")
def test_a_batch_is_written_by_itself(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        record_calls(recorder)
        end = monotonic() + 30
        while b'"entry":"end"' not in read_all_bytes(open_folder(tmp_path)):
            assert monotonic() < end


@pytest.mark.req("record.file.rotation")
def test_a_full_file_is_followed_by_one_that_stands_alone(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=4096), command="long") as recorder:
        tap = recorder.open_tap("zot:weather", kind="guest", dialect="zot", generation=4, pid=17)
        done = recorder.open_tap("zot:done", kind="guest", dialect="zot")
        done.end()
        for number in range(100):
            tap.frames("sent", monotonic(), CALL % number)
            tap.frames("received", monotonic(), RESULT % number)
            assert recorder.flush()
    [run] = folder.list_runs()
    assert len(run.files) > 2
    with open_recording(folder) as recording:
        frames = [item.raw + b"\n" for item in recording.iter_timeline() if item.what == "frame"]
        assert frames == [frame % number for number in range(100) for frame in (CALL, RESULT)]
        assert [item.what for item in recording.iter_timeline() if item.what != "frame"] == ["open", "open", "end"]
    run.files[0].unlink()
    with open_recording(folder) as recording:
        [wire] = recording.wires.values()  # the one that was over is told of no more
        assert (recording.command, wire.who, wire.generation, wire.pid) == ("long", "zot:weather", 4, 17)


@pytest.mark.req("record.file.age-and-size")
def test_a_new_recording_makes_the_old_ones_go(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.create()
    for name, size in (("20200101T000000-000-aaaa", 10), ("20990101T000000-000-bbbb", 3000), ("20990102T000000-000-cccc", 3000)):
        (folder.path / f"{name}.000.rec").write_bytes(b"x" * size)
    with Recorder(folder, limits=Limits().but(record_total=4000)) as recorder:
        recorder.note("here")
    left = [run.name for run in folder.list_runs()]
    assert left == [recorder.run, "20990102T000000-000-cccc"]


@pytest.mark.req("record.file.age-and-size", "record.file.rotation")
def test_a_long_run_keeps_its_latest_files(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=4096, record_total=3 * 4096)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        for number in range(300):
            tap.frames("sent", monotonic(), CALL % number)
            recorder.flush()
        assert len(read_all_bytes(folder)) <= 4 * 4096 + 1024
    with open_recording(folder) as recording:
        numbers = [int(item.id) for item in recording.iter_timeline() if item.what == "frame"]
    assert numbers == list(range(numbers[0], 300))
    assert numbers[0] > 0


@pytest.mark.req("record.file.no-place")
def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file, no folder")
    with pytest.raises(NotRecorded, match="cannot be used") as raised:
        Recorder(open_folder(tmp_path))
    assert "record = false" in raised.value.hint


# -- under pressure


class Blocked(RecordingFolder):
    """A folder on a disk that takes nothing more once a pipe is full: a pipe."""

    def create_file(self, run: str, part: int) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        object.__setattr__(self, "reading", reading)
        return writing


@pytest.mark.req("record.memory.bounded")
def test_a_disk_that_hangs_blocks_nobody_and_the_loss_is_told(tmp_path: Path) -> None:
    folder = Blocked(tmp_path / "recordings")
    recorder = Recorder(folder, limits=Limits().but(record_memory=1 << 20))
    tap = recorder.open_tap("a", kind="guest", dialect="zot")
    run = b"x" * 9999 + b"\n"
    for _ in range(1000):  # ten times what may wait, while nobody reads the pipe: would hang here if it could
        tap.frames("received", monotonic(), run)
    assert not recorder.flush(0.01)
    with open(folder.reading, "rb") as pipe:  # type: ignore[attr-defined]
        import threading

        data: list[bytes] = []
        reader = threading.Thread(target=lambda: data.append(pipe.read()))
        reader.start()
        assert recorder.flush(30)
        tap.frames("received", monotonic(), run)
        tap.end()
        recorder.close()
        reader.join(30)
    read = read_entries(data[0])
    kept = sum(entry.run.count(b"\n") for entry in read if isinstance(entry, Frames))
    [dropped] = [entry for entry in read if isinstance(entry, Dropped)]
    assert kept + dropped.frames == 1001
    assert dropped.bytes == dropped.frames * len(run)
    assert 90 < kept < 130  # a megabyte, and what the pipe and the thread's hands hold
    assert isinstance(read[-2], Frames)  # what came after the gap
    assert read.index(dropped) == len(read) - 3


@contextmanager
def fill_disk(size: int) -> Iterator[None]:
    """No file of this process grows beyond that size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.req("record.disk.full")
def test_a_full_disk_costs_what_did_not_fit_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = open_folder(tmp_path)
    with caplog.at_level(logging.WARNING, "serai.record"), Recorder(folder) as recorder:
        early = recorder.open_tap("early", kind="guest", dialect="zot")
        early.frames("sent", monotonic(), b"x" * 9999 + b"\n")
        recorder.flush()
        with fill_disk(len(read_all_bytes(folder)) + 5):
            for _ in range(3):
                early.frames("sent", monotonic(), b"two\nlines\n")
                assert recorder.flush()
            late = recorder.open_tap("late", kind="guest", dialect="zot")
            recorder.flush()
            assert recorder.failure == "File too large"
        late.frames("sent", monotonic(), b"here again\n")
        recorder.flush()
        assert recorder.failure == ""
    with open_recording(folder) as recording:
        items = [(item.what, item.text or item.raw.decode()[:20]) for item in recording.iter_timeline() if item.what != "open"]
        assert recording.damage == 0
        assert items == [
            ("frame", "x" * 20),
            ("dropped", "6 frames of 30 bytes are not on record: the disk did not take them"),
            ("frame", "here again"),
        ]
        assert [wire.who for wire in recording.wires.values()] == ["early", "late"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


class Faulty:
    """Has a function of `os` fail at some of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: int, *calls: int) -> None:
        self.name, self.real = name, getattr(module, name)
        self.error, self.calls, self.count = error, calls, 0
        monkeypatch.setattr(module, name, self)

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        if self.count in self.calls:
            if self.name == "close":
                self.real(*arguments)  # Linux closes the descriptor although it reports an error
            raise OSError(self.error, os.strerror(self.error))
        return self.real(*arguments)


@pytest.mark.req("record.disk.full")
def test_an_opening_and_an_end_are_told_when_the_disk_takes_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path)
    recorder = Recorder(folder)
    recorder.flush()
    Faulty(monkeypatch, os, "writev", errno.ENOSPC, 1, 2, 3)
    first = recorder.open_tap("first", kind="guest", dialect="zot")
    recorder.flush()
    assert recorder.failure == "No space left on device"
    first.ended(monotonic(), PeerGone("ended", exit=ExitStatus(code=3), stderr="last words"))
    recorder.flush()
    recorder.close()
    with open_recording(folder) as recording:
        wire = recording.get_wire(1)
        assert (wire.who, wire.dialect, wire.exit, wire.stderr) == ("first", "zot", ExitStatus(code=3), "last words")


@pytest.mark.req("record.disk.full", "record.file.rotation")
@pytest.mark.parametrize(
    ("module", "name", "error"), [(os, "open", errno.EMFILE), (fcntl, "flock", errno.ENOLCK), (os, "close", errno.EDQUOT)]
)
def test_a_next_file_that_cannot_be_made_at_once_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: int
) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=1000)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        recorder.flush()
        Faulty(monkeypatch, module, name, error, 1)
        for number in range(30):
            tap.frames("sent", monotonic(), CALL % number)
            recorder.flush()
        monkeypatch.undo()
    with open_recording(folder) as recording:
        numbers = [int(item.id) for item in recording.iter_timeline() if item.what == "frame"]
        lost = [item.text for item in recording.iter_timeline() if item.what == "dropped"]
        assert not [item for item in recording.iter_timeline() if item.what == "note"]
    assert (numbers, lost) == (list(range(30)), [])  # the file before got a little longer
    assert len(folder.find().files) > 2


@pytest.mark.req("record.disk.full", "record.memory.bounded")
def test_what_is_lost_under_both_kinds_of_pressure_is_counted_to_the_last_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_memory=2000)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        recorder.flush()
        Faulty(monkeypatch, os, "writev", errno.ENOSPC, *range(1, 40))
        for number in range(3000):
            tap.frames("sent", monotonic(), CALL % number)
            if number % 100 == 0:
                recorder.flush()
        tap.end()
    read = read_entries(read_all_bytes(folder))
    kept = sum(entry.run.count(b"\n") for entry in read if isinstance(entry, Frames))
    assert kept + sum(entry.frames for entry in read if isinstance(entry, Dropped)) == 3000


@pytest.mark.req("record.disk.full")
def test_a_half_entry_that_cannot_be_taken_off_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        recorder.flush()
        real = os.writev

        def half(file: int, parts: list[bytes]) -> int:
            monkeypatch.setattr(os, "writev", real)
            os.write(file, b"".join(parts)[:30])
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "writev", half)
        Faulty(monkeypatch, os, "ftruncate", errno.EIO, 1)
        tap.frames("sent", monotonic(), CALL % 1)
        recorder.flush()
        tap.frames("sent", monotonic(), CALL % 2)
    with open_recording(folder) as recording:
        items = [(item.what, item.id) for item in recording.iter_timeline() if item.what in ("frame", "dropped")]
    assert items[-2:] == [("dropped", ""), ("frame", "2")]


@pytest.mark.req("record.disk.full", "record.file.rotation")
def test_a_next_file_whose_head_cannot_be_written_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=100)) as recorder:
        recorder.flush()
        Faulty(monkeypatch, os, "writev", errno.ENOSPC, 1)
        record_calls(recorder)
        recorder.flush()
        record_calls(recorder)
    assert all(file.read_bytes().startswith(b'\x1e{"entry":"recording"') for file in folder.find().files)
    with open_recording(folder) as recording:
        assert [wire.who for wire in recording.wires.values()] == ["zot:weather", "zot:weather"]


@pytest.mark.req("record.file.rotation")
def test_a_thousand_open_wires_go_on_in_the_next_file(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_segment=100_000)) as recorder:
        taps = [recorder.open_tap(f"guest {number}", kind="guest", dialect="zot") for number in range(1100)]
        recorder.flush()
        taps[-1].frames("sent", monotonic(), b"x" * 100_000 + b"\n")
        recorder.flush()
        taps[-1].frames("sent", monotonic(), b"in the next\n")
    run = folder.find()
    with Recording([run.files[-1]]) as recording:
        assert len(recording.wires) == 1100
        assert [item.raw for item in recording.iter_timeline() if item.what == "frame"] == [b"in the next"]


@pytest.mark.req("record.frames.exact")
def test_a_name_that_cannot_be_encoded_costs_nobody_a_frame(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), command="caf\udce9") as recorder:
        odd = recorder.open_tap("caf\udce9", kind="guest", dialect="zot")
        record_calls(recorder)
        odd.end(stderr="\udcff", cause=PeerGone("\udcff"))
        for text in ("\udce9", "\ud800"):
            recorder.note(text)
            recorder.open_tap(text, kind="guest", dialect="zot").end(stderr=text)
        assert recorder.flush()
    with open_recording(open_folder(tmp_path)) as recording:
        assert [len(wire.who) for wire in recording.wires.values()] == [4, 11, 1, 1]
        assert recording.get_wire(2).frames == {"sent": 3, "received": 3}
        assert recording.damage == 0


@pytest.mark.req("record.memory.bounded")
def test_what_was_dropped_is_told_also_when_the_wire_never_ends(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), limits=Limits().but(record_memory=2000, record_batch=60.0)) as recorder:
        lines = recorder.open_tap("lines", kind="guest", dialect="zot")
        bodies = recorder.open_tap("bodies", kind="model", dialect="http", framing="bodies")
        for _ in range(10):
            lines.frames("sent", monotonic(), b"a\nb\n" + b"x" * 500 + b"\n")
            bodies.record_body("sent", b"many\nlines\n" * 100)
            lines.skipped(monotonic(), Oversize(size=99, head=b"x" * 500, limit=9))
    with open_recording(open_folder(tmp_path)) as recording:
        kept = recording.get_wire(1).frames["sent"] + [item.what for item in recording.iter_timeline()].count("skipped")
        assert kept + recording.get_wire(1).dropped == 40
        assert recording.get_wire(2).frames["sent"] + recording.get_wire(2).dropped == 10
        assert recording.get_wire(1).dropped > 20


@pytest.mark.req("record.memory.bounded")
def test_a_frame_larger_than_the_memory_is_on_record_when_nothing_else_waits(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), limits=Limits().but(record_memory=1000)) as recorder:
        recorder.open_tap("a", kind="guest", dialect="zot").frames("sent", monotonic(), b"x" * 100_000 + b"\n")
    assert len(read_frames(open_folder(tmp_path), "sent")) == 100_001


def test_a_clock_that_was_set_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time()
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="zot")
        tap.frames("sent", monotonic(), b"before\n")
        recorder.flush()
        monkeypatch.setattr("serai.record.recorder.time", lambda: now + 7200)
        tap.frames("sent", monotonic(), b"after\n")
    with open_recording(open_folder(tmp_path)) as recording:
        before, after = (item.at / 1e6 for item in recording.iter_timeline() if item.what == "frame")
    assert 7100 < after - before < 7300


@pytest.mark.req("record.file.in-use")
def test_a_fork_of_the_writer_does_not_keep_its_file_in_use(tmp_path: Path) -> None:
    program = """
import os, sys, warnings
from pathlib import Path
from serai.record import RecordingFolder, Recorder
warnings.simplefilter("ignore")
recorder = Recorder(RecordingFolder(Path(sys.argv[1])))
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
recorder.close()
print("closed", flush=True)
os.wait()
"""
    argv = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"closed\n"
        assert not RecordingFolder(tmp_path).find().live


@pytest.mark.req("record.file.age-and-size")
def test_whatever_lies_in_the_folder_recording_goes_on(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.create()
    (folder.path / "20261340T000000-000-aaaa.000.rec").touch()
    with Recorder(folder, limits=Limits().but(record_age=10**9)) as recorder:
        record_calls(recorder)
        assert recorder.flush()


@pytest.mark.req("record.kill.exit")
def test_a_program_that_just_ends_loses_nothing(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from serai.record import RecordingFolder, Recorder
recorder = Recorder(RecordingFolder(Path(sys.argv[1])))
recorder.open_tap("a", kind="guest", dialect="zot").frames("sent", 1.0, b"the last words\\n")
sys.exit(3)
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=30, check=False)
    assert ran.returncode == 3
    assert b"the last words\n" in read_all_bytes(RecordingFolder(tmp_path))


# -- secrets

SECRET = 'ghp_s3cr3t/"value"+é'

REVEAL = """
import base64, json, os, sys, urllib.parse
secret = os.environ["GITHUB_TOKEN"]
raw = secret.encode()
print(secret, raw.hex(), urllib.parse.quote(secret, safe=""))
print(json.dumps({"secret": secret}), json.dumps({"secret": secret}, ensure_ascii=False))
for skip in range(3):
    print(json.dumps({"file": base64.b64encode(b"x" * skip + raw + b" rest").decode()}))
print("x" * 3000 + secret + "x" * 9000)
print("my token is", secret, file=sys.stderr, flush=True)
print("x" * 4086 + secret)
sys.exit(3)
"""


@pytest.mark.req("record.secrets.granted")
async def test_a_secret_granted_to_a_child_is_in_its_recording_in_no_form(
    tmp_path: Path, spawner: PlainSpawner, environ: dict[str, str], python: list[str]
) -> None:
    from serai.wire import Channel, Deadlines, Launch
    from serai.wire.process import build_guest_env
    from tests.support.processes import Collector

    base = environ | {"GITHUB_TOKEN": SECRET, "LC_ALL": "C.UTF-8"}
    env = build_guest_env(base, grants=["GITHUB_TOKEN"])
    folder = open_folder(tmp_path)
    deadlines = Deadlines()
    with Recorder(folder, secrets=Secrets.from_env(base)) as recorder:
        child = await spawner.spawn(Launch(argv=[*python, REVEAL], env=env))
        tap = recorder.open_tap("curious", kind="guest", dialect="zot", pid=child.pid)
        receiver = Collector()
        Channel(child, receiver, deadlines=deadlines, tap=tap, limits=Limits().but(frame=4096))
        cause = await asyncio.wait_for(receiver.over, 30)
        await child.close()
    deadlines.close()
    assert SECRET in cause.stderr  # it was there to be found
    assert any(SECRET.encode() in run for run in receiver.runs)
    raw = SECRET.encode()
    data = read_all_bytes(folder)
    forms = [raw, raw.hex().encode(), json.dumps(SECRET).encode()[1:-1], json.dumps(SECRET, ensure_ascii=False).encode()[1:-1]]
    forms += [base64.b64encode(b"x" * skip + raw)[skip + 1 : -5] for skip in range(3)]
    forms += [raw[:10], b"s3cr3t", b"s3cr3t".hex().encode()]
    assert [form for form in forms if form in data] == []
    assert b"my token is" in data
    with open_recording(folder) as recording:
        assert [item.what for item in recording.iter_timeline()].count("skipped") == 2


@pytest.mark.req("record.secrets.short")
def test_a_value_too_short_to_be_masked_is_named(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), secrets=Secrets([("PIN", "1234")])):
        pass
    assert read_notes(open_folder(tmp_path)) == ["values too short to be masked: PIN"]


@pytest.mark.req("record.secrets.short", "record.secrets.late")
def test_a_value_too_short_that_comes_later_is_named_too(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path), secrets=Secrets()) as recorder:
        record_calls(recorder)
        recorder.flush()
        recorder.secrets.add(("LATE", "1234"))
    assert read_notes(open_folder(tmp_path)) == ["values too short to be masked: LATE"]


@pytest.mark.req("record.secrets.length")
@pytest.mark.parametrize("word", ["format", "recording", "entry", "weather"])
def test_no_value_can_spoil_the_file_itself(tmp_path: Path, word: str) -> None:
    with Recorder(open_folder(tmp_path), secrets=Secrets([("ODD", word)])) as recorder:
        record_calls(recorder)
    with open_recording(open_folder(tmp_path)) as recording:
        assert recording.damage == 0
        assert recording.get_wire(1).frames == {"sent": 3, "received": 3}
        assert recording.get_wire(1).who == "zot:weather".replace(word, "*" * len(word))


@pytest.mark.req("record.secrets.late")
def test_a_value_learned_later_is_masked_in_the_file_from_then_on(tmp_path: Path) -> None:
    with Recorder(open_folder(tmp_path)) as recorder:
        tap = recorder.open_tap("hook", kind="hook", dialect="hookproto")
        tap.frames("received", monotonic(), b"not yet known: minted-token\n")
        recorder.flush()
        recorder.secrets.add(("MINTED", "minted-token"))
        tap.frames("sent", monotonic(), b"now it is: minted-token\n")
        tap.ended(monotonic(), PeerGone("ended", stderr="said minted-token"))
    assert read_all_bytes(open_folder(tmp_path)).count(b"minted-token") == 1


@pytest.mark.req("record.secrets.granted")
def test_by_default_the_credentials_of_our_own_environment_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-some-key")
    with Recorder(open_folder(tmp_path)) as recorder:
        recorder.note("it is value-of-some-key")
    assert b"it is *****************" in read_all_bytes(open_folder(tmp_path))


# -- on and off


@pytest.mark.req("record.default.on")
def test_recordings_are_made_unless_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERAI_HOME", str(tmp_path))
    recorder = Recorder.start(command="x")
    assert recorder is not None
    recorder.close()
    assert [run.name for run in RecordingFolder.usual().list_runs()] == [recorder.run]
    assert RecordingFolder.usual().path == tmp_path / "recordings"
    (tmp_path / "config.toml").write_text("record = false\n")
    assert Recorder.start(command="x") is None


@pytest.mark.req("record.default.on")
@pytest.mark.parametrize("text", ["record = 'no'", "record = 0", "record = "])
def test_a_setting_that_cannot_be_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SERAI_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SeraiError, match=r"config\.toml"):
        Recorder.start(command="x")
