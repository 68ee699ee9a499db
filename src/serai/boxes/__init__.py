"""Boxes: sandboxes with hooks at their birth and death.

`manager` is the way in; `making` and `settling` are how a box begins and ends, step by durable step (`store`, `record`, `owners`).
`backend` says what a backend is, `backends/` has them; `holding` starts a box for us or for a keeper (`keeping` talks to one);
`control` is the wire to the porter inside; `hooks` runs hook programs. `programs/` are those that run by themselves: the launcher
around a box, the porter in it, the keeper beside it. They need the standard library alone.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.boxes.backend import Allowance, Backend, Capabilities, Instance
    from serai.boxes.box import Box
    from serai.boxes.control import Control, ExecResult
    from serai.boxes.hooks import Hook, Runner
    from serai.boxes.manager import Boxes
    from serai.boxes.record import BoxRecord

__all__ = [
    "Allowance",
    "Backend",
    "Box",
    "BoxRecord",
    "Boxes",
    "Capabilities",
    "Control",
    "ExecResult",
    "Hook",
    "Instance",
    "Runner",
]

_HOMES = {
    "Allowance": "backend",
    "Backend": "backend",
    "Box": "box",
    "BoxRecord": "record",
    "Boxes": "manager",
    "Capabilities": "backend",
    "Control": "control",
    "ExecResult": "control",
    "Hook": "hooks",
    "Instance": "backend",
    "Runner": "hooks",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
