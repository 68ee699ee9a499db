"""JSON-RPC correlation: what each frame means to the calls that are open in either direction."""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec import Raw

from serai.errors import Closed
from serai.wire.codec import Noise, Unknown
from serai.wire.jsonrpc import (
    LSP_CANCEL,
    Answer,
    Cancelled,
    CancelStyle,
    Event,
    Failure,
    Garbled,
    Id,
    JsonRpcConnection,
    Notification,
    Request,
    Stray,
)
from serai.wire.stream import Framer, Oversize, PendingCall
from tests.support.profiles import examples

PEER_IDS = [
    b"0",
    b'""',
    b'"a"',
    b"-1",
    b"1.50",
    b"1e400",
    b"123456789012345678901234567890",
    b"true",
    b"[1, 2]",
    b'{"a": 1}',
    b'"\\u0041"',
    b'"\xff"',
]


def ask(connection: JsonRpcConnection, *, now: float = 0.0, timeout: float | None = None) -> PendingCall[Id]:
    call, _ = connection.request("ask", {}, now=now, timeout=timeout)
    return call


def receive(connection: JsonRpcConnection, line: bytes) -> Event:
    [event] = connection.receive(line + b"\n")
    return event


def receive_request(connection: JsonRpcConnection, line: bytes) -> Request:
    event = receive(connection, line)
    assert isinstance(event, Request)
    return event


def assert_stray(event: Event, why: str) -> None:
    assert isinstance(event, Stray)
    assert why in event.why


# -- frames and ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.jsonrpc.own-ids")
def test_our_requests_carry_ids_from_one_upward_each_used_once() -> None:
    connection = JsonRpcConnection()
    first, frame = connection.request("a", {"x": 1}, now=0.0, timeout=None)
    assert frame == b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}\n'
    connection.cancel(first)
    second = ask(connection)
    receive(connection, b'{"id":2,"result":1}')
    connection.expire(1e9)
    assert [first.id, second.id, ask(connection).id, ask(connection).id] == [1, 2, 3, 4]


@pytest.mark.req("wire.jsonrpc.own-ids")
def test_a_request_that_cannot_be_written_does_not_wait() -> None:
    connection = JsonRpcConnection()
    with pytest.raises(TypeError):
        connection.request("a", object(), now=0.0, timeout=1.0)
    assert connection.next_deadline() is None
    assert connection.lose() == []


def test_absent_members_are_not_written_and_null_ones_are() -> None:
    connection = JsonRpcConnection()
    assert connection.notify("a") == b'{"jsonrpc":"2.0","method":"a"}\n'
    assert connection.notify("a", None) == b'{"jsonrpc":"2.0","method":"a","params":null}\n'
    request = receive_request(connection, b'{"id":1,"method":"b"}')
    assert connection.answer(request, None) == b'{"jsonrpc":"2.0","id":1,"result":null}\n'


def test_a_refusal_is_an_error_object_with_data_only_when_there_is_some() -> None:
    connection = JsonRpcConnection()
    one, two = connection.receive(b'{"id":1,"method":"b"}\n{"id":2,"method":"b"}\n')
    assert isinstance(one, Request)
    assert isinstance(two, Request)
    assert connection.refuse(one, -32601, "no") == b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}\n'
    assert connection.refuse(two, 7, "no", None) == b'{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":"no","data":null}}\n'


@pytest.mark.req("wire.jsonrpc.peer-ids")
@pytest.mark.parametrize("id", PEER_IDS)
def test_the_peers_ids_may_be_any_value_and_are_echoed_byte_for_byte(id: bytes) -> None:
    connection = JsonRpcConnection()
    first = receive_request(connection, b'{"id": ' + id + b' ,"method":"a"}')
    assert bytes(first.id) == id
    assert connection.answer(first, 1) == b'{"jsonrpc":"2.0","id":' + id + b',"result":1}\n'
    second = receive_request(connection, b'{"method":"a","id":' + id + b"}")
    assert connection.refuse(second, 1, "no") == b'{"jsonrpc":"2.0","id":' + id + b',"error":{"code":1,"message":"no"}}\n'


@pytest.mark.req("wire.jsonrpc.peer-ids")
def test_ids_that_only_look_alike_are_different_requests() -> None:
    connection = JsonRpcConnection()
    run = b"".join(b'{"id":%s,"method":"a"}\n' % id for id in [b"1", b'"1"', b"1.0", b"[1]", b"0", b'""', b"false"])
    assert all(isinstance(event, Request) for event in connection.receive(run))


@pytest.mark.req("wire.jsonrpc.two-spaces")
def test_the_same_id_may_be_open_in_both_directions() -> None:
    connection = JsonRpcConnection()
    ours = ask(connection)
    theirs = receive_request(connection, b'{"id":1,"method":"a"}')
    assert receive(connection, b'{"id":1,"result":2}') == Answer(ours, Raw(b"2"))
    assert connection.answer(theirs, 3) == b'{"jsonrpc":"2.0","id":1,"result":3}\n'


@pytest.mark.req("wire.jsonrpc.two-spaces")
def test_answering_the_peer_does_not_end_our_call_with_the_same_id() -> None:
    connection = JsonRpcConnection()
    ours = ask(connection)
    connection.answer(receive_request(connection, b'{"id":1,"method":"a"}'), None)
    assert connection.lose() == [ours]


# -- shapes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.jsonrpc.shapes")
@pytest.mark.parametrize(
    "version", [b'"jsonrpc":"2.0",', b'"jsonrpc":"1.0",', b'"jsonrpc":2,', b""], ids=["2.0", "1.0", "number", "missing"]
)
def test_frames_are_told_apart_by_id_and_method_whatever_the_version_member_says(version: bytes) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    assert receive(connection, b"{" + version + b'"id":1,"method":"a","params":[1]}') == Request(Raw(b"1"), "a", Raw(b"[1]"))
    assert receive(connection, b"{" + version + b'"method":"a","params":[1]}') == Notification("a", Raw(b"[1]"))
    assert receive(connection, b"{" + version + b'"id":null,"method":"a"}') == Notification("a", Raw(b"{}"))
    assert receive(connection, b"{" + version + b'"id":1,"result":[1]}') == Answer(call, Raw(b"[1]"))


@pytest.mark.req("wire.jsonrpc.shapes")
@pytest.mark.parametrize(
    ("members", "result"),
    [
        (b'"result":{"a" :1e400}', b'{"a" :1e400}'),
        (b'"result":null', b"null"),
        (b'"result":false,"error":null', b"false"),
        (b'"error":null', b"null"),
        (b'"other":1', b"null"),
    ],
)
def test_an_answer_without_an_error_is_its_result_or_null(members: bytes, result: bytes) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    assert receive(connection, b'{"id":1,' + members + b"}") == Answer(call, Raw(result))


@pytest.mark.req("wire.jsonrpc.shapes")
def test_an_error_wins_over_a_result() -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    frame = b'{"id":1,"result":2,"error":{"code":3,"message":"no","data":{"a" :1}}}'
    assert receive(connection, frame) == Failure(call, 3, "no", Raw(b'{"a" :1}'))


@pytest.mark.req("wire.jsonrpc.shapes")
@pytest.mark.parametrize(
    "frame", [b"{}", b'{"id":null}', b'{"result":1}', b'{"id":null,"error":{"code":-32700,"message":"parse"}}']
)
def test_a_frame_with_neither_id_nor_method_is_recorded(frame: bytes) -> None:
    connection = JsonRpcConnection()
    ask(connection)
    event = receive(connection, frame)
    assert event == Stray(frame, "neither an id nor a method")
    assert len(connection.lose()) == 1


@pytest.mark.req("wire.jsonrpc.shapes")
def test_what_is_no_envelope_comes_out_as_unknown_or_noise() -> None:
    connection = JsonRpcConnection()
    first, second, third = connection.receive(b'{"id":1,"method":5}\nbanner\n[{"id":1,"method":"a"}]\n')
    assert isinstance(first, Unknown)
    assert isinstance(second, Noise)
    assert isinstance(third, Noise)
    assert connection.noise == 2


@pytest.mark.req("wire.jsonrpc.params-absent")
@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
def test_absent_and_null_parameters_read_as_an_empty_object(params: bytes) -> None:
    connection = JsonRpcConnection()
    assert receive(connection, b'{"id":1,"method":"a"' + params + b"}") == Request(Raw(b"1"), "a", Raw(b"{}"))
    assert receive(connection, b'{"method":"a"' + params + b"}") == Notification("a", Raw(b"{}"))


@pytest.mark.req("wire.jsonrpc.params-absent")
@pytest.mark.parametrize("params", [b"[]", b"0", b"false", b'""', b'{"b": 1e400, "a":[]}'])
def test_parameters_that_are_there_stay_as_they_came(params: bytes) -> None:
    event = receive(JsonRpcConnection(), b'{"method":"a","params":' + params + b"}")
    assert event == Notification("a", Raw(params))


@pytest.mark.req("wire.jsonrpc.error-shapes")
@pytest.mark.parametrize(
    "error",
    [
        b'"boom"',
        b'["boom"]',
        b"7",
        b"true",
        b"false",
        b'{"message":{"text":"boom"}}',
        b'{"code":"EBOOM","message":"no"}',
        b'{"code":1e400}',
    ],
)
def test_an_error_of_any_other_shape_is_still_a_refusal_with_its_text(error: bytes) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    failure = receive(connection, b'{"id":1,"error":' + error + b"}")
    assert failure == Failure(call, -32603, error.decode().strip('"'), Raw(error))


@pytest.mark.req("wire.jsonrpc.shapes")
def test_a_null_method_counts_as_absent() -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    assert receive(connection, b'{"id":1,"method":null,"result":7}') == Answer(call, Raw(b"7"))


@pytest.mark.req("wire.jsonrpc.garbled")
@pytest.mark.parametrize(
    ("line", "garbled"),
    [
        (b'{"id":1,"result":NaN}', True),
        (b'{"id":1,"method":null,"params":null,"error":{"code":NaN}}', True),
        (b'\xef\xbb\xbf{"id":1,"result":NaN}', True),
        (b'{"id":1,"method":"a","params":NaN}', False),
        (b'{"id":1,"params":NaN}', False),
        (b'{"id":1,"other":NaN}', False),
        (b'{"id":2,"result":NaN}', False),
        (b'{"result":NaN}', False),
    ],
)
def test_only_what_looks_like_the_answer_to_a_call_ends_it_unread(line: bytes, garbled: bool) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    event = receive(connection, line)
    assert isinstance(event, Garbled) == garbled
    assert connection.lose() == ([] if garbled else [call])


@pytest.mark.req("wire.jsonrpc.lose")
def test_nothing_can_be_asked_of_a_peer_that_is_gone() -> None:
    connection = JsonRpcConnection()
    connection.lose()
    with pytest.raises(Closed, match="ask cannot be asked"):
        ask(connection)
    assert connection.next_deadline() is None


@pytest.mark.req("wire.jsonrpc.error-shapes")
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(b"{}", 0, ""), (b'{"message":"no"}', 0, "no"), (b'{"code":-32000.0,"message":"no"}', -32000, "no"), (b'{"code":5}', 5, "")],
)
def test_an_error_object_with_members_missing_is_a_refusal_with_those_it_has(error: bytes, code: int, message: str) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    assert receive(connection, b'{"id":1,"error":' + error + b"}") == Failure(call, code, message, Raw())


@pytest.mark.req("wire.jsonrpc.error-shapes", "wire.codec.bad-text")
@pytest.mark.parametrize("text", [b"caf\xe9", b"caf\\ud83d"], ids=["invalid UTF-8", "lone surrogate"])
def test_bad_text_in_an_error_does_not_lose_its_code(text: bytes) -> None:
    connection = JsonRpcConnection()
    ask(connection)
    failure = receive(connection, b'{"id":1,"error":{"code":-32601,"message":"' + text + b'"}}')
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (-32601, "caf\ufffd")


# -- strays and repeats -----------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.jsonrpc.stray")
@pytest.mark.parametrize("id", [b"2", b"0", b"-1", b'"1"', b"1.5", b"true", b"[1]", b'{"id":1}', b"1" * 5000, b'"\xff"'])
def test_an_answer_nobody_waits_for_is_recorded_and_disturbs_no_call(id: bytes) -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    unasked, wanted = connection.receive(b'{"id":' + id + b',"result":"x"}\n{"id":1,"result":"y"}\n')
    assert isinstance(unasked, Stray)
    assert unasked.raw == b'{"id":' + id + b',"result":"x"}'
    assert wanted == Answer(call, Raw(b'"y"'))


@pytest.mark.req("wire.jsonrpc.stray")
def test_a_repeated_answer_is_recorded() -> None:
    connection = JsonRpcConnection()
    first, second = ask(connection), ask(connection)
    one, again, other = connection.receive(b'{"id":1,"result":1}\n{"id":1,"error":{"code":1}}\n{"id":2,"result":2}\n')
    assert one == Answer(first, Raw(b"1"))
    assert again == Stray(b'{"id":1,"error":{"code":1}}', "an answer to 1, which nobody waits for")
    assert other == Answer(second, Raw(b"2"))


@pytest.mark.req("wire.jsonrpc.stray")
def test_an_answer_after_the_deadline_is_recorded() -> None:
    connection = JsonRpcConnection()
    late, other = ask(connection, timeout=1.0), ask(connection, timeout=9.0)
    assert connection.expire(1.0) == [late]
    assert_stray(receive(connection, b'{"id":1,"result":1}'), "nobody waits for")
    assert receive(connection, b'{"id":2,"result":2}') == Answer(other, Raw(b"2"))


@pytest.mark.req("wire.jsonrpc.duplicate-request")
def test_a_request_whose_id_is_open_is_presented_once() -> None:
    connection = JsonRpcConnection()
    request, replayed = connection.receive(b'{"id":"a","method":"b"}\n{"id":"a","method":"b"}\n')
    assert isinstance(request, Request)
    assert replayed == Stray(b'{"id":"a","method":"b"}', 'a second request with the open id "a"')
    assert connection.answer(request, 1) is not None


@pytest.mark.req("wire.jsonrpc.duplicate-request")
def test_an_answer_is_sent_once() -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    assert connection.answer(request, 1) is not None
    assert connection.answer(request, 2) is None
    assert connection.refuse(request, 1, "no") is None


@pytest.mark.req("wire.jsonrpc.duplicate-request")
def test_a_refusal_is_the_one_answer() -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    assert connection.refuse(request, 1, "no") is not None
    assert connection.answer(request, 1) is None


@pytest.mark.req("wire.jsonrpc.duplicate-request")
def test_an_id_may_be_used_again_once_it_is_answered() -> None:
    connection = JsonRpcConnection()
    old = receive_request(connection, b'{"id":1,"method":"a"}')
    connection.answer(old, 1)
    new = receive_request(connection, b'{"id":1,"method":"b"}')
    assert connection.answer(old, 2) is None, "the old request was answered; this would answer the new one in its name"
    assert connection.answer(new, 3) == b'{"jsonrpc":"2.0","id":1,"result":3}\n'


def test_a_result_that_cannot_be_written_leaves_the_request_open_for_a_refusal() -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    with pytest.raises(TypeError):
        connection.answer(request, object())
    assert connection.refuse(request, -32603, "no") is not None


def test_a_refusal_whose_data_cannot_be_written_leaves_the_request_open_for_another() -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    with pytest.raises(TypeError):
        connection.refuse(request, 1, "no", object())
    assert connection.refuse(request, 1, "no") is not None


# -- cancelling -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.jsonrpc.cancel-ours")
@pytest.mark.parametrize(
    ("style", "frame"),
    [
        (LSP_CANCEL, b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}\n'),
        (CancelStyle("gone", "requestId"), b'{"jsonrpc":"2.0","method":"gone","params":{"requestId":1}}\n'),
        (None, None),
    ],
    ids=["as LSP", "as another dialect", "dialect without cancel"],
)
def test_cancelling_our_call_tells_the_peer_in_the_dialects_way_and_forgets_it(
    style: CancelStyle | None, frame: bytes | None
) -> None:
    connection = JsonRpcConnection(cancel=style)
    call, other = ask(connection, timeout=1.0), ask(connection, timeout=2.0)
    assert connection.cancel(call) == frame
    assert connection.next_deadline() == 2.0
    assert_stray(receive(connection, b'{"id":1,"result":1}'), "nobody waits for")
    assert connection.lose() == [other]


@pytest.mark.req("wire.jsonrpc.cancel-ours")
def test_a_call_that_has_ended_is_not_cancelled() -> None:
    connection = JsonRpcConnection()
    answered, expired, cancelled = ask(connection), ask(connection, timeout=1.0), ask(connection)
    receive(connection, b'{"id":1,"result":1}')
    connection.expire(1.0)
    assert connection.cancel(cancelled) is not None
    assert [connection.cancel(call) for call in (answered, expired, cancelled)] == [None] * 3


def test_a_call_is_forgotten_once_and_without_a_word() -> None:
    connection = JsonRpcConnection()
    call = ask(connection)
    assert connection.forget(call)
    assert not connection.forget(call)
    assert connection.lose() == []


@pytest.mark.req("wire.jsonrpc.cancel-theirs")
@pytest.mark.parametrize("id", [id for id in PEER_IDS if id != b'"\xff"'])
def test_the_peers_cancel_reaches_the_open_request_it_names(id: bytes) -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":' + id + b',"method":"a"}')
    receive_request(connection, b'{"id":"another","method":"a"}')
    event = receive(connection, b'{"method":"$/cancelRequest","params":{"why":"late","id": ' + id + b" }}")
    assert isinstance(event, Cancelled)
    assert event.request is request
    assert connection.answer(request, 1) is not None, "whether it is answered is the server's choice"


@pytest.mark.req("wire.jsonrpc.cancel-theirs")
@pytest.mark.parametrize(
    "params",
    [b"", b',"params":null', b',"params":{}', b',"params":{"id":2}', b',"params":{"id":"1"}', b',"params":[1]', b',"params":1'],
)
def test_a_cancel_that_names_nothing_open_is_recorded(params: bytes) -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    assert_stray(receive(connection, b'{"method":"$/cancelRequest"' + params + b"}"), "cancels a request that is not open")
    assert connection.answer(request, 1) is not None


@pytest.mark.req("wire.jsonrpc.cancel-theirs")
def test_a_cancel_after_the_answer_is_recorded() -> None:
    connection = JsonRpcConnection()
    connection.answer(receive_request(connection, b'{"id":1,"method":"a"}'), 1)
    assert_stray(receive(connection, b'{"method":"$/cancelRequest","params":{"id":1}}'), "cancels a request that is not open")


@pytest.mark.req("wire.jsonrpc.cancel-theirs")
def test_the_dialects_own_words_are_a_cancel_and_no_others() -> None:
    lsp, other = b'{"method":"$/cancelRequest","params":{"id":1}}', b'{"method":"gone","params":{"requestId":1}}'
    connection = JsonRpcConnection(cancel=CancelStyle("gone", "requestId"))
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    assert receive(connection, lsp) == Notification("$/cancelRequest", Raw(b'{"id":1}'))
    assert receive(connection, other) == Cancelled(request)
    assert isinstance(receive(JsonRpcConnection(cancel=None), lsp), Notification)


# -- order, time and loss ---------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.jsonrpc.order")
def test_events_come_in_arrival_order() -> None:
    connection = JsonRpcConnection()
    first, second = ask(connection), ask(connection)
    run = (
        b'{"id":2,"method":"b"}\n{"method":"n"}\n{"id":2,"result":1}\nbanner\n{"id":1,"method":"a"}\n{"id":1,"error":{"code":5}}\n'
    )
    events = connection.receive(run)
    assert [type(event) for event in events] == [Request, Notification, Answer, Noise, Request, Failure]
    assert events[0] == Request(Raw(b"2"), "b", Raw(b"{}"))
    assert events[2] == Answer(second, Raw(b"1"))
    assert events[5] == Failure(first, 5, "", Raw())


@pytest.mark.req("wire.jsonrpc.order")
def test_a_notification_comes_before_the_answer_that_follows_it_and_after_the_one_before() -> None:
    connection = JsonRpcConnection()
    ask(connection)
    ask(connection)
    run = b'{"id":1,"result":1}\n{"method":"n"}\n{"id":2,"result":2}\n'
    assert [type(event) for event in connection.receive(run)] == [Answer, Notification, Answer]


@pytest.mark.req("wire.jsonrpc.lose")
def test_when_the_peer_goes_every_waiting_call_is_given_back_once() -> None:
    connection = JsonRpcConnection()
    _, first, second = ask(connection), ask(connection, timeout=1.0), ask(connection)
    receive(connection, b'{"id":1,"result":1}')
    assert connection.lose() == [first, second]
    assert connection.lose() == []
    assert connection.expire(1e9) == []
    assert connection.lost


@pytest.mark.req("wire.jsonrpc.lose")
def test_a_request_of_a_peer_that_is_gone_is_not_answered() -> None:
    connection = JsonRpcConnection()
    request = receive_request(connection, b'{"id":1,"method":"a"}')
    assert not connection.lost
    connection.lose()
    assert connection.answer(request, 1) is None
    assert connection.refuse(request, 1, "no") is None


@pytest.mark.req("wire.jsonrpc.deadlines")
def test_calls_expire_at_their_deadline_and_the_next_one_is_told() -> None:
    connection = JsonRpcConnection()
    late, early, never = ask(connection, now=5.0, timeout=10.0), ask(connection, now=6.0, timeout=1.0), ask(connection)
    assert connection.next_deadline() == 7.0
    assert connection.expire(6.9) == []
    assert connection.expire(7.0) == [early]
    assert connection.next_deadline() == 15.0
    assert connection.expire(100.0) == [late]
    assert connection.next_deadline() is None
    assert connection.lose() == [never]


@pytest.mark.req("wire.jsonrpc.deadlines")
def test_an_answered_call_does_not_expire() -> None:
    connection = JsonRpcConnection()
    ask(connection, timeout=1.0)
    receive(connection, b'{"id":1,"result":1}')
    assert connection.next_deadline() is None
    assert connection.expire(1.0) == []


# -- oversize ---------------------------------------------------------------------------------------------------------------


def receive_oversize(connection: JsonRpcConnection, head: bytes) -> list[PendingCall[Id]]:
    return connection.oversize(Oversize(100_000, head, 50_000))


@pytest.mark.req("wire.jsonrpc.oversize")
@pytest.mark.parametrize(
    "head", [b'{"jsonrpc":"2.0","id":2,"result":{"id":1,"te', b'{"error":{"id":1,"method":"x"},"id" : 2, "result":"\xff']
)
def test_an_oversize_answer_fails_the_call_its_head_names(head: bytes) -> None:
    connection = JsonRpcConnection()
    first, second, third = ask(connection), ask(connection), ask(connection)
    assert receive_oversize(connection, head) == [second]
    assert receive_oversize(connection, head) == []
    assert connection.lose() == [first, third]


@pytest.mark.req("wire.jsonrpc.oversize")
@pytest.mark.parametrize(
    "head",
    [
        b'{"result":{"id":1,"text":"',
        b'{"id":null,"error":{"message":"',
        b'{"id":"1, cut',
        b'{"jsonrpc":"2.0","id":1',
        b"banner banner",
        b"",
    ],
)
def test_an_oversize_frame_whose_head_names_no_call_fails_every_waiting_one(head: bytes) -> None:
    connection = JsonRpcConnection()
    first, second = ask(connection), ask(connection)
    assert receive_oversize(connection, head) == [first, second]
    assert connection.lose() == []


@pytest.mark.req("wire.jsonrpc.oversize")
@pytest.mark.parametrize(
    "head",
    [
        b'{"id":1,"method":"a","params":{"text":"',
        b'{"method":"a","id":1,"params":{"text":"',
        b'{"jsonrpc":"2.0","method":"a","params":{"text":"',
        b'{"method":"a","params":{"id":1,"text":"',
        b'{"id":null,"method":"a","params":{"text":"',
        b'{"id":"theirs","result":{"text":"',
        b'{"id":3,"result":{"text":"',
    ],
    ids=["request", "method first", "notification or id last", "inner id", "null id", "string id", "stray answer"],
)
def test_an_oversize_frame_that_answers_no_call_of_ours_fails_none(head: bytes) -> None:
    connection = JsonRpcConnection()
    first, second = ask(connection), ask(connection)
    assert receive_oversize(connection, head) == []
    assert connection.lose() == [first, second]


# -- two ends ---------------------------------------------------------------------------------------------------------------

LIMIT = 400
# What a peer may write besides calls and answers.
OTHER_LINES = [
    b'{"method":"note"}\n',
    b"a banner\n",
    b"\r\n",
    b"{}\n",
    b"[1]\n",
    b"\xff\n",
    b'{"id":999,"result":1}\n',
    b'{"id":"x"}\n',
    b'{"id":1,"method":7}\n',
]


class End:
    """One side: its connection, the bytes on their way to it, and the peer's requests it has not answered."""

    def __init__(self) -> None:
        self.connection = JsonRpcConnection()
        self.framer = Framer(LIMIT)
        self.coming = b""
        self.last_sent = b""
        self.requests: list[Request] = []
        self.calls: list[PendingCall[Id]] = []


class TwoEnds(RuleBasedStateMachine):
    """Two connections and a wire between them, cut anywhere; `outcomes` is the model: how each call ended."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = End(), End()
        self.outcomes: dict[PendingCall[Id], str | None] = {}

    # -- what the two do

    @rule(me=st.integers(0, 1), timeout=st.sampled_from([None, 1.0, 10.0]))
    def ask(self, me: int, timeout: float | None) -> None:
        call, frame = self.ends[me].connection.request(
            "echo", {"n": len(self.outcomes)}, now=self.now, timeout=timeout, waiter=len(self.outcomes)
        )
        self.ends[me].calls.append(call)
        self.outcomes[call] = None
        self.send(me, frame)

    @precondition(lambda self: self.requests())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.serve(*data.draw(st.sampled_from(self.requests())), how="answer")

    @precondition(lambda self: self.requests())
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        self.serve(*data.draw(st.sampled_from(self.requests())), how="refuse")

    @precondition(lambda self: self.requests())
    @rule(data=st.data())
    def answer_too_long(self, data: st.DataObject) -> None:
        self.serve(*data.draw(st.sampled_from(self.requests())), how="flood")

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        me, call = data.draw(st.sampled_from(self.waiting()))
        frame = self.ends[me].connection.cancel(call)
        assert frame is not None
        self.end(call, "cancelled")
        self.send(me, frame)

    # -- what the wire and the clock do

    @rule(me=st.integers(0, 1), size=st.just(10_000) | st.integers(1, 120))
    def deliver(self, me: int, size: int) -> None:
        end = self.ends[me]
        chunk, end.coming = end.coming[:size], end.coming[size:]
        for item in end.framer.feed(chunk):
            if isinstance(item, Oversize):
                for call in end.connection.oversize(item):
                    self.end(call, "oversize")
            else:
                for event in end.connection.receive(item):
                    self.happened(end, event)

    @rule(me=st.integers(0, 1))
    def repeat(self, me: int) -> None:
        self.send(me, self.ends[me].last_sent)

    @rule(me=st.integers(0, 1), line=st.sampled_from(OTHER_LINES))
    def write_another_line(self, me: int, line: bytes) -> None:
        self.ends[1 - me].coming += line

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            for call in end.connection.expire(self.now):
                assert call.deadline <= self.now
                self.end(call, "expired")
            next_deadline = end.connection.next_deadline()
            assert next_deadline is None or next_deadline > self.now

    @precondition(lambda self: len(self.waiting()) > 5)  # else hardly anything would live long enough to be answered
    @rule()
    def lose(self) -> None:
        for end in self.ends:
            for call in end.connection.lose():
                self.end(call, "lost")
        assert not self.waiting()
        self.ends = End(), End()

    def teardown(self) -> None:
        """Nobody asks or cancels any more: what is on the way arrives, what is open is served, and then no call waits."""
        while any(end.coming or end.requests for end in self.ends):
            for me, end in enumerate(self.ends):
                self.deliver(me, len(end.coming))
                for request in list(end.requests):
                    self.serve(me, request, "answer")
        assert not self.waiting()
        assert [end.connection.lose() for end in self.ends] == [[], []]

    # -- the model

    def send(self, me: int, frame: bytes) -> None:
        self.ends[me].last_sent = frame
        self.ends[1 - me].coming += frame

    def waiting(self) -> list[tuple[int, PendingCall[Id]]]:
        return [(me, call) for me, end in enumerate(self.ends) for call in end.calls if self.outcomes[call] is None]

    def requests(self) -> list[tuple[int, Request]]:
        return [(me, request) for me, end in enumerate(self.ends) for request in end.requests]

    def serve(self, me: int, request: Request, how: str) -> None:
        end = self.ends[me]
        end.requests.remove(request)
        if how == "refuse":
            frame = end.connection.refuse(request, 1, "no", request.params)
        else:
            frame = end.connection.answer(request, request.params if how == "answer" else "x" * LIMIT)
        assert frame is not None, "an open request can be answered"
        self.send(me, frame)

    def happened(self, end: End, event: Event) -> None:
        match event:
            case Request():
                end.requests.append(event)
            case Answer(call=call, result=params) | Failure(call=call, data=params):
                assert json.loads(bytes(params)) == {"n": call.waiter}, "the answer to another call"
                self.end(call, "answered")
            case Cancelled(request=request):
                assert request in end.requests
            case _:
                assert isinstance(event, Notification | Stray | Unknown | Noise)

    def end(self, call: PendingCall[Id], how: str) -> None:
        assert self.outcomes[call] is None, f"{how} after it was {self.outcomes[call]}"
        self.outcomes[call] = how


@pytest.mark.req("wire.jsonrpc.both-ends")
def test_two_connections_fed_each_others_frames_in_any_chunking_end_every_call_exactly_once() -> None:
    run_state_machine_as_test(
        TwoEnds, settings=settings(deadline=None, max_examples=examples(250), stateful_step_count=50, report_multiple_bugs=False)
    )
