"""One running plugin, and its start: the package is read, a worker is opened for it, and `start` is called (spec yoi 13.1).

Its code runs in a worker that has no authority; its effects are performed here, after both checks (spec yoi 1). What reaches it
from outside is in `ingress`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Generator, Mapping, Sequence
from typing import Any

import msgspec

from serai import paths
from serai.dialects.yoi import messages
from serai.dialects.yoi.host_api import HostCallDenied
from serai.dialects.yoi.host_side import HostSide
from serai.dialects.yoi.messages import BadDocument, Event, PluginStatus
from serai.dialects.yoi.status import DispatchReport, InstanceStatus
from serai.errors import BadFrame, BadManifest, Closed, PeerGone, PeerTimeout, Refused, SeraiError
from serai.host.adapter import StartContext
from serai.host.adapters.yoi.effects.host_calls import HostCalls
from serai.host.adapters.yoi.ingress import IngressDispatcher
from serai.host.adapters.yoi.offer import APIS, Offer, OfferedTool, build_offer, build_tool_error, reword
from serai.host.adapters.yoi.worker import Worker, open_worker
from serai.model.actions import Action
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult
from serai.model.events import Event as HostEvent
from serai.model.tools import TextBlock, ToolCall, ToolResult
from serai.plugins import authorization, package_store
from serai.plugins.bounds import DEFAULT, DOCUMENT, Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import INSTANCE
from serai.plugins.untrusted_text import operator_text, to_display_text

Phase = messages.Phase

_STOPPING = "the plugin is being stopped"


class YoiGuest:
    """`GuestConnection` for the dialect yoi. One life: after a trap another worker takes over (spec yoi 13.5, ours)."""

    def __init__(self, context: StartContext, record: ResolvedPlugin, bounds: Bounds, offer: Offer, instance: HostSide) -> None:
        self._context = context
        self.record = record
        self.bounds = bounds
        self._tools = offer.tools
        self._loop = asyncio.get_running_loop()
        runtime = record.manifest.runtime
        self.stateful = runtime is not None and runtime.world == INSTANCE
        self._export = "handle-tool" if self.stateful else "call"
        self.over: SeraiError | None = None  # why this life has ended
        self._ready = False
        self._hushed = False  # it is to stop: what it had begun gets nothing more of the host
        self._stopping: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[str]] = set()  # calls of tools that have no answer yet
        self.contributions: Contributions = offer.contributions
        self.complaints: tuple[str, ...] = offer.denied
        self.instance = instance
        self.worker: Worker | None = None
        own = (paths.config_folder(context.environ), paths.state_folder(context.environ))
        self.effects = HostCalls(record, bounds, own=own)
        self.services = IngressDispatcher(self)

    @property
    def who(self) -> str:
        return self._context.who

    @property
    def pid(self) -> int:
        return 0 if self.worker is None else self.worker.pid

    # -- its start --------------------------------------------------------------------------------------------------------------

    async def begin(self, worker: Worker) -> None:
        """The worker is there; `start` makes the instance, and what it listens to is opened (spec yoi 13.1)."""
        self.worker = worker
        worker.after = self.effects.reset  # what a call of the world `tool` opened ends with its store (spec yoi 5, 13.1)
        if self.stateful:
            self.instance.begin_start()
            try:
                self.instance.finish_start(await self._call_phase("start", messages.encode_config(self.record.config)))
            except SeraiError as error:
                self.instance.mark_crashed(error.message)
                raise
        self._ready = True
        if self.over is not None:  # it died between its answer and this moment
            raise self.over
        if self.stateful:
            self.services.begin()

    async def _call_phase(self, phase: Phase, *args: str) -> PluginStatus:
        """One of `start`, `status` and `stop`; what it answers is what it is (spec yoi 3.2)."""
        assert self.worker is not None
        text = await self.worker.call(phase, args, self.bounds.start)
        try:
            return messages.read_status(text, phase)
        except BadDocument as error:
            raise BadFrame(str(error), who=self.who) from None

    # -- what the host asks -----------------------------------------------------------------------------------------------------

    async def idle(self) -> None:
        self.services.stop_listening()  # another life listens now
        if self._waiting:
            await asyncio.wait(list(self._waiting))
        await self.services.idle()

    def call_tool(self, call: ToolCall) -> Awaitable[ToolResult]:
        """The hot path: one future and no task. Who gives up cancels; a call that has not begun then never does."""
        tool = self._tools.get(call.name)
        if tool is None or self.worker is None:
            raise Refused("requested tool is not declared by plugin manifest", who=self.who, id=call.id)
        if self.over is not None or self._stopping is not None:
            raise build_tool_error(
                self.record, tool, PeerGone(self.instance.find_refusal() or "it has ended", who=self.who, id=call.id)
            )
        if reason := authorization.find_tool_refusal(self.record, call.name):
            raise build_tool_error(self.record, tool, Refused(f"plugin permission denied: {reason}", who=self.who, id=call.id))
        text, problem = _encode_input(call)
        if problem:  # the host has looked at the schema already
            return _return_result(ToolResult.error(problem, code="INVALID_ARGS", hint="correct the arguments and call again"))
        answer = self.worker.call(self._export, (call.name, text), tool.seconds)
        self._waiting.add(answer)
        answer.add_done_callback(self._waiting.discard)
        return _Answer(self, tool, answer)

    async def run_command(self, name: str, args: str) -> Action:
        raise Refused(f"a plugin has no command: /{name} {args}".rstrip(), who=self.who)

    async def intercept(self, _interceptor: Interceptor, stage: InterceptPoint, _subject: Any, /) -> InterceptResult:
        raise Refused(f"a plugin intercepts nothing: {stage}", who=self.who)  # it offers none, so nobody asks

    def tell(self, event: HostEvent) -> None:
        """Plugins hear of no events of the host: their events come by an ingress."""

    def press(self, panel: str, key: str, text: str = "") -> None:
        """Plugins have no panels."""

    def resize(self, panel: str, width: int, height: int) -> None:
        """Plugins have no panels."""

    def close_panel(self, panel: str) -> None:
        """Plugins have no panels."""

    # -- for the operator -------------------------------------------------------------------------------------------------------

    def get_status(self) -> InstanceStatus:
        """What is known of it at this moment; nothing is asked (spec yoi 3.8)."""
        return self.instance.build_status()

    async def refresh_status(self) -> InstanceStatus:
        """The same after asking it, if it runs and is not busy: one that waits for the net holds up nobody (spec yoi 21.26)."""
        worker = self.worker
        if self.stateful and worker is not None and not worker.busy and self.over is None and self._stopping is None:
            try:
                self.instance.refresh_status(await self._call_phase("status"))
            except SeraiError as error:
                self.fail(error)
        return self.instance.build_status()

    def report(self) -> dict[str, Any]:
        """Its status as plain JSON data. Texts are the guest's and may hold anything."""
        status: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.instance.build_status()))
        return status

    async def dispatch(self, name: str, event: Event) -> DispatchReport:
        """Bring it one event and wait for what comes of it (spec yoi 15)."""
        return await self.services.dispatch(name, event)

    # -- its end ----------------------------------------------------------------------------------------------------------------

    def fail(self, cause: SeraiError) -> None:
        """It is `Failed`: the supervisor of all dialects starts another worker (spec yoi 13.5, ours).

        Also what its worker's end calls.
        """
        if self.over is not None or self._stopping is not None:
            return
        self.over = cause
        self.instance.mark_crashed(cause.message)
        self.services.end()
        if self._ready:
            self._context.memory["record"] = self.record
            self._context.memory[INSTANCE] = self.instance  # counters and what waits go on in the next life
            self._context.listener.on_end(cause)

    async def abandon(self) -> None:
        """Its start has failed: nothing of it is left."""
        self.over = self.over or Closed("its start was given up", who=self.who)
        self.instance.mark_crashed(self.over.message)
        await self.stop()

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(), name=f"stop {self.who}")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        dead = self.over is not None
        self._hushed = True
        if not dead:
            self.instance.begin_stop()
            if self.worker is not None:  # who waits for the net would wait for its own time (spec yoi 21.26)
                self.worker.interrupt(_STOPPING)
        await self.services.stop()
        for answer in list(self._waiting):  # one that has not begun never does
            if not answer.done():
                answer.set_exception(Closed("it was stopped before it answered", who=self.who))
        if not dead and self.worker is not None:
            await self._call_stop(self.worker)
        await self.effects.close()
        if self.worker is not None:
            await self.worker.stop()

    async def _call_stop(self, worker: Worker) -> None:
        """Its own `stop`, once it is its turn (spec yoi 13.3)."""
        if not self.stateful:
            return
        error: SeraiError | None = None
        try:
            async with asyncio.timeout(self._context.limits.stop_polite):
                await worker.idle()
            self._hushed = False  # in its `stop` it may put things in order
            # one that was interrupted has trapped, and there is nobody left to be told
            self.instance.finish_stop(None if worker.cause is not None else await self._call_phase("stop"))
        except TimeoutError as late:
            error = late if isinstance(late, SeraiError) else PeerTimeout("it was too busy to be told to stop", who=self.who)
        except SeraiError as failure:
            error = failure
        if error is not None:
            self._context.log.remark(f"stop: {error.message}")
            self.instance.mark_crashed(error.message)

    def call_host(self, interface: str, function: str, args: Sequence[str | int], remaining: float) -> Awaitable[str]:
        """What its code asks of the host."""
        if self._hushed:
            raise HostCallDenied(_STOPPING)
        return self.effects.call(interface, function, args, remaining)


class _Answer:
    """What a tool answers, read by whoever waits for it: a future of its own would be one more round of the loop."""

    __slots__ = ("_answer", "_guest", "_tool")

    def __init__(self, guest: YoiGuest, tool: OfferedTool, answer: asyncio.Future[str]) -> None:
        self._guest = guest
        self._tool = tool
        self._answer = answer

    def __await__(self) -> Generator[Any, None, ToolResult]:
        guest = self._guest
        try:
            return _build_result(messages.read_output((yield from self._answer)), self._tool)
        except BadDocument as bad:  # its answer is none; the instance is as it was
            raise build_tool_error(guest.record, self._tool, BadFrame(str(bad), who=guest.who)) from None
        except SeraiError as error:
            raise build_tool_error(guest.record, self._tool, error) from error


async def _return_result(result: ToolResult) -> ToolResult:
    return result


def _encode_input(call: ToolCall) -> tuple[str, str]:
    """A tool's input as JSON, or why it is none (spec yoi 14.1)."""
    which = f"plugin tool `{call.name}` input"
    if isinstance(call.arguments, str):  # a model's own that were none
        return "", operator_text(f"{which} is not valid JSON: {call.arguments}")
    try:
        text = msgspec.json.encode(call.arguments)
    except (ValueError, TypeError, RecursionError) as error:
        return "", operator_text(f"{which} is not valid JSON: {error}")
    return ("", f"{which} exceeds {DOCUMENT} bytes") if len(text) > DOCUMENT else (text.decode(), "")


def _build_result(output: messages.ToolOutput, tool: OfferedTool) -> ToolResult:
    """Summary first, then the content, as one text; where it comes from is for people (spec yoi 12)."""
    text = to_display_text(output.summary if not output.content else f"{output.summary}\n{output.content}")
    details = {**tool.details, "output": output.others} if output.others else tool.details
    return ToolResult((TextBlock(text),), details=details)


async def start(context: StartContext) -> YoiGuest:
    """Whatever fails, no process is left."""
    manifest = context.manifest
    record: ResolvedPlugin | None = manifest.plan
    if record is None or record.manifest.runtime is None:
        raise BadManifest("it has nothing that runs", who=context.who)
    context.log.remark(f"starts {manifest.name} {manifest.version}".rstrip())
    bounds: Bounds = manifest.bounds or DEFAULT
    offer = build_offer(record, bounds, context.limits.tool, context.who)
    for line in offer.denied:
        context.log.remark(line)
    had, kept = context.memory.pop("record", None), context.memory.pop(INSTANCE, None)  # of another package nothing fits any more
    instance: HostSide = kept if kept and had == record else HostSide(record.identity, record.manifest.runtime.world)
    guest = YoiGuest(context, record, bounds, offer, instance)
    if offer.empty:  # nothing of it is enabled: no instance is made (spec yoi 12.3)
        return guest
    try:
        await _begin(guest, context, record, bounds)
    except BaseException as error:
        context.memory["record"], context.memory[INSTANCE] = record, instance
        await guest.abandon()
        if isinstance(error, SeraiError):
            raise reword(error, f"plugin instance startup failed closed: {operator_text(error.message)}") from error
        raise
    return guest


async def _begin(guest: YoiGuest, context: StartContext, record: ResolvedPlugin, bounds: Bounds) -> None:
    component = await asyncio.to_thread(_read_component, record, context.environ, bounds)
    assert record.manifest.runtime is not None
    worker = await open_worker(
        spawner=context.spawner,
        deadlines=context.deadlines,
        limits=context.limits,
        tap=context.tap,
        stderr=context.log.descriptor,
        who=context.who,
        component=component,
        digest=record.digest,
        world=record.manifest.runtime.world,
        bounds=bounds,
        cache=os.path.join(paths.state_folder(context.environ), "wasm"),
        denied={api: why for api in APIS if (why := authorization.find_api_refusal(record, api))},
        host=guest.call_host,
        ended=guest.fail,
    )
    context.greeted()
    await guest.begin(worker)


def _read_component(record: ResolvedPlugin, environ: Mapping[str, str], bounds: Bounds) -> bytes:
    """The very bytes whose digest was granted (spec yoi 10.2, 21.34); a copy is kept for later runs of this session."""
    package = package_store.load_package(record, environ, bounds)
    package_store.keep_copy(package, environ)
    assert record.manifest.runtime is not None
    return package.files[record.manifest.runtime.component]
