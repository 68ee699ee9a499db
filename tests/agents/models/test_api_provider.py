"""Each provider over its real SDK against the fakes on loopback."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing

import pytest

from serai.errors import Closed, ModelFailed
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, ModelMessage
from serai.model.tools import TextBlock
from serai.testing.models.reply import Fault
from tests.support.agents.model_providers import APIS, ODD, PNG, open_harness


def join_text(chunks: list[Chunk], what: str) -> str:
    return "".join(chunk.text for chunk in chunks if chunk.what == what)


@pytest.mark.req("resident.models.stream")
@pytest.mark.parametrize("api", APIS)
async def test_text_and_thinking_stream_and_the_completion_has_the_whole(api: str) -> None:
    async with open_harness(api) as one:
        chunks, last = await one.ask('>> think hm, let me see\n>> say "Grüße,\\nworld"', thinking="high")
        assert join_text(chunks, "thinking") == last.message.thinking == "hm, let me see"
        assert join_text(chunks, "text") == "Grüße,\nworld"
        assert last.message.content == (TextBlock("Grüße,\nworld"),)
        assert len(chunks) > 4
        assert [chunk.index for chunk in chunks] == sorted(chunk.index for chunk in chunks)
        assert last.stop == "end"


@pytest.mark.req("resident.models.tools")
@pytest.mark.parametrize("api", APIS)
async def test_parallel_calls_come_with_their_arguments_and_the_conversation_goes_on(api: str) -> None:
    async with open_harness(api) as one:
        prompt = '>> think why\n>> say reading\n>> call read {"path": "a"}\n>> call read {"path": "b"}\n>> call nobody {broken'
        prompt += "\n>> say $results"
        chunks, last = await one.ask(prompt, thinking="low")
        assert last.stop == "tool_use"
        assert [(call.name, call.arguments) for call in last.message.calls] == [
            ("read", {"path": "a"}),
            ("read", {"path": "b"}),
            ("nobody", "{broken"),
        ]
        assert len({call.id for call in last.message.calls}) == 3
        assert len({chunk.index for chunk in chunks if chunk.what == "tool_input"}) == 3

        user = ModelMessage("user", (TextBlock(prompt),))
        results = [
            ModelMessage("tool", (TextBlock(f"result {number}"), PNG), call_id=call.id, is_error=number == 2)
            for number, call in enumerate(last.message.calls)
        ]
        _, then = await one.ask(user, last.message, *results, thinking="low")  # the fakes check it as the real APIs would
        said = then.message.content[0]
        assert isinstance(said, TextBlock)
        assert [line.removeprefix("error: ") for line in said.text.split("\n")] == ["result 0", "result 1", "result 2"]
        assert one.server.connections == 1  # one connection for both: the first answer was read out


@pytest.mark.req("resident.models.names")
@pytest.mark.parametrize("api", APIS)
async def test_a_tool_whose_name_no_api_takes_is_called_by_it(api: str) -> None:
    async with open_harness(api) as one:
        await one.ask("hello")
        body = one.server.requests[-1].body
        sent = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]][1]
        assert sent != ODD.name
        _, last = await one.ask(f">> call {sent} {{}}")
        assert [call.name for call in last.message.calls] == [ODD.name]


@pytest.mark.req("resident.models.replay")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("other", APIS)
async def test_a_conversation_with_another_provider_goes_on_with_this_one(api: str, other: str) -> None:
    prompt = '>> think secretly\n>> say so\n>> call read {"path": "a"}\n>> say done'
    async with open_harness(other) as one:
        _, last = await one.ask(prompt, thinking="high")
    async with open_harness(api) as one:
        result = ModelMessage("tool", (TextBlock("text"),), call_id=last.message.calls[0].id)
        _, then = await one.ask(ModelMessage("user", (TextBlock(prompt),)), last.message, result, thinking="high")
        assert then.message.content == (TextBlock("done"),)
        sent = str(one.server.requests[-1].body["input" if api == "openai-responses" else "messages"])
        assert ("'thinking'" in sent or "'reasoning'" in sent) == (api == other != "openai")


@pytest.mark.req("resident.models.images")
@pytest.mark.parametrize("api", APIS)
async def test_images_of_the_user_are_sent(api: str) -> None:
    async with open_harness(api) as one:
        await one.ask(ModelMessage("user", (TextBlock("what is it?"), PNG, TextBlock("  "))))
        assert "iVBOR" in str(one.server.requests[-1].body)


@pytest.mark.req("resident.models.usage")
@pytest.mark.parametrize("api", APIS)
async def test_tokens_and_their_price_are_told_once_each(api: str) -> None:
    async with open_harness(api) as one:
        _, first = await one.ask("hello")
        _, last = await one.ask("hello", first.message, "again")
        used = last.usage
        assert used.input > 0
        assert used.output > 0
        assert used.cache_read > 0  # and not part of the input
        cost = (used.input * 3.0 + used.output * 15.0 + used.cache_read * 0.3 + used.cache_write * 3.75) / 1e6
        assert used.cost_usd == pytest.approx(cost)


@pytest.mark.req("resident.models.stop")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("reason", "stop"), [("length", "length"), ("refusal", "error")])
async def test_the_reason_to_stop_is_told_in_our_words(api: str, reason: str, stop: str) -> None:
    async with open_harness(api) as one:
        _, last = await one.ask(f">> say well\n>> stop {reason}")
        assert last.stop == stop
        assert (last.message.native is not None) == (stop == "error")  # it has the provider's own word


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_what_may_work_later_is_temporary_and_says_when(api: str, status: int) -> None:
    async with open_harness(api) as one:
        failed = await one.failure(f">> fail {status} retry-after=1.5 not now")
        assert (failed.status, failed.temporary, failed.wait, failed.too_long) == (status, True, 1.5, False)
        assert "not now" in failed.message
        assert len(one.server.requests) == 1  # nobody has tried again behind our back


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_what_stays_wrong_is_not_temporary(api: str, status: int) -> None:
    async with open_harness(api) as one:
        failed = await one.failure(f">> fail {status} never")
        assert (failed.status, failed.temporary, failed.wait, failed.too_long) == (status, False, None, False)


@pytest.mark.req("resident.models.secrets")
@pytest.mark.parametrize("api", APIS)
async def test_a_wrong_key_names_its_variable_and_is_not_told(api: str) -> None:
    wrong = "sk-wrong-9876543210"
    async with open_harness(api, key=wrong) as one:
        failed = await one.failure("hello")
        assert (failed.status, failed.temporary) == (401, False)
        assert ("ANTHROPIC_API_KEY" if api == "anthropic" else "OPENAI_API_KEY") in failed.hint
        one.server.fault(Fault("status", status=400, body=f'{{"error": {{"message": "the key {wrong} is bad"}}}}'.encode()))
        told = await one.failure("hello")
        for error in (failed, told):
            everything = [str(error), repr(error), str(error.to_json()), *traceback.format_exception(error), repr(one.provider)]
            assert wrong not in "".join(everything)
            assert error.__context__ is error.__cause__ is None
        assert "the key … is bad" in told.message


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
async def test_a_conversation_that_is_too_long_is_told_as_such(api: str) -> None:
    async with open_harness(api, window=500) as one:
        failed = await one.failure("word " * 2000)
        assert failed.too_long
        assert not failed.temporary


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("script", [">> say one two\n>> cut", ">> cut", ">> say one\n>> malformed"])
async def test_a_stream_that_breaks_is_temporary_and_has_no_completion(api: str, script: str) -> None:
    async with open_harness(api) as one:
        got: list[Chunk | Completion] = []
        with pytest.raises(ModelFailed) as caught:
            async for piece in one.provider.stream(one.request(script)):
                got.append(piece)  # noqa: PERF401 (what came before the error counts)
        assert caught.value.temporary
        assert ("cannot be understood" if "malformed" in script else "broke off") in caught.value.message
        assert all(isinstance(piece, Chunk) for piece in got)
        assert ("one" in "".join(piece.text for piece in got if isinstance(piece, Chunk))) == ("say" in script)


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("status", "temporary"), [(529, True), (429, True), (500, True)])
async def test_an_error_in_mid_stream_is_the_same_error(api: str, status: int, temporary: bool) -> None:
    async with open_harness(api) as one:
        one.server.fault(Fault("error", status=status, after=3))
        failed = await one.failure("hello")
        assert failed.temporary == temporary
        assert "in mid-answer" in failed.message


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["close", "refuse"])
async def test_a_connection_that_is_lost_is_temporary(api: str, kind: str) -> None:
    async with open_harness(api) as one:
        one.server.fault(Fault(kind))  # type: ignore[arg-type]
        failed = await one.failure("hello")
        assert (failed.temporary, failed.status) == (True, 0)
        _, last = await one.ask("hello")
        assert last.message.content == (TextBlock("You said: hello"),)


@pytest.mark.req("resident.models.idle")
@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_says_nothing_more_is_left(api: str) -> None:
    async with open_harness(api, limits=Limits().but(model_idle=0.2)) as one:
        failed = await one.failure(">> say one\n>> hang")
        assert failed.temporary
        assert failed.limit is not None
        assert failed.limit.name == "model_idle"
        await one.server.until(lambda: one.server.open == 0)


@pytest.mark.req("resident.models.huge")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("how", ["one event", "many events"])
async def test_an_answer_that_is_too_long_is_stopped(api: str, how: str) -> None:
    async with open_harness(api, limits=Limits().but(model_answer=20_000)) as one:
        if how == "one event":
            one.server.fault(Fault("huge", bytes=1_000_000))
        failed = await one.failure(">> repeat 100000000 say 0123456789")
        assert failed.limit is not None
        assert failed.limit.name == "model_answer"
        assert not failed.temporary
        await one.server.until(lambda: one.server.open == 0)


@pytest.mark.req("resident.models.close")
@pytest.mark.parametrize("api", APIS)
async def test_leaving_in_mid_stream_closes_the_connection_at_once(api: str) -> None:
    async with open_harness(api) as one:
        async with aclosing(one.provider.stream(one.request(">> say one two three\n>> hang"))) as answer:
            first = await anext(answer)
            assert isinstance(first, Chunk)
            assert one.server.open == 1
        await one.server.until(lambda: one.server.open == 0 and one.server.connections == 0)


@pytest.mark.req("resident.models.close")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("script", [">> say one\n>> hang", ">> hang"])
async def test_a_cancelled_call_leaves_no_connection(api: str, script: str) -> None:
    async with open_harness(api) as one:
        asking = asyncio.create_task(one.ask(script))
        await one.server.until(lambda: one.server.open == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await one.server.until(lambda: one.server.open == 0 and one.server.connections == 0)


@pytest.mark.req("resident.models.close")
@pytest.mark.parametrize("api", APIS)
async def test_a_closed_provider_says_so(api: str) -> None:
    async with open_harness(api) as one:
        await one.ask("hello")
        await one.provider.close()
        with pytest.raises(Closed):
            await one.ask("hello")


async def test_a_slow_answer_is_read_as_it_comes() -> None:
    async with open_harness("anthropic", limits=Limits().but(model_idle=5.0)) as one:
        one.server.fault(Fault("slow", seconds=0.001))
        _, last = await one.ask(">> say a b c")
        assert last.message.content == (TextBlock("a b c"),)
