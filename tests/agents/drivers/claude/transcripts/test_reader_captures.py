"""Transcripts that Claude Code 2.1.325 wrote, trimmed and with other paths (spec agents 4.2): they have no `result` row."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from serai.agents.drivers.claude.transcripts.metadata import default_filter
from serai.agents.drivers.claude.transcripts.rows import AssistantMessageEvent, FileHistorySnapshotEvent, UserMessageEvent
from tests.support.claude.transcripts import FIXTURES, TranscriptFolder, uuid

LARGE = 400_000  # much more than both ends


def test_the_recordings_have_no_result_row() -> None:
    for path in FIXTURES.iterdir():
        assert b'"type":"result"' not in path.read_bytes()


@pytest.mark.req("agents.must.09")
@pytest.mark.parametrize("pad", [0, LARGE])
def test_real_sessions_are_listed_with_all_that_a_list_needs(home: TranscriptFolder, pad: int) -> None:
    home.real("two-prompts", 1, pad=pad)
    home.real("api-error", 2, pad=pad)
    home.real("subagent", 3, pad=pad)
    home.real("compacted", 4, pad=pad)
    listed = home.transcripts().list_sessions_filtered(home.project, default_filter)
    assert [one.session_id for one in listed] == [uuid(4), uuid(3), uuid(2), uuid(1)]
    compacted, subagent, failed, two = listed
    assert {one.partial for one in listed} == {bool(pad)}
    assert {one.project_path for one in listed} == {str(home.project)}
    assert {(one.version, one.git_branch) for one in listed} == {("2.1.325", "HEAD")}

    assert two.status == "complete"
    assert two.start_time == datetime(2026, 11, 16, 17, 51, 18, 487_000, UTC)
    assert two.end_time == datetime(2026, 11, 16, 17, 51, 19, 123_000, UTC)
    assert two.first_message.startswith("Please list the files\n")
    assert two.last_user_message.startswith("And now the second prompt\n")
    assert (two.last_assistant_message, two.title) == ("The second answer.", "And now the second prompt >> say The second answer.")
    assert (two.num_turns, two.total_cost_usd, two.duration_ms, two.model) == (2, 0.0817, 671, "claude-opus-5-5")
    assert (two.input_tokens, two.output_tokens, two.cache_read_tokens, two.cache_creation_tokens) == (8234, 19, 17920, 8960)

    assert (failed.status, failed.error) == ("error", "API Error: 500 overloaded")
    assert failed.first_message.startswith("This one fails at the API")
    assert subagent.last_user_message.startswith("Ask a helper agent")  # and not the notification of its end
    assert subagent.last_assistant_message == "You said: Ask a helper agent"

    assert compacted.title == "a name of its own"
    assert compacted.first_message.startswith("Write a file")
    assert compacted.last_user_message.startswith("After the compaction")  # no caveat, no command, no summary
    assert compacted.last_assistant_message == "written"


@pytest.mark.req("agents.scenario.X8")
def test_a_real_transcript_is_read_with_its_messages_and_metadata(home: TranscriptFolder) -> None:
    home.real("compacted", 4, pad=LARGE)
    transcripts = home.transcripts()
    one = transcripts.get_session(uuid(4))
    assert (one.status, one.partial, one.total_cost_usd) == ("complete", False, 0.1076088)
    assert one.num_turns == 4  # two prompts and two commands, which are prompts to the program
    events = transcripts.get_session_events(uuid(4))
    kinds = [event.type for event in events]
    assert kinds[:5] == ["custom-title", "agent-name", "queue-operation", "queue-operation", "user"]
    for kind in ("file-history-snapshot", "file-history-delta", "attachment", "cost-state", "system", "last-prompt"):
        assert kind in kinds
    prompt, snapshot = events[4].data, next(event.data for event in events if event.type == "file-history-snapshot")
    assert isinstance(prompt, UserMessageEvent)
    assert isinstance(prompt.message.content, str)
    assert prompt.message.content.startswith("Write a file")
    assert prompt.session_id == "44444444-4444-4444-8444-444444444444"
    assert isinstance(snapshot, FileHistorySnapshotEvent)
    assert snapshot.message_id == prompt.uuid
    said = [event.data for event in events if isinstance(event.data, AssistantMessageEvent)]
    calls = [block for one in said if not isinstance(one.message.content, str) for block in one.message.content]
    assert [(block.type, block.name or block.text) for block in calls] == [("tool_use", "Write"), ("text", "written")]
    answers = [
        block.content
        for event in events
        if isinstance(event.data, UserMessageEvent) and not isinstance(event.data.message.content, str)
        for block in event.data.message.content
        if block.type == "tool_result"
    ]
    assert answers == ["created"]


@pytest.mark.req("agents.must.09")
def test_every_row_of_the_recordings_that_has_a_type_here_is_typed(home: TranscriptFolder) -> None:
    typed = {"user", "assistant", "system", "file-history-snapshot"}
    for number, path in enumerate(sorted(FIXTURES.iterdir())):
        home.real(path.stem, number)
        events = home.transcripts().get_session_events(uuid(number))
        assert len(events) == len(path.read_bytes().splitlines())
        assert all((event.data is not None) is (event.type in typed) for event in events)
