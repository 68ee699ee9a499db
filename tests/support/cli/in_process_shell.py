"""The command in this process: for tests to which a process of its own adds nothing but the time that it takes to start."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from serai.cli import _format_error
from serai.cli.command_table import serai
from tests.support.cli.shell import Shell

__all__ = ["InProcessShell"]


class InProcessShell(Shell):
    """A shell whose commands run here, with its environment and in its folder. `coloured`: as on a terminal."""

    coloured = False

    def __call__(
        self, *arguments: str | Path, input: str = "", cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        with chdir(cwd or self.cwd), _set_environment(self.env | env):
            ran = CliRunner().invoke(serai, [*map(str, arguments)], input=input, color=self.coloured, prog_name="serai")
        stderr = ran.stderr
        if isinstance(ran.exception, Exception):  # and no SystemExit: then it is for `serai.cli.command_table` to tell
            stderr += _format_error(ran.exception) + "\n"
        return subprocess.CompletedProcess(self.argv(*arguments), ran.exit_code, ran.stdout, stderr)


@contextmanager
def _set_environment(env: Mapping[str, str]) -> Iterator[None]:
    """This and nothing else; the time zone too, at which Python looks only once."""
    try:
        with patch.dict(os.environ, env, clear=True):
            time.tzset()
            yield
    finally:
        time.tzset()
