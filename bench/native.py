"""Builds the programs of the bench that are not Python, when their source is newer: C with gcc, Go where there is a Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import PEERS, ROOT, peer_has
from serai.authoring.component import wrap_module

__all__ = ["build", "build_go", "build_plugin"]

HERE = Path(__file__).parent
BUILD = HERE / "build"
SOURCES = ROOT / "src"


def build(name: str) -> str:
    """The path of the program `name`, built from `c/name.c`."""
    source, program = HERE / "c" / f"{name}.c", BUILD / name
    if _older(program, source, *source.parent.glob("*.h")):
        gcc = shutil.which("gcc") or shutil.which("cc")
        if gcc is None:
            sys.exit("the bench compares with C and needs gcc")
        subprocess.run([gcc, "-O2", "-Wall", "-Werror", "-o", str(program), str(source)], check=True)
    return str(program)


def build_go(name: str) -> str | None:
    """The path of the program `go-name`, built from `go/name.go`; None without Go (the peers' environment brings one)."""
    go = shutil.which("go", path=f"{PEERS}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if go is None:
        return None
    source, program = HERE / "go" / f"{name}.go", BUILD / f"go-{name}"
    if _older(program, source):
        # All it needs is here: no other toolchain, nothing from the network, and its cache of 140 MB does not stay.
        with TemporaryDirectory() as cache:
            env = os.environ | {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GOCACHE": cache}
            subprocess.run([go, "build", "-o", str(program), source.name], cwd=source.parent, env=env, check=True)
    return str(program)


def build_plugin(name: str) -> str | None:
    """The path of the component `name.wasm`, built from `c/name.c` as `serai guest build` does; None without zig (a peer too)."""
    source, component = HERE / "c" / f"{name}.c", BUILD / f"{name}.wasm"
    header = SOURCES / "serai" / "cli" / "templates" / "yoi" / "yoi.h.txt"
    if _older(component, source, header):
        if not peer_has("ziglang"):
            return None
        with TemporaryDirectory() as folder:
            shutil.copy(header, Path(folder) / "yoi.h")
            core = Path(folder) / "core.wasm"
            flags = ["-target", "wasm32-freestanding", "-nostdlib", "-O2", "-Wl,--no-entry,--strip-all", f"-I{folder}"]
            zig = [str(PEERS / "python"), "-m", "ziglang", "cc", *flags, "-o", str(core), str(source)]
            subprocess.run(zig, env=os.environ | {"ZIG_LOCAL_CACHE_DIR": folder}, check=True)
            component.write_bytes(wrap_module(core.read_bytes(), "instance"))
    return str(component)


def _older(program: Path, *sources: Path) -> bool:
    BUILD.mkdir(exist_ok=True)
    return not program.exists() or program.stat().st_mtime < max(source.stat().st_mtime for source in sources)
