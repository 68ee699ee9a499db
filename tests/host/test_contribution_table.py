"""Who owns which name: built-ins, then guests in load order, the same on every run (design rule 10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.host.guest import GuestState
from serai.model.tools import BUILT_IN, ToolCall
from tests.support.host.fake_guests import BuiltinTools
from tests.support.host.zot_guests import Fifo, build_host, close_host, log_of, make, open_host, wait_for_state

# Offers a tool and a command, and says who it is.
OWNER = """
{before}
name = {name!r}
hello(tool("same", {{"type": "object", "title": name}}, "by " + name), command("same", "by " + name))
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], name)
    elif frame["type"] == "command_invoked":
        respond(frame["id"], "insert", insert=name)
"""


def write_owner(tmp_path: Path, name: str, before: str = "") -> Path:
    return make(tmp_path, OWNER.format(name=name, before=before), name=name)


@pytest.mark.req("zot.ours.2.3-deterministic", "zot.ours.2.3-one-owner", "zot.ours.2.3-shadowed-logged")
@pytest.mark.parametrize("late", ["first", "second"])
async def test_the_first_in_load_order_owns_a_name_however_late_it_registers(tmp_path: Path, late: str) -> None:
    with Fifo(tmp_path) as latch:
        wait = f"wait({str(latch.path)!r})"
        folders = [write_owner(tmp_path, name, wait if name == late else "") for name in ("first", "second")]
        host = build_host(tmp_path, *folders)
        starting = asyncio.create_task(host.start())
        try:
            await asyncio.sleep(0)
            await wait_for_state(host, "second" if late == "first" else "first", GuestState.READY)
            latch.lift()
            await starting
            (spec,) = host.tools
            assert (spec.description, spec.schema["title"]) == ("by first", "first")
            assert (await host.call_tool("same")).text == "first"
            assert host.table.commands["same"][1].description == "by first"
            assert (await host.run_command("same")).action.text == "first"  # type: ignore[union-attr]
            assert host.report.to_lines() == [
                "zot:second: its tool same is shadowed by that of zot:first",
                "zot:second: its command same is shadowed by that of zot:first",
            ]
            assert log_of(host, "second").count("its tool same is shadowed by that of zot:first") == 1
            assert log_of(host, "second").count("its command same is shadowed by that of zot:first") == 1
        finally:
            await close_host(host)


@pytest.mark.req("host.life.in-place")
@pytest.mark.req("zot.ours.2.3-one-owner")
async def test_what_was_shadowed_is_offered_once_its_owner_was_stopped_but_not_while_it_is_down(tmp_path: Path) -> None:
    folders = [write_owner(tmp_path, "first"), write_owner(tmp_path, "second")]
    async with open_host(tmp_path, *folders, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        first = host.guest("first")
        assert first.run is not None
        assert first.running is not None
        first.running.channel.close()  # type: ignore[attr-defined]  # as good as a crash
        assert first.state is GuestState.BACKING_OFF
        assert (await host.call_tool("same")).code == "TOOL_UNAVAILABLE"
        await first.stop()
        (spec,) = host.tools
        assert (spec.description, spec.schema["title"]) == ("by second", "second")
        assert (await host.call_tool("same")).text == "second"


@pytest.mark.req("host.call.built-in")
@pytest.mark.req("zot.edge.49", "zot.ours.2.3-shadowed-logged")
@pytest.mark.parametrize("name", sorted(BUILT_IN))
async def test_a_built_in_name_is_reserved_even_where_the_built_in_is_switched_off(tmp_path: Path, name: str) -> None:
    async with open_host(tmp_path, make(tmp_path, f"remember(tools=('mine', {name!r}))")) as host:
        assert [tool.name for tool in host.tools] == ["mine"]
        assert (await host.call_tool(name)).code == "UNKNOWN_TOOL"
        remark = f'its tool {name} is shadowed by that of serai; `replace = ["{name}"]` among its settings would grant it'
        assert host.report.to_lines() == [f"zot:probe: {remark}"]
        assert remark in log_of(host, "probe")


@pytest.mark.req("host.call.built-in")
@pytest.mark.req("zot.edge.49")
async def test_a_guest_that_was_granted_to_replaces_the_built_in(tmp_path: Path) -> None:
    folder = make(tmp_path, "remember(tools=('bash', 'read'))", settings='replace = ["read"]')
    config = {"guest": {"probe": {"replace": ["bash"]}}}
    async with open_host(tmp_path, folder, built_in=BuiltinTools("bash", "read", "write"), config=config) as host:
        assert {tool.name: tool.description for tool in host.tools} == {"bash": "", "read": "built in", "write": "built in"}
        assert (await host.call_tool("bash", {"by": "guest"})).text == '{"by": "guest"}'
        assert (await host.call_tool("read")).text == "built in"  # to ask for it is not to be granted it
        assert 'it asks for replace read; the settings under [guest."zot:probe"] grant it' in host.report.to_lines()[-1]


async def test_a_grant_to_one_guest_is_none_to_another(tmp_path: Path) -> None:
    greedy = make(tmp_path, "remember(tools=('special', 'bash'))", name="greedy")
    granted = make(tmp_path, "remember(tools=('special', 'bash'))", name="granted")
    config = {"guest": {"granted": {"replace": ["special", "bash"]}}}
    async with open_host(tmp_path, greedy, granted, built_in=BuiltinTools("special"), config=config) as host:
        assert {name: tool.owner.id for name, tool in host.table.tools.items()} == {
            "special": "zot:granted",
            "bash": "zot:granted",
        }


async def test_the_built_in_is_back_when_the_guest_that_replaced_it_is_stopped_and_not_when_it_is_down(tmp_path: Path) -> None:
    config = {"guest": {"probe": {"replace": ["bash"]}}}
    limits = {"restart_wait": 60.0, "restart_wait_most": 60.0}
    folder = make(tmp_path, "remember(tools=('bash',))")
    async with open_host(tmp_path, folder, built_in=BuiltinTools("bash"), config=config, limits=limits) as host:
        guest = host.guest("probe")
        assert guest.running is not None
        guest.running.channel.close()  # type: ignore[attr-defined]
        assert (await host.call_tool("bash")).code == "TOOL_UNAVAILABLE"
        await guest.stop()
        assert (await host.call_tool("bash")).text == "built in"


async def test_the_host_is_a_tool_box(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(tools=('echo',))"), built_in=BuiltinTools("bash")) as host:
        assert [tool.name for tool in host.list()] == ["bash", "echo"]
        assert (await host.call(ToolCall("echo", {"a": 1}))).text == '{"a": 1}'
        assert (await host.call(ToolCall("bash"))).text == "built in"
