"""Websockets that the host owns for a plugin's ingresses (spec yoi 16): opened, read, and opened again when they are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from os import urandom
from random import random
from time import monotonic, time
from typing import NamedTuple, Protocol

from serai.dialects.yoi import host_api, messages, output_commands
from serai.dialects.yoi.host_api import HostCallDenied, parsed
from serai.dialects.yoi.host_side import HostSide
from serai.dialects.yoi.messages import Event
from serai.dialects.yoi.status import MOST, DiagnosticKind
from serai.host.adapters.yoi.effects.network import Network
from serai.host.adapters.yoi.effects.sockets import ReceiveTimeout, Socket, dial
from serai.plugins import authorization
from serai.plugins.bounds import Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.untrusted_text import size, timestamp

__all__ = ["Backoff", "Owned", "Subscription", "Taker", "subscriptions"]

_SECONDS = 5.0  # to open one, and to send on it; also of one wait for a frame, as a peer's pings are counted for each
_BYE = 1.0  # seconds for a peer to answer our good-bye
_PREFIX = "websocket:"
_SCHEMES = ("ws://", "wss://")


class Backoff:
    """How long to wait before the next try: twice as long each time, with jitter, and from the start after a stable while."""

    def __init__(self, first: float = 0.5, most: float = 60.0, stable: float = 60.0, chance: Callable[[], float] = random) -> None:
        self._first = self._next = first
        self._most = most
        self._stable = stable
        self._chance = chance

    def wait(self, lived: float) -> float:
        """Seconds until the next try, after a connection that held for so long (0: it never opened)."""
        if lived >= self._stable:
            self._next = self._first
        wait, self._next = self._next, min(2 * self._next, self._most)
        return wait * (0.5 + self._chance() / 2)


class Subscription(NamedTuple):
    """One source of one ingress. `url` is normalised and is the connection's key; `source` is the manifest's text."""

    ingress: str
    source: str
    url: str


def subscriptions(record: ResolvedPlugin, complain: Callable[[str], None]) -> list[Subscription]:
    """What is to be opened, in the order of the manifest; nothing unless both surfaces are enabled."""
    if not {"service", "ingress"} <= set(record.enabled_surfaces):
        return []
    found: list[Subscription] = []
    for ingress in record.manifest.ingresses:
        if authorization.ingress_refusal(record, ingress.name):  # it was told of when it was denied
            continue
        for source in ingress.sources:
            if not source.startswith((_PREFIX, *_SCHEMES)):
                continue
            try:
                url = parsed(source.removeprefix(_PREFIX), what="WebSocket").normalised
            except HostCallDenied as error:
                complain(f"invalid WebSocket ingress source for {ingress.name}: {error}")
            else:
                found.append(Subscription(ingress.name, source, url))
    return found


class Taker(Protocol):
    """Where events go."""

    async def room(self) -> None:
        """Wait a moment for a place in the queue: what a peer sends meanwhile waits in its own end of the wire."""
        ...

    def take(self, name: str, event: Event) -> bool:
        """Whether it was queued; what was refused is in the instance's diagnostics."""
        ...


class Owned:
    """The connections of one life of a plugin, each with one task that opens and reads it."""

    def __init__(
        self, record: ResolvedPlugin, bounds: Bounds, instance: HostSide, taker: Taker, backoff: Callable[[], Backoff] = Backoff
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._instance = instance
        self._taker = taker
        self._backoff = backoff
        self._open: dict[str, Socket] = {}
        self._network = Network()  # one, so that lookups that hang are counted
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start all of them; nobody waits for a server that does not answer."""
        loop = asyncio.get_running_loop()
        for one in subscriptions(self._record, self._complain):
            if self._instance.connections.opening(one.url, one.ingress):  # reserved here, in order
                self._tasks.append(loop.create_task(self._keep(one), name=f"websocket {self._record.identity} {one.ingress}"))
            else:
                why = f"host-owned WebSocket connection limit ({MOST}) exceeded, or it is open for another ingress"
                self._complain(f"{one.url} is not opened for {one.ingress}: {why}")

    def cancel(self) -> None:
        """From now on no reader says anything any more."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End the readers, which close their sockets. Idempotent."""
        self.cancel()
        tasks, self._tasks = self._tasks, []
        if tasks:
            await asyncio.wait(tasks)
        self._network.close()

    async def send(self, url: str, text: str) -> str:
        """A `websocket_send`: what its result says. A failed one is a `Denied`."""
        key = host_api.check_url(self._record, url).normalised
        statuses = self._instance.connections
        if statuses.of(key) is None:
            raise HostCallDenied(output_commands.no_connection(key))
        socket = self._open.get(key)
        if socket is None:
            raise HostCallDenied(output_commands.not_connected(key))
        try:
            await socket.send_text(text, _SECONDS)
        except HostCallDenied as error:
            statuses.not_sent(key, str(error))
            raise
        statuses.sent(key)
        return output_commands.sent(size(text), key)

    # -- one connection ---------------------------------------------------------------------------------------------------------

    async def _keep(self, one: Subscription) -> None:
        """Open it, read it to its end, and open it again a little later; what may not be opened is not tried again."""
        backoff, told = self._backoff(), False
        statuses = self._instance.connections
        while True:
            opened_at: float | None = None
            try:
                if reason := authorization.host_api_refusal(self._record, "websocket"):
                    return statuses.failed(one.url, f"host-owned websocket not granted: {reason}")
                try:
                    host_api.check_url(self._record, one.url)
                except HostCallDenied as error:
                    return statuses.failed(one.url, f"host-owned websocket not granted: {error}")
                socket = await dial(self._record, one.url, bounds=self._bounds, timeout=_SECONDS, network=self._network)
                opened_at = monotonic()
                told = False
                await self._read(one, socket)
            except HostCallDenied as error:
                statuses.failed(one.url, str(error))
                if not told:  # once per outage
                    told = True
                    self._event(one, messages.websocket_error, error=str(error))
            lived = 0.0 if opened_at is None else monotonic() - opened_at
            await asyncio.sleep(backoff.wait(lived))
            statuses.opening(one.url, one.ingress)

    async def _read(self, one: Subscription, socket: Socket) -> None:
        """Frames become events until the peer closes it."""
        statuses = self._instance.connections
        self._open[one.url] = socket
        statuses.opened(one.url)
        try:
            while True:
                await self._taker.room()
                try:
                    text = await socket.recv(_SECONDS)
                except ReceiveTimeout:
                    continue
                if text is None:
                    statuses.closed(one.url)
                    self._event(one, messages.websocket_close)
                    return
                statuses.received(one.url, timestamp(time()))
                self._event(one, messages.websocket_text, text=text)
        finally:
            del self._open[one.url]
            await socket.close(_BYE)

    def _event(self, one: Subscription, made: Callable[..., Event], **said: str) -> None:
        at = time()
        id = messages.correlation_id(at, urandom(10))
        event = made(source=one.source, ingress_name=one.ingress, url=one.url, now=timestamp(at), id=id, **said)
        kinds = next((each.event_kinds for each in self._record.manifest.ingresses if each.name == one.ingress), ())
        if event.kind != "websocket_text" and kinds and event.kind not in kinds:
            return  # nobody asked for it: refused silently (spec yoi 16)
        if not self._taker.take(one.ingress, event):
            self._instance.connections.dropped(one.url)

    def _complain(self, text: str) -> None:
        self._instance.note(DiagnosticKind.WEBSOCKET_ERROR, text)
