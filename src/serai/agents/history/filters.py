"""Which sessions a list shows (spec agents 4.3). A filter says whether one is kept; None keeps all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from serai.agents.history.metadata import SessionMetadata

__all__ = ["NOISE", "SessionFilter", "combine", "default_filter", "exclude_patterns", "exclude_short"]

SessionFilter = Callable[[SessionMetadata], bool]

# Marks of what no person typed.
NOISE = ("<local-command-caveat>", "<ide_opened_file>", "<local-command-")
_SHORT = 5


def exclude_short(shortest: int) -> SessionFilter:
    """Drops those whose first and last message both have fewer characters than that, blanks around them not counted."""

    def keep(session: SessionMetadata) -> bool:
        return any(len(text.strip()) >= shortest for text in (session.first_message, session.last_user_message))

    return keep


def exclude_patterns(patterns: Iterable[str]) -> SessionFilter:
    """Drops those whose first message has one of these in it; the last one is looked at when there is no first."""
    marks = tuple(pattern for pattern in patterns if pattern)  # an empty one is in everything

    def keep(session: SessionMetadata) -> bool:
        text = session.first_message if session.first_message.strip() else session.last_user_message
        return not any(mark in text for mark in marks)

    return keep


def combine(*filters: SessionFilter | None) -> SessionFilter:
    """Keeps what each of them keeps."""

    def keep(session: SessionMetadata) -> bool:
        return all(one is None or one(session) for one in filters)

    return keep


default_filter: SessionFilter = combine(exclude_short(_SHORT), exclude_patterns(NOISE))
