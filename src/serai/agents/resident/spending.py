"""What a model's answers cost."""

from __future__ import annotations

from serai.model.events import Usage
from serai.model.provider import Cost, Model

__all__ = ["priced", "together"]

_MILLION = 1_000_000


def priced(model: Model, usage: Usage) -> Usage:
    """With its cost, where the catalogue knows the prices; a provider that tells its own is believed."""
    if usage.cost_usd is not None or model.cost == Cost():
        return usage
    cost = model.cost
    spent = (
        usage.input * cost.input
        + usage.output * cost.output
        + usage.cache_read * cost.cache_read
        + usage.cache_write * cost.cache_write
    )
    return Usage(usage.input, usage.output, usage.cache_read, usage.cache_write, spent / _MILLION)


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
