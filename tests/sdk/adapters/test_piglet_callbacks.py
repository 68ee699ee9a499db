"""What a piglet host asks of an extension, and what its handlers make of it (spec piglet 5, 8.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sdk.piglet_programs import Driven, write_program

GUARDS = """
@ext.intercept(name="late", priority=1)
async def late(call):
    return Rewrite({**call.args, "order": [*call.args.get("order", []), "late"]})

@ext.intercept(name="early", priority=2000)
def early(call):
    if call.name == "bash":
        return Block("guard: deletion needs approval")
    if call.name == "break":
        raise RuntimeError("no idea")
    return Rewrite({**call.args, "order": [*call.args.get("order", []), "early"]})

@ext.intercept(name="quiet")
def quiet(call):
    return None

@ext.after(name="early", priority=2000)
def mark(done):
    return {**done.details, "early": True} if done.details else None

@ext.after(name="late", priority=1)
async def words(done):
    return done.text.upper() if done.text is not None else Rewrite(None)
"""


@pytest.mark.req("piglet.rule.sdk-callbacks")
def test_an_interceptor_goes_by_its_name_an_empty_one_runs_all_and_an_unknown_one_allows(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GUARDS)) as host:
        host.begin()

        def before(name: str, tool: str = "read") -> object:
            return host.call("interceptor/before", name=name, toolName=tool, args={"path": "a"})

        assert before("early") == {"allow": True, "args": {"path": "a", "order": ["early"]}}
        assert before("late") == {"allow": True, "args": {"path": "a", "order": ["late"]}}
        assert before("quiet") == {"allow": True}
        assert before("") == {"allow": True, "args": {"path": "a", "order": ["early", "late"]}}
        assert before("unknown") == {"allow": True}
        assert before("", "bash") == before("early", "bash") == {"allow": False, "preview": "guard: deletion needs approval"}
        assert host.error("interceptor/before", name="early", toolName="break", args=None) == {
            "code": -32603,
            "message": "tool_call failed: RuntimeError: no idea",
        }


@pytest.mark.req("piglet.rule.sdk-callbacks")
def test_what_came_of_a_call_is_seen_and_changed_and_left_alone_without_a_word(tmp_path: Path) -> None:
    with Driven(write_program(tmp_path, GUARDS)) as host:
        host.begin()

        def after(name: str, details: object) -> object:
            return host.call("interceptor/after", name=name, toolName="edit", details=details)["details"]

        content = {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "isError": False}
        assert after("early", {"files": 1}) == {"files": 1, "early": True}
        assert after("early", None) is None
        assert after("late", content) == {"content": [{"type": "text", "text": "ONE\nTWO"}]}
        assert after("late", {"files": 1}) is None
        assert after("quiet", {"files": 1}) == {"files": 1}
        assert after("unknown", [1]) == [1]
        assert after("", content) == {"content": [{"type": "text", "text": "ONE\nTWO"}]}


def test_a_guard_that_was_written_for_zot_has_the_extensions_name(tmp_path: Path) -> None:
    body = "@ext.intercept_tool_call\ndef guard(call):\n    return Block('no') if 'rm -rf' in str(call.args) else None"
    with Driven(write_program(tmp_path, body)) as host:
        assert [one["params"] for one in host.begin()] == [{"name": "probe"}]
        asked = {"name": "probe", "toolName": "bash"}
        assert host.call("interceptor/before", **asked, args={"command": "rm -rf /"}) == {"allow": False, "preview": "no"}
        assert host.call("interceptor/before", **asked, args=None) == {"allow": True}


@pytest.mark.req("piglet.rule.sdk-callbacks")
def test_the_first_event_handler_that_returns_an_action_wins(tmp_path: Path) -> None:
    body = """
heard = []

@ext.on_event("EventTurnEnd", "EventAgentEnd", name="third", priority=30)
def third(event):
    heard.append("third")

@ext.on_event(name="second", priority=20)
async def second(event):
    heard.append("second")
    return SetStatus("meter", "3 calls") if event.name == "EventTurnEnd" else None

@ext.on_event(name="first", priority=10)
def first(event):
    heard.append(f"first {event.data.get('Count')}")

@ext.tool
def told() -> list[str]:
    return [*heard, heard.clear()][:-1]
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        status = {"type": "setStatus", "payload": {"key": "meter", "text": "3 calls"}}
        assert host.call("event/dispatch", type="EventTurnEnd", data={"Count": 1}) == {"action": status}
        assert host.text("told") == '["first 1", "second"]'
        assert host.call("event/dispatch", type="EventAgentEnd", data=None) == {}
        assert host.text("told") == '["first None", "second", "third"]'
        assert host.call("event/dispatch", type="EventRetry", data={}) == {}
        assert host.text("told") == '["first None", "second"]'


ACTIONS = {
    "'shown'": {"type": "showMessage", "payload": {"text": "shown"}},
    "Display('shown')": {"type": "showMessage", "payload": {"text": "shown"}},
    "Prompt('go on')": {"type": "sendMessage", "payload": {"content": "go on"}},
    "Notify('saved', 'warn')": {"type": "notify", "payload": {"message": "saved", "level": "warn"}},
    "SetTitle('Trip')": {"type": "setSessionTitle", "payload": {"title": "Trip"}},
    "AttachImage(b'GIF8')": {"type": "attachImage", "payload": {"data": "R0lGOA==", "mimeType": "image/gif"}},
    "DetachImage()": {"type": "detachImage"},
    "Quit()": {"type": "quit"},
    "None": None,
}


def test_a_shortcut_does_what_its_handler_wants(tmp_path: Path) -> None:
    keys = [f"ctrl+{chr(97 + number)}" for number in range(len(ACTIONS))]
    body = "\n".join(f"ext.shortcut({key!r})(lambda: {act})" for key, act in zip(keys, ACTIONS, strict=True))
    with Driven(write_program(tmp_path, body + "\next.shortcut('alt+z')(lambda: 5)")) as host:
        host.begin()
        assert [host.call("shortcut/handle", key=key)["action"] for key in keys] == list(ACTIONS.values())
        assert "it returned an int; an action is" in host.error("shortcut/handle", key="alt+z")["message"]
        assert host.error("shortcut/handle", key="f9") == {"code": -32602, "message": "unknown shortcut: f9"}


@pytest.mark.req("piglet.rule.sdk-callbacks")
def test_the_injections_of_all_message_hooks_are_joined(tmp_path: Path) -> None:
    body = """
@ext.message_hook(priority=500)
def clock(message): return f"It is late: {message}"

@ext.message_hook(priority=10)
async def name(message): return "You are Ada."

@ext.message_hook(priority=20)
def nothing(message): return None
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        assert host.call("messageHook/onMessage", message="hi") == {"injection": "You are Ada.\nIt is late: hi"}


def test_input_transformers_feed_each_other_until_one_has_handled_it(tmp_path: Path) -> None:
    body = """
@ext.input_transformer(priority=10)
def alias(text): return "show git status" if text == "!s" else None

@ext.input_transformer(priority=20)
async def polite(text):
    if text == "quiet":
        return Handled()
    return f"{text}, please"
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        assert host.call("inputTransformer/transform", input="!s") == {"output": "show git status, please", "handled": False}
        assert host.call("inputTransformer/transform", Input="quiet") == {"output": "quiet", "handled": True}


def test_a_compactor_returns_messages_or_a_summary(tmp_path: Path) -> None:
    body = """
@ext.compactor()
async def digest(messages):
    if len(messages) > 1:
        return f"{len(messages)} messages"
    return messages
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        message = {"type": "user", "data": {"content": "hi"}}
        assert host.call("compact/execute", messages=[message]) == {"messages": [message]}
        summary = {"type": "user", "data": {"content": "2 messages"}}
        assert host.call("compact/execute", messages=[message, message]) == {"messages": [summary]}
        assert host.call("compact/execute", messages=None) == {"messages": []}


def test_a_provider_writes_deltas_and_returns_the_message(tmp_path: Path) -> None:
    body = """
@ext.provider("acme")
async def stream(request, deltas):
    deltas.thinking("hm")
    for word in (request.system, request.messages[0]["content"]):
        deltas.text(word)
    deltas.tool_call('{"city":', index=1)
    deltas.tool_call_end("t1", "weather", {"city": "Bern"}, index=1)

@ext.provider("other")
def whole(request, deltas):
    return {"content": [{"text": request.model.name}], "stopReason": "length"}
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()
        ask = {"requestId": 18, "system": "S", "messages": [{"content": "hi"}], "options": {}}
        message = host.call("provider/stream", model={"id": "m1", "provider": "acme", "api": "acme"}, **ask)["message"]
        assert message.pop("timestamp").endswith("Z")
        assert message.pop("usage")["inputTokens"] == 0
        text = [{"type": "text", "text": "Shi"}]
        assert message == {"content": text, "model": "m1", "provider": "acme", "stopReason": "stop"}
        assert [one["params"] for one in host.said if one["method"] == "provider/delta"] == [
            {"requestId": 18, "type": "thinking_delta", "delta": "hm"},
            {"requestId": 18, "type": "text_delta", "delta": "S"},
            {"requestId": 18, "type": "text_delta", "delta": "hi"},
            {"requestId": 18, "type": "toolcall_delta", "index": 1, "delta": '{"city":'},
            {
                "requestId": 18,
                "type": "toolcall_end",
                "index": 1,
                "tool": {"id": "t1", "name": "weather", "arguments": '{"city": "Bern"}'},
            },
        ]
        other = host.call("provider/stream", Model={"ID": "m2", "Name": "M Two", "API": "other"}, **ask)["message"]
        assert (other["content"], other["stopReason"]) == ([{"text": "M Two"}], "length")
        assert host.error("provider/stream", model={"api": "third"}, **ask)["message"] == "unknown provider: third"


def test_events_of_zot_are_made_of_those_of_piglet(tmp_path: Path) -> None:
    body = """
heard = []
for name in ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message"):
    ext.on(name)(lambda event: heard.append([event.name, event.data]))

@ext.tool
def told() -> list[list[object]]:
    return [*heard, heard.clear()][:-1]
"""
    with Driven(write_program(tmp_path, body)) as host:
        wanted = [one["params"]["events"] for one in host.begin() if one["method"] == "register/eventHandler"]
        assert wanted == [["EventAgentStart", "EventTurnStart"], ["EventTurnEnd"], ["EventToolStart"], ["EventStreamDone"]]
        host.call("event/dispatch", type="EventAgentStart", data={})
        assert host.text("told") == '[["session_start", {}]]'
        for _ in range(2):
            host.call("event/dispatch", type="EventTurnStart", data={})
        message = {"content": [{"text": "one"}, {"thinking": "hm"}, {"text": "two"}], "stopReason": "toolUse"}
        host.call("event/dispatch", type="EventStreamDone", data={"Message": message})
        host.call("event/dispatch", type="EventToolStart", data={"ToolCallID": "c", "ToolName": "read", "Args": {"path": "a"}})
        host.call("event/dispatch", type="EventTurnEnd", data={"Assistant": message, "ToolResults": None})
        host.call("event/dispatch", type="EventTurnEnd", data={"Assistant": None})
        assert host.call("tool/execute", name="told", args=None)["content"][0]["text"] == (
            '[["turn_start", {"step": 1}], ["turn_start", {"step": 2}], ["assistant_message", {"text": "one\\ntwo"}], '
            '["tool_call", {"tool_id": "c", "tool_name": "read", "tool_args": {"path": "a"}}], '
            '["turn_end", {"stop": "tool_use", "error": ""}], ["turn_end", {"stop": "", "error": ""}]]'
        )


def test_what_a_command_says_comes_before_its_answer(tmp_path: Path) -> None:
    body = """
panel = ext.panel("map", title="Radar", footer="esc closes")
answers = {"show": "3 stations", "prompt": Prompt("check it"), "insert": Insert("/forecast "), "panel": panel.open(["a", "b"]),
           "failed": Failed("no such city"), "none": None}

@ext.command("say")
def say(args):
    return answers[args]

@ext.command("draw")
def draw():
    panel.render("x")
    panel.close()
    ext.notify("warn", "drawn")
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()

        def said(args: str, name: str = "say") -> list[tuple[str, object]]:
            host.said.clear()
            assert host.call("command/execute", name=name, args=args) == {}
            return [(one["method"], one["params"]) for one in host.said]

        assert said("show") == [("showMessage", {"text": "3 stations"})]
        assert said("prompt") == [("sendMessage", {"content": "check it"})]
        assert said("insert") == [("setInputText", {"text": "/forecast "})]
        assert said("panel") == [("showOverlay", {"key": "map", "title": "Radar", "content": "a\nb\n\nesc closes"})]
        assert said("none") == []
        assert said("", "draw") == [
            ("showOverlay", {"key": "map", "title": "Radar", "content": "x\n\nesc closes"}),
            ("closeOverlay", {"key": "map"}),
            ("notify", {"message": "drawn", "level": "warn"}),
        ]
        assert host.error("command/execute", name="say", args="failed") == {"code": -32603, "message": "no such city"}
        assert host.error("command/execute", name="say", args="x") == {"code": -32603, "message": "/say failed: KeyError: 'x'"}


def test_errors_of_tools_have_codes_and_hints_and_what_breaks_is_an_error_of_the_wire(tmp_path: Path) -> None:
    body = """
@ext.tool
def fail(how: str) -> object:
    if how == "coded":
        raise ToolError("no station", code="FILE_NOT_FOUND", hint="try a bigger town")
    if how == "plain":
        raise ToolError("no station")
    if how == "result":
        return ToolResult.error("too long", code="FILE_TOO_LARGE")
    if how == "picture":
        return [text("here"), image(b"GIF8")]
    raise ValueError("defect")
"""
    with Driven(write_program(tmp_path, body)) as host:
        host.begin()

        def call(how: str) -> object:
            return host.call("tool/execute", callId="c", name="fail", args={"how": how})

        def block(text: str) -> list[dict[str, str]]:
            return [{"type": "text", "text": text}]

        assert call("coded") == {
            "content": block("[error:FILE_NOT_FOUND] no station\nhint: try a bigger town"),
            "isError": True,
            "errorCode": "FILE_NOT_FOUND",
            "errorHint": "try a bigger town",
        }
        assert call("plain") == {"content": block("no station"), "isError": True}
        assert call("result") == {
            "content": block("[error:FILE_TOO_LARGE] too long"),
            "isError": True,
            "errorCode": "FILE_TOO_LARGE",
        }
        assert call("picture") == {"content": [*block("here"), {"type": "image", "data": "R0lGOA==", "mime": "image/gif"}]}
        assert host.call("tool/execute", name="fail", args={})["isError"]  # arguments that do not fit are the model's to mend
        assert host.error("tool/execute", name="fail", args={"how": "?"}) == {
            "code": -32603,
            "message": "fail failed: ValueError: defect",
        }
