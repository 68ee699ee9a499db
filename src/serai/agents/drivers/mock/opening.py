"""`serai.agent("mock", script=[…])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from serai.agents.drivers.mock.driver import Mock
from serai.agents.drivers.mock.script import Script
from serai.agents.session import Session
from serai.limits import Limits
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession as Stored

__all__ = ["mock"]


def mock(
    *,
    script: Script | str | bytes | Mapping[str, Any] | Iterable[Any] | None = None,
    store: Stored | CurrentSession | None = None,
    session_id: str = "",
    limits: Limits | None = None,
    **_: Any,
) -> Session:
    """A session with the mock agent.

    * `script`: a `Script`, its steps as values or plain data, or TOML or JSON text; without one the linear script of five steps.
    * `store`: where the conversation is kept; `session_id`: what it is called.

    What the app hands to every agent (a model, tools, …) is nothing to a script; that is not told as an error.
    """
    stored = store.session if isinstance(store, CurrentSession) else store
    driver = Mock(
        Script.of(script),
        session_id=session_id or (stored.id if stored is not None else ""),
        before=len(stored.messages()) if stored is not None else 0,
    )
    return Session(driver, store=store, limits=limits)
