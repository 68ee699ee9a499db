"""The flight recorder: every frame of every wire, kept, shown, exported and replayed.

Writing: `recorder` (a tap for each wire), `writer` (the thread behind them), `secrets` (masked on the way in), `folder` (where the
files lie), `segment` (what they look like). Reading: `recording` (the index and the timeline), `glance` (what a frame is),
`lookalikes` (masked when shown), `exporting`, `replaying`.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
