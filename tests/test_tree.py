"""The tree does not grow unnoticed."""

from __future__ import annotations

import pytest

from tests import tree


@pytest.mark.parametrize("what", tree.ceilings()["tree"])
def test_the_tree_stays_below_its_ceilings(what: str) -> None:
    assert tree.counts()[what] <= tree.ceilings()["tree"][what]


def test_every_package_stays_below_its_ceiling() -> None:
    most = tree.ceilings()["lines"]
    assert {package: lines for package, lines in tree.lines_by_package().items() if lines > most.get(package, 0)} == {}


def test_no_ceiling_is_left_of_a_package_that_is_gone() -> None:
    assert tree.ceilings()["lines"].keys() == tree.lines_by_package().keys()


def test_every_count_has_a_ceiling() -> None:
    assert tree.ceilings()["tree"].keys() == tree.counts().keys()
