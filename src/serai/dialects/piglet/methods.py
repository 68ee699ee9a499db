"""The 88 methods of the wire, in the order of the seed: who sends each, what it carries, and what answers it (spec piglet 8.3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, NamedTuple

from serai.dialects.piglet import answers, messages, requests
from serai.dialects.piglet.messages import Wire
from serai.wire.codec import FoldingDecoder, decode

__all__ = ["METHODS", "Method", "Row", "params_of", "result_of"]


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


class Row(NamedTuple):
    """`sender` of the request or notification; what has no `result` is a notification."""

    sender: Literal["host", "guest", "both"]
    params: type[Wire]
    result: type[Wire] | None = None


METHODS: dict[str, Row] = {
    Method.INITIALIZE: Row("host", messages.InitializeParams, messages.InitializeResult),
    Method.SHUTDOWN: Row("host", messages.ShutdownParams),
    Method.CANCEL_REQUEST: Row("both", messages.CancelParams),
    Method.REGISTER_TOOL: Row("guest", messages.RegisterToolParams),
    Method.REGISTER_COMMAND: Row("guest", messages.RegisterCommandParams),
    Method.REGISTER_PROMPT_SECTION: Row("guest", messages.RegisterPromptSectionParams),
    Method.REGISTER_INTERCEPTOR: Row("guest", messages.RegisterInterceptorParams),
    Method.REGISTER_EVENT_HANDLER: Row("guest", messages.RegisterEventHandlerParams),
    Method.REGISTER_SHORTCUT: Row("guest", messages.RegisterShortcutParams),
    Method.REGISTER_MESSAGE_HOOK: Row("guest", messages.RegisterMessageHookParams),
    Method.REGISTER_COMPACTOR: Row("guest", messages.RegisterCompactorParams),
    Method.REGISTER_PROVIDER: Row("guest", messages.RegisterProviderParams),
    Method.PROVIDER_STREAM: Row("host", messages.ProviderStreamParams, messages.ProviderStreamResult),
    Method.PROVIDER_DELTA: Row("guest", messages.ProviderDeltaParams),
    Method.COMPACT_EXECUTE: Row("host", messages.CompactExecuteParams, messages.CompactExecuteResult),
    Method.TOOL_EXECUTE: Row("host", messages.ToolExecuteParams, messages.ToolExecuteResult),
    Method.COMMAND_EXECUTE: Row("host", messages.CommandExecuteParams, messages.CommandExecuteResult),
    Method.INTERCEPTOR_BEFORE: Row("host", messages.InterceptorBeforeParams, messages.InterceptorBeforeResult),
    Method.INTERCEPTOR_AFTER: Row("host", messages.InterceptorAfterParams, messages.InterceptorAfterResult),
    Method.EVENT_DISPATCH: Row("host", messages.EventDispatchParams, messages.EventDispatchResult),
    Method.SHORTCUT_HANDLE: Row("host", messages.ShortcutHandleParams, messages.ShortcutHandleResult),
    Method.MESSAGE_HOOK_ON_MESSAGE: Row("host", messages.MessageHookParams, messages.MessageHookResult),
    Method.HOST_LIST_TOOLS: Row("guest", requests.HostListToolsParams, answers.HostListToolsResult),
    Method.HOST_EXECUTE_TOOL: Row("guest", requests.HostExecuteToolParams, answers.HostExecuteToolResult),
    Method.HOST_CONFIG_GET: Row("guest", requests.HostConfigGetParams, answers.HostConfigGetResult),
    Method.HOST_CONFIG_READ_EXT: Row("guest", requests.HostConfigReadExtParams, answers.HostConfigReadExtResult),
    Method.HOST_AUTH_GET_KEY: Row("guest", requests.HostAuthGetKeyParams, answers.HostAuthGetKeyResult),
    Method.HOST_CHAT: Row("guest", requests.HostChatParams, answers.HostChatResult),
    Method.HOST_AGENT_RUN: Row("guest", requests.HostAgentRunParams, answers.HostAgentRunResult),
    Method.HOST_CONVERSATION_MESSAGES: Row("guest", requests.Nothing, answers.HostConversationMessagesResult),
    Method.HOST_LLM_SNAPSHOT: Row("guest", requests.Nothing, answers.HostLLMSnapshotResult),
    Method.HOST_SET_CONVERSATION_MESSAGES: Row("guest", requests.HostSetConversationMessagesParams, requests.Nothing),
    Method.HOST_SESSIONS: Row("guest", requests.Nothing, answers.HostSessionsResult),
    Method.HOST_LOAD_SESSION: Row("guest", requests.HostLoadSessionParams, requests.Nothing),
    Method.HOST_FORK_SESSION: Row("guest", requests.Nothing, answers.HostForkSessionResult),
    Method.HOST_SET_SESSION_TITLE: Row("guest", requests.HostSetSessionTitleParams, requests.Nothing),
    Method.HOST_SYNC_MODELS: Row("guest", requests.Nothing, answers.HostSyncModelsResult),
    Method.HOST_WRITE_MODELS: Row("guest", requests.HostWriteModelsParams, answers.HostWriteModelsResult),
    Method.HOST_RUN_BACKGROUND: Row("guest", requests.HostRunBackgroundParams, requests.Nothing),
    Method.HOST_CANCEL_BACKGROUND: Row("guest", requests.Nothing, requests.Nothing),
    Method.HOST_IS_BACKGROUND_RUNNING: Row("guest", requests.Nothing, answers.HostIsBackgroundRunningResult),
    Method.HOST_EXT_INFOS: Row("guest", requests.Nothing, answers.HostExtInfosResult),
    Method.HOST_EXTENSIONS_DIR: Row("guest", requests.Nothing, answers.HostExtensionsDirResult),
    Method.HOST_UNDO_SNAPSHOTS: Row("guest", requests.Nothing, answers.HostUndoSnapshotsResult),
    Method.HOST_UNDO_RESTORE: Row("guest", requests.HostUndoRestoreParams, requests.Nothing),
    Method.HOST_LAST_ASSISTANT_TEXT: Row("guest", requests.Nothing, answers.HostLastAssistantTextResult),
    Method.HOST_APPEND_SESSION_ENTRY: Row("guest", requests.HostAppendSessionEntryParams, requests.Nothing),
    Method.HOST_APPEND_CUSTOM_MESSAGE: Row("guest", requests.HostAppendCustomMessageParams, requests.Nothing),
    Method.HOST_WAIT_FOR_IDLE: Row("guest", requests.Nothing, requests.Nothing),
    Method.HOST_SET_LABEL: Row("guest", requests.HostSetLabelParams, requests.Nothing),
    Method.HOST_BRANCH_SESSION: Row("guest", requests.HostBranchSessionParams, requests.Nothing),
    Method.HOST_BRANCH_SESSION_SUMMARY: Row("guest", requests.HostBranchSessionSummaryParams, requests.Nothing),
    Method.HOST_RESET_SESSION_LEAF: Row("guest", requests.Nothing, requests.Nothing),
    Method.HOST_SESSION_ENTRY_INFOS: Row("guest", requests.Nothing, answers.HostSessionEntryInfosResult),
    Method.HOST_SESSION_FULL_TREE: Row("guest", requests.Nothing, answers.HostSessionFullTreeResult),
    Method.HOST_SESSION_TITLE: Row("guest", requests.Nothing, answers.HostSessionTitleResult),
    Method.HOST_SESSION_STATS: Row("guest", requests.Nothing, answers.HostSessionStatsResult),
    Method.HOST_SHOW_PICKER: Row("guest", requests.HostShowPickerParams, answers.HostShowPickerResult),
    Method.HOST_ASK_USER: Row("guest", requests.HostAskUserParams, answers.HostAskUserResult),
    Method.HOST_AVAILABLE_MODELS: Row("guest", requests.Nothing, answers.HostAvailableModelsResult),
    Method.HOST_SWITCH_MODEL: Row("guest", requests.HostSwitchModelParams, requests.Nothing),
    Method.HOST_PUBLISH: Row("guest", requests.HostPublishParams, requests.Nothing),
    Method.HOST_SUBSCRIBE: Row("guest", requests.HostSubscribeParams, answers.HostSubscribeResult),
    Method.HOST_ACTIVATE_TOOL: Row("guest", requests.HostActivateToolParams, requests.Nothing),
    Method.HOST_SET_TOOL_FILTER: Row("guest", requests.HostSetToolFilterParams, requests.Nothing),
    Method.HOST_TOGGLE_STEP_MODE: Row("guest", requests.Nothing, answers.HostToggleStepModeResult),
    Method.HOST_REQUEST_QUIT: Row("guest", requests.Nothing, requests.Nothing),
    Method.HOST_ABORT: Row("guest", requests.Nothing, requests.Nothing),
    Method.HOST_HAS_COMPACTOR: Row("guest", requests.Nothing, answers.HostHasCompactorResult),
    Method.HOST_TRIGGER_COMPACT: Row("guest", requests.Nothing, answers.HostTriggerCompactResult),
    Method.HOST_COMMANDS: Row("guest", requests.Nothing, answers.HostCommandsResult),
    Method.HOST_TOOL_DEFS: Row("guest", requests.Nothing, answers.HostToolDefsResult),
    Method.HOST_SHORTCUTS: Row("guest", requests.Nothing, answers.HostShortcutsResult),
    Method.HOST_PROMPT_SECTIONS: Row("guest", requests.Nothing, answers.HostPromptSectionsResult),
    Method.HOST_EVENT_BUS_EVENT: Row("host", messages.EventBusEventParams),
    Method.REGISTER_INPUT_TRANSFORMER: Row("guest", messages.RegisterInputTransformerParams),
    Method.INPUT_TRANSFORM: Row("host", messages.InputTransformParams, messages.InputTransformResult),
    Method.SET_WIDGET: Row("guest", messages.SetWidgetParams),
    Method.SHOW_OVERLAY: Row("guest", messages.ShowOverlayParams),
    Method.CLOSE_OVERLAY: Row("guest", messages.CloseOverlayParams),
    Method.NOTIFY: Row("guest", messages.NotifyParams),
    Method.LOG: Row("guest", messages.LogParams),
    Method.SHOW_MESSAGE: Row("guest", messages.ShowMessageParams),
    Method.SEND_MESSAGE: Row("guest", messages.SendMessageParams),
    Method.SET_INPUT_TEXT: Row("guest", messages.SetInputTextParams),
    Method.STEER: Row("guest", messages.SteerParams),
    Method.ABORT_WITH_MARKER: Row("guest", messages.AbortWithMarkerParams),
    Method.ABORT: Row("guest", messages.AbortParams),
}

_decoders: dict[type[Wire], FoldingDecoder[Any]] = {}


def params_of(method: str, raw: bytes) -> Any:
    """The parameters of a method of the table; `msgspec.MsgspecError` when they are none. Null is `{}` (spec piglet FIX-5)."""
    return decode(_decoder(METHODS[method].params), _object(raw))


def result_of(method: str, raw: bytes) -> Any:
    """The result of a request of the table. Null is `{}`, as in Go."""
    result = METHODS[method].result
    assert result is not None
    return decode(_decoder(result), _object(raw))


def _object(raw: bytes) -> bytes:
    return b"{}" if len(raw) == 4 and bytes(raw) == b"null" else raw


def _decoder(kind: type[Wire]) -> FoldingDecoder[Any]:
    """Made when it is first wanted: nobody needs all of them."""
    if kind not in _decoders:
        _decoders[kind] = FoldingDecoder(kind)
    return _decoders[kind]
