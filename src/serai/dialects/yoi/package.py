"""A package: its files, what they say, and the digest of them (spec yoi 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from serai.dialects.yoi import manifest as _manifest
from serai.dialects.yoi.archive import ENDING, BadArchive, check_names, normalised
from serai.dialects.yoi.bounds import DEFAULT, Bounds
from serai.dialects.yoi.manifest import PluginManifest

__all__ = ["MANIFEST", "MANIFEST_MOST", "Package", "digest", "left_out", "open_files"]

MANIFEST = "plugin.toml"
MANIFEST_MOST = 65_536  # bytes
_DOMAIN = b"yoi-plugin-package-digest-v1\0"
_PREFIX = "sha256:"
_LEFT_OUT = frozenset({"target", "node_modules", ".git", "__pycache__", ".pytest_cache"})  # folders, spec yoi 7.2 [R]


@dataclass(frozen=True, slots=True)
class Package:
    """The very bytes that were checked: what is compiled is taken from here, never read again (spec yoi 21.34)."""

    files: Mapping[str, bytes]  # by normalised path
    manifest: PluginManifest
    digest: str  # `sha256:…`


def open_files(files: Mapping[str, bytes], bounds: Bounds = DEFAULT) -> Package:
    """The package of these files, its manifest parsed and checked; a `ValueError` says what is wrong, `BadArchive` of its form."""
    check_names(map(normalised, files))
    if len(files) > bounds.entries:
        raise BadArchive("bounds", f"plugin package has more than {bounds.entries} entries")
    if any(len(content) > bounds.file for content in files.values()):
        raise BadArchive("bounds", f"plugin package entry is larger than {bounds.file} bytes")
    if sum(map(len, files.values())) > bounds.expanded:
        raise BadArchive("bounds", f"plugin package expands to more than {bounds.expanded} bytes")
    text = files.get(MANIFEST)
    if text is None:
        raise BadArchive("malformed", "plugin package is missing plugin.toml")
    if len(text) > MANIFEST_MOST:
        raise BadArchive("bounds", f"plugin.toml is larger than {MANIFEST_MOST} bytes")
    manifest = _manifest.parse(text)
    _manifest.check_package(manifest, files.keys())
    return Package(files, manifest, digest(files))


def digest(files: Mapping[str, bytes]) -> str:
    """Of the contents, whatever file they came in (spec yoi 7.1). The order is that of the paths' bytes (spec yoi 21.23)."""
    total = sha256(_DOMAIN)
    for path, content in sorted((path.encode(), content) for path, content in files.items()):
        total.update(path + b"\0" + len(content).to_bytes(8, "big") + sha256(content).digest())
    return f"{_PREFIX}{total.hexdigest()}"


def left_out(name: str, *, folder: bool) -> bool:
    """What lies in a plugin's folder and belongs to its making, not to the package (spec yoi 7.2)."""
    return name in _LEFT_OUT if folder else name.endswith(ENDING)
