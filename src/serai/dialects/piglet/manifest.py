"""`manifest.yaml`: what a piglet guest's folder says of it (spec piglet 1.3, 1.4). Sans-IO: text in, values out."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from yaml import Event, Node

HAS_SWITCH = False  # it has no key that says whether a guest is on (spec piglet 1.3)
NAMES_FILE = True  # in its words for a bad manifest, the file stands after `manifest` (spec piglet 1.3)

Transport = Literal["auto", "fd", "stdio"]

# Nobody writes as much; YAML is slow to read, and what is nested deeply costs more than it says.
_LONGEST = 64 * 1024
_MOST_NODES = 5000
_DEEPEST = 50
_LONGEST_NAME = 255  # bytes of a folder's name
_INTERPRETERS = {"bun": ("bun", "run"), "node": ("node",), "deno": ("deno", "run", "--allow-all"), "python": ("python3",)}
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"


class ManifestError(ValueError):
    """The text is no usable manifest; the message is the reason in the protocol's words (spec piglet 1.3)."""


class Default(msgspec.Struct, frozen=True):
    """A file that the guest ships for its settings: where it lies in the guest's folder, and where it goes (spec piglet 1.5)."""

    src: str = ""
    dest: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest that can be used. `capabilities` only describe; `raw` has every key, known or not, as YAML reads it."""

    name: str
    runtime: str
    entry: str = ""
    version: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    defaults: tuple[Default, ...] = ()
    transport: Transport = "auto"
    raw: dict[Any, Any] = {}

    @property
    def language(self) -> str:
        return self.runtime

    @property
    def enabled(self) -> bool:
        """There is no such key: the person's settings switch a piglet guest off."""
        return True


def parse(text: bytes) -> Manifest:
    """The manifest, or `ManifestError`. Unknown keys are no error; a known one of the wrong type is."""
    fields, raw = _read(text)
    name, runtime = _read_text(fields, "name"), _read_text(fields, "runtime")
    if not name:
        raise ManifestError("manifest: name is required")
    if "/" in name or name in (".", "..") or len(name.encode()) > _LONGEST_NAME:
        raise ManifestError(f"manifest: name {name[:80]!r} is not a single path component, and it becomes the name of a folder")
    if not name.isprintable() or name != name.strip():  # what it says would begin a line of its own, as if somebody else spoke
        raise ManifestError(f"manifest: name {name[:80]!r} has blanks around it, or something that cannot be seen")
    if not runtime:
        raise ManifestError("manifest: runtime is required")
    description = raw.get("description")  # no field of the protocol, so it may be anything
    return Manifest(
        name=name,
        runtime=runtime,
        entry=_read_text(fields, "entry"),
        version=_read_text(fields, "version"),
        description=_replace_surrogates(description) if isinstance(description, str) else "",
        capabilities=tuple(_read_scalar("capabilities", item) for item in _read_items(fields, "capabilities")),
        defaults=tuple(map(_read_default, _read_items(fields, "defaults"))),
        transport=_parse_transport(_read_text(fields, "transport")),
        raw=raw,
    )


def build_argv(manifest: Manifest, folder: str) -> tuple[str, ...]:
    """The command line (spec piglet 1.4): four names are interpreters, to be looked up in PATH; all else is a file.

    `..` is left for the kernel, which knows where a linked folder really lies.
    """
    entry = (_resolve_path(folder, manifest.entry),) if manifest.entry else ()
    if manifest.runtime in _INTERPRETERS:  # without an entry it gets the folder, as from the origin
        return (*_INTERPRETERS[manifest.runtime], *(entry or (folder,)))
    program = manifest.runtime if manifest.runtime.startswith("/") else _resolve_path(folder, manifest.runtime)
    return (program, *entry)


def set_enabled(text: bytes, enabled: bool) -> bytes:
    """A piglet manifest has no such switch, and an unknown key would do nothing."""
    name, word = parse(text).name, "true" if enabled else "false"
    raise ManifestError(f'manifest.yaml has no switch: put `enabled = {word}` under `[guest."piglet:{name}"]` in config.toml')


def _resolve_path(folder: str, path: str) -> str:
    """A file in the guest's folder, also when it is written like an absolute one (as from the origin)."""
    return posixpath.join(folder, path.removeprefix("./").lstrip("/"))


# -- YAML -----------------------------------------------------------------------------------------------------------------------


def _read(text: bytes) -> tuple[dict[str, Node], dict[Any, Any]]:
    """The nodes of the top-level keys, for what they are written like, and the whole as plain data.

    The origin takes `version: 1.10` as the text that it is, which plain data has lost.
    """
    try:
        node, raw = read_yaml(text.decode("utf-8-sig", errors="replace"))
    except ValueError as error:
        raise ManifestError(f"parse manifest: {error}") from None
    if raw is None or node is None:
        return {}, {}
    if not isinstance(raw, dict) or type(node).__name__ != "MappingNode":
        raise ManifestError("parse manifest: it is no mapping of keys to values")
    return {key.value: value for key, value in node.value if type(key).__name__ == "ScalarNode"}, raw


def read_yaml(text: str) -> tuple[Node | None, Any]:
    """The first document of a YAML text, as it is written and as plain data; both None if there is none.

    A `ValueError` says on one line why it is not read. Piglet's own settings are read with it too.
    """
    import yaml  # only here: few guests are of this dialect

    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} characters; the most is {_LONGEST}")
    try:
        _check_bounds(yaml.parse(text, Loader=yaml.SafeLoader))
        loader = yaml.SafeLoader(text)
        node = loader.get_node() if loader.check_node() else None
        return node, None if node is None else loader.construct_document(node)
    except Exception as error:  # whatever PyYAML raises: for `!!int ""` that is an IndexError
        raise ValueError(_format_error(error)) from None


def _check_bounds(events: Any) -> None:
    """Refuse what is small to write and large to build: aliases, merged keys, depth, too many values."""
    import yaml

    depth = nodes = 0
    event: Event
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("anchors and aliases are not read")
        if isinstance(event, yaml.ScalarEvent) and (event.tag == _MERGE or (event.value == "<<" and event.implicit[0])):
            raise ValueError("merged keys (<<) are not read")
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if nodes > _MOST_NODES or depth > _DEEPEST:
            raise ValueError(f"more than {_MOST_NODES} values, or nested deeper than {_DEEPEST}")


def _format_error(error: Exception) -> str:
    """On one line: PyYAML draws the place over several."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _read_text(fields: dict[str, Node], key: str) -> str:
    return _read_scalar(key, fields[key]) if key in fields else ""


def _read_scalar(key: str, node: Node) -> str:
    """A number or a date counts as the text that it is written like; null is as good as absent."""
    if not isinstance(node.value, str):
        raise ManifestError(f"parse manifest: {key} is no text")
    if "\0" in node.value:  # no program's name or argument can have one
        raise ManifestError(f"parse manifest: {key} has a NUL in it")
    return "" if node.tag == _NULL else _replace_surrogates(node.value)


def _read_items(fields: dict[str, Node], key: str) -> list[Node]:
    node = fields.get(key)
    if node is None or node.tag == _NULL:
        return []
    if type(node).__name__ != "SequenceNode":
        raise ManifestError(f"parse manifest: {key} is no list")
    return list(node.value)


def _read_default(node: Node) -> Default:
    if type(node).__name__ != "MappingNode":
        raise ManifestError("parse manifest: each of defaults has a src and a dest")
    fields = {key.value: value for key, value in node.value if isinstance(key.value, str)}
    return Default(_read_text(fields, "src"), _read_text(fields, "dest"))


def _parse_transport(text: str) -> Transport:
    if text and text not in get_args(Transport):
        raise ManifestError(f"manifest: transport is auto, fd or stdio, not {text[:80]!r}")
    return text or "auto"  # type: ignore[return-value]


def _replace_surrogates(text: str) -> str:
    """Text that can be encoded: YAML can spell half a surrogate pair."""
    return text.encode(errors="replace").decode()
