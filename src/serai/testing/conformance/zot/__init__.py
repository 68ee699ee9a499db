"""The rules that bind a zot guest: `rules` has its own and adds `shared_rules`, `probe` starts and asks it."""

from serai.testing.conformance.zot.probe import examine
from serai.testing.conformance.zot.rules import RULES

__all__ = ["RULES", "examine"]
