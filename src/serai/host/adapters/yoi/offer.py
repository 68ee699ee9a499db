"""Before a plugin runs: what of it is registered (spec yoi 12), and the words for what goes wrong with it (spec yoi 14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from serai.errors import BadFrame, BadManifest, NotAllowed, PeerTimeout, Refused, SeraiError, SpawnFailed
from serai.model.contributions import Contributions, Ingress, Service
from serai.model.tools import ToolSpec
from serai.plugins import authorization, manifest
from serai.plugins.bounds import Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import HostApi, Tool
from serai.plugins.untrusted_text import bound_text, operator_text, to_display_text

_LONGEST_TOOL = 60.0  # seconds, whatever a manifest says
APIS: tuple[HostApi, ...] = ("request", "websocket", "fs")

E = TypeVar("E", bound=SeraiError)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool that may be called: its name, its seconds, and what every result of it carries for people (spec yoi 12)."""

    name: str
    seconds: float
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a plugin exposes, and what of it was denied."""

    contributions: Contributions
    tools: dict[str, OfferedTool]
    denied: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.tools or self.contributions.services or self.contributions.ingresses)


def build_offer(record: ResolvedPlugin, bounds: Bounds, longest: float | None, who: str) -> Offer:
    """What is authorised of the enabled surfaces; a plugin of which everything is denied is not taken in."""
    manifest, enabled = record.manifest, record.enabled_surfaces
    denied: list[str] = []

    def accepts(surface: str, name: str, reason: str) -> bool:
        if reason:
            denied.append(f"plugin {record.identity} {surface} {name} registration denied: {reason}")
        return not reason

    tools = manifest.tools if "tool" in enabled else ()
    _check_tools(tools, who)
    services = [
        Service(f"plugin:{record.identity}:{one.name}", to_display_text(one.description))
        for one in (manifest.services if "service" in enabled else ())
        if accepts("service", one.name, authorization.find_service_refusal(record, one.name))
    ]
    ingresses = [
        Ingress(one.name, to_display_text(one.description), one.sources)
        for one in (manifest.ingresses if "ingress" in enabled else ())
        if accepts("ingress", one.name, authorization.find_ingress_refusal(record, one.name))
    ]
    allowed = [one for one in tools if accepts("tool", one.name, authorization.find_tool_refusal(record, one.name))]
    offer = Offer(
        Contributions(
            tools=tuple(ToolSpec(one.name, to_display_text(one.description), _shown(one.input_schema)) for one in allowed),
            services=tuple(services),
            ingresses=tuple(ingresses),
        ),
        {one.name: OfferedTool(one.name, _compute_timeout(record, bounds, one, longest), _build_origin(record)) for one in allowed},
        tuple(denied),
    )
    if offer.empty and denied:
        hint = f"look at what it asks for and grant it: `serai guest grant {manifest.id}`"
        raise NotAllowed("; ".join(denied), who=who, hint=hint)
    return offer


def _shown(schema: Any) -> Any:
    """A model reads what a schema says in words too (spec yoi 21.36); names and values are what they are."""
    if isinstance(schema, list | tuple):
        return [_shown(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    said = {
        key: to_display_text(value) if key in ("title", "description") and isinstance(value, str) else value
        for key, value in schema.items()
    }
    # the values of `enum` are a list; a schema of that name is one of `properties`
    return {key: value if key == "enum" and isinstance(value, list | tuple) else _shown(value) for key, value in said.items()}


def _check_tools(tools: tuple[Tool, ...], who: str) -> None:
    """A stored plan is not read from `plugin.toml` again, so what that forbids is looked at here too (spec yoi 12.1, 12.2)."""
    names = [one.name for one in tools]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise BadManifest(f"its tool {twice} is declared twice", who=who)
    for one in tools:
        try:
            manifest.check_schema(one.input_schema)
        except ValueError as error:
            raise BadManifest(f"its tool {one.name} has a schema that cannot be used: {error}", who=who) from None


def _compute_timeout(record: ResolvedPlugin, bounds: Bounds, tool: Tool, longest: float | None) -> float:
    """How long one call may take, waiting for the instance included; what a person has set may only shorten it."""
    hosted = any(not authorization.find_api_refusal(record, api) for api in APIS)
    usual = bounds.tool_with_host if hosted else bounds.tool
    own = tool.timeout_ms / 1000 if tool.timeout_ms else usual
    return min(own, _LONGEST_TOOL, _LONGEST_TOOL if longest is None else longest)


def _build_origin(record: ResolvedPlugin) -> dict[str, Any]:
    return {
        "kind": "plugin",
        "plugin_id": record.manifest.id,
        "plugin_ref": record.identity,
        "source": record.source,
        "digest": record.digest,
        "package_version": record.version,
        "package_api_version": record.manifest.schema_version,
        "surface": "tool",
    }


# -- words ------------------------------------------------------------------------------------------------------------------------


def reword(error: E, text: str) -> E:
    """The same error in other words, bounded, on one line; what it carries besides stays. Who words it has redacted it."""
    copy = error.for_call(error.id)
    copy.message = bound_text(
        " ".join(to_display_text(text).split())
    )  # a guest's path may be in it, and is no line of ours (spec yoi 21.36)
    copy.args = (copy.message,)
    return copy


def build_tool_error(record: ResolvedPlugin, tool: OfferedTool, error: SeraiError) -> SeraiError:
    """Which tool of which plugin, its digest and why, in the origin's words (spec yoi 14.4)."""
    which = f"plugin tool `{tool.name}` from `{record.identity}` (digest {record.digest})"
    if isinstance(error, PeerTimeout):
        return reword(error, f"{which} timed out after {tool.seconds:g}s")
    return reword(error, f"{which} failed closed: {''.join(_iter_error_parts(error))}")


def _iter_error_parts(error: SeraiError) -> Iterator[str]:
    if isinstance(error, SpawnFailed):
        yield "package/module load error: "
    elif isinstance(error, BadFrame):
        yield "WASM output error: "
    elif not isinstance(error, Refused):
        yield "WASM execution error: "
    yield operator_text(error.message)  # not the names before it: a tool may be called `count_tokens`
    if error.exit is not None:
        yield f" ({error.exit})"
