"""Claude Code in text mode: a process for each prompt, which prints its answer and ends (spec agents 1.17, 7.33).

Nobody can be asked and nothing is reported but the answer; its own settings say what it may do. For callers that want just that,
such as those of the seed's `text` format.
"""

from __future__ import annotations

import asyncio
import codecs

import msgspec

from serai.agents.driven.process import StderrLines
from serai.agents.driver import Capabilities, Driver, Prompt, TurnFailed
from serai.agents.drivers.claude.connection import build_exit_error
from serai.agents.drivers.claude.launch import ClaudeLaunch
from serai.agents.event_hub import EventHub
from serai.errors import AgentFailed, LimitHit, NotCapable, PeerGone, PeerTimeout, SeraiError
from serai.model.events import Message, SessionStarted, Stderr, Text, TurnResult
from serai.model.tools import TextBlock
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child, stop_child
from serai.wire.stream import Oversize


class TextClaude(Driver):
    """One conversation, a process for each of its turns."""

    name = "claude"
    capabilities = Capabilities(deltas=True, interrupt=True, choose_id=True)

    def __init__(self, context: ClaudeLaunch) -> None:
        self.context = context
        self.session_id = context.options.session_id
        self._hub: EventHub | None = None
        self._child: Child | None = None
        self._interrupted = ""

    async def open(self, hub: EventHub) -> None:
        self._hub = hub
        hub.emit(SessionStarted(session=self.session_id))

    async def run(self, prompt: Prompt) -> TurnResult:
        hub = self._hub
        assert hub is not None
        if prompt.system or prompt.relayed:  # there is no place for it on a command line, where all is the person's word
            raise NotCapable("in text mode a prompt is the person's own text and nothing else", who=self.name)
        self._interrupted = ""
        deadlines = Deadlines()
        child = self._child = await self.context.spawn(text=prompt)
        answer = _Answer(hub)
        try:
            child.stderr.on_chunk = StderrLines(lambda line: hub.emit(Stderr(line=line))).feed
            Channel(child, answer, deadlines=deadlines, limits=self.context.limits, tap=self.context.tap(child.pid))
            async with asyncio.timeout(self.context.limits.agent_turn):
                cause = await answer.over
        except TimeoutError:
            limit = LimitHit("agent_turn", self.context.limits.agent_turn or 0)
            cause = PeerTimeout("the turn took too long", who=self.name, limit=limit)
        finally:
            await stop_child(child, self.context.limits)
            deadlines.close()
            self._child = None
        return self._build_result(answer, cause)

    def _build_result(self, answer: _Answer, cause: SeraiError) -> TurnResult:
        text = answer.end()
        if self._interrupted:
            return TurnResult(status="cancelled", text=text, error=self._interrupted)
        if not isinstance(cause, PeerGone) or cause.exit is None or not cause.exit.ok:
            error = cause if isinstance(cause, PeerTimeout) else build_exit_error(cause, self.name)
            if text and isinstance(error, AgentFailed):  # it prints why to its stdout
                error.details = (text.strip(),)
            raise TurnFailed(error, TurnResult(status="error", text=text, error=str(error)))
        if self.session_id:  # the next turn goes on with it
            self.context.options = msgspec.structs.replace(
                self.context.options, session_id=self.session_id, resume=True, fork=False
            )
        return TurnResult(status="success", text=text, session=self.session_id, steps=1)

    async def interrupt(self, reason: str) -> None:
        self._interrupted = reason
        if self._child is not None:
            await stop_child(
                self._child, self.context.limits.but(stop_polite=0.001)
            )  # it reads nothing, so there is nothing to ask

    async def close(self) -> None:
        if self._child is not None:
            await stop_child(self._child, self.context.limits)
        await self.context.close()


class _Answer:
    """Takes bytes as they come, and never for JSON."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self.over: asyncio.Future[SeraiError] = asyncio.get_running_loop().create_future()

    def end(self) -> str:
        self._add_text(self._decoder.decode(b"", final=True))
        text = "".join(self._pieces)
        if text.strip():
            self._hub.emit(Message(content=(TextBlock(text.rstrip("\n")),)))
        return text.rstrip("\n")

    def handle_run(self, run: bytes) -> None:
        self._add_text(self._decoder.decode(run))

    def _add_text(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._hub.emit(Text(text=text))

    def handle_oversize(self, frame: Oversize) -> None:
        self.handle_run(frame.head)

    def tick(self, now: float) -> float | None:  # noqa: ARG002
        return None

    def handle_loss(self, cause: SeraiError) -> None:
        if not self.over.done():
            self.over.set_result(cause)
