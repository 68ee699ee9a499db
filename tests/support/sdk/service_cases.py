"""Each service of a piglet host: how it is asked for, what goes out, what comes back, what the author gets (spec piglet 7.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

from serai.sdk import ToolResult
from serai.sdk.host_records import (  # fmt: skip
    AgentAnswer,
    ChatAnswer,
    CommandInfo,
    Compacted,
    EntryInfo,
    ExtensionInfo,
    Forked,
    ModelInfo,
    SectionInfo,
    SessionInfo,
    Snapshot,
    Stats,
    ToolInfo,
    TreeNode,
    Usage,
)


class Case(NamedTuple):
    what: str
    method: str
    params: dict[str, Any]
    result: Any
    value: Any  # what the author gets


SESSION = {"id": "6f1c", "title": "Trip", "cwd": "/app", "createdAt": "2026", "path": "/c/6f1c.jsonl"}
NODE = {"id": "a1", "type": "user", "timestamp": "t", "children": 2, "onActivePath": True, "depth": 0, "label": "good"}
MODEL = {"id": "m1", "api": "openai", "displayName": "acme/M", "provider": "acme", "contextWindow": 8000.0, "current": True}
EXT = {"name": "weather", "version": "0.2", "kind": "external", "tools": ["weather"]}
STATS = {"turnCount": 4, "totalInputTokens": 300, "totalCost": 1, "model": "acme/m1"}
USAGE = {"input": 9, "output": 2}

SERVED = [
    Case(
        "host.tools.list()",
        "host/listTools",
        {},
        {"tools": [{"name": "read"}]},
        [ToolInfo(name="read", description="", parameters=None, deferred=False)],
    ),
    Case("host.tools.list('background_safe')", "host/listTools", {"filter": "background_safe"}, {"tools": None}, []),
    Case(
        "host.tools.execute('read', {'path': 'a'}, call_id='c9')",
        "host/executeTool",
        {"name": "read", "args": {"path": "a"}, "callId": "c9"},
        {"Content": [{"Type": "text", "Text": "hello"}], "isError": True, "errorCode": "X"},
        ToolResult("hello", is_error=True, code="X"),
    ),
    Case("host.tools.activate('zap')", "host/activateTool", {"name": "zap"}, {}, None),
    Case("host.tools.filter(['read'])", "host/setToolFilter", {"names": ["read"]}, {}, None),
    Case("host.tools.filter(None)", "host/setToolFilter", {"names": None}, {}, None),
    Case(
        "host.tools.definitions()",
        "host/toolDefs",
        {},
        {"tools": [{"name": "bash", "description": "Run"}]},
        [ToolInfo(name="bash", description="Run", parameters=None, deferred=False)],
    ),
    Case("host.config.get('a', 'b')", "host/config.get", {"keys": ["a", "b"]}, {"values": {"a": 1}}, {"a": 1}),
    Case("host.config.read('weather')", "host/config.readExtension", {"name": "weather"}, {"content": "x"}, "x"),
    Case("host.credentials.key('acme')", "host/auth.getKey", {"provider": "acme"}, {"key": "sk"}, "sk"),
    Case(
        "host.chat('hello', system='Title it', model='small', max_tokens=30)",
        "host/chat",
        {"messages": [{"role": "user", "content": "hello"}], "system": "Title it", "model": "small", "maxTokens": 30},
        {"text": "Greeting", "usage": USAGE},
        ChatAnswer(text="Greeting", usage=Usage(input=9, output=2)),
    ),
    Case(
        "host.agent_run('count', tools='all', max_turns=3)",
        "host/agent.run",
        {"task": "count", "tools": "all", "maxTurns": 3},
        {"text": "4", "turns": 2, "Usage": {"Input": 9, "Output": 2}},
        AgentAnswer(text="4", turns=2, usage=Usage(input=9, output=2)),
    ),
    Case("host.conversation.messages()", "host/conversationMessages", {}, {"messages": [{"content": "hi"}]}, [{"content": "hi"}]),
    Case(
        "host.conversation.replace([{'type': 'user', 'data': {'content': 'x'}}])",
        "host/setConversationMessages",
        {"messages": [{"type": "user", "data": {"content": "x"}}]},
        {},
        None,
    ),
    Case("host.conversation.replace(None)", "host/setConversationMessages", {"messages": None}, {}, None),
    Case(
        "host.conversation.snapshot()",
        "host/llmSnapshot",
        {},
        {"system": "s", "messages": [], "tools": [{"Name": "a"}]},
        Snapshot(system="s", messages=(), tools=(ToolInfo(name="a", description="", parameters=None, deferred=False),)),
    ),
    Case("host.conversation.last_text()", "host/lastAssistantText", {}, {"text": "Hello"}, "Hello"),
    Case(
        "host.conversation.stats()",
        "host/sessionStats",
        {},
        STATS,
        Stats(
            turn_count=4,
            total_input_tokens=300,
            total_output_tokens=0,
            total_cache_read_tokens=0,
            total_cache_write_tokens=0,
            total_cost=1.0,
            model="acme/m1",
        ),
    ),
    Case("host.conversation.has_compactor()", "host/hasCompactor", {}, {"present": True}, True),
    Case("host.conversation.compact()", "host/triggerCompact", {}, {"before": 20, "after": 8}, Compacted(before=20, after=8)),
    Case(
        "host.sessions.list()",
        "host/sessions",
        {},
        {"sessions": [SESSION]},
        [SessionInfo(id="6f1c", title="Trip", cwd="/app", created_at="2026", parent_id="", path="/c/6f1c.jsonl")],
    ),
    Case("host.sessions.load('/c/x')", "host/loadSession", {"path": "/c/x"}, {}, None),
    Case(
        "host.sessions.fork()",
        "host/forkSession",
        {},
        {"parentID": "6f1c", "messageCount": 7},
        Forked(parent_id="6f1c", message_count=7),
    ),
    Case("host.sessions.set_title('')", "host/setSessionTitle", {"title": ""}, {}, None),
    Case("host.sessions.title()", "host/sessionTitle", {}, {"title": "Trip"}, "Trip"),
    Case("host.sessions.append('ext:x', {'n': 1})", "host/appendSessionEntry", {"kind": "ext:x", "data": {"n": 1}}, {}, None),
    Case(
        "host.sessions.append_message('assistant', 'Noted.')",
        "host/appendCustomMessage",
        {"role": "assistant", "content": "Noted."},
        {},
        None,
    ),
    Case("host.sessions.label('a1', 'good')", "host/setLabel", {"targetId": "a1", "label": "good"}, {}, None),
    Case("host.sessions.branch('a1')", "host/branchSession", {"entryId": "a1"}, {}, None),
    Case(
        "host.sessions.branch('a1', 'A failed')",
        "host/branchSessionWithSummary",
        {"entryId": "a1", "summary": "A failed"},
        {},
        None,
    ),
    Case("host.sessions.reset()", "host/resetSessionLeaf", {}, {}, None),
    Case(
        "host.sessions.entries()",
        "host/sessionEntryInfos",
        {},
        {"entries": [NODE]},
        [EntryInfo(id="a1", parent_id="", type="user", timestamp="t", children=2)],
    ),
    Case(
        "host.sessions.tree()",
        "host/sessionFullTree",
        {},
        {"nodes": [NODE]},
        [
            TreeNode(
                id="a1",
                parent_id="",
                type="user",
                timestamp="t",
                children=2,
                on_active_path=True,
                depth=0,
                preview="",
                label="good",
                tokens_before=0,
            )
        ],
    ),
    Case(
        "host.models.list()",
        "host/availableModels",
        {},
        {"models": [MODEL]},
        [
            ModelInfo(
                id="m1",
                api="openai",
                display_name="acme/M",
                provider="acme",
                context_window=8000,
                max_tokens=0,
                reasoning=False,
                cost_input=0.0,
                cost_output=0.0,
                current=True,
            )
        ],
    ),
    Case(
        "host.models.switch('acme/m2', persist=True)", "host/switchModel", {"modelId": "acme/m2", "persistDefault": True}, {}, None
    ),
    Case("host.models.sync()", "host/syncModels", {}, {"updated": 12}, 12),
    Case(
        "host.models.write({'acme/m1': {'contextWindow': 16000}})",
        "host/writeModels",
        {"overrides": {"acme/m1": {"contextWindow": 16000}}},
        {"modelsWritten": 12},
        12,
    ),
    Case("host.background.run('summarise')", "host/runBackground", {"prompt": "summarise"}, {}, None),
    Case("host.background.cancel()", "host/cancelBackground", {}, {}, None),
    Case("host.background.is_running()", "host/isBackgroundRunning", {}, {"running": True}, True),
    Case("host.wait_for_idle()", "host/waitForIdle", {}, {}, None),
    Case("host.toggle_step_mode()", "host/toggleStepMode", {}, {"on": True}, True),
    Case("host.quit()", "host/requestQuit", {}, {}, None),
    Case("host.abort()", "host/abort", {}, None, None),
    Case(
        "host.ask('Send?', ['yes', 'no'])",
        "host/askUser",
        {"prompt": "Send?", "choices": ["yes", "no"]},
        {"selected": "yes", "cancelled": False},
        "yes",
    ),
    Case(
        "host.ask('Send?', ['yes'])",
        "host/askUser",
        {"prompt": "Send?", "choices": ["yes"]},
        {"selected": "", "cancelled": True},
        None,
    ),
    Case(
        "host.pick('City', ['x', ('b', 'Bern', 'CH')])",
        "host/showPicker",
        {"title": "City", "items": [{"id": "x", "label": "x"}, {"id": "b", "label": "Bern", "desc": "CH"}]},
        {"Selected": "b"},
        "b",
    ),
    Case("host.pick('City', [])", "host/showPicker", {"title": "City", "items": []}, {"selected": ""}, None),
    Case("host.bus.publish('a:b', {'level': 2})", "host/publish", {"topic": "a:b", "data": {"level": 2}}, {}, None),
    Case("host.bus.subscribe('a:b')", "host/subscribe", {"topic": "a:b"}, {"subscriptionId": 43}, None),
    Case(
        "host.guests.list()",
        "host/extInfos",
        {},
        {"extensions": [EXT]},
        [
            ExtensionInfo(
                name="weather",
                version="0.2",
                kind="external",
                runtime="",
                tools=("weather",),
                commands=(),
                interceptors=(),
                event_handlers=(),
                shortcuts=(),
                message_hooks=(),
                compactor="",
            )
        ],
    ),
    Case("host.guests.folder()", "host/extensionsDir", {}, {"path": "/e"}, "/e"),
    Case(
        "host.guests.commands()",
        "host/commands",
        {},
        {"commands": [{"name": "f", "description": "d"}]},
        [CommandInfo(name="f", description="d")],
    ),
    Case("host.guests.shortcuts()", "host/shortcuts", {}, {"shortcuts": {"ctrl+g": {"Description": "R"}}}, {"ctrl+g": "R"}),
    Case(
        "host.guests.prompt_sections()",
        "host/promptSections",
        {},
        {"sections": [{"title": "Units", "tokenHint": 12}]},
        [SectionInfo(title="Units", token_hint=12)],
    ),
    Case("host.undo.snapshots()", "host/undoSnapshots", {}, {"snapshots": {"/a": 6}}, {"/a": 6}),
    Case("host.undo.restore('/a')", "host/undoRestore", {"path": "/a"}, {}, None),
]
