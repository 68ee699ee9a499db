"""Where Serai keeps its things, and what a person has set there.

`$SERAI_HOME` holds everything when it is set; otherwise the platform's folders for configuration and for state do. Settings
are the `config.toml` among the configuration.
"""

from __future__ import annotations

import os

from serai.errors import BadSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["config_folder", "settings", "state_folder", "wants_recordings"]


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
    path = _settings_file(environ)
    try:
        with open(path, "rb") as file:
            import tomllib

            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # not to be read, no TOML, no UTF-8
        raise BadSettings(str(error), who=path) from None


def wants_recordings(environ: Mapping[str, str] = os.environ) -> bool:
    """Recordings are made unless the settings say `record = false`."""
    value = settings(environ).get("record", True)
    if not isinstance(value, bool):
        raise BadSettings(f"`record` is true or false, not {value!r}", who=_settings_file(environ))
    return value


def _settings_file(environ: Mapping[str, str]) -> str:
    return os.path.join(config_folder(environ), "config.toml")
