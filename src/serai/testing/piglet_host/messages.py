"""What an extension may send (spec piglet 4, 5 and 7), what can be wrong with a message, and the default answers to its requests.

Each of the 52 requests of an extension has an answer when the test gives none (spec piglet 7.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from serai.testing.zot_host import is_base64, reject_constant

Message = dict[str, Any]
LONGEST = 4 * 1024 * 1024  # bytes of a line without its end (spec piglet 2.2)

# The fields of each message: `name:kind`, and `!` where a host can do nothing without it.
REGISTER = {
    "register/tool": "name:text! description:text parameters:any promptHint:text deferred:flag interruptBehavior:text",
    "register/command": "name:text! description:text immediate:flag",
    "register/promptSection": "title:text! content:text order:int tokenHint:int",
    "register/interceptor": "name:text! priority:int",
    "register/eventHandler": "name:text! priority:int events:texts",
    "register/shortcut": "key:text! description:text",
    "register/messageHook": "name:text! priority:int",
    "register/inputTransformer": "name:text! priority:int",
    "register/compactor": "name:text! threshold:int",
    "register/provider": "api:text!",
}
NOTIFICATIONS = REGISTER | {
    "notify": "message:text level:text",
    "showMessage": "text:text",
    "log": "level:text message:text",
    "setWidget": "key:text! placement:text content:text",
    "showOverlay": "key:text! title:text content:text anchor:text width:text",
    "closeOverlay": "key:text!",
    "setInputText": "text:text",
    "sendMessage": "content:text",
    "steer": "content:text",
    "abort": "",
    "abortWithMarker": "reason:text",
    "provider/delta": "requestId:int! type:text index:int delta:text tool:object",
    "$/cancelRequest": "id:int",
}
REQUESTS = {
    "host/listTools": "filter:text",
    "host/executeTool": "name:text args:object callId:text",
    "host/config.get": "keys:texts",
    "host/config.readExtension": "name:text",
    "host/auth.getKey": "provider:text",
    "host/chat": "system:text messages:list model:text maxTokens:int",
    "host/agent.run": "system:text task:text tools:text model:text maxTurns:int",
    "host/conversationMessages": "",
    "host/llmSnapshot": "",
    "host/setConversationMessages": "messages:list",
    "host/sessions": "",
    "host/loadSession": "path:text",
    "host/forkSession": "",
    "host/setSessionTitle": "title:text",
    "host/syncModels": "",
    "host/writeModels": "overrides:object",
    "host/runBackground": "prompt:text",
    "host/cancelBackground": "",
    "host/isBackgroundRunning": "",
    "host/extInfos": "",
    "host/extensionsDir": "",
    "host/undoSnapshots": "",
    "host/undoRestore": "path:text",
    "host/lastAssistantText": "",
    "host/appendSessionEntry": "kind:text data:any",
    "host/appendCustomMessage": "role:text content:text",
    "host/waitForIdle": "",
    "host/setLabel": "targetId:text label:text",
    "host/branchSession": "entryId:text",
    "host/branchSessionWithSummary": "entryId:text summary:text",
    "host/resetSessionLeaf": "",
    "host/sessionEntryInfos": "",
    "host/sessionFullTree": "",
    "host/sessionTitle": "",
    "host/sessionStats": "",
    "host/showPicker": "title:text items:list",
    "host/askUser": "prompt:text choices:texts",
    "host/availableModels": "",
    "host/switchModel": "modelId:text persistDefault:flag",
    "host/publish": "topic:text data:any",
    "host/subscribe": "topic:text",
    "host/activateTool": "name:text",
    "host/setToolFilter": "names:texts",
    "host/toggleStepMode": "",
    "host/requestQuit": "",
    "host/abort": "",
    "host/hasCompactor": "",
    "host/triggerCompact": "",
    "host/commands": "",
    "host/toolDefs": "",
    "host/shortcuts": "",
    "host/promptSections": "",
}
# The answers to what a host asks.
RESULTS = {
    "initialize": "name:text version:text",
    "shutdown": "",
    "tool/execute": "content:blocks isError:flag errorCode:text errorHint:text",
    "command/execute": "",
    "interceptor/before": "allow:flag! args:object preview:text",
    "interceptor/after": "details:any",
    "event/dispatch": "action:action",
    "shortcut/handle": "action:action",
    "messageHook/onMessage": "injection:text",
    "inputTransformer/transform": "output:text handled:flag",
    "compact/execute": "messages:entries",
    "provider/stream": "message:object error:text",
}
ACTIONS = ("notify", "showMessage", "setSessionTitle", "setStatus", "attachImage", "detachImage", "sendMessage", "quit")
EVENTS = tuple(
    f"Event{name}"
    for name in (
        *("AgentStart", "SessionLoad", "AgentInit", "PromptBuild", "MessagePre", "TurnStart", "StreamDelta", "StreamDone"),
        *("ToolStart", "ToolUpdate", "ToolEnd", "TurnEnd", "Retry", "MaxTurns", "StepWait", "Compact", "AgentEnd"),
    )
)
_LEVELS = {"notify": ("", "info", "warn", "error"), "log": ("debug", "info", "warn", "error")}
_DELTAS = ("text_delta", "thinking_delta", "toolcall_delta", "toolcall_end")
_ENTRIES = ("user", "assistant", "tool_result")
_WORDS = {
    "text": "a string",
    "flag": "true or false",
    "int": "an integer",
    "object": "an object",
    "list": "a list",
    "texts": "a list of strings",
    "blocks": "a list of blocks",
    "entries": "a list of messages",
    "action": "an object",
}


def fold_names(value: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    """The fields of an object by the names of the protocol: their case does not count, and an exact match wins (FIX-4)."""
    by_case = {key.lower(): value[key] for key in value}
    return {name: value.get(name, by_case.get(name.lower())) for name in names if name in value or name.lower() in by_case}


def read_params(method: str, params: object) -> Message:
    """The params of a notification or request, by the names of the protocol."""
    return fold_names(params, _parse_fields((NOTIFICATIONS | REQUESTS)[method])) if isinstance(params, dict) else {}


def _parse_fields(told: str) -> dict[str, str]:
    return {name: kind for name, _, kind in (word.partition(":") for word in told.split())}


class Flaws(NamedTuple):
    """What is `wrong` with a message, so that a host cannot use it, and what is `odd`, so that a host reads over it."""

    wrong: list[str]
    odd: list[str]

    @classmethod
    def from_params(cls, method: str, params: object) -> Flaws:
        """Those of a notification or request of the protocol. Absent params are an empty object (FIX-5)."""
        flaws = cls([], [])
        fields = flaws._check_object(method, {} if params is None else params, (NOTIFICATIONS | REQUESTS)[method])
        level = fields.get("level")
        if isinstance(level, str) and level not in _LEVELS.get(method, (level,)):
            flaws.odd.append(f"there is no level {level!r}")
        if method == "register/eventHandler" and (unknown := [name for name in fields.get("events") or () if name not in EVENTS]):
            flaws.odd.append(f"there is no event {', '.join(map(str, unknown))}: it will never come")
        if method == "provider/delta" and fields.get("type") not in _DELTAS:
            flaws.odd.append(f"there is no delta of the type {fields.get('type')!r}")
        return flaws

    @classmethod
    def from_result(cls, method: str, result: object) -> Flaws:
        """Those of an answer to a request of ours."""
        flaws = cls([], [])
        if method in ("initialize", "shutdown", "command/execute"):
            if result is not None and not isinstance(result, dict):
                flaws.odd.append("the result is neither null nor an object")
            return flaws
        if result is None and method in ("event/dispatch", "shortcut/handle"):
            return flaws
        flaws._check_object(f"the result of {method}", result, RESULTS[method])
        return flaws

    def _check_object(self, what: str, value: object, told: str) -> Message:
        """Its fields, looked at; none when it is no object."""
        if not isinstance(value, dict):
            self.wrong.append(f"{what} has to be an object")
            return {}
        kinds = _parse_fields(told)
        fields = fold_names(value, kinds)
        for name, kind in kinds.items():
            if kind.endswith("!") and fields.get(name) in (None, ""):
                self.wrong.append(f"{what} needs {name} ({_WORDS[kind[:-1]]})")
            elif fields.get(name) is not None and kind != "any":
                self._check_field(name, fields[name], kind.removesuffix("!"))
        known = {name.lower() for name in kinds}
        self.odd.extend(f"{what} has no field {key}" for key in sorted(value) if key.lower() not in known)
        return fields

    def _check_field(self, name: str, value: object, kind: str) -> None:
        if not _fits(value, kind):
            self.wrong.append(f"{name} is of a wrong type: {_WORDS[kind]} is wanted")
        elif kind == "blocks" and isinstance(value, list):
            for number, block in enumerate(value):
                self._check_block(f"{name}[{number}]", block)
        elif kind == "entries" and isinstance(value, list):
            for number, entry in enumerate(value):
                fields = self._check_object(f"{name}[{number}]", entry, "type:text! data:object!")
                if fields.get("type") not in _ENTRIES:
                    self.odd.append(f"{name}[{number}] is of no known type, and left out")
        elif kind == "action":
            fields = self._check_object(name, value, "type:text! payload:any")
            if fields.get("type") not in ACTIONS:
                self.odd.append(f"there is no action {fields.get('type')!r}")

    def _check_block(self, what: str, block: object) -> None:
        fields = self._check_object(what, block, "type:text text:text data:text mime:text")
        if fields and fields.get("type") not in ("text", "image"):
            self.odd.append(f"{what} is of the type {fields.get('type')!r}, and taken for text")
        if fields.get("type") == "image" and not is_base64(fields.get("data") or ""):
            self.wrong.append(f"{what}.data is not base64 in the standard alphabet with padding")


def _fits(value: object, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "flag":
            return isinstance(value, bool)
        case "int":  # spec piglet 10.14: 4242.0 is one, too
            return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
        case "texts":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "list" | "blocks" | "entries":
            return isinstance(value, list)
    return isinstance(value, dict)


def extract_texts(result: Mapping[str, Any]) -> list[str]:
    """The texts of a tool's result, whichever SDK wrote it."""
    names = {"type": "", "text": ""}
    blocks = fold_names(result, {"content": ""}).get("content") or []
    return [block["text"] for block in (fold_names(block, names) for block in blocks) if block.get("type") != "image"]


def is_id(id: object) -> bool:
    """Ids are integers (spec piglet 2.3)."""
    return isinstance(id, int) and not isinstance(id, bool)


def parse_message(line: bytes) -> Message | None:
    """A line as a message of JSON-RPC; None when it is none at all."""
    try:
        message = json.loads(line.decode(), parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and ("method" in message or "id" in message) else None


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


class ServiceContext(Protocol):
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


def _list_tools(host: ServiceContext, _params: Params) -> dict[str, Any]:
    keys = ("name", "description", "parameters", "deferred")
    tools = sorted(host.tools.values(), key=lambda tool: tool["name"])
    return {"tools": [{key: tool[key] for key in keys if key in tool} for tool in tools]}


def _list_tool_defs(host: ServiceContext, _params: Params) -> dict[str, Any]:
    return {"tools": [{"name": name, "description": host.tools[name].get("description", "")} for name in sorted(host.tools)]}


def _execute(host: ServiceContext, params: Params) -> Any:
    """Its own tool comes back to it on the same connection (spec piglet 10.5)."""
    if params.get("name") not in host.tools:
        raise HostError(-32604, f"unknown tool: {params.get('name')}")
    return host.execute_tool(params["name"], params.get("args"), params.get("callId", ""))


def _activate(host: ServiceContext, params: Params) -> dict[str, Any]:
    if not host.tools.get(params.get("name", ""), {}).get("deferred"):
        raise HostError(-32604, f"tool not found or not deferred: {params.get('name')}")
    return {}


def _read_config(_host: ServiceContext, params: Params) -> dict[str, Any]:
    known = {"defaultModel": "acme/m1", "smallModel": "acme/m1", "agent.compactAt": 0, "agent.maxTurns": 30}
    return {"values": {key: known[key] for key in params.get("keys") or () if key in known}}


def _ask(_host: ServiceContext, params: Params) -> dict[str, Any]:
    """A person who takes the first of everything."""
    if not params.get("choices"):
        raise HostError(-32602, "askUser: choices must not be empty")
    return {"selected": params["choices"][0], "cancelled": False}


def _pick(_host: ServiceContext, params: Params) -> dict[str, Any]:
    return {"selected": params["items"][0]["id"] if params.get("items") else ""}


def _publish(host: ServiceContext, params: Params) -> dict[str, Any]:
    """The lines of the events come before the answer (spec piglet 7.1)."""
    host.publish(params.get("topic", ""), params.get("data"))
    return {}


def _subscribe(host: ServiceContext, params: Params) -> dict[str, Any]:
    return {"subscriptionId": host.subscribe(params.get("topic", ""))}


def _undo(_host: ServiceContext, params: Params) -> dict[str, Any]:
    raise HostError(-32604, f"no snapshot for path: {params.get('path')}")


def _list_models(_host: ServiceContext, _params: Params) -> dict[str, Any]:
    model = {"id": "m1", "api": "openai", "displayName": "acme/M One", "provider": "acme", "contextWindow": 8000, "current": True}
    return {"models": [model]}


def _list_extensions(host: ServiceContext, _params: Params) -> dict[str, Any]:
    info = {"name": host.name, "kind": "external", "runtime": host.manifest["runtime"]}
    return {"extensions": [info | ({"tools": sorted(host.tools)} if host.tools else {})]}


def _compact(host: ServiceContext, _params: Params) -> dict[str, Any]:
    if not host.registered("register/compactor"):
        raise HostError(-32603, "no compactor registered")
    return {"before": 20, "after": 8}


ANSWERS: dict[str, object | Callable[[ServiceContext, Params], object]] = {
    "host/listTools": _list_tools,
    "host/executeTool": _execute,
    "host/activateTool": _activate,
    "host/setToolFilter": {},
    "host/toolDefs": _list_tool_defs,
    "host/config.get": _read_config,
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
    "host/availableModels": _list_models,
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
    "host/extInfos": _list_extensions,
    "host/extensionsDir": lambda host, _params: {"path": str(host.config_dir.parent)},
    "host/undoSnapshots": {"snapshots": {}},
    "host/undoRestore": _undo,
}
