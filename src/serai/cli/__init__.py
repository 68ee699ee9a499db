"""The command line. People are here; everything else is below."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The `serai` command; what it needs is imported only now."""
    from serai.cli.main import serai

    serai(prog_name="serai")
