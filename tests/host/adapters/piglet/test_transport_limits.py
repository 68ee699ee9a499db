"""Piglet's connection and limits on a real wire."""

from __future__ import annotations

import pytest

from serai.dialects.piglet import messages
from serai.dialects.piglet.host_side import HostSide
from serai.dialects.piglet.messages import RegisterEventHandlerParams, RegisterShortcutParams, RegisterToolParams
from serai.errors import FrameTooBig
from serai.host.adapters.piglet import LIMITS
from serai.host.adapters.piglet.event_dispatch import TYPES, find_kinds
from serai.host.adapters.piglet.transport import GuestRegistrations
from serai.host.send_queue import SendQueue
from serai.limits import Limits
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from tests.conftest import PATIENT

# Answers each request with the length of its line.
MEASURE = r"""
import json, sys
for line in sys.stdin.buffer:
    print(json.dumps({"id": json.loads(line)["id"], "result": {"injection": str(len(line))}}), flush=True)
"""


@pytest.mark.req("piglet.rule.framing-send-limit")
@pytest.mark.parametrize("mailbox", [False, True], ids=["straight", "through a mailbox"])
async def test_a_message_over_the_limit_is_not_sent_and_the_wire_stays_open(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], mailbox: bool
) -> None:
    limits = PATIENT.but(frame=LIMITS["frame"], send=LIMITS["send"])
    assert limits.send == 4_194_304
    child = await spawner.spawn(Launch(argv=[*python, MEASURE], env=environ, who="peer"))
    side = HostSide()
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=limits, connection=side.connection)
    if mailbox:
        rpc.put = SendQueue(rpc.channel, lambda event: None, side.connection.waits_for, limits).request
    with pytest.raises(FrameTooBig):
        await rpc.call("messageHook/onMessage", messages.MessageHookParams("x" * 4_194_304), timeout=20)
    empty = len(side.ask("messageHook/onMessage", messages.MessageHookParams(""))[1])
    whole = messages.MessageHookParams("x" * (4_194_304 - empty))
    answer = await rpc.call("messageHook/onMessage", whole, timeout=20)
    assert bytes(answer) == b'{"injection": "4194304"}'


@pytest.mark.req("piglet.edge.15")
@pytest.mark.parametrize("params", [b'{"name":"h"}', b'{"name":"h","events":null}', b'{"name":"h","events":[]}'])
def test_no_events_are_all_events_for_a_guest_too(params: bytes) -> None:
    [event] = HostSide().receive(b'{"method":"register/eventHandler","params":' + params + b"}\n")
    registrations = GuestRegistrations(Limits())
    assert registrations.add("register/eventHandler", event.params, 100) == ""  # type: ignore[union-attr]
    assert all(map(registrations.wants, TYPES))
    assert registrations.contributions.event_handlers[0].events == find_kinds(None)
    narrow = GuestRegistrations(Limits())
    narrow.add("register/eventHandler", RegisterEventHandlerParams("h", 0, ["EventTurnEnd"]), 100)
    assert [type for type in TYPES if narrow.wants(type)] == ["EventTurnEnd"]


def test_every_registration_that_is_heard_can_be_booked() -> None:
    registrations = GuestRegistrations(Limits())
    assert registrations.add("register/tool", RegisterToolParams("t", parameters={"type": "array"}), 100) == ""
    assert registrations.contributions.tools[0].schema == {"type": "array"}


def test_a_guest_is_asked_with_its_own_spelling_of_a_key() -> None:
    registrations = GuestRegistrations(Limits())
    registrations.add("register/shortcut", RegisterShortcutParams("Shift+Ctrl+G"), 100)
    assert [shortcut.key for shortcut in registrations.contributions.shortcuts] == ["ctrl+shift+g"]
    assert registrations.find_spelling("ctrl+shift+g") == "Shift+Ctrl+G"


def test_what_is_beyond_the_bytes_of_all_registrations_is_not_taken_and_told() -> None:
    registrations = GuestRegistrations(Limits().but(registered=1000))
    for size in (300, 900, 300, 300):  # of one name the last counts, and alone takes place
        registrations.add("register/tool", RegisterToolParams("t", str(size)), size)
    assert registrations.add("register/promptSection", messages.RegisterPromptSectionParams("A", "a"), 700) == ""
    why = "its register/tool of 1 bytes is not taken: with it, it offers too much (limit registered = 1000)"
    assert registrations.add("register/tool", RegisterToolParams("one too many"), 1) == why
    assert registrations.complaints == (why.replace(" 1 bytes", " 900 bytes"), why)
    assert [(tool.name, tool.description) for tool in registrations.contributions.tools] == [("t", "300")]
