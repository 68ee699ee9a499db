"""A home and a project folder of their own for the runs of one scenario."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.contract.program import COLUMNS, ROOT, Program, Ran

__all__ = ["DATA", "EXAMPLES", "Place"]

DATA = Path(__file__).parent / "data"
EXAMPLES = ROOT / "examples"


class Place:
    """Runs commands in `<root>/project` with `<root>` as HOME and `<root>/home` as SERAI_HOME."""

    def __init__(self, program: Program, root: Path) -> None:
        self.program = program
        self.root, self.home, self.project = root, root / "home", root / "project"
        self.home.mkdir(parents=True, exist_ok=True)
        self.project.mkdir(exist_ok=True)
        self.env = {
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),  # `python3` is this one
            "HOME": str(root),
            "SERAI_HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_COLOR": "1",
            "COLUMNS": str(COLUMNS),
        }

    def __call__(
        self,
        *arguments: str | Path,
        input: str = "",
        clock: float = 0.0,
        signal_after: tuple[int, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        given = {**self.env, **(env or {})}
        return self.program.run(*arguments, env=given, cwd=self.project, input=input, clock=clock, signal_after=signal_after)

    def neutral(self, text: str) -> str:
        """Returns the text without the folders of this run."""
        return text.replace(str(self.root), "ROOT").replace(str(ROOT), "REPOSITORY")
