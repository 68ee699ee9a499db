"""The resident's loop: pieces through it, what a tool call costs beside the tool, and the time to the first piece.

resident pieces bare|loop|kept COUNT        a provider in the process, at full speed
resident stream API sdk|serai COUNT URL     over a socket, from the fake of an API
resident tools bare|decided|asked COUNT
resident first API sdk|serai RUNS URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any

from serai.agents.models.providers import ClosableProvider, create_provider
from serai.agents.resident.driver import Resident
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.limits import Limits
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Text, Usage
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelProvider, ModelRequest
from serai.model.tools import ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.store import SessionFolder

PIECE = "word and "
MODELS = {"anthropic": "anthropic", "openai": "openai", "openai-responses": "openai"}


class Speedy:
    """A provider that has it all at hand."""

    def __init__(self, count: int, calls: tuple[ToolCall, ...] = ()) -> None:
        self._chunks = [Chunk(PIECE)] * count
        self._calls = calls

    async def models(self) -> Sequence[Model]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        for chunk in self._chunks:
            yield chunk
        calls = self._calls if request.messages[-1].role == "user" else ()
        yield Completion(ModelMessage("assistant", (TextBlock("done"),), calls), "tool_use" if calls else "end", Usage(1, 1))


class Tools:
    def list(self) -> list[ToolSpec]:
        return [ToolSpec("noop")]

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        return ToolResult.of("ok")


async def yes(_call: ToolCall) -> Allow | Deny:
    return Allow()


def session(provider: ModelProvider, model: Model, *, store: Any = None, decide: Any = yes) -> Session:
    limits = Limits().but(model_answer=1 << 30)
    return Session(
        Resident(RunContext(model=model, provider=provider, limits=limits, decide=decide), Tools()), store=store, limits=limits
    )


async def pieces(how: str, count: int) -> dict[str, float]:
    provider, model = Speedy(count), Model("speedy")
    if how == "bare":
        request = ModelRequest(model, (ModelMessage("user"),))
        return await timed(count, lambda: drained(provider.stream(request)))
    with tempfile.TemporaryDirectory() as folder:
        store = SessionFolder(folder).create(folder) if how == "kept" else None
        async with session(provider, model, store=store) as there:
            return await timed(count, lambda: drained(there.turn("go")))


async def drained(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def timed(count: int, work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    wall, cpu = perf_counter(), process_time()
    await work()
    wall, cpu = perf_counter() - wall, process_time() - cpu
    return {"us": wall / count * 1e6, "cpu": cpu / count * 1e6, "rate": count / wall}


# -- over a socket


def model_of(api: str, url: str) -> Model:
    return Model("fake-1", "Fake", api, MODELS[api], url if api == "anthropic" else f"{url}/v1")


def provider_of(api: str, url: str) -> ClosableProvider:
    return create_provider(model_of(api, url), environ={}, limits=Limits().but(model_answer=1 << 30))


async def by_sdk(api: str, url: str, prompt: str) -> AsyncIterator[object]:
    """As somebody would who has only the SDK."""
    message = [{"role": "user", "content": prompt}]
    if api == "anthropic":
        import anthropic

        client: Any = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
        stream = await client.messages.create(model="fake-1", max_tokens=1000, messages=message, stream=True)
    else:
        import openai

        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        if api == "openai":
            stream = await client.chat.completions.create(model="fake-1", messages=message, stream=True)
        else:
            stream = await client.responses.create(model="fake-1", input=message, stream=True)
    async with client:
        async for event in stream:
            yield event


async def stream(api: str, how: str, count: int, url: str) -> dict[str, float]:
    prompt = f"go\n>> repeat {count} say {PIECE.strip()}"
    await drained(by_sdk(api, url, "warm up"))
    if how == "sdk":
        return await timed(count, lambda: drained(by_sdk(api, url, prompt)))
    provider = provider_of(api, url)
    async with session(provider, model_of(api, url)) as there:
        await there.turn("warm up")
        sample = await timed(count, lambda: drained(there.turn(prompt)))
    await provider.close()
    return sample


async def first(api: str, how: str, runs: int, url: str) -> dict[str, float]:
    """From the prompt to the first piece of text; both with a client that has been used."""
    taken: list[float] = []
    provider = provider_of(api, url)
    async with session(provider, model_of(api, url)) as there:
        for _ in range(runs + 5):
            began = perf_counter()
            if how == "serai":
                seen = False
                async for event in there.turn("hello"):
                    if not seen and isinstance(event, Text):
                        taken.append(perf_counter() - began)
                        seen = True
                there.driver.conversation.messages.clear()  # type: ignore[attr-defined]
            else:
                await _first_by_sdk(api, url, began, taken)
    await provider.close()
    return {"ms": median(taken[5:]) * 1e3}


_CLIENTS: dict[str, Any] = {}


async def _first_by_sdk(api: str, url: str, began: float, taken: list[float]) -> None:
    if api not in _CLIENTS:
        if api == "anthropic":
            import anthropic

            _CLIENTS[api] = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
        else:
            import openai

            _CLIENTS[api] = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    client, message = _CLIENTS[api], [{"role": "user", "content": "hello"}]
    if api == "anthropic":
        answer = await client.messages.create(model="fake-1", max_tokens=1000, messages=message, stream=True)
    elif api == "openai":
        answer = await client.chat.completions.create(model="fake-1", messages=message, stream=True)
    else:
        answer = await client.responses.create(model="fake-1", input=message, stream=True)
    seen = False
    async for event in answer:
        if not seen and _has_text(event):
            taken.append(perf_counter() - began)
            seen = True


def _has_text(event: Any) -> bool:
    if getattr(event, "choices", None):
        return bool(event.choices[0].delta.content)
    return event.type in ("content_block_delta", "response.output_text.delta")


# -- tools


async def tools(how: str, count: int) -> dict[str, float]:
    if how == "bare":
        box, call = Tools(), ToolCall("noop", {}, "c")

        async def work() -> None:
            for _ in range(count):
                await box.call(call)

        return await timed(count, work)
    calls = tuple(ToolCall("noop", {}, f"c{number}") for number in range(count))
    async with session(Speedy(0, calls), Model("speedy"), decide=yes if how == "decided" else None) as there:

        async def answered() -> None:
            async for event in there.turn("go"):
                if isinstance(event, Approval):
                    await event.allow()

        return await timed(count, answered)


async def main(what: str, *rest: str) -> dict[str, float]:
    match what, *rest:
        case "pieces", how, count:
            return await pieces(how, int(count))
        case "stream", api, how, count, url:
            return await stream(api, how, int(count), url)
        case "first", api, how, runs, url:
            return await first(api, how, int(runs), url)
        case "tools", how, count:
            return await tools(how, int(count))
        case _:
            raise SystemExit(f"no such work: {what} {rest}")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
