"""The engine's settings, the same where a component is compiled and where it runs: compiled code fits no others.

`resource` limits on a worker's address space need small reservations: by default wasmtime reserves 4 GiB for each
memory. A changed number changes `SETTINGS`, which is part of the name of what is cached.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from wasmtime import Engine

HEADER = b"\x00asm\x0d\x00\x01\x00"  # of a component (spec yoi 2.3)
RESERVED = 64 * 1024 * 1024  # bytes of address space for each memory; it moves when it grows beyond
GUARD = 64 * 1024
STACK_MOST = 2 * 1024 * 1024  # more aborts the process
SETTINGS = "1"


def make_engine(*, stack: int, fuel: bool) -> Engine:
    from wasmtime import Config, Engine  # here: who only needs the numbers has no wasmtime yet

    config = Config()
    config.epoch_interruption = True
    config.consume_fuel = fuel
    config.max_wasm_stack = max(64 * 1024, min(stack, STACK_MOST))
    config.memory_reservation = RESERVED
    config.memory_guard_size = GUARD
    config.memory_reservation_for_growth = 0
    config.wasm_threads = False  # no shared memories: one thread runs a guest
    return Engine(config)
