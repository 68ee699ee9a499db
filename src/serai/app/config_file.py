"""A `config.toml` as it is read: all of it checked, and each value by its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Annotated, Any

import msgspec

from serai import paths
from serai.agents.settings import read_agent_settings as read_agents
from serai.errors import BadSettings
from serai.host.guest_settings import PersonSettings, read_person_settings

__all__ = ["RESIDENT", "Path", "checked", "flat", "key_of", "listed", "read"]

RESIDENT = "resident"
Path = tuple[str, ...]
_MOST, _LONGEST = 12, 80  # words in a list, and characters of one: a project may have chosen them
_LONGEST_ERROR = 400  # characters of what is wrong with a project's file: it quotes that file
_LARGEST = 1 << 53
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Top(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody below reads of the settings, or not before it is needed. The rest is `host.settings`' to check."""

    record: bool = True
    agent: Annotated[str, msgspec.Meta(min_length=1)] = RESIDENT
    tools: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    default_model: str = ""
    small_model: str = ""
    system_prompt: str = ""
    prompt_order: dict[str, Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]] = {}
    compact_at: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] = 0
    boxes: dict[str, Any] = {}
    agents: dict[str, dict[str, Any]] = {}


def read(content: bytes, who: str) -> dict[str, Any]:
    """A project's file."""
    try:
        found = paths.parse_settings(content, who=who)
        checked(found, who)
    except BadSettings as error:
        raise BadSettings(_cut(error.message, _LONGEST_ERROR), who=who, hint=error.hint) from None
    return found


def checked(settings: Mapping[str, Any], who: str) -> PersonSettings:
    """All of it but `[boxes]`, which whoever makes boxes checks further; the part about guests as it was read."""
    try:
        msgspec.convert(settings, _Top)
    except msgspec.ValidationError as error:
        raise BadSettings(str(error).replace("`$.", "`"), who=who) from None
    for key in ("boxes", "plugins"):
        if not _can_be_shown(settings.get(key, {})):
            raise BadSettings(f"{key}: a number beyond {_LARGEST}", who=who)
    read_agents(settings, who=who)
    return read_person_settings(settings, who=who)


def _can_be_shown(value: object) -> bool:
    """Whether it has no number that is too long to be written down."""
    if isinstance(value, dict | list):
        return all(map(_can_be_shown, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int) or abs(value) <= _LARGEST


def flat(settings: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every value with its path. A table that is empty says nothing."""
    for key, value in settings.items():
        if key == "guest":
            for name, table in value.items():
                for what, one in table.items():
                    if what == "limits":
                        yield from (((key, name, what, limit), number) for limit, number in one.items())
                    else:
                        yield (key, name, what), one
        elif key in ("agents", "feature"):
            yield from (((key, name, what), one) for name, table in value.items() for what, one in table.items())
        elif key in ("guests", "boxes", "limits", "plugins"):
            yield from (((key, name), one) for name, one in value.items())
        else:
            yield (key,), value


def key_of(path: Path) -> str:
    return ".".join(part if _BARE.fullmatch(part) else dumps(part, ensure_ascii=False) for part in path)


def listed(words: Sequence[str]) -> str:
    """The first of them, and how many there are besides."""
    others = [f"and {len(words) - _MOST} others"] if len(words) > _MOST else []
    return ", ".join([*(_cut(word, _LONGEST) for word in words[:_MOST]), *others])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
