"""What a box without namespaces cannot do, where the kernel has Landlock and seccomp; and what it says that it cannot hold."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.backends.process import Process
from serai.boxes.programs import landlock
from tests.boxes.launching import PROCESSES, Launching, Way, launching

processes = pytest.mark.parametrize("way", PROCESSES, ids=str)
# Without Landlock the backend says `isolation = "none"`: then there is nothing of the kind to test.
with_landlock = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def launch() -> Iterator[Launching]:
    with launching() as made:
        yield made


@pytest.mark.req("hooks.box.plain")
@processes
@with_landlock
def test_a_plain_box_reads_and_writes_its_own_folder_only(launch: Launching, way: Way) -> None:
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
def test_a_plain_box_makes_no_socket(launch: Launching, way: Way) -> None:
    """So it reaches no network, and no daemon of the machine either."""
    box = launch(way)
    for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
        answer = box.python(f"import socket; socket.socket(socket.{family})")
        assert "OSError: [Errno 97]" in answer.stderr, family
    assert box.python("import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))").stdout == "b'x'\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert box.run("/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}").code != 0


@processes
@pytest.mark.skipif(not landlock.confines_signals(), reason="this kernel's Landlock does not know signals")
def test_a_plain_box_cannot_signal_processes_outside(launch: Launching, way: Way) -> None:
    box = launch(way)
    for pid in (box.process.pid, os.getpid(), 1):
        assert box.sh(f"kill -0 {pid}").code != 0
    assert box.sh("sleep 1000 & kill $! && echo killed").stdout == "killed\n"


@processes
def test_a_plain_box_has_no_capability_at_all(launch: Launching, way: Way) -> None:
    box = launch(way)
    for pid in (box.pid,):
        status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert box.sh("unshare -U true").code != 0


def test_the_backend_says_what_a_plain_box_is() -> None:
    missing, capabilities = Process().probe()
    assert missing == ""
    assert capabilities.isolation == ("landlock" if landlock.version() else "none")
    assert (capabilities.network, capabilities.dial, capabilities.rootfs, capabilities.ownership) == (
        "none",
        False,
        False,
        "single",
    )
    assert any("no /proc" in note for note in capabilities.notes)
