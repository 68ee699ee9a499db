"""A key that a person presses for a guest: what it wants is done, and what goes wrong is told once (spec piglet 5.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.errors import NoCommand
from serai.model.actions import NoAction, Notice, SubmitPrompt
from tests.agents.resident.parts import Answers, conversation, said
from tests.app.houses import Person, opened, prompts_in
from tests.support import piglet_guests
from tests.support.piglet_guests.steps import result, throw


async def test_a_pressed_key_has_its_guests_wish_done(tmp_path: Path) -> None:
    ask = {"action": {"type": "sendMessage", "payload": {"content": "check the alert"}}}
    shortcuts = {"ctrl+g": [result(ask)], "ctrl+n": "hello", "ctrl+x": [throw("no station")]}
    folder = piglet_guests.write(tmp_path, "weather", shortcuts=shortcuts)
    person = Person()
    async with opened(tmp_path, folder, answers=Answers([said("done")]), surface=person) as app:
        assert (await app.shortcut("ctrl+g")).action == SubmitPrompt("check the alert")
        await app.idle()
        assert prompts_in(conversation(app.session)) == ["check the alert"]
        assert isinstance((await app.shortcut("ctrl+n")).action, Notice)
        assert [action.text for action in person.actions if isinstance(action, Notice)] == ["hello"]
        outcome = await app.shortcut("ctrl+x")
        assert (outcome.action, outcome.error) == (NoAction(), "ext weather shortcut ctrl+x: no station")
        assert person.actions[-1] == Notice(outcome.error, "error", "serai")
        with pytest.raises(NoCommand, match="no guest has the shortcut"):
            await app.shortcut("ctrl+q")
