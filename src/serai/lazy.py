"""Names that are imported when they are first used (PEP 562): how every package of Serai shows its public surface."""

from __future__ import annotations

# Not from `typing`, whose import alone takes longer than all of `import serai`; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package.

    Its public names are declared once, in its `__init__.pyi`, a line each: `from MODULE import NAME as NAME`. Type checkers
    read that file, and so does the package when the first name is used.
    """
    homes: dict[str, str] = {}

    def load_homes() -> dict[str, str]:
        if not homes:
            homes.update(_read_stub(package))
        return homes

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(load_homes())
        if name not in load_homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(homes[name]), name)

    def list_names() -> list[str]:
        return sorted(load_homes())

    return get, list_names


def _read_stub(package: str) -> dict[str, str]:
    import sys

    module = sys.modules[package]
    try:  # through its loader, because a bundle is one file
        stub: bytes = module.__spec__.loader.get_data(f"{module.__path__[0]}/__init__.pyi")  # type: ignore[union-attr]
    except OSError as error:
        raise ImportError(f"{package}: cannot read the list of its names, which is part of the package: {error}") from error
    return {name: home for _, home, _, name, *_ in map(str.split, stub.decode().splitlines())}
