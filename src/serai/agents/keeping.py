"""A conversation on disk while it happens: the session's events, its steered texts and its compactions."""

from __future__ import annotations

import logging

from serai.agents.stage import Stage
from serai.errors import SeraiError
from serai.model.provider import ModelMessage
from serai.store.neutral import from_model
from serai.store.scribe import Scribe
from serai.store.session import Session as Stored
from serai.store.sessions import Current

__all__ = ["Keeping"]

log = logging.getLogger("serai.agents")


class Keeping:
    """Writes what happens on a stage into a stored session. It is told first: what cannot be written must not be acted upon."""

    def __init__(self, store: Stored | Current, stage: Stage) -> None:
        self._current = store if isinstance(store, Current) else Current(store)
        self._scribe = Scribe(self._current)
        self.steered = self._scribe.steered
        self.aborted = self._scribe.aborted
        stage.listeners.insert(0, self._scribe.tell)
        stage.on_decided.append(self._scribe.decided)
        stage.on_answer.append(self._scribe.answered)
        stage.on_compact.append(self._compacted)

    def _compacted(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        names = {call.id: call.name for message in messages for call in message.calls}
        kept = [from_model(message, tool=names.get(message.call_id, "")) for message in messages]
        with self._current.turn:
            self._scribe.write()
            self._current.session.compact(kept, tokens)

    def close(self) -> None:
        """What could not be written by now is lost, and that is told."""
        try:
            self._scribe.close()
        except SeraiError as error:
            log.error("the end of the session could not be written: %s", error)
