"""How a run is ended: Ctrl-C once and twice, other signals, a reader that leaves. Nothing is left running, ever."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.run_process import Run, read_result, read_session, run, write_prompt
from tests.support.cli.shell import Shell
from tests.support.host.zot_guests import make

SIGNALS = [
    (signal.SIGINT, 130, "interrupted (Ctrl-C)"),
    (signal.SIGTERM, 143, "terminated (SIGTERM)"),
    (signal.SIGHUP, 129, "its terminal is gone (SIGHUP)"),
]
PARROT = ("--model", "parrot")
SERAI = (sys.executable, "-m", "serai")
# Says when it is at work, never answers, and leaves a word when it is told goodbye.
DEAF = """
hello(tool("work"), command("work"))
for frame in frames():
    if frame["type"] in ("tool_call", "command_invoked"):
        send(type="notify", level="info", message="at work")
open("goodbye", "w").close()
"""


@pytest.mark.req("app.run.interrupt", "app.run.status")
@pytest.mark.parametrize(("number", "status", "word"), SIGNALS)
def test_the_first_signal_ends_the_turn_politely(shell: Shell, tmp_path: Path, number: int, status: int, word: str) -> None:
    guest = make(tmp_path, DEAF, name="deaf")
    prompt = write_prompt("say first", 'call bash {"command":"echo begun; sleep 600"}')
    with Run(shell, *PARROT, "-e", guest, "--json", "--allow", "bash", prompt) as going:
        going.until(r'"text":"begun\n')
        going.signal(number)
        assert going.ends() == status
        last = read_result(going)
        assert (last["status"], last["error"], last["text"]) == ("cancelled", word, "first")
        assert f"serai: {word}\n" in going.stderr
    assert (guest / "goodbye").exists()
    assert read_session(shell, last["session"])[0] == f"user: {prompt}"
    again = run(shell, "-q", "--continue", write_prompt("say on"))
    assert (again.stdout, again.returncode) == ("on\n", 0)


@pytest.mark.req("app.run.interrupt")
@pytest.mark.parametrize("prompt", [write_prompt("call work {}"), "/work"], ids=["in a guest's tool", "in a guest's command"])
def test_a_guest_that_does_not_answer_keeps_no_run_from_ending(shell: Shell, tmp_path: Path, prompt: str) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\ninterrupt = 600\n")  # nobody needs to be waited for
    guest = make(tmp_path, DEAF, name="deaf")
    with Run(shell, *PARROT, "-e", guest, "--allow", "work", prompt) as going:
        going.until("[deaf] info: at work", on="stderr")
        going.signal(signal.SIGINT)
        assert going.ends() == 130
        assert going.stdout == ""
    assert (guest / "goodbye").exists()


@pytest.mark.req("app.run.interrupt")
@pytest.mark.parametrize(("number", "status", "word"), SIGNALS)
def test_a_signal_while_guests_are_started_ends_the_run(shell: Shell, tmp_path: Path, number: int, status: int, word: str) -> None:
    os.mkfifo(tmp_path / "latch")
    guest = make(tmp_path, f"open({str(tmp_path / 'latch')!r}, 'w').close()\ntime.sleep(600)", name="mute")
    with Run(shell, *PARROT, "-e", guest, "--json", "hi") as going:
        (tmp_path / "latch").read_text()  # it runs now, and says nothing
        going.signal(number)
        assert going.ends() == status
        assert (read_result(going)["status"], read_result(going)["error"], read_result(going)["session"]) == ("cancelled", word, "")
        assert "Traceback" not in going.stderr
    assert not list((shell.home / "sessions").glob("*.jsonl"))


@pytest.mark.req("app.run.status")
def test_the_time_that_is_given_counts_from_the_start(shell: Shell, tmp_path: Path) -> None:
    guest = make(tmp_path, "time.sleep(600)", name="mute")
    ran = run(shell, "-e", guest, "--json", "--timeout", "0.2", "hi")
    assert ran.returncode == 5
    assert (read_result(ran)["status"], read_result(ran)["error"]) == ("cancelled", "it took longer than 0.2 s (--timeout)")


@pytest.mark.req("app.run.interrupt")
@pytest.mark.parametrize("number", [number for number, _, _ in SIGNALS])
def test_the_second_signal_ends_everything_at_once(shell: Shell, tmp_path: Path, number: int) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhello()\nwhile True: signal.pause()"
    guest = make(tmp_path, f"import signal\n{stubborn}", name="stubborn")
    prompt = write_prompt("call bash " + '{"command":"trap \\"\\" TERM INT; echo begun; while :; do sleep 1; done"}')
    with Run(shell, *PARROT, "-e", guest, "--json", "--allow", "bash", prompt) as going:
        going.until(r'"text":"begun\n')
        assert going.insist(number) == -number  # by the signal itself: what waits for it sees that
    assert read_session(shell)[0] == f"user: {prompt}"


@pytest.mark.req("app.run.interrupt")
def test_a_signal_that_was_ignored_before_stays_ignored(shell: Shell, tmp_path: Path) -> None:
    os.mkfifo(shell.cwd / "latch")
    prompt = write_prompt('call bash {"command":"echo begun; cat latch"}', "say done")
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "nohup", *shell.argv("run", *PARROT, "-q", "--allow", "bash", prompt)]
    with subprocess.Popen(argv, env=shell.env, cwd=shell.cwd, stdout=subprocess.PIPE, start_new_session=True) as process:
        with open(shell.cwd / "latch", "w") as latch:  # when somebody reads there
            process.send_signal(signal.SIGHUP)
            latch.write("on")
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
    assert process.returncode == 0


@pytest.mark.req("app.run.output")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_has_read_enough_ends_it_without_a_word(shell: Shell, form: list[str]) -> None:
    with Run(shell, *PARROT, "-q", *form, write_prompt('repeat 1000000 say "line\\n"')) as going:
        going.until("line")
        going.close_output()
        assert going.ends() == 1
        assert going.stderr == ""
    assert read_session(shell)[0].startswith("user: ")


@pytest.mark.req("app.run.output")
@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="this machine keeps /dev/full for root")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_cannot_be_written_is_told_in_one_line(shell: Shell, form: list[str]) -> None:
    argv = ["sh", "-c", 'exec "$@" > /dev/full', "sh", *shell.argv("run", *PARROT, "-q", *form, "hi")]
    ran = subprocess.run(argv, env=shell.env, cwd=shell.cwd, capture_output=True, text=True, timeout=50, check=False)
    assert (ran.stderr, ran.returncode) == (f"serai: cannot write: {os.strerror(errno.ENOSPC)}\n", 1)


# -- a reader that does not read

FLOOD = "repeat 400000 say words "


@pytest.mark.req("app.run.interrupt", "app.run.output")
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_reader_that_does_not_read_keeps_nobody_from_ending_the_run(shell: Shell, form: tuple[str, ...]) -> None:
    with Run(shell, *PARROT, *form, write_prompt(FLOOD)) as going:
        going.leave_output()
        going.signal(signal.SIGINT)
        assert going.ends() == 130


@pytest.mark.slow
@pytest.mark.req("app.run.output", "app.run.status")
def test_a_reader_that_does_not_read_stops_no_clock(shell: Shell) -> None:
    # The pipe is full long before its time is over.
    with Run(shell, *PARROT, "--timeout", "3", write_prompt(FLOOD), pipe=8192) as going:
        going.leave_output()
        assert going.ends() == 5
        assert "--timeout" in going.stderr


@pytest.mark.req("app.run.output")
def test_a_reader_that_reads_slowly_gets_all_of_it(shell: Shell) -> None:
    with Run(shell, *PARROT, write_prompt("repeat 60000 say words ", "say end")) as going:
        going.leave_output()
        going.read_on()
        assert going.ends() == 0
    assert going.stdout == "words " * 60000 + "end\n"


@pytest.mark.req("app.run.interrupt")
def test_a_second_signal_needs_no_loop_that_hears_it(shell: Shell) -> None:
    run(shell, "hello")
    [session] = (shell.home / "sessions").glob("*.jsonl")
    held = os.open(f"{session}.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)  # whoever writes waits for it, and the loop with them
    try:
        with Run(shell, *PARROT, "--continue", "hello") as going:
            going.until_waits()
            assert going.insist(signal.SIGINT) == -signal.SIGINT
    finally:
        os.close(held)


@pytest.mark.req("app.run.status", "app.run.interrupt")
def test_a_terminal_that_hangs_up_ends_the_run_with_the_status_that_says_so(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    command = ["setsid", "-c", *SERAI, "run", *PARROT, write_prompt("say begun", "hang")]
    going = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=shell.env, cwd=shell.cwd)
    os.close(theirs)
    seen = b""
    while b"begun" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)
    assert going.wait(20) == 129
