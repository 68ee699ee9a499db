"""Calls of a plugin: `plugins inprocess|echo|call|look|spawn|crowd COMPONENT [LOOP]`; prints one JSON object of numbers.

`inprocess` has wasmtime's own Python API and nothing of ours; the others go through a host with the plugin in it, as an app does.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any

from serai.host import Host
from serai.model.tools import ToolCall
from serai.plugins.package import compute_digest
from serai.wire import event_loop

CALLS, WARM, STARTS, CROWD = 3000, 300, 20, 50
TEXT = "x" * 1000
HOST = {"fs": ("read", "list", "write"), "websocket": ("open", "send-text", "recv", "close")}
TOML = """\
schema_version = 1
id = "bench.ID"
name = "bench"
version = "1"
runtime = { kind = "wasm-component", world = "yoi:plugin/instance@1.0.0", component = "plugin.component.wasm" }
permissions = PERMISSIONS

[[tools]]
name = "echoID"
input_schema = { type = "object", properties = { text = { type = "string" } } }

[[tools]]
name = "callID"
input_schema = { type = "object" }

[[websocket]]
scheme = "ws"
host = "localhost"

[[tools]]
name = "lookID"
input_schema = { type = "object", properties = { path = { type = "string" } } }
"""


def permissions(id: str) -> list[dict[str, str]]:
    tools = [{"kind": "tool", "name": f"{name}{id}"} for name in ("echo", "call", "look")]
    apis = [{"kind": "host_api", "api": api} for api in ("fs", "websocket")]
    return [{"kind": "surface", "surface": "tool"}, *tools, *apis]


def written(place: Path, component: bytes, id: str) -> dict[str, Any]:
    """A package in a folder of its own; the enablement that grants all of it."""
    asked = permissions(id)
    listed = ", ".join("{ " + ", ".join(f'{key} = "{value}"' for key, value in one.items()) + " }" for one in asked)
    files = {
        "plugin.toml": TOML.replace("PERMISSIONS", f"[{listed}]").replace("ID", id).encode(),
        "plugin.component.wasm": component,
    }
    folder = place / f"plugin{id}"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    ref, fs = f"user:bench.{id}", [{"root": str(place), "operations": ["read"]}]
    sockets = [{"scheme": "ws", "host": "localhost"}]
    bound = {"id": ref, "version": "1", "digest": compute_digest(files)}
    return {"id": ref, "grants": {**bound, "permissions": asked, "fs": fs, "websocket": sockets}}


@asynccontextmanager
async def harness(component: bytes, ids: list[str], place: Path) -> AsyncIterator[Host]:
    enabled = [written(place, component, id) for id in ids]
    config = {"feature": {"plugins": {"enabled": True}}, "plugins": {"enabled": enabled}}
    environ = {"SERAI_HOME": str(place / "home"), "PATH": "/usr/bin:/bin", "HOME": str(place)}
    guests = [place / f"plugin{id}" for id in ids]
    async with Host.discover(place, guests=guests, installed=False, config=config, environ=environ) as host:
        if not host.report.ok:
            sys.exit(str(host.report))
        yield host


def told(times: list[float]) -> dict[str, float]:
    return {"p50": median(times) * 1e6, "p95": quantiles(times, n=20)[-1] * 1e6}


def inprocess(component: bytes) -> dict[str, float]:
    from wasmtime import Config, Engine, Store
    from wasmtime.component import Component, Linker

    config = Config()
    config.epoch_interruption = True
    engine = Engine(config)
    store = Store(engine)
    store.set_epoch_deadline(1 << 40)
    linker = Linker(engine)

    def answer(_: Any, *_asked: Any) -> str:
        return '{"path":"note","content":"hello","truncated":false}'

    with linker.root() as root:
        for interface, names in HOST.items():
            with root.add_instance(f"yoi:host/{interface}@1.0.0") as instance:
                for name in names:
                    instance.add_func(name, answer)
    made = linker.instantiate(store, Component(engine, component))
    handle = made.get_func(store, "handle-tool")
    assert handle is not None
    given = json.dumps({"text": TEXT})

    def call(name: str, text: str) -> float:
        began = perf_counter()
        said = handle(store, name, text)
        took = perf_counter() - began
        assert said[:11] == '{"summary":', said
        return took

    found: dict[str, float] = {}
    for name, text in (("echo", given), ("call", "{}"), ("look", '{"path":"note"}')):
        for _ in range(WARM):
            call(name, text)
        found |= {f"{name}_{key}": value for key, value in told([call(name, text) for _ in range(CALLS)]).items()}
    return found


async def calls(component: bytes, name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "note").write_text("hello")
        async with harness(component, ["0"], place) as host:
            [guest] = host.guests.values()
            running = guest.running
            assert running is not None
            call = ToolCall(f"{name}0", {"echo": {"text": TEXT}, "call": {}, "look": {"path": "note"}}[name])
            times: list[float] = []
            began_cpu = 0.0
            for number in range(WARM + CALLS):
                if number == WARM:
                    began_cpu = process_time()
                began = perf_counter()
                result = await running.call_tool(call)
                times.append(perf_counter() - began)
                assert not result.is_error, result
            found = told(times[WARM:]) | {"cpu": (process_time() - began_cpu) / CALLS * 1e6}
            whole: list[float] = []
            for _ in range(CALLS // 4):
                began = perf_counter()
                result = await host.call_tool(call.name, dict(call.arguments))
                whole.append(perf_counter() - began)
                assert not result.is_error, result
            return found | {"whole": median(whole) * 1e6, "mb": rss(running.pid)}


async def spawn(component: bytes) -> dict[str, float]:
    """From nothing to ready, with what was compiled before: each time a new process. And the first time, when it is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        async with harness(component, ["0"], Path(folder)) as host:
            [guest] = host.guests.values()
            first, times = guest.seconds, []
            for _ in range(STARTS):
                await host.reload(guest.id)
                times.append(guest.seconds)
            return {"first": first * 1e3, "ms": median(times) * 1e3}


async def crowd(component: bytes) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        ids = [str(number) for number in range(CROWD)]
        async with harness(component, ids[:1], Path(folder)):
            pass  # compiled
        shutil.rmtree(Path(folder) / "plugin0")
        began = perf_counter()
        async with harness(component, ids, Path(folder)) as host:
            up = perf_counter() - began
            tools = [f"echo{id}" for id in ids]
            began = perf_counter()
            rounds = 20
            for _ in range(rounds):
                results = await asyncio.gather(*(host.call_tool(tool, {"text": TEXT}) for tool in tools))
                assert not any(result.is_error for result in results), results[0]
            took = perf_counter() - began
            pids = [guest.running.pid for guest in host.guests.values() if guest.running is not None]
            return {
                "up_ms": up * 1e3,
                "per_call": took / rounds / CROWD * 1e6,
                "mb": sum(map(pss, pids)) / CROWD,
            }


def rss(pid: int) -> float:
    return _kb(f"/proc/{pid}/status", "VmRSS:") / 1024


def pss(pid: int) -> float:
    """What it takes, with what it shares divided among those who share it."""
    return _kb(f"/proc/{pid}/smaps_rollup", "Pss:") / 1024


def _kb(file: str, key: str) -> int:
    return next(int(line.split()[1]) for line in Path(file).read_text().splitlines() if line.startswith(key))


def main(mode: str, file: str, loop: str = "asyncio") -> None:
    component = Path(file).read_bytes()
    ways: dict[str, Callable[[], Any]] = {
        **{name: partial(calls, component, name) for name in ("echo", "call", "look")},
        "spawn": lambda: spawn(component),
        "crowd": lambda: crowd(component),
    }
    if mode == "inprocess":
        found = inprocess(component)
    elif loop == "uvloop":
        found = event_loop.run(ways[mode]())
    else:
        found = asyncio.run(ways[mode]())
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
