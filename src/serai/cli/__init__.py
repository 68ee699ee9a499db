"""The command line. People are here; everything else is below."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The `serai` command; what it needs is imported only now. What fails for a known reason is said in two lines, status 1."""
    from serai.cli.main import serai

    try:
        serai(prog_name="serai")
    except Exception as error:
        from serai.errors import SeraiError

        if not isinstance(error, SeraiError):
            raise
        sys.exit(f"serai: {error}" + (f"\n{error.hint}" if error.hint else ""))
