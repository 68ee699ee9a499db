"""Both ends of a wire."""

from __future__ import annotations

import pytest

from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.peer_side import PeerSide


@pytest.fixture
def ours() -> HostSide:
    return HostSide()


@pytest.fixture
def theirs() -> PeerSide:
    return PeerSide()
