"""What Claude Code asks of us: approvals, hooks, MCP and the rest, each presented once and answered once."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from msgspec import Raw

from serai.dialects.claude import events, messages
from serai.dialects.claude.events import CanUseTool, Odd, Stray, Told, Unsupported, Withdrawn
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.peer_side import Answered as TheyHaveIt
from serai.dialects.claude.peer_side import PeerSide
from serai.errors import NoApproval
from serai.wire.codec import encode
from tests.support.claude.wire import answer_to, ask, hear

# -- approvals --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.live.Z1")
def test_two_approvals_can_be_answered_in_reverse_order(host: HostSide, peer: PeerSide) -> None:
    first, second = ask(host, peer), ask(host, peer)
    assert list(host.pending) == [first, second]
    [no] = peer.receive(host.deny(second, "not this"))
    [yes] = peer.receive(host.allow(first))
    assert isinstance(no, TheyHaveIt)
    assert (no.id, no.response) == (second, {"behavior": "deny", "message": "not this"})
    assert isinstance(yes, TheyHaveIt)
    assert (yes.id, yes.response) == (first, {"behavior": "allow"})
    assert list(host.pending) == []


@pytest.mark.req("agents.live.Z2")
def test_what_was_withdrawn_cannot_be_answered(host: HostSide, peer: PeerSide) -> None:
    id = ask(host, peer)
    assert hear(host, peer.withdraw(id)) == Withdrawn(id, peer.withdraw(id).rstrip())
    for answer in (host.allow, host.deny, partial(host.reply, payload={}), partial(host.refuse, error="no")):
        with pytest.raises(NoApproval):
            answer(id)
    assert isinstance(hear(host, peer.withdraw(id)), Stray)


def test_an_answer_is_taken_once_and_a_wrong_one_consumes_nothing(host: HostSide, peer: PeerSide) -> None:
    id = ask(host, peer)
    with pytest.raises(TypeError, match="is no mcp_message but can_use_tool"):
        host.answer_mcp(id)
    with pytest.raises(ValueError, match="claude would not take"):
        host.reply(id, ["no", "object"])
    with pytest.raises(TypeError):
        host.allow(id, input={"a": object()})
    assert answer_to(id, host.allow(id)) == {"behavior": "allow"}
    with pytest.raises(NoApproval):
        host.allow(id)
    hook, frame = peer.hook_callback("g", {})
    hear(host, frame)
    with pytest.raises(TypeError, match="is no can_use_tool but hook_callback"):
        host.deny(hook, "no")
    late = ask(host, peer)
    host.lose()
    with pytest.raises(NoApproval):
        host.deny(late, "no")


@pytest.mark.req("agents.live.Z16")
def test_an_allow_needs_no_input(host: HostSide, peer: PeerSide) -> None:
    id = ask(host, peer)
    assert answer_to(id, host.allow(id)) == {"behavior": "allow"}
    changed = {"command": "ls -l"}
    id = ask(host, peer)
    assert answer_to(id, host.allow(id, input=changed)) == {"behavior": "allow", "updatedInput": changed}
    id = ask(host, peer)
    assert answer_to(id, host.allow(id, input={})) == {"behavior": "allow", "updatedInput": {}}


def test_what_could_only_be_judged_after_repair_runs_as_it_was_judged(host: HostSide) -> None:
    """The program holds other text than we could read, so it is told what was allowed."""
    asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "rm X"}, "tool_use_id": "t"}
    frame = encode({"type": "control_request", "request_id": "r", "request": asked}).replace(b"X", b"\\ud83d")
    assert hear(host, frame).request.input == {"command": "rm \ufffd"}
    assert answer_to("r", host.allow("r")) == {"behavior": "allow", "updatedInput": {"command": "rm \ufffd"}}


@pytest.mark.req("agents.live.Z17")
def test_answers_to_questions_go_by_the_text_of_each_question(host: HostSide, peer: PeerSide) -> None:
    given = {
        "questions": [{"question": "Which?", "header": "Pick", "multiSelect": False, "options": [{"label": "A"}, {"label": "B"}]}]
    }
    id, frame = peer.can_use_tool("AskUserQuestion", given, "toolu_1", requires_user_interaction=True)
    asked = hear(host, frame)
    assert (asked.request.tool_name, asked.request.requires_user_interaction) == ("AskUserQuestion", True)
    answer = answer_to(id, host.allow(id, input=asked.request.input | {"answers": {"Which?": "B"}}))
    assert answer["updatedInput"] == {**given, "answers": {"Which?": "B"}}


@pytest.mark.req("agents.rule.66")
@pytest.mark.parametrize("tool", ["Bash", "AskUserQuestion", "ExitPlanMode"])
def test_a_deny_is_a_success_reply_that_says_no(host: HostSide, peer: PeerSide, tool: str) -> None:
    denied = {"behavior": "deny", "message": "User denied this request"}
    id = ask(host, peer, tool)
    assert answer_to(id, host.deny(id)) == denied
    id = ask(host, peer, tool)
    assert answer_to(id, host.deny(id, "")) == denied
    id = ask(host, peer, tool)
    assert answer_to(id, host.deny(id, "not today")) == {"behavior": "deny", "message": "not today"}


@pytest.mark.req("agents.rule.67")
def test_a_deny_can_interrupt_and_an_allow_can_be_remembered(host: HostSide, peer: PeerSide) -> None:
    id = ask(host, peer)
    denied = answer_to(id, host.deny(id, "stop", interrupt=True))
    assert denied == {"behavior": "deny", "message": "stop", "interrupt": True}
    rule = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "session"}
    id = ask(host, peer)
    allowed = answer_to(id, host.allow(id, permissions=(rule,)))
    assert allowed == {"behavior": "allow", "updatedPermissions": [rule]}


def test_a_request_tells_all_that_the_program_says_of_it(host: HostSide, peer: PeerSide) -> None:
    about: dict[str, Any] = {
        "display_name": "Shell", "title": "T", "description": "D", "permission_suggestions": [{"type": "setMode"}],
        "blocked_path": "/etc", "decision_reason": "because", "decision_reason_type": "rule", "suppress_always_allow_rule": True,
        "default_to_no": True, "requires_user_interaction": True, "agent_id": "a-1", "mcp_server": {"name": "n", "source": "sdk"},
        "classifier_approvable": True, "matched_ask_rule": {"source": "cliArg"},
    }  # fmt: skip
    _, frame = peer.can_use_tool("Bash", {"command": "ls"}, "toolu_9", **about)
    asked = hear(host, frame)
    assert {name: getattr(asked.request, name) for name in about} == about
    assert (asked.request.tool_use_id, asked.request.input, asked.line) == ("toolu_9", {"command": "ls"}, frame.rstrip())
    _, frame = peer.can_use_tool("Bash", {}, "t", **dict.fromkeys(about))
    bare = hear(host, frame).request
    assert bare == messages.CanUseTool("Bash", {}, "t"), "null reads as absent"


# -- everything else that is asked ------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.65")
def test_hooks_and_mcp_messages_are_told_with_whom_they_mean_and_answered_in_their_shape(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.hook_callback("g-7", {"hook_event_name": "PreToolUse", "tool_name": "Bash"}, "toolu_1")
    hook = hear(host, frame)
    assert isinstance(hook, events.HookCallback)
    assert (hook.id, hook.callback_id, hook.input["tool_name"], hook.tool_use_id) == (id, "g-7", "Bash", "toolu_1")
    output = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    assert answer_to(id, host.reply(id, output)) == output

    call = {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": "add"}}
    id, frame = peer.mcp_message("calc", call)
    message = hear(host, frame)
    assert isinstance(message, events.McpMessage)
    assert (message.id, message.server, json.loads(bytes(message.message))) == (id, "calc", call)
    reply = b'{"jsonrpc":"2.0","id":0,"result":{}}'
    assert answer_to(id, host.answer_mcp(id, Raw(reply))) == {"mcp_response": json.loads(reply)}
    id, frame = peer.mcp_message("calc", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    hear(host, frame)
    assert answer_to(id, host.answer_mcp(id)) == {"mcp_response": {"jsonrpc": "2.0", "result": {}}}


def test_an_elicitation_is_told_with_all_its_members(host: HostSide, peer: PeerSide) -> None:
    request = {"mcp_server_name": "calc", "message": "Your name?", "mode": "form", "requested_schema": {"type": "object"}, "new": 1}
    id, frame = peer.ask("elicitation", request)
    asked = hear(host, frame)
    assert isinstance(asked, events.Elicitation)
    assert asked.request == request
    assert answer_to(id, host.reply(id, {"action": "decline"})) == {"action": "decline"}


@pytest.mark.req("agents.live.Z18")
def test_a_request_of_another_subtype_is_refused_at_once(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.ask("of_tomorrow", {"a": 1})
    event = hear(host, frame)
    assert isinstance(event, Unsupported)
    assert (event.id, event.subtype) == (id, "of_tomorrow")
    assert event.reply is not None
    reply = json.loads(event.reply)["response"]
    assert reply == {"subtype": "error", "request_id": id, "error": "Unsupported control request subtype: of_tomorrow"}
    with pytest.raises(NoApproval):
        host.reply(id, {})


@pytest.mark.parametrize(
    ("subtype", "fields", "lacks"),
    [
        ("can_use_tool", {"tool_name": "Bash"}, "input"),
        ("can_use_tool", {"tool_name": "Bash", "input": "rm -rf /"}, "input"),
        ("can_use_tool", {"tool_name": None, "input": {}}, "tool_name"),
        ("mcp_message", {"message": {}}, "server_name"),
        ("hook_callback", {"callback_id": "g", "input": []}, "input"),
        ("hook_callback", {"input": {}}, "callback_id"),
    ],
)
def test_nobody_is_asked_about_what_cannot_be_read(host: HostSide, peer: PeerSide, subtype: str, fields: Any, lacks: str) -> None:
    """A yes would be to what nobody has seen. A hook that fails lets the tool run, so it says no (design rule 7)."""
    id, frame = peer.ask(subtype, fields)
    event = hear(host, frame)
    assert isinstance(event, Unsupported)
    assert event.reply is not None
    if subtype == "hook_callback":
        output = answer_to(id, event.reply)["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        assert lacks in output["permissionDecisionReason"]
    else:
        reply = json.loads(event.reply)["response"]
        assert reply["subtype"] == "error"
        assert lacks in reply["error"]
    assert list(host.pending) == []


def test_a_hook_before_a_tool_is_refused_with_a_no(host: HostSide, peer: PeerSide) -> None:
    """After an error reply the program would run the tool: seen with 2.1.325."""
    for event, holds in (("PreToolUse", True), (None, True), ("PostToolUse", False)):
        id, frame = peer.hook_callback("g", {"hook_event_name": event} if event else {})
        hear(host, frame)
        reply = host.refuse(id, "it broke")
        if holds:
            output = answer_to(id, reply)["hookSpecificOutput"]
            assert (output["permissionDecision"], output["permissionDecisionReason"]) == ("deny", "it broke")
        else:
            assert json.loads(reply)["response"] == {"subtype": "error", "request_id": id, "error": "it broke"}
    id = ask(host, peer)
    assert json.loads(host.refuse(id, "it broke"))["response"]["subtype"] == "error"


@pytest.mark.req("agents.rule.63")
def test_a_dialog_of_a_kind_that_was_not_declared_stays_unanswered(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.ask("request_user_dialog", {"dialog_kind": "survey", "payload": {"q": 1}})
    event = hear(host, frame)
    assert isinstance(event, Unsupported)
    assert (event.id, event.reply) == (id, None)
    with pytest.raises(NoApproval):
        host.reply(id, {})
    host.request("initialize", {"supportedDialogKinds": ["survey"]}, now=0, timeout=60)
    id, frame = peer.ask("request_user_dialog", {"dialog_kind": "survey", "payload": {"q": 1}})
    event = hear(host, frame)
    assert isinstance(event, events.Dialog)
    assert (event.kind, bytes(event.payload)) == ("survey", b'{"q":1}')
    assert answer_to(id, host.reply(id, {"done": True})) == {"done": True}
    _, frame = peer.ask("request_user_dialog", {"dialog_kind": "other"})
    assert isinstance(hear(host, frame), Unsupported)


# -- ids --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.edge.18")
@pytest.mark.parametrize("id", ["0", "", "null", 0, 7])
def test_any_id_will_do_and_goes_back_as_it_came(host: HostSide, id: str | int) -> None:
    request: dict[str, Any] = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "title": None}
    asked = hear(host, encode({"type": "control_request", "request_id": id, "request": request}))
    assert isinstance(asked, CanUseTool)
    assert asked.id == str(id)
    assert list(host.pending) == [str(id)]
    assert json.loads(host.deny(asked.id, "no"))["response"]["request_id"] == id
    assert list(host.pending) == []


@pytest.mark.req("agents.edge.18")
def test_the_same_id_in_two_processes_is_two_requests() -> None:
    first, second = HostSide(), HostSide()
    frame = encode(
        {"type": "control_request", "request_id": "0", "request": {"subtype": "can_use_tool", "tool_name": "B", "input": {}}}
    )
    assert isinstance(hear(first, frame), CanUseTool)
    assert isinstance(hear(second, frame), CanUseTool)
    first.deny("0", "no")
    assert answer_to("0", second.allow("0")) == {"behavior": "allow"}


@pytest.mark.req("agents.edge.19")
def test_a_request_that_comes_twice_is_presented_once(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.can_use_tool("Bash", {"command": "ls"}, "toolu_1")
    first, second = host.receive(frame + frame)
    assert isinstance(first, CanUseTool)
    assert isinstance(second, Stray)
    assert list(host.pending) == [id]
    host.deny(id, "no")
    assert isinstance(hear(host, frame), Stray), "also after it was answered"
    assert list(host.pending) == []


@pytest.mark.req("agents.edge.19")
def test_a_pending_request_is_known_however_many_came_since(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.can_use_tool("Bash", {"command": "ls"}, "toolu_1")
    hear(host, frame)
    for _ in range(10_050):
        hear(host, peer.ask("of_tomorrow")[1])
    assert isinstance(hear(host, frame), Stray)
    assert answer_to(id, host.allow(id)) == {"behavior": "allow"}


@pytest.mark.parametrize("id", [None, True, [], {}, 1.5])
def test_a_control_frame_without_an_id_is_odd(host: HostSide, id: Any) -> None:
    call, _ = host.request("interrupt", now=0, timeout=60)
    for frame in (
        {"type": "control_request", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}},
        {"type": "control_response", "response": {"subtype": "success"}},
        {"type": "control_cancel_request"},
    ):
        for whole in (frame, frame | {"request_id": id}):
            assert isinstance(hear(host, encode(whole)), Odd)
    assert host.unknown == 6
    assert list(host.pending) == []
    assert host.forget(call), "nothing was answered"


def test_a_keep_alive_changes_nothing(host: HostSide) -> None:
    assert isinstance(hear(host, b'{"type":"keep_alive"}\n'), Stray)


def test_told_frames_pass_a_request_by(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.can_use_tool("Bash", {}, "t")
    run = peer.init() + peer.text("a") + frame + peer.withdraw(id) + peer.result("b")
    assert [type(event) for event in host.receive(run)] == [Told, Told, CanUseTool, Withdrawn, Told]
