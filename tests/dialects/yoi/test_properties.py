"""What holds for any text and any order of what happens to a plugin."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from serai.dialects.yoi import messages, output_commands
from serai.dialects.yoi.host_side import ATTEMPTS, DIAGNOSTICS, MOVES, RESULTS, EventRejected, HostSide
from serai.dialects.yoi.messages import BadDocument, Event
from serai.dialects.yoi.status import CommandResult, CommandStatus, Lifecycle
from serai.plugins.manifest import INSTANCE
from tests.support.profiles import examples
from tests.support.yoi.ingress_documents import NOW, RUNNING, command, event, record

anything = st.text(st.characters(), max_size=60)
names = st.sampled_from(["summary", "content", "state", "error", "output_commands", "kind", "attempt", "payload", "source"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything | names, inner, max_size=4),
    max_leaves=12,
)
pieces = st.sampled_from(
    ["{", "}", "[", "]", '"', ":", ",", "\\u", "d800", "1e9", "NaN", "null", '"summary"', '"a"', "\x00", "-", "é"]
)
texts = anything | values.map(json.dumps) | st.lists(pieces, max_size=30).map("".join)

PLUGIN = record()


@pytest.mark.req("yoi.edge.17")
@given(texts)
def test_any_text_is_a_document_or_a_bad_one(text: str) -> None:
    for read in (
        messages.parse_json, messages.parse_strict_json, messages.read_output, messages.read_service, messages.read_event,
        lambda text: messages.read_output(text, strict=True), lambda text: messages.read_status(text, "start"),
        lambda text: messages.read_input("echo", text),
    ):  # fmt: skip
        try:
            read(text)
        except BadDocument as error:
            assert len(str(error).encode()) <= 515  # noqa: PT017
        else:
            text.encode()
            assert "NaN" not in text or '"' in text


@given(values)
def test_any_value_is_an_event_or_none(value: Any) -> None:
    try:
        found = messages.read_event(value)
    except BadDocument:
        return
    assert type(found.attempt) is int


@pytest.mark.req("yoi.conform.50")
@given(
    st.lists(values | st.dictionaries(st.sampled_from(list(command())), values).map(lambda odd: {**command(), **odd}), max_size=18)
)
def test_any_commands_are_ready_or_rejected(value: Any) -> None:
    batch = output_commands.check(value, event=event(), record=PLUGIN, now=NOW, websocket=lambda *_: "", request=lambda _: "")
    assert not (batch.ready and batch.rejected)
    assert len(batch.ready) in (0, len(value))
    assert all(result.status is CommandStatus.REJECTED for result in batch.rejected)
    msgspec.json.encode(batch.rejected)


class Life(RuleBasedStateMachine):
    """Everything that may happen to an instance, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.instance = HostSide("user:chatter", INSTANCE)
        self.seen = Lifecycle.STOPPED
        self.offered = self.refused = self.lost = 0
        self.old: list[Event] = []

    @rule()
    def start(self) -> None:
        self.instance.begin_start()

    @rule()
    def succeed(self) -> None:
        self.instance.finish_start(RUNNING)

    @rule()
    def look(self) -> None:
        assert self.instance.refresh_status(RUNNING) is (self.instance.lifecycle is Lifecycle.RUNNING)

    @rule()
    def crash(self) -> None:
        self.instance.mark_crashed("a trap")

    @rule()
    def stop(self) -> None:
        waiting = self.instance.build_status().queue_depth
        may = Lifecycle.STOPPING in MOVES[self.instance.lifecycle]
        lost = self.instance.begin_stop()
        assert len(lost) == (waiting if may else 0)
        self.lost += len(lost)

    @rule()
    def end(self) -> None:
        self.instance.finish_stop()

    @rule(good=st.booleans(), times=st.integers(1, 20))
    def offer(self, good: bool, times: int) -> None:
        for _ in range(times):
            self.offered += 1
            given = event(correlation_id=str(self.offered) if good else " ")
            able = good and self.instance.lifecycle is Lifecycle.RUNNING and self.instance.build_status().queue_depth < 32
            try:
                self.instance.offer("chat", given, record=PLUGIN)
            except EventRejected:
                self.refused += 1
                assert not able
            else:
                assert able

    @rule()
    def take(self) -> None:
        free = self.instance.in_flight is None
        state, depth = self.instance.lifecycle, self.instance.build_status().queue_depth
        found = self.instance.take_next()
        assert (found is not None) is (free and state is Lifecycle.RUNNING and depth > 0)
        if found is not None:
            assert found.attempt <= ATTEMPTS
            self.old.append(found)

    @precondition(lambda self: self.old)
    @rule(data=st.data(), how=st.sampled_from(["dispatched", "failed", "said so", "timed out", "undelivered"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        """The one in flight, or one of before whose outcome comes late."""
        one = data.draw(st.sampled_from(self.old))
        late = one is not self.instance.in_flight
        before = self.instance.counters, self.instance.lifecycle
        match how:
            case "dispatched":
                self.instance.mark_dispatched(one)
            case "failed":
                self.instance.mark_failed(one, "why")
            case "said so":
                self.instance.mark_failed(one, "why", poisoned=False)
            case "timed out":
                self.instance.mark_timed_out(one, 1.0)
            case _:
                self.instance.requeue(one, "why")
        if late:
            assert before == (self.instance.counters, self.instance.lifecycle)
        else:
            assert self.instance.in_flight is None

    @rule(count=st.integers(0, 16), status=st.sampled_from(CommandStatus))
    def results(self, count: int, status: CommandStatus) -> None:
        self.instance.keep_results([CommandResult(status=status, message="m", recorded_at=NOW)] * count)

    @invariant()
    def counters_add_up(self) -> None:
        counters, status = self.instance.counters, self.instance.build_status()
        assert counters.enqueued + counters.rejected == self.offered
        assert counters.rejected == self.refused
        in_flight = self.instance.in_flight is not None
        settled = counters.dispatched + counters.failed + self.instance.cleared
        assert counters.enqueued == settled + status.queue_depth + in_flight
        assert self.instance.cleared == self.lost
        assert counters.timed_out <= counters.failed

    @invariant()
    def everything_is_bounded(self) -> None:
        status = self.instance.build_status()
        assert status.queue_depth <= status.queue_capacity == 32
        assert len(status.output_command_results) <= RESULTS
        assert len(status.diagnostics) <= DIAGNOSTICS
        msgspec.json.encode(status)

    @invariant()
    def the_table_holds(self) -> None:
        now = self.instance.lifecycle
        assert now is self.seen or now in MOVES[self.seen]
        self.seen = now
        assert bool(self.instance.find_refusal()) is (now is not Lifecycle.RUNNING)


@pytest.mark.req("yoi.rule.081", "yoi.rule.019")
def test_any_order_of_what_happens() -> None:
    run_state_machine_as_test(Life, settings=settings(max_examples=examples(60), stateful_step_count=40))
