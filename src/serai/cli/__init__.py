"""The command line. People are here; everything else is below."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]


def main() -> None:
    """The `serai` command; what it needs is imported only now. What fails for a known reason is said in two lines, status 1."""
    from serai.cli.main import serai

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks is spelt out
    try:
        serai(prog_name="serai")
    except Exception as error:
        from serai.cli.plain import printable
        from serai.errors import SeraiError

        if not isinstance(error, SeraiError):
            raise
        said = [f"serai: {error}", *error.hint.splitlines()]
        sys.exit("\n".join(map(printable, said)))
