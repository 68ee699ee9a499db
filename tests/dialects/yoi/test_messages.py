"""The JSON documents between host and plugin."""

from __future__ import annotations

import json
import tomllib
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET

from serai.dialects.yoi import messages
from serai.dialects.yoi.messages import (
    BadDocument,
    Event,
    Phase,
    encode_event,
    parse_json,
    parse_strict_json,
    read_event,
    read_input,
    read_output,
    read_service,
    read_status,
)
from serai.plugins.untrusted_text import format_timestamp
from tests.support.yoi.ingress_documents import NOW, URL, event

MOST = 65_536


def pad(size: int, **fields: Any) -> str:
    """A document of exactly so many bytes."""
    text = json.dumps({**fields, "pad": ""})
    return text[:-2] + "x" * (size - len(text)) + '"}'


def get_refusal(read: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(BadDocument) as caught:
        read(*args, **options)
    return str(caught.value)


# -- JSON -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.edge.17")
@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", '{"a": NaN}', "[-Infinity]", "1e999", '"\\ud800"', "[1,]", "01", ""]
)
def test_what_is_no_json_is_refused_everywhere(text: str) -> None:
    for read in (parse_json, parse_strict_json, messages.parse_marked_json, read_service, read_output, read_event):
        get_refusal(read, text)
    assert get_refusal(read_status, text, "start").startswith("plugin component start output is not JSON: ")


@pytest.mark.req("yoi.edge.16")
def test_a_key_that_comes_twice() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}'
    assert parse_json(text) == {"a": 3, "b": {"c": 2}}
    assert get_refusal(parse_strict_json, text) == "duplicate field `a`"
    assert get_refusal(parse_strict_json, '[{"b": {"c": 1, "c": 2}}]') == "duplicate field `c`"
    assert parse_strict_json('{"a": {"b": 1}, "b": [1]}') == {"a": {"b": 1}, "b": [1]}


@pytest.mark.req("yoi.edge.16")
def test_in_a_status_or_a_tools_output_the_last_one_wins() -> None:
    assert read_status('{"state": "failed", "state": "ready"}', "start").state == "ready"
    assert read_output('{"summary": "one", "summary": "two"}').summary == "two"


def test_brackets_may_not_be_nested_without_end() -> None:
    assert parse_json("[" * 128 + "]" * 128)
    for depth in (129, 900, 30_000):
        assert "recursion limit exceeded" in get_refusal(parse_json, "[" * depth + "]" * depth)
        assert "recursion limit exceeded" in get_refusal(parse_json, '{"a":' * depth + "1" + "}" * depth)
    assert parse_json("[" + "[]," * 200 + "[]]")  # many, but not in each other


def test_numbers_are_kept_or_refused_but_never_end_the_reader() -> None:
    assert parse_json("123456789012345678901234567890") == 123456789012345678901234567890
    get_refusal(parse_json, "1" * 5000)
    get_refusal(parse_strict_json, "1" * 5000)


# -- config (spec yoi 3.1) --------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.007")
def test_the_config_goes_in_as_json_with_dates_as_rfc_3339() -> None:
    assert messages.encode_config(None) == "null"
    assert messages.encode_config({}) == "{}"
    config = tomllib.loads(
        'name = "é"\nat = 2026-01-02T03:04:05+01:00\nutc = 2026-01-02T03:04:05Z\nlocal = 2026-01-02T03:04:05\n'
        "day = 2026-01-02\nhour = 03:04:05\n[deep]\nlist = [1, 2.5, true]\n"
    )
    assert json.loads(messages.encode_config(config)) == {
        "name": "é", "at": "2026-01-02T03:04:05+01:00", "utc": "2026-01-02T03:04:05Z", "local": "2026-01-02T03:04:05",
        "day": "2026-01-02", "hour": "03:04:05", "deep": {"list": [1, 2.5, True]},
    }  # fmt: skip


# -- PluginStatus (spec yoi 3.2) ------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.008")
@pytest.mark.parametrize("phase", ["start", "status", "stop"])
def test_a_status_is_checked_in_order_and_the_phase_is_named(phase: Phase) -> None:
    what = f"plugin component {phase}"
    assert get_refusal(read_status, pad(MOST + 1, error=1, state="failed") + "{", phase) == f"{what} output exceeds 65536 bytes"
    assert get_refusal(read_status, '{"error": 1', phase).startswith(f"{what} output is not JSON: ")
    assert get_refusal(read_status, '{"error": {"message": "no"}, "state": "failed"}', phase) == (
        f'{what} returned error: {{"message":"no"}}'
    )
    assert get_refusal(read_status, '{"state": "failed", "data": 1}', phase) == (
        f'{what} returned failed status: {{"state":"failed","data":1}}'
    )
    assert read_status(pad(MOST, state="ready"), phase).state == "ready"


@pytest.mark.req("yoi.edge.09")
def test_an_error_of_null_is_an_error() -> None:
    assert get_refusal(read_status, '{"state": "ready", "error": null}', "start") == "plugin component start returned error: null"


@pytest.mark.req("yoi.rule.009")
@pytest.mark.parametrize("text", ["null", "[]", '"ready"', "{}", '{"state": 1}', '{"state": null}', '{"data": {}}'])
def test_a_status_is_an_object_with_a_string_state(text: str) -> None:
    assert get_refusal(read_status, text, "stop") == "plugin component stop output must be an object with a string state"


@pytest.mark.req("yoi.rule.009")
@pytest.mark.parametrize("state", ["ready", "running", "stopped", "", "Failed", "waiting for the moon"])
def test_any_other_state_is_kept_verbatim(state: str) -> None:
    document = {"state": state, "data": {"n": 1}, "further": [None]}
    status = read_status(json.dumps(document), "status")
    assert (status.state, status.data, status.raw) == (state, {"n": 1}, document)


# -- ToolOutput (spec yoi 3.3) --------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.010")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pad(MOST + 1, summary="s") + "{", "guest output exceeds 65536 bytes"),
        ("[]", "guest output JSON must be an object"),
        ("null", "guest output JSON must be an object"),
        ('{"summary": "", "content": {}}', "guest output summary must not be empty"),
        ('{"summary": 1, "content": {}}', "guest output summary must be a string"),
        ('{"summary": null}', "guest output summary must be a string"),
        ('{"content": {}}', "guest output must include a summary string"),
        (json.dumps({"summary": "x" * 1025, "content": {}}), "guest output summary exceeds 1024 bytes"),
        ('{"summary": "s", "content": 1}', "guest output content must be a string or null"),
    ],
)
def test_what_is_wrong_with_an_output_is_found_in_order(text: str, why: str) -> None:
    assert get_refusal(read_output, text) == why


@pytest.mark.req("yoi.rule.010")
def test_an_output_that_is_no_text_or_no_json() -> None:
    assert get_refusal(read_output, "{").startswith("guest output is not valid JSON: ")
    assert get_refusal(read_output, '{"summary": "\ud800"}').startswith("guest output is not UTF-8: ")
    assert (
        get_refusal(messages.as_output, {"summary": "s", "content": "x" * (MOST + 1)}) == "guest output content exceeds 65536 bytes"
    )


@pytest.mark.req("yoi.rule.010")
@pytest.mark.parametrize(
    ("text", "content"),
    [('{"summary": "s"}', None), ('{"summary": "s", "content": null}', None), ('{"summary":"s","content":"é"}', "é")],
)
def test_content_is_a_string_or_nothing(text: str, content: str | None) -> None:
    assert read_output(text) == messages.ToolOutput("s", content, {})
    assert read_output(pad(MOST, summary="s")).summary == "s"


@pytest.mark.req("yoi.edge.10")
def test_content_that_is_an_object_is_refused() -> None:
    assert get_refusal(read_output, '{"summary": "s", "content": {}}') == "guest output content must be a string or null"


@pytest.mark.req("yoi.edge.11")
def test_an_empty_output_is_an_error_of_its_own() -> None:
    assert get_refusal(read_output, "") == "guest did not call output_write"
    assert get_refusal(read_output, " ").startswith("guest output is not valid JSON: ")


@pytest.mark.req("yoi.edge.13")
def test_a_summary_is_measured_in_bytes() -> None:
    assert read_output(json.dumps({"summary": "é" * 512})).summary == "é" * 512
    assert get_refusal(read_output, json.dumps({"summary": "é" * 513})) == "guest output summary exceeds 1024 bytes"


@pytest.mark.req("yoi.rule.011")
def test_an_unknown_key_of_an_output_is_data_and_an_error_only_in_a_test() -> None:
    text = '{"attachments": [1], "summary": "s", "content": null, "mood": "good"}'
    assert read_output(text).others == {"attachments": [1], "mood": "good"}
    assert get_refusal(read_output, text, strict=True) == "guest output contains unsupported key `attachments`"
    assert read_output('{"summary": "s"}', strict=True).summary == "s"


@pytest.mark.req("yoi.rule.013")
def test_what_a_tool_calls_an_error_is_an_ordinary_output() -> None:
    content = '{"error": {"code": "denied", "message": "no"}}'
    output = read_output(json.dumps({"summary": "tool error: denied", "content": content}), strict=True)
    assert (output.summary, output.content) == ("tool error: denied", content)


@pytest.mark.req("yoi.rule.078")
def test_tool_input_is_small_json() -> None:
    assert read_input("echo", '{"text": "é"}') == {"text": "é"}
    assert read_input("echo", pad(MOST))
    assert get_refusal(read_input, "echo", pad(MOST + 1)) == "plugin tool `echo` input exceeds 65536 bytes"
    assert get_refusal(read_input, "echo", "{").startswith("plugin tool `echo` input is not valid JSON: ")


# -- events (spec yoi 3.4) ------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.014")
def test_the_envelope_of_an_event() -> None:
    id = messages.make_correlation_id(1767323045.678, bytes(range(10)))
    sent = Event(
        kind="k",
        source="s",
        ingress_name="i",
        payload={"n": [1, None]},
        created_at=format_timestamp(1767323045.678),
        correlation_id=id,
    )
    assert json.loads(encode_event(sent)) == {
        "kind": "k", "source": "s", "ingress_name": "i", "payload": {"n": [1, None]}, "created_at": NOW, "attempt": 1,
        "correlation_id": id,
    }  # fmt: skip
    assert read_event(encode_event(sent)) == sent


@pytest.mark.req("yoi.rule.014")
@pytest.mark.parametrize("random", [bytes(10), b"\xff" * 10, b"\xff" * 16])
def test_a_correlation_id_is_a_uuid_of_version_7(random: bytes) -> None:
    id = UUID(messages.make_correlation_id(1767323045.678, random))
    assert id.version == 7
    assert id.variant == "specified in RFC 4122"
    assert id.int >> 80 == 1767323045678
    assert UUID(messages.make_correlation_id(1767323045.679, bytes(10))) > id


@pytest.mark.req("yoi.rule.015")
def test_the_hosts_own_events() -> None:
    common: dict[str, Any] = {"source": f"websocket:{URL}", "ingress_name": "chat", "url": URL, "now": NOW, "id": "event-1"}
    text = messages.build_websocket_text(**common, text="hi")
    assert text == event(payload={"url": URL, "text": "hi"})
    close = messages.build_websocket_close(**common)
    assert close == event(kind="websocket_close", payload={"url": URL, "reason": "host-owned WebSocket closed by peer"})
    error = messages.build_websocket_error(**common, error="token=abc " + "x" * 600)
    assert error.kind == "websocket_error"
    assert error.payload == {"url": URL, "error": "token=<redacted> " + "x" * (512 - len("token=<redacted> ")) + "…"}


@pytest.mark.req("yoi.edge.17")
@pytest.mark.parametrize("attempt", [True, 1.0, "1", None, [1]])
def test_an_attempt_is_an_integer(attempt: Any) -> None:
    value = {**msgspec.to_builtins(event()), "attempt": attempt}
    assert "attempt" in get_refusal(read_event, value)
    assert "attempt" in get_refusal(read_event, json.dumps(value))


@pytest.mark.req("yoi.edge.17")
def test_every_field_of_an_event_has_its_type() -> None:
    good = msgspec.to_builtins(event())
    assert read_event(good) == event()
    assert read_event({**good, "attempt": 3}).attempt == 3
    for name in ("kind", "source", "ingress_name", "created_at", "correlation_id"):
        get_refusal(read_event, {**good, name: 1})
        get_refusal(read_event, {key: value for key, value in good.items() if key != name})
    for number in (float("nan"), float("inf"), -float("inf")):
        get_refusal(read_event, {**good, "payload": [number]})
    get_refusal(read_event, {**good, "further": 1})
    get_refusal(read_event, [good])
    assert get_refusal(read_event, json.dumps(good)[:-1] + ', "kind": "k"}') == "duplicate field `kind`"
    assert read_event(
        json.dumps({**good, "payload": 0})[:-1].replace('"payload": 0', '"payload": {"a": 1, "a": 2}') + "}"
    ).payload == {"a": 2}


@pytest.mark.req("yoi.edge.18")
@pytest.mark.parametrize("char", ["x", "é", '"', "\n", "\x01", "🎈"])
def test_an_envelope_is_measured_as_the_plugin_gets_it(char: str) -> None:
    bare = len(encode_event(event(payload="")).encode())
    each = len(encode_event(event(payload=char)).encode()) - bare
    count, rest = divmod(MOST - bare, each)
    assert len(encode_event(event(payload=char * count + "x" * rest)).encode()) == MOST
    assert get_refusal(encode_event, event(payload=char * count + "x" * (rest + 1))) == "event envelope exceeds 65536 bytes"


# -- ServiceOutput (spec yoi 3.5) -----------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.016")
def test_a_service_output_is_any_json_of_which_two_keys_mean_something() -> None:
    assert read_service("3") == messages.ServiceOutput(3, UNSET, UNSET)
    assert read_service("[]").commands is UNSET
    output = read_service('{"accepted": false, "data": 1, "mood": "good"}')
    assert output.value == {"accepted": False, "data": 1, "mood": "good"}
    assert (output.commands, output.error) == (UNSET, UNSET)
    output = read_service('{"output_commands": [{"a": 1}], "error": null}')
    assert (output.commands, output.error) == ([{"a": 1}], None)
    assert get_refusal(read_service, "{").startswith("plugin component handle-ingress output is not JSON: ")
    assert get_refusal(read_service, pad(MOST + 1)) == "plugin component handle-ingress output exceeds 65536 bytes"
    assert read_service(pad(MOST)).value


@pytest.mark.req("yoi.edge.16")
def test_a_key_that_comes_twice_in_a_command_is_still_seen() -> None:
    output = read_service('{"data": {"x": 1, "x": 2}, "output_commands": [{"a": {"b": 1, "b": 2}}]}')
    assert output.value["data"] == {"x": 2}
    assert type(output.value["output_commands"][0]["a"]) is dict
    assert messages.find_repeated_key(output.commands) == "b"
    assert messages.strip_marks(output.commands) == [{"a": {"b": 2}}]
    assert messages.find_repeated_key(messages.strip_marks(output.commands)) is None
