"""What an author wrote as a name, a text or a number: checked where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from serai.errors import BadExtension
from serai.sdk.handlers import Function

__all__ = ["checked_text", "decorate", "event_name", "first_line", "label", "named", "number", "timeout_of"]

_LONGEST = 1_000_000  # seconds of a time-out: no call lives for days
_CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch  # what models call and people type (spec zot 3.2)


def decorate(add: Callable[[Any], Any], name: object, what: str) -> Any:
    """With and without parentheses. What is wrong is told where the author stands, not where we found it."""

    def added(function: Any) -> Any:
        try:
            return add(function)
        except BadExtension as error:
            raise error.with_traceback(None) from None

    if isinstance(name, str):
        return added
    if not callable(name):
        raise BadExtension(f"{name!r} is neither a name nor a function", hint=f'write @ext.{what} or @ext.{what}("name")')
    return added(name)


def checked_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadExtension(f"{what} is text, not {value!r}", hint="write it in quotes")
    return value


def event_name(event: object, what: str) -> str:
    if not isinstance(event, str):
        raise BadExtension(f"@ext.{what} needs the name of an event", hint=f'write @ext.{what}("tool_call") above the handler')
    return event


def named(what: str, name: object, function: Function) -> str:
    called = name if isinstance(name, str) and name else getattr(function, "__name__", "")
    if not isinstance(called, str) or not called.strip() or called == "<lambda>":
        raise BadExtension(f"a {what} needs a name: {function!r} has none", hint=f'write @ext.{what}("name")')
    if not _CALLABLE(called):
        use = "called by models" if what == "tool" else "typed"
        text = f'{what} "{called}" cannot be {use}: a name has at most 64 letters, digits, "-" and "_"'
        raise BadExtension(text, hint="rename it; the slash is not part of it" if what == "command" else "rename it")
    return called


def first_line(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]


def timeout_of(seconds: object, name: str) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
        raise BadExtension(f'tool "{name}": {seconds!r} is no time-out', hint="write seconds, as in timeout=20")
    return float(seconds)


def number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadExtension(f"{what} is a whole number, not {value!r}", hint="write it as in priority=10")
    return value


def label(name: object, function: Function, kind: str, taken: Callable[[str], bool]) -> str:
    """What it is called in a host's log: as it was named, else as its function is, and with a number if that is taken."""
    if checked_text(name, f"the name of a {kind}"):
        return str(name)
    base = str(getattr(function, "__name__", "")).strip("<>") or kind
    many = 1
    while taken(called := base if many == 1 else f"{base} {many}"):
        many += 1
    return called
