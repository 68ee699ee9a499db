"""`serai run` with a piglet guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.guests import Shell
from tests.cli.runs import run
from tests.piglet.wires import came, params
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import ask, note


@pytest.mark.req("piglet.fix.17")
def test_a_one_shot_run_ends_when_its_last_event_was_answered(tmp_path: Path) -> None:
    done, journal = tmp_path / "done", tmp_path / "journal"
    slowly = [ask("host/lastAssistantText"), ask("host/extensionsDir"), note(done)]
    folder = write(tmp_path, "meter", handlers={"last": offer(slowly, events=["EventAgentEnd"])}, journal=journal)
    ran = run(Shell(tmp_path), "--guest", folder, "hello")
    assert (ran.returncode, ran.stdout) == (0, "You said: hello\n")
    assert done.exists()
    assert [one["type"] for one in params(journal, "event/dispatch")] == ["EventAgentEnd"]
    assert came(journal)[-1]["method"] == "shutdown"
