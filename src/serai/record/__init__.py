"""The flight recorder: every frame of every wire, kept, shown, exported and replayed.

Writing: `recorder` (a tap for each wire), `writer` (the thread behind them), `secrets` (masked on the way in), `folder` (where the
files lie), `segment` (what they look like). Reading: `recording` (the index and the timeline), `glance` (what a frame is),
`lookalikes` (masked when shown), `exporting`, `replaying`.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.record.exporting import export
    from serai.record.folder import Folder
    from serai.record.recorder import Recorder, WireTap
    from serai.record.recording import Filter, Recording
    from serai.record.replaying import replay
    from serai.record.secrets import Secrets

__all__ = ["Filter", "Folder", "Recorder", "Recording", "Secrets", "WireTap", "export", "replay"]

_HOMES = {
    "Filter": "recording",
    "Folder": "folder",
    "Recorder": "recorder",
    "Recording": "recording",
    "Secrets": "secrets",
    "WireTap": "recorder",
    "export": "exporting",
    "replay": "replaying",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
