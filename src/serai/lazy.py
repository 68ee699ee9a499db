"""Names that are imported when they are first used (PEP 562): how every package of Serai shows its public surface."""

from __future__ import annotations

# Not from `typing`, whose import alone takes longer than all of `import serai`; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazy"]


def lazy(package: str, homes: Mapping[str, str], *others: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: its public names by the module that is their home, and the others it has itself."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted([*homes, *others])

    return get, names
