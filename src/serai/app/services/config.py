"""Services about settings: what is configured, and a guest's own file beside it (spec piglet 7.1)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serai import paths
from serai.agents.models.catalogue import Catalogue, choose
from serai.app.services.group import Data, Operation
from serai.errors import BadRequest, NoModel, Refused
from serai.limits import MIB, Limits

__all__ = ["Config"]

log = logging.getLogger("serai.app")

_LONGEST = 1 * MIB  # of a guest's own file


class Keys(msgspec.Struct, frozen=True):
    keys: list[str]


class Name(msgspec.Struct, frozen=True):
    name: str


class Config:
    """`settings` are those in force, read anew each time; `folder` is where a person keeps what a guest may read, by its id."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], folder: Callable[[str], str]) -> None:
        self._settings = settings
        self._environ = environ
        self._folder = folder
        self.operations: Mapping[str, Operation[Any]] = {
            "get": Operation(Keys, self.get),
            "read": Operation(Name, self.read),
        }

    async def get(self, _guest: str, wanted: Keys) -> Data:
        """The values of those keys that there are. What else a person has set is no guest's business."""
        settings = self._settings()
        found = {key: self._value(_KNOWN[key], settings) for key in wanted.keys if key in _KNOWN}
        return {"values": {key: value for key, value in found.items() if value is not None}}

    def _value(self, key: str, settings: Mapping[str, Any]) -> Any:
        match key:
            case "agent.max_turns":
                return settings.get("limits", {}).get("steps", Limits().steps)
            case "agent.compact_at":
                return settings.get("compact_at", 0)
            case _:
                word = key.removesuffix("_model")
                try:
                    return choose(word, Catalogue.load(self._environ), self._environ, settings).model.key
                except NoModel:  # one is configured that nobody knows
                    return None

    async def read(self, guest: str, wanted: Name) -> Data:
        """The text of an extension's own file; "" when there is none. One in the old place is copied to the new one."""
        name, folder = wanted.name, self._folder(guest)
        if name in ("", ".", "..") or any(bad in name for bad in ("/", "\\", "\0")):
            quoted = json.dumps(name, ensure_ascii=False)
            raise BadRequest(f"invalid extension name: {quoted}", who=guest, hint="the name alone, without a path")
        new, old = os.path.join(folder, "extensions", name, f"{name}.md"), os.path.join(folder, f"{name}.md")
        content = _content(new, guest)
        if content is None and (content := _content(old, guest)) is not None:
            _copy(content, new, folder)
        return {"content": (content or b"").decode(errors="replace").strip()}


# Also in the spelling of those who ask (spec piglet 7.1).
_KNOWN = {
    "default_model": "default_model",
    "defaultModel": "default_model",
    "small_model": "small_model",
    "smallModel": "small_model",
    "agent.compact_at": "agent.compact_at",
    "agent.compactAt": "agent.compact_at",
    "agent.max_turns": "agent.max_turns",
    "agent.maxTurns": "agent.max_turns",
}


def _content(path: str, guest: str) -> bytes | None:
    """None when there is no such file."""
    try:
        return paths.read_regular_file(path, _LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", who=guest) from None


def _copy(content: bytes, path: str, folder: str) -> None:
    """Where there is nothing yet, and nowhere a link leads to. Not to be able to is no failure: the old file was read."""
    above = os.path.dirname(path)
    if os.path.realpath(above) != os.path.join(os.path.realpath(folder), os.path.relpath(above, folder)):
        log.warning("%s was not copied: a link leads elsewhere", path)
        return
    try:
        paths.make_private_folder(above)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError:
            os.unlink(path)  # half of it would be taken for all
            raise
    except OSError as error:
        log.warning("%s was not copied: %s", path, error.strerror)
