"""What becomes of a guest's request to the host (spec piglet 7.1): for each of the 52 methods `host/*` the neutral service that
does it, the arguments it takes, the answer that its data are, and the words for what goes wrong.

A neutral service is named by group and operation, takes and gives JSON data with keys in snake_case, and fails with a `SeraiError`.
`host/subscribe` has a row for its words and its answer alone: whoever serves the wire subscribes, and draws the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from serai.dialects.piglet import service_messages
from serai.dialects.piglet.messages import ContentBlock, Wire
from serai.dialects.piglet.methods import Method
from serai.dialects.piglet.service_messages import HostTokenUsage, HostToolInfo, Nothing
from serai.errors import (
    BadRequest,
    BadSession,
    BadSettings,
    ModelFailed,
    NoSnapshot,
    NotCapable,
    NoTool,
    NotWritten,
    Refused,
    SeraiError,
)
from serai.limits import Limits
from serai.wire import codec

INVALID_PARAMS = -32602
FAILED = -32603
NOT_FOUND = -32604  # spec piglet 2.4

Data = dict[str, Any]


class ServiceCall(NamedTuple):
    """As `host.services.Services.ask` wants it."""

    group: str
    what: str
    arguments: Data


# -- arguments


def _plain(value: Any) -> Any:
    """Objects of the protocol as JSON data under our own names; opaque data stay as they are."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and value and isinstance(next(iter(value.values())), msgspec.Struct):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _renamed(**names: str) -> Callable[[Any], Data]:
    """The same, where the service has another word: `theirs=ours`."""

    def arguments(params: Any) -> Data:
        return {names.get(name, name): value for name, value in _plain(params).items()}

    return arguments


def _lists(name: str) -> Callable[[Any], Data]:
    """A list that may be null, for a service that wants one."""
    return lambda params: {**_plain(params), name: _plain(getattr(params, name)) or []}


# -- answers


def _void(_data: Data) -> Wire:
    """FIX-28: it is done, whatever the service has to tell of it."""
    return Nothing()


def _made(kind: type[Wire], data: Mapping[str, Any]) -> Any:
    """What the protocol has no word for is left out."""
    return kind(**{name: data[name] for name in kind.__struct_fields__ if name in data})


def _as(kind: type[Wire]) -> Callable[[Data], Wire]:
    return lambda data: _made(kind, data)


def _each(kind: type[Wire], item: type[Wire], ours: str, theirs: str = "") -> Callable[[Data], Wire]:
    """A list of objects; `ours` is its name among the data."""
    return lambda data: kind(**{theirs or ours: [_made(item, one) for one in data[ours]]})


def _tool(data: Mapping[str, Any]) -> HostToolInfo:
    return HostToolInfo(data["name"], data.get("description", ""), data.get("schema"), data.get("deferred", False))


def _tools(data: Data) -> Wire:
    return service_messages.HostListToolsResult([_tool(tool) for tool in data["tools"]])


def _result(data: Data) -> Wire:
    content = [_block(block) for block in data["content"]]
    return service_messages.HostExecuteToolResult(content, data.get("is_error", False), data.get("code", ""), data.get("hint", ""))


def _block(block: Mapping[str, Any]) -> ContentBlock:
    """The protocol has texts and images; anything else is told as the text that it is in JSON."""
    match block["type"]:
        case "text":
            return ContentBlock("text", text=block["text"])
        case "image":
            return ContentBlock("image", data=block["data"], mime=block.get("mime", ""))
        case _:
            return ContentBlock("text", text=msgspec.json.encode(block.get("native")).decode())


def _said(data: Data) -> Wire:
    return service_messages.HostChatResult(data["text"], _made(HostTokenUsage, data["usage"]))


def _worked(data: Data) -> Wire:
    return service_messages.HostAgentRunResult(data["text"], data["turns"], _made(HostTokenUsage, data["usage"]))


def _snapshot(data: Data) -> Wire:
    return service_messages.HostLLMSnapshotResult(data["system"], data["messages"], [_tool(tool) for tool in data["tools"]])


def _shortcuts(data: Data) -> Wire:
    return service_messages.HostShortcutsResult(
        {key: _made(service_messages.HostShortcutInfo, one) for key, one in data["shortcuts"].items()}
    )


def _sections(data: Data) -> Wire:
    found = [service_messages.HostPromptSectionInfo(one["title"], one.get("tokens", 0)) for one in data["sections"]]
    return service_messages.HostPromptSectionsResult(found)


def _guest(data: Mapping[str, Any]) -> service_messages.WireExtInfo:
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return _made(service_messages.WireExtInfo, lists)  # type: ignore[no-any-return]


def _guests(data: Data) -> Wire:
    return service_messages.HostExtInfosResult([_guest(one) for one in data["guests"]])


# -- the table


class ServiceMethod(NamedTuple):
    """`prefix` begins what is told of a failure; `doing` is what was cancelled or took too long; `bad` is told of arguments that
    make no sense, where the protocol has words of its own for that.
    """

    group: str
    what: str
    result: Callable[[Data], Wire] = _void
    arguments: Callable[[Any], Data] = _plain
    prefix: str = ""
    doing: str = ""
    bad: str = ""


SERVICES: dict[str, ServiceMethod] = {
    Method.HOST_LIST_TOOLS: ServiceMethod("tools", "list", _tools),
    Method.HOST_EXECUTE_TOOL: ServiceMethod("tools", "call", _result, _renamed(args="arguments"), doing="tool execution"),
    Method.HOST_ACTIVATE_TOOL: ServiceMethod("tools", "activate"),
    Method.HOST_SET_TOOL_FILTER: ServiceMethod("tools", "filter"),
    Method.HOST_TOOL_DEFS: ServiceMethod(
        "tools", "names", _each(service_messages.HostToolDefsResult, service_messages.HostToolDefInfo, "tools")
    ),
    Method.HOST_CONFIG_GET: ServiceMethod("config", "get", _as(service_messages.HostConfigGetResult), _lists("keys")),
    Method.HOST_CONFIG_READ_EXT: ServiceMethod(
        "config", "read", _as(service_messages.HostConfigReadExtResult), prefix="read extension config: "
    ),
    Method.HOST_AUTH_GET_KEY: ServiceMethod("credentials", "key", _as(service_messages.HostAuthGetKeyResult)),
    Method.HOST_CHAT: ServiceMethod("chat", "chat", _said, prefix="chat error: ", doing="chat"),
    # Its words are those of a chat where it takes too long (spec piglet 2.7).
    Method.HOST_AGENT_RUN: ServiceMethod("chat", "run", _worked, prefix="agent error: ", doing="chat"),
    Method.HOST_CONVERSATION_MESSAGES: ServiceMethod(
        "conversation", "messages", _as(service_messages.HostConversationMessagesResult)
    ),
    Method.HOST_SET_CONVERSATION_MESSAGES: ServiceMethod("conversation", "set", prefix="set conversation messages: "),
    Method.HOST_LLM_SNAPSHOT: ServiceMethod("conversation", "snapshot", _snapshot),
    Method.HOST_LAST_ASSISTANT_TEXT: ServiceMethod("conversation", "last_text", _as(service_messages.HostLastAssistantTextResult)),
    Method.HOST_SESSION_STATS: ServiceMethod("conversation", "stats", _as(service_messages.HostSessionStatsResult)),
    Method.HOST_SESSIONS: ServiceMethod(
        "sessions",
        "list",
        _each(service_messages.HostSessionsResult, service_messages.WireSessionInfo, "sessions"),
        prefix="sessions: ",
    ),
    Method.HOST_LOAD_SESSION: ServiceMethod("sessions", "load", prefix="load session: "),
    Method.HOST_FORK_SESSION: ServiceMethod(
        "sessions", "fork", _as(service_messages.HostForkSessionResult), prefix="fork session: "
    ),
    Method.HOST_SET_SESSION_TITLE: ServiceMethod("sessions", "set_title", prefix="set session title: "),
    Method.HOST_SESSION_TITLE: ServiceMethod("sessions", "title", _as(service_messages.HostSessionTitleResult)),
    Method.HOST_APPEND_SESSION_ENTRY: ServiceMethod("sessions", "append", prefix="append session entry: "),
    Method.HOST_APPEND_CUSTOM_MESSAGE: ServiceMethod("sessions", "say", prefix="append custom message: "),
    Method.HOST_SET_LABEL: ServiceMethod("sessions", "label", prefix="set label: "),
    Method.HOST_BRANCH_SESSION: ServiceMethod("sessions", "branch", prefix="branch session: "),
    Method.HOST_BRANCH_SESSION_SUMMARY: ServiceMethod("sessions", "branch", prefix="branch session: "),
    Method.HOST_RESET_SESSION_LEAF: ServiceMethod("sessions", "reset", prefix="reset session leaf: "),
    Method.HOST_SESSION_ENTRY_INFOS: ServiceMethod(
        "sessions", "entries", _each(service_messages.HostSessionEntryInfosResult, service_messages.WireEntryInfo, "entries")
    ),
    Method.HOST_SESSION_FULL_TREE: ServiceMethod(
        "sessions", "tree", _each(service_messages.HostSessionFullTreeResult, service_messages.WireTreeNode, "nodes")
    ),
    Method.HOST_AVAILABLE_MODELS: ServiceMethod(
        "models", "list", _each(service_messages.HostAvailableModelsResult, service_messages.WireModelInfo, "models")
    ),
    Method.HOST_SWITCH_MODEL: ServiceMethod(
        "models",
        "switch",
        arguments=_renamed(model_id="model", persist_default="persist"),
        prefix="switch model: ",
        bad="modelId is required",
    ),
    Method.HOST_SYNC_MODELS: ServiceMethod("models", "sync", _as(service_messages.HostSyncModelsResult), prefix="sync models: "),
    Method.HOST_WRITE_MODELS: ServiceMethod(
        "models", "write", _as(service_messages.HostWriteModelsResult), prefix="write models: "
    ),
    Method.HOST_RUN_BACKGROUND: ServiceMethod("background", "start", prefix="run background: "),
    Method.HOST_CANCEL_BACKGROUND: ServiceMethod("background", "cancel", prefix="cancel background: "),
    Method.HOST_IS_BACKGROUND_RUNNING: ServiceMethod("background", "running", _as(service_messages.HostIsBackgroundRunningResult)),
    Method.HOST_WAIT_FOR_IDLE: ServiceMethod("control", "wait_idle", prefix="wait for idle: ", doing="wait for idle"),
    Method.HOST_TOGGLE_STEP_MODE: ServiceMethod("control", "step_mode", _as(service_messages.HostToggleStepModeResult)),
    Method.HOST_REQUEST_QUIT: ServiceMethod("control", "quit"),
    Method.HOST_ABORT: ServiceMethod("control", "abort"),
    # A guest asks for the slot that guests fill; the summary that Serai makes of its own is not theirs.
    Method.HOST_HAS_COMPACTOR: ServiceMethod(
        "control", "has_compactor", lambda data: service_messages.HostHasCompactorResult(data["registered"])
    ),
    Method.HOST_TRIGGER_COMPACT: ServiceMethod(
        "control",
        "compact",
        _as(service_messages.HostTriggerCompactResult),
        lambda _params: {"registered": True},
        prefix="compact failed: ",
        doing="compact",
    ),
    Method.HOST_SHOW_PICKER: ServiceMethod(
        "dialogs", "pick", _as(service_messages.HostShowPickerResult), _lists("items"), doing="picker"
    ),
    Method.HOST_ASK_USER: ServiceMethod(
        "dialogs",
        "ask",
        _as(service_messages.HostAskUserResult),
        _lists("choices"),
        doing="question",
        bad="askUser: choices must not be empty",
    ),
    Method.HOST_PUBLISH: ServiceMethod("bus", "publish"),
    Method.HOST_SUBSCRIBE: ServiceMethod("bus", "subscribe", _as(service_messages.HostSubscribeResult)),
    Method.HOST_COMMANDS: ServiceMethod(
        "guests", "commands", _each(service_messages.HostCommandsResult, service_messages.HostCommandInfo, "commands")
    ),
    Method.HOST_SHORTCUTS: ServiceMethod("guests", "shortcuts", _shortcuts),
    Method.HOST_PROMPT_SECTIONS: ServiceMethod("guests", "sections", _sections),
    Method.HOST_EXT_INFOS: ServiceMethod("guests", "infos", _guests),
    # Where `configDir` lies (spec piglet 1.1), and not where Serai keeps its guests.
    Method.HOST_EXTENSIONS_DIR: ServiceMethod(
        "guests", "folder", lambda data: service_messages.HostExtensionsDirResult(data["config"])
    ),
    Method.HOST_UNDO_SNAPSHOTS: ServiceMethod("undo", "snapshots", _as(service_messages.HostUndoSnapshotsResult)),
    Method.HOST_UNDO_RESTORE: ServiceMethod("undo", "restore", prefix="restore file: "),
}

# What a guest tells and a service does (spec piglet 7.2): nobody is answered, so nobody is told what goes wrong.
NOTIFICATIONS: dict[str, tuple[str, str]] = {
    Method.SEND_MESSAGE: ("control", "send"),
    Method.STEER: ("control", "steer"),
    Method.ABORT: ("control", "abort"),
    Method.ABORT_WITH_MARKER: ("control", "abort_with_marker"),
}


def call_for(method: str, params: Wire) -> ServiceCall:
    """What to ask of the host. Data that cannot be read are `Refused`, with the code that answers it."""
    service = SERVICES[method]
    try:
        return ServiceCall(service.group, service.what, service.arguments(params))
    except codec.BAD_INPUT as error:
        raise Refused(f"invalid params: {error}", code=INVALID_PARAMS) from None


def call_for_notification(method: str, params: Wire) -> ServiceCall:
    """The same for a method of `NOTIFICATIONS`."""
    group, what = NOTIFICATIONS[method]
    return ServiceCall(group, what, _plain(params))


def result_for(method: str, data: Any) -> Wire:
    """The result of the method, of what the service gave."""
    return SERVICES[method].result(data)


# -- what goes wrong

_CANNOT = "context canceled"
_LATE = "context deadline exceeded"
# Told as they are, whatever was asked for (spec piglet 7.1).
_ALONE = ("resolve provider: ", "no active session", "no compactor registered", "undo snapshots not available")
# What is wrong with is part of what is wrong.
_OF_SOMETHING = (BadSettings, BadSession, NotWritten, ModelFailed)
# Another word than the method's own: to keep a model means to write the settings.
_OTHERWISE: dict[tuple[str, type[SeraiError]], str] = {
    (Method.HOST_SWITCH_MODEL, BadSettings): "load config: ",
    (Method.HOST_SWITCH_MODEL, NotWritten): "save config: ",
}


def fallback_for(method: str, error: SeraiError) -> Wire | None:
    """What answers in the place of an error; None: the error does.

    A key that is not to be had is an empty one, whatever the reason (design rule 13); without an agent of ours there is no
    conversation to show and no step mode to switch on.
    """
    if method == Method.HOST_AUTH_GET_KEY:
        return service_messages.HostAuthGetKeyResult("")
    if not isinstance(error, NotCapable):
        return None
    match method:
        case Method.HOST_CONVERSATION_MESSAGES:
            return service_messages.HostConversationMessagesResult(None)
        case Method.HOST_LAST_ASSISTANT_TEXT:
            return service_messages.HostLastAssistantTextResult("")
        case Method.HOST_TOGGLE_STEP_MODE:
            return service_messages.HostToggleStepModeResult(False)
        case _:
            return None


def error_for(method: str, error: SeraiError) -> tuple[int, str]:
    """The code and the words of the error that answers a request (spec piglet 2.4, 7.1)."""
    service = SERVICES[method]
    text = _words(error)
    if isinstance(error, NoTool | NoSnapshot):
        return NOT_FOUND, text
    if isinstance(error, BadRequest):
        rest = text.removeprefix(f"{service.group}.{service.what}: ")
        if rest != text:  # they could not be read at all
            return INVALID_PARAMS, f"invalid params: {rest}"
        if service.bad:
            return (INVALID_PARAMS if method == Method.HOST_ASK_USER else FAILED), service.bad
        text = text.removeprefix(f"{service.what}: ")
    if text.startswith(_ALONE):
        return FAILED, text
    return FAILED, _OTHERWISE.get((method, type(error)), service.prefix) + text


def cancelled(method: str) -> str:
    """The words for a request that the guest itself has cancelled (FIX-7)."""
    return f"{_doing(method)} cancelled: {_CANNOT}"


def stopped(method: str) -> str:
    """The words for one that was under way when the guest was stopped (spec piglet 7.1, 8.0)."""
    return _over(method, _CANNOT)


def expired(method: str) -> str:
    """The words for one that took longer than `timeout_of` (spec piglet 2.7)."""
    return _over(method, _LATE)


def timeout_of(method: str, limits: Limits) -> float | None:
    """How long the request may take."""
    if method in (Method.HOST_EXECUTE_TOOL, Method.HOST_CHAT, Method.HOST_AGENT_RUN):
        return limits.service
    return limits.compact if method == Method.HOST_TRIGGER_COMPACT else limits.call


def _over(method: str, why: str) -> str:
    if method in (Method.HOST_EXECUTE_TOOL, Method.HOST_CHAT, Method.HOST_AGENT_RUN):
        return f"{_doing(method)} cancelled: {why}"
    prefix = SERVICES[method].prefix if method in SERVICES else ""
    return f"{prefix or f'{_doing(method)}: '}{why}"


def _doing(method: str) -> str:
    """A request may be cancelled before anybody has seen that there is no such method."""
    return SERVICES[method].doing or method if method in SERVICES else method


def _words(error: SeraiError) -> str:
    """Without who is concerned, where that is the guest that asks, and without advice for people."""
    text = f"{error.who}: {error.message}" if isinstance(error, _OF_SOMETHING) and error.who else error.message
    return text if error.limit is None else f"{text} ({error.limit})"
