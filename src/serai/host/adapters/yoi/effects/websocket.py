"""One websocket (spec yoi 5.3): text only, read when somebody asks and not before, so that a flood waits at the peer's end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects.network import PluginNetwork, Streams, describe_fault
from serai.plugins import authorization, targets
from serai.plugins.untrusted_text import operator_text

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame

    from serai.plugins.bounds import Bounds
    from serai.plugins.grants import ResolvedPlugin
    from serai.plugins.targets import ParsedUrl

_READ = 4 * 1024  # bytes at once: a flood of empty frames is 2000 of them, and the others' turn comes after


class ReceiveTimeout(HostCallDenied):
    """Nothing came in time. The socket is as good as before, and what came of a message is kept for the next `recv`."""

    def __init__(self) -> None:
        super().__init__("WebSocket receive timed out")


async def dial(
    record: ResolvedPlugin, url: str, *, bounds: Bounds, timeout: float = host_api.SECONDS, network: PluginNetwork | None = None
) -> PluginWebSocket:
    """A connection for the host's own use: the same checks as `open` has for its URL."""
    if reason := authorization.find_api_refusal(record, "websocket"):
        raise HostCallDenied(reason)
    return await dial_checked(record, host_api.check_url(record, url), bounds=bounds, timeout=timeout, network=network)


async def dial_checked(
    record: ResolvedPlugin, url: ParsedUrl, *, bounds: Bounds, timeout: float, network: PluginNetwork | None = None
) -> PluginWebSocket:
    private = not bounds.deny_private or authorization.allows_private(record, "websocket", url)
    used = network or PluginNetwork()
    try:
        async with asyncio.timeout(timeout):
            return await _open(used, url, private, timeout)
    except TimeoutError:
        raise HostCallDenied(f"WebSocket open to {url.safe} timed out") from None
    finally:
        if network is None:
            used.close()


async def _open(network: PluginNetwork, url: ParsedUrl, private: bool, within: float) -> PluginWebSocket:
    try:
        from websockets.client import ClientProtocol
        from websockets.uri import WebSocketURI
    except ImportError:
        raise HostCallDenied("host_api.websocket needs websockets: pip install 'serai[wasm]'") from None
    path, _, query = targets.get_resource(url).partition("?")
    place = WebSocketURI(url.scheme == "wss", url.host, url.port or 0, path, query)
    # No extension: nothing comes compressed. What plugins say is in nobody's log.
    silent = logging.Logger("serai-websocket", logging.CRITICAL + 1)  # noqa: LOG001  (nobody can switch it on)
    wire = ClientProtocol(place, max_size=(host_api.MESSAGE, host_api.FRAME), logger=silent)
    request = wire.connect()
    del request.headers["Host"]
    request.headers["Host"], request.headers["User-Agent"] = targets.get_authority(url), host_api.WEBSOCKET_AGENT
    try:
        streams = await network.connect(url, private=private, within=within)
    except TimeoutError:
        raise
    except OSError as error:
        raise HostCallDenied(f"WebSocket open to {url.safe} failed: {describe_fault(error)}") from None
    socket = PluginWebSocket(wire, streams, url)
    try:
        wire.send_request(request)
        failure = await socket.do_handshake()
    except TimeoutError:
        socket.abort()
        raise
    except OSError as error:
        failure = describe_fault(error)
    except BaseException:
        socket.abort()
        raise
    if failure:
        socket.abort()
        raise HostCallDenied(f"WebSocket open to {url.safe} failed: {failure}")
    return socket


class PluginWebSocket:
    """An open connection. `recv` and `close` are cancellable at any moment; nothing is lost by it but the wait."""

    def __init__(self, wire: ClientProtocol, streams: Streams, url: ParsedUrl) -> None:
        self.url = url
        self._wire = wire
        self._reader, self._writer = streams
        self._writer.transport.set_write_buffer_limits(high=0)  # a send ends when the machine has taken it
        self._frames: deque[Frame] = deque()
        self._message: bytearray | None = None  # what came of a message in parts
        self._reading = False
        self._over = ""  # why it is closed; "closed" is the peer's or our own good-bye

    @property
    def is_open(self) -> bool:
        return not self._over

    async def send_text(self, text: str, timeout: float = host_api.SECONDS) -> int:
        """How many bytes were sent."""
        from websockets.exceptions import InvalidState

        count = host_api.check_text(text)
        if self._over:
            raise HostCallDenied(f"WebSocket send failed: {self._over}")
        try:
            self._wire.send_text(text.encode())
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            raise self._fail("WebSocket send timed out") from None  # half a frame may be out: nothing can follow it
        except (OSError, InvalidState) as error:
            raise self._fail(f"WebSocket send failed: {describe_fault(error)}") from None
        except asyncio.CancelledError:
            self._end("its send was given up")
            raise
        return count

    async def recv(self, timeout: float = host_api.SECONDS) -> str | None:
        """The next text, or None when the peer has closed it. One deadline for all of it, whatever comes meanwhile."""
        if self._reading:
            raise HostCallDenied("WebSocket receive failed: another receive waits already")
        self._reading = True
        try:
            async with asyncio.timeout(timeout):
                return await self._recv()
        except TimeoutError:
            raise ReceiveTimeout from None
        except OSError as error:
            raise self._fail(f"WebSocket receive failed: {describe_fault(error)}") from None
        finally:
            self._reading = False

    async def _recv(self) -> str | None:
        from websockets.frames import Opcode

        controls = 0
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.opcode is Opcode.CLOSE:
                    await self._answer_close()
                    return None
                if frame.opcode in (Opcode.PING, Opcode.PONG) or not (frame.data or frame.fin):  # an empty part says nothing either
                    controls += 1
                    if controls > host_api.CONTROLS:
                        raise self._fail("WebSocket receive exceeded bounded control-frame budget")
                if frame.opcode not in (Opcode.PING, Opcode.PONG) and (text := self._join_frame(frame)) is not None:
                    return text
            if self._over:
                if self._over == "closed":
                    return None
                raise HostCallDenied(f"WebSocket receive failed: {self._over}")
            if self._wire.parser_exc is not None:
                raise self._fail(f"WebSocket receive failed: {operator_text(str(self._wire.parser_exc), 200)}")
            await self._flush_pongs()
            await self.feed()
            self.collect_frames()
            self._push()

    async def _flush_pongs(self) -> None:
        """Before more is read: a peer that asks and does not listen must not fill our memory."""
        try:
            async with asyncio.timeout(host_api.SECONDS):
                await self.flush()
        except TimeoutError:
            raise self._fail("WebSocket pong timed out") from None

    def _join_frame(self, frame: Frame) -> str | None:
        """A message's text when this was the last of it."""
        from websockets.frames import Opcode

        if frame.opcode is Opcode.BINARY:
            raise self._fail("binary WebSocket messages are not supported by host_api.websocket v1")
        if frame.opcode is Opcode.TEXT:
            self._message = bytearray()
        assert self._message is not None  # the protocol has refused a part without a beginning
        self._message += frame.data
        if not frame.fin:
            return None
        whole, self._message = self._message, None
        try:
            return whole.decode()
        except UnicodeDecodeError:
            raise self._fail("WebSocket receive failed: the text is not UTF-8") from None

    async def do_handshake(self) -> str:
        """The opening handshake; what is wrong with it. A redirect is, too: it is not followed."""
        while not self._wire.events and self._wire.handshake_exc is None:
            await self.flush()
            await self.feed()
        self.collect_frames()  # frames may have come right behind the response
        return operator_text(str(self._wire.handshake_exc), 200) if self._wire.handshake_exc is not None else ""

    async def feed(self) -> None:
        """Some bytes of the peer's into the protocol."""
        await asyncio.sleep(0)  # what has come already is read without a wait, and asyncio takes in 256 KiB at once
        data = await self._reader.read(_READ)
        if data:
            self._wire.receive_data(data)
        else:
            self._wire.receive_eof()

    def collect_frames(self) -> None:
        from websockets.frames import Frame

        self._frames.extend(event for event in self._wire.events_received() if isinstance(event, Frame))

    def _push(self) -> None:
        """What the protocol has to say, pongs and good-byes included."""
        for data in self._wire.data_to_send():
            if data:
                self._writer.write(data)

    async def flush(self) -> None:
        self._push()
        await self._writer.drain()

    async def _answer_close(self) -> None:
        """The peer said good-bye; our answer is on its way or never will be."""
        try:
            async with asyncio.timeout(1.0):
                await self.flush()
        except OSError:
            pass
        self._end("closed")

    async def close(self, timeout: float = host_api.SECONDS) -> None:
        """Says good-bye and waits for the peer's, at most so long. Closes in any case, also when it is cancelled."""
        from websockets.protocol import State

        try:
            if not self._over and self._wire.state is State.OPEN:
                self._wire.send_close(1000)
                async with asyncio.timeout(max(timeout, 0.0)):
                    await self.flush()
                    while not self._reading and self._wire.close_expected() and self._wire.parser_exc is None:
                        await self.feed()
                        self._wire.events_received()
        except OSError:  # also too late
            pass
        finally:
            self._end("closed")

    def abort(self) -> None:
        """Closes it now."""
        self._end("closed")

    def _fail(self, text: str) -> HostCallDenied:
        self._end("an earlier failure closed it")
        return HostCallDenied(text)

    def _end(self, why: str) -> None:
        """Not gently: whatever was to be sent was flushed, and a TLS peer could keep us waiting for half a minute."""
        self._over = self._over or why
        self._writer.transport.abort()
