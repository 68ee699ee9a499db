"""Why the host does not do what a plugin asked of it. It reaches the plugin as a trap, which it cannot catch (spec yoi 2.4)."""

from __future__ import annotations

__all__ = ["Denied"]


class Denied(Exception):
    """A refused or failed call of a host interface; the text is for the operator, bounded and redacted by whoever shows it."""
