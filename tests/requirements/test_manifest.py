"""The manifest and the tests agree in both directions."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.requirements import manifest

REQUIREMENTS = manifest.load_all()
_SECTION = r"spec (zot|hooks|piglet|agents|yoi) \d+(\.\d+)*( [A-Z]+-?\d+| [A-Za-z ]+)?"
SOURCE = re.compile(rf"{_SECTION}|design rule \d+|seed \d{{3}}|docs/[\w-]+\.md(#[\w-]+)?")


def list_covered() -> set[str]:
    return {id for id, _ in manifest.markers()}


def test_ids_are_unique_and_say_their_file() -> None:
    counts = Counter(requirement.id for requirement in REQUIREMENTS)
    assert not [id for id, count in counts.items() if count > 1]
    for name in manifest.LOWEST:
        assert {requirement.file for requirement in manifest.load(name)} == {name}


def test_every_requirement_has_a_source_and_one_sentence() -> None:
    for requirement in REQUIREMENTS:
        assert all(SOURCE.fullmatch(source) for source in requirement.source.split("; ")), requirement
        assert requirement.text.endswith("."), requirement


def test_a_planned_requirement_names_an_area() -> None:
    planned = {requirement.id: requirement.planned for requirement in REQUIREMENTS if requirement.planned is not None}
    assert {id: area for id, area in planned.items() if area not in manifest.AREAS} == {}
    assert set(manifest.AREAS) == set(planned.values()), "an area for which nothing is planned"


def test_a_test_names_only_ids_that_exist() -> None:
    known = {requirement.id for requirement in REQUIREMENTS}
    assert not [(id, where) for id, where in manifest.markers() if id not in known]


def test_every_requirement_is_proved_or_planned() -> None:
    proved = list_covered()
    missing = [requirement.id for requirement in REQUIREMENTS if requirement.planned is None and requirement.id not in proved]
    assert not missing, f"promised, but no test names them: {missing}"


def test_nothing_planned_is_proved_already() -> None:
    proved = list_covered()
    stale = [requirement.id for requirement in REQUIREMENTS if requirement.planned is not None and requirement.id in proved]
    assert not stale, f"a test proves these: take `planned` off: {stale}"


@pytest.mark.parametrize("name", manifest.LOWEST)
def test_each_file_has_at_least_what_its_spec_counts(name: str) -> None:
    counts = Counter(requirement.group for requirement in manifest.load(name))
    short = {group: (counts[group], lowest) for group, lowest in manifest.LOWEST[name].items() if counts[group] < lowest}
    assert not short, f"{name}.toml has fewer entries than its spec asks for (has, lowest): {short}"


# The scenarios of spec agents 5.2, by family, and 5.3; those of other agents (O) come with their drivers.
SCENARIOS = {
    "H": 10, "R": 6, "S": 2, "L": 4, "V": 13, "Q": 12, "P": 9, "D": 7, "E": 4, "C": 1, "T": 6, "A": 13, "K": 8, "X": 20, "F": 22,
    "B": 9, "G": 7, "M": 6, "N": 5,
}  # fmt: skip


@pytest.mark.req("agents.must.06")
def test_every_scenario_of_driving_agents_is_promised_and_proved() -> None:
    wanted = {f"agents.scenario.{family}{number}" for family, count in SCENARIOS.items() for number in range(1, count + 1)}
    wanted |= {f"agents.live.Z{number}" for number in range(1, 23)}
    assert sorted(wanted - list_covered()) == []
