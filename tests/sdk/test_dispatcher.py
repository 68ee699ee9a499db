"""The engine: many requests at once, order where order matters, lines of every kind, and the end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.sdk import Block, Call, Event, Extension
from serai.sdk.adapters.zot import Zot
from serai.sdk.workers import Alarms
from tests.support.sdk.pipe_host import PATIENCE, ReleaseEvent, Talk

# -- at the same time -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.answer.concurrent", "zot.edge.52")
def test_a_question_a_command_and_an_async_tool_are_served_while_all_tool_threads_hang() -> None:
    talk, latch = Talk(concurrency=2), ReleaseEvent()
    talk.ext.tool("hang", schema={})(lambda args: latch.wait())
    talk.ext.command("c")(lambda: "done")
    talk.ext.intercept_tool_call(lambda call: Block("no"))

    @talk.ext.tool
    async def quick() -> str:
        return "quick"

    talk.start()
    hanging = [talk.ask("tool_call", name="hang", args={}) for _ in range(3)]
    latch.arrived(2)
    assert talk.command("c")["display"] == "done"
    assert talk.question("tool_call", tool_name="x") == {"block": True, "reason": "no"}
    assert talk.text("quick") == "quick"
    assert not talk.answers.keys() & set(hanging)
    latch.lift()
    for key in hanging:
        assert talk.answer(key)["content"] == []
    talk.close()


@pytest.mark.req("sdk.answer.concurrent", "zot.edge.52")
def test_a_handler_may_wait_for_another_frame(talk: Talk) -> None:
    come = threading.Event()
    talk.ext.tool("wait", schema={})(lambda args: str(come.wait(PATIENCE)))
    talk.ext.intercept_tool_call(lambda call: come.set())
    talk.start()
    waiting = talk.ask("tool_call", name="wait", args={})
    talk.question("tool_call", tool_name="wait")
    assert talk.answer(waiting)["content"] == [{"type": "text", "text": "True"}]


@pytest.mark.req("sdk.answer.concurrent")
def test_concurrency_one_is_one_tool_at_a_time() -> None:
    talk, latch = Talk(concurrency=1), ReleaseEvent()
    running: list[int] = []

    @talk.ext.tool("t", schema={})
    def tool(args: Any) -> str:
        running.append(1)
        latch.wait()
        most = len(running)
        running.pop()
        return str(most)

    talk.start()
    keys = [talk.ask("tool_call", name="t", args={}) for _ in range(8)]
    latch.arrived()
    latch.lift()
    assert [talk.answer(key)["content"][0]["text"] for key in keys] == ["1"] * 8
    talk.close()


@pytest.mark.req("sdk.answer.once", "sdk.answer.concurrent")
def test_hundreds_of_calls_of_both_kinds_are_each_answered_once(talk: Talk) -> None:
    talk.ext.tool("sync", schema={})(lambda args: args["n"])

    @talk.ext.tool("later", schema={})
    async def later(args: Any) -> Any:
        await asyncio.sleep(0)
        return args["n"]

    talk.start()
    keys = {n: talk.ask("tool_call", name="later" if n % 2 else "sync", args={"n": n}) for n in range(400)}
    for n, key in keys.items():
        assert talk.answer(key)["content"] == [{"type": "text", "text": str(n)}]


@pytest.mark.req("sdk.answer.once")
def test_a_request_that_comes_twice_is_served_once_and_ids_count_per_kind(talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    latch = ReleaseEvent()
    talk.ext.tool("t", schema={})(lambda args: latch.wait())
    talk.ext.command("c")(lambda: "c")
    talk.start()
    first = talk.ask("tool_call", id="7", name="t", args={})
    latch.arrived()
    talk.send("tool_call", id="7", name="t", args={})
    assert talk.answer(talk.ask("command_invoked", id="7", name="c"))["display"] == "c"
    latch.lift()
    talk.answer(first)
    assert "a second tool with the open id '7'" in capfd.readouterr().err


@pytest.mark.req("sdk.answer.once")
def test_an_id_may_be_used_again_the_moment_its_answer_is_read(talk: Talk) -> None:
    talk.ext.tool("t", schema={})(lambda args: args)
    talk.start()
    for number in range(300):
        key = talk.ask("tool_call", id="7", name="t", args=number)
        assert talk.answer(key)["content"] == [{"type": "text", "text": str(number)}]
        del talk.answers[key]
        del talk._asked[key]


# -- one after the other ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.sdk.on", "sdk.life.events-in-order")
def test_events_come_in_order_and_a_slow_handler_holds_up_no_request(talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    latch = ReleaseEvent()
    seen: list[object] = []

    @talk.ext.on("turn_start")
    def begin(event: Event) -> None:
        latch.wait()
        seen.append((event.name, event.step))

    @talk.ext.on("tool_call")
    async def call(event: Event) -> None:
        await asyncio.sleep(0)
        seen.append((event.tool_id, event.tool_name, event.tool_args, event.data["new"]))
        raise ValueError("an event handler's own trouble")

    @talk.ext.on("turn_end")
    def end(event: Event) -> None:
        seen.append((event.stop, event.error, event.text, event.step))

    talk.ext.tool("t", schema={})(lambda args: "fine")
    talk.ext.command("last")(lambda: None)
    talk.start()
    talk.send("event", event="turn_start", step=2)
    talk.send("event", event="tool_call", tool_id="1", tool_name="bash", tool_args={"a": 1}, new=True)
    talk.send("event", event="assistant_message", text="nobody listens")
    talk.send("event", event="turn_end", stop="end", error=None, step="odd")
    latch.arrived()
    assert talk.text("t") == "fine"
    assert seen == []
    latch.lift()
    talk.end()
    assert seen == [("turn_start", 2), ("1", "bash", {"a": 1}, True), ("end", "", "", 0)]
    assert "handler of tool_call raised: ValueError: an event handler's own trouble" in capfd.readouterr().err


@pytest.mark.req("zot.sdk.panel", "zot.sdk.panel-render-close", "zot.ours.3.3-resize-tolerated")
def test_a_panel_is_opened_drawn_and_closed_and_its_keys_come_in_order(talk: Talk) -> None:
    seen: list[object] = []

    @talk.ext.panel("tides", title="Tides", footer="esc close")
    async def tides(key: str, text: str) -> None:
        await asyncio.sleep(0)
        seen.append((key, text))
        if key == "enter":
            tides.render(["> Husum"])
            tides.render("a\nb", title="New", footer="")
            tides.close()

    tides.closed(lambda: seen.append("closed"))
    plain = talk.ext.panel("plain")
    talk.ext.command("open")(lambda: tides.open(["line"]))
    talk.start()
    assert talk.command("open")["open_panel"] == {"id": "tides", "title": "Tides", "lines": ["line"], "footer": "esc close"}
    talk.send("panel_resize", panel_id="tides", width=80, height=24)  # nobody minds
    for number in range(20):
        talk.send("panel_key", panel_id="tides", key="rune", text=str(number))
    talk.send("panel_key", panel_id="other", key="up")
    talk.send("panel_key", panel_id=plain.id, key="up")
    talk.send("panel_key", panel_id="tides", key="enter")
    talk.send("panel_close", panel_id="tides")
    assert talk.hear("panel_render") == {
        "type": "panel_render",
        "panel_id": "tides",
        "lines": ["> Husum"],
        "footer": "esc close",
    }
    assert talk.hear("panel_render") == {"type": "panel_render", "panel_id": "tides", "title": "New", "lines": ["a", "b"]}
    assert talk.hear("panel_close") == {"type": "panel_close", "panel_id": "tides"}
    talk.end()
    assert seen == [*(("rune", str(number)) for number in range(20)), ("enter", ""), "closed"]


@pytest.mark.req("zot.sdk.panel")
def test_a_key_waits_for_the_handler_of_the_one_before(talk: Talk) -> None:
    latch, seen = ReleaseEvent(), []
    panel = talk.ext.panel("p")

    @panel.key
    def press(key: str) -> None:
        if key == "slow":
            latch.wait()
        seen.append(key)

    talk.ext.tool("t", schema={})(lambda args: "fine")
    talk.start()
    for key in ("slow", "a", "b"):
        talk.send("panel_key", panel_id="p", key=key)
    latch.arrived()
    assert talk.text("t") == "fine"
    assert seen == []
    latch.lift()
    talk.end()
    assert seen == ["slow", "a", "b"]


@pytest.mark.req("zot.ours.3.3-resize-tolerated", "zot.sdk.panel")
def test_who_wants_the_size_gets_it(talk: Talk) -> None:
    panel, sizes = talk.ext.panel("p"), []
    panel.resized(lambda width, height: sizes.append((width, height)))
    talk.start()
    talk.send("panel_resize", panel_id="p", width=80, height=24)
    talk.send("panel_resize", panel_id="p")
    talk.end()
    assert sizes == [(80, 24), (0, 0)]


def test_what_a_panel_or_a_notice_cannot_show_is_an_error_where_it_is_said(talk: Talk) -> None:
    panel = talk.ext.panel("p")
    with pytest.raises(TypeError, match="a panel's lines are text, not int"):
        panel.render([5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a panel's title and footer are text, not int"):
        panel.render(["x"], title=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'loud' is no level of a notice: there are info, success, warn, error"):
        talk.ext.notify("loud", "x")
    with pytest.raises(TypeError, match="a notice is text, not int"):
        talk.ext.notify("info", 5)  # type: ignore[arg-type]
    talk.start()
    with pytest.raises(ValueError, match="and zot carries 4194304"):
        talk.ext.notify("info", "x" * 5_000_000)
    talk.ext.notify("success", "höher als \ud800")
    assert talk.hear("notify")["message"] == "höher als ?"


# -- lines ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.wire.tolerant", "zot.ours.3.3-resize-tolerated")
def test_what_is_no_frame_of_ours_is_told_and_passed_over(talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    talk.ext.tool("t", schema={})(lambda args: "alive")
    talk.start()
    odd = [b"", b"   ", b"no json", b"[]", b"5", b"null", b'{"no": "type"}', b'{"type": 5}', b'{"type": "tool_call", "id": 7}']
    odd += [b'{"type": "later_idea", "id": "1"}', b'{"type": "tool_result", "id": "1"}', b'{"type": "event"}', b"\xff\xfe"]
    odd += [
        b'{"type": "panel_key"}',
        b'{"type": "panel_resize", "panel_id": 5}',
        b'{"type": "panel_close"}',
        b'{"type": "hello_ack"}',
    ]
    talk.write(b"\n".join(odd) + b"\r\n")
    assert talk.answer(talk.ask("tool_call", name="t", args={}, later_field={"a": 1}))["content"][0]["text"] == "alive"
    told = capfd.readouterr().err
    assert "malformed frame: the id of a tool_call must be a string" in told
    assert 'unknown frame type "later_idea"' in told
    assert told.count("malformed frame") == 10


@pytest.mark.req("sdk.wire.too-long", "sdk.answer.once")
@pytest.mark.parametrize("kind", ["tool_call", "command_invoked", "event_intercept"])
def test_a_request_that_is_too_long_is_answered_and_the_stream_goes_on(talk: Talk, kind: str) -> None:
    talk.ext.tool("t", schema={})(lambda args: "alive")
    talk.start()
    answer = talk.answer(talk.ask(kind, id='a "quoted" id', name="t", event="tool_call", args="x" * 5_000_000))
    told = json.dumps(answer)
    assert "the request could not be read: it has 5000" in told
    assert answer.get("is_error") or answer.get("error") or answer.get("block")
    talk.write(b'{"type":"event","text":"' + b"y" * 5_000_000 + b'"}\n')
    assert talk.text("t") == "alive"


@pytest.mark.req("sdk.wire.too-long")
@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"type":"tool_call","id":"ours","args":{"id":"inner"', "ours"),
        (b'{"args":{"id":"inner","type":"event"},"x":[{"id":"inner"}],"id":"ours","type":"tool_call","y":"', "ours"),
        (b'{"s":"a } \\" { \\\\","type" : "tool_call","id":"\\u006furs","y":"', "ours"),
        (b'{"type":"tool_call","args":{"id":"inner","x":"', ""),
        (b'{"type":"tool_call","id":7,"args":"', ""),
        (b'{"type":"event","id":"ours","args":"', ""),
        (b"", ""),
        (b"[[[", ""),
    ],
)
def test_whose_request_was_too_long_is_told_by_its_own_members_alone(head: bytes, id: str) -> None:
    [item] = Zot().parse_oversized(head, 5_000_000)
    assert getattr(item, "id", "") == id


@pytest.mark.req("sdk.answer.once")
def test_a_call_that_waits_for_its_turn_is_not_begun_after_the_end() -> None:
    talk, latch = Talk(concurrency=1), ReleaseEvent()
    begun: list[int] = []
    latch.lift()

    @talk.ext.tool
    def tool(number: int, call: Call) -> str:
        begun.append(number)
        latch.wait()
        assert call.wait(PATIENCE)
        return "done"

    talk.start()
    keys = [talk.ask("tool_call", name="tool", args={"number": number}) for number in range(3)]
    latch.arrived()
    talk.send("shutdown")
    talk.end()
    assert [talk.answers[key].get("is_error", False) for key in keys] == [False, True, True]
    assert begun == [0]
    talk.close()


@pytest.mark.req("sdk.wire.too-long")
def test_a_line_of_the_very_limit_is_read_and_an_answer_over_it_is_an_error(talk: Talk) -> None:
    talk.ext.tool("size", schema={})(len)
    talk.ext.tool("long", schema={})(lambda args: "x" * args)
    talk.start()
    head, tail = b'{"type":"tool_call","id":"edge","name":"size","args":"', b'"}\n'
    for more, told in ((0, "4194"), (1, "the request could not be read: it has 4194305 bytes; this side reads 4194304")):
        key = ("tool_result", "edge")
        talk._asked[key] = "tool_call"
        talk.write(head + b"x" * (4 * 1024 * 1024 - len(head) - len(tail) + more) + tail)
        assert talk.answer(key)["content"][0]["text"].startswith(told)
        del talk.answers[key]
        del talk._asked[key]
    answer = talk.call("long", 4_500_000)
    assert answer["is_error"] is True
    assert answer["content"][0]["text"].startswith("the answer has 4500")


@pytest.mark.req("sdk.answer.once")
@pytest.mark.parametrize(("args", "why"), [(b"[" * 200_000 + b"]" * 200_000, "recursion"), (b"1" * 5000, "digits")])
def test_arguments_that_python_cannot_read_are_answered(talk: Talk, args: bytes, why: str) -> None:
    talk.ext.tool("t", schema={})(lambda args: "alive")
    talk.start()
    key = ("tool_result", "deep")
    talk._asked[key] = "tool_call"
    talk.write(b'{"type":"tool_call","id":"deep","name":"t","args":' + args + b"}\n")
    told = talk.answer(key)["content"][0]["text"]
    assert told.startswith("the request could not be read: ")
    assert why in told
    assert talk.text("t") == "alive"


@given(
    st.binary(max_size=200)
    | st.dictionaries(
        st.sampled_from(["type", "id", "name", "args", "event", "panel_id"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.lists(st.integers())
        | st.sampled_from(["tool_call", "event_intercept", "command_invoked", "event", "hello_ack", "panel_key"]),
    ).map(lambda frame: json.dumps(frame).encode())
)
def test_no_line_makes_the_adapter_fail(line: bytes) -> None:
    list(Zot().parse_line(line))
    list(Zot().parse_oversized(line, 5_000_000))


# -- the end ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.life.shutdown", "sdk.answer.once")
def test_at_the_end_handlers_are_cancelled_and_every_request_is_answered(talk: Talk) -> None:
    cleaned: list[str] = []
    begun = ReleaseEvent()
    begun.lift()

    @talk.ext.tool
    async def later() -> None:
        begun.wait()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("async")

    @talk.ext.tool
    def sync(call: Call) -> None:
        begun.wait()
        assert call.wait(PATIENCE)
        cleaned.append("sync")
        call.check()

    @talk.ext.command
    def stubborn(args: str) -> str:
        """Answers all the same, and in time."""
        begun.wait()
        return "done"

    talk.start()
    keys = [talk.ask("tool_call", name="later"), talk.ask("tool_call", name="sync"), talk.ask("command_invoked", name="stubborn")]
    begun.arrived(3)
    talk.send("shutdown")
    assert talk.hear("shutdown_ack") == {"type": "shutdown_ack"}
    assert [talk.answer(key).get("is_error") for key in keys[:2]] == [True, True]
    assert talk.answers[keys[0]]["content"][0]["text"] == "later was cancelled"
    talk.end()
    assert sorted(cleaned) == ["async", "sync"]
    assert talk.answers[keys[2]]["display"] == "done"


@pytest.mark.req("sdk.answer.timeout", "sdk.answer.once")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_that_takes_too_long_is_given_up_and_cancelled(talk: Talk, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = threading.Event(), threading.Event()
    after = Alarms.call_later

    def after_it_has_begun(alarms: Alarms, seconds: float, act: Callable[[], None]) -> None:
        """On a busy machine the time could be over before: then the tool is not called at all."""
        after(alarms, seconds, lambda: act() if begun.wait(PATIENCE) else None)

    monkeypatch.setattr(Alarms, "call_later", after_it_has_begun)

    def sync(call: Call) -> str:
        begun.set()
        assert call.wait(PATIENCE)
        stopped.set()
        return "too late"

    async def later() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    talk.ext.tool("slow", timeout=0.05)(sync if kind == "sync" else later)
    talk.ext.tool("quick", timeout=1000)(lambda: "in time")
    talk.start()
    answer = talk.call("slow")
    assert (answer["is_error"], answer["content"][0]["text"]) == (True, "tool slow took longer than 0.05 seconds and was given up")
    assert stopped.wait(PATIENCE)
    assert talk.text("quick") == "in time"


@pytest.mark.req("sdk.answer.timeout")
def test_one_thread_watches_all_time_outs(talk: Talk) -> None:
    latch = ReleaseEvent()

    @talk.ext.tool(timeout=1000)
    async def later() -> None:
        latch.wait()
        await asyncio.Event().wait()

    latch.lift()
    talk.start()
    before = set(threading.enumerate())
    for _ in range(100):
        talk.ask("tool_call", name="later")
    latch.arrived(100)
    started = [thread.name for thread in threading.enumerate() if thread not in before]
    assert sorted(set(started) - {"reader"}) == ["alarms"]
    assert len(started) <= 2


@pytest.mark.req("sdk.answer.concurrent", "zot.edge.52")
def test_commands_that_hang_hold_up_no_question(talk: Talk) -> None:
    latch = ReleaseEvent()
    talk.ext.command("hang")(latch.wait)
    talk.ext.intercept_tool_call(lambda call: Block("no"))
    talk.start()
    for _ in range(40):
        talk.ask("command_invoked", name="hang")
    latch.arrived(32)
    assert talk.question("tool_call", tool_name="x") == {"block": True, "reason": "no"}
    latch.lift()


@pytest.mark.req("zot.sdk.host", "sdk.life.services")
def test_the_host_is_known_once_it_has_answered_and_what_it_has_not_is_told(talk: Talk) -> None:
    host = talk.ext.host
    names = ("provider", "model", "cwd", "extension_dir", "data_dir", "version")
    assert (host.protocol_version, *(getattr(host, name) for name in names)) == (0, "", "", "", "", "", "")
    with pytest.raises(AttributeError, match="no host has started this extension yet"):
        _ = host.chat
    talk.ext.tool("dir", schema={})(lambda args: str(talk.ext.data_dir))
    talk.start()
    folder = talk.text("dir")
    assert folder
    about = {"provider": "openai", "model": "gpt-5", "cwd": "/src", "extension_dir": "/ext"}
    talk.send("hello_ack", protocol_version=1, zot_version="0.1.0", **about)
    assert talk.text("dir") == "/ext"
    talk.send("hello_ack", protocol_version=1, zot_version="0.1.0", data_dir="/data", **about)
    assert talk.text("dir") == "/data"
    assert (host.protocol_version, host.version, host.dialect) == (1, "0.1.0", "zot")
    assert {name: getattr(host, name) for name in about} == about
    assert not hasattr(host, "chat")
    with pytest.raises(AttributeError, match="the host speaks zot, which has no host services: there is no chat") as raised:
        host.chat("hello")
    assert type(raised.value).__name__ == "NoService"
    with pytest.raises(AttributeError, match="a host has no 'caht'"):
        _ = host.caht  # type: ignore[attr-defined]


def test_an_extension_says_what_it_is() -> None:
    assert repr(Extension("weather")) == "<extension weather>"
