"""Where Serai keeps its things, and what a person has set there.

`$SERAI_HOME` holds everything when it is set; otherwise the platform's folders for configuration and for state do. Settings
are the `config.toml` among the configuration, with what `serai guest grant` has written beside it, and a project may have one too
(`serai.app.config` says what counts of it). What Serai makes is for this user alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import serai
from serai.errors import BadSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


CONFIG = "config.toml"
PLUGINS = "plugins.toml"  # beside it: what plugins were granted, in its words; only Serai writes it
PROJECT_POLICY = os.path.join(".serai", "policy.toml")  # a project's own rules, from its folder on
PROJECT_CONFIG = os.path.join(".serai", CONFIG)  # and its settings

# What `config.toml` may say at its top. Whoever reads a part of it checks that part.
_KEYS = (
    "record", "guests", "guest", "boxes", "limits", "agent", "agents", "tools",
    "default_model", "small_model", "system_prompt", "prompt_order", "compact_at", "disabled_extensions", "feature", "plugins",
)  # fmt: skip
_MOST = 1 << 20  # bytes of a project's settings
_DOTS = 50  # in a line of them: the time to read `a.a.a` grows with the square of its length


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


def read_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The person's `config.toml` with what `plugins.toml` adds to it; empty when there is none."""
    return read_settings_in(config_folder(environ))


def read_settings_in(folder: str) -> dict[str, Any]:
    """The `config.toml` of such a folder with what its `plugins.toml` adds, their top-level keys checked."""
    found, path = _read(os.path.join(folder, CONFIG)), os.path.join(folder, PLUGINS)
    granted = _read(path)
    return _merge_plugins(found, granted, path) if granted else found


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadSettings(str(error), who=path) from None
    return parse_settings(content, who=path)


def _merge_plugins(found: dict[str, Any], granted: dict[str, Any], path: str) -> dict[str, Any]:
    """What was granted counts in addition; but plugins that the person has switched off by hand stay off (spec yoi 10)."""
    plugins, feature = granted.pop("plugins", {}), granted.pop("feature", {})
    enabled = plugins.get("enabled", []) if isinstance(plugins, dict) and plugins.keys() <= {"enabled"} else None
    if granted or not isinstance(enabled, list) or not isinstance(feature, dict):
        hint = f"what you write yourself belongs into {CONFIG}; `serai guest grant` writes this file"
        raise BadSettings("there is more in it than what plugins were granted", who=path, hint=hint)
    own, switch = found.get("plugins", {}), found.get("feature", {})
    if isinstance(own, dict) and isinstance(listed := own.get("enabled", []), list) and enabled:  # else whoever reads them says so
        found["plugins"] = {**own, "enabled": [*listed, *enabled]}
    if isinstance(switch, dict) and isinstance(mine := switch.get("plugins", {}), dict):
        found["feature"] = {**feature, **switch, "plugins": {**feature.get("plugins", {}), **mine}}
    return found


def read_project_settings(folder: str | Path) -> bytes:
    """A project's `config.toml` as it is written; empty when there is none.

    Anything may lie there: a pipe, a device, more than fits. What cannot be read is an error: it may say what is not to be.
    """
    path = os.path.join(folder, PROJECT_CONFIG)
    hint = "make it a file that can be read, or remove it"
    try:
        content = read_regular_file(path, _MOST)
    except FileNotFoundError:
        if not os.path.islink(path):
            return b""
        raise BadSettings("it is a link that leads to no file", who=path, hint=hint) from None
    except OSError as error:
        raise BadSettings(f"cannot be read: {error.strerror}", who=path, hint=hint) from None
    if any(line.count(b".") > _DOTS for line in content.splitlines()):
        raise BadSettings(f"a line with more than {_DOTS} dots", who=path, hint="give a long text several lines")
    return content


def read_regular_file(path: str | Path, most: int) -> bytes:
    """What is in a file. Anything may lie there: an `OSError` says of a pipe, a device or more than fits that it is one."""
    import stat

    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # a FIFO must not make anybody wait
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise OSError(0, f"it is longer than {most >> 20} MiB", str(path))
    return content


def parse_settings(content: bytes, *, who: str) -> dict[str, Any]:
    """What a `config.toml` says, its top-level keys checked."""
    import tomllib

    try:
        found = tomllib.loads(content.decode())
    except ValueError as error:  # no TOML, no UTF-8
        raise BadSettings(str(error), who=who) from None
    except (RecursionError, MemoryError):
        raise BadSettings("it is nested too deep", who=who) from None
    check_setting_keys(found, who=who)
    return found


def check_setting_keys(settings: Mapping[str, Any], *, who: str) -> None:
    """A key nobody reads is a typing error: under `[geust.gate]` a guard would be none, and nobody would be told."""
    for key in settings:
        if key not in _KEYS:
            raise BadSettings(f"there is no setting {key!r}", who=who, hint=f"at its top the file has {', '.join(_KEYS)}")


def is_recording_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Recordings are made unless the settings say `record = false`."""
    value = read_settings(environ).get("record", True)
    if not isinstance(value, bool):
        raise BadSettings(f"`record` is true or false, not {value!r}", who=os.path.join(config_folder(environ), CONFIG))
    return value


def absolute_path(path: str | Path) -> str:
    """A path that somebody gave, absolute. An empty one is an unset variable in a script and never meant for the current folder."""
    if not str(path):
        raise BadSettings("the path is empty", hint="name a folder; `.` is the current one")
    return os.path.abspath(path)


def make_private_folder(path: str | Path) -> None:
    """Make a folder and whatever is missing above it, each for this user alone, whatever the umask says."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_private_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # somebody else was quicker
        if not os.path.isdir(path):
            raise


def examples_folder(kind: str = "zot") -> Path:
    """Where the examples are: beside the source in a checkout, inside the package once it is installed."""
    package = Path(serai.__file__).parent
    inside = package / "examples" / kind
    return inside if inside.is_dir() else package.parents[1] / "examples" / kind
