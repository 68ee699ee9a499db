"""The options that give a plugin something: of `serai guest grant` and `serai guest run`.

A plugin never has more than it asks for (spec yoi 1), so a flag for what its manifest does not request is a mistake and is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast, get_args

import click

from serai.cli import telling
from serai.paths import absolute_path
from serai.plugins.grants import FsGrant, Grants, Operation
from serai.plugins.manifest import SURFACES, HostApi, Permission, PluginManifest, Surface, Target
from serai.plugins.targets import METHODS

__all__ = ["Given", "granted", "surfaces_of", "with_grants"]

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
# A target is no URL: it has a scheme, a host, perhaps a port, and the beginning of a path (spec yoi 4.5).
_TARGET = re.compile(
    r"(?P<scheme>\*|[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#\\]*)?"
)
_UP = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_PORTS = 65535


@dataclass(frozen=True, slots=True)
class Given:
    """What the flags say, each already a grant."""

    fs: tuple[FsGrant, ...] = ()
    request: tuple[Target, ...] = ()
    websocket: tuple[Target, ...] = ()
    private: bool = False

    def check(self, manifest: PluginManifest) -> None:
        """Nothing is given that nobody asked for: it would have no effect, and whoever gives it believes otherwise."""
        asked = {permission.api for permission in manifest.permissions if permission.kind == "host_api"}
        gives: tuple[tuple[HostApi, object], ...] = (("fs", self.fs), ("request", self.request), ("websocket", self.websocket))
        for api, given in gives:
            if given and api not in asked:
                raise click.UsageError(f"--{api}: {manifest.id} does not ask for host_api.{api}, so it could not use it")

    def targets(self, manifest: PluginManifest, api: HostApi) -> tuple[Target, ...]:
        """Those of the flags, or else the plugin's own."""
        given, own = (self.request, manifest.request) if api == "request" else (self.websocket, manifest.websocket)
        return tuple(_private(target, self.private) for target in given or own)


def _private(target: Target, private: bool) -> Target:
    """`private` of a manifest is a wish and none of ours: only the person's flag makes it a grant."""
    return Target(
        scheme=target.scheme,
        host=target.host,
        port=target.port,
        methods=target.methods,
        path_prefixes=target.path_prefixes,
        private=private,
    )


_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def with_grants(command: Callable[..., None]) -> Callable[..., None]:
    """The options `--fs`, `--request`, `--websocket` and `--private`; the command gets them as one `given`."""

    @wraps(command)
    def wrapped(
        *arguments: Any,
        fs: Sequence[FsGrant],
        request: Sequence[Target],
        websocket: Sequence[Target],
        private: bool,
        **others: Any,
    ) -> None:
        command(*arguments, given=Given(tuple(fs), tuple(request), tuple(websocket), private), **others)

    made: Callable[..., None] = wrapped
    for option in (
        click.option("--private", is_flag=True, help="Those targets may be private, loopback and link-local addresses too."),
        click.option(
            "--websocket", metavar="URL", multiple=True, callback=_each(_websocket), help="ws or wss to this host; repeatable."
        ),
        click.option(
            "--request",
            metavar="'METHODS URL'",
            multiple=True,
            callback=_each(_request),
            help="Such as 'GET,POST https://host/prefix': these methods there; repeatable.",
        ),
        click.option(
            "--fs",
            metavar="ROOT:OPERATIONS",
            multiple=True,
            callback=_each(_fs),
            help=f"This folder for {', '.join(_OPERATIONS)}, as many as are named; repeatable.",
        ),
    ):
        made = option(made)
    return made


def _each(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Sequence[str]], tuple[Any, ...]]:
    def callback(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> tuple[Any, ...]:
        found = []
        for text in texts:
            try:
                _check_text(text)
                found.append(read(text))
            except ValueError as error:
                raise click.BadParameter(f"{telling.safe(text)}: {error}", context, parameter) from None
        return tuple(found)

    return callback


def _check_text(text: str) -> None:
    """An argument may hold any bytes, settings may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is no text in UTF-8, as settings have to be") from None
    if "\0" in text:
        raise ValueError("there is a NUL in it")


def _fs(text: str) -> FsGrant:
    root, colon, operations = text.rpartition(":")
    named = tuple(part.strip() for part in operations.split(","))
    if not colon or not root or not set(named) <= set(_OPERATIONS):
        raise ValueError(f"it has to be ROOT:OPERATIONS, such as /data:read,list; the operations are {', '.join(_OPERATIONS)}")
    found = tuple(operation for operation in _OPERATIONS if operation in named)
    return FsGrant(root=absolute_path(root), operations=found)


def _request(text: str) -> Target:
    methods, _, url = text.strip().partition(" ")
    named = tuple(method.upper() for method in methods.split(","))
    if not url.strip() or not set(named) <= set(METHODS):
        raise ValueError(f"it has to be METHODS URL, such as 'GET,POST https://host/prefix'; the methods are {', '.join(METHODS)}")
    return _target(url.strip(), ("http", "https"), named)


def _websocket(text: str) -> Target:
    return _target(text.strip(), ("ws", "wss"), ())


def _target(url: str, schemes: tuple[str, ...], methods: tuple[str, ...]) -> Target:
    found = _TARGET.fullmatch(url)
    if found is None or found["scheme"].lower() not in (*schemes, "*"):
        raise ValueError(
            f"it has to begin with {' or '.join(f'{scheme}://HOST' for scheme in schemes)}, without user, query or fragment"
        )
    path = found["path"] or ""
    if _UP.search(path):
        raise ValueError("a path is compared without `.` and `..`, so with them it would match nothing")
    # as a URL means it: without a port in its target a plugin would reach every one, on `localhost` too
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS.get(found["scheme"].lower())
    if port is not None and not 0 < port <= _PORTS:
        raise ValueError(f"there is no port {port}")
    return Target(
        scheme=found["scheme"].lower(),
        host=found["host"].strip("[]").lower(),
        port=port,
        methods=methods,
        path_prefixes=(path,) if path else (),
    )


def surfaces_of(manifest: PluginManifest, names: Sequence[str]) -> tuple[Surface, ...]:
    """The contributions of `--surface`, in their order; a plugin has to declare them."""
    for name in names:
        if name not in manifest.declared:
            there = ", ".join(sorted(manifest.declared)) or "none"
            raise click.UsageError(f"--surface {name}: {manifest.id} does not declare it; there is {there}")
    return tuple(surface for surface in SURFACES if surface in names)


def granted(manifest: PluginManifest, given: Given, surfaces: Sequence[Surface], *, identity: str, digest: str) -> Grants:
    """All that the manifest requests, less what is for contributions that were not chosen."""
    permissions = tuple(one for one in manifest.permissions if not surfaces or _concerns(one) in (None, *surfaces))
    if not permissions:  # nothing to bind
        return Grants()
    apis = {permission.api for permission in permissions}
    return Grants(
        id=identity,
        version=manifest.version,
        digest=digest,
        permissions=permissions,
        request=given.targets(manifest, "request") if "request" in apis else (),
        websocket=given.targets(manifest, "websocket") if "websocket" in apis else (),
        fs=given.fs,
    )


def _concerns(permission: Permission) -> Surface | None:
    """For which kind of contribution it is; None: for all."""
    match permission.kind:
        case "surface":
            return permission.surface
        case "tool" | "tool_namespace" | "external_write":
            return "tool"
        case "service" | "ingress":
            return cast(Surface, permission.kind)
    return None
