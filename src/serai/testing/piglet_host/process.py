"""An extension's program: how its manifest starts it, and its wire on FD 3 and 4 or on stdin and stdout."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from serai.testing.zot_host.process import GuestProcess, Misbehaved

__all__ = ["PigletProcess", "Transport", "argv_of", "manifest_of"]

Transport = Literal["fd", "stdio"]
_INTERPRETERS = {"bun": ["bun", "run"], "node": ["node"], "deno": ["deno", "run", "--allow-all"], "python": ["python3"]}
# Its wire becomes FD 3 and 4, its stdin is empty and its stdout goes into a file: what it prints disturbs nobody (spec piglet 2.1).
_ON_FD = 'noise=$1; shift; exec 3<&0 4>&1 </dev/null >>"$noise"; exec "$@"'


def manifest_of(folder: Path) -> dict[str, Any]:
    """What `manifest.yaml` says (spec piglet 1.3)."""
    file = folder / "manifest.yaml"
    try:
        said: object = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise Misbehaved(f"read manifest {file}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise Misbehaved(f"parse manifest {file}: {error}") from None
    manifest: dict[str, Any] = said if isinstance(said, dict) else {}
    for key in ("name", "runtime"):
        if not isinstance(manifest.get(key), str) or not manifest[key]:
            raise Misbehaved(f"manifest {file}: {key} is required")
    return manifest


def argv_of(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The command line of a runtime (spec piglet 1.4)."""
    runtime, entry = manifest["runtime"], manifest.get("entry") or ""
    if runtime in _INTERPRETERS:
        return [*_INTERPRETERS[runtime], os.path.join(folder, entry)]
    program = runtime if os.path.isabs(runtime) else os.path.join(folder, runtime)
    return [program, os.path.join(folder, entry)] if entry else [program]


class PigletProcess(GuestProcess):
    """The program of an extension. Its wire is `stdin` and `stdout` of this object, wherever that is on its own side."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], transport: Transport) -> None:
        self._noise = tempfile.NamedTemporaryFile(prefix="serai-stdout-")
        environ = {name: value for name, value in environ.items() if name != "PIGLET_FD"}
        if transport == "fd":
            environ["PIGLET_FD"] = "1"
            argv = ["/bin/sh", "-c", _ON_FD, "sh", self._noise.name, *argv]
        try:
            super().__init__(argv, cwd=cwd, environ=environ)
        except BaseException:
            self._noise.close()
            raise

    @property
    def printed(self) -> str:
        """What went to stdout beside the wire."""
        return Path(self._noise.name).read_text(errors="replace")

    def kill(self) -> None:
        super().kill()
        self._noise.close()
