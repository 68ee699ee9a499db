"""How long a command takes from start to end, in an empty home and an empty project: `python -m bench.workers.app_run COMMAND…`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.workers import startup

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        os.chdir(project)
        os.environ["HOME"], os.environ["SERAI_HOME"] = folder, f"{folder}/home"
        print(json.dumps(startup.main(sys.argv[1:])))
        os.chdir("/")
