"""The websocket handles of one plugin (spec yoi 5.2): at most four, none of them 0, none older than fifteen minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects.sockets import Socket

__all__ = ["Handles"]

_LAST = 2**32 - 1


class Handles:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, tuple[Socket, float]] = {}
        self._reserved = 0
        self._last = 0
        self._closed = False

    async def open(self, dial: Callable[[], Awaitable[Socket]]) -> tuple[int, Socket]:
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
        handle = self._next()
        self._open[handle] = (socket, self._clock())
        return handle, socket

    def _next(self) -> int:
        while True:
            self._last = self._last + 1 if self._last < _LAST else 1
            if self._last not in self._open:
                return self._last

    def get(self, handle: int) -> Socket:
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

    def forget(self) -> None:
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
