"""What a suite says: floors that hold or not, tables as text, and all of it there and back through JSON."""

from __future__ import annotations

import json

import pytest

from bench.report import Column, Floor, Section, Table, cells, text

TABLE = Table(
    "100 B",
    (Column("p50_us", "p50 us"), Column("per_second", "calls/s", ",.0f")),
    {"raw C": {"p50_us": 5.04, "per_second": 179_237.4}, "serai": {"per_second": 55_550.0}},
)
FLOORS = [Floor("small", 3.3, "at most", 4.0), Floor("many", None, "at least", 10.0), Floor("memory", 9.0, "at most", 8.0, " KB")]
SECTION = Section("Round trip", "A note.", [TABLE], FLOORS)


@pytest.mark.parametrize(
    ("sense", "measured", "verdict"),
    [
        ("at most", 3.9, "pass"),
        ("at most", 4.0, "pass"),
        ("at most", 4.1, "FAIL"),
        ("at least", 4.1, "pass"),
        ("at least", 4.0, "pass"),
        ("at least", 3.9, "FAIL"),
        ("at least", 0.0, "FAIL"),
        ("at most", None, "not measured"),
        ("at least", None, "not measured"),
    ],
)
def test_a_floor_holds_up_to_its_limit(sense: str, measured: float | None, verdict: str) -> None:
    assert Floor("it", measured, sense, 4.0).verdict == verdict  # type: ignore[arg-type]


def test_a_floor_says_what_was_measured_and_what_may_be() -> None:
    assert [str(floor) for floor in FLOORS] == [
        "small: 3.30x (at most 4x)",
        "many: needs `make bench-peers` (at least 10x)",
        "memory: 9.00 KB (at most 8 KB)",
    ]


def test_a_number_that_a_host_does_not_have_is_a_dash() -> None:
    assert cells(TABLE) == [["", "p50 us", "calls/s"], ["raw C", "5.0", "179,237"], ["serai", "-", "55,550"]]


def test_the_text_has_every_host_and_every_floor_with_its_verdict() -> None:
    shown = text(SECTION)
    for words in ("Round trip", "100 B", "raw C", "serai", *(f"{floor.verdict}  {floor}" for floor in FLOORS)):
        assert words in shown


def test_a_section_comes_back_from_json_as_it_was() -> None:
    there = json.loads(json.dumps(SECTION.to_json()))
    assert [floor["verdict"] for floor in there["floors"]] == ["pass", "not measured", "FAIL"]
    assert Section.from_json(there) == SECTION
