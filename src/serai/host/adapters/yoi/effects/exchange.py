"""One exchange of `request` (spec yoi 4.4): HTTP/1.1 by h11, no redirect followed, nothing decompressed, one deadline for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied, PreparedRequest
from serai.host.adapters.yoi.effects.network import Network, fault
from serai.plugins import targets

if TYPE_CHECKING:
    import h11

__all__ = ["exchange"]

_HEAD = 64 * 1024  # bytes of a response's head, or of one line of its body's framing
_PART = 4 * 1024  # bytes at once: in chunks of one byte these are 700 events, and the others' turn comes after
_INTERIM = 16  # responses before the real one


async def exchange(network: Network, asked: PreparedRequest, *, private: bool, within: float) -> str:
    """The response's document; `Denied` with the origin's texts where there is none."""
    try:
        async with asyncio.timeout(within):
            return await _exchange(network, asked, private, within)
    except TimeoutError:
        raise HostCallDenied(f"request to {asked.url.safe} timed out") from None


async def _exchange(network: Network, asked: PreparedRequest, private: bool, within: float) -> str:
    try:
        import h11
    except ImportError:
        raise HostCallDenied("host_api.request needs h11: pip install 'serai[wasm]'") from None
    wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
    try:
        request = wire.send(h11.Request(method=asked.method, target=targets.resource(asked.url), headers=asked.head())) or b""
        request += (wire.send(h11.Data(data=asked.body)) or b"") if asked.body else b""
        wire.send(h11.EndOfMessage())
    except h11.LocalProtocolError as error:  # the checks have let something through that is no HTTP
        raise HostCallDenied(f"request to {asked.url.safe} failed: {fault(error)}") from None
    writer = None
    try:
        reader, writer = await network.connect(asked.url, private=private, within=within)
        writer.write(request)  # at most some 100 KiB, so nobody waits for it to be read: the answer may come first
        head = await _head(wire, reader)
        body = await _body(wire, reader)
    except TimeoutError:
        raise
    except (OSError, h11.RemoteProtocolError) as error:
        raise HostCallDenied(f"request to {asked.url.safe} failed: {fault(error)}") from None
    finally:
        if writer is not None:
            writer.transport.abort()  # at once: what is left of an endless answer is nobody's
    return host_api.answer(head.status_code, [(bytes(name), bytes(value)) for name, value in head.headers], body)


async def _event(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Event | type[h11.PAUSED]:
    import h11

    while True:
        event = wire.next_event()
        if event is not h11.NEED_DATA:
            return event  # type: ignore[return-value]
        await asyncio.sleep(0)  # what has come already is read without a wait, and asyncio takes in 256 KiB at once
        wire.receive_data(await reader.read(_PART))


async def _head(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    import h11

    for _ in range(_INTERIM + 1):
        event = await _event(wire, reader)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            break
    raise OSError(f"no response, or more than {_INTERIM} interim ones")


async def _body(wire: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    """What is given of the body and one byte more, if there is more."""
    import h11

    body = bytearray()
    try:
        while len(body) <= host_api.RESPONSE:
            event = await _event(wire, reader)
            if not isinstance(event, h11.Data):
                break
            body += event.data
    except TimeoutError:
        raise
    except (OSError, h11.RemoteProtocolError) as error:
        raise HostCallDenied(f"request response read failed: {fault(error)}") from None
    return bytes(body[: host_api.RESPONSE + 1])
