"""The host that started the extension, as far as it told about itself, and what may be asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from serai.errors import NoService

__all__ = ["Host", "NoService"]


class Services:
    """What hosts of some dialects can be asked for. zot has none of it (spec zot 3.2 has no such frame)."""

    agent_run: Any
    ask: Any
    background: Any
    bus: Any
    chat: Any
    config: Any
    conversation: Any
    credentials: Any
    guests: Any
    models: Any
    pick: Any
    sessions: Any
    tools: Any
    undo: Any


class Host(Services):
    """Each member has its zero value until the host has answered (spec zot 6)."""

    def __init__(self) -> None:
        self.dialect = ""
        self.protocol_version = 0
        self.version = ""
        self.provider = ""
        self.model = ""
        self.cwd = ""  # where the agent works; the program itself runs in the extension's own folder
        self.extension_dir = ""
        self.data_dir = ""

    def __repr__(self) -> str:
        return f"<host {self.dialect} {self.version}>" if self.dialect else "<no host yet>"

    if not TYPE_CHECKING:  # or a checker would find every name here

        def __getattr__(self, name: str) -> NoReturn:
            if name not in Services.__annotations__:
                raise AttributeError(f"a host has no {name!r}")
            if not self.__dict__.get("dialect"):
                raise NoService(f"no host has started this extension yet, so there is no {name}", hint="ask for it in a handler")
            text = f"the host speaks {self.dialect}, which has no host services: there is no {name}"
            raise NoService(text, hint=f"do without where hasattr(ext.host, {name!r}) is false")

    def welcome(self, about: dict[str, Any]) -> None:
        for name, value in about.items():
            setattr(self, name, value)
