"""The contracts that keep the picture of docs/architecture.md true can really be broken."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    env = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("where", "line", "contract"),
    [
        ("errors/root.py", "import serai.wire.framing", "Imports go down only"),
        ("wire/framing.py", "import serai.testing.faults", "Imports go down only"),
        ("wire/codec.py", "import asyncio", "The sans-IO half of the wire does no IO"),
        ("wire/channel.py", "import click", "The wire needs msgspec and the standard library, nothing else"),
        ("host/finding.py", "import serai.dialects.zot.manifest", "The host is neutral: only its adapters know a dialect"),
        ("dialects/zot/ours.py", "import asyncio", "Dialects do no IO: of the wire they use the sans-IO half"),
        ("dialects/zot/ours.py", "import serai.wire.channel", "Dialects do no IO: of the wire they use the sans-IO half"),
        ("dialects/zot/ours.py", "import serai.dialects.piglet.ours", "No dialect knows another"),
        ("dialects/zot/ours.py", "import serai.host", "Imports go down only"),
        ("model/tools.py", "import serai.wire.codec", "Imports go down only"),
        ("policy/engine.py", "import serai.store", "Imports go down only"),
        ("nowhere/else.py", "", "Imports go down only"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(tmp_path: Path, where: str, line: str, contract: str) -> None:
    package = tmp_path / "serai"
    shutil.copytree(ROOT / "src" / "serai", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dialects/zot/ours.py", "dialects/piglet/ours.py", "host/host.py", "model/tools.py", "store/store.py", where):
        module = package / name
        module.parent.mkdir(parents=True, exist_ok=True)
        for folder in module.relative_to(package).parents:
            (package / folder / "__init__.py").touch()
        module.touch()
    broken = package / where
    broken.write_text(broken.read_text().replace("from __future__ import annotations\n", "") + f"\n{line}\n")
    ran = lint(tmp_path)
    broken_contracts = re.findall(r"^(.+) BROKEN\b", ran.stdout, re.MULTILINE)
    assert ran.returncode == 1
    assert contract in broken_contracts, ran.stdout  # one import may break two: what a dialect imports counts for the dialect too


def test_every_package_says_what_lives_there() -> None:
    packages = list((ROOT / "src" / "serai").rglob("__init__.py"))
    assert packages
    for package in packages:
        assert package.read_text().startswith('"""'), package
        assert [path for path in package.parent.rglob("*.py") if path != package], f"{package.parent} is empty"


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert not {str(path): lines for path, lines in sizes.items() if lines > 430}
