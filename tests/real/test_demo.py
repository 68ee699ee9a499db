"""`serai demo` where the real program is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.req("app.demo.claude")
def test_the_demo_has_the_guard_stop_and_rewrite_commands_of_the_real_program(program: Path, tmp_path: Path) -> None:
    for name in ("home", "t"):
        (tmp_path / name).mkdir()
    own = {"HOME": str(tmp_path / "home"), "SERAI_HOME": str(tmp_path / "home" / "serai"), "TMPDIR": str(tmp_path / "t")}
    env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "CLAUDE_CLI_PATH": str(program), **own}
    ran = subprocess.run(
        [sys.executable, "-m", "serai", "demo"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    told = [line.strip() for line in ran.stdout.splitlines()]
    act = told[told.index("10  The same guard over Claude Code") :]
    assert act[1].startswith("claude   is Claude Code 2.")
    assert act[2:10] == [
        "you      Tidy up.",
        "claude   wants bash rm -rf build",
        "guard    blocks it: bash: rm -rf is not run here; delete files by name",
        "you      Everybody may run deploy.sh.",
        "claude   wants bash chmod 777 deploy.sh; stat -c 'it has mode %a' deploy.sh",
        "guard    rewrites it; what would run is bash chmod 755 deploy.sh; stat -c 'it has mode %a' deploy.sh",
        "person   is asked about bash: yes (a script answers in their place)",
        "claude   it has mode 755",
    ]
    assert "Processes of this story that are left: 0. Its folder is removed, with the recording." in told
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
