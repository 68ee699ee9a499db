"""Where Serai keeps its things, and what a person has set there.

`$SERAI_HOME` holds everything when it is set; otherwise the platform's folders for configuration and for state do. Settings
are the `config.toml` among the configuration. What Serai makes is for this user alone.
"""

from __future__ import annotations

import os

from serai.errors import BadSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

__all__ = [
    "PROJECT_POLICY",
    "absolute",
    "check_keys",
    "config_folder",
    "make_folder",
    "settings",
    "settings_in",
    "state_folder",
    "wants_recordings",
]

PROJECT_POLICY = os.path.join(".serai", "policy.toml")  # a project's own rules, from its folder on

# What `config.toml` may say at its top. Whoever reads a part of it checks that part.
_KEYS = ("record", "guests", "guest", "boxes", "limits", "default_model", "small_model", "system_prompt", "prompt_order")


def config_folder(environ: Mapping[str, str] = os.environ) -> str:
    """What a person edits: settings, guests, rules."""
    if home := environ.get("SERAI_HOME"):
        return os.path.abspath(home)
    from platformdirs import user_config_dir  # only here: its import takes longer than ours

    return user_config_dir("serai", appauthor=False)


def state_folder(environ: Mapping[str, str] = os.environ) -> str:
    """What Serai writes: recordings, sessions."""
    if home := environ.get("SERAI_HOME"):
        return os.path.abspath(home)
    from platformdirs import user_state_dir

    return user_state_dir("serai", appauthor=False)


def settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The person's `config.toml`; empty when there is none."""
    return settings_in(config_folder(environ))


def settings_in(folder: str) -> dict[str, Any]:
    """The `config.toml` of such a folder, its top-level keys checked."""
    path = os.path.join(folder, "config.toml")
    try:
        with open(path, "rb") as file:
            import tomllib

            found = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # not to be read, no TOML, no UTF-8
        raise BadSettings(str(error), who=path) from None
    except (RecursionError, MemoryError):
        raise BadSettings("it is nested too deep", who=path) from None
    check_keys(found, who=path)
    return found


def check_keys(settings: Mapping[str, Any], *, who: str) -> None:
    """A key nobody reads is a typing error: under `[geust.gate]` a guard would be none, and nobody would be told."""
    for key in settings:
        if key not in _KEYS:
            raise BadSettings(f"there is no setting {key!r}", who=who, hint=f"at its top the file has {', '.join(_KEYS)}")


def wants_recordings(environ: Mapping[str, str] = os.environ) -> bool:
    """Recordings are made unless the settings say `record = false`."""
    value = settings(environ).get("record", True)
    if not isinstance(value, bool):
        raise BadSettings(f"`record` is true or false, not {value!r}", who=os.path.join(config_folder(environ), "config.toml"))
    return value


def absolute(path: str | Path) -> str:
    """A path that somebody gave, absolute. An empty one is an unset variable in a script and never meant for the current folder."""
    if not str(path):
        raise BadSettings("the path is empty", hint="name a folder; `.` is the current one")
    return os.path.abspath(path)


def make_folder(path: str | Path) -> None:
    """Make a folder and whatever is missing above it, each for this user alone, whatever the umask says."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # somebody else was quicker
        if not os.path.isdir(path):
            raise
