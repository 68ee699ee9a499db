"""The built-in tools: read, write, edit, bash, grep and find, as one `ToolBox`, and the copies that undo a change.

`builtin` (the box of them) over `read`, `write`, `edit`, `bash` and `searching` (one tool each, the last two); `tool` (what a tool
is, and what all of them share), `places` and `files` (where a path leads, and changing what is there), `output` and `running` (what
a program says, and its end), `working` (the threads that work on files), `failing` (why not), `undo`; `programs` (what runs in a
process of its own).
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.tools.builtin import BuiltIn
    from serai.tools.undo import Undo

__all__ = ["BuiltIn", "Undo"]

_HOMES = {"BuiltIn": "builtin", "Undo": "undo"}

__getattr__, __dir__ = lazy(__name__, _HOMES)
