"""Whether guards hold: what the program says of its hooks, and its version (spec agents 2.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serai.agents.drivers.claude.versions import newer
from serai.errors import AgentFailed

__all__ = ["GUARDED", "Guarding"]

GUARDED = "2.1.197"  # the oldest that was seen to ask about every call; newer ones tell so themselves


class Guarding:
    """Of one process. `needed`: somebody must be asked about every call. Nothing may run otherwise (design rule 8)."""

    def __init__(self, needed: bool) -> None:
        self.needed = needed
        self.version = ""
        self._told = False  # that our hook is there

    def answered(self, reply: Mapping[str, Any]) -> AgentFailed | None:
        """What it answered to `initialize`; why guards would not hold, if it tells."""
        self.version = str(reply.get("claude_code_version", ""))
        self._told = reply.get("hooks_applied") is True
        return self._broken("it does not take our hook") if reply.get("hooks_applied") is False else None

    def refused(self, why: str) -> AgentFailed | None:
        """It would have nothing of `initialize`."""
        return self._broken(why)

    def begins(self, version: str) -> AgentFailed | None:
        """It is about to ask its model, and tells its version."""
        self.version = version or self.version
        if self._told or not newer(GUARDED, self.version):
            return None
        return self._broken(f"its version {self.version or 'unknown'} does not ask before each call")

    def _broken(self, why: str) -> AgentFailed | None:
        if not self.needed:
            return None
        hint = f"update Claude Code: {GUARDED} or newer"
        return AgentFailed(f"guards would not hold: {why}", kind="not_guarded", who="claude", hint=hint)
