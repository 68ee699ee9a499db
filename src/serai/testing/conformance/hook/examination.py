"""What the rules of hooks are given: runs of the hook, one after the other, each state given back to it."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from serai.dialects.hookproto.host_side import BadResponse, read_response, request_bytes
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response, loads
from serai.dialects.hookproto.peer_side import response_bytes
from serai.errors import SpawnFailed
from serai.limits import Limits
from serai.record import secret_patterns
from serai.testing.conformance.hook import process
from serai.testing.conformance.hook.process import Patience, Ran
from serai.testing.conformance.report import Finding, Unopened, failed
from serai.testing.zot_host.process import show
from serai.wire.process import Launch

__all__ = ["OPENING", "Examination", "Run", "examine", "hidden", "secrets_of"]

# The rules that say why a hook gives no answer at all, in the order in which it comes to them.
OPENING = ("start", "answer", "stdout", "members")

_TAIL = 600  # of stderr, in a finding
_SECRET = 8  # characters: what is shorter is found everywhere
_NO_SERAI = "No module named 'serai'"
_STATE = re.compile("state", re.IGNORECASE)

Form = Callable[[Request], bytes]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the hook, and what became of it. `wrong` is empty when there is a response, else it is the rule of the opening."""

    request: Request
    raw: bytes = field(repr=False)
    ran: Ran = field(repr=False)
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
        return self.response.state or (_salvaged(self.ran.stdout) if self.wrong in ("stdout", "members") else "")

    def frames(self) -> Iterator[str]:
        """The request and the answer, with stars for what may be secret."""
        request = self.request
        masked = request_bytes(Request(request.event, request.box, _stars(request.state))) if request.state else self.raw
        yield show("host", masked)
        if self.wrong in ("stdout", "members"):
            yield f"← {len(self.ran.stdout)} bytes that are no response"
        elif not self.wrong:
            files = [
                File(file.path, _stars(file.content), _stars(file.content_base64), file.mode, file.uid, file.gid)
                for file in self.response.files
            ]
            yield show("guest", response_bytes(Response(files, _stars(self.response.state))))


class Examination:
    """One hook, run as often as its rules need it. Never two runs at once, so that each has nobody but itself to blame."""

    def __init__(self, path: str, environ: Mapping[str, str], patience: Patience, limits: Limits, scratch: str, tell: Tell) -> None:
        self.patience, self.limits, self.scratch = patience, limits, scratch
        self.box = Box(box_id=f"serai-check-{secrets.token_hex(3)}", description="a box that is made up for a check")
        self.runs: list[Run] = []
        self.newline = False  # it answers only when the request ends in one
        self._path, self._environ, self._tell = path, environ, tell
        self._hangs = False  # at box.destroy
        self._owed: list[tuple[Box, str]] = []  # states that have not been given back

    # -- runs --------------------------------------------------------------------------------------------------------------------

    def created(
        self, box: Box | None = None, *, event: str = EVENT_BOX_CREATE, form: Form = request_bytes, cwd: str | None = None
    ) -> AbstractContextManager[Run]:
        """One more box as far as the hook knows, if it answers at all. Afterwards that box is destroyed."""
        _ = self.first
        return self._created(Request(event, box or self.box), form, cwd)

    @contextmanager
    def _created(self, request: Request, form: Form = request_bytes, cwd: str | None = None) -> Iterator[Run]:
        try:
            yield self._run(request, form(request) + b"\n" * self.newline, cwd)
        finally:
            self.settle(request.box)

    def destroyed(self, box: Box, state: str, *, rolled_back: bool = False) -> Run:
        """Give a state back. After a usual life only the box's id comes with it, else its description too (spec hooks 1.3)."""
        request = Request(EVENT_BOX_DESTROY, box if rolled_back else Box(box_id=box.box_id), state)
        return self._run(request, request_bytes(request) + b"\n" * self.newline, None)

    def rolled_back(self) -> Run | None:
        """Destroy one more box as if it could not be made after all; None when there is nothing to destroy."""
        with self.created() as made:
            if not made.state:
                return None
            run = self.destroyed(self.box, made.state, rolled_back=True)
            if not run.wrong:
                self._owed.remove((self.box, made.state))
            return run

    def settle(self, box: Box | None = None) -> None:
        """Give back the states of a box, or of all."""
        owed = [entry for entry in self._owed if box is None or entry[0] is box]
        for entry in owed:
            self._owed.remove(entry)
            self.destroyed(*entry)

    def _run(self, request: Request, raw: bytes, cwd: str | None) -> Run:
        kept: list[Run] = []
        destroy = request.event == EVENT_BOX_DESTROY
        patience = self.patience.shorter() if destroy and self._hangs else self.patience

        def keep(ran: Ran) -> None:
            kept.append(run := _read(Run(request=request, raw=raw, ran=ran), patience, self.limits))
            self.runs.append(run)
            if destroy:
                self._hangs = self._hangs or ran.how == "late"
            elif run.state:
                self._owed.append((request.box, run.state))

        def slow() -> None:
            self._tell(f"waiting for it to end at {request.event}, at most {patience.run:g} s")

        launch = Launch(argv=[self._path], env=self._environ, cwd=cwd)
        process.run(launch, raw, patience=patience, most=self.limits.hook_max_output, keep=keep, slow=slow)
        return kept[0]

    # -- what all rules know -----------------------------------------------------------------------------------------------------

    @cached_property
    def opening(self) -> tuple[Run | None, str, Finding | None]:
        """A usual create: the run, and when there is no response to it, the rule that says why not and what it says."""
        usual = Request(EVENT_BOX_CREATE, self.box)
        try:
            with self._created(usual) as first:
                pass
            if first.wrong or first.shape == (0, False):  # it may have waited for a newline, or have read nothing without one
                self.newline = True
                with self._created(usual) as again:
                    pass
                if not again.wrong and (first.wrong or again.shape != first.shape):
                    return again, "", None
                self.newline = False
        except SpawnFailed as error:
            return None, "start", failed(error.message, hint=self._start_hint(error))
        return first, first.wrong, self.problem(first) if first.wrong else None

    @property
    def first(self) -> Run:
        """The usual create, with its response; a rule that needs one has nothing to judge when there is none."""
        run, rule, problem = self.opening
        if problem is not None:
            raise Unopened("it does not answer", problem, see=f"`{rule}`")
        assert run is not None
        return run

    def creates(self) -> Iterator[Run]:
        """All creates that have a response."""
        _ = self.first
        yield from (run for run in self.runs if run.request.event == EVENT_BOX_CREATE and not run.wrong)

    def destroys(self) -> Iterator[Run]:
        yield from (run for run in self.runs if run.request.event == EVENT_BOX_DESTROY)

    def problem(self, run: Run, what: str = "", hint: str = "") -> Finding:
        """A finding for a run without a response; `what` was different about it."""
        why = f"{what}, {run.why}" if what else run.why
        return failed(why, hint=hint or _hint(run), frames=run.frames(), stderr=self.said(run))

    def said(self, run: Run) -> str:
        """The end of its stderr, with stars for what it has answered with and for what looks like a secret."""
        known = (secret for one in self.runs for secret in secrets_of(one))
        return secret_patterns.mask_text(hidden(run.ran.stderr, known))[-_TAIL:].strip()

    def _start_hint(self, error: SpawnFailed) -> str:
        if "/" not in self._path and os.path.exists(self._path):
            return f"without a slash it is looked up in the PATH: name it ./{self._path}"
        return error.hint or "start it by hand"


@contextmanager
def examine(path: str, environ: Mapping[str, str], patience: Patience, limits: Limits, tell: Tell) -> Iterator[Examination]:
    """What the rules are given. Afterwards each state that the hook has answered with has been given back, come what may."""
    with tempfile.TemporaryDirectory(prefix="serai-check-", ignore_cleanup_errors=True) as scratch:
        examination = Examination(path, environ, patience, limits, scratch, tell)
        try:
            yield examination
        finally:
            examination.settle()


# -- reading ----------------------------------------------------------------------------------------------------------------------


def _read(run: Run, patience: Patience, limits: Limits) -> Run:
    """The same with its response, or with why there is none."""
    ran = run.ran
    if ran.how == "late":
        return replace(run, wrong="answer", why=f"it did not end within {patience.run:g} s", response=_late(ran.stdout))
    if ran.how == "too much" or len(ran.stdout) > limits.hook_max_output:
        return replace(run, wrong="answer", why=f"it printed more than {limits.hook_max_output} bytes")
    if not ran.status.ok:
        return replace(run, wrong="answer", why=f"it ended with {ran.status}" if ran.status.code else f"it was {ran.status}")
    try:
        return replace(run, response=read_response(ran.stdout))
    except BadResponse as error:
        return replace(run, wrong="members" if _is_object(ran.stdout) else "stdout", why=str(error))


def _late(stdout: bytes) -> Response:
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


def _salvaged(stdout: bytes) -> str:
    """The state in what is no response."""
    start = stdout.find(b"{")
    try:
        value = loads(stdout[max(start, 0) :], alone=False)
    except ValueError:
        return ""
    found = [inner for name, inner in value if _STATE.fullmatch(name)] if isinstance(value, tuple) else []
    return next((inner for inner in reversed(found) if isinstance(inner, str)), "")


def _hint(run: Run) -> str:
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


def secrets_of(run: Run) -> Iterator[str]:
    """The lines of its state and of its files that may be secret: those that are not short, and that it was not given."""
    texts = [run.state, *(text for file in run.response.files for text in (file.content_base64, _text(file)))]
    about = run.request.box
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if len(line) >= _SECRET and not any(line in known for known in (about.box_id, about.description, about.image)):
            yield line


def hidden(text: str, known: Iterable[str]) -> str:
    """The text with stars where one of those stands."""
    for secret in sorted(set(known), key=len, reverse=True):
        text = text.replace(secret, _stars(secret))
    return text


def _text(file: File) -> str:
    try:
        return file.bytes().decode()
    except ValueError:
        return ""


def _stars(text: str) -> str:
    return "*" * len(text)
