"""Start a program with exactly the descriptors it is given, through the C library's `posix_spawn`.

Why not `subprocess`: it can only place descriptors 0 to 2, and piglet guests need 3 and 4 exactly. Why not `os.posix_spawn`:
it can neither change the directory nor close the rest. Both would need a helper program in between. The C function does
all of it without copying the parent (its cost is flat in the parent's memory) and without Python code between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from functools import cache, lru_cache
from typing import Any

Strings = Any  # as C has them: an array of pointers with a null at its end

# <spawn.h>: the same numbers in glibc and musl.
_SETSIGMASK = 0x08
_SETSIGDEF = 0x04
_SETSID = 0x80

# Larger than the C library's posix_spawn_file_actions_t, posix_spawnattr_t and sigset_t (glibc: 80, 336 and 128 bytes).
_OPAQUE = 512


def posix_spawn(path: str, argv: Strings, env: Strings, cwd: str | None, descriptors: Mapping[int, int]) -> int:
    """Start `path` in a session of its own; the pid.

    `descriptors` maps the child's numbers to ours. Everything else is closed in the child. Raises `OSError` when the program
    cannot be executed and `ValueError` for a NUL in a string.
    """
    floor = max(descriptors, default=2) + 1
    if min(descriptors.values(), default=floor) >= floor:
        return _spawn(path, argv, env, cwd, descriptors)
    # Sources are moved above every target first, so that no target overwrites a source that is still needed.
    parked: list[int] = []
    try:
        parked.extend(fcntl(source, F_DUPFD_CLOEXEC, floor) for source in descriptors.values())
        return _spawn(path, argv, env, cwd, dict(zip(descriptors, parked, strict=True)))
    finally:
        for descriptor in parked:
            os.close(descriptor)


def _spawn(path: str, argv: Strings, env: Strings, cwd: str | None, descriptors: Mapping[int, int]) -> int:
    actions = _build_actions(cwd, *descriptors.items()) if _has_closefrom() else _Actions(cwd, dict(descriptors))
    pid = ctypes.c_int()
    _check(_load_libc().posix_spawn(ctypes.byref(pid), _encode_string(path), actions.struct, _build_attributes(), argv, env), path)
    return pid.value


class _Actions:
    """What happens in the child before it is the program: C's `posix_spawn_file_actions_t`."""

    def __init__(self, cwd: str | None, descriptors: Mapping[int, int]) -> None:
        libc = self._libc = _load_libc()
        self.struct = ctypes.create_string_buffer(_OPAQUE)
        _check(libc.posix_spawn_file_actions_init(self.struct))
        if cwd is not None:
            _check(libc.posix_spawn_file_actions_addchdir_np(self.struct, _encode_string(cwd)))
        floor = max(descriptors, default=2) + 1
        for target in range(floor):
            if target in descriptors:
                _check(libc.posix_spawn_file_actions_adddup2(self.struct, descriptors[target], target))
            else:  # or the child sees whatever we have there
                self._close(target)
        if _has_closefrom():
            _check(libc.posix_spawn_file_actions_addclosefrom_np(self.struct, floor))
        else:
            for number in _list_inheritable(floor):
                self._close(number)

    def __del__(self) -> None:
        self._libc.posix_spawn_file_actions_destroy(self.struct)

    def _close(self, number: int) -> None:
        _check(self._libc.posix_spawn_file_actions_addclose(self.struct, number))


@lru_cache(64)
def _build_actions(cwd: str | None, *descriptors: tuple[int, int]) -> _Actions:
    """Kept: children that start one after the other have the same numbers."""
    return _Actions(cwd, dict(descriptors))


def _has_closefrom() -> bool:
    return hasattr(_load_libc(), "posix_spawn_file_actions_addclosefrom_np")  # glibc 2.34


def _list_inheritable(first: int) -> list[int]:
    """Python's own descriptors close by themselves; these are others', from `first` on."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if number >= first and os.get_inheritable(number):
                found.append(number)
        except OSError:  # the listing's own descriptor, gone by now
            continue
    return found


@cache
def _build_attributes() -> Any:
    """The same for every child, and only read: made once."""
    libc = _load_libc()
    attributes, empty, full = (ctypes.create_string_buffer(_OPAQUE) for _ in range(3))
    libc.sigemptyset(empty)
    libc.sigfillset(full)
    _check(libc.posix_spawnattr_init(attributes))
    _check(libc.posix_spawnattr_setsigmask(attributes, empty))
    # An ignored signal stays ignored across exec. Python ignores SIGPIPE, nohup SIGHUP, a shell's `&` SIGINT; programs expect none.
    _check(libc.posix_spawnattr_setsigdefault(attributes, full))
    _check(libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSID | _SETSIGDEF | _SETSIGMASK)))
    return attributes


@cache
def _load_libc() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None)


class EnvironmentBlock:
    """Environments of children that differ in one variable, mostly: the last one is kept as C has it."""

    __slots__ = ("_last", "_name", "_strings")

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: dict[str, str] | None = None
        self._strings: Strings = None

    def build_strings(self, env: Mapping[str, str], value: str) -> Strings:
        """This environment, with this value of the variable. Good until the next one is made."""
        if env != self._last:
            self._last = None  # it may fail
            self._strings = c_strings([*(f"{name}={value}" for name, value in env.items() if name != self._name), ""])
            self._last = dict(env)
        self._strings[len(self._strings) - 2] = _encode_string(f"{self._name}={value}")  # before the null
        return self._strings


def c_strings(texts: Sequence[str]) -> Strings:
    """`ValueError` for a NUL in one of them."""
    return _get_array_type(len(texts) + 1)(*_encode_strings(texts), None)


def _encode_strings(texts: Sequence[str]) -> list[bytes]:
    """Encoded all together, which takes a fraction of the time."""
    encoded = os.fsencode("\0".join(texts)).split(b"\0") if texts else []
    if len(encoded) != len(texts):
        culprit = next(text for text in texts if "\0" in text)
        raise ValueError(f"NUL in {culprit!r}")
    return encoded


def _encode_string(text: str) -> bytes:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"NUL in {text!r}")
    return encoded


@cache
def _get_array_type(size: int) -> Any:
    """Kept: to make a new type takes longer than to make an array."""
    return ctypes.c_char_p * size


def _check(number: int, path: str = "") -> None:
    if number:
        raise OSError(number, os.strerror(number), path)
