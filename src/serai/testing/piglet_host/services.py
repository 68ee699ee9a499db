"""What the stand-in host answers to each of the 52 requests of an extension when nobody has told it otherwise (spec piglet 7.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

__all__ = ["ANSWERS", "LATER", "HostError", "Serving"]

Params = Mapping[str, Any]
LATER: Any = object()  # no answer now: `PigletHost.reply` gives it
_USAGE = {"input": 9, "output": 2}
_ENTRY = {"id": "a1b2c3d4", "type": "user", "timestamp": "2026-02-03T10:00:01Z", "children": 0}
_MESSAGE = {"content": "hi", "timestamp": "2026-02-03T10:00:01Z", "role": "user"}


class HostError(Exception):
    """An error that the host answers with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Serving(Protocol):
    """The host that serves: what its extension has registered, and the wire to it."""

    name: str
    config_dir: Path

    @property
    def manifest(self) -> Mapping[str, Any]: ...
    @property
    def tools(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def commands(self) -> Mapping[str, Mapping[str, Any]]: ...
    def registered(self, method: str) -> list[dict[str, Any]]: ...
    def execute_tool(self, name: str, args: object, call_id: str = "") -> Any: ...
    def publish(self, topic: str, data: object) -> None: ...
    def subscribe(self, topic: str) -> int: ...


def _tools(host: Serving, _params: Params) -> dict[str, Any]:
    keys = ("name", "description", "parameters", "deferred")
    tools = sorted(host.tools.values(), key=lambda tool: tool["name"])
    return {"tools": [{key: tool[key] for key in keys if key in tool} for tool in tools]}


def _tool_defs(host: Serving, _params: Params) -> dict[str, Any]:
    return {"tools": [{"name": name, "description": host.tools[name].get("description", "")} for name in sorted(host.tools)]}


def _execute(host: Serving, params: Params) -> Any:
    """Its own tool comes back to it on the same connection (spec piglet 10.5)."""
    if params.get("name") not in host.tools:
        raise HostError(-32604, f"unknown tool: {params.get('name')}")
    return host.execute_tool(params["name"], params.get("args"), params.get("callId", ""))


def _activate(host: Serving, params: Params) -> dict[str, Any]:
    if not host.tools.get(params.get("name", ""), {}).get("deferred"):
        raise HostError(-32604, f"tool not found or not deferred: {params.get('name')}")
    return {}


def _config(_host: Serving, params: Params) -> dict[str, Any]:
    known = {"defaultModel": "acme/m1", "smallModel": "acme/m1", "agent.compactAt": 0, "agent.maxTurns": 30}
    return {"values": {key: known[key] for key in params.get("keys") or () if key in known}}


def _ask(_host: Serving, params: Params) -> dict[str, Any]:
    """A person who takes the first of everything."""
    if not params.get("choices"):
        raise HostError(-32602, "askUser: choices must not be empty")
    return {"selected": params["choices"][0], "cancelled": False}


def _pick(_host: Serving, params: Params) -> dict[str, Any]:
    return {"selected": params["items"][0]["id"] if params.get("items") else ""}


def _publish(host: Serving, params: Params) -> dict[str, Any]:
    """The lines of the events come before the answer (spec piglet 7.1)."""
    host.publish(params.get("topic", ""), params.get("data"))
    return {}


def _subscribe(host: Serving, params: Params) -> dict[str, Any]:
    return {"subscriptionId": host.subscribe(params.get("topic", ""))}


def _undo(_host: Serving, params: Params) -> dict[str, Any]:
    raise HostError(-32604, f"no snapshot for path: {params.get('path')}")


def _models(_host: Serving, _params: Params) -> dict[str, Any]:
    model = {"id": "m1", "api": "openai", "displayName": "acme/M One", "provider": "acme", "contextWindow": 8000, "current": True}
    return {"models": [model]}


def _infos(host: Serving, _params: Params) -> dict[str, Any]:
    info = {"name": host.name, "kind": "external", "runtime": host.manifest["runtime"]}
    return {"extensions": [info | ({"tools": sorted(host.tools)} if host.tools else {})]}


def _compact(host: Serving, _params: Params) -> dict[str, Any]:
    if not host.registered("register/compactor"):
        raise HostError(-32603, "no compactor registered")
    return {"before": 20, "after": 8}


ANSWERS: dict[str, object | Callable[[Serving, Params], object]] = {
    "host/listTools": _tools,
    "host/executeTool": _execute,
    "host/activateTool": _activate,
    "host/setToolFilter": {},
    "host/toolDefs": _tool_defs,
    "host/config.get": _config,
    "host/config.readExtension": {"content": ""},
    "host/auth.getKey": {"key": ""},
    "host/chat": {"text": "Greeting", "usage": _USAGE},
    "host/agent.run": {"text": "There are 4.", "turns": 2, "usage": _USAGE},
    "host/conversationMessages": {"messages": [_MESSAGE]},
    "host/setConversationMessages": {},
    "host/llmSnapshot": {"system": "", "messages": [], "tools": []},
    "host/lastAssistantText": {"text": "Hello"},
    "host/sessionStats": {
        "turnCount": 1,
        "totalInputTokens": 9,
        "totalOutputTokens": 2,
        "totalCacheReadTokens": 0,
        "totalCacheWriteTokens": 0,
        "totalCost": 0.003,
        "model": "acme/m1",
    },
    "host/sessions": {"sessions": []},
    "host/loadSession": {},
    "host/forkSession": {"parentID": "6f1c", "messageCount": 1},
    "host/setSessionTitle": {},
    "host/sessionTitle": {"title": ""},
    "host/appendSessionEntry": {},
    "host/appendCustomMessage": {},
    "host/setLabel": {},
    "host/branchSession": {},
    "host/branchSessionWithSummary": {},
    "host/resetSessionLeaf": {},
    "host/sessionEntryInfos": {"entries": [_ENTRY]},
    "host/sessionFullTree": {"nodes": [{**_ENTRY, "onActivePath": True, "depth": 0, "preview": "hi"}]},
    "host/availableModels": _models,
    "host/switchModel": {},
    "host/syncModels": {"updated": 1},
    "host/writeModels": {"modelsWritten": 1},
    "host/runBackground": {},
    "host/cancelBackground": {},
    "host/isBackgroundRunning": {"running": False},
    "host/waitForIdle": {},
    "host/toggleStepMode": {"on": True},
    "host/requestQuit": {},
    "host/abort": {},
    "host/hasCompactor": lambda host, _params: {"present": bool(host.registered("register/compactor"))},
    "host/triggerCompact": _compact,
    "host/showPicker": _pick,
    "host/askUser": _ask,
    "host/publish": _publish,
    "host/subscribe": _subscribe,
    "host/commands": lambda host, _params: {
        "commands": [{"name": name, "description": host.commands[name].get("description", "")} for name in sorted(host.commands)]
    },
    "host/shortcuts": lambda host, _params: {
        "shortcuts": {
            params["key"]: {"description": params.get("description", "")} for params in host.registered("register/shortcut")
        }
    },
    "host/promptSections": lambda host, _params: {
        "sections": [{"title": params["title"]} for params in host.registered("register/promptSection")]
    },
    "host/extInfos": _infos,
    "host/extensionsDir": lambda host, _params: {"path": str(host.config_dir.parent)},
    "host/undoSnapshots": {"snapshots": {}},
    "host/undoRestore": _undo,
}
