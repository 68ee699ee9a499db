"""What tests of agents leave behind is theirs to close: here it is done for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from serai.store.stored_session import StoredSession


@pytest.fixture(autouse=True)
def _stored_sessions_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each has a file open. Agents do not close what they were given."""
    made: list[StoredSession] = []
    begin = StoredSession.__init__

    def remembered(self: StoredSession, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(StoredSession, "__init__", remembered)
    yield
    for session in made:
        session.close()
