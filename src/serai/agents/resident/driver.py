"""The resident: our own agent loop over a model. It takes its tools from a `ToolBox` and its decisions from a callable.

`BackgroundRuns` runs prompts on the side, with the same model and only the tools that may run unseen (spec piglet 6.7). Such a run
has a conversation of its own; nothing of it is stored or reported as it happens, and its answer is reported at the end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from serai.agents.driver import Capabilities, Driver, Prompt, TurnFailed
from serai.agents.event_hub import EventHub, ignore_outcome
from serai.agents.resident import conversation
from serai.agents.resident.compaction import Compaction, GuestCompaction
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.run import Run, Status
from serai.agents.resident.run_context import RunContext, RunOutput, ToolSet
from serai.errors import Closed, NotAllowed, SeraiError
from serai.model.actions import Notice
from serai.model.events import NoticeEvent, SessionStarted, TurnResult
from serai.model.provider import Model, ModelMessage, ModelProvider
from serai.model.tools import ToolBox

log = logging.getLogger("serai.agents")

_KEY = 20  # code points


def make_key(prompt: str) -> str:
    return prompt if len(prompt) <= _KEY else prompt[:_KEY] + "…"


class BackgroundRuns:
    """What runs on the side, by key. `tools` are the agent's, with its filter."""

    def __init__(self, context: RunContext, tools: ToolSet, tell: Callable[[str], None]) -> None:
        self._context = context
        self._tools = tools
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._outputs: dict[str, RunOutput] = {}
        self.ready = False

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def start(self, prompt: str) -> str:
        """Begin it; its key. A second one of the same key is refused while the first runs."""
        if not self.ready:
            raise NotAllowed("agent not ready", hint="open the session first")
        key = make_key(prompt)
        if key in self._tasks:
            raise NotAllowed(f'background task "{key}" already running', hint="wait for it, or cancel it")
        self._outputs[key] = output = RunOutput()
        self._tasks[key] = task = asyncio.get_running_loop().create_task(self._work(prompt, output), name=f"background {key}")
        task.add_done_callback(lambda _task: (self._tasks.pop(key), self._outputs.pop(key)))  # also when it never began
        return key

    async def result(self, key: str) -> str:
        """What it says at its end; "" when nothing of that key runs."""
        task = self._tasks.get(key)
        return "" if task is None else await asyncio.shield(task)

    async def cancel(self, key: str = "") -> None:
        """That one, or all of them."""
        tasks = [task for name, task in self._tasks.items() if key in ("", name)]
        for name, output in self._outputs.items():
            if key in ("", name):
                output.stop()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._context.limits.interrupt)

    async def wait_idle(self) -> None:
        """Until nothing runs on the side."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        self.ready = False
        await self.cancel()

    async def _work(self, prompt: str, output: RunOutput) -> str:
        tools = ToolSet(self._tools.box, only=self._tools.filter, background=True)
        run = Run(self._context, output, Conversation(), tools, most=self._context.limits.background_steps, ids="background-")
        try:
            run.begin(Prompt(prompt))
            text = (await run.play()).text
        except SeraiError as error:
            text = f"it failed: {error}"
        except Exception as error:
            log.exception("a background run failed")
            text = f"it failed: {type(error).__name__}: {error}"
        said = f"Background task: {prompt}\n\n{text.strip() or '(background task produced no output)'}"
        self._tell(said)
        return said


# Finds the model that a query means, and who streams it.
ModelSwitch = Callable[[str], tuple[Model, ModelProvider]]


class SharedResources:
    """What a resident and its forks share: it is closed by the last of them."""

    def __init__(self, close: Callable[[], Awaitable[None]] | None = None) -> None:
        self._close = close
        self._users = 0

    def acquire(self) -> None:
        self._users += 1

    async def release(self) -> None:
        self._users -= 1
        if self._users == 0 and self._close is not None:
            await self._close()


class Resident(Driver):
    """Drives a model. `context` is what it works with; `before` what was said in the session until now."""

    name = "resident"
    capabilities = Capabilities(
        deltas=True, approvals=True, interrupt=True, multi_turn=True, fork=True, choose_id=True, steer=True, switch_model=True,
        compact=True, background=True, images=True, guards="every-call", rewrite=True,
    )  # fmt: skip

    def __init__(
        self,
        context: RunContext,
        tools: ToolBox,
        *,
        before: Iterable[ModelMessage] = (),
        session_id: str = "",
        switch: ModelSwitch | None = None,
        notice: str = "",
        on_model: Callable[[str], None] = lambda _key: None,
        shared: SharedResources | None = None,
    ) -> None:
        """`notice` is told at the first turn, `on_model` which model it is; `shared` is what is closed at the end."""
        self.context = context
        self.tools = ToolSet(tools)
        self.conversation = Conversation(conversation.repair_messages(before))
        self.session_id = session_id or str(uuid.uuid4())
        self.backgrounds = BackgroundRuns(context, self.tools, self._notify)
        self._switch = switch
        self._notice = notice
        self._on_model = on_model
        self._shared = shared or SharedResources()
        self._opened = False
        self._hub: EventHub | None = None
        self._run: Run | None = None
        self.compaction = GuestCompaction(context, lambda: self.conversation, self._is_quiet)
        self._playing: asyncio.Task[TurnResult] | None = None

    @property
    def hub(self) -> EventHub:
        if self._hub is None:
            raise Closed("the resident is not open", who=self.name)
        return self._hub

    async def open(self, hub: EventHub) -> None:
        self._hub = hub
        self._opened = True
        self.compaction.open(hub)
        self._shared.acquire()
        self._on_model(self.context.model.key)
        hub.emit(SessionStarted(session=self.session_id, messages=len(self.conversation.messages)))
        self.backgrounds.ready = True

    async def run(self, prompt: Prompt) -> TurnResult:
        output = RunOutput(self.hub)
        most, compaction = self.context.limits.steps, self.compaction
        self._run = run = Run(self.context, output, self.conversation, self.tools, most=most, compaction=compaction)
        try:
            if self._notice:
                self._notify(self._notice)
                self._notice = ""
            run.begin(prompt)
            self._playing = playing = asyncio.get_running_loop().create_task(run.play(), name="run of the resident")
            return await self._wait_for_run(run, playing)
        except SeraiError as error:
            status: Status = "denied" if isinstance(error, NotAllowed) else "error"
            raise TurnFailed(error, run.build_result(status, str(error))) from error
        finally:
            run.end()
            output.shut()
            self._run = self._playing = None

    async def _wait_for_run(self, run: Run, playing: asyncio.Task[TurnResult]) -> TurnResult:
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            if playing.cancelled():  # as it was asked to
                run.end()
                return run.build_result("cancelled", self._add_abort_marker())
            # It does not let itself be ended, and we are: it goes on with a conversation that is nobody's any more.
            log.error("a run of the resident does not end although it was cancelled")
            playing.cancel()
            playing.add_done_callback(ignore_outcome)
            run.abandon()
            self.conversation = self.conversation.copy()
            self._add_abort_marker()
            raise

    def _add_abort_marker(self) -> str:
        """Says in the conversation that the turn was ended on purpose, as it says on disk."""
        turn = self.hub.turn
        reason = (turn.reason if turn is not None else "") or "interrupted"
        if turn is None or turn.marks:
            self.conversation.add(conversation.build_abort_marker(reason))
        return reason

    def _is_quiet(self) -> bool:
        """Nothing is said in the conversation that is not on disk, or the other way round."""
        return self.hub.turn is None if self._run is None else self._run.quiet

    async def interrupt(self, reason: str) -> None:  # noqa: ARG002
        if self._run is not None:
            self._run.stop()
        if self._playing is not None:
            self._playing.cancel()

    def steer(self, text: str) -> None:
        if self._run is None:
            raise Closed("the turn is over", who=self.name, hint="send it as a prompt")
        self._run.steer(text)

    async def wait_idle(self) -> None:
        await self.backgrounds.wait_idle()

    async def set_model(self, query: str) -> str:
        if self._switch is None:
            raise self.make_not_capable("switch_model")
        self.context.model, self.context.provider = self._switch(query)
        self._on_model(self.context.model.key)
        return self.context.model.key

    async def compact(self) -> None:
        await Compaction(self.context, RunOutput(self.hub), self.conversation, self.compaction).compact()

    def fork(self) -> Resident:
        fork = Resident(
            replace(self.context), self.tools.box, before=self.conversation.messages, switch=self._switch, shared=self._shared
        )
        fork.tools.copy_from(self.tools)
        return fork

    async def close(self) -> None:
        await self.compaction.close()
        await self.backgrounds.close()
        if self._opened:  # once, and not for a fork that was never opened
            self._opened = False
            await self._shared.release()

    def _notify(self, text: str) -> None:
        self.hub.emit(NoticeEvent(notice=Notice(text, "info", "serai")))
