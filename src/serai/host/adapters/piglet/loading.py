"""Everything of piglet's folders at once, as the seed's package loads it (seed 004), over Serai's host: its trust, its settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from serai import paths
from serai.errors import BadSettings, SeraiError
from serai.host.adapter import About
from serai.host.finding import Found, Problem, find, piglet_home
from serai.host.host import Host
from serai.host.life import State
from serai.host.services import Services
from serai.host.settings import DISABLED, changes_of, read_person
from serai.host.trust import Trust

__all__ = ["Cleanup", "Loaded", "extensions_dir", "load_all", "project_extensions_dir"]

_PROJECT = os.path.join(".piglet", "extensions")
_NOT_HERE = "this guard is not one of piglet's own, and load_all starts no other: use serai.Host"


def extensions_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`<config>/extensions`, in piglet's own home."""
    return piglet_home(environ) / "extensions"


def project_extensions_dir(cwd: str | Path) -> str:
    """`<cwd>/.piglet/extensions`; empty when `cwd` is."""
    return os.path.join(cwd, _PROJECT) if str(cwd) else ""


class Cleanup(NamedTuple):
    """Stops the watcher first, then all guests at once, and waits for them. `host` is where they are."""

    host: Host

    async def __call__(self) -> None:
        await self.host.close()


class Loaded(NamedTuple):
    """How many guests serve; what ends them; and why there is none at all, if nothing could be looked for."""

    loaded: int
    cleanup: Cleanup
    error: SeraiError | None


async def load_all(
    services: Services | None = None,
    *,
    disabled: Sequence[str] = (),
    project_dir: str | Path = "",
    cwd: str | Path = "",
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Loaded:
    """Start everything in piglet's home, and in the project's folder of guests as far as that is trusted, and watch their files.

    The person's settings count as they do everywhere, with piglet's home switched on and those of `disabled` off. A guard that lies
    elsewhere is not taken in here, and then nothing runs. Who fails hurts nobody else: `cleanup.host.report` tells. `options` are
    those of `serai.Host`.
    """
    env = os.environ if environ is None else environ
    limits, trust = changes_of(options.pop("limits", None)), Trust.usual(env)
    search: Callable[[], Found] = Found
    error: SeraiError | None = None
    try:
        project, config = _project_of(project_dir), paths.read_settings(env)
        person = read_person(config, who=os.path.join(paths.config_folder(env), paths.CONFIG))
        config |= {"guests": {"homes": [*person.homes, "piglet"]}, DISABLED: [*config.get(DISABLED, ()), *disabled]}
        look = partial(find, cwd=project or extensions_dir(env), config=config, environ=env, trust=trust)
        scopes = ("project", "piglet home") if project else ("piglet home",)
        look()  # what is wrong now is told; later, whoever serves goes on
        limits, search, cwd = {**person.limits, **limits}, lambda: _of_piglet(look(), scopes), cwd or project or ""
    except SeraiError as problem:
        error = problem
    given = {"about": About(cwd=str(cwd or os.getcwd())), "environ": env, "services": services, "trusts": trust.check}
    host = Host(search, **{"watch": True, **options, **given}, limits=limits)
    report = await host.start()
    return Loaded(sum(row.state == State.READY for row in report.guests), Cleanup(host), error)


def _of_piglet(found: Found, scopes: Sequence[str]) -> Found:
    """Of those places and that dialect alone. A guard among the others is missed: it holds nothing here (design rule 8)."""
    taken = [one for one in found.guests if one.dialect == "piglet" and one.scope in scopes]
    missed = [Problem(one.folder, _NOT_HERE) for one in found.guests if one not in taken and one.settings.guard]
    return replace(found, guests=tuple(taken), hidden_guards=(*found.hidden_guards, *missed))


def _project_of(folder: str | Path) -> Path | None:
    """The project whose folder of guests this is; None if none is named."""
    if not str(folder):
        return None
    if not (path := os.path.abspath(folder)).endswith(f"{os.sep}{_PROJECT}"):
        raise BadSettings(f"a project's guests lie in its {_PROJECT}", who=str(folder))
    return Path(path).parents[1]
