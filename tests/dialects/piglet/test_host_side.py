"""Both sides of a piglet wire: what each frame means, and what is answered to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.dialects.piglet import messages
from serai.dialects.piglet.events import (
    Answered,
    Asked,
    BadParams,
    BadTold,
    Event,
    Registered,
    RegistrationRefused,
    Told,
    UnknownMethod,
    UnknownTold,
)
from serai.dialects.piglet.host_side import HostSide
from serai.dialects.piglet.messages import RegisterEventHandlerParams, RegisterPromptSectionParams, RegisterToolParams
from serai.dialects.piglet.methods import METHODS
from serai.dialects.piglet.peer_side import PeerSide
from serai.record.recording import make_side
from serai.wire import jsonrpc
from serai.wire.codec import Noise
from serai.wire.stream import Framer, Oversize
from tests.support.piglet.message_strategies import objects
from tests.support.profiles import examples

FRAME = 4 * 1024 * 1024


def hear(side: HostSide | PeerSide, **frame: object) -> Event:
    [event] = side.receive(json.dumps(frame).encode() + b"\n")
    return event


def pass_on(frame: bytes | None, side: HostSide | PeerSide) -> Event:
    assert frame is not None
    [event] = side.receive(frame)
    return event


# -- registrations --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [method for method in METHODS if method.startswith("register/")])
def test_each_of_the_ten_registrations_is_heard(method: str) -> None:
    params = {"name": "n", "key": "ctrl+g", "title": "t", "api": "a"}
    event = hear(HostSide(), method=method, params=params)
    assert isinstance(event, Registered)
    assert type(event.params) is METHODS[method].params


@pytest.mark.parametrize("method", [method for method in METHODS if method.startswith("register/")])
@pytest.mark.parametrize(
    "params", [None, {}, {"name": "", "key": "", "title": "", "api": ""}, {"name": " ", "key": "+", "title": "\t"}]
)
def test_what_must_have_a_name_and_has_none_is_refused_alone(method: str, params: object) -> None:
    side = HostSide()
    event = hear(side, method=method, params=params)
    assert isinstance(event, RegistrationRefused)
    assert event.method == method
    assert "is empty" in event.why or "is none" in event.why
    assert isinstance(hear(side, method="register/command", params={"name": "next"}), Registered)


@pytest.mark.parametrize("params", [[], "x", {"name": 7}, {"name": "a", "deferred": "yes"}, {"name": "a", "parameters": [1]}])
def test_a_registration_that_cannot_be_read_is_refused_with_the_reason(params: object) -> None:
    event = hear(HostSide(), method="register/tool", params=params)
    assert isinstance(event, RegistrationRefused)
    assert event.why


@pytest.mark.req("piglet.edge.16")
def test_a_prompt_section_may_be_empty_but_its_title_may_not() -> None:
    event = hear(HostSide(), method="register/promptSection", params={"title": "T", "content": ""})
    assert event == Registered("register/promptSection", RegisterPromptSectionParams("T"))
    refused = hear(HostSide(), method="register/promptSection", params={"title": "", "content": "C"})
    assert refused == RegistrationRefused("register/promptSection", "its title is empty")


@pytest.mark.parametrize("events", [{}, {"events": None}, {"events": []}])
def test_no_events_are_all_events(events: dict[str, object]) -> None:
    event = hear(HostSide(), method="register/eventHandler", params={"name": "h", **events})
    assert isinstance(event, Registered)
    assert isinstance(event.params, RegisterEventHandlerParams)
    assert not event.params.events


# -- notifications and requests -------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.envelope-shapes")
def test_a_notification_is_typed_and_an_unknown_one_changes_nothing() -> None:
    side = HostSide()
    assert hear(side, method="notify", params={"Message": "hi", "level": None}) == Told("notify", messages.NotifyParams("hi"))
    assert hear(side, method="abort", params=None) == Told("abort", messages.AbortParams())
    unknown = hear(side, method="brandNew", params={"A": 1})
    assert unknown == UnknownTold("brandNew", b'{"method":"brandNew","params":{"A": 1}}')
    assert isinstance(hear(side, method="notify", params={"message": 5}), BadTold)
    assert isinstance(hear(side, method="host/abort"), UnknownTold), "a request without an id is none"
    assert isinstance(hear(side, method="tool/execute", params={}), UnknownTold), "that is for the host to say"


@pytest.mark.req("piglet.fix.05")
@pytest.mark.parametrize("method", [method for method, row in METHODS.items() if row.sender == "guest" and row.result])
def test_absent_and_null_parameters_are_an_empty_object_for_every_request(method: str) -> None:
    absent: list[dict[str, Any]] = [{}, {"params": None}, {"params": {}}]
    events = [hear(HostSide(), id=1, method=method, **params) for params in absent]
    assert {type(event) for event in events} in ({Asked}, {BadParams})
    for event in events:
        if isinstance(event, BadParams):
            assert "missing required field" in event.why
        else:
            assert isinstance(event, Asked)
            assert isinstance(events[2], Asked)
            assert event.params == events[2].params


@pytest.mark.parametrize("method", ["nope", "notify", "register/tool", "initialize", "tool/execute", "$/cancelRequest", "host/"])
def test_a_request_that_no_guest_can_make_is_refused_as_unknown(method: str) -> None:
    side = HostSide()
    event = hear(side, id="x", method=method, params={"name": "a", "id": 1})
    assert isinstance(event, UnknownMethod)
    assert json.loads(side.refuse_odd(event) or b"") == {
        "jsonrpc": "2.0",
        "id": "x",
        "error": {"code": -32601, "message": f"method not found: {method}"},
    }


def test_parameters_that_cannot_be_read_are_refused_as_such() -> None:
    side = HostSide()
    event = hear(side, id=0, method="host/subscribe", params={"topic": 5})
    assert isinstance(event, BadParams)
    error = json.loads(side.refuse_odd(event) or b"")["error"]
    assert error["code"] == -32602
    assert error["message"].startswith("invalid params: Expected `str`")


# -- answers --------------------------------------------------------------------------------------------------------------------


def test_an_answer_is_typed_by_what_was_asked() -> None:
    side = HostSide()
    call, frame = side.ask("tool/execute", messages.ToolExecuteParams("c", "weather", {"city": "Bern"}))
    assert json.loads(frame)["params"] == {"callId": "c", "name": "weather", "args": {"city": "Bern"}}
    event = hear(side, ID=1, Result={"Content": [{"Type": "text", "Text": "7°"}]})
    assert event == Answered(call, messages.ToolExecuteResult([messages.ContentBlock("text", "7°")]))


@pytest.mark.req("piglet.rule.envelope-result-error")
@pytest.mark.parametrize("answer", [{}, {"result": None}, {"error": None}])
def test_the_answer_to_initialize_may_be_empty(answer: dict[str, object]) -> None:
    side = HostSide()
    call, _ = side.ask("initialize", messages.InitializeParams("5"))
    assert hear(side, id=1, **answer) == Answered(call, messages.InitializeResult())


def test_the_answer_to_initialize_may_be_anything() -> None:
    side = HostSide()
    side.ask("initialize", messages.InitializeParams("5"))
    event = hear(side, id=1, result=[7])
    assert isinstance(event, Answered)
    assert event.result == messages.InitializeResult()
    assert "got `array`" in event.why


def test_any_other_answer_that_cannot_be_read_is_a_bad_one() -> None:
    side = HostSide()
    bad: list[Any] = [[7], {"allow": "yes"}, {"args": []}]
    for result in bad:
        call, _ = side.ask("interceptor/before", {})
        event = hear(side, id=call.id, result=result)
        assert isinstance(event, jsonrpc.Garbled)
        assert event.call is call


def test_a_refusal_keeps_its_code_and_its_words() -> None:
    side = HostSide()
    call, _ = side.ask("command/execute", messages.CommandExecuteParams("x"))
    event = hear(side, id=1, result={}, Error={"Code": -32000, "Message": "no"})
    assert isinstance(event, jsonrpc.Failure)
    assert (event.call, event.code, event.message) == (call, -32000, "no")


# -- both sides -----------------------------------------------------------------------------------------------------------------


def test_a_whole_handshake_from_both_ends() -> None:
    host, peer = HostSide(), PeerSide()
    call, hello = host.ask("initialize", messages.InitializeParams("5", "/w", "/c"))
    asked = pass_on(hello, peer)
    assert isinstance(asked, Asked)
    assert asked.params == messages.InitializeParams("5", "/w", "/c")
    assert pass_on(peer.register_tool("t", "d", {"type": "object"}, deferred=True), host) == Registered(
        "register/tool", RegisterToolParams("t", "d", {"type": "object"}, deferred=True)
    )
    assert isinstance(pass_on(peer.register_command("c", immediate=True), host), Registered)
    assert isinstance(pass_on(peer.notify("hi", "warn"), host), Told)
    answered = pass_on(peer.answer_initialize(asked.request, "me", "1"), host)
    assert answered == Answered(call, messages.InitializeResult("me", "1"))
    assert peer.answer_initialize(asked.request, "me") is None, "an answer is sent once"


@pytest.mark.req("piglet.edge.06")
def test_the_same_id_in_both_directions_is_two_calls() -> None:
    host, peer = HostSide(), PeerSide()
    tool, frame = host.ask("tool/execute", messages.ToolExecuteParams("c", "t"))
    run = pass_on(frame, peer)
    question, frame = peer.ask("host/sessionTitle")
    wanted = pass_on(frame, host)
    assert (tool.id, question.id) == (1, 1)
    assert isinstance(run, Asked)
    assert isinstance(wanted, Asked)
    titled = pass_on(host.answer(wanted.request, {"title": "T"}), peer)
    assert isinstance(titled, Answered)
    assert titled.call is question
    done = pass_on(peer.answer_tool(run.request, "ok"), host)
    assert isinstance(done, Answered)
    assert done.call is tool


def test_the_guest_is_told_and_asked_to_end() -> None:
    peer = PeerSide()
    assert pass_on(HostSide().tell("shutdown"), peer) == Told("shutdown", messages.ShutdownParams())
    asked = hear(peer, id=9, method="shutdown")
    assert isinstance(asked, Asked)
    assert json.loads(peer.connection.answer(asked.request, None) or b"")["result"] is None


def test_a_cancellation_finds_its_request_on_either_side() -> None:
    host, peer = HostSide(), PeerSide()
    call, frame = host.ask("tool/execute", messages.ToolExecuteParams("c", "t"))
    asked = pass_on(frame, peer)
    assert isinstance(asked, Asked)
    cancelled = pass_on(host.connection.cancel(call), peer)
    assert isinstance(cancelled, jsonrpc.Cancelled)
    assert cancelled.request is asked.request
    again = hear(peer, method="$/cancelRequest", params={"id": 77})
    assert isinstance(again, jsonrpc.Stray)


def test_an_answer_that_nobody_waits_for_is_recorded() -> None:
    assert isinstance(hear(HostSide(), id=77, result={}), jsonrpc.Stray)


# -- framing --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.framing-lines")
def test_carriage_returns_blank_lines_and_an_unfinished_last_line() -> None:
    side, framer = HostSide(), Framer(FRAME)
    pieces = framer.feed(b'\r\n\n{"method":"notify","params":{"message":"a"}}\r\n  \n{"method":"notify",')
    pieces += framer.feed(b'"params":{"message":"b"}}')
    pieces += framer.feed_eof()
    events = [event for piece in pieces if isinstance(piece, bytes) for event in side.receive(piece)]
    assert events == [Told("notify", messages.NotifyParams(text)) for text in ("a", "b")]


@pytest.mark.req("piglet.rule.framing-noise")
def test_noise_is_kept_counted_and_never_fatal() -> None:
    side = HostSide()
    events = side.receive(b'panic: oh\n[1]\n5\n"s"\n[{"method":"notify"}]\n{"method":"notify","params":{"message":"a"}}\n')
    assert [type(event) for event in events] == [Noise] * 5 + [Told]
    assert isinstance(events[0], Noise)
    assert events[0].raw == b"panic: oh"
    assert side.connection.noise == 5


def test_an_oversize_answer_ends_its_call_and_the_loss_of_the_wire_the_others() -> None:
    side = HostSide()
    one, two = (side.ask("tool/execute", {})[0] for _ in range(2))
    assert side.oversize(Oversize(FRAME + 1, b'{"jsonrpc":"2.0","id":1,"result":{"content":[', FRAME)) == [one]
    assert side.next_deadline() is None
    assert side.lose() == [two]


# -- replays --------------------------------------------------------------------------------------------------------------------


def test_a_side_that_takes_up_what_it_said_understands_the_answers_to_it() -> None:
    live = HostSide()
    _, hello = live.ask("initialize", messages.InitializeParams("5"))
    _, tool = live.ask("tool/execute", messages.ToolExecuteParams("c", "t"))
    answers = b'{"id":2,"result":{"content":[]}}\n{"id":1,"result":{"name":"n","version":""}}\n'
    replayed = HostSide()
    replayed.note_sent(hello + tool, now=0.0)
    said = [(event.call.what, event.result) for event in replayed.receive(answers) if isinstance(event, Answered)]
    assert said == [(event.call.what, event.result) for event in live.receive(answers) if isinstance(event, Answered)]
    assert len(said) == 2


def test_a_recording_of_the_dialect_is_replayed_by_its_sides() -> None:
    assert isinstance(make_side("piglet"), HostSide)
    assert isinstance(make_side("piglet", "theirs"), PeerSide)


def test_a_call_that_the_protocol_does_not_have_is_a_bad_answer_in_a_replay() -> None:
    side = HostSide()
    side.note_sent(b'{"id":1,"method":"notify"}\n', now=0.0)
    assert isinstance(hear(side, id=1, result={}), jsonrpc.Garbled)


# -- anything -------------------------------------------------------------------------------------------------------------------

lines = st.one_of(
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
    st.builds(
        lambda members: json.dumps(members).encode(),
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.none() | st.integers(0, 3) | st.text(max_size=2) | st.just(1.0) | st.just([]),
                "method": st.sampled_from(sorted(METHODS)) | st.text(max_size=3) | st.just(5),
                "params": st.none() | st.dictionaries(st.sampled_from(["name", "Key", "id", "events"]), st.integers() | st.text()),
                "result": st.none() | st.dictionaries(st.sampled_from(["content", "allow"]), st.integers()) | st.just([]),
                "error": st.none() | st.text(max_size=3) | st.dictionaries(st.sampled_from(["Code", "message"]), st.integers()),
            },
        ),
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(lines, max_size=6), st.sampled_from([HostSide, PeerSide]))
def test_whatever_comes_becomes_events_and_ends_a_call_once(run: list[bytes], kind: type[HostSide | PeerSide]) -> None:
    side = kind()
    calls = [side.ask(method)[0] for method in ("initialize", "tool/execute", "host/chat")]
    events = side.receive(b"".join(line + b"\n" for line in run))
    assert len(events) == sum(bool(line.strip(b" \t\r")) for line in run)
    ended = [event.call for event in events if isinstance(event, Answered | jsonrpc.Failure | jsonrpc.Garbled)]
    left = side.lose()
    assert sorted(call.id for call in ended + left) == sorted(call.id for call in calls)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_whatever_one_side_says_the_other_understands(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from([m for m, row in METHODS.items() if m != "$/cancelRequest"]))
    row = METHODS[method]
    speaker, listener = (HostSide(), PeerSide()) if row.sender == "host" else (PeerSide(), HostSide())
    params: Any = data.draw(objects(row.params))
    if row.result is None:
        event = pass_on(speaker.tell(method, params), listener)
        assert isinstance(event, Told | Registered | RegistrationRefused)
        return
    call, frame = speaker.ask(method, params)
    asked = pass_on(frame, listener)
    assert isinstance(asked, Asked)
    answered = pass_on(listener.answer(asked.request, data.draw(objects(row.result))), speaker)
    assert isinstance(answered, Answered)
    assert answered.call is call
