"""The misbehaving peers themselves: each is listed, starts, and has its habit, seen with plain pipes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

import pytest

from serai.testing import fault_program, faults
from serai.testing.faults import FAULTS, peer

CALL = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"ok":true}}\n'
REPLIES = {
    "nested": faults.JSONRPC_REPLY,
    "flat": '{"type":"pong","id":$id}',
    "list": '{"id":$id,"content":[]}',
    "empty result": '{"id":$id,"result":{}}',
}


class Running:
    """A peer that was started, and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr

    def ask(self) -> None:
        self.stdin.write(CALL)

    def said(self, line: bytes) -> bool:
        """Whether this line comes before the end, whatever comes before it."""
        return line in iter(self.stdout.readline, b"")

    def lives(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1)
        return self.process.poll() is None


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts peers, and leaves neither them nor what they started behind."""
    with ExitStack() as stack:

        def start(fault: str, **options: Any) -> Running:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
            process = subprocess.Popen(peer(fault, **options), env={"TAG": "ours"}, cwd=tmp_path, start_new_session=True, **pipes)
            stack.enter_context(process)
            stack.callback(kill, os.killpg, process.pid)
            if pid_file := options.get("pid_file"):
                stack.callback(kill_by_file, Path(pid_file))
            return Running(process)

        yield start


def kill(how: Callable[[int, int], None], pid: int) -> None:
    with suppress(ProcessLookupError):
        how(pid, signal.SIGKILL)


def kill_by_file(pid_file: Path) -> None:
    if pid_file.exists():
        kill(os.kill, int(pid_file.read_text()))


def run(fault: str, input: bytes = CALL, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """What a peer that ends by itself answers to this input."""
    return subprocess.run(peer(fault, **options), input=input, capture_output=True, check=False, timeout=50)


def is_frame(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


# -- the catalogue


@pytest.mark.req("wire.fault.catalogue")
def test_every_fault_has_a_habit_and_every_habit_is_listed() -> None:
    assert FAULTS.keys() == fault_program.HABITS.keys()
    assert fault_program.EARLY.keys() <= {habit.__name__ for habit in fault_program.HABITS.values()}
    assert {"FAULTS", "peer"} <= set(faults.__all__)


@pytest.mark.req("wire.fault.catalogue")
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_described_and_its_options_have_defaults_that_reach_it(fault: str) -> None:
    description, defaults = FAULTS[fault]
    assert description.strip()
    assert defaults.items() <= json.loads(peer(fault)[-1]).items()


@pytest.mark.req("wire.fault.catalogue")
@pytest.mark.parametrize("fault", FAULTS)
def test_every_option_of_a_fault_can_be_set(fault: str) -> None:
    mine: dict[str, Any] = dict.fromkeys(FAULTS[fault][1], "mine")
    assert mine.items() <= json.loads(peer(fault, **mine)[-1]).items()


@pytest.mark.req("wire.fault.catalogue")
def test_an_unknown_fault_is_refused_with_the_list_of_faults() -> None:
    with pytest.raises(ValueError, match="no fault 'grumpy'") as refusal:
        peer("grumpy")
    assert str(refusal.value).endswith(", ".join(FAULTS))


@pytest.mark.req("wire.fault.catalogue")
@pytest.mark.parametrize(("fault", "options"), [("dies", "code, signal"), ("slow", "seconds"), ("silent", "none")])
def test_an_unknown_option_is_refused_with_the_list_of_options(fault: str, options: str) -> None:
    with pytest.raises(ValueError, match=f"'{fault}' has no option mood; it has: {options}$"):
        peer(fault, mood="bad")


# -- what all peers have in common


def test_a_behaving_peer_says_its_prelude_and_answers_every_line_that_has_an_id() -> None:
    lines = [b'{"id":0}', b"no json", b"[1]", b'{"method":"log"}', b'{"id":"a \\"b\\""}', b'{"id":null}']
    done = run("none", b"\n".join(lines) + b"\n", prelude=["hello", "ready"], reply="re: $id")
    assert done.stdout.decode().splitlines() == ["hello", "ready", "re: 0", 're: "a \\"b\\""', "re: null"]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("fault", FAULTS)
def test_every_peer_starts_and_says_its_prelude(fault: str, start: Start) -> None:
    assert start(fault, prelude=["hello"]).said(b"hello\n")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "deaf"])  # which hears no call
def test_every_peer_answers_as_many_calls_well_as_it_was_told_to(fault: str, start: Start) -> None:
    running = start(fault, after=2)
    running.ask()
    assert running.said(ANSWER)
    running.ask()
    assert running.stdout.readline() == ANSWER


def test_after_its_good_answers_a_peer_shows_its_fault() -> None:
    done = run("dies", CALL * 4, after=2)
    assert (done.stdout, done.returncode) == (ANSWER * 2, 3)


# -- each habit


def test_silent_reads_everything_and_never_answers() -> None:
    done = run("silent", CALL * 10_000, prelude=["hello"])
    assert (done.stdout, done.returncode) == (b"hello\n", 0)


def test_slow_answers_after_its_seconds(start: Start) -> None:
    running = start("slow", seconds=0.05, prelude=["hello"])
    assert running.said(b"hello\n")
    asked = monotonic()
    running.ask()
    assert running.stdout.readline() == ANSWER
    assert monotonic() - asked >= 0.05


@pytest.mark.parametrize("bytes", [4096, 10_000, 1 << 20])
def test_chatty_writes_so_many_bytes_to_stderr_before_its_answer(bytes: int) -> None:
    done = run("chatty", bytes=bytes)
    assert done.stdout == ANSWER
    assert len(done.stderr) == bytes


def test_banner_prints_what_is_no_frame_before_the_first_frame_and_before_each_answer() -> None:
    lines = run("banner", CALL * 2, prelude=['{"hello":1}']).stdout.splitlines(keepends=True)
    frames = [place for place, line in enumerate(lines) if is_frame(line)]
    assert [lines[place] for place in frames] == [b'{"hello":1}\n', ANSWER, ANSWER]
    assert all(place - 1 not in (-1, *frames) for place in frames)


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_huge_answers_with_a_line_of_so_many_bytes_that_is_a_frame(reply: str) -> None:
    answer = run("huge", bytes=5000, reply=reply).stdout
    assert len(answer) == 5000
    assert answer.index(b"\n") == 4999
    assert json.loads(answer)["id"] == 1


def test_half_writes_half_an_answer_and_ends() -> None:
    done = run("half", CALL * 2)
    assert 0 < len(done.stdout) < len(ANSWER) - 1
    assert ANSWER.startswith(done.stdout)
    assert done.returncode == 0


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_bad_utf8_answers_with_a_frame_but_for_its_text(reply: str) -> None:
    answer = run("bad-utf8", reply=reply).stdout
    with pytest.raises(UnicodeDecodeError):
        answer.decode()
    assert json.loads(answer.decode(errors="replace"))["id"] == 1


@pytest.mark.parametrize(
    ("options", "status"), [({}, 3), ({"code": 7}, 7), ({"signal": signal.SIGKILL}, -9), ({"signal": signal.SIGTERM}, -15)]
)
def test_dies_ends_by_a_code_or_a_signal_with_last_words_and_no_answer(options: dict[str, Any], status: int) -> None:
    done = run("dies", **options)
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.startswith(b"fatal: ")


def test_stubborn_ignores_signals_and_the_end_of_its_input(start: Start) -> None:
    running = start("stubborn", prelude=["hello"])
    assert running.said(b"hello\n")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        running.process.send_signal(number)
    running.ask()
    assert running.stdout.readline() == ANSWER
    running.stdin.close()
    assert running.lives()


def test_holder_ends_and_leaves_a_process_that_holds_its_pipes(start: Start, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    running = start("holder", pid_file=str(note))
    running.ask()
    assert running.stdout.readline() == ANSWER
    assert running.process.wait() == 0
    while not note.exists():
        os.sched_yield()
    assert select.select([running.stdout, running.stderr], [], [], 0)[0] == []  # no end of either
    os.kill(int(note.read_text()), signal.SIGKILL)
    assert running.stdout.read() == running.stderr.read() == b""


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_daemon_leaves_a_process_in_its_own_session_as_far_from_home_as_told(
    orphan: bool, clean: bool, start: Start, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    running = start("daemon", pid_file=str(note), orphan=orphan, clean=clean)
    running.ask()
    assert running.stdout.readline() == ANSWER
    pid = int(note.read_text())
    assert os.getsid(pid) not in (running.process.pid, os.getsid(0))
    assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)} == {"/dev/null"}
    assert (f"PPid:\t{running.process.pid}\n" in Path(f"/proc/{pid}/status").read_text()) is not orphan
    assert (b"TAG=ours" in Path(f"/proc/{pid}/environ").read_bytes()) is not clean
    running.stdin.close()
    assert running.process.wait() == 0
    os.kill(pid, 0)  # still there


def test_mute_closes_its_stdout_but_lives_on(start: Start) -> None:
    running = start("mute")
    running.ask()
    assert running.stdout.read() == b""
    assert running.lives()


def test_deaf_never_reads_its_stdin(start: Start) -> None:
    running = start("deaf", prelude=["hello"])
    assert running.said(b"hello\n")
    os.set_blocking(running.stdin.fileno(), False)
    while running.stdin.write(b"x" * 65536):  # None once the pipe is full
        pass
    assert select.select([], [running.stdin], [], 0.1)[1] == []


def test_unplugged_closes_its_stdin_but_lives_on(start: Start) -> None:
    running = start("unplugged")
    running.ask()
    assert running.stdout.readline() == ANSWER
    with pytest.raises(BrokenPipeError):
        running.ask()
    assert running.lives()


def test_flood_writes_frames_without_end(start: Start) -> None:
    running = start("flood")
    running.ask()
    flood = b"".join(os.read(running.stdout.fileno(), 65536) for _ in range(200))
    frames = flood[: flood.rindex(b"\n")].split(b"\n")
    assert [json.loads(frame)["params"]["n"] for frame in frames] == list(range(len(frames)))
    assert running.lives()


@pytest.mark.parametrize("frames", [1, 250, 1000])
def test_flood_writes_so_many_frames_and_then_its_answer(frames: int) -> None:
    lines = run("flood", frames=frames).stdout.splitlines(keepends=True)
    assert lines[-1] == ANSWER
    assert len(lines) == frames + 1


def test_twice_answers_each_call_two_times() -> None:
    assert run("twice").stdout == ANSWER * 2


def test_stranger_answers_calls_that_nobody_made_before_the_one_that_was() -> None:
    *strange, ours = run("stranger").stdout.splitlines(keepends=True)
    assert ours == ANSWER
    assert [json.loads(line)["id"] for line in strange] == [999999, "nobody", 1.5]


@pytest.mark.parametrize(("options", "step"), [({}, 1), ({"bytes": 7}, 7)])
def test_trickle_writes_its_answer_in_pieces_of_so_many_bytes(options: dict[str, Any], step: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps the pieces apart
    with ours, theirs:
        subprocess.run(peer("trickle", **options), input=CALL, stdout=theirs.fileno(), check=True, timeout=50)
        theirs.close()
        pieces = list(iter(lambda: ours.recv(4096), b""))
    assert b"".join(pieces) == ANSWER
    assert {len(piece) for piece in pieces[:-1]} == {step}
