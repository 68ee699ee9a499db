"""Serai takes in any extension, drives any coding agent, under one policy, with every wire on record.

This package is the public surface; `docs/architecture.md` draws the house. Names are imported when they are first used, so
`import serai` itself costs nothing.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
