"""`import serai` costs nothing, and the lazy names are what they say."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import serai
from tests.support.fresh_interpreters import list_imports

ROOT = Path(serai.__file__).parent
LAZY = [import_module(".".join(("serai", *stub.parent.relative_to(ROOT).parts))) for stub in sorted(ROOT.rglob("__init__.pyi"))]
NAMES = [(package, name) for package in LAZY for name in package.__all__]


def read_stub_names(package: ModuleType) -> dict[str, str]:
    """What the package's stub imports: name to module."""
    assert package.__file__
    imports = [
        node for node in ast.parse(Path(package.__file__).with_suffix(".pyi").read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: node.module or "" for node in imports for alias in node.names if alias.name == alias.asname}


@pytest.mark.req("wire.import.lazy")
@pytest.mark.parametrize("module", [package.__name__ for package in LAZY])
def test_the_import_alone_loads_nothing_heavy(module: str) -> None:
    loaded = list_imports(module)
    assert module in loaded
    assert not loaded & {"asyncio", "msgspec", "click"}


def test_the_first_use_of_a_name_loads_its_home() -> None:
    assert "asyncio" in list_imports("serai.wire.event_loop")  # so the test above can see what it looks for


@pytest.mark.parametrize("package", LAZY, ids=str)
def test_the_public_names_are_those_of_the_stub(package: ModuleType) -> None:
    assert package.__all__ == sorted(read_stub_names(package))


@pytest.mark.parametrize(("package", "name"), NAMES, ids=str)
def test_every_public_name_is_found_at_its_home(package: ModuleType, name: str) -> None:
    home = read_stub_names(package).get(name, package.__name__)
    assert getattr(package, name) is vars(import_module(home))[name]


@pytest.mark.parametrize("package", LAZY, ids=str)
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_the_lazy_names_show_in_a_listing_of_the_package() -> None:
    assert dir(serai) == sorted(read_stub_names(serai))


def test_a_package_without_its_stub_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").write_text(
        "from serai.lazy import lazy_exports\n__getattr__, __dir__ = lazy_exports(__name__)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="bare: cannot read the list of its names"):
        _ = import_module("bare").run
    del sys.modules["bare"]
