"""The dialects an extension can speak: one row each. A further one adds a row and a module, and no author's code changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from serai.errors import BadExtension

if TYPE_CHECKING:
    from serai.sdk.answers import Answer, ToolResult, Verdict
    from serai.sdk.events import Heard
    from serai.sdk.registrations import Registration, Registrations
    from serai.sdk.workers import PendingAnswer

__all__ = ["DIALECTS", "Adapter", "Dialect", "DialectChoice", "RequestsHost", "choose", "load", "recognise"]


class RequestsHost(Protocol):
    """A dialect whose hosts have services: what asks for one, and what only tells."""

    def encode_request(self, number: int, method: str, params: dict[str, Any]) -> bytes: ...

    def encode_notification(self, method: str, params: dict[str, Any]) -> bytes: ...


class Adapter(Protocol):
    """One dialect, from the extension's side (sans-IO): lines in, what was heard out; answers in, frames out."""

    dialect: str
    max_line: int  # the longest frame either side reads, with its newline
    host_first: bool  # nothing is said before the host has spoken

    @property
    def requests(self) -> RequestsHost | None: ...

    def encode_opening(self, registry: Registrations) -> bytes:
        """All that is offered."""
        ...

    def encode_registration(self, offer: Registration, registry: Registrations) -> bytes:
        """What is offered later; nothing where the dialect has no word for that."""
        ...

    def list_unsupported(self, registry: Registrations) -> list[str]:
        """What is offered and the dialect cannot carry, a sentence each."""
        ...

    def get_answer_types(self) -> dict[str, type[PendingAnswer]]:
        """How each kind of request is answered."""
        ...

    def parse_line(self, line: bytes) -> Iterable[Heard]: ...

    def parse_oversized(self, head: bytes, size: int) -> Iterable[Heard]:
        """A line over the limit, of which only the head was kept."""
        ...

    def encode_tool_result(self, id: str, result: ToolResult) -> bytes: ...

    def encode_command_answer(self, id: str, answer: Answer) -> bytes: ...

    def encode_verdict(self, id: str, verdict: Verdict) -> bytes: ...

    def notify(self, level: str, message: str) -> bytes: ...

    def render(self, panel: str, title: str, lines: Sequence[str], footer: str) -> bytes: ...

    def close_panel(self, panel: str) -> bytes: ...

    def encode_shutdown_ack(self) -> bytes:
        """What is said when the host wanted an end."""
        ...


class Dialect(NamedTuple):
    """How a host of this dialect is recognised, and where the adapter is: nowhere means that it is not built yet."""

    module: str = ""
    environ: tuple[str, str] = ("", "")  # a variable that its hosts set, and to what
    descriptors: tuple[int, int] = (0, 1)  # where it is spoken when that variable is set
    first: tuple[bytes, ...] = ()  # what is in the first bytes of a host that speaks first


DIALECTS: dict[str, Dialect] = {
    "piglet": Dialect("serai.sdk.adapters.piglet", ("PIGLET_FD", "1"), (3, 4), (b'"initialize"', b'"cwd"')),
    "mcp": Dialect(first=(b'"initialize"', b'"clientInfo"')),
    "zot": Dialect("serai.sdk.adapters.zot"),  # its host waits for hello, and sets nothing (spec zot 2.1)
}
OPTION, VARIABLE, DEFAULT = "--dialect", "SERAI_DIALECT", "zot"


class DialectChoice(NamedTuple):
    """A dialect, and where it is spoken. One that nobody named yields to a host that speaks first after all."""

    dialect: str
    descriptors: tuple[int, int] = (0, 1)
    named: bool = True


def choose(arguments: Sequence[str], environ: Mapping[str, str]) -> DialectChoice:
    """By the manifest's arguments or the environment, in this order; else it is the default until the host's first line."""
    named = _find_option(arguments) or environ.get(VARIABLE)
    for name, dialect in DIALECTS.items():
        variable, value = dialect.environ
        if named in (None, "", name) and variable and environ.get(variable) == value:
            return DialectChoice(name, dialect.descriptors)
    return DialectChoice(named) if named else DialectChoice(DEFAULT, named=False)


def _find_option(arguments: Sequence[str]) -> str | None:
    for number, argument in enumerate(arguments):
        if argument == OPTION and number + 1 < len(arguments):
            return arguments[number + 1]
        if argument.startswith(f"{OPTION}="):
            return argument.partition("=")[2]
    return None


def recognise(head: bytes) -> str:
    """The dialect of a host that began so; empty when it is none that speaks first."""
    return next((name for name, dialect in DIALECTS.items() if dialect.first and all(sign in head for sign in dialect.first)), "")


def load(name: str) -> Adapter:
    if name == "yoi":
        text = "yoi is spoken inside a component, over no wire"
        raise BadExtension(text, hint="`serai guest build FOLDER` makes the component")
    module = DIALECTS[name].module if name in DIALECTS else ""
    if not module:
        built = ", ".join(known for known, dialect in DIALECTS.items() if dialect.module)
        text = f'this SDK has no adapter for the dialect "{name}"'
        raise BadExtension(text, hint=f"it speaks {built}: say so with `{OPTION} {DEFAULT}` or {VARIABLE}={DEFAULT}")
    from importlib import import_module

    adapter: Adapter = import_module(module).ADAPTER()
    return adapter
