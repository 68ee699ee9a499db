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
from functools import cache
from typing import Any

__all__ = ["posix_spawn"]

# <spawn.h>: the same numbers in glibc and musl.
_SETSIGMASK = 0x08
_SETSIGDEF = 0x04
_SETSID = 0x80

# Larger than the C library's posix_spawn_file_actions_t, posix_spawnattr_t and sigset_t (glibc: 80, 336 and 128 bytes).
_OPAQUE = 512


def posix_spawn(path: str, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, descriptors: Mapping[int, int]) -> int:
    """Start `path` in a session of its own; the pid.

    `descriptors` maps the child's numbers to ours. Everything else is closed in the child. Raises `OSError` when the program
    cannot be executed and `ValueError` for a NUL in a string.
    """
    # Sources are moved above every target first, so that no target overwrites a source that is still needed.
    floor = max(descriptors, default=2) + 1
    parked: list[int] = []
    try:
        parked.extend(fcntl(source, F_DUPFD_CLOEXEC, floor) for source in descriptors.values())
        return _spawn(path, argv, env, cwd, dict(zip(descriptors, parked, strict=True)))
    finally:
        for descriptor in parked:
            os.close(descriptor)


def _spawn(path: str, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, descriptors: Mapping[int, int]) -> int:
    libc = _libc()
    actions = ctypes.create_string_buffer(_OPAQUE)
    attributes = ctypes.create_string_buffer(_OPAQUE)
    _check(libc.posix_spawn_file_actions_init(actions))
    _check(libc.posix_spawnattr_init(attributes))
    try:
        if cwd is not None:
            _check(libc.posix_spawn_file_actions_addchdir_np(actions, _cstring(cwd)))
        for target, source in descriptors.items():
            _check(libc.posix_spawn_file_actions_adddup2(actions, source, target))
        for low, high in _gaps(descriptors):
            for number in range(low, high):
                _check(libc.posix_spawn_file_actions_addclose(actions, number))
        _close_from(libc, actions, max(descriptors, default=2) + 1)
        _set_attributes(libc, attributes)
        pid = ctypes.c_int()
        _check(
            libc.posix_spawn(
                ctypes.byref(pid), _cstring(path), actions, attributes, _array(argv), _array(f"{k}={v}" for k, v in env.items())
            ),
            path,
        )
        return pid.value
    finally:
        libc.posix_spawn_file_actions_destroy(actions)
        libc.posix_spawnattr_destroy(attributes)


def _gaps(descriptors: Mapping[int, int]) -> list[tuple[int, int]]:
    """The numbers between the wanted ones: they must be closed, or the child sees whatever we have there."""
    numbers = sorted(descriptors)
    return [(low + 1, high) for low, high in zip([-1, *numbers], numbers, strict=False) if high > low + 1]


def _close_from(libc: Any, actions: Any, first: int) -> None:
    if hasattr(libc, "posix_spawn_file_actions_addclosefrom_np"):  # glibc 2.34
        _check(libc.posix_spawn_file_actions_addclosefrom_np(actions, first))
        return
    # Python's own descriptors close by themselves; this is for the inheritable ones of others.
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if number >= first and os.get_inheritable(number):
                _check(libc.posix_spawn_file_actions_addclose(actions, number))
        except OSError:  # the listing's own descriptor, gone by now
            continue


def _set_attributes(libc: Any, attributes: Any) -> None:
    empty = ctypes.create_string_buffer(_OPAQUE)
    libc.sigemptyset(empty)
    # An ignored signal stays ignored across exec. Python ignores SIGPIPE, nohup SIGHUP, a shell's `&` SIGINT; programs expect none.
    restored = ctypes.create_string_buffer(_OPAQUE)
    libc.sigfillset(restored)
    _check(libc.posix_spawnattr_setsigmask(attributes, empty))
    _check(libc.posix_spawnattr_setsigdefault(attributes, restored))
    _check(libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSID | _SETSIGDEF | _SETSIGMASK)))


@cache
def _libc() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None)


def _cstring(text: str) -> bytes:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"NUL in {text!r}")
    return encoded


def _array(strings: Any) -> Any:
    encoded = [_cstring(text) for text in strings]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _check(number: int, path: str = "") -> None:
    if number:
        raise OSError(number, os.strerror(number), path)
