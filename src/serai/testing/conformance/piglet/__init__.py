"""The rules that bind a piglet guest: what it says (`words`), what it lives through (`faults`), and what binds any (`living`)."""

from serai.testing.conformance.piglet.probe import examine
from serai.testing.conformance.piglet.rules import RULES

__all__ = ["RULES", "examine"]
