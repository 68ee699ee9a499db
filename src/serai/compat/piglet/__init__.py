"""The objects of piglet's own package (seed 004), over Serai's, for callers that know them by those names.

    host = Host(load_manifest(folder), cwd)      # one process
    async with host:
        result = await host.execute_tool("call_1", "weather", {"city": "Bern"})

    loaded, cleanup, error = await load_all(disabled=["clock"])

`host` has them all. They are made of `serai.Host`, which starts guests of every dialect. `load_all` checks trust and the person's
settings, as that does; `Host` and `Supervisor` start what they are given and check no trust.
"""

from __future__ import annotations

from serai.compat.piglet.host import (
    Cleanup,
    Host,
    Loaded,
    Supervisor,
    Watcher,
    discover_extensions,
    extensions_dir,
    load_all,
    load_manifest,
    project_extensions_dir,
)
from serai.host.guest_manifest import GuestManifest as Manifest

__all__ = [
    "Cleanup",
    "Host",
    "Loaded",
    "Manifest",
    "Supervisor",
    "Watcher",
    "discover_extensions",
    "extensions_dir",
    "load_all",
    "load_manifest",
    "project_extensions_dir",
]
