"""What guests say to what is typed, to the system prompt and to a long conversation: who is asked, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from serai.errors import NotAllowed, Refused
from serai.model.contributions import Compactor, Contributions, InputTransformer, MessageHook, PromptSection, TransformResult
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock
from tests.support.host.fake_guests import Fake, open_fake_host


class Wordy(Fake):
    """Has a say in everything; `fails` names what it cannot do."""

    def __init__(self, name: str, contributions: Contributions, *, handles: bool = False, fails: bool = False) -> None:
        super().__init__(name, contributions)
        self.handles = handles
        self.fails = fails
        self.heard: list[str] = []

    async def transform(self, text: str) -> TransformResult:
        self.heard.append(text)
        if self.fails:
            raise Refused("it has no idea", who=self.name)
        return TransformResult(f"{text}+{self.name}", self.handles)

    async def inject(self, text: str) -> str:
        self.heard.append(text)
        if self.fails:
            raise Refused("it has no idea", who=self.name)
        return f"{self.name} knows {text}" if text else "  "

    async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return messages[-1:]


def transformer(name: str, *priorities: int, **how: bool) -> Wordy:
    offered = tuple(InputTransformer(f"{name}{place}", priority) for place, priority in enumerate(priorities))
    return Wordy(name, Contributions(input_transformers=offered), **how)


def hook(name: str, *priorities: int, **how: bool) -> Wordy:
    offered = tuple(MessageHook(f"{name}{place}", priority) for place, priority in enumerate(priorities))
    return Wordy(name, Contributions(message_hooks=offered), **how)


async def test_transformers_are_asked_by_priority_then_load_order_and_each_gets_what_the_one_before_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guests = transformer("late", 10), transformer("early", -1), transformer("a", 0), transformer("b", 0)
    async with open_fake_host(monkeypatch, tmp_path, *guests) as host:
        assert await host.texts.transform("x") == TransformResult("x+early+a+b+late")


@pytest.mark.parametrize("make", [transformer, hook])
async def test_a_guest_is_asked_once_in_the_place_of_its_first_however_many_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[..., Wordy]
) -> None:
    several, one = make("several", 5, -5, 0), make("one", -1)
    async with open_fake_host(monkeypatch, tmp_path, one, several) as host:
        if make is transformer:
            assert await host.texts.transform("x") == TransformResult("x+several+one")
        else:
            assert await host.texts.inject("x") == ["several knows x", "one knows x"]
    assert (len(several.heard), len(one.heard)) == (1, 1)


async def test_who_handles_a_text_is_the_last_to_be_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taker, after = transformer("taker", 0, handles=True), transformer("after", 1)
    async with open_fake_host(monkeypatch, tmp_path, taker, after) as host:
        changed = await host.texts.transform("x")
    assert changed.handled
    assert after.heard == []


async def test_a_transformer_that_fails_fails_the_submission_and_names_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failing, after = transformer("failing", 0, fails=True), transformer("after", 1)
    async with open_fake_host(monkeypatch, tmp_path, failing, after) as host:
        with pytest.raises(NotAllowed, match="input transformer failing0: failing: it has no idea") as caught:
            await host.texts.transform("x")
    assert caught.value.who == "fake:failing"
    assert caught.value.hint
    assert after.heard == []


@pytest.mark.parametrize("make", [transformer, hook])
async def test_who_is_down_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[..., Wordy]) -> None:
    dead, alive = make("dead", 0), make("alive", 1)
    async with open_fake_host(monkeypatch, tmp_path, dead, alive) as host:
        dead.die()
        if make is transformer:
            assert await host.texts.transform("x") == TransformResult("x+alive")
        else:
            assert await host.texts.inject("x") == ["alive knows x"]
    assert dead.heard == []


async def test_a_hook_that_fails_loses_its_own_injection_and_a_person_is_warned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guests = hook("a", 0), hook("failing", 1, fails=True), hook("b", 2)
    async with open_fake_host(monkeypatch, tmp_path, *guests) as host:
        assert await host.texts.inject("x") == ["a knows x", "b knows x"]
        assert "[serai] failing could not add what it wanted to: failing: it has no idea" in host.context.notes


async def test_what_is_blank_is_no_injection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_fake_host(monkeypatch, tmp_path, hook("a", 0)) as host:
        assert await host.texts.inject("") == []


async def test_sections_are_in_load_order_and_those_of_a_guest_that_is_down_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sections = [PromptSection(title, "text", order) for title, order in (("one", 9), ("two", 0), ("three", 5))]
    first, second = (
        Fake("first", Contributions(prompt_sections=tuple(sections[:2]))),
        Fake("second", Contributions(prompt_sections=tuple(sections[2:]))),
    )
    async with open_fake_host(monkeypatch, tmp_path, first, second) as host:
        assert host.texts.list_sections() == sections
        first.die()
        assert host.texts.list_sections() == sections
        await host.guest("first").stop()
        assert host.texts.list_sections() == sections[2:]


async def test_the_first_compactor_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compactor(name: str) -> Wordy:
        return Wordy(name, Contributions(compactors=(Compactor(name),)))

    messages = [ModelMessage("user", (TextBlock(text),)) for text in ("one", "two")]
    first, second = compactor("first"), compactor("second")
    async with open_fake_host(monkeypatch, tmp_path, first, second) as host:
        assert host.texts.compactor == Compactor("first")
        assert await host.texts.compact(messages) == messages[1:]
    async with open_fake_host(monkeypatch, tmp_path) as host:
        assert host.texts.compactor is None
        assert await host.texts.compact(messages) == ()
