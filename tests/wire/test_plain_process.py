"""Starting real programs: what they get, how they end, and that nothing is left."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import select
import signal
import stat
from contextvars import ContextVar, copy_context
from fcntl import F_GETPIPE_SZ, fcntl
from itertools import count
from pathlib import Path

import pytest

from serai.errors import Closed, ExitStatus, SpawnFailed
from serai.testing import faults
from serai.wire import descriptors, plain_process, process_tree
from serai.wire.descriptors import Poller
from serai.wire.plain_process import PlainChild, PlainSpawner
from serai.wire.process import Launch, stop_child
from tests.conftest import PATIENT, QUICK
from tests.support.processes import Ends, lives

pytestmark = pytest.mark.loops

# Prints what it was given: descriptors, session, signal state, environment, directory.
ABOUT_ME = """
import json, os, signal, sys
print(json.dumps({
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
    "sid": os.getsid(0), "pid": os.getpid(),
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:],
}), flush=True)
"""


async def read_output(child: PlainChild) -> bytes:
    """Everything on its stdout, until its end."""
    loop = asyncio.get_running_loop()
    text, over = bytearray(), loop.create_future()

    def readable() -> None:
        chunk = os.read(child.stdout, 65536)
        text.extend(chunk)
        if not chunk:
            loop.remove_reader(child.stdout)
            over.set_result(None)

    loop.add_reader(child.stdout, readable)
    await over
    return bytes(text)


async def run(spawner: PlainSpawner, launch: Launch) -> bytes:
    child = await spawner.spawn(launch)
    text = await read_output(child)
    await child.exited
    await child.close()
    return text


@pytest.mark.req("wire.process.session")
async def test_a_child_has_its_own_session_clean_signals_and_no_descriptor_but_its_own(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str]
) -> None:
    stray_read, stray_write = os.pipe()
    os.set_inheritable(stray_write, True)  # as C libraries leave them behind
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        about = json.loads(await run(spawner, Launch(argv=[*python, ABOUT_ME], env=environ)))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        os.close(stray_read)
        os.close(stray_write)
    assert about["sid"] == about["pid"] != os.getsid(0)
    assert about["fds"] == [0, 1, 2]
    assert about["blocked"] == []
    # Python ignores SIGPIPE, and we may ignore others; a program must not inherit that.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ignored = (await run(spawner, Launch(argv=["grep", "SigIgn", "/proc/self/status"], env=environ))).split()[1]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not int(ignored, 16) & (1 << 31) - 1


@pytest.mark.req("wire.process.environment")
async def test_a_child_gets_exactly_the_given_environment_and_directory(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str], tmp_path: Path
) -> None:
    env = environ | {"EQUALS": "a=b=c", "LINES": "one\ntwo", "EMPTY": "", "RAW": "caf\udce9"}
    about = json.loads(await run(spawner, Launch(argv=[*python, ABOUT_ME, "ä", ""], env=env, cwd=str(tmp_path))))
    tag = about["env"].pop(process_tree.TAG)
    about["env"].pop("LC_CTYPE", None)  # Python's own addition at start
    assert about["env"] == env
    assert tag.startswith(spawner.tag + ".")
    assert about["cwd"] == str(tmp_path)
    assert about["argv"] == ["ä", ""]


@pytest.mark.req("wire.process.environment")
async def test_each_child_gets_the_environment_of_its_own_launch(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    """One after the other, changed in place or not, and also after one that could not be started."""
    env = dict(environ)
    show = Launch(argv=["sh", "-c", f"echo $WORD ${process_tree.TAG}"], env=env)
    words: list[bytes] = []
    tags: set[bytes] = set()
    for word in ("one", "one", "two", "", "bad\0", "three"):
        env["WORD"] = word
        env[process_tree.TAG] = "not ours"
        if "\0" in word:
            with pytest.raises(SpawnFailed):
                await spawner.spawn(show)
            continue
        *said, tag = (await run(spawner, show)).split()
        words += said
        tags.add(tag)
    assert words == [b"one", b"one", b"two", b"three"]
    assert len(tags) == 5
    assert all(tag.startswith(spawner.tag.encode()) for tag in tags)


@pytest.mark.req("wire.process.descriptors")
@pytest.mark.parametrize("numbers", [(3, 4), (4, 3), (3, 9), (10, 5)])
async def test_extra_descriptors_arrive_at_exactly_their_numbers(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str], numbers: tuple[int, int]
) -> None:
    read, write = numbers
    echo = f"""
import os
data = os.read({read}, 100)
os.write({write}, data.upper())
os.write(1, repr(sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{n}}"))).encode())
"""
    child = await spawner.spawn(Launch(argv=[*python, echo], env=environ, extra={read: "r", write: "w"}))
    os.write(child.extra[read], b"hello")
    assert json.loads(await read_output(child)) == sorted({0, 1, 2, *numbers})
    assert os.read(child.extra[write], 100) == b"HELLO"


@pytest.mark.req("wire.process.spawn-failed")
async def test_what_cannot_be_started_says_why_and_leaves_nothing_open(
    spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x00\x01\x02\x03")
    nonsense.chmod(0o755)
    cases = [
        (Launch(argv=["no-such-program"], env=environ), errno.ENOENT, "no program no-such-program on the PATH"),
        (Launch(argv=["./gone"], env=environ, cwd=str(tmp_path)), errno.ENOENT, "gone does not exist"),
        (Launch(argv=[str(plain)], env=environ), errno.EACCES, "not an executable file"),
        (Launch(argv=[str(tmp_path)], env=environ), errno.EACCES, "not an executable file"),
        (Launch(argv=["true"], env=environ, cwd=str(tmp_path / "gone")), errno.ENOENT, "working directory"),
        (Launch(argv=[str(orphan)], env=environ), errno.ENOENT, "cannot start"),
        (Launch(argv=[str(nonsense)], env=environ), errno.ENOEXEC, "cannot start"),
        (Launch(argv=["true", "a\0b"], env=environ), errno.EINVAL, "NUL"),
        (Launch(argv=["true"], env=environ | {"BAD": "\0"}), errno.EINVAL, "NUL"),
        (Launch(argv=[], env=environ), errno.EINVAL, "empty"),
        (Launch(argv=["true", "x" * 3_000_000], env=environ), errno.E2BIG, "cannot start"),
    ]
    gc.collect()  # what others left would be closed in between
    before = os.listdir("/proc/self/fd")
    for launch, number, words in cases:
        with pytest.raises(SpawnFailed, match=words) as failed:
            await spawner.spawn(launch)
        assert failed.value.errno == number
    assert os.listdir("/proc/self/fd") == before
    assert not spawner.children


@pytest.mark.req("wire.process.spawn-failed")
async def test_what_fails_after_the_start_leaves_no_program_running(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sandbox that forbids pidfds; and what is no string at all."""

    def refuse(pid: int) -> int:
        started.append(pid)
        raise PermissionError(errno.EPERM, "no")

    started: list[int] = []
    await run(spawner, Launch(argv=["true"], env=environ))  # what the spawner itself needs is open
    gc.collect()  # what others left would be closed in between
    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch, pytest.raises(SpawnFailed, match="Operation not permitted") as failed:
        patch.setattr(os, "pidfd_open", refuse)
        await spawner.spawn(Launch(argv=["sleep", "100"], env=environ))
    assert failed.value.hint
    assert [pid for pid in started if lives(pid)] == []
    with pytest.raises(SpawnFailed, match="cannot start echo"):
        await spawner.spawn(Launch(argv=["echo", 5], env=environ))  # type: ignore[list-item]
    assert os.listdir("/proc/self/fd") == before
    assert not spawner.children


@pytest.mark.req("wire.process.path-lookup")
async def test_names_are_looked_up_in_the_given_path_and_never_in_the_directory(
    spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, word in (("bin", "from-path"), ("here", "from-cwd")):
        script = tmp_path / folder / "tool"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho {word}\n")
        script.chmod(0o755)
    env = environ | {"PATH": f"{tmp_path / 'bin'}:{environ['PATH']}"}
    here = str(tmp_path / "here")
    assert await run(spawner, Launch(argv=["tool"], env=env, cwd=here)) == b"from-path\n"
    assert await run(spawner, Launch(argv=["./tool"], env=env, cwd=here)) == b"from-cwd\n"
    with pytest.raises(SpawnFailed):
        await spawner.spawn(Launch(argv=["tool"], env=environ, cwd=here))
    monkeypatch.chdir(tmp_path)
    assert await run(spawner, Launch(argv=["./tool"], env=env, cwd="here")) == b"from-cwd\n"
    monkeypatch.chdir(tmp_path / "here")  # which an empty entry of the PATH would mean
    for path in ("", f":{environ['PATH']}"):
        with pytest.raises(SpawnFailed, match="no program tool on the PATH"):
            await spawner.spawn(Launch(argv=["tool"], env={"PATH": path}))


@pytest.mark.req("wire.process.exit-status")
@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", ExitStatus(code=0)), ("exit 23", ExitStatus(code=23)), ("kill -9 $$", ExitStatus(signal=9))],
)
async def test_the_end_of_a_child_is_its_code_or_its_signal_and_it_is_reaped(
    spawner: PlainSpawner, environ: dict[str, str], script: str, status: ExitStatus
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ))
    assert await child.exited == status
    await child.close()
    assert process_tree.read_process(child.pid) is None


@pytest.mark.req("wire.process.reaped")
async def test_a_dead_child_is_reaped_even_when_nobody_closes_it(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    await child.exited
    while process_tree.read_process(child.pid) is not None:
        await asyncio.sleep(0)


@pytest.mark.req("wire.process.short-look")
async def test_an_ended_child_that_left_nobody_is_closed_without_a_look_at_all_processes(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[int] = []
    monkeypatch.setattr(process_tree, "scan_processes", scans.append)
    monkeypatch.setattr(process_tree, "has_no_descendants", lambda *_: True)
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    await child.exited
    await child.close()
    assert (scans, process_tree.read_process(child.pid), spawner.children) == ([], None, set())


@pytest.mark.req("wire.stop.own-session")
@pytest.mark.parametrize("quick", [True, False])
async def test_what_an_ended_child_left_dies_when_it_is_closed_however_soon(
    spawner: PlainSpawner, environ: dict[str, str], quick: bool
) -> None:
    """Its short life ends before anybody has looked at it; and it keeps its number until the daemon is dead."""
    child = await spawner.spawn(Launch(argv=["sh", "-c", "setsid sleep 100 >&- 2>&- & echo $!"], env=environ))
    daemon = int(await read_output(child))
    await child.exited
    while not quick and child._left is None:
        await asyncio.sleep(0)
    assert lives(daemon)
    assert process_tree.read_process(child.pid) is not None
    await child.close()
    assert not lives(daemon)
    assert process_tree.read_process(child.pid) is None


@pytest.mark.req("wire.stop.own-session")
async def test_the_group_of_an_ended_child_dies_when_it_is_closed_whatever_a_look_says(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "has_no_descendants", lambda *_: True)
    monkeypatch.setattr(plain_process.ProcessTable, "settle_later", lambda *_: None)  # on a busy loop it would be the first to look
    child = await spawner.spawn(Launch(argv=["sh", "-c", "sleep 100 >&- 2>&- & echo $!"], env=environ))
    left = int(await read_output(child))
    with Ends([left]) as ends:
        await child.exited
        await child.close()
        assert ends.left_after(15) == set()


@pytest.mark.req("wire.process.stderr")
async def test_the_end_of_stderr_is_there_also_of_a_large_pipe(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    argv = ["sh", "-c", "head -c 500000 /dev/zero >&2; echo the reason >&2"]
    child = await spawner.spawn(Launch(argv=argv, env=environ, pipe=1 << 20))
    await child.exited
    assert child.stderr.text().endswith("the reason\n")
    await child.close()


@pytest.mark.req("wire.process.spawn-failed")
async def test_a_child_that_cannot_be_watched_does_not_harm_the_next(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await spawner.spawn(Launch(argv=["true"], env=environ))).close()

    def no_more(*_: object) -> None:
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(Poller, "add_reader", no_more)
    with pytest.raises(SpawnFailed, match="No space left"):
        await spawner.spawn(Launch(argv=["sleep", "100"], env=environ))
    assert len(os.listdir("/proc/self/fd")) == before
    for _ in range(3):
        child = await spawner.spawn(Launch(argv=["sh", "-c", "echo why >&2; exit 3"], env=environ))
        assert (await asyncio.wait_for(child.exited, 15)).code == 3
        assert child.stderr.text() == "why\n"
        await child.close()


def test_a_spawner_of_one_loop_says_so_in_another(environ: dict[str, str]) -> None:
    async def start(spawner: PlainSpawner) -> None:
        await (await spawner.spawn(Launch(argv=["true"], env=environ))).close()

    async def make() -> PlainSpawner:
        spawner = PlainSpawner(watchdog=False)
        await start(spawner)
        assert spawner._context
        for part in (spawner._context.table, spawner._context.delayed, spawner._context.poller):
            part.close()
        return spawner

    spawner = asyncio.run(make())
    with pytest.raises(Closed, match="another event loop"):
        asyncio.run(start(spawner))


async def test_many_starts_at_once_leave_the_loop_its_turns(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    turns = 0
    over = asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    children = await asyncio.gather(*(spawner.spawn(Launch(argv=["true"], env=environ)) for _ in range(30)))
    over.set()
    await counting
    assert turns >= 30
    await asyncio.gather(*(child.close() for child in children))


@pytest.mark.req("wire.process.wait")
async def test_callbacks_on_the_end_run_in_the_context_of_who_asked(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")
    seen: list[str] = []
    child = await spawner.spawn(Launch(argv=["true"], env=environ))

    def ask() -> None:
        name.set("who asked")
        child.on_exit(lambda: seen.append(name.get()))

    copy_context().run(ask)
    await child.exited
    assert seen == ["who asked"]
    await child.close()


@pytest.mark.req("wire.process.identity")
async def test_a_child_that_somebody_else_reaped_is_nobody(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    """Its number may be anybody's by then, and who is looked up first then must not be killed for it."""
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    child._root = None  # as if nobody had asked yet
    os.waitpid(child.pid, 0)
    assert child.root is None
    assert await child.exited == ExitStatus()
    await child.close()


async def test_a_child_that_somebody_else_reaps_ends_with_an_unknown_status(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "read line"], env=environ))
    child._context.poller.remove_reader(child._pidfd)
    child.close_descriptor(child.stdin)
    os.waitpid(child.pid, 0)
    child._handle_end()
    assert str(await child.exited) == "exit status unknown"
    await child.close()


@pytest.mark.req("wire.process.stderr")
async def test_stderr_is_drained_and_its_last_bytes_are_kept(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str]
) -> None:
    chunks: list[int] = []
    program = "import sys; sys.stderr.write('x' * 1_000_000 + 'the end\\n'); sys.stderr.flush(); input()"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    child.stderr.on_chunk = lambda chunk: chunks.append(len(chunk))
    child.close_descriptor(child.stdin)
    await child.exited
    await child.close()
    assert child.stderr.total > 1_000_000
    assert sum(chunks) == child.stderr.total
    assert len(child.stderr.last()) == QUICK.stderr_tail
    assert "the end\n" in child.stderr.text()


@pytest.mark.req("wire.process.stderr")
@pytest.mark.parametrize("seconds", ["0", "0.1"])
async def test_at_its_end_all_is_known_that_a_child_wrote(spawner: PlainSpawner, environ: dict[str, str], seconds: str) -> None:
    """Whether it ended before anybody began to read or lived on for a while."""
    script = f"read line; echo $line; echo why >&2; sleep {seconds}; echo last; echo really >&2"
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ))
    output = child.drain_noise(child.stdout, limit=100)
    os.write(child.stdin, b"first\n")
    await child.exited
    assert (output.text(), child.stderr.text()) == ("first\nlast\n", "why\nreally\n")
    await child.close()


async def test_a_listener_to_stderr_that_fails_does_not_stop_the_draining(
    spawner: PlainSpawner, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "read l; echo one >&2; exit 3"], env=environ))

    def fail(chunk: bytes) -> None:
        raise RuntimeError("listener")

    child.stderr.on_chunk = fail
    child.close_descriptor(child.stdin)
    await child.exited
    await child.close()
    assert child.stderr.text() == "one\n"
    assert "listener" in caplog.text


@pytest.mark.req("wire.process.noise")
async def test_output_that_is_no_wire_is_drained_and_kept_as_noise(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str]
) -> None:
    program = "import os; print('x' * 500_000, 'stray', flush=True); os.write(4, b'on the wire')"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ, extra={4: "w"}))
    noise = child.drain_noise(child.stdout)
    assert child.stdout == -1
    await child.exited
    assert os.read(child.extra[4], 100) == b"on the wire"
    await child.close()
    assert noise.total == 500_000 + len(" stray\n")
    assert noise.text().endswith("x stray\n")
    assert len(noise.last()) == QUICK.noise_tail
    with pytest.raises(Closed):
        child.drain_noise(child.stdout)


@pytest.mark.req("wire.process.flat")
async def test_starting_a_child_never_copies_the_parent(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page faults tell: a fork would write-protect the whole heap, and touching it again would fault once a page."""
    import resource

    ballast = bytearray(64 << 20)
    pages = range(0, len(ballast), 4096)
    for page in pages:
        ballast[page] = 1
    await run(spawner, Launch(argv=["true"], env=environ))  # everything imported and started
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    for page in pages:
        ballast[page] = 2
    faults_taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    await child.close()
    assert faults_taken < len(pages) // 8


@pytest.mark.slow
@pytest.mark.req("wire.process.no-leak")
@pytest.mark.timeout(180)
async def test_a_thousand_start_and_stop_cycles_leave_nothing(environ: dict[str, str]) -> None:
    async with PlainSpawner(QUICK) as spawner:
        child = await spawner.spawn(Launch(argv=["cat"], env=environ))
        await stop_child(child, QUICK)
        gc.collect()  # what others left would be closed in between
        before = len(os.listdir("/proc/self/fd"))
        tag = spawner.tag
        for _ in range(50):
            children = await asyncio.gather(*(spawner.spawn(Launch(argv=["cat"], env=environ, extra={3: "r"})) for _ in range(20)))
            stopped = await asyncio.gather(*(stop_child(child, PATIENT) for child in children))
            assert {how.exit for how in stopped} == {ExitStatus(code=0)}
        assert len(os.listdir("/proc/self/fd")) == before
    assert not [process for process in process_tree.scan_processes().values() if process.carries(tag)]


@pytest.mark.req("wire.process.close")
async def test_closing_is_idempotent_from_any_task_and_not_undone_by_a_cancelled_caller(
    spawner: PlainSpawner, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ))
    first = asyncio.create_task(child.close())
    await asyncio.sleep(0)  # let it begin
    first.cancel()
    await asyncio.gather(child.close(), child.close())
    assert child.exited.result() == ExitStatus(signal=signal.SIGKILL)
    assert child.stdin == child.stdout == -1
    await child.close()


@pytest.mark.req("wire.process.close")
async def test_closing_the_spawner_closes_what_is_left_and_refuses_more(environ: dict[str, str]) -> None:
    async with PlainSpawner(QUICK) as spawner:
        children = [await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ)) for _ in range(3)]
    assert all(child.exited.done() for child in children)
    with pytest.raises(Closed):
        await spawner.spawn(Launch(argv=["true"], env=environ))


@pytest.mark.req("wire.process.close")
async def test_closing_never_raises_and_lets_go_of_everything_even_of_what_may_not_be_signalled(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a child became root and we are not."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    async with PlainSpawner(QUICK, watchdog=False) as spawner:
        child = await spawner.spawn(Launch(argv=["cat"], env=environ))
        monkeypatch.setattr(os, "killpg", refuse)
        await child.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert child.status is not None


@pytest.mark.req("wire.process.close")
async def test_a_process_group_dies_even_when_the_process_table_cannot_be_read(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(since: int) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    async with PlainSpawner(QUICK, watchdog=False) as spawner:
        child = await spawner.spawn(Launch(argv=["sh", "-c", "sleep 100 >&- 2>&- & echo $!; read line"], env=environ))
        await asyncio.to_thread(select.select, [child.stdout], [], [], 15)
        grandchild = int(os.read(child.stdout, 100))
        monkeypatch.setattr(process_tree, "scan_processes", refuse)
        monkeypatch.setattr(process_tree, "has_no_descendants", lambda *_: False)  # nor does a short look prove anything
        child.close_descriptor(child.stdin)
        await child.exited
        await child.close()
    assert "only process groups are killed" in caplog.text
    while lives(grandchild):  # killed; the machine's init buries it
        await asyncio.sleep(0)


@pytest.mark.req("wire.process.close")
async def test_a_reading_of_the_process_table_that_was_cancelled_harms_no_later_one(
    spawner: PlainSpawner, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    reading = asyncio.create_task(child.kill_tree())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if task.get_name() == "read the process table":
            task.cancel()
    await reading
    await child.close()
    assert child.status is not None


@pytest.mark.req("wire.process.close")
async def test_a_user_of_a_descriptor_that_fails_does_not_keep_it_open(
    spawner: PlainSpawner, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    child.before_close(child.stdout, fail)
    await child.close()
    assert child.stdout == -1
    assert not spawner.children
    assert "a defect" in caplog.text


@pytest.mark.req("wire.process.close")
async def test_closing_a_spawner_is_finished_even_when_its_caller_is_cancelled(environ: dict[str, str]) -> None:
    spawner = PlainSpawner(QUICK)
    child = await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ))
    assert spawner._watchdog is not None
    with Ends([spawner._watchdog.pid]) as ends:
        closing = asyncio.create_task(spawner.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert spawner._closing is not None
        await spawner._closing
        assert ends.left_after(15) == set()
    assert child.status is not None


@pytest.mark.req("wire.process.wait")
async def test_to_give_up_waiting_for_the_end_harms_nobody(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(child.exited, 0.01)
    task = asyncio.ensure_future(child.exited)
    task.cancel()
    assert (child.status, repr(child)) == (None, f"<cat pid {child.pid}: running>")
    await stop_child(child, PATIENT)
    assert child.status == await child.exited == ExitStatus(code=0)


@pytest.mark.req("wire.process.wait")
async def test_who_gave_up_waiting_is_forgotten(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    for _ in range(100):
        child.exited.cancel()
    assert len(child._waiting) <= 1
    await stop_child(child, PATIENT)


@pytest.mark.req("wire.process.wait")
async def test_callbacks_on_the_end_are_called_once_and_a_failing_one_harms_no_other(
    spawner: PlainSpawner, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    told: list[object] = []
    child.on_exit(fail)
    child.on_exit(lambda: told.append(child.status))
    assert told == []
    await stop_child(child, PATIENT)
    child.on_exit(lambda: told.append("late"))
    assert told == [ExitStatus(code=0)]
    await asyncio.sleep(0)
    assert told == [ExitStatus(code=0), "late"]
    assert "a defect" in caplog.text


@pytest.mark.req("wire.process.two-spawners")
async def test_a_spawner_that_was_closed_leaves_the_next_one_in_peace(environ: dict[str, str]) -> None:
    """Its watchdog has ended and is reaped, and none of its descriptors' numbers stays registered in the loop."""
    for _ in range(5):
        async with PlainSpawner(QUICK) as first:
            await first.spawn(Launch(argv=["cat"], env=environ))
            assert first._watchdog is not None
            watchdog = first._watchdog.pid
        assert process_tree.read_process(watchdog) is None
        async with PlainSpawner(PATIENT) as second:
            children = [await second.spawn(Launch(argv=["echo", "hi"], env=environ)) for _ in range(4)]
            for child in children:
                assert await read_output(child) == b"hi\n"
                assert await child.exited == ExitStatus(code=0)


@pytest.mark.req("wire.process.signal-after-end")
async def test_signals_after_the_end_do_nothing(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    await child.exited
    child.signal(signal.SIGKILL)
    child.signal(signal.SIGKILL, group=True)
    assert await child.kill_tree() == []
    await child.close()
    child.signal(signal.SIGKILL)
    child.signal(signal.SIGKILL, group=True)
    assert await child.kill_tree() == []
    child.close_descriptor(0)  # not one of its own
    assert os.fstat(0)


async def test_a_tree_is_gone_when_it_is_closed_also_who_cannot_be_told_to_belong_to_it_any_more(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is on the way out shows no tag, and its parent may be gone: it is found once and then never again."""
    kill, kills = process_tree.kill_process, []

    def slow(process: process_tree.Process) -> None:  # as the kernel does on a busy machine: some time later
        kills.append(process.pid)
        if len(kills) > 2:
            kill(process)

    child, other = [await spawner.spawn(Launch(argv=["sleep", "1000"], env=environ)) for _ in range(2)]
    found = process_tree.read_process(other.pid)
    seen = [[found]]

    async def members(_: PlainChild) -> list[process_tree.Process | None]:
        return seen.pop() if seen else []

    monkeypatch.setattr(PlainChild, "_find_members", members)
    monkeypatch.setattr(process_tree, "kill_process", slow)
    assert await child.kill_tree() == []
    assert kills[:3] == [other.pid] * 3
    assert await other.exited == ExitStatus(signal=signal.SIGKILL)


async def test_who_is_found_when_the_time_is_up_is_killed_all_the_same(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the look alone may take longer than there is time."""
    child, other = [await spawner.spawn(Launch(argv=["sleep", "1000"], env=environ)) for _ in range(2)]
    found, clock = process_tree.read_process(other.pid), count(0, 10)

    async def members(_: PlainChild) -> list[process_tree.Process | None]:
        return [found] if other.status is None else []

    monkeypatch.setattr(PlainChild, "_find_members", members)
    monkeypatch.setattr(plain_process, "monotonic", lambda: next(clock))
    await child.kill_tree()
    async with asyncio.timeout(30):
        assert await other.exited == ExitStatus(signal=signal.SIGKILL)


async def test_pipes_get_what_the_machine_allows(
    spawner: PlainSpawner, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user has a share of pipe memory; beyond it the pipes are smaller and the program starts all the same."""

    def stingy(descriptor: int, command: int, size: int) -> int:
        if size > 1 << 18:
            raise PermissionError(errno.EPERM, "over your share")
        return fcntl(descriptor, command, size)

    monkeypatch.setattr(descriptors, "fcntl", stingy)
    child = await spawner.spawn(Launch(argv=["cat"], env=environ, pipe=1 << 20))
    assert fcntl(child.stdout, F_GETPIPE_SZ) == 1 << 18


async def test_pipes_can_be_made_large_at_once(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ, pipe=1 << 20))
    assert fcntl(child.stdout, F_GETPIPE_SZ) == 1 << 20
    assert stat.S_ISFIFO(os.fstat(child.stdin).st_mode)


async def test_a_child_can_have_no_input_at_all(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    assert await run(spawner, Launch(argv=["cat"], env=environ, stdin="null")) == b""


# -- stderr into a file of ours ---------------------------------------------------------------------------------------------------


def open_log(tmp_path: Path, text: str = "") -> int:
    (tmp_path / "log").write_text(text)
    return os.open(tmp_path / "log", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)


@pytest.mark.req("wire.process.stderr", "zot.edge.40")
async def test_a_child_writes_its_stderr_straight_into_the_file_it_is_given(
    spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path
) -> None:
    """More than any pipe holds, and nobody reads it; of the end only what came since the start is the child's."""
    log = open_log(tmp_path, "an earlier run\n")
    argv = ["sh", "-c", "head -c 300000 /dev/zero >&2; echo the reason >&2; exit 4"]
    child = await spawner.spawn(Launch(argv=argv, env=environ, stderr=log))
    assert (await child.exited).code == 4
    tail = child.stderr
    assert (tail.total, len(tail.last()), tail.closed) == (300_011, QUICK.stderr_tail, False)
    assert tail.text().endswith("\0the reason\n")
    await child.close()
    assert tail.closed
    assert tail.text().endswith("\0the reason\n")  # also afterwards
    os.write(log, b"ours is still open\n")
    os.close(log)
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"an earlier run\n\0")
    assert text.endswith(b"the reason\nours is still open\n")


@pytest.mark.req("wire.process.stderr")
async def test_what_a_child_says_before_anybody_looks_is_not_missed(
    spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have said everything, and be dead, before its start has even returned."""

    def late(pid: int) -> int:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pidfd_open(pid)

    pidfd_open = os.pidfd_open
    await run(spawner, Launch(argv=["true"], env=environ))  # the watchdog runs already
    log = open_log(tmp_path, "before\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", late)
        child = await spawner.spawn(Launch(argv=["sh", "-c", "echo why >&2; exit 3"], env=environ, stderr=log))
    assert (await child.exited).code == 3
    assert child.stderr.text() == "why\n"
    await child.close()
    assert child.stderr.text() == "why\n"
    os.close(log)


@pytest.mark.req("wire.process.stderr")
async def test_a_file_that_is_cut_meanwhile_begins_anew(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str], tmp_path: Path
) -> None:
    log = open_log(tmp_path, "an earlier run, and a long one\n")
    script = "import os\nos.write(2, b'one\\n'); os.read(0, 1); os.write(2, b'two\\n'); os.write(1, b'.')"
    child = await spawner.spawn(Launch(argv=[*python, script], env=environ, stderr=log))
    while child.stderr.total < 4:
        await asyncio.sleep(0)
    assert child.stderr.text() == "one\n"
    os.ftruncate(log, 0)
    os.write(child.stdin, b".")
    await read_output(child)
    assert child.stderr.text() == "two\n"
    assert (tmp_path / "log").read_text() == "two\n"
    await child.close()
    os.close(log)


@pytest.mark.req("wire.process.stderr", "wire.process.session")
async def test_a_child_with_a_file_for_its_stderr_has_no_other_descriptor_of_it(
    spawner: PlainSpawner, environ: dict[str, str], python: list[str], tmp_path: Path
) -> None:
    log = open_log(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    about = json.loads(await run(spawner, Launch(argv=[*python, ABOUT_ME], env=environ, stderr=log)))
    assert about["fds"] == [0, 1, 2]
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # what the spawner itself keeps
    os.close(log)


@pytest.mark.req("wire.process.spawn-failed")
async def test_a_stderr_that_is_closed_already_starts_nothing(
    spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path
) -> None:
    log = open_log(tmp_path)
    os.close(log)
    gc.collect()  # what others left would be closed in between
    before = os.listdir("/proc/self/fd")
    for descriptor in (log, -1):
        with pytest.raises(SpawnFailed, match="cannot start true"):
            await spawner.spawn(Launch(argv=["true"], env=environ, stderr=descriptor))
    assert os.listdir("/proc/self/fd") == before
    assert not spawner.children


async def test_our_own_remarks_in_a_log_are_no_part_of_its_stderr(
    spawner: PlainSpawner, python: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    with open(tmp_path / "log", "a+b", buffering=0) as log:
        program = "import os; os.write(2, b'its own words\\n'); os.read(0, 1); os.write(2, b'and more\\n')"
        launch = Launch(argv=[*python, program], env=environ, stderr=log.fileno(), remarks=b"[serai] ")
        child = await spawner.spawn(launch)
        while b"own words" not in child.stderr.last():
            await asyncio.sleep(0)
        log.write(b"[serai] a remark\n")
        child.close_descriptor(child.stdin)
        await child.exited
        assert child.stderr.text() == "its own words\nand more\n"
        await child.close()
        assert child.stderr.text() == "its own words\nand more\n"
