"""yoi from the extension's side: inside a component, where there is no wire, no thread, no event loop and no clock (spec yoi 20).

The exports of the world are functions that are called one at a time. `serai guest build` writes the module that joins them to this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import serai.dialects.yoi.peer_side as peer_side  # noqa: PLR0402  (a bundle's imports are followed by the module's whole name)
from serai.errors import BadExtension
from serai.sdk.answers import Image, Text, ToolError, ToolResult
from serai.sdk.book import Book
from serai.sdk.calls import Call, current
from serai.sdk.extension import Extension
from serai.sdk.handlers import Handler
from serai.sdk.ingress import IngressEvent
from serai.sdk.interfaces import Interfaces
from serai.sdk.results import Returned, kind_of, reason, resulted

__all__ = ["Plugin", "described", "exports", "found_in"]

_CARRIED = ("tool", "service", "ingress")
_LOOP = "it waits for something outside of it, such as a timer or a thread, and a plugin has no event loop"


def exports(extension: Extension, functions: Mapping[str, Any] | None = None) -> peer_side.PeerSide:
    """The exports of both worlds for an extension; `functions` are those that the component imports, by interface."""
    extension.host.plug(Interfaces(functions or {}))
    extension._say.silence()  # its engine, in the place of a wire
    return peer_side.PeerSide(lambda config: Plugin(extension._book, config))


def found_in(module: ModuleType) -> Extension:
    """The extension of a program."""
    found = {id(value): value for value in vars(module).values() if isinstance(value, Extension)}
    if len(found) != 1:
        text = f"{module.__name__}.py has {len(found) or 'no'} extension{'s' * bool(found)}"
        raise BadExtension(text, hint='write ext = Extension("name") at the top of it, once')
    return next(iter(found.values()))


def described(extension: Extension) -> dict[str, Any]:
    """What it offers, for a manifest, and what of it no plugin can have."""
    book = extension._book
    offered = {kind: [{"name": offer.name, **offer.about} for offer in book.offers if offer.kind == kind] for kind in _CARRIED}
    others = [offer.kind for offer in book.offers if offer.kind not in _CARRIED]
    return {"name": book.name, "version": book.version, **offered, "missing": {kind: others.count(kind) for kind in others}}


class Plugin:
    """One life of an extension, from `start` to `stop`: what `peer_side.PeerSide` asks for what to answer."""

    def __init__(self, book: Book, config: Any) -> None:
        self._book = book
        for start in book.starts:
            _run(start)
        for service in book.services.values():
            if service.on_start is not None:
                _run(service.on_start, config)

    def tool(self, name: str, value: Any) -> Any:
        tool = self._book.tools.get(name)
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
            return _answer(_finished(given), name)
        except peer_side.ToolError:
            raise
        except ToolError as error:
            raise _coded(str(error), error.code, error.hint) from None
        except Returned as error:
            raise peer_side.ToolError("invalid_output", reason(error, name)) from None
        except Exception as error:
            raise peer_side.ToolError("failed", reason(error, name)) from None
        finally:
            current.reset(token)

    def ingress(self, name: str, event: peer_side.Event) -> dict[str, Any]:
        ingress = self._book.ingresses.get(name)
        if ingress is None:
            raise ValueError(f'there is no ingress "{name[:100]}"')
        heard = IngressEvent(*event)
        data = _run(ingress.handler, heard)
        commands = [peer_side.command(event, id, kind, payload) for id, kind, payload in heard.commands]
        answer: dict[str, Any] = {"accepted": data is not False, "data": None if isinstance(data, bool) else data}
        return answer | ({"output_commands": commands} if commands else {})

    def status(self) -> dict[str, Any]:
        told = {name: _run(service.on_status) for name, service in self._book.services.items() if service.on_status is not None}
        return {"state": "ready", "data": told if len(told) > 1 else next(iter(told.values()), None)}

    def stop(self) -> str:
        for service in self._book.services.values():
            if service.on_stop is not None:
                _run(service.on_stop)
        return "stopped"


def _run(handler: Handler, *offered: Any) -> Any:
    return _finished(handler.function(*handler.given(*offered)))


def _finished(value: Any) -> Any:
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


def _answer(value: Any, name: str) -> Any:
    """Text in one line is a summary of itself; other text and data are the content."""
    if value is None:
        return None
    result = resulted(value)
    if isinstance(value, str | Text | Image | ToolResult):
        return _text(result, name)
    if isinstance(value, list | tuple) and any(isinstance(one, Text | Image) for one in value):
        return _text(result, name)
    return json.loads(result.text)  # data, which is refused and not cut when it is too long


def _text(result: ToolResult, name: str) -> peer_side.Output:
    if result.is_error:
        raise _coded(result.text or f"{name} failed and gave no reason", result.code, "")  # its text has the hint
    if odd := [one for one in result.content if not isinstance(one, Text)]:
        raise peer_side.ToolError("invalid_output", f"it returned {kind_of(odd[0])}, and a plugin's tool gives text")
    text = result.text
    if "\n" in text or len(text.encode(errors="replace")) > peer_side.SUMMARY:
        return peer_side.Output("", text)
    return peer_side.Output(text)


def _coded(message: str, code: str, hint: str) -> peer_side.ToolError:
    """The protocol has a few codes of its own; another is told beside them."""
    own = code.lower() if code.lower() in peer_side.CODES else "failed"
    details = {key: value for key, value in (("code", code if own != code.lower() else ""), ("hint", hint)) if value}
    return peer_side.ToolError(own, message, details or None)
