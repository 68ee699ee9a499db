"""What the resident has of a conversation, in memory and in its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.model.provider import ModelMessage
from serai.store import SessionFolder, to_model_message
from tests.support.agents.scripted_models import texts


def is_whole(messages: Sequence[ModelMessage]) -> bool:
    """As providers check it: behind each answer exactly the results of its calls, and none anywhere else."""
    owed: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.call_id not in owed:
                return False
            owed.remove(message.call_id)
            continue
        if owed:
            return False
        owed = {call.id for call in message.calls}
    return not owed


def get_driver(session: Session) -> Resident:
    assert isinstance(session.driver, Resident)
    return session.driver


def read_stored_texts(folder: Path, id: str) -> list[str]:
    with SessionFolder(str(folder)).open(id) as again:
        return texts([to_model_message(message) for message in again.read_messages()])
