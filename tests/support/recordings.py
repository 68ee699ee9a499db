"""Recorders and conversations for the tests of the recorder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from serai.record import Recorder, Recording, RecordingFolder
from serai.testing import faults
from serai.wire import Deadlines, JsonRpcPeer, Launch, PlainSpawner
from tests.conftest import QUICK

CALL = b'{"type":"tool_call","id":"%d","name":"weather"}\n'
RESULT = b'{"type":"tool_result","id":"%d","content":[]}\n'


def open_folder(path: Path) -> RecordingFolder:
    return RecordingFolder(path / "recordings")


def open_recording(folder: RecordingFolder) -> Recording:
    return Recording.open("", folder)


def read_all_bytes(folder: RecordingFolder) -> bytes:
    """Everything that lies in the folder."""
    return b"".join(file.read_bytes() for run in folder.list_runs() for file in run.files)


def record_calls(recorder: Recorder, *, calls: int = 3, who: str = "zot:weather") -> None:
    """A wire on which some calls were answered, made without a process."""
    tap = recorder.open_tap(who, kind="guest", dialect="zot", pid=17)
    for number in range(calls):
        tap.frames("sent", monotonic(), CALL % number)
        tap.frames("received", monotonic(), RESULT % number)
    tap.end()


@asynccontextmanager
async def record_peer(
    recorder: Recorder, spawner: PlainSpawner, fault: str = "none", *, env: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[JsonRpcPeer]:
    """A real peer on record."""
    deadlines = Deadlines()
    launch = Launch(argv=faults.peer(fault, **options), env=env if env is not None else dict(os.environ), who=f"test:{fault}")
    child = await spawner.spawn(launch)
    tap = recorder.open_tap(child.who, kind="guest", dialect="jsonrpc", pid=child.pid)
    try:
        yield JsonRpcPeer(child, deadlines=deadlines, limits=QUICK, tap=tap)
    finally:
        await child.close()
        deadlines.close()
