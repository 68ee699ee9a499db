"""Whether a path is a plugin's. Imports next to nothing: every `serai guest check` asks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from serai.errors import BadManifest

__all__ = ["ENDING", "is_plugin"]

ENDING, _MANIFEST = ".yoi-plugin", "plugin.toml"


def is_plugin(path: str) -> bool:
    """Whether this is a plugin's package, folder or manifest: looked at, not read."""
    if os.path.isfile(path):
        return path.endswith(ENDING) or os.path.basename(path) == _MANIFEST
    if not os.path.exists(os.path.join(path, _MANIFEST)):
        return False
    from serai.host.guest_manifest import inspect_folder

    with suppress(BadManifest):
        folder = inspect_folder(Path(path))
        return folder is not None and folder.dialect == "yoi"
    return False
