"""Serai runs any agent extension and any coding agent under one policy, with every wire recorded.

This package is the public surface. Names are imported on first use, so that `import serai` costs nothing. `docs/architecture.md`
describes the layers and the packages.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
