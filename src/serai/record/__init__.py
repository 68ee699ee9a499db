"""The flight recorder: every frame of every wire, stored, shown, exported and replayed.

Writing: `recorder` (a tap for each wire, and the thread that writes), `secrets` (known values, masked before they are written),
`recording_folder` (names, locks and pruning of the files), `segment` (the file format). Reading: `recording` (index, timeline,
type and role of a frame, export, replay), `secret_patterns` (masks what looks like a secret when it is shown).
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
