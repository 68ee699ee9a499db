"""The built-in tools: read, write, edit, bash, grep and find, as one `ToolBox`, and the copies that undo a change.

`builtin` (the box of them) over `read`, `write`, `edit`, `bash` and `searching` (one tool each, the last two); `tool` (what a tool
is, and what all of them share), `places` and `files` (where a path leads, and changing what is there), `output` and `running` (what
a program says, and its end), `working` (the threads that work on files), `failing` (why not), `undo`; `programs` (what runs in a
process of its own).
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
