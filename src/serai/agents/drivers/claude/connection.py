"""The wire to one Claude process: its frames go to its owner in order, and each of our requests gets an answer or an end.

Nothing here waits, so that the process is always read (spec agents 7.1). Beside the connection: why a process ended, as an error
with a hint (spec agents 2.12), whether a prompt may be sent, and its content on the wire (spec agents 2.4).
"""

from __future__ import annotations

import asyncio
import logging
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any, Protocol

from msgspec import Raw

from serai.agents.driver import Interceptors, Prompt
from serai.dialects.claude.events import Answered, Event, Failed, Told, Unsupported
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import FromCli
from serai.dialects.claude.neutral import HINTS, classify_start_failure
from serai.errors import AgentFailed, LimitHit, OversizeFrame, PeerGone, PeerTimeout, SeraiError
from serai.limits import AgentLimits
from serai.wire.channel import Channel, Tap
from serai.wire.codec import Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child
from serai.wire.stream import Oversize

log = logging.getLogger("serai.agents")

Frame = tuple[FromCli | Unknown | Noise, bytes]  # with its line


class ConnectionHandler(Protocol):
    """Whose wire it is. Called from the loop; must not block."""

    def take_pieces(self, frames: Iterator[Frame]) -> Frame | None:
        """Takes frames as long as they are but pieces of text; gives back the first that is not."""
        ...

    def on_event(self, what: Event) -> None: ...
    def on_oversize(self, frame: Oversize) -> None: ...
    def on_lost(self, cause: SeraiError) -> None:
        """Once and last."""
        ...

    def on_tick(self, now: float) -> float | None:
        """What the passing of time has brought; the next time to look."""
        ...


class ClaudeConnection:
    """One process's standard streams, in the words of its dialect."""

    def __init__(
        self, child: Child, owner: ConnectionHandler, *, deadlines: Deadlines, limits: AgentLimits, tap: Tap | None = None
    ) -> None:
        self.host_side = HostSide()
        self.child = child
        self.cause: SeraiError | None = None
        self._owner = owner
        self._limits = limits
        self.channel = Channel(child, self, deadlines=deadlines, limits=limits, tap=tap)
        self.wake_by = self.channel.wake_by

    # -- what we say

    def send(self, frame: bytes) -> None:
        """Raises what ended the wire."""
        self.channel.send(frame)

    def try_send(self, frame: bytes, what: str) -> bool:
        """For an answer: whoever asked may be gone by now, and then its own end says more (spec agents 7.6)."""
        try:
            self.channel.send(frame)
        except SeraiError as error:
            log.info("claude: %s was not delivered: %s", what, error)
            return False
        return True

    async def deliver(self, frame: bytes, what: str) -> bool:
        """The same, and whether the pipe has taken it."""
        if not self.try_send(frame, what):
            return False
        try:
            await self.channel.drain()
        except SeraiError as error:
            log.info("claude: %s was not delivered: %s", what, error)
            return False
        return True

    async def request(self, subtype: str, fields: Mapping[str, Any] | None = None) -> Raw:
        """Ask the process something of the control protocol, and wait for its answer."""
        return await self.start_request(subtype, fields)

    def start_request(self, subtype: str, fields: Mapping[str, Any] | None = None) -> asyncio.Future[Raw]:
        """The same, sent at once, with a future for the answer."""
        if self.cause is not None:
            raise self.cause.for_call("")
        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        timeout = self._limits.agent_control
        call, frame = self.host_side.request(subtype, fields or {}, now=monotonic(), timeout=timeout, waiter=waiter)
        try:
            self.channel.send(frame)
        except BaseException:
            self.host_side.forget(call)
            raise
        self.channel.wake_by(call.deadline)
        waiter.add_done_callback(lambda done: self.host_side.forget(call) if done.cancelled() else None)
        return waiter

    # -- the channel's receiver

    def handle_run(self, run: bytes) -> None:
        frames = self.host_side.read_frames(run)
        while (frame := self._owner.take_pieces(frames)) is not None:
            what = self.host_side.interpret(*frame)
            if type(what) is Told:
                self._owner.on_event(what)
            else:
                self._handle_control(what)

    def _handle_control(self, what: Event) -> None:
        if isinstance(what, Answered):
            if not what.call.waiter.done():
                what.call.waiter.set_result(what.response)
        elif isinstance(what, Failed):
            text = f"it refused {what.call.what}: {what.error}"
            _fail(what.call.waiter, AgentFailed(text, kind=what.code or "refused", who=self.child.who))
        else:
            if isinstance(what, Unsupported) and what.reply is not None:
                self.try_send(what.reply, f"the refusal of {what.subtype}")
            self._owner.on_event(what)

    def handle_oversize(self, frame: Oversize) -> None:
        limit = LimitHit("frame", frame.limit)
        for call in self.host_side.oversize(frame):
            error = OversizeFrame(f"its answer to {call.what} had {frame.size} bytes", who=self.child.who, id=call.id, limit=limit)
            _fail(call.waiter, error)
        if (excuse := self.host_side.refuse_oversize(frame)) is not None:
            self.try_send(excuse, "the refusal of an oversize request")
        self._owner.on_oversize(frame)

    def tick(self, now: float) -> float | None:
        for call in self.host_side.expire(now):
            limit = LimitHit("agent_control", call.timeout or 0)
            error = PeerTimeout(f"no answer to {call.what}", who=self.child.who, id=call.id, limit=limit)
            _fail(call.waiter, error)
        times = (self.host_side.next_deadline(), self._owner.on_tick(now))
        return min((at for at in times if at is not None), default=None)

    def handle_loss(self, cause: SeraiError) -> None:
        self.cause = cause
        for call in self.host_side.lose():
            error = cause.for_call(call.id)
            _fail(call.waiter, error)
        self._owner.on_lost(cause)


def _fail(waiter: asyncio.Future[Raw], error: SeraiError) -> None:
    if not waiter.done():
        waiter.set_exception(error)


_WHAT = {
    "bad_flag": "it does not take its command line",
    "bad_session_id": "it does not take the id of the session",
    "cwd_unavailable": "its working directory is gone",
    "not_logged_in": "it has no login",
    "session_in_use": "the id of the session is taken",
}

_HINT = "prompt again: the conversation goes on in another process; `serai record show` has what this one said"


def build_exit_error(cause: SeraiError, who: str) -> SeraiError:
    """Start-up failures are told on stderr alone, and an exit status of 0 without a result is no success."""
    if not isinstance(cause, PeerGone):
        return cause
    kind = classify_start_failure(cause.stderr)
    if not kind:
        kind = "no_result" if cause.exit is not None and cause.exit.ok else "exited"
    what = _WHAT.get(kind) or ("it ended without a result" if kind == "no_result" else cause.message)
    return AgentFailed(what, kind=kind, who=who, exit=cause.exit, stderr=cause.stderr, hint=HINTS.get(kind, _HINT))


def build_interrupt_error(who: str) -> AgentFailed:
    return AgentFailed("it did not heed an interrupt, and was ended", kind="exited", who=who, hint=_HINT)


async def find_refusal(interceptors: Interceptors) -> str:
    """Why it must not be, or "". Asked once for a prompt: the steps of its turn are Claude's own."""
    try:
        return await interceptors.before_step(1)
    except Exception as error:  # who cannot say yes has not said it (design rule 7)
        log.exception("an interceptor failed")
        return f"an interceptor failed: {error}"


_END = re.compile(r"<(\s*/\s*context)", re.IGNORECASE)


def build_prompt_content(prompt: Prompt) -> str | list[dict[str, Any]]:
    """What guests add stands before the prompt and is marked as theirs: the model must not take it for the person's words."""
    if not prompt.system and not prompt.images:
        return prompt.text
    blocks: list[dict[str, Any]] = []
    if prompt.system:
        blocks.append(_build_text_block(f'<context from="extensions">\n{_escape_end_tag(prompt.system)}\n</context>'))
    for image in prompt.images:
        source = {"type": "base64", "media_type": image.mime or "image/png", "data": b64encode(image.data).decode()}
        blocks.append({"type": "image", "source": source})
    if prompt.text:
        blocks.append(_build_text_block(prompt.text))  # the last: only there a command of Claude's own is looked for
    return blocks


def _build_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _escape_end_tag(text: str) -> str:
    """Nobody ends the block from within, however the model would read it."""
    return _END.sub(r"<\\\1", text)
