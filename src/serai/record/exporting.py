"""One file of a recording that another person can open: look-alikes of secrets masked, and only the wires that matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serai.errors import NotRecorded
from serai.record import lookalikes
from serai.record.recording import Recording
from serai.record.segment import Damaged, Entry, Frames, Head, frames_head, pack

__all__ = ["export", "export_bytes"]


def export(recording: Recording, path: Path, *, keep: Callable[[int], bool] = lambda _: True, replace: bool = False) -> int:
    """Write the wires that `keep` names to `path`, for this user alone; the size. An existing file stays unless `replace`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            return sum(file.write(part) for part in export_bytes(recording, keep))
    except FileExistsError:
        raise NotRecorded(
            "the file exists already", who=str(path), hint="choose another name, or replace it with --force"
        ) from None
    except OSError as error:
        raise NotRecorded(f"the file cannot be written: {error.strerror}", who=str(path), hint="choose another place") from None


def export_bytes(recording: Recording, keep: Callable[[int], bool]) -> Iterator[bytes]:
    """The entries, masked at equal length: the file replays as the recording does."""
    for entry in recording.entries():
        if isinstance(entry, Damaged) or not _kept(entry, keep):
            continue
        if isinstance(entry, Frames):
            yield frames_head(entry.wire, entry.way, entry.at, len(entry.run))
            yield lookalikes.mask(entry.run)
        else:
            yield lookalikes.mask(pack(entry))


def _kept(entry: Entry, keep: Callable[[int], bool]) -> bool:
    wire: Any = getattr(entry, "wire", 0)
    return isinstance(entry, Head) or not wire or keep(wire)
