"""Which sessions a list shows (spec agents 4.3)."""

from __future__ import annotations

import pytest

from serai.agents.drivers.claude.transcripts.metadata import (
    SessionMetadata,
    combine,
    default_filter,
    exclude_patterns,
    exclude_short,
)
from tests.support.claude.transcripts import TranscriptFolder, assistant, user, uuid


def session(first: str = "", last: str = "") -> SessionMetadata:
    return SessionMetadata("id", "", "complete", first_message=first, last_user_message=last)


@pytest.mark.req("agents.scenario.X18")
@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [
        ("a real prompt", "another one", True),
        ("hi", "hi", False),
        ("", "", False),
        ("   \n\t ", "          ", False),
        ("1234", " 1234 ", False),
        ("12345", "", True),
        ("", "only the last is valid", True),
        ("hi", "now a long message", True),
        ("now a long message", "ok", True),
        ("<local-command-caveat>no prompt", "a real prompt", False),
        ("see <ide_opened_file>a.py", "a real prompt", False),
        ("<local-command-stdout>x", "a real prompt", False),
        ("", "<local-command-stdout>x", False),
        ("  ", "<local-command-stdout>x", False),
        ("a real prompt", "<local-command-stdout>x", True),
    ],
)
def test_the_default_filter(first: str, last: str, kept: bool) -> None:
    assert default_filter(session(first, last)) is kept


@pytest.mark.req("agents.scenario.X19")
def test_a_combined_filter_keeps_what_each_of_them_keeps() -> None:
    both = combine(exclude_short(3), exclude_patterns(["secret"]))
    assert both(session("hello"))
    assert not both(session("hi"))
    assert not both(session("a secret"))
    assert combine()(session())
    assert combine(None, exclude_short(0))(session())


def test_an_empty_pattern_excludes_nothing() -> None:
    assert exclude_patterns(["", "x"])(session("hello"))


@pytest.fixture
def four(home: TranscriptFolder) -> TranscriptFolder:
    home.write(1, user("the first session", 1), assistant("yes"))
    home.write(2, user("hi", 2), assistant("yes"))
    home.write(3, user("<local-command-stdout>x</local-command-stdout>", 3))
    home.write(4, user("the fourth session", 4), assistant("yes"))
    return home


@pytest.mark.req("agents.scenario.X10")
def test_the_default_filter_leaves_two_of_four(four: TranscriptFolder) -> None:
    transcripts = four.transcripts()
    assert [one.session_id for one in transcripts.list_sessions(four.project)] == [uuid(number) for number in (4, 3, 2, 1)]
    assert [one.session_id for one in transcripts.list_sessions_filtered(four.project, default_filter)] == [uuid(4), uuid(1)]
    assert len(transcripts.list_sessions_filtered(four.project, None)) == 4


@pytest.mark.req("agents.scenario.X11")
def test_the_recent_ones_are_filtered_first_and_then_counted(four: TranscriptFolder) -> None:
    transcripts = four.transcripts()

    def recent(limit: int) -> list[str]:
        return [one.session_id for one in transcripts.list_recent(four.project, limit, default_filter)]

    assert recent(1) == [uuid(4)]
    assert recent(2) == recent(3) == recent(0) == [uuid(4), uuid(1)]
    assert [one.session_id for one in transcripts.get_recent_sessions(four.project, 2)] == [uuid(4), uuid(3)]
