"""The websockets that the host keeps open for a plugin, as the operator sees them (spec yoi 16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from serai.dialects.yoi.status import ConnectionState, ConnectionStatus, DiagnosticKind
from serai.dialects.yoi.texts import told

__all__ = ["MOST", "Connections"]

MOST = 4  # of one plugin; one that failed keeps its place


class Connections:
    """By normalised URL. `note` keeps what should be remembered."""

    def __init__(self, note: Callable[[DiagnosticKind, str], None]) -> None:
        self._note = note
        self._all: dict[str, ConnectionStatus] = {}

    def all(self) -> tuple[ConnectionStatus, ...]:
        return tuple(self._all[url] for url in sorted(self._all))

    def of(self, url: str) -> ConnectionStatus | None:
        return self._all.get(url)

    def clear(self) -> None:
        """A new life begins without them."""
        self._all.clear()

    def opening(self, url: str, ingress_name: str) -> bool:
        """The first time or again. False: all places are taken, or this URL is another ingress's."""
        known = self._all.get(url)
        if known is None:
            if len(self._all) >= MOST:
                return False
            self._all[url] = ConnectionStatus(url=url, ingress_name=ingress_name)
            return True
        if known.ingress_name == ingress_name:
            self._change(url, state=ConnectionState.CONNECTING)
        return known.ingress_name == ingress_name

    def opened(self, url: str) -> None:
        self._change(url, state=ConnectionState.CONNECTED)
        self._note(DiagnosticKind.WEBSOCKET_CONNECTED, f"host-owned WebSocket connected to {url}")

    def received(self, url: str, now: str) -> None:
        one = self._all[url]
        self._change(url, received_text_frames=one.received_text_frames + 1, last_frame_at=now)

    def dropped(self, url: str) -> None:
        """What came in could not be queued."""
        self._change(url, queue_drops=self._all[url].queue_drops + 1)

    def sent(self, url: str) -> None:
        self._change(url, sent_text_frames=self._all[url].sent_text_frames + 1)

    def not_sent(self, url: str, why: str) -> None:
        one = self._all[url]
        self._change(url, send_failures=one.send_failures + 1, last_error=told(why))
        self._note(DiagnosticKind.WEBSOCKET_SEND_FAILED, f"host-owned WebSocket send to {url} failed: {why}")

    def closed(self, url: str, why: str = "closed by peer") -> None:
        self._change(url, state=ConnectionState.CLOSED)
        self._note(DiagnosticKind.WEBSOCKET_CLOSED, f"host-owned WebSocket for {url}: {why}")

    def failed(self, url: str, why: str) -> None:
        self._change(url, state=ConnectionState.FAILED, last_error=told(why))
        self._note(DiagnosticKind.WEBSOCKET_ERROR, f"host-owned WebSocket for {url}: {why}")

    def close_all(self) -> None:
        """The instance stops."""
        for url in self._all:
            self._change(url, state=ConnectionState.CLOSED)

    def _change(self, url: str, **changes: Any) -> None:
        self._all[url] = msgspec.structs.replace(self._all[url], **changes)
