"""What an extension asks of a piglet host, and what it tells it (spec piglet 2.6, 7, 8.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serai.dialects.piglet.methods import METHODS, decode_params
from serai.sdk.host import SERVICES
from tests.support.sdk.piglet_programs import Driven, write_program
from tests.support.sdk.service_cases import SERVED

DO = """
from serai.sdk.host_requests import Published

@ext.tool
async def later(what: str) -> str:
    try:
        return repr(await eval(what, globals(), {"host": ext.host}))
    except Refused as error:
        return f"refused {error.code}: {error}"

@ext.tool
def now(what: str) -> str:
    try:
        value = eval(what, globals(), {"host": ext.host})
        return repr(value if value is None else value.result(30))
    except Refused as error:
        return f"refused {error.code}: {error}"
"""


TOLD = {
    "host.notify('saved', 'warn')": ("notify", {"message": "saved", "level": "warn"}),
    "host.show_message('3 stations')": ("showMessage", {"text": "3 stations"}),
    "host.log('debug', 'hit')": ("log", {"level": "debug", "message": "hit"}),
    "host.set_widget('wx', 'Bern')": ("setWidget", {"key": "wx", "placement": "above-input", "content": "Bern"}),
    "host.show_overlay('map', '…', title='Radar', anchor='top-right', width='50%')": (
        "showOverlay",
        {"key": "map", "content": "…", "title": "Radar", "anchor": "top-right", "width": "50%"},
    ),
    "host.close_overlay('map')": ("closeOverlay", {"key": "map"}),
    "host.set_input_text('/f ')": ("setInputText", {"text": "/f "}),
    "host.send_message('check')": ("sendMessage", {"content": "check"}),
    "host.steer('metric')": ("steer", {"content": "metric"}),
    "host.abort_now()": ("abort", {}),
    "host.abort_now('plan mode')": ("abortWithMarker", {"reason": "plan mode"}),
}


@pytest.mark.req("piglet.rule.sdk-services")
@pytest.mark.parametrize("how", ["later", "now"])
def test_every_service_can_be_asked_for_from_async_and_from_sync_handlers(tmp_path: Path, how: str) -> None:
    assert {asked.method for asked in SERVED} == {method for method in METHODS if method.startswith("host/")}
    with Driven(write_program(tmp_path, DO)) as host:
        host.begin()
        for asked in SERVED:
            if how == "now" and "subscribe" in asked.what:
                continue
            call = host.ask("tool/execute", {"name": how, "args": {"what": asked.what}})
            params = host.serve(asked.method, asked.result)
            assert params == asked.params, asked.what
            decode_params(asked.method, json.dumps(params).encode())  # as the host reads them
            assert host.answer(call)["result"]["content"][0]["text"] == repr(asked.value)


@pytest.mark.req("piglet.rule.sdk-services")
def test_everything_that_is_only_told_can_be_told(tmp_path: Path) -> None:
    ours = {method for method, row in METHODS.items() if row.sender == "guest" and row.result is None and "/" not in method}
    assert {method for method, _ in TOLD.values()} == ours
    with Driven(write_program(tmp_path, DO)) as host:
        host.begin()
        for what, (method, params) in TOLD.items():
            assert host.text("now", what=what) == "None"
            assert host.hear(method)["params"] == params
            decode_params(method, json.dumps(params).encode())


def test_the_hosts_no_and_its_end_are_errors(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, DO)) as host:
        host.begin()
        for how in ("later", "now"):
            call = host.ask("tool/execute", {"name": how, "args": {"what": "host.tools.activate('zap')"}})
            error = {"Code": -32604, "Message": "tool not found or not deferred: zap"}
            host.send({"id": host.hear("host/activateTool")["id"], "error": error, "result": {}})
            assert host.answer(call)["result"]["content"][0]["text"] == "refused -32604: tool not found or not deferred: zap"
        calls = [host.ask("tool/execute", {"name": how, "args": {"what": "host.wait_for_idle()"}}) for how in ("later", "now")]
        for _ in calls:
            host.hear("host/waitForIdle")
        assert host.end() == 0
        for call in calls:
            assert host.answers[call]["error"]["code"] == -32603


def test_both_sides_number_their_requests_from_one_and_may_ask_back(tmp_path: Path) -> None:
    body = """
@ext.command
async def outer(args): return (await ext.host.tools.execute("inner")).text

@ext.tool
def inner() -> str: return "in"
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        call = host.ask("command/execute", {"name": "outer", "args": ""})
        asked = host.hear("host/executeTool")
        assert (call, asked["id"]) == (2, 1)
        inner = host.call("tool/execute", name=asked["params"]["name"], args=asked["params"]["args"])
        host.send({"id": asked["id"], "result": inner})
        assert host.answer(call)["result"] == {}
        assert host.hear("showMessage")["params"] == {"text": "in"}


CANCELLED = """
from threading import Event as Flag
import asyncio

@ext.tool
async def later() -> str:
    ext.host.show_message("begun")
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        ext.host.show_message("cleaned up")
        raise

@ext.tool
def sync(call: Call) -> str:
    ext.host.show_message("begun")
    return f"cancelled {call.wait(1000)} {call.id}"

@ext.shortcut("ctrl+w")
def waits():
    ext.host.show_message("begun")
    ext.call.wait(1000)
    return f"cancelled {ext.call.cancelled}"

@ext.message_hook()
async def hook(message):
    ext.host.show_message("begun")
    await asyncio.sleep(1000)

@ext.tool
async def asks() -> str:
    await ext.host.chat("hello")

@ext.tool
def asks_sync() -> str:
    return ext.host.chat("hello").result().text
"""


@pytest.mark.req("piglet.rule.sdk-services")
def test_a_cancel_request_cancels_its_handler_and_no_other(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, CANCELLED)) as host:
        host.begin()
        calls = {
            "later": host.ask("tool/execute", {"name": "later", "args": {}}),
            "sync": host.ask("tool/execute", {"callId": "call_8f", "name": "sync", "args": {}}),
            "key": host.ask("shortcut/handle", {"key": "ctrl+w"}),
            "hook": host.ask("messageHook/onMessage", {"message": "x"}),
        }
        for _ in calls:
            host.hear("showMessage")
        host.note("$/cancelRequest", {"id": 99})
        host.note("$/cancelRequest", {"id": calls["later"]})
        assert host.answer(calls["later"])["error"] == {"code": -32603, "message": "later was cancelled"}
        assert host.hear("showMessage")["params"] == {"text": "cleaned up"}
        assert not host.answers
        host.note("$/cancelRequest", {"id": calls["sync"]})
        assert host.answer(calls["sync"])["result"]["content"][0]["text"] == "cancelled True call_8f"
        host.note("$/cancelRequest", {"id": calls["key"]})
        assert host.answer(calls["key"])["result"]["action"]["payload"] == {"text": "cancelled True"}
        host.note("$/cancelRequest", {"id": calls["hook"]})
        assert host.answer(calls["hook"])["error"]["code"] == -32603
        assert host.end() == 0


@pytest.mark.req("piglet.rule.sdk-services")
@pytest.mark.parametrize("name", ["asks", "asks_sync"])
def test_who_is_cancelled_takes_back_what_it_asked(tmp_path: Path, name: str) -> None:
    with Driven(write_program(tmp_path, CANCELLED)) as host:
        host.begin()
        call = host.ask("tool/execute", {"name": name, "args": {}})
        asked = host.hear("host/chat")["id"]
        host.note("$/cancelRequest", {"id": call})
        assert host.hear("$/cancelRequest")["params"] == {"id": asked}
        assert host.answer(call)["error"]["message"] == f"{name} was cancelled"
        host.send({"id": asked, "result": {"text": "too late"}})  # nobody minds


def test_a_reply_has_a_time_out_and_can_be_cancelled_and_a_late_answer_is_kept(tmp_path: Path) -> None:
    body = """
@ext.tool
def impatient() -> str:
    try:
        return ext.host.chat("hello").result(0.01).text
    except TimeoutError as error:
        return f"time-out: {error}"

@ext.tool
def changed(keep: bool) -> str:
    reply = ext.host.chat("hello")
    if keep:
        reply._wait_a_moment = lambda: reply._woken.wait(30)
    gone = reply.cancel()
    return f"{gone} {reply.done} " + ("" if gone else reply.result().text)
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        assert host.text("impatient") == "time-out: the host did not answer host/chat in 0.01 seconds"
        assert host.hear("$/cancelRequest")["params"] == {"id": host.hear("host/chat")["id"]}
        assert host.text("changed", keep=False) == "True True "
        host.hear("host/chat")
        host.hear("$/cancelRequest")
        call = host.ask("tool/execute", {"name": "changed", "args": {"keep": True}})
        asked = host.hear("$/cancelRequest")["params"]["id"]
        host.send({"id": asked, "result": {"text": "just in time"}})
        assert host.answer(call)["result"]["content"][0]["text"] == "False True just in time"


@pytest.mark.parametrize(("data", "why"), [("bïld", "ASCII"), ("abc", "padding"), (5, "int")])
def test_an_image_that_is_none_is_an_error_that_says_whose(tmp_path: Path, data: object, why: str) -> None:
    with Driven(write_program(tmp_path, DO)) as host:
        host.begin()
        for how in ("later", "now"):
            call = host.ask("tool/execute", {"name": how, "args": {"what": "host.tools.execute('shot')"}})
            host.serve("host/executeTool", {"content": [{"type": "image", "data": data, "mime": "image/png"}]})
            message = host.answer(call)["error"]["message"]
            assert "the tool shot ran, but its result has an image whose data is no base64" in message
            assert why in message


def test_the_names_of_services_are_known_without_them() -> None:
    from serai.sdk.services import Services

    assert {name for name in dir(Services(None)) if not name.startswith("_")} == SERVICES  # type: ignore[arg-type]
