"""The neutral types that every guest, agent and surface is translated to. Frozen values with JSON forms, and a few protocols.

`tools` (a tool, a call, its result), `contributions` (what a guest offers), `actions` (what a guest wants done or shown, and the
screen's state), `events` (what happens in a session), `approvals` (approvals, questions, decisions, and typed replies), `surface`
(where a person is reached), `provider` (models, their messages, and what streams an answer). Nothing here knows a wire, a process
or a dialect.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
