"""Who looks after a box: a process by its name, and which of the managers in it."""

from __future__ import annotations

import secrets

from serai.wire.process_tree import identity_of, identity_pid, is_alive, own_identity

__all__ = ["identity_of", "identity_pid", "is_alive", "is_here", "is_manager", "new_manager", "own_identity"]


def new_manager() -> str:
    """A name for one manager in this process: there may be several. A keeper's name has no such ending."""
    return f"{own_identity()}#{secrets.token_hex(4)}"


def is_manager(owner: str) -> bool:
    return "#" in owner


def is_here(owner: str) -> bool:
    """Whether it is this process, whatever it was before: a keeper becomes the one that settles."""
    return owner.partition("#")[0] == own_identity()
