"""Serai's side of one plugin (sans-IO): its state, the events that wait for it, and what the operator is told (spec yoi 13 to 16).

One plugin has one `HostSide` for as long as the host knows it, however often its worker is started anew. Moves that the table has
not are no errors: what happens to a process comes in any order (it may die while it is asked to stop), and what comes too late
changes nothing. The adapter takes events with `next` one at a time, and reports the outcome of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from serai.dialects.yoi.messages import BadDocument, Event, PluginStatus, encode_event
from serai.dialects.yoi.status import (
    CommandResult,
    CommandStatus,
    ConnectionTable,
    Counters,
    Diagnostic,
    DiagnosticKind,
    DispatchReport,
    InstanceStatus,
    Lifecycle,
)  # fmt: skip
from serai.plugins import authorization
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import TOOL
from serai.plugins.untrusted_text import operator_text

QUEUE = 32
RESULTS = 32
DIAGNOSTICS = 256  # the origin's grow without bound (spec yoi 3.8)
ATTEMPTS = 3  # of one event, all but the last ended before the plugin saw it (spec yoi 15.3)

MOVES: dict[Lifecycle, frozenset[Lifecycle]] = {
    Lifecycle.READY: frozenset(),
    Lifecycle.STOPPED: frozenset({Lifecycle.STARTING}),
    Lifecycle.STARTING: frozenset({Lifecycle.RUNNING, Lifecycle.FAILED, Lifecycle.STOPPING}),
    Lifecycle.RUNNING: frozenset({Lifecycle.FAILED, Lifecycle.STOPPING}),
    Lifecycle.STOPPING: frozenset({Lifecycle.STOPPED, Lifecycle.FAILED}),
    Lifecycle.FAILED: frozenset({Lifecycle.STARTING, Lifecycle.STOPPING}),
}

_OF_COMMAND = {
    CommandStatus.RECORDED: DiagnosticKind.COMMAND_RECORDED,
    CommandStatus.REJECTED: DiagnosticKind.COMMAND_REJECTED,
    CommandStatus.UNSUPPORTED: DiagnosticKind.COMMAND_UNSUPPORTED,
}


class EventRejected(Exception):
    """An event that was not taken. The text is the operator's, bounded and redacted."""

    def __init__(self, kind: DiagnosticKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class HostSide:
    """The state of one plugin."""

    def __init__(self, ref: str, world: str, capacity: int = QUEUE) -> None:
        self.ref = ref
        self.capacity = capacity
        self.lifecycle = Lifecycle.READY if world == TOOL else Lifecycle.STOPPED
        self.component_status: Any = None
        self.last_error: str | None = None
        self.counters = Counters()
        self.cleared = 0  # events that were queued when it stopped
        self.in_flight: Event | None = None
        self.connections = ConnectionTable(self.note)
        self._cause = ""  # why it is Failed: `last_error` also has what was refused since
        self._lives = 0
        self._queue: deque[Event] = deque()
        self._results: deque[CommandResult] = deque(maxlen=RESULTS)
        self._diagnostics: deque[Diagnostic] = deque(maxlen=DIAGNOSTICS)

    # -- its life (spec yoi 13) -------------------------------------------------------------------------------------------------

    def begin_start(self) -> bool:
        """A new store: nothing of the old life is left but what waits in the queue. False: it is no time to start."""
        if not self._move(Lifecycle.STARTING):
            return False
        self._lives += 1
        self._cause = ""
        self.component_status = None
        self.connections.clear()
        if self.in_flight is not None:  # its outcome was never told
            self.mark_failed(self.in_flight, "the plugin's worker ended", poisoned=False)
        return True

    def finish_start(self, status: PluginStatus) -> bool:
        return self._move(Lifecycle.RUNNING) and self._keep_status(status)

    def refresh_status(self, status: PluginStatus) -> bool:
        """What `status` answered; asked for only while it runs (spec yoi 13.2)."""
        return self.lifecycle is Lifecycle.RUNNING and self._keep_status(status)

    def update_status(self, status: Any) -> None:
        """What a `diagnostic_status_update` says of the plugin from now on (spec yoi 3.6)."""
        self.component_status = status

    def mark_crashed(self, why: str) -> bool:
        """A trap, a time-out, a bad status document, a dead worker: until it is started anew nothing reaches it."""
        if not self._move(Lifecycle.FAILED, why):
            return False
        self._cause = self.last_error = operator_text(why)
        return True

    def begin_stop(self) -> tuple[Event, ...]:
        """The events that waited and are lost; the one in flight is not among them.

        Nothing happens to a stopped one (spec yoi 13.3).
        """
        if not self._move(Lifecycle.STOPPING):
            return ()
        lost = tuple(self._queue)
        self._queue.clear()
        self.cleared += len(lost)
        if lost:
            self.note(DiagnosticKind.SERVICE_STOPPED, f"{len(lost)} waiting events were dropped")
        self.connections.close_all()
        return lost

    def finish_stop(self, status: PluginStatus | None = None) -> bool:
        """With what `stop` answered, if there was anybody to ask."""
        return self._move(Lifecycle.STOPPED) and (status is None or self._keep_status(status))

    def find_refusal(self) -> str:
        """Why a tool cannot be called now, or nothing (spec yoi 13.5)."""
        if self.lifecycle in (Lifecycle.READY, Lifecycle.RUNNING):
            return ""
        why = f": {self._cause}" if self._cause else ""
        return f"plugin instance `{self.ref}` is not running (state {self.lifecycle.value}){why}"

    def _move(self, to: Lifecycle, why: str = "") -> bool:
        if to not in MOVES[self.lifecycle]:
            return False
        self.lifecycle = to
        self.note(DiagnosticKind.LIFECYCLE, f"plugin instance is {to.value}" + (f": {why}" if why else ""))
        return True

    def _keep_status(self, status: PluginStatus) -> bool:
        self.component_status = status.raw
        return True

    # -- events (spec yoi 15) ---------------------------------------------------------------------------------------------------

    def offer(
        self,
        name: str,
        event: Event,
        *,
        record: ResolvedPlugin,
        authorise: Callable[[ResolvedPlugin, str], str] = authorization.find_ingress_refusal,
    ) -> None:
        """Queue it for the ingress `name`, or raise Rejected: the first thing that is wrong with it, in the order of 15.2."""
        for kind, why in self._find_objections(name, event, record, authorise):
            text = operator_text(why)
            self._count(rejected=1)
            self.last_error = text
            self.note(kind, text)
            raise EventRejected(kind, text)
        self._queue.append(event)
        self._count(enqueued=1)

    def take_next(self) -> Event | None:
        """The event to hand over now, if the plugin runs and has no other. Its outcome must be told."""
        if self.lifecycle is not Lifecycle.RUNNING or self.in_flight is not None or not self._queue:
            return None
        self.in_flight = self._queue.popleft()
        return self.in_flight

    def mark_dispatched(self, event: Event) -> bool:
        """The plugin took it. False, here and below: its outcome is known already."""
        return self._settle(event, dispatched=1)

    def mark_failed(self, event: Event, why: str, *, poisoned: bool = True) -> str:
        """A trap or a broken answer: that is the end of this life.

        Not `poisoned`: the plugin said itself that it failed (spec yoi 3.5).
        """
        text = operator_text(f"plugin ingress dispatch failed closed: {why}")
        if self._settle(event, failed=1):
            self._report_failure(DiagnosticKind.DISPATCH_FAILED, text, poisoned=poisoned)
        return text

    def mark_timed_out(self, event: Event, seconds: float) -> str:
        """It was cut off at its deadline, so nobody looks at its commands (spec yoi 15.3)."""
        text = f"plugin ingress dispatch timed out after {seconds:g}s"
        if self._settle(event, failed=1, timed_out=1):
            self._report_failure(DiagnosticKind.DISPATCH_TIMEOUT, text, poisoned=True)
        return text

    def requeue(self, event: Event, why: str) -> Event | None:
        """The host failed before the plugin saw it: it waits again, in front of the others, as the next attempt.

        None: that was its last one, or there is no room, or nobody will take it any more.
        """
        if event is not self.in_flight:
            return None
        over = self.lifecycle in (Lifecycle.STOPPING, Lifecycle.STOPPED)
        if over or event.attempt >= ATTEMPTS or len(self._queue) >= self.capacity:
            self.mark_failed(event, why, poisoned=False)
            return None
        again = msgspec.structs.replace(event, attempt=event.attempt + 1)
        self.in_flight = None
        self._queue.appendleft(again)
        return again

    def _settle(self, event: Event, **counts: int) -> bool:
        if event is not self.in_flight:
            return False
        self.in_flight = None
        self._count(**counts)
        return True

    def _report_failure(self, kind: DiagnosticKind, text: str, *, poisoned: bool) -> None:
        if poisoned and self.lifecycle is Lifecycle.RUNNING:
            self.mark_crashed(text)
        self.last_error = text
        self.note(kind, text)

    def _count(self, **counts: int) -> None:
        had = self.counters
        self.counters = msgspec.structs.replace(had, **{name: getattr(had, name) + more for name, more in counts.items()})

    def _find_objections(
        self, name: str, event: Event, record: ResolvedPlugin, authorise: Callable[[ResolvedPlugin, str], str]
    ) -> Iterator[tuple[DiagnosticKind, str]]:
        invalid = DiagnosticKind.INVALID_EVENT
        if "ingress" not in record.enabled_surfaces:
            yield invalid, _format_invalid("plugin ingress surface is not enabled")
        yield from self._find_state_objection()
        yield from ((invalid, _format_invalid(why)) for why in _find_faults(name, event))
        try:
            encode_event(event)
        except BadDocument as error:
            yield invalid, _format_invalid(str(error))
        declared = next((ingress for ingress in record.manifest.ingresses if ingress.name == name), None)
        if declared is None:
            yield invalid, _format_invalid("requested ingress is not declared by plugin manifest")
        elif declared.event_kinds and event.kind not in declared.event_kinds:
            yield invalid, _format_invalid(f"event kind `{event.kind}` is not declared for ingress `{name}`")
        if reason := authorise(record, name):
            yield invalid, _format_invalid(f"plugin ingress permission denied: {reason}")
        if len(self._queue) >= self.capacity:
            yield DiagnosticKind.QUEUE_FULL, f"plugin ingress queue is full (capacity {self.capacity})"

    def _find_state_objection(self) -> Iterator[tuple[DiagnosticKind, str]]:
        state = self.lifecycle
        match state:
            case Lifecycle.RUNNING:
                return
            case Lifecycle.FAILED:
                yield DiagnosticKind.SERVICE_FAILED, f"plugin service is failed for ingress dispatch: {self._cause}"
            case Lifecycle.STOPPING | Lifecycle.STOPPED:
                text = f"plugin service rejects ingress while stopping/stopped (state {state.value})"
                yield DiagnosticKind.SERVICE_STOPPED, text
            case Lifecycle.READY | Lifecycle.STARTING:
                yield (
                    DiagnosticKind.SERVICE_UNAVAILABLE,
                    f"plugin service is not running for ingress dispatch (state {state.value})",
                )

    # -- what the operator is told (spec yoi 3.7 to 3.9) --------------------------------------------------------------------------

    def note(self, kind: DiagnosticKind, message: str) -> None:
        self._diagnostics.append(Diagnostic(kind, self.lifecycle, operator_text(message)))

    def keep_results(self, results: Sequence[CommandResult]) -> None:
        """What came of the commands of one event. None of it goes back to the plugin, nor to a model (spec yoi 15.4)."""
        for result in results:
            self._results.append(result)
            who = f"service output command {result.command_id or '<malformed>'} ({result.kind or 'unknown'})"
            self.note(_OF_COMMAND[result.status], f"{who}: {result.message}")
            if result.status is not CommandStatus.RECORDED:
                self.last_error = result.message

    def build_status(self) -> InstanceStatus:
        return InstanceStatus(
            plugin_ref=self.ref, lifecycle=self.lifecycle, component_status=self.component_status, queue_depth=len(self._queue),
            queue_capacity=self.capacity, last_error=self.last_error, dispatch_counters=self.counters,
            output_command_results=tuple(self._results), websocket_connections=self.connections.list_statuses(),
            diagnostics=tuple(self._diagnostics), restarts=max(self._lives - 1, 0),
        )  # fmt: skip

    def report(self, ingress: str, output: Any, results: Sequence[CommandResult] = (), *, queue_latency_ms: int) -> DispatchReport:
        """Of one event that was dispatched, with how long it had waited, unless the plugin used that key itself."""
        if isinstance(output, dict):
            output = {"queue_latency_ms": queue_latency_ms, **output}
        return DispatchReport(
            plugin_ref=self.ref, ingress=ingress, output=output, output_command_results=tuple(results),
            queue_depth=len(self._queue), dispatch_counters=self.counters, diagnostics=tuple(self._diagnostics),
        )  # fmt: skip


def _format_invalid(why: str) -> str:
    return f"invalid plugin ingress event: {why}"


def _find_faults(name: str, event: Event) -> Iterator[str]:
    if not event.source.strip():
        yield "source must not be blank"
    if event.ingress_name != name:
        yield f"ingress_name `{event.ingress_name}` is not the ingress `{name}` that it is sent to"
    if not event.kind.strip():
        yield "kind must not be blank"
    if not event.created_at.strip():
        yield "created_at must not be blank"
    if event.attempt < 1:
        yield "attempt must be at least 1"
    if not event.correlation_id.strip():
        yield "correlation_id must not be blank"
