"""Compiles one component: its bytes come in on descriptor 0, the compiled code goes out on 1, and what is wrong is told on 2.

Compiling cannot be interrupted and may take much memory: so it is a process that can be killed, with bounds.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from .confinement import filter_calls, give_up_files, set_resource_limit
from .engine import HEADER, make_engine

REFUSED = 3  # exit status: the component is at fault
UNWRITTEN = 4  # the disk is


def main(argv: list[str]) -> None:
    fuel, address_space, data, seconds = argv[0] == "fuel", int(argv[1]), int(argv[2]), int(argv[3])
    from wasmtime import WasmtimeError
    from wasmtime.component import Component

    for name, value in (("CORE", 0), ("AS", address_space), ("DATA", data), ("CPU", seconds), ("NOFILE", 16)):
        set_resource_limit(name, value)
    engine = make_engine(stack=1024 * 1024, fuel=fuel)
    give_up_files()
    filter_calls(compiler=True)
    component = _read()
    if component[: len(HEADER)] != HEADER:  # anything else would be taken for component text (spec yoi 21.32)
        _refuse("it does not begin as a component")
    try:
        code = Component(engine, component).serialize()
    except WasmtimeError as error:
        _refuse(str(error))
    try:
        _write(memoryview(code))
    except OSError as error:
        _end(UNWRITTEN, error.strerror or str(error))
    os._exit(0)


def _read() -> bytes:
    parts = []
    while part := os.read(0, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write(code: memoryview) -> None:
    while code:
        code = code[os.write(1, code) :]


def _refuse(why: str) -> NoReturn:
    _end(REFUSED, why)


def _end(status: int, why: str) -> NoReturn:
    sys.stderr.write(why[:2000])
    sys.stderr.flush()
    os._exit(status)
