"""The backends of boxes by name; each is imported when it is asked for. Docker and OCI will be rows here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from serai.errors import BoxRefused

if TYPE_CHECKING:
    from serai.boxes.backend import Backend
    from serai.boxes.control import Control
    from serai.limits import Limits

__all__ = ["BACKENDS", "DEFAULT", "make"]

DEFAULT = "namespaces"
# Name, and what it is in a line.
BACKENDS = {
    "namespaces": "Linux namespaces: no daemon, no root needed",
    "process": "a plain process in a folder of its own, as far as Landlock and seccomp confine it; only when you ask for it",
}


def make(name: str, home: str, limits: Limits, control: Callable[[str, str], Control]) -> Backend:
    """The backend of that name; an unknown one is an error that lists the known (spec hooks 8)."""
    from serai.boxes.backends.local import Kind, LocalBackend

    kind: Kind
    if name == "namespaces":
        from serai.boxes.backends.namespaces import Namespaces

        kind = Namespaces()
    elif name == "process":
        from serai.boxes.backends.process import Process

        kind = Process()
    else:
        raise BoxRefused(f"there is no backend {name!r}", hint=f"there is {', '.join(BACKENDS)}")
    return LocalBackend(kind, home, limits, control)
