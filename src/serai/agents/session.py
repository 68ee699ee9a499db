"""A conversation with an agent, the same for every agent: prompts in, turns out.

`async with` outside, an idempotent `close()` inside (design rule 11). Closing interrupts the running turn and ends the agent; what
was said is on disk. `SessionPersistence` stores the session's events, steered texts and compactions as they happen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self

import msgspec

from serai.agents.driver import Capabilities, Driver, Prompt, TurnFailed
from serai.agents.event_hub import EventHub, Listener
from serai.agents.turn import Turn
from serai.errors import Closed, SeraiError, TurnInFlight
from serai.limits import AgentLimits
from serai.model.approvals import Approval, Decision, Question
from serai.model.events import TurnResult
from serai.model.provider import ModelMessage
from serai.model.tools import ImageBlock
from serai.plain_text import shorten
from serai.store.messages import from_model_message
from serai.store.session_folder import CurrentSession
from serai.store.session_writer import SessionWriter
from serai.store.stored_session import StoredSession as Stored
from serai.wire import codec

log = logging.getLogger("serai.agents")


class SessionPersistence:
    """Writes what a hub is told into a stored session. It is told first: what cannot be written must not be acted upon."""

    def __init__(self, store: Stored | CurrentSession, hub: EventHub) -> None:
        self._current = store if isinstance(store, CurrentSession) else CurrentSession(store)
        self._writer = SessionWriter(self._current)
        self.steered = self._writer.record_steering
        self.aborted = self._writer.record_abort
        hub.listeners.insert(0, self._writer.tell)
        hub.on_decided.append(self._writer.record_decision)
        hub.on_answer.append(self._writer.record_answer)
        hub.on_compact.append(self._save_compaction)

    def _save_compaction(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        names = {call.id: call.name for message in messages for call in message.calls}
        kept = [from_model_message(message, tool=names.get(message.call_id, "")) for message in messages]
        with self._current.turn:
            self._writer.write()
            self._current.session.compact(kept, tokens)

    def close(self) -> None:
        """What could not be written by now is lost, and that is told."""
        try:
            self._writer.close()
        except SeraiError as error:
            log.error("the end of the session could not be written: %s", error)


State = Literal["new", "idle", "running", "closed"]


class Session:
    """One conversation. Every method may be called from any task of its loop."""

    def __init__(self, driver: Driver, *, store: Stored | CurrentSession | None = None, limits: AgentLimits | None = None) -> None:
        """`store` is where it is kept; without one it is forgotten."""
        self.driver = driver
        self.limits = limits or AgentLimits()
        self.hub = EventHub(driver.name, driver.session_id, self.limits)
        self._persistence = SessionPersistence(store, self.hub) if store is not None else None
        self._playing: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # -- its life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Start the agent. When it cannot be started, nothing is left of it."""
        if self._opening is not None or self._closing is not None:
            raise Closed("a session is opened once", who=self.agent)
        self._opening = asyncio.ensure_future(self.driver.open(self.hub))
        try:
            await self._opening
        except BaseException:
            closed = self._closing is not None
            await self.close()
            if closed and self._opening.cancelled():
                raise Closed("the session was closed while it was opened", who=self.agent) from None
            raise
        self.hub.session = self.hub.session or self.driver.session_id

    async def close(self) -> None:
        """End what runs, then the agent. Idempotent, and not to be stopped half-way."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._cancel_task(self._opening)
        await self._cancel_task(self._compacting)
        if (turn := self.hub.turn) is not None:
            await turn.cancel("the session was closed")
        await self._cancel_task(self._playing)
        try:
            async with asyncio.timeout(self._patience):
                await self.driver.close()
        except TimeoutError:
            log.error("%s could not be closed within %g s", self.agent, self._patience)
        finally:
            self.hub.close()
            if self._persistence is not None:
                self._persistence.close()

    async def _cancel_task(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=self.limits.interrupt)

    @property
    def _patience(self) -> float:
        """For an agent to be closed: longer than the ladder that ends a process takes."""
        limits = self.limits
        return limits.interrupt + limits.stop_polite + limits.stop_term + limits.stop_kill

    # -- who it is

    @property
    def agent(self) -> str:
        return self.driver.name

    @property
    def id(self) -> str:
        return self.hub.session

    @property
    def capabilities(self) -> Capabilities:
        return self.driver.capabilities

    @property
    def state(self) -> State:
        if self._closing is not None:
            return "closed"
        if self._opening is None or not self._opening.done():
            return "new"
        return "idle" if self.hub.turn is None else "running"

    @property
    def pending(self) -> tuple[Approval | Question, ...]:
        """What waits for an answer."""
        return tuple(self.hub.pending.values())

    # -- prompts

    def turn(self, prompt: str | Prompt, *, images: Sequence[ImageBlock] = ()) -> Turn:
        """A turn for this prompt. It begins when it is iterated, entered or awaited; `TurnInFlight` when another one runs then."""
        if isinstance(prompt, str):
            prompt = Prompt(prompt, tuple(images))
        prompt = msgspec.structs.replace(prompt, text=codec.replace_surrogates(prompt.text))  # argv may hold what has no UTF-8
        if not prompt.text.strip() and not prompt.images:
            raise ValueError("an empty prompt asks nothing")
        if prompt.images:
            self._require("images")
        return Turn(prompt, self.hub, start=self._start, stop=self._stop)

    async def send(self, prompt: str | Prompt, *, images: Sequence[ImageBlock] = ()) -> Turn:
        """The same, begun at once."""
        turn = self.turn(prompt, images=images)
        turn.start()
        return turn

    def _start(self, turn: Turn) -> None:
        if self.state == "new":
            raise Closed("the session is not open yet", who=self.agent, hint="enter it first: `async with session:`")
        if self.state == "closed":
            raise Closed("the session is closed", who=self.agent, hint="open another one")
        if self.hub.turn is not None:
            raise TurnInFlight(f'it is busy with "{shorten(self.hub.turn.prompt.text)}"', who=self.agent)
        self._check_free()
        self.hub.turn = turn
        self._playing = asyncio.get_running_loop().create_task(self._play(turn), name=f"turn of {self.agent}")

    def must_be_idle(self) -> None:
        """Raises `TurnInFlight` while anything works on the conversation: a turn, or whoever shortens it."""
        if self.hub.turn is not None:
            raise TurnInFlight("its conversation cannot be changed while a turn runs", who=self.agent)
        self._check_free()

    def _check_free(self) -> None:
        if _is_running(self._compacting):
            raise TurnInFlight("its conversation is being shortened", who=self.agent)
        if _is_running(self._playing):
            raise TurnInFlight("it still works on a turn that was cancelled, and does not heed that", who=self.agent)

    async def free(self) -> None:
        """Until another turn may begin, or the session is closed."""
        while self.state != "closed":
            if (turn := self.hub.turn) is not None:
                await turn.over()
            elif busy := [task for task in (self._compacting, self._playing) if task is not None and not task.done()]:
                await asyncio.wait(busy)
            else:
                return

    async def _play(self, turn: Turn) -> None:
        error: BaseException | None = None
        try:
            self.hub.begin(turn)
            result = await self.driver.run(turn.prompt)
        except asyncio.CancelledError:  # it did not heed the interrupt
            result = TurnResult(status="cancelled", error=turn.reason)
        except TurnFailed as failure:
            error, result = failure.error, failure.result
        except SeraiError as failure:
            error, result = failure, TurnResult(status="error", error=str(failure))
        except Exception as failure:
            log.exception("the driver of %s failed", self.agent)
            error, result = failure, TurnResult(status="error", error=f"{type(failure).__name__}: {failure}")
        self._end_turn(turn, result, error)

    def _end_turn(self, turn: Turn, result: TurnResult, error: BaseException | None = None) -> None:
        if self._persistence is not None and result.status == "cancelled" and turn.outcome is None and turn.marks:
            try:
                self._persistence.aborted(turn.reason or result.error)
            except Exception as failure:  # a full disk
                error = error or failure
        self.hub.end(turn, result, error)

    async def _stop(self, turn: Turn, reason: str) -> None:
        """Ask first; end it when that has not helped in time (spec agents 2.13)."""
        playing = self._playing
        if playing is None or self.hub.turn is not turn:
            return
        try:
            async with asyncio.timeout(self.limits.interrupt):
                await self.driver.interrupt(reason)
                await asyncio.shield(playing)
        except TimeoutError:
            log.warning("%s did not heed an interrupt within %g s", self.agent, self.limits.interrupt)
            playing.cancel(reason)
            await asyncio.wait([playing], timeout=self.limits.interrupt)
        except Exception:
            log.exception("%s could not be interrupted", self.agent)
            playing.cancel(reason)
            await asyncio.wait([playing], timeout=self.limits.interrupt)
        if turn.outcome is None:  # what hangs is left behind; the turn is over all the same
            self._end_turn(turn, TurnResult(status="cancelled", error=reason))

    # -- while it runs

    async def interrupt(self, reason: str = "interrupted", *, mark: bool = True) -> None:
        """End the turn that runs, if one does; the conversation goes on. `mark`: the model finds in it that it was interrupted."""
        if (turn := self.hub.turn) is not None:
            self._require("interrupt")
            await turn.cancel(reason, mark=mark)

    def steer(self, text: str) -> None:
        """A text for the turn that runs: the model gets it before its next step."""
        self._require("steer")
        if (turn := self.hub.turn) is None:
            raise Closed("no turn runs that could be steered", who=self.agent, hint="send it as a prompt")
        text = codec.replace_surrogates(text)
        if not turn.began:  # then it is part of the prompt
            turn.prompt = msgspec.structs.replace(turn.prompt, text=f"{turn.prompt.text}\n\n{text}")
            return
        self.driver.steer(text)
        if self._persistence is not None:
            self._persistence.steered(text)

    def aborted(self, reason: str) -> None:
        """Between two turns: keep that somebody interrupted, for the model to find."""
        if self._persistence is not None:
            self._persistence.aborted(reason)

    async def answer(self, id: str, decision: Decision) -> None:
        """Answer an approval or a question by its id: `NoApproval` when nothing of that id waits."""
        await self.hub.answer(id, decision)

    # -- between turns

    async def set_model(self, query: str) -> str:
        """Another model from the next step on; its key."""
        self._require("switch_model")
        return await self.driver.set_model(query)

    async def set_mode(self, mode: str) -> None:
        """The agent's own permission mode."""
        self._require("modes")
        await self.driver.set_mode(mode)

    async def compact(self) -> None:
        """Shorten the conversation now."""
        self._require("compact")
        if self.state != "idle":
            raise TurnInFlight("a conversation is shortened between two turns", who=self.agent)
        self._check_free()
        self._compacting = compacting = asyncio.ensure_future(self.driver.compact())
        try:
            await compacting
        except asyncio.CancelledError:
            if self._closing is None:
                raise
            raise Closed("the session was closed meanwhile", who=self.agent) from None

    async def idle(self) -> None:
        """Until no turn runs, and nothing on the side."""
        while (turn := self.hub.turn) is not None:
            await turn.over()
        await self.driver.wait_idle()

    def fork(self) -> Session:
        """Another session that begins where this one is; it is opened by whoever gets it, and kept nowhere."""
        self._require("fork")
        return Session(self.driver.fork(), limits=self.limits)

    # -- who listens

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have every event told, before whoever reads the turn gets it. Returns what ends that."""
        self.hub.listeners.append(listener)
        return lambda: _drop(self.hub.listeners, listener)

    def on_turn(self, handler: Callable[[Turn], None]) -> Callable[[], None]:
        """Be told of turns that the agent begins by itself. Who wants to read one says `turn.taken = True` and iterates it."""
        self.hub.on_turn.append(handler)
        return lambda: _drop(self.hub.on_turn, handler)

    def _require(self, capability: str) -> None:
        if not getattr(self.capabilities, capability):
            raise self.driver.make_not_capable(capability)
        if self._closing is not None:
            raise Closed("the session is closed", who=self.agent)


def _is_running(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()


def _drop(handlers: list, handler: object) -> None:  # type: ignore[type-arg]
    if handler in handlers:
        handlers.remove(handler)
