from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real import install
from tests.support.claude.real_claude import Real, open_harness


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives a real program: `make test-agents` asks for it."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.real_agents)


@pytest.fixture(scope="session")
def program() -> Path:
    path = install.find_installed()
    if path is None:
        pytest.skip("the real Claude Code is not there: `make test-agents` installs it")
    return path


@pytest.fixture
async def real(program: Path, tmp_path: Path) -> AsyncIterator[Real]:
    async with open_harness(program, tmp_path) as made:
        yield made
        assert not await made.leftovers()
