"""Sessions that an agent program stores itself: Claude Code's transcripts (spec agents 4), read only.

    transcripts = Transcripts()
    for session in transcripts.recent_filtered("/home/me/project", 10, default_filter):
        print(session.session_id, session.title)

`reader` has `Transcripts`, `files` finds and opens the files, `rows` decodes their rows, `metadata` sums a session up and filters.
Serai's own sessions are in `serai.store`.
"""

from __future__ import annotations

from serai.agents.drivers.claude.transcripts.files import (
    InvalidPath,
    InvalidSessionFormat,
    ProjectNotFound,
    SessionNotFound,
    folder_name,
    transcript_root,
)
from serai.agents.drivers.claude.transcripts.metadata import (
    SessionFilter,
    SessionMetadata,
    SessionStatus,
    combine,
    default_filter,
    exclude_patterns,
    exclude_short,
)
from serai.agents.drivers.claude.transcripts.reader import Project, ProjectStats, SessionSummary, Transcripts
from serai.agents.drivers.claude.transcripts.rows import (
    AssistantMessage,
    AssistantMessageEvent,
    ContentBlock,
    EventData,
    FileHistorySnapshotEvent,
    ResultEvent,
    SessionEvent,
    SystemEvent,
    SystemInitEvent,
    ToolResultEvent,
    ToolUseEvent,
    UsageInfo,
    UserMessage,
    UserMessageEvent,
    prompt_text,
    said_text,
    text_of,
)

__all__ = [
    "AssistantMessage",
    "AssistantMessageEvent",
    "ContentBlock",
    "EventData",
    "FileHistorySnapshotEvent",
    "InvalidPath",
    "InvalidSessionFormat",
    "Project",
    "ProjectNotFound",
    "ProjectStats",
    "ResultEvent",
    "SessionEvent",
    "SessionFilter",
    "SessionMetadata",
    "SessionNotFound",
    "SessionStatus",
    "SessionSummary",
    "SystemEvent",
    "SystemInitEvent",
    "ToolResultEvent",
    "ToolUseEvent",
    "Transcripts",
    "UsageInfo",
    "UserMessage",
    "UserMessageEvent",
    "combine",
    "default_filter",
    "exclude_patterns",
    "exclude_short",
    "folder_name",
    "prompt_text",
    "said_text",
    "text_of",
    "transcript_root",
]
