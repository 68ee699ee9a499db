"""Names of processes that nobody else can be taken for."""

from __future__ import annotations

import os
import subprocess
import sys

from serai.wire import process_tree


def test_a_process_is_known_by_its_name_while_it_lives_and_is_gone_after() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = process_tree.identity_of(child.pid)
        assert process_tree.identity_pid(owner) == child.pid
        assert (process_tree.is_alive(owner), process_tree.is_gone(owner)) == (True, False)
        assert process_tree.is_alive(f"{owner}#its-own")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (process_tree.is_alive(owner), process_tree.is_gone(owner)) == (False, True)  # a zombie
    assert process_tree.is_gone(owner)


def test_of_a_process_in_another_container_nobody_can_say_that_it_is_gone() -> None:
    pid, started, boot, namespace = process_tree.own_identity().split(":")
    elsewhere = f"{pid}:{started}:{boot}:{int(namespace) + 1}"
    assert (process_tree.is_alive(elsewhere), process_tree.is_gone(elsewhere)) == (False, False)
    before_the_boot = f"{pid}:{started}:another-boot:{int(namespace) + 1}"
    assert (process_tree.is_alive(before_the_boot), process_tree.is_gone(before_the_boot)) == (False, True)


def test_a_name_without_a_namespace_is_of_this_one() -> None:
    older = process_tree.own_identity().rpartition(":")[0]
    assert (process_tree.is_alive(older), process_tree.is_gone(older)) == (True, False)
    pid, _, rest = older.partition(":")
    for dead in (f"{pid}:1:{rest.partition(':')[2]}", "", "x", f"{pid}:{rest.partition(':')[0]}:no-boot"):
        assert (process_tree.is_alive(dead), process_tree.is_gone(dead)) == (False, True)
