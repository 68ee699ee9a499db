"""Talking to a keeper: one request on a connection of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from typing import Any

from serai.errors import BadFrame, BoxFailed, LimitHit, Refused

__all__ = ["ask"]

_AGAIN = 0.005  # seconds


async def ask(folder: str, verb: str, *, timeout: float) -> dict[str, Any] | None:
    """What the keeper of the box in this folder answers; None when there is no keeper (any more)."""
    loop = asyncio.get_running_loop()
    try:
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BoxFailed(f"its folder cannot be entered: {error.strerror}", who=folder) from None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(timeout):
                await _connected(connection, f"/proc/self/fd/{at}/keeper.sock")
                body = json.dumps({"verb": verb}).encode()
                await loop.sock_sendall(connection, struct.pack(">I", len(body)) + body)
                return await _answer(connection, folder)
        except (FileNotFoundError, ConnectionError):
            return None
        except TimeoutError:
            limit = LimitHit("box_stop", timeout)
            hint = "is it stopped? Kill it, then try again"
            raise BoxFailed(f"the keeper did not answer `{verb}`", who=folder, limit=limit, hint=hint) from None
        except OSError as error:
            raise BoxFailed(f"its keeper cannot be reached: {error.strerror}", who=folder) from None
        finally:
            os.close(at)


async def _connected(connection: socket.socket, path: str) -> None:
    """The loop's own way takes a queue that is full for a connection."""
    while True:
        try:
            connection.connect(path)
        except BlockingIOError:
            await asyncio.sleep(_AGAIN)
        else:
            return


async def _answer(connection: socket.socket, folder: str) -> dict[str, Any] | None:
    loop = asyncio.get_running_loop()
    received = b""
    while piece := await loop.sock_recv(connection, 65536):
        received += piece
    if not received:
        return None  # it died over it
    try:
        answer = json.loads(received[4:])
        if "err" in answer:
            raise Refused(str(answer["err"]), who=folder)
        data: dict[str, Any] = answer["data"]
    except (ValueError, KeyError, TypeError):
        raise BadFrame("the keeper's answer cannot be understood", who=folder) from None
    return data
