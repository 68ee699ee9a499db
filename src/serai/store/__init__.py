"""Sessions on disk: an append-only tree of entries in one file each, which several processes may share (spec piglet 6.1, 6.2).

The file: `entries` (its lines), `file` (appends, reading from either end), `lock` (who may), `backwards` (the end, without all that
came before). What it says: `tree` (paths and branches), `messages` (a conversation), `neutral` (as models see it). Who uses it:
`session`, `sessions` (the folder), `scribe` (events in, entries out; `steps` is what a model is saying), `exporting` (Markdown).
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.store.entries import Entry, Meta
    from serai.store.exporting import markdown
    from serai.store.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
    from serai.store.neutral import from_model, to_model
    from serai.store.scribe import Scribe
    from serai.store.session import Session
    from serai.store.sessions import Current, Listed, Sessions
    from serai.store.tree import Row, Tree

__all__ = [
    "AssistantMessage",
    "Current",
    "Entry",
    "Listed",
    "Message",
    "Meta",
    "Row",
    "Scribe",
    "Session",
    "Sessions",
    "ToolResultMessage",
    "Tree",
    "UserMessage",
    "from_model",
    "markdown",
    "to_model",
]

_HOMES = {
    "AssistantMessage": "messages",
    "Current": "sessions",
    "Entry": "entries",
    "Listed": "sessions",
    "Message": "messages",
    "Meta": "entries",
    "Row": "tree",
    "Scribe": "scribe",
    "Session": "session",
    "Sessions": "sessions",
    "ToolResultMessage": "messages",
    "Tree": "tree",
    "UserMessage": "messages",
    "from_model": "neutral",
    "markdown": "exporting",
    "to_model": "neutral",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
