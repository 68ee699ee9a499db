"""Names of processes that nobody else can be taken for."""

from __future__ import annotations

import os
import subprocess
import sys

from serai.wire import owners


def test_a_process_is_known_by_its_name_while_it_lives_and_is_gone_after() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = owners.owner_of(child.pid)
        assert owners.pid_of(owner) == child.pid
        assert (owners.alive(owner), owners.gone(owner)) == (True, False)
        assert owners.alive(f"{owner}#its-own")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (owners.alive(owner), owners.gone(owner)) == (False, True)  # a zombie
    assert owners.gone(owner)


def test_of_a_process_in_another_container_nobody_can_say_that_it_is_gone() -> None:
    pid, started, boot, namespace = owners.myself().split(":")
    elsewhere = f"{pid}:{started}:{boot}:{int(namespace) + 1}"
    assert (owners.alive(elsewhere), owners.gone(elsewhere)) == (False, False)
    before_the_boot = f"{pid}:{started}:another-boot:{int(namespace) + 1}"
    assert (owners.alive(before_the_boot), owners.gone(before_the_boot)) == (False, True)


def test_a_name_without_a_namespace_is_of_this_one() -> None:
    older = owners.myself().rpartition(":")[0]
    assert (owners.alive(older), owners.gone(older)) == (True, False)
    pid, _, rest = older.partition(":")
    for dead in (f"{pid}:1:{rest.partition(':')[2]}", "", "x", f"{pid}:{rest.partition(':')[0]}:no-boot"):
        assert (owners.alive(dead), owners.gone(dead)) == (False, True)
