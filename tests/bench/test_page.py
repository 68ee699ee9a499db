"""The page about performance: made from a complete run, and never edited by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.__main__ import SUITES
from bench.report import Column, Floor, Section, Table, cells

DOCS = Path(__file__).parents[2] / "docs"
ABOUT = {"date": "2026-11-15", "cpu": "A | B", "cores": 2, "memory_gib": 24, "kernel": "6.18", "python": "3.11.7", "mcp": "2.3.0"}


def find_section(name: str, *floors: Floor) -> Section:
    rows = {"raw C": {"us": 5.04321, "rate": 1_234_567}, f"serai {name}": {"us": 16.789}}
    columns = (Column("us", "p50 us"), Column("rate", "calls/s", ",.0f"))
    return Section(name, f"About {name}.\n\nAnd more.", [Table(f"{name} of 100 B", columns, rows)], list(floors))


def run(*sections: Section) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps({"about": ABOUT, "sections": [one.to_json() for one in sections]}))
    return made


GOOD = Floor("it is quick", 3.31234, "at most", 4.0)
COMPLETE = [find_section(name, GOOD) for name in SUITES]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "latest.json")
    monkeypatch.setattr(page, "DOCS", tmp_path)
    return tmp_path


def assert_shows(text: str, published: dict[str, Any]) -> None:
    """Every host, number, note and floor of the run, and the machine."""
    for value in published["about"].values():
        assert str(value).replace("|", "\\|") in text
    for one in map(Section.from_json, published["sections"]):
        assert f"## {one.name}\n" in text
        assert " ".join(one.note.split()) in " ".join(text.split())
        for table in one.tables:
            assert table.title in text
            for row in cells(table):
                assert f"| {' | '.join(row)} |\n" in text
        for floor in one.floors:
            assert f"- {floor.verdict}: {floor}\n" in text


def test_the_page_shows_everything_that_was_measured() -> None:
    published = run(*COMPLETE)
    text = page.markdown(published)
    assert_shows(text, published)
    for words in ("## What Serai promises", "## How it was measured", "make bench-peers", "make bench-page"):
        assert words in text


def test_a_complete_run_is_written_with_rounded_numbers(folders: Path) -> None:
    (folders / "latest.json").write_text(json.dumps(run(*COMPLETE)))
    page.main()
    published = json.loads((folders / "performance.json").read_text())
    assert published["about"] == ABOUT
    assert published["sections"][0]["tables"][0]["rows"]["raw C"] == {"us": 5.043, "rate": 1_235_000}
    assert published["sections"][0]["floors"][0]["measured"] == 3.312
    assert (folders / "performance.md").read_text() == page.markdown(published)


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ([], f"0 of {len(SUITES)} suites ran"),
        (COMPLETE[:2], f"2 of {len(SUITES)} suites ran: {SUITES[0]}, {SUITES[1]}"),
        ([*COMPLETE[1:], COMPLETE[1]], f"{len(SUITES) - 1} of {len(SUITES)} suites ran"),
        ([*COMPLETE[1:], find_section("x", Floor("it is quick", 4.1, "at most", 4.0))], "FAIL  it is quick: 4.10x (at most 4x)"),
        ([*COMPLETE[1:], find_section("x", Floor("it is quick", None, "at most", 4.0))], "not measured  it is quick"),
    ],
)
def test_an_incomplete_run_is_refused_with_the_reason(folders: Path, sections: list[Section], why: str) -> None:
    (folders / "latest.json").write_text(json.dumps(run(*sections)))
    with pytest.raises(SystemExit) as stopped:
        page.main()
    assert why in str(stopped.value.code)
    assert not (folders / "performance.json").exists()
    assert not (folders / "performance.md").exists()


def test_without_a_run_it_says_what_to_do(folders: Path) -> None:
    with pytest.raises(SystemExit, match="make bench"):
        page.main()


def test_the_published_page_is_what_its_numbers_give() -> None:
    published = json.loads((DOCS / "performance.json").read_text())
    text = (DOCS / "performance.md").read_text()
    assert text == page.markdown(published), "docs/performance.md was edited by hand: `make bench-page` writes it"
    assert page.lacks(published) == []
    assert_shows(text, published)
