"""Claude Code, driven: one long-lived process that speaks stream-json and the control protocol (spec agents 2).

A `result` ends a turn, not the process: further prompts go into the same one, and the agent may begin turns by itself, when
something that it does on the side has ended (spec agents 2.11). The process ends with `close`, or when it ignores an interrupt.
The control protocol can do more than turns (spec agents 2.7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from serai.agents.driven.process import SilenceTimer, StderrLines, wait_until
from serai.agents.driver import Driver, Prompt, TurnFailed
from serai.agents.drivers.claude.approvals import ClaudeApprovals, GuardCheck
from serai.agents.drivers.claude.connection import (
    ClaudeConnection,
    Frame,
    exit_error,
    interrupt_ignored,
    prompt_content,
    prompt_refusal,
)
from serai.agents.drivers.claude.launch import ClaudeLaunch
from serai.agents.drivers.claude.options import CAPABILITIES, MODES
from serai.agents.drivers.claude.tool_server import ToolServer
from serai.agents.drivers.claude.turns import AgentTurn, CostCounter, EventSequencer, PromptTurn
from serai.agents.event_hub import EventHub, ignore_outcome
from serai.dialects.claude.events import Event, McpMessage, Odd, Told, Unsupported
from serai.dialects.claude.frame_reader import shown_in
from serai.dialects.claude.messages import Result, System
from serai.dialects.claude.neutral import FrameTranslator, turn_outcome
from serai.errors import AgentFailed, Closed, LimitHit, NotAllowed, PeerGone, PeerTimeout, SeraiError
from serai.model.actions import Notice
from serai.model.events import NoticeEvent, OtherEvent, SessionStarted, StateChanged, Stderr, TurnResult
from serai.wire.codec import Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.process import stop_child
from serai.wire.stream import Oversize


def object_of(raw: msgspec.Raw) -> dict[str, Any]:
    """An answer that should be an object."""
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else {}
    except msgspec.MsgspecError:
        return {}
    return value if isinstance(value, dict) else {}


log = logging.getLogger("serai.agents")

_ENDED = ("exited", "no_result")  # after these another process may go on
_WAITED = frozenset({"local_agent", "local_workflow"})  # what a run is not over without (spec agents 2.11)


class Claude(Driver):
    """One conversation with Claude Code."""

    name = "claude"
    capabilities = CAPABILITIES

    def __init__(self, context: ClaudeLaunch) -> None:
        self.context = context
        self.session_id = context.options.fork_id or ("" if context.options.fork else context.options.session_id)
        self.serving = ToolServer(context.tools, self._tell, context.limits.tool_result)
        self.folding = FrameTranslator(self.serving.tools)
        self._deadlines: Deadlines | None = None
        self._hub: EventHub | None = None
        self._connection: ClaudeConnection | None = None
        self._telling: EventSequencer | None = None
        self._asking: ClaudeApprovals | None = None
        self._play: PromptTurn | None = None
        self._background: AgentTurn | None = None
        self._initialized: asyncio.Future[msgspec.Raw] | None = None
        self._guarding = GuardCheck(context.judge is not None)
        self._over: SeraiError | None = None  # why nothing more can be asked of it
        self._watching = SilenceTimer(context.limits)
        self._costs = CostCounter()
        self._resumable = False  # there was a result, so that there is something to resume
        self._well = False  # the last one was no error
        self._state = ""  # running, requires_action, idle: where it tells
        self._closing = False  # by us
        self._interrupted = ""  # why the turn that runs was
        self._queued = 0  # prompts that wait for their turn in it, by its last result
        self._changed = asyncio.Event()
        self.on_terminated: list[Callable[[SeraiError], None]] = []

    # -- its life

    async def open(self, hub: EventHub) -> None:
        """Starts the process and says hello. Nobody waits for the answer: the first prompt may follow at once."""
        self._hub = hub
        self._telling = EventSequencer(hub, self.context.interceptors)
        self._deadlines = Deadlines()
        await self._start(hub, self._telling, self._deadlines)
        hub.emit(SessionStarted(session=self.session_id))

    async def _start(self, hub: EventHub, telling: EventSequencer, deadlines: Deadlines) -> None:
        child = await self.context.spawn()
        self._connection = connection = ClaudeConnection(
            child, self, deadlines=deadlines, limits=self.context.limits, tap=self.context.tap(child.pid)
        )
        child.stderr.on_chunk = StderrLines(lambda line: telling.tell([Stderr(line=line)])).feed
        self._asking = ClaudeApprovals(hub, connection, self.folding, self.serving.tools, telling, self.context)
        connection.wake_by(self._watching.start())
        self._initialized = connection.asked("initialize", self.context.initialize())
        self._initialized.add_done_callback(self._on_initialized)

    async def _start_again(self) -> None:
        """The process is gone, and somebody wants to go on: another one takes up the conversation where the last result left it."""
        hub, telling, deadlines = self._hub, self._telling, self._deadlines
        assert hub is not None
        assert telling is not None
        assert deadlines is not None
        log.warning("claude: it is started again: %s", self._over)
        await self.context.ended()  # two must not write one conversation
        self.context.go_on(self.session_id)
        if self.folding.mode in MODES:  # which it may have changed itself, at the end of a plan
            self.keep(permission_mode=self.folding.mode)
        self.serving = ToolServer(self.context.tools, self._tell, self.context.limits.tool_result)
        self.folding = FrameTranslator(self.serving.tools)
        self._guarding, self._costs, self._state, self._queued = GuardCheck(self.context.judge is not None), CostCounter(), "", 0
        over, self._over = self._over, None
        try:
            await self._start(hub, telling, deadlines)
        except BaseException:
            self._over = over
            raise

    def _on_initialized(self, done: asyncio.Future[msgspec.Raw]) -> None:
        """Without a guard's hook nothing may run (design rule 8): then the process is ended at once."""
        if done.cancelled():
            return
        self._watching.first_by = 0.0
        error = done.exception()
        if error is None:
            self._check(self._guarding.answered(object_of(done.result())))
        elif self._over is None and isinstance(error, AgentFailed):
            log.warning("claude: %s", error)
            self._check(self._guarding.refused(str(error)))
        elif self._over is None and isinstance(error, SeraiError) and not isinstance(error, PeerGone):
            self._give_up(error)

    def _check(self, broken: AgentFailed | None) -> None:
        if broken is not None:
            self._give_up(broken, at_once=True)

    async def close(self) -> None:
        self._closing = True
        connection = self._connection
        if self._asking is not None:
            await self._asking.close(self.context.limits.interrupt)
        if self._telling is not None:
            self._telling.close()
        if connection is not None:
            if self._initialized is not None:
                self._initialized.cancel()
            self._end_aside(connection)
            how = await stop_child(connection.child, self.context.limits, polite=connection.channel.farewell)
            if self._well and how.step == "polite" and how.exit is not None and not how.exit.ok:
                self._warn(f"it ended badly after all was done: {how.exit}")
            connection.channel.close()
        if self._deadlines is not None:
            self._deadlines.close()
        await self.context.close()

    def _end_aside(self, connection: ClaudeConnection) -> None:
        """At the end of its input it would go on with what it does on the side, and ask its model again."""
        if self._over is None and self._works_aside:
            self._well = False  # how it ends is our doing
            with suppress(SeraiError):  # it may have ended in this very moment
                connection.asked("interrupt", {"cancel_queued": True}).add_done_callback(ignore_outcome)

    # -- turns

    async def run(self, prompt: Prompt) -> TurnResult:
        self._interrupted = ""
        if self._resumable and isinstance(self._over, AgentFailed) and self._over.kind in _ENDED:
            await self._start_again()
        self._opened()
        if why := await prompt_refusal(self.context.interceptors):
            raise TurnFailed(NotAllowed(why, who=self.name), TurnResult(status="denied", error=why))
        if self._interrupted:  # before the prompt was sent: it never is
            return TurnResult(status="cancelled", error=self._interrupted)
        return await self._run(prompt)

    async def compact(self) -> None:
        """By its own command: what comes of it is told, and is no turn of the conversation."""
        try:
            await self._run(Prompt("/compact"))
        except TurnFailed as failure:
            raise failure.error from None

    async def _run(self, prompt: Prompt) -> TurnResult:
        connection, telling = self._opened()
        self._play = play = PromptTurn()
        self._end_turn()  # what was said to a sub-agent meanwhile is nothing of this one
        try:
            if (news := self.serving.news()) is not None:
                connection.asked("mcp_message", news).add_done_callback(ignore_outcome)
            connection.send(connection.ours.prompt(prompt_content(prompt), uuid=play.uuid, relayed=prompt.relayed))
            connection.wake_by(self._watching.turn())
            done, _ = await asyncio.wait([play.over], timeout=self.context.limits.agent_turn)
            if not done:
                await self._out_of_time(play)
        except asyncio.CancelledError:  # it did not heed the interrupt
            self._give_up(interrupt_ignored(self.name))
            telling.end_turn()
            telling.failed()  # of this turn: the next has nothing to do with it
            raise
        except SeraiError as error:  # when the wire was over already, its own end says more than that (spec agents 7.13)
            if isinstance(error, PeerGone | Closed):
                await asyncio.wait([play.over], timeout=2 * self.context.limits.exit_grace)
            play.fails(error)
        finally:
            self._play = None
            self._end_turn()
        return play.result(telling)

    async def _out_of_time(self, play: PromptTurn) -> None:
        """By the clock on the wall, whatever it is busy with: retries can hold a turn for minutes (spec agents 2.12)."""
        if not play.answered:  # else it is done, and others may still have a word in what is shown of it (spec agents 7.14)
            seconds = self.context.limits.agent_turn or 0
            play.error = PeerTimeout("the turn took too long", who=self.name, limit=LimitHit("agent_turn", seconds))
            await self._stop("it took too long", play.over, play.error)
        await asyncio.wait([play.over])

    async def interrupt(self, reason: str) -> None:
        self._interrupted = reason
        if (play := self._play) is not None:
            play.interrupted = reason
        elif self._background is None:
            return  # nothing was sent yet
        connection, telling = self._connection, self._telling
        if connection is not None and telling is not None and self._over is None:
            try:
                reply = object_of(await connection.request("interrupt", {"cancel_queued": True}))
            except SeraiError as error:  # it may have ended in this very moment
                log.info("claude: it could not be interrupted: %s", error)
                return
            if play is not None and play.uuid in (reply.get("cancelled") or ()):  # it had not begun: no result (spec agents 2.7)
                telling.then(play.withdrawn)

    async def _stop(self, reason: str, over: asyncio.Future[None], error: SeraiError | None = None) -> None:
        """Have a turn end; `error` is what it ends with when it does not heed that in time."""
        asking = asyncio.ensure_future(self.interrupt(reason))
        done, _ = await asyncio.wait([over], timeout=self.context.limits.interrupt)
        asking.cancel()
        if not done:
            self._give_up(error or interrupt_ignored(self.name))

    def _end_turn(self) -> None:
        if self._asking is not None:
            self._asking.end_turn()
        self._changed.set()

    async def idle(self) -> None:
        """Until it does nothing on the side: sub-agents, and the turn that follows when one has ended (spec agents 2.11)."""
        patience = self.context.limits.agent_background
        if not await wait_until(lambda: self._over is not None or self._rests, self._changed, patience):
            log.warning("claude still works on the side after %g s, and is not waited for", patience)

    @property
    def _rests(self) -> bool:
        return not (self._works_aside or self._state not in ("", "idle"))

    @property
    def _works_aside(self) -> bool:
        """A shell in the background is let be: it may be a server."""
        aside = any(kind in _WAITED for kind in self.folding.tasks.values())
        return bool(aside or self._background is not None or self._queued)

    def fork(self) -> Claude:
        return Claude(self.context.forked(self.session_id))

    # -- what comes from the process

    def heard(self, what: Event) -> None:
        assert self._asking is not None
        match what:
            case Odd(value=Noise(raw=raw)):  # which is no frame
                self._tell(OtherEvent(kind="noise", native=raw.decode(errors="replace")))
                return
            case Told():
                self._told(what)
            case McpMessage():
                assert self._connection is not None
                self._asking.start(what.id, self.serving.serve(what, self._connection), "a message for our tools")
            case Odd(value=Unknown() as value, line=line):
                assert self._telling is not None
                self._telling.tell(self.folding.fold(value, line))
            case Unsupported(line=line):  # and answered so already
                self._tell(OtherEvent(kind="control_request", native=msgspec.Raw(line)))
            case _:
                self._asking.heard(what)
        self._watching.heard()

    def pieces(self, frames: Iterator[Frame]) -> Frame | None:
        """The hot path."""
        assert self._telling is not None
        found, other = self.folding.pieces(frames)
        if found:
            self._watching.heard()
            self._telling.tell(found)
        return other

    def _told(self, what: Told) -> None:
        assert self._telling is not None
        frame = what.frame
        if type(frame) is System:
            self._system(frame)
        events = self.folding.fold(frame, what.line)
        if type(frame) is Result:
            self._ends(frame, what.line, events)
        else:
            self._telling.tell(events)

    def _system(self, frame: System) -> None:
        if frame.subtype == "init":
            self._begins(frame)
        elif frame.subtype == "session_state_changed":
            self._state = frame.state or ""
        self._changed.set()

    def _begins(self, frame: System) -> None:
        """A turn begins, which may be one of its own."""
        assert self._hub is not None
        assert self._telling is not None
        self._check(self._guarding.begins(frame.claude_code_version or ""))  # before the model is asked anything
        if frame.session_id and frame.session_id != self.session_id:  # a fork, or the newest of this folder
            self.session_id = self._hub.session = frame.session_id
            self._tell(SessionStarted(session=frame.session_id))
        ended = self._play is not None and self._play.answered
        if self._background is None and (ended or (self._play is None and self._hub.turn is None)):
            self._background = AgentTurn(self._hub, self._stop)
            if self._hub.turn is not None:  # its result has come, and it is not over yet
                self._telling.after(self._hub.turn.over)
            self._telling.then(self._background.begins)

    def _ends(self, frame: Result, line: bytes, events: list[Any]) -> None:
        assert self._telling is not None
        stderr = "" if self._connection is None else self._connection.child.stderr.text()
        how = self._costs.of_turn(turn_outcome(frame, line, stderr=stderr))
        self._resumable, self._well, self._queued = True, how.error is None, how.queued
        telling, play = self._telling, self._play
        if play is not None and not play.answered and how.answers(play.uuid):
            play.answered = True
            denied = self._asking.denied if self._asking is not None and how.error is not None else None
            telling.tell([*events, *self.folding.end(interrupted=how.error is not None)])
            telling.then(lambda: play.ends(how, denied))
        elif self._background is not None:
            background, self._background = self._background, None
            telling.tell([*events, *self.folding.end(interrupted=how.error is not None)])
            telling.then(lambda: background.ends(how, telling))
            self._end_turn()
        else:  # of a turn that began right before ours, or one that nobody waits for any more
            telling.tell([*events, OtherEvent(kind="result", native=msgspec.Raw(line))])
        self._changed.set()

    def skipped(self, frame: Oversize) -> None:
        self._warn(f"a frame of {frame.size} bytes was skipped: more than the limit frame allows")
        if shown_in(frame.head)[0] == "result":
            self._fail(AgentFailed("its result is longer than the limit frame allows", kind="garbled", who=self.name))

    def gone(self, cause: SeraiError) -> None:
        expected = self._closing or self._over is not None  # we have ended it
        self._over = self._over or exit_error(cause, self.name)
        assert self._telling is not None
        if self._asking is not None:
            self._asking.lose()
        self._telling.tell(self.folding.end(interrupted=True, gone=True))
        if (self._play is None or self._play.answered) and self._background is None and not expected:
            self._warn(f"it ended between two turns: {cause}")
        self._fail(self._over)
        self._changed.set()
        if self._connection is not None:  # its tools have sessions of their own, and would go on without it (spec agents 2.13)
            self.context.end(self._connection.child)
        if not self._closing:
            for handler in self.on_terminated:
                handler(self._over)

    def _fail(self, error: SeraiError) -> None:
        """The turn that runs fails, when all that came before is told."""
        assert self._telling is not None
        telling = self._telling
        if (play := self._play) is not None:
            telling.then(lambda: play.fails(error))
        if (background := self._background) is not None:
            self._background = None
            telling.then(lambda: background.fails(error, telling))

    def look(self, now: float) -> float | None:
        asking = self._asking is not None and self._asking.open
        wrong, again = self._watching.look(now, playing=self._play is not None, asking=asking)
        if wrong == "mute":
            limit = LimitHit("agent_first", self.context.limits.agent_first)
            self._give_up(PeerTimeout("it has said nothing since its start", who=self.name, limit=limit))
        elif wrong == "stalled":
            self._tell(StateChanged(state="stalled"))
        return again

    # -- inside

    def _opened(self) -> tuple[ClaudeConnection, EventSequencer]:
        if self._over is not None:
            raise self._over.for_call("")
        if self._connection is None or self._telling is None:
            raise Closed("claude is not open", who=self.name)
        return self._connection, self._telling

    def connected(self) -> ClaudeConnection:
        return self._opened()[0]

    def _tell(self, event: Any) -> None:
        if self._telling is not None:
            self._telling.tell([event])

    def _warn(self, text: str) -> None:
        log.warning("claude: %s", text)
        self._tell(NoticeEvent(notice=Notice(text, "warn", "serai")))

    def _give_up(self, error: SeraiError, *, at_once: bool = False) -> None:
        """Nothing good can come of it any more: the process is ended, tree and all."""
        if self._over is None:
            self._over = error
        if self._play is not None:
            self._play.fails(error)
        if self._connection is not None:
            self.context.end(self._connection.child, at_once=at_once)
        self._changed.set()

    def steer(self, text: str) -> None:
        """With an id of its own: when it comes too late and makes a turn, the result of that is not taken for another's."""
        connection = self.connected()
        connection.send(connection.ours.prompt(text, uuid=str(uuid4()), relayed=True))

    async def set_model(self, query: str) -> str:
        reply = object_of(await self.connected().request("set_model", {"model": query or None}))
        self.keep(model=query)
        return str(reply.get("model") or query)

    async def set_mode(self, mode: str) -> None:
        await self.connected().request("set_permission_mode", {"mode": mode})
        self.keep(permission_mode=mode)
        self.folding.mode = mode

    def keep(self, **choice: str) -> None:
        """A process that takes this one's place has it too, and a fork: nobody gets back what a person has tightened."""
        self.context.options = msgspec.structs.replace(self.context.options, **choice)

    async def stop_task(self, task_id: str) -> None:
        """End something that it does on the side."""
        await self.connected().request("stop_task", {"task_id": task_id})

    async def control(self, subtype: str, **fields: Any) -> Any:
        """Whatever else its control protocol has, such as `get_context_usage`; its answer."""
        return object_of(await self.connected().request(subtype, fields))
