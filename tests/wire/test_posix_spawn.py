"""The C library's spawn: descriptors that collide, and parents that have lost their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from serai.wire import posix_spawn as module

# In an interpreter of its own, where 3 and 4 are free: its pipe ends land on them, and placing one naively overwrites the other.
COLLISION = """
import os, sys
os.closerange(3, 50)
from serai.wire.posix_spawn import posix_spawn, c_strings
os.closerange(3, 50)
read, write = os.pipe()
assert (read, write) == (3, 4)
through = "import os; os.write({write}, b'through'); assert os.read({read}, 7) == b'through'"
for mapping in ({"read": 3, "write": 4}, {"read": 4, "write": 3}):
    descriptors = {0: 0, 1: 1, 2: 2, mapping["read"]: read, mapping["write"]: write}
    argv = [sys.executable, "-I", "-S", "-c", through.format(**mapping)]
    pid = posix_spawn(sys.executable, c_strings(argv), c_strings([]), None, descriptors)
    assert os.waitpid(pid, 0)[1] == 0, mapping
print("both ways")
"""


@pytest.mark.req("wire.process.descriptors")
def test_extra_descriptors_survive_a_parent_whose_own_ends_have_those_numbers() -> None:
    ran = subprocess.run([sys.executable, "-c", COLLISION], capture_output=True, text=True, timeout=20, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "both ways\n", "")


# A parent without standard streams: its pipe ends land on 0, 1 and 2.
BARE = """
import os, sys
from serai.wire.posix_spawn import posix_spawn, c_strings
answer = os.dup(1)
os.closerange(0, 3)
read, write = os.pipe()
assert (read, write) == (0, 1)
program = "import os; os.write(1, os.read(0, 3)); os.write(2, b'x')"
null = os.open("/dev/null", os.O_RDWR)
os.write(write, b"yes")
argv = c_strings([sys.executable, "-I", "-S", "-c", program])
pid = posix_spawn(sys.executable, argv, c_strings([]), None, {0: read, 1: answer, 2: null})
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.req("wire.process.descriptors")
def test_a_parent_without_standard_streams_can_start_children() -> None:
    ran = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=20, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "yes", "")


@pytest.mark.req("wire.process.descriptors")
@pytest.mark.parametrize("closefrom", [True, False])
def test_what_others_left_open_is_closed_in_the_child_whatever_the_c_library_can(
    monkeypatch: pytest.MonkeyPatch, closefrom: bool
) -> None:
    if not closefrom:  # before glibc 2.34
        monkeypatch.setattr(module, "_has_closefrom", lambda: False)
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    strays = [os.dup(null) for _ in range(3)]
    for stray in strays:
        os.set_inheritable(stray, True)
    try:
        argv = [sys.executable, "-I", "-S", "-c", "import os; print(*os.listdir('/proc/self/fd'), flush=True)"]
        pid = module.posix_spawn(sys.executable, module.c_strings(argv), module.c_strings([]), None, {0: null, 1: write, 2: null})
        os.waitpid(pid, 0)
        shown = os.read(read, 1000).split()
    finally:
        for descriptor in (read, write, null, *strays):
            os.close(descriptor)
    assert sorted(map(int, shown)) == [0, 1, 2, 3]  # the listing's own is the last
