"""Output commands: all of them are checked before the first one runs, and then each stands for itself (spec yoi 15.4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.yoi.status import CommandStatus, DispatchReport
from tests.support.yoi.hosted_plugins import INGRESS, Plugin, command, event, guest_of, mirror, run_host

TARGET = {"scheme": "ws", "host": "example.com", "path_prefixes": ["/"]}
REQUEST = {"scheme": "https", "host": "example.com", "methods": ["GET"], "path_prefixes": ["/v1"]}


def build_plugin(place: Path) -> Plugin:
    """It may send and ask, and has no connection."""
    return Plugin(place, mirror(), **INGRESS, apis=("websocket", "request"), websocket=[TARGET], request=[REQUEST])


async def dispatch_commands(guest: Any, *commands: Any) -> DispatchReport:
    return await guest.dispatch("in", event(payload={"output_commands": list(commands)}))  # type: ignore[no-any-return]


@pytest.mark.req("yoi.conform.48")
async def test_a_malformed_command_is_rejected_in_the_origins_words(tmp_path: Path) -> None:
    async with run_host(tmp_path, build_plugin(tmp_path)) as host:
        guest = guest_of(host)
        lacking = {key: value for key, value in command().items() if key != "requested_at"}
        for bad in (lacking, command(more=1), command(kind="other"), "text", None):
            (result,) = (await dispatch_commands(guest, bad)).output_command_results
            assert result.status is CommandStatus.REJECTED
            assert result.message.startswith("malformed service output command envelope: ")
            assert (result.command_id, result.kind) == (None, None)
        report = await guest.dispatch("in", event(payload={"output_commands": {"kind": "x"}}))
        assert [one.message for one in report.output_command_results] == ["service output_commands must be an array"]
        assert report.dispatch_counters.failed == 0


@pytest.mark.req("yoi.conform.49")
async def test_seventeen_commands_are_one_rejection(tmp_path: Path) -> None:
    async with run_host(tmp_path, build_plugin(tmp_path)) as host:
        guest = guest_of(host)
        report = await dispatch_commands(guest, *[command(command_id=str(number)) for number in range(17)])
        assert [one.message for one in report.output_command_results] == ["service output_commands exceeds 16 commands"]
        report = await dispatch_commands(guest, *[command(command_id=str(number)) for number in range(16)])
        assert [one.status for one in report.output_command_results] == [CommandStatus.RECORDED] * 16


@pytest.mark.req("yoi.conform.50")
async def test_a_batch_with_one_rejected_command_runs_nothing(tmp_path: Path) -> None:
    async with run_host(tmp_path, build_plugin(tmp_path)) as host:
        guest = guest_of(host)
        before = guest.get_status().component_status
        good = command(payload={"status": {"state": "changed"}})
        report = await dispatch_commands(guest, good, command(command_id="bad", source_event_id="another"), good)
        (result,) = report.output_command_results
        assert (result.command_id, result.status) == ("bad", CommandStatus.REJECTED)
        assert result.message == "source_event_id must match the ingress event correlation_id"
        assert guest.get_status().component_status == before
        assert guest.get_status().last_error == result.message


@pytest.mark.req("yoi.conform.51")
async def test_a_request_is_checked_and_not_supported_and_a_status_needs_no_grant(tmp_path: Path) -> None:
    plain = Plugin(tmp_path, mirror(), id="plain", **{**INGRESS, "tools": ("other",)})
    async with run_host(tmp_path, build_plugin(tmp_path), plain) as host:
        guest = guest_of(host)
        get = {"method": "GET", "url": "https://example.com/v1/x"}
        (result,) = (await dispatch_commands(guest, command(kind="host_request_dispatch", payload=get))).output_command_results
        assert result.status is CommandStatus.UNSUPPORTED
        other = {"method": "GET", "url": "https://example.com/admin"}
        (result,) = (await dispatch_commands(guest, command(kind="host_request_dispatch", payload=other))).output_command_results
        assert result.status is CommandStatus.REJECTED
        assert result.message.startswith(
            "host_request_dispatch target denied: host_api.request target GET https://example.com/admin"
        )
        status = {"state": "running", "data": {"seen": 1}}
        report = await dispatch_commands(guest_of(host, "plain"), command(payload={"message": "noted", "status": status}))
        (result,) = report.output_command_results
        assert (result.status, result.message) == (CommandStatus.RECORDED, "noted")
        assert guest_of(host, "plain").get_status().component_status == status
        ungranted = await dispatch_commands(
            guest_of(host, "plain"), command(kind="websocket_send", payload={"url": "ws://example.com/", "text": ""})
        )
        assert ungranted.output_command_results[0].message.startswith("websocket_send not granted: ")


@pytest.mark.req("yoi.conform.52")
async def test_the_last_32_results_are_kept(tmp_path: Path) -> None:
    async with run_host(tmp_path, build_plugin(tmp_path)) as host:
        guest = guest_of(host)
        for turn in range(3):
            await dispatch_commands(guest, *[command(command_id=f"{turn}-{number}") for number in range(16)])
        kept = [one.command_id for one in guest.get_status().output_command_results]
        assert kept == [f"{turn}-{number}" for turn in (1, 2) for number in range(16)]


@pytest.mark.req("yoi.rule.082")
async def test_a_failed_send_is_rejected_alone_and_goes_to_nobody(tmp_path: Path) -> None:
    async with run_host(tmp_path, build_plugin(tmp_path)) as host:
        guest = guest_of(host)
        send = command(command_id="send", kind="websocket_send", payload={"url": "ws://example.com/x", "text": "hi"})
        report = await dispatch_commands(guest, send, command(command_id="after", payload={"status": {"state": "later"}}))
        assert [(one.command_id, one.status.value) for one in report.output_command_results] == [
            ("send", "Rejected"), ("after", "Recorded"),
        ]  # fmt: skip
        assert report.output_command_results[0].message == "no host-owned WebSocket connection is active for ws://example.com/x"
        assert (report.dispatch_counters.dispatched, report.dispatch_counters.failed) == (1, 0)
        assert guest.get_status().component_status == {"state": "later"}
        answer = await host.call_tool("echo", {})
        assert "Rejected" not in json.dumps([answer.text, answer.details])
