"""The hook's side: read one request, have it handled, write the response (spec hooks 1.13). The SDK's `main` stands on it."""

from __future__ import annotations

from serai.dialects.hookproto.messages import (
    Box,
    File,
    Request,
    Response,
    collect_members,
    dumps,
    loads,
    read_members,
    read_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeAlias

    from serai.dialects.hookproto.messages import Json, Readers

    Handler: TypeAlias = Callable[[Request], Response | None]

    class Reader(Protocol):
        def read(self) -> bytes: ...

    class Writer(Protocol):
        def write(self, data: bytes, /) -> object: ...
        def flush(self) -> object: ...


_TEXTS = ("path", "content", "content_base64", "mode")
_NUMBERS = ("uid", "gid")


class HookError(ValueError):
    """The request could not be read, or the response not be written; the text says which and why."""


def serve(reader: Reader, writer: Writer, handler: Handler) -> None:
    """One exchange over binary streams. What `handler` raises goes through, and then nothing has been written."""
    try:
        data = reader.read()
    except OSError as error:
        raise HookError(f"decoding hook request: {error}") from error
    data = encode_response(handler(read_request(data)))
    try:
        writer.write(data)
        writer.flush()
    except OSError as error:
        raise HookError(f"encoding hook response: {error}") from error


def read_request(data: bytes) -> Request:
    """The first JSON value; bytes after it do not count."""
    try:
        found = read_members("the request", loads(data, alone=False), _REQUEST)
    except ValueError as error:
        raise HookError(f"decoding hook request: {error}") from None
    return Request(**({"event": ""} | found))  # type: ignore[arg-type]


def _read_box(name: str, value: Json) -> Box:
    return Box(**read_members(name, value, dict.fromkeys(("image", "box_id", "description"), read_text)))  # type: ignore[arg-type]


_REQUEST: Readers = {"event": read_text, "box": _read_box, "state": read_text}


def encode_response(response: Response | None) -> bytes:
    """One line of JSON without empty members. A value of the wrong type is the author's mistake, told here and not by the host."""
    if response is None:
        return b"{}\n"
    if not isinstance(response, Response):
        raise HookError(f"encoding hook response: the handler returned {type(response).__name__}, not a Response or None")
    value = _check_members(response, ("state",), ())
    if response.files:
        value = {"files": [_build_file(file) for file in response.files], **value}
    return dumps(value) + b"\n"


def _build_file(file: File) -> dict[str, object]:
    if not isinstance(file, File):
        raise HookError(f"encoding hook response: files has {type(file).__name__}, not a File")
    return {"path": file.path} | _check_members(file, _TEXTS, _NUMBERS)


def _check_members(message: Response | File, texts: tuple[str, ...], numbers: tuple[str, ...]) -> dict[str, object]:
    for name in texts:
        if not isinstance(value := getattr(message, name), str):
            raise HookError(f"encoding hook response: {name} must be a string{_ADVICE.get(name, '')}, not {type(value).__name__}")
    for name in numbers:
        if not isinstance(value := getattr(message, name), int) or isinstance(value, bool):
            raise HookError(f"encoding hook response: {name} must be an integer, not {type(value).__name__}")
    return collect_members(message, texts + numbers)


_ADVICE = {"mode": ' such as "0600"', "content": " (content_base64 carries bytes)"}
