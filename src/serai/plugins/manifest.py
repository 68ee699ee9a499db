"""`plugin.toml` (spec yoi 8): what a plugin says of itself, and what it requests. Unknown keys are errors at every level.

Sans-IO: text in, values out. A manifest that can be read is of a plugin that could run; grants say whether it may. A tool's
`input_schema` may use a part of JSON Schema (spec yoi 8.2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import msgspec

from serai.plugins.bounds import DOCUMENT
from serai.plugins.untrusted_text import DEEPEST, bound_text, convert, quote, read_toml, to_json_value

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
KEYWORDS = ("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum")
_ONLY = {"properties": "object", "required": "object", "additionalProperties": "object", "items": "array"}


def check_schema(schema: Any) -> None:
    """Node by node; a `ValueError` begins with the path of the node, such as `$.properties.query: …`."""
    _check_node(schema, "$", DEEPEST)
    if schema["type"] != "object":
        raise ValueError("$: the root schema must have the type `object`")


def _check_node(node: Any, path: str, depth: int) -> None:
    if depth < 0:
        raise ValueError("$: the schema is nested too deep")
    if not isinstance(node, Mapping):
        raise ValueError(f"{path}: a schema must be an object")  # noqa: TRY004 - of somebody else's text
    for key in node:
        if key not in KEYWORDS:
            raise ValueError(f"{path}: unsupported schema keyword {quote(key)}")
    kind = node.get("type")
    if "type" not in node:
        raise ValueError(f"{path}: a schema must have a `type`")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{path}: `type` must be one of {', '.join(TYPES)}")
    for key in node:
        if _ONLY.get(key, kind) != kind:
            raise ValueError(f"{path}: `{key}` is only for the type `{_ONLY[key]}`")
    for key in ("title", "description"):
        if not isinstance(node.get(key, ""), str):
            raise ValueError(f"{path}: `{key}` must be a string")  # noqa: TRY004
    _check_required(node, path)
    _check_enum(node, path)
    for name, inner in _list_children(node, path):
        _check_node(inner, f"{path}.{name}", depth - 1)


def _list_children(node: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    properties, others = node.get("properties", {}), node.get("additionalProperties", False)
    if not isinstance(properties, Mapping):
        raise ValueError(f"{path}: `properties` must be an object")  # noqa: TRY004
    found = [(f"properties.{_format_step(name)}", inner) for name, inner in properties.items()]
    if not isinstance(others, bool):
        found.append(("additionalProperties", others))
    if "items" in node:
        found.append(("items", node["items"]))
    return found


def _format_step(name: str) -> str:
    return name if name.isprintable() and len(name) <= 80 else "…"


def _check_required(node: Mapping[str, Any], path: str) -> None:
    required = node.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"{path}: `required` must be an array of strings")
    if len(set(required)) < len(required):
        raise ValueError(f"{path}: `required` has an entry twice")
    properties = node.get("properties", required)
    if isinstance(properties, Mapping | list | tuple) and (lost := [name for name in required if name not in properties]):
        raise ValueError(f"{path}: `required` has {quote(lost[0])}, which is not among the properties")


def _check_enum(node: Mapping[str, Any], path: str) -> None:
    if "enum" not in node:
        return
    values = node["enum"]
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{path}: `enum` must be a non-empty array")
    if len({msgspec.json.encode(value, order="deterministic") for value in values}) < len(values):  # where true is not 1
        raise ValueError(f"{path}: `enum` has an entry twice")


HAS_SWITCH = False  # it has no key that says whether a plugin is on: grants do
MESSAGE = 240  # bytes of what is said about a manifest, the mark of a cut among them (spec yoi 9)
TARGETS_MOST = 256  # of `request`, and of `websocket`
TIMEOUT_MOST = 60_000  # milliseconds that a tool may ask for

TOOL = "yoi:plugin/tool@1.0.0"
INSTANCE = "yoi:plugin/instance@1.0.0"

ContributionKind = Literal["hook", "tool", "service", "ingress", "wasm"]  # the TOML key keeps yoi's name for contributions
HostApi = Literal["request", "websocket", "fs"]
SURFACES: tuple[ContributionKind, ...] = ("hook", "tool", "service", "ingress", "wasm")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Runtime(_Strict, frozen=True, kw_only=True):
    kind: str = ""
    world: str = ""
    component: str = ""
    entry: str = ""
    abi: str = ""


class PluginHook(_Strict, frozen=True, kw_only=True):
    """Metadata only: nothing runs it."""

    id: str
    file: str


class Tool(_Strict, frozen=True, kw_only=True):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    external_write: bool = False
    timeout_ms: int = 0  # ours: 0 means the usual (spec yoi 14.3)


class Service(_Strict, frozen=True, kw_only=True):
    name: str
    description: str = ""
    lifecycle: str = ""
    status_schema: dict[str, Any] | None = None
    side_effects: tuple[str, ...] = ()


class Ingress(_Strict, frozen=True, kw_only=True):
    name: str
    description: str = ""
    event_kinds: tuple[str, ...] = ()
    input_schema: dict[str, Any] | None = None
    sources: tuple[str, ...] = ()
    side_effects: tuple[str, ...] = ()


class Permission(_Strict, frozen=True, kw_only=True):
    """One of spec yoi 8.5; which further field belongs to which kind is checked when it is read."""

    kind: Literal["surface", "tool", "tool_namespace", "service", "ingress", "external_write", "host_api"]
    surface: ContributionKind | None = None
    name: str | None = None
    namespace: str | None = None
    api: HostApi | None = None

    @property
    def label(self) -> str:
        field = _FIELDS[self.kind]
        prefix = "surfaces" if self.kind == "surface" else self.kind
        return f"{prefix}.{getattr(self, field)}" if field else self.kind


class Target(_Strict, frozen=True, kw_only=True):
    """Where `request` or `websocket` may go (spec yoi 4.5).

    `methods` is for `request` alone; `private` is ours and counts in a grant.
    """

    scheme: str = ""
    host: str = ""
    port: int | None = None
    methods: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    private: bool = False  # private, loopback and link-local addresses too


class PluginManifest(_Strict, frozen=True, kw_only=True):
    """`name` is for people; who the plugin is says `id`."""

    schema_version: int
    id: str
    name: str
    version: str
    description: str = ""
    surfaces: tuple[ContributionKind, ...] = ()
    runtime: Runtime | None = None
    hooks: tuple[PluginHook, ...] = ()
    tools: tuple[Tool, ...] = ()
    services: tuple[Service, ...] = ()
    ingresses: tuple[Ingress, ...] = ()
    permissions: tuple[Permission, ...] = ()
    request: tuple[Target, ...] = ()
    websocket: tuple[Target, ...] = ()

    @property
    def declared(self) -> frozenset[ContributionKind]:
        """`surfaces` and what the other tables imply (spec yoi 8)."""
        said: set[ContributionKind] = set(self.surfaces)
        implied: tuple[tuple[ContributionKind, object], ...] = (
            ("hook", self.hooks), ("tool", self.tools), ("service", self.services), ("ingress", self.ingresses),
            ("wasm", self.runtime),
        )  # fmt: skip
        return frozenset(said | {surface for surface, there in implied if there})


# Which further field belongs to which kind of permission (spec yoi 8.5).
_FIELDS = {
    "surface": "surface", "tool": "name", "tool_namespace": "namespace", "service": "name", "ingress": "name", "external_write": "",
    "host_api": "api",
}  # fmt: skip
_SAFE = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}(?<!\.)")
_DRIVE = re.compile(r"[A-Za-z]:")
_LEGACY_ABI = "yoi-plugin-wasm-1"
_RAW_ABI = "plugin component runtime must not declare raw WASM ABI metadata"
_NAME = 128  # bytes
_PORTS = range(65536)

Trouble = Literal["malformed", "api", "surface", "traversal", "bounds"]  # of spec yoi 9: what a manifest gives cause for


class ManifestError(ValueError):
    """The text is no usable manifest; the message is the reason, in the protocol's words where it has some."""

    def __init__(self, message: str, kind: Trouble = "malformed") -> None:
        super().__init__(bound_text(message, MESSAGE - len("…".encode())).replace("\n", " "))
        self.kind: Trouble = kind


def parse(text: bytes) -> PluginManifest:
    """The manifest, or `ManifestError`. What the package must have for it is checked by `check_package`."""
    if len(text) > DOCUMENT:
        raise ManifestError(f"plugin.toml exceeds {DOCUMENT} bytes", "bounds")
    try:
        said = to_json_value(read_toml(text), dates=False)
        if type(version := said.get("schema_version")) is int and version != 1:  # its other keys may be of another time too
            said = {"schema_version": version, "id": "-", "name": "-", "version": "-"}
        manifest = convert(said, PluginManifest)
        _check_keys(said)
    except ValueError as error:
        raise ManifestError(f"plugin.toml: {error}") from None
    check(manifest)
    if manifest.runtime is not None and {"entry", "abi"} & said["runtime"].keys():  # an empty one is there, too
        raise ManifestError(_RAW_ABI, "api")
    return manifest


def _check_keys(said: dict[str, Any]) -> None:
    """Read a target as one of a grant is read; what only a grant may have is unknown here, also when it is empty (spec yoi 8)."""
    for table, unknown in (("request", ("private",)), ("websocket", ("methods", "private"))):
        for number, target in enumerate(said.get(table, ())):
            if key := next((key for key in unknown if key in target), ""):
                raise ValueError(f"{table}[{number}]: there is no key {quote(key)}")


def build_argv(manifest: object, folder: str) -> tuple[str, ...]:  # noqa: ARG001 - what the host's readers take
    """No command line: a worker of ours runs it."""
    return ()


def set_enabled(text: bytes, enabled: bool) -> bytes:  # noqa: ARG001
    raise ValueError("a plugin has no switch of its own: `serai guest grant` and `serai guest revoke` say whether it is on")


def check(manifest: PluginManifest) -> None:
    """What types cannot say, of a manifest from wherever it comes: a file, or a plan that was kept."""
    if manifest.schema_version != 1:
        raise ManifestError("plugin schema/API version is unsupported", "api")
    _check_id(manifest.id, "id")
    for key in ("name", "version"):
        if not getattr(manifest, key).strip():
            raise ManifestError(f"plugin manifest {key} must not be blank")
    for what, names in (
        ("hook id", [hook.id for hook in manifest.hooks]),
        ("service name", [service.name for service in manifest.services]),
        ("ingress name", [ingress.name for ingress in manifest.ingresses]),
    ):
        for name in names:
            _check_id(name, what)
        _check_once(names, what)
    for hook in manifest.hooks:
        check_path(hook.file)
    if manifest.runtime is not None:
        _check_runtime(manifest.runtime)
    if (manifest.services or manifest.ingresses) and (manifest.runtime is None or manifest.runtime.world != INSTANCE):
        raise ManifestError(f"plugin service/ingress declarations require the {INSTANCE} component world", "api")
    _check_tools(manifest.tools)
    for permission in manifest.permissions:
        check_permission(permission)
    check_targets(manifest.request, "request")
    check_targets(manifest.websocket, "websocket")
    if max(len(manifest.request), len(manifest.websocket)) > TARGETS_MOST:  # each is compared with each that is granted
        raise ManifestError(f"plugin.toml: more than {TARGETS_MOST} targets", "bounds")
    if any(target.private for target in (*manifest.request, *manifest.websocket)):
        raise ManifestError("plugin.toml: `private` of a target is for the grant to say", "surface")


def check_package(manifest: PluginManifest, paths: Collection[str]) -> None:
    """Whether the package has the files that its manifest names."""
    if manifest.runtime is not None and manifest.runtime.component not in paths:
        raise ManifestError("plugin component runtime artifact is not in the package")
    for hook in manifest.hooks:
        if hook.file not in paths:
            raise ManifestError(f"plugin hook file of {quote(hook.id)} is not in the package")


def is_safe_id(text: str) -> bool:
    """1-128 bytes of letters, digits, `.`, `_`, `-`, no dot first or last."""
    return _SAFE.fullmatch(text) is not None


def check_path(path: str) -> None:
    """Refuse a path that is not written as a package writes it (spec yoi 7)."""
    escapes = not path or "\0" in path or "\\" in path or path[0] in "/~" or _DRIVE.match(path)
    if escapes or any(segment in ("", ".", "..") for segment in path.split("/")):
        raise ManifestError("plugin package entry path escapes the archive root", "traversal")


def _check_id(name: str, what: str) -> None:
    if not is_safe_id(name):
        raise ManifestError(f"plugin manifest {what} is not a safe local id")


def _check_once(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ManifestError(f"plugin manifest has the {what} {quote(name)} twice")
        seen.add(name)


def _check_runtime(runtime: Runtime) -> None:
    if runtime.kind == "wasm":
        abi = runtime.abi or _LEGACY_ABI
        raise ManifestError(f"legacy raw wasm plugin runtime `wasm` / `{abi}` is retired; use `wasm-component`", "api")
    if runtime.kind != "wasm-component":
        raise ManifestError("plugin runtime kind is unsupported", "api")
    if runtime.entry or runtime.abi:
        raise ManifestError(_RAW_ABI, "api")
    if runtime.world not in (TOOL, INSTANCE):
        raise ManifestError("plugin component world is unsupported", "api")
    if not runtime.component:
        raise ManifestError("plugin component runtime artifact is required")
    check_path(runtime.component)


def _check_tools(tools: Iterable[Tool]) -> None:
    tools = tuple(tools)
    for tool in tools:
        # printable: a model must not be shown a name with something in it that nobody sees (spec yoi 21.36)
        if not 0 < len(tool.name.encode(errors="replace")) <= _NAME or " " in tool.name or not tool.name.isprintable():
            raise ManifestError(f"plugin tool name must be 1-{_NAME} bytes without whitespace and control characters")
        if not 0 <= tool.timeout_ms <= TIMEOUT_MOST:
            raise ManifestError(f"plugin tool {quote(tool.name)}: timeout_ms is 0 to {TIMEOUT_MOST}", "bounds")
        try:
            check_schema(tool.input_schema)
        except ValueError as error:
            raise ManifestError(f"plugin tool {quote(tool.name)} input_schema: {error}") from None
    _check_once((tool.name for tool in tools), "tool name")


def check_permission(permission: Permission) -> None:
    """Exactly the field that its kind has."""
    own = _FIELDS[permission.kind]
    if own and getattr(permission, own) is None:
        raise ManifestError(f"permission of the kind `{permission.kind}`: the key `{own}` is missing")
    for field in ("surface", "name", "namespace", "api"):
        if field != own and getattr(permission, field) is not None:
            raise ManifestError(f"permission of the kind `{permission.kind}`: there is no key `{field}`")


def check_targets(targets: Iterable[Target], api: Literal["request", "websocket"]) -> None:
    """What both a manifest and a grant may write."""
    for target in targets:
        if target.port is not None and target.port not in _PORTS:
            raise ManifestError(f"{api} target: `port` is 0 to {_PORTS[-1]}")
        if api == "websocket" and target.methods:
            raise ManifestError("websocket target: there is no key `methods`")
