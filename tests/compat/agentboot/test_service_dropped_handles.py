"""A handle that nobody holds any more ends its run, also when a service watches over its session (spec agents 7.8, 7.24)."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from serai.compat.agentboot import AgentService, ApprovalRequestEvent, ClaudeAgent, ExecutionOptions
from serai.testing.claude.script import Script, ScriptedClaude
from tests.support.agentboot.toy_agent import PATIENT, Store

SESSION = "0a0a0a0a-0000-4000-8000-000000000002"
ASKS = Script(SESSION).init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")


class FailureStore(Store):
    """Says when a run has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = asyncio.Event()

    def set_failed(self, session_id: str, message: str) -> bool:
        self.failed.set()
        return super().set_failed(session_id, message)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.req("agents.edge.08")
@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
async def test_a_handle_of_a_service_that_is_dropped_ends_its_process(tmp_path: Path, read: bool) -> None:
    claude = ScriptedClaude(tmp_path / "bin", ASKS, Script(SESSION).init().result("again"))
    environ = {"PATH": f"{claude.folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "HOME": str(tmp_path)}
    service = AgentService()
    service.register_agent("claude", ClaudeAgent(environ=environ, settings={}, limits=PATIENT.but(interrupt=1.0, agent_stop=0.2)))
    store = FailureStore()
    handle = await service.execute("claude", str(tmp_path), "go", ExecutionOptions(session_id=SESSION, store=store))
    if read:
        async for event in handle.events():
            if isinstance(event, ApprovalRequestEvent):
                break
        del event
    del handle
    gc.collect()
    async with asyncio.timeout(60):
        await store.failed.wait()
    assert [call[0] for call in store.calls] == ["running", "failed"]
    assert "the execution was cancelled" in store.calls[-1][2]  # and the program did not lose its patience, as it would at last
    if read:
        assert not is_alive(claude.given().pid)
    after = await service.execute("claude", str(tmp_path), "go on", ExecutionOptions(session_id=SESSION))  # which is free again
    assert (await after.wait()).error is None
