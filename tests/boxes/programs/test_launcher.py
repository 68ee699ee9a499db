"""The launcher: a box from its one line to its end, whoever dies first."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serai.boxes.programs.launcher import LIMIT
from tests.support.boxes.launched_boxes import (
    AM_ROOT,
    NAMESPACES,
    PATIENCE,
    SOURCE,
    WAYS,
    BoxLauncher,
    Way,
    find_by_argument,
    find_by_text,
    find_zombies,
    kill,
    launch_boxes,
    wait_until,
    write_base_tree,
)

all_ways = pytest.mark.parametrize("way", WAYS, ids=str)
namespaces = pytest.mark.parametrize("way", NAMESPACES, ids=str)
own = pytest.mark.parametrize("way", [way for way in NAMESPACES if way.mode == "own"], ids=str)


@pytest.fixture
def launch() -> Iterator[BoxLauncher]:
    with launch_boxes() as made:
        yield made


@all_ways
def test_a_box_answers_as_soon_as_its_launcher_has_told_so(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.told["ready"] is True
    assert box.sh("echo hello; echo oh >&2; exit 3") == ("hello\n", "oh\n", 3)
    assert box.end() == 128 + signal.SIGKILL


@namespaces
def test_a_box_has_a_name_a_root_and_a_place_to_work(launch: BoxLauncher, way: Way) -> None:
    box = launch(way, box_id="x")
    assert box.sh("hostname; id -u; id -g; pwd; cat /etc/hostname").stdout.split() == ["x", "0", "0", "/workspace", "x"]
    assert box.sh("stat -c %a /root /tmp /var/tmp /workspace").stdout.split() == ["700", "1777", "1777", "755"]
    for device in ("null", "zero", "random", "urandom", "tty", "ptmx", "shm"):
        assert box.sh(f"test -e /dev/{device}").code == 0
    assert box.sh("head -c 3 /dev/urandom | wc -c").stdout.strip() == "3"
    assert "1: lo:" in box.sh("cat /proc/net/dev; ip link 2>/dev/null || echo 1: lo:").stdout


@own
def test_a_box_server_shows_nothing_of_the_machine_in_its_command_line(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    shown = box.sh("tr -d '\\0' < /proc/1/cmdline; echo; cat /proc/1/comm").stdout.split()
    assert shown == ["porter", "porter"]


@all_ways
@pytest.mark.req("hooks.rule.4-reaps")
def test_the_first_process_of_a_box_reaps_orphans(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert box.sh("for n in 1 2 3 4 5; do (sh -c 'sleep 0.01' >/dev/null 2>&1 &); done").code == 0
    word = box.left_running()
    for pid in find_by_argument(word):
        kill(pid)
    wait_until(lambda: not find_by_argument(word))
    wait_until(lambda: not find_zombies(box.pid))
    assert box.sh("echo still here").stdout == "still here\n"


@all_ways
@pytest.mark.req("hooks.naive.29")
def test_the_end_of_the_lifeline_ends_everything_in_the_box(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    word = box.left_running()
    box.end()
    assert not find_by_argument(word)
    assert not os.path.exists(f"/proc/{box.pid}")


@all_ways
@pytest.mark.req("hooks.naive.29")
def test_a_launcher_that_is_asked_to_end_leaves_nothing(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    word = box.left_running()
    box.process.terminate()
    box.process.wait(PATIENCE)
    assert not find_by_argument(word)


@pytest.mark.slow
@pytest.mark.req("hooks.box.launcher-killed")
@all_ways
@pytest.mark.req("hooks.naive.29")
def test_a_launcher_that_is_killed_leaves_nothing(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    word = box.left_running()
    box.process.kill()
    wait_until(lambda: not find_by_argument(word))
    wait_until(lambda: not os.path.exists(f"/proc/{box.pid}"))


@all_ways
@pytest.mark.req("hooks.naive.29")
def test_a_box_server_that_is_killed_takes_its_box_along_and_the_launcher_says_so(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    word = box.left_running()
    kill(box.pid)
    assert box.process.wait(PATIENCE) == 128 + signal.SIGKILL
    assert not find_by_argument(word)
    assert "the porter ended by itself, with exit status 137" in Path(box.log).read_text()


@pytest.mark.req("hooks.box.mounts-and-namespaces")
@all_ways
def test_no_mount_of_a_box_is_seen_on_the_machine(launch: BoxLauncher, way: Way) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    box = launch(way)
    assert Path("/proc/self/mountinfo").read_text() == before
    box.end()
    assert Path("/proc/self/mountinfo").read_text() == before


@all_ways
def test_a_box_finds_its_disk_again(launch: BoxLauncher, way: Way) -> None:
    folder = launch.folder(way)
    first = launch(way, folder=folder)
    home = "" if way.mode != "process" else f"{folder}/root"
    places = [f"{home}/{name}/kept" for name in ("root", "workspace", "tmp", "run", "etc", "var/tmp", "home")]
    assert first.sh("; ".join(f"echo hello > {place}" for place in places)).all == ""
    first.end()
    second = launch(way, folder=folder)
    assert second.sh(f"cat {' '.join(places)}").stdout == "hello\n" * len(places)


@pytest.mark.req("hooks.box.next-start")
@namespaces
def test_links_that_a_box_left_do_not_lead_its_next_start_out(launch: BoxLauncher, way: Way) -> None:
    outside, folder = launch.folder(way), launch.folder(way)
    launch(way, folder=folder).end()
    root = Path(folder, "root")
    for name in ("etc", "var", "home", "dev", "proc", "usr", "tmp"):
        (root / name).rename(root / f"old-{name}")
        (root / name).symlink_to(outside)
    again = launch(way, folder=folder)
    if again.told.get("ready"):
        assert again.sh("echo hello").stdout == "hello\n"
    assert os.listdir(outside) == []


@all_ways
def test_a_folder_may_have_a_long_path(launch: BoxLauncher, way: Way) -> None:
    folder = launch.folder(way)
    for _ in range(3):
        folder = os.path.join(folder, "x" * 80)
        os.mkdir(folder)
        if AM_ROOT and not way.root:
            os.chown(folder, 65534, 65534)
    box = launch(way, folder=folder)
    assert box.sh("echo hello").stdout == "hello\n"
    assert stat.S_IMODE(os.stat(os.path.join(folder, "control.sock")).st_mode) == 0o666


STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "the base tree is missing": ({"rootfs": "/nowhere/at/all"}, "/nowhere/at/all: No such file or directory"),
    "the base tree is a file": ({"rootfs": "/etc/passwd"}, ""),
    "a control group is missing": ({"cgroups": ["/nowhere"]}, "/nowhere/cgroup.procs: No such file or directory"),
    "the name is too long": ({"box_id": "x" * 65}, "the hostname: Invalid argument"),
    "a limit is unknown": ({"rlimits": {"NOTHING": 1}}, "AttributeError: module 'resource' has no attribute 'RLIMIT_NOTHING'"),
}


@own
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.req("hooks.scenario.backend-06")
def test_a_box_that_cannot_be_made_says_why_and_leaves_nothing(launch: BoxLauncher, way: Way, step: str) -> None:
    folder = launch.folder(way)
    before = Path("/proc/self/mountinfo").read_text()
    more, message = STEPS[step]
    box = launch(way, folder=folder, **more)
    assert box.told["error"].endswith(message)
    assert box.process.wait(PATIENCE) == 1
    assert find_by_text(folder) == []
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.req("hooks.box.base-tree")
@own
def test_a_box_over_a_base_tree_has_its_files_and_leaves_it_alone(launch: BoxLauncher, way: Way) -> None:
    base = write_base_tree(launch.folder(way), "cat", "ls", "rm", "mkdir")
    Path(base, "data").mkdir()
    Path(base, "data", "one").write_text("one\n")
    Path(base, "data", "two").write_text("two\n")
    if AM_ROOT and not way.root:
        for at, folders, files in os.walk(base):
            for name in (*folders, *files):
                os.chown(os.path.join(at, name), 65534, 65534, follow_symlinks=False)
    folder = launch.folder(way)
    box = launch(way, folder=folder, rootfs=base)
    assert box.sh("cat /data/one; echo changed > /data/one; rm /data/two; mkdir /data/new; ls /data").stdout.split() == [
        "one",
        "new",
        "one",
    ]
    box.end()
    again = launch(way, folder=folder, rootfs=base)
    assert again.sh("cat /data/one; ls /data").stdout.split() == ["changed", "new", "one"]
    assert (Path(base, "data", "one").read_text(), Path(base, "data", "two").read_text()) == ("one\n", "two\n")
    assert sorted(os.listdir(os.path.join(base, "data"))) == ["one", "two"]


@pytest.mark.needs("root")
def test_a_user_is_told_when_a_base_tree_is_somebody_elses(launch: BoxLauncher) -> None:
    base = write_base_tree(launch.folder(Way("own", True)))
    os.chmod(base, 0o755)
    box = launch(Way("own", False), rootfs=base)
    assert "belongs to somebody else" in box.told["error"]
    assert "copy the tree" in box.told["hint"]


SAYING = f"""
import os, sys
sys.path.insert(0, {SOURCE!r})
from serai.boxes.programs.launcher import Log
log = Log()
child = os.fork()
if child == 0:
    for _ in range(3):
        rest = memoryview(b"x" * (1 << 20))
        while rest:
            rest = rest[os.write(2, rest):]
    os._exit(0)
log.take_over()
while log.copy():
    pass
os.waitpid(child, 0)
os.write(2, b"the end")
"""


def test_a_log_has_a_limit_over_all_lives_of_its_box(tmp_path: Path) -> None:
    sizes = []
    for _ in range(2):
        with (tmp_path / "log").open("ab") as file:
            assert subprocess.run([sys.executable, "-I", "-S", "-c", SAYING], stderr=file, check=False).returncode == 0
        sizes.append((tmp_path / "log").stat().st_size)
    text = (tmp_path / "log").read_text()
    assert LIMIT < sizes[0] < LIMIT + 200
    assert sizes[1] == sizes[0] + len("the end")
    assert text.count("the log is full") == 1
    assert text.endswith("the endthe end")


@all_ways
@pytest.mark.needs("root")
def test_a_box_server_cannot_fill_the_disk_with_its_log(launch: BoxLauncher, way: Way) -> None:
    box = launch(way)
    assert os.readlink(f"/proc/{box.pid}/fd/2").startswith("pipe:")
    with open(f"/proc/{box.pid}/fd/2", "wb", buffering=0) as said:
        said.write(b"hello\n")
        wait_until(lambda: Path(box.log).read_text() == "hello\n")
        said.writelines([b"x" * 65536] * 40)
    assert box.sh("echo hello").stdout == "hello\n"
    box.end()
    assert LIMIT < os.path.getsize(box.log) < LIMIT + 200


@pytest.mark.req("hooks.box.next-start")
def test_what_a_box_left_for_the_loader_of_programs_is_not_loaded_into_its_next_box_server(launch: BoxLauncher) -> None:
    """Bubblewrap's box server is a Python that runs in the box; others are forked."""
    way = Way("bwrap", False)
    folder = launch.folder(way)
    first = launch(way, folder=folder)
    links = [name for name in ("lib", "lib64") if os.path.islink(f"/{name}")]
    program = "import os, sys; [(os.unlink(n), os.mkdir(n), os.mkdir(n + '/bad')) for n in sys.argv[1:]]"
    assert first.python(program, *(f"/{name}" for name in links)).code == 0
    first.end()
    preload = Path(folder, "root", "etc", "ld.so.preload")
    preload.unlink()
    preload.write_text("/workspace/bad.so\n")  # not there: the loader complains
    again = launch(way, folder=folder)
    assert again.told.get("ready"), Path(again.log).read_text()
    assert again.sh("cat /etc/ld.so.preload").all == ""
    for name in links:
        assert again.sh(f"readlink /{name}; ls /{name}.moved-1").stdout.split() == [os.readlink(f"/{name}"), "bad"]
    again.end()
    assert "ld.so" not in Path(again.log).read_text()
