"""The small print of `serai run`: who ended it, what was on the way when it did, and what a program is told."""

from __future__ import annotations

import io
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.cli.options import ExitCode, GuestOptions
from serai.cli.run import RunArguments, RunOutcome, RunStop, _run_app
from serai.cli.run_output import JsonPrinter
from serai.model.actions import Quit
from serai.model.contributions import Contributions, EventHandler
from serai.model.events import Event, TurnStarted
from serai.record import RecordingFolder
from tests.support.app.apps import Helper, bring
from tests.support.cli.run_process import Run, read_result, run, write_prompt
from tests.support.cli.shell import Shell

NOTHING: dict[str, Any] = {
    **dict.fromkeys(("agent", "session"), ""),
    **dict.fromkeys(("policies", "allow"), ()),
    **dict.fromkeys(("mode", "max_turns", "timeout"), None),
    "latest": False,
    "model": "parrot",
}


class Quitter(Helper):
    """Ends the run as soon as a turn has begun."""

    def __init__(self) -> None:
        super().__init__(offers=Contributions(event_handlers=(EventHandler("all"),)))

    def tell(self, event: Event) -> None:
        if isinstance(event, TurnStarted):
            self.wants(Quit())


async def run_prompt(tmp_path: Path, prompt: str) -> RunOutcome:
    """A run in this process."""
    wanted = RunArguments(options=GuestOptions(tmp_path, installed=False), prompt=prompt, images=(), given=NOTHING)
    return await _run_app(wanted, JsonPrinter(io.StringIO()), RunStop())


@pytest.mark.req("app.run.status")
async def test_a_turn_that_a_guest_has_ended_is_not_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SERAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("serai.cli.line_surface.Terminal.open", lambda: None)  # whoever sits there is nobody's to ask
    bring(monkeypatch, tmp_path, Quitter())
    outcome = await run_prompt(tmp_path, write_prompt("wait 600"))
    assert (outcome.result.status, outcome.result.error) == ("cancelled", "a guest ended the run")
    assert outcome.status is ExitCode.ERROR


@pytest.mark.req("app.run.interrupt")
async def test_a_signal_that_came_while_the_app_was_opened_ends_it(tmp_path: Path) -> None:
    ending, app = RunStop(), App()
    ending.request_end("interrupted", ExitCode(130))
    assert not app.quitting.is_set()
    ending.watch(app)
    assert app.quitting.is_set()


@pytest.mark.req("app.run.interrupt")
def test_what_is_not_yet_on_record_is_written_before_the_second_signal_ends_everything(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\nrecord_batch = 600\n")
    prompt = write_prompt("call bash " + '{"command":"trap \\"\\" TERM INT; echo begun; while :; do sleep 1; done"}')
    with Run(shell, "--model", "parrot", "--json", "--allow", "bash", prompt) as going:
        going.until(r'"text":"begun\n')
        assert going.insist(signal.SIGINT) == -signal.SIGINT
    [recording] = RecordingFolder(shell.home / "recordings").list_runs()
    assert b" with resident" in b"".join(file.read_bytes() for file in recording.files)


@pytest.mark.req("app.run.json")
def test_a_program_is_told_what_would_help(shell: Shell) -> None:
    ran = run(shell, "--json", "--session", "nobodys", "hi")
    told = read_result(ran)
    assert (ran.returncode, told["status"], told["session"]) == (1, "error", "")
    assert told["hint"]
    assert told["hint"] in ran.stderr
    assert "hint" not in read_result(run(shell, "--json", "hi"))
