"""Fixtures of boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes.houses import Harness
from tests.support import needs


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    needs.require("namespaces")
    harness = Harness(tmp_path)
    yield harness
    asyncio.run(harness.clear())
