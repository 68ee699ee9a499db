"""The host interfaces of one instance, by the names under which a worker calls them.

A plugin has at most four websocket handles, none of them 0, none older than fifteen minutes (spec yoi 5.2).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence

from serai import paths as serai_paths
from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects import files
from serai.host.adapters.yoi.effects.network import PluginNetwork, exchange
from serai.host.adapters.yoi.effects.threads import BoundedThreads
from serai.host.adapters.yoi.effects.websocket import PluginWebSocket, dial_checked
from serai.plugins import authorization
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.grants import Operation, ResolvedPlugin

_LAST = 2**32 - 1


class WebSocketHandles:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, tuple[PluginWebSocket, float]] = {}
        self._reserved = 0
        self._last = 0
        self._closed = False

    async def open(self, dial: Callable[[], Awaitable[PluginWebSocket]]) -> tuple[int, PluginWebSocket]:
        """Takes a slot before it dials, and gives it back when that fails."""
        self._expire()
        if len(self._open) + self._reserved >= host_api.HANDLES:
            raise HostCallDenied(f"host_api.websocket open connection limit ({host_api.HANDLES}) exceeded before dialing")
        self._reserved += 1
        try:
            socket = await dial()
        finally:
            self._reserved -= 1
        if self._closed:  # meanwhile
            socket.abort()
            raise HostCallDenied("host_api.websocket is closed: the plugin is being stopped")
        handle = self._pick_handle()
        self._open[handle] = (socket, self._clock())
        return handle, socket

    def _pick_handle(self) -> int:
        while True:
            self._last = self._last + 1 if self._last < _LAST else 1
            if self._last not in self._open:
                return self._last

    def get(self, handle: int) -> PluginWebSocket:
        self._expire()
        if handle not in self._open:
            raise HostCallDenied(f"unknown WebSocket handle {handle}")
        return self._open[handle][0]

    async def close(self, handle: int, timeout: float) -> bool:
        """Whether there was one."""
        self._expire()
        known = self._open.pop(handle, None)
        if known is not None:
            await known[0].close(timeout)
        return known is not None

    def reset(self) -> None:
        """Closes all of them at once; the next is the first again."""
        for socket, _ in self._open.values():
            socket.abort()
        self._open.clear()
        self._last = 0

    async def close_all(self, timeout: float) -> None:
        self._closed = True
        there = [socket for socket, _ in self._open.values()]
        self._open.clear()
        try:
            await asyncio.gather(*(socket.close(timeout) for socket in there))
        finally:
            for socket in there:
                socket.abort()

    def _expire(self) -> None:
        now = self._clock()
        for handle, (socket, opened) in list(self._open.items()):
            if now - opened > host_api.AGE:
                del self._open[handle]
                socket.abort()


_GOODBYE = 1.0  # seconds for the peers of a plugin that is stopped


class HostCalls:
    """The host interfaces of one instance. `own`: folders that no grant opens; Serai's own unless said otherwise."""

    def __init__(
        self,
        record: ResolvedPlugin,
        bounds: Bounds = DEFAULT,
        *,
        network: PluginNetwork | None = None,
        own: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._network = network or PluginNetwork()
        self._lent = network is not None
        folders = own if own is not None else (serai_paths.config_folder(), serai_paths.state_folder())
        self._own = files.OwnFolders.from_paths([os.path.realpath(folder) for folder in folders])
        self._threads = BoundedThreads("host_api.fs")
        self._handles = WebSocketHandles(clock)
        self._functions: dict[tuple[str, str], tuple[tuple[type, ...], Callable[..., Awaitable[str]]]] = {
            ("request", "request"): ((str,), self._request),
            ("websocket", "open"): ((str,), self._open),
            ("websocket", "send-text"): ((int, str), self._send),
            ("websocket", "recv"): ((int, int), self._recv),
            ("websocket", "close"): ((int,), self._close),
            ("fs", "read"): ((str,), self._read),
            ("fs", "list"): ((str,), self._list),
            ("fs", "write"): ((str,), self._write),
        }

    def call(self, interface: str, function: str, args: Sequence[str | int], remaining: float) -> Awaitable[str]:
        """The answer's document, within `remaining` seconds; `HostCallDenied` is a refusal or a failure, and the plugin's end."""
        found = self._functions.get((interface, function))
        if found is None or [type(arg) for arg in args] != list(found[0]):
            raise HostCallDenied("there is no such host function, or not with such arguments")
        if reason := authorization.find_api_refusal(self._record, interface):  # type: ignore[arg-type]  # it is one of the table
            raise HostCallDenied(reason)
        if remaining <= 0:
            raise HostCallDenied(f"host_api.{interface} timed out: its call has no time left")
        return found[1](*args, remaining)

    def reset(self) -> None:
        """The store is gone, and its handles with it."""
        self._handles.reset()

    async def close(self) -> None:
        """Closes every socket. Idempotent; what still waits in a `recv` is told that it is closed."""
        try:
            await self._handles.close_all(_GOODBYE)
        finally:
            self._threads.close()
            if not self._lent:
                self._network.close()

    async def _request(self, text: str, remaining: float) -> str:
        asked = host_api.check_request(self._record, text)
        private = not self._bounds.deny_private or authorization.allows_private(self._record, "request", asked.url, asked.method)
        return await exchange(self._network, asked, private=private, within=min(self._bounds.request, remaining))

    async def _open(self, text: str, remaining: float) -> str:
        url = host_api.check_open(self._record, text)
        timeout = min(host_api.SECONDS, remaining)
        handle, _ = await self._handles.open(
            lambda: dial_checked(self._record, url, bounds=self._bounds, timeout=timeout, network=self._network)
        )
        return host_api.answer_open(handle, url)

    async def _send(self, handle: int, text: str, remaining: float) -> str:
        socket = self._handles.get(handle)
        return host_api.answer_send(await socket.send_text(text, min(host_api.SECONDS, remaining)))

    async def _recv(self, handle: int, milliseconds: int, remaining: float) -> str:
        socket = self._handles.get(handle)
        return host_api.answer_recv(await socket.recv(min(host_api.get_recv_timeout(milliseconds), remaining)))

    async def _close(self, handle: int, remaining: float) -> str:
        # half of what is left: a peer that does not say good-bye must not be the plugin's end
        return host_api.answer_close(await self._handles.close(handle, min(host_api.SECONDS, remaining / 2)))

    def _read(self, text: str, remaining: float) -> Awaitable[str]:
        return self._run_fs("read", text, remaining)

    def _list(self, text: str, remaining: float) -> Awaitable[str]:
        return self._run_fs("list", text, remaining)

    def _write(self, text: str, remaining: float) -> Awaitable[str]:
        return self._run_fs("write", text, remaining)

    def _run_fs(self, operation: Operation, text: str, remaining: float) -> Awaitable[str]:
        asked = host_api.check_fs(operation, text)
        grants, own = host_api.find_grants(self._record, operation), self._own
        until = time.monotonic() + remaining
        late = f"FS {operation} timed out: {asked.path}"
        return self._threads.submit(lambda asker: files.perform(grants, own, asked, asker, until), remaining, late)
