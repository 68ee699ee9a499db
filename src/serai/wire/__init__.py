"""The bytes: processes, pipes, frames, correlation and deadlines. Nothing here knows a dialect.

Sans-IO, usable by dialects: `stream` (lines, pending calls), `codec` (typed messages, keys in any case), `jsonrpc` (correlation in
both directions).

With IO: `process` (launch, environment, child, spawner, the stop ladder), `plain_process` (children of this process) over
`posix_spawn` and `descriptors`, `process_tree` (descendants, found and killed), `channel` (the hot path), `event_loop` (one timer
for all deadlines, uvloop), `jsonrpc_peer` (JSON-RPC over a channel), `watchdog` and `watchdog_program` (kill what a killed host
left).
"""

# Lazy (PEP 562): the watchdog program imports this package with the standard library alone and must start at once.
from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
