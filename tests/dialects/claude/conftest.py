"""Both ends of a wire."""

from __future__ import annotations

import pytest

from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.peer_side import PeerSide


@pytest.fixture
def host() -> HostSide:
    return HostSide()


@pytest.fixture
def peer() -> PeerSide:
    return PeerSide()
