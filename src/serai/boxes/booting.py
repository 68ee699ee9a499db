"""How our own programs are started: from where this package is, whoever's Python environment that may be."""

from __future__ import annotations

import sys
from pathlib import Path

from serai import version

__all__ = ["boot"]

_HOME = str(Path(version.__file__).parents[1])


def boot(module: str, function: str = "main", *, alone: bool = True) -> list[str]:
    """A command line that calls a function of ours with the arguments that are added to it.

    Imported and not run as a script, which would be compiled each time. `alone`: with the standard library only, which is quicker,
    and in an environment of nobody.
    """
    source = f"import sys; sys.path.insert(0, {_HOME!r}); from serai.boxes.{module} import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, *(["-I", "-S"] if alone else []), "-c", source]
