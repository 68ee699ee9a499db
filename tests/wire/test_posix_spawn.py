"""The C library's spawn: descriptors that collide, and parents that have lost their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In an interpreter of its own, where 3 and 4 are free: its pipe ends land on them, and placing one naively overwrites the other.
COLLISION = """
import os, sys
os.closerange(3, 50)
from serai.wire.posix_spawn import posix_spawn
os.closerange(3, 50)
read, write = os.pipe()
assert (read, write) == (3, 4)
through = "import os; os.write({write}, b'through'); assert os.read({read}, 7) == b'through'"
for mapping in ({"read": 3, "write": 4}, {"read": 4, "write": 3}):
    descriptors = {0: 0, 1: 1, 2: 2, mapping["read"]: read, mapping["write"]: write}
    argv = [sys.executable, "-I", "-S", "-c", through.format(**mapping)]
    pid = posix_spawn(sys.executable, argv, {}, None, descriptors)
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
from serai.wire.posix_spawn import posix_spawn
answer = os.dup(1)
os.closerange(0, 3)
read, write = os.pipe()
assert (read, write) == (0, 1)
program = "import os; os.write(1, os.read(0, 3)); os.write(2, b'x')"
null = os.open("/dev/null", os.O_RDWR)
os.write(write, b"yes")
pid = posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", program], {}, None, {0: read, 1: answer, 2: null})
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.req("wire.process.descriptors")
def test_a_parent_without_standard_streams_can_start_children() -> None:
    ran = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=20, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "yes", "")
