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
    build_exit_error,
    build_interrupt_error,
    build_prompt_content,
    find_refusal,
)
from serai.agents.drivers.claude.launch import ClaudeLaunch
from serai.agents.drivers.claude.options import CAPABILITIES, MODES
from serai.agents.drivers.claude.tool_server import ToolServer
from serai.agents.drivers.claude.turns import AgentTurn, CostCounter, EventSequencer, PromptTurn
from serai.agents.event_hub import EventHub, ignore_outcome
from serai.dialects.claude.events import Event, McpMessage, Odd, Told, Unsupported
from serai.dialects.claude.frame_reader import scan_kind_and_id
from serai.dialects.claude.messages import Result, System
from serai.dialects.claude.neutral import FrameTranslator, read_outcome
from serai.errors import AgentFailed, Closed, LimitHit, NotAllowed, PeerGone, PeerTimeout, SeraiError
from serai.model.actions import Notice
from serai.model.events import NoticeEvent, OtherEvent, SessionStarted, StateChanged, Stderr, TurnResult
from serai.wire.codec import Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.process import stop_child
from serai.wire.stream import Oversize

log = logging.getLogger("serai.agents")


def decode_object(raw: msgspec.Raw) -> dict[str, Any]:
    """An answer that should be an object."""
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else {}
    except msgspec.MsgspecError:
        return {}
    return value if isinstance(value, dict) else {}


_ENDED = ("exited", "no_result")  # after these another process may go on
_WAITED = frozenset({"local_agent", "local_workflow"})  # what a run is not over without (spec agents 2.11)


class Claude(Driver):
    """One conversation with Claude Code."""

    name = "claude"
    capabilities = CAPABILITIES

    def __init__(self, context: ClaudeLaunch) -> None:
        self.context = context
        self.session_id = context.options.fork_id or ("" if context.options.fork else context.options.session_id)
        self.tool_server = ToolServer(context.tools, self._emit, context.limits.tool_result)
        self.translator = FrameTranslator(self.tool_server.tools)
        self._deadlines: Deadlines | None = None
        self._hub: EventHub | None = None
        self._connection: ClaudeConnection | None = None
        self._sequencer: EventSequencer | None = None
        self._approvals: ClaudeApprovals | None = None
        self._play: PromptTurn | None = None
        self._background: AgentTurn | None = None
        self._initialized: asyncio.Future[msgspec.Raw] | None = None
        self._guard_check = GuardCheck(context.judge is not None)
        self._over: SeraiError | None = None  # why nothing more can be asked of it
        self._silence = SilenceTimer(context.limits)
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
        self._sequencer = EventSequencer(hub, self.context.interceptors)
        self._deadlines = Deadlines()
        await self._start(hub, self._sequencer, self._deadlines)
        hub.emit(SessionStarted(session=self.session_id))

    async def _start(self, hub: EventHub, sequencer: EventSequencer, deadlines: Deadlines) -> None:
        child = await self.context.spawn()
        self._connection = connection = ClaudeConnection(
            child, self, deadlines=deadlines, limits=self.context.limits, tap=self.context.tap(child.pid)
        )
        child.stderr.on_chunk = StderrLines(lambda line: sequencer.emit([Stderr(line=line)])).feed
        self._approvals = ClaudeApprovals(hub, connection, self.translator, self.tool_server.tools, sequencer, self.context)
        connection.wake_by(self._silence.start())
        self._initialized = connection.start_request("initialize", self.context.build_initialize())
        self._initialized.add_done_callback(self._on_initialized)

    async def _restart(self) -> None:
        """The process is gone, and somebody wants to go on: another one takes up the conversation where the last result left it."""
        hub, sequencer, deadlines = self._hub, self._sequencer, self._deadlines
        assert hub is not None
        assert sequencer is not None
        assert deadlines is not None
        log.warning("claude: it is started again: %s", self._over)
        await self.context.wait_ended()  # two must not write one conversation
        self.context.resume(self.session_id)
        if self.translator.mode in MODES:  # which it may have changed itself, at the end of a plan
            self.update_options(permission_mode=self.translator.mode)
        self.tool_server = ToolServer(self.context.tools, self._emit, self.context.limits.tool_result)
        self.translator = FrameTranslator(self.tool_server.tools)
        self._guard_check, self._costs, self._state, self._queued = GuardCheck(self.context.judge is not None), CostCounter(), "", 0
        over, self._over = self._over, None
        try:
            await self._start(hub, sequencer, deadlines)
        except BaseException:
            self._over = over
            raise

    def _on_initialized(self, done: asyncio.Future[msgspec.Raw]) -> None:
        """Without a guard's hook nothing may run (design rule 8): then the process is ended at once."""
        if done.cancelled():
            return
        self._silence.first_by = 0.0
        error = done.exception()
        if error is None:
            self._reject_unguarded(self._guard_check.check_reply(decode_object(done.result())))
        elif self._over is None and isinstance(error, AgentFailed):
            log.warning("claude: %s", error)
            self._reject_unguarded(self._guard_check.check_refusal(str(error)))
        elif self._over is None and isinstance(error, SeraiError) and not isinstance(error, PeerGone):
            self._give_up(error)

    def _reject_unguarded(self, broken: AgentFailed | None) -> None:
        if broken is not None:
            self._give_up(broken, at_once=True)

    async def close(self) -> None:
        self._closing = True
        connection = self._connection
        if self._approvals is not None:
            await self._approvals.close(self.context.limits.interrupt)
        if self._sequencer is not None:
            self._sequencer.close()
        if connection is not None:
            if self._initialized is not None:
                self._initialized.cancel()
            self._stop_background(connection)
            how = await stop_child(connection.child, self.context.limits, polite=connection.channel.send_farewell)
            if self._well and how.step == "polite" and how.exit is not None and not how.exit.ok:
                self._warn(f"it ended badly after all was done: {how.exit}")
            connection.channel.close()
        if self._deadlines is not None:
            self._deadlines.close()
        await self.context.close()

    def _stop_background(self, connection: ClaudeConnection) -> None:
        """At the end of its input it would go on with what it does on the side, and ask its model again."""
        if self._over is None and self._has_background_work:
            self._well = False  # how it ends is our doing
            with suppress(SeraiError):  # it may have ended in this very moment
                connection.start_request("interrupt", {"cancel_queued": True}).add_done_callback(ignore_outcome)

    # -- turns

    async def run(self, prompt: Prompt) -> TurnResult:
        self._interrupted = ""
        if self._resumable and isinstance(self._over, AgentFailed) and self._over.kind in _ENDED:
            await self._restart()
        self._require_open()
        if why := await find_refusal(self.context.interceptors):
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
        connection, sequencer = self._require_open()
        self._play = play = PromptTurn()
        self._end_turn()  # what was said to a sub-agent meanwhile is nothing of this one
        try:
            if (news := self.tool_server.build_list_changed()) is not None:
                connection.start_request("mcp_message", news).add_done_callback(ignore_outcome)
            connection.send(connection.host_side.prompt(build_prompt_content(prompt), uuid=play.uuid, relayed=prompt.relayed))
            connection.wake_by(self._silence.start_turn())
            done, _ = await asyncio.wait([play.over], timeout=self.context.limits.agent_turn)
            if not done:
                await self._on_timeout(play)
        except asyncio.CancelledError:  # it did not heed the interrupt
            self._give_up(build_interrupt_error(self.name))
            sequencer.end_turn()
            sequencer.take_failure()  # of this turn: the next has nothing to do with it
            raise
        except SeraiError as error:  # when the wire was over already, its own end says more than that (spec agents 7.13)
            if isinstance(error, PeerGone | Closed):
                await asyncio.wait([play.over], timeout=2 * self.context.limits.exit_grace)
            play.fail(error)
        finally:
            self._play = None
            self._end_turn()
        return play.result(sequencer)

    async def _on_timeout(self, play: PromptTurn) -> None:
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
        connection, sequencer = self._connection, self._sequencer
        if connection is not None and sequencer is not None and self._over is None:
            try:
                reply = decode_object(await connection.request("interrupt", {"cancel_queued": True}))
            except SeraiError as error:  # it may have ended in this very moment
                log.info("claude: it could not be interrupted: %s", error)
                return
            if play is not None and play.uuid in (reply.get("cancelled") or ()):  # it had not begun: no result (spec agents 2.7)
                sequencer.run_in_order(play.withdraw)

    async def _stop(self, reason: str, over: asyncio.Future[None], error: SeraiError | None = None) -> None:
        """Have a turn end; `error` is what it ends with when it does not heed that in time."""
        asking = asyncio.ensure_future(self.interrupt(reason))
        done, _ = await asyncio.wait([over], timeout=self.context.limits.interrupt)
        asking.cancel()
        if not done:
            self._give_up(error or build_interrupt_error(self.name))

    def _end_turn(self) -> None:
        if self._approvals is not None:
            self._approvals.end_turn()
        self._changed.set()

    async def wait_idle(self) -> None:
        """Until it does nothing on the side: sub-agents, and the turn that follows when one has ended (spec agents 2.11)."""
        patience = self.context.limits.agent_background
        if not await wait_until(lambda: self._over is not None or self._is_idle, self._changed, patience):
            log.warning("claude still works on the side after %g s, and is not waited for", patience)

    @property
    def _is_idle(self) -> bool:
        return not (self._has_background_work or self._state not in ("", "idle"))

    @property
    def _has_background_work(self) -> bool:
        """A shell in the background is let be: it may be a server."""
        aside = any(kind in _WAITED for kind in self.translator.tasks.values())
        return bool(aside or self._background is not None or self._queued)

    def fork(self) -> Claude:
        return Claude(self.context.fork(self.session_id))

    # -- what comes from the process

    def on_event(self, what: Event) -> None:
        assert self._approvals is not None
        match what:
            case Odd(value=Noise(raw=raw)):  # which is no frame
                self._emit(OtherEvent(kind="noise", native=raw.decode(errors="replace")))
                return
            case Told():
                self._on_frame(what)
            case McpMessage():
                assert self._connection is not None
                self._approvals.start(what.id, self.tool_server.serve(what, self._connection), "a message for our tools")
            case Odd(value=Unknown() as value, line=line):
                assert self._sequencer is not None
                self._sequencer.emit(self.translator.translate(value, line))
            case Unsupported(line=line):  # and answered so already
                self._emit(OtherEvent(kind="control_request", native=msgspec.Raw(line)))
            case _:
                self._approvals.handle(what)
        self._silence.record_activity()

    def take_pieces(self, frames: Iterator[Frame]) -> Frame | None:
        """The hot path."""
        assert self._sequencer is not None
        found, other = self.translator.translate_pieces(frames)
        if found:
            self._silence.record_activity()
            self._sequencer.emit(found)
        return other

    def _on_frame(self, what: Told) -> None:
        assert self._sequencer is not None
        frame = what.frame
        if type(frame) is System:
            self._on_system(frame)
        events = self.translator.translate(frame, what.line)
        if type(frame) is Result:
            self._on_result(frame, what.line, events)
        else:
            self._sequencer.emit(events)

    def _on_system(self, frame: System) -> None:
        if frame.subtype == "init":
            self._on_turn_begin(frame)
        elif frame.subtype == "session_state_changed":
            self._state = frame.state or ""
        self._changed.set()

    def _on_turn_begin(self, frame: System) -> None:
        """A turn begins, which may be one of its own."""
        assert self._hub is not None
        assert self._sequencer is not None
        self._reject_unguarded(
            self._guard_check.check_version(frame.claude_code_version or "")
        )  # before the model is asked anything
        if frame.session_id and frame.session_id != self.session_id:  # a fork, or the newest of this folder
            self.session_id = self._hub.session = frame.session_id
            self._emit(SessionStarted(session=frame.session_id))
        ended = self._play is not None and self._play.answered
        if self._background is None and (ended or (self._play is None and self._hub.turn is None)):
            self._background = AgentTurn(self._hub, self._stop)
            if self._hub.turn is not None:  # its result has come, and it is not over yet
                self._sequencer.hold_until(self._hub.turn.over)
            self._sequencer.run_in_order(self._background.begin)

    def _on_result(self, frame: Result, line: bytes, events: list[Any]) -> None:
        assert self._sequencer is not None
        stderr = "" if self._connection is None else self._connection.child.stderr.text()
        how = self._costs.count_turn(read_outcome(frame, line, stderr=stderr))
        self._resumable, self._well, self._queued = True, how.error is None, how.queued
        sequencer, play = self._sequencer, self._play
        if play is not None and not play.answered and how.answers(play.uuid):
            play.answered = True
            denied = self._approvals.denied if self._approvals is not None and how.error is not None else None
            sequencer.emit([*events, *self.translator.end(interrupted=how.error is not None)])
            sequencer.run_in_order(lambda: play.end(how, denied))
        elif self._background is not None:
            background, self._background = self._background, None
            sequencer.emit([*events, *self.translator.end(interrupted=how.error is not None)])
            sequencer.run_in_order(lambda: background.end(how, sequencer))
            self._end_turn()
        else:  # of a turn that began right before ours, or one that nobody waits for any more
            sequencer.emit([*events, OtherEvent(kind="result", native=msgspec.Raw(line))])
        self._changed.set()

    def on_oversize(self, frame: Oversize) -> None:
        self._warn(f"a frame of {frame.size} bytes was skipped: more than the limit frame allows")
        if scan_kind_and_id(frame.head)[0] == "result":
            self._fail_turn(AgentFailed("its result is longer than the limit frame allows", kind="garbled", who=self.name))

    def on_lost(self, cause: SeraiError) -> None:
        expected = self._closing or self._over is not None  # we have ended it
        self._over = self._over or build_exit_error(cause, self.name)
        assert self._sequencer is not None
        if self._approvals is not None:
            self._approvals.cancel_all()
        self._sequencer.emit(self.translator.end(interrupted=True, gone=True))
        if (self._play is None or self._play.answered) and self._background is None and not expected:
            self._warn(f"it ended between two turns: {cause}")
        self._fail_turn(self._over)
        self._changed.set()
        if self._connection is not None:  # its tools have sessions of their own, and would go on without it (spec agents 2.13)
            self.context.end(self._connection.child)
        if not self._closing:
            for handler in self.on_terminated:
                handler(self._over)

    def _fail_turn(self, error: SeraiError) -> None:
        """The turn that runs fails, when all that came before is told."""
        assert self._sequencer is not None
        sequencer = self._sequencer
        if (play := self._play) is not None:
            sequencer.run_in_order(lambda: play.fail(error))
        if (background := self._background) is not None:
            self._background = None
            sequencer.run_in_order(lambda: background.fail(error, sequencer))

    def on_tick(self, now: float) -> float | None:
        asking = self._approvals is not None and self._approvals.has_open_requests
        wrong, again = self._silence.check(now, playing=self._play is not None, asking=asking)
        if wrong == "mute":
            limit = LimitHit("agent_first", self.context.limits.agent_first)
            self._give_up(PeerTimeout("it has said nothing since its start", who=self.name, limit=limit))
        elif wrong == "stalled":
            self._emit(StateChanged(state="stalled"))
        return again

    # -- inside

    def _require_open(self) -> tuple[ClaudeConnection, EventSequencer]:
        if self._over is not None:
            raise self._over.for_call("")
        if self._connection is None or self._sequencer is None:
            raise Closed("claude is not open", who=self.name)
        return self._connection, self._sequencer

    def require_connection(self) -> ClaudeConnection:
        return self._require_open()[0]

    def _emit(self, event: Any) -> None:
        if self._sequencer is not None:
            self._sequencer.emit([event])

    def _warn(self, text: str) -> None:
        log.warning("claude: %s", text)
        self._emit(NoticeEvent(notice=Notice(text, "warn", "serai")))

    def _give_up(self, error: SeraiError, *, at_once: bool = False) -> None:
        """Nothing good can come of it any more: the process is ended, tree and all."""
        if self._over is None:
            self._over = error
        if self._play is not None:
            self._play.fail(error)
        if self._connection is not None:
            self.context.end(self._connection.child, at_once=at_once)
        self._changed.set()

    def steer(self, text: str) -> None:
        """With an id of its own: when it comes too late and makes a turn, the result of that is not taken for another's."""
        connection = self.require_connection()
        connection.send(connection.host_side.prompt(text, uuid=str(uuid4()), relayed=True))

    async def set_model(self, query: str) -> str:
        reply = decode_object(await self.require_connection().request("set_model", {"model": query or None}))
        self.update_options(model=query)
        return str(reply.get("model") or query)

    async def set_mode(self, mode: str) -> None:
        await self.require_connection().request("set_permission_mode", {"mode": mode})
        self.update_options(permission_mode=mode)
        self.translator.mode = mode

    def update_options(self, **choice: str) -> None:
        """A process that takes this one's place has it too, and a fork: nobody gets back what a person has tightened."""
        self.context.options = msgspec.structs.replace(self.context.options, **choice)

    async def stop_task(self, task_id: str) -> None:
        """End something that it does on the side."""
        await self.require_connection().request("stop_task", {"task_id": task_id})

    async def send_control(self, subtype: str, **fields: Any) -> Any:
        """Whatever else its control protocol has, such as `get_context_usage`; its answer."""
        return decode_object(await self.require_connection().request(subtype, fields))
