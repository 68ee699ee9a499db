"""No host function outlasts the call that it is made in, whatever its own time is (spec yoi 4.4, 5.3, 21.30)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.plugins.bounds import Bounds
from tests.support.yoi.host_calls import PATIENT, RequestLog, do, encode, grant, open_calls, record, serve, target
from tests.support.yoi.websockets import accept_raw, open_websocket, serve_websocket

pytestmark = pytest.mark.loops

LOOPBACK = record(declared=[target("127.0.0.1", scheme="*")])
SOON = 0.5  # seconds that are left of the call
FOREVER = 3600.0


@pytest.mark.req("yoi.edge.30")
async def test_a_request_ends_with_its_call() -> None:
    seen = RequestLog()
    async with serve(seen.answering(stay=True)) as port, open_calls(LOOPBACK, bounds=Bounds(request=FOREVER)) as effects:
        with pytest.raises(HostCallDenied, match=rf"^request to http://127.0.0.1:{port}/ timed out$"):
            async with asyncio.timeout(PATIENT):
                await do(effects, "request", "request", encode(f"http://127.0.0.1:{port}/"), remaining=SOON)
        await asyncio.wait_for(seen.gone.wait(), PATIENT)


@pytest.mark.req("yoi.edge.30")
async def test_a_send_to_a_peer_that_does_not_read_ends_with_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_api, "SECONDS", FOREVER)
    over = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async with serve(accept_raw(deaf)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        with pytest.raises(HostCallDenied, match="^WebSocket send timed out$"):
            async with asyncio.timeout(PATIENT):
                while True:  # until what the machine holds between us is full
                    await do(effects, "websocket", "send-text", handle, "x" * 32_768, remaining=SOON)
        over.set()


@pytest.mark.req("yoi.rule.036")
async def test_to_close_a_handle_that_was_too_old_closes_nothing() -> None:
    now = [0.0]
    async with serve_websocket() as port, open_calls(LOOPBACK, clock=lambda: now[0]) as effects:
        first, second = await open_websocket(effects, port), await open_websocket(effects, port)
        now[0] = 900.0  # fifteen minutes, and not more
        assert await do(effects, "websocket", "close", first) == {"closed": True}
        now[0] = 900.1
        assert await do(effects, "websocket", "close", second) == {"closed": False}


@pytest.mark.parametrize("there", [False, True])
async def test_what_is_written_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """After a crash of the machine there is the old content or the new one, and no empty file."""
    if there:
        (tmp_path / "a").write_text("old")
    done: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        done.append(("sync", Path(path).read_text() if os.path.isfile(path) else "folder"))
        fsync(descriptor)

    def renamed(*args: Any, **more: Any) -> None:
        done.append(("rename", args[1]))
        rename(*args, **more)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    async with open_calls(record(fs=[grant(tmp_path)])) as effects:
        await effects.call("fs", "write", [json.dumps({"path": "a", "content": "new"})], PATIENT)
    assert done == [("sync", "new"), ("rename", "a"), ("sync", "folder")]
    assert (tmp_path / "a").read_text() == "new"
