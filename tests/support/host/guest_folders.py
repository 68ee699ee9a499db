"""Guests as they lie on a disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serai.host.discovery import DiscoveryResult, find_guests
from serai.host.trust import Trust


def write_zot_guest(folder: Path, *, guest_toml: str = "", exec: str = "python3", **fields: Any) -> Path:
    """A folder with an `extension.json`; its name is the manifest's unless told otherwise."""
    folder.mkdir(parents=True)
    (folder / "extension.json").write_text(json.dumps({"name": folder.name, "exec": exec, **fields}))
    if guest_toml:
        (folder / "guest.toml").write_text(guest_toml)
    return folder


@dataclass(frozen=True)
class Harness:
    """A person's home and a project, both empty at first."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"SERAI_HOME": str(self.root / "serai"), "ZOT_HOME": str(self.root / "zot"), "HOME": str(self.root)}

    @property
    def user(self) -> Path:
        return self.root / "serai" / "guests"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def trust(self) -> Trust:
        return Trust.usual(self.environ)

    def find(self, *guests: Path, installed: bool = True, config: Mapping[str, Any] | None = None) -> DiscoveryResult:
        return find_guests(cwd=self.project, guests=guests, installed=installed, config=config, environ=self.environ)


def folders(found: DiscoveryResult) -> list[str]:
    """The folder names of the guests that are to be started."""
    return [guest.folder.name for guest in found.guests]


def list_ids(found: DiscoveryResult) -> list[str]:
    return [guest.id for guest in found.guests]


def list_reasons(found: DiscoveryResult) -> list[tuple[str, str]]:
    return [(problem.folder.name, problem.reason) for problem in found.problems]
