"""The worker of one plugin: it holds the guest and nothing else. The guest's calls to the host go to the parent.

Frames are lines of JSON on the descriptors 0 and 1; `serai.dialects.yoi.messages` has the parent's view of them. One call at a
time: while the guest runs, the only frame that comes is the reply to its host call.

A thread ends a guest that runs past its time: it looks every few milliseconds while calls come, and sleeps when none do. wasmtime
stops a guest when the engine's epoch has passed the store's. The epoch is moved only when a call's time is over, so a call costs
nothing but a note of its deadline; and a thread that is awake anyway is not woken for each call.
"""

from __future__ import annotations

import _thread
import gc
import os
from json.decoder import JSONDecoder
from json.encoder import encode_basestring
from math import inf
from time import monotonic, sleep
from typing import Any

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import Component, Linker

from .component import HOST, PREFIX, SUFFIX, ComponentRejected, DirectCalls, check, choose_calls
from .confinement import filter_calls, give_up_files, raise_stack, set_resource_limit
from .engine import RESERVED, make_engine

_READ = 1 << 16
_scan = JSONDecoder().raw_decode

quoted = encode_basestring


class LineChannel:
    """Blocking, both ways: a worker does one thing at a time. Its parent's end is the end of the process."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self) -> dict[str, Any]:
        data = self._rest
        end = data.find(b"\n")
        while end < 0:
            chunk = os.read(0, _READ)
            if not chunk:
                os._exit(0)
            at = chunk.find(b"\n")
            end = at if at < 0 else len(data) + at
            data = data + chunk if data else chunk
        self._rest = data[end + 1 :]
        frame: dict[str, Any] = _scan(data[:end].decode())[0]
        return frame

    def write(self, line: str) -> None:
        data = line.encode()
        done = os.write(1, data)
        while done < len(data):
            done += os.write(1, data[done:])


_EVERY = 0.02  # seconds
_QUIET = 10  # looks without a call: then it sleeps until there is one


class DeadlineThread:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = _thread.allocate_lock()
        self._wake = _thread.allocate_lock()
        self._wake.acquire()
        self._deadline = inf
        self._calls = 0
        self._asleep = False

    def start(self) -> None:
        _thread.start_new_thread(self._run, ())

    def begin(self, store: Store, seconds: float) -> None:
        """From now on the store has so long. Under the lock: else the end of the call before could hit this one."""
        with self._lock:
            self._deadline = monotonic() + seconds
            self._calls += 1
            store.set_epoch_deadline(1)
            if self._asleep:
                self._asleep = False
                self._wake.release()

    def end(self) -> None:
        self._deadline = inf

    def _run(self) -> None:
        seen, quiet = -1, 0
        while True:
            with self._lock:
                if monotonic() >= self._deadline:
                    self._deadline = inf
                    self._engine.increment_epoch()
                quiet = quiet + 1 if self._calls == seen and self._deadline == inf else 0
                seen = self._calls
                self._asleep = asleep = quiet >= _QUIET
            if asleep:
                quiet = 0
                self._wake.acquire()
            else:
                sleep(_EVERY)


_TEXT = 2000  # characters of an error
_SLACK = 64 * 1024 * 1024  # bytes for the interpreter's own work: texts that are copied, frames
_ARGUMENTS = 256 * 1024  # characters of one host call; every limit of the host's functions is far below


def main(_: list[str]) -> None:
    wire = LineChannel()
    load = wire.read()
    try:
        worker = _Worker(wire, load)
    except ComponentRejected as error:
        wire.write(f'{{"type":"unfit","text":{quoted(str(error)[:_TEXT])}}}\n')
        os._exit(0)
    except WasmtimeError as error:  # compiled for another engine, or damaged: to be compiled anew
        wire.write(f'{{"type":"stale","text":{quoted(str(error)[:_TEXT])}}}\n')
        os._exit(0)
    gc.freeze()
    gc.enable()
    worker.run()


class _Worker:
    def __init__(self, wire: LineChannel, load: dict[str, Any]) -> None:
        self._wire = wire
        self._bounds = bounds = load["bounds"]
        self._fresh = load["fresh"]
        raise_stack(bounds["stack"] + 2 * 1024 * 1024)
        self._engine = engine = make_engine(stack=bounds["stack"], fuel=bounds["fuel"] > 0)
        self._component = component = Component.deserialize_file(engine, load["path"])
        imports = check(engine, component, load["world"])
        self._way = choose_calls(load["most"])
        self._linker = linker = Linker(engine)
        self._provide(linker)
        self._deadlines = DeadlineThread(engine)
        held = self._confine()
        self._store: Store | None = None
        self._exports: dict[str, Any] = {}
        self._call = 0
        self._asked = 0
        self._kind = ""  # what ended the call, when we know better than wasmtime's words
        names = ",".join(quoted(name) for name in imports)
        said = ",".join(quoted(name) for name in held)
        direct = "true" if isinstance(self._way, DirectCalls) else "false"
        wire.write(f'{{"type":"loaded","imports":[{names}],"confined":[{said}],"direct":{direct}}}\n')

    def _confine(self) -> list[str]:
        bounds = self._bounds
        with open("/proc/self/statm", "rb") as file:
            pages = file.read().split()
        page = os.sysconf("SC_PAGE_SIZE")
        space, data = int(pages[0]) * page, int(pages[5]) * page
        grown = bounds["memories"] * (RESERVED + 1024 * 1024)
        # What the guest's memories take together is bounded by DATA, their reservations by AS; twice, for one that moves.
        limits = {
            "CORE": 0,
            "AS": space + grown + 2 * bounds["memory"] + 2 * _SLACK,
            "DATA": data + 2 * bounds["memory"] + _SLACK,
            "NOFILE": 16,
            "NPROC": 0,
        }
        held = give_up_files()  # before there is a second thread
        self._deadlines.start()
        held += [name for name, value in limits.items() if set_resource_limit(name, value)]
        if filter_calls():
            held.append("seccomp")
        return held

    def _provide(self, linker: Linker) -> None:
        """All three interfaces: whether one may be used is the parent's to say, at every call (spec yoi 2.3)."""
        with linker.root() as root:
            for interface, functions in HOST.items():
                with root.add_instance(f"{PREFIX}{interface}{SUFFIX}") as instance:
                    for function, params in functions.items():
                        self._way.provide(instance, interface, function, params, self._ask)

    # -- the loop ---------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        wire = self._wire
        while True:
            frame = wire.read()
            self._call = number = frame["id"]
            self._kind = ""
            try:
                if frame["type"] == "go":
                    if not self._fresh:
                        try:
                            self._instantiate(frame["time"])
                        finally:
                            self._deadlines.end()
                    wire.write('{"type":"ready"}\n')
                    continue
                text, size = self._run(frame["export"], frame["args"], frame["time"])
            except WasmtimeError as error:
                self._report_trap(number, str(error))
            except Exception as error:  # such as no memory left for the text
                self._report_trap(number, repr(error))
            else:
                if size:
                    wire.write(f'{{"type":"big","id":{number},"size":{size}}}\n')
                else:
                    wire.write(f'{{"type":"ok","id":{number},"text":{quoted(text)}}}\n')

    def _run(self, export: str, args: list[str], seconds: float) -> tuple[str, int]:
        try:
            if self._store is None:
                self._instantiate(seconds)  # of the world `tool`: a new store for each call, which has one time for both
            else:
                self._begin(self._store, seconds)
            return self._exports[export](args)  # type: ignore[no-any-return]
        finally:
            self._deadlines.end()
            if self._fresh:
                self._drop()

    def _begin(self, store: Store, seconds: float) -> None:
        """Before instantiation, where core start functions run, and before every call (spec yoi 21.29)."""
        if self._bounds["fuel"]:
            store.set_fuel(self._bounds["fuel"])
        self._deadlines.begin(store, seconds)

    def _instantiate(self, seconds: float) -> None:
        bounds = self._bounds
        store = Store(self._engine)
        store.set_limits(bounds["memory"], bounds["table_elements"], bounds["instances"], bounds["tables"], bounds["memories"])
        self._begin(store, seconds)
        instance = self._linker.instantiate(store, self._component)
        self._store = store
        for name in ("start", "handle-tool", "handle-ingress", "status", "stop", "call"):
            func = instance.get_func(store, name)
            if func is not None:
                self._exports[name] = self._way.export(func, store)

    def _drop(self) -> None:
        self._exports.clear()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    # -- what is said -----------------------------------------------------------------------------------------------------------

    def _ask(self, interface: str, function: str, args: Any) -> str:
        """A host function: the parent does it. Only `WasmtimeError` comes out of here: no other exception crosses wasmtime."""
        try:
            reply = self._ask_parent(interface, function, args)
        except BaseException as error:
            raise WasmtimeError(f"host function failed: {error!r}") from None
        text = reply.get("text")
        if type(text) is str:
            return text
        self._kind = "denied"
        raise WasmtimeError(str(reply.get("denied", "the host broke off")))

    def _ask_parent(self, interface: str, function: str, args: Any) -> dict[str, Any]:
        if sum(len(arg) for arg in args if type(arg) is str) > _ARGUMENTS:
            return {"denied": "plugin host API argument is too large"}
        self._asked += 1
        said = ",".join(quoted(arg) if type(arg) is str else str(arg) for arg in args)
        head = f'{{"type":"host","id":{self._call},"n":{self._asked},"api":"{interface}","function":"{function}","args":'
        self._wire.write(f"{head}[{said}]}}\n")
        reply = self._wire.read()
        return reply if reply.get("n") == self._asked else {}

    def _report_trap(self, number: int, text: str) -> None:
        kind = self._kind or _classify_trap(text)
        self._wire.write(f'{{"type":"trap","id":{number},"kind":"{kind}","text":{quoted(_extract_cause(text))}}}\n')


def _classify_trap(text: str) -> str:
    for words, kind in (
        ("wasm trap: interrupt", "timeout"),
        ("all fuel consumed", "fuel"),
        ("call stack exhausted", "stack"),
        ("invalid utf-8", "output"),
        ("out of bounds of memory", "output"),
        ("resource limit exceeded", "limit"),
    ):
        if words in text:
            return kind
    return "trap"


def _extract_cause(text: str) -> str:
    """The cause without the way there: wasmtime tells both."""
    cause = text.rpartition("Caused by:")[2]
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    return " ".join(line.removeprefix("0: ") for line in lines)[:_TEXT] or "it failed without a word"
