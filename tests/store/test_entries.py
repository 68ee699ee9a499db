"""Times as sessions have them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.store import entries

SECOND = 1_000_000_000


@pytest.mark.req("piglet.edge.17")
@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01z", SECOND),
        ("1970-01-01t00:00:01.5Z", SECOND * 3 // 2),
        ("1970-01-01T00:00:01.123456789Z", 1_123_456_789),
        ("1970-01-01T00:00:01.1234567899Z", 1_123_456_789),
        ("1970-01-01T02:00:01+02:00", SECOND),
        ("1969-12-31T18:30:01-05:30", SECOND),
        ("1970-01-01T02:00:01+0200", SECOND),
        ("1970-01-01 00:00:01", SECOND),
        ("2026-02-03T10:00:00.1Z", 1_770_112_800_100_000_000),
        ("2000-02-29T23:59:60Z", 951_868_800 * SECOND),
    ],
)
def test_nanoseconds_offsets_and_z_all_parse(text: str, ns: int) -> None:
    assert entries.parse_time(text) == ns


@pytest.mark.req("piglet.edge.17")
@pytest.mark.parametrize(
    "text",
    [entries.ZERO, "", "yesterday", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-02-03", "2026-02-03T25:00:00Z", "٢٠٢٦"],
)
def test_the_zero_time_and_what_is_no_time_are_zero(text: str) -> None:
    assert entries.parse_time(text) == 0


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_what_is_written_is_what_is_read(ns: int) -> None:
    written = entries.format_time(ns)
    assert entries.parse_time(written) == ns
    assert datetime.fromisoformat(written[:26] + "Z").astimezone(UTC).timestamp() == pytest.approx(ns / SECOND, abs=1e-5)
