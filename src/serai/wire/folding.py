"""Decoding with case-folded keys, for dialects whose origin matches keys that way (spec piglet FIX-4).

Go's decoder takes `{"Type":"text"}` for a field named `type`, and extensions rely on it. Folding must reach every object that
the protocol defines and nothing inside opaque data, so it follows the declared types: a field declared as a struct (or a list,
dict, union or optional of structs) is folded, anything else is left byte for byte.

The declared structs say `forbid_unknown_fields=True`. A frame that decodes so has exact keys only, and costs nothing extra;
one that does not is folded, its unknown members dropped, and decoded again. On that way two more things are taken that such
programs write: a member that is `null` counts as absent where its field takes no null, as in Go, and a whole number may be
written as a fraction (`4242.0`, `4e3`) where the field is an `int` (spec piglet 10.14). Nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, inspect

__all__ = ["FoldingDecoder"]

T = TypeVar("T")
# Rewrites the JSON text of one value.
Fold = Callable[[Raw], Raw]

_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_fraction: msgspec.json.Decoder[float] = msgspec.json.Decoder(float)
# Beyond it a float no longer tells one whole number from the next.
_EXACT = 2**53
_encode = msgspec.json.Encoder().encode


class FoldingDecoder(Generic[T]):
    """Decodes one protocol type; exact keys win over folded ones, and of several folded ones the last wins, as in Go."""

    def __init__(self, type_: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)
        self._fold = _plan(inspect.type_info(type_), {})

    def decode(self, text: bytes | Raw) -> T:
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError:
            if self._fold is None:
                raise
        return self._decoder.decode(self._fold(Raw(bytes(text))))


# The folds of the structs on the way, by class: a struct may contain itself.
Known = dict[type, Fold]


def _plan(info: inspect.Type, known: Known) -> Fold | None:
    """How to fold a value of this type; None when it holds neither a protocol object nor a whole number."""
    match info:
        case inspect.IntType():
            return _whole
        case inspect.StructType():
            return _struct(info, known)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            fold = _plan(item, known)
            return None if fold is None else _each_item(fold)
        case inspect.DictType(value_type=value):
            fold = _plan(value, known)
            return None if fold is None else _each_value(fold)
        case inspect.UnionType(types=types):
            return _union(types, known)
        case _:
            return None


def _struct(info: inspect.StructType, known: Known) -> Fold:
    if info.cls in known:

        def fold_later(text: Raw) -> Raw:  # looked up when folding: it may still be in the making
            return known[info.cls](text)

        return fold_later
    known[info.cls] = _begun
    if not info.cls.__struct_config__.forbid_unknown_fields:
        raise TypeError(f"{info.cls.__name__} needs forbid_unknown_fields=True: else a key in another case is silently dropped")
    names = [field.encode_name for field in info.fields] + ([info.tag_field] if info.tag_field else [])
    inner = {field.encode_name: fold for field in info.fields if (fold := _plan(field.type, known)) is not None}
    known[info.cls] = _folding(names, inner, frozenset(field.encode_name for field in info.fields if _takes_null(field.type)))
    return known[info.cls]


def _takes_null(info: inspect.Type) -> bool:
    match info:
        case inspect.UnionType(types=types):
            return any(map(_takes_null, types))
        case inspect.AnyType() | inspect.RawType() | inspect.NoneType() | inspect.CustomType() | inspect.ExtType():
            return True
        case inspect.LiteralType(values=values):
            return None in values
        case _:
            return False


def _begun(text: Raw) -> Raw:
    """Stands for a struct whose fold is being made; replaced before anything is folded."""
    raise AssertionError(text)


def _folding(names: list[str], inner: dict[str, Fold], nullable: frozenset[str]) -> Fold:
    exact = frozenset(names)
    by_fold = {name.casefold(): name for name in names}

    def fold(text: Raw) -> Raw:
        if not _begins(text, b"{"):
            return text
        folded: dict[str, Raw] = {}
        said: set[str] = set()  # by their exact names
        for key, value in _members.decode(text).items():
            name = key if key in exact else by_fold.get(key.casefold())
            if name is None or (name not in nullable and bytes(value) == b"null") or (name != key and name in said):
                continue
            folded[name] = inner[name](value) if name in inner else value
            if name == key:
                said.add(name)
        return Raw(_encode(folded))

    return fold


def _whole(text: Raw) -> Raw:
    """A number that is whole but not written so, written so; anything else as it is."""
    written = bytes(text)
    if written.lstrip(b"-").isdigit():
        return text
    try:
        value = _fraction.decode(written)
    except msgspec.MsgspecError:  # no number at all
        return text
    return Raw(b"%d" % value) if value.is_integer() and abs(value) <= _EXACT else text


def _union(types: tuple[inspect.Type, ...], known: Known) -> Fold | None:
    """Each fold leaves alone what is not its kind of JSON value, so the members of a union are simply tried in turn."""
    structs = [kind for kind in types if isinstance(kind, inspect.StructType)]
    others = [kind for kind in types if not isinstance(kind, inspect.StructType)]
    if any(isinstance(kind, inspect.FloatType | inspect.AnyType | inspect.RawType) for kind in types):
        others = [kind for kind in others if not isinstance(kind, inspect.IntType)]  # a fraction is itself there
    folds = [fold for kind in others if (fold := _plan(kind, known)) is not None]
    if structs:
        folds.append(_tagged(structs, known) if len(structs) > 1 else _struct(structs[0], known))

    def fold_member(text: Raw) -> Raw:
        for fold in folds:
            text = fold(text)
        return text

    return fold_member if folds else None


def _tagged(structs: list[inspect.StructType], known: Known) -> Fold:
    """One of several structs: the key of the tag is folded first, then the tag chooses."""
    tag_field = structs[0].tag_field or "type"
    by_tag = {kind.tag: _struct(kind, known) for kind in structs}
    only_tag = _folding([tag_field], {}, frozenset())

    def fold(text: Raw) -> Raw:
        if not _begins(text, b"{"):
            return text
        tag = _members.decode(only_tag(text)).get(tag_field)
        try:
            chosen = by_tag.get(_string.decode(tag)) if tag is not None else None
        except msgspec.ValidationError:
            chosen = None
        return text if chosen is None else chosen(text)

    return fold


def _each_item(fold: Fold) -> Fold:
    def fold_items(text: Raw) -> Raw:
        return Raw(_encode([fold(item) for item in _items.decode(text)])) if _begins(text, b"[") else text

    return fold_items


def _each_value(fold: Fold) -> Fold:
    def fold_values(text: Raw) -> Raw:
        if not _begins(text, b"{"):
            return text
        return Raw(_encode({key: fold(value) for key, value in _members.decode(text).items()}))

    return fold_values


def _begins(text: Raw, mark: bytes) -> bool:
    return bytes(text).lstrip()[:1] == mark
