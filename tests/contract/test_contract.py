"""What users, authors and other programs rely on is as it was agreed. `tests.contract.write` says how to change it."""

from __future__ import annotations

import difflib
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.contract import golden
from tests.contract.jsonkeys import NEED_A_BOX
from tests.contract.place import DATA
from tests.contract.program import Program

HINT = "if an issue names this change: python -m tests.contract.write"
HELP = sorted(f"help/{path.name}" for path in (DATA / "help").glob("*.txt"))
DISK = sorted(f"disk/expected/{path.name}" for path in (DATA / "disk" / "expected").glob("*.txt"))
JSON = tomllib.loads(golden.read_agreed("json_keys.toml"))
STATUSES = tomllib.loads(golden.read_agreed("exit_statuses.toml"))


def assert_same(name: str, now: str) -> None:
    """Fails with a diff of the two texts."""
    then = golden.read_agreed(name)
    if now != then:
        diff = difflib.unified_diff(then.splitlines(), now.splitlines(), f"data/{name}", "now", lineterm="", n=1)
        pytest.fail("\n".join([*diff, HINT]), pytrace=False)


@pytest.fixture(scope="module")
def help_texts(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return golden.read_help_texts(program, tmp_path_factory.mktemp("help") / "place")


@pytest.fixture(scope="module")
def disk_texts(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return golden.read_disk_texts(program, tmp_path_factory.mktemp("disk") / "place")


@pytest.fixture(scope="module")
def json_keys(program: Program, tmp_path_factory: pytest.TempPathFactory) -> golden.Table:
    return golden.read_json_keys(program, tmp_path_factory.mktemp("json"))


@pytest.fixture(scope="module")
def status_table(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return golden.read_status_table(program, tmp_path_factory.mktemp("statuses") / "place")


# -- the command line


@pytest.mark.parametrize("name", HELP)
def test_help_is_unchanged(help_texts: Mapping[str, str], name: str) -> None:
    assert_same(name, help_texts.get(name, "no such command\n"))


def test_every_command_has_an_agreed_help(help_texts: Mapping[str, str]) -> None:
    assert sorted(help_texts) == HELP, HINT


@pytest.mark.parametrize(
    "start", [[sys.executable, "-m", "serai"], [f"{sysconfig.get_path('scripts')}/serai"]], ids=["-m", "script"]
)
def test_the_installed_program_prints_that_help(start: list[str]) -> None:
    ran = subprocess.run([*start, "--help"], capture_output=True, text=True, check=True)
    assert_same("help/serai.txt", ran.stdout)


@pytest.mark.parametrize("name", sorted(JSON))
def test_json_keys_are_unchanged(json_keys: golden.Table, name: str) -> None:
    if name in NEED_A_BOX and name not in json_keys:
        pytest.skip("no backend can make a box on this machine")
    now, then = set(json_keys[name]), set(JSON[name])
    assert (sorted(then - now), sorted(now - then)) == ([], []), f"missing, new; {HINT}"


def test_every_command_with_json_is_in_the_table(help_texts: Mapping[str, str]) -> None:
    commands = {Path(name).stem.replace("_", " ") for name, text in help_texts.items() if "  --json " in text}
    assert {name for name in commands if not name.startswith("ext ")} - JSON.keys() == set()


@pytest.mark.parametrize("name", sorted(STATUSES))
def test_exit_status_is_unchanged(status_table: Mapping[str, int], name: str) -> None:
    if name.startswith("box ") and name not in status_table:
        pytest.skip("no backend can make a box on this machine")
    assert status_table[name] == STATUSES[name], HINT


# -- names


def test_public_names_and_signatures_are_unchanged() -> None:
    assert_same("api.txt", golden.read_api_text())


def test_configuration_keys_are_unchanged(program: Program, tmp_path: Path) -> None:
    assert_same("config_keys.txt", golden.read_config_text(program, tmp_path / "place"))


def test_entry_points_are_unchanged(program: Program, tmp_path: Path) -> None:
    assert_same("entry_points.txt", golden.read_entry_text(program, tmp_path / "place"))


# -- files on disk


@pytest.mark.parametrize("name", DISK)
def test_old_files_are_read(disk_texts: Mapping[str, str], name: str) -> None:
    assert_same(name, disk_texts.get(name, "no such output\n"))
