"""`[boxes]` of the person's config.toml. A typing error is an error: a hook that is not run would not be missed at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from serai import paths
from serai.boxes.backends import DEFAULT
from serai.boxes.hooks import Hook
from serai.errors import BadSettings

__all__ = ["read"]


class _Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    name: str = ""
    env: dict[str, str] = {}
    env_clear: bool = False


class _Boxes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`hooks` are paths, or tables with `path`, `name`, `env`, `env_clear`; they run for every box in this order."""

    backend: str = DEFAULT
    hooks: list[str | _Hook] = []
    max_boxes: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: as many as one likes
    key_file: str = ""


def read(config: Mapping[str, Any], *, who: str = "") -> dict[str, Any]:
    """What `Boxes` takes, from the settings. Limits are those of the person."""
    from serai.limits import Limits

    who = who or os.path.join(paths.config_folder(), "config.toml")
    try:
        found = msgspec.convert(config.get("boxes", {}), _Boxes)
        limits = Limits().but(**config.get("limits", {}))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise BadSettings(f"[boxes]: {error}", who=who) from None
    folder = os.path.dirname(who)
    return {
        "backend": found.backend,
        "hooks": tuple(_hook(hook, folder) for hook in found.hooks),
        "most": found.max_boxes,
        "key_file": os.path.join(folder, os.path.expanduser(found.key_file)) if found.key_file else None,
        "limits": limits,
    }


def _hook(given: str | _Hook, folder: str) -> Hook:
    """Its path begins where the settings are, not where somebody happens to be."""
    hook = _Hook(given) if isinstance(given, str) else given
    return Hook(os.path.expanduser(hook.path), hook.name, hook.env, hook.env_clear).settled(folder)
