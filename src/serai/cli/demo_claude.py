"""The act of `serai demo` in which the guard of the acts before stands over Claude Code: the real one, or one that plays a script.

The real program is started where it is installed, with a home of the story's own and a model on loopback: nothing leaves the
machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.drivers.claude.program import ProgramFile, find_program
from serai.app.app import App
from serai.cli.demo_guests import LIMITS, Teller, examples
from serai.cli.printing import glance
from serai.errors import SeraiError
from serai.model.approvals import Approval, Decision, Question
from serai.model.tools import ToolCall, ToolResult

if TYPE_CHECKING:
    from serai.cli.demo import Stage

__all__ = ["claude"]

GUARD = ("zot", "guard-python")
MODEL = "claude-sonnet-4-5"
PROMPTS = {
    "Tidy up.": "rm -rf build",
    "Everybody may run deploy.sh.": "chmod 777 deploy.sh; stat -c 'it has mode %a' deploy.sh",
}
# It is to look for nothing elsewhere, and to leave nothing behind.
QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY")


class Played(NamedTuple):
    """Who plays the part."""

    about: str
    program: str
    environ: Mapping[str, str]


class Over(Teller):
    """Tells what the guard makes of the agent's own calls, which it runs itself."""

    speaker = "claude"

    async def ask(self, request: Approval | Question) -> Decision:
        if isinstance(request, Approval) and request.call.arguments != self.wanted[request.call.id].arguments:
            self.stage.say(self.judge("zot"), f"rewrites it; what would run is {glance(request.call)}", fg="yellow")
        return await super().ask(request)

    def started(self, call: ToolCall) -> None:
        """It tells that of what was blocked, too."""

    def ended(self, call: ToolCall, result: ToolResult) -> None:  # noqa: ARG002
        if result.is_error:
            why = result.text.removeprefix("PreToolUse:Bash hook error: ")  # the real one says where it was stopped
            self.stage.say(self.judge("zot"), f"blocks it: {why}", fg="red")
        else:
            self.stage.say(self.speaker, result.text, fg="green")


async def claude(stage: Stage) -> None:
    stage.begin("claude", "The same guard over Claude Code")
    (stage.project / "deploy.sh").touch()
    installed = await _installed(stage)
    playing: AbstractAsyncContextManager[Played] = _scripted(stage) if installed is None else _real(stage, installed)
    async with playing as played:
        stage.say("claude", played.about)
        try:
            await _guarded(stage, played)
        except SeraiError as error:  # a program of somebody else's, of whatever version
            stage.say("claude", f"it does not work here: {error}", fg="yellow")


async def _guarded(stage: Stage, played: Played) -> None:
    teller = Over(stage)
    async with _app(stage, teller, played) as app:
        teller.enter(app)
        for prompt, command in PROMPTS.items():
            await teller.submit(f"{prompt}\n>> call Bash {json.dumps({'command': command})}\n>> say .")


def _app(stage: Stage, surface: Teller, played: Played) -> App:
    options: dict[str, Any] = {"path": played.program}
    return App(
        cwd=stage.project, agent="claude", model=MODEL, guests=[examples(GUARD[0]) / GUARD[1]], installed=False, keep=False,
        surface=surface, record=stage.recorder, environ=played.environ, limits=LIMITS, options=options,
    )  # fmt: skip


async def _installed(stage: Stage) -> ProgramFile | None:
    """The real one, where it is and can be played with: the model that it would ask needs an extra."""
    try:
        import h11  # noqa: F401  (the fake models use it)
    except ImportError:
        return None
    try:
        return await find_program(ClaudeOptions(), {**os.environ, "SERAI_HOME": stage.environ["SERAI_HOME"]}, probe=True)
    except SeraiError:
        return None


@asynccontextmanager
async def _real(stage: Stage, program: ProgramFile) -> AsyncIterator[Played]:
    from serai.testing.models.server import FakeModels

    home, temporary = stage.place / "claude", stage.place / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    async with FakeModels() as models:
        own = {"HOME": str(home), "TMPDIR": str(temporary), "CLAUDE_CODE_MAX_RETRIES": "0", **dict.fromkeys(QUIET, "1")}
        about = f"is Claude Code {program.version} of this machine; its model is one of ours, which does what a script says"
        yield Played(about, program.path, {**stage.environ, **own, **models.env()})


@asynccontextmanager
async def _scripted(stage: Stage) -> AsyncIterator[Played]:
    from serai.testing.claude.script import Script, ScriptedClaude

    script = Script().init()
    for number, command in enumerate(PROMPTS.values()):
        if number:
            script.prompt().init()
        script.calls(f"t{number}", command=command).result(".")
    stand_in = ScriptedClaude(stage.place / "stand-in", script)
    about = "is a stand-in that plays a script and asks as Claude Code does, which is not installed here"
    yield Played(about, str(stand_in.path), stage.environ)
