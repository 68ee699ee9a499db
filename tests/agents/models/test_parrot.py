"""The model that needs neither key nor network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serai.agents.models.catalogue import PARROT, Catalogue
from serai.agents.models.parrot import Parrot
from serai.errors import Closed, LimitHit, ModelFailed
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from serai.model.tools import TextBlock, ToolCall

MODEL = Catalogue.load_built_in().get(PARROT)
assert MODEL is not None


def request(*messages: ModelMessage | str, system: str = "") -> ModelRequest:
    assert MODEL is not None
    said = tuple(ModelMessage("user", (TextBlock(one),)) if isinstance(one, str) else one for one in messages)
    return ModelRequest(MODEL, said, system)


async def ask(*messages: ModelMessage | str, limits: Limits | None = None) -> tuple[list[Chunk], Completion]:
    *chunks, last = [one async for one in Parrot(limits).stream(request(*messages))]
    assert isinstance(last, Completion)
    return [chunk for chunk in chunks if isinstance(chunk, Chunk)], last


@pytest.mark.req("resident.parrot.usual")
async def test_it_repeats_what_it_is_told_word_by_word_and_costs_nothing() -> None:
    chunks, last = await ask("good morning")
    assert [chunk.text for chunk in chunks] == ["You ", "said: ", "good ", "morning"]
    assert last.message.content == (TextBlock("You said: good morning"),)
    assert last.stop == "end"
    assert (last.usage.input, last.usage.output, last.usage.cost_usd) == (3, 6, 0.0)


@pytest.mark.req("resident.parrot.script")
async def test_a_script_makes_it_think_call_tools_and_tell_their_results() -> None:
    prompt = '>> think a bit\n>> say so\n>> call read {"path": "x"}\n>> repeat 2 call odd {broken\n>> say got $results'
    chunks, last = await ask(prompt)
    assert last.message.thinking == "a bit"
    assert [(call.name, call.arguments) for call in last.message.calls] == [
        ("read", {"path": "x"}),
        ("odd", "{broken"),
        ("odd", "{broken"),
    ]
    assert last.stop == "tool_use"
    assert {chunk.what for chunk in chunks} == {"thinking", "text", "tool_input"}
    assert len({call.id for call in last.message.calls}) == 3

    user = ModelMessage("user", (TextBlock(prompt),))
    results = [ModelMessage("tool", (TextBlock(f"r{n}"),), call_id=call.id) for n, call in enumerate(last.message.calls)]
    _, then = await ask(user, last.message, *results)
    assert then.message.content == (TextBlock("got r0\nr1\nr2"),)


@pytest.mark.req("resident.parrot.script")
async def test_the_same_request_has_the_same_answer() -> None:
    assert await ask(">> call a {}") == await ask(">> call a {}")
    other = await ask(">> call a {}\nelse")
    assert other[1].message.calls[0].id != (await ask(">> call a {}"))[1].message.calls[0].id


@pytest.mark.req("resident.parrot.faults")
async def test_it_fails_as_it_is_told() -> None:
    with pytest.raises(ModelFailed) as caught:
        await ask(">> fail 429 retry-after=2 busy")
    assert (caught.value.status, caught.value.temporary, caught.value.wait) == (429, True, 2.0)
    with pytest.raises(ModelFailed) as caught:
        await ask(">> fail 400 the prompt is too long")
    assert caught.value.too_long
    for directive, why in (("cut", "broke off"), ("malformed", "cannot be understood")):
        with pytest.raises(ModelFailed, match=why) as caught:
            await ask(f">> say a\n>> {directive}")
        assert caught.value.temporary


@pytest.mark.req("resident.parrot.faults")
async def test_it_hangs_no_longer_than_a_model_may() -> None:
    with pytest.raises(ModelFailed) as caught:
        await ask(">> hang", limits=Limits().but(model_idle=0.01))
    assert caught.value.limit is not None
    assert caught.value.limit.name == "model_idle"
    chunks, _ = await ask(">> wait 0.001\n>> say a")
    assert len(chunks) == 1


@pytest.mark.req("resident.parrot.faults")
async def test_an_endless_answer_is_stopped_and_others_get_their_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    with pytest.raises(ModelFailed, match="too long") as caught:
        await ask(">> repeat 100000000 say word ", limits=Limits().but(model_answer=10_000))
    other.cancel()
    assert caught.value.limit is not None
    assert turns > 10


@pytest.mark.req("resident.parrot.faults")
async def test_it_calls_no_more_tools_than_a_model_may() -> None:
    with pytest.raises(ModelFailed) as caught:
        await ask(">> repeat 100000 call read {}")
    assert caught.value.limit == LimitHit("model_calls", 1000)


@pytest.mark.req("resident.models.replay")
async def test_it_goes_on_after_a_call_with_arguments_of_any_depth() -> None:
    nested: Any = {}
    for _ in range(2000):
        nested = {"a": nested}
    call = ModelMessage("assistant", (), (ToolCall("read", nested, "a"),))
    _, last = await ask("hello", call, "again")
    assert last.stop == "end"


@pytest.mark.parametrize(("reason", "stop"), [("length", "length"), ("refusal", "error"), ("end", "end")])
async def test_it_stops_for_the_reason_it_is_told(reason: str, stop: str) -> None:
    _, last = await ask(f">> say a\n>> stop {reason}")
    assert last.stop == stop


async def test_it_lists_itself_and_says_when_it_is_closed() -> None:
    parrot = Parrot()
    assert [model.key for model in await parrot.models()] == [PARROT]
    await parrot.close()
    await parrot.close()
    with pytest.raises(Closed):
        await anext(parrot.stream(request("hello")))
