"""What would never come to an end, and what is left of an app whose loop ends first."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from serai.app.app import App
from serai.errors import SeraiError
from serai.model.actions import Action, Display
from serai.model.tools import ToolCall, ToolResult
from tests.agents.resident.parts import Answers, call, said
from tests.app.houses import Helper, Person, bring, opened
from tests.app.test_nesting import PROMPTLY, Worker

pytestmark = pytest.mark.loops

Monkey = pytest.MonkeyPatch


LEAVES = """\
import asyncio, os, select, sys
from pathlib import Path
from tests.app.houses import unopened
from tests.host.guests import make, pid_of

place = Path(sys.argv[1])

async def leave():
    app = unopened(place, make(place, "remember()", name="guest"))
    await app.open()
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    closing.cancel()
    return pid_of(app.host, "guest")

pid = asyncio.run(leave())
try:  # a killed process needs a moment; one that was not killed is there for as long as we are
    ended = select.select([os.pidfd_open(pid)], [], [], 15)[0]
    print("gone" if ended else "there", flush=True)
except ProcessLookupError:
    print("gone", flush=True)
os._exit(0)
"""


@pytest.mark.req("app.close.nothing-left")
def test_an_app_whose_loop_ends_while_it_closes_leaves_no_guest(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LEAVES, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "gone\n"


class Waits(Helper):
    """Its command waits until nothing runs."""

    app: App | None = None

    async def run_command(self, name: str, args: str) -> Action:
        assert self.app is not None
        await self.app.runtime.services.ask("fake:helper", "control", "wait_idle", {})
        return Display("waited")


@pytest.mark.req("app.services.bounded")
async def test_a_queued_command_that_waits_until_nothing_runs_does_not_wait_for_itself(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Waits(commands={"go": Display}), Person()
    bring(monkeypatch, tmp_path, guest)
    async with opened(tmp_path, surface=person) as app, asyncio.timeout(PROMPTLY):
        guest.app = app
        app.queue("/go")
        await app.idle()


@pytest.mark.req("app.services.bounded")
async def test_a_model_that_never_stops_to_delegate_comes_to_an_end(monkeypatch: Monkey, tmp_path: Path) -> None:
    async def delegate(_call: ToolCall) -> ToolResult:
        try:
            return ToolResult.of(str(await guest.ask("chat", "run", task="go on", tools="all")))
        except SeraiError as error:
            return ToolResult.error(str(error))

    guest, model = Worker(delegate=delegate), Answers([said("", call("delegate"))])
    bring(monkeypatch, tmp_path, guest)
    async with opened(tmp_path, answers=model) as app:
        guest.takes_model(app, model)
        try:
            async with asyncio.timeout(PROMPTLY):
                with pytest.raises(SeraiError):
                    await app.submit("go")
        except TimeoutError:
            pytest.fail(f"no end after {len(model.requests)} calls of the model")
