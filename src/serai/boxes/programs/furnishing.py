"""What a box finds on its disk when it starts: folders, a small /etc, and which parts of the machine it sees read-only."""

from __future__ import annotations

import os
import stat

__all__ = ["FOLDERS", "SYSTEM", "Machine", "furnish"]

# Programs and libraries: the machine's own. Where one is a link (/bin -> usr/bin) the box gets the same link.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc only what programs need to find their libraries, certificates and the time; nothing of it is secret.
_ETC = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/protocols", "/etc/services", "/etc/terminfo"),
)
# On disk, all of them: what a hook writes there must still be there after a pause (spec hooks 3.5).
FOLDERS = {
    "etc": 0o755,
    "home": 0o755,
    "root": 0o700,
    "run": 0o755,
    "tmp": 0o1777,
    "var": 0o755,
    "var/tmp": 0o1777,
    "workspace": 0o755,
}
_MOUNT_POINTS = {"dev": 0o755, "proc": 0o555}

_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1\tlocalhost {box_id}\n::1\tlocalhost {box_id}\n",
    "etc/hostname": "{box_id}\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
}


class Machine:
    """What of this machine a box without a base tree sees, as it was before the box had a root of its own."""

    def __init__(self) -> None:
        self.links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
        folders = {path: True for path in SYSTEM if os.path.isdir(path) and path not in self.links}
        self.shared = folders | {path: os.path.isdir(path) for path in _ETC if _for_everybody(path)}  # path: whether it is a folder


def _for_everybody(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def furnish(box_id: str, machine: Machine | None) -> None:
    """Make in the working directory, the root of the box, what is missing there. What is there stays: it may be of before a pause.

    Without a `machine`, over a base tree, only what cannot be done without.
    """
    for name, mode in (FOLDERS | _MOUNT_POINTS).items():
        _folder(name, mode)
    for name, text in _FILES.items():
        if machine is not None or name in {"etc/hosts", "etc/hostname"}:
            _file(name, text.format(box_id=box_id))
    if machine is None:
        return
    for path, target in machine.links.items():
        _link(target, path[1:])
    _link("../usr/lib/os-release", "etc/os-release")
    for path, is_folder in machine.shared.items():
        _place(path[1:], is_folder=is_folder)


def _place(name: str, *, is_folder: bool) -> None:
    """Something to mount over, and the folders on the way to it."""
    parts = name.split("/")
    for depth in range(1, len(parts)):
        _folder("/".join(parts[:depth]), 0o755)
    if is_folder:
        _folder(name, 0o755)
    else:
        _file(name, "")


# In each of these what is there stays; should it be something else, whoever needs the right thing will say so.


def _folder(name: str, mode: int) -> None:
    try:
        os.mkdir(name, mode)
        os.chmod(name, mode)
    except OSError:
        pass


def _link(target: str, name: str) -> None:
    try:
        os.symlink(target, name)
    except OSError:
        pass


def _file(name: str, text: str) -> None:
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    os.write(descriptor, text.encode())
    os.close(descriptor)
