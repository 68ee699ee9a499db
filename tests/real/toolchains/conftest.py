"""Plugins that real tool chains build: each is built once in a session, whichever worker comes first."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.toolchains import install
from tests.support.cli.shell import Shell
from tests.support.yoi.hosted_plugins import EXAMPLES

Built = Callable[[str], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here builds with a real tool chain: `make test-plugins` asks for it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.toolchains)
            item.add_marker(pytest.mark.timeout(900))  # whoever comes first builds, which takes a minute on a busy machine


@pytest.fixture(scope="session")
def chains() -> Path:
    place = install.find_installed()
    if place is None:
        pytest.skip("the tool chains are not there: `make test-plugins` installs them")
    return place


@pytest.fixture(scope="session")
def path(chains: Path) -> str:
    """The PATH with the tools, and with the `serai` of these tests."""
    return os.pathsep.join([os.path.dirname(sys.executable), str(install.programs()), os.environ["PATH"]])


@pytest.fixture
def shell(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PATH", path)
    return Shell(tmp_path)


def link_packages(folder: Path) -> None:
    """As after `npm install` there."""
    (folder / "node_modules").symlink_to(install.packages() / "node_modules")


def build(folder: Path, path: str) -> None:
    command = [sys.executable, "-m", "serai", "guest", "build", str(folder)]
    ran = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr


@pytest.fixture(scope="session")
def built(path: str, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A plugin's folder with its component: an example, or a beginning by its template's name. To be read, not written."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "plugins"
    shared.mkdir(exist_ok=True)

    def made(name: str) -> Path:
        folder = shared / name
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (shared / f"{name}.done").exists():
                return folder
            shutil.rmtree(folder, ignore_errors=True)  # of one who was ended half-way
            if (EXAMPLES / name).is_dir():
                shutil.copytree(EXAMPLES / name, folder)
            else:
                command = [sys.executable, "-m", "serai", "guest", "new", name, "--template", name, "--into", str(shared)]
                subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
            if (folder / "package.json").exists():
                link_packages(folder)
            build(folder, path)
            if (folder / "node_modules").is_symlink():
                (folder / "node_modules").unlink()  # a package has no links
            (shared / f"{name}.done").touch()
            return folder

    return made
