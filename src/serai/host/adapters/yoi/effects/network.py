"""Connections to checked places (spec yoi 4.4, 21.3), and one exchange of `request`.

A name is looked up once, and only those addresses are connected to. No proxy is used, whatever the environment says. An exchange
is HTTP/1.1 by h11: no redirect is followed, nothing is decompressed, one deadline for all.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied, PreparedRequest
from serai.host.adapters.yoi.effects.threads import BoundedThreads
from serai.plugins import targets
from serai.plugins.targets import ParsedUrl
from serai.plugins.untrusted_text import operator_text

if TYPE_CHECKING:
    import h11

READ = 16 * 1024  # bytes at once: what is taken before the next look at a budget
_ADDRESSES = 8  # of one name that are tried

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PluginNetwork:
    """How plugins reach the world; both parameters are there for whoever has another world, such as a test."""

    def __init__(self, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._resolve = resolve or self._look_up
        self._tls = tls
        self._threads = BoundedThreads("name lookup")

    async def connect(self, url: ParsedUrl, *, private: bool, within: float) -> Streams:
        """A connection to one of the host's addresses; `OSError` if none answers, `HostCallDenied` if there is none to try."""
        addresses = self._filter_allowed(url, await self._find_addresses(url), private)
        secure = url.scheme in ("https", "wss")
        tls = await self._load_tls_context() if secure else None
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
                    _enable_keepalive(streams[1].get_extra_info("socket"))
                    return streams
            except OSError as error:  # TimeoutError and ssl.SSLError are some
                failure = error
        raise failure

    async def _find_addresses(self, url: ParsedUrl) -> Sequence[str]:
        host, port = url.bare, url.port or 0
        if targets.is_address(host):
            return [host]
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # a name of too long a label is a UnicodeError
            raise HostCallDenied(f"DNS lookup failed for {operator_text(host, 120)}: {describe_fault(error)}") from None
        if not found:
            raise HostCallDenied(f"DNS lookup for {operator_text(host, 120)} returned no addresses")
        return list(dict.fromkeys(found))

    @staticmethod
    def _filter_allowed(url: ParsedUrl, addresses: Sequence[str], private: bool) -> Sequence[str]:
        allowed = [address for address in addresses if private or not targets.is_private(address)]
        if not allowed:
            raise HostCallDenied(
                f"host_api target {url.safe} is denied: it leads to {addresses[0]}, a private, loopback or link-local address; "
                "a grant target with `private = true` allows it"
            )
        return allowed[:_ADDRESSES]

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        found = await self._threads.submit(lambda _: socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM))
        return [str(entry[4][0]) for entry in found]

    async def _load_tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            # It reads the machine's certificates: some 20 ms.
            self._tls = await self._threads.submit(lambda _: _build_tls_context())
        return self._tls

    def close(self) -> None:
        self._threads.close()


def _enable_keepalive(connection: socket.socket) -> None:
    """A peer that vanished without a word is noticed within two minutes: who only listens would wait for it for ever."""
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ):
        with suppress(OSError):  # it is over already
            connection.setsockopt(level, option, value)


def _build_tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_fault(error: BaseException) -> str:
    """What the machine says of it, in one line; paths of the machine are left out."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return operator_text(str(reason or error) or type(error).__name__, 200)


_HEAD = 64 * 1024  # bytes of a response's head, or of one line of its body's framing
_PART = 4 * 1024  # bytes at once: in chunks of one byte these are 700 events, and the others' turn comes after
_INTERIM = 16  # responses before the real one


async def exchange(network: PluginNetwork, asked: PreparedRequest, *, private: bool, within: float) -> str:
    """The response's document; `HostCallDenied` with the origin's texts where there is none."""
    try:
        async with asyncio.timeout(within):
            return await _exchange(network, asked, private, within)
    except TimeoutError:
        raise HostCallDenied(f"request to {asked.url.safe} timed out") from None


async def _exchange(network: PluginNetwork, asked: PreparedRequest, private: bool, within: float) -> str:
    try:
        import h11
    except ImportError:
        raise HostCallDenied("host_api.request needs h11: pip install 'serai[wasm]'") from None
    wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
    try:
        request = wire.send(h11.Request(method=asked.method, target=targets.get_resource(asked.url), headers=asked.head())) or b""
        request += (wire.send(h11.Data(data=asked.body)) or b"") if asked.body else b""
        wire.send(h11.EndOfMessage())
    except h11.LocalProtocolError as error:  # the checks have let something through that is no HTTP
        raise HostCallDenied(f"request to {asked.url.safe} failed: {describe_fault(error)}") from None
    writer = None
    try:
        reader, writer = await network.connect(asked.url, private=private, within=within)
        writer.write(request)  # at most some 100 KiB, so nobody waits for it to be read: the answer may come first
        head = await _read_head(wire, reader)
        body = await _read_body(wire, reader)
    except TimeoutError:
        raise
    except (OSError, h11.RemoteProtocolError) as error:
        raise HostCallDenied(f"request to {asked.url.safe} failed: {describe_fault(error)}") from None
    finally:
        if writer is not None:
            writer.transport.abort()  # at once: what is left of an endless answer is nobody's
    return host_api.answer_request(head.status_code, [(bytes(name), bytes(value)) for name, value in head.headers], body)


async def _read_event(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Event | type[h11.PAUSED]:
    import h11

    while True:
        event = wire.next_event()
        if event is not h11.NEED_DATA:
            return event  # type: ignore[return-value]
        await asyncio.sleep(0)  # what has come already is read without a wait, and asyncio takes in 256 KiB at once
        wire.receive_data(await reader.read(_PART))


async def _read_head(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    import h11

    for _ in range(_INTERIM + 1):
        event = await _read_event(wire, reader)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            break
    raise OSError(f"no response, or more than {_INTERIM} interim ones")


async def _read_body(wire: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    """What is given of the body and one byte more, if there is more."""
    import h11

    body = bytearray()
    try:
        while len(body) <= host_api.RESPONSE:
            event = await _read_event(wire, reader)
            if not isinstance(event, h11.Data):
                break
            body += event.data
    except TimeoutError:
        raise
    except (OSError, h11.RemoteProtocolError) as error:
        raise HostCallDenied(f"request response read failed: {describe_fault(error)}") from None
    return bytes(body[: host_api.RESPONSE + 1])
