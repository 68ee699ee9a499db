"""The bytes: processes, pipes, frames, correlation and deadlines. Nothing here knows a dialect.

Sans-IO, usable by dialects: `framing` (lines), `codec` (typed messages), `folding` (keys in any case), `calls` (who waits for which
answer), `jsonrpc` (correlation both ways).

With IO: `process` (the one way to start a program), `stopping` (and to stop it), `environ` (what it may know), `channel` (the
hot path), `deadlines` (one timer), `rpc` (JSON-RPC over a channel), `watchdog` (nothing is left when the host dies),
`fast` (the extra of that name, for entry points).
"""

# Lazy (PEP 562): the watchdog program imports this package with the standard library alone and must start at once.
from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
