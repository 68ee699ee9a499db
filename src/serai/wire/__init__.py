"""The bytes: processes, pipes, frames, correlation and deadlines. Nothing here knows a dialect.

Sans-IO, usable by dialects: `framing` (lines), `codec` (typed messages), `folding` (keys in any case), `calls` (who waits for which
answer), `jsonrpc` (correlation both ways).

With IO: `process` (the one way to start a program), `stopping` (and to stop it), `environ` (what it may know), `channel` (the
hot path), `deadlines` (one timer), `rpc` (JSON-RPC over a channel), `watchdog` (nothing is left when the host dies),
`fast` (the extra of that name, for entry points).
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.wire.channel import Channel, Receiver, Tap
    from serai.wire.deadlines import Deadlines
    from serai.wire.process import Child, Launch, PlainSpawner, Spawner
    from serai.wire.rpc import Rpc
    from serai.wire.stopping import Stopped, stop

__all__ = [
    "Channel",
    "Child",
    "Deadlines",
    "Launch",
    "PlainSpawner",
    "Receiver",
    "Rpc",
    "Spawner",
    "Stopped",
    "Tap",
    "stop",
]

# Lazy (PEP 562): the watchdog program imports this package with the standard library alone and must start at once.
_HOMES = {
    "Channel": "channel",
    "Child": "process",
    "Deadlines": "deadlines",
    "Launch": "process",
    "PlainSpawner": "process",
    "Receiver": "channel",
    "Rpc": "rpc",
    "Spawner": "process",
    "Stopped": "stopping",
    "Tap": "channel",
    "stop": "stopping",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
