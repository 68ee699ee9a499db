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


class Asked(NamedTuple):
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
    Asked(
        "host.tools.list()",
        "host/listTools",
        {},
        {"tools": [{"name": "read"}]},
        [ToolInfo(name="read", description="", parameters=None, deferred=False)],
    ),
    Asked("host.tools.list('background_safe')", "host/listTools", {"filter": "background_safe"}, {"tools": None}, []),
    Asked(
        "host.tools.execute('read', {'path': 'a'}, call_id='c9')",
        "host/executeTool",
        {"name": "read", "args": {"path": "a"}, "callId": "c9"},
        {"Content": [{"Type": "text", "Text": "hello"}], "isError": True, "errorCode": "X"},
        ToolResult("hello", is_error=True, code="X"),
    ),
    Asked("host.tools.activate('zap')", "host/activateTool", {"name": "zap"}, {}, None),
    Asked("host.tools.filter(['read'])", "host/setToolFilter", {"names": ["read"]}, {}, None),
    Asked("host.tools.filter(None)", "host/setToolFilter", {"names": None}, {}, None),
    Asked(
        "host.tools.definitions()",
        "host/toolDefs",
        {},
        {"tools": [{"name": "bash", "description": "Run"}]},
        [ToolInfo(name="bash", description="Run", parameters=None, deferred=False)],
    ),
    Asked("host.config.get('a', 'b')", "host/config.get", {"keys": ["a", "b"]}, {"values": {"a": 1}}, {"a": 1}),
    Asked("host.config.read('weather')", "host/config.readExtension", {"name": "weather"}, {"content": "x"}, "x"),
    Asked("host.credentials.key('acme')", "host/auth.getKey", {"provider": "acme"}, {"key": "sk"}, "sk"),
    Asked(
        "host.chat('hello', system='Title it', model='small', max_tokens=30)",
        "host/chat",
        {"messages": [{"role": "user", "content": "hello"}], "system": "Title it", "model": "small", "maxTokens": 30},
        {"text": "Greeting", "usage": USAGE},
        ChatAnswer(text="Greeting", usage=Usage(input=9, output=2)),
    ),
    Asked(
        "host.agent_run('count', tools='all', max_turns=3)",
        "host/agent.run",
        {"task": "count", "tools": "all", "maxTurns": 3},
        {"text": "4", "turns": 2, "Usage": {"Input": 9, "Output": 2}},
        AgentAnswer(text="4", turns=2, usage=Usage(input=9, output=2)),
    ),
    Asked("host.conversation.messages()", "host/conversationMessages", {}, {"messages": [{"content": "hi"}]}, [{"content": "hi"}]),
    Asked(
        "host.conversation.replace([{'type': 'user', 'data': {'content': 'x'}}])",
        "host/setConversationMessages",
        {"messages": [{"type": "user", "data": {"content": "x"}}]},
        {},
        None,
    ),
    Asked("host.conversation.replace(None)", "host/setConversationMessages", {"messages": None}, {}, None),
    Asked(
        "host.conversation.snapshot()",
        "host/llmSnapshot",
        {},
        {"system": "s", "messages": [], "tools": [{"Name": "a"}]},
        Snapshot(system="s", messages=(), tools=(ToolInfo(name="a", description="", parameters=None, deferred=False),)),
    ),
    Asked("host.conversation.last_text()", "host/lastAssistantText", {}, {"text": "Hello"}, "Hello"),
    Asked(
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
    Asked("host.conversation.has_compactor()", "host/hasCompactor", {}, {"present": True}, True),
    Asked("host.conversation.compact()", "host/triggerCompact", {}, {"before": 20, "after": 8}, Compacted(before=20, after=8)),
    Asked(
        "host.sessions.list()",
        "host/sessions",
        {},
        {"sessions": [SESSION]},
        [SessionInfo(id="6f1c", title="Trip", cwd="/app", created_at="2026", parent_id="", path="/c/6f1c.jsonl")],
    ),
    Asked("host.sessions.load('/c/x')", "host/loadSession", {"path": "/c/x"}, {}, None),
    Asked(
        "host.sessions.fork()",
        "host/forkSession",
        {},
        {"parentID": "6f1c", "messageCount": 7},
        Forked(parent_id="6f1c", message_count=7),
    ),
    Asked("host.sessions.set_title('')", "host/setSessionTitle", {"title": ""}, {}, None),
    Asked("host.sessions.title()", "host/sessionTitle", {}, {"title": "Trip"}, "Trip"),
    Asked("host.sessions.append('ext:x', {'n': 1})", "host/appendSessionEntry", {"kind": "ext:x", "data": {"n": 1}}, {}, None),
    Asked(
        "host.sessions.append_message('assistant', 'Noted.')",
        "host/appendCustomMessage",
        {"role": "assistant", "content": "Noted."},
        {},
        None,
    ),
    Asked("host.sessions.label('a1', 'good')", "host/setLabel", {"targetId": "a1", "label": "good"}, {}, None),
    Asked("host.sessions.branch('a1')", "host/branchSession", {"entryId": "a1"}, {}, None),
    Asked(
        "host.sessions.branch('a1', 'A failed')",
        "host/branchSessionWithSummary",
        {"entryId": "a1", "summary": "A failed"},
        {},
        None,
    ),
    Asked("host.sessions.reset()", "host/resetSessionLeaf", {}, {}, None),
    Asked(
        "host.sessions.entries()",
        "host/sessionEntryInfos",
        {},
        {"entries": [NODE]},
        [EntryInfo(id="a1", parent_id="", type="user", timestamp="t", children=2)],
    ),
    Asked(
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
    Asked(
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
    Asked(
        "host.models.switch('acme/m2', persist=True)", "host/switchModel", {"modelId": "acme/m2", "persistDefault": True}, {}, None
    ),
    Asked("host.models.sync()", "host/syncModels", {}, {"updated": 12}, 12),
    Asked(
        "host.models.write({'acme/m1': {'contextWindow': 16000}})",
        "host/writeModels",
        {"overrides": {"acme/m1": {"contextWindow": 16000}}},
        {"modelsWritten": 12},
        12,
    ),
    Asked("host.background.run('summarise')", "host/runBackground", {"prompt": "summarise"}, {}, None),
    Asked("host.background.cancel()", "host/cancelBackground", {}, {}, None),
    Asked("host.background.is_running()", "host/isBackgroundRunning", {}, {"running": True}, True),
    Asked("host.wait_for_idle()", "host/waitForIdle", {}, {}, None),
    Asked("host.toggle_step_mode()", "host/toggleStepMode", {}, {"on": True}, True),
    Asked("host.quit()", "host/requestQuit", {}, {}, None),
    Asked("host.abort()", "host/abort", {}, None, None),
    Asked(
        "host.ask('Send?', ['yes', 'no'])",
        "host/askUser",
        {"prompt": "Send?", "choices": ["yes", "no"]},
        {"selected": "yes", "cancelled": False},
        "yes",
    ),
    Asked(
        "host.ask('Send?', ['yes'])",
        "host/askUser",
        {"prompt": "Send?", "choices": ["yes"]},
        {"selected": "", "cancelled": True},
        None,
    ),
    Asked(
        "host.pick('City', ['x', ('b', 'Bern', 'CH')])",
        "host/showPicker",
        {"title": "City", "items": [{"id": "x", "label": "x"}, {"id": "b", "label": "Bern", "desc": "CH"}]},
        {"Selected": "b"},
        "b",
    ),
    Asked("host.pick('City', [])", "host/showPicker", {"title": "City", "items": []}, {"selected": ""}, None),
    Asked("host.bus.publish('a:b', {'level': 2})", "host/publish", {"topic": "a:b", "data": {"level": 2}}, {}, None),
    Asked("host.bus.subscribe('a:b')", "host/subscribe", {"topic": "a:b"}, {"subscriptionId": 43}, None),
    Asked(
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
    Asked("host.guests.folder()", "host/extensionsDir", {}, {"path": "/e"}, "/e"),
    Asked(
        "host.guests.commands()",
        "host/commands",
        {},
        {"commands": [{"name": "f", "description": "d"}]},
        [CommandInfo(name="f", description="d")],
    ),
    Asked("host.guests.shortcuts()", "host/shortcuts", {}, {"shortcuts": {"ctrl+g": {"Description": "R"}}}, {"ctrl+g": "R"}),
    Asked(
        "host.guests.prompt_sections()",
        "host/promptSections",
        {},
        {"sections": [{"title": "Units", "tokenHint": 12}]},
        [SectionInfo(title="Units", token_hint=12)],
    ),
    Asked("host.undo.snapshots()", "host/undoSnapshots", {}, {"snapshots": {"/a": 6}}, {"/a": 6}),
    Asked("host.undo.restore('/a')", "host/undoRestore", {"path": "/a"}, {}, None),
]
