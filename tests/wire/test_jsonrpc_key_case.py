"""A folded connection: keys in any case, ids that are ids, answers that answer (spec piglet 2.2, 2.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from serai.wire.codec import Noise, Unknown
from serai.wire.jsonrpc import Answer, Cancelled, Event, Failure, Garbled, JsonRpcConnection, Notification, Request, Stray
from serai.wire.stream import Oversize


def build_folded(*, bare: frozenset[str] | None = frozenset({"initialize"})) -> JsonRpcConnection:
    return JsonRpcConnection(folded=True, bare=bare)


def receive(connection: JsonRpcConnection, line: bytes) -> Event:
    [event] = connection.receive(line + b"\n")
    return event


@pytest.mark.req("piglet.fix.04")
def test_the_keys_of_an_envelope_match_in_any_case() -> None:
    connection = build_folded()
    first, _ = connection.request("a", {}, now=0, timeout=None)
    second, _ = connection.request("b", {}, now=0, timeout=None)
    assert receive(connection, b'{"ID":1,"Result":{"Text":1}}') == Answer(first, Raw(b'{"Text":1}'))
    failure = receive(connection, b'{"JSONRPC":"2.0","Id":2,"ERROR":{"Code":-32001,"MESSAGE":"no","Data":{"A" :1}}}')
    assert failure == Failure(second, -32001, "no", Raw(b'{"A" :1}'))
    assert receive(connection, b'{"Id":"x","Method":"host/chat","PARAMS":{"A":1}}') == Request(
        Raw(b'"x"'), "host/chat", Raw(b'{"A":1}')
    )
    assert receive(connection, b'{"METHOD":"log","extra":[1]}') == Notification("log", Raw(b"{}"))


@pytest.mark.req("piglet.fix.04")
@pytest.mark.parametrize("line", [b'{"ID":2,"id":1,"RESULT":5,"result":6}', b'{"id":1,"ID":2,"result":6,"Result":5}'])
def test_an_exact_key_of_an_envelope_wins(line: bytes) -> None:
    connection = build_folded()
    call, _ = connection.request("a", {}, now=0, timeout=None)
    assert receive(connection, line) == Answer(call, Raw(b"6"))


def test_other_connections_take_exact_keys_only_and_any_id() -> None:
    connection = JsonRpcConnection()
    connection.request("a", {}, now=0, timeout=None)
    assert isinstance(receive(connection, b'{"ID":1,"Result":1}'), Stray)
    assert isinstance(receive(connection, b'{"id":1.0,"method":"a"}'), Request)
    assert isinstance(receive(connection, b'{"id":1,"extra":1}'), Answer)


@pytest.mark.req("piglet.edge.14", "piglet.rule.envelope-ids")
@pytest.mark.parametrize("id", [b"1.0", b"1e0", b"true", b"false", b"{}", b"[]", b"[1]", b'{"a":1}', b"1.5"])
def test_what_is_no_id_is_recorded_and_never_answered(id: bytes) -> None:
    connection = build_folded()
    call, _ = connection.request("a", {}, now=0, timeout=None)
    event = receive(connection, b'{"id":' + id + b',"method":"host/chat"}')
    assert isinstance(event, Stray)
    assert "an id that is none" in event.why
    assert isinstance(receive(connection, b'{"id":' + id + b',"result":{}}'), Stray)
    assert connection.lose() == [call]


@pytest.mark.req("piglet.rule.envelope-ids")
@pytest.mark.parametrize("id", [b"0", b"-1", b"7", b"123456789012345678901234567890", b'"a"', b'""', b'"1"', b'"\\u0041"'])
def test_integers_and_strings_are_ids_and_come_back_as_they_were(id: bytes) -> None:
    connection = build_folded()
    request = receive(connection, b'{"id":' + id + b',"method":"host/chat"}')
    assert isinstance(request, Request)
    assert connection.answer(request, {}) == b'{"jsonrpc":"2.0","id":' + id + b',"result":{}}\n'


@pytest.mark.req("piglet.rule.envelope-ids")
def test_whoever_needs_a_number_draws_it_from_the_counter_of_the_requests() -> None:
    connection = build_folded()
    assert [connection.request("initialize", {}, now=0, timeout=None)[0].id, connection.take_id()] == [1, 2]
    assert json.loads(connection.request("provider/stream", {}, now=0, timeout=None)[1])["id"] == 3
    assert connection.take_id() == 4


@pytest.mark.req("piglet.rule.envelope-result-error")
@pytest.mark.parametrize("rest", [b"", b',"error":null', b',"jsonrpc":"2.0"', b',"Other":1'])
def test_an_answer_with_neither_result_nor_error_answers_only_what_it_may(rest: bytes) -> None:
    connection = build_folded()
    hello, _ = connection.request("initialize", {}, now=0, timeout=None)
    tool, _ = connection.request("tool/execute", {}, now=0, timeout=None)
    assert receive(connection, b'{"id":1' + rest + b"}") == Answer(hello, Raw(b"null"))
    event = receive(connection, b'{"id":2' + rest + b"}")
    assert isinstance(event, Garbled)
    assert (event.call, event.why) == (tool, "neither a result nor an error")


@pytest.mark.req("piglet.rule.envelope-result-error")
def test_an_error_wins_and_a_null_result_is_a_result() -> None:
    connection = build_folded()
    one, _ = connection.request("a", {}, now=0, timeout=None)
    two, _ = connection.request("a", {}, now=0, timeout=None)
    assert receive(connection, b'{"id":1,"result":{},"error":{"code":1,"message":"no"}}') == Failure(one, 1, "no", Raw())
    assert receive(connection, b'{"id":2,"result":null}') == Answer(two, Raw(b"null"))


@pytest.mark.req("piglet.rule.envelope-shapes")
def test_id_and_method_tell_requests_answers_and_notifications_apart() -> None:
    connection = build_folded()
    call, _ = connection.request("a", {}, now=0, timeout=None)
    assert receive(connection, b'{"id":1,"method":"host/chat"}') == Request(Raw(b"1"), "host/chat", Raw(b"{}"))
    assert receive(connection, b'{"id":null,"method":"log"}') == Notification("log", Raw(b"{}"))
    assert receive(connection, b'{"method":"log","params":null}') == Notification("log", Raw(b"{}"))
    assert isinstance(receive(connection, b'{"id":2,"method":"","result":1}'), Stray)
    assert receive(connection, b'{"id":1,"method":"","result":1}') == Answer(call, Raw(b"1"))


@pytest.mark.req("piglet.rule.envelope-version")
@pytest.mark.parametrize("version", [b"", b'"jsonrpc":"2.0",', b'"jsonrpc":"1.0",', b'"jsonrpc":null,', b'"JsonRpc":2,'])
def test_the_version_is_always_said_and_never_checked(version: bytes) -> None:
    connection = build_folded()
    request = receive(connection, b"{" + version + b'"id":1,"method":"host/chat"}')
    assert isinstance(request, Request)
    frames = [connection.answer(request, {}), connection.notify("shutdown"), connection.request("a", {}, now=0, timeout=None)[1]]
    assert all(frame is not None and json.loads(frame)["jsonrpc"] == "2.0" for frame in frames)


@pytest.mark.req("piglet.rule.framing-noise")
def test_lines_that_are_no_objects_are_noise_and_counted() -> None:
    connection = build_folded()
    call, _ = connection.request("a", {}, now=0, timeout=None)
    run = b'hello\n[1,2]\n7\n"text"\nnull\n[{"id":1,"result":2}]\n{"id":1,\n{"id":1,"result":2}\n'
    *noise, answer = connection.receive(run)
    assert [type(event) for event in noise] == [Noise] * 7
    assert noise[0] == Noise(b"hello", "not a JSON object")
    assert connection.noise == 7
    assert answer == Answer(call, Raw(b"2"))


@pytest.mark.req("piglet.rule.framing-lines")
def test_a_carriage_return_is_tolerated_and_blank_lines_are_skipped() -> None:
    [one, two] = build_folded().receive(b'\n\r\n  \n{"method":"a"}\r\n\n{"Method":"b"}\r\n')
    assert (one, two) == (Notification("a", Raw(b"{}")), Notification("b", Raw(b"{}")))


def test_the_key_of_a_cancellation_is_folded_too() -> None:
    connection = build_folded()
    request = receive(connection, b'{"id":5,"method":"host/chat"}')
    assert isinstance(request, Request)
    assert receive(connection, b'{"method":"$/cancelRequest","params":{"ID":5}}') == Cancelled(request)
    assert isinstance(receive(connection, b'{"method":"$/cancelRequest","params":{"ID":5,"id":6}}'), Stray)


def test_the_head_of_an_oversize_frame_is_folded_too() -> None:
    connection = build_folded()
    one, _ = connection.request("a", {}, now=0, timeout=None)
    two, _ = connection.request("a", {}, now=0, timeout=None)
    assert connection.oversize(Oversize(9000, b'{"JSONRPC":"2.0","ID":2,"Result":{"x":"', 4096)) == [two]
    assert connection.oversize(Oversize(9000, b'{"ID":1,"Method":"host/chat","Params":{"x":"', 4096)) == []
    assert b'"id":7' in (connection.refuse_oversize(Oversize(9000, b'{"Id":7,"METHOD":"host/chat","x":"', 4096)) or b"")
    assert connection.refuse_oversize(Oversize(9000, b'{"id":1.0,"method":"host/chat","x":"', 4096)) is None
    assert connection.lose() == [one]


def test_text_that_is_broken_is_mended_in_a_folded_frame_as_in_another() -> None:
    event = receive(build_folded(), b'{"Method":"log","Params":{"message":"caf\xe9"}}')
    assert event == Notification("log", Raw('{"message":"caf\ufffd"}'.encode()))


def test_a_frame_that_folding_cannot_save_is_unknown() -> None:
    event = receive(build_folded(), b'{"Id":1,"METHOD":5}')
    assert isinstance(event, Unknown)
    assert event.raw == b'{"Id":1,"METHOD":5}'


def test_a_call_is_waited_for_until_it_ends() -> None:
    connection = build_folded()
    call, _ = connection.request("a", {}, now=0, timeout=None)
    assert connection.waits_for(call)
    receive(connection, b'{"id":1,"result":1}')
    assert not connection.waits_for(call)


CASES = st.sampled_from([str.lower, str.upper, str.title, str.swapcase])


@pytest.mark.req("piglet.fix.04")
@given(st.data())
def test_a_frame_with_its_keys_in_any_case_reads_as_the_one_with_exact_keys(data: st.DataObject) -> None:
    opaque: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from(["Id", "id", "METHOD", "x"]), st.integers(), max_size=3)
    members: dict[str, Any] = data.draw(
        st.fixed_dictionaries(
            {}, optional={"id": st.integers(1, 3) | st.text(max_size=3), "method": st.text(max_size=3), "params": opaque}
        )
        | st.fixed_dictionaries({"id": st.integers(1, 3)}, optional={"result": opaque, "error": st.none()})
    )
    told: list[list[tuple[str, object]]] = []
    for keys in (members, {data.draw(CASES)(key): value for key, value in members.items()}):
        connection = build_folded()
        for _ in range(2):
            connection.request("a", {}, now=0, timeout=None)
        events = connection.receive(json.dumps(keys).encode() + b"\n")
        told.append([(type(event).__name__, _summarize(event)) for event in events])
    assert told[0] == told[1]


def _summarize(event: Event) -> object:
    match event:
        case Request():
            return bytes(event.id), event.method, bytes(event.params)
        case Notification():
            return event.method, bytes(event.params)
        case Answer():
            return event.call.id, bytes(event.result)
        case Failure() | Garbled():
            return event.call.id
        case Stray():
            return event.why
        case _:
            return None
