"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.policy import DecisionStore
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, shell

__all__ = ["shell"]


@pytest.fixture
def in_process_shell(tmp_path: Path) -> InProcessShell:
    """The command in this process: nothing here is started."""
    return InProcessShell(tmp_path)


@pytest.fixture
def store(shell: Shell) -> Iterator[DecisionStore]:
    """What this process, which is alive, has asked."""
    decisions = DecisionStore.usual({"SERAI_HOME": str(shell.home)})
    yield decisions
    decisions.close()
