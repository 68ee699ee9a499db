"""A handler that forks has run twice: its copy has no wire, and ends where the handler does (spec piglet 8.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.sdk.piglet_programs import Driven, write_program

FORK = """
import asyncio, os, signal

def forked():
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a copy that goes on is found out, and outlives no test
    return pid

def tell(status):
    ext.host.show_message(f"the copy ended with {{os.waitstatus_to_exitcode(status)}}")

async def later(*given):
    if (pid := forked()) == 0:
        {child}
    tell((await asyncio.to_thread(os.waitpid, pid, 0))[1])

def now(*given):
    if (pid := forked()) == 0:
        {child}
    tell(os.waitpid(pid, 0)[1])

async def second(*given):
    await asyncio.sleep(0)

@ext.tool
async def well() -> str:
    return "well"
"""

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "message hook": ("ext.message_hook", "messageHook/onMessage", {"message": "x"}),
    "event": ("ext.on_event('EventTurnEnd')", "event/dispatch", {"type": "EventTurnEnd", "data": {}}),
    "event of zot": ("ext.on('turn_end')", "event/dispatch", {"type": "EventTurnEnd", "data": {}}),
    "shortcut": ("ext.shortcut('ctrl+g')", "shortcut/handle", {"key": "ctrl+g"}),
    "input": ("ext.input_transformer", "inputTransformer/transform", {"input": "x"}),
    "result": ("ext.after(name='g')", "interceptor/after", {"name": "g", "toolName": "t", "details": {}}),
    "compactor": ("ext.compactor", "compact/execute", {"messages": []}),
    "provider": ("ext.provider('acme')", "provider/stream", {"requestId": 9, "model": {"api": "acme"}}),
}
ENDS = {"return": 0, "raise SystemExit(7)": 7, "raise ValueError": 1, "raise asyncio.CancelledError": 1}


def check(host: Driven, status: int) -> None:
    assert host.hear("showMessage")["params"] == {"text": f"the copy ended with {status}"}
    assert host.text("well") == "well"
    assert host.end() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_of_an_async_handler_ends(tmp_path: Path, kind: str) -> None:
    offer, method, params = KINDS[kind]
    with Driven(write_program(tmp_path, f"{FORK.format(child='return')}\n{offer}(later)")) as host:
        host.begin()
        assert "result" in host.answer(host.ask(method, params))
        check(host, 0)


@pytest.mark.parametrize("child", ENDS)
def test_the_copy_ends_however_its_handler_does(tmp_path: Path, child: str) -> None:
    with Driven(write_program(tmp_path, f"{FORK.format(child=child)}\next.message_hook(later)")) as host:
        host.begin()
        assert host.call("messageHook/onMessage", message="x") == {"injection": ""}
        check(host, ENDS[child])


def test_a_copy_calls_no_further_handler(tmp_path: Path) -> None:
    """An async one would be waited for on a loop that runs in no copy."""
    hooks = "ext.message_hook(priority=1)(now)\next.message_hook(priority=2)(second)"
    with Driven(write_program(tmp_path, f"{FORK.format(child='return')}\n{hooks}")) as host:
        host.begin()
        assert host.call("messageHook/onMessage", message="x") == {"injection": ""}
        check(host, 0)


@pytest.mark.parametrize("child", ENDS)
@pytest.mark.parametrize("how", ["later", "now"])
def test_the_copy_of_a_function_that_nobody_waits_for_ends(tmp_path: Path, how: str, child: str) -> None:
    body = f"{FORK.format(child=child)}\next.on_init(lambda: ext.host.bus.subscribe('a', {how}).ready(30) and None)"
    with Driven(write_program(tmp_path, body)) as host:
        initialize = host.ask("initialize", {"cwd": "/"})
        host.serve("host/subscribe", {"subscriptionId": 7})
        host.answer(initialize)
        host.note("eventBus/event", {"topic": "a", "subscriptionId": 7, "data": 1})
        check(host, ENDS[child])
