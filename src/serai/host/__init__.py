"""The host: finds guests, starts and supervises them, registers what they offer and calls them.

No module outside `adapters` knows a dialect. `host` has `Host`; `adapter` is the contract between it and a dialect.

Which guests there are: `discovery`, `guest_manifest`, `guest_settings`, `trust`, `installation`. How they run: `guest` (state,
supervision, restart), `guest_context` (what the guests of a host share), `guest_log`, `file_watcher`, `hot_reload`, `send_queue`.
What they offer: `contribution_table`, `argument_schemas`, `interceptors`, `panels`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
