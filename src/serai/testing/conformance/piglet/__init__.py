"""The rules that bind a piglet guest: `rules` has its own and adds `shared_rules`, `probe` starts and asks it."""

from serai.testing.conformance.piglet.probe import examine
from serai.testing.conformance.piglet.rules import RULES

__all__ = ["RULES", "examine"]
