"""TOML as we write it: enablements, each proved by being read back. No library of ours writes TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from serai.dialects.yoi.grants import Enablement, Record
from serai.dialects.yoi.reading import plain

__all__ = ["document", "enablement_of", "snippet"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_DOTS = 20  # in a text: a line with more than 50 is refused by whoever reads it
_SCALARS = ("id", "version", "digest", "surfaces")
_LISTS = ("request", "websocket", "fs")


def enablement_of(record: Record) -> Enablement:
    """The enablement that resolves to this record."""
    declared = record.manifest.declared
    return Enablement(
        id=record.identity,
        version=record.version,
        digest=record.digest,
        surfaces=() if frozenset(record.enabled_surfaces) == declared else record.enabled_surfaces,
        config=record.config,
        grants=record.grants,
    )


def snippet(of: Enablement | Record) -> str:
    """One `[[plugins.enabled]]` with its grants. A `ValueError` says of a `config` that TOML has no form for it."""
    enablement = of if isinstance(of, Enablement) else enablement_of(of)
    enablement = msgspec.structs.replace(enablement, config=plain(enablement.config))
    text = "".join(f"{line}\n" for line in _lines(enablement))
    read = msgspec.convert(tomllib.loads(text)["plugins"]["enabled"][0], Enablement)
    if read != enablement or _exactly(read.config) != _exactly(enablement.config):
        raise ValueError("the enablement cannot be written as TOML")
    return text


def _exactly(config: Any) -> bytes:
    return msgspec.json.encode(config, order="deterministic")  # where true is not 1, nor 1 1.0


def document(enablements: Iterable[Enablement]) -> str:
    """A whole file of them, which switches plugins on."""
    return "\n".join(["[feature.plugins]\nenabled = true\n", *map(snippet, enablements)])


def _lines(enablement: Enablement) -> Iterator[str]:
    said = msgspec.to_builtins(enablement)
    yield "[[plugins.enabled]]"
    yield from (f"{key} = {_value(said[key])}" for key in _SCALARS if key in said)
    if enablement.config is not None:
        yield f"config = {_value(enablement.config)}"
    grants = said.get("grants", {})
    if not grants:
        return
    yield ""
    yield "[plugins.enabled.grants]"
    yield from (f"{key} = {_value(grants[key])}" for key in _SCALARS if key in grants)
    if permissions := grants.get("permissions"):
        yield "permissions = ["
        yield from (f"  {_value(permission)}," for permission in permissions)
        yield "]"
    for name in _LISTS:
        for table in grants.get(name, ()):
            yield ""
            yield f"[[plugins.enabled.grants.{name}]]"
            yield from (f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: Any) -> str:
    """Inline, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise ValueError("TOML has no null: leave the key out")


def _float(value: float) -> str:
    text = repr(value)  # `1.0`, `1e+16`, `1e-07`: all of them TOML too
    return text if "." in text or "e" in text else f"{text}.0"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Basic, on one line; all that cannot be seen is written as what it is."""
    many = text.count(".") > _DOTS
    return '"' + "".join(_character(character, many) for character in text) + '"'


def _character(character: str, many: bool) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable() and not (many and character == "."):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
