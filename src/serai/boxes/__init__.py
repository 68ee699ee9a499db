"""Boxes: sandboxes with hooks at their birth and death.

`manager` is the way in; `making` and `settling` are how a box begins and ends, step by durable step (`store`, `record`, `owners`).
`backend` says what a backend is, `backends/` has them; `holding` starts a box for us or for a keeper (`keeping` talks to one);
`control` is the wire to the porter inside; `hooks` runs hook programs. `programs/` are those that run by themselves: the launcher
around a box, the porter in it, the keeper beside it. They need the standard library alone.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
