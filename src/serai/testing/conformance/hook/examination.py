"""What the rules of hooks are given: runs of the hook, one after the other, each state given back to it.

A run is in a folder of the check's choice, with any bytes for a request, and with a look at what is left. As with boxes, its
stdout is a file and it leads a session of its own (spec hooks 1.11).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from signal import SIGTERM
from typing import IO, Literal, NamedTuple

from serai.boxes.hook_process import AnswerFile
from serai.dialects.hookproto.host_side import BadResponse, encode_request, read_response
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response, loads
from serai.dialects.hookproto.peer_side import encode_response
from serai.errors import ExitStatus, SpawnFailed
from serai.limits import Limits
from serai.record import secret_patterns
from serai.testing.conformance.findings import Finding, Unopened, fail
from serai.testing.guest_process import format_line
from serai.wire import process_tree
from serai.wire.process import Launch, build_spawn_error, find_program

How = Literal["ended", "late", "too much"]

_LOOK = 0.1  # seconds between two looks at how much it has printed
_KILLED = 5.0  # for what is killed, to go


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a check waits for a hook, in seconds. The defaults are those of boxes (spec hooks 1.12)."""

    run: float = 60.0
    quick: float = 10.0  # beyond it a person who waits for a box notices
    terminate: float = 5.0
    leave: float = 1.0  # for what a hook has started, to end after it

    def shorter(self) -> Patience:
        """For what was waited for in vain once: a person need not sit through it a dozen times."""
        return replace(self, run=min(self.run, self.quick))


class HookOutcome(NamedTuple):
    """What became of a run: how it ended, what it printed, what it took, and the names of the programs that it left behind."""

    how: How
    status: ExitStatus
    stdout: bytes
    stderr: str
    seconds: float
    left: tuple[str, ...]


class _Process:
    """A hook that runs."""

    def __init__(self, program: str, *, cwd: str, environ: Mapping[str, str], answer: AnswerFile, stderr: IO[bytes]) -> None:
        outer = environ.get(process_tree.TAG, "")
        self._tag = f"{outer}/{secrets.token_hex(8)}".lstrip("/")  # by which all that it starts is known
        self._answer, self._stderr = answer, stderr
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [program],
            cwd=cwd,
            env={**environ, process_tree.TAG: self._tag},
            stdin=subprocess.PIPE,
            stdout=answer.writer,
            stderr=stderr,
            bufsize=0,
            start_new_session=True,
        )
        answer.close_writer()
        self._end = os.pidfd_open(self._process.pid)
        self._root = process_tree.read_process(self._process.pid)
        self._how: How = "late"
        self._seconds = 0.0
        self._left: tuple[str, ...] = ()

    def run(self, request: bytes, patience: Patience, most: int, slow: Callable[[], None]) -> None:
        """Give it the request and wait for its end, then for that of whatever it has started. `slow` is called if that takes."""
        self._how = self._feed(request, patience, most, slow)
        self._seconds = time.monotonic() - self._began
        if self._how == "ended":
            self._left = self._find_survivors(time.monotonic() + patience.leave)
        elif self._how == "late":
            os.killpg(self._process.pid, SIGTERM)
            _wait_for_end(self._end, patience.terminate)

    def close(self) -> None:
        """End what is left of it."""
        process_tree.kill_until_gone(self._find_members, seconds=_KILLED)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        os.close(self._end)

    def build_exit(self, most: int) -> HookOutcome:
        """What became of it, once it is closed. Of what it printed, a little more than `most`, so that one sees that it is."""
        code = self._process.returncode
        status = ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
        stderr = os.pread(self._stderr.fileno(), most + 1, 0).decode(errors="replace")
        return HookOutcome(self._how, status, self._answer.read()[: most + 1], stderr, self._seconds, self._left)

    def _feed(self, request: bytes, patience: Patience, most: int, slow: Callable[[], None]) -> How:
        """The request as it takes it: it may print before it reads, or not read at all (spec hooks 1.11)."""
        stdin, rest = self._process.stdin, memoryview(request)
        assert stdin is not None
        os.set_blocking(stdin.fileno(), False)
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(number := stdin.fileno(), select.POLLOUT)
        quick, until = self._began + patience.quick, self._began + patience.run
        while (now := time.monotonic()) < until:
            if now > quick:
                quick = until
                slow()
            happened = dict(poll.poll(min(until - now, _LOOK) * 1000))
            if self._answer.size > most:
                return "too much"
            if self._end in happened:
                return "ended"
            if number in happened:
                try:
                    rest = rest[os.write(number, rest) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    rest = rest[:0]
                if not rest:
                    poll.unregister(number)
                    stdin.close()
        return "late"

    def _find_survivors(self, until: float) -> tuple[str, ...]:
        """The names of the programs that it has started and that are left by then."""
        while (left := self._find_members()) and (remaining := until - time.monotonic()) > 0:
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(left[0].pid)
                _wait_for_end(descriptor, remaining)
                os.close(descriptor)
        return tuple(sorted(filter(None, map(_read_name, left))))

    def _find_members(self) -> list[process_tree.Process]:
        if self._root is None:
            return []
        return process_tree.find_tree(process_tree.scan_processes(self._root.started), [self._root], self._tag)


def run(
    launch: Launch, request: bytes, *, patience: Patience, most: int, keep: Callable[[HookOutcome], None], slow: Callable[[], None]
) -> None:
    """Run a hook to its end, in its own folder if no other is named; nothing of it is left then. `SpawnFailed` if it cannot start.

    `keep` is given what became of it, also when somebody ends the wait with Ctrl-C: it may have answered with a state by then.
    `slow` is called when a person who waits should be told why.
    """
    program = find_program(launch)
    with closing(AnswerFile.create_in_memory()) as answer, tempfile.TemporaryFile() as stderr:
        try:
            cwd = launch.cwd or os.path.dirname(program)
            process = _Process(program, cwd=cwd, environ=launch.env, answer=answer, stderr=stderr)
        except (OSError, ValueError) as error:
            raise build_spawn_error(launch, error) from None
        try:
            process.run(request, patience, most, slow)
        finally:
            process.close()
            keep(process.build_exit(most))


def _wait_for_end(descriptor: int, within: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(within * 1000)


def _read_name(process: process_tree.Process) -> str:
    try:
        return Path("/proc", str(process.pid), "comm").read_text().strip()
    except OSError:
        return ""


# The rules that say why a hook gives no answer at all, in the order in which it comes to them.
OPENING = ("start", "answer", "stdout", "members")

_TAIL = 600  # of stderr, in a finding
_SECRET = 8  # characters: what is shorter is found everywhere
_NO_SERAI = "No module named 'serai'"
_STATE = re.compile("state", re.IGNORECASE)

Form = Callable[[Request], bytes]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """One run of the hook, and what became of it. `wrong` is empty when there is a response, else it is the rule of the opening."""

    request: Request
    raw: bytes = field(repr=False)
    ran: HookOutcome = field(repr=False)
    response: Response = field(default_factory=Response)
    wrong: str = ""
    why: str = ""

    @property
    def shape(self) -> tuple[int, bool]:
        """What two answers to the same request have in common: how many files there are, and whether there is a state."""
        return len(self.response.files), bool(self.response.state)

    @property
    def shaped(self) -> str:
        files, state = self.shape
        return f"{files or 'no'} file{'s' * (files != 1)} and {'a' if state else 'no'} state"

    @property
    def state(self) -> str:
        """What must be given back. Also that of an answer that boxes would not take: a check should leave nothing behind."""
        return self.response.state or (_salvage_state(self.ran.stdout) if self.wrong in ("stdout", "members") else "")

    def quote_frames(self) -> Iterator[str]:
        """The request and the answer, with stars for what may be secret."""
        request = self.request
        masked = encode_request(Request(request.event, request.box, _mask(request.state))) if request.state else self.raw
        yield format_line("host", masked)
        if self.wrong in ("stdout", "members"):
            yield f"← {len(self.ran.stdout)} bytes that are no response"
        elif not self.wrong:
            files = [
                File(file.path, _mask(file.content), _mask(file.content_base64), file.mode, file.uid, file.gid)
                for file in self.response.files
            ]
            yield format_line("guest", encode_response(Response(files, _mask(self.response.state))))


class HookExamination:
    """One hook, run as often as its rules need it. Never two runs at once, so that each has nobody but itself to blame."""

    def __init__(self, path: str, environ: Mapping[str, str], patience: Patience, limits: Limits, scratch: str, tell: Tell) -> None:
        self.patience, self.limits, self.scratch = patience, limits, scratch
        self.box = Box(box_id=f"serai-check-{secrets.token_hex(3)}", description="a box that is made up for a check")
        self.runs: list[HookRun] = []
        self.newline = False  # it answers only when the request ends in one
        self._path, self._environ, self._tell = path, environ, tell
        self._hangs = False  # at box.destroy
        self._owed: list[tuple[Box, str]] = []  # states that have not been given back

    # -- runs --------------------------------------------------------------------------------------------------------------------

    def create_box(
        self, box: Box | None = None, *, event: str = EVENT_BOX_CREATE, form: Form = encode_request, cwd: str | None = None
    ) -> AbstractContextManager[HookRun]:
        """One more box as far as the hook knows, if it answers at all. Afterwards that box is destroyed."""
        _ = self.first
        return self._create_box(Request(event, box or self.box), form, cwd)

    @contextmanager
    def _create_box(self, request: Request, form: Form = encode_request, cwd: str | None = None) -> Iterator[HookRun]:
        try:
            yield self._run(request, form(request) + b"\n" * self.newline, cwd)
        finally:
            self.return_states(request.box)

    def destroy_box(self, box: Box, state: str, *, rolled_back: bool = False) -> HookRun:
        """Give a state back. After a usual life only the box's id comes with it, else its description too (spec hooks 1.3)."""
        request = Request(EVENT_BOX_DESTROY, box if rolled_back else Box(box_id=box.box_id), state)
        return self._run(request, encode_request(request) + b"\n" * self.newline, None)

    def roll_back_box(self) -> HookRun | None:
        """Destroy one more box as if it could not be made after all; None when there is nothing to destroy."""
        with self.create_box() as made:
            if not made.state:
                return None
            run = self.destroy_box(self.box, made.state, rolled_back=True)
            if not run.wrong:
                self._owed.remove((self.box, made.state))
            return run

    def return_states(self, box: Box | None = None) -> None:
        """Give back the states of a box, or of all."""
        owed = [entry for entry in self._owed if box is None or entry[0] is box]
        for entry in owed:
            self._owed.remove(entry)
            self.destroy_box(*entry)

    def _run(self, request: Request, raw: bytes, cwd: str | None) -> HookRun:
        kept: list[HookRun] = []
        destroy = request.event == EVENT_BOX_DESTROY
        patience = self.patience.shorter() if destroy and self._hangs else self.patience

        def keep(ran: HookOutcome) -> None:
            kept.append(run := _read_run(HookRun(request=request, raw=raw, ran=ran), patience, self.limits))
            self.runs.append(run)
            if destroy:
                self._hangs = self._hangs or ran.how == "late"
            elif run.state:
                self._owed.append((request.box, run.state))

        def report_slow() -> None:
            self._tell(f"waiting for it to end at {request.event}, at most {patience.run:g} s")

        launch = Launch(argv=[self._path], env=self._environ, cwd=cwd)
        run(launch, raw, patience=patience, most=self.limits.hook_max_output, keep=keep, slow=report_slow)
        return kept[0]

    # -- what all rules know -----------------------------------------------------------------------------------------------------

    @cached_property
    def opening(self) -> tuple[HookRun | None, str, Finding | None]:
        """A usual create: the run, and when there is no response to it, the rule that says why not and what it says."""
        usual = Request(EVENT_BOX_CREATE, self.box)
        try:
            with self._create_box(usual) as first:
                pass
            if first.wrong or first.shape == (0, False):  # it may have waited for a newline, or have read nothing without one
                self.newline = True
                with self._create_box(usual) as again:
                    pass
                if not again.wrong and (first.wrong or again.shape != first.shape):
                    return again, "", None
                self.newline = False
        except SpawnFailed as error:
            return None, "start", fail(error.message, hint=self._explain_start(error))
        return first, first.wrong, self.report_problem(first) if first.wrong else None

    @property
    def first(self) -> HookRun:
        """The usual create, with its response; a rule that needs one has nothing to judge when there is none."""
        run, rule, problem = self.opening
        if problem is not None:
            raise Unopened("it does not answer", problem, see=f"`{rule}`")
        assert run is not None
        return run

    def iter_creates(self) -> Iterator[HookRun]:
        """All creates that have a response."""
        _ = self.first
        yield from (run for run in self.runs if run.request.event == EVENT_BOX_CREATE and not run.wrong)

    def iter_destroys(self) -> Iterator[HookRun]:
        yield from (run for run in self.runs if run.request.event == EVENT_BOX_DESTROY)

    def report_problem(self, run: HookRun, what: str = "", hint: str = "") -> Finding:
        """A finding for a run without a response; `what` was different about it."""
        why = f"{what}, {run.why}" if what else run.why
        return fail(why, hint=hint or _choose_hint(run), frames=run.quote_frames(), stderr=self.quote_stderr(run))

    def quote_stderr(self, run: HookRun) -> str:
        """The end of its stderr, with stars for what it has answered with and for what looks like a secret."""
        known = (secret for one in self.runs for secret in find_secrets(one))
        return secret_patterns.mask_text(hide_secrets(run.ran.stderr, known))[-_TAIL:].strip()

    def _explain_start(self, error: SpawnFailed) -> str:
        if "/" not in self._path and os.path.exists(self._path):
            return f"without a slash it is looked up in the PATH: name it ./{self._path}"
        return error.hint or "start it by hand"


@contextmanager
def examine(path: str, environ: Mapping[str, str], patience: Patience, limits: Limits, tell: Tell) -> Iterator[HookExamination]:
    """What the rules are given. Afterwards each state that the hook has answered with has been given back, come what may."""
    with tempfile.TemporaryDirectory(prefix="serai-check-", ignore_cleanup_errors=True) as scratch:
        examination = HookExamination(path, environ, patience, limits, scratch, tell)
        try:
            yield examination
        finally:
            examination.return_states()


# -- reading ----------------------------------------------------------------------------------------------------------------------


def _read_run(run: HookRun, patience: Patience, limits: Limits) -> HookRun:
    """The same with its response, or with why there is none."""
    ran = run.ran
    if ran.how == "late":
        return replace(run, wrong="answer", why=f"it did not end within {patience.run:g} s", response=_read_late(ran.stdout))
    if ran.how == "too much" or len(ran.stdout) > limits.hook_max_output:
        return replace(run, wrong="answer", why=f"it printed more than {limits.hook_max_output} bytes")
    if not ran.status.ok:
        return replace(run, wrong="answer", why=f"it ended with {ran.status}" if ran.status.code else f"it was {ran.status}")
    try:
        return replace(run, response=read_response(ran.stdout))
    except BadResponse as error:
        return replace(run, wrong="members" if _is_object(ran.stdout) else "stdout", why=str(error))


def _read_late(stdout: bytes) -> Response:
    """What it had answered when its time was over: boxes give that state back, too."""
    try:
        return read_response(stdout)
    except BadResponse:
        return Response()


def _is_object(stdout: bytes) -> bool:
    try:
        return isinstance(loads(stdout, alone=True), tuple)
    except ValueError:
        return False


def _salvage_state(stdout: bytes) -> str:
    """The state in what is no response."""
    start = stdout.find(b"{")
    try:
        value = loads(stdout[max(start, 0) :], alone=False)
    except ValueError:
        return ""
    found = [inner for name, inner in value if _STATE.fullmatch(name)] if isinstance(value, tuple) else []
    return next((inner for inner in reversed(found) if isinstance(inner, str)), "")


def _choose_hint(run: HookRun) -> str:
    if run.wrong == "stdout":
        return "stdout is for one JSON object and nothing else: send what the programs inside print to stderr (>&2)"
    if run.wrong == "members":
        return 'files is an array of objects, state, path, content and mode are strings ("0600"), uid and gid are integers'
    if run.ran.how == "late":
        return "read the request to the end of stdin, answer and end; what may take long needs a time limit of its own"
    if _NO_SERAI in run.ran.stderr:
        return "the python3 in the PATH has no serai: put one that has first, or name it in the #! line"
    by_hand = json.dumps({"event": run.request.event, "box": {"box_id": "sample"}}, separators=(",", ":"))
    where = "its stderr says why" if run.ran.stderr.strip() else "it says nothing on stderr either"
    return f"{where}; by hand: echo '{by_hand}' | its path. It gets no arguments"


# -- secrets ----------------------------------------------------------------------------------------------------------------------


def find_secrets(run: HookRun) -> Iterator[str]:
    """The lines of its state and of its files that may be secret: those that are not short, and that it was not given."""
    texts = [run.state, *(text for file in run.response.files for text in (file.content_base64, _decode_file(file)))]
    about = run.request.box
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if len(line) >= _SECRET and not any(line in known for known in (about.box_id, about.description, about.image)):
            yield line


def hide_secrets(text: str, known: Iterable[str]) -> str:
    """The text with stars where one of those stands."""
    for secret in sorted(set(known), key=len, reverse=True):
        text = text.replace(secret, _mask(secret))
    return text


def _decode_file(file: File) -> str:
    try:
        return file.bytes().decode()
    except ValueError:
        return ""


def _mask(text: str) -> str:
    return "*" * len(text)
