"""What the tests of the commands for plugins share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import Inside


@pytest.fixture
def shell(tmp_path: Path) -> Inside:
    """The command in this process: nothing here is started."""
    return Inside(tmp_path)
