"""What is given to Claude Code with `--settings`: one value, the path of a file or JSON. It is merged in memory; files stay."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from serai import paths
from serai.errors import BadSettings
from serai.limits import MIB

__all__ = ["ASK_RULE", "merged", "with_ask_rule"]

ASK_RULE = "AskUserQuestion"
_MOST = 1 * MIB  # bytes of a file of settings


def merged(base: str, over: str, *, cwd: str | os.PathLike[str] = ".") -> str:
    """Both as one: lists are joined as Claude joins those of its own sources, so that no rule is lost; else `over` wins."""
    if not (base.strip() and over.strip()) or base == over:
        return over if over.strip() else base
    return _written(_joined(_needed(base, cwd), _needed(over, cwd)))


def with_ask_rule(settings: str, *, cwd: str | os.PathLike[str] = ".") -> str:
    """The same with a rule that questions are asked, for builds that answered them themselves (spec agents 2.3).

    What cannot be read, or has another shape than it should, is passed on as it is: Claude says what is wrong with it.
    """
    if not settings.strip():
        return _written({"permissions": {"ask": [ASK_RULE]}})
    try:
        found = _read(settings, cwd)
    except ValueError:
        return settings
    permissions = found.get("permissions", {})
    rules = permissions.get("ask", []) if isinstance(permissions, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules) or ASK_RULE in rules:
        return settings
    return _written({**found, "permissions": {**permissions, "ask": [*rules, ASK_RULE]}})


def _needed(settings: str, cwd: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return _read(settings, cwd)
    except ValueError as error:
        where = "" if _is_json(settings) else f" of {settings}"
        hint = "give the path of a file with a JSON object, or the object itself"
        raise BadSettings(f"the settings{where} cannot be merged: {error}", who="claude", hint=hint) from None


def _read(settings: str, cwd: str | os.PathLike[str]) -> dict[str, Any]:
    """What it says. `ValueError` without the text itself: it may hold a key."""
    try:
        text: str | bytes = settings if _is_json(settings) else paths.read_regular_file(os.path.join(cwd, settings), _MOST)
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} in line {error.lineno}") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    except (RecursionError, UnicodeDecodeError):
        raise ValueError("it is no JSON that can be read") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  (the file is wrong, not the call)
    return found


def _is_json(settings: str) -> bool:
    """As Claude tells the two apart."""
    return settings.strip().startswith("{")


def _joined(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {
            key: _joined(base[key], over[key]) if key in base and key in over else {**base, **over}[key] for key in {**base, **over}
        }
    if isinstance(base, list) and isinstance(over, list):
        return base + [item for item in over if item not in base]
    return over


def _written(settings: dict[str, Any]) -> str:
    return json.dumps(settings, separators=(",", ":"))
