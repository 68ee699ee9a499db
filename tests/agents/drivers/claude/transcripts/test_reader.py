"""What a transcript tells, row by row: the origin's fixtures, and what real rows are not sure to have (spec agents 4.2, 4.3)."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from serai.agents.drivers.claude.transcripts.metadata import SessionMetadata
from serai.agents.drivers.claude.transcripts.rows import ResultEvent, SystemEvent, SystemInitEvent, ToolResultEvent, ToolUseEvent
from tests.support.claude.transcripts import Row, TranscriptFolder, assistant, result, user, uuid

USAGE = {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 40}
SUCCESS = result(result="all is done", total_cost_usd=0.25, duration_ms=4200, num_turns=3, usage=USAGE)


def read_metadata(home: TranscriptFolder, *rows: Row | bytes) -> SessionMetadata:
    """A short session's metadata, which a list and a whole reading agree on."""
    home.write(1, *rows)
    transcripts = home.transcripts()
    [listed] = transcripts.list_sessions(home.project)
    assert listed == transcripts.get_session(uuid(1))
    return listed


@pytest.mark.req("agents.scenario.X3")
def test_a_trailing_result_of_success(home: TranscriptFolder) -> None:
    one = read_metadata(home, user("do something", 0), assistant("done", 1), SUCCESS)
    assert (one.status, one.last_result, one.error) == ("complete", "all is done", "")
    assert (one.total_cost_usd, one.duration_ms, one.num_turns) == (0.25, 4200, 3)
    assert (one.input_tokens, one.output_tokens, one.cache_read_tokens, one.cache_creation_tokens) == (10, 20, 30, 40)
    assert one.start_time == datetime(2026, 2, 3, 10, 0, tzinfo=UTC)
    assert one.end_time == datetime(2026, 2, 3, 10, 2, tzinfo=UTC)


@pytest.mark.req("agents.scenario.X4")
@pytest.mark.parametrize(
    ("row", "error"),
    [
        (result("error", error="it broke"), "it broke"),
        (result("error_max_turns", errors=["too many", "turns"], error="not this"), "too many; turns"),
        (result("error_during_execution", result="in the result"), "in the result"),
        (result("success", is_error=True, result="API Error: 401"), "API Error: 401"),
    ],
)
def test_a_trailing_result_of_error(home: TranscriptFolder, row: Row, error: str) -> None:
    one = read_metadata(home, user("do something"), assistant("I try"), row)
    assert (one.status, one.error) == ("error", error)


def test_a_result_that_is_not_the_end_says_nothing_of_the_session(home: TranscriptFolder) -> None:
    one = read_metadata(home, user("do something"), result("error", error="it broke"), user("do it again", 3), assistant("done", 4))
    assert (one.status, one.error, one.num_turns) == ("complete", "", 2)
    assert read_metadata(home, user("do something"), result("error", error="it broke"), user("do it again", 3)).status == "complete"
    assert read_metadata(home, user("do something"), result("error", error="it broke"), assistant("done", 3)).status == "complete"


def test_a_live_session_is_active_a_failed_one_has_failed_and_an_empty_one_is_unknown(home: TranscriptFolder) -> None:
    home.write(1, user("do something"), assistant("done"))
    home.write(2, user("do something"), assistant("API Error", isApiErrorMessage=True))
    home.write(3)
    transcripts = home.transcripts(is_live=(uuid(1), uuid(2)).__contains__)
    status = {one.session_id: one.status for one in transcripts.list_sessions(home.project)}
    assert status == {uuid(1): "active", uuid(2): "error", uuid(3): ""}
    assert [transcripts.get_session(uuid(number)).status for number in (1, 2, 3)] == ["active", "error", ""]
    stats = transcripts.project_stats(home.project)
    assert (stats.total_sessions, stats.active_sessions, stats.error_sessions, stats.unknown_sessions) == (3, 1, 1, 1)


def test_a_session_that_went_on_after_a_failure_has_not_failed(home: TranscriptFolder) -> None:
    one = read_metadata(home, user("do it"), assistant("API Error", isApiErrorMessage=True), user("again"), assistant("done", 3))
    assert (one.status, one.error) == ("complete", "")


@pytest.mark.req("agents.scenario.X5")
def test_events_are_counted_from_an_offset_up_to_a_limit(home: TranscriptFolder) -> None:
    rows: list[Row | bytes] = [user(f"prompt {number}") for number in range(6)]
    home.write(1, *rows[:2], b"\n", b"{broken\n", b"[1]\n", *rows[2:])
    transcripts = home.transcripts()

    def texts(*where: int) -> list[str]:
        return [json.loads(bytes(event.row))["message"]["content"][-1] for event in transcripts.get_session_events(uuid(1), *where)]

    assert texts() == texts(0, 0) == ["0", "1", "2", "3", "4", "5"]
    assert texts(1, 2) == ["1", "2"]  # the blank line and the broken ones are no events
    assert texts(4) == texts(3) == ["2", "3", "4", "5"]  # but broken ones count
    assert texts(7, 5) == ["5"]
    assert texts(8) == texts(100, 1) == []
    assert texts(-3, -1) == texts()


@pytest.mark.req("agents.scenario.X6")
@pytest.mark.req("agents.rule.89")
def test_a_summary_has_a_head_and_a_tail(home: TranscriptFolder) -> None:
    home.write(1, *(user(f"prompt {number}", number) for number in range(10)), SUCCESS | {"timestamp": "2026-02-03T11:00:00Z"})
    transcripts = home.transcripts()

    def ends(first: int, last: int) -> tuple[list[Any], list[Any]]:
        summary = transcripts.get_session_summary(uuid(1), first, last)
        assert summary.metadata == transcripts.get_session(uuid(1))
        return tuple([event.timestamp and event.timestamp.minute for event in part] for part in (summary.head, summary.tail))  # type: ignore[return-value]

    assert ends(3, 2) == ([0, 1, 2], [9, 0])
    assert transcripts.get_session_summary(uuid(1), 3, 2).tail[-1].type == "result"
    assert ends(0, 1) == ([], [0])
    assert ends(2, 0) == ([0, 1], [])
    assert ends(-1, -5) == ([], [])
    assert [len(part) for part in ends(100, 100)] == [11, 11]  # they may overlap


@pytest.mark.req("agents.scenario.X7")
def test_first_and_last_come_from_the_right_rows(home: TranscriptFolder) -> None:
    one = read_metadata(
        home,
        user("<local-command-caveat>no prompt</local-command-caveat>", isMeta=True),
        user("the first prompt"),
        assistant("the first answer"),
        user("the middle"),
        user("a summary of before", isCompactSummary=True),
        user("of a helper", isSidechain=True),
        user("the last prompt"),
        assistant("the last answer"),
        assistant("of a helper", isSidechain=True),
        user([{"type": "tool_result", "tool_use_id": "t1", "content": "of a tool"}]),
        user("[Request interrupted by user]"),
        SUCCESS,
    )
    assert (one.first_message, one.last_user_message) == ("the first prompt", "the last prompt")
    assert (one.last_assistant_message, one.last_result) == ("the last answer", "all is done")


@pytest.mark.req("agents.scenario.X12")
def test_the_last_assistant_message_is_one_message_without_its_thinking(home: TranscriptFolder) -> None:
    one = read_metadata(
        home,
        user("do something"),
        assistant([{"type": "text", "text": "the message before"}], id="m1"),
        assistant([{"type": "thinking", "thinking": "hmm"}], id="m2"),
        assistant([{"type": "text", "text": "the last "}, {"type": "thinking", "thinking": "so"}], id="m2"),
        assistant([{"type": "text", "text": "one"}], id="m2"),
        assistant([{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}], id="m2"),
        b'{"type":"assistant","message":{"content":"half of a ro',
    )
    assert one.last_assistant_message == "the last one"
    assert one.status == "complete"


@pytest.mark.req("agents.scenario.X13")
def test_a_tools_result_is_the_last_message_when_there_is_no_other(home: TranscriptFolder) -> None:
    answer = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "what the tool "}, {"type": "text", "text": "said"}],
    }
    one = read_metadata(home, assistant("I look"), user([answer]))
    assert (one.first_message, one.last_user_message, one.num_turns) == ("", "what the tool said", 0)
    one = read_metadata(home, user("look"), assistant("I look"), user([answer]))
    assert one.last_user_message == "look"


@pytest.mark.req("agents.scenario.X14")
def test_first_and_last_are_found_among_many_rows(home: TranscriptFolder) -> None:
    rows = [row for number in range(500) for row in (user(f"prompt {number}", promptId=f"p{number}"), assistant("answer " * 200))]
    home.write(1, *rows, assistant("the end"))
    [listed] = home.transcripts().list_sessions(home.project)
    assert listed.partial
    assert (listed.first_message, listed.last_user_message, listed.last_assistant_message) == ("prompt 0", "prompt 499", "the end")
    assert 0 < listed.num_turns < 500
    whole = home.transcripts().get_session(uuid(1))
    assert (whole.num_turns, whole.partial) == (500, False)
    assert (whole.first_message, whole.last_user_message, whole.last_assistant_message) == ("prompt 0", "prompt 499", "the end")


@pytest.mark.req("agents.scenario.X17")
def test_rows_are_typed_by_their_type_and_an_unknown_one_is_not(home: TranscriptFolder) -> None:
    home.write(
        1,
        {"type": "system", "subtype": "init", "session_id": uuid(1)},
        {"type": "system", "subtype": "turn_duration", "durationMs": 12},
        {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt", "is_error": False},
        SUCCESS,
        {"type": "hologram", "subtype": "blue", "timestamp": "2026-02-03T10:09:00Z", "beam": [1]},
        {"type": "user", "message": {"content": 7}},
        {"no": "type"},
        {"type": 5},
    )
    events = home.transcripts().get_session_events(uuid(1))
    kinds = [type(event.data) for event in events]
    none = type(None)
    assert kinds == [SystemInitEvent, SystemEvent, ToolUseEvent, ToolResultEvent, ResultEvent, none, none, none, none]
    unknown = events[5]
    assert (unknown.type, unknown.subtype, unknown.timestamp) == ("hologram", "blue", datetime(2026, 2, 3, 10, 9, tzinfo=UTC))
    assert json.loads(bytes(unknown.row))["beam"] == [1]
    assert isinstance(events[4].data, ResultEvent)
    assert events[4].data.usage.cache_read_input_tokens == 30
    assert json.loads(msgspec.json.encode(events[3])) == {
        "type": "tool_result",
        "subtype": "",
        "timestamp": None,
        "data": {"tool_use_id": "t1", "content": "a.txt"},
        "row": {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt", "is_error": False},
    }


@pytest.mark.req("agents.rule.85")
def test_tokens_cost_and_turns_without_a_result(home: TranscriptFolder) -> None:
    rows = [
        user("one", promptId="p1"),
        assistant("a", id="m1", usage=USAGE),
        assistant("b", id="m1", usage=USAGE),  # the same message, another block of it
        user([{"type": "tool_result", "content": "x"}], promptId="p1"),
        assistant("c", id="m2", usage=USAGE),
        user("two", promptId="p2"),
    ]
    one = read_metadata(home, *rows)
    assert (one.input_tokens, one.output_tokens, one.cache_read_tokens, one.cache_creation_tokens) == (20, 40, 60, 80)
    assert (one.num_turns, one.total_cost_usd, one.duration_ms) == (2, 0.0, 0)
    models = {
        "m": {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3, "cacheCreationInputTokens": 4},
        "n": {"inputTokens": 10, "outputTokens": 20, "cacheReadInputTokens": 30, "cacheCreationInputTokens": 40},
    }
    early, late = ({"type": "cost-state", "totalCostUSD": usd, "totalDuration": 7, "modelUsage": models} for usd in (1, 2.5))
    one = read_metadata(home, early, *rows, late)
    assert (one.input_tokens, one.output_tokens, one.cache_read_tokens, one.cache_creation_tokens) == (11, 22, 33, 44)
    assert (one.total_cost_usd, one.duration_ms, one.num_turns) == (2.5, 7, 2)
    one = read_metadata(home, early, *rows, late, SUCCESS)
    assert (one.total_cost_usd, one.input_tokens, one.num_turns) == (0.25, 10, 3)


def test_prompts_of_before_they_had_ids_are_counted_too(home: TranscriptFolder) -> None:
    assert read_metadata(home, user("one"), user("two"), user([{"type": "tool_result", "content": "x"}])).num_turns == 2


TITLES: list[Row] = [
    {"type": "custom-title", "customTitle": "by hand"},
    {"type": "ai-title", "aiTitle": "by the model"},
    {"type": "last-prompt", "lastPrompt": "the last prompt"},
    {"type": "summary", "summary": "a summary"},
]


@pytest.mark.req("agents.rule.86")
@pytest.mark.parametrize(
    ("rows", "title"),
    [
        (TITLES, "by hand"),
        (TITLES[1:], "by the model"),
        (TITLES[2:], "the last prompt"),
        (TITLES[3:], "a summary"),
        ([], "the first message"),
        ([TITLES[0], {"type": "custom-title", "customTitle": "by hand, later"}], "by hand, later"),
        ([{"type": "custom-title", "customTitle": " "}, {"type": "ai-title", "aiTitle": 5}], "the first message"),
    ],
)
def test_the_title_is_the_first_that_there_is(home: TranscriptFolder, rows: list[Row], title: str) -> None:
    assert read_metadata(home, user("the first message"), *rows).title == title


@pytest.mark.req("agents.rule.86")
@pytest.mark.parametrize(
    "row",
    [
        user("about the session", isMeta=True),
        user("what was said before", isCompactSummary=True),
        user([{"type": "tool_result", "content": "of a tool"}]),
        user("<local-command-stdout>x</local-command-stdout>"),
        user("<command-name>/clear</command-name>"),
        user("<command-message>clear</command-message>"),
        user("<ide_opened_file>a.py</ide_opened_file>"),
        user("<session-start-hook>x</session-start-hook>"),
        user("[Request interrupted by user for tool use]"),
        user("  \n"),
        user([]),
        {"type": "user"},
    ],
)
def test_the_first_message_is_a_persons(home: TranscriptFolder, row: Row) -> None:
    assert read_metadata(home, row, user("the first message")).first_message == "the first message"


def test_what_an_editor_adds_to_a_prompt_is_no_part_of_it(home: TranscriptFolder) -> None:
    opened = {"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"}
    assert read_metadata(home, user([opened, {"type": "text", "text": "mend this"}])).first_message == "mend this"


def test_times_are_of_rows_that_have_them_else_the_files(home: TranscriptFolder) -> None:
    path = home.write(1, {"type": "mode", "mode": "normal", "timestamp": "soon"})
    [one] = home.transcripts().list_sessions(home.project)
    assert one.start_time is None
    assert one.end_time is not None
    assert abs(one.end_time.timestamp() - path.stat().st_mtime) < 0.01


@pytest.mark.req("agents.edge.36")
def test_a_transcript_is_read_while_it_is_written(home: TranscriptFolder) -> None:
    """At every byte that the program may have got to, nothing fails, and a row counts when it is whole."""
    rows = [user("do something", promptId="p1"), assistant("done", id="m1"), {"type": "last-prompt", "lastPrompt": "dö it 😀"}]
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    text = b"\n".join(lines) + b"\n"
    for end in range(len(text) + 1):
        path = home.write(1, text[:end])
        transcripts = home.transcripts()
        whole = sum(end >= sum(map(len, lines[:count])) + count - 1 for count in (1, 2, 3))
        assert len(transcripts.get_session_events(uuid(1))) == whole
        listed = transcripts.list_sessions(home.project)
        assert [one.title for one in listed] == [("", "do something", "do something", "dö it 😀")[whole]]
        assert transcripts.get_session(uuid(1)).title == listed[0].title
        path.unlink()


@pytest.mark.req("agents.edge.36")
def test_a_file_that_grows_between_two_reads_is_read_all_the_same(home: TranscriptFolder) -> None:
    path = home.write(1, user("do something"), *(assistant("answer " * 1000, id=f"m{number}") for number in range(60)))

    def read(descriptor: int, size: int, at: int) -> bytes:
        got = os.pread(descriptor, size, at)
        if path.stat().st_size < 1_000_000:
            with path.open("ab") as file:
                file.write(json.dumps(assistant("later " * 1000)).encode() + b'\n{"type":"assis')
        return got

    transcripts = home.transcripts(read=read)
    [one] = transcripts.list_sessions(home.project)
    assert one.first_message == "do something"
    assert transcripts.get_session(uuid(1)).first_message == "do something"
