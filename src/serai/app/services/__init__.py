"""Host services: what a guest may ask of Serai, in groups, whatever dialect it speaks (spec piglet 7).

`group` says what a group is, `router` brings a request to its operation, `grants` says who may use what; `usual` builds all groups
from an app. Each group is a module of its own, needs only what its constructor names, and can be replaced by an embedding product:
`AppServices({**usual(app), "dialogs": mine}, ...)`.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.app.services.bus import Bus
    from serai.app.services.grants import Grants, grants_of
    from serai.app.services.group import Group, NoArguments, Operation
    from serai.app.services.router import AppServices
    from serai.app.services.usual import usual

__all__ = ["AppServices", "Bus", "Grants", "Group", "NoArguments", "Operation", "grants_of", "usual"]

_HOMES = {
    "AppServices": "router",
    "Bus": "bus",
    "Grants": "grants",
    "Group": "group",
    "NoArguments": "group",
    "Operation": "group",
    "grants_of": "grants",
    "usual": "usual",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
