"""The parts of `serai demo` that run an app: a conversation with the resident, guests in two dialects, rules and a person.

In the last one the guard of the parts before stands over Claude Code: the real one, or one that plays a script. The real program
is started where it is installed, with a home of the demo's own and a model on loopback: nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from serai.agents.drivers.claude.installation import ProgramFile, find_claude
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.models.parrot import strip_script
from serai.app.app import App
from serai.app.assembly import LATEST
from serai.authoring.scaffold import find_typescript_command
from serai.cli.run_output import summarize_call
from serai.errors import GuardDown, SeraiError
from serai.host.contribution_table import BuiltInOwner
from serai.host.guest import Guest, GuestState
from serai.model.actions import Action, Notice
from serai.model.approvals import Allow, Approval, Decision, Question
from serai.model.events import Event, Message, StepStarted, ToolCalled, ToolEnded, ToolStarted, TurnStarted
from serai.model.surface import ScriptedSurface
from serai.model.tools import ToolCall, ToolResult
from serai.paths import examples_folder

if TYPE_CHECKING:
    from serai.cli.demo import DemoContext

GUESTS = (("zot", "weather-python"), ("zot", "guard-python"), ("piglet", "by-hand"))
TYPESCRIPT = ("piglet", "typescript")  # where something runs it
LIMITS = {"restart_wait": 0.3, "stop_polite": 1.0}
RULES = """
rule = [
  { id = "weather", decide = "allow", tool = "weather", because = "the weather is no secret" },
  { id = "sea", decide = "allow", tool = ["tide", "define"], because = "every sailor may know it" },
]
"""


class DemoSurface(ScriptedSurface):
    """Stands for the person, and tells what becomes of what they type."""

    app: App  # since it was entered
    speaker = "parrot"

    def __init__(self, context: DemoContext) -> None:
        super().__init__([Allow()])
        self.context = context
        self._typed = ""
        self.wanted: dict[str, ToolCall] = {}  # by this prompt, as the model said it
        self._approved: set[str] = set()
        self._running: set[str] = set()

    def attach(self, app: App) -> None:
        self.app = app
        self.context.tags.append(app.runtime.spawner.tag)

    async def submit(self, text: str) -> None:
        self._typed = strip_script(text)
        self.wanted.clear()
        self._approved.clear()
        self._running.clear()
        self.context.say("you", self._typed, fg="cyan")
        try:
            await self.app.submit(text)
        except GuardDown as error:
            self.context.say("serai", f"refused: {error}", fg="red")

    async def ask(self, request: Approval | Question) -> Decision:
        decision = await super().ask(request)
        if isinstance(request, Approval) and isinstance(decision, Allow):
            self._approved.add(request.call.id)
        said = "yes" if isinstance(decision, Allow) else "no"
        self.context.say("person", f"is asked about {request.tool}: {said} (a script answers in their place)", fg="yellow")
        return decision

    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Notice) and action.level != "info":
            self.context.say("serai", action.text, fg="yellow")

    def tell(self, event: Event) -> None:
        super().tell(event)
        match event:
            case TurnStarted(prompt=prompt) if strip_script(prompt) != self._typed:
                self.context.say("prompt", prompt)
            case ToolCalled(call=call):
                self.wanted[call.id] = call
                self.context.say(self.speaker, f"wants {summarize_call(call)}")
            case ToolStarted(call=call):
                self.show_start(call)
            case ToolEnded(call=call, result=result):
                self.show_end(call, result)
            case Message(text=text) if text and not self.wanted:  # else it only repeats what the tools said
                self.context.say(self.speaker, text)

    def show_start(self, call: ToolCall) -> None:
        """With which arguments, and who let it."""
        self._running.add(call.id)
        if call.arguments != self.wanted[call.id].arguments:
            self.context.say(self.find_judge("zot"), f"rewrites it; what runs is {summarize_call(call)}", fg="yellow")
        if call.id not in self._approved:
            owner = self.app.host.table.tools[call.name].owner
            judged = self.app.runtime.policy.judge(call, self.app.situation("" if isinstance(owner, BuiltInOwner) else owner.id))
            self.context.say("policy", f"{judged.decision}: {judged.why}")

    def show_end(self, call: ToolCall, result: ToolResult) -> None:
        if call.id not in self._running:  # what piglet blocks is no error to the model (spec piglet 5.3)
            judge = self.find_judge("zot" if result.is_error else "piglet")
            self.context.say(judge, f"blocks it: {result.text.removeprefix('[error:BLOCKED] ')}", fg="red")
        else:
            owner = self.app.host.table.tools[call.name].owner
            who = "serai" if isinstance(owner, BuiltInOwner) else owner.id.partition(":")[2]
            self.context.say(who, result.text, fg="red" if result.is_error else "green")

    def find_judge(self, dialect: str) -> str:
        """The one guest of this dialect that is asked before a call."""
        [name] = [guest.manifest.name for guest, _ in self.app.host.table.chains["tool_call"] if guest.manifest.dialect == dialect]
        return name

    def count_steps(self) -> int:
        """How often the model was asked so far."""
        return sum(isinstance(event, StepStarted) for event in self.events)


async def play_guests(context: DemoContext) -> None:
    (context.place / "rules.toml").write_text(RULES)
    (context.project / "build").mkdir()
    surface = DemoSurface(context)
    context.guests = [
        examples_folder(kind) / name for kind, name in (*GUESTS, *([TYPESCRIPT] if await _runs_typescript(context) else []))
    ]
    async with _build_app(context, surface) as app:
        surface.attach(app)
        for row in app.host.report.guests:
            offers = (*row.tools, *(f"/{name}" for name in row.commands), *(f"guards {one}" for one in row.intercepts))
            context.say(row.id.partition(":")[2], f"is {row.state} after {row.seconds * 1000:.0f} ms: {', '.join(offers)}")
        for act in (
            _play_allowed,
            _play_asked,
            _play_blocked,
            _play_rewritten,
            _play_neighbours,
            _play_command,
            _play_killed,
            _play_remember,
        ):
            await act(context, surface)
    async with _build_app(context, surface, session=LATEST) as app:
        surface.attach(app)
        await _play_recall(context, surface)


def _build_app(context: DemoContext, surface: DemoSurface, session: str = "") -> App:
    return App(
        cwd=context.project, model="parrot", guests=context.guests, installed=False, session=session,
        policy=context.place / "rules.toml", surface=surface, record=context.recorder, environ=context.environ, limits=LIMITS,
    )  # fmt: skip


async def _play_allowed(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("allowed", "A rule allows it")
    await surface.submit('What is the weather in Bern?\n>> call weather {"city": "Bern"}')


async def _play_asked(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("asked", "No rule knows it: a person is asked")
    await surface.submit('Write that down.\n>> call write {"path": "weather.txt", "content": "Bern: fog"}')


async def _play_blocked(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("blocked", "The guard blocks it")
    await surface.submit('Tidy up.\n>> call bash {"command": "rm -rf build"}')
    context.say("machine", f"in the project there are {', '.join(sorted(os.listdir(context.project)))}")


async def _play_rewritten(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("rewritten", "The guard rewrites it, and the rules judge what it made of it")
    await surface.submit('And in Paris?\n>> call weather {"city": "Paris"}')


async def _play_neighbours(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("neighbours", "One house, several tongues: a piglet guest and a zot guest judge each other's tools")
    await surface.submit('Is it fine in Atlantis?\n>> call weather {"city": "Atlantis"}')
    await surface.submit('How is the tide?\n>> call tide {"harbour": "rm -rf /"}')
    await surface.submit('I mean in Bergen.\n>> call tide {"harbour": "Bergen"}')
    if "define" in surface.app.host.table.tools:
        await surface.submit('What is NDJSON?\n>> call define {"term": "NDJSON"}')


async def _runs_typescript(context: DemoContext) -> bool:
    """Whether a `node` is there that does so as it is."""
    return await find_typescript_command(context.environ) == "node"


async def _play_command(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("command", "A guest's command writes a prompt")
    await surface.submit("/forecast Oslo")


async def _play_killed(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("killed", "The guard is killed: nothing gets past it")
    guard = surface.app.host.guest("guard")
    assert guard.running is not None
    os.kill(guard.running.pid, signal.SIGKILL)
    since, steps = time.monotonic(), surface.count_steps()
    context.say("machine", f"SIGKILL to process {guard.running.pid}")
    await _wait_until(guard, lambda: guard.state is not GuestState.READY)
    await surface.submit("What is the weather in Rome?")
    context.say("parrot", f"was asked {surface.count_steps() - steps} times")
    await _wait_until(guard, lambda: guard.state is GuestState.READY)
    context.say(
        "guard", f"is {guard.state} again after {time.monotonic() - since:.1f} s, as process {guard.running.pid}", fg="green"
    )


async def _play_remember(context: DemoContext, surface: DemoSurface) -> None:
    context.begin("continued", "The conversation goes on, also in another run")
    await surface.submit("Remember a word: caravan.\n>> say The word is caravan.\n>> loop")


async def _play_recall(context: DemoContext, surface: DemoSurface) -> None:
    messages = len(surface.app.resident.conversation.messages)
    context.say("serai", f"a new run goes on with session {surface.app.session.id[:8]} and its {messages} messages")
    await surface.submit("What was the word?")  # without a script: what he answers he has from before


async def _wait_until(guard: Guest, met: Callable[[], bool]) -> None:
    for _ in range(int(100 * (guard.limits.hello + guard.limits.ready))):
        if met():
            return
        await asyncio.sleep(0.01)
    raise GuardDown(guard.explain_down(), who=guard.id)


GUARD = ("zot", "guard-python")
MODEL = "claude-sonnet-4-5"
PROMPTS = {
    "Tidy up.": "rm -rf build",
    "Everybody may run deploy.sh.": "chmod 777 deploy.sh; stat -c 'it has mode %a' deploy.sh",
}
# It is to look for nothing elsewhere, and to leave nothing behind.
QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY")


class DemoAgent(NamedTuple):
    """Who plays the part."""

    about: str
    program: str
    environ: Mapping[str, str]


class DrivenDemoSurface(DemoSurface):
    """Tells what the guard makes of the agent's own calls, which it runs itself."""

    speaker = "claude"

    async def ask(self, request: Approval | Question) -> Decision:
        if isinstance(request, Approval) and request.call.arguments != self.wanted[request.call.id].arguments:
            self.context.say(self.find_judge("zot"), f"rewrites it; what would run is {summarize_call(request.call)}", fg="yellow")
        return await super().ask(request)

    def show_start(self, call: ToolCall) -> None:
        """It tells that of what was blocked, too."""

    def show_end(self, call: ToolCall, result: ToolResult) -> None:  # noqa: ARG002
        if result.is_error:
            why = result.text.removeprefix("PreToolUse:Bash hook error: ")  # the real one says where it was stopped
            self.context.say(self.find_judge("zot"), f"blocks it: {why}", fg="red")
        else:
            self.context.say(self.speaker, result.text, fg="green")


async def play_claude(context: DemoContext) -> None:
    context.begin("claude", "The same guard over Claude Code")
    (context.project / "deploy.sh").touch()
    installed = await _find_claude(context)
    playing: AbstractAsyncContextManager[DemoAgent] = _scripted(context) if installed is None else _real(context, installed)
    async with playing as played:
        context.say("claude", played.about)
        try:
            await _play_guarded(context, played)
        except SeraiError as error:  # a program of somebody else's, of whatever version
            context.say("claude", f"it does not work here: {error}", fg="yellow")


async def _play_guarded(context: DemoContext, played: DemoAgent) -> None:
    surface = DrivenDemoSurface(context)
    async with _build_driven_app(context, surface, played) as app:
        surface.attach(app)
        for prompt, command in PROMPTS.items():
            await surface.submit(f"{prompt}\n>> call Bash {json.dumps({'command': command})}\n>> say .")


def _build_driven_app(context: DemoContext, surface: DemoSurface, played: DemoAgent) -> App:
    options: dict[str, Any] = {"path": played.program}
    return App(
        cwd=context.project, agent="claude", model=MODEL, guests=[examples_folder(GUARD[0]) / GUARD[1]], installed=False,
        keep=False, surface=surface, record=context.recorder, environ=played.environ, limits=LIMITS, options=options,
    )  # fmt: skip


async def _find_claude(context: DemoContext) -> ProgramFile | None:
    """The real one, where it is and can be played with: the model that it would ask needs an extra."""
    try:
        import h11  # noqa: F401  (the fake models use it)
    except ImportError:
        return None
    try:
        return await find_claude(ClaudeOptions(), {**os.environ, "SERAI_HOME": context.environ["SERAI_HOME"]}, probe=True)
    except SeraiError:
        return None


@asynccontextmanager
async def _real(context: DemoContext, program: ProgramFile) -> AsyncIterator[DemoAgent]:
    from serai.testing.models.server import FakeModels

    home, temporary = context.place / "claude", context.place / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    async with FakeModels() as models:
        own = {"HOME": str(home), "TMPDIR": str(temporary), "CLAUDE_CODE_MAX_RETRIES": "0", **dict.fromkeys(QUIET, "1")}
        about = f"is Claude Code {program.version} of this machine; its model is one of ours, which does what a script says"
        yield DemoAgent(about, program.path, {**context.environ, **own, **models.env()})


@asynccontextmanager
async def _scripted(context: DemoContext) -> AsyncIterator[DemoAgent]:
    from serai.testing.claude.script import Script, ScriptedClaude

    script = Script().init()
    for number, command in enumerate(PROMPTS.values()):
        if number:
            script.prompt().init()
        script.calls(f"t{number}", command=command).result(".")
    stand_in = ScriptedClaude(context.place / "stand-in", script)
    about = "is a stand-in that plays a script and asks as Claude Code does, which is not installed here"
    yield DemoAgent(about, str(stand_in.path), context.environ)
