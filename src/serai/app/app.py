"""Everything in one object: guests, an agent, a policy, a store, a recorder and a surface.

    async with serai.App(agent="resident", policy="rules.toml") as app:
        result = await app.submit("summarise this repository")

The path of a text: input transformers → message hooks → the agent's turn → events to the store, the guests and the surface. Every
call and every approval of a turn, a guest or an agent goes through `app.pipeline`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from serai.agents.driver import Prompt
from serai.agents.inbox import Inbox
from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.agents.turn import Turn, run_turn
from serai.app import assembly
from serai.app.assembly import IMMEDIATE, AppOptions, Runtime, open_runtime
from serai.app.services.default_groups import build_default_groups
from serai.app.services.guest_services import BASH_TAIL, build_bash_tail
from serai.app.surfaces import AgentTurnRunner, ApprovalSurface, SafeSurface
from serai.errors import Closed, LimitHit, NotAllowed, NotCapable, Refused, SeraiError, TurnInFlight
from serai.host.host import Host, LoadReport, TypedCommand
from serai.model import actions
from serai.model.actions import Action, CommandResult, Notice
from serai.model.contributions import TransformResult
from serai.model.events import Event, SessionStarted, ToolProgress, TurnResult, TurnStarted
from serai.model.tools import ImageBlock, ToolCall, ToolResult
from serai.policy.call_facts import CallContext
from serai.store.messages import sum_usage, to_model_message
from serai.store.stored_session import StoredSession as Stored

log = logging.getLogger("serai.app")

_MARKS = 10  # one after the other, while nothing runs
_REASON = 500  # characters of why a turn was ended: the model reads it in every request from then on


class App:
    """One conversation with one agent, and everything around it. `async with` outside, an idempotent `close()` inside."""

    def __init__(self, **choices: Unpack[AppOptions]) -> None:
        """`serai.app.assembly.AppOptions` says what can be chosen; nothing has to be."""
        self._choices = choices
        self._runtime: Runtime | None = None
        self._inbox: Inbox | None = None
        self._closing: asyncio.Task[None] | None = None
        self._turns = asyncio.Lock()  # submitted prompts wait for each other, in order
        self._images: list[ImageBlock] = []  # for the next prompt
        self._steered: list[str] = []  # texts for the next turn
        self._commanding: set[str] = set()  # guests whose queued commands run
        self._agent_turns = AgentTurnRunner(lambda: self.runtime)
        self._early: list[tuple[str, bool]] = []  # what was queued before it was open
        self.quitting = asyncio.Event()  # somebody wants the app to be closed: whoever opened it does that
        self.last: TurnResult | None = None  # how the newest turn ended

    # -- its life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> LoadReport:
        """Everything is there when it returns; what went wrong with which guest is in the report, and told to the surface.

        When something that is needed is not to be had, nothing is left of the rest.
        """
        if self._runtime is not None or self._closing is not None:
            raise Closed("an app is opened once", hint="make a new one")
        self._runtime = runtime = open_runtime(self, self._choices)
        try:
            return await self._start(runtime)
        except BaseException as error:
            closed = self._closing is not None
            await self.close()
            if closed and isinstance(error, SeraiError):
                raise Closed("the app was closed while it was opened") from error
            raise

    async def _start(self, runtime: Runtime) -> LoadReport:
        runtime.services.groups |= {**build_default_groups(self), **self._choices.get("services", {})}
        report = await runtime.host.start()
        runtime.check_model()
        for line in (*runtime.config.notes, *runtime.policy.rules.notes, *report.to_lines(), *runtime.collect_remarks()):
            self.surface.act(Notice(line, "warn", "serai"))
        runtime.session.listen(self._dispatch_event)
        runtime.session.on_turn(self._agent_turns.start_turn)
        await runtime.session.open()
        if runtime.recorder is not None:  # so that whoever looks at the wires finds the conversation
            runtime.recorder.note(f"session {runtime.session.id} with {runtime.session.agent}")
        self._inbox = Inbox(
            runtime.session,
            self._run_turn,
            prepare=self._prepare_queued,
            command=self._run_queued_command,
            is_command=lambda text: self.host.parse(text) is not None,
            is_immediate=self._is_immediate,
        )
        early, self._early = self._early, []
        for text, plain in early:
            self._inbox.submit(text, plain=plain)
        return report

    async def close(self) -> None:
        """End what runs, then everything. Idempotent, and not to be stopped half-way."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.quitting.set()
        if self._inbox is not None:
            await self._inbox.close()
        if self._runtime is not None:
            await self._runtime.close()

    # -- what it is made of

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise Closed("the app is not open", hint="enter it first: `async with app:`")
        return self._runtime

    @property
    def host(self) -> Host:
        return self.runtime.host

    @property
    def session(self) -> Session:
        return self.runtime.session

    @property
    def surface(self) -> SafeSurface:
        return self.runtime.surface

    @property
    def resident(self) -> Resident:
        """Our own agent, for what only it can do."""
        driver = self.session.driver
        if not isinstance(driver, Resident):
            raise NotCapable("only the resident's conversation is ours to look into", who=self.session.agent)
        return driver

    def situation(self, owner: str = "") -> CallContext:
        """Where calls are made, for the policy; `owner` is the guest whose tool it is."""
        return self.runtime.get_context(owner)

    # -- what people and guests want

    async def submit(self, text: str, *, images: Sequence[ImageBlock] = ()) -> TurnResult | None:
        """Have it done and wait for its end: a command, or a prompt, behind those that were submitted before.

        None when no turn came of it. Raises what went wrong, as `Turn.result` does; `last` has what came of the turn until then.
        """
        if (command := self.host.parse(text)) is not None:
            return await self._run_command(command)
        async with self._turns:  # also while it is changed, which may take one longer than the next
            changed = await self.host.texts.transform(text)
            return None if changed.handled else await self._run_prompt(changed.text, images, relayed=changed.text != text)

    def queue(self, text: str) -> None:
        """Like somebody who types while a turn runs: a command that may run at once does, a text is steered in or the next turn."""
        self._queue(text)

    def _queue(self, text: str, *, plain: bool = False) -> None:
        if self._runtime is None or self._closing is not None:
            raise Closed("the app is not open")
        if self._inbox is None:  # it is being opened, and a guest is quick
            if len(self._early) >= self.runtime.limits.inputs:
                raise NotAllowed("too much waits already", limit=LimitHit("inputs", self.runtime.limits.inputs))
            self._early.append((text, plain))
        else:
            self._inbox.submit(text, plain=plain)

    async def shortcut(self, key: str) -> CommandResult:
        """A key that was pressed. What goes wrong has been told by then, as nobody waits for a key (spec piglet 5.5)."""
        outcome = await self.host.run_shortcut(key)
        if isinstance(outcome.action, actions.SubmitPrompt):
            self._send(outcome.action.text)
        return outcome

    def steer(self, text: str) -> None:
        """A text for the turn that runs, or for the next one; it starts none (spec piglet 7.2)."""
        if not text.strip():
            return
        if self.session.state == "running":
            try:
                self.session.steer(text)
                return
            except Closed:  # the turn is about to end: it is the next one
                self._queue(text, plain=True)
                return
        if len(self._steered) >= self.runtime.limits.inputs:
            limit = LimitHit("inputs", self.runtime.limits.inputs)
            raise NotAllowed("too much waits for the next turn already", limit=limit)
        self._steered.append(text)

    async def abort(self, reason: str = "interrupted", *, mark: bool | None = None) -> None:
        """End the turn that runs; what was said stays, and the model finds that it was interrupted.

        `mark`: it finds that also when no turn ran; False: it never does.
        """
        reason = reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"
        if self.session.hub.turn is not None:
            await self.session.interrupt(reason, mark=mark is not False)
        elif mark and not isinstance(self.session.driver, Resident):
            self.session.aborted(reason)  # what the agent itself knows of it is its own affair
        elif mark:
            conversation = self.resident.conversation
            if (
                len(resident_conversation.find_trailing_marks(conversation.messages)) < _MARKS
            ):  # nothing was said since: enough is known
                self.session.aborted(reason)
                conversation.add(resident_conversation.build_abort_marker(reason))

    def quit(self) -> None:
        """Have whoever opened the app close it."""
        self.quitting.set()

    async def idle(self) -> None:
        """Until nothing runs and nothing waits."""
        while True:
            if self._inbox is not None:
                await self._inbox.wait_idle()
            await self.session.idle()
            if self._inbox is None or not self._inbox.busy:  # another turn may have begun meanwhile
                return

    async def call_tool(self, call: ToolCall) -> ToolResult:
        """For a guest or a person: through the pipeline, whoever's tool it is."""
        if self._closing is not None:
            raise Closed("the app is closed")
        return await self.runtime.tools.call(call)

    def works_for(self, guest: str) -> bool:
        """Whether a tool of this guest runs."""
        return bool(self.runtime.tools.find_running(guest))

    async def idle_for(self, guest: str) -> None:
        """Until no turn runs and none waits; a queued command of this guest does not wait for itself."""
        await (self.session.idle() if guest in self._commanding else self.idle())

    # -- other conversations

    async def swap(self, stored: Stored) -> None:
        """Go on with another conversation. Nothing of one gets into the other (FIX-20), and a filter of tools ends (FIX-24)."""
        self.must_be_idle()
        current = self.runtime.current
        if current is None:
            raise NotCapable("this conversation is not kept, so no other can take its place", who=self.session.agent)
        resident, left = self.resident, current.session
        if stored.id == left.id:
            stored.close()
            self.refresh()
            return
        said = stored.read_messages()  # first: what cannot be read is not gone on with
        await resident.backgrounds.cancel()  # its answer would get into the other one
        self.must_be_idle()
        current.swap(stored)
        self.runtime.leave_session(left)
        self.session.hub.session = resident.session_id = stored.id
        resident.tools.restrict(self.runtime.config.tools)
        self._steered.clear()  # they were for the other one
        self._images.clear()
        resident.conversation.replace(resident_conversation.repair_messages(map(to_model_message, said)), sum_usage(said))
        self.session.hub.emit(SessionStarted(session=stored.id, messages=len(resident.conversation.messages)))

    def refresh(self) -> None:
        """The conversation in memory is what the stored one says: after a branch, a reset, another session."""
        self.must_be_idle()
        if self.runtime.current is not None:
            messages = self.runtime.current.session.read_messages()
            self.resident.conversation.replace(
                resident_conversation.repair_messages(map(to_model_message, messages)), sum_usage(messages)
            )

    def must_be_idle(self) -> None:
        """Raises `TurnInFlight` while anything belongs to this conversation that is not over."""
        self.session.must_be_idle()
        if self.runtime.pipeline.asking:  # the answer belongs to this conversation
            raise TurnInFlight("its conversation cannot be left while somebody is asked something", who=self.session.agent)

    # -- prompts

    async def _run_prompt(self, text: str, images: Sequence[ImageBlock] = (), *, relayed: bool = False) -> TurnResult:
        """For whoever has the turn among those that submit. `relayed`: a guest had a hand in it."""
        if not text.strip() and not images and not self._images:
            raise NotAllowed("there is nothing to ask: the prompt is empty")
        while True:
            await self.session.free()
            if self.quitting.is_set():
                raise Closed("the app is about to be closed", hint="nothing was sent")
            turn = self.session.turn(await self._prepare_prompt(text, images, relayed=relayed))
            try:
                turn.start()
            except TurnInFlight:  # a queued one was quicker
                continue
            return await self._run_turn(turn)

    async def _prepare_prompt(self, text: str, images: Sequence[ImageBlock] = (), *, relayed: bool = False) -> Prompt:
        """With what message hooks add for this one (spec piglet 5.6), and the images that were attached."""
        self.host.require_guards()  # a run does not start before (design rule 8)
        texts = self.host.texts
        injections = await texts.inject(text)
        self.host.require_guards()  # again: whoever was asked may have taken long
        return Prompt(text, (*images, *self._images), "\n\n".join(injections), relayed)

    async def _prepare_queued(self, text: str, fresh: bool) -> Prompt | None:
        """What was typed when nothing ran goes the way of what is submitted; what waited does not (spec piglet 5.7, 7.2)."""
        try:
            if self.quitting.is_set():
                raise Closed("the app is about to be closed", hint="nothing was sent")
            changed = await self.host.texts.transform(text) if fresh else TransformResult(text)
            return None if changed.handled else await self._prepare_prompt(changed.text, relayed=True)  # a guest may have queued it
        except SeraiError as error:  # nobody waits for it, so it is told
            self.surface.act(Notice(f"a prompt was not sent: {error}", "error", "serai"))
            raise

    async def _run_turn(self, turn: Turn) -> TurnResult:
        self._images = [one for one in self._images if all(one is not sent for sent in turn.prompt.images)]
        steered, self._steered = self._steered, []
        for text in steered:  # it has not begun: they are part of its prompt
            self.session.steer(text)
        try:
            return await run_turn(
                turn, ApprovalSurface(self.surface, self.runtime.pipeline), self.surface.tell, left=self._agent_turns.asking
            )
        finally:
            self.last = turn.outcome or self.last

    async def _run_command(self, typed: TypedCommand) -> TurnResult | None:
        outcome = await self.host.run_command(*typed)
        if outcome.error:
            raise _to_error(outcome)
        if isinstance(outcome.action, actions.SubmitPrompt) and outcome.action.text.strip():
            async with self._turns:
                return await self._run_prompt(outcome.action.text, relayed=True)
        return None

    async def _run_queued_command(self, line: str) -> None:
        """A command that was queued: what goes wrong is told, as nobody waits for it."""
        typed = self.host.parse(line) or TypedCommand(
            line.split(maxsplit=1)[0].removeprefix("/"), ""
        )  # whoever had it may be gone by now
        owner = self.host.table.commands.get(typed.name)
        source, id = ("serai", "") if owner is None else (owner[0].manifest.shown, owner[0].id)
        self._commanding.add(id)
        try:
            outcome = await self.host.run_command(*typed)
        except SeraiError as error:
            outcome = CommandResult(actions.NoAction(), str(error))
        finally:
            self._commanding.discard(id)
        if outcome.error:
            self.surface.act(Notice(outcome.error, "error", source))
        elif isinstance(outcome.action, actions.SubmitPrompt):
            self._send(outcome.action.text)

    def _send(self, text: str) -> None:
        """What a guest wants said; nobody waits for it, so it is told when that cannot be."""
        try:
            self.queue(text)
        except SeraiError as error:
            self.surface.act(Notice(f"a prompt was not sent: {error}", "error", "serai"))

    def _is_immediate(self, line: str) -> bool:
        typed = self.host.parse(line)
        if typed is None or typed.name in IMMEDIATE:
            return typed is not None
        owner = self.host.table.commands.get(typed.name)
        return owner is not None and owner[1].immediate

    # -- what happens

    def _dispatch_event(self, event: Event) -> None:
        """Every event, right behind the store: guests are told, and the surface of what belongs to no turn."""
        runtime = self.runtime
        runtime.host.tell(event)
        if type(event) is TurnStarted:
            assembly.pin_plugins(runtime)
        if type(event) is ToolProgress and (tail := build_bash_tail(event)) is not None:
            runtime.bus.publish(BASH_TAIL, tail)
        if alone := runtime.session.hub.turn is None:
            runtime.surface.tell(event)
        self._agent_turns.handle_event(event, alone=alone)

    def do(self, action: Action) -> bool:
        """What a guest wants done, if that is the app's to do; else it is for the surface."""
        match action:
            case actions.SubmitPrompt(text=text):
                self._send(text)
            case actions.Quit():
                self.quit()
            case actions.SetTitle(text=text) if text.strip() and self.runtime.current is not None:
                self.runtime.current.session.set_title(text)
                return False  # and seen
            case actions.AttachImage(image=image):
                self._images = [] if self._images else [image]  # a second one takes the first away (spec piglet 5.4)
                return False
            case actions.DetachImage():
                self._images = []
                return False
            case _:
                return False
        return True


def _to_error(outcome: CommandResult) -> SeraiError:
    return NotAllowed(outcome.error) if outcome.code in ("BLOCKED", "DENIED") else Refused(outcome.error)
