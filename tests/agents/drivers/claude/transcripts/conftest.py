from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.claude.transcripts import TranscriptFolder


@pytest.fixture
def home(tmp_path: Path) -> TranscriptFolder:
    return TranscriptFolder(tmp_path)
