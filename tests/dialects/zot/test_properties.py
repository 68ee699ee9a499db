"""What holds for any bytes, any frame and any order."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec import Raw

from serai.dialects.zot import events as zot_events
from serai.dialects.zot import messages, peer_side
from serai.dialects.zot.host_side import HostSide
from serai.dialects.zot.messages import ContentBlock, Frame, FrameReader, FromGuest, FromHost, PanelSpec
from serai.dialects.zot.peer_side import PeerSide
from serai.wire.codec import encode
from serai.wire.stream import Framer, Oversize, PendingCall
from tests.support.profiles import examples

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
raws = values.map(lambda value: Raw(msgspec.json.encode(value)))
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    int: st.integers(-(2**31), 2**31),
    bool: st.booleans(),
    Raw: raws,
    tuple[str, ...]: st.lists(text, max_size=3).map(tuple),
    tuple[ContentBlock, ...]: st.lists(st.builds(ContentBlock, text, text, text, text), max_size=3).map(tuple),
    PanelSpec | None: st.none() | st.builds(PanelSpec, text, text, st.lists(text, max_size=3).map(tuple), text),
}


def frames(union: Any) -> st.SearchStrategy[Frame]:
    """Any frame of one direction, with anything in it."""
    kinds: tuple[type[Frame], ...] = get_args(union)
    return st.one_of(
        [st.builds(kind, **{field.name: BY_TYPE[field.type] for field in msgspec.structs.fields(kind)}) for kind in kinds]
    )


GUEST, HOST = frames(FromGuest), frames(FromHost)
lines = st.one_of(
    st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")),
    st.sampled_from(
        [b"", b"{}", b'{"type":', b'{"type":"tool_result","id":"1"', b'{"type":"ready"}', b'{"type":"hello","name":"a"}']
    ),
    st.builds(
        lambda kind, members: json.dumps({"type": kind} | members).encode(),
        st.sampled_from([messages.get_kind(kind) for kind in (*get_args(FromGuest), *get_args(FromHost))]) | text,
        st.dictionaries(
            st.sampled_from(["id", "name", "args", "content", "lines", "open_panel", "schema", "text", "type"]), values
        ),
    ),
    (GUEST | HOST).map(lambda frame: encode(frame).rstrip()),
)
streams = st.lists(lines, max_size=12).map(b"\n".join)


def feed(side: HostSide | PeerSide, stream: bytes, cuts: list[int]) -> list[Any]:
    """The stream in pieces through a framer with a small limit, as a wire would give it."""
    framer = Framer(200)
    events: list[Any] = []
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    for part in (*(part for piece in pieces for part in framer.feed(piece)), *framer.feed_eof()):
        events += side.oversize(part) if isinstance(part, Oversize) else side.receive(part)
    return events


@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 800), max_size=6), st.booleans())
def test_no_bytes_in_any_pieces_raise_on_our_side(stream: bytes, cuts: list[int], greeted: bool) -> None:
    host = HostSide()
    host.begin(0.0)
    if greeted:
        host.receive(b'{"type":"hello","name":"a"}\n')
        host.welcome(messages.HelloAck(), now=0.0)
        for _ in range(3):
            host.call_tool("t", {}, now=0.0, timeout=1.0)
    before = 3 if greeted else 0
    events = feed(host, stream, cuts)
    ended = sum(isinstance(event, zot_events.Answered | zot_events.Garbled | PendingCall) for event in events)
    assert ended + len(host.lose()) == before  # each call ends once, whatever comes
    assert host.expire(1e9) == []


@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 800), max_size=6))
def test_no_bytes_in_any_pieces_raise_on_their_side(stream: bytes, cuts: list[int]) -> None:
    side = PeerSide()
    events = feed(side, stream, cuts)
    requests = [event for event in events if isinstance(event, peer_side.Request)]
    assert side.lose() == requests  # none was answered


@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 800), max_size=6))
def test_pieces_do_not_matter(stream: bytes, cuts: list[int]) -> None:
    greeting = b'{"type":"hello","name":"a"}\n'
    whole, parts = feed(HostSide(), greeting + stream, []), feed(HostSide(), greeting + stream, cuts)
    blank = "blank line"  # these are counted per run
    assert [e for e in whole if blank not in getattr(e, "why", "")] == [e for e in parts if blank not in getattr(e, "why", "")]


@settings(deadline=None)
@given(streams)
def test_taking_up_any_bytes_as_said_earlier_raises_nothing(stream: bytes) -> None:
    HostSide().note_sent(stream, 0.0)
    PeerSide().note_sent(stream, 0.0)


@settings(deadline=None)
@given(st.lists(GUEST, max_size=5), st.lists(HOST, max_size=5))
def test_every_frame_reads_as_it_was_written(said: list[Frame], heard_back: list[Frame]) -> None:
    assert FrameReader(messages.FROM_GUEST, get_args(FromGuest)).read(b"".join(map(encode, said))) == said
    assert FrameReader(messages.FROM_HOST, get_args(FromHost)).read(b"".join(map(encode, heard_back))) == heard_back


class Talk(RuleBasedStateMachine):
    """Both sides talk, in any order; frames in flight arrive in the order they were written."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.host, self.peer = HostSide(), PeerSide()
        self.to_guest: list[bytes] = []
        self.to_host: list[bytes] = [self.peer.hello("guest"), self.peer.ready()]
        self.waiting: dict[str, PendingCall[str]] = {}  # what we asked and did not give up
        self.given_up: set[str] = set()
        self.open: list[Any] = []  # what the guest was asked and did not answer
        self.answered: set[str] = set()
        self.host.begin(0.0)
        self.deliver_to_host()

    def asked(self, made: tuple[PendingCall[str], bytes]) -> None:
        call, frame = made
        assert call.id not in self.waiting.keys() | self.given_up | self.answered
        self.waiting[call.id] = call
        self.to_guest.append(frame)

    @rule(args=values, timeout=st.sampled_from([None, 1.0, 5.0]))
    def call_a_tool(self, args: object, timeout: float | None) -> None:
        self.asked(self.host.call_tool("t", args, now=self.now, timeout=timeout))

    @rule(args=text)
    def run_a_command(self, args: str) -> None:
        self.asked(self.host.invoke_command("c", args, now=self.now, timeout=3.0))

    @rule(args=values)
    def ask_before_a_call(self, args: object) -> None:
        self.asked(self.host.intercept_tool_call("id", "bash", args, now=self.now, timeout=2.0))

    @rule(said=text)
    def ask_before_a_message(self, said: str) -> None:
        self.asked(self.host.intercept_assistant_message(said, now=self.now, timeout=2.0))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        call = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        assert self.host.forget(call)
        self.given_up.add(call.id)

    @rule(seconds=st.floats(0, 4))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for event in self.host.expire(self.now):
            assert isinstance(event, zot_events.Expired)
            assert event.call.deadline <= self.now
            assert self.waiting.pop(event.call.id) is event.call
            self.given_up.add(event.call.id)

    @rule(count=st.integers(1, 4))
    def deliver_to_guest(self, count: int) -> None:
        run, self.to_guest = b"".join(self.to_guest[:count]), self.to_guest[count:]
        for event in self.peer.receive(run):
            assert isinstance(event, peer_side.ToolCalled | peer_side.CommandInvoked | peer_side.Intercepted)
            self.open.append(event)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), block=st.booleans(), said=text)
    def answer(self, data: st.DataObject, block: bool, said: str) -> None:
        request = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for again in (False, True):
            if isinstance(request, peer_side.ToolCalled):
                frame = self.peer.answer_tool(request.id, [ContentBlock("text", said)], is_error=block)
            elif isinstance(request, peer_side.CommandInvoked):
                frame = self.peer.answer_command(request.id, "display", display=said)
            else:
                frame = self.peer.answer_intercept(request.id, block=block, reason=said)
            assert (frame is None) is again  # exactly once
            if frame is not None:
                self.to_host.append(frame)

    @rule(said=text)
    def notify(self, said: str) -> None:
        self.to_host.append(self.peer.notify("info", said))

    @rule(count=st.integers(1, 4))
    def deliver_some_to_host(self, count: int) -> None:
        self.deliver_to_host(count)

    def deliver_to_host(self, count: int = 2) -> None:
        run, self.to_host = self.to_host[:count], self.to_host[count:]
        events = self.host.receive(b"".join(run))
        assert len(events) == len(run)  # nothing is lost
        for event in events:
            match event:
                case zot_events.Answered(call=call):
                    assert self.waiting.pop(call.id) is call
                    self.answered.add(call.id)
                case messages.Stray(raw=raw):  # an answer that came too late
                    assert json.loads(raw)["id"] in self.given_up
                case _:
                    assert isinstance(event, zot_events.Notified | zot_events.Hello | zot_events.Ready)

    @invariant()
    def what_waits_is_known(self) -> None:
        assert all(self.host.waits_for(call) for call in self.waiting.values())
        deadlines = [call.deadline for call in self.waiting.values() if call.timeout is not None]
        assert self.host.next_deadline() == min(deadlines, default=None)

    def teardown(self) -> None:
        self.deliver_to_guest(len(self.to_guest))
        assert [request.id for request in self.peer.lose()] == [request.id for request in self.open]
        self.deliver_to_host(len(self.to_host))
        assert {call.id for call in self.host.lose()} == self.waiting.keys()


@pytest.mark.req("zot.rule.3.1-ids")
def test_both_sides_talking_in_any_order_lose_nothing() -> None:
    run_state_machine_as_test(Talk, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None))
