"""The host that started the extension, as far as it told about itself, and what may be asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serai.errors import NoService

if TYPE_CHECKING:
    from serai.sdk.adapters.yoi import FileSystem, Interfaces, Requests, WebSockets
    from serai.sdk.services import Services
else:
    Services = object

# What `Services` has. zot has none of it (spec zot 3.2 has no such frame), and no zot host has to wait for its import.
SERVICES = frozenset({
    "abort", "abort_now", "agent_run", "ask", "background", "bus", "chat", "close_overlay", "config", "conversation", "credentials",
    "guests", "log", "models", "notify", "pick", "quit", "send_message", "sessions", "set_input_text", "set_widget", "show_message",
    "show_overlay", "steer", "toggle_step_mode", "tools", "undo", "wait_for_idle",
})  # fmt: skip

INTERFACES = frozenset({"fs", "request", "websocket"})  # what a host of yoi has, and no other (spec yoi 2.1)


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
        self.config_dir = ""  # where a person's settings for this extension are
        self._services: Services | None = None
        self._interfaces: Interfaces | None = None

    def __repr__(self) -> str:
        return f"<host {self.dialect} {self.version}".rstrip() + ">" if self.dialect else "<no host yet>"

    if not TYPE_CHECKING:  # or a checker would find every name here

        def __getattr__(self, name: str) -> Any:
            if name in INTERFACES:
                return self._get_interface(name)
            if name not in SERVICES:
                raise AttributeError(f"a host has no {name!r}")
            services = self.__dict__.get("_services")
            if services is not None:
                return getattr(services, name)
            if not self.__dict__.get("dialect"):
                raise NoService(f"no host has started this extension yet, so there is no {name}", hint="ask for it in a handler")
            text = f"the host speaks {self.dialect}, which has no host services: there is no {name}"
            raise NoService(text, hint=f"do without where hasattr(ext.host, {name!r}) is false")

    if TYPE_CHECKING:

        @property
        def fs(self) -> FileSystem: ...
        @property
        def request(self) -> Requests: ...
        @property
        def websocket(self) -> WebSockets: ...

    def _get_interface(self, name: str) -> Any:
        interfaces = self.__dict__.get("_interfaces")
        if interfaces is not None:
            return interfaces.get(name)
        if not self.__dict__.get("dialect"):
            raise NoService(f"no host has started this extension yet, so there is no {name}", hint="ask for it in a handler")
        text = f"the host speaks {self.dialect}, and only hosts that speak yoi have {name}"
        raise NoService(text, hint=f"do without where hasattr(ext.host, {name!r}) is false")

    def update(self, about: dict[str, Any]) -> None:
        for name, value in about.items():
            setattr(self, name, value)

    def set_services(self, services: Services | None) -> None:
        """For the engine: what can be asked of it."""
        self._services = services

    def set_interfaces(self, interfaces: Interfaces) -> None:
        """For the engine: it is inside a component, and these are the functions that this imports."""
        self.dialect = "yoi"
        self._interfaces = interfaces
