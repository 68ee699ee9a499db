"""A worker that is not what it was: whatever it says hurts nobody but itself."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi import messages
from serai.errors import BadFrame, BadManifest, PeerGone, PeerTimeout, SeraiError
from tests.conftest import PATIENT
from tests.support.processes import Ends
from tests.support.yoi import components
from tests.support.yoi.workers import BEGIN, LONG, READY, ReplacingSpawner, WorkerHarness, wait_forever


def replace_worker(harness: WorkerHarness, code: str) -> None:
    harness.spawner = ReplacingSpawner(harness.spawner, code)


IN_A_CALL = {
    "no JSON": 'say(b"what\\n")',
    "no UTF-8": 'say(b\'{"type":"ok","id":1,"text":"\\xff"}\\n\')',
    "no frame": "say([1, 2, 3])",
    "a blank line": 'say(b"\\n")',
    "deep": 'say(b"[" * 100000 + b"\\n")',
    "unknown": 'say({"type": "exec", "id": 1})',
    "another's id": 'say({"type": "ok", "id": 2, "text": "x"})',
    "no id": 'say({"type": "ok", "text": "x"})',
    "a number for a text": 'say({"type": "ok", "id": 1, "text": 5})',
    "a lone surrogate": 'say(b\'{"type":"ok","id":1,"text":"\\\\ud800"}\\n\')',
    "too long an answer": 'say({"type": "ok", "id": 1, "text": "x" * 65537})',
    "too long an answer of wide characters": 'say({"type": "ok", "id": 1, "text": "é" * 40000})',
    "begins again": "say(LOADED)",
    "is ready again": 'say({"type": "ready"})',
    "an unknown interface": 'say(host(1, api="exec"))',
    "an unknown function": 'say(host(1, function="remove"))',
    "odd arguments": "say(host(1, args=[1]))",
    "no u32": 'say(host(1, api="websocket", function="close", args=[-1]))',
    "no u32 either": 'say(host(1, api="websocket", function="close", args=[4294967296]))',
    "a truth for a number": 'say(host(1, api="websocket", function="close", args=[True]))',
    "a host call of another call": "say(host(1, id=7))",
    "a host call out of order": "say(host(5))",
    "a frame that is too long": 'say(b"x" * 5000000 + b"\\n")',
}


@pytest.mark.req("yoi.rule.077")
@pytest.mark.parametrize("what", IN_A_CALL)
async def test_an_odd_word_during_a_call_is_the_end_of_the_worker(harness: WorkerHarness, what: str) -> None:
    replace_worker(harness, READY + f"read(); {IN_A_CALL[what]}; wait()")
    worker = await harness.open(components.echo())
    with Ends([worker.pid]) as ends:
        with pytest.raises(BadFrame, match="breaks the protocol"):
            await asyncio.wait_for(harness.tool(worker), LONG)
        await worker.stop()
        assert ends.left_after(LONG) == set()
    assert len(harness.ends) == 1
    assert harness.asked == []


WITHOUT_A_CALL = {
    "an answer to nothing": 'say({"type": "ok", "id": 1, "text": "x"})',
    "a host call": "say(host(1))",
    "a host call of the beginning": "say(host(1, id=0))",
    "a trap": 'say({"type": "trap", "id": 0, "kind": "trap", "text": "x"})',
    "a blank line": 'say(b"\\n")',
    "blank lines without an end": '[say(b"\\n" * 65536) for _ in iter(int, 1)]',
    "a flood": 'say(b"\\n" * 10 + b\'{"type":"ok","id":1,"text":"x"}\\n\' * 100000)',
}


@pytest.mark.parametrize("what", WITHOUT_A_CALL)
async def test_an_odd_word_without_a_call_is_the_end_of_the_worker(harness: WorkerHarness, what: str) -> None:
    replace_worker(harness, READY + f"{WITHOUT_A_CALL[what]}; wait()")
    try:
        await harness.open(components.echo())
    except BadFrame:  # it came right behind `ready`: then it never began
        assert harness.ends == []
    else:
        assert isinstance(await asyncio.wait_for(harness.over, LONG), BadFrame)
        assert len(harness.ends) == 1
    assert harness.asked == []


async def test_two_host_calls_at_once_are_one_too_many(harness: WorkerHarness) -> None:
    begun = 0

    async def host(*_: object) -> str:
        nonlocal begun
        begun += 1
        return await wait_forever()

    replace_worker(harness, READY + "read(); say(host(1), host(2)); wait()")
    worker = await harness.open(components.echo(), host=host)
    with pytest.raises(BadFrame, match="twice, or out of order"):
        await asyncio.wait_for(harness.tool(worker), LONG)
    assert begun <= 1


async def test_host_calls_after_the_answer_are_not_made(harness: WorkerHarness) -> None:
    replace_worker(harness, READY + 'read(); say({"type": "ok", "id": 1, "text": "{}"}, host(1), host(2)); wait()')
    worker = await harness.open(components.echo())
    assert await asyncio.wait_for(harness.tool(worker), LONG) == "{}"
    assert isinstance(await asyncio.wait_for(harness.over, LONG), BadFrame)
    assert harness.asked == []


async def test_an_answer_while_a_host_call_is_under_way(harness: WorkerHarness) -> None:
    async def host(*_: object) -> str:
        return await wait_forever()

    replace_worker(harness, READY + 'read(); say(host(1), {"type": "ok", "id": 1, "text": "{}"}); wait()')
    worker = await harness.open(components.echo(), host=host)
    with pytest.raises(BadFrame):
        await asyncio.wait_for(harness.tool(worker), LONG)


SILENT = {
    "never answers": "wait()",
    "half a line": 'say(b\'{"type":"ok","id":1,\'); wait()',
    "never reads": "import time; time.sleep(3600)",
    "reads nothing and ignores signals": "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)",
    "half a line at a time": "import time\nwhile True: say(b'x'); time.sleep(0.01)",
}


@pytest.mark.req("yoi.rule.079")
@pytest.mark.parametrize("what", SILENT)
async def test_who_does_not_answer_is_killed_at_the_deadline(harness: WorkerHarness, what: str) -> None:
    replace_worker(harness, READY + SILENT[what])
    worker = await harness.open(components.echo())
    with Ends([worker.pid]) as ends:
        with pytest.raises(PeerTimeout):
            await asyncio.wait_for(harness.tool(worker, text='"' + "x" * 60000 + '"', timeout=0.2), LONG)
        await worker.stop()
        assert ends.left_after(LONG) == set()
    assert len(harness.ends) == 1


BEGINNINGS = {
    "ready first": 'read(); say({"type": "ready"}); wait()',
    "an answer first": 'read(); say({"type": "ok", "id": 0, "text": ""}); wait()',
    "loaded twice": "read(); say(LOADED, LOADED); wait()",
    "unfit after go": 'read(); say(LOADED); read(); say({"type": "unfit", "text": "x"}); wait()',
    "an answer to go": 'read(); say(LOADED); read(); say({"type": "ok", "id": 0, "text": ""}); wait()',
    "garbage": 'read(); say(b"\\x00\\xff\\n"); wait()',
    "a blank line": 'read(); say(b"\\n", LOADED); wait()',
    "dies": "read(); os._exit(3)",
    "dies after loaded": "read(); say(LOADED); os._exit(3)",
    "closes its output": "read(); os.close(1); wait()",
}


@pytest.mark.parametrize("what", BEGINNINGS)
async def test_who_begins_oddly_never_begins(harness: WorkerHarness, what: str) -> None:
    replace_worker(harness, BEGIN + BEGINNINGS[what])
    with pytest.raises(SeraiError) as caught:
        await asyncio.wait_for(harness.open(components.echo(), limits=PATIENT.but(exit_grace=0.3)), LONG)
    assert isinstance(caught.value, BadFrame | PeerGone)
    assert harness.ends == []


async def test_stale_for_ever_is_given_up(harness: WorkerHarness) -> None:
    replace_worker(harness, BEGIN + 'read(); say({"type": "stale", "text": "another engine"}); wait()')
    with pytest.raises(BadManifest, match="component is incompatible: another engine"):
        await asyncio.wait_for(harness.open(components.echo()), LONG)


_KEYS = st.sampled_from(["type", "id", "n", "args", "api", "function", "text", "size"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.sampled_from(["ok", "host", "trap", "fs", "read"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
)


@given(st.binary(max_size=200) | _VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_frame_or_a_known_error(line: bytes) -> None:
    try:
        frame = messages.decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(frame, messages.HostAsked):
        frame.fits()
