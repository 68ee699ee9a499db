"""`extension.json`: what a zot guest's folder says of it (spec zot 1.3). Sans-IO: text in, values out."""

from __future__ import annotations

import posixpath

import msgspec
from msgspec import Raw

from serai.wire.codec import BAD_INPUT, decode


class ManifestError(ValueError):
    """The text is no usable manifest; the message is the reason in the protocol's words (spec zot 1.2)."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that can be used: `name` and `exec` are not empty."""

    name: str
    exec: str
    args: tuple[str, ...] = ()
    version: str = ""
    language: str = ""
    description: str = ""
    enabled: bool = True


class _Text(msgspec.Struct):
    """The same as it is written: everything may be missing, and null counts as missing (spec zot 3.1)."""

    name: str | None = None
    exec: str | None = None
    args: tuple[str, ...] | None = None
    version: str | None = None
    language: str | None = None
    description: str | None = None
    enabled: bool | None = None


_text: msgspec.json.Decoder[_Text] = msgspec.json.Decoder(_Text)
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


def parse(text: bytes) -> Manifest:
    """The manifest, or `ManifestError`. Unknown fields are ignored; a field of the wrong type is an error."""
    try:
        read = decode(_text, text)
    except BAD_INPUT as error:
        raise ManifestError(f"parse manifest: {error}") from None
    if not read.name:
        raise ManifestError("manifest: name is required")
    if not read.exec:
        raise ManifestError("manifest: exec is required")
    return Manifest(
        name=read.name,
        exec=read.exec,
        args=read.args or (),
        version=read.version or "",
        language=read.language or "",
        description=read.description or "",
        enabled=read.enabled is not False,
    )


def build_argv(manifest: Manifest, folder: str) -> tuple[str, ...]:
    """The command line, its program resolved against the guest's folder.

    A name without a slash stays as it is, to be looked up in PATH: a file of that name in the folder is not meant (spec zot 1.3).
    `..` is left for the kernel, which knows where a linked folder really lies.
    """
    program = manifest.exec
    if "/" in program or program in (".", ".."):
        program = posixpath.join(folder, program.removeprefix("./"))
    return (program, *manifest.args)


def set_enabled(text: bytes, enabled: bool) -> bytes:
    """The same manifest with `enabled` set: sorted by key, two spaces deep, unknown fields kept to the letter (spec zot 1.4)."""
    try:
        members = decode(_members, text)
    except BAD_INPUT as error:
        raise ManifestError(f"parse manifest: {error}") from None
    members["enabled"] = Raw(b"true" if enabled else b"false")
    return msgspec.json.format(msgspec.json.encode(dict(sorted(members.items()))), indent=2) + b"\n"
