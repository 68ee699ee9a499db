"""One file of a recording that another person can open: look-alikes of secrets masked, and only the wires that matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serai.errors import NotRecorded
from serai.record import lookalikes
from serai.record.recording import Recording
from serai.record.segment import Damaged, Entry, Frames, Head, frames_head, pack, with_texts

__all__ = ["export", "export_bytes"]


def export(recording: Recording, path: Path, *, keep: Callable[[int], bool] = lambda _: True, replace: bool = False) -> int:
    """Write the wires that `keep` names to `path`, for this user alone; the size. An existing file stays unless `replace`."""
    try:
        # Beside it first: the recording may be that very file, and a full disk must not cost it.
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for this user alone
        try:
            with open(descriptor, "wb") as file:
                size = sum(file.write(part) for part in export_bytes(recording, keep))
            _place(draft, path, replace=replace)
        except BaseException:
            os.unlink(draft)
            raise
        return size
    except FileExistsError:
        raise NotRecorded(
            "the file exists already", who=str(path), hint="choose another name, or replace it with --force"
        ) from None
    except OSError as error:
        raise NotRecorded(f"the file cannot be written: {error.strerror}", who=str(path), hint="choose another place") from None


def _place(draft: str, path: Path, *, replace: bool) -> None:
    if not replace:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # fails when there is one; else it is ours to replace
    try:
        os.replace(draft, path)
    except OSError:
        if not replace:
            os.unlink(path)
        raise


def export_bytes(recording: Recording, keep: Callable[[int], bool]) -> Iterator[bytes]:
    """The entries, masked at equal length: the file replays as the recording does."""
    for entry in recording.entries():
        if isinstance(entry, Damaged) or not _kept(entry, keep):
            continue
        if isinstance(entry, Frames):
            lines = recording.wire(entry.wire).framing == "lines"
            yield frames_head(entry.wire, entry.way, entry.at, len(entry.run))
            yield lookalikes.mask_run(entry.run) if lines else lookalikes.mask(entry.run)
        else:
            yield pack(with_texts(entry, lookalikes.mask_text))


def _kept(entry: Entry, keep: Callable[[int], bool]) -> bool:
    wire: Any = getattr(entry, "wire", 0)
    return isinstance(entry, Head) or not wire or keep(wire)
