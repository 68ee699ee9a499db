"""A server of fakes and the SDKs bound to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from serai.testing.models.server import FakeModels
from tests.support.model_clients import Clients


@pytest.fixture
async def server() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server
    assert (server.open, server.connections) == (0, 0)


@pytest.fixture
async def clients(server: FakeModels) -> AsyncIterator[Clients]:
    clients = Clients(server)
    yield clients
    await clients.close()
