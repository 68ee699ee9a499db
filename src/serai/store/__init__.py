"""Sessions on disk: an append-only tree of entries in one file each, which several processes may share (spec piglet 6.1, 6.2).

The file: `entries` (its lines), `session_file` (lock, append, reading from either end). Its meaning: `session_tree` (paths and
branches, also from the end of the file), `messages` (a conversation, and as models see it). Its users: `stored_session` (a handle
on one), `session_folder` (all of them), `session_writer` (events in, entries out), `markdown_export`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
