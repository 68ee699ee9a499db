"""The contracts that keep the picture of docs/architecture.md true can really be broken."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# Where a line is added, the line, the contract that must report it, and the words of the report.
BREAKAGES = [
    ("errors.py", "import serai.wire.stream", "Imports go down only", "serai.errors -> serai.wire.stream"),
    ("wire/stream.py", "import serai.testing.faults", "Imports go down only", "serai.wire.stream -> serai.testing.faults"),
    ("wire/codec.py", "import asyncio", "The sans-IO half of the wire does no IO", "serai.wire.codec -> asyncio"),
    (
        "wire/channel.py",
        "import click",
        "The wire needs msgspec and the standard library, nothing else",
        "serai.wire.channel -> click",
    ),
    (
        "host/discovery.py",
        "import serai.dialects.zot.manifest",
        "The host is neutral: only its adapters know a dialect",
        "serai.host.discovery -> serai.dialects.zot.manifest",
    ),
    (
        "dialects/zot/host_side.py",
        "import asyncio",
        "Dialects do no IO: of the wire they use the sans-IO half",
        "serai.dialects.zot.host_side -> asyncio",
    ),
    (
        "dialects/zot/host_side.py",
        "import serai.wire.channel",
        "Dialects do no IO: of the wire they use the sans-IO half",
        "serai.dialects.zot.host_side -> serai.wire.channel",
    ),
    (
        "dialects/zot/host_side.py",
        "import serai.dialects.piglet.host_side",
        "No dialect knows another",
        "serai.dialects.zot.host_side -> serai.dialects.piglet.host_side",
    ),
    ("dialects/zot/host_side.py", "import serai.host", "Imports go down only", "serai.dialects.zot.host_side -> serai.host"),
    ("model/tools.py", "import serai.wire.codec", "Imports go down only", "serai.model.tools -> serai.wire.codec"),
    ("policy/engine.py", "import serai.store", "Imports go down only", "serai.policy.engine -> serai.store"),
    ("nowhere/else.py", "", "Imports go down only", "serai.nowhere"),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What lint-imports reports by contract, for one copy of the source with all breakages."""
    folder = tmp_path_factory.mktemp("source")
    package = folder / "serai"
    shutil.copytree(ROOT / "src" / "serai", package, ignore=shutil.ignore_patterns("__pycache__"))
    for where, line, _, _ in BREAKAGES:
        module = package / where
        if not module.exists():
            module.parent.mkdir()
            (module.parent / "__init__.py").touch()
            module.touch()
        module.write_text(module.read_text().replace("from __future__ import annotations\n", "") + f"\n{line}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    env = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    parts = re.split(r"^(.+)\n-+$", ran.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("where", "line", "contract", "report"), BREAKAGES)
def test_a_forbidden_import_breaks_its_contract(reports: dict[str, str], where: str, line: str, contract: str, report: str) -> None:
    assert report in reports[contract]


def test_every_package_says_what_lives_there() -> None:
    packages = list((ROOT / "src" / "serai").rglob("__init__.py"))
    assert packages
    for package in packages:
        assert package.read_text().startswith('"""'), package
        assert [path for path in package.parent.rglob("*.py") if path != package], f"{package.parent} is empty"


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert not {str(path): lines for path, lines in sizes.items() if lines > 800}
