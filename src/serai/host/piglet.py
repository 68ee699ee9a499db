"""The objects of piglet's own package (seed 004), over Serai's: for whoever knows them by those names.

    host = Host(load_manifest(folder), cwd)      # one process
    async with host:
        result = await host.execute_tool("call_1", "weather", {"city": "Bern"})

    loaded, cleanup, error = await load_all(disabled=["clock"])

`serai.Host` takes guests of every dialect in, and is what these are made of.
"""

from __future__ import annotations

from serai.host.adapters.piglet.hosting import (
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
from serai.host.manifest import Manifest

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
