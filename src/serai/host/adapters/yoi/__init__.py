"""The adapter of the dialect `yoi`: WASM plugins, each in a worker process of its own.

`finder` finds packages and resolves them to a `ResolvedPlugin` (manifest, grants, digest), which says what a plugin may do;
nothing is looked up again later. `guest` is a running plugin, `offer` what it registers, `ingress` what reaches it from outside.
`worker` is the parent's end of its process, `program` what runs there, `compiler` compiles components, `effects` performs what a
plugin asks for. These are imported when the first plugin starts.
"""

from __future__ import annotations

from typing import Literal

from serai.errors import SeraiError
from serai.host.adapter import Adapter, GuestConnection, StartContext

__all__ = ["ADAPTER", "LIMITS", "explain", "start"]

LIMITS: dict[str, float | None] = {
    "tool": 60.0,  # the longest that a manifest may ask for
    "restarts": 5,  # spec yoi 13.5, as are the next three
    "restart_healthy": 600.0,
    "restart_wait": 0.1,
    "restart_wait_most": 10.0,
}


async def start(context: StartContext) -> GuestConnection:
    """Read the package, open a worker for it and call `start`. Whatever fails, no process is left (spec yoi 13.1)."""
    from serai.host.adapters.yoi.guest import start

    return await start(context)


def explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    """The origin's words, which the error has already (spec yoi 14)."""
    if what == "tool":
        return error.message if error.message.startswith("plugin tool ") else f"plugin tool `{name}` of {guest}: {error.message}"
    return f"extension /{name}: {error.message}"


ADAPTER = Adapter(start, LIMITS, explain)
