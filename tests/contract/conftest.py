"""One program for all contract tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.program import Program


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    with Program() as program:
        yield program
