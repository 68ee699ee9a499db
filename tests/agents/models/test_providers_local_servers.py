"""What servers on this machine tell of their models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.models.catalogue import Catalogue
from serai.agents.models.providers import ProviderPool, probe_local_servers
from serai.limits import Limits
from serai.model.provider import Cost, Model
from serai.testing.models.server import FakeModels

LIMITS = Limits()


def make_model(base_url: str, **other: object) -> Model:
    said = {"context_window": 8000, "cost": Cost(1, 2), "api": "openai", "provider": "here", **other}
    return Model("m1", "M One", base_url=base_url, **said)  # type: ignore[arg-type]


async def test_a_server_of_this_machine_tells_which_models_it_has(tmp_path: Path) -> None:
    async with FakeModels(key="sk-here") as server:
        base_url = f"{server.url}/v1"
        environ = {"HERE_API_KEY": "sk-here", "SERAI_HOME": str(tmp_path)}
        found = await probe_local_servers(Catalogue((make_model(base_url), make_model(base_url))), environ, LIMITS)
        assert found == tuple(Model(id, id, "openai", "here", base_url) for id in ("fake-1", "fake-small-1"))
        assert len(server.requests) == 1  # once, however many models are known of it
        assert await probe_local_servers(Catalogue((make_model(base_url),)), {}, LIMITS) == ()  # without the key that it wants

    (tmp_path / "models.toml").write_text(f'[[models]]\nid = "fake-1"\nprovider = "here"\nbase_url = "{base_url}"\nname = "One"\n')
    pool = ProviderPool(environ, {}, LIMITS)
    pool.found = found
    assert pool.select("fake-small-1", None)[0] == found[1]
    assert pool.select("here/fake-1", None)[0].name == "One"  # what the person says of it counts


@pytest.mark.parametrize("other", [{"api": "anthropic"}, {"api": "parrot"}])
async def test_who_does_not_speak_so_is_not_asked(other: dict[str, str]) -> None:
    async with FakeModels() as server:
        assert await probe_local_servers(Catalogue((make_model(f"{server.url}/v1", **other), make_model(""))), {}, LIMITS) == ()
        assert not server.requests
    assert await probe_local_servers(Catalogue((make_model("https://models.example/v1"),)), {}, LIMITS) == ()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{",
        b'HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{"data":[{"id":1}]}',
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"[" * (1024 * 1024 + 1),
    ],
)
async def test_a_server_that_answers_nonsense_has_no_models(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        models = (make_model(f"http://127.0.0.1:{port}/v1"), make_model("http://127.0.0.1:1/v1"))
        assert await probe_local_servers(Catalogue(models), {}, LIMITS) == ()
