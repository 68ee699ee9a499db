"""Providers over their real SDKs, bound to the fakes on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from serai.agents.models.providers import ClosableProvider, create_provider
from serai.errors import ModelFailed
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelOptions, ModelRequest
from serai.model.tools import ImageBlock, TextBlock, ToolSpec
from serai.testing.models.server import FakeModels

APIS = ["anthropic", "openai", "openai-responses"]
KEY = "sk-test-0123456789abcdef"
ENVIRON = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
PNG = ImageBlock(b"\x89PNG\r\n\x1a\nnothing", "image/png")
READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
ODD = ToolSpec("zot:we.ather", "Has a name that no API takes.")


class Harness:
    """A fake, and the provider of one of its APIs."""

    def __init__(self, server: FakeModels, model: Model, provider: ClosableProvider) -> None:
        self.server = server
        self.model = model
        self.provider = provider
        self.headers: dict[str, str] = {}  # of the options

    def request(
        self, *messages: ModelMessage | str, thinking: str = "off", tools: tuple[ToolSpec, ...] = (READ, ODD)
    ) -> ModelRequest:
        said = tuple(ModelMessage("user", (TextBlock(one),)) if isinstance(one, str) else one for one in messages)
        options = ModelOptions(thinking=thinking, headers=self.headers)  # type: ignore[arg-type]
        return ModelRequest(self.model, said, "Be brief.", tools, options)

    async def ask(self, *messages: ModelMessage | str, thinking: str = "off") -> tuple[list[Chunk], Completion]:
        *chunks, last = [one async for one in self.provider.stream(self.request(*messages, thinking=thinking))]
        assert isinstance(last, Completion)
        return [chunk for chunk in chunks if isinstance(chunk, Chunk)], last

    async def failure(self, *messages: str) -> ModelFailed:
        with pytest.raises(ModelFailed) as caught:
            await self.ask(*messages)
        return caught.value


@asynccontextmanager
async def open_harness(
    api: str, *, key: str = KEY, limits: Limits | None = None, window: int = 0, environ: dict[str, str] = ENVIRON, **other: Any
) -> AsyncIterator[Harness]:
    """`other`: fields of the model."""
    async with FakeModels(key=KEY, window=window) as server:
        model = msgspec.structs.replace(server.model(api), **other)
        provider = create_provider(model, environ=environ, limits=limits or Limits(), key=key)
        try:
            yield Harness(server, model, provider)
        finally:
            await provider.close()
            await provider.close()  # again does no harm
        await server.until(lambda: server.connections == 0)
