"""One row for each dialect: the file by which a guest of it is known, and the adapter that takes it in.

Adapters are imported when the first guest of their dialect starts. Other packages add a dialect with an entry point of the group
`serai.guests`: its name is the dialect, its object the adapter, and a guest asks for it with `dialect` in its `guest.toml`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from serai.errors import BadManifest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from serai.host.adapter import Adapter

__all__ = ["DIALECTS", "GROUP", "OWN", "Dialect", "Reader", "Said", "adapter", "by_name", "is_built", "named_only", "reader"]

GROUP = "serai.guests"
OWN = "serai"  # the row of `guest.toml`, which stands alone or holds Serai's settings beside a foreign manifest


class Dialect(NamedTuple):
    """`adapter` is `module:attribute`, or empty while nobody has built it; `reader` the module that reads its manifest.

    `by_name`: the manifest's name is who a guest is, not its folder's. So a project's takes the place of the person's of that name,
    guests of one place are taken in the order of their folders, and no reload renames one (spec piglet 1.2, FIX-35).
    `named_only`: a reload follows from a change of what the manifest names, and of no other code in the folder (spec piglet 8.0).
    """

    manifest: str
    adapter: str = ""
    reader: str = ""
    by_name: bool = False
    named_only: bool = False


class Said(Protocol):
    """What a manifest says, whatever the dialect."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def enabled(self) -> bool: ...


class Reader(Protocol):
    """A dialect's reading of its manifest, without IO. What cannot be read is a `ValueError` with the reason."""

    def parse(self, text: bytes) -> Said: ...

    def argv(self, manifest: Any, folder: str) -> tuple[str, ...]:
        """The command line; bare names are looked up in PATH."""
        ...

    def with_enabled(self, text: bytes, enabled: bool) -> bytes:
        """The same manifest, switched on or off."""
        ...


# In this order a folder with several manifests is taken.
DIALECTS = {
    "zot": Dialect("extension.json", "serai.host.adapters.zot:ADAPTER", "serai.dialects.zot.manifest"),
    "piglet": Dialect(
        "manifest.yaml", "serai.host.adapters.piglet:ADAPTER", "serai.dialects.piglet.manifest", by_name=True, named_only=True
    ),
    "yoi": Dialect("plugin.toml"),
    OWN: Dialect("guest.toml"),
}


def by_name(dialect: str) -> bool:
    """Whether the manifest's name is who a guest of it is."""
    return dialect in DIALECTS and DIALECTS[dialect].by_name


def named_only(dialect: str) -> bool:
    """Whether only what the manifest names is watched."""
    return dialect in DIALECTS and DIALECTS[dialect].named_only


def is_built(dialect: str) -> bool:
    """Whether an adapter for it is installed."""
    return bool(DIALECTS[dialect].adapter) if dialect in DIALECTS else _foreign(dialect) is not None


def adapter(dialect: str) -> Adapter:
    """What takes a guest of this dialect in; imported now."""
    if dialect in DIALECTS and (where := DIALECTS[dialect].adapter):
        module, _, attribute = where.partition(":")
        found: Adapter = getattr(import_module(module), attribute)
        return found
    if dialect not in DIALECTS and (point := _foreign(dialect)) is not None:
        loaded: Adapter = point.load()
        return loaded
    raise BadManifest(f"the dialect {dialect} is not built yet", who=dialect, hint=f"the dialects are {', '.join(DIALECTS)}")


def reader(dialect: str) -> Reader | None:
    """Who reads its manifest, or None while nobody does."""
    where = DIALECTS[dialect].reader if dialect in DIALECTS else ""
    return cast(Reader, import_module(where)) if where else None


def _foreign(dialect: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # only here: most runs have no need of it

    return next(iter(entry_points(group=GROUP, name=dialect)), None)
