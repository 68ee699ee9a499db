"""Serai takes in any extension, drives any coding agent, under one policy, with every wire on record.

This package is the public surface; `docs/architecture.md` draws the house. Names are imported when they are first used, so
`import serai` itself costs nothing.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.errors import LocalError, MachineError, PeerError, SeraiError
    from serai.limits import Limits

__all__ = ["Limits", "LocalError", "MachineError", "PeerError", "SeraiError", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "Limits": "limits",
    "LocalError": "errors",
    "MachineError": "errors",
    "PeerError": "errors",
    "SeraiError": "errors",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, "__version__")
