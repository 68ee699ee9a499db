from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sdk.talk import Talk


@pytest.fixture
def talk() -> Iterator[Talk]:
    """An extension that the test fills and starts."""
    talk = Talk()
    yield talk
    talk.close()
