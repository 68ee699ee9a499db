"""Guests that do their worst: each is ended in time with a clear error, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

import pytest

from serai.errors import BadFrame, OversizeFrame, PeerGone, PeerTimeout, SeraiError, Trapped
from serai.host.adapters.yoi import worker as module
from serai.limits import MIB
from serai.plugins.bounds import DEFAULT, PRESETS, STACK_MOST, UPSTREAM, Bounds
from serai.plugins.manifest import TOOL
from tests.support.processes import Ends
from tests.support.yoi import components
from tests.support.yoi.workers import LONG, WorkerHarness, wait_forever

pytestmark = pytest.mark.slow

SOON = 0.3  # seconds that a guest gets which would take for ever


@pytest.fixture
def gentle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is killed: however busy the machine is, what ended the guest was the worker itself."""
    monkeypatch.setattr(module, "GRACE", LONG)


@pytest.mark.req("yoi.conform.53")
@pytest.mark.parametrize(("where", "export"), [("call", "handle-tool"), ("start", "start"), ("ingress", "handle-ingress")])
@pytest.mark.usefixtures("gentle")
async def test_an_endless_loop_is_stopped_at_its_deadline_by_the_epoch(harness: WorkerHarness, where: str, export: str) -> None:
    worker = await harness.open(components.spin(where))
    args = {"start": ("null",)}.get(export, ("call", "{}"))
    with pytest.raises(PeerTimeout) as caught:
        await worker.call(export, args, SOON)
    assert harness.wires.has(b'"kind":"timeout"')  # the worker did it itself, before it was killed
    assert caught.value.limit is not None
    assert caught.value.limit.value == SOON
    assert harness.ends == [caught.value]


@pytest.mark.req("yoi.edge.29")
@pytest.mark.usefixtures("gentle")
async def test_an_endless_loop_in_the_core_start_function_is_stopped_where_it_is_instantiated(harness: WorkerHarness) -> None:
    with pytest.raises(PeerTimeout, match="instantiate"):
        await harness.open(components.spin("core"), bounds=Bounds(start=SOON))
    assert harness.wires.has(b'"kind":"timeout"')
    with pytest.raises(Trapped) as caught:
        await harness.open(components.spin("core"), bounds=Bounds(start=LONG, fuel=100_000))
    assert caught.value.kind == "fuel"
    assert harness.ends == []  # it never began


@pytest.mark.req("yoi.edge.29")
async def test_fuel_and_time_are_given_anew_for_every_call(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo(), bounds=Bounds(fuel=200_000))
    for _ in range(200):  # together far more than one call may use
        assert await harness.tool(worker, "echo", '{"a":"' + "x" * 500 + '"}')


@pytest.mark.req("yoi.edge.29")
async def test_the_time_of_a_call_is_not_that_of_the_one_before(harness: WorkerHarness) -> None:
    """After a call with little time left, one with much has all of it."""
    worker = await harness.open(components.storm("fs", "read", "x"))
    for _ in range(50):
        await harness.tool(worker, "count", timeout=1.0)
    with pytest.raises(PeerTimeout) as caught:
        await harness.tool(worker, timeout=1.5)
    assert harness.asked[0][3] > 1.0
    assert harness.asked[-1][3] < 1.0
    assert caught.value.limit is not None
    assert caught.value.limit.value == 1.5


@pytest.mark.req("yoi.edge.29")
async def test_fuel_stops_a_loop(harness: WorkerHarness) -> None:
    worker = await harness.open(components.spin(), bounds=Bounds(fuel=1_000_000))
    with pytest.raises(Trapped, match="fuel") as caught:
        await harness.tool(worker)
    assert caught.value.kind == "fuel"


@pytest.mark.req("yoi.rule.079")
async def test_a_worker_that_does_not_stop_its_guest_is_killed(harness: WorkerHarness) -> None:
    worker = await harness.open(components.spin())
    call = worker.call("handle-tool", ("call", "{}"), SOON)
    with Ends([worker.pid]) as ends:
        os.kill(worker.pid, signal.SIGSTOP)  # as one that hangs: nothing in it runs any more
        with pytest.raises(PeerTimeout):
            await call
        assert isinstance(await harness.over, PeerTimeout)
        await worker.stop()
        assert ends.left_after(LONG) == set()
    assert not harness.wires.has(b'"trap"')


@pytest.mark.req("yoi.conform.54")
@pytest.mark.parametrize("where", ["call", "start"])
async def test_a_memory_bomb_is_stopped_by_the_limit_of_its_store(harness: WorkerHarness, where: str) -> None:
    other = await harness.open(components.echo())
    worker = await harness.open(components.bomb(where))
    with pytest.raises(Trapped):
        await (worker.call("start", ("null",), LONG) if where == "start" else harness.tool(worker))
    assert await harness.tool(other, "raw", "unharmed") == "unharmed"


@pytest.mark.req("yoi.conform.54")
@pytest.mark.req("yoi.edge.31")
async def test_a_guest_that_takes_all_memory_has_no_more_than_its_bound(harness: WorkerHarness) -> None:
    worker = await harness.open(components.oom())
    await harness.tool(worker)
    with open(f"/proc/{worker.pid}/status", encoding="ascii") as file:
        data = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
    assert data < DEFAULT.memory + 64 * MIB
    assert await harness.tool(worker, "raw", "it lives") == "it lives"


async def test_many_memories_have_one_bound_together(harness: WorkerHarness) -> None:
    """wasmtime bounds each of them; the kernel bounds all."""
    modules = "".join(
        f'(core module $m{n} (memory 0) (func (export "grow") (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) '
        f"(i32.const -1)))))) (core instance $i{n} (instantiate $m{n}))"
        for n in range(6)
    )
    guest = components.Guest().more(modules)
    imports = "".join(f'(import "m" "g{n}" (func $g{n}))' for n in range(6))
    exports = " ".join(f'(export "g{n}" (func $i{n} "grow"))' for n in range(6))
    guest.field("(func $all " + " ".join(f"(call $g{n})" for n in range(6)) + ")")
    guest.tool("call", "(call $all) " + guest.answer('{"summary":"grown"}'))
    text = guest.component().replace("(core module $main_code ", f"(core module $main_code {imports} ", 1)
    text = text.replace("(instantiate $main_code)", f'(instantiate $main_code (with "m" (instance {exports})))', 1)
    from wasmtime import wat2wasm

    worker = await harness.open(bytes(wat2wasm(text)))
    assert json.loads(await harness.tool(worker)) == {"summary": "grown"}
    with open(f"/proc/{worker.pid}/status", encoding="ascii") as file:
        data = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
    assert data < 2 * DEFAULT.memory + 128 * MIB < 6 * DEFAULT.memory


@pytest.mark.req("yoi.conform.55")
@pytest.mark.parametrize("where", ["call", "start", "ingress"])
async def test_deep_recursion_exhausts_the_wasm_stack_and_nothing_else(harness: WorkerHarness, where: str) -> None:
    worker = await harness.open(components.recursion(where))
    args = ("null",) if where == "start" else ("call", "{}")
    with pytest.raises(Trapped, match="call stack exhausted") as caught:
        await worker.call({"call": "handle-tool", "ingress": "handle-ingress"}.get(where, where), args, LONG)
    assert caught.value.kind == "stack"


@pytest.mark.req("yoi.rule.087")
@pytest.mark.parametrize("stack", [STACK_MOST, 8 * MIB, 1 << 40])
async def test_no_configuration_sets_a_stack_that_aborts(harness: WorkerHarness, stack: int) -> None:
    worker = await harness.open(components.recursion(), bounds=Bounds(stack=stack))
    with pytest.raises(Trapped) as caught:
        await harness.tool(worker)
    assert caught.value.kind == "stack"


@pytest.mark.req("yoi.conform.56")
@pytest.mark.parametrize("size", [65537, 4 * MIB, 60 * MIB])
async def test_a_result_that_is_too_large_is_not_taken_over(harness: WorkerHarness, size: int) -> None:
    worker = await harness.open(components.huge(size))
    with pytest.raises(OversizeFrame) as caught:
        await harness.tool(worker)
    assert caught.value.message == "guest output exceeds 65536 bytes"
    assert str(size) in caught.value.hint
    assert await harness.tool(worker, "raw", "goes on") == "goes on"  # it did nothing that ends its life


@pytest.mark.req("yoi.conform.56")
@pytest.mark.parametrize(("export", "args"), [("start", ("null",)), ("status", ()), ("stop", ()), ("handle-ingress", ("in", "{}"))])
async def test_each_document_has_its_words_for_too_much(harness: WorkerHarness, export: str, args: tuple[str, ...]) -> None:
    worker = await harness.open(components.Guest(pages=4).on(export, "(call $ret (i32.const 0) (i32.const 65537))").build())
    with pytest.raises(OversizeFrame) as caught:
        await worker.call(export, args, LONG)
    assert caught.value.message == f"plugin component {export} output exceeds 65536 bytes"


@pytest.mark.req("yoi.edge.31")
async def test_a_result_of_a_hundred_megabytes_is_more_than_its_memory(harness: WorkerHarness) -> None:
    worker = await harness.open(components.huge(100_000_000))
    with pytest.raises(Trapped):
        await harness.tool(worker)


@pytest.mark.req("yoi.conform.57")
@pytest.mark.parametrize(
    ("component", "words"),
    [
        (components.bad_utf8, "guest output is not UTF-8: invalid utf-8"),
        (components.surrogate, "guest output is not UTF-8: invalid utf-8"),
        (components.out_of_bounds, "the output of handle-tool is none: .*out of bounds"),
    ],
)
async def test_a_result_that_is_no_text_is_a_clean_output_error(harness: WorkerHarness, component: object, words: str) -> None:
    worker = await harness.open(component())  # type: ignore[operator]
    with pytest.raises(BadFrame) as caught:
        await harness.tool(worker)
    assert re.match(words, caught.value.message), caught.value.message


@pytest.mark.req("yoi.edge.28")
async def test_after_a_trap_the_store_is_never_entered_again(harness: WorkerHarness) -> None:
    worker = await harness.open(components.traps())
    failing = worker.call("handle-tool", ("call", "{}"), LONG)
    waiting = worker.call("handle-tool", ("count", "{}"), LONG)
    with pytest.raises(Trapped, match="unreachable"):
        await failing
    with pytest.raises(PeerGone):  # not tried on the poisoned instance
        await waiting
    with pytest.raises(PeerGone):
        await harness.tool(worker, "count")
    assert sum(b'"type":"call"' in frame for frame in harness.wires.sent) == 1
    again = await harness.open(components.traps())
    assert json.loads(await harness.tool(again, "count"))["content"] == "1"


@pytest.mark.req("yoi.edge.28")
@pytest.mark.req("yoi.rule.072")
@pytest.mark.usefixtures("gentle")
async def test_in_the_tool_world_a_trap_fails_its_call_alone(harness: WorkerHarness) -> None:
    guest = components.Guest("tool")
    guest.tool("trap", "unreachable").tool("spin", f"(call $forever) {guest.answer('{}')}").tool("count", guest.counter())
    worker = await harness.open(guest.build(), world=TOOL)
    pid = worker.pid
    for name, error in (("trap", Trapped), ("spin", PeerTimeout), ("trap", Trapped)):
        with pytest.raises(error):
            await worker.call("call", (name, "{}"), SOON)
        assert json.loads(await worker.call("call", ("count", "{}"), LONG))["content"] == "1"
    assert worker.pid == pid
    assert harness.ends == []


@pytest.mark.slow
async def test_a_storm_of_host_calls_ends_with_its_time_and_others_go_on(harness: WorkerHarness) -> None:
    worker = await harness.open(components.storm("fs", "read", "x"))
    other = await harness.open(components.echo())
    storm = worker.call("handle-tool", ("call", "{}"), 1.0)
    answers = 0
    while not storm.done():
        assert await harness.tool(other, "raw", "between") == "between"
        answers += 1
    with pytest.raises(PeerTimeout):
        await storm
    assert answers > 3
    assert len(harness.asked) > 10


async def test_a_host_call_with_a_huge_argument_does_not_leave_the_worker(harness: WorkerHarness) -> None:
    guest = components.Guest(imports=("fs",))
    text = "(call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 1000000)) (i32.const 1000000)"
    call = f"(call $fs.read {text} (i32.const 24))"
    worker = await harness.open(guest.tool("call", f"{call} {guest.answer('{}')}").build())
    with pytest.raises(Trapped, match="too large"):
        await harness.tool(worker)
    assert harness.asked == []


@pytest.mark.req("yoi.rule.086")
async def test_the_default_bounds_let_a_component_of_the_tool_chains_start(harness: WorkerHarness) -> None:
    assert (DEFAULT.memory, DEFAULT.instances, DEFAULT.tables, DEFAULT.memories) == (64 * MIB, 64, 16, 8)
    assert (DEFAULT.table_elements, DEFAULT.stack, DEFAULT.fuel) == (20_000, 1 * MIB, 0)
    await harness.open(components.all_imports())
    await harness.open(components.all_imports(), bounds=Bounds(fuel=2_000_000_000))


@pytest.mark.req("yoi.rule.086")
@pytest.mark.parametrize(
    ("fits", "too_much", "words"),
    [
        ("(table 1 funcref)" * 16, "(table 1 funcref)" * 17, "table count too high at 17"),
        ("(table 20000 funcref)", "(table 20001 funcref)", "table minimum size of 20001 elements exceeds table limits"),
    ],
    ids=["tables", "elements"],
)
async def test_the_default_bounds_of_tables(harness: WorkerHarness, fits: str, too_much: str, words: str) -> None:
    worker = await harness.open(components.Guest().field(fits).build())
    assert json.loads(await worker.call("status", (), LONG)) == {"state": "running"}
    with pytest.raises(Trapped, match=words):
        await harness.open(components.Guest().field(too_much).build())


@pytest.mark.req("yoi.rule.087")
async def test_the_origins_bounds_as_a_preset(harness: WorkerHarness) -> None:
    preset = PRESETS["upstream"]
    assert preset is UPSTREAM
    assert (preset.memory, preset.table_elements, preset.instances, preset.tables, preset.memories, preset.fuel) == (
        2 * MIB, 256, 1, 1, 1, 5_000_000,
    )  # fmt: skip
    assert all(bounds.stack <= STACK_MOST == 2 * MIB for bounds in PRESETS.values())
    worker = await harness.open(components.echo(), bounds=preset)
    assert await harness.tool(worker, "raw", "x") == "x"
    with pytest.raises(Trapped, match="instance count too high") as caught:
        await harness.open(components.all_imports(), bounds=preset)
    assert caught.value.kind == "limit"
    spinning = await harness.open(components.spin(), bounds=preset)
    with pytest.raises(Trapped) as caught:
        await harness.tool(spinning)
    assert caught.value.kind == "fuel"


@pytest.mark.req("yoi.rule.076")
async def test_a_call_fails_at_once_when_its_worker_dies(harness: WorkerHarness) -> None:
    waits = asyncio.Event()

    async def host(*_: object) -> str:
        waits.set()
        return await wait_forever()

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    call, behind = (worker.call("handle-tool", ("call", "{}"), 3600.0) for _ in range(2))
    await waits.wait()
    os.write(harness.stderr, b"its last words\n")
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(PeerGone) as caught:
        await asyncio.wait_for(call, LONG)
    assert caught.value.exit is not None
    assert caught.value.exit.signal == signal.SIGKILL
    assert "its last words" in caught.value.stderr
    with pytest.raises(PeerGone):
        await behind
    assert harness.ends == [caught.value]


@pytest.mark.parametrize("at", range(1, 9))
async def test_a_worker_killed_at_each_frame(harness: WorkerHarness, at: int) -> None:
    """load, loaded, go, ready, call, host, reply, ok: whenever it dies, what waits fails and nothing is left."""

    def kill(frame: int) -> None:
        if frame == at:
            os.kill(harness.wires.pid, signal.SIGKILL)

    harness.wires._at = kill
    outcome: SeraiError | str
    try:
        worker = await asyncio.wait_for(harness.open(components.caller("fs", "read", "x")), LONG)
        outcome = await harness.tool(worker)
    except SeraiError as error:
        outcome = error
    if at < 7:
        assert isinstance(outcome, PeerGone)
    if at >= 5:
        assert isinstance(await asyncio.wait_for(harness.over, LONG), PeerGone)
        assert len(harness.ends) == 1
    else:
        assert harness.ends == [] or len(harness.ends) == 1
