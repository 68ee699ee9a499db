"""A runner's execution: how it begins, what it tells, how it ends (spec agents 1.8, 5.2)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from time import monotonic

import pytest

from serai.agents.drivers.claude.transcripts.files import InvalidPath
from serai.compat.agentboot import (
    AgentNotAvailable,
    ApprovalRequestEvent,
    ApprovalResponse,
    Cancelled,
    DeadlineExceeded,
    ErrorEvent,
    ExecutionOptions,
    FakeFactory,
    FakeProcess,
    HandleClosed,
    InvalidLaunch,
    LaunchSpec,
    MessageEvent,
    NoiseEvent,
    NoTerminalResult,
    OutputFormat,
    ProcessError,
    ProtocolError,
    Result,
    ResultError,
    Runner,
    RunnerConfig,
    StartFailed,
    StateChanged,
    Stderr,
    TurnCompleted,
    TurnStarted,
    Waited,
    new_runner,
    new_runner_with_factory,
)
from serai.errors import ExitStatus, SpawnFailed
from tests.support.agentboot.toy_agent import (
    PATIENT,
    Store,
    Toy,
    ToyTransport,
    collect_events,
    exit_when_stdin_closes,
    play_frames,
    result,
    run,
    runner,
    say_frame,
    texts,
)

QUICK = RunnerConfig(shutdown_grace_period=0.05)
HURRIED = PATIENT.but(agent_stop=0.05)  # for a process that does not heed SIGTERM


async def wait_stdin_closed(spec: LaunchSpec, process: FakeProcess) -> None:
    await process.stdin_closed.wait()


# -- a good run


@pytest.mark.req("agents.scenario.S1")
async def test_a_run_that_is_over_has_its_input_closed_and_is_a_success() -> None:
    ends: list[str] = []

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        await process.stdin_line(0)
        process.write_output(say_frame("hello"))
        process.write_output(result("bye"))
        await process.stdin_closed.wait()
        ends.append("input")
        process.finish_output()
        process.signal_exit()

    handle = await runner(play).execute("go")
    events = await collect_events(handle)
    assert ends == ["input"]
    assert [type(event) for event in events] == [TurnStarted, MessageEvent, TurnCompleted]
    waited = await handle.wait()
    assert waited.error is None
    assert waited.result.is_success()
    assert waited.result.answer() == "bye"
    assert [event.type for event in waited.result.events] == ["say", "result"]


@pytest.mark.req("agents.scenario.S2", "agents.edge.14")
async def test_one_that_does_not_end_after_its_result_is_killed_and_the_run_is_a_success_all_the_same() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(result("bye"))
        await asyncio.Event().wait()

    factory = FakeFactory(play, deaf=True, limits=HURRIED)
    deaf = Runner(Toy(), ToyTransport, factory, config=QUICK, limits=HURRIED)
    # The time-out comes in the middle of the grace and changes nothing.
    handle = await deaf.execute("go", ExecutionOptions(timeout=0.07))
    events = await collect_events(handle)
    assert [event for event in events if isinstance(event, ErrorEvent)] == []
    waited = await handle.wait()
    assert (waited.error, waited.result.exit_code, waited.result.error) == (None, 0, "")
    assert factory.processes[0].exit_status == ExitStatus(signal=9)


@pytest.mark.req("agents.rule.12")
async def test_every_frame_is_among_the_results_events_also_one_that_is_ignored_or_comes_too_late() -> None:
    events, waited = await run(
        play_frames({"type": "quiet"}, say_frame("hello"), {"type": "turn"}, result(), say_frame("too late"))
    )
    assert [event.type for event in waited.result.events] == ["quiet", "say", "turn", "result", "say"]
    assert texts(events) == ["hello"]
    assert waited.result.events[0].raw == '{"type":"quiet"}'


@pytest.mark.req("agents.rule.05")
async def test_the_first_input_is_written_line_by_line_and_its_end_does_not_close_stdin() -> None:
    received: list[bytes] = []

    async def values() -> object:
        for number in range(3):
            yield {"n": number}

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        received.extend([await process.stdin_line(number) for number in range(3)])
        process.write_output({"type": "ask", "id": "a"})
        received.append(await process.stdin_line(3))  # so it is still open
        process.write_output(result())
        await exit_when_stdin_closes(process)

    for given in (({"n": 0}, {"n": 1}, {"n": 2}), values()):
        received.clear()
        _, waited = await run(play, driver=Toy(initial_input=given))
        assert waited.error is None
        assert received[:3] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
        assert received[3].startswith(b'{"id":"a"')


@pytest.mark.req("agents.scenario.R1")
async def test_the_buffer_is_so_many_messages_and_then_the_reader_is_held_back() -> None:
    transport = ToyTransport()
    taken = transport.taken
    everything = [say_frame(str(number)) for number in range(10)]
    handle = await runner(
        play_frames(*everything, result()), transport=lambda: transport, config=RunnerConfig(stream_buffer_size=3)
    ).execute("go")
    events = handle.events()
    assert isinstance(await anext(events), TurnStarted)
    while len(taken) < 4:  # the fourth was read, and waits for room
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert taken == ["0", "1", "2", "3"]
    assert len(handle._execution.turns[0].unread()) == 3
    assert (await handle.wait()).error is None


async def test_who_only_waits_is_not_held_up_by_a_full_buffer() -> None:
    everything = [say_frame(str(number)) for number in range(20)]
    handle = await runner(play_frames(*everything, result()), config=RunnerConfig(stream_buffer_size=3)).execute("go")
    assert (await handle.wait()).result.is_success()


async def test_who_only_waits_approves_nothing() -> None:
    factory = FakeFactory(play_frames({"type": "ask", "id": "a", "input": {"command": "ls"}}, result()))
    handle = await runner(factory=factory).execute("go")
    assert (await handle.wait()).error is None
    assert b'"approved":false' in await factory.processes[0].stdin_line(1)


async def test_a_result_after_which_the_run_goes_on_is_told() -> None:
    events, waited = await run(play_frames(say_frame("one"), {"type": "turn"}, say_frame("two"), result()))
    assert [type(event) for event in events] == [TurnStarted, MessageEvent, TurnCompleted, MessageEvent, TurnCompleted]
    assert waited.error is None


async def test_a_frame_that_the_transport_cannot_read_is_told_and_the_run_goes_on() -> None:
    events, waited = await run(play_frames({"type": "bad"}, say_frame("hello"), result()))
    (noise,) = [event for event in events if isinstance(event, NoiseEvent)]
    assert noise == NoiseEvent(b'{"type":"bad"}', "the transport failed on it: cannot read that")
    assert texts(events) == ["hello"]
    assert waited.error is None


@pytest.mark.req("agents.scenario.R4")
async def test_a_line_that_is_no_frame_is_told_kept_and_counted_and_the_run_goes_on() -> None:
    events, waited = await run(play_frames(say_frame("one"), b'{"type": "say", \n', say_frame("two"), b"[1]\n", result()))
    noise = [event for event in events if isinstance(event, NoiseEvent)]
    assert [event.line for event in noise] == [b'{"type": "say",', b"[1]"]
    assert [event.why for event in noise] == [noise[0].why, "not a JSON object"]
    assert noise[0].why.startswith("not JSON")
    assert texts(events) == ["one", "two"]
    assert waited.error is None
    assert waited.result.metadata["noise"] == 2
    assert [event.raw for event in waited.result.get_messages_by_type("noise")] == ['{"type": "say",', "[1]"]


# -- how it fails


@pytest.mark.req("agents.scenario.R3", "agents.rule.13")
async def test_one_that_exits_badly_before_any_result_is_a_process_error() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_stderr("no such model\n")
        process.finish_output()
        process.signal_exit(23)

    events, waited = await run(play)
    assert isinstance(waited.error, ProcessError)
    assert (waited.error.exit_code, waited.error.agent, waited.result.exit_code) == (23, "toy", 23)
    assert "process exited with code 23" in str(waited.error)
    assert "no such model" in str(waited.error)
    assert waited.result.error == str(waited.error)
    assert [event.err for event in events if isinstance(event, ErrorEvent)] == [waited.error]
    assert isinstance(events[-1], ErrorEvent)


@pytest.mark.req("agents.scenario.R5", "agents.rule.13")
async def test_a_stream_that_ends_without_a_result_is_a_protocol_error() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(say_frame("hello"))
        process.finish_output()
        process.signal_exit(0)

    events, waited = await run(play)
    assert isinstance(waited.error, ProtocolError)
    assert isinstance(waited.error.__cause__, NoTerminalResult)
    assert waited.error.cause is waited.error.__cause__
    assert "stream ended without a terminal result" in waited.result.error
    assert [event.err for event in events if isinstance(event, ErrorEvent)] == [waited.error]


@pytest.mark.req("agents.edge.15", "agents.rule.13")
async def test_an_error_result_and_then_a_bad_exit_are_one_error() -> None:
    frame = result(is_error=True, subtype="error_max_turns", errors=["too many turns", "of 3"])

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(frame)
        await exit_when_stdin_closes(process, 1)

    events, waited = await run(play)
    assert isinstance(waited.error, ResultError)
    assert (waited.error.subtype, waited.error.details) == ("error_max_turns", ("too many turns", "of 3"))
    assert "returned an error result (error_max_turns): too many turns; of 3" in waited.result.error
    assert not waited.result.is_success()
    assert [event for event in events if isinstance(event, ErrorEvent)] == []


async def test_a_failure_that_calls_itself_a_success_is_not_called_so() -> None:
    _, waited = await run(play_frames(result("API Error: 500", is_error=True, subtype="success", api_error_status=500)))
    assert isinstance(waited.error, ResultError)
    assert str(waited.error) == "toy: returned an error result: API Error: 500"
    assert (waited.error.kind, waited.error.status) == ("api_error", 500)


@pytest.mark.req("agents.edge.16")
async def test_a_crash_after_a_success_is_a_success_with_a_warning() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(result())
        await process.stdin_closed.wait()
        process.child.die(ExitStatus(signal=11))

    events, waited = await run(play)
    assert (waited.error, waited.result.exit_code) == (None, 0)
    assert waited.result.metadata["warnings"] == ["its process ended badly after its result: killed by SIGSEGV"]
    assert [event for event in events if isinstance(event, ErrorEvent)] == []


@pytest.mark.req("agents.scenario.R2", "agents.rule.09")
async def test_the_default_time_out_ends_a_silent_run_promptly() -> None:
    took = []
    for _ in range(5):  # a busy machine may be late once
        began = monotonic()
        handle = await runner(wait_stdin_closed, config=RunnerConfig(default_execution_timeout=0.04)).execute("go")
        waited = await handle.wait()
        took.append(monotonic() - began)
        assert isinstance(waited.error, DeadlineExceeded)
        assert isinstance(waited.error, TimeoutError)
        assert "deadline exceeded" in str(waited.error)
        assert waited.result.error == str(waited.error)
        if took[-1] < 0.5:
            break
    assert min(took) < 0.5


@pytest.mark.req("agents.rule.09")
@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [(0, 0, 3600.0), (0, 7.0, 7.0), (5.0, 7.0, 5.0), (-1, 7.0, None), (0, -1, None), (5.0, -1, 5.0)],
)
async def test_the_time_of_a_run(asked: float, default: float, expected: float | None) -> None:
    handle = await runner(play_frames(result()), config=RunnerConfig(default_execution_timeout=default)).execute(
        "go", ExecutionOptions(timeout=asked)
    )
    assert handle._execution._timeout == expected
    await collect_events(handle)


@pytest.mark.req("agents.rule.13")
async def test_what_the_agent_says_counts_before_a_cancellation_and_that_before_what_it_looks_like() -> None:
    told = asyncio.Event()

    async def failing(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(result("no", is_error=True))
        told.set()
        await exit_when_stdin_closes(process, 1)

    handle = await runner(failing).execute("go")
    await told.wait()
    events = await collect_events(handle)
    handle.cancel()
    assert isinstance((await handle.wait()).error, ResultError)
    assert isinstance(events[-1], TurnCompleted)

    handle = await runner(wait_stdin_closed).execute("go")
    handle.cancel()
    waited = await handle.wait()
    assert isinstance(waited.error, Cancelled)  # and not that its process was killed, or that there is no result
    assert waited.result.error == str(waited.error)


@pytest.mark.req("agents.edge.07")
async def test_to_cancel_is_legal_at_any_time_and_from_the_consumer() -> None:
    factory = FakeFactory(play_frames(say_frame("hello"), {"type": "ask", "id": "a"}, result()), limits=PATIENT)
    handle = await runner(factory=factory).execute("go")
    events = []
    async for event in handle.events():
        events.append(event)
        if isinstance(event, ApprovalRequestEvent):
            handle.cancel()
            handle.cancel()
            with pytest.raises(HandleClosed):
                await handle.respond(event.id, ApprovalResponse(approved=True))
    assert isinstance((await handle.wait()).error, Cancelled)
    handle.cancel()
    assert isinstance((await handle.wait()).error, Cancelled)
    assert [event for event in events if isinstance(event, ErrorEvent)] == []
    assert factory.processes[0].exit_status == ExitStatus(signal=15)


@pytest.mark.req("agents.edge.09")
async def test_one_that_closes_its_output_and_lives_on_has_its_grace_and_then_the_ladder() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.finish_output()
        await asyncio.Event().wait()

    limits = HURRIED.but(exit_grace=0.05)
    factory = FakeFactory(play, deaf=True, limits=limits)
    events, waited = await run(play, factory=factory, config=QUICK, limits=limits)
    assert isinstance(waited.error, ProtocolError)
    assert isinstance(waited.error.cause, NoTerminalResult)
    assert factory.processes[0].child.signals == [15, 9]
    assert isinstance(events[-1], ErrorEvent)


@pytest.mark.req("agents.edge.35")
async def test_a_storm_of_retries_ends_with_the_time_of_the_run() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        while True:
            process.write_output({"type": "quiet", "subtype": "api_retry"})
            await asyncio.sleep(0.005)

    _, waited = await run(play, ExecutionOptions(timeout=0.1))
    assert isinstance(waited.error, DeadlineExceeded)
    assert len(waited.result.events) > 1


@pytest.mark.req("agents.edge.35")
async def test_one_that_says_nothing_for_long_is_told_of_as_stalled_once() -> None:
    go_on = asyncio.Event()

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(say_frame("hello"))
        await go_on.wait()
        process.write_output(result())
        await exit_when_stdin_closes(process)

    handle = await runner(play, limits=PATIENT.but(agent_silent=0.05)).execute("go")
    events = []
    async for event in handle.events():
        events.append(event)
        if isinstance(event, StateChanged):
            go_on.set()
    assert [event for event in events if isinstance(event, StateChanged)] == [StateChanged("stalled")]
    assert (await handle.wait()).error is None


@pytest.mark.req("agents.edge.28")
async def test_a_runs_duration_does_not_care_for_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        monkeypatch.setattr("time.time", lambda: 4e9)
        monkeypatch.setattr("serai.agents.event_hub.time", lambda: 4e9)
        process.write_output(result())
        await exit_when_stdin_closes(process)

    began = monotonic()
    _, waited = await run(play)
    assert 0 < waited.result.duration <= monotonic() - began


# -- text


@pytest.mark.req("agents.edge.33")
async def test_in_text_format_bytes_are_read_and_nothing_is_taken_for_json() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        await process.stdin_closed.wait()  # nobody has more to say
        for piece in (b'{"type": "result"', ", und grü".encode(), "ß".encode()[:1], "ß".encode()[1:], b"e \xff\n{oops"):
            process.write_output(piece)
        process.finish_output()
        process.signal_exit()

    events, waited = await run(play, ExecutionOptions(output_format=OutputFormat.TEXT))
    assert waited.error is None
    assert waited.result.output == '{"type": "result", und grüße \ufffd\n{oops'
    assert waited.result.text_output() == waited.result.output
    assert waited.result.format == OutputFormat.TEXT
    assert waited.result.events == []
    assert "".join(message.delta for message in texts(events)) == waited.result.output


@pytest.mark.req("agents.edge.33")
async def test_in_text_format_the_exit_decides() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output("half an answer")
        process.finish_output()
        process.signal_exit(2)

    _, waited = await run(play, ExecutionOptions(output_format=OutputFormat.TEXT))
    assert isinstance(waited.error, ProcessError)
    assert (waited.result.output, waited.result.exit_code) == ("half an answer", 2)


# -- what is not started


@pytest.mark.req("agents.rule.10")
async def test_one_that_is_not_there_or_cannot_be_prepared_starts_nothing() -> None:
    class Broken(Toy):
        def prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
            raise ValueError("no such flag")

    factory = FakeFactory()
    with pytest.raises(AgentNotAvailable, match="agent CLI not available"):
        await runner(driver=Toy(available=False), factory=factory).execute("go")
    with pytest.raises(InvalidLaunch, match="prepare launch spec: no such flag"):
        await runner(driver=Broken(), factory=factory).execute("go")
    with pytest.raises(InvalidLaunch, match="the transport factory returned nothing"):
        await runner(transport=lambda: None, factory=factory).execute("go")
    assert factory.specs == []


@pytest.mark.req("agents.rule.04")
async def test_an_empty_command_is_refused() -> None:
    factory = FakeFactory()
    with pytest.raises(InvalidLaunch, match="empty launch command"):
        await runner(driver=Toy([]), factory=factory).execute("go")
    assert factory.specs == []


@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_prompt_starts_nothing(prompt: str) -> None:
    factory = FakeFactory()
    with pytest.raises(ValueError, match="an empty prompt asks nothing"):
        await runner(factory=factory).execute(prompt)
    assert factory.specs == []


@pytest.mark.req("agents.edge.23")
async def test_a_folder_that_is_none_is_told_before_anything_is_started(tmp_path: Path) -> None:
    factory = FakeFactory()
    (tmp_path / "file").touch()
    for path, why in (("missing", "it does not exist"), ("file", "it is no folder")):
        with pytest.raises(InvalidPath, match=why):
            await runner(factory=factory).execute("go", ExecutionOptions(project_path=str(tmp_path / path)))
        with pytest.raises(InvalidPath, match=why):
            await runner(driver=Toy(work_dir=str(tmp_path / path)), factory=factory).execute("go")
    assert factory.specs == []


@pytest.mark.req("agents.edge.23")
async def test_a_folder_that_is_gone_in_the_middle_is_why_it_failed(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        os.rmdir(spec.work_dir)
        process.write_output(result("ENOENT", is_error=True))
        await exit_when_stdin_closes(process, 1)

    _, waited = await run(play, ExecutionOptions(project_path=str(folder)))
    assert isinstance(waited.error, ResultError)
    assert waited.error.kind == "cwd_unavailable"


@pytest.mark.req("agents.rule.11")
@pytest.mark.parametrize("session", ["", "s1"])
async def test_a_process_that_cannot_be_started_raises_and_is_told_as_failed_alone(session: str) -> None:
    def refuses(spec: LaunchSpec, process: FakeProcess) -> None:
        raise SpawnFailed("too many open files", errno=24)

    store = Store()
    with pytest.raises(StartFailed, match="start process: too many open files") as raised:
        await runner(factory=FakeFactory(refuses)).execute("go", ExecutionOptions(store=store, session_id=session))
    assert raised.value.errno == 24
    assert store.calls == ([("failed", "s1", str(raised.value))] if session else [])


# -- small things


def test_a_runner_has_a_default_format_of_its_own() -> None:
    toy = new_runner(Toy(), ToyTransport())
    assert toy.get_default_format() == OutputFormat.STREAM_JSON
    toy.set_default_format(OutputFormat.TEXT)
    assert toy.get_default_format() == OutputFormat.TEXT
    assert (toy.type(), toy.is_available()) == ("toy", True)


async def test_a_transport_that_is_given_is_copied_for_each_run() -> None:
    transport = ToyTransport()
    factory = FakeFactory(play_frames(say_frame("hello"), result()))
    handle = await new_runner_with_factory(Toy(), transport, factory).execute("go", ExecutionOptions(chat_id="c"))
    assert texts(await collect_events(handle)) == ["hello"]
    assert (transport.taken, transport.stamps) == ([], {})


async def test_lines_of_stderr_are_told() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_stderr("careful\r\nnow")
        process.write_output(say_frame("hello"))
        await process.stdin_line(0)
        process.write_stderr(" then\n")
        while not process.stderr.endswith("then\n"):
            await asyncio.sleep(0)
        process.write_output(result())
        await exit_when_stdin_closes(process)

    events, _ = await run(play)
    assert [event.line for event in events if isinstance(event, Stderr)] == ["careful", "now then"]


@pytest.mark.req("agents.edge.26")
async def test_lines_of_stderr_that_nobody_reads_are_not_piled_up() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        for number in range(5000):
            process.write_stderr(f"noise {number}\n")
            if number % 100 == 0:
                await asyncio.sleep(0)
        while not process.stderr.endswith("noise 4999\n"):
            await asyncio.sleep(0)
        process.write_output(result())
        await exit_when_stdin_closes(process)

    factory = FakeFactory(play, limits=PATIENT)
    handle = await runner(factory=factory, config=RunnerConfig(stream_buffer_size=10)).execute("go")
    events = handle.events()
    await anext(events)
    await factory.processes[0].done.wait()
    assert len([event async for event in events if isinstance(event, Stderr)]) <= 10


async def test_the_end_of_events_comes_after_the_end_of_the_process() -> None:
    factory = FakeFactory(play_frames(say_frame("hello"), result()))
    handle = await runner(factory=factory).execute("go")
    await collect_events(handle)
    assert factory.processes[0].done.is_set()
    waiting = handle.wait()
    with pytest.raises(StopIteration) as there:  # at once
        waiting.send(None)
    assert isinstance(there.value.value, Waited)


def test_a_result_that_was_waited_for_can_be_unwrapped() -> None:
    assert Waited(Result(output="x")).unwrap().output == "x"
    with pytest.raises(KeyError):
        Waited(Result(), KeyError("x")).unwrap()
