"""The 88 methods: what is written is read again, whichever way it is spelt."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.dialects.piglet import messages
from serai.dialects.piglet.messages import Wire
from serai.dialects.piglet.methods import METHODS, Method, decode_params, decode_result
from tests.support.piglet.message_strategies import VariantWriter, objects
from tests.support.profiles import examples

KINDS = sorted(
    {kind for row in METHODS.values() for kind in (row.params, row.result) if kind is not None}, key=lambda kind: kind.__name__
)
REQUIRED = {
    method for method, row in METHODS.items() if any(field.required for field in msgspec.structs.fields(row.params))
}  # fmt: skip


def test_there_are_88_methods_each_with_a_row() -> None:
    assert len(METHODS) == len(Method) == 88
    assert list(METHODS) == [str(method) for method in Method]
    senders = [row.sender for row in METHODS.values()]
    assert (senders.count("guest"), senders.count("host"), senders.count("both")) == (74, 13, 1)
    assert sum(method.startswith("host/") for method in METHODS) == 52
    assert all(METHODS[method].result is not None for method in METHODS if method.startswith("host/"))


@pytest.mark.req("piglet.fix.04", "piglet.edge.14")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_every_object_is_read_as_it_was_written_however_it_is_spelt(kind: type[Wire], data: st.DataObject) -> None:
    value = data.draw(objects(kind))
    plain = msgspec.json.encode(value)
    read = _read(kind, plain)
    assert msgspec.json.encode(read) == plain
    case = data.draw(st.sampled_from([str.upper, str.title, str.swapcase, str.lower]))
    assert msgspec.json.encode(_read(kind, VariantWriter(case, fractions=False).write(value))) == plain
    assert msgspec.json.encode(_read(kind, VariantWriter(str, fractions=True).write(value))) == plain
    assert msgspec.json.encode(_read(kind, VariantWriter(case, fractions=True).write(value))) == plain


def _read(kind: type[Wire], raw: bytes) -> Wire:
    for method, row in METHODS.items():
        if row.params is kind:
            read: Wire = decode_params(method, raw)
            return read
        if row.result is kind:
            return decode_result(method, raw)  # type: ignore[no-any-return]
    raise AssertionError(kind)


@pytest.mark.req("piglet.fix.05")
@pytest.mark.parametrize("method", METHODS)
def test_null_parameters_are_an_empty_object_and_only_what_is_required_is_missed(method: str) -> None:
    if method in REQUIRED:
        for raw in (b"null", b"{}"):
            with pytest.raises(msgspec.ValidationError, match="missing required field"):
                decode_params(method, raw)
    else:
        assert decode_params(method, b"null") == decode_params(method, b"{}")


def test_only_what_cannot_be_done_without_is_required() -> None:
    assert sorted(REQUIRED) == [
        "$/cancelRequest", "host/activateTool", "host/agent.run", "host/appendCustomMessage", "host/appendSessionEntry",
        "host/auth.getKey", "host/branchSession", "host/branchSessionWithSummary", "host/chat", "host/config.readExtension",
        "host/executeTool", "host/loadSession", "host/publish", "host/runBackground", "host/setLabel", "host/setSessionTitle",
        "host/subscribe", "host/undoRestore", "provider/stream",
    ]  # fmt: skip


@pytest.mark.req("piglet.fix.04")
def test_keys_in_opaque_data_stay_as_they_are() -> None:
    args = {"Name": 1, "name": {"ARGS": 2.0}, "CallId": None}
    read = decode_params("tool/execute", json.dumps({"CALLID": "c", "Name": "n", "Args": args}).encode())
    assert read == messages.ToolExecuteParams("c", "n", args)
    assert type(read.args["name"]["ARGS"]) is float
    tool = decode_params("register/tool", json.dumps({"NAME": "n", "Parameters": {"Properties": {"Name": 1}}}).encode())
    assert tool.parameters == {"Properties": {"Name": 1}}
    entry = decode_params("host/appendSessionEntry", b'{"KIND":"k","Data":{"Kind":1,"kind":2}}')
    assert entry.data == {"Kind": 1, "kind": 2}
    after = decode_params("interceptor/after", b'{"DETAILS":{"Details":[1]}}')
    assert after.details == {"Details": [1]}
    event = decode_result("event/dispatch", b'{"Action":{"TYPE":"odd","Payload":{"KEY" :1}}}')
    assert bytes(event.action.payload) == b'{"KEY" :1}'


@pytest.mark.req("piglet.edge.01")
def test_a_tool_result_with_capital_keys_is_the_one_in_lower_case() -> None:
    lower = b'{"content":[{"type":"text","text":"a"},{"type":"image","data":"aGk=","mime":"image/png"}],"isError":true}'
    image = b'{"Type":"image","Text":"","Data":"aGk=","Mime":"image/png"}'
    capital = b'{"Content":[{"Type":"text","Text":"a","Data":"","Mime":""},' + image + b'],"IsError":true}'
    assert decode_result("tool/execute", capital) == decode_result("tool/execute", lower)


def test_null_members_count_as_absent() -> None:
    read = decode_result("tool/execute", b'{"content":[{"type":"text","text":"a","data":null}],"isError":null,"errorCode":null}')
    assert read == messages.ToolExecuteResult([messages.ContentBlock("text", "a")])
    assert decode_result("messageHook/onMessage", b"null") == messages.MessageHookResult()


@pytest.mark.parametrize("raw", [b"[]", b"7", b'"x"', b'{"name":7}', b'{"name":', b"", b'{"name":"a","parameters":NaN}'])
def test_what_is_no_such_object_is_told(raw: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_params("register/tool", raw)


def test_what_is_written_has_its_required_members_and_no_other_empty_ones() -> None:
    assert msgspec.json.encode(messages.RegisterToolParams("n")) == b'{"name":"n","description":"","parameters":null}'
    assert msgspec.json.encode(messages.InitializeParams("5", "/w")) == b'{"protocolVersion":"5","cwd":"/w"}'
    assert msgspec.json.encode(messages.InterceptorBeforeResult()) == b'{"allow":false}'
    assert msgspec.json.encode(messages.ShutdownParams()) == b"{}"
