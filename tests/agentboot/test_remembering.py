"""What a prompter remembers."""

from __future__ import annotations

from serai.compat.agentboot import FakePrompter, PermissionRequest, PermissionResult


async def test_a_yes_that_is_not_to_be_remembered_is_not() -> None:
    prompter = FakePrompter([PermissionResult(approved=True)])
    request = PermissionRequest(request_id="1", agent_type="claude", tool_name="Bash", input={})
    assert (await prompter.on_approval(request)).approved
    assert not (await prompter.on_approval(request)).approved
