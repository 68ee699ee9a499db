"""Connections of plugins, as the machine sees them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from serai.dialects.yoi.host_api import parsed
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import dial
from serai.plugins.bounds import DEFAULT
from tests.yoi.effects.conftest import Contexts
from tests.yoi.effects.helpers import PATIENT, World, record, serving, target
from tests.yoi.effects.test_sockets import sending


async def quiet(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def kept_alive(writer: asyncio.StreamWriter) -> tuple[bool, int]:
    """Whether the machine asks after a silent peer, and after how many seconds it gives it up."""
    connection = writer.get_extra_info("socket")
    idle, every, count = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0, idle + every * count


@pytest.mark.parametrize("secure", [False, True])
async def test_a_peer_that_vanishes_is_noticed_in_two_minutes(contexts: Contexts, secure: bool) -> None:
    server, client = contexts
    network = PluginNetwork(resolve=World(api=["127.0.0.1"]).resolve, tls=client)
    async with serving(quiet, ssl=server if secure else None) as port:
        url = parsed(f"{'https' if secure else 'http'}://api.example.com:{port}/", what="request")
        _, writer = await network.connect(url, private=True, within=PATIENT)
        try:
            assert kept_alive(writer) == (True, 120)
        finally:
            writer.transport.abort()
    network.close()


async def test_so_is_the_peer_of_a_websocket() -> None:
    async with serving(sending()) as port:
        plugin = record(declared=[target("127.0.0.1", scheme="ws")])
        opened = await dial(plugin, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        try:
            assert kept_alive(opened._writer)[0]
        finally:
            opened.abort()
