"""`python -m serai` is the `serai` command."""

from __future__ import annotations

from serai.cli import main

if __name__ == "__main__":
    main()
