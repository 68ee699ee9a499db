"""Host services: what a guest may ask of Serai, in groups, whatever dialect it speaks (spec piglet 7).

`group` says what a group is, `router` brings a request to its operation, `grants` says who may use what; `usual` builds all groups
from an app. Each group is a module of its own, needs only what its constructor names, and can be replaced by an embedding product:
`AppServices({**usual(app), "dialogs": mine}, ...)`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
