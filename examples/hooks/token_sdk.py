#!/usr/bin/env python3
"""A token for each box, and no token without its box: as `token.sh`, with `serai.sdk.hook`.

The SDK reads the request and writes the answer. What `handle` raises goes to stderr as `hook: <why>`, and then there is no box.
The "token server" is a folder: to mint a token is to write a file there, to revoke it is to remove that file.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, File, Request, Response
from serai.sdk.hook import main


def handle(request: Request) -> Response | None:
    if request.event == EVENT_BOX_CREATE:
        return mint()
    if request.event == EVENT_BOX_DESTROY:
        revoke(request.state)
    return None  # nothing to say, also to events that do not exist yet


def mint() -> Response:
    """A new token: its text for the box, its id as the state that comes back when the box is destroyed."""
    folder = server()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity, token = secrets.token_hex(8), secrets.token_hex(32)
    with open(os.open(folder / identity, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return Response(files=[File("/root/.config/token", content=token + "\n", mode="0600")], state=identity)


def revoke(identity: str) -> None:
    """Idempotent: after a crash the same state may come back twice."""
    if not set(identity) <= set("0123456789abcdef") or not identity:
        raise ValueError("the state is none of ours")
    (server() / identity).unlink(missing_ok=True)


def server() -> Path:
    """Hooks get the environment of whoever makes the box: that is how they are configured."""
    if not (folder := os.environ.get("TOKENS_DIR")):
        raise ValueError("TOKENS_DIR: set it to the folder of the token server")
    return Path(folder)


if __name__ == "__main__":
    main(handle)
