"""Landlock: which files a process may touch, without namespaces and without privileges (Linux 5.13 and newer)."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from .syscalls import syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
# All rights that a version of Landlock knows, by version: 13 at first, then to link across folders, to truncate, ioctl of devices.
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_VERSION = 1
_PATH_BENEATH = 1

# Rights of a rule. Those that the kernel's version does not know are left out.
READ = _EXECUTE | _READ_FILE | _READ_DIR
USE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
EVERYTHING = max(_ALL.values())
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def get_abi_version() -> int:
    """Which version the kernel has; 0 for none, or when it is switched off."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def can_scope_signals() -> bool:
    """Whether a process can be kept from sending signals to those outside, and from their abstract sockets."""
    return get_abi_version() >= _SCOPES_SINCE


def restrict(allowed: Iterable[tuple[str, int]] = ()) -> None:
    """From now on: only these paths, each with its rights; by default no file at all. It must have no_new_privs already."""
    known = syscall("landlock_create_ruleset", None, 0, _VERSION, what="Landlock")
    if known < 1:  # answered by a filter above us
        raise OSError(errno.EOPNOTSUPP, "Landlock: it has no version")
    everything = _ALL[max(since for since in _ALL if since <= known)]
    attributes = [everything]
    if known >= _NETWORK_SINCE:
        attributes.append(_BIND_AND_CONNECT)
    if known >= _SCOPES_SINCE:
        attributes.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    rules = syscall("landlock_create_ruleset", ctypes.create_string_buffer(packed, len(packed)), len(packed), 0, what="Landlock")
    try:
        for path, rights in allowed:
            _allow(rules, path, rights & everything)
        syscall("landlock_restrict_self", rules, 0, what="Landlock")
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine: then there is nothing to allow
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        syscall(
            "landlock_add_rule", rules, _PATH_BENEATH, ctypes.create_string_buffer(rule, len(rule)), 0, what=f"Landlock for {path}"
        )
    finally:
        os.close(descriptor)
