"""The keys of `config.toml`, the variables that set them, and the entry points that the program has and looks for."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from tests.contract.place import DATA, Place

__all__ = ["list_config_keys", "list_entry_points"]

VARIABLES = ("SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL", "SERAI_SMALL_MODEL", "PIGLET_SMALL_MODEL")
PROGRAMS = ("serai", "serai.testing.claude", "serai.testing.models")
DECLARED = "[serai.agents]\ncontract = contract_agents:open\n\n[serai.guests]\ncontract = contract_guests:adapter\n"


def list_config_keys(place: Place) -> list[str]:
    """One line per key with where its value comes from, for `data/config.toml` and for each variable."""
    (place.home / "config.toml").write_text((DATA / "config.toml").read_text().replace("/opt/", f"{place.root}/"))
    key = place.root / "boxes.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    ran = place("config", "show", "--all", "--json")
    assert ran.status == 0, ran.stderr
    [shown] = ran.objects
    lines = [f"{value['key']}: {value['source']}" for value in shown["values"]]
    for variable in VARIABLES:
        [shown] = place("config", "show", "--json", env={variable: "other"}).objects
        lines += [f"{value['key']}: {variable}" for value in shown["values"] if value["file"] == variable]
    boxes = place("box", "list")  # reads the table [boxes], which `config show` only prints
    assert boxes.status == 0, boxes.stderr
    return sorted(lines)


def list_entry_points(place: Place) -> list[str]:
    """The console script, the modules that run with `python -m`, and the groups in which other packages are found."""
    scripts = importlib.metadata.distribution("serai").entry_points.select(group="console_scripts")
    lines = [f"console_scripts: {script.name} = {script.value}" for script in scripts]
    lines += [f"python -m {name}" for name in PROGRAMS if importlib.util.find_spec(f"{name}.__main__")]
    # A distribution in the working directory, which is on the path of the program.
    folder = place.project / "contract-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: contract\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(DECLARED)
    if any(line["name"] == "contract" for line in place("agent", "list", "--json").objects):
        lines.append("group serai.agents")
    if _find_guest(place, "contract") != _find_guest(place, "unknown"):
        lines.append("group serai.guests")
    return lines


def _find_guest(place: Place, dialect: str) -> str:
    """What is said of a guest of this dialect, whatever its name."""
    folder = place.root / dialect
    folder.mkdir()
    (folder / "extension.json").write_text('{"name": "guest", "exec": "./guest"}')
    (folder / "guest.toml").write_text(f'dialect = "{dialect}"\n')
    return place("guest", "list", "--guest", folder).stderr.replace(dialect, "DIALECT")
