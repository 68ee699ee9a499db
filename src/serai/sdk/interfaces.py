"""The host interfaces of yoi as an author uses them: `ext.host.fs`, `ext.host.request`, `ext.host.websocket` (spec yoi 4 to 6).

Each needs a permission in plugin.toml and a grant. What is refused or fails cannot be caught: the call ends, and with it the
instance (spec yoi 2.4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from serai.errors import NoService
from serai.sdk.answers import ToolError

__all__ = ["Entry", "File", "FileSystem", "Interfaces", "Requests", "Response", "Socket", "WebSockets"]


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
        reply = _asked(self._functions.read, {"path": path})
        return File(reply["content"], reply["truncated"])

    def read_text(self, path: str) -> str:
        """All of a file; one that is longer than what a host reads is an error."""
        file = self.read(path)
        if file.truncated:
            raise ToolError(f"{path} is longer than a plugin can read")
        return file.content

    def list(self, path: str = ".") -> list[Entry]:
        """What is in a folder, the first 256 of it."""
        return [Entry(one["name"], one["kind"]) for one in _asked(self._functions.list, {"path": path})["entries"]]

    def write(self, path: str, content: str) -> int:
        """Make this the content of a file, in a folder that is there; how many bytes that were."""
        written: int = _asked(self._functions.write, {"path": path, "content": content})["bytes_written"]
        return written


class Requests:
    """`ext.host.request("GET", "https://example.com/")`: one HTTP exchange. Any status is an answer, redirects too."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def __call__(self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: str | None = None) -> Response:
        named = [{"name": name, "value": value} for name, value in (headers or {}).items()]
        reply = _asked(self._functions.request, {"method": method, "url": url, "headers": named, "body": body})
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
        reply = _asked(self._functions.open, {"url": url})
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


def _asked(function: Any, request: dict[str, Any]) -> Any:
    return json.loads(function(json.dumps(request, ensure_ascii=False)))
