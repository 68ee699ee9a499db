"""yoi from the extension's side: inside a component, where there is no wire, no thread, no event loop and no clock (spec yoi 20).

The exports of the world are functions that are called one at a time. `serai guest build` writes the module that connects them to
this.

At the end of a plugin's build its interpreter is frozen into a component without a clock, files, randomness or output. Any use of
these in a stubbed component traps, which nobody can catch and which ends the instance (spec yoi 20). So `seal` replaces what an
author is likely to call by functions that raise an ordinary error, imports that come too late among them. What is built into the
interpreter's own C code, such as `datetime.now()`, still traps.

Authors use the host interfaces as `ext.host.fs`, `ext.host.request`, `ext.host.websocket` (spec yoi 4 to 6). Each needs a
permission in plugin.toml and a grant. A refusal or a failure cannot be caught: the call ends, and with it the instance (spec yoi
2.4).
"""

from __future__ import annotations

import builtins
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, Self

import serai.dialects.yoi.peer_side as peer_side  # noqa: PLR0402  (a bundle's imports are followed by the module's whole name)
from serai.errors import BadExtension, NoService
from serai.sdk.answers import Image, Returned, Text, ToolError, ToolResult, describe_type, format_reason, to_tool_result
from serai.sdk.current_call import Call, current
from serai.sdk.extension import Extension
from serai.sdk.registrations import Handler, IngressEvent, Registrations

# What handlers and the SDK import when they first need it: there is no file to import from later.
_EARLY = (
    "base64", "collections", "contextvars", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions",
    "functools", "hashlib", "heapq", "html", "inspect", "itertools", "json", "linecache", "logging", "math", "operator", "pathlib",
    "random", "re", "statistics", "string", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata",
    "urllib.parse", "uuid",
)  # fmt: skip
_OF_THE_SDK = (
    "serai.sdk.current_call",
    "serai.sdk.registrations",
    "serai.sdk.adapters.yoi",
    "serai.sdk.answers",
    "serai.sdk.schema.parameters",
)
_CLOCK = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "localtime")
_RANDOM = ("urandom", "getrandom")
_FILES = (
    "access", "chdir", "chmod", "close", "fstat", "getcwd", "link", "listdir", "lstat", "mkdir", "open", "readlink", "remove",
    "rename", "replace", "rmdir", "scandir", "stat", "symlink", "truncate", "unlink", "utime", "write",
)  # fmt: skip


class NullOutput(io.TextIOBase):
    """Where what is printed goes: a component has no output."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


class ImportBlocker:
    """The last of the finders: what it is asked for cannot be had any more."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> NoReturn:  # noqa: ARG004
        text = f"{name} was not imported when the plugin was built, and now there is no file to import it from"
        raise ModuleNotFoundError(f"{text}: import it at the top of a module", name=name)


def _make_refuser(what: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(f"a plugin has no {what}: {instead}")

    return refuse


def seal(modules: Iterable[str] = _EARLY) -> None:
    """Import what may be needed, then close all doors. Inside a component only: there is no way back."""
    for name in (*modules, *_OF_THE_SDK):
        try:
            import_module(name)
        except ImportError:  # not in this interpreter
            pass
    for package in ("serai", "serai.sdk"):
        dir(sys.modules[package])  # which reads the list of its names
    import logging
    import time

    logging.disable()  # a record wants the time, and has nowhere to go
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        setattr(sys, name, NullOutput())
    clock = _make_refuser("clock", "what it does must not depend on the time")
    files = _make_refuser("files", 'use ext.host.fs, with the permission host_api "fs"')
    random = _make_refuser("randomness", "what it does must not depend on it")
    for module, names, refuse in ((time, _CLOCK, clock), (os, _RANDOM, random), (os, _FILES, files)):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, refuse)
    builtins.open = io.open = files
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "PathFinder"]
    sys.meta_path.append(ImportBlocker())


class File(NamedTuple):
    content: str
    truncated: bool  # there is more than the 64 KiB that a host reads


class Entry(NamedTuple):
    name: str
    kind: str  # file, dir, symlink or other


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # by lower-case name; of several with one name the first
    body: str
    truncated: bool

    def json(self) -> Any:
        return json.loads(self.body)


class FileSystem:
    """Files below the folders that were granted; paths are relative to those."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def read(self, path: str) -> File:
        """The first 64 KiB of a file."""
        reply = _call_host(self._functions.read, {"path": path})
        return File(reply["content"], reply["truncated"])

    def read_text(self, path: str) -> str:
        """All of a file; one that is longer than what a host reads is an error."""
        file = self.read(path)
        if file.truncated:
            raise ToolError(f"{path} is longer than a plugin can read")
        return file.content

    def list(self, path: str = ".") -> list[Entry]:
        """What is in a folder, the first 256 of it."""
        return [Entry(one["name"], one["kind"]) for one in _call_host(self._functions.list, {"path": path})["entries"]]

    def write(self, path: str, content: str) -> int:
        """Make this the content of a file, in a folder that is there; how many bytes that were."""
        written: int = _call_host(self._functions.write, {"path": path, "content": content})["bytes_written"]
        return written


class Requests:
    """`ext.host.request("GET", "https://example.com/")`: one HTTP exchange. Any status is an answer, redirects too."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def __call__(self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: str | None = None) -> Response:
        named = [{"name": name, "value": value} for name, value in (headers or {}).items()]
        reply = _call_host(self._functions.request, {"method": method, "url": url, "headers": named, "body": body})
        found = {one["name"].lower(): one["value"] for one in reversed(reply["headers"])}
        return Response(reply["status"], found, reply["body"], reply["truncated"])


class Socket:
    """A websocket that the plugin opened itself; it lives as long as the instance."""

    def __init__(self, functions: Any, handle: int, url: str) -> None:
        self._functions = functions
        self.handle, self.url = handle, url

    def send(self, text: str) -> None:
        self._functions.send_text(self.handle, text)

    def receive(self, timeout: float = 0.0) -> str | None:
        """What is said next; None once the other side has closed it. No word in `timeout` seconds (0: the usual) is a trap."""
        reply = json.loads(self._functions.recv(self.handle, round(timeout * 1000)))
        text: str | None = reply["text"] if reply["type"] == "text" else None
        return text

    def close(self) -> None:
        self._functions.close(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WebSockets:
    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def open(self, url: str) -> Socket:
        reply = _call_host(self._functions.open, {"url": url})
        return Socket(self._functions, reply["handle"], reply["url"])


_KINDS = {"fs": FileSystem, "request": Requests, "websocket": WebSockets}


class Interfaces:
    """Those that the component imports, each by its functions in the component's own bindings."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._made = {name: _KINDS[name](bound) for name, bound in functions.items()}

    def get(self, name: str) -> Any:
        if name in self._made:
            return self._made[name]
        text = f"this component was built without the host interface {name}"
        raise NoService(
            text, hint=f'add {{ kind = "host_api", api = "{name}" }} to the permissions in plugin.toml, and build again'
        )


def _call_host(function: Any, request: dict[str, Any]) -> Any:
    return json.loads(function(json.dumps(request, ensure_ascii=False)))


_CARRIED = ("tool", "service", "ingress")
_LOOP = "it waits for something outside of it, such as a timer or a thread, and a plugin has no event loop"


def exports(extension: Extension, functions: Mapping[str, Any] | None = None) -> peer_side.PeerSide:
    """The exports of both worlds for an extension; `functions` are those that the component imports, by interface."""
    extension.host.set_interfaces(Interfaces(functions or {}))
    extension._say.silence()  # its engine, in the place of a wire
    return peer_side.PeerSide(lambda config: ComponentGuest(extension._registry, config))


def found_in(module: ModuleType) -> Extension:
    """The extension of a program."""
    found = {id(value): value for value in vars(module).values() if isinstance(value, Extension)}
    if len(found) != 1:
        text = f"{module.__name__}.py has {len(found) or 'no'} extension{'s' * bool(found)}"
        raise BadExtension(text, hint='write ext = Extension("name") at the top of it, once')
    return next(iter(found.values()))


def described(extension: Extension) -> dict[str, Any]:
    """What it offers, for a manifest, and what of it no plugin can have."""
    registry = extension._registry
    offered = {kind: [{"name": offer.name, **offer.about} for offer in registry.offers if offer.kind == kind] for kind in _CARRIED}
    others = [offer.kind for offer in registry.offers if offer.kind not in _CARRIED]
    return {"name": registry.name, "version": registry.version, **offered, "missing": {kind: others.count(kind) for kind in others}}


class ComponentGuest:
    """One life of an extension, from `start` to `stop`: what `peer_side.PeerSide` asks for what to answer."""

    def __init__(self, registry: Registrations, config: Any) -> None:
        self._registry = registry
        for start in registry.starts:
            _run(start)
        for service in registry.services.values():
            if service.on_start is not None:
                _run(service.on_start, config)

    def tool(self, name: str, value: Any) -> Any:
        tool = self._registry.tools.get(name)
        if tool is None:
            raise peer_side.ToolError("unsupported_tool", f'there is no tool "{name[:100]}"')
        call = Call("", name)
        try:
            arguments = None if tool.bind is None else tool.bind(value)
        except ToolError as error:
            raise peer_side.ToolError("invalid_input", str(error)) from None
        token = current.set(call)
        try:
            if arguments is None:
                given = tool.function(*tool.given(value))
            else:
                given = tool.function(**arguments, **({tool.call: call} if tool.call else {}))
            return _build_output(_run_awaitable(given), name)
        except peer_side.ToolError:
            raise
        except ToolError as error:
            raise _build_error(str(error), error.code, error.hint) from None
        except Returned as error:
            raise peer_side.ToolError("invalid_output", format_reason(error, name)) from None
        except Exception as error:
            raise peer_side.ToolError("failed", format_reason(error, name)) from None
        finally:
            current.reset(token)

    def ingress(self, name: str, event: peer_side.Event) -> dict[str, Any]:
        ingress = self._registry.ingresses.get(name)
        if ingress is None:
            raise ValueError(f'there is no ingress "{name[:100]}"')
        heard = IngressEvent(*event)
        data = _run(ingress.handler, heard)
        commands = [peer_side.build_command(event, id, kind, payload) for id, kind, payload in heard.commands]
        answer: dict[str, Any] = {"accepted": data is not False, "data": None if isinstance(data, bool) else data}
        return answer | ({"output_commands": commands} if commands else {})

    def status(self) -> dict[str, Any]:
        told = {name: _run(service.on_status) for name, service in self._registry.services.items() if service.on_status is not None}
        return {"state": "ready", "data": told if len(told) > 1 else next(iter(told.values()), None)}

    def stop(self) -> str:
        for service in self._registry.services.values():
            if service.on_stop is not None:
                _run(service.on_stop)
        return "stopped"


def _run(handler: Handler, *offered: Any) -> Any:
    return _run_awaitable(handler.function(*handler.select(*offered)))


def _run_awaitable(value: Any) -> Any:
    """What comes of something that can be waited for, which here must not really wait; a pause for others is none."""
    if not hasattr(type(value), "__await__"):
        return value
    steps = value.__await__()
    try:
        while next(steps) is None:
            pass
    except StopIteration as end:
        return end.value
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    raise ToolError(_LOOP)


def _build_output(value: Any, name: str) -> Any:
    """Text in one line is a summary of itself; other text and data are the content."""
    if value is None:
        return None
    result = to_tool_result(value)
    if isinstance(value, str | Text | Image | ToolResult):
        return _build_text_output(result, name)
    if isinstance(value, list | tuple) and any(isinstance(one, Text | Image) for one in value):
        return _build_text_output(result, name)
    return json.loads(result.text)  # data, which is refused and not cut when it is too long


def _build_text_output(result: ToolResult, name: str) -> peer_side.Output:
    if result.is_error:
        raise _build_error(result.text or f"{name} failed and gave no reason", result.code, "")  # its text has the hint
    if odd := [one for one in result.content if not isinstance(one, Text)]:
        raise peer_side.ToolError("invalid_output", f"it returned {describe_type(odd[0])}, and a plugin's tool gives text")
    text = result.text
    if "\n" in text or len(text.encode(errors="replace")) > peer_side.SUMMARY:
        return peer_side.Output("", text)
    return peer_side.Output(text)


def _build_error(message: str, code: str, hint: str) -> peer_side.ToolError:
    """The protocol has a few codes of its own; another is told beside them."""
    own = code.lower() if code.lower() in peer_side.CODES else "failed"
    details = {key: value for key, value in (("code", code if own != code.lower() else ""), ("hint", hint)) if value}
    return peer_side.ToolError(own, message, details or None)
