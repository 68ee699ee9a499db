"""Takes WASM plugins in: the dialect `yoi`, each plugin in a worker process of its own.

What a plugin may do is in its `Record` (manifest, grants, digest), resolved when it was found; nothing is looked up again.
What it takes to run one is imported when the first one starts.
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


async def start(taking: StartContext) -> GuestConnection:
    """Read the package, open a worker for it and call `start`. Whatever fails, no process is left (spec yoi 13.1)."""
    from serai.host.adapters.yoi.guest import start

    return await start(taking)


def explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    """The origin's words, which the error has already (spec yoi 14)."""
    if what == "tool":
        return error.message if error.message.startswith("plugin tool ") else f"plugin tool `{name}` of {guest}: {error.message}"
    return f"extension /{name}: {error.message}"


ADAPTER = Adapter(start, LIMITS, explain)
