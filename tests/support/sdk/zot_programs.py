"""Extensions of zot as folders with a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LAST = "\next.main()\n"


def write_program(place: Path, body: str, *, end: str = LAST) -> Path:
    """The folder of an extension with this body."""
    folder = place / "probe"
    folder.mkdir()
    (folder / "extension.json").write_text(json.dumps({"name": "probe", "exec": sys.executable, "args": ["probe.py"]}))
    (folder / "probe.py").write_text(f"from serai.sdk import *\next = Extension('probe')\n{body}\n{end}")
    return folder
