"""What a box with namespaces cannot do: read, see, signal or reach anything outside of it."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.backends.namespaces import compute_first_id
from tests.support.boxes.launched_boxes import NAMESPACES, BoxLauncher, Way, launch_boxes, write_base_tree

namespaces = pytest.mark.parametrize("way", NAMESPACES, ids=str)
own = pytest.mark.parametrize("way", [way for way in NAMESPACES if way.mode == "own"], ids=str)
as_root = pytest.mark.needs("root")

# Calls the kernel directly; prints the errno, or 0.
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
number, *given = sys.argv[1:]
given = [ctypes.c_long(int(word)) if word.lstrip("-").isdigit() else word.encode() for word in given]
result = libc.syscall(ctypes.c_long(int(number)), *given)
print(ctypes.get_errno() if result < 0 else 0)
"""
EPERM, ENOSYS, EAFNOSUPPORT = "1\n", "38\n", "97\n"
X86 = os.uname().machine == "x86_64"


@pytest.fixture
def launch() -> Iterator[BoxLauncher]:
    with launch_boxes() as made:
        yield made


@pytest.fixture
def secret(launch: BoxLauncher, way: Way) -> Path:
    """A file that whoever made the box can read, and everybody else."""
    folder = launch.folder(way)
    os.chmod(folder, 0o755)
    path = Path(folder, "secret")
    path.write_text(secrets.token_hex(16))
    path.chmod(0o644)
    return path


@pytest.mark.req("hooks.box.machine-files")
@namespaces
def test_a_box_cannot_read_a_file_of_the_machine_by_any_path(launch: BoxLauncher, way: Way, secret: Path) -> None:
    box = launch(way)
    up = "/".join([".."] * 30)
    roots = (
        "",
        f"/{up}",
        "/proc/1/root",
        "/proc/self/root",
        "/proc/1/cwd",
        f"/proc/1/cwd/{up}",
        "/proc/self/root/..",
        "/dev/fd/..",
    )
    for root in roots:
        assert box.sh(f"cat {root}{secret}").code != 0
    assert box.sh(f"ln -s {secret} /workspace/link; cat /workspace/link").code != 0
    assert box.sh(f"ln {secret} /workspace/hard").code != 0
    everywhere = box.sh(
        "for p in /proc/[0-9]*; do for d in root cwd fd/0 fd/1 fd/2 fd/3 fd/4; do cat $p/$d" + f"{secret}; done; done"
    )
    assert secret.read_text() not in everywhere.all
    assert secret.read_text() not in box.sh("cat /proc/1/environ /proc/1/maps /proc/1/mem /proc/1/fd/*").all


@namespaces
def test_a_box_sees_neither_homes_nor_configuration_of_the_machine(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.sh("ls -A /root /home").stdout.split() == ["/home:", "/root:"]
    assert box.sh("cat /etc/shadow /etc/machine-id /etc/ssh/* /etc/sudoers").stdout == ""
    assert box.sh("ls /sys /boot /srv /opt /mnt").stdout == ""


@pytest.mark.req("hooks.box.processes")
@namespaces
def test_a_box_does_not_see_the_processes_of_the_machine(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    pids = box.sh("cd /proc; echo [0-9]*").stdout.split()
    assert "1" in pids
    assert len(pids) <= 4
    assert box.sh(f"kill -0 {os.getpid()}").code != 0
    assert box.sh("kill -9 -1; echo still here").code in (0, -1)
    os.kill(os.getpid(), 0)


@pytest.mark.req("hooks.box.porter-safe")
@namespaces
def test_the_box_server_cannot_be_killed_or_looked_into_from_its_box(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.sh("kill -9 1; kill -TERM 1; kill -INT 1; kill -HUP 1; kill -USR1 1; echo alive").stdout == "alive\n"
    for path in ("mem", "environ", "fd/0", "root/etc", "cwd/x", "exe"):
        assert box.sh(f"head -c 1 /proc/1/{path}").code != 0
    ptrace_attach = ("101" if X86 else "117", "16", "1", "0", "0")
    assert box.python(CALL, *ptrace_attach).stdout == EPERM
    assert box.sh("echo alive").stdout == "alive\n"


@pytest.mark.req("hooks.box.network")
@namespaces
def test_a_box_cannot_reach_the_network_of_the_machine(launch: BoxLauncher, way: Way) -> None:
    name = f"\0serai-{secrets.token_hex(8)}"
    program = """
import socket, sys
kind, address = sys.argv[1:]
family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
with socket.socket(family) as wire:
    wire.settimeout(5)
    try:
        wire.connect("\\0" + address if kind == "unix" else ("127.0.0.1", int(address)))
    except OSError as error:
        print(type(error).__name__)
    else:
        print("reached")
"""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        box = launch(way)
        assert box.python(program, "inet", str(listener.getsockname()[1])).stdout == "ConnectionRefusedError\n"
        assert box.python(program, "unix", name[1:]).stdout == "ConnectionRefusedError\n"
        assert box.sh("cat /proc/net/route").stdout.count("\n") <= 1  # the head of the table
    own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('reached')"
    assert box.python(own).stdout == "reached\n"


@pytest.mark.req("hooks.box.other-boxes")
@namespaces
def test_a_box_cannot_reach_another_box(launch: BoxLauncher, way: Way) -> None:
    one = launch(way, box_id="one", generation="1" * 16)
    assert one.sh("echo mine > /workspace/file; echo mine > /dev/shm/file").code == 0
    two = launch(way, box_id="two", generation="2" * 16)
    for path in (f"{one.folder}/root/workspace/file", f"{one.folder}/control.sock", "/workspace/file", "/dev/shm/file"):
        assert two.sh(f"ls {path}").code != 0
    assert two.sh(f"kill -9 {one.pid}").code != 0
    assert one.sh("cat /workspace/file").stdout == "mine\n"


@pytest.mark.req("hooks.box.read-only")
@namespaces
def test_a_box_cannot_write_what_it_shares_with_the_machine(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    for path in ("/usr/bin/x", "/usr/x", "/bin/x", "/lib/x", "/etc/alternatives/x"):
        assert box.sh(f"echo x > {path}").code != 0
    assert box.sh("chmod 777 /usr/bin/env").code != 0
    mounts = {line.split()[4]: line.split()[5].split(",") for line in box.sh("cat /proc/self/mountinfo").stdout.splitlines()}
    assert {"ro", "nosuid", "nodev"} <= set(mounts["/usr"])  # not only because its owner is somebody else
    assert {"nosuid", "nodev"} <= set(mounts["/"])
    assert {"nosuid", "nodev", "noexec"} <= set(mounts["/proc"])
    assert way.mode == "bwrap" or "ro" in mounts["/proc/sys"]  # bubblewrap leaves it when nobody could write it anyway
    for path in ("sys/kernel/core_pattern", "sys/kernel/hostname", "sysrq-trigger", "sys/vm/drop_caches"):
        assert box.sh(f"echo x > /proc/{path}").code != 0, path


@pytest.mark.req("hooks.box.mounts-and-namespaces")
@namespaces
def test_a_box_cannot_mount_or_make_namespaces(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.sh("mount -t tmpfs none /tmp").code != 0
    assert box.sh("mount -o remount,rw /usr").code != 0
    assert box.sh("umount -l /usr; ls /usr/bin/env").stdout == "/usr/bin/env\n"
    for kind in "UmpniuC":
        assert box.sh(f"unshare -{kind} true").code != 0, kind
    for number, *arguments in (
        ("165" if X86 else "40", "none", "/tmp", "tmpfs", "0", "0"),  # mount
        ("155" if X86 else "41", ".", "."),  # pivot_root
        ("272" if X86 else "97", str(0x10000000)),  # unshare of users
        ("56" if X86 else "220", str(0x10000000 | 17), "0", "0", "0", "0"),  # clone with new users
        ("308" if X86 else "268", "0", "0"),  # setns
        ("428", "-100", "/", "1"),  # open_tree
        ("430", "tmpfs", "0"),  # fsopen
    ):
        assert box.python(CALL, number, *arguments).stdout == EPERM, number
    assert box.python(CALL, "435", "0", "0").stdout == ENOSYS  # clone3
    if way.mode == "own":
        assert box.sh("cat /proc/sys/user/max_user_namespaces").stdout == "0\n"


@namespaces
def test_a_box_cannot_reach_into_the_depths_of_the_kernel(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    for name, number, *arguments in (
        ("keyctl", "250" if X86 else "219", "0", "-3", "0"),
        ("add_key", "248" if X86 else "217", "user", "x", "x", "1", "-3"),
        ("bpf", "321" if X86 else "280", "0", "0", "0"),
        ("perf_event_open", "298" if X86 else "241", "0", "0", "0", "0", "0"),
        ("userfaultfd", "323" if X86 else "282", "1"),
        ("io_uring_setup", "425", "1", "0"),
        ("open_by_handle_at", "304" if X86 else "265", "0", "0", "0"),
        ("personality", "135" if X86 else "92", str(0x0400000)),
        ("clock_settime", "227" if X86 else "112", "0", "0"),
    ):
        assert box.python(CALL, number, *arguments).stdout == EPERM, name
    socket_call = "41" if X86 else "198"
    assert box.python(CALL, socket_call, "40", "1", "0").stdout == EAFNOSUPPORT  # vsock: it would reach beyond the machine
    assert box.python(CALL, socket_call, "17", "3", "0").stdout == EAFNOSUPPORT  # packets


@namespaces
def test_a_box_cannot_type_into_a_terminal(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    program = "import os, fcntl; m, s = os.openpty(); os.setsid(); fcntl.ioctl(s, 0x540E, 0); fcntl.ioctl(s, 0x5412, b'x')"
    answer = box.python(program)
    assert "PermissionError: [Errno 1]" in answer.stderr
    assert box.sh("exec 3<>/dev/tty").code != 0


@pytest.mark.req("hooks.box.setuid")
@namespaces
def test_a_set_user_id_program_gives_nothing_in_a_box(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    box.sh("cp /bin/sh /workspace/sh; chmod 4755 /workspace/sh")
    assert "NoNewPrivs:\t1" in box.sh("/workspace/sh -p -c 'cat /proc/self/status'").stdout
    assert "nosuid" in box.sh("grep ' / / \\| / ' /proc/self/mountinfo").stdout


@own
def test_a_device_that_a_box_brings_along_does_not_work(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.sh("mknod /workspace/mem c 1 1").code != 0
    assert box.sh("mknod /dev/disk b 254 0").code != 0


@as_root
def test_a_device_in_a_base_tree_does_not_work() -> None:
    way = Way("own", True)
    with launch_boxes() as launch:
        base = write_base_tree(launch.folder(way), "head", "ls")
        os.mknod(f"{base}/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        os.chmod(f"{base}/zero", 0o666)
        box = launch(way, rootfs=base)
        assert box.sh("ls /zero").code == 0
        assert box.sh("head -c 1 /zero").code != 0
        assert box.sh("head -c 1 /dev/zero").code == 0


@pytest.mark.req("hooks.box.ids")
@as_root
def test_owners_in_a_box_are_exact_and_nobody_on_the_machine() -> None:
    way = Way("own", True)
    with launch_boxes() as launch:
        box = launch(way, generation="abc")
        first = compute_first_id("abc")
        script = "cd /workspace; echo x > f; chmod 600 f; chown 1000:2000 f; stat -c '%u %g %a' f; mkdir d; stat -c '%u %g' d"
        assert box.sh(script).stdout.split("\n")[:2] == ["1000 2000 600", "0 0"]
        outside = os.stat(f"{box.folder}/root/workspace/f")
        assert (outside.st_uid, outside.st_gid) == (first + 1000, first + 2000)
        assert Path(f"/proc/{box.pid}/status").read_text().split("Uid:\t")[1].startswith(f"{first}\t{first}\t{first}")
        assert box.sh("chown 65536 /workspace/f").code != 0


@as_root
def test_owners_in_a_base_tree_are_seen_as_they_are() -> None:
    way = Way("own", True)
    with launch_boxes() as launch:
        base = write_base_tree(launch.folder(way), "stat", "chown", "cat")
        file = Path(base, "file")
        file.write_text("x")
        file.chmod(0o600)
        os.chown(file, 1000, 2000)
        box = launch(way, rootfs=base)
        assert box.sh("stat -c '%u %g %a' /file").stdout == "1000 2000 600\n"
        assert box.sh("echo y > /file; chown 7:8 /file; stat -c '%u %g %a' /file").stdout == "7 8 600\n"
        assert (file.read_text(), file.stat().st_uid) == ("x", 1000)


@namespaces
def test_a_box_has_no_more_power_than_its_root_needs(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    status = dict(line.split(":\t") for line in box.sh("cat /proc/self/status").stdout.splitlines() if ":\t" in line)
    most = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18))
    for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
        if way.mode == "own" or name != "CapBnd":
            assert int(status[name], 16) & ~most == 0, name
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    server = dict(line.split(":\t") for line in Path(f"/proc/{box.pid}/status").read_text().splitlines() if ":\t" in line)
    assert int(server["CapEff"], 16) & ~most == int(server["CapPrm"], 16) & ~most == 0
    assert (server["NoNewPrivs"], server["Seccomp"]) == ("1", "2")
    assert Path(f"/proc/{box.pid}/oom_score_adj").read_text() == "500\n"


@own
def test_a_box_does_not_take_the_terminals_of_others(launch: BoxLauncher, way: Way) -> None:
    program = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
made = 0
try:
    while True:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        made += 1
except OSError as error:
    print(made, error.strerror)
"""
    assert launch(way).python(program).stdout == "256 No space left on device\n"


@own
def test_the_memory_for_files_of_a_box_is_as_large_as_it_was_told(launch: BoxLauncher, way: Way) -> None:
    box = launch(way, shm=str(1 << 20))
    assert box.sh("head -c 2000000 /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x").stdout == "1048576\n"
