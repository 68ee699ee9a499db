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

from serai import errors
from serai.dialects.piglet import service_messages
from serai.dialects.piglet.messages import ContentBlock, Wire
from serai.dialects.piglet.methods import Method
from serai.dialects.piglet.service_messages import HostTokenUsage, HostToolInfo, Nothing
from serai.limits import HostLimits
from serai.wire import codec

INVALID_PARAMS = -32602
FAILED = -32603
NOT_FOUND = -32604  # spec piglet 2.4

Data = dict[str, Any]


class ServiceCall(NamedTuple):
    """As `host.adapter.Services.ask` wants it."""

    group: str
    what: str
    arguments: Data


# -- arguments


def _to_plain(value: Any) -> Any:
    """Objects of the protocol as JSON data under our own names; opaque data stay as they are."""
    if isinstance(value, msgspec.Struct):
        return {name: _to_plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict) and value and isinstance(next(iter(value.values())), msgspec.Struct):
        return {key: _to_plain(item) for key, item in value.items()}
    return value


def _rename(**names: str) -> Callable[[Any], Data]:
    """The same, where the service has another word: `theirs=ours`."""

    def convert(params: Any) -> Data:
        return {names.get(name, name): value for name, value in _to_plain(params).items()}

    return convert


def _fill_list(name: str) -> Callable[[Any], Data]:
    """A list that may be null, for a service that wants one."""
    return lambda params: {**_to_plain(params), name: _to_plain(getattr(params, name)) or []}


# -- answers


def _return_nothing(_data: Data) -> Wire:
    """FIX-28: it is done, whatever the service has to tell of it."""
    return Nothing()


def _build_struct(kind: type[Wire], data: Mapping[str, Any]) -> Any:
    """What the protocol has no word for is left out."""
    return kind(**{name: data[name] for name in kind.__struct_fields__ if name in data})


def _to(kind: type[Wire]) -> Callable[[Data], Wire]:
    return lambda data: _build_struct(kind, data)


def _to_list(kind: type[Wire], item: type[Wire], ours: str, theirs: str = "") -> Callable[[Data], Wire]:
    """A list of objects; `ours` is its name among the data."""
    return lambda data: kind(**{theirs or ours: [_build_struct(item, one) for one in data[ours]]})


def _to_tool_info(data: Mapping[str, Any]) -> HostToolInfo:
    return HostToolInfo(data["name"], data.get("description", ""), data.get("schema"), data.get("deferred", False))


def _to_tools_result(data: Data) -> Wire:
    return service_messages.HostListToolsResult([_to_tool_info(tool) for tool in data["tools"]])


def _to_execute_result(data: Data) -> Wire:
    content = [_to_content_block(block) for block in data["content"]]
    return service_messages.HostExecuteToolResult(content, data.get("is_error", False), data.get("code", ""), data.get("hint", ""))


def _to_content_block(block: Mapping[str, Any]) -> ContentBlock:
    """The protocol has texts and images; anything else is told as the text that it is in JSON."""
    match block["type"]:
        case "text":
            return ContentBlock("text", text=block["text"])
        case "image":
            return ContentBlock("image", data=block["data"], mime=block.get("mime", ""))
        case _:
            return ContentBlock("text", text=msgspec.json.encode(block.get("native")).decode())


def _to_chat_result(data: Data) -> Wire:
    return service_messages.HostChatResult(data["text"], _build_struct(HostTokenUsage, data["usage"]))


def _to_run_result(data: Data) -> Wire:
    return service_messages.HostAgentRunResult(data["text"], data["turns"], _build_struct(HostTokenUsage, data["usage"]))


def _to_snapshot_result(data: Data) -> Wire:
    return service_messages.HostLLMSnapshotResult(data["system"], data["messages"], [_to_tool_info(tool) for tool in data["tools"]])


def _to_shortcuts_result(data: Data) -> Wire:
    return service_messages.HostShortcutsResult(
        {key: _build_struct(service_messages.HostShortcutInfo, one) for key, one in data["shortcuts"].items()}
    )


def _to_sections_result(data: Data) -> Wire:
    found = [service_messages.HostPromptSectionInfo(one["title"], one.get("tokens", 0)) for one in data["sections"]]
    return service_messages.HostPromptSectionsResult(found)


def _to_guest_info(data: Mapping[str, Any]) -> service_messages.WireExtInfo:
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return _build_struct(service_messages.WireExtInfo, lists)  # type: ignore[no-any-return]


def _to_guests_result(data: Data) -> Wire:
    return service_messages.HostExtInfosResult([_to_guest_info(one) for one in data["guests"]])


# -- the table


class ServiceMethod(NamedTuple):
    """`prefix` begins what is told of a failure; `doing` is what was cancelled or took too long; `bad` is told of arguments that
    make no sense, where the protocol has words of its own for that.
    """

    group: str
    what: str
    result: Callable[[Data], Wire] = _return_nothing
    arguments: Callable[[Any], Data] = _to_plain
    prefix: str = ""
    doing: str = ""
    bad: str = ""


SERVICES: dict[str, ServiceMethod] = {
    Method.HOST_LIST_TOOLS: ServiceMethod("tools", "list", _to_tools_result),
    Method.HOST_EXECUTE_TOOL: ServiceMethod("tools", "call", _to_execute_result, _rename(args="arguments"), doing="tool execution"),
    Method.HOST_ACTIVATE_TOOL: ServiceMethod("tools", "activate"),
    Method.HOST_SET_TOOL_FILTER: ServiceMethod("tools", "filter"),
    Method.HOST_TOOL_DEFS: ServiceMethod(
        "tools", "names", _to_list(service_messages.HostToolDefsResult, service_messages.HostToolDefInfo, "tools")
    ),
    Method.HOST_CONFIG_GET: ServiceMethod("config", "get", _to(service_messages.HostConfigGetResult), _fill_list("keys")),
    Method.HOST_CONFIG_READ_EXT: ServiceMethod(
        "config", "read", _to(service_messages.HostConfigReadExtResult), prefix="read extension config: "
    ),
    Method.HOST_AUTH_GET_KEY: ServiceMethod("credentials", "key", _to(service_messages.HostAuthGetKeyResult)),
    Method.HOST_CHAT: ServiceMethod("chat", "chat", _to_chat_result, prefix="chat error: ", doing="chat"),
    # Its words are those of a chat where it takes too long (spec piglet 2.7).
    Method.HOST_AGENT_RUN: ServiceMethod("chat", "run", _to_run_result, prefix="agent error: ", doing="chat"),
    Method.HOST_CONVERSATION_MESSAGES: ServiceMethod(
        "conversation", "messages", _to(service_messages.HostConversationMessagesResult)
    ),
    Method.HOST_SET_CONVERSATION_MESSAGES: ServiceMethod("conversation", "set", prefix="set conversation messages: "),
    Method.HOST_LLM_SNAPSHOT: ServiceMethod("conversation", "snapshot", _to_snapshot_result),
    Method.HOST_LAST_ASSISTANT_TEXT: ServiceMethod("conversation", "last_text", _to(service_messages.HostLastAssistantTextResult)),
    Method.HOST_SESSION_STATS: ServiceMethod("conversation", "stats", _to(service_messages.HostSessionStatsResult)),
    Method.HOST_SESSIONS: ServiceMethod(
        "sessions",
        "list",
        _to_list(service_messages.HostSessionsResult, service_messages.WireSessionInfo, "sessions"),
        prefix="sessions: ",
    ),
    Method.HOST_LOAD_SESSION: ServiceMethod("sessions", "load", prefix="load session: "),
    Method.HOST_FORK_SESSION: ServiceMethod(
        "sessions", "fork", _to(service_messages.HostForkSessionResult), prefix="fork session: "
    ),
    Method.HOST_SET_SESSION_TITLE: ServiceMethod("sessions", "set_title", prefix="set session title: "),
    Method.HOST_SESSION_TITLE: ServiceMethod("sessions", "title", _to(service_messages.HostSessionTitleResult)),
    Method.HOST_APPEND_SESSION_ENTRY: ServiceMethod("sessions", "append", prefix="append session entry: "),
    Method.HOST_APPEND_CUSTOM_MESSAGE: ServiceMethod("sessions", "say", prefix="append custom message: "),
    Method.HOST_SET_LABEL: ServiceMethod("sessions", "label", prefix="set label: "),
    Method.HOST_BRANCH_SESSION: ServiceMethod("sessions", "branch", prefix="branch session: "),
    Method.HOST_BRANCH_SESSION_SUMMARY: ServiceMethod("sessions", "branch", prefix="branch session: "),
    Method.HOST_RESET_SESSION_LEAF: ServiceMethod("sessions", "reset", prefix="reset session leaf: "),
    Method.HOST_SESSION_ENTRY_INFOS: ServiceMethod(
        "sessions", "entries", _to_list(service_messages.HostSessionEntryInfosResult, service_messages.WireEntryInfo, "entries")
    ),
    Method.HOST_SESSION_FULL_TREE: ServiceMethod(
        "sessions", "tree", _to_list(service_messages.HostSessionFullTreeResult, service_messages.WireTreeNode, "nodes")
    ),
    Method.HOST_AVAILABLE_MODELS: ServiceMethod(
        "models", "list", _to_list(service_messages.HostAvailableModelsResult, service_messages.WireModelInfo, "models")
    ),
    Method.HOST_SWITCH_MODEL: ServiceMethod(
        "models",
        "switch",
        arguments=_rename(model_id="model", persist_default="persist"),
        prefix="switch model: ",
        bad="modelId is required",
    ),
    Method.HOST_SYNC_MODELS: ServiceMethod("models", "sync", _to(service_messages.HostSyncModelsResult), prefix="sync models: "),
    Method.HOST_WRITE_MODELS: ServiceMethod(
        "models", "write", _to(service_messages.HostWriteModelsResult), prefix="write models: "
    ),
    Method.HOST_RUN_BACKGROUND: ServiceMethod("background", "start", prefix="run background: "),
    Method.HOST_CANCEL_BACKGROUND: ServiceMethod("background", "cancel", prefix="cancel background: "),
    Method.HOST_IS_BACKGROUND_RUNNING: ServiceMethod("background", "running", _to(service_messages.HostIsBackgroundRunningResult)),
    Method.HOST_WAIT_FOR_IDLE: ServiceMethod("control", "wait_idle", prefix="wait for idle: ", doing="wait for idle"),
    Method.HOST_TOGGLE_STEP_MODE: ServiceMethod("control", "step_mode", _to(service_messages.HostToggleStepModeResult)),
    Method.HOST_REQUEST_QUIT: ServiceMethod("control", "quit"),
    Method.HOST_ABORT: ServiceMethod("control", "abort"),
    # A guest asks for the slot that guests fill; the summary that Serai makes of its own is not theirs.
    Method.HOST_HAS_COMPACTOR: ServiceMethod(
        "control", "has_compactor", lambda data: service_messages.HostHasCompactorResult(data["registered"])
    ),
    Method.HOST_TRIGGER_COMPACT: ServiceMethod(
        "control",
        "compact",
        _to(service_messages.HostTriggerCompactResult),
        lambda _params: {"registered": True},
        prefix="compact failed: ",
        doing="compact",
    ),
    Method.HOST_SHOW_PICKER: ServiceMethod(
        "dialogs", "pick", _to(service_messages.HostShowPickerResult), _fill_list("items"), doing="picker"
    ),
    Method.HOST_ASK_USER: ServiceMethod(
        "dialogs",
        "ask",
        _to(service_messages.HostAskUserResult),
        _fill_list("choices"),
        doing="question",
        bad="askUser: choices must not be empty",
    ),
    Method.HOST_PUBLISH: ServiceMethod("bus", "publish"),
    Method.HOST_SUBSCRIBE: ServiceMethod("bus", "subscribe", _to(service_messages.HostSubscribeResult)),
    Method.HOST_COMMANDS: ServiceMethod(
        "guests", "commands", _to_list(service_messages.HostCommandsResult, service_messages.HostCommandInfo, "commands")
    ),
    Method.HOST_SHORTCUTS: ServiceMethod("guests", "shortcuts", _to_shortcuts_result),
    Method.HOST_PROMPT_SECTIONS: ServiceMethod("guests", "sections", _to_sections_result),
    Method.HOST_EXT_INFOS: ServiceMethod("guests", "infos", _to_guests_result),
    # Where `configDir` lies (spec piglet 1.1), and not where Serai keeps its guests.
    Method.HOST_EXTENSIONS_DIR: ServiceMethod(
        "guests", "folder", lambda data: service_messages.HostExtensionsDirResult(data["config"])
    ),
    Method.HOST_UNDO_SNAPSHOTS: ServiceMethod("undo", "snapshots", _to(service_messages.HostUndoSnapshotsResult)),
    Method.HOST_UNDO_RESTORE: ServiceMethod("undo", "restore", prefix="restore file: "),
}

# What a guest tells and a service does (spec piglet 7.2): nobody is answered, so nobody is told what goes wrong.
NOTIFICATIONS: dict[str, tuple[str, str]] = {
    Method.SEND_MESSAGE: ("control", "send"),
    Method.STEER: ("control", "steer"),
    Method.ABORT: ("control", "abort"),
    Method.ABORT_WITH_MARKER: ("control", "abort_with_marker"),
}


def build_call(method: str, params: Wire) -> ServiceCall:
    """What to ask of the host. Data that cannot be read are `Refused`, with the code that answers it."""
    service = SERVICES[method]
    try:
        return ServiceCall(service.group, service.what, service.arguments(params))
    except codec.BAD_INPUT as error:
        raise errors.Refused(f"invalid params: {error}", code=INVALID_PARAMS) from None


def build_notification_call(method: str, params: Wire) -> ServiceCall:
    """The same for a method of `NOTIFICATIONS`."""
    group, what = NOTIFICATIONS[method]
    return ServiceCall(group, what, _to_plain(params))


def build_result(method: str, data: Any) -> Wire:
    """The result of the method, of what the service gave."""
    return SERVICES[method].result(data)


# -- what goes wrong

_CANNOT = "context canceled"
_LATE = "context deadline exceeded"
# Told as they are, whatever was asked for (spec piglet 7.1).
_ALONE = ("resolve provider: ", "no active session", "no compactor registered", "undo snapshots not available")
# What is wrong with is part of what is wrong.
_OF_SOMETHING = (errors.BadSettings, errors.BadSession, errors.NotWritten, errors.ModelFailed)
# Another word than the method's own: to keep a model means to write the settings.
_OTHERWISE: dict[tuple[str, type[errors.SeraiError]], str] = {
    (Method.HOST_SWITCH_MODEL, errors.BadSettings): "load config: ",
    (Method.HOST_SWITCH_MODEL, errors.NotWritten): "save config: ",
}


def find_fallback(method: str, error: errors.SeraiError) -> Wire | None:
    """What answers in the place of an error; None: the error does.

    A key that is not to be had is an empty one, whatever the reason (design rule 13); without an agent of ours there is no
    conversation to show and no step mode to switch on.
    """
    if method == Method.HOST_AUTH_GET_KEY:
        return service_messages.HostAuthGetKeyResult("")
    if not isinstance(error, errors.NotCapable):
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


def build_error(method: str, error: errors.SeraiError) -> tuple[int, str]:
    """The code and the words of the error that answers a request (spec piglet 2.4, 7.1)."""
    service = SERVICES[method]
    text = _format_error(error)
    if isinstance(error, errors.NoTool | errors.NoSnapshot):
        return NOT_FOUND, text
    if isinstance(error, errors.BadRequest):
        rest = text.removeprefix(f"{service.group}.{service.what}: ")
        if rest != text:  # they could not be read at all
            return INVALID_PARAMS, f"invalid params: {rest}"
        if service.bad:
            return (INVALID_PARAMS if method == Method.HOST_ASK_USER else FAILED), service.bad
        text = text.removeprefix(f"{service.what}: ")
    if text.startswith(_ALONE):
        return FAILED, text
    return FAILED, _OTHERWISE.get((method, type(error)), service.prefix) + text


def describe_cancelled(method: str) -> str:
    """The words for a request that the guest itself has cancelled (FIX-7)."""
    return f"{_describe_request(method)} cancelled: {_CANNOT}"


def describe_stopped(method: str) -> str:
    """The words for one that was under way when the guest was stopped (spec piglet 7.1, 8.0)."""
    return _describe_end(method, _CANNOT)


def describe_expired(method: str) -> str:
    """The words for one that took longer than `get_timeout` (spec piglet 2.7)."""
    return _describe_end(method, _LATE)


def get_timeout(method: str, limits: HostLimits) -> float | None:
    """How long the request may take."""
    if method in (Method.HOST_EXECUTE_TOOL, Method.HOST_CHAT, Method.HOST_AGENT_RUN):
        return limits.service
    return limits.compact if method == Method.HOST_TRIGGER_COMPACT else limits.call


def _describe_end(method: str, why: str) -> str:
    if method in (Method.HOST_EXECUTE_TOOL, Method.HOST_CHAT, Method.HOST_AGENT_RUN):
        return f"{_describe_request(method)} cancelled: {why}"
    prefix = SERVICES[method].prefix if method in SERVICES else ""
    return f"{prefix or f'{_describe_request(method)}: '}{why}"


def _describe_request(method: str) -> str:
    """A request may be cancelled before anybody has seen that there is no such method."""
    return SERVICES[method].doing or method if method in SERVICES else method


def _format_error(error: errors.SeraiError) -> str:
    """Without who is concerned, where that is the guest that asks, and without advice for people."""
    text = f"{error.who}: {error.message}" if isinstance(error, _OF_SOMETHING) and error.who else error.message
    return text if error.limit is None else f"{text} ({error.limit})"
