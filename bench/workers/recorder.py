"""The round trip with the real recorder on: `python -m bench.workers.recorder PEER BYTES CALLS IN_FLIGHT asyncio|uvloop SECRETS`.

As a host has it: a file in a folder, so many known secrets to look for in every byte. Fails when the recorder had to drop anything.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from bench.workers.roundtrip import main
from bench.workers.timing import Shape
from serai.record import Recorder, Recording, RecordingFolder, Secrets
from serai.wire import event_loop


def run(peer: str, shape: Shape, how: str, secrets: int) -> dict[str, float]:
    values = [(f"TOKEN_{number}", f"tok_{number}_{'aB3xY9' * 6}") for number in range(secrets)]
    with tempfile.TemporaryDirectory() as place:
        folder = RecordingFolder(Path(place) / "recordings")
        with Recorder(folder, secrets=Secrets(values)) as recorder:
            tap = recorder.open_tap("bench:echo", kind="guest", dialect="zot")
            with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
                numbers = runner.run(main(peer, shape, tap))
        with Recording.open("", folder) as recording:
            wire = recording.get_wire(1)
            assert not wire.dropped, f"{wire.dropped} frames were dropped"
            assert wire.frames["sent"] == wire.frames["received"] > shape.calls
        numbers["mb"] = sum(run.size for run in folder.list_runs()) / 1e6
    return numbers


if __name__ == "__main__":
    peer_, *shape_ = sys.argv[1:5]
    how_, secrets_ = sys.argv[5:]
    print(json.dumps(run(peer_, Shape.of(shape_), how_, int(secrets_))))
