"""The house: host, agent, policy, store, recorder and surface, joined.

`app` (what people and products use), `opening` (how it is put together), `pipeline` (the one path of every call), `joining` (how an
agent and the guests meet), `services` (what guests may ask for), `config` (what was set, and where).
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
