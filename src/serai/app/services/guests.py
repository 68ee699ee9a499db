"""Who else is in the house, and what they offer (spec piglet 7.1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from serai.app.services.group import Data, NoArguments, Operation
from serai.host.guest import Guest
from serai.host.host import Host
from serai.model.contributions import PromptSection

__all__ = ["Guests"]


class Guests:
    """`order` are the places of prompt sections by title that a person has set; `folder` is where their guests lie.
    `config` is the folder in whose `extensions` a guest's own settings are, by its id.

    `own` are the commands of Serai itself, each with a line about it.
    """

    def __init__(
        self,
        host: Host,
        order: Callable[[], Mapping[str, int]],
        folder: str,
        config: Callable[[str], str],
        *,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self._own = own or {}
        self._order = order
        self._folder = folder
        self.operations: Mapping[str, Operation[Any]] = {
            "commands": Operation(NoArguments, self.commands),
            "shortcuts": Operation(NoArguments, self.shortcuts),
            "sections": Operation(NoArguments, self.sections),
            "infos": Operation(NoArguments, self.infos),
            "folder": Operation(NoArguments, self.folder),
        }

    async def commands(self, _guest: str, _arguments: NoArguments) -> Data:
        """By name."""
        found = {command.name: command.description for command in self._host.commands} | dict(self._own)
        return {"commands": [{"name": name, "description": about} for name, about in sorted(found.items())]}

    async def shortcuts(self, _guest: str, _arguments: NoArguments) -> Data:
        """By key, each of the guest that has it."""
        return {"shortcuts": {shortcut.key: {"description": shortcut.description} for shortcut in self._host.shortcuts}}

    async def sections(self, _guest: str, _arguments: NoArguments) -> Data:
        """In the order of the system prompt; what they say is not told."""
        order = self._order()
        found = sorted(self._host.texts.sections(), key=lambda section: order.get(section.title, section.order))
        return {"sections": [_section(section) for section in found]}

    async def infos(self, _guest: str, _arguments: NoArguments) -> Data:
        """In load order, Serai's own first."""
        own = [name for name, tool in self._host.table.tools.items() if tool.owner.id == "serai"]
        serai: Data = {"name": "serai", "kind": "builtin"} | ({"tools": own} if own else {})
        return {"guests": [serai, *map(_info, self._host.guests.values())]}

    async def folder(self, guest: str, _arguments: NoArguments) -> Data:
        """Where guests lie, and where their own settings do, each in a folder of its name (spec piglet 1.1)."""
        return {"path": self._folder, "config": os.path.join(self._config(guest), "extensions")}


def _section(section: PromptSection) -> Data:
    return {"title": section.title} | ({"tokens": section.tokens} if section.tokens else {})


def _info(guest: Guest) -> Data:
    """What is empty is left out."""
    manifest, offers = guest.manifest, guest.contributions
    others: Data = {
        "version": manifest.version,
        "runtime": manifest.language,
        "tools": [tool.name for tool in guest.tools],
        "commands": [command.name for command in offers.commands],
        "interceptors": [interceptor.name for interceptor in offers.interceptors],
        "event_handlers": [handler.name for handler in offers.event_handlers],
        "shortcuts": [shortcut.key for shortcut in offers.shortcuts],
        "message_hooks": [hook.name for hook in offers.message_hooks],
        "input_transformers": [transformer.name for transformer in offers.input_transformers],
        "compactor": offers.compactors[0].name if offers.compactors else "",
    }
    data: Data = {"name": manifest.name, "id": manifest.id, "kind": "external", "state": str(guest.state)}
    return data | {key: value for key, value in others.items() if value}
