"""Commands through a real box server: to their end, as streams, on terminals, and the init script."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.boxes.box_servers import PATIENCE, Refusal, ServerProcess, Wire, b64, start_server
from tests.support.processes import Ends, lives

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECOND = 1_000_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_server(tmp_path) as server:
        yield server


@pytest.fixture
def tell(server: ServerProcess) -> Path:
    """A pipe in the workspace, through which a command can tell that it is where the test wants it."""
    path = server.root / "workspace" / "tell"
    os.mkfifo(path)
    return path


def wait_for_end(*pids: int) -> bool:
    alive = [pid for pid in pids if lives(pid)]
    with Ends(alive) as ends:
        return not ends.left_after(PATIENCE)


@pytest.mark.req("hooks.scenario.porter-09", "hooks.rule.3.6-exec")
def test_exec_returns_what_a_command_printed_and_its_exit_code(server: ServerProcess) -> None:
    assert server.sh("echo out; echo err >&2; exit 7") == {"stdout": "out\n", "stderr": "err\n", "exit_code": 7}


@pytest.mark.req("hooks.scenario.porter-10", "hooks.rule.3.6-exec")
@pytest.mark.parametrize("cmd", [[], [""], ["  "], None])
def test_exec_of_nothing_is_an_error(server: ServerProcess, cmd: object) -> None:
    with pytest.raises(Refusal, match="^command is required$"):
        server.ask("exec", cmd=cmd)


@pytest.mark.req("hooks.naive.30")
def test_death_by_a_signal_is_a_result(server: ServerProcess) -> None:
    assert server.sh("kill -TERM $$") == {"stdout": "", "stderr": "", "exit_code": -1, "signal": signal.SIGTERM}


@pytest.mark.req("hooks.scenario.porter-11", "hooks.naive.30", "hooks.rule.3.6-exec")
def test_output_is_cut_and_marked_and_the_command_never_blocks(server: ServerProcess) -> None:
    flood = "head -c {} /dev/zero | tr '\\0' x"
    answer = server.sh(f"{flood.format(65536)}; {flood.format(5_000_000)} >&2; echo done > done")
    assert answer["stdout"] == "x" * 65536
    assert answer["stderr"] == "x" * 65536 + "\n... [output truncated]"
    assert len(answer["stderr"]) == 65559
    assert (server.root / "workspace/done").exists()


def test_input_and_output_that_are_larger_than_any_pipe_do_not_dead_lock(server: ServerProcess) -> None:
    content = b"x" * 3_000_000
    assert server.sh("cat | wc -c", stdin=b64(content))["stdout"].strip() == "3000000"
    assert len(server.ask("exec", cmd=["cat"], stdin=b64(content))["stdout"]) == 65559
    assert server.ask("exec", cmd=["true"], stdin=b64(content))["exit_code"] == 0  # which does not read it at all


def test_bytes_that_are_no_text_come_as_they_are(server: ServerProcess) -> None:
    answer = server.sh("printf 'a\\377b'; echo plain >&2")
    assert (answer["stdout"], answer["stdout_base64"]) == ("a�b", b64(b"a\xffb"))
    assert "stderr_base64" not in answer


def test_a_program_that_cannot_be_run_is_told_as_a_shell_does(server: ServerProcess) -> None:
    (server.root / "workspace/plain").write_text("no program")
    assert server.ask("exec", cmd=["no-such-program"])["exit_code"] == 127
    assert server.ask("exec", cmd=["./no-such-program"])["exit_code"] == 127
    answer = server.ask("exec", cmd=["./plain"])
    assert (answer["exit_code"], answer["stderr"]) == (126, "./plain: Permission denied\n")
    (server.root / "workspace/plain").chmod(0o755)
    assert server.ask("exec", cmd=["./plain"])["stderr"] == "./plain: Exec format error\n"


@pytest.mark.req("hooks.rule.3.6-environment")
def test_a_command_sees_its_own_environment_and_nothing_of_the_box_server_s(server: ServerProcess) -> None:
    def env(**more: object) -> list[str]:
        return sorted(str(server.ask("exec", cmd=["env"], **more)["stdout"]).splitlines())

    home = f"HOME={server.root}/root"
    assert env() == [home, f"PATH={PATH}"]
    server.ask("init", env=["A=1", "B=x=y"])
    assert env(env={"A": "2", "C": ""}) == ["A=2", "B=x=y", "C=", home, f"PATH={PATH}"]


def test_a_command_starts_in_the_workspace_or_where_it_is_told(server: ServerProcess) -> None:
    assert server.sh("pwd")["stdout"] == f"{server.root}/workspace\n"
    assert server.sh("pwd", cwd="/root")["stdout"] == f"{server.root}/root\n"
    (server.root / "workspace").rmdir()
    assert server.sh("pwd")["stdout"] == f"{server.root}/root\n"


# Whether it leads its session, its descriptors (but that of the listing), the signals it blocks, and those that it ignores.
SELF = """
import os, signal
print(os.getsid(0) == os.getpid())
print(sorted(os.listdir("/proc/self/fd"))[:-1])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN and n.name not in ("SIGPIPE", "SIGXFSZ")])
"""


def test_a_command_has_a_session_its_descriptors_and_the_usual_signals(server: ServerProcess) -> None:
    answer = server.ask("exec", cmd=[sys.executable, "-I", "-S", "-c", SELF])
    assert answer["stdout"].splitlines() == ["True", "['0', '1', '2']", "set()", "[]"], answer["stderr"]


# A job in a group of its own, as a shell with job control makes them; it tells its number.
JOB = "import os, time; child = os.fork(); child or os.setpgid(0, 0); print(child or os.getpid(), flush=True); time.sleep(1000)"


@pytest.mark.req("hooks.rule.3.6-timeout")
def test_at_its_time_limit_a_command_ends_with_all_of_its_session(server: ServerProcess) -> None:
    answer = server.ask("exec", cmd=[sys.executable, "-I", "-S", "-c", JOB], timeout=SECOND)
    assert (answer["exit_code"], answer["timed_out"]) == (124, True)
    assert wait_for_end(*map(int, answer["stdout"].split()))


def test_a_daemon_may_hold_the_pipes_and_lives_on(server: ServerProcess) -> None:
    answer = server.sh("sleep 1000 & echo $!")
    daemon = int(answer["stdout"])
    assert answer["exit_code"] == 0
    assert lives(daemon)
    server.ask("signal", signal=signal.SIGKILL)  # it is no child of the box server's any more, unless that takes orphans in
    os.kill(daemon, signal.SIGKILL) if lives(daemon) else None
    assert wait_for_end(daemon)


def test_a_caller_who_leaves_ends_his_command(server: ServerProcess, tell: Path) -> None:
    with server.connect() as wire:
        wire.send("exec", {"cmd": ["/bin/sh", "-c", "sleep 1000 & echo $$ $! > tell; wait"]})
        pids = [int(pid) for pid in tell.read_text().split()]
    assert wait_for_end(*pids)


def test_a_caller_who_only_ends_his_requests_gets_his_answer(server: ServerProcess, tell: Path) -> None:
    with server.connect() as wire:
        wire.send("exec", {"cmd": ["/bin/sh", "-c", "read line < tell; echo $line"]})
        wire.end()
        tell.write_text("still here\n")
        assert wire.answer()["stdout"] == "still here\n"
        assert wire.read_all() == b""


def test_requests_on_one_connection_are_done_one_after_the_other(server: ServerProcess) -> None:
    with server.connect() as wire:
        for number in range(20):
            wire.send("exec", {"cmd": ["/bin/sh", "-c", f"echo {number} >> order; cat order | wc -l"]})
        assert [int(wire.answer()["stdout"]) for _ in range(20)] == list(range(1, 21))


# Streams


def start_stream(wire: Wire, script: str, **more: object) -> int:
    pid = wire.ask("exec", cmd=["/bin/sh", "-c", script], stream=True, **more)["pid"]
    assert isinstance(pid, int)
    return pid


def read_packets(wire: Wire) -> dict[int, bytes]:
    """All packets to the end, by kind."""
    found: dict[int, bytes] = {}
    while 3 not in found:
        kind, payload = wire.read_packet()
        found[kind] = found.get(kind, b"") + payload
    assert wire.read_all() == b""
    return found


def test_a_stream_goes_both_ways_and_tells_the_end(server: ServerProcess) -> None:
    with server.connect() as wire:
        start_stream(wire, "read line; echo $line >&2; cat; exit 3")
        wire.packet(0, b"hel")
        wire.packet(0, b"lo\n")
        assert wire.read_packet() == (2, b"hello\n")
        wire.packet(9, b"unknown")
        wire.packet(0, b"x" * 1_000_000)
        wire.packet(0, b"")
        assert read_packets(wire) == {1: b"x" * 1_000_000, 3: b'{"exit_code":3}'}


def test_the_end_of_our_bytes_is_the_end_of_its_input(server: ServerProcess) -> None:
    content = b"x" * 900_000
    with server.connect() as wire:
        start_stream(wire, "wc -c")
        for _ in range(10):
            wire.packet(0, content)
        wire.end()
        assert read_packets(wire)[1].strip() == b"9000000"


def test_a_stream_takes_signals_for_the_process_group(server: ServerProcess) -> None:
    with server.connect() as wire:
        start_stream(wire, "echo ready; sleep 1000; echo not reached")
        assert wire.read_packet() == (1, b"ready\n")
        wire.packet(2, bytes([signal.SIGTERM]))
        assert read_packets(wire) == {3: b'{"exit_code":-1,"signal":15}'}


@pytest.mark.slow
def test_a_stream_loses_nothing_when_its_reader_is_slow(server: ServerProcess) -> None:
    with server.connect() as wire:
        pid = start_stream(wire, "exec head -c 40000000 /dev/zero")
        for _ in range(50):
            assert server.ask("hello")["porter"] == 1  # others are served meanwhile
        written = int(Path(f"/proc/{pid}/io").read_text().split("wchar: ")[1].split()[0])
        assert written < 8_000_000  # it has to wait for us: nothing piles up
        assert len(read_packets(wire)[1]) == 40_000_000


def test_a_caller_who_leaves_a_stream_is_told_of_and_then_everything_ends(server: ServerProcess, tell: Path) -> None:
    with server.connect() as wire:
        pid = start_stream(wire, "trap 'echo hup > tell' HUP; echo ready; while :; do sleep 1000 & wait; done")
        assert wire.read_packet() == (1, b"ready\n")
    assert tell.read_text() == "hup\n"
    assert wait_for_end(pid)


def test_a_stream_of_a_program_that_is_not_there_is_refused_and_what_follows_is_not_read(server: ServerProcess) -> None:
    trap = b'{"verb":"exec","data":{"cmd":["touch","trapped"]}}'
    with server.connect() as wire:
        wire.send("exec", {"cmd": ["no-such-program"], "stream": True}, len(trap).to_bytes(4, "big") + trap)
        with pytest.raises(Refusal, match="no-such-program: No such file"):
            wire.answer()
        assert wire.read_all() == b""
    assert not (server.root / "workspace/trapped").exists()


def test_a_stream_may_have_a_terminal(server: ServerProcess) -> None:
    with server.connect() as wire:
        start_stream(
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
        assert read_packets(wire)[3] == b'{"exit_code":0}'


def test_a_terminal_s_signal_goes_to_the_foreground(server: ServerProcess) -> None:
    """An interactive shell keeps going when the job in front of it is ended."""
    with server.connect() as wire:
        wire.ask("exec", cmd=["bash", "--norc", "-i"], stream=True, tty={"cols": 80, "rows": 24})
        wire.packet(0, b"sh -c 'echo rea''dy; exec sleep 1000'\n")
        text = b""
        while b"ready\r\n" not in text:
            text += wire.read_packet()[1]
        wire.packet(2, bytes([signal.SIGKILL]))
        wire.packet(0, b"exit 9\n")
        assert read_packets(wire)[3] == b'{"exit_code":9}'


# The terminal of the spec


@pytest.mark.req("hooks.scenario.porter-17", "hooks.rule.3.7-terminal")
def test_a_terminal_echoes_and_follows_a_resize(server: ServerProcess) -> None:
    with server.connect() as wire:
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
def test_a_packet_above_a_mebibyte_ends_the_terminal(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.ask("pty", cmd=["/bin/sh", "-c", "echo $$; stty -echo; exec cat > /dev/null"])
        pid = int(wire.read_until(b"\r\n"))
        wire.packet(0, b"\n" * (1 << 20))  # that much it takes
        wire.socket.sendall(b"\0" + ((1 << 20) + 1).to_bytes(4, "big"))
        wire.read_all()
    assert wait_for_end(pid)


def test_without_a_command_a_terminal_has_the_login_shell(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.ask("pty", cols=99)
        wire.packet(0, b"echo $0 $-; stty size; exit\n")
        assert b"-bash " in (text := wire.read_all())
        assert b"24 99\r\n" in text
    server.ask("init", env=["SHELL=/bin/sh"])
    with server.connect() as wire:
        wire.ask("pty")
        wire.packet(0, b"echo $0; exit\n")
        assert b"-sh\r\n" in wire.read_all()


def test_who_leaves_a_terminal_ends_its_jobs(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.ask("pty", cmd=[sys.executable, "-I", "-S", "-c", f"import signal; signal.signal(1, signal.SIG_IGN); {JOB}"])
        pids = [int(wire.read_until(b"\n")), int(wire.read_until(b"\n"))]
    assert wait_for_end(*pids)


# The init script


@pytest.mark.req("hooks.scenario.porter-05", "hooks.rule.4-script", "hooks.scenario.porter-08")
def test_the_script_runs_in_home_as_the_box_s_user_with_both_outputs_in_one(server: ServerProcess) -> None:
    answer = server.ask(
        "init", init_script=b64(b"#!/bin/sh\necho one; echo two >&2; pwd; id -u; echo $0; echo $A\n\n"), env=["A=1"]
    )
    script = f"{server.root}/run/llmbox-init-script"
    assert answer["script_failed"] is False
    assert answer["script_output"].splitlines() == ["one", "two", f"{server.root}/root", str(os.geteuid()), script, "1"]
    assert os.stat(script).st_mode & 0o777 == 0o755
    assert server.ask("hello")["initialised"] is True


@pytest.mark.req("hooks.rule.4-script")
def test_the_script_s_output_is_cut(server: ServerProcess) -> None:
    answer = server.ask("init", init_script=b64(b"#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x\n"))
    assert answer["script_output"] == "x" * 65536 + "\n... [output truncated]"


@pytest.mark.req("hooks.scenario.porter-06", "hooks.scenario.porter-04", "hooks.rule.4-init-again")
def test_a_failed_script_is_data_and_init_may_be_tried_again_until_it_works(server: ServerProcess) -> None:
    answer = server.ask("init", init_script=b64(b"#!/bin/sh\necho why; exit 7\n"))
    assert answer == {"script_failed": True, "script_error": "init script failed: exit status 7", "script_output": "why"}
    assert server.ask("init", init_script=b64(b"#!/bin/sh\nkill -9 $$\n"))["script_error"] == "init script failed: signal: killed"
    answer = server.ask("init", init_script=b64(b"echo no interpreter\n"))
    assert answer["script_error"] == "init script failed: exec format error: it needs a #! line"
    answer = server.ask("init", init_script=b64(b"#!/no/interpreter\n"))
    assert answer["script_error"] == "init script failed: no such file or directory"
    assert server.sh("echo works")["stdout"] == "works\n"
    assert server.ask("init", init_script=b64(b"#!/bin/sh\n"))["script_failed"] is False
    with pytest.raises(Refusal, match="^already initialised$"):
        server.ask("init")


@pytest.mark.req("hooks.scenario.porter-07", "hooks.rule.4-script")
def test_a_script_that_takes_too_long_is_ended_with_all_that_it_started(server: ServerProcess) -> None:
    script = b"#!/bin/sh\necho $$; sleep 1000 & echo $!; wait\n"
    answer = server.ask("init", init_script=b64(script), init_script_timeout=SECOND // 2)
    assert (answer["script_failed"], answer["script_error"]) == (True, "init script did not finish within 500ms")
    assert wait_for_end(*map(int, answer["script_output"].split()))


def test_two_inits_at_once_are_not_mixed(server: ServerProcess, tell: Path) -> None:
    with server.connect() as wire:
        wire.send("init", {"init_script": b64(b"#!/bin/sh\necho started > ../workspace/tell\nread go < ../workspace/tell\n")})
        assert tell.read_text() == "started\n"
        with pytest.raises(Refusal, match="under way"):
            server.ask("init")
        tell.write_text("go\n")
        assert wire.answer()["script_failed"] is False
