"""The adapter of the dialect `piglet`: an extension on a child's descriptors 3 and 4, or on its standard streams.

`guest` is a running extension and its requests to host services, `transport` chooses the wire, `event_dispatch` sends events,
`provider_streams` translates messages and the streams of a guest's models.
"""

from __future__ import annotations

from typing import Literal

from serai.errors import Closed, PeerGone, PeerTimeout, Refused, SeraiError, SpawnFailed
from serai.host.adapter import Adapter, GuestConnection, StartContext
from serai.host.adapters.piglet.guest import PigletGuest
from serai.host.adapters.piglet.transport import EXTRA, Way
from serai.host.guest_log import REMARK
from serai.limits import HOUR, MIB
from serai.wire.process import Launch

__all__ = ["ADAPTER", "LIMITS", "PigletGuest", "explain", "start"]

# Spec piglet 2.2, 2.7, 7.1. Frames are limited both ways: the guest's SDK reads no longer ones either.
LIMITS: dict[str, float | None] = {
    "frame": 4 * MIB,
    "send": 4 * MIB,
    "hello": 10.0,
    "intercept": 30.0,
    "tool": HOUR,
    "command": HOUR,
    "events": 1024,
    "stop_polite": 0.2,
}
_WAYS: dict[str, tuple[Way, ...]] = {"auto": ("fd", "stdio"), "fd": ("fd",), "stdio": ("stdio",)}


async def start(context: StartContext) -> GuestConnection:
    """Start the program and see it through its answer to `initialize`. Whatever fails, no process is left (spec piglet 3)."""
    manifest = context.manifest
    context.log.remark(f"starts {manifest.name} {manifest.version}".rstrip())
    ways = _WAYS[manifest.transport]
    launch = Launch(
        argv=manifest.argv,
        # On its standard streams alone an extension of several tongues would have to guess, before it has read a word.
        env={**context.env, **({"PIGLET_FD": "1"} if "fd" in ways else {"SERAI_DIALECT": "piglet"})},
        cwd=str(manifest.folder),
        who=context.who,
        stdin="pipe" if "stdio" in ways else "null",
        stderr=context.log.descriptor,
        remarks=REMARK,
        extra=EXTRA if "fd" in ways else {},
    )
    try:
        child = await context.spawner.spawn(launch)
    except SpawnFailed as error:  # the origin's words first (spec piglet 1.4)
        raise SpawnFailed(f"start {manifest.name}: {error.message}", who=error.who, errno=error.errno, hint=error.hint) from error
    try:
        guest = PigletGuest(context, child, ways)
        await guest.initialize()
    except BaseException:
        await child.close()
        raise
    return guest


def explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    """The origin's words (spec piglet 5.1, 5.2); what it did not tell apart is told as it is."""
    why = str(error).removeprefix(f"piglet:{guest}: ")
    if isinstance(error, Refused):
        why = f"{what} {name}: {error.message}"
    elif what == "command" and isinstance(error, PeerGone | Closed | PeerTimeout):
        why = f"command {name}: {why}"
    return f"ext {guest} tool {name}: {why}" if what == "tool" else f"Command error: {why}"


ADAPTER = Adapter(start, LIMITS, explain, last_wins=True, late_tools=True, free_names=True)
