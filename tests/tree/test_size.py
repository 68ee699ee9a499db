"""The tree does not grow unnoticed."""

from __future__ import annotations

from tests.support import tree_size


def test_the_tree_stays_below_its_ceilings() -> None:
    most = tree_size.ceilings()["tree"]
    assert {what: count for what, count in tree_size.counts().items() if count > most[what]} == {}


def test_every_package_stays_below_its_ceiling() -> None:
    most = tree_size.ceilings()["lines"]
    assert {package: lines for package, lines in tree_size.lines_by_package().items() if lines > most.get(package, 0)} == {}


def test_no_ceiling_is_left_of_a_package_that_is_gone() -> None:
    assert tree_size.ceilings()["lines"].keys() == tree_size.lines_by_package().keys()


def test_every_count_has_a_ceiling() -> None:
    assert tree_size.ceilings()["tree"].keys() == tree_size.counts().keys()
