"""A model for guests: one answer, or a private agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serai.agents.driver import NoInterceptors
from serai.agents.models.parrot import Parrot
from serai.agents.resident.run_context import RunContext
from serai.app.services.model_services import ChatService
from serai.errors import BadRequest, ModelFailed, NoModel
from serai.limits import Limits
from serai.model.approvals import Allow, Deny
from serai.model.events import Message, Usage
from serai.model.provider import Model, ModelProvider
from serai.model.tools import TextBlock, ToolCall, ToolSpec
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, allow_call, call, echo, hang, reply
from tests.support.app.service_requests import GUEST, ServiceCaller

FAILED = ModelFailed("overloaded", who="test/m1", temporary=True)


def caller(
    provider: ModelProvider, box: Box | None = None, *, limits: Limits = QUICK, allowed: Any = None, **harness: Any
) -> ServiceCaller:
    asked: list[str] = []

    def take(query: str) -> tuple[Model, ModelProvider]:
        asked.append(query)
        if query == "gone":
            raise NoModel("resolve provider: unknown model: gone")
        return MODEL, provider

    inside = RunContext(model=Model("other"), provider=Answers([]), limits=limits, **{"decide": allow_call, **harness})
    group = ChatService(take, lambda: inside, box or Box(echo=echo), limits, allowed=lambda: allowed)
    ask = ServiceCaller(group)
    ask.queries = asked  # type: ignore[attr-defined]
    return ask


# -- one answer -------------------------------------------------------------------------------------------------------------------


async def test_a_chat_is_one_call_of_the_model_that_was_meant() -> None:
    provider = Answers([reply("Greeting", usage=Usage(9, 2))])
    ask = caller(provider)
    messages = [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}, {"content": "c"}]
    assert await ask("chat", system="Title it", messages=messages, model="small", max_tokens=30.0) == {
        "text": "Greeting",
        "usage": {"input": 9, "output": 2},
    }
    [request] = provider.requests
    assert ask.queries == ["small"]  # type: ignore[attr-defined]
    assert (request.model, request.system, request.tools, request.options.max_tokens) == (MODEL, "Title it", (), 30)
    assert [message.role for message in request.messages] == ["user", "assistant", "user"]


async def test_parrot_chats_too() -> None:
    assert (await caller(Parrot())("chat", messages=[{"role": "user", "content": ">> say Hello there"}]))["text"] == "Hello there"


async def test_a_chat_that_fails_is_not_tried_again() -> None:
    provider = Answers([FAILED])
    with pytest.raises(ModelFailed, match="overloaded"):
        await caller(provider)("chat", messages=[{"content": "x"}])
    assert len(provider.requests) == 1


async def test_a_chat_needs_something_to_say_and_somebody_to_say_it_to() -> None:
    with pytest.raises(BadRequest, match="messages must not be empty"):
        await caller(Answers([reply("x")]))("chat", messages=[])
    with pytest.raises(NoModel, match="unknown model: gone"):
        await caller(Answers([reply("x")]))("chat", messages=[{"content": "x"}], model="gone")


async def test_a_chat_that_nobody_waits_for_is_ended() -> None:
    never = asyncio.Event()
    provider = Answers([never])
    asking = asyncio.ensure_future(caller(provider)("chat", messages=[{"content": "x"}]))
    while not provider.requests:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert provider.closed == 1


# -- a private agent --------------------------------------------------------------------------------------------------------------


async def test_a_private_agent_says_all_that_it_said_and_what_it_took() -> None:
    provider = Answers([reply("I look.", call("echo", x=1), usage=Usage(100, 10))], [reply("There are 4.", usage=Usage(110, 8))])
    box = Box(echo=echo)
    assert await caller(provider, box)("run", task="count files", system="Be brief", tools="all") == {
        "text": "I look.\nThere are 4.",
        "turns": 2,
        "usage": {"input": 210, "output": 18},
    }
    assert [one.asker for one in box.calls] == [GUEST]
    first, second = provider.requests
    assert first.system.startswith("Be brief")
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]


async def test_a_private_agent_has_only_background_tools_unless_all_are_wanted() -> None:
    box = Box(look=(ToolSpec("look", background=True), echo), zap=echo)
    for wanted, names in ((None, ["look"]), ("background_safe", ["look"]), ("all", ["look", "zap"])):
        provider = Answers([reply("done")])
        await caller(provider, box)("run", task="x", tools=wanted)
        assert [tool.name for tool in provider.requests[0].tools] == names
    provider = Answers([reply("done")])
    await caller(provider, box, allowed=("zap",))("run", task="x", tools="all")
    assert [tool.name for tool in provider.requests[0].tools] == ["zap"]


@pytest.mark.req("piglet.fix.29")
async def test_a_private_agent_whose_model_fails_is_an_error() -> None:
    with pytest.raises(ModelFailed, match="overloaded"):
        await caller(Answers([FAILED]))("run", task="x")


async def test_a_private_agents_calls_are_decided_like_everybodys() -> None:
    decided: list[ToolCall] = []

    async def decide(call: ToolCall) -> Allow | Deny:
        decided.append(call)
        return Deny("not today")

    box = Box(echo=echo)
    provider = Answers([reply("", call("echo"))], [reply("so be it")])
    assert (await caller(provider, box, decide=decide)("run", task="x", tools="all"))["text"] == "so be it"
    assert [one.asker for one in decided] == [GUEST]
    assert not box.calls
    [block] = provider.requests[1].messages[-1].content
    assert isinstance(block, TextBlock)
    assert "not today" in block.text


async def test_where_nobody_decides_a_private_agent_may_do_nothing() -> None:
    box = Box(echo=echo)
    await caller(Answers([reply("", call("echo"))], [reply("so be it")]), box, decide=None)("run", task="x", tools="all")
    assert not box.calls


class Censor(NoInterceptors):
    async def filter_message(self, message: Message) -> Message | None:
        return None if "secret" in message.text else message


async def test_what_an_interceptor_hides_is_hidden_from_the_guest_too() -> None:
    provider = Answers([reply("the secret", call("echo"))], [reply("the end")])
    assert (await caller(provider, interceptors=Censor())("run", task="x", tools="all"))["text"] == "the end"


async def test_a_private_agent_that_goes_in_circles_ends_with_what_it_has_said() -> None:
    provider = Answers([reply("again", call("echo"))])
    for most, turns in ((2, 2), (0, 3), (None, 3)):
        data = await caller(provider, limits=QUICK.but(steps=3))("run", task="x", tools="all", max_turns=most)
        assert (data["text"], data["turns"], data["stopped"]) == ("\n".join(["again"] * turns), turns, "max_turns")


async def test_a_private_agent_that_nobody_waits_for_is_ended() -> None:
    box = Box(hang=hang)
    asking = asyncio.ensure_future(caller(Answers([reply("", call("hang"))]), box)("run", task="x", tools="all"))
    while not box.calls:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_an_empty_task_is_none() -> None:
    with pytest.raises(BadRequest, match="the task is empty"):
        await caller(Answers([reply("x")]))("run", task=" ")
