"""Claude Code's own tools in neutral form, and back (docs/design-rules.md, "The path of a call").

A rule or a guard is written once, for `bash{command}` or `write{path}`: a wrong mapping escapes it. So whatever runs a shell
command is `bash`, whatever changes a file `edit` or `write`, and a tool that fits no neutral name keeps its name and arguments.
Arguments that have no neutral name stay too: an allow rule is then not certain of the call, and a person is asked. A call on its
way back is read once more before it is sent, so that what runs is what was decided.

Names and arguments are those of 2.1.325, as it tells them to its model, and of earlier versions. Also Claude Code's texts as
people may see them, and its content in neutral blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from serai.dialects.claude import blocks
from serai.model.tools import Block, ImageBlock, NativeCall, OtherBlock, TextBlock, ToolCall
from serai.plain_text import strip_text

ASKER: Final = "claude"
PREFIX: Final = "mcp__serai__"  # before the name of a tool that Serai serves it
_ASIDE: Final = "native_"  # before an argument that has the name of another one's neutral word
_FOREVER: Final = 10**9  # seconds


class _Shape(NamedTuple):
    """`keys`: its words for ours; `others`: what is called the same; `means`: what its name says by itself."""

    name: str
    keys: Mapping[str, str] = {}
    others: tuple[str, ...] = ()
    means: Mapping[str, Any] = {}


_COMMAND: Final = ("command", "timeout", "description", "run_in_background", "dangerouslyDisableSandbox")
_EDIT: Final = {"file_path": "path", "old_string": "old", "new_string": "new"}
_SHAPES: Final[Mapping[str, _Shape]] = {
    "Bash": _Shape("bash", others=_COMMAND),
    # Its quotes are not those of bash, so that no reading of it is certain: rules against a command hold, no rule allows one.
    "PowerShell": _Shape("bash", others=_COMMAND, means={"shell": "powershell"}),
    "Monitor": _Shape("bash", {"timeout_ms": "timeout"}, ("command", "description", "ws", "persistent")),
    "Read": _Shape("read", {"file_path": "path"}, ("offset", "limit", "pages", "allow_large")),
    "NotebookRead": _Shape("read", {"notebook_path": "path"}, ("cell_id",)),
    "Write": _Shape("write", {"file_path": "path"}, ("content",)),
    "Edit": _Shape("edit", _EDIT, ("replace_all",)),
    "MultiEdit": _Shape("edit", {"file_path": "path"}, ("edits",)),
    "NotebookEdit": _Shape(
        "edit", {"notebook_path": "path", "new_source": "new"}, ("cell_id", "cell_number", "cell_type", "edit_mode")
    ),
    "Grep": _Shape(
        "grep",
        {"-i": "ignore_case", "-C": "context", "head_limit": "limit"},
        ("pattern", "path", "glob", "type", "output_mode", "multiline", "offset", "-A", "-B", "-n", "-o"),
    ),
    "Glob": _Shape("find", others=("pattern", "path")),
    "LS": _Shape("find", others=("path", "ignore"), means={"pattern": "*"}),
    "WebFetch": _Shape("fetch", others=("url", "prompt", "offset")),
}
_SOCKET: Final = _Shape("fetch", {"timeout_ms": "timeout"}, ("description", "ws", "persistent"))  # a Monitor without a command


class ToolMap:
    """`serai` tells the real name of a tool that Serai itself offers, by the name that Claude has for it; None: it is no such."""

    __slots__ = ("serai",)

    def __init__(self, serai: Callable[[str], str | None] | None = None) -> None:
        self.serai = serai

    def to_neutral(self, name: str, input: Any) -> tuple[str, Any]:
        """What it is called here, and with what. The arguments are new ones, or those that were given."""
        shape = _find_shape(name, input)
        if shape is None:
            return self._find_serai_name(name) or name, input
        return shape.name, _to_neutral_input(shape, input) if isinstance(input, dict) else input

    def to_native(self, native: NativeCall, arguments: Any) -> Any:
        """The input to send back for these arguments: only what changed is changed, and what is not ours stays.

        Raises `ValueError` for what Claude's tool cannot be told.
        """
        try:
            return self._to_native(native, arguments)
        except RecursionError:
            raise ValueError(f"the arguments of {native.name} are nested too deep") from None

    def _to_native(self, native: NativeCall, arguments: Any) -> Any:
        name, before = self.to_neutral(native.name, native.arguments)
        if _is_same(before, arguments):
            return native.arguments
        if not isinstance(arguments, dict):
            raise ValueError(f"{native.name} takes an object of names and values")  # noqa: TRY004
        shape = _find_shape(native.name, native.arguments)
        if shape is None:
            return dict(arguments)
        old = native.arguments if isinstance(native.arguments, dict) else {}
        input = _to_native_input(shape, old, before if isinstance(before, dict) else {}, arguments)
        again, read = self.to_neutral(native.name, input)
        if again != name or not _is_same(_round_timeout(read), _round_timeout(arguments)):
            raise ValueError(f"{native.name} cannot be told this change of its arguments")
        return input

    def build_call(self, id: str, name: str, input: Any) -> ToolCall:
        """What the model wants, as everybody here sees it."""
        neutral, arguments = self.to_neutral(name, input)
        return ToolCall(neutral, arguments, id, ASKER, NativeCall(name, input))

    def is_ours(self, name: str) -> bool:
        """Whether it is decided where it runs, and not when Claude asks for it."""
        return self._find_serai_name(name) is not None

    def _find_serai_name(self, name: str) -> str | None:
        if self.serai is None or not name.startswith(PREFIX):
            return None
        return self.serai(name.removeprefix(PREFIX))


def _find_shape(name: str, input: Any) -> _Shape | None:
    if name == "Monitor" and isinstance(input, dict) and input.get("command") is None and input.get("ws") is not None:
        return _SOCKET
    return _SHAPES.get(name)


def _to_neutral_input(shape: _Shape, input: Mapping[str, Any]) -> dict[str, Any]:
    taken = {neutral for key, neutral in shape.keys.items() if key in input} | shape.means.keys()
    if shape is _SOCKET:
        taken.add("url")
    said: dict[str, Any] = {}
    for key, value in input.items():
        neutral = shape.keys.get(key)
        if neutral is None:
            neutral = _ASIDE + key if key in taken or key.startswith(_ASIDE) else key
        said[neutral] = _to_neutral_value(neutral, value)
    if shape is _SOCKET:
        socket = input["ws"]
        said["url"] = socket.get("url") if isinstance(socket, dict) else socket
    return {**said, **shape.means}


def _to_native_input(shape: _Shape, old: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    words = {neutral: key for key, neutral in shape.keys.items()}
    input = dict(old)
    for word in before.keys() - after.keys():
        input.pop(_to_native_key(word, words), None)
    for word, value in after.items():
        if word in shape.means or (word in before and _is_same(before[word], value)):
            continue
        key = _to_native_key(word, words)
        if key not in shape.keys and key not in shape.others and key not in old:
            raise ValueError(f"`{word}` has no word among the arguments of {shape.name}")
        input[key] = _to_native_value(word, value)
    return input


def _to_native_key(word: str, words: Mapping[str, str]) -> str:
    return words.get(word) or word.removeprefix(_ASIDE)


# -- values -----------------------------------------------------------------------------------------------------------------------


def _to_neutral_value(word: str, value: Any) -> Any:
    if word == "timeout" and _is_number(value):
        return value / 1000  # milliseconds there, seconds here
    if word == "edits" and isinstance(value, list):
        return [_rename_keys(change, _EDIT) for change in value]
    return value


def _to_native_value(word: str, value: Any) -> Any:
    if word == "timeout":
        if not _is_number(value) or not 0 < value < _FOREVER:
            raise ValueError("`timeout` is a number of seconds")
        return round(value * 1000) or 1
    if word == "edits" and isinstance(value, list):
        return [_rename_keys(change, {neutral: key for key, neutral in _EDIT.items()}) for change in value]
    return value


def _rename_keys(change: Any, words: Mapping[str, str]) -> Any:
    if not isinstance(change, dict):
        return change
    if any(word in change for key, word in words.items() if key in change):  # two of one meaning: as it is
        return change
    return {words.get(key, key): value for key, value in change.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(one: Any, other: Any) -> bool:
    """Also in type: 1 is not True."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _round_timeout(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """With a time-out in whole milliseconds: there is nothing between them there."""
    said = dict(arguments)
    if _is_number(said.get("timeout")):
        said["timeout"] = round(said["timeout"] * 1000)
    return said


_LONG = 300


def extract_first_line(text: str) -> str:
    """Its first line, as a person sees it."""
    line = next((line.strip() for line in strip_text(text[: 4 * _LONG]).splitlines() if line.strip()), "")
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


def decode_json(value: Any) -> Any:
    """Opaque JSON as data; None when it is none."""
    if isinstance(value, msgspec.Raw):
        try:
            return msgspec.json.decode(value) if len(value) else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    return value


def to_blocks(content: str | Iterable[blocks.Block] | None) -> tuple[Block, ...]:
    """Of a tool's result."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(content),)
    return tuple(map(to_block, content))


def to_block(block: blocks.Block) -> Block:
    kind = type(block)
    if kind is blocks.Text:
        return TextBlock(block.text)  # type: ignore[union-attr]
    if kind is blocks.Image and (image := _to_image(decode_json(block.source))):  # type: ignore[union-attr]
        return image
    if isinstance(block, blocks.UnknownBlock):
        return OtherBlock(block.kind, decode_json(block.raw))
    return OtherBlock(str(kind.__struct_config__.tag), msgspec.to_builtins(block, enc_hook=decode_json))


def _to_image(source: Any) -> ImageBlock | None:
    if not isinstance(source, dict) or not isinstance(data := source.get("data"), str):
        return None
    try:
        return ImageBlock(base64.b64decode(data, validate=True), str(source.get("media_type") or ""))
    except ValueError:
        return None
