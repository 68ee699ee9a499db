"""What a model's answers cost."""

from __future__ import annotations

from serai.agents.models import wording
from serai.model.events import Usage
from serai.model.provider import Model

__all__ = ["priced", "together"]


def priced(model: Model, usage: Usage) -> Usage:
    """With its cost, where the catalogue knows the prices; a provider that tells its own is believed."""
    return usage if usage.cost_usd is not None else wording.priced(usage, model.cost)


def together(first: Usage, second: Usage) -> Usage:
    """Both; a cost that is not known adds nothing to one that is."""
    known = [usage.cost_usd for usage in (first, second) if usage.cost_usd is not None]
    return Usage(
        first.input + second.input,
        first.output + second.output,
        first.cache_read + second.cache_read,
        first.cache_write + second.cache_write,
        sum(known) if known else None,
    )
