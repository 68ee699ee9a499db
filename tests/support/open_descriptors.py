"""What stays open from one test to the next: it belongs to something that serves all tests of a worker, from the first on."""

from __future__ import annotations

__all__ = ["KEPT"]

KEPT: set[str] = set()  # descriptors, as /proc/self/fd names them
