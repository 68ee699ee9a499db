"""Host services: what a guest may request from Serai, in groups, whatever its dialect (spec piglet 7).

`router` defines a group and its operations, checks grants and brings a request to its operation; `default_groups` builds all
groups from an app. The groups are in `agent_services`, `guest_services`, `model_services`, `session_services` and `tool_services`;
each needs only what its constructor names, and an embedding product can replace it:
`AppServices({**build_default_groups(app), "dialogs": mine}, ...)`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
