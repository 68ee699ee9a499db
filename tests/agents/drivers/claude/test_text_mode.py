"""Text mode: a process for each prompt, which prints its answer and ends. Nothing of it is read as JSON."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driver import NeedsApproval, Prompt
from serai.errors import AgentFailed, BadSettings, NotCapable, PeerTimeout
from serai.model.approvals import Allow, Deny
from serai.model.events import OtherEvent, Stderr, Text
from serai.model.tools import ToolCall
from tests.support.claude.captures import LIMITS
from tests.support.claude.interceptors import ScriptedInterceptors, make_judge
from tests.support.claude.scripted_sessions import QUICK, Seen, play, poll, program, read
from tests.support.processes import lives

JSON = '{"type": "result", "subtype": "success", "result": "no"}'


@pytest.mark.req("agents.edge.33")
async def test_what_it_prints_is_its_answer_whatever_it_looks_like(tmp_path: Path) -> None:
    """A line that would be a frame, one that is broken JSON, bytes that are no text, and a character that comes in two halves."""
    source = f"""
os.write(1, {JSON.encode()!r} + b"\\n" + b'{{"type":\\n' + b"\\xff\\xfe caf\\xc3")
time.sleep(0.05)
os.write(1, b"\\xa9")
"""
    async with program(tmp_path, source, fmt="text") as session:
        seen = await play(session)
    assert seen.result.text == JSON + '\n{"type":\n\ufffd\ufffd caf\u00e9'
    assert (seen.result.status, seen.result.steps) == ("success", 1)
    assert "".join(event.text for event in seen.of(Text)) == seen.result.text
    assert seen.said == [seen.result.text]
    assert not seen.of(OtherEvent)


@pytest.mark.req("agents.edge.33")
async def test_what_ends_in_the_middle_of_a_character_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    async with program(tmp_path, 'os.write(1, b"caf\\xc3")', fmt="text") as session:
        assert (await play(session)).result.text == "caf\ufffd"


async def test_the_prompt_is_its_last_argument_and_its_stdin_is_empty(tmp_path: Path) -> None:
    source = "os.write(1, json.dumps([sys.argv[1:], sys.stdin.read()]).encode())"
    async with program(tmp_path, source, fmt="text") as session:
        seen = await play(session, "--version-like words")
    assert '"--", "--version-like words"], ""]' in seen.result.text


async def test_the_next_prompt_goes_on_with_the_conversation(tmp_path: Path) -> None:
    async with program(tmp_path, 'os.write(1, " ".join(sys.argv).encode())', fmt="text") as session:
        first, second = await play(session), await play(session)
    assert f"--session-id {session.id}" in first.result.text.replace("=", " ")
    assert f"--resume {session.id}" in second.result.text.replace("=", " ")


async def test_a_failure_has_what_it_printed(tmp_path: Path) -> None:
    source = 'os.write(1, b"Invalid API key\\n")\nos.write(2, b"on its stderr\\n")\nos._exit(1)'
    async with program(tmp_path, source, fmt="text") as session:
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.details == ("Invalid API key",)
    assert seen.error.exit is not None
    assert seen.error.exit.code == 1
    assert [event.line for event in seen.of(Stderr)] == ["on its stderr"]
    assert seen.result.status == "error"


SLEEPS = 'os.write(1, b"hm\\n")\nopen("pid", "w").write(str(os.getpid()))\nos.rename("pid", "begun")\ntime.sleep(300)'


async def test_it_can_be_interrupted(tmp_path: Path) -> None:
    async with program(tmp_path, SLEEPS, fmt="text", limits=QUICK) as session:
        seen = Seen(session.turn("go"))
        reading = asyncio.ensure_future(read(seen))
        await poll(lambda: seen.of(Text) and (tmp_path / "begun").exists())
        await session.interrupt("enough")
        await reading
        assert (seen.result.status, seen.result.text, seen.result.error) == ("cancelled", "hm", "enough")
    assert not lives(int((tmp_path / "begun").read_text()))


async def test_its_time_is_bounded(tmp_path: Path) -> None:
    async with program(tmp_path, SLEEPS, fmt="text", limits=QUICK.but(agent_turn=1.0)) as session:
        seen = await play(session)
        assert isinstance(seen.error, PeerTimeout)


async def test_leaving_it_leaves_nothing(tmp_path: Path) -> None:
    async with program(tmp_path, SLEEPS, fmt="text", limits=QUICK) as session:
        turn = session.turn("go")
        turn.start()
        await poll((tmp_path / "begun").exists)
    assert not lives(int((tmp_path / "begun").read_text()))


@pytest.mark.req("agents.driver.unguarded")
async def test_where_nobody_can_be_asked_there_are_no_guards(tmp_path: Path) -> None:
    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        return Allow()

    with pytest.raises(BadSettings, match="guards"):
        program(tmp_path, "", fmt="text", judge=judge)


async def test_what_it_cannot_do_it_says(tmp_path: Path) -> None:
    async with program(tmp_path, "", fmt="text", limits=LIMITS) as session:
        with pytest.raises(NotCapable):
            await session.set_mode("plan")


@pytest.mark.parametrize(
    "joined", [{"interceptors": ScriptedInterceptors()}, {"judge": make_judge(Allow())}], ids=["interceptors", "judge"]
)
async def test_who_would_not_be_asked_is_not_taken(tmp_path: Path, joined: dict[str, Any]) -> None:
    with pytest.raises(BadSettings, match="would not hold in text mode"):
        program(tmp_path, "", fmt="text", **joined)


@pytest.mark.parametrize(
    "prompt", [Prompt("go", system="It is Monday."), Prompt("/cost", relayed=True)], ids=["injection", "relayed"]
)
async def test_what_cannot_be_told_is_not_dropped_in_silence(tmp_path: Path, prompt: Prompt) -> None:
    async with program(tmp_path, "open('ran', 'w').close()", fmt="text") as session:
        with pytest.raises(NotCapable, match="in text mode"):
            await session.turn(prompt).result()
    assert not (tmp_path / "ran").exists()
