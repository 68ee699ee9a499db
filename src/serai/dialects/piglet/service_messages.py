"""The parameters and results of the 52 methods `host/*` (spec piglet 7.1), under the seed's names.

A parameter that may not be missing has no default: a request without it is refused (FIX-5).
"""

from __future__ import annotations

from typing import Any

import msgspec

from serai.dialects.piglet.messages import CompactMessage, ContentBlock, Wire, always_written

# -- tools


class HostToolInfo(Wire, frozen=True):
    name: str
    description: str = always_written("")
    parameters: Any = always_written(None)
    deferred: bool = False


class HostListToolsResult(Wire, frozen=True):
    tools: list[HostToolInfo] | None


class HostExecuteToolResult(Wire, frozen=True):
    content: list[ContentBlock] | None
    is_error: bool = False
    error_code: str = ""
    error_hint: str = ""


class HostToolDefInfo(Wire, frozen=True):
    name: str
    description: str = always_written("")


class HostToolDefsResult(Wire, frozen=True):
    tools: list[HostToolDefInfo] | None


# -- configuration and credentials


class HostConfigGetResult(Wire, frozen=True):
    values: dict[str, Any] | None


class HostConfigReadExtResult(Wire, frozen=True):
    content: str


class HostAuthGetKeyResult(Wire, frozen=True):
    key: str

    def __repr__(self) -> str:
        """Its value is for nobody's eyes (design rule 13)."""
        return "HostAuthGetKeyResult(key=…)"


# -- model calls


class HostTokenUsage(Wire, frozen=True):
    input: int = always_written(0)
    output: int = always_written(0)


class HostChatResult(Wire, frozen=True):
    text: str
    usage: HostTokenUsage


class HostAgentRunResult(Wire, frozen=True):
    text: str
    turns: int
    usage: HostTokenUsage


# -- the conversation in memory


class HostConversationMessagesResult(Wire, frozen=True):
    messages: list[Any] | None


class HostLLMSnapshotResult(Wire, frozen=True):
    system: str
    messages: list[Any] | None
    tools: list[HostToolInfo] | None


class HostLastAssistantTextResult(Wire, frozen=True):
    text: str


class HostSessionStatsResult(Wire, frozen=True):
    turn_count: int
    total_input_tokens: int
    total_output_tokens: int
    total_cache_read_tokens: int
    total_cache_write_tokens: int
    total_cost: float
    model: str


# -- sessions on disk


class WireSessionInfo(Wire, frozen=True):
    id: str
    title: str
    cwd: str
    created_at: str
    path: str
    parent_id: str = ""


class HostSessionsResult(Wire, frozen=True):
    sessions: list[WireSessionInfo] | None


class HostForkSessionResult(Wire, frozen=True):
    parent_id: str = msgspec.field(name="parentID")  # so in the seed, unlike everywhere else
    message_count: int


class HostSessionTitleResult(Wire, frozen=True):
    title: str


class WireEntryInfo(Wire, frozen=True):
    id: str
    type: str
    timestamp: str
    children: int
    parent_id: str = ""


class HostSessionEntryInfosResult(Wire, frozen=True):
    entries: list[WireEntryInfo] | None


class WireTreeNode(Wire, frozen=True):
    id: str
    type: str
    timestamp: str
    children: int
    on_active_path: bool
    depth: int
    parent_id: str = ""
    preview: str = ""
    label: str = ""
    tokens_before: int = 0


class HostSessionFullTreeResult(Wire, frozen=True):
    nodes: list[WireTreeNode] | None


# -- models


class WireModelInfo(Wire, frozen=True):
    id: str
    api: str
    display_name: str
    provider: str
    current: bool
    context_window: int = 0
    max_tokens: int = 0
    reasoning: bool = False
    cost_input: float = 0.0
    cost_output: float = 0.0


class HostAvailableModelsResult(Wire, frozen=True):
    models: list[WireModelInfo] | None


class HostSyncModelsResult(Wire, frozen=True):
    updated: int


class HostWriteModelsResult(Wire, frozen=True):
    models_written: int


# -- background, control, compaction


class HostIsBackgroundRunningResult(Wire, frozen=True):
    running: bool


class HostToggleStepModeResult(Wire, frozen=True):
    on: bool


class HostHasCompactorResult(Wire, frozen=True):
    present: bool


class HostTriggerCompactResult(Wire, frozen=True):
    before: int
    after: int


# -- dialogs


class HostShowPickerResult(Wire, frozen=True):
    selected: str


class HostAskUserResult(Wire, frozen=True):
    selected: str
    cancelled: bool


# -- the bus


class HostSubscribeResult(Wire, frozen=True):
    subscription_id: int


# -- who is there; copies of files


class HostCommandInfo(Wire, frozen=True):
    name: str
    description: str = always_written("")


class HostCommandsResult(Wire, frozen=True):
    commands: list[HostCommandInfo] | None


class HostShortcutInfo(Wire, frozen=True):
    description: str = always_written("")


class HostShortcutsResult(Wire, frozen=True):
    shortcuts: dict[str, HostShortcutInfo] | None


class HostPromptSectionInfo(Wire, frozen=True):
    title: str
    token_hint: int = 0


class HostPromptSectionsResult(Wire, frozen=True):
    sections: list[HostPromptSectionInfo] | None


class WireExtInfo(Wire, frozen=True):
    name: str
    kind: str
    version: str = ""
    runtime: str = ""
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    interceptors: tuple[str, ...] = ()
    event_handlers: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()
    message_hooks: tuple[str, ...] = ()
    compactor: str = ""


class HostExtInfosResult(Wire, frozen=True):
    extensions: list[WireExtInfo] | None


class HostExtensionsDirResult(Wire, frozen=True):
    path: str


class HostUndoSnapshotsResult(Wire, frozen=True):
    snapshots: dict[str, int] | None


class Nothing(Wire, frozen=True):
    """No parameters, or a result that says only that it is done."""


# -- tools


class HostListToolsParams(Wire, frozen=True):
    filter: str = ""


class HostExecuteToolParams(Wire, frozen=True):
    name: str
    args: dict[str, Any] | None = always_written(None)
    call_id: str = ""


class HostActivateToolParams(Wire, frozen=True):
    name: str


class HostSetToolFilterParams(Wire, frozen=True):
    names: list[str] | None = always_written(None)


# -- configuration and credentials


class HostConfigGetParams(Wire, frozen=True):
    keys: list[str] | None = always_written(None)


class HostConfigReadExtParams(Wire, frozen=True):
    name: str


class HostAuthGetKeyParams(Wire, frozen=True):
    provider: str


# -- model calls


class ChatMessage(Wire, frozen=True):
    role: str = always_written("")
    content: str = always_written("")


class HostChatParams(Wire, frozen=True):
    messages: list[ChatMessage]
    system: str = ""
    model: str = ""
    max_tokens: int = 0


class HostAgentRunParams(Wire, frozen=True):
    task: str
    system: str = ""
    tools: str = ""
    model: str = ""
    max_turns: int = 0


# -- the conversation in memory


class HostSetConversationMessagesParams(Wire, frozen=True):
    messages: list[CompactMessage] | None = always_written(None)


# -- sessions on disk


class HostLoadSessionParams(Wire, frozen=True):
    path: str


class HostSetSessionTitleParams(Wire, frozen=True):
    title: str


class HostAppendSessionEntryParams(Wire, frozen=True):
    kind: str
    data: Any = always_written(None)


class HostAppendCustomMessageParams(Wire, frozen=True):
    role: str
    content: str = always_written("")


class HostSetLabelParams(Wire, frozen=True):
    target_id: str
    label: str = always_written("")


class HostBranchSessionParams(Wire, frozen=True):
    entry_id: str


class HostBranchSessionSummaryParams(Wire, frozen=True):
    entry_id: str
    summary: str = always_written("")


# -- models


class HostSwitchModelParams(Wire, frozen=True):
    model_id: str = always_written("")
    persist_default: bool = False


class HostModelOverride(Wire, frozen=True):
    name: str = ""
    context_window: int = 0
    max_tokens: int = 0


class HostWriteModelsParams(Wire, frozen=True):
    overrides: dict[str, HostModelOverride] | None = always_written(None)


# -- background, control, compaction


class HostRunBackgroundParams(Wire, frozen=True):
    prompt: str


# -- dialogs


class WirePickerItem(Wire, frozen=True):
    id: str
    label: str = always_written("")
    desc: str = ""


class HostShowPickerParams(Wire, frozen=True):
    title: str = always_written("")
    items: list[WirePickerItem] | None = always_written(None)


class HostAskUserParams(Wire, frozen=True):
    prompt: str = always_written("")
    choices: list[str] | None = always_written(None)


# -- the bus


class HostPublishParams(Wire, frozen=True):
    topic: str
    data: Any = always_written(None)


class HostSubscribeParams(Wire, frozen=True):
    topic: str


# -- who is there; copies of files


class HostUndoRestoreParams(Wire, frozen=True):
    path: str
