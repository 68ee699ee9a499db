"""The real SDKs and a plain socket, as clients of the fakes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable
from typing import Any, Literal

import anthropic
import openai

from serai.testing.models.server import FakeModels

Api = Literal["anthropic", "openai", "openai-responses"]
APIS: tuple[Api, ...] = ("anthropic", "openai", "openai-responses")
PATHS: dict[Api, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions", "openai-responses": "/v1/responses"}

Json = dict[str, Any]


def body(api: Api, prompt: str, *, stream: bool = False, tools: tuple[str, ...] = ()) -> Json:
    """The smallest request of an API."""
    made: Json = {"model": "fake-1", **({"stream": True} if stream else {})}
    schema = {"type": "object"}
    if api == "openai-responses":
        offered: list[Json] = [{"type": "function", "name": name, "parameters": schema} for name in tools]
        return made | {"input": prompt} | ({"tools": offered} if tools else {})
    made["messages"] = [{"role": "user", "content": prompt}]
    if api == "anthropic":
        made["max_tokens"] = 1000
        offered = [{"name": name, "input_schema": schema} for name in tools]
    else:
        offered = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in tools]
    return made | ({"tools": offered} if tools else {})


class Clients:
    """Both SDKs, bound to one server. They do not try again, and read no certificates: the server speaks plain HTTP."""

    def __init__(self, server: FakeModels, key: str = "fake-key", *, timeout: float = 20.0) -> None:
        plain = anthropic.DefaultAsyncHttpxClient(verify=False), openai.DefaultAsyncHttpxClient(verify=False)
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=server.url, api_key=key, max_retries=0, timeout=timeout, http_client=plain[0]
        )
        self.openai = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=timeout, http_client=plain[1]
        )

    async def close(self) -> None:
        await self.anthropic.close()
        await self.openai.close()

    async def send(self, api: Api, request: Json) -> Any:
        """A message, or a stream when the request wants one."""
        match api:
            case "anthropic":
                return await self.anthropic.messages.create(**request)
            case "openai":
                return await self.openai.chat.completions.create(**request)
        return await self.openai.responses.create(**request)

    async def text(self, api: Api, prompt: str, *, stream: bool = True) -> str:
        """What is said to a prompt."""
        answer = await self.send(api, body(api, prompt, stream=stream))
        if not stream:
            return whole_text(api, answer)
        return "".join([piece async for event in answer for piece in pieces(api, event)])


def whole_text(api: Api, answer: Any) -> str:
    match api:
        case "anthropic":
            return "".join(block.text for block in answer.content if block.type == "text")
        case "openai":
            return answer.choices[0].message.content or ""
    return str(answer.output_text)


def pieces(api: Api, event: Any) -> list[str]:
    """The text in one event of a stream."""
    match api:
        case "anthropic":
            return [event.delta.text] if event.type == "content_block_delta" and event.delta.type == "text_delta" else []
        case "openai":
            return [choice.delta.content or "" for choice in event.choices]
    return [event.delta] if event.type == "response.output_text.delta" else []


async def read_events(answer: AsyncIterable[Any]) -> list[Any]:
    return [event async for event in answer]


async def dial(server: FakeModels) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


def request_bytes(path: str, request: object, *, close: bool = True, method: str = "POST") -> bytes:
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: fake", f"content-length: {len(data)}", *(["connection: close"] if close else [])]
    return "\r\n".join([*lines, "\r\n"]).encode() + data


async def send_raw(server: FakeModels, path: str, request: object, *, method: str = "POST") -> tuple[int, bytes, bytes]:
    """Status, head and body of a request, as bytes on the wire."""
    reader, writer = await dial(server)
    writer.write(request_bytes(path, request, method=method))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, decode_chunks(rest) if b"chunked" in head else rest


def decode_chunks(data: bytes) -> bytes:
    parts, start = [], 0
    for size in chunks(data):
        start = data.index(b"\r\n", start) + 2
        parts.append(data[start : start + size])
        start += size + 2
    return b"".join(parts)


def chunks(data: bytes) -> list[int]:
    """The sizes of the chunks of a body, its empty last one left out."""
    sizes, start = [], 0
    while start < len(data):
        end = data.index(b"\r\n", start)
        sizes.append(int(data[start:end], 16))
        start = end + 2 + sizes[-1] + 2
    return sizes[:-1]


def sse(stream: bytes) -> list[tuple[str, Any]]:
    """The events of a body: name and data."""
    found = []
    for frame in stream.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        assert set(fields) <= {"event", "data"}
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found
