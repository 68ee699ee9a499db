"""Both ends of a wire."""

from __future__ import annotations

import pytest

from serai.dialects.claude.ours import Ours
from serai.dialects.claude.theirs import Theirs


@pytest.fixture
def ours() -> Ours:
    return Ours()


@pytest.fixture
def theirs() -> Theirs:
    return Theirs()
