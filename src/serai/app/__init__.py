"""The house: host, agent, policy, store, recorder and surface, joined.

`app` (what people and products use), `opening` (how it is put together), `pipeline` (the one path of every call), `joining` (how an
agent and the guests meet), `services` (what guests may ask for), `config` (what was set, and where).
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.app.app import App
    from serai.app.config import Config
    from serai.app.opening import Choices
    from serai.app.pipeline import Decided, Pipeline

__all__ = ["App", "Choices", "Config", "Decided", "Pipeline"]

_HOMES = {"App": "app", "Choices": "opening", "Config": "config", "Decided": "pipeline", "Pipeline": "pipeline"}

__getattr__, __dir__ = lazy(__name__, _HOMES)
