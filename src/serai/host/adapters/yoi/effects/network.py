"""Connections to checked places: one lookup, and only its addresses are connected to (spec yoi 4.4, 21.3).

No proxy, whatever the environment says: nothing here looks at it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects.hands import Hands
from serai.plugins import targets
from serai.plugins.targets import Parsed
from serai.plugins.untrusted_text import operator_text

__all__ = ["READ", "Network", "Resolve", "Streams", "fault"]

READ = 16 * 1024  # bytes at once: what is taken before the next look at a budget
_ADDRESSES = 8  # of one name that are tried

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Network:
    """How plugins reach the world; both parameters are there for whoever has another world, such as a test."""

    def __init__(self, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._resolve = resolve or self._lookup
        self._tls = tls
        self._hands = Hands("name lookup")

    async def connect(self, url: Parsed, *, private: bool, within: float) -> Streams:
        """A connection to one of the host's addresses; `OSError` where none answers, `Denied` where there is none to try."""
        addresses = self._allowed(url, await self._addresses(url), private)
        secure = url.scheme in ("https", "wss")
        tls = await self._context() if secure else None
        clock = asyncio.get_running_loop().time
        end = clock() + within
        failure: OSError = OSError("no address answered")
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                # each its share of the time: the first may be one that swallows everything
                async with asyncio.timeout(max(end - clock(), 0.0) / left):
                    streams = await asyncio.open_connection(
                        address, url.port, ssl=tls, server_hostname=url.bare if secure else None, limit=READ
                    )
                    _keep_alive(streams[1].get_extra_info("socket"))
                    return streams
            except OSError as error:  # TimeoutError and ssl.SSLError are some
                failure = error
        raise failure

    async def _addresses(self, url: Parsed) -> Sequence[str]:
        host, port = url.bare, url.port or 0
        if targets.is_address(host):
            return [host]
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # a name of too long a label is a UnicodeError
            raise HostCallDenied(f"DNS lookup failed for {operator_text(host, 120)}: {fault(error)}") from None
        if not found:
            raise HostCallDenied(f"DNS lookup for {operator_text(host, 120)} returned no addresses")
        return list(dict.fromkeys(found))

    @staticmethod
    def _allowed(url: Parsed, addresses: Sequence[str], private: bool) -> Sequence[str]:
        allowed = [address for address in addresses if private or not targets.is_private(address)]
        if not allowed:
            raise HostCallDenied(
                f"host_api target {url.safe} is denied: it leads to {addresses[0]}, a private, loopback or link-local address; "
                "a grant target with `private = true` allows it"
            )
        return allowed[:_ADDRESSES]

    async def _lookup(self, host: str, port: int) -> Sequence[str]:
        found = await self._hands.begin(lambda _: socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM))
        return [str(entry[4][0]) for entry in found]

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await self._hands.begin(lambda _: _trusting())  # it reads the machine's certificates: some 20 ms
        return self._tls

    def close(self) -> None:
        self._hands.close()


def _keep_alive(connection: socket.socket) -> None:
    """A peer that vanished without a word is noticed within two minutes: who only listens would wait for it for ever."""
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ):
        with suppress(OSError):  # it is over already
            connection.setsockopt(level, option, value)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def fault(error: BaseException) -> str:
    """What the machine says of it, in one line; paths of the machine are left out."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return operator_text(str(reason or error) or type(error).__name__, 200)
