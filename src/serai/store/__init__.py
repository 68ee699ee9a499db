"""Sessions on disk: an append-only tree of entries in one file each, which several processes may share (spec piglet 6.1, 6.2).

The file: `entries` (its lines), `file` (appends, reading from either end), `lock` (who may), `backwards` (the end, without all that
came before). What it says: `tree` (paths and branches), `messages` (a conversation), `neutral` (as models see it). Who uses it:
`session`, `sessions` (the folder), `scribe` (events in, entries out; `steps` is what a model is saying), `exporting` (Markdown).
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
