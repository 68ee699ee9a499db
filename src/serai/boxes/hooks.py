"""Runs the hooks of boxes: when a box is created, for files and state; when it is destroyed, with that state (spec hooks 1 and 2).

Nothing here is logged that a hook may have meant to be secret: no request, no answer, no content, no state.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import EAGAIN, EMFILE, ENFILE, ENOENT, ENOMEM
from functools import partial
from signal import strsignal
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from serai.boxes.hook_process import AnswerFile, HookExit, read_left_answer, run_hook
from serai.dialects.hookproto.host_side import BadResponse, BoxFile, encode_request, read_response, resolve_file
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response
from serai.dialects.hookproto.peer_side import encode_response
from serai.errors import BadSettings, ExitStatus, HookFailed, LimitHit, NotWritten, SpawnFailed
from serai.limits import KIB, BoxLimits
from serai.paths import make_private_folder
from serai.record import secret_patterns
from serai.wire.process import Launch, Spawner, build_hook_env

if TYPE_CHECKING:
    from serai.record.recorder import Recorder, WireTap

log = logging.getLogger("serai.boxes")

# Of its stderr: what an error shows and what the log keeps (spec hooks 1.10).
_IN_ERROR = 4 * KIB
_IN_LOG = 8 * KIB
# An answer this long is read in a thread: nobody else should wait for it.
_LONG = 256 * KIB
# What may be a credential that appears elsewhere; shorter it is everywhere, longer it is a file.
_SECRET = range(8, 4096 + 1)
_SHORTEST = 4

_SHORTAGES = frozenset({EMFILE, ENFILE, EAGAIN, ENOMEM})  # of descriptors, processes, memory: not the hook's doing

OnState = Callable[[str, str], Awaitable[None]]
OnDone = Callable[[str], Awaitable[None]]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook as configured: a path, or a name to be found in PATH; `name` keeps its states findable when the path changes."""

    path: str
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_clear: bool = False

    @property
    def key(self) -> str:
        """Under which its state is kept."""
        return self.name or self.path

    def settled(self, folder: str = "") -> Hook:
        """The same wherever it is run from: a path that begins at `folder` (ours) is made absolute. A name is looked up in PATH."""
        if "/" not in self.path or self.path.startswith("/"):
            return self
        return replace(self, path=os.path.abspath(os.path.join(folder, self.path)))


@dataclass(slots=True)
class HookResults:
    """What the hooks of a create came to. With an error, too, there may be states: they are for the roll-back."""

    files: list[BoxFile] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict, repr=False)
    error: HookFailed | None = None


class HookAttempt(NamedTuple):
    """What one run came to. Its stderr has no secret that is known."""

    response: Response
    failure: HookFailed | None = None
    stderr: str = ""


class HookRunner:
    """Runs the configured hooks, one after the other in the order of the list. Without hooks it does nothing."""

    def __init__(
        self,
        hooks: Iterable[Hook],
        *,
        spawner: Spawner,
        limits: BoxLimits,
        environ: Mapping[str, str] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """`environ` is what hooks get to see, by default our own as it is now."""
        self.hooks = tuple(hooks)
        self._spawner = spawner
        self._limits = limits
        self._environ = dict(os.environ if environ is None else environ)
        self._recorder = recorder
        self._envs: dict[str, dict[str, str]] = {}
        keys = [hook.key for hook in self.hooks]
        for key in keys:
            if keys.count(key) > 1:  # one's state would take the place of the other's (spec hooks 2.3)
                hint = "give each hook its own `name`"
                raise BadSettings(f"two hooks are called {key}, and a state must belong to one of them", who="hooks", hint=hint)

    async def create(self, box: Box, place: str, on_state: OnState) -> HookResults:
        """Run all for a new box; the first failure ends it. Each state is given to `on_state` first (spec hooks 2.2).

        Answers lie in files that begin with `place` until `on_state` has returned; what an exception leaves is for `recover`.
        """
        outcome = HookResults()
        request = Request(EVENT_BOX_CREATE, box)
        for index, hook in enumerate(self.hooks):
            answer = _create_answer(_build_path(place, index))
            try:
                response, outcome.error, _ = await self.run_once(hook, request, answer)
                if response.state:
                    outcome.states[hook.key] = response.state
                    await on_state(hook.key, response.state)
                answer.remove()
                if outcome.error is None:
                    outcome.error = await _run_by_size(answer.size, partial(self._add_files, hook, response, outcome.files))
            finally:
                answer.close()
            if outcome.error is not None:
                break
        return outcome

    async def destroy(
        self, box: Box, states: Mapping[str, str], *, done: Collection[str] = frozenset(), on_done: OnDone | None = None
    ) -> HookFailed | None:
        """Give each state back to its hook, in the order of the list. All run; failures are logged.

        The first failure is returned (spec hooks 2.3).

        Hooks in `done` ran before. `on_done` is told of each that has run, well or not: a failed hook is not tried again. One that
        could not be started for want of something on the machine has not run.
        """
        first: HookFailed | None = None
        for hook in self.hooks:
            state = states.get(hook.key, "")
            if not state or hook.key in done:
                continue
            failure = await self._revoke(hook, Request(EVENT_BOX_DESTROY, box, state))
            if failure is not None:
                log.warning("box %s: %s failed on destroy: %s", box.box_id, failure.who, secret_patterns.mask_text(failure.message))
                first = first or failure
            if on_done is not None and not (failure is not None and failure.temporary):
                await on_done(hook.key)
        known = {hook.key for hook in self.hooks}
        for key in (key for key in states if key not in known):
            log.warning("box %s: there is no hook %s any more, so nobody is given the state that it left", box.box_id, key)
        return first

    async def recover(self, place: str, keys: Sequence[str]) -> dict[str, str]:
        """The states in answers that a manager left behind when it died; `keys` are those of its hooks, in their order."""
        states: dict[str, str] = {}
        for index, key in enumerate(keys):
            try:
                response = read_response(await read_left_answer(_build_path(place, index), self._limits))
            except BadResponse as error:
                log.debug("the hook %s had not answered: %s", key, error)
                continue
            if response.state:
                states[key] = response.state
        return states

    def forget(self, place: str) -> None:
        """Remove what was left there: its states are on record now, or it had none."""
        for index in range(len(self.hooks)):
            with suppress(OSError):  # a bad file there must not keep a box
                os.unlink(_build_path(place, index))

    async def _revoke(self, hook: Hook, request: Request) -> HookFailed | None:
        try:
            answer = AnswerFile.create_in_memory()
        except OSError as error:
            return HookFailed(f"no place for its answer: {error.strerror}", path=hook.path, temporary=True)
        try:
            return (await self.run_once(hook, request, answer)).failure
        finally:
            answer.close()

    async def run_once(self, hook: Hook, request: Request, answer: AnswerFile) -> HookAttempt:
        """One run. A failed hook has an answer only when we ended it: it had no chance to undo."""
        launch = Launch(argv=[hook.path], env=self._build_env(hook), who=f"hook {hook.key}", stdout=answer.writer)
        tap = _HookTap(self._recorder, hook.key, request)
        try:
            ran = await run_hook(self._spawner, launch, encode_request(request), answer, self._limits, started=tap.record_start)
        except SpawnFailed as error:
            failure = HookFailed(_describe_spawn_error(hook.path, error), path=hook.path, temporary=error.errno in _SHORTAGES)
            failure.hint = error.hint or failure.hint
            tap.record_start(0)
            tap.record_end(failure)
            return HookAttempt(Response(), failure)
        except BaseException as error:
            tap.record_end(HookFailed(f"ended by us: {type(error).__name__}", path=hook.path))
            raise
        response, wrong = Response(), ""
        try:
            if ran.ok or ran.how == "late":
                if ran.size < _LONG:
                    response = read_response(answer.read())
                else:
                    response = await asyncio.to_thread(lambda: read_response(answer.read()))
                tap.record_answer(response)
            if not ran.size and ran.ok and answer.is_disk_full:  # else what is there is whole, or is no response
                wrong = "there was no room for its answer"
        except BadResponse as error:
            tap.record_unread(ran.size)
            wrong = str(error)
        if ran.stderr:
            ran = ran._replace(stderr=_mask_secrets(ran.stderr, request.state, response.state, *map(_find_text, response.files)))
        failed = self._find_failure(hook, ran, wrong)
        tap.record_end(failed, ran)
        if failed is None and ran.stderr and log.isEnabledFor(logging.DEBUG):
            log.debug("%s said: %s", launch.who, _cut_to_tail(secret_patterns.mask_text(ran.stderr), _IN_LOG))
        return HookAttempt(response, failed, ran.stderr)

    def _build_env(self, hook: Hook) -> dict[str, str]:
        """Made once: the same one is quick to hand over again."""
        if hook.key not in self._envs:
            self._envs[hook.key] = build_hook_env(self._environ, extra=hook.env, clear=hook.env_clear)
        return self._envs[hook.key]

    def _find_failure(self, hook: Hook, ran: HookExit, wrong: str) -> HookFailed | None:
        """Why it failed: by how it ended, else by what is wrong with its answer (spec hooks 1.10)."""
        limit: LimitHit | None = None
        if ran.how == "late":
            cause, limit = f"timed out after {self._limits.hook_timeout:g}s", self._build_limit_hit("hook_timeout")
        elif ran.how == "too much":
            cause, limit = f"printed more than {self._limits.hook_max_output} bytes", self._build_limit_hit("hook_max_output")
        elif not ran.ok:
            cause = _describe_exit(ran.status)
        elif wrong:
            return HookFailed(wrong, path=hook.path, exit=ran.status, stderr=ran.stderr)
        else:
            return None
        said = _cut_to_tail(ran.stderr.strip(), _IN_ERROR)
        return HookFailed(f"{cause}: {said}" if said else cause, path=hook.path, exit=ran.status, stderr=ran.stderr, limit=limit)

    def _add_files(self, hook: Hook, response: Response, files: list[BoxFile]) -> HookFailed | None:
        """Add its files to those of the hooks before it; why they cannot be had, else."""
        if len(response.state.encode()) > self._limits.hook_state:
            return self._build_error(hook, f"its state has more than {self._limits.hook_state} bytes", "hook_state")
        size = sum(len(file.content) for file in files)
        for file in response.files:
            try:
                files.append(injection := resolve_file(file, lambda text: log.warning("hook %s: %s", hook.key, text)))
            except ValueError as error:
                return HookFailed(str(error), path=hook.path)
            size += len(injection.content)
            if size > self._limits.max_inject_bytes:
                text = f"the files for this box have more than {self._limits.max_inject_bytes} bytes"
                return self._build_error(hook, text, "max_inject_bytes")
            if len(files) > self._limits.max_inject_files:
                return self._build_error(hook, f"more than {self._limits.max_inject_files} files for this box", "max_inject_files")
        return None

    def _build_error(self, hook: Hook, text: str, name: str) -> HookFailed:
        return HookFailed(text, path=hook.path, limit=self._build_limit_hit(name))

    def _build_limit_hit(self, name: str) -> LimitHit:
        return LimitHit(name, getattr(self._limits, name))


class _HookTap:
    """Puts one run on record, with stars in place of what may be secret (design rule 13); without a recorder it does nothing."""

    def __init__(self, recorder: Recorder | None, key: str, request: Request) -> None:
        self._recorder = recorder
        self._key = key
        self._request = request
        self._tap: WireTap | None = None

    def record_start(self, pid: int) -> None:
        if self._recorder is not None:
            self._learn(self._request.state)
            self._tap = self._recorder.open_tap(f"hook:{self._key}", kind="hook", dialect="hookproto", pid=pid, framing="bodies")
            masked = Request(self._request.event, self._request.box, _mask(self._request.state))
            self._tap.record_body("sent", encode_request(masked))

    def record_answer(self, response: Response) -> None:
        if self._tap is not None:
            self._learn(response.state, *map(_find_text, response.files))
            files = [
                File(file.path, _mask(file.content), _mask(file.content_base64), file.mode, file.uid, file.gid)
                for file in response.files
            ]
            self._tap.record_body("received", encode_response(Response(files, _mask(response.state))))

    def record_unread(self, size: int) -> None:
        """What is no response may be anything: only its size is kept."""
        if self._tap is not None:
            self._tap.record_body("received", b'"%d bytes that are no response"' % size)

    def record_end(self, failure: HookFailed | None, ran: HookExit | None = None) -> None:
        if self._tap is not None:
            self._tap.end(cause=failure, exit=ran and ran.status, stderr=ran.stderr if ran else "")

    def _learn(self, *values: str) -> None:
        if self._recorder is not None:
            self._recorder.secrets.add(*((f"hook {self._key}", value) for value in values if len(value) in _SECRET))


def choose_answer_place(home: str, generation: str, limits: BoxLimits) -> str:
    """Where the answers of the create hooks of a box are while they run: how their names begin.

    In memory: they outlive us there as well, and credentials do not get on a disk. Where that is not ours alone, or is nearly
    full, beside the boxes.
    """
    in_memory, beside = list_answer_places(home, generation)
    folder = os.path.dirname(in_memory)
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        about = os.lstat(folder)
        private = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
        room = os.statvfs(folder)
        if private and room.f_bavail * room.f_frsize > limits.hook_max_output:  # everybody may fill it
            return in_memory
    except OSError:
        log.debug("there is no folder in memory for the answers of hooks")
    make_private_folder(os.path.dirname(beside))
    return beside


def list_answer_places(home: str, generation: str) -> tuple[str, str]:
    """Where they may be: another process may have found another place good."""
    memory = f"/dev/shm/serai-{os.geteuid()}"  # noqa: S108  (looked at before it is used)
    return os.path.join(memory, generation), os.path.join(home, "answers", generation)


def _build_path(place: str, index: int) -> str:
    return f"{place}-{index}"


def _create_answer(path: str) -> AnswerFile:
    try:
        return AnswerFile.create(path)
    except OSError as error:
        hint = "make the folder writable, and first recover what may lie there"
        raise NotWritten(f"there is no place for a hook's answer: {error.strerror}", who=path, hint=hint) from None


async def _run_by_size(size: int, work: Callable[[], Result]) -> Result:
    """Do it at once when it is short, in a thread when it is long."""
    return work() if size < _LONG else await asyncio.to_thread(work)


def _describe_spawn_error(path: str, error: SpawnFailed) -> str:
    if not error.errno:
        return error.message
    if error.errno == ENOENT and "/" not in path:
        return f'exec: "{path}": executable file not found in $PATH'
    return f"fork/exec {path}: {os.strerror(error.errno).lower()}"


def _describe_exit(status: ExitStatus | None) -> str:
    if status is None or status.signal is None:
        return str(status or ExitStatus())
    return f"signal: {(strsignal(status.signal) or str(status.signal)).lower()}"


def _cut_to_tail(text: str, size: int) -> str:
    """The last of a text, at most so many bytes of it."""
    data = text.encode(errors="replace")
    return text if len(data) <= size else "…" + data[len(data) - size + len("…".encode()) :].decode(errors="ignore")


def _mask_secrets(text: str, *secrets: str) -> str:
    """The text with stars where a line of a secret stands; what is shorter than any secret is let be."""
    for line in {line.strip() for secret in secrets for line in secret.splitlines() if len(line.strip()) >= _SHORTEST}:
        text = text.replace(line, "*" * len(line))
    return text


def _find_text(file: File) -> str:
    """Its content, where that is a text that may be a credential; else nothing."""
    if len(file.content_base64) > 2 * _SECRET.stop:
        return ""
    try:
        content = file.bytes()
        return content.decode() if len(content) in _SECRET else ""
    except ValueError:
        return ""


def _mask(text: str) -> str:
    return "*" * len(text.encode())
