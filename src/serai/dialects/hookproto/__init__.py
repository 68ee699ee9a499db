"""The dialect hookproto: one-shot executables that run when a box is created and destroyed (seed 000).

The package exports what both sides share, and `serve`, the hook's side. Serai's side is `serai.dialects.hookproto.host_side`.
Standard library only, and as little of it as possible: a hook starts for each box, and the box waits for it.
"""

from __future__ import annotations

from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response
from serai.dialects.hookproto.peer_side import HookError, serve

__all__ = ["EVENT_BOX_CREATE", "EVENT_BOX_DESTROY", "Box", "File", "HookError", "Request", "Response", "serve"]
