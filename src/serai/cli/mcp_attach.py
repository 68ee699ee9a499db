"""`serai mcp-attach`: what an agent starts to get at guests' tools. Its pipes on one side, the endpoint's socket on the other.

Every session of an agent starts one and waits for it, so it imports next to nothing: two threads that copy bytes are enough.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from contextlib import suppress

import click

from serai.atomic_file import write_all
from serai.errors import Closed, PeerGone

_TOKEN = "SERAI_MCP_TOKEN"  # noqa: S105  (the name of the variable)
_CHUNK = 65536
_LONGEST = 100  # bytes of a socket's path: the kernel takes 107
_LAST = 5.0  # seconds for the last answers, once the agent has said all


@click.command("mcp-attach")
@click.argument("path", metavar="SOCKET", type=click.Path())
def mcp_attach(path: str) -> None:
    """Bring an agent's MCP client to the tools of a running Serai.

    Serai tells an agent to start this; there is no need to do it by hand. SOCKET is the endpoint of that run, and its token is in
    SERAI_MCP_TOKEN. It ends when either side does.
    """
    token = os.environ.pop(_TOKEN, "")
    if not token or "\n" in token:
        hint = "Serai sets it for the agent that it starts: give the agent the configuration that it was handed, as it is"
        raise Closed(f"{_TOKEN} is not set: nobody may come to {path} without the token of the session", hint=hint)
    with _connect(path) as connection:
        if _get_peer_uid(connection) != os.geteuid():  # somebody has put a socket of theirs in its place
            raise _build_error(path, "another user does")
        try:
            connection.sendall(os.fsencode(token) + b"\n")
        except OSError:
            raise _build_error(path, "it hung up") from None
        _bridge(connection)


def _connect(path: str) -> socket.socket:
    """By way of its folder where its path is too long for an address."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if len(os.fsencode(path)) <= _LONGEST:
            connection.connect(path)
            return connection
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)
    except OSError as error:
        connection.close()
        raise _build_error(path, error.strerror or str(error)) from None
    return connection


def _get_peer_uid(connection: socket.socket) -> int:
    """The user of the process that listens."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


def _build_error(path: str, why: str) -> PeerGone:
    return PeerGone(
        f"no Serai listens there: {why}", who=path, hint="the run that made it is over: start the agent with Serai again"
    )


def _bridge(connection: socket.socket) -> None:
    """Until the socket ends, or the agent does and the last answers are out."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # Python notices one that comes right before `recv` only after it
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    over = threading.Event()

    def forward_input() -> None:
        with suppress(OSError):
            while data := os.read(0, _CHUNK):
                connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        if not over.wait(_LAST):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # which ends the other thread's wait

    threading.Thread(target=forward_input, daemon=True).start()
    with suppress(OSError):  # whoever read has read enough
        while data := connection.recv(_CHUNK):
            write_all(1, data)
    over.set()
