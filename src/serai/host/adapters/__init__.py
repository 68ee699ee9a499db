"""The table of dialects: the file that identifies a guest of each, and the adapter that starts it.

Adapters are imported when the first guest of their dialect starts. Other packages add a dialect with an entry point of the group
`serai.guests`: its name is the dialect, its object the adapter, and a guest selects it with `dialect` in its `guest.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from serai.errors import BadManifest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from serai.host.adapter import Adapter
    from serai.host.guest_manifest import GuestManifest, Scope
    from serai.host.guest_settings import AuthorSettings, PersonSettings

GROUP = "serai.guests"
OWN = "serai"  # the row of `guest.toml`, which stands alone or holds Serai's settings beside a foreign manifest


class DialectRow(NamedTuple):
    """`adapter` is `module:attribute`, or empty while nobody has built it; `reader` the module that reads its manifest.

    `by_name`: the manifest's name is who a guest is, not its folder's. So a project's takes the place of the person's of that name,
    and no reload renames one (spec piglet 1.2, FIX-35).
    `by_folder`: guests of one place are taken in the order of their folders.
    `named_only`: a reload follows from a change of what the manifest names, and of no other code in the folder (spec piglet 8.0).
    `finder` is the module that finds its guests where reading a manifest is not all of it: then a guest may be a file with that
    `ending` too, and `keys` are those of the settings that only the finder reads.
    """

    manifest: str
    adapter: str = ""
    reader: str = ""
    by_name: bool = False
    by_folder: bool = False
    named_only: bool = False
    finder: str = ""
    ending: str = ""
    keys: tuple[str, ...] = ()


class ManifestFields(Protocol):
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


class ManifestReader(Protocol):
    """A dialect's reading of its manifest, without IO. What cannot be read is a `ValueError` with the reason."""

    def parse(self, text: bytes) -> ManifestFields: ...

    def build_argv(self, manifest: Any, folder: str) -> tuple[str, ...]:
        """The command line; bare names are looked up in PATH."""
        ...

    def set_enabled(self, text: bytes, enabled: bool) -> bytes:
        """The same manifest, switched on or off."""
        ...


class GuestFinder(Protocol):
    """A dialect's own way of finding: its guests are packages, and which of them run with what is said elsewhere."""

    def read_settings(self, config: Mapping[str, Any], who: str) -> Any:
        """What the settings say under the dialect's `keys`, for `PersonSettings.own`; else `BadSettings`."""
        ...

    def read(self, path: Path, scope: Scope, person: PersonSettings, author: AuthorSettings) -> GuestManifest:
        """One guest, not settled yet; else `BadManifest`."""
        ...

    def find_in(self, place: Path, scope: Scope, person: PersonSettings) -> tuple[list[GuestManifest], list[tuple[Path, str]]]:
        """Those of one of Serai's own places, settled, and what is wrong there by its path."""
        ...

    def resolve_plans(self, manifests: Sequence[GuestManifest], person: PersonSettings) -> list[GuestManifest]:
        """The same with `plan`, or `refused`, or not `enabled`."""
        ...

    def describe_missing(self, manifests: Iterable[GuestManifest], person: PersonSettings, project: Path) -> list[str]:
        """What the settings want and was not found, a line each."""
        ...

    def restore_guests(self, person: PersonSettings, store: Path) -> list[GuestManifest] | None:
        """The guests that the settings hold already, so that nobody is to look for any; `store` is the person's own place."""
        ...


# In this order a folder with several manifests is taken.
DIALECTS = {
    "zot": DialectRow("extension.json", "serai.host.adapters.zot:ADAPTER", "serai.dialects.zot.manifest"),
    "piglet": DialectRow(
        "manifest.yaml", "serai.host.adapters.piglet:ADAPTER", "serai.dialects.piglet.manifest", by_name=True, by_folder=True,
        named_only=True,
    ),
    "yoi": DialectRow(
        "plugin.toml", "serai.host.adapters.yoi:ADAPTER", "serai.dialects.yoi.manifest", by_name=True, named_only=True,
        finder="serai.host.adapters.yoi.finder", ending=".yoi-plugin", keys=("feature", "plugins"),
    ),
    OWN: DialectRow("guest.toml"),
}  # fmt: skip


ENDINGS = tuple(row.ending for row in DIALECTS.values() if row.ending)  # of files that may be guests


def by_name(dialect: str) -> bool:
    """Whether the manifest's name is who a guest of it is."""
    return dialect in DIALECTS and DIALECTS[dialect].by_name


def orders_by_folder(dialect: str) -> bool:
    """Whether guests of one place are taken in the order of their folders."""
    return dialect in DIALECTS and DIALECTS[dialect].by_folder


def watches_named_only(dialect: str) -> bool:
    """Whether only what the manifest names is watched."""
    return dialect in DIALECTS and DIALECTS[dialect].named_only


def is_built(dialect: str) -> bool:
    """Whether an adapter for it is installed."""
    return bool(DIALECTS[dialect].adapter) if dialect in DIALECTS else _find_entry_point(dialect) is not None


def load_adapter(dialect: str) -> Adapter:
    """What takes a guest of this dialect in; imported now."""
    if dialect in DIALECTS and (where := DIALECTS[dialect].adapter):
        module, _, attribute = where.partition(":")
        found: Adapter = getattr(import_module(module), attribute)
        return found
    if dialect not in DIALECTS and (point := _find_entry_point(dialect)) is not None:
        loaded: Adapter = point.load()
        return loaded
    raise BadManifest(f"the dialect {dialect} is not built yet", who=dialect, hint=f"the dialects are {', '.join(DIALECTS)}")


def load_reader(dialect: str) -> ManifestReader | None:
    """Who reads its manifest, or None while nobody does."""
    where = DIALECTS[dialect].reader if dialect in DIALECTS else ""
    return cast(ManifestReader, import_module(where)) if where else None


def load_finder(dialect: str) -> GuestFinder | None:
    """Who finds its guests, where reading their manifests is not all of it."""
    where = DIALECTS[dialect].finder if dialect in DIALECTS else ""
    return cast(GuestFinder, import_module(where)) if where else None


def read_finder_settings(config: Mapping[str, Any], who: str) -> dict[str, Any]:
    """What each finder reads of the settings, by dialect, where they have something for it."""
    said = (name for name, row in DIALECTS.items() if any(key in config for key in row.keys))
    return {name: finding.read_settings(config, who) for name in said if (finding := load_finder(name)) is not None}


def _find_entry_point(dialect: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # only here: most runs have no need of it

    return next(iter(entry_points(group=GROUP, name=dialect)), None)
