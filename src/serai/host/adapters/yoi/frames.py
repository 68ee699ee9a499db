"""The wire between a plugin's worker and its parent: lines of JSON (decision: the recording sees every frame).

    parent                                   worker
    load (where the code is, bounds)    ->
                                        <-   loaded (checked and confined) | unfit | stale
    go                                  ->   instantiates, where the world keeps an instance
                                        <-   ready | trap
    call                                ->
                                        <-   host (the guest asks), any number of times, each answered by a reply
    reply                               ->
                                        <-   ok | big | trap

One call at a time, and in it one host call at a time. `program/` has the worker's side, without these types: it must start quickly.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "HOST", "Big", "Call", "FromWorker", "Go", "HostAsked", "Load", "Loaded", "Ok", "Ready", "Reply", "Stale", "Trap", "Unfit",
    "decoder", "encode",
]  # fmt: skip


# interface -> function -> what it takes; every one gives a string (spec yoi 2.1)
HOST: dict[str, dict[str, tuple[type, ...]]] = {
    "request": {"request": (str,)},
    "websocket": {"open": (str,), "send-text": (int, str), "recv": (int, int), "close": (int,)},
    "fs": {"read": (str,), "list": (str,), "write": (str,)},
}
_U32 = 1 << 32


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    pass


class Load(_Frame, frozen=True, kw_only=True, tag="load"):
    path: str  # of the compiled code, in our own cache
    world: str
    digest: str  # of the package, for who reads the recording
    fresh: bool  # a new store for each call
    most: int  # bytes of a text that comes out
    bounds: dict[str, Any]


class Go(_Frame, frozen=True, kw_only=True, tag="go"):
    id: int
    time: float


class Call(_Frame, frozen=True, kw_only=True, tag="call"):
    id: int
    export: str
    args: tuple[str, ...]
    time: float  # seconds that are left


class Reply(_Frame, frozen=True, kw_only=True, tag="reply", omit_defaults=True):
    id: int
    n: int
    text: str | None = None
    denied: str | None = None


class Loaded(_Frame, frozen=True, kw_only=True, tag="loaded"):
    imports: tuple[str, ...]
    confined: tuple[str, ...]  # what of its confinement the kernel granted
    direct: bool = False  # whether it calls by the quick way


class Unfit(_Frame, frozen=True, kw_only=True, tag="unfit"):
    text: str


class Stale(_Frame, frozen=True, kw_only=True, tag="stale"):
    """The compiled code does not fit the engine, or cannot be read."""

    text: str


class Ready(_Frame, frozen=True, kw_only=True, tag="ready"):
    pass


class HostAsked(_Frame, frozen=True, kw_only=True, tag="host"):
    id: int
    n: int
    api: str
    function: str
    args: tuple[str | int, ...]

    def fits(self) -> bool:
        """Whether there is such a function and it takes such arguments: the worker's word for it is not enough."""
        kinds = HOST.get(self.api, {}).get(self.function)
        return kinds == tuple(map(type, self.args)) and all(type(arg) is str or 0 <= arg < _U32 for arg in self.args)  # type: ignore[operator]


class Ok(_Frame, frozen=True, kw_only=True, tag="ok"):
    id: int
    text: str


class Big(_Frame, frozen=True, kw_only=True, tag="big"):
    id: int
    size: int


class Trap(_Frame, frozen=True, kw_only=True, tag="trap"):
    id: int
    kind: str  # timeout, fuel, stack, limit, output, denied, trap
    text: str


FromWorker = Loaded | Unfit | Stale | Ready | HostAsked | Ok | Big | Trap

decoder: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_encode = msgspec.json.encode


def encode(frame: Load | Go | Call | Reply) -> bytes:
    """With its newline. A lone surrogate raises `UnicodeEncodeError`: it has no bytes."""
    return _encode(frame) + b"\n"
