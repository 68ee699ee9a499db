"""Runs of lines into typed messages (sans-IO), with msgspec.

The unknown is data (design rule 4): a line always becomes a value. `Noise` is a line that is not a JSON object, such as a banner
or a log line; `Unknown` is an object that none of the dialect's types fits. Both carry the raw bytes. Opaque parts of a message (a
tool's arguments) are declared `msgspec.Raw` by the dialect and stay bytes; a `Raw` keeps its whole line alive, so call its
`copy()` before storing one for long.

`FoldingDecoder` decodes with case-folded keys, for dialects whose origin matches keys that way (spec piglet FIX-4). Go's decoder
takes `{"Type":"text"}` for a field named `type`, and extensions rely on it. Folding must reach every object that the protocol
defines and nothing inside opaque data, so it follows the declared types: a field declared as a struct (or a list, dict, union or
optional of structs) is folded, anything else is left byte for byte.

The declared structs say `forbid_unknown_fields=True`. A frame that decodes so has exact keys only, and costs nothing extra; one
that does not is folded, its unknown members dropped, and decoded again. That second decode accepts two more things that such
programs write: a member that is `null` counts as absent where its field takes no null, as in Go, and a whole number may be written
as a fraction (`4242.0`, `4e3`) where the field is an `int` (spec piglet 10.14). Nothing else is converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, inspect

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
            return _fold_whole_number
        case inspect.StructType():
            return _plan_struct(info, known)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            fold = _plan(item, known)
            return None if fold is None else _plan_list(fold)
        case inspect.DictType(value_type=value):
            fold = _plan(value, known)
            return None if fold is None else _plan_dict(fold)
        case inspect.UnionType(types=types):
            return _plan_union(types, known)
        case _:
            return None


def _plan_struct(info: inspect.StructType, known: Known) -> Fold:
    if info.cls in known:

        def fold_later(text: Raw) -> Raw:  # looked up when folding: it may still be in the making
            return known[info.cls](text)

        return fold_later
    known[info.cls] = _fold_unready
    if not info.cls.__struct_config__.forbid_unknown_fields:
        raise TypeError(f"{info.cls.__name__} needs forbid_unknown_fields=True: else a key in another case is silently dropped")
    names = [field.encode_name for field in info.fields] + ([info.tag_field] if info.tag_field else [])
    inner = {field.encode_name: fold for field in info.fields if (fold := _plan(field.type, known)) is not None}
    known[info.cls] = _plan_members(names, inner, frozenset(field.encode_name for field in info.fields if _takes_null(field.type)))
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


def _fold_unready(text: Raw) -> Raw:
    """Stands for a struct whose fold is being made; replaced before anything is folded."""
    raise AssertionError(text)


def _plan_members(names: list[str], inner: dict[str, Fold], nullable: frozenset[str]) -> Fold:
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


def _fold_whole_number(text: Raw) -> Raw:
    """A number that is whole but not written so, written so; anything else as it is."""
    written = bytes(text)
    if written.lstrip(b"-").isdigit():
        return text
    try:
        value = _fraction.decode(written)
    except msgspec.MsgspecError:  # no number at all
        return text
    return Raw(b"%d" % value) if value.is_integer() and abs(value) <= _EXACT else text


def _plan_union(types: tuple[inspect.Type, ...], known: Known) -> Fold | None:
    """Each fold leaves alone what is not its kind of JSON value, so the members of a union are simply tried in turn."""
    structs = [kind for kind in types if isinstance(kind, inspect.StructType)]
    others = [kind for kind in types if not isinstance(kind, inspect.StructType)]
    if any(isinstance(kind, inspect.FloatType | inspect.AnyType | inspect.RawType) for kind in types):
        others = [kind for kind in others if not isinstance(kind, inspect.IntType)]  # a fraction is itself there
    folds = [fold for kind in others if (fold := _plan(kind, known)) is not None]
    if structs:
        folds.append(_plan_tagged(structs, known) if len(structs) > 1 else _plan_struct(structs[0], known))

    def fold_member(text: Raw) -> Raw:
        for fold in folds:
            text = fold(text)
        return text

    return fold_member if folds else None


def _plan_tagged(structs: list[inspect.StructType], known: Known) -> Fold:
    """One of several structs: the key of the tag is folded first, then the tag chooses."""
    tag_field = structs[0].tag_field or "type"
    by_tag = {kind.tag: _plan_struct(kind, known) for kind in structs}
    only_tag = _plan_members([tag_field], {}, frozenset())

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


def _plan_list(fold: Fold) -> Fold:
    def fold_items(text: Raw) -> Raw:
        return Raw(_encode([fold(item) for item in _items.decode(text)])) if _begins(text, b"[") else text

    return fold_items


def _plan_dict(fold: Fold) -> Fold:
    def fold_values(text: Raw) -> Raw:
        if not _begins(text, b"{"):
            return text
        return Raw(_encode({key: fold(value) for key, value in _members.decode(text).items()}))

    return fold_values


def _begins(text: Raw, mark: bytes) -> bool:
    return bytes(text).lstrip()[:1] == mark


T_co = TypeVar("T_co", covariant=True)

# What msgspec raises for input it cannot take; RecursionError is its answer to a bomb of brackets.
BAD_INPUT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_object: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


class Noise(msgspec.Struct, frozen=True, gc=False):
    """A line that is not a JSON object."""

    raw: bytes
    why: str


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A JSON object that fits none of the types: `kind` is its discriminator when it has one that is a string."""

    raw: bytes
    kind: str | None
    why: str


_ODD = frozenset({Noise, Unknown})


def encode(message: object) -> bytes:
    """One frame: compact JSON and a newline. Half a surrogate pair, such as from a file name, becomes U+FFFD: it has no UTF-8."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates(msgspec.to_builtins(message, enc_hook=_to_builtins))) + b"\n"


def replace_surrogates(value: Any) -> Any:
    """The same data, all of its text encodable."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def _to_builtins(value: object) -> Any:
    """What msgspec has no builtin for: an opaque part of a message."""
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


class Decodes(Protocol[T_co]):
    """A decoder of one type: msgspec's own, or a folding one."""

    def decode(self, text: bytes | Raw, /) -> T_co: ...


def decode(decoder: Decodes[T], text: bytes | Raw) -> T:
    """One value, such as an opaque part of a message once its type is known; repaired first if its text is broken."""
    try:
        return decoder.decode(text)
    except BAD_INPUT:
        repaired = repair(bytes(text))
        if repaired is None:
            raise
        return decoder.decode(repaired)


class Codec(Generic[T]):
    """The types of one dialect. Immutable and shared; each connection reads through its own `create_reader`.

    `folded`: a line that does not decode is read once more with its keys in any case; one that does costs nothing extra.
    """

    __slots__ = ("decoder", "folding", "kind_field")

    def __init__(self, types: Any, *, kind_field: str = "type", folded: bool = False) -> None:
        self.decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(types)
        self.folding: FoldingDecoder[T] | None = FoldingDecoder(types) if folded else None
        self.kind_field = kind_field

    def create_reader(self) -> LineReader[T]:
        return LineReader(self)


class LineReader(Generic[T]):
    """Decodes the runs of one connection, and counts what was odd in them."""

    __slots__ = ("_codec", "_decode", "noise", "repaired", "unknown")

    def __init__(self, codec: Codec[T]) -> None:
        self._codec = codec
        self._decode = codec.decoder.decode
        # How many lines were no frames, of no known type, or readable only after `repair`.
        self.noise = self.unknown = self.repaired = 0

    def read(self, run: bytes) -> list[T | Unknown | Noise]:
        """The messages of a run as a `Framer` gives it, one for each line that is not blank.

        Each line by itself: msgspec's `decode_lines` would also take an object spread over lines, and two on one line, and to prove
        that a run has none of these costs as much as it saves. `readlines` finds the line ends many times faster than `split`.
        """
        if run.find(b"\n") == len(run) - 1:
            try:
                return [self._decode(run)]
            except BAD_INPUT as error:
                return self._decode_odd(run, error)
        lines = BytesIO(run).readlines()
        rest = iter(lines)
        messages: list[T | Unknown | Noise] = []
        done = 0
        while True:
            before = len(messages)
            try:
                messages += map(self._decode, rest)
                return messages
            except BAD_INPUT as error:  # by one line; those before it are in the list, those after it still in `rest`
                done += len(messages) - before + 1
                messages += self._decode_odd(lines[done - 1], error)

    def read_pairs(self, run: bytes) -> Iterator[tuple[T | Unknown | Noise, bytes]]:
        """The same, each with its own line, for who keeps what was said beside what was understood.

        The line of a message goes into other JSON as it is: without its end, and repaired where it had to be to be read.
        """
        whole = BytesIO(run).readlines()
        lines = list(map(bytes.rstrip, whole))
        try:
            return zip(list(map(self._decode, lines)), lines, strict=True)
        except BAD_INPUT:  # by one of them: all of them once more, one by one
            return iter([pair for line in whole for pair in self._read_pair(line.rstrip(b"\r\n"))])

    def _read_pair(self, line: bytes) -> list[tuple[T | Unknown | Noise, bytes]]:
        try:
            return [(self._decode(line), line)]
        except BAD_INPUT as error:
            return [(message, _get_line(message, line)) for message in self._decode_odd(line, error)]

    def repair_pair(self, message: T | Unknown | Noise, line: bytes) -> tuple[T | Unknown | Noise, bytes]:
        """A pair whose line anybody can read: members that no type has were skipped unread, and may need repair.

        It looks through the whole line, so whoever knows that a message has no such members does without.
        """
        if type(message) in _ODD or _is_sound(line) or (text := repair(line)) is None:
            return message, line
        self.repaired += 1
        return self._decode(text), text

    def _decode_odd(self, line: bytes, error: Exception) -> list[T | Unknown | Noise]:
        """What is made of a line that the decoder refused; nothing of a blank one."""
        line = line.strip(b" \t\r\n")
        return [self._classify(line, error)] if line else []

    def _classify(self, line: bytes, error: Exception) -> T | Unknown | Noise:
        """Folded or repaired if its keys or its text were the trouble, else told apart."""
        if line[:1] not in (b"{", b"\xef"):  # the common noise, told at once: a peer may pour out millions of such lines
            self.noise += 1
            return Noise(line, "not a JSON object")
        repaired = repair(line)
        if repaired is not None or self._codec.folding is not None:
            try:
                message = (self._codec.folding or self._codec.decoder).decode(repaired or line)
            except BAD_INPUT as again:
                error = again
            else:
                self.repaired += repaired is not None
                return message
        try:
            members = _object.decode(repaired or line)
        except BAD_INPUT as broken:
            why = "not a JSON object" if isinstance(broken, msgspec.ValidationError) else f"not JSON: {broken}"
            self.noise += 1
            return Noise(line, why)
        self.unknown += 1
        return Unknown(line, _decode_string(members.get(self._codec.kind_field)), str(error))


def _decode_string(raw: Raw | None) -> str | None:
    if raw is None:
        return None
    try:
        return _string.decode(raw)
    except BAD_INPUT:
        return None


# A surrogate without its other half. Only in text without escaped backslashes, where every `\\u` is an escape.
_LONE = re.compile(
    rb"""\\u[dD][89abAB][0-9a-fA-F]{2} (?! \\u[dD][c-fC-F][0-9a-fA-F]{2} )
       | (?<! \\u[dD][89abAB][0-9a-fA-F]{2} ) \\u[dD][c-fC-F][0-9a-fA-F]{2}""",
    re.VERBOSE,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BOM = b"\xef\xbb\xbf"
# Longer lines are not repaired: it would hold up everybody else.
_REPAIRABLE = 16 * 1024 * 1024


def repair(line: bytes) -> bytes | None:
    """The line with what no strict parser reads replaced by U+FFFD, or None if there was nothing of the kind.

    Programs that cut text by UTF-16 units write lone surrogates (JavaScript's `JSON.stringify` does), others put raw
    bytes of another encoding into strings, some begin with a byte order mark (spec agents 7.2). The frame around such text is
    sound and must not be lost for it.
    """
    if len(line) > _REPAIRABLE:
        return None
    text = line.removeprefix(_BOM)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    if _SURROGATE.search(text):
        # Backslashes pair up from the left, as a parser reads them; so do the separators of a split.
        text = b"\\\\".join(_LONE.sub(rb"\\ufffd", part) for part in text.split(b"\\\\"))
    return text if text != line else None


def _get_line(message: object, line: bytes) -> bytes:
    return message.raw if isinstance(message, Unknown | Noise) else repair(line) or line


def _is_sound(line: bytes) -> bool:
    """Whether nothing that a decoder skips needs `repair`: of that it checks the escapes, but not the bytes."""
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


def find_key(head: bytes, key: str) -> bytes | None:
    """The JSON text of a top-level scalar member in the head of an object that cannot be parsed, or None.

    For the id of an oversize frame, of which only the head is kept. Members of inner objects do not count, nor does a value that
    was cut off.
    """
    return scan_head(head).get(_encoder.encode(key)) or None


def scan_head(head: bytes) -> dict[bytes, bytes]:
    """The top-level members that the head of an object shows, by the JSON text of their keys; `b""` for what is no scalar."""
    found: dict[bytes, bytes] = {}
    depth = 0
    expect_key = False
    tokens = _TOKEN.finditer(head)
    for token in tokens:
        text = token[0]
        if text == b'"':  # a string that was cut off: nothing after it can be read
            break
        if text in b"{[":
            depth += 1
            expect_key = text == b"{"
        elif text in b"}]":
            depth -= 1
        elif text == b",":
            expect_key = True
        elif text == b":":
            expect_key = False
        elif depth == 1 and expect_key:
            colon, value = next(tokens, None), next(tokens, None)
            if colon is None or colon[0] != b":" or value is None:
                break
            opens = value[0] in b"{["
            depth += opens
            expect_key = value[0] == b"{"
            whole = value[0] != b'"' and value.end() < len(head)
            found[text] = b"" if opens or not whole else value[0]
    return found
