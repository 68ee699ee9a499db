"""The built-in tools in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Tools


@pytest.fixture
async def tools(tmp_path: Path, spawner: PlainSpawner) -> Tools:
    return Tools(tmp_path, spawner, QUICK)
