"""The state of one plugin: its life, its events, and what the operator is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serai.dialects.yoi.host_side import MOVES, EventRejected, HostSide
from serai.dialects.yoi.messages import Event, PluginStatus
from serai.dialects.yoi.status import (
    CommandResult,
    CommandStatus,
    ConnectionState,
    Counters,
    Diagnostic,
    DiagnosticKind,
    Lifecycle,
)
from serai.plugins.manifest import INSTANCE, TOOL, ContributionKind
from tests.support.yoi.ingress_documents import NOW, RUNNING, URL, event, record, start_instance


def offer(instance: HostSide, given: Event | None = None, name: str = "chat", **options: Any) -> None:
    instance.offer(name, given or event(), record=options.pop("record", record()), **options)


def get_rejection(instance: HostSide, given: Event | None = None, name: str = "chat", **options: Any) -> tuple[str, str]:
    before = instance.build_status()
    with pytest.raises(EventRejected) as caught:
        offer(instance, given, name, **options)
    after = instance.build_status()
    counted = msgspec.structs.replace(before.dispatch_counters, rejected=before.dispatch_counters.rejected + 1)
    assert after.dispatch_counters == counted
    assert after.lifecycle is before.lifecycle
    assert after.last_error == str(caught.value) == caught.value.text
    assert after.diagnostics[-1] == Diagnostic(caught.value.kind, after.lifecycle, caught.value.text)
    return caught.value.kind.value, caught.value.text


def take(instance: HostSide, given: Event | None = None) -> Event:
    offer(instance, given)
    found = instance.take_next()
    assert found is not None
    return found


def result(status: CommandStatus = CommandStatus.RECORDED, *, id: str | None = "c", message: str = "m") -> CommandResult:
    return CommandResult(command_id=id, kind=id and "websocket_send", status=status, message=message, recorded_at=NOW)


# -- life -----------------------------------------------------------------------------------------------------------------------


def test_a_life() -> None:
    instance = HostSide("user:chatter", INSTANCE)
    seen = [instance.lifecycle]
    for step in (
        instance.begin_start,
        lambda: instance.finish_start(RUNNING),
        instance.begin_stop,
        instance.finish_stop,
        instance.begin_start,
    ):
        step()
        seen.append(instance.lifecycle)
    assert [state.value for state in seen] == ["Stopped", "Starting", "Running", "Stopping", "Stopped", "Starting"]
    assert instance.build_status().restarts == 1
    assert [note.message for note in instance.build_status().diagnostics[:2]] == [
        "plugin instance is Starting",
        "plugin instance is Running",
    ]


def test_a_plugin_of_the_world_tool_is_ready_for_ever() -> None:
    instance = HostSide("user:chatter", TOOL)
    assert not instance.begin_start()
    assert not instance.mark_crashed("a trap")
    assert instance.begin_stop() == ()
    assert not instance.finish_stop()
    assert instance.lifecycle is Lifecycle.READY
    assert instance.find_refusal() == ""
    assert get_rejection(instance) == ("ServiceUnavailable", "plugin service is not running for ingress dispatch (state Ready)")


def test_a_tool_is_refused_with_a_clear_reason_unless_the_plugin_runs() -> None:
    instance = HostSide("user:chatter", INSTANCE)
    assert instance.find_refusal() == "plugin instance `user:chatter` is not running (state Stopped)"
    instance.begin_start()
    instance.finish_start(RUNNING)
    assert instance.find_refusal() == ""
    instance.mark_crashed("wasm trap: unreachable")
    assert instance.find_refusal() == "plugin instance `user:chatter` is not running (state Failed): wasm trap: unreachable"


def test_what_comes_too_late_changes_nothing() -> None:
    instance = start_instance()
    assert not instance.finish_start(PluginStatus("other", None, {}))
    assert not instance.finish_stop()
    instance.begin_stop()
    assert not instance.finish_start(RUNNING)
    instance.finish_stop(PluginStatus("stopped", 1, {"state": "stopped", "data": 1}))
    assert not instance.mark_crashed("the worker ended")
    assert instance.begin_stop() == ()
    status = instance.build_status()
    assert (status.lifecycle, status.component_status, status.last_error) == (
        Lifecycle.STOPPED, {"state": "stopped", "data": 1}, None,
    )  # fmt: skip


def test_the_first_cause_of_a_failure_stays() -> None:
    instance = start_instance()
    assert instance.mark_crashed("first")
    assert not instance.mark_crashed("second")
    assert instance.build_status().last_error == "first"
    assert not instance.refresh_status(RUNNING)


@pytest.mark.req("yoi.rule.009")
def test_the_status_document_is_stored_verbatim() -> None:
    instance = start_instance()
    document = {"state": "dreaming", "data": [1], "further": True}
    assert instance.refresh_status(PluginStatus("dreaming", [1], document))
    assert instance.build_status().component_status == document


def test_every_state_has_its_moves() -> None:
    assert MOVES.keys() == set(Lifecycle)


# -- events: what is refused ----------------------------------------------------------------------------------------------------


INVALID = "invalid plugin ingress event: "
BLANK = event(
    source=" ", ingress_name="other", kind="\t", created_at="", attempt=0, correlation_id=" ", payload="x" * 70_000,
)  # fmt: skip


@pytest.mark.req("yoi.conform.44")
@pytest.mark.parametrize(
    ("mended", "text"),
    [
        ((), "source must not be blank"),
        (("source",), "ingress_name `other` is not the ingress `chat` that it is sent to"),
        (("source", "ingress_name"), "kind must not be blank"),
        (("source", "ingress_name", "kind"), "created_at must not be blank"),
        (("source", "ingress_name", "kind", "created_at"), "attempt must be at least 1"),
        (("source", "ingress_name", "kind", "created_at", "attempt"), "correlation_id must not be blank"),
        (("source", "ingress_name", "kind", "created_at", "attempt", "correlation_id"), "event envelope exceeds 65536 bytes"),
    ],
)
def test_what_is_wrong_with_an_event_is_found_in_order(mended: tuple[str, ...], text: str) -> None:
    given = msgspec.structs.replace(BLANK, **{name: getattr(event(kind="unknown"), name) for name in mended})
    assert get_rejection(start_instance(), given) == ("InvalidEvent", INVALID + text)


@pytest.mark.req("yoi.conform.44")
def test_the_surface_comes_first_and_the_state_second() -> None:
    off: tuple[ContributionKind, ...] = ("service", "tool")
    stopped = HostSide("user:chatter", INSTANCE)
    assert get_rejection(stopped, BLANK, record=record(surfaces=off)) == (
        "InvalidEvent", INVALID + "plugin ingress surface is not enabled",
    )  # fmt: skip
    assert get_rejection(stopped, BLANK) == (
        "ServiceStopped", "plugin service rejects ingress while stopping/stopped (state Stopped)",
    )  # fmt: skip


@pytest.mark.req("yoi.conform.44")
def test_the_declaration_the_permission_and_the_queue_come_last() -> None:
    full = start_instance(capacity=0)
    nothing = record(granted=())
    strange = event(ingress_name="other", kind="unknown")
    assert get_rejection(full, strange, "other", record=nothing) == (
        "InvalidEvent", INVALID + "requested ingress is not declared by plugin manifest",
    )  # fmt: skip
    assert get_rejection(full, event(kind="unknown"), record=nothing) == (
        "InvalidEvent", INVALID + "event kind `unknown` is not declared for ingress `chat`",
    )  # fmt: skip
    kind, text = get_rejection(full, record=record(granted=record().grants.permissions[1:]))
    assert (kind, text) == (
        "InvalidEvent", INVALID + "plugin ingress permission denied: granted surfaces.ingress permission is missing",
    )  # fmt: skip
    assert get_rejection(full) == ("QueueFull", "plugin ingress queue is full (capacity 0)")
    offer(start_instance())


@pytest.mark.req("yoi.conform.44")
def test_each_state_has_its_own_refusal() -> None:
    instance = HostSide("user:chatter", INSTANCE)
    instance.begin_start()
    assert get_rejection(instance) == ("ServiceUnavailable", "plugin service is not running for ingress dispatch (state Starting)")
    instance.mark_crashed("no start")
    assert get_rejection(instance) == ("ServiceFailed", "plugin service is failed for ingress dispatch: no start")
    assert (
        get_rejection(instance)[1] == "plugin service is failed for ingress dispatch: no start"
    )  # the cause, not the last refusal
    instance.begin_stop()
    assert get_rejection(instance) == ("ServiceStopped", "plugin service rejects ingress while stopping/stopped (state Stopping)")


@pytest.mark.req("yoi.conform.45")
def test_a_kind_that_is_not_declared_is_refused_unless_none_is() -> None:
    text = "invalid plugin ingress event: event kind `websocket_close` is not declared for ingress `chat`"
    assert get_rejection(start_instance(), event(kind="websocket_close")) == ("InvalidEvent", text)
    offer(start_instance(), event(kind="websocket_close"), record=record(kinds=()))


@pytest.mark.req("yoi.rule.081")
def test_32_events_wait_and_the_next_one_is_refused() -> None:
    instance = start_instance()
    for n in range(32):
        offer(instance, event(correlation_id=str(n)))
    assert get_rejection(instance) == ("QueueFull", "plugin ingress queue is full (capacity 32)")
    assert instance.build_status().queue_depth == instance.build_status().queue_capacity == 32
    first = instance.take_next()
    assert first is not None
    assert first.correlation_id == "0"
    assert instance.take_next() is None  # one consumer
    offer(instance)
    assert instance.mark_dispatched(first)
    assert (instance.take_next() or first).correlation_id == "1"


# -- events: what comes of them -------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.conform.46")
def test_after_a_trap_events_are_refused_until_the_instance_is_restarted() -> None:
    instance = start_instance()
    first = take(instance)
    offer(instance, event(correlation_id="waits"))
    assert instance.mark_failed(first, "wasm trap: unreachable") == "plugin ingress dispatch failed closed: wasm trap: unreachable"
    status = instance.build_status()
    assert (status.lifecycle, status.dispatch_counters) == (Lifecycle.FAILED, Counters(enqueued=2, failed=1))
    assert status.diagnostics[-1].kind is DiagnosticKind.DISPATCH_FAILED
    assert status.last_error == "plugin ingress dispatch failed closed: wasm trap: unreachable"
    assert get_rejection(instance)[0] == "ServiceFailed"
    assert instance.take_next() is None
    instance.begin_start()
    instance.finish_start(RUNNING)
    assert (instance.take_next() or first).correlation_id == "waits"


@pytest.mark.req("yoi.conform.47")
def test_an_event_that_takes_too_long_has_timed_out_and_failed() -> None:
    instance = start_instance()
    first = take(instance)
    assert instance.mark_timed_out(first, 1.0) == "plugin ingress dispatch timed out after 1s"
    status = instance.build_status()
    assert (status.lifecycle, status.dispatch_counters) == (Lifecycle.FAILED, Counters(enqueued=1, failed=1, timed_out=1))
    assert status.diagnostics[-1].kind is DiagnosticKind.DISPATCH_TIMEOUT
    assert not instance.mark_dispatched(first)  # whatever it answers now


@pytest.mark.req("yoi.rule.016")
def test_an_error_of_the_plugins_own_fails_the_event_and_not_the_instance() -> None:
    instance = start_instance()
    first = take(instance)
    instance.mark_failed(first, '{"message":"no"}', poisoned=False)
    status = instance.build_status()
    assert (status.lifecycle, status.dispatch_counters) == (Lifecycle.RUNNING, Counters(enqueued=1, failed=1))
    assert status.diagnostics[-1].kind is DiagnosticKind.DISPATCH_FAILED
    take(instance)


def test_an_event_that_never_reached_the_plugin_is_tried_three_times() -> None:
    instance = start_instance()
    found: Event | None = take(instance)
    offer(instance, event(correlation_id="behind"))
    for attempt in (2, 3):
        assert found is not None
        instance.requeue(found, "the worker ended")
        found = instance.take_next()
        assert found == event(attempt=attempt)
    assert found is not None
    assert instance.requeue(found, "the worker ended") is None
    assert instance.counters == Counters(enqueued=2, failed=1)
    assert instance.lifecycle is Lifecycle.RUNNING
    assert (instance.take_next() or found).correlation_id == "behind"


def test_nothing_is_tried_again_where_there_is_no_room_or_nobody() -> None:
    instance = start_instance(capacity=1)
    first = take(instance)
    offer(instance)
    assert instance.requeue(first, "no worker") is None
    second = instance.take_next()
    assert second is not None
    instance.begin_stop()
    assert instance.requeue(second, "no worker") is None
    assert instance.counters == Counters(enqueued=2, failed=2)
    assert instance.requeue(second, "no worker") is None


def test_an_event_whose_worker_died_unheard_is_not_forgotten() -> None:
    instance = start_instance()
    first = take(instance)
    instance.mark_crashed("the worker ended")
    instance.begin_start()
    assert instance.counters.failed == 1
    instance.finish_start(RUNNING)
    instance.mark_failed(first, "late")  # of the old life
    assert instance.lifecycle is Lifecycle.RUNNING
    assert instance.counters.failed == 1


def test_an_event_is_settled_once_also_when_another_is_in_flight() -> None:
    instance = start_instance()
    first = take(instance)
    assert instance.mark_dispatched(first)
    second = take(instance)
    assert not instance.mark_dispatched(first)
    instance.mark_failed(first, "late")
    instance.mark_timed_out(first, 1.0)
    assert instance.requeue(first, "late") is None
    assert (instance.in_flight, instance.lifecycle) == (second, Lifecycle.RUNNING)
    assert instance.counters == Counters(enqueued=2, dispatched=1)


def test_stopping_clears_the_queue_and_says_so() -> None:
    instance = start_instance()
    first = take(instance)
    offer(instance, event(correlation_id="waits"))
    assert [lost.correlation_id for lost in instance.begin_stop()] == ["waits"]
    assert instance.build_status().queue_depth == 0
    assert instance.mark_dispatched(first)
    assert instance.build_status().diagnostics[-1].message == "1 waiting events were dropped"


# -- what the operator is told --------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.019")
def test_the_status_of_an_instance() -> None:
    instance = start_instance()
    offer(instance)
    for url in ("wss://b.example/", "wss://a.example/"):
        assert instance.connections.reserve(url, "chat")
    status = msgspec.json.decode(msgspec.json.encode(instance.build_status()))
    connection = {
        "ingress_name": "chat", "state": "Connecting", "last_frame_at": None, "last_error": None, "received_text_frames": 0,
        "sent_text_frames": 0, "queue_drops": 0, "send_failures": 0,
    }  # fmt: skip
    assert status.pop("diagnostics")[-1] == {"kind": "Lifecycle", "state": "Running", "message": "plugin instance is Running"}
    assert status == {
        "plugin_ref": "user:chatter", "lifecycle": "Running", "component_status": {"state": "ready", "data": None},
        "queue_depth": 1, "queue_capacity": 32, "last_error": None, "output_command_results": [], "restarts": 0,
        "dispatch_counters": {"enqueued": 1, "dispatched": 0, "rejected": 0, "failed": 0, "timed_out": 0},
        "websocket_connections": [{"url": "wss://a.example/", **connection}, {"url": "wss://b.example/", **connection}],
    }  # fmt: skip


@pytest.mark.req("yoi.rule.019")
def test_the_kinds_of_diagnostics() -> None:
    assert {kind.value for kind in DiagnosticKind} == {
        "Lifecycle", "InvalidEvent", "QueueFull", "DispatchTimeout", "DispatchFailed", "ServiceUnavailable", "ServiceFailed",
        "ServiceStopped", "ServiceOutputCommandRecorded", "ServiceOutputCommandRejected", "ServiceOutputCommandUnsupported",
        "ServiceWebSocketConnected", "ServiceWebSocketClosed", "ServiceWebSocketError", "ServiceWebSocketSendFailed",
    }  # fmt: skip


@pytest.mark.req("yoi.rule.020")
def test_the_last_256_diagnostics_are_kept() -> None:
    instance = start_instance()
    for n in range(300):
        instance.note(DiagnosticKind.LIFECYCLE, f"note {n}")
    notes = instance.build_status().diagnostics
    assert [notes[0].message, notes[-1].message, len(notes)] == ["note 44", "note 299", 256]
    instance.note(DiagnosticKind.LIFECYCLE, "token=abc\x1b" + "x" * 600)
    assert instance.build_status().diagnostics[-1].message.startswith("token=<redacted>")


@pytest.mark.req("yoi.conform.52")
def test_the_last_32_results_are_kept() -> None:
    instance = start_instance()
    for n in range(3):
        instance.keep_results([result(message=f"{n}.{m}") for m in range(16)])
    kept = instance.build_status().output_command_results
    assert [kept[0].message, kept[-1].message, len(kept)] == ["1.0", "2.15", 32]


@pytest.mark.req("yoi.rule.082")
def test_a_rejected_command_is_told_and_does_not_fail_the_dispatch() -> None:
    instance = start_instance()
    first = take(instance)
    results = (
        result(id="one"), result(CommandStatus.REJECTED, id="two", message="not sent"), result(id="three"),
    )  # fmt: skip
    assert instance.mark_dispatched(first)
    instance.keep_results(results)
    status = instance.build_status()
    assert (status.lifecycle, status.dispatch_counters) == (Lifecycle.RUNNING, Counters(enqueued=1, dispatched=1))
    assert status.last_error == "not sent"
    assert [(note.kind.value, note.message) for note in status.diagnostics[-3:]] == [
        ("ServiceOutputCommandRecorded", "service output command one (websocket_send): m"),
        ("ServiceOutputCommandRejected", "service output command two (websocket_send): not sent"),
        ("ServiceOutputCommandRecorded", "service output command three (websocket_send): m"),
    ]
    instance.keep_results([result(CommandStatus.REJECTED, id=None, message="bad")])
    assert instance.build_status().diagnostics[-1].message == "service output command <malformed> (unknown): bad"


@pytest.mark.req("yoi.conform.51")
def test_a_status_update_replaces_the_components_status() -> None:
    instance = start_instance()
    instance.update_status({"mood": "good"})
    assert instance.build_status().component_status == {"mood": "good"}


@pytest.mark.req("yoi.rule.016")
def test_the_report_of_a_dispatch_has_the_whole_answer_and_how_long_it_waited() -> None:
    instance = start_instance()
    instance.mark_dispatched(take(instance))
    report = msgspec.to_builtins(instance.report("chat", {"accepted": False, "mood": 1}, [result()], queue_latency_ms=7))
    assert report["output"] == {"accepted": False, "mood": 1, "queue_latency_ms": 7}
    assert (report["plugin_ref"], report["ingress"], report["accepted"], report["queue_depth"]) == ("user:chatter", "chat", True, 0)
    assert report["dispatch_counters"]["dispatched"] == 1
    assert [one["status"] for one in report["output_command_results"]] == ["Recorded"]
    assert report["diagnostics"][-1]["kind"] == "Lifecycle"
    assert instance.report("chat", {"queue_latency_ms": "mine"}, queue_latency_ms=7).output == {"queue_latency_ms": "mine"}
    assert instance.report("chat", [1], queue_latency_ms=7).output == [1]


def test_four_connections_at_most_and_what_happens_to_one() -> None:
    instance = start_instance()
    links = instance.connections
    assert all(links.reserve(f"wss://{n}.example/", "chat") for n in range(3))
    assert links.reserve(URL, "chat")
    assert not links.reserve("wss://fifth.example/", "chat")
    links.mark_failed("wss://0.example/", "refused: token=abc")
    assert not links.reserve("wss://fifth.example/", "chat")  # a failed one keeps its place
    assert not links.reserve(URL, "other")
    links.mark_opened(URL)
    links.count_received(URL, NOW)
    links.count_dropped(URL)
    links.count_sent(URL)
    links.record_send_failure(URL, "broken pipe")
    one = links.get(URL)
    assert one is not None
    counted = (one.received_text_frames, one.queue_drops, one.sent_text_frames, one.send_failures)
    assert (one.state, one.last_frame_at, one.last_error, counted) == (ConnectionState.CONNECTED, NOW, "broken pipe", (1, 1, 1, 1))
    links.mark_closed(URL)
    assert [note.kind.value for note in instance.build_status().diagnostics[-4:]] == [
        "ServiceWebSocketError", "ServiceWebSocketConnected", "ServiceWebSocketSendFailed", "ServiceWebSocketClosed",
    ]  # fmt: skip
    assert links.reserve(URL, "chat")  # again
    failed = links.get("wss://0.example/")
    assert failed is not None
    assert (failed.state, failed.last_error) == (ConnectionState.FAILED, "refused: token=<redacted>")
    instance.begin_stop()
    assert {one.state for one in links.list_statuses()} == {ConnectionState.CLOSED}
    instance.finish_stop()
    instance.begin_start()
    assert links.list_statuses() == ()
