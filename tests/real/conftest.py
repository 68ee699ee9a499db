from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real import install
from tests.real.house import Real, harness


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives a real program: `make test-agents` asks for it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real_agents)


@pytest.fixture(scope="session")
def program() -> Path:
    path = install.installed()
    if path is None:
        pytest.skip("the real Claude Code is not there: `make test-agents` installs it")
    return path


@pytest.fixture
async def real(program: Path, tmp_path: Path) -> AsyncIterator[Real]:
    async with harness(program, tmp_path) as made:
        yield made
        assert not await made.leftovers()
