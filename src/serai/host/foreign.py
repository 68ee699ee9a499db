"""What the homes of others say that counts for their guests: piglet's list of extensions that are off (spec piglet 1.2)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol, cast

from serai import paths
from serai.errors import BadSettings
from serai.host.adapters import reader
from serai.host.settings import DISABLED
from serai.limits import MIB

__all__ = ["piglet_disabled"]

_LONGEST = 1 * MIB  # of what is looked at; what is read as YAML is bound more tightly


class _Yaml(Protocol):
    """Who reads the manifests of piglet guests reads its settings: within the same bounds."""

    def read_yaml(self, text: str) -> tuple[Any, Any]: ...


def piglet_disabled(folder: Path) -> frozenset[str]:
    """The names in `disabled_extensions` of its `config.yaml`; none when there is no such file.

    What cannot be read is a `BadSettings`: nobody knows then who is meant to be off.
    """
    path = os.path.join(folder, "config.yaml")
    try:
        content = paths.read_regular_file(path, _LONGEST)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}", who=path) from None
    try:
        _, said = cast(_Yaml, reader("piglet")).read_yaml(content.decode())
    except ValueError as error:
        raise BadSettings(f"is not read: {error}", who=path) from None
    if said is None:
        return frozenset()
    names = said.get(DISABLED, []) if isinstance(said, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadSettings(f"{DISABLED} is a list of names", who=path)
    return frozenset(names)
