"""Processes as the seed sees them, real ones and those that are none (spec agents 1.5, 5.2 P)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from serai.compat.agentboot import (
    Cancelled,
    ExecutionOptions,
    FakeFactory,
    InvalidLaunch,
    Killed,
    LaunchSpec,
    NewFakeFactory,
    NoTerminalResult,
    OsFactory,
    ProcessError,
    ProtocolError,
    Runner,
    RunnerConfig,
    StartFailed,
)
from serai.errors import ExitStatus, PeerGone, SpawnFailed
from serai.limits import KIB, Limits
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.agentboot.toy_agent import PATIENT, Toy, ToyTransport, collect_events, texts
from tests.support.processes import Ends, lives

pytestmark = pytest.mark.loops


def program(code: str, **given: Any) -> LaunchSpec:
    return LaunchSpec(command=[sys.executable, "-I", "-S", "-c", code], env=_ENV, **given)


def python(code: str, **given: Any) -> Toy:
    return Toy([sys.executable, "-I", "-S", "-c", code], env=_ENV, **given)


_ENV = [f"PATH={os.environ.get('PATH', os.defpath)}", "LANG=C.UTF-8"]


# -- real ones


@pytest.mark.req("agents.scenario.P1")
async def test_what_it_echoes_is_read_whole() -> None:
    process = await OsFactory(limits=PATIENT).start(program("import sys; sys.stdout.write(sys.stdin.read())"))
    text = b"hello\n" * 50_000
    writing = asyncio.ensure_future(process.write(text))
    reading = asyncio.ensure_future(process.stdout.read())
    await writing
    process.close_stdin()
    process.close_stdin()
    assert await reading == text
    await process.wait()
    assert process.done.is_set()
    with pytest.raises(PeerGone, match="its input is closed"):
        await process.write(b"more")
    await process.close()


@pytest.mark.req("agents.scenario.P2", "agents.scenario.P3")
async def test_a_sleeper_is_killed_and_to_kill_it_again_or_after_its_end_does_nothing() -> None:
    process = await OsFactory(limits=PATIENT).start(LaunchSpec(command=["sleep", "100"]))
    process.kill()
    process.kill()
    began = monotonic()
    with pytest.raises(Killed) as killed:
        await process.wait()
    assert monotonic() - began < 2
    assert (killed.value.exit_code, killed.value.exit) == (-1, ExitStatus(signal=signal.SIGKILL))
    process.kill()
    process.terminate()
    await process.close()
    process.kill()


@pytest.mark.req("agents.scenario.P4")
async def test_a_program_that_is_missing_fails_in_start() -> None:
    with pytest.raises(SpawnFailed, match="there is no program no-such-program on the PATH"):
        await OsFactory().start(LaunchSpec(command=["no-such-program"]))
    with pytest.raises(StartFailed, match="start process: .*no-such-program"):
        await Runner(Toy(["no-such-program"]), ToyTransport).execute("go")


@pytest.mark.req("agents.rule.06")
async def test_a_process_tells_its_pid_its_end_and_its_stderr(spawner: PlainSpawner) -> None:
    code = """if True:
        import sys, time
        sys.stderr.write("x" * 70000 + "\\nlast\\n")
        sys.stderr.flush()
        print("ready", flush=True)
        time.sleep(100)
    """
    process = await OsFactory(spawner).start(program(code))
    lines: list[str] = []
    process.on_stderr_line(lines.append)
    assert lives(process.pid)
    assert not process.done.is_set()
    assert await anext(process.stdout) == b"ready\n"
    process.terminate()
    with pytest.raises(ProcessError):
        await process.wait()
    assert process.exit_status == ExitStatus(signal=signal.SIGTERM)  # a signal, and no code
    assert len(process.stderr) == 64 * KIB
    assert process.stderr.endswith("x\nlast\n")
    assert lines[-1] == "last"
    assert "".join(lines[:-1]) == "x" * 70000
    await process.close()

    other = await OsFactory(spawner).start(program("raise SystemExit(3)"))
    with pytest.raises(ProcessError, match="process exited with code 3"):
        await other.wait()
    assert other.exit_status == ExitStatus(code=3)
    await other.close()


@pytest.mark.req("agents.edge.21")
async def test_variables_and_paths_reach_it_unchanged_and_a_nul_is_refused(spawner: PlainSpawner, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    folder = tmp_path / odd
    folder.mkdir()
    code = "import os, sys; sys.stdout.buffer.write(repr((os.environb[b'ODD'], os.environb[b'E'], os.getcwdb())).encode())"
    spec = program(code, work_dir=str(folder))
    for env in ([*_ENV, "ODD=a=b\nc", f"E={odd}"], {**dict(one.split("=", 1) for one in _ENV), "ODD": "a=b\nc", "E": odd}):
        spec.env = env
        process = await OsFactory(spawner).start(spec)
        assert await process.stdout.read() == repr((b"a=b\nc", b"caf\xe9", os.fsencode(folder))).encode()
        await process.close()
    count = len(spawner.children)
    for bad in (
        LaunchSpec(command=["true"], env={"A": "a\0b"}),
        LaunchSpec(command=["true", "a\0b"]),
        LaunchSpec(command=["true"], env=["A=\0"]),
    ):
        with pytest.raises(SpawnFailed, match=r"(?i)nul|embedded"):
            await OsFactory(spawner).start(bad)
    with pytest.raises(InvalidLaunch, match="no NAME=value: oops"):
        await OsFactory(spawner).start(LaunchSpec(command=["true"], env=["oops"]))
    assert len(spawner.children) == count


async def test_without_an_environment_it_has_ours(monkeypatch: pytest.MonkeyPatch, spawner: PlainSpawner) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    process = await OsFactory(spawner).start(LaunchSpec(command=["printenv", "INHERITED"]))
    assert await process.stdout.read() == b"yes\n"
    await process.close()


@pytest.mark.req("agents.edge.10")
async def test_a_grandchild_that_holds_the_output_is_not_waited_for() -> None:
    """It reads its own pipe for ever; the reader gives up after the drain grace, and the tree is swept."""
    code = 'import os, sys; print(\'{"type":"say","text":"hi"}\', flush=True); os.fork() or os.read(os.pipe()[0], 1)'
    limits = QUICK.but(exit_grace=15.0)
    handle = await Runner(python(code), ToyTransport, config=RunnerConfig(shutdown_grace_period=0.2), limits=limits).execute("go")
    assert texts(await collect_events(handle)) == ["hi"]
    waited = await handle.wait()
    assert isinstance(waited.error, ProtocolError)
    assert isinstance(waited.error.cause, NoTerminalResult)


@pytest.mark.req("agents.edge.10")
async def test_nor_where_bytes_are_read(spawner: PlainSpawner) -> None:
    code = "import os; print(os.fork(), flush=True) if os.fork() else os.read(os.pipe()[0], 1)"
    process = await OsFactory(spawner, limits=QUICK).start(program(code))
    assert await process.stdout.read()
    await process.close()


@pytest.mark.req("agents.edge.11")
async def test_every_process_is_reaped() -> None:
    spawner = PlainSpawner(PATIENT)
    factory = OsFactory(spawner, limits=PATIENT)
    runner = Runner(python("import time; print('{}', flush=True); time.sleep(100)"), ToyTransport, factory, limits=PATIENT)
    with pytest.raises(StartFailed):
        await Runner(Toy(["no-such-program"]), ToyTransport, factory).execute("go")
    handle = await runner.execute("go")
    pid = next(iter(spawner.children)).pid
    handle.cancel()
    assert isinstance((await handle.wait()).error, Cancelled)
    assert not Path(f"/proc/{pid}").exists()
    assert not spawner.children
    await spawner.close()


@pytest.mark.req("agents.edge.11")
def test_nothing_is_left_when_the_loop_ends_in_the_middle() -> None:
    pids: list[int] = []

    async def main() -> None:
        code = 'import time, os; print(\'{"type":"say","text":%d}\' % os.getpid(), flush=True); time.sleep(100)'
        async with PlainSpawner(QUICK) as spawner:
            handle = await Runner(python(code), ToyTransport, OsFactory(spawner)).execute("go")
            async for event in handle.events():
                if texts([event]):
                    pids.append(texts([event])[0])
                    return

    asyncio.run(main())
    with Ends(pids) as ends:
        assert ends.left_after(15.0) == set()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.req("agents.edge.13")
async def test_a_prompt_into_a_broken_pipe_is_told_as_why_the_process_ended() -> None:
    code = "import os, sys; os.close(0); sys.stderr.write('session is in use\\n'); sys.stderr.flush(); os._exit(4)"
    big = ({"type": "prompt", "text": "x" * 2_000_000},)
    handle = await Runner(python(code, initial_input=big), ToyTransport, limits=PATIENT).execute("go")
    await collect_events(handle)
    waited = await handle.wait()
    assert isinstance(waited.error, ProcessError)
    assert waited.error.exit_code == 4
    assert "session is in use" in waited.error.stderr
    assert "ipe" not in waited.result.error


@pytest.mark.req("agents.edge.26")
async def test_a_flood_on_stderr_blocks_nobody_and_its_end_is_kept() -> None:
    code = """if True:
        import sys
        for number in range(50_000):
            sys.stderr.write("a line of noise, number %d\\n" % number)
        sys.stderr.flush()
        print('{"type":"result","result":"done"}', flush=True)
        sys.stdin.read()
    """
    runner = Runner(python(code), ToyTransport, limits=PATIENT, config=RunnerConfig(stream_buffer_size=10))
    handle = await runner.execute("go")
    assert (await handle.wait()).error is None
    driver = handle._execution.session.driver
    kept = driver.process.stderr  # type: ignore[attr-defined]
    assert len(kept) == 64 * KIB
    assert kept.endswith("number 49999\n")


# -- those that are none


@pytest.mark.req("agents.scenario.P5")
async def test_the_fake_factory_remembers_what_it_was_to_start() -> None:
    factory = NewFakeFactory()
    specs = [LaunchSpec(command=[name]) for name in ("one", "two")]
    for spec in specs:
        await (await factory.start(spec)).close()
    assert factory.specs == specs
    assert [spec is other for spec, other in zip(factory.specs, specs, strict=True)] == [True, True]


@pytest.mark.req("agents.scenario.P6")
async def test_a_fake_process_says_its_script_then_ends_its_output_then_exits() -> None:
    process = await FakeFactory().start(LaunchSpec(command=["fake"]))
    process.write_output("one\n")
    process.write_output({"two": 2})
    reading = asyncio.ensure_future(process.stdout.read())
    process.finish_output()
    process.finish_output()
    assert await reading == b'one\n{"two":2}\n'
    assert not process.done.is_set()
    process.signal_exit()
    await process.wait()
    assert process.done.is_set()
    await process.close()


@pytest.mark.req("agents.scenario.P7")
async def test_the_first_error_that_a_fake_process_ends_with_is_what_wait_tells() -> None:
    process = await FakeFactory().start(LaunchSpec(command=["fake"]))
    failure = RuntimeError("the first")
    process.signal_exit(failure)
    process.signal_exit(RuntimeError("the second"))
    with pytest.raises(RuntimeError) as raised:
        await process.wait()
    assert raised.value is failure
    await process.close()


@pytest.mark.req("agents.scenario.P8")
async def test_a_fake_process_that_is_killed_has_no_more_output() -> None:
    process = await FakeFactory().start(LaunchSpec(command=["fake"]))
    process.write_output("half")
    reading = asyncio.ensure_future(process.stdout.read())
    await asyncio.sleep(0)
    process.kill()
    process.kill()
    assert await reading == b"half"
    with pytest.raises(Killed):
        await process.wait()
    await process.close()


@pytest.mark.req("agents.scenario.P9")
async def test_what_is_written_to_a_fake_process_can_be_seen() -> None:
    process = await FakeFactory().start(LaunchSpec(command=["fake"]))
    await process.write(b"one\ntw")
    await process.write(b"o\nthree")
    assert [await process.stdin_line(number) for number in range(2)] == [b"one", b"two"]
    process.close_stdin()
    await process.stdin_closed.wait()
    assert process.stdin_bytes == b"one\ntwo\nthree"
    with pytest.raises(EOFError):
        await process.stdin_line(2)
    await process.close()


async def test_what_a_fake_process_cannot_write_at_once_it_writes_later() -> None:
    process = await FakeFactory().start(LaunchSpec(command=["fake"]))
    process.write_output(b"x" * 3_000_000)
    process.finish_output()
    assert len(await process.stdout.read()) == 3_000_000
    await process.close()


async def test_a_start_that_fails_leaves_no_fake_process_open() -> None:
    def refuses(spec: LaunchSpec, process: object) -> None:
        raise OSError("not today")

    factory = FakeFactory(refuses)
    with pytest.raises(OSError, match="not today"):
        await factory.start(LaunchSpec(command=["fake"]))
    assert factory.processes[0].done.is_set()


async def test_in_text_format_a_real_one_prints_its_answer() -> None:
    from serai.compat.agentboot import OutputFormat

    toy = python("import sys; sys.stdin.read(); print('hello')")
    handle = await Runner(toy, ToyTransport, limits=Limits()).execute("go", ExecutionOptions(output_format=OutputFormat.TEXT))
    waited = await handle.wait()
    assert (waited.result.output, waited.error) == ("hello\n", None)
