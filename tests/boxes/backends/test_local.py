"""What the two backends on this machine are told, tell, and leave behind."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.backend import BackendCapabilities, BoxResources, BoxSpec
from serai.boxes.backends.local import ProbeResult, remove_tree
from serai.boxes.backends.namespaces import NamespacesLaunch, compute_first_id, compute_only_id
from serai.boxes.backends.process import ProcessLaunch
from serai.boxes.cgroups import Cgroups
from serai.errors import BoxRefused
from tests.support.boxes.launched_boxes import AM_ROOT, SOURCE, USER, BoxLauncher, Way, launch_boxes

Kind = NamespacesLaunch | ProcessLaunch
kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(NamespacesLaunch("own"), marks=pytest.mark.needs("namespaces")), ProcessLaunch()],
    ids=["namespaces", "process"],
)
WAY = Way("own", AM_ROOT)


@pytest.fixture
def launch() -> Iterator[BoxLauncher]:
    with launch_boxes() as made:
        yield made


def build_spec(**more: object) -> BoxSpec:
    return BoxSpec(box_id="b", generation=secrets.token_hex(8), **more)  # type: ignore[arg-type]


def test_namespaces_work_here() -> None:
    """They are never missing on Linux: whoever cannot make them must not take a green test for a box."""
    missing, capabilities = NamespacesLaunch().probe()
    assert missing == ""
    assert (capabilities.isolation, capabilities.network, capabilities.rootfs) == ("namespaces", "none", True)
    assert capabilities.ownership == ("full" if AM_ROOT else "single")


def run_as_user(program: str) -> str:
    """What a program of ours prints when an ordinary user runs it; everything it needs is imported before."""
    become = f"""
import os, sys
from serai.boxes.backends.namespaces import NamespacesLaunch
from serai.boxes.backends.process import ProcessLaunch
from serai.boxes.programs import bubblewrap_box
from serai.kernel import landlock, seccomp
import tempfile, subprocess
from serai.boxes.backends import namespaces
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({USER}); os.setuid({USER})
sys.executable = "/usr/bin/python3"
{program}
"""
    done = subprocess.run(
        [sys.executable, "-c", become],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.needs("user-namespaces")
@pytest.mark.parametrize("launcher", ["own", pytest.param("bwrap", marks=pytest.mark.needs("bwrap")), "auto"])
def test_an_ordinary_user_has_namespaces_too_and_is_told_what_is_missing(launcher: str) -> None:
    shown = "[missing], c.ownership, c.limits.pids, c.rootfs, any(c.notes)"
    program = f"missing, c = NamespacesLaunch(LAUNCHER).probe(); print({shown})"
    told = run_as_user(program.replace("LAUNCHER", repr(launcher)))
    assert told == f"[''] single box {launcher != 'bwrap'} True"


@pytest.mark.needs("root")
def test_root_is_told_that_bubblewrap_is_for_others() -> None:
    assert "as root the own launcher gives more" in NamespacesLaunch("bwrap").probe().missing


@kinds
def test_a_box_is_prepared_started_and_released(launch: BoxLauncher, kind: Kind) -> None:
    box = build_spec(allowance=BoxResources(memory=256 << 20))
    folder = launch.folder(WAY)
    launched = launch.start(kind.prepare(box, folder), folder)
    assert launched.sh("echo hello").stdout == "hello\n"
    launched.end()
    again = launch.start(kind.prepare(box, folder), folder)  # after a pause
    assert again.sh("echo hello").stdout == "hello\n"
    again.end()
    kind.release(box.generation, folder)
    kind.release(box.generation, folder)
    assert not os.path.exists(folder)
    assert Cgroups.probe().find(box.generation).folders == ()


@kinds
@pytest.mark.skipif(not Cgroups.probe().freezes, reason="nothing can be frozen here")
def test_a_frozen_box_answers_when_it_is_thawed_and_is_released_while_frozen(launch: BoxLauncher, kind: Kind) -> None:
    box, folder = build_spec(), launch.folder(WAY)
    launched = launch.start(kind.prepare(box, folder), folder)
    kind.freeze(box.generation)
    kind.thaw(box.generation)
    assert launched.sh("echo hello").stdout == "hello\n"
    kind.freeze(box.generation)
    kind.release(box.generation, folder)
    launched.process.wait(20)
    assert not os.path.exists(folder)


@pytest.mark.req("hooks.box.honest")
@kinds
def test_what_cannot_be_held_is_refused(launch: BoxLauncher, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BoxRefused, match="memory = 1000 is too little"):
        kind.prepare(build_spec(allowance=BoxResources(memory=1000)), launch.folder(WAY))
    kind = type(kind)()
    monkeypatch.setitem(kind.__dict__, "_groups", Cgroups())
    with pytest.raises(BoxRefused, match="a limit of cpus cannot be held on this machine"):
        kind.prepare(build_spec(allowance=BoxResources(cpus=1.5)), launch.folder(WAY))


@pytest.mark.needs("namespaces")
def test_a_base_tree_that_is_not_there_is_refused(launch: BoxLauncher) -> None:
    with pytest.raises(BoxRefused, match="there is no folder /nowhere"):
        NamespacesLaunch("own").prepare(build_spec(rootfs="/nowhere"), launch.folder(WAY))
    with pytest.raises(BoxRefused, match="takes no base tree"):
        ProcessLaunch().prepare(build_spec(rootfs="/"), launch.folder(WAY))


def test_the_reason_is_a_sentence_when_namespaces_are_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    missing, capabilities = NamespacesLaunch("own").probe()
    assert missing.startswith("the launcher does not work: ")
    assert isinstance(capabilities, BackendCapabilities)
    assert ProbeResult(missing, capabilities).missing == missing


def test_ids_of_boxes_are_nobodys_on_the_machine() -> None:
    firsts = {compute_first_id(secrets.token_hex(8)) for _ in range(200)}
    assert len(firsts) > 150
    assert all(0x70000000 <= first <= 0x7FFF0000 and first % 65536 == 0 for first in firsts)
    assert compute_first_id("abc") == compute_first_id("abc")


def test_a_box_is_removed_whatever_it_made_of_its_disk(launch: BoxLauncher) -> None:
    folder, outside = launch.folder(WAY), launch.folder(WAY)
    Path(outside, "precious").write_text("x")
    os.chmod(outside, 0o755)
    box = launch(WAY, folder=folder)
    script = f"""
        mkdir -p /workspace/a/b/c; echo x > /workspace/a/b/c/f
        mkdir /workspace/.serai-0 /workspace/.serai-1; mkfifo /workspace/pipe
        ln -s {outside} /workspace/link; ln -s / /workspace/a/root; ln -s loop /workspace/loop
        chown -R 1000:1000 /workspace/a 2>/dev/null
        chmod 000 /workspace/a/b/c/f /workspace/a/b/c /workspace/a/b /workspace/a
        n=0; mkdir /tmp/deep; cd /tmp/deep; while [ $n -lt 1500 ]; do mkdir d; cd d; n=$((n+1)); done
        chmod 000 /root /etc /
    """
    assert box.sh(script).code == 0
    box.end()
    remove_tree(folder)
    assert not os.path.lexists(folder)
    assert Path(outside, "precious").read_text() == "x"
    remove_tree(folder)


@pytest.mark.needs("namespaces")
def test_half_of_the_memory_of_a_box_may_be_files(launch: BoxLauncher) -> None:
    for memory, size in ((256 << 20, str(128 << 20)), (None, "50%")):
        box, folder = build_spec(allowance=BoxResources(memory=memory)), launch.folder(WAY)
        kind = NamespacesLaunch("own")
        try:
            assert json.loads(kind.prepare(box, folder)[-1])["shm"] == size
        finally:
            kind.release(box.generation, folder)


def test_a_plain_box_has_an_id_that_no_other_box_has(launch: BoxLauncher) -> None:
    generations = [secrets.token_hex(8) for _ in range(200)]
    assert all(compute_only_id(one) > max(compute_first_id(other) + 65535 for other in generations) for one in generations)
    assert all(compute_only_id(one) < 0x80000000 for one in generations)
    box, folder = build_spec(), launch.folder(WAY)
    try:
        assert json.loads(ProcessLaunch().prepare(box, folder)[-1])["ids"] == (compute_only_id(box.generation) if AM_ROOT else None)
    finally:
        ProcessLaunch().release(box.generation, folder)
