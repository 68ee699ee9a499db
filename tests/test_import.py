"""`import serai` costs nothing, and the lazy names are what they say."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import serai
import serai.agents
import serai.boxes
import serai.host
import serai.model
import serai.tools
import serai.wire

SOURCE = Path(serai.__file__).parents[1]
LAZY = [serai, serai.agents, serai.boxes, serai.host, serai.model, serai.tools, serai.wire]
NAMES = [(package, name) for package in LAZY for name in package.__all__]

COUNT_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
__import__(sys.argv[2])
print(*(set(sys.modules) - before))
"""


def imported_with(module: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after importing this one alone."""
    argv = [sys.executable, "-I", "-c", COUNT_IMPORTS, str(SOURCE), module]
    return set(subprocess.run(argv, env={}, capture_output=True, text=True, check=True, timeout=30).stdout.split())


def names_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """What the package's stub imports: name to module."""
    assert package.__file__
    imports = [
        node for node in ast.parse(Path(package.__file__).with_suffix(".pyi").read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: node.module or "" for node in imports for alias in node.names if alias.name == alias.asname}


@pytest.mark.req("wire.import.lazy")
@pytest.mark.parametrize("module", [package.__name__ for package in LAZY])
def test_the_import_alone_loads_nothing_heavy(module: str) -> None:
    loaded = imported_with(module)
    assert module in loaded
    assert not loaded & {"asyncio", "msgspec", "click"}


def test_the_first_use_of_a_name_loads_its_home() -> None:
    assert "asyncio" in imported_with("serai.wire.event_loop")  # so the test above can see what it looks for


@pytest.mark.parametrize("package", LAZY, ids=str)
def test_the_public_names_are_those_of_the_stub(package: ModuleType) -> None:
    assert package.__all__ == sorted(names_for_type_checkers(package))


@pytest.mark.parametrize(("package", "name"), NAMES, ids=str)
def test_every_public_name_is_found_at_its_home(package: ModuleType, name: str) -> None:
    home = names_for_type_checkers(package).get(name, package.__name__)
    assert getattr(package, name) is vars(import_module(home))[name]


@pytest.mark.parametrize("package", LAZY, ids=str)
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_the_lazy_names_show_in_a_listing_of_the_package() -> None:
    assert dir(serai) == sorted(names_for_type_checkers(serai))
