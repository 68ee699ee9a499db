"""Sessions by project."""

from __future__ import annotations

import json
from pathlib import Path

from serai.agents.drivers.claude.transcripts.reader import Transcripts


def test_a_projects_sessions_are_its_own(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    for name in ("a", "b"):
        place = root / f"-x-{name}"
        place.mkdir(parents=True)
        id = f"00000000-0000-4000-8000-00000000000{1 if name == 'a' else 2}"
        row: dict[str, object] = {
            "type": "user",
            "sessionId": id,
            "cwd": f"/x/{name}",
            "uuid": id,
            "timestamp": "2026-01-01T00:00:00Z",
        }
        row |= {"message": {"role": "user", "content": f"do {name} now please"}}
        (place / f"{id}.jsonl").write_text(json.dumps(row) + "\n")
    transcripts = Transcripts(str(root))
    projects = transcripts.list_projects()
    assert len(projects) == 2
    for project in projects:
        assert [one.project_path for one in transcripts.list_sessions(project)] == [project.path]
