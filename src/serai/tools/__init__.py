"""The built-in tools: read, write, edit, bash, grep and find, as one `ToolBox`, and the copies that undo a change.

`builtin_tools` is the tool box over `file_tools` (read, write, edit) and `process_tools` (bash, grep, find). `tool` defines a tool
and has the threads for file work; `workspace` resolves paths, opens files, names failures and keeps the copies. `programs` runs in
processes of its own.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
