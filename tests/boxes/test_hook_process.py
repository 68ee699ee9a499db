"""A hook as a process: its start, its streams, its limits and its end (spec hooks 1.1, 1.10 to 1.12)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from fcntl import F_SETLEASE
from pathlib import Path

import pytest

from serai.boxes import hook_process
from serai.boxes.hooks import Hook
from serai.dialects.hookproto.messages import Box
from serai.errors import ExitStatus
from serai.wire import process_tree
from tests.support.boxes.hook_scripts import BOX, PATIENT, Hooks, hooks
from tests.support.processes import lives

pytestmark = pytest.mark.loops

__all__ = ["hooks"]


async def wait_for(path: Path) -> str:
    """The text of a file, as soon as it is whole: its writer renames it into place."""
    while not path.exists():
        await asyncio.sleep(0.005)
    return path.read_text()


# -- failures ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req(
    "hooks.rule.1.10-failure-text", "hooks.rule.1.1-exit-status", "hooks.decode.04", "hooks.decode.05", "hooks.naive.04"
)
@pytest.mark.parametrize(
    ("body", "message", "status"),
    [
        ("echo ' why it failed ' >&2; exit 3", "exit status 3: why it failed", ExitStatus(code=3)),
        ("exit 3", "exit status 3", ExitStatus(code=3)),
        ("printf '{}'; echo >&2; exit 255", "exit status 255", ExitStatus(code=255)),
        ("kill -KILL $$", "signal: killed", ExitStatus(signal=signal.SIGKILL)),
        ("echo bye >&2; kill -TERM $$", "signal: terminated: bye", ExitStatus(signal=signal.SIGTERM)),
        ("echo", "decoding response: unexpected end of JSON input", ExitStatus(code=0)),
        ("echo '{}{}'", "decoding response: more than one JSON value, or text after it", ExitStatus(code=0)),
        ("echo '[]'; echo aside >&2", "decoding response: the response must be an object, not an array", ExitStatus(code=0)),
    ],
)
async def test_a_failure_says_its_cause_and_then_what_was_on_stderr(
    hooks: Hooks, body: str, message: str, status: ExitStatus
) -> None:
    path = hooks.sh("hook", body)
    error = (await hooks.create(path)).error
    assert error is not None
    assert str(error) == f"hook {path}: {message}"
    assert error.exit == status


@pytest.mark.req("hooks.decode.01", "hooks.decode.03", "hooks.naive.04", "hooks.rule.1.1-exit-status")
@pytest.mark.parametrize("body", [":", "printf '{}'", "printf 'null \\n\\n'", "echo aside >&2"])
async def test_who_exits_0_with_nothing_to_say_succeeds(hooks: Hooks, body: str) -> None:
    outcome = await hooks.create(hooks.sh("hook", body))
    assert (outcome.error, outcome.files, outcome.states) == (None, [], {})


@pytest.mark.req("hooks.rule.1.10-failure-text")
async def test_what_cannot_be_started_is_a_failure_of_that_hook(hooks: Hooks) -> None:
    missing = str(hooks.folder / "missing")
    plain = hooks.sh("plain", "")
    os.chmod(plain, 0o644)
    nowhere = hooks.sh("nowhere", "")
    Path(nowhere).write_text("#!/nowhere/sh\n")
    for path, why in ((missing, "no such file or directory"), (plain, "permission denied"), (nowhere, "no such file or directory")):
        assert str((await hooks.create(path)).error) == f"hook {path}: fork/exec {path}: {why}"
    unknown = (await hooks.create("no-such-hook")).error
    assert str(unknown) == 'hook no-such-hook: exec: "no-such-hook": executable file not found in $PATH'
    assert (
        str(await hooks.runner(missing).destroy(BOX, {missing: "s"}))
        == f"hook {missing}: fork/exec {missing}: no such file or directory"
    )
    assert hooks.left() == []


@pytest.mark.req("hooks.rule.1.10-error-cap", "hooks.rule.1.12-stderr-cap")
async def test_of_a_long_stderr_the_end_is_kept_and_less_is_shown(hooks: Hooks) -> None:
    path = hooks.python("hook", "sys.stderr.write('é' * 200_000 + 'the end'); sys.exit(1)")
    error = (await hooks.create(path)).error
    assert error is not None
    start = "exit status 1: "
    assert error.message.startswith(start)
    assert error.message.endswith("é" * 100 + "the end")
    assert 4090 < len(error.message.removeprefix(start).encode()) <= 4096
    assert 65_530 < len(error.stderr.encode()) <= 65_536 + 3


# -- streams -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.naive.05")
@pytest.mark.parametrize("start", ["", "exec 0<&-;"])
async def test_a_request_that_nobody_reads_is_no_failure(hooks: Hooks, start: str) -> None:
    path = hooks.sh("hook", f"""{start} printf '{{"state":"s"}}'""")
    runner = hooks.runner(path)
    outcome = await runner.create(Box(box_id="a", description="x" * 10_000_000), str(hooks.answers / "answer"), hooks.on_state)
    assert (outcome.error, outcome.states) == (None, {path: "s"})


@pytest.mark.req("hooks.naive.06", "hooks.rule.1.1-one-request")
async def test_who_writes_much_before_it_reads_much_does_not_lock_up(hooks: Hooks) -> None:
    path = hooks.python(
        "hook",
        """
sys.stdout.write('{"pad":"' + 'x' * 1_000_000); sys.stdout.flush(); sys.stderr.write('y' * 1_000_000)
print('","state":"%d"}' % len(json.loads(sys.stdin.read())['box']['description']))
""",
    )
    runner = hooks.runner(path)
    outcome = await runner.create(Box(description="x" * 10_000_000), str(hooks.answers / "answer"), hooks.on_state)
    assert (outcome.error, outcome.states) == (None, {path: "10000000"})


@pytest.mark.req("hooks.rule.1.12-eof-wait")
async def test_a_grandchild_may_finish_the_answer(hooks: Hooks) -> None:
    """It goes on only once the hook itself has ended."""
    path = hooks.python(
        "hook",
        """
hook = os.getpid()
if os.fork(): os._exit(0)
sys.stdout.write('{"state":"by the '); sys.stdout.flush()
while os.getppid() == hook: os.sched_yield()
os.setsid()
answer = 'grandchild"}'
for char in answer: os.write(1, char.encode())
""",
    )
    outcome = await hooks.create(path)
    assert (outcome.error, outcome.states) == (None, {path: "by the grandchild"})


@pytest.mark.req("hooks.naive.07", "hooks.naive.08", "hooks.rule.1.12-eof-wait")
@pytest.mark.parametrize("start", ["", "setsid"])
async def test_a_grandchild_that_keeps_stdout_open_is_not_waited_for_and_killed(hooks: Hooks, start: str) -> None:
    path = hooks.sh(
        "hook",
        f"""printf '{{"state":"s"}}'; {start} sh -c 'echo $$ > "{hooks.folder}/pid"; exec sleep 1000' &
        while [ ! -s "$HERE/pid" ]; do sleep 0.01; done""",
    )
    outcome = await hooks.create(path, limits=PATIENT.but(hook_eof=0.2))
    assert (outcome.error, outcome.states) == (None, {path: "s"})
    assert not lives(int(hooks.read("pid")))


@pytest.mark.req("hooks.naive.07")
async def test_a_destroy_hook_s_grandchild_is_not_waited_for_either(hooks: Hooks) -> None:
    path = hooks.sh("hook", """sleep 1000 & echo $! > "$HERE/pid"; printf '{}'""")
    assert await hooks.runner(path, limits=PATIENT.but(hook_eof=0.2)).destroy(BOX, {path: "s"}) is None
    assert not lives(int(hooks.read("pid")))


async def test_a_grandchild_that_let_go_of_stdout_is_not_waited_for_at_all(hooks: Hooks) -> None:
    path = hooks.sh("hook", """sleep 1000 > /dev/null & echo $! > "$HERE/pid"; printf '{"state":"s"}'""")
    outcome = await asyncio.wait_for(hooks.create(path, limits=PATIENT.but(hook_eof=3600.0)), 30)
    assert outcome.states == {path: "s"}
    assert not lives(int(hooks.read("pid")))


async def test_where_files_have_no_leases_the_end_of_stderr_tells(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, command: int, argument: int) -> int:
        if command == F_SETLEASE:
            raise OSError(22, "Invalid argument")
        return 0

    monkeypatch.setattr(hook_process, "fcntl", refused)
    path = hooks.python(
        "hook",
        """
hook = os.getpid()
if os.fork(): os._exit(0)
while os.getppid() == hook: os.sched_yield()
answer("late")
""",
    )
    assert (await hooks.create(path)).states == {path: '"late"'}
    holder = hooks.sh("holder", """printf '{"state":"s"}'; sleep 1000 &""")
    assert (await hooks.create(holder, limits=PATIENT.but(hook_eof=0.2))).states == {holder: "s"}


def test_who_opens_an_answer_just_while_we_look_at_it_does_not_end_us(tmp_path: Path) -> None:
    """The kernel tells the holder of a lease by a signal, which by default is a deadly one."""
    program = """
import os, sys
from fcntl import F_RDLCK, F_SETLEASE, fcntl
from serai.boxes.hook_process import AnswerFile
answer = AnswerFile.create(sys.argv[1])
answer.close_writer()
fcntl(answer._reader, F_SETLEASE, F_RDLCK)
try: os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
except BlockingIOError: print("told", end="")
"""
    ran = subprocess.run([sys.executable, "-c", program, tmp_path / "answer"], capture_output=True, check=False, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"told", b"")


async def test_a_hook_may_remove_its_own_answer(hooks: Hooks) -> None:
    path = hooks.sh("hook", """printf '{"state":"s"}'; rm "$HERE/answers/answer-0" """)
    outcome = await hooks.create(path)
    assert (outcome.error, outcome.states) == (None, {path: "s"})


async def test_only_we_can_read_an_answer_whatever_the_umask(hooks: Hooks) -> None:
    path = hooks.python("hook", "answer(oct(os.fstat(1).st_mode & 0o7777))")
    before = os.umask(0)
    try:
        assert (await hooks.create(path)).states == {path: '"0o600"'}
    finally:
        os.umask(before)


# -- what it gets ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.naive.09", "hooks.rule.1.11-descriptors", "hooks.rule.1.1-one-request")
async def test_a_hook_gets_no_arguments_three_descriptors_a_session_and_one_request(hooks: Hooks) -> None:
    path = hooks.python(
        "my hook;$(touch spoiled)",
        """
request = sys.stdin.read()
with open("/proc/self/stat") as file: session = int(file.read().rpartition(")")[2].split()[3])
descriptors = [number for number in range(1000) if os.path.exists(f"/proc/self/fd/{number}")]
answer([sys.argv[1:], descriptors, session == os.getpid() == os.getpgid(0), request, os.getcwd()])
""",
    )
    opened = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(opened, False)
    try:
        outcome = await hooks.create(path)
    finally:
        os.close(opened)
    assert outcome.error is None
    request = '{"event":"box.create","box":{"box_id":"a","description":"mine"}}'
    assert json.loads(outcome.states[path]) == [[], [0, 1, 2], True, request, os.getcwd()]


@pytest.mark.req("hooks.rule.1.11-environment")
async def test_a_hook_gets_our_environment_and_its_own_additions_or_only_these(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "ours")
    path = hooks.python("hook", f"answer({{name: value for name, value in os.environ.items() if name != {process_tree.TAG!r}}})")

    async def seen(hook: Hook, environ: dict[str, str] | None = None) -> dict[str, str]:
        found: dict[str, str] = json.loads((await hooks.create(hook, environ=environ)).states[path])
        found.pop("LC_CTYPE", None)  # Python's own
        return found

    expected = {name: value for name, value in os.environ.items() if name not in ("LC_CTYPE", process_tree.TAG)}
    assert await seen(Hook(path)) == expected
    assert (await seen(Hook(path, env={"VAULT_TOKEN": "its own", "MORE": "x"})))["VAULT_TOKEN"] == "its own"
    assert await seen(Hook(path, env={"MORE": "x"}, env_clear=True)) == {"MORE": "x"}
    assert await seen(Hook(path, env={"MORE": "x"}), {"A": "b"}) == {"A": "b", "MORE": "x"}


@pytest.mark.req("hooks.rule.1.11-lookup")
async def test_a_name_is_looked_up_in_the_path_and_not_where_we_are(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks.sh("my-hook", """printf '{"state":"found"}'""")
    monkeypatch.chdir(hooks.folder)
    for path in ("", ":/bin", "/bin"):
        assert "not found in $PATH" in str((await hooks.create("my-hook", environ={"PATH": path})).error)
    assert (await hooks.create("my-hook", environ={"PATH": f"/bin:{hooks.folder}"})).states == {"my-hook": "found"}
    assert (await hooks.create("./my-hook", environ={"PATH": ""})).states == {"./my-hook": "found"}


# -- cancellation ------------------------------------------------------------------------------------------------------------------


async def test_a_cancelled_create_kills_the_hook_and_leaves_its_answer_to_be_recovered(hooks: Hooks) -> None:
    path = hooks.python(
        "hook",
        """
answer("minted")
if not os.fork():
    os.setsid()
    with open(HERE + "/pids.new", "w") as file: file.write(f"{os.getppid()} {os.getpid()}")
    os.rename(HERE + "/pids.new", HERE + "/pids")
import signal
while True: signal.pause()
""",
    )
    runner = hooks.runner(path)
    creating = asyncio.create_task(runner.create(BOX, str(hooks.answers / "answer"), hooks.on_state))
    pids = (await wait_for(hooks.folder / "pids")).split()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert [pid for pid in pids if lives(int(pid))] == []
    assert hooks.kept == []
    assert await runner.recover(str(hooks.answers / "answer"), ["key"]) == {"key": '"minted"'}


# -- a manager that is killed ------------------------------------------------------------------------------------------------------

MANAGER = """
import asyncio, sys
from serai.boxes.hooks import Hook, HookRunner
from serai.dialects.hookproto.messages import Box
from serai.limits import Limits
from serai.wire.plain_process import PlainSpawner

async def on_state(key, state):
    print("state", state, flush=True)
    if state == sys.argv[2]:
        await asyncio.Event().wait()

async def main():
    async with PlainSpawner() as spawner:
        runner = HookRunner(map(Hook, sys.argv[3:]), spawner=spawner, limits=Limits())
        await runner.create(Box(box_id="a"), sys.argv[1], on_state)

asyncio.run(main())
"""


async def kill_manager(hooks: Hooks, wait_at: str, *paths: str) -> None:
    """Have a manager of its own create a box, and kill it while it keeps that state or, without one, once a hook told its pid."""
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MANAGER, str(hooks.answers / "answer"), wait_at, *paths, stdout=asyncio.subprocess.PIPE
    )
    assert manager.stdout is not None
    try:
        while (line := (await manager.stdout.readline()).decode().strip()) != f"state {wait_at}" and line:
            if not wait_at:
                await wait_for(hooks.folder / "pid")
                break
    finally:
        manager.kill()
        await manager.wait()


async def test_after_a_manager_was_killed_before_it_kept_a_state_the_answer_is_there(hooks: Hooks) -> None:
    paths = [hooks.sh(name, f"""printf '{{"state":"{name}"}}'""") for name in ("one", "two", "three")]
    await kill_manager(hooks, "two", *paths)
    assert hooks.left() == ["answer-1"]
    assert await hooks.runner(*paths).recover(str(hooks.answers / "answer"), paths) == {paths[1]: "two"}


async def test_after_a_manager_was_killed_while_a_hook_ran_its_answer_is_there_and_its_tree_is_not(hooks: Hooks) -> None:
    first = hooks.sh("first", """printf '{"state":"one"}'""")
    second = hooks.sh(
        "second", """printf '{"state":"two"}'; echo $$ > "$HERE/pid.new"; mv "$HERE/pid.new" "$HERE/pid"; exec sleep 1000"""
    )
    await kill_manager(hooks, "", first, second)
    assert await hooks.runner().recover(str(hooks.answers / "answer"), [first, second]) == {second: "two"}
    pid = int(hooks.read("pid"))
    while lives(pid):  # the watchdog of the dead manager ends it
        await asyncio.sleep(0.01)
