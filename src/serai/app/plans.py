"""Which plugins a session began with: kept in it, and given back to whoever goes on with it (spec yoi 10.2).

Else a session would move to another content of a plugin by itself, with what the old one was granted in mind.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from serai.errors import BadSession, BadSettings, SeraiError
from serai.store.stored_session import StoredSession as Stored

if TYPE_CHECKING:
    from serai.app.opening import House

__all__ = ["keep", "with_plan"]

log = logging.getLogger("serai.app")


def with_plan(settings: Mapping[str, Any], stored: Stored | None) -> Mapping[str, Any]:
    """The settings with the plan that this session has kept, if it has one: then no plugin is looked for."""
    raw = None if stored is None else stored.plugins()
    if stored is None or raw is None:
        return settings
    from serai.host.adapters.yoi import finder  # only where there are some

    try:
        found = {**settings, "plugins": {**settings.get("plugins", {}), "resolved": msgspec.json.decode(raw)}}
        finder.settings(found, stored.file)
    except (BadSettings, msgspec.DecodeError) as error:
        hint = "begin a new session"
        raise BadSession(f"what it keeps of its plugins cannot be read: {error}", who=stored.file, hint=hint) from None
    return found


def keep(house: House) -> None:
    """Keep what runs now, once: when something is said in the session, as nobody goes on with an empty one."""
    current, found = house.current, house.host.found.guests
    if current is None or all(manifest.plan is None for manifest in found):
        return
    from serai.host.adapters.yoi.finder import plan_of

    try:
        with current.turn:
            if not current.session.meta.plugins and (plan := plan_of(found)) is not None:
                current.session.keep_plugins(plan)
    except SeraiError as error:
        log.warning("the session does not keep which plugins it has: %s", error)
