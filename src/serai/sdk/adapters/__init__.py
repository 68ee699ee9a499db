"""The dialects an extension can speak: one row each. A further one adds a row and a module, and no author's code changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from serai.errors import BadExtension

if TYPE_CHECKING:
    from serai.sdk.answers import Answer, ToolResult, Verdict
    from serai.sdk.book import Book
    from serai.sdk.heard import Heard

__all__ = ["DIALECTS", "Adapter", "Dialect", "choose", "load"]


class Adapter(Protocol):
    """One dialect, from the extension's side (sans-IO): lines in, what was heard out; answers in, frames out."""

    dialect: str
    max_line: int  # the longest frame either side reads, with its newline

    def opening(self, book: Book) -> bytes:
        """What is said before anything is heard."""
        ...

    def hear(self, line: bytes) -> Iterable[Heard]: ...

    def too_long(self, head: bytes, size: int) -> Iterable[Heard]:
        """A line over the limit, of which only the head was kept."""
        ...

    def tool_answer(self, id: str, result: ToolResult) -> bytes: ...

    def command_answer(self, id: str, answer: Answer) -> bytes: ...

    def verdict(self, id: str, verdict: Verdict) -> bytes: ...

    def notify(self, level: str, message: str) -> bytes: ...

    def render(self, panel: str, title: str, lines: Sequence[str], footer: str) -> bytes: ...

    def close_panel(self, panel: str) -> bytes: ...

    def farewell(self) -> bytes:
        """What is said when the host wanted an end."""
        ...


class Dialect(NamedTuple):
    """How a host of this dialect is recognised, and where the adapter is: nowhere means that it is not built yet."""

    module: str = ""
    environ: str = ""  # a variable that its hosts set
    first: tuple[bytes, ...] = ()  # what is in the first bytes of a host that speaks first


DIALECTS: dict[str, Dialect] = {
    "piglet": Dialect(environ="PIGLET_FD", first=(b'"initialize"', b'"extensionDir"')),
    "mcp": Dialect(first=(b'"initialize"', b'"clientInfo"')),
    "zot": Dialect("serai.sdk.adapters.zot"),  # its host waits for hello
}
OPTION, VARIABLE, DEFAULT = "--dialect", "SERAI_DIALECT", "zot"


def choose(arguments: Sequence[str], environ: Mapping[str, str], first: Callable[[], bytes]) -> str:
    """The dialect's name: by the manifest's arguments, the environment, or the bytes that are there already, in this order."""
    for number, argument in enumerate(arguments):
        if argument == OPTION and number + 1 < len(arguments):
            return arguments[number + 1]
        if argument.startswith(f"{OPTION}="):
            return argument.partition("=")[2]
    if named := environ.get(VARIABLE):
        return named
    for name, dialect in DIALECTS.items():
        if dialect.environ and environ.get(dialect.environ):
            return name
    head = first()
    return next(
        (name for name, dialect in DIALECTS.items() if dialect.first and all(sign in head for sign in dialect.first)), DEFAULT
    )


def load(name: str) -> Adapter:
    module = DIALECTS[name].module if name in DIALECTS else ""
    if not module:
        built = ", ".join(known for known, dialect in DIALECTS.items() if dialect.module)
        text = f'this SDK has no adapter for the dialect "{name}"'
        raise BadExtension(text, hint=f"it speaks {built}: say so with `{OPTION} {DEFAULT}` or {VARIABLE}={DEFAULT}")
    from importlib import import_module

    adapter: Adapter = import_module(module).ADAPTER()
    return adapter
