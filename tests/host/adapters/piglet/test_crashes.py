"""A guest that ends by itself: what is told, what stays in place, when it comes back and when it does not (spec piglet 8.0)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.errors import ExitStatus, PeerGone, PeerTimeout, SpawnFailed
from serai.host.adapters.piglet import ADAPTER
from serai.host.adapters.piglet.transport import WireChoice
from serai.host.guest import GuestState
from serai.limits import Limits
from serai.model.actions import CloseOverlay, SetWidget
from serai.model.tools import ToolCall
from serai.wire import process_tree
from tests.support.app import apps
from tests.support.app.apps import Person
from tests.support.host.zot_guests import (
    AwaitableSurface,
    kill_guest,
    log_of,
    open_host,
    pid_of,
    record_states,
    wait_for_state,
    wait_until_reaped,
)
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, wait_for_note
from tests.support.piglet.raw_guests import notices, write_bare_guest
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import ask, crash, fault, note, tell, throw, wait, where
from tests.support.processes import Ends

pytestmark = ONE_LOOP


# -- what stays, and what goes


@pytest.mark.req("piglet.rule.crash-in-place")
async def test_all_that_a_crashed_guest_offers_stays_and_nothing_shadowed_comes_forward(tmp_path: Path) -> None:
    """Two guests and a built-in have a tool of the same name; who crashes is the one that counts."""
    other = write(tmp_path, "other", tools={"look": "from the other", "read": "no"}, commands=["go"])
    folder = write(
        tmp_path,
        "weather",
        tools={"look": "fog", "read": "mine", "die": [crash()]},
        commands=["go"],
        sections={"Units": "Use metric."},
        shortcuts={"ctrl+g": []},
        transformers={"alias": []},
        hooks={"clock": []},
        handlers={"meter": []},
        providers={"acme": []},
        compactor=[],
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[guest."piglet:weather"]\nreplace = ["read"]\n')
    limits = {**apps.PATIENT, **SLOW_RESTART}
    async with apps.open_app(tmp_path, other, folder, limits=limits) as app:
        host = app.host
        offered = host.guest("weather").contributions
        assert (await app.call_tool(ToolCall("read", {}))).text == "mine"
        await app.call_tool(ToolCall("die", {}))
        await wait_for_state(host, "weather", GuestState.BACKING_OFF)
        assert host.guest("weather").contributions == offered
        assert {host.table.tools[name].owner.id for name in ("look", "read", "die")} == {"piglet:weather"}
        for name in ("look", "read", "die"):
            result = await app.call_tool(ToolCall(name, {}))
            assert result.code == "TOOL_UNAVAILABLE"
            assert "piglet:weather is backing off: extension weather closed (exit status 3)" in result.text
        outcome = await host.run_command("go")
        assert outcome.code == "COMMAND_UNAVAILABLE"


@pytest.mark.req("piglet.rule.crash-pending")
async def test_whoever_waits_for_it_is_told_at_once_how_it_ended(tmp_path: Path) -> None:
    begun = [tmp_path / f"begun-{number}" for number in range(3)]
    slow = {f"slow{number}": [note(file), wait()] for number, file in enumerate(begun)}
    folder = write(tmp_path, "weather", tools={**slow, "die": [crash(7)]}, commands={"slow": [note(tmp_path / "cmd"), wait()]})
    async with open_host(tmp_path, folder, limits=SLOW_RESTART) as host:
        calls = [asyncio.create_task(host.call_tool(name)) for name in slow]
        command = asyncio.create_task(host.run_command("slow"))
        for file in (*begun, tmp_path / "cmd"):
            await wait_for_note(file)
        ended = await host.call_tool("die")
        results = await asyncio.gather(*calls)
        for name, result in zip((*slow, "die"), (*results, ended), strict=True):
            assert (result.is_error, result.code) == (True, "TOOL_UNAVAILABLE")
            assert result.text.startswith(f"ext weather tool {name}: extension weather closed (exit status 7)")
            assert result.text.endswith("stderr ended with: fatal: it was told to crash")
        outcome = await command
        assert outcome.error.startswith("Command error: command slow: extension weather closed (exit status 7)")
        error = host.guest("weather").error
        assert isinstance(error, PeerGone)
        assert (error.message, error.exit, error.stderr) == (
            "extension weather closed",
            ExitStatus(code=7),
            "fatal: it was told to crash\n",
        )


@pytest.mark.req("piglet.rule.crash-pending")
async def test_what_it_had_asked_for_and_put_on_the_screen_goes_with_it(tmp_path: Path) -> None:
    """A dialog, a call of another guest's tool, a widget and an overlay."""
    begun, over = tmp_path / "begun", tmp_path / "over"
    shown = [
        tell("setWidget", {"key": "wx", "placement": "above-input", "content": "7 degrees"}),
        tell("showOverlay", {"key": "map", "content": "radar"}),
    ]
    folder = write(
        tmp_path,
        "weather",
        commands={
            "pick": [*shown, ask("host/askUser", {"prompt": "Send?", "choices": ["yes", "no"]})],
            "call": [ask("host/executeTool", {"name": "slow", "args": {}})],
        },
        tools={"die": [crash()]},
    )
    other = write(tmp_path, "other", tools={"slow": [note(begun), wait(), note(over)]})
    asked: asyncio.Queue[str] = asyncio.Queue()

    class Thoughtful(Person):
        interactive = True

        async def ask(self, request: Any) -> Any:
            asked.put_nowait("asked")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                asked.put_nowait("taken back")

    person, limits = Thoughtful(), {**apps.PATIENT, **SLOW_RESTART}
    async with apps.open_app(tmp_path, folder, other, surface=person, limits=limits) as app:
        commands = [asyncio.create_task(app.host.run_command(name)) for name in ("pick", "call")]
        assert await asyncio.wait_for(asked.get(), 30) == "asked"
        await wait_for_note(begun)
        await app.host.call_tool("die")
        assert await asyncio.wait_for(asked.get(), 30) == "taken back"
        await wait_for_note(over)  # its handler was cancelled, and went on to its end
        for command in commands:
            assert (await command).code == "COMMAND_UNAVAILABLE"
        await wait_for_state(app.host, "weather", GuestState.BACKING_OFF)
        assert [one for one in person.actions if isinstance(one, SetWidget | CloseOverlay)][1:] == [
            SetWidget("wx", "above-input", ""),
            CloseOverlay("map"),
        ]


# -- when it comes back


@pytest.mark.req("piglet.rule.crash-backoff")
async def test_restarts_wait_longer_each_time_and_the_sixth_failure_ends_them(tmp_path: Path) -> None:
    window, usual = AwaitableSurface(), Limits()
    limits = {"restart_wait": usual.restart_wait, "restart_wait_most": usual.restart_wait_most}
    async with open_host(tmp_path, write(tmp_path, "weather", tools=["look"]), surface=window, limits=limits) as host:
        guest, waits = host.guest("weather"), []
        for failure in range(1, 7):
            now = asyncio.get_running_loop().time()
            await kill_guest(host, "weather")
            assert guest.failures == failure
            if guest.state is GuestState.GONE:
                break
            assert guest._timer is not None
            waits.append(round(guest._timer.when() - now))
            guest._timer.cancel()
            await guest._restart()  # as the timer would
        assert (waits, guest.failures) == ([1, 2, 4, 8, 16], 6)
        assert (guest.state, guest._timer) == (GuestState.GONE, None)
        assert notices(window) == [
            ("warn", "weather crashed, restarting..."),
            ("error", "weather crashed and could not be restarted"),
        ]
        assert (await host.call_tool("look")).code == "TOOL_UNAVAILABLE"


@pytest.mark.req("piglet.rule.crash-backoff")
async def test_a_life_of_30_seconds_resets_the_count(tmp_path: Path) -> None:
    assert (Limits().restart_healthy, ADAPTER.limits.get("restart_healthy", 30.0)) == (30.0, 30.0)
    async with open_host(tmp_path, write(tmp_path, "weather")) as host:
        guest = host.guest("weather")
        for lived, failures in ((0, 1), (25, 2), (30, 1), (0, 2)):
            assert guest.run is not None
            guest.run.since -= lived
            await kill_guest(host, "weather")
            assert guest.failures == failures
            await wait_for_state(host, "weather", GuestState.READY)


@pytest.mark.req("piglet.fix.34")
@pytest.mark.parametrize("how", ["exits", "refuses", "spawn"])
async def test_a_restart_that_fails_is_one_more_crash_up_to_the_limit(tmp_path: Path, how: str) -> None:
    starts, window = tmp_path / "starts", AwaitableSurface()
    folder = write(tmp_path, "weather", tools={"look": "fog"})
    async with open_host(tmp_path, folder, surface=window, limits={"restarts": 3}) as host:
        guest, first = host.guest("weather"), pid_of(host, "weather")
        if how == "spawn":
            (folder / "guest").unlink()
        else:
            last = {"exits": crash(9), "refuses": throw("no key")}[how]
            write(tmp_path, "weather", at_start=[note(starts)], initialize=[last])
        seen = record_states(host, "weather")
        await kill_guest(host, "weather")
        await wait_for_state(host, "weather", GuestState.GONE)
        assert (guest.failures, guest.generation) == (4, 4)
        assert seen.count(GuestState.BACKING_OFF) == seen.count(GuestState.STARTING) == 3
        await asyncio.wait_for(wait_until_reaped(first), 15)
        if how != "spawn":
            await asyncio.wait_for(wait_until_reaped(int(starts.read_text())), 15)
        assert [tool.name for tool in host.tools] == ["look"]
        assert (await host.call_tool("look")).code == "TOOL_UNAVAILABLE"
        assert notices(window)[-1] == ("error", "weather crashed and could not be restarted")
        write(tmp_path, "weather", tools={"look": "back"})
        await host.reload("weather")
        assert ((await host.call_tool("look")).text, guest.failures) == ("back", 0)


# -- at the beginning


@pytest.mark.req("piglet.edge.28")
@pytest.mark.parametrize("when", ["at_start", "at_init", "initialize"])
async def test_a_crash_during_the_handshake_is_told_once_and_followed_by_nothing(tmp_path: Path, when: str) -> None:
    window, steps = AwaitableSurface(), {when: [crash(4)]}
    folder = write(tmp_path, "weather", tools=["look"], **steps)  # type: ignore[arg-type]
    async with open_host(tmp_path, folder, write(tmp_path, "other", tools={"other": "here"}), surface=window) as host:
        guest = host.guest("weather")
        assert (guest.state, guest.generation, guest.failures, guest._timer) == (GuestState.GONE, 1, 0, None)
        assert isinstance(guest.error, PeerGone)
        assert guest.error.message == "initialize weather: extension weather closed"
        assert guest.error.exit == ExitStatus(code=4)
        [line] = host.report.to_lines()
        assert "initialize weather: extension weather closed (exit status 4)" in line
        assert notices(window) == []
        assert (await host.call_tool("other")).text == "here"


@pytest.mark.req("piglet.edge.28")
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("way", ["3, 4", "0, 1"])
async def test_one_that_answers_and_ends_is_never_taken_for_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, late: bool
) -> None:
    """`late`: its end is there before anybody has looked at its answer."""
    usual = WireChoice.wait_for_answer

    async def first(self: WireChoice, *args: Any) -> Any:
        side, answer = await usual(self, *args)
        while late and side.rpc.lost_cause is None:
            await asyncio.sleep(0)
        return side, answer

    monkeypatch.setattr(WireChoice, "wait_for_answer", first)
    body = f"read, write = {way}\nnext(lines(read))\nsay(write, tool('look'), hello())\nos._exit(8)"
    async with open_host(tmp_path, write_bare_guest(tmp_path, body), limits={"restarts": 1}) as host:
        await wait_for_state(host, "bare", GuestState.GONE)
        error = host.guest("bare").error
        assert isinstance(error, PeerGone)
        assert error.exit == ExitStatus(code=8)
        assert host.guest("bare").running is None


@pytest.mark.req("piglet.rule.handshake-timeout")
@pytest.mark.parametrize("how", ["spawn", "exit", "mute", "deaf", "closes"])
async def test_who_cannot_begin_is_ended_and_not_supervised(tmp_path: Path, how: str) -> None:
    note_ = "note('began', str(os.getpid()))\n"
    bodies = {
        "spawn": "",
        "exit": f"{note_}sys.exit('no licence')",
        "mute": f"{note_}for m in lines(3): pass\nsignal.pause()",
        "deaf": f"{note_}signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()",
        "closes": f"{note_}os.close(4), os.close(1)\nwhile True: signal.pause()",
    }
    folder = write_bare_guest(tmp_path, bodies[how])
    if how == "spawn":
        (folder / "guest").unlink()
    limits = {"exit_grace": 0.2} | ({"hello": 0.5} if how in ("mute", "deaf") else {})
    async with open_host(tmp_path, folder, limits=limits) as host:
        guest = host.guest("bare")
        assert (guest.state, guest.generation, guest._timer, guest.running) == (GuestState.GONE, 1, None, None)
        assert host._spawner is not None
        assert not host._spawner.children  # closed: no descriptor of it is left
        kind, why = {
            "spawn": (SpawnFailed, f"start bare: {folder / 'guest'} does not exist"),
            "exit": (PeerGone, "initialize bare: extension bare closed"),
            "mute": (PeerTimeout, "initialize bare: context deadline exceeded"),
            "deaf": (PeerTimeout, "initialize bare: context deadline exceeded"),
            "closes": (PeerGone, "initialize bare: extension bare closed"),
        }[how]
        assert guest.error is not None
        assert (type(guest.error), guest.error.message) == (kind, why)
        if how == "exit":
            assert "no licence" in guest.error.stderr
        if (folder / "began").exists():
            assert process_tree.read_process(int((folder / "began").read_text())) is None
    assert ADAPTER.limits["hello"] == 10.0


# -- odd ends


@pytest.mark.req("piglet.edge.11")
async def test_one_that_closes_its_end_and_lives_on_has_crashed_and_is_killed(tmp_path: Path) -> None:
    window = AwaitableSurface()
    folder = write(tmp_path, "weather", tools={"hang": [fault("stubborn"), fault("close-wire")], "look": "fog"})
    limits = {"exit_grace": 0.1, "stop_polite": 0.05, "stop_term": 0.05}
    async with open_host(tmp_path, folder, surface=window, limits=limits) as host:
        pid = pid_of(host, "weather")
        result = await asyncio.wait_for(host.call_tool("hang"), 30)
        assert (result.code, "extension weather closed" in result.text) == ("TOOL_UNAVAILABLE", True)
        await asyncio.wait_for(wait_until_reaped(pid), 30)
        await wait_for_state(host, "weather", GuestState.READY)
        assert (await host.call_tool("look")).text == "fog"
        assert notices(window) == [("warn", "weather crashed, restarting...")]
        assert log_of(host, "weather").count("crashed: extension weather closed") == 1


@pytest.mark.req("piglet.edge.12")
@pytest.mark.parametrize("sdk", ["go", "typescript"])
async def test_a_grandchild_that_holds_the_wire_cannot_delay_its_end(tmp_path: Path, sdk: Any) -> None:
    held = tmp_path / "held"
    folder = write(tmp_path, "weather", sdk=sdk, tools={"hold": [fault("holder", pid_file=str(held))], "where": [where()]})
    async with open_host(tmp_path, folder, limits={"drain_grace": 0.1}) as host:
        result = await asyncio.wait_for(host.call_tool("hold"), 30)
        assert (result.code, "extension weather closed" in result.text) == ("TOOL_UNAVAILABLE", True)
        with Ends([int(await wait_for_note(held))]) as holders:
            await wait_for_state(host, "weather", GuestState.READY)
            assert not (await host.call_tool("where")).is_error
            assert await asyncio.to_thread(holders.left_after, 30) == set()


@pytest.mark.req("piglet.edge.12")
async def test_nor_can_it_delay_a_stop(tmp_path: Path) -> None:
    """The guest goes with its input and leaves somebody behind who has the wire."""
    body = """
next(lines(3))
os.set_inheritable(4, True)
pid = os.posix_spawn(sys.executable, [sys.executable, "-ISc", "import signal; signal.pause()"], os.environ, setsid=True)
note("left", str(pid))
say(4, tool("look"), hello())
serve(3, 4)
"""
    folder = write_bare_guest(tmp_path, body)
    async with open_host(tmp_path, folder, limits={"drain_grace": 60.0, "exit_grace": 60.0}) as host:
        with Ends([int(await wait_for_note(folder / "left"))]) as left:
            await asyncio.wait_for(host.guest("bare").stop(), 15)
            assert await asyncio.to_thread(left.left_after, 15) == set()


@pytest.mark.req("piglet.rule.handshake-timeout")
async def test_a_node_that_runs_no_typescript_says_what_would(tmp_path: Path) -> None:
    """As node before 22.18 does: its own words are in the error, and what to do beside them."""
    says = 'TypeError [ERR_UNKNOWN_FILE_EXTENSION]: Unknown file extension ".ts" for /x/main.ts'
    folder = write_bare_guest(tmp_path, f"os.write(2, {says!r}.encode())\nsys.exit(1)")
    async with open_host(tmp_path, folder) as host:
        error = host.guest("bare").error
        assert error is not None
        assert "ERR_UNKNOWN_FILE_EXTENSION" in str(error)
        assert error.hint.startswith("this node runs no TypeScript: 22.18 and newer do")
