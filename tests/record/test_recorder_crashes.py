"""A host killed at any moment leaves a recording that opens and lacks at most the last batch."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serai.record import Recording, RecordingFolder
from tests.support.recordings import open_folder

# Calls a real peer without end, in rotating files, and says from time to time how many answers are certainly written.
HOST = """
import asyncio, os, sys
from pathlib import Path
from serai.limits import Limits
from serai.record import RecordingFolder, Recorder
from serai.testing import faults
from serai.wire import Deadlines, Launch, PlainSpawner, JsonRpcPeer

async def main():
    with Recorder(RecordingFolder(Path(sys.argv[1])), limits=Limits().but(record_segment=100_000, record_batch=0.002)) as recorder:
        async with PlainSpawner() as spawner:
            child = await spawner.spawn(Launch(argv=faults.peer(), env=dict(os.environ)))
            tap = recorder.open_tap("peer", kind="guest", dialect="jsonrpc", pid=child.pid)
            rpc = JsonRpcPeer(child, deadlines=Deadlines(), tap=tap)
            for count in range(0, 10**9, 20):
                await asyncio.gather(*(rpc.call("echo", {"text": "x" * (n * 50)}) for n in range(20)))
                if count % 200 == 0:
                    recorder.flush()
                    print(count + 20, flush=True)

asyncio.run(main())
"""


@pytest.mark.req("record.kill.opens")
@pytest.mark.parametrize("seed", range(8))
def test_a_host_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    folder = open_folder(tmp_path)
    chance = random.Random(seed)
    with subprocess.Popen([sys.executable, "-c", HOST, str(folder.path)], stdout=subprocess.PIPE, env=os.environ) as host:
        assert host.stdout
        promised = 0
        for _ in range(chance.randrange(1, 12)):
            promised = int(host.stdout.readline())
        for _ in range(chance.randrange(200_000)):  # somewhere between two promises
            pass
        host.send_signal(signal.SIGKILL)
        rest = host.stdout.read().split()
    promised = int(rest[-1]) if rest else promised
    with Recording.open("", folder) as recording:
        answers = [item for item in recording.iter_timeline() if item.what == "frame" and item.way == "received"]
        assert len(answers) >= promised
        assert [int(item.id) for item in answers] == list(range(1, len(answers) + 1))
        assert all(item.request for item in answers)
        wire = recording.get_wire(1)
        assert (wire.who, wire.ended) == ("peer", 0)
    assert not folder.find().live


@pytest.mark.req("record.damage.any", "record.kill.opens")
def test_a_recording_cut_at_any_byte_opens(tmp_path: Path) -> None:
    from serai.record import Recorder
    from tests.support.recordings import record_calls

    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        record_calls(recorder, calls=3)
    [path] = folder.find().files
    whole = path.read_bytes()
    seen = -1
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with Recording.open("", RecordingFolder(folder.path)) as recording:
            frames = sum(item.what == "frame" for item in recording.iter_timeline())
        assert frames >= seen  # never less than with fewer bytes
        seen = frames
    assert seen == 6
