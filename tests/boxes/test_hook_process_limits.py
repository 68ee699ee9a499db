"""The limits of a hook: its time, the way it is ended, what it may print (spec hooks 1.12)."""

from __future__ import annotations

import json
import signal

import pytest

from serai.boxes import hook_process
from serai.errors import ExitStatus, LimitHit
from serai.limits import KIB, MIB, Limits
from serai.wire.process import Child
from tests.support.boxes.hook_scripts import BOX, PATIENT, Hooks, hooks
from tests.support.processes import lives

__all__ = ["hooks"]


@pytest.fixture
def times(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long each hook was watched: at first for its time, then for what it has to end when asked.

    Its time begins when there is a file `there`, or a busy machine could let it pass before the hook has begun.
    """
    seen: list[float] = []
    there = hooks.folder / "there"

    class Watch(hook_process._Watch):
        def __init__(self, child: Child, answer: hook_process.AnswerFile, seconds: float, most: int) -> None:
            seen.append(seconds)
            super().__init__(child, answer, seconds, most)
            self._seconds = seconds
            self._latest = self._loop.time() + PATIENT.hook_timeout

        def _look(self) -> None:
            now = self._loop.time()
            if now < self._latest and not there.exists():
                self._end = now + self._seconds
            super()._look()

    monkeypatch.setattr(hook_process, "_Watch", Watch)
    return seen


@pytest.mark.req("hooks.rule.1.12-timeout", "hooks.rule.1.12-grace")
async def test_who_takes_too_long_is_asked_to_end_and_has_failed(hooks: Hooks, times: list[float]) -> None:
    path = hooks.sh(
        "hook", """trap 'echo asked > "$HERE/asked"; echo waiting >&2; exit 0' TERM; : > "$HERE/there"; while :; do :; done"""
    )
    limits = PATIENT.but(hook_timeout=1.2)
    error = (await hooks.create(path, limits=limits)).error
    assert error is not None
    assert str(error) == f"hook {path}: timed out after 1.2s: waiting"
    assert error.limit == LimitHit("hook_timeout", 1.2)
    assert hooks.read("asked") == "asked\n"
    (hooks.folder / "asked").unlink()
    (hooks.folder / "there").unlink()
    assert (
        str(await hooks.runner(path, limits=limits).destroy(BOX, {path: "state"})) == f"hook {path}: timed out after 1.2s: waiting"
    )
    assert hooks.read("asked") == "asked\n"
    assert times == [1.2, limits.hook_grace] * 2


@pytest.mark.req("hooks.rule.1.12-timeout")
async def test_a_hook_has_the_same_time_when_a_box_ends_as_when_it_is_made(hooks: Hooks, times: list[float]) -> None:
    """That of the limits, and of all others it has none."""
    path = hooks.sh("hook", """printf '{"state":"s"}'""")
    for limits, time in ((Limits(), 60.0), (Limits().but(hook_timeout=7.0), 7.0)):
        assert (await hooks.create(path, limits=limits)).error is None
        assert await hooks.runner(path, limits=limits).destroy(BOX, {path: "s"}) is None
        assert times == [time, time]
        times.clear()


@pytest.mark.req("hooks.rule.1.12-grace", "hooks.naive.08")
async def test_all_of_its_group_are_asked_to_end(hooks: Hooks, times: list[float]) -> None:
    """The hook itself does not listen and waits for what it started, which only ends when it is asked."""
    path = hooks.sh(
        "hook",
        """
        trap : TERM
        sh -c 'trap "echo asked > \\"$0/asked\\"; exit 0" TERM
            : > "$0/there"
            while :; do sleep 0.01; done' "$HERE" > /dev/null 2>&1 &
        while kill -0 $!; do wait $!; done 2> /dev/null
        echo waited > "$HERE/waited"
        """,
    )
    error = (await hooks.create(path, limits=PATIENT.but(hook_timeout=1.2))).error
    assert error is not None
    assert error.message == "timed out after 1.2s"
    assert (hooks.read("asked"), hooks.read("waited")) == ("asked\n", "waited\n")
    assert times == [1.2, 15.0]


@pytest.mark.req("hooks.rule.1.12-grace", "hooks.naive.08", "hooks.rule.1.12-timeout")
async def test_who_does_not_end_when_asked_is_killed_with_all_it_started(hooks: Hooks, times: list[float]) -> None:
    """One of its children is in its group, the other in a session of its own."""
    path = hooks.python(
        "hook",
        """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def child(own):
    pid = os.fork()
    if pid: return pid
    if own: os.setsid()
    while True: signal.pause()
pids = [os.getpid(), child(False), child(True)]
with open(HERE + "/pids.new", "w") as file: file.write(json.dumps(pids))
os.rename(HERE + "/pids.new", HERE + "/pids")
open(HERE + "/there", "w").close()
while True: signal.pause()
""",
    )
    error = (await hooks.create(path, limits=PATIENT.but(hook_timeout=2.0, hook_grace=0.1))).error
    assert error is not None
    assert error.message == "timed out after 2s"
    assert error.exit == ExitStatus(signal=signal.SIGKILL)
    assert [pid for pid in json.loads(hooks.read("pids")) if lives(pid)] == []
    assert times == [2.0, 0.1]


@pytest.mark.req(
    "hooks.rule.1.12-timeout",
    "hooks.rule.1.12-grace",
    "hooks.rule.1.12-eof-wait",
    "hooks.rule.1.12-stdout-cap",
    "hooks.rule.1.12-stderr-cap",
    "hooks.rule.1.12-inject-bytes",
    "hooks.rule.1.12-inject-files",
    "hooks.rule.1.12-state-size",
)
def test_the_limits_are_those_of_the_protocol() -> None:
    limits = Limits()
    assert (limits.hook_timeout, limits.hook_grace, limits.hook_eof) == (60, 5, 2)
    assert (limits.hook_max_output, limits.stderr_tail, limits.hook_state) == (64 * MIB, 64 * KIB, 1 * MIB)
    assert (limits.max_inject_bytes, limits.max_inject_files) == (48 * MIB, 4096)


@pytest.mark.usefixtures("times")
async def test_what_a_hook_answered_before_its_time_was_over_is_kept_for_the_roll_back(hooks: Hooks) -> None:
    """It had no chance to undo it: we ended it."""
    path = hooks.sh("hook", """printf '{"state":"minted","files":[{"path":"/f"}]}'; : > "$HERE/there"; exec sleep 1000""")
    outcome = await hooks.create(path, limits=PATIENT.but(hook_timeout=1.2))
    assert outcome.error is not None
    assert outcome.states == {path: "minted"}
    assert hooks.kept == [(path, "minted")]
    assert outcome.files == []


@pytest.mark.req("hooks.rule.1.12-stdout-cap")
@pytest.mark.parametrize("body", ["yes", "head -c 2000000 /dev/zero", "(setsid yes &)"])
async def test_who_prints_too_much_is_killed_and_has_failed(hooks: Hooks, body: str) -> None:
    path = hooks.sh("hook", body)
    error = (await hooks.create(path, limits=PATIENT.but(hook_max_output=1_000_000))).error
    assert error is not None
    assert str(error) == f"hook {path}: printed more than 1000000 bytes"
    assert error.limit == LimitHit("hook_max_output", 1_000_000)
    assert hooks.left() == []
