"""The adapter of the dialect `zot`: an extension on a child's pipes.

`serai.dialects.zot` says what the frames mean; here are the process, the clock and the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import Any, Literal

from serai.dialects.zot import events as zot_events
from serai.dialects.zot import messages, neutral
from serai.dialects.zot.host_side import HostSide
from serai.errors import BadFrame, Closed, LimitHit, OversizeFrame, PeerGone, PeerTimeout, Refused, SeraiError
from serai.host.adapter import Adapter, GuestConnection, StartContext, find_start_hint
from serai.host.guest_log import REMARK
from serai.host.send_queue import SendQueue
from serai.limits import MIB
from serai.model.actions import Action, SubmitPrompt
from serai.model.contributions import Command, Contributions, EventHandler, Interceptor, InterceptPoint, InterceptResult
from serai.model.events import Event, SessionStarted
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from serai.version import __version__
from serai.wire.channel import Channel
from serai.wire.codec import encode
from serai.wire.process import Child, Launch, stop_child
from serai.wire.stream import Oversize, PendingCall

# Spec zot 9. Frames are limited both ways: the guest's SDK reads no longer ones either.
LIMITS: dict[str, float | None] = {
    "frame": 4 * MIB,
    "send": 4 * MIB,
    "hello": 10.0,
    "ready": 3.0,
    "ready_idle": 0.25,
    "tool": 60.0,
    "command": 30.0,
    "intercept": 5.0,
    "stop_polite": 2.0,
    "stop_term": 1.0,
}

# What is left of a guest's time to stop, in seconds, however long it took to tell it (spec zot 9).
_LEAST = 0.1
# So many odd frames of one life are told one by one in its log; the rest is only counted.
_ODD = 100
_COMPLAINTS = 10


async def start(context: StartContext) -> GuestConnection:
    """Start the program and see it through hello to ready. Whatever fails, no process is left (spec zot 2.2, ours)."""
    manifest = context.manifest
    context.log.remark(f"starts {manifest.name} {manifest.version}".rstrip())  # before its own words: those are for errors
    child = await context.spawner.spawn(
        Launch(
            argv=manifest.argv,
            env=context.env,
            cwd=str(manifest.folder),
            who=context.who,
            stderr=context.log.descriptor,
            remarks=REMARK,
        )
    )
    try:
        guest = ZotGuest(context, child)
        await guest.started
    except BaseException:
        await child.close()
        raise
    return guest


class ZotGuest:
    """One running zot extension. The channel's receiver, and what the host asks."""

    def __init__(self, context: StartContext, child: Child) -> None:
        self._context = context
        self._name = context.manifest.name
        self._shown = context.manifest.shown  # before its words
        self._listener = context.listener
        self._limits = limits = context.limits
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self._contributions: Contributions | None = None  # made when somebody looks: a guest may offer many things one by one
        self.complaints: tuple[str, ...] = ()
        self._tools: dict[str, ToolSpec] = {}
        self._commands: dict[str, Command] = {}
        self._events: frozenset[str] = frozenset()
        self._stages: frozenset[InterceptPoint] = frozenset()
        self._stopping: asyncio.Task[Any] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._met = False  # it was told of a session
        self._full = False  # it has offered more than is taken
        self._odd = 0
        self.host_side = HostSide(hello=limits.hello, idle=limits.ready_idle, ready=limits.ready)
        self.host_side.begin(monotonic())
        self.channel = Channel(child, self, deadlines=context.deadlines, limits=limits, tap=context.tap(child.pid))
        self.channel.wake_by(self.host_side.next_deadline())
        self._watch = self.channel.watch  # these three are looked at for every call
        self._ask_tool = self.host_side.call_tool
        self._tool_time = limits.tool
        self._send_queue = SendQueue(self.channel, self._encode_event, self._waits_for, limits)

    # -- what the host asks ------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self.channel.child.pid

    async def idle(self) -> None:
        if self.host_side.pending:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    def call_tool(self, call: ToolCall) -> Awaitable[ToolResult]:
        """The hot path: no coroutine of its own. Who gives up cancels the future; zot has no word to take a call back."""
        waiter: asyncio.Future[ToolResult] = self._loop.create_future()
        asked, frame = self._ask_tool(call.name, call.arguments, monotonic(), self._tool_time, waiter)
        try:
            self._send_queue.request(frame, asked)  # the write counts against the deadline of the call (spec zot 5.4, ours)
        except BaseException:
            self.host_side.forget(asked)
            raise
        if asked.deadline < self._watch.at:  # seldom: earlier calls wait already
            self._watch.schedule(asked.deadline)
        return waiter

    async def run_command(self, name: str, args: str) -> Action:
        waiter: asyncio.Future[Action] = self._loop.create_future()
        asked, frame = self.host_side.invoke_command(name, args, now=monotonic(), timeout=self._limits.command, waiter=waiter)
        action: Action = await self._ask(asked, frame)
        return action

    async def intercept(self, _interceptor: Interceptor, stage: InterceptPoint, subject: Any) -> InterceptResult:
        waiter: asyncio.Future[messages.EventInterceptResponse] = self._loop.create_future()
        now, timeout = monotonic(), self._limits.intercept
        asked_about: Any = None
        if stage == "tool_call":
            asked_about = subject.arguments
            asked, frame = self.host_side.intercept_tool_call(
                subject.id, subject.name, subject.arguments, now=now, timeout=timeout, waiter=waiter
            )
        elif stage == "turn_start":
            asked, frame = self.host_side.intercept_turn_start(subject, now=now, timeout=timeout, waiter=waiter)
        else:
            asked, frame = self.host_side.intercept_assistant_message(subject, now=now, timeout=timeout, waiter=waiter)
        return neutral.read_verdict(stage, await self._ask(asked, frame), asked_about)

    def tell(self, event: Event) -> None:
        self._send_queue.tell(event)

    def press(self, panel: str, key: str, text: str = "") -> None:
        self._send_message(messages.PanelKey(panel_id=panel, key=key, text=text))

    def resize(self, panel: str, width: int, height: int) -> None:
        self._send_message(messages.PanelResize(panel_id=panel, width=width, height=height))

    def close_panel(self, panel: str) -> None:
        self._send_message(messages.PanelClose(panel_id=panel))

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(), name=f"stop {self._context.who}")
        await asyncio.shield(self._stopping)

    # -- the channel's receiver --------------------------------------------------------------------------------------------------

    def handle_run(self, run: bytes) -> None:
        for event in self.host_side.receive(run):
            if type(event) is zot_events.Answered:
                call, frame = event.call, event.frame
                waiter = call.waiter
                if waiter.done():  # nobody waits any more: a late answer is dropped silently (spec zot 4.1)
                    continue
                if type(frame) is messages.ToolResult:
                    waiter.set_result(neutral.to_tool_result(frame, self._name, call.what))
                elif isinstance(frame, messages.CommandResponse):
                    self._handle_command_answer(waiter, frame)
                else:
                    waiter.set_result(frame)
            else:
                self._handle(event)
        if self._idle is not None:
            self._check_idle()

    def handle_oversize(self, frame: Oversize) -> None:
        self._remark_odd(f"a frame of {frame.size} bytes was skipped; the limit is {frame.limit}")
        limit = LimitHit("frame", frame.limit)
        if self.host_side.phase == "hello":
            self._fail_start(OversizeFrame(f"its first frame had {frame.size} bytes", who=self._context.who, limit=limit))
        for call in self.host_side.oversize(frame):
            why = f"its answer to {call.what} had {frame.size} bytes"
            self._fail(call, OversizeFrame(why, who=self._context.who, id=call.id, limit=limit))

    def tick(self, now: float) -> float | None:
        for event in self.host_side.expire(now):
            if isinstance(event, zot_events.Expired):
                limit = LimitHit(_LIMIT_OF.get(event.call.what.partition(" ")[0], "call"), event.call.timeout or 0)
                why = f"no answer to {event.call.what}"
                self._fail(event.call, PeerTimeout(why, who=self._context.who, id=event.call.id, limit=limit))
            else:
                self._handle(event)
        return self.host_side.next_deadline()

    def handle_loss(self, cause: SeraiError) -> None:
        self._send_queue.close()
        begun = self.host_side.phase
        for call in self.host_side.lose():
            self._fail(call, cause.for_call(call.id))
        if not self.started.done():
            ended = "exited" if cause.exit is not None else "closed its output"
            before = {"hello": f"{ended} before hello", "registering": f"{ended} before ready"}.get(begun, ended)
            hint = find_start_hint(cause.stderr)
            self._fail_start(PeerGone(before, who=cause.who, exit=cause.exit, stderr=cause.stderr, hint=hint))
        elif self._stopping is None:
            self._listener.on_end(cause)

    # -- what the guest says -----------------------------------------------------------------------------------------------------

    def _handle(self, event: zot_events.Event) -> None:
        match event:
            case zot_events.Hello():
                self._welcome()
            case zot_events.Ready(how=how):
                if how != "frame":
                    self._context.log.remark(_NOT_READY[how])
                if not self.started.done():
                    self.started.set_result(None)
            case zot_events.NoHello(why=why, late=late):
                self._fail_hello(why, late=late)
            case zot_events.ToolOffered(name=name, description=description, schema=schema):
                if self._has_room("tool", name):
                    self._tools[name] = ToolSpec(name, description, schema)
                    self._report_change()
            case zot_events.CommandOffered(name=name, description=description):
                if self._has_room("command", name):
                    self._commands[name] = Command(name, description, immediate=True)
                    self._report_change()
            case zot_events.ToolRefused(name=name, why=why):
                self._complain(f"its tool {name} is not taken: {why}")
            case zot_events.Subscribed(events=events, intercept=intercept):
                self._events |= {neutral.KINDS[name] for name in events if name in neutral.KINDS}
                self._stages |= {neutral.STAGES[name] for name in intercept}
                self._report_change()
                if event.unknown:
                    self._remark_odd(f"it subscribed to what never fires: {', '.join(event.unknown)}")
            case zot_events.Notified(level=level, message=message):
                if (notice := neutral.to_notice(level, message, self._shown)) is not None:
                    self._listener.on_action(notice)
            case zot_events.PanelRendered():
                self._listener.on_panel_render(event.panel_id, lambda panel: neutral.render_panel(panel, event))
            case zot_events.PanelClosed(panel_id=panel):
                self._listener.on_panel_close(panel)
            case zot_events.Garbled(call=call, why=why):
                self._remark_odd(f"its answer to {call.what} cannot be read: {why}")
                self._fail(call, BadFrame(f"its answer to {call.what} cannot be read: {why}", who=self._context.who, id=call.id))
            case _:
                if text := _describe_odd(event):
                    self._remark_odd(text)

    def _handle_command_answer(self, waiter: asyncio.Future[Action], frame: messages.CommandResponse) -> None:
        """It takes effect here and now: what the guest says next may be about the panel that this opens."""
        action = neutral.to_action(frame, source=self._shown, owner=self._context.manifest.id)
        if isinstance(action, neutral.CommandError):
            waiter.set_exception(Refused(action.text, who=self._context.who))
        else:
            if not isinstance(action, SubmitPrompt):  # that is for whoever ran the command to send
                self._listener.on_action(action)
            waiter.set_result(action)

    def _welcome(self) -> None:
        manifest, about = self._context.manifest, self._context.about
        folder = str(manifest.folder)
        ack = messages.HelloAck(
            zot_version=__version__,
            provider=about.provider,
            model=about.model,
            cwd=about.cwd,
            extension_dir=folder,
            data_dir=folder,
        )
        self._context.greeted()
        try:
            self.channel.send(self.host_side.welcome(ack, now=monotonic()))
        except SeraiError as error:  # it is going: its end says more
            self._context.log.remark(f"send hello_ack: {error}")
        self.channel.wake_by(self.host_side.next_deadline())

    def _fail_hello(self, why: str, *, late: bool) -> None:
        child = self.channel.child
        child.stderr.drain()
        if late:
            limit = LimitHit("hello", self._limits.hello)
            hint = "it must write its hello as the first line of its standard output, and flush it"
            error: SeraiError = PeerTimeout(why, who=self._context.who, limit=limit, stderr=child.stderr.text(), hint=hint)
        else:
            error = BadFrame(why, who=self._context.who, stderr=child.stderr.text())
        self._fail_start(error)

    @property
    def contributions(self) -> Contributions:
        if self._contributions is None:
            self._contributions = Contributions(
                tools=tuple(self._tools.values()),
                commands=tuple(self._commands.values()),
                interceptors=(Interceptor(self._name, self._stages),) if self._stages else (),
                event_handlers=(EventHandler(self._name, self._events),) if self._events else (),
            )
        return self._contributions

    def _has_room(self, what: str, name: str) -> bool:
        most = self._limits.registrations
        if len(self._tools) + len(self._commands) < most:
            return True
        if not self._full:
            self._full = True
            self._complain(f"its {what} {name} and what follows is not taken: it offers more than {most} names")
        return False

    def _complain(self, text: str) -> None:
        """Of the first few the report tells; all are in the log."""
        self._remark_odd(text)
        self.complaints = (*self.complaints, text) if len(self.complaints) < _COMPLAINTS else self.complaints

    def _report_change(self) -> None:
        self._contributions = None
        if self.started.done():  # before that the host looks when it is ready
            self._listener.on_change()

    # -- inside ------------------------------------------------------------------------------------------------------------------

    async def _ask(self, asked: PendingCall[str], frame: bytes) -> Any:
        try:
            self._send_queue.request(frame, asked)
            self.channel.wake_by(asked.deadline)
            return await asked.waiter
        except BaseException:
            self.host_side.forget(asked)  # zot has no word to take a question back: its late answer is a stray
            raise

    def _send_message(self, message: messages.FromHost) -> None:
        """Something nobody waits for an answer to; a guest that is gone or full misses it."""
        try:
            self._send_queue.request(encode(message))
        except SeraiError as error:
            self._context.log.remark(f"{type(message).__name__} was not sent: {error}")

    def _waits_for(self, call: PendingCall[str]) -> bool:
        return not call.waiter.done() and self.host_side.waits_for(call)

    def _encode_event(self, event: Event) -> bytes | None:
        message = neutral.to_event(event)
        if message is None or neutral.KINDS[message.event] not in self._events:
            return None
        if isinstance(event, SessionStarted):  # once, whatever session follows (spec zot 4.3)
            if self._met:
                return None
            self._met = True
        return encode(message)

    def _fail(self, call: PendingCall[str], error: SeraiError) -> None:
        if not call.waiter.done():
            call.waiter.set_exception(error)
        self._check_idle()

    def _check_idle(self) -> None:
        if self._idle is not None and not self.host_side.pending and not self._idle.done():
            self._idle.set_result(None)

    def _fail_start(self, error: SeraiError) -> None:
        if not self.started.done():
            self.started.set_exception(error)

    def _remark_odd(self, text: str) -> None:
        self._odd += 1
        if self._odd <= _ODD:
            self._context.log.remark(text)
        elif self._odd == _ODD + 1:
            self._context.log.remark("further frames of this kind are not told one by one")

    async def _stop(self) -> None:
        for call in self.host_side.leave():  # nobody waits for an answer until the process has ended
            self._fail(call, Closed("it was stopped before it answered", who=self._context.who, id=call.id))
        await stop_child(self.channel.child, self._limits, polite=self._send_shutdown)

    async def _send_shutdown(self) -> None:
        async with asyncio.timeout(max(self._limits.stop_polite - _LEAST, 0)):  # one that does not read gets the rest of its time
            await self._send_queue.flush()  # the last events of a run are not lost (spec zot 4.3, ours)
            await self.channel.send_farewell(encode(messages.Shutdown()))


def _describe_odd(event: zot_events.Event) -> str:
    """What the log says of a frame that fits nothing; empty for what needs no word."""
    match event:
        case messages.Malformed(why=why, raw=raw):
            return f"malformed frame: {why}: {raw[:200].decode(errors='replace')}"
        case messages.UnknownFrame(kind=kind):
            return f'unknown frame type "{kind}"'
        case messages.Stray(why=why):
            return f"stray frame: {why}"
        case zot_events.Repeated(what=what, name=name):
            return f"its {what} {name} was registered twice: the first counts"
        case _:
            return ""


_LIMIT_OF = {"tool_call": "tool", "command_invoked": "command", "event_intercept": "intercept"}
_NOT_READY = {
    "idle": "no ready frame; auto-readying after idle (legacy SDK?)",
    "late": "timed out waiting for ready frame; proceeding",
}


def explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    """The origin's words (spec zot 4.1, 4.2); what it did not tell apart is told as it is."""
    why = error.message if isinstance(error, Refused) else str(error).removeprefix(f"zot:{guest}: ")
    if isinstance(error, PeerTimeout):
        why = f"timeout waiting for {guest}/{name}"
    return f"extension {guest}/{name} failed: {why}" if what == "tool" else f"extension /{name}: {why}"


ADAPTER = Adapter(start, LIMITS, explain, one_by_one=True)
