"""The real program behind the seed's handle."""

from __future__ import annotations

import asyncio

from serai.compat.agentboot import (
    AgentBoot,
    ApprovalRequestEvent,
    ApprovalResponse,
    AssistantMessage,
    Cancelled,
    ClaudeAgent,
    Config,
    ExecutionOptions,
    MessageEvent,
    OutputFormat,
)
from tests.support.claude.real_claude import LIMITS, Real, build_sleep_prompt


def boot(real: Real) -> AgentBoot:
    made = AgentBoot(Config(claude_projects_dir=str(real.home / ".claude" / "projects")))
    made.register_agent("claude", ClaudeAgent(environ=real.environ, limits=LIMITS))
    return made


async def test_an_approval_a_session_that_goes_on_and_text(real: Real) -> None:
    there = boot(real)
    prompt = '>> call Bash {"command": "echo asked > x"}\n>> say done'
    handle = await there.execute("", str(real.cwd), prompt, ExecutionOptions(chat_id="c"))
    texts = []
    async for event in handle.events():
        if isinstance(event, ApprovalRequestEvent):
            assert (event.tool_name, event.chat_id) == ("Bash", "c")
            changed = {**event.input, "command": "echo changed > x"}
            await handle.respond(event.id, ApprovalResponse(approved=True, updated_input=changed))
        elif isinstance(event, MessageEvent) and isinstance(event.raw, AssistantMessage):
            texts.append(event.raw.text)
    result = (await handle.wait()).unwrap()
    assert texts == ["done"]
    assert result.answer() == "done"
    assert (real.cwd / "x").read_text() == "changed\n"
    (session,) = await there.list_recent_sessions(str(real.cwd), 5)
    assert session.session_id == result.get_session_id()
    again = await there.execute_session(session.session_id, ">> say again")
    assert (await again.wait()).unwrap().answer() == "again"
    plain = await there.execute("", str(real.cwd), ">> say plain", ExecutionOptions(output_format=OutputFormat.TEXT))
    assert (await plain.wait()).unwrap().output.strip() == "plain"


async def test_to_cancel_in_the_middle_of_a_tool_leaves_nothing(real: Real) -> None:
    handle = await boot(real).execute("", str(real.cwd), build_sleep_prompt(), ExecutionOptions(allowed_tools=["Bash"]))
    while not (real.cwd / "begun").exists():
        await asyncio.sleep(0.02)  # the tool is another process's, which cannot tell us
    handle.cancel()
    assert isinstance((await handle.wait()).error, Cancelled)
