"""What runc takes for the same: `python -m bench.workers.runc TIMES`.

A bundle on the machine's /usr, `run` to the exit of `true`, and `exec` of `true` in one that runs. Prints a JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

EXECS = 10


def bundle(folder: Path, *args: str) -> None:
    """A bundle like a box without a base tree: /usr read-only, no network, no terminal."""
    folder.mkdir()
    subprocess.run(["runc", "spec"], cwd=folder, check=True)
    spec = json.loads((folder / "config.json").read_text())
    for name in ("bin", "lib", "lib64", "sbin"):
        link = Path("/", name)
        if link.is_symlink():
            (folder / "rootfs").mkdir(exist_ok=True)
            (folder / "rootfs" / name).symlink_to(link.readlink())
    spec["process"] |= {"terminal": False, "args": list(args), "rlimits": []}
    spec["mounts"].append({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]})
    (folder / "config.json").write_text(json.dumps(spec))


def quietly(*command: str) -> None:
    """Not captured: what stays would hold the pipe."""
    null = subprocess.DEVNULL
    subprocess.run(command, check=True, stdin=null, stdout=null, stderr=null)


def timed(*command: str) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (perf_counter() - start) * 1e3


def main(times: int) -> dict[str, float]:
    with TemporaryDirectory() as place:
        folder = Path(place)
        bundle(folder / "once", "/bin/true")
        bundle(folder / "stays", "/bin/sleep", "300")
        once = [timed("runc", "run", "-b", str(folder / "once"), f"serai-bench-{number}") for number in range(times)]
        quietly("runc", "run", "-d", "-b", str(folder / "stays"), "serai-bench-stays")
        try:
            execs = [timed("runc", "exec", "serai-bench-stays", "/bin/true") for _ in range(EXECS)]
        finally:
            start = perf_counter()
            quietly("runc", "delete", "-f", "serai-bench-stays")
            ended = (perf_counter() - start) * 1e3
    return {"first_ms": median(once), "exec_ms": median(execs), "destroy_ms": ended}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
