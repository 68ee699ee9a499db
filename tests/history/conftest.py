from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.helpers import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
