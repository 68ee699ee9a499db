"""The version, where everybody can read it without importing the house."""

from __future__ import annotations

__version__ = "0.1.0"
