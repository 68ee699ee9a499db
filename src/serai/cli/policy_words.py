"""How rules, calls and what is remembered are told to a person: for `serai policy` and `serai trust`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from serai import home
from serai.cli.plain import printable

if TYPE_CHECKING:
    from serai.policy import Remembered, Rule

__all__ = ["about", "block", "counted", "glance", "lifetime", "moment", "own_file", "told", "toml", "where", "written"]

_MANNERS = ("id", "decide", "because")  # what a rule is not about
_LINES, _CHARACTERS = 20, 2000  # of one text, where only a glance is wanted
_FOR = {"session": "for the session ", "project": "in ", "always": "everywhere"}


def own_file() -> str:
    """Where a person writes rules of their own."""
    from serai.policy.loading import USER_FILE

    return os.path.join(home.config_folder(), USER_FILE)


def where(source: str) -> str:
    """The file or flag that a rule came from."""
    from serai.policy import rules

    return "what Serai ships" if source == os.path.join(os.path.dirname(rules.__file__), "default.toml") else source


def about(rule: Rule) -> str:
    """What a rule means, in one line."""
    parts = [f"{name} {_either(value)}" for name, value in _pairs(rule.to_json())]
    return ", ".join(parts) or "every call"


def told(rule: Rule) -> Iterator[str]:
    """A rule in two or three lines."""
    yield f"{rule.id}: {about(rule)}"
    if rule.because:
        yield f"  because {rule.because}"
    yield f"  from {where(rule.source)}"


def lifetime(one: Remembered) -> str:
    """For whom a remembered decision holds, and until when."""
    until = "until it is forgotten" if one.expires is None else f"until {moment(one.expires)}"
    return f"{_FOR[one.scope]}{one.key}, {until}"


def toml(rule: Rule) -> Iterator[str]:
    """A rule as it is written into a file."""
    yield "[[rule]]"
    for key, value in rule.to_json().items():
        if isinstance(value, Mapping):
            yield f"{key} = {{ {', '.join(f'{_key(name)} = {_value(text)}' for name, text in value.items())} }}"
        else:
            yield f"{key} = {_value(value)}"


def block(name: str, text: str) -> Iterator[str]:
    """A text of somebody else's, each line marked, so that none of it can be taken for ours."""
    name = printable(name)
    for number, line in enumerate(text.expandtabs().split("\n")):
        yield f"  {' ' * len(name) if number else name} | {printable(line)}"


def glance(text: str) -> str:
    """So much of a text as a list has room for."""
    return "\n".join(text[:_CHARACTERS].split("\n")[:_LINES])


def written(text: str) -> str:
    """What somebody typed, as JSON and a database can hold it: bytes that are no text are spelt out."""
    return text.encode(errors="backslashreplace").decode()


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"


def _pairs(form: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in form.items():
        if key == "input":
            yield from ((f"input {name}", texts) for name, texts in value.items())
        elif key == "exactly":
            yield "exactly", "the same arguments"
        elif key not in _MANNERS:
            yield key, value


def _either(value: str | Iterable[str]) -> str:
    return value if isinstance(value, str) else " or ".join(value)


def _value(value: str | Iterable[str]) -> str:
    return _text(value) if isinstance(value, str) else f"[{', '.join(map(_text, value))}]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    """As TOML has it, and as a terminal may show it."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
