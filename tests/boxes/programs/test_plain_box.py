"""What a box without namespaces cannot do, where the kernel has Landlock and seccomp; and what it says that it cannot hold."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.backends.local import find_processes
from serai.boxes.backends.namespaces import compute_only_id
from serai.boxes.backends.process import ProcessLaunch
from serai.kernel import landlock
from serai.wire import process_tree
from tests.support.boxes.box_servers import Refusal, Wire
from tests.support.boxes.launched_boxes import (
    AM_ROOT,
    PATIENCE,
    PROCESSES,
    WAYS,
    BoxLauncher,
    LaunchedBox,
    Way,
    find_by_argument,
    launch_boxes,
    wait_until,
)

processes = pytest.mark.parametrize("way", PROCESSES, ids=str)
# Without Landlock the backend says `isolation = "none"`: then there is nothing of the kind to test.
with_landlock = pytest.mark.skipif(landlock.get_abi_version() == 0, reason="this kernel has no Landlock")


def read_status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


@pytest.fixture
def launch() -> Iterator[BoxLauncher]:
    with launch_boxes() as made:
        yield made


@pytest.mark.req("hooks.box.plain")
@processes
@with_landlock
def test_a_plain_box_reads_and_writes_its_own_folder_only(launch: BoxLauncher, way: Way) -> None:
    outside = Path(launch.folder(way))
    outside.chmod(0o777)
    secret = outside / "secret"
    secret.write_text(secrets.token_hex(16))
    secret.chmod(0o666)
    box = launch(way)
    root = f"{box.folder}/root"
    assert box.sh(f"echo mine > {root}/tmp/x; cat {root}/tmp/x").stdout == "mine\n"
    for attempt in (
        f"cat {secret}",
        f"ln -s {secret} l; cat l",
        f"ln {secret} h; cat h",
        f"cat {root}/../../{outside.name}/secret",
    ):
        assert secret.read_text() not in box.sh(attempt).all
    assert box.sh(f"echo x > {outside}/new").code != 0
    assert box.sh(f"echo x > {secret}").code != 0
    assert box.sh(f"mv {secret} {root}/tmp/").code != 0
    assert box.sh(f"ls {outside} {box.folder} /home /root /proc /etc/ssh").stdout == ""
    assert sorted(os.listdir(outside)) == ["secret"]


@processes
def test_a_plain_box_makes_no_socket(launch: BoxLauncher, way: Way) -> None:
    """So it reaches no network, and no daemon of the machine either."""
    box = launch(way)
    for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
        answer = box.python(f"import socket; socket.socket(socket.{family})")
        assert "OSError: [Errno 97]" in answer.stderr, family
    assert box.python("import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))").stdout == "b'x'\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert box.run("/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}").code != 0


@processes
@pytest.mark.skipif(not landlock.can_scope_signals(), reason="this kernel's Landlock does not know signals")
def test_a_plain_box_cannot_signal_processes_outside(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    for pid in (box.process.pid, os.getpid(), 1):
        assert box.sh(f"kill -0 {pid}").code != 0
    assert box.sh("sleep 1000 & kill $! && echo killed").stdout == "killed\n"


@processes
def test_a_plain_box_has_no_capability_but_to_reach_its_folder(launch: BoxLauncher, way: Way) -> None:
    """Of root's it has a user of its own, who must get through folders of root's: Landlock says what that one may open there."""
    box = launch(way)
    status = read_status(box.pid)
    found = {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
    assert found in ([{1 << 1}, {1 << 2}] if way.root else [{0}])
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert box.sh("unshare -U true").code != 0


def test_the_backend_says_what_a_plain_box_is() -> None:
    missing, capabilities = ProcessLaunch().probe()
    assert missing == ""
    assert capabilities.isolation == ("landlock" if landlock.get_abi_version() else "none")
    assert (capabilities.network, capabilities.dial, capabilities.rootfs, capabilities.ownership) == (
        "none",
        False,
        False,
        "single",
    )
    assert any("no /proc" in note for note in capabilities.notes)
    assert any(("as a user of its own" if AM_ROOT else "as you") in note for note in capabilities.notes)


@pytest.mark.needs("root")
@pytest.mark.parametrize("place", ["status", "uid_map", "gid_map"])
def test_a_root_that_cannot_become_others_says_that_a_box_runs_as_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without capabilities, or with a few ids only."""
    real = Path.read_text

    def lesser(self: Path) -> str:
        if str(self) != f"/proc/self/{place}":
            return real(self)
        return "CapEff:\t0000000000000000\n" if place == "status" else "0 100000 65536\n"

    monkeypatch.setattr(Path, "read_text", lesser)
    assert any("a box runs as you" in note for note in ProcessLaunch().probe().capabilities.notes)


@pytest.mark.needs("root")
def test_a_plain_box_of_root_s_is_nobody_on_the_machine(launch: BoxLauncher) -> None:
    """What Landlock does not govern, such as modes and times, is for owners only."""
    way = Way("process", True)
    outside = Path(launch.folder(way))
    victim = outside / "victim"
    victim.write_text("x")
    victim.chmod(0o600)
    os.utime(victim, (7, 7))
    box = launch(way, generation="abc")
    user = str(compute_only_id("abc"))
    status = read_status(box.pid)
    assert (set(status["Uid"].split()), set(status["Gid"].split()), status["Groups"].strip()) == ({user}, {user}, "")
    assert box.sh("id -u; id -g; id -G").stdout.split() == [user] * 3
    for attempt in (
        f"chmod 666 {victim}",
        f"chmod 777 {outside}",
        f"chmod 777 {box.folder}",
        f"touch -d @9 {victim}",
        f"chown {user} {victim}",
    ):
        assert box.sh(attempt).code != 0, attempt
    assert (stat.S_IMODE(victim.stat().st_mode), victim.stat().st_mtime) == (0o600, 7)
    assert stat.S_IMODE(outside.stat().st_mode) == stat.S_IMODE(os.stat(box.folder).st_mode) == 0o700
    assert box.sh("echo mine > $HOME/x; chmod 640 $HOME/x; stat -c '%a %u' $HOME/x").stdout == f"640 {user}\n"
    assert {os.stat(f"{box.folder}/root/{name}").st_uid for name in (".", "var/tmp", "root/x")} == {int(user)}
    box.end()
    assert launch(way, folder=box.folder, generation="abc").sh("cat $HOME/x").stdout == "mine\n"


@processes
def test_a_plain_box_makes_no_set_user_id_program(launch: BoxLauncher, way: Way) -> None:
    """Anybody else on the machine could run it, as whoever made the box."""
    box = launch(way)
    assert box.sh("cp /bin/true t && chmod 755 t && echo made").stdout == "made\n"
    for attempt in ("chmod 4755 t", "chmod 2755 t", "install -m 4755 /bin/true u"):
        assert box.sh(attempt).code != 0, attempt
    assert "PermissionError" in box.python("import os; os.open('v', os.O_CREAT | os.O_WRONLY, 0o4755)").stderr
    assert not [path for path in Path(box.folder, "root").rglob("*") if path.lstat().st_mode & 0o6000]


@processes
def test_a_plain_box_steers_no_process_outside(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    pid = box.process.pid  # as a user it is of the same one
    before = Path(f"/proc/{pid}/limits").read_text(), os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)
    for attempt in (
        f"resource.prlimit({pid}, resource.RLIMIT_NOFILE, (3, 3))",
        f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        f"os.sched_setaffinity({pid}, {{0}})",
        f"os.sched_setscheduler({pid}, os.SCHED_BATCH, os.sched_param(0))",
    ):
        assert "PermissionError: [Errno 1]" in box.python(f"import os, resource; {attempt}").stderr, attempt
    after = Path(f"/proc/{pid}/limits").read_text(), os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)
    assert after == before
    own = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.nice(1); os.sched_setaffinity(0, range(99)); print(1)"
    assert box.python(f"import os, resource; {own}").stdout == "1\n"


@processes
def test_a_plain_box_shares_no_memory_with_processes_outside(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    program = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for call, *given in ("shmget", 0, 4096, 0o1600), ("semget", 0, 1, 0o1600), ("msgget", 0, 0o1600), ("mq_open", b"/q", 66, 384, None):
    print(getattr(libc, call)(*given), ctypes.get_errno())
"""
    assert box.python(program).stdout.splitlines() == ["-1 38"] * 4


@processes
@with_landlock
def test_a_plain_box_sees_no_terminal_but_its_own(launch: BoxLauncher, way: Way) -> None:
    ours, theirs = os.openpty()  # the person's
    try:
        name = os.ttyname(theirs)
        os.fchmod(theirs, 0o666)
        os.write(ours, b"password\n")
        box = launch(way)
        assert "password" not in box.sh(f"head -n 1 < {name}").all
        assert box.sh(f"echo hello > {name}").code != 0
        assert box.sh("exec 3<>/dev/tty").code != 0
        assert "PermissionError" in box.python("import os; os.openpty()").stderr
    finally:
        os.close(ours)
        os.close(theirs)


def run_on_terminal(box: LaunchedBox, *cmd: str) -> tuple[str, dict[str, int]]:
    """What a program in the box shows on a terminal of 70 columns, and how it ended."""
    with Wire(Path(box.folder, "control.sock")) as wire:
        wire.ask("exec", cmd=cmd, stream=True, tty={"cols": 70, "rows": 20})
        shown = b""
        while True:
            kind, data = wire.read_packet()
            if kind == 3:
                return shown.decode().replace("\r\n", "\n"), json.loads(data)
            shown += data


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_command_has_a_terminal_in_every_kind_of_box(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    script = "stty size; stty size < /dev/tty; test -t 0 && test -t 1 && test -t 2 && echo all; ulimit -t 9; exit 3"
    for _ in range(3):
        assert run_on_terminal(box, "sh", "-c", script) == ("20 70\n20 70\nall\n", {"exit_code": 3})
    for cmd, said in (
        (("no-such-program",), "no-such-program: No such file or directory"),
        (("/etc/passwd",), "/etc/passwd: Permission denied"),
    ):
        with pytest.raises(Refusal, match=said):
            run_on_terminal(box, *cmd)
    assert box.sh("echo still here").stdout == "still here\n"


@processes
def test_links_that_a_plain_box_left_do_not_lead_its_next_start_out(launch: BoxLauncher, way: Way) -> None:
    folder, outside = launch.folder(way), Path(launch.folder(way))
    outside.chmod(0o777)
    first = launch(way, folder=folder)
    root = f"{folder}/root"
    assert (
        first.sh(f"cd {root}; rm -rf var tmp run; ln -s {outside} var; ln -s {outside}/made tmp; echo x > run; rmdir home").all
        == ""
    )
    first.end()
    again = launch(way, folder=folder)
    assert list(outside.iterdir()) == []
    assert again.sh(f"cd {root}; readlink var tmp; cat run; stat -c %a home").stdout.split() == [
        str(outside),
        f"{outside}/made",
        "x",
        "755",
    ]


@processes
def test_commands_of_a_plain_box_are_found_when_everybody_around_them_is_dead(launch: BoxLauncher, way: Way) -> None:
    """A watchdog kills launcher, supervisor and box server at once: nobody is left who knows what a command is just starting."""
    generation = secrets.token_hex(8)
    box = launch(way, env={"SERAI_BOX": generation, "SERAI_RUN": "a-run.1", "SECRET": "x"})
    assert sorted(box.sh("env -u PWD -u HOME -u PATH -u OLDPWD -u SHLVL -u _ env").stdout.split()) == [
        f"SERAI_BOX={generation}",
        "SERAI_RUN=a-run.1",
    ]
    word = box.left_running()
    left = find_by_argument(word)
    server = process_tree.read_process(box.pid)
    assert server is not None
    os.kill(left[0], signal.SIGSTOP)
    everybody = (server.parent, box.process.pid, box.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped, none of them does anything about the others
        for pid in everybody:
            with contextlib.suppress(ProcessLookupError):  # the box server dies with its supervisor
                os.kill(pid, number)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in everybody[:1]))
    assert {process.pid for process in find_processes(generation)} >= set(left)
    assert process_tree.kill_until_gone(lambda: find_processes(generation), seconds=PATIENCE) == []
    wait_until(lambda: not find_by_argument(word))
