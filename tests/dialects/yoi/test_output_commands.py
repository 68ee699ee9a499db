"""Output commands: all of them are looked at before one is carried out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from serai.dialects.yoi import host_api, output_commands
from serai.dialects.yoi.host_api import HostCallDenied
from serai.dialects.yoi.messages import read_service
from serai.dialects.yoi.output_commands import Batch, RequestDispatch, StatusUpdate, WebSocketSend
from serai.dialects.yoi.status import CommandResult, CommandStatus
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import Permission
from serai.plugins.untrusted_text import is_timestamp
from tests.support.yoi.ingress_documents import NOW, URL, command, event, record

REQUEST = {"method": "POST", "url": "https://api.example/v1", "headers": [], "body": "{}"}


def check(value: Any, plugin: ResolvedPlugin | None = None, **changes: Any) -> Batch:
    """As the host adapter asks: with the checks of the two interfaces."""
    plugin = plugin or record()

    def websocket(url: str, text: str) -> str:
        try:
            host_api.check_url(plugin, url)
            host_api.check_text(text)
        except HostCallDenied as error:
            return str(error)
        return ""

    def request(descriptor: Any) -> str:
        try:
            host_api.check_request(plugin, descriptor)
        except HostCallDenied as error:
            return str(error)
        return ""

    return output_commands.check(value, event=event(), record=plugin, now=NOW, websocket=websocket, request=request, **changes)


def get_rejection(value: Any, plugin: ResolvedPlugin | None = None) -> CommandResult:
    batch = check(value, plugin)
    assert batch.ready == ()
    (result,) = batch.rejected
    assert result.status is CommandStatus.REJECTED
    assert result.recorded_at == NOW
    return result


def test_no_commands_are_none() -> None:
    assert check(UNSET) == check([]) == Batch()


@pytest.mark.req("yoi.conform.48")
@pytest.mark.parametrize("value", [None, {}, "x", 3, command()])
def test_what_is_no_array_gives_one_result(value: Any) -> None:
    result = get_rejection(value)
    assert result.message == "service output_commands must be an array"
    assert (result.correlation_id, result.source_event_id, result.command_id, result.kind) == (None, None, None, None)


@pytest.mark.req("yoi.conform.48", "yoi.rule.018")
@pytest.mark.parametrize("name", list(command()))
def test_a_missing_field_is_a_malformed_envelope(name: str) -> None:
    result = get_rejection([{key: value for key, value in command().items() if key != name}])
    assert result.message.startswith("malformed service output command envelope: ")
    assert name in result.message
    assert (result.correlation_id, result.source_event_id, result.command_id, result.kind) == (None, None, None, None)


@pytest.mark.req("yoi.conform.48")
@pytest.mark.parametrize(
    "value", [command(further=1), command(kind="shell"), command(command_id=1), command(requested_at=None), [], 3]
)
def test_an_unknown_field_or_kind_or_a_wrong_type_is_one_too(value: Any) -> None:
    assert get_rejection([value]).message.startswith("malformed service output command envelope: ")


@pytest.mark.req("yoi.conform.49")
def test_17_commands_are_too_many_and_none_is_looked_at() -> None:
    assert len(check([command(command_id=str(n)) for n in range(16)]).ready) == 16
    assert get_rejection([3] * 17).message == "service output_commands exceeds 16 commands"


@pytest.mark.req("yoi.rule.017")
@pytest.mark.parametrize("name", ["correlation_id", "source_event_id", "command_id"])
@pytest.mark.parametrize("id", ["", "x" * 129, "é" * 65, "a\nb", "a\x7f", "a\x9b"])
def test_ids_are_short_and_have_no_control_characters(name: str, id: str) -> None:
    result = get_rejection([command(**{name: id})])
    assert result.message == f"{name} must be 1 to 128 bytes without control characters"
    assert result.kind == "websocket_send"
    assert all(len(text.encode()) <= 131 for text in (result.correlation_id, result.source_event_id, result.command_id) if text)


@pytest.mark.req("yoi.rule.017")
def test_ids_of_128_bytes_are_fine() -> None:
    (ready,) = check([command(correlation_id="é" * 64, command_id="x" * 128)]).ready
    assert (ready.correlation_id, ready.command_id) == ("é" * 64, "x" * 128)


@pytest.mark.req("yoi.edge.15")
def test_a_command_belongs_to_the_event_at_hand() -> None:
    result = get_rejection([command(source_event_id="event-0")])
    assert result.message == "source_event_id must match the ingress event correlation_id"
    assert result.source_event_id == "event-0"


@pytest.mark.req("yoi.rule.017")
@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-02", "2026-01-02T03:04:05"])
def test_requested_at_is_rfc_3339(text: str) -> None:
    assert get_rejection([command(requested_at=text)]).message == f"requested_at must be RFC3339: {text}"


@pytest.mark.req("yoi.rule.017")
def test_a_payload_has_at_most_16384_bytes() -> None:
    room = 16384 - len(json.dumps({"message": ""}, separators=(",", ":")))
    kind = "diagnostic_status_update"
    assert check([command(kind=kind, payload={"message": "x" * room})]).ready
    assert get_rejection([command(kind=kind, payload={"message": "x" * (room + 1)})]).message == "payload exceeds 16384 bytes"


@pytest.mark.req("yoi.rule.017")
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("websocket_send", {"url": URL}),
        ("websocket_send", {"url": URL, "text": 1}),
        ("websocket_send", {"url": URL, "text": "", "binary": True}),
        ("websocket_send", None),
        ("diagnostic_status_update", {"mood": "good"}),
        ("diagnostic_status_update", {"message": 1}),
        ("diagnostic_status_update", []),
    ],
)
def test_a_payload_is_strict_by_its_kind(kind: str, payload: Any) -> None:
    assert get_rejection([command(kind=kind, payload=payload)]).message.startswith(f"malformed {kind} payload: ")


@pytest.mark.req("yoi.edge.16")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            json.dumps(command())[:-1] + ', "kind": "websocket_send"}',
            "malformed service output command envelope: duplicate field `kind`",
        ),
        (
            json.dumps(command(payload=0)).replace('"payload": 0', '"payload": {"url": "u", "url": "v", "text": ""}'),
            "malformed websocket_send payload: duplicate field `url`",
        ),
        (
            json.dumps(command(kind="host_request_dispatch", payload=0)).replace(
                '"payload": 0', '"payload": {"headers": [{"name": "a", "name": "b"}]}'
            ),
            "malformed host_request_dispatch payload: duplicate field `name`",
        ),
    ],
)
def test_a_key_that_comes_twice_in_a_command_is_refused(text: str, why: str) -> None:
    assert get_rejection(read_service(f'{{"output_commands": [{text}]}}').commands).message == why


@pytest.mark.req("yoi.edge.16")
def test_in_the_free_part_of_a_command_the_last_one_wins() -> None:
    text = json.dumps(command(kind="diagnostic_status_update", payload=0)).replace(
        '"payload": 0', '"payload": {"status": {"a": 1, "a": 2}}'
    )
    (ready,) = check(read_service(f'{{"output_commands": [{text}]}}').commands).ready
    assert ready.payload == StatusUpdate(None, {"a": 2})
    assert isinstance(ready.payload, StatusUpdate)
    assert type(ready.payload.status) is dict


@pytest.mark.req("yoi.conform.51")
def test_each_kind_has_its_typed_payload() -> None:
    batch = check(
        [
            command(),
            command(kind="host_request_dispatch", payload=REQUEST),
            command(kind="diagnostic_status_update", payload={"message": "m", "status": None}),
            command(kind="diagnostic_status_update", payload={}),
        ]
    )
    assert batch.rejected == ()
    assert [ready.payload for ready in batch.ready] == [
        WebSocketSend(URL, "hello"), RequestDispatch(REQUEST), StatusUpdate("m", None), StatusUpdate(None, UNSET),
    ]  # fmt: skip


@pytest.mark.req("yoi.conform.51")
def test_a_status_update_needs_no_grant_and_the_others_do() -> None:
    bare = record(granted=(Permission(kind="surface", surface="ingress"),))
    update = command(kind="diagnostic_status_update", payload={"status": 1})
    assert check([update], bare).ready
    assert (
        get_rejection([command()], bare).message == "websocket_send not granted: granted host_api.websocket permission is missing"
    )
    assert get_rejection([command(kind="host_request_dispatch", payload=REQUEST)], bare).message == (
        "host_request_dispatch not granted: granted host_api.request permission is missing"
    )


@pytest.mark.req("yoi.edge.14")
def test_every_target_is_checked_again() -> None:
    elsewhere = "wss://other.example/"
    assert get_rejection([command(payload={"url": elsewhere, "text": ""})]).message == (
        f"websocket_send target denied: host_api.websocket target {elsewhere} is not declared by the plugin manifest"
    )
    result = get_rejection([command(kind="host_request_dispatch", payload={**REQUEST, "method": "GET"})])
    target = "host_api.request target GET https://api.example/v1"
    assert result.message == f"host_request_dispatch target denied: {target} is not declared by the plugin manifest"
    assert get_rejection([command(kind="host_request_dispatch", payload={"verb": 1})]).message.startswith(
        "host_request_dispatch target denied: invalid request JSON: "
    )


@pytest.mark.req("yoi.conform.50", "yoi.edge.14")
def test_one_bad_command_refuses_the_batch_and_only_the_bad_ones_are_reported() -> None:
    batch = check([command(command_id="good"), command(command_id="bad", requested_at="never"), 3, command(command_id="fine")])
    assert batch.ready == ()
    assert [result.command_id for result in batch.rejected] == ["bad", None]


@pytest.mark.req("yoi.rule.018")
def test_a_result_is_bounded_redacted_and_dated() -> None:
    (ready,) = check([command()]).ready
    result = ready.build_result(CommandStatus.UNSUPPORTED, "Authorization: Bearer abc\n" + "x" * 600, NOW)
    assert len(result.message.encode()) == 512 + 3
    assert msgspec.to_builtins(result) == {
        "correlation_id": "event-1:reply", "source_event_id": "event-1", "command_id": "reply", "kind": "websocket_send",
        "status": "Unsupported", "message": result.message, "recorded_at": NOW,
    }  # fmt: skip
    assert result.message.startswith("Authorization: <redacted>\n")
    assert is_timestamp(result.recorded_at)
    assert [status.value for status in CommandStatus] == ["Recorded", "Rejected", "Unsupported"]
    malformed = msgspec.to_builtins(get_rejection([3]))
    assert [malformed[key] for key in ("correlation_id", "source_event_id", "command_id", "kind")] == [None] * 4


def test_the_words_of_a_send() -> None:
    assert output_commands.describe_sent(5, URL) == f"websocket_send sent 5 bytes to {URL}"
    assert output_commands.describe_missing(URL) == f"no host-owned WebSocket connection is active for {URL}"
    assert output_commands.describe_unconnected(URL) == f"host-owned WebSocket connection is not connected for {URL}"
