"""What a guest asks of the host: the parameters of the 52 methods `host/*` (spec piglet 7.1), as the seed names them.

What may not be missing has no default: then the request is refused (FIX-5).
"""

from __future__ import annotations

from typing import Any

from serai.dialects.piglet.messages import CompactMessage, Wire, always

__all__ = [
    "ChatMessage",
    "HostActivateToolParams",
    "HostAgentRunParams",
    "HostAppendCustomMessageParams",
    "HostAppendSessionEntryParams",
    "HostAskUserParams",
    "HostAuthGetKeyParams",
    "HostBranchSessionParams",
    "HostBranchSessionSummaryParams",
    "HostChatParams",
    "HostConfigGetParams",
    "HostConfigReadExtParams",
    "HostExecuteToolParams",
    "HostListToolsParams",
    "HostLoadSessionParams",
    "HostModelOverride",
    "HostPublishParams",
    "HostRunBackgroundParams",
    "HostSetConversationMessagesParams",
    "HostSetLabelParams",
    "HostSetSessionTitleParams",
    "HostSetToolFilterParams",
    "HostShowPickerParams",
    "HostSubscribeParams",
    "HostSwitchModelParams",
    "HostUndoRestoreParams",
    "HostWriteModelsParams",
    "Nothing",
    "WirePickerItem",
]


class Nothing(Wire, frozen=True):
    """No parameters, or a result that says only that it is done."""


# -- tools


class HostListToolsParams(Wire, frozen=True):
    filter: str = ""


class HostExecuteToolParams(Wire, frozen=True):
    name: str
    args: dict[str, Any] | None = always(None)
    call_id: str = ""


class HostActivateToolParams(Wire, frozen=True):
    name: str


class HostSetToolFilterParams(Wire, frozen=True):
    names: list[str] | None = always(None)


# -- configuration and credentials


class HostConfigGetParams(Wire, frozen=True):
    keys: list[str] | None = always(None)


class HostConfigReadExtParams(Wire, frozen=True):
    name: str


class HostAuthGetKeyParams(Wire, frozen=True):
    provider: str


# -- model calls


class ChatMessage(Wire, frozen=True):
    role: str = always("")
    content: str = always("")


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
    messages: list[CompactMessage] | None = always(None)


# -- sessions on disk


class HostLoadSessionParams(Wire, frozen=True):
    path: str


class HostSetSessionTitleParams(Wire, frozen=True):
    title: str


class HostAppendSessionEntryParams(Wire, frozen=True):
    kind: str
    data: Any = always(None)


class HostAppendCustomMessageParams(Wire, frozen=True):
    role: str
    content: str = always("")


class HostSetLabelParams(Wire, frozen=True):
    target_id: str
    label: str = always("")


class HostBranchSessionParams(Wire, frozen=True):
    entry_id: str


class HostBranchSessionSummaryParams(Wire, frozen=True):
    entry_id: str
    summary: str = always("")


# -- models


class HostSwitchModelParams(Wire, frozen=True):
    model_id: str = always("")
    persist_default: bool = False


class HostModelOverride(Wire, frozen=True):
    name: str = ""
    context_window: int = 0
    max_tokens: int = 0


class HostWriteModelsParams(Wire, frozen=True):
    overrides: dict[str, HostModelOverride] | None = always(None)


# -- background, control, compaction


class HostRunBackgroundParams(Wire, frozen=True):
    prompt: str


# -- dialogs


class WirePickerItem(Wire, frozen=True):
    id: str
    label: str = always("")
    desc: str = ""


class HostShowPickerParams(Wire, frozen=True):
    title: str = always("")
    items: list[WirePickerItem] | None = always(None)


class HostAskUserParams(Wire, frozen=True):
    prompt: str = always("")
    choices: list[str] | None = always(None)


# -- the bus


class HostPublishParams(Wire, frozen=True):
    topic: str
    data: Any = always(None)


class HostSubscribeParams(Wire, frozen=True):
    topic: str


# -- who is there; copies of files


class HostUndoRestoreParams(Wire, frozen=True):
    path: str
