"""The folder of recordings: names, permissions, what is there, and what has to go.

A run's files are `RUN.000.rec`, `RUN.001.rec`, …; a run's name starts with its time in UTC, so names sort by age. The writer of
a file holds a lock on it, which ends with the process however that ends: so running writers are known, and nobody removes a file
under its writer.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from serai import paths
from serai.errors import NoRecording, NotRecorded
from serai.limits import RecordLimits

_FILE = re.compile(r"(\d{8}T\d{6}-\d{3}-[0-9a-f]{4})\.(\d{3,})\.rec")
_TIME = "%Y%m%dT%H%M%S"
_AGES = 365 * 1000  # days: nothing is older


def make_run_name() -> str:
    """A name for the run that starts now: its second, its millisecond, and something to tell it from others of the same."""
    now = datetime.now(UTC)
    return f"{now:{_TIME}}-{now.microsecond // 1000:03}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The files of one run that are left, in order."""

    name: str
    files: tuple[Path, ...]

    @property
    def started(self) -> datetime:
        return datetime.strptime(self.name[:15], _TIME).replace(tzinfo=UTC)

    @property
    def size(self) -> int:
        return sum(map(_read_size, self.files))

    @property
    def live(self) -> bool:
        """Whether somebody still writes it."""
        return any(_is_written(file) for file in self.files)


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """Where recordings lie; not necessarily there yet."""

    path: Path

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ) -> RecordingFolder:
        return cls(Path(paths.state_folder(environ)) / "recordings")

    def create(self) -> None:
        """Make it, for this user alone. Who had it open to others (a copy, another umask) has not any more."""
        try:
            paths.make_private_folder(self.path)
            self.path.chmod(0o700)
        except OSError as error:
            raise NotRecorded(f"the folder of recordings cannot be used: {error.strerror}", who=str(self.path)) from None

    def create_file(self, run: str, part: int) -> int:
        """Create and lock a run's next file; its descriptor. Nothing is left behind when that fails."""
        path = self.path / f"{run}.{part:03}.rec"
        while True:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # somebody pruned it before it was locked

    def remove(self, run: str, part: int) -> None:
        """Take back a file that could not be begun."""
        (self.path / f"{run}.{part:03}.rec").unlink(missing_ok=True)

    def list_runs(self) -> list[RecordedRun]:
        """All runs, the oldest first."""
        found: dict[str, list[tuple[int, Path]]] = {}
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if (match := _FILE.fullmatch(path.name)) and _is_time(match[1][:15]):
                found.setdefault(match[1], []).append((int(match[2]), path))
        return [RecordedRun(name, tuple(path for _, path in sorted(parts))) for name, parts in sorted(found.items())]

    def find(self, wanted: str = "") -> RecordedRun:
        """The run whose name starts or ends so, if it is the only one; the latest when nothing is said."""
        runs = self.list_runs()
        if not wanted and runs:
            return runs[-1]
        matching = [run for run in runs if wanted and (run.name.startswith(wanted) or run.name.endswith(wanted))]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise NoRecording(f"{len(matching)} recordings are called {wanted}…: say more of the name")
        raise NoRecording(f"there is no recording {wanted}" if wanted else "nothing was recorded yet", who=str(self.path))

    def prune(self, *, days: float | None = None, total: int | None = None, now: datetime | None = None) -> list[Path]:
        """Remove what is older than so many days, then the oldest files until no more than `total` bytes are left.

        A file that is being written stays. Gives the files that were removed.
        """
        removed: list[Path] = []
        if days is not None:
            age = timedelta(days=min(days, _AGES))
            oldest = (now or datetime.now(UTC)) - age
            removed += _remove(file for run in self.list_runs() if run.started < oldest for file in run.files)
        if total is not None:
            left = [(file, _read_size(file)) for run in self.list_runs() for file in run.files]
            size = sum(bytes_ for _, bytes_ in left)
            for file, bytes_ in left:
                if size <= total:
                    break
                if gone := _remove([file]):
                    removed += gone
                    size -= bytes_
        return removed

    def prune_to_limits(self, limits: RecordLimits) -> list[Path]:
        return self.prune(days=limits.record_age, total=limits.record_total)


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return False
    return True


def _read_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # somebody prunes at the same time
        return 0


def _remove(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if _remove_one(file)]


def _remove_one(file: Path) -> bool:
    with _try_lock(file, fcntl.LOCK_EX) as ours:
        if ours:
            file.unlink(missing_ok=True)
    return ours


def _is_written(file: Path) -> bool:
    with _try_lock(file, fcntl.LOCK_SH) as ours:
        return not ours and file.exists()


@contextmanager
def _try_lock(file: Path, how: int) -> Iterator[bool]:
    """Hold the lock of a file if nobody else does, and say whether."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)
