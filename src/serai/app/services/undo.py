"""Copies of files from before they were changed (spec piglet 6.10, 7.1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from serai.app.services.group import Data, NoArguments, Operation
from serai.errors import NoSnapshot, NotAllowed, Refused
from serai.tools.workspace import FileSnapshots as Copies

__all__ = ["Undo"]


class Path(msgspec.Struct, frozen=True):
    path: str


class Undo:
    """`copies` are None where the app keeps none; of them those below `folder` are told of. `may` says why a file must not be put
    back, or nothing.
    """

    def __init__(self, copies: Copies | None, may: Callable[[str, str], Awaitable[str]], folder: str) -> None:
        self._kept = copies
        self._may = may
        self._folder = os.path.join(os.path.realpath(folder), "")
        self.operations: Mapping[str, Operation[Any]] = {
            "snapshots": Operation(NoArguments, self.snapshots),
            "restore": Operation(Path, self.restore),
        }

    async def snapshots(self, guest: str, _arguments: NoArguments) -> Data:
        """The size of each copy, by the path of its file."""
        return {"snapshots": await self._here(guest)}

    async def restore(self, guest: str, wanted: Path) -> Data:
        """Put a file back; its path is one of those that `snapshots` tells. It is decided like a call that writes it."""
        if wanted.path not in await self._here(guest):
            raise NoSnapshot(f"no snapshot for path: {wanted.path}", who=guest)
        if why := await self._may(guest, wanted.path):
            raise NotAllowed(why, who=guest)
        await asyncio.to_thread(self._copies(guest).restore, wanted.path)
        return {}

    async def _here(self, guest: str) -> dict[str, int]:
        found = await asyncio.to_thread(self._copies(guest).snapshots)
        return {path: size for path, size in found.items() if path.startswith(self._folder)}

    def _copies(self, guest: str) -> Copies:
        if self._kept is None:
            raise Refused("undo snapshots not available", who=guest)
        return self._kept
