"""What the homes of others say that counts for their guests: piglet's list of extensions that are off (spec piglet 1.2)."""

from __future__ import annotations

import os
from pathlib import Path

from serai import home
from serai.errors import BadSettings
from serai.host.settings import DISABLED
from serai.limits import KIB

__all__ = ["piglet_disabled"]

_LONGEST = 256 * KIB  # of piglet's settings, which a person writes


def piglet_disabled(folder: Path) -> frozenset[str]:
    """The names in `disabled_extensions` of its `config.yaml`; none when there is no such file.

    What cannot be read is a `BadSettings`: nobody knows then who is meant to be off.
    """
    path = os.path.join(folder, "config.yaml")
    try:
        content = home.content_of(path, _LONGEST)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}", who=path) from None
    import yaml  # only here: most people have no such home

    try:
        said = yaml.safe_load(content.decode())
    except Exception as error:  # whatever PyYAML raises: for `!!int ""` that is an IndexError
        raise BadSettings(f"is no YAML: {' '.join(str(error).split())[:300] or type(error).__name__}", who=path) from None
    if said is None:
        return frozenset()
    names = said.get(DISABLED, []) if isinstance(said, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadSettings(f"{DISABLED} is a list of names", who=path)
    return frozenset(names)
