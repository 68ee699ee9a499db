"""Whether a plugin may: asked for in its manifest and granted, checked at registration and again at every use (spec yoi 11).

Each function gives the reason why not, or nothing. The binding of the grants comes first: what was granted to other contents is
granted to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from serai.dialects.yoi import grants
from serai.dialects.yoi.grants import Record
from serai.dialects.yoi.manifest import HostApi, Permission, Surface, Target
from serai.dialects.yoi.targets import (
    Parsed,
    names_private,
    request_matches,
    usable_request,
    usable_websocket,
    websocket_matches,
)

__all__ = [
    "allows_tool", "binding", "enabled", "host_api", "ingress", "private_ok", "request_target", "service", "tool",
    "websocket_target",
]  # fmt: skip

_Test = Callable[[Permission], bool]


def binding(record: Record) -> str:
    return grants.binding(record.grants, identity=record.identity, digest=record.digest, version=record.version)


def enabled(record: Record, surface: Surface) -> str:
    """Whether the person has left it on; asked before any permission (spec yoi 14, 15.2)."""
    return "" if surface in record.enabled_surfaces else f"plugin {surface} surface is not enabled"


def tool(record: Record, name: str) -> str:
    """Spec yoi 11.1."""
    declared = next((one for one in record.manifest.tools if one.name == name), None)
    if declared is None:
        return binding(record) or "requested tool is not declared by plugin manifest"
    return (
        binding(record)
        or _both(record, "surfaces.tool permission", _is_surface("tool"))
        or _both(record, f"tool permission for `{name}`", lambda held: allows_tool(held, name))
        or (
            _both(record, "external_write permission", lambda held: held.kind == "external_write")
            if declared.external_write
            else ""
        )
    )


def service(record: Record, name: str) -> str:
    """Spec yoi 11.2."""
    return _named(record, "service", name)


def ingress(record: Record, name: str) -> str:
    """Spec yoi 11.3."""
    return _named(record, "ingress", name)


def host_api(record: Record, api: HostApi) -> str:
    """Spec yoi 11.4."""
    return (
        binding(record)
        or _both(record, f"host_api.{api} permission", lambda held: held.kind == "host_api" and held.api == api)
        or _backed(record, api)
    )


def _backed(record: Record, api: HostApi) -> str:
    """Whether there is anything that it may be used for."""
    if api == "fs":
        return "" if any(grant.usable for grant in record.grants.fs) else "granted host_api.fs scope allowlist is missing"
    usable: Callable[[Target], bool] = usable_request if api == "request" else usable_websocket
    declared, granted = _targets(record, api)
    if not any(usable(target) for target in declared):
        return f"manifest host_api.{api} target declaration is missing"
    return "" if any(usable(target) for target in granted) else f"enabled host_api.{api} grants are missing"


def request_target(record: Record, method: str, url: Parsed) -> str:
    """One target of the manifest and, for itself, one of the grants (spec yoi 4.3 steps 13 and 14)."""
    return binding(record) or _target(
        record, "request", f"{method} {url.safe}", lambda target: request_matches(target, method, url)
    )


def websocket_target(record: Record, url: Parsed) -> str:
    return binding(record) or _target(record, "websocket", url.safe, lambda target: websocket_matches(target, url))


def private_ok(record: Record, api: HostApi, url: Parsed, method: str = "") -> bool:
    """Whether a grant that lets this URL through lets it go to a private, loopback or link-local address too (rule.027).

    Of `request` the method counts where it is given.
    """
    if binding(record):
        return False
    matching = (
        target
        for target in _targets(record, api)[1]
        if (request_matches(target, method, url) if method and api == "request" else websocket_matches(target, url))
    )
    return any(target.private or names_private(target, url) for target in matching)


def _target(record: Record, api: HostApi, where: str, matches: Callable[[Target], bool]) -> str:
    declared, granted = _targets(record, api)
    if not any(map(matches, declared)):
        return f"host_api.{api} target {where} is not declared by the plugin manifest"
    kind = "request" if api == "request" else "WebSocket"
    return "" if any(map(matches, granted)) else f"host_api.{api} target {where} is not covered by enabled {kind} grants"


def _targets(record: Record, api: HostApi) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    if api == "request":
        return record.manifest.request, record.grants.request
    return (record.manifest.websocket, record.grants.websocket) if api == "websocket" else ((), ())


def _named(record: Record, kind: Surface, name: str) -> str:
    return (
        binding(record)
        or _both(record, f"surfaces.{kind} permission", _is_surface(kind))
        or _both(record, f"{kind} permission for `{name}`", lambda held: held.kind == kind and held.name == name)
    )


def _is_surface(surface: Surface) -> _Test:
    return lambda held: held.kind == "surface" and held.surface == surface


def allows_tool(held: Permission, name: str) -> bool:
    if held.kind == "tool_namespace":  # an empty one is the beginning of every name, and means none (spec yoi 21.6)
        return bool(held.namespace) and name.startswith(held.namespace or name)
    return held.kind == "tool" and held.name == name


def _both(record: Record, what: str, test: _Test) -> str:
    """Requested by the manifest and granted, whichever is missing first."""
    if not _holds(record.manifest.permissions, test):
        return f"requested {what} is missing"
    return "" if _holds(record.grants.permissions, test) else f"granted {what} is missing"


def _holds(permissions: Iterable[Permission], test: _Test) -> bool:
    return any(test(permission) for permission in permissions)
