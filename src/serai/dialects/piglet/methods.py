"""The 88 methods of the wire, in the order of the seed: who sends each, what it carries, and what answers it (spec piglet 8.3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, NamedTuple

from serai.dialects.piglet import messages, service_messages
from serai.dialects.piglet.messages import Wire
from serai.wire.codec import FoldingDecoder, decode


class Method(StrEnum):
    """Their names."""

    INITIALIZE = "initialize"
    SHUTDOWN = "shutdown"
    CANCEL_REQUEST = "$/cancelRequest"
    REGISTER_TOOL = "register/tool"
    REGISTER_COMMAND = "register/command"
    REGISTER_PROMPT_SECTION = "register/promptSection"
    REGISTER_INTERCEPTOR = "register/interceptor"
    REGISTER_EVENT_HANDLER = "register/eventHandler"
    REGISTER_SHORTCUT = "register/shortcut"
    REGISTER_MESSAGE_HOOK = "register/messageHook"
    REGISTER_COMPACTOR = "register/compactor"
    REGISTER_PROVIDER = "register/provider"
    PROVIDER_STREAM = "provider/stream"
    PROVIDER_DELTA = "provider/delta"
    COMPACT_EXECUTE = "compact/execute"
    TOOL_EXECUTE = "tool/execute"
    COMMAND_EXECUTE = "command/execute"
    INTERCEPTOR_BEFORE = "interceptor/before"
    INTERCEPTOR_AFTER = "interceptor/after"
    EVENT_DISPATCH = "event/dispatch"
    SHORTCUT_HANDLE = "shortcut/handle"
    MESSAGE_HOOK_ON_MESSAGE = "messageHook/onMessage"
    HOST_LIST_TOOLS = "host/listTools"
    HOST_EXECUTE_TOOL = "host/executeTool"
    HOST_CONFIG_GET = "host/config.get"
    HOST_CONFIG_READ_EXT = "host/config.readExtension"
    HOST_AUTH_GET_KEY = "host/auth.getKey"
    HOST_CHAT = "host/chat"
    HOST_AGENT_RUN = "host/agent.run"
    HOST_CONVERSATION_MESSAGES = "host/conversationMessages"
    HOST_LLM_SNAPSHOT = "host/llmSnapshot"
    HOST_SET_CONVERSATION_MESSAGES = "host/setConversationMessages"
    HOST_SESSIONS = "host/sessions"
    HOST_LOAD_SESSION = "host/loadSession"
    HOST_FORK_SESSION = "host/forkSession"
    HOST_SET_SESSION_TITLE = "host/setSessionTitle"
    HOST_SYNC_MODELS = "host/syncModels"
    HOST_WRITE_MODELS = "host/writeModels"
    HOST_RUN_BACKGROUND = "host/runBackground"
    HOST_CANCEL_BACKGROUND = "host/cancelBackground"
    HOST_IS_BACKGROUND_RUNNING = "host/isBackgroundRunning"
    HOST_EXT_INFOS = "host/extInfos"
    HOST_EXTENSIONS_DIR = "host/extensionsDir"
    HOST_UNDO_SNAPSHOTS = "host/undoSnapshots"
    HOST_UNDO_RESTORE = "host/undoRestore"
    HOST_LAST_ASSISTANT_TEXT = "host/lastAssistantText"
    HOST_APPEND_SESSION_ENTRY = "host/appendSessionEntry"
    HOST_APPEND_CUSTOM_MESSAGE = "host/appendCustomMessage"
    HOST_WAIT_FOR_IDLE = "host/waitForIdle"
    HOST_SET_LABEL = "host/setLabel"
    HOST_BRANCH_SESSION = "host/branchSession"
    HOST_BRANCH_SESSION_SUMMARY = "host/branchSessionWithSummary"
    HOST_RESET_SESSION_LEAF = "host/resetSessionLeaf"
    HOST_SESSION_ENTRY_INFOS = "host/sessionEntryInfos"
    HOST_SESSION_FULL_TREE = "host/sessionFullTree"
    HOST_SESSION_TITLE = "host/sessionTitle"
    HOST_SESSION_STATS = "host/sessionStats"
    HOST_SHOW_PICKER = "host/showPicker"
    HOST_ASK_USER = "host/askUser"
    HOST_AVAILABLE_MODELS = "host/availableModels"
    HOST_SWITCH_MODEL = "host/switchModel"
    HOST_PUBLISH = "host/publish"
    HOST_SUBSCRIBE = "host/subscribe"
    HOST_ACTIVATE_TOOL = "host/activateTool"
    HOST_SET_TOOL_FILTER = "host/setToolFilter"
    HOST_TOGGLE_STEP_MODE = "host/toggleStepMode"
    HOST_REQUEST_QUIT = "host/requestQuit"
    HOST_ABORT = "host/abort"
    HOST_HAS_COMPACTOR = "host/hasCompactor"
    HOST_TRIGGER_COMPACT = "host/triggerCompact"
    HOST_COMMANDS = "host/commands"
    HOST_TOOL_DEFS = "host/toolDefs"
    HOST_SHORTCUTS = "host/shortcuts"
    HOST_PROMPT_SECTIONS = "host/promptSections"
    HOST_EVENT_BUS_EVENT = "eventBus/event"
    REGISTER_INPUT_TRANSFORMER = "register/inputTransformer"
    INPUT_TRANSFORM = "inputTransformer/transform"
    SET_WIDGET = "setWidget"
    SHOW_OVERLAY = "showOverlay"
    CLOSE_OVERLAY = "closeOverlay"
    NOTIFY = "notify"
    LOG = "log"
    SHOW_MESSAGE = "showMessage"
    SEND_MESSAGE = "sendMessage"
    SET_INPUT_TEXT = "setInputText"
    STEER = "steer"
    ABORT_WITH_MARKER = "abortWithMarker"
    ABORT = "abort"


class MethodSpec(NamedTuple):
    """`sender` of the request or notification; what has no `result` is a notification."""

    sender: Literal["host", "guest", "both"]
    params: type[Wire]
    result: type[Wire] | None = None


METHODS: dict[str, MethodSpec] = {
    Method.INITIALIZE: MethodSpec("host", messages.InitializeParams, messages.InitializeResult),
    Method.SHUTDOWN: MethodSpec("host", messages.ShutdownParams),
    Method.CANCEL_REQUEST: MethodSpec("both", messages.CancelParams),
    Method.REGISTER_TOOL: MethodSpec("guest", messages.RegisterToolParams),
    Method.REGISTER_COMMAND: MethodSpec("guest", messages.RegisterCommandParams),
    Method.REGISTER_PROMPT_SECTION: MethodSpec("guest", messages.RegisterPromptSectionParams),
    Method.REGISTER_INTERCEPTOR: MethodSpec("guest", messages.RegisterInterceptorParams),
    Method.REGISTER_EVENT_HANDLER: MethodSpec("guest", messages.RegisterEventHandlerParams),
    Method.REGISTER_SHORTCUT: MethodSpec("guest", messages.RegisterShortcutParams),
    Method.REGISTER_MESSAGE_HOOK: MethodSpec("guest", messages.RegisterMessageHookParams),
    Method.REGISTER_COMPACTOR: MethodSpec("guest", messages.RegisterCompactorParams),
    Method.REGISTER_PROVIDER: MethodSpec("guest", messages.RegisterProviderParams),
    Method.PROVIDER_STREAM: MethodSpec("host", messages.ProviderStreamParams, messages.ProviderStreamResult),
    Method.PROVIDER_DELTA: MethodSpec("guest", messages.ProviderDeltaParams),
    Method.COMPACT_EXECUTE: MethodSpec("host", messages.CompactExecuteParams, messages.CompactExecuteResult),
    Method.TOOL_EXECUTE: MethodSpec("host", messages.ToolExecuteParams, messages.ToolExecuteResult),
    Method.COMMAND_EXECUTE: MethodSpec("host", messages.CommandExecuteParams, messages.CommandExecuteResult),
    Method.INTERCEPTOR_BEFORE: MethodSpec("host", messages.InterceptorBeforeParams, messages.InterceptorBeforeResult),
    Method.INTERCEPTOR_AFTER: MethodSpec("host", messages.InterceptorAfterParams, messages.InterceptorAfterResult),
    Method.EVENT_DISPATCH: MethodSpec("host", messages.EventDispatchParams, messages.EventDispatchResult),
    Method.SHORTCUT_HANDLE: MethodSpec("host", messages.ShortcutHandleParams, messages.ShortcutHandleResult),
    Method.MESSAGE_HOOK_ON_MESSAGE: MethodSpec("host", messages.MessageHookParams, messages.MessageHookResult),
    Method.HOST_LIST_TOOLS: MethodSpec("guest", service_messages.HostListToolsParams, service_messages.HostListToolsResult),
    Method.HOST_EXECUTE_TOOL: MethodSpec("guest", service_messages.HostExecuteToolParams, service_messages.HostExecuteToolResult),
    Method.HOST_CONFIG_GET: MethodSpec("guest", service_messages.HostConfigGetParams, service_messages.HostConfigGetResult),
    Method.HOST_CONFIG_READ_EXT: MethodSpec(
        "guest", service_messages.HostConfigReadExtParams, service_messages.HostConfigReadExtResult
    ),
    Method.HOST_AUTH_GET_KEY: MethodSpec("guest", service_messages.HostAuthGetKeyParams, service_messages.HostAuthGetKeyResult),
    Method.HOST_CHAT: MethodSpec("guest", service_messages.HostChatParams, service_messages.HostChatResult),
    Method.HOST_AGENT_RUN: MethodSpec("guest", service_messages.HostAgentRunParams, service_messages.HostAgentRunResult),
    Method.HOST_CONVERSATION_MESSAGES: MethodSpec(
        "guest", service_messages.Nothing, service_messages.HostConversationMessagesResult
    ),
    Method.HOST_LLM_SNAPSHOT: MethodSpec("guest", service_messages.Nothing, service_messages.HostLLMSnapshotResult),
    Method.HOST_SET_CONVERSATION_MESSAGES: MethodSpec(
        "guest", service_messages.HostSetConversationMessagesParams, service_messages.Nothing
    ),
    Method.HOST_SESSIONS: MethodSpec("guest", service_messages.Nothing, service_messages.HostSessionsResult),
    Method.HOST_LOAD_SESSION: MethodSpec("guest", service_messages.HostLoadSessionParams, service_messages.Nothing),
    Method.HOST_FORK_SESSION: MethodSpec("guest", service_messages.Nothing, service_messages.HostForkSessionResult),
    Method.HOST_SET_SESSION_TITLE: MethodSpec("guest", service_messages.HostSetSessionTitleParams, service_messages.Nothing),
    Method.HOST_SYNC_MODELS: MethodSpec("guest", service_messages.Nothing, service_messages.HostSyncModelsResult),
    Method.HOST_WRITE_MODELS: MethodSpec("guest", service_messages.HostWriteModelsParams, service_messages.HostWriteModelsResult),
    Method.HOST_RUN_BACKGROUND: MethodSpec("guest", service_messages.HostRunBackgroundParams, service_messages.Nothing),
    Method.HOST_CANCEL_BACKGROUND: MethodSpec("guest", service_messages.Nothing, service_messages.Nothing),
    Method.HOST_IS_BACKGROUND_RUNNING: MethodSpec(
        "guest", service_messages.Nothing, service_messages.HostIsBackgroundRunningResult
    ),
    Method.HOST_EXT_INFOS: MethodSpec("guest", service_messages.Nothing, service_messages.HostExtInfosResult),
    Method.HOST_EXTENSIONS_DIR: MethodSpec("guest", service_messages.Nothing, service_messages.HostExtensionsDirResult),
    Method.HOST_UNDO_SNAPSHOTS: MethodSpec("guest", service_messages.Nothing, service_messages.HostUndoSnapshotsResult),
    Method.HOST_UNDO_RESTORE: MethodSpec("guest", service_messages.HostUndoRestoreParams, service_messages.Nothing),
    Method.HOST_LAST_ASSISTANT_TEXT: MethodSpec("guest", service_messages.Nothing, service_messages.HostLastAssistantTextResult),
    Method.HOST_APPEND_SESSION_ENTRY: MethodSpec("guest", service_messages.HostAppendSessionEntryParams, service_messages.Nothing),
    Method.HOST_APPEND_CUSTOM_MESSAGE: MethodSpec(
        "guest", service_messages.HostAppendCustomMessageParams, service_messages.Nothing
    ),
    Method.HOST_WAIT_FOR_IDLE: MethodSpec("guest", service_messages.Nothing, service_messages.Nothing),
    Method.HOST_SET_LABEL: MethodSpec("guest", service_messages.HostSetLabelParams, service_messages.Nothing),
    Method.HOST_BRANCH_SESSION: MethodSpec("guest", service_messages.HostBranchSessionParams, service_messages.Nothing),
    Method.HOST_BRANCH_SESSION_SUMMARY: MethodSpec(
        "guest", service_messages.HostBranchSessionSummaryParams, service_messages.Nothing
    ),
    Method.HOST_RESET_SESSION_LEAF: MethodSpec("guest", service_messages.Nothing, service_messages.Nothing),
    Method.HOST_SESSION_ENTRY_INFOS: MethodSpec("guest", service_messages.Nothing, service_messages.HostSessionEntryInfosResult),
    Method.HOST_SESSION_FULL_TREE: MethodSpec("guest", service_messages.Nothing, service_messages.HostSessionFullTreeResult),
    Method.HOST_SESSION_TITLE: MethodSpec("guest", service_messages.Nothing, service_messages.HostSessionTitleResult),
    Method.HOST_SESSION_STATS: MethodSpec("guest", service_messages.Nothing, service_messages.HostSessionStatsResult),
    Method.HOST_SHOW_PICKER: MethodSpec("guest", service_messages.HostShowPickerParams, service_messages.HostShowPickerResult),
    Method.HOST_ASK_USER: MethodSpec("guest", service_messages.HostAskUserParams, service_messages.HostAskUserResult),
    Method.HOST_AVAILABLE_MODELS: MethodSpec("guest", service_messages.Nothing, service_messages.HostAvailableModelsResult),
    Method.HOST_SWITCH_MODEL: MethodSpec("guest", service_messages.HostSwitchModelParams, service_messages.Nothing),
    Method.HOST_PUBLISH: MethodSpec("guest", service_messages.HostPublishParams, service_messages.Nothing),
    Method.HOST_SUBSCRIBE: MethodSpec("guest", service_messages.HostSubscribeParams, service_messages.HostSubscribeResult),
    Method.HOST_ACTIVATE_TOOL: MethodSpec("guest", service_messages.HostActivateToolParams, service_messages.Nothing),
    Method.HOST_SET_TOOL_FILTER: MethodSpec("guest", service_messages.HostSetToolFilterParams, service_messages.Nothing),
    Method.HOST_TOGGLE_STEP_MODE: MethodSpec("guest", service_messages.Nothing, service_messages.HostToggleStepModeResult),
    Method.HOST_REQUEST_QUIT: MethodSpec("guest", service_messages.Nothing, service_messages.Nothing),
    Method.HOST_ABORT: MethodSpec("guest", service_messages.Nothing, service_messages.Nothing),
    Method.HOST_HAS_COMPACTOR: MethodSpec("guest", service_messages.Nothing, service_messages.HostHasCompactorResult),
    Method.HOST_TRIGGER_COMPACT: MethodSpec("guest", service_messages.Nothing, service_messages.HostTriggerCompactResult),
    Method.HOST_COMMANDS: MethodSpec("guest", service_messages.Nothing, service_messages.HostCommandsResult),
    Method.HOST_TOOL_DEFS: MethodSpec("guest", service_messages.Nothing, service_messages.HostToolDefsResult),
    Method.HOST_SHORTCUTS: MethodSpec("guest", service_messages.Nothing, service_messages.HostShortcutsResult),
    Method.HOST_PROMPT_SECTIONS: MethodSpec("guest", service_messages.Nothing, service_messages.HostPromptSectionsResult),
    Method.HOST_EVENT_BUS_EVENT: MethodSpec("host", messages.EventBusEventParams),
    Method.REGISTER_INPUT_TRANSFORMER: MethodSpec("guest", messages.RegisterInputTransformerParams),
    Method.INPUT_TRANSFORM: MethodSpec("host", messages.InputTransformParams, messages.InputTransformResult),
    Method.SET_WIDGET: MethodSpec("guest", messages.SetWidgetParams),
    Method.SHOW_OVERLAY: MethodSpec("guest", messages.ShowOverlayParams),
    Method.CLOSE_OVERLAY: MethodSpec("guest", messages.CloseOverlayParams),
    Method.NOTIFY: MethodSpec("guest", messages.NotifyParams),
    Method.LOG: MethodSpec("guest", messages.LogParams),
    Method.SHOW_MESSAGE: MethodSpec("guest", messages.ShowMessageParams),
    Method.SEND_MESSAGE: MethodSpec("guest", messages.SendMessageParams),
    Method.SET_INPUT_TEXT: MethodSpec("guest", messages.SetInputTextParams),
    Method.STEER: MethodSpec("guest", messages.SteerParams),
    Method.ABORT_WITH_MARKER: MethodSpec("guest", messages.AbortWithMarkerParams),
    Method.ABORT: MethodSpec("guest", messages.AbortParams),
}

_decoders: dict[type[Wire], FoldingDecoder[Any]] = {}


def decode_params(method: str, raw: bytes) -> Any:
    """The parameters of a method of the table; `msgspec.MsgspecError` when they are none. Null is `{}` (spec piglet FIX-5)."""
    return decode(_get_decoder(METHODS[method].params), _replace_null(raw))


def decode_result(method: str, raw: bytes) -> Any:
    """The result of a request of the table. Null is `{}`, as in Go."""
    result = METHODS[method].result
    assert result is not None
    return decode(_get_decoder(result), _replace_null(raw))


def _replace_null(raw: bytes) -> bytes:
    return b"{}" if len(raw) == 4 and bytes(raw) == b"null" else raw


def _get_decoder(kind: type[Wire]) -> FoldingDecoder[Any]:
    """Made when it is first wanted: nobody needs all of them."""
    if kind not in _decoders:
        _decoders[kind] = FoldingDecoder(kind)
    return _decoders[kind]
