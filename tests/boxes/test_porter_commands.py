"""Commands through a real porter: to their end, as streams, on terminals, and the init script."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes.porters import PATIENCE, Porter, Refusal, Wire, b64, running
from tests.wire.helpers import Ends, lives

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECOND = 1_000_000_000


@pytest.fixture
def porter(tmp_path: Path) -> Iterator[Porter]:
    with running(tmp_path) as porter:
        yield porter


@pytest.fixture
def tell(porter: Porter) -> Path:
    """A pipe in the workspace, through which a command can tell that it is where the test wants it."""
    path = porter.root / "workspace" / "tell"
    os.mkfifo(path)
    return path


def ended(*pids: int) -> bool:
    alive = [pid for pid in pids if lives(pid)]
    with Ends(alive) as ends:
        return not ends.left_after(PATIENCE)


@pytest.mark.req("hooks.scenario.porter-09", "hooks.rule.3.6-exec")
def test_exec_returns_what_a_command_printed_and_its_exit_code(porter: Porter) -> None:
    assert porter.sh("echo out; echo err >&2; exit 7") == {"stdout": "out\n", "stderr": "err\n", "exit_code": 7}


@pytest.mark.req("hooks.scenario.porter-10", "hooks.rule.3.6-exec")
@pytest.mark.parametrize("cmd", [[], [""], ["  "], None])
def test_exec_of_nothing_is_an_error(porter: Porter, cmd: object) -> None:
    with pytest.raises(Refusal, match="^command is required$"):
        porter.ask("exec", cmd=cmd)


@pytest.mark.req("hooks.naive.30")
def test_death_by_a_signal_is_a_result(porter: Porter) -> None:
    assert porter.sh("kill -TERM $$") == {"stdout": "", "stderr": "", "exit_code": -1, "signal": signal.SIGTERM}


@pytest.mark.req("hooks.scenario.porter-11", "hooks.naive.30", "hooks.rule.3.6-exec")
def test_output_is_cut_and_marked_and_the_command_never_blocks(porter: Porter) -> None:
    flood = "head -c {} /dev/zero | tr '\\0' x"
    answer = porter.sh(f"{flood.format(65536)}; {flood.format(5_000_000)} >&2; echo done > done")
    assert answer["stdout"] == "x" * 65536
    assert answer["stderr"] == "x" * 65536 + "\n... [output truncated]"
    assert len(answer["stderr"]) == 65559
    assert (porter.root / "workspace/done").exists()


def test_input_and_output_that_are_larger_than_any_pipe_do_not_dead_lock(porter: Porter) -> None:
    content = b"x" * 3_000_000
    assert porter.sh("cat | wc -c", stdin=b64(content))["stdout"].strip() == "3000000"
    assert len(porter.ask("exec", cmd=["cat"], stdin=b64(content))["stdout"]) == 65559
    assert porter.ask("exec", cmd=["true"], stdin=b64(content))["exit_code"] == 0  # which does not read it at all


def test_bytes_that_are_no_text_come_as_they_are(porter: Porter) -> None:
    answer = porter.sh("printf 'a\\377b'; echo plain >&2")
    assert (answer["stdout"], answer["stdout_base64"]) == ("a�b", b64(b"a\xffb"))
    assert "stderr_base64" not in answer


def test_a_program_that_cannot_be_run_is_told_as_a_shell_does(porter: Porter) -> None:
    (porter.root / "workspace/plain").write_text("no program")
    assert porter.ask("exec", cmd=["no-such-program"])["exit_code"] == 127
    assert porter.ask("exec", cmd=["./no-such-program"])["exit_code"] == 127
    answer = porter.ask("exec", cmd=["./plain"])
    assert (answer["exit_code"], answer["stderr"]) == (126, "./plain: Permission denied\n")
    (porter.root / "workspace/plain").chmod(0o755)
    assert porter.ask("exec", cmd=["./plain"])["stderr"] == "./plain: Exec format error\n"


@pytest.mark.req("hooks.rule.3.6-environment")
def test_a_command_sees_its_own_environment_and_nothing_of_the_porter_s(porter: Porter) -> None:
    def env(**more: object) -> list[str]:
        return sorted(str(porter.ask("exec", cmd=["env"], **more)["stdout"]).splitlines())

    home = f"HOME={porter.root}/root"
    assert env() == [home, f"PATH={PATH}"]
    porter.ask("init", env=["A=1", "B=x=y"])
    assert env(env={"A": "2", "C": ""}) == ["A=2", "B=x=y", "C=", home, f"PATH={PATH}"]


def test_a_command_starts_in_the_workspace_or_where_it_is_told(porter: Porter) -> None:
    assert porter.sh("pwd")["stdout"] == f"{porter.root}/workspace\n"
    assert porter.sh("pwd", cwd="/root")["stdout"] == f"{porter.root}/root\n"
    (porter.root / "workspace").rmdir()
    assert porter.sh("pwd")["stdout"] == f"{porter.root}/root\n"


# Whether it leads its session, its descriptors (but that of the listing), the signals it blocks, and those that it ignores.
SELF = """
import os, signal
print(os.getsid(0) == os.getpid())
print(sorted(os.listdir("/proc/self/fd"))[:-1])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN and n.name not in ("SIGPIPE", "SIGXFSZ")])
"""


def test_a_command_has_a_session_its_descriptors_and_the_usual_signals(porter: Porter) -> None:
    answer = porter.ask("exec", cmd=[sys.executable, "-I", "-S", "-c", SELF])
    assert answer["stdout"].splitlines() == ["True", "['0', '1', '2']", "set()", "[]"], answer["stderr"]


# A job in a group of its own, as a shell with job control makes them; it tells its number.
JOB = "import os, time; child = os.fork(); child or os.setpgid(0, 0); print(child or os.getpid(), flush=True); time.sleep(1000)"


@pytest.mark.req("hooks.rule.3.6-timeout")
def test_at_its_time_limit_a_command_ends_with_all_of_its_session(porter: Porter) -> None:
    answer = porter.ask("exec", cmd=[sys.executable, "-I", "-S", "-c", JOB], timeout=SECOND)
    assert (answer["exit_code"], answer["timed_out"]) == (124, True)
    assert ended(*map(int, answer["stdout"].split()))


def test_a_daemon_may_hold_the_pipes_and_lives_on(porter: Porter) -> None:
    answer = porter.sh("sleep 1000 & echo $!")
    daemon = int(answer["stdout"])
    assert answer["exit_code"] == 0
    assert lives(daemon)
    porter.ask("signal", signal=signal.SIGKILL)  # it is no child of the porter's any more, unless that takes orphans in
    os.kill(daemon, signal.SIGKILL) if lives(daemon) else None
    assert ended(daemon)


def test_a_caller_who_leaves_ends_his_command(porter: Porter, tell: Path) -> None:
    with porter.connect() as wire:
        wire.send("exec", {"cmd": ["/bin/sh", "-c", "sleep 1000 & echo $$ $! > tell; wait"]})
        pids = [int(pid) for pid in tell.read_text().split()]
    assert ended(*pids)


def test_a_caller_who_only_ends_his_requests_gets_his_answer(porter: Porter, tell: Path) -> None:
    with porter.connect() as wire:
        wire.send("exec", {"cmd": ["/bin/sh", "-c", "read line < tell; echo $line"]})
        wire.end()
        tell.write_text("still here\n")
        assert wire.answer()["stdout"] == "still here\n"
        assert wire.read_all() == b""


def test_requests_on_one_connection_are_done_one_after_the_other(porter: Porter) -> None:
    with porter.connect() as wire:
        for number in range(20):
            wire.send("exec", {"cmd": ["/bin/sh", "-c", f"echo {number} >> order; cat order | wc -l"]})
        assert [int(wire.answer()["stdout"]) for _ in range(20)] == list(range(1, 21))


# Streams


def stream(wire: Wire, script: str, **more: object) -> int:
    pid = wire.ask("exec", cmd=["/bin/sh", "-c", script], stream=True, **more)["pid"]
    assert isinstance(pid, int)
    return pid


def collected(wire: Wire) -> dict[int, bytes]:
    """All packets to the end, by kind."""
    found: dict[int, bytes] = {}
    while 3 not in found:
        kind, payload = wire.read_packet()
        found[kind] = found.get(kind, b"") + payload
    assert wire.read_all() == b""
    return found


def test_a_stream_goes_both_ways_and_tells_the_end(porter: Porter) -> None:
    with porter.connect() as wire:
        stream(wire, "read line; echo $line >&2; cat; exit 3")
        wire.packet(0, b"hel")
        wire.packet(0, b"lo\n")
        assert wire.read_packet() == (2, b"hello\n")
        wire.packet(9, b"unknown")
        wire.packet(0, b"x" * 1_000_000)
        wire.packet(0, b"")
        assert collected(wire) == {1: b"x" * 1_000_000, 3: b'{"exit_code":3}'}


def test_the_end_of_our_bytes_is_the_end_of_its_input(porter: Porter) -> None:
    content = b"x" * 900_000
    with porter.connect() as wire:
        stream(wire, "wc -c")
        for _ in range(10):
            wire.packet(0, content)
        wire.end()
        assert collected(wire)[1].strip() == b"9000000"


def test_a_stream_takes_signals_for_the_process_group(porter: Porter) -> None:
    with porter.connect() as wire:
        stream(wire, "echo ready; sleep 1000; echo not reached")
        assert wire.read_packet() == (1, b"ready\n")
        wire.packet(2, bytes([signal.SIGTERM]))
        assert collected(wire) == {3: b'{"exit_code":-1,"signal":15}'}


@pytest.mark.slow
def test_a_stream_loses_nothing_when_its_reader_is_slow(porter: Porter) -> None:
    with porter.connect() as wire:
        pid = stream(wire, "exec head -c 40000000 /dev/zero")
        for _ in range(50):
            assert porter.ask("hello")["porter"] == 1  # others are served meanwhile
        written = int(Path(f"/proc/{pid}/io").read_text().split("wchar: ")[1].split()[0])
        assert written < 8_000_000  # it has to wait for us: nothing piles up
        assert len(collected(wire)[1]) == 40_000_000


def test_a_caller_who_leaves_a_stream_is_told_of_and_then_everything_ends(porter: Porter, tell: Path) -> None:
    with porter.connect() as wire:
        pid = stream(wire, "trap 'echo hup > tell' HUP; echo ready; while :; do sleep 1000 & wait; done")
        assert wire.read_packet() == (1, b"ready\n")
    assert tell.read_text() == "hup\n"
    assert ended(pid)


def test_a_stream_of_a_program_that_is_not_there_is_refused_and_what_follows_is_not_read(porter: Porter) -> None:
    trap = b'{"verb":"exec","data":{"cmd":["touch","trapped"]}}'
    with porter.connect() as wire:
        wire.send("exec", {"cmd": ["no-such-program"], "stream": True}, len(trap).to_bytes(4, "big") + trap)
        with pytest.raises(Refusal, match="no-such-program: No such file"):
            wire.answer()
        assert wire.read_all() == b""
    assert not (porter.root / "workspace/trapped").exists()


def test_a_stream_may_have_a_terminal(porter: Porter) -> None:
    with porter.connect() as wire:
        stream(
            wire,
            "stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && echo yes; read x; stty size; cat",
            tty={"cols": 100, "rows": 30},
        )
        text = b""
        while b"yes\r\n" not in text:
            text += wire.read_packet()[1]
        assert text == b"30 100\r\nxterm-256color\r\nyes\r\n"
        wire.packet(1, (120).to_bytes(2, "big") + (40).to_bytes(2, "big"))
        wire.packet(0, b"\n")
        while b"40 120\r\n" not in text:
            text += wire.read_packet()[1]
        wire.packet(0, b"")  # on a terminal the end of input is a key
        assert collected(wire)[3] == b'{"exit_code":0}'


def test_a_terminal_s_signal_goes_to_the_foreground(porter: Porter) -> None:
    """An interactive shell keeps going when the job in front of it is ended."""
    with porter.connect() as wire:
        wire.ask("exec", cmd=["bash", "--norc", "-i"], stream=True, tty={"cols": 80, "rows": 24})
        wire.packet(0, b"sh -c 'echo rea''dy; exec sleep 1000'\n")
        text = b""
        while b"ready\r\n" not in text:
            text += wire.read_packet()[1]
        wire.packet(2, bytes([signal.SIGKILL]))
        wire.packet(0, b"exit 9\n")
        assert collected(wire)[3] == b'{"exit_code":9}'


# The terminal of the spec


@pytest.mark.req("hooks.scenario.porter-17", "hooks.rule.3.7-terminal")
def test_a_terminal_echoes_and_follows_a_resize(porter: Porter) -> None:
    with porter.connect() as wire:
        assert wire.ask("pty", cmd=["/bin/sh"]) == {}
        wire.packet(7, b"an unknown type")
        wire.packet(2, b"\x09")  # nor is a signal one of its types
        wire.packet(0, b"stty size; echo $TERM; echo e''nd\n")
        text = wire.read_until(b"end\r\n")
        assert b"stty size" in text  # the echo
        assert b"24 80\r\nxterm-256color\r\n" in text
        wire.packet(1, (132).to_bytes(2, "big") + (43).to_bytes(2, "big"))
        wire.packet(0, b"stty size; exit\n")
        assert b"43 132\r\n" in wire.read_all()


@pytest.mark.req("hooks.rule.3.7-terminal")
def test_a_packet_above_a_mebibyte_ends_the_terminal(porter: Porter) -> None:
    with porter.connect() as wire:
        wire.ask("pty", cmd=["/bin/sh", "-c", "echo $$; stty -echo; exec cat > /dev/null"])
        pid = int(wire.read_until(b"\r\n"))
        wire.packet(0, b"\n" * (1 << 20))  # that much it takes
        wire.socket.sendall(b"\0" + ((1 << 20) + 1).to_bytes(4, "big"))
        wire.read_all()
    assert ended(pid)


def test_without_a_command_a_terminal_has_the_login_shell(porter: Porter) -> None:
    with porter.connect() as wire:
        wire.ask("pty", cols=99)
        wire.packet(0, b"echo $0 $-; stty size; exit\n")
        assert b"-bash " in (text := wire.read_all())
        assert b"24 99\r\n" in text
    porter.ask("init", env=["SHELL=/bin/sh"])
    with porter.connect() as wire:
        wire.ask("pty")
        wire.packet(0, b"echo $0; exit\n")
        assert b"-sh\r\n" in wire.read_all()


def test_who_leaves_a_terminal_ends_its_jobs(porter: Porter) -> None:
    with porter.connect() as wire:
        wire.ask("pty", cmd=[sys.executable, "-I", "-S", "-c", f"import signal; signal.signal(1, signal.SIG_IGN); {JOB}"])
        pids = [int(wire.read_until(b"\n")), int(wire.read_until(b"\n"))]
    assert ended(*pids)


# The init script


@pytest.mark.req("hooks.scenario.porter-05", "hooks.rule.4-script", "hooks.scenario.porter-08")
def test_the_script_runs_in_home_as_the_box_s_user_with_both_outputs_in_one(porter: Porter) -> None:
    answer = porter.ask(
        "init", init_script=b64(b"#!/bin/sh\necho one; echo two >&2; pwd; id -u; echo $0; echo $A\n\n"), env=["A=1"]
    )
    script = f"{porter.root}/run/llmbox-init-script"
    assert answer["script_failed"] is False
    assert answer["script_output"].splitlines() == ["one", "two", f"{porter.root}/root", str(os.geteuid()), script, "1"]
    assert os.stat(script).st_mode & 0o777 == 0o755
    assert porter.ask("hello")["initialised"] is True


@pytest.mark.req("hooks.rule.4-script")
def test_the_script_s_output_is_cut(porter: Porter) -> None:
    answer = porter.ask("init", init_script=b64(b"#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x\n"))
    assert answer["script_output"] == "x" * 65536 + "\n... [output truncated]"


@pytest.mark.req("hooks.scenario.porter-06", "hooks.scenario.porter-04", "hooks.rule.4-init-again")
def test_a_failed_script_is_data_and_init_may_be_tried_again_until_it_works(porter: Porter) -> None:
    answer = porter.ask("init", init_script=b64(b"#!/bin/sh\necho why; exit 7\n"))
    assert answer == {"script_failed": True, "script_error": "init script failed: exit status 7", "script_output": "why"}
    assert porter.ask("init", init_script=b64(b"#!/bin/sh\nkill -9 $$\n"))["script_error"] == "init script failed: signal: killed"
    answer = porter.ask("init", init_script=b64(b"echo no interpreter\n"))
    assert answer["script_error"] == "init script failed: exec format error: it needs a #! line"
    answer = porter.ask("init", init_script=b64(b"#!/no/interpreter\n"))
    assert answer["script_error"] == "init script failed: no such file or directory"
    assert porter.sh("echo works")["stdout"] == "works\n"
    assert porter.ask("init", init_script=b64(b"#!/bin/sh\n"))["script_failed"] is False
    with pytest.raises(Refusal, match="^already initialised$"):
        porter.ask("init")


@pytest.mark.req("hooks.scenario.porter-07", "hooks.rule.4-script")
def test_a_script_that_takes_too_long_is_ended_with_all_that_it_started(porter: Porter) -> None:
    script = b"#!/bin/sh\necho $$; sleep 1000 & echo $!; wait\n"
    answer = porter.ask("init", init_script=b64(script), init_script_timeout=SECOND // 2)
    assert (answer["script_failed"], answer["script_error"]) == (True, "init script did not finish within 500ms")
    assert ended(*map(int, answer["script_output"].split()))


def test_two_inits_at_once_are_not_mixed(porter: Porter, tell: Path) -> None:
    with porter.connect() as wire:
        wire.send("init", {"init_script": b64(b"#!/bin/sh\necho started > ../workspace/tell\nread go < ../workspace/tell\n")})
        assert tell.read_text() == "started\n"
        with pytest.raises(Refusal, match="under way"):
            porter.ask("init")
        tell.write_text("go\n")
        assert wire.answer()["script_failed"] is False
