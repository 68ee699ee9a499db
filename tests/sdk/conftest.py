from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sdk.pipe_host import Talk


@pytest.fixture
def talk() -> Iterator[Talk]:
    """An extension that the test fills and starts."""
    talk = Talk()
    yield talk
    talk.close()
