"""The neutral words: what every guest, agent and surface is translated to. Frozen values with JSON forms, and a few protocols.

`tools` (a tool, a call, its result), `contributions` (what a guest offers), `actions` (what a guest wants done), `board` (what is
on the screen after that), `events` (what happens in a session), `ask` (what is asked of a person, and what they decide), `replies`
(what they typed), `surface` (where a person is reached), `provider` (who streams a model's answer). Nothing here knows a wire, a
process or a dialect.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
