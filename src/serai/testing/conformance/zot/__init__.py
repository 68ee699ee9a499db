"""The rules that bind a zot guest: what it says (`words`), what it lives through (`faults`), and what binds any (`living`)."""

from serai.testing.conformance.zot.probe import examine
from serai.testing.conformance.zot.rules import RULES

__all__ = ["RULES", "examine"]
