"""Services about settings: what is configured, and a guest's own file beside it (spec piglet 7.1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serai import home
from serai.agents.models.catalogue import Catalogue
from serai.agents.models.resolving import choose
from serai.app.services.group import Data, Operation
from serai.errors import BadRequest, NoModel, Refused
from serai.limits import MIB, Limits

__all__ = ["Config"]

_LONGEST = 1 * MIB  # of a guest's own file


class Keys(msgspec.Struct, frozen=True):
    keys: list[str]


class Name(msgspec.Struct, frozen=True):
    name: str


class Config:
    """`settings` are those in force, read anew each time; `folder` is where a person keeps them."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], folder: str) -> None:
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
                return 0  # tokens: ours goes by the model's window
            case _:
                word = key.removesuffix("_model")
                try:
                    return choose(word, Catalogue.load(self._environ), self._environ, settings).model.key
                except NoModel:  # one is configured that nobody knows
                    return None

    async def read(self, guest: str, wanted: Name) -> Data:
        """The text of an extension's own file; "" when there is none."""
        name = wanted.name
        if name in ("", ".", "..") or any(bad in name for bad in ("/", "\\", "\0")):
            raise BadRequest(f"invalid extension name: {name!r}", who=guest, hint="the name alone, without a path")
        for path in (os.path.join("extensions", name, f"{name}.md"), f"{name}.md"):
            text = _text(os.path.join(self._folder, path), guest)
            if text is not None:
                return {"content": text.strip()}
        return {"content": ""}


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


def _text(path: str, guest: str) -> str | None:
    """None when there is no such file."""
    try:
        return home.content_of(path, _LONGEST).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", who=guest) from None
