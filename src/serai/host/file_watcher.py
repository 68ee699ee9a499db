"""Watches the files of guests for hot reload, and tells which guests' have changed once they have come to rest.

What counts is settled when a guest is told of: the files named for it and the sources that lie in its folder then. Whatever
appears later is what the guest writes, its folder being its data folder too. A known file may be written in place, replaced by a
rename, or deleted and made again; it has changed when its content is another, and a file that is gone is waited for.

One thread for all guests. The kernel tells of changes in the folders that hold the files (spec piglet 8.0; not recursive). Not of
all: a folder may be missing or not readable, there may be no watches left, and the library drops what it has collected when its
wait is ended. So every two seconds the files' times are looked at, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from serai.errors import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

log = logging.getLogger("serai.host")

# What people write by hand or compile. Not .json, .txt, .log, .db, .md: guests write those.
SOURCES = frozenset(
    ".py .js .mjs .cjs .ts .mts .cts .tsx .jsx .go .rs .sh .bash .rb .lua .pl .php .wasm .wat".split()  # noqa: SIM905 # reads better
)
# Folders of what others made; `dist` has compiled entries, of which the named ones count.
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "dist"})
_MOST_FILES = 2_000
_MOST_ENTRIES = 20_000  # of a folder with a guest's million data files we do not look at all

_LOOK = 2.0  # seconds between looks at all files
_HASHED = 8 << 20  # bytes: a larger file has changed when its time, size or inode has
_END = 5.0  # seconds for the thread to end

_Stat = tuple[int, int, int]  # mtime_ns, size, inode
_Identity = tuple[int, int]  # device, inode


class CodeFiles(NamedTuple):
    """The code in a folder: plain files by their endings and names, and links to other folders, which are not entered."""

    files: list[Path]
    links: list[Path]
    complete: bool  # there was no more of it than anybody looks at


def find_code(folder: Path, *, endings: frozenset[str], names: frozenset[str], passed_over: frozenset[str]) -> CodeFiles:
    """What of a guest's folder is code, level by level. Hidden folders are passed over too."""
    found = CodeFiles([], [], complete=True)
    waiting, entries = deque([folder]), 0
    while waiting and len(found.files) <= _MOST_FILES and entries <= _MOST_ENTRIES:
        try:
            with os.scandir(waiting.popleft()) as listing:
                inside = sorted(listing, key=lambda entry: entry.name)
        except OSError:  # not there, or not ours to read
            continue
        entries += len(inside)
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in passed_over:
                    waiting.append(Path(entry.path))
            elif entry.is_symlink() and os.path.isdir(entry.path):
                found.links.append(Path(entry.path))
            elif (os.path.splitext(entry.name)[1] in endings or entry.name in names) and os.path.isfile(entry.path):
                found.files.append(Path(entry.path))
    return found._replace(complete=len(found.files) <= _MOST_FILES and entries <= _MOST_ENTRIES)


def find_sources(folder: Path, named: Iterable[Path]) -> frozenset[Path]:
    """The files to watch for a guest: the named ones, and the sources that lie in its folder now."""
    code = find_code(folder, endings=SOURCES, names=frozenset(), passed_over=_PASSED_OVER)
    found = {folder / path for path in named}
    return frozenset(found.union(code.files[: max(0, _MOST_FILES - len(found))]))


class _File:
    """A file that matters to some guests, and how it was last seen."""

    __slots__ = ("digest", "keys", "path", "seen", "spots")

    def __init__(self, path: str) -> None:
        self.path = path
        self.keys: set[str] = set()
        # Where the kernel may tell of it: where it lies, and where it leads to if it is a link.
        folder, name = os.path.split(path)
        self.spots = frozenset({os.path.join(os.path.realpath(folder), name), os.path.realpath(path)})
        self.seen = _stat(path)
        self.digest = b""  # not known yet, or too large

    def learn(self) -> bool:
        """Remember the content as it was when the file was first seen; False when it is too late for that."""
        self.digest = _hash_file(self.path)
        return _stat(self.path) == self.seen

    def check_changed(self) -> bool:
        """Whether it is another than it was; from now on this is how it was."""
        before, known = self.seen, self.digest
        self.seen = _stat(self.path)
        if self.seen is None:
            return False
        self.digest = _hash_file(self.path)
        return self.digest != known if self.digest and known else self.seen != before


class FileWatcher:
    """Calls `changed` in the loop with the keys whose files have changed, `debounce` seconds after the last change to them."""

    def __init__(self, changed: Callable[[frozenset[str]], None], *, debounce: float = 0.5) -> None:
        self._changed = changed
        self._debounce = debounce
        self._lock = threading.Lock()  # of the next four, which both sides use
        self._files: dict[str, _File] = {}
        self._spots: dict[str, set[_File]] = {}
        self._keys: dict[str, set[_File]] = {}
        self._new: list[_File] = []
        self._told = threading.Event()  # there is something new to watch, or an end to it
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        # The thread's own:
        self._notify: RustNotify | None = None
        self._watched: dict[str, _Identity] = {}  # the folders of which the kernel tells
        self._renew_at = self._look_at = 0.0
        self._silent = False  # it was said that the kernel does not tell
        self._dirty: dict[_File, float] = {}  # what has to be looked at, and when

    def watch(self, key: str, sources: Iterable[Path]) -> None:
        """From now on these files matter for the key, and no others. Tell before the guest reads them: nothing is missed then."""
        if self._closing:
            raise Closed("the watcher was closed", who=key)
        paths = {os.path.abspath(path) for path in sources}
        with self._lock:
            old = self._keys.pop(key, set())
            files = {self._files.get(path) or self._add(path) for path in paths}
            for file in files:
                file.keys.add(key)
            self._keys[key] = files
            self._drop(key, old - files)
        self._start()
        self._told.set()

    def forget(self, key: str) -> None:
        with self._lock:
            self._drop(key, self._keys.pop(key, set()))
        self._told.set()

    async def close(self) -> None:
        """Stop, and wait for the thread, but not for ever. Idempotent."""
        self._closing = True
        self._told.set()
        if self._thread is None:
            return
        try:
            await asyncio.wait_for(self._ended.wait(), _END)
        except TimeoutError:  # a file system that does not answer; the thread does not keep the process
            log.warning("the watcher of guests' files did not end within %s s", _END)
        else:
            self._thread.join(_END)

    # -- the tables, under the lock ---------------------------------------------------------------------------------------------

    def _add(self, path: str) -> _File:
        file = self._files[path] = _File(path)
        for spot in file.spots:
            self._spots.setdefault(spot, set()).add(file)
        self._new.append(file)
        return file

    def _drop(self, key: str, files: set[_File]) -> None:
        for file in files:
            file.keys.discard(key)
            if file.keys:
                continue
            del self._files[file.path]
            for spot in file.spots:
                self._spots[spot].discard(file)
                if not self._spots[spot]:
                    del self._spots[spot]

    # -- the loop's side ----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="serai-watcher", daemon=True)
            self._thread.start()

    def _report(self, keys: frozenset[str]) -> None:
        known = keys & self._keys.keys()
        if self._closing or not known:
            return
        try:
            self._changed(known)
        except Exception:
            log.exception("what a change of %s should have done failed", ", ".join(sorted(known)))

    # -- the thread ---------------------------------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not (self._closing or loop.is_closed()):
                self._told.clear()
                try:
                    self._learn()
                    self._renew()
                    self._wait()
                    if keys := self._take_settled():
                        _call_in_loop(loop, self._report, keys)
                except Exception:  # a defect of ours: the other guests' files are still watched
                    log.exception("watching guests' files failed; going on")
                    self._told.wait(_LOOK)
        finally:
            self._close_notify()
            _call_in_loop(loop, self._ended.set)

    def _learn(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for file in new:
            if not file.learn():
                file.digest = b""
                self._touch(file)

    def _renew(self) -> None:
        """Have the kernel tell of the folders that hold the files now: anew when they are others, at most once per debounce."""
        if self._silent or monotonic() < self._renew_at:
            return
        with self._lock:
            folders = {os.path.dirname(spot) for spot in self._spots}
        wanted = {folder: identity for folder in folders if (identity := _read_identity(folder)) is not None}
        if wanted == self._watched:
            return
        self._renew_at = monotonic() + self._debounce
        try:
            fresh = _open_notifier(sorted(wanted)) if wanted else None
        except (FileNotFoundError, PermissionError):  # one went in this moment: again, without it
            return
        except Exception as error:
            self._give_up(error)
            return
        self._close_notify()
        self._notify, self._watched = fresh, wanted
        self._look()  # what happened in between nobody has told

    def _give_up(self, error: Exception) -> None:
        log.warning("the machine does not tell of changed files (%s); guests' files are looked at every %s s instead", error, _LOOK)
        self._silent = True
        self._close_notify()

    def _close_notify(self) -> None:
        if self._notify is not None:
            self._notify.close()
        self._notify, self._watched = None, {}

    def _wait(self) -> None:
        """Until something changes, is told, is due, or it is time for a look."""
        now = monotonic()
        moments = [moment for moment in (*self._dirty.values(), self._renew_at, self._look_at) if moment > now]
        timeout = min(moments, default=now) - now
        if self._notify is None:
            self._told.wait(timeout)
        else:
            step = max(5, min(100, int(self._debounce * 250)))  # milliseconds: a quarter of the debounce
            try:
                answer = self._notify.watch(step, step, int(timeout * 1000) + 1, self._told)
            except Exception as error:
                self._give_up(error)
                answer = "stop"
            if isinstance(answer, set):
                self._touch_at(path for _, path in answer)
            elif answer == "stop":  # and what was collected is lost
                self._look_at = min(self._look_at, monotonic() + self._debounce)
        if monotonic() >= self._look_at:
            self._look()

    def _touch_at(self, spots: Iterable[str]) -> None:
        with self._lock:
            files = [file for spot in spots for file in self._spots.get(spot, ())]
        for file in files:
            self._touch(file)

    def _look(self) -> None:
        """Compare all files with how they were."""
        self._look_at = monotonic() + _LOOK
        with self._lock:
            files = list(self._files.values())
        for file in files:
            if file not in self._dirty and _stat(file.path) != file.seen:
                self._touch(file)

    def _touch(self, file: _File) -> None:
        self._dirty[file] = monotonic() + self._debounce

    def _take_settled(self) -> frozenset[str]:
        """The keys with changed files of which none has been touched for as long as the debounce says."""
        now = monotonic()
        with self._lock:
            moving = {key for file, due in self._dirty.items() if due > now for key in file.keys}
            ready = [file for file, due in self._dirty.items() if due <= now and not file.keys & moving]
        changed: set[str] = set()
        for file in ready:
            del self._dirty[file]
            if file.check_changed():
                with self._lock:
                    changed |= file.keys
        return frozenset(changed)


def _call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # it was closed, and nobody is left to tell
        pass


def _open_notifier(folders: list[str]) -> RustNotify:
    from watchfiles._rust_notify import RustNotify  # only when there is something to watch

    return RustNotify(folders, False, False, 0, False, False)  # debug, polling, delay, recursive, permissions


def _stat(path: str) -> _Stat | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _read_identity(folder: str) -> _Identity | None:
    """None when the kernel could not tell of it: missing, or not to be read."""
    try:
        found = os.stat(folder)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) and os.access(folder, os.R_OK) else None


def _hash_file(path: str) -> bytes:
    """Empty when the file is too large to be read for this, or cannot be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold up the thread
        with open(descriptor, "rb") as file:
            content = file.read(_HASHED + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except (OSError, ValueError):
        return b""
    return blake2b(content, digest_size=16).digest() if len(content) <= _HASHED else b""
