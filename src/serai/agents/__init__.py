"""Agents: what takes prompts. The same `Session` and `Turn` for our own loop and for every program that is driven.

`opening` is the door, `session` and `turn` are what a caller holds, `stage` and `driver` the agent's side of it; `driving` plays a
turn with a surface, `inbox` takes what people type meanwhile, `keeping` writes it down. `resident` is our own loop, `models` are
whom it asks.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
