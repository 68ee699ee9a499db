"""Fixtures of boxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boxes.houses import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
