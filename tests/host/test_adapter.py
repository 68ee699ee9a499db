"""What all adapters share: a code for each kind of failure, and what a guest may ask of its host."""

from __future__ import annotations

import pytest

from serai import errors
from serai.errors import Refused
from serai.host.adapter import NoServices, Services, get_command_error_code, get_error_code
from serai.host.guest_settings import GROUPS

# The error; the code of a tool's call that it ended, and of a command's.
CODES: list[tuple[errors.SeraiError, str, str]] = [
    (errors.PeerTimeout("late"), "TIMEOUT", "TIMEOUT"),
    (errors.PeerGone("died"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.PeerStalled("does not read"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.Closed("stopped"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.BadFrame("nonsense"), "BAD_ANSWER", "BAD_ANSWER"),
    (errors.OversizeFrame("too much"), "BAD_ANSWER", "BAD_ANSWER"),
    (errors.FrameTooBig("too much for it"), "INVALID_ARGS", "INVALID_ARGS"),
    (errors.Refused("no"), "REFUSED", "REFUSED"),
    (errors.SpawnFailed("missing"), "FAILED", "FAILED"),
]


@pytest.mark.parametrize(("error", "tool", "command"), CODES, ids=[type(case[0]).__name__ for case in CODES])
def test_a_failure_has_its_code(error: errors.SeraiError, tool: str, command: str) -> None:
    assert (get_error_code(error), get_command_error_code(error)) == (tool, command)


@pytest.mark.req("host.event.services")
@pytest.mark.parametrize("group", GROUPS)
async def test_a_host_without_an_app_refuses_every_service_and_says_why(group: str) -> None:
    services: Services = NoServices()
    with pytest.raises(Refused, match=rf"^zot:weather: {group}\.get is not to be had: this host runs without an app$"):
        await services.ask("zot:weather", group, "get", {})
