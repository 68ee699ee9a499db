"""The pages that say where a seed's names are tell the truth: each name can be imported, each command is there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest

from serai.cli.command_table import LazyCommand, serai
from tests.support.doc_pages import read_rows

PAGES = sorted((Path(__file__).parents[2] / "docs" / "parity").glob("*.md"))


def resolve(name: str) -> object:
    """A dotted name, or a command as it is typed."""
    if name.startswith("serai "):
        return _command(name.split()[1:])
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not ".".join(parts[:cut]).startswith(error.name or ""):
                raise
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def _command(words: list[str]) -> click.Command:
    found: click.Command = serai
    for word in words:
        if word.startswith("-"):
            assert any(word in option.opts for option in found.params), f"{found.name} has no {word}"
            continue
        assert isinstance(found, click.Group), f"{found.name} has no commands"
        found = found.commands[word]
        found = found.load() if isinstance(found, LazyCommand) else found
    return found


def test_there_are_pages() -> None:
    assert [page.name for page in PAGES]
    for page in PAGES:
        assert read_rows(page), f"{page.name} has no table"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_that_a_page_names_is_there(page: Path) -> None:
    missing = []
    for seed, ours in read_rows(page):
        try:
            resolve(ours)
        except (ImportError, AttributeError, KeyError, AssertionError) as error:
            missing.append((seed, ours, str(error)))
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_each_thing_once(page: Path) -> None:
    names = [seed for seed, _ in read_rows(page)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", ["serai.nowhere", "serai.compat.agentboot.Nothing", "serai nowhere", "serai agent list --nothing"])
def test_what_is_not_there_is_found_out(name: str) -> None:
    with pytest.raises((ImportError, AttributeError, KeyError, AssertionError)):
        resolve(name)


LISTS = sorted((Path(__file__).parent / "parity").glob("*.txt"))


@pytest.mark.parametrize("names", LISTS, ids=lambda names: names.stem)
def test_a_page_leaves_nothing_of_its_seed_out(names: Path) -> None:
    """Types, fields, functions and constants as the seed has them; those of 002 are in tests/compat/agentboot/test_names.py."""
    page = next(page for page in PAGES if page.stem == names.stem)
    assert [seed for seed, _ in read_rows(page)] == names.read_text().splitlines()


def test_every_seed_has_a_page() -> None:
    assert [page.name[:3] for page in PAGES] == ["000", "001", "002", "003", "004"]
    assert [names.name[:3] for names in LISTS] == ["000", "001", "003", "004"]
