"""Commands: how they are typed, who runs them, and what their answers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import NoCommand
from serai.host.adapters.zot import LIMITS as ZOT_LIMITS
from serai.host.host import TypedCommand, parse_command
from serai.model.actions import Action, CommandResult, Display, Insert, NoAction, OpenPanel, Panel, SubmitPrompt
from tests.support.host.zot_guests import AwaitableSurface, make, open_host, read_frames

NAME = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=1)

# Answers with the members that its arguments say, as JSON.
OBEDIENT = """
hello(command("do"))
for frame in frames():
    if frame["type"] == "command_invoked":
        send(type="command_response", id=frame["id"], **json.loads(frame["args"]))
"""


@pytest.mark.req("zot.edge.25")
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("/weather", TypedCommand("weather", "")),
        ("/weather Bern", TypedCommand("weather", "Bern")),
        ("  /weather   Bern  and\t Basel \n", TypedCommand("weather", "Bern  and\t Basel")),
        ("/weather\nBern", TypedCommand("weather", "Bern")),
        ("/a-b_C9 x", TypedCommand("a-b_C9", "x")),
    ],
)
def test_a_command_is_a_name_and_arguments_whose_inner_white_space_is_kept(text: str, typed: TypedCommand) -> None:
    assert parse_command(text) == typed


@pytest.mark.req("zot.edge.26")
@pytest.mark.parametrize(
    "text", ["/wétter", "/tmp/file", "/a.b c", "/", "/ weather", "hello", "say /weather", "/größe x", "/a:b", ""]
)
def test_everything_else_is_for_the_model(text: str) -> None:
    assert parse_command(text) is None


@given(NAME, st.text())
def test_any_arguments_are_kept_but_for_the_white_space_around_them(name: str, args: str) -> None:
    assert parse_command(f"/{name} {args}") == TypedCommand(name, args.strip())


def test_a_name_with_other_characters_is_a_command_if_somebody_has_it() -> None:
    assert parse_command("/mem:clear all  of it ", "mem:clear".__eq__) == TypedCommand("mem:clear", "all  of it")
    assert parse_command("/etc/passwd is world-readable", "mem:clear".__eq__) is None
    assert parse_command("mem:clear", "mem:clear".__eq__) is None


@pytest.mark.req("zot.edge.25")
async def test_arguments_reach_the_guest_as_typed_and_the_key_is_absent_without_any(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(command('go'))")) as host:
        await host.typed("/go  a   b\t c ")
        await host.typed("/go")
        frames = [frame for frame in await read_frames(host) if frame["type"] == "command_invoked"]
    assert [frame.get("args") for frame in frames] == ["a   b\t c", None]
    assert "args" not in frames[1]


@pytest.mark.req("zot.edge.26")
async def test_text_that_is_no_command_runs_nothing(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(command('go.on'))")) as host:
        assert await host.typed("/go.on") is None
        assert await host.typed("go") is None
        assert [frame["type"] for frame in await read_frames(host)] == ["hello_ack", "tool_call"]


@pytest.mark.req("zot.rule.4.2-dispatch", "zot.rule.2.3-built-in-command")
async def test_built_in_commands_come_first_then_guests_and_an_unknown_one_is_told(tmp_path: Path) -> None:
    ran: list[str] = []

    async def clear(args: str) -> Action:
        ran.append(args)
        return NoAction()

    async with open_host(tmp_path, make(tmp_path, "remember(command('clear'), command('go'))"), commands={"clear": clear}) as host:
        assert await host.typed("/clear all") == CommandResult(NoAction())
        assert ran == ["all"]
        assert await host.typed("/go") == CommandResult(NoAction())
        with pytest.raises(NoCommand, match="unknown command /nope"):
            await host.typed("/nope")
        assert [frame["name"] for frame in await read_frames(host) if frame["type"] == "command_invoked"] == ["go"]
        assert host.report.to_lines() == ["zot:probe: its command clear is shadowed by that of serai"]
        assert host.report.guests[0].commands == ("clear", "go")  # accepted all the same


@pytest.mark.req("zot.rule.4.2-actions", "zot.edge.23")
@pytest.mark.parametrize(
    ("answer", "outcome", "shown"),
    [
        ({"action": "prompt", "prompt": "do it"}, CommandResult(SubmitPrompt("do it")), []),  # whoever ran it sends it
        ({"action": "prompt", "prompt": " \n"}, CommandResult(NoAction()), []),
        ({"action": "insert", "insert": "at the cursor"}, CommandResult(Insert("at the cursor")), [Insert("at the cursor")]),
        ({"action": "display", "display": "look"}, CommandResult(Display("look", "probe")), [Display("look", "probe")]),
        ({"action": "open_panel"}, CommandResult(NoAction()), []),
        (
            {"action": "open_panel", "open_panel": {"id": "p"}},
            CommandResult(OpenPanel(Panel("p", "probe", owner="zot:probe"))),
            [OpenPanel(Panel("p", "probe", owner="zot:probe"))],
        ),
        ({"action": "noop"}, CommandResult(NoAction()), []),
        ({"action": ""}, CommandResult(NoAction()), []),
        ({}, CommandResult(NoAction()), []),
        ({"action": "dance"}, CommandResult(NoAction(), "extension /do: unknown action dance", "REFUSED"), []),
        ({"action": "prompt", "prompt": "x", "error": "no"}, CommandResult(NoAction(), "extension /do: no", "REFUSED"), []),
    ],
)
async def test_each_answer_does_what_it_says_and_an_error_beats_every_action(
    tmp_path: Path, answer: dict[str, Any], outcome: CommandResult, shown: list[Action]
) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, OBEDIENT), surface=window) as host:
        assert await host.run_command("do", json.dumps(answer)) == outcome
        assert window.actions == shown


@pytest.mark.req("zot.rule.4.2-timeout")
async def test_without_its_guards_no_guest_runs_a_command(tmp_path: Path) -> None:
    ran: list[str] = []

    async def own(args: str) -> NoAction:
        ran.append(args)
        return NoAction()

    folder = make(tmp_path, "hello(command('work'))\nfor frame in frames(): pass")
    config = {"guest": {"gate": {"guard": True}}}
    async with open_host(tmp_path, folder, config=config, commands={"own": own}) as host:
        outcome = await host.run_command("work")
        assert outcome.code == "BLOCKED"
        assert outcome.error.startswith("/work refused: the guard gate is named in the settings")
        await host.run_command("own", "now")  # what is Serai's own may be what mends it
        assert ran == ["now"]


async def test_a_late_command_is_told_in_the_protocols_words(tmp_path: Path) -> None:
    assert ZOT_LIMITS["command"] == 30
    body = "hello(command('slow'))\nfor frame in frames(): pass"
    async with open_host(tmp_path, make(tmp_path, body), limits={"command": 0.1}) as host:
        outcome = await host.run_command("slow")
    assert outcome == CommandResult(NoAction(), "extension /slow: timeout waiting for probe/slow", "TIMEOUT")


async def test_a_command_whose_guest_dies_is_told_at_once_and_one_of_a_guest_that_is_down_too(tmp_path: Path) -> None:
    body = "hello(command('die'))\nfor frame in frames():\n    if 'name' in frame: os._exit(3)"
    limits = {"restart_wait": 60.0, "restart_wait_most": 60.0}
    async with open_host(tmp_path, make(tmp_path, body), limits=limits) as host:
        outcome = await host.run_command("die")
        assert outcome.error == "extension /die: ended (exit status 3)"
        outcome = await host.run_command("die")
        assert outcome.code == "COMMAND_UNAVAILABLE"
        assert "zot:probe is backing off: ended (exit status 3)" in outcome.error
