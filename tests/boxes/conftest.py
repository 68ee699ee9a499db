"""Fixtures of boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes.houses import House
from tests.support import needs


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    needs.require("namespaces")
    house = House(tmp_path)
    yield house
    asyncio.run(house.clear())
