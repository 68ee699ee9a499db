"""Thousands of sessions are listed without reading whole files (spec agents 4.3)."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from serai.agents.drivers.claude.transcripts.metadata import default_filter
from tests.support.claude.transcripts import TranscriptFolder, assistant, count_reads, user, uuid

END = 64 * 1024
LARGE = [assistant("answer " * 1000, 1, id=f"m{number}") for number in range(100)]  # 700 KB


@pytest.mark.req("agents.rule.88")
def test_a_listing_reads_both_ends_of_each_file_and_none_that_did_not_change(home: TranscriptFolder) -> None:
    for number in range(8):
        home.write(number, user(f"prompt {number}", cwd=str(home.project)), *LARGE, assistant("the end"))
    small = home.write(9, user("a small one", cwd=str(home.project)))
    read, counts = count_reads()
    transcripts = home.transcripts(read=read)
    listed = transcripts.list_sessions(home.project)
    assert len(listed) == 9
    assert {one.last_assistant_message for one in listed} == {"the end", ""}
    assert max(counts) <= END
    assert sum(counts) <= 8 * 2 * END + small.stat().st_size

    counts.clear()
    assert transcripts.list_sessions(home.project) == listed
    assert transcripts.list_sessions_filtered(None, default_filter) == listed
    assert [project.sessions for project in transcripts.list_projects()] == [9]
    assert counts == []

    with small.open("a") as file:
        file.write(json.dumps(assistant("an answer")) + "\n")
    home.write(5, user("another prompt 5", cwd=str(home.project)), *LARGE)
    changed = {one.session_id: one for one in transcripts.list_sessions(home.project)}
    assert changed[uuid(9)].last_assistant_message == "an answer"
    assert changed[uuid(5)].first_message == "another prompt 5"
    assert sum(counts) <= 2 * END + small.stat().st_size


@pytest.mark.req("agents.rule.88")
@pytest.mark.parametrize("size", [END - 1, END, END + 1, 2 * END - 1, 2 * END, 2 * END + 1])
def test_around_the_size_of_the_ends_nothing_is_lost_or_seen_twice(home: TranscriptFolder, size: int) -> None:
    rows = [user("the first", 0, promptId="p0"), user("the last", 2, promptId="p1"), assistant("the end", 3)]
    first, *rest = (json.dumps(row).encode() + b"\n" for row in rows)
    filler = json.dumps({"type": "attachment", "x": ""}).encode() + b"\n"
    room = size - len(first) - sum(map(len, rest)) - len(filler)
    path = home.write(1, first, filler.replace(b'""', b'"' + b"x" * room + b'"'), *rest)
    assert path.stat().st_size == size
    read, counts = count_reads()
    [one] = home.transcripts(read=read).list_sessions(home.project)
    assert (one.first_message, one.last_user_message, one.last_assistant_message) == ("the first", "the last", "the end")
    assert (one.num_turns, one.partial) == (2, size > 2 * END)
    assert sum(counts) <= 2 * END


@pytest.mark.req("agents.rule.88")
def test_the_first_few_of_thousands_need_not_all_be_read(home: TranscriptFolder) -> None:
    for number in range(50):
        path = home.write(number, user(f"prompt {number}", number))
        when = 1_770_112_800 + 60 * number  # as its row says
        os.utime(path, (when, when))
    late = home.write(51, user("begun long ago", 0), assistant("and still going on", 59))
    os.utime(late, (1_770_200_000, 1_770_200_000))
    read, counts = count_reads()
    transcripts = home.transcripts(read=read)
    assert [one.first_message for one in transcripts.get_recent_sessions(None, 3)] == ["prompt 49", "prompt 48", "prompt 47"]
    assert len(counts) <= 5
    assert [one.session_id for one in transcripts.list_sessions(None)][:3] == [uuid(49), uuid(48), uuid(47)]


def test_a_prompt_between_both_ends_is_known_from_what_the_program_notes(home: TranscriptFolder) -> None:
    """One prompt and a long way to its answer: the prompt is in neither end, its note is."""
    rows = [
        user("the first prompt"),
        *LARGE[:20],
        user("the second prompt"),
        *LARGE,
        {"type": "last-prompt", "lastPrompt": "the second prompt"},
    ]
    home.write(1, *rows)
    [one] = home.transcripts().list_sessions(home.project)
    assert (one.first_message, one.last_user_message, one.title) == ("the first prompt", "the second prompt", "the second prompt")
    assert home.transcripts().get_session(uuid(1)).last_user_message == "the second prompt"


@pytest.mark.parametrize("cut", range(12))
def test_a_session_that_begins_with_a_very_long_prompt_is_listed_by_its_beginning(home: TranscriptFolder, cut: int) -> None:
    prompt = "why \U0001f600 fails \\ this: " + 'é😀"\\\n' * 40_000
    queued = {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-02-03T09:59:00Z", "content": "x" * cut + prompt}
    home.write(1, queued, user("x" * cut + prompt, cwd=str(home.project)), *LARGE)
    home.write(2, user("x" * cut + prompt, cwd=str(home.project)), *LARGE)
    home.write(3, user([{"type": "tool_result", "content": prompt}]), *LARGE)
    listed = {one.session_id: one for one in home.transcripts().list_sessions_filtered(home.project, default_filter)}
    assert sorted(listed) == [uuid(1), uuid(2)]
    for one in listed.values():
        assert ("x" * cut + prompt).startswith(one.first_message)
        assert 1000 < len(one.first_message) <= 4096
    assert listed[uuid(1)].start_time == datetime(2026, 2, 3, 9, 59, tzinfo=UTC)
    assert home.transcripts().get_session(uuid(2)).first_message == "x" * cut + prompt


def test_sums_of_a_project(home: TranscriptFolder) -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3}
    for number in (1, 2):
        home.write(
            number,
            user("do something", number),
            assistant("done", 5, id="m", usage=usage),
            {"type": "cost-state", "totalCostUSD": 0.5},
        )
    stats = home.transcripts().project_stats(home.project)
    assert (stats.total_sessions, stats.complete_sessions, stats.error_sessions) == (2, 2, 0)
    assert (stats.total_cost_usd, stats.input_tokens, stats.output_tokens, stats.cache_read_tokens) == (1.0, 2, 4, 6)
    assert stats.oldest is not None
    assert stats.newest is not None
    assert (stats.oldest.minute, stats.newest.minute, stats.project_path) == (1, 2, str(home.project))
