"""Fixtures of boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import needs
from tests.support.boxes.harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    needs.require("namespaces")
    harness = Harness(tmp_path)
    yield harness
    asyncio.run(harness.clear())
