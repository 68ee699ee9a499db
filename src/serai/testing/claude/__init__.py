"""A scripted Claude Code: a real child process that plays a recording, or a script that a test writes.

`ScriptedClaude` puts a `claude` into a folder, where it is found as the real one is, and shows what it was given. `Script` says
what it plays, step by step. `python -m serai.testing.claude` plays a file by itself; `program` describes the format.
"""

from __future__ import annotations

from serai.testing.claude.script import Given, Script, ScriptedClaude

__all__ = ["Given", "Script", "ScriptedClaude"]
