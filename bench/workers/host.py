"""One measurement of the whole host in a fresh process: `python -m bench.workers.host PEER BYTES CALLS IN_FLIGHT HOW`.

`host.call_tool` through the zot adapter: found by its manifest, table of names, JSON Schema, send queue, deadline, neutral
result, and the same tap as the bare channel has in `roundtrip`. Prints the same JSON object as that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.workers.roundtrip import CountingTap
from bench.workers.timing import Shape, measure
from serai.host.host import Host
from serai.model.tools import ToolCall
from serai.wire import event_loop

__all__ = ["Taps", "extension"]


class Taps:
    """Stands for a recorder: hands out the tap that `roundtrip` uses, so that both carry the same."""

    class Secrets:
        def add(self, *_: object) -> None:
            pass

    secrets = Secrets()

    def open_tap(self, *_: object, **__: object) -> CountingTap:
        return CountingTap()


def extension(place: Path, peer: str, name: str) -> Path:
    """A folder with a zot extension whose program is `peer`."""
    folder = place / name
    folder.mkdir()
    (folder / "extension.json").write_text(json.dumps({"name": name, "exec": peer, "args": ["zot"]}))
    return folder


async def main(peer: str, shape: Shape, place: Path) -> dict[str, float]:
    environ = dict(os.environ) | {"SERAI_HOME": str(place / "home")}
    recorder: Any = Taps()
    text = shape.text
    async with Host.discover(place, guests=[extension(place, peer, "echo")], environ=environ, config={}, recorder=recorder) as host:
        assert host.report.ok, host.report.to_lines()
        assert (await host.call_tool("echo", {"text": text})).text == text
        assert (await host.call_tool("echo", {"txt": text})).code == "INVALID_ARGS"
        call_tool = host.call_tool
        return await measure(lambda: call_tool(ToolCall("echo", {"text": text})), shape)


def run(how: str, peer: str, shape: Shape) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as place:
        work = main(peer, shape, Path(place))
        if how == "fast":
            return event_loop.run(work)
        with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
            return runner.run(work)


if __name__ == "__main__":
    peer_, *shape_ = sys.argv[1:5]
    print(json.dumps(run(sys.argv[5], peer_, Shape.of(shape_))))
