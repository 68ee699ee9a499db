"""A conversation on disk while it happens: the session's events, its steered texts and its compactions."""

from __future__ import annotations

import logging

from serai.agents.stage import Stage
from serai.errors import SeraiError
from serai.model.provider import ModelMessage
from serai.store.messages import from_model_message
from serai.store.session_folder import CurrentSession
from serai.store.session_writer import SessionWriter
from serai.store.stored_session import StoredSession as Stored

__all__ = ["Keeping"]

log = logging.getLogger("serai.agents")


class Keeping:
    """Writes what happens on a stage into a stored session. It is told first: what cannot be written must not be acted upon."""

    def __init__(self, store: Stored | CurrentSession, stage: Stage) -> None:
        self._current = store if isinstance(store, CurrentSession) else CurrentSession(store)
        self._scribe = SessionWriter(self._current)
        self.steered = self._scribe.steered
        self.aborted = self._scribe.aborted
        stage.listeners.insert(0, self._scribe.tell)
        stage.on_decided.append(self._scribe.decided)
        stage.on_answer.append(self._scribe.answered)
        stage.on_compact.append(self._compacted)

    def _compacted(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        names = {call.id: call.name for message in messages for call in message.calls}
        kept = [from_model_message(message, tool=names.get(message.call_id, "")) for message in messages]
        with self._current.turn:
            self._scribe.write()
            self._current.session.compact(kept, tokens)

    def close(self) -> None:
        """What could not be written by now is lost, and that is told."""
        try:
            self._scribe.close()
        except SeraiError as error:
            log.error("the end of the session could not be written: %s", error)
