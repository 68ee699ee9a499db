"""`python -m serai.testing.claude SCRIPT.jsonl [options] [-- what Claude Code is called with]`."""

from __future__ import annotations

import sys

from serai.testing.claude.program import main

words = sys.argv[1:]
at = words.index("--") if "--" in words else len(words)
main(words[:at], words[at + 1 :])
