"""The end of a plugin's build: its interpreter is about to be frozen into a component without a clock, files, randomness or output.

Whatever reaches for one of these in a stubbed component traps, which nobody can catch and which ends the instance (spec yoi 20).
So what an author is likely to call is replaced by what raises an ordinary error, an import that comes too late among them. What is
built into the interpreter's own C code, such as `datetime.now()`, still traps.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["Late", "Nowhere", "seal"]

# What handlers and the SDK import when they first need it: there is no file to import from later.
_EARLY = (
    "base64", "collections", "contextvars", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions",
    "functools", "hashlib", "heapq", "html", "inspect", "itertools", "json", "linecache", "logging", "math", "operator", "pathlib",
    "random", "re", "statistics", "string", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata",
    "urllib.parse", "uuid",
)  # fmt: skip
_OF_THE_SDK = ("serai.sdk.calls", "serai.sdk.ingress", "serai.sdk.interfaces", "serai.sdk.results", "serai.sdk.schema.parameters")
_CLOCK = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "localtime")
_RANDOM = ("urandom", "getrandom")
_FILES = (
    "access", "chdir", "chmod", "close", "fstat", "getcwd", "link", "listdir", "lstat", "mkdir", "open", "readlink", "remove",
    "rename", "replace", "rmdir", "scandir", "stat", "symlink", "truncate", "unlink", "utime", "write",
)  # fmt: skip


class Nowhere(io.TextIOBase):
    """Where what is printed goes: a component has no output."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


class Late:
    """The last of the finders: what it is asked for cannot be had any more."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> NoReturn:  # noqa: ARG004
        text = f"{name} was not imported when the plugin was built, and now there is no file to import it from"
        raise ModuleNotFoundError(f"{text}: import it at the top of a module", name=name)


def _refusing(what: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(f"a plugin has no {what}: {instead}")

    return refuse


def seal(modules: Iterable[str] = _EARLY) -> None:
    """Import what may be needed, then close all doors. Inside a component only: there is no way back."""
    for name in (*modules, *_OF_THE_SDK):
        try:
            import_module(name)
        except ImportError:  # not in this interpreter
            pass
    import logging
    import time

    logging.disable()  # a record wants the time, and has nowhere to go
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        setattr(sys, name, Nowhere())
    clock = _refusing("clock", "what it does must not depend on the time")
    files = _refusing("files", 'use ext.host.fs, with the permission host_api "fs"')
    random = _refusing("randomness", "what it does must not depend on it")
    for module, names, refuse in ((time, _CLOCK, clock), (os, _RANDOM, random), (os, _FILES, files)):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, refuse)
    builtins.open = io.open = files
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "PathFinder"]
    sys.meta_path.append(Late())
