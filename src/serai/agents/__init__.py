"""Agents: a `Session` and its `Turn`s are the same for the resident and for every driven program.

`factory` opens a session by the agent's name and reads `[agents]` of `config.toml`. `session` and `turn` have what a caller
holds; `driver` is the interface of an agent, and `event_hub` is where a driver reports events. `inbox` holds input that arrives
during a turn, `tool_results` cuts results to what a model takes.

`resident` is Serai's own loop over a model, `models` streams answers for it. `drivers` has one package for each driven agent,
`driven` the code that they share.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
