"""What the commands about guests share: their options, opening and closing a host, and their exit status.

It imports little, because most commands load it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serai.cli.console import NoticeSurface, err
from serai.errors import BadManifest
from serai.paths import absolute_path

if TYPE_CHECKING:
    from serai.host.discovery import DiscoveryResult
    from serai.host.host import Host
    from serai.limits import Limits

JSON = click.option("--json", "as_json", is_flag=True, help="JSON, one object per line.")


class ExitCode(IntEnum):
    """What the exit status of a command says."""

    OK = 0
    FAILED = 1  # Serai could not do it: no such guest, no such tool, bad settings
    USAGE = 2  # the command line is wrong
    ERROR = 3  # the tool or the command answered with an error
    REFUSED = 4  # a guard or an interceptor refused, or a guard is down
    UNAVAILABLE = 5  # no answer: the guest is down, has crashed, was too late, or cannot be understood
    INVALID = 6  # the arguments do not fit the tool's schema
    HUNG_UP = 129  # its terminal is gone; this one and the next two are 128 and the signal's number (`serai.cli.command_table`)
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143


_STATUS = {
    "BLOCKED": ExitCode.REFUSED,
    "DENIED": ExitCode.REFUSED,
    "INVALID_ARGS": ExitCode.INVALID,
    "UNKNOWN_TOOL": ExitCode.FAILED,
    "TOOL_UNAVAILABLE": ExitCode.UNAVAILABLE,
    "COMMAND_UNAVAILABLE": ExitCode.UNAVAILABLE,
    "TIMEOUT": ExitCode.UNAVAILABLE,
    "BAD_ANSWER": ExitCode.UNAVAILABLE,
    "FAILED": ExitCode.UNAVAILABLE,
}


def to_exit_code(code: str) -> ExitCode:
    """The status for the code of an error; a code of the guest's own is an answer."""
    return _STATUS.get(code, ExitCode.ERROR)


@dataclass(frozen=True, slots=True)
class GuestOptions:
    """Where guests are looked for. All paths are absolute: nothing later depends on the folder of the shell (spec zot 7.44)."""

    cwd: Path
    guests: tuple[Path, ...] = ()
    installed: bool = True

    def find(self) -> DiscoveryResult:
        """Which guests there are; starts nothing."""
        from serai.app.config import Config
        from serai.host.discovery import find_guests

        return find_guests(cwd=self.cwd, guests=self.guests, installed=self.installed, config=Config.load(self.cwd).settings)


class NonEmptyPath(click.Path):
    """A path that somebody gave. An empty one would be the folder of the shell, which nobody named: often a variable is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = NonEmptyPath(readable=False)  # not looked at yet: it may also be a URL


def add_guest_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command about guests; the command gets them as one `options`."""

    @wraps(command)
    def wrapped(*arguments: Any, home: str | None, cwd: str, guests: tuple[str, ...], no_installed: bool, **others: Any) -> None:
        if home := home or os.environ.get("SERAI_HOME"):
            os.environ["SERAI_HOME"] = os.path.abspath(home)  # this is the entry point: for all of this run, guests included
        paths = tuple(Path(absolute_path(path)) for path in guests)
        options = GuestOptions(Path(os.path.abspath(cwd)), paths, not no_installed)
        command(*arguments, options=options, **others)

    for option in (
        click.option("--no-ext", "--no-extensions", "no_installed", is_flag=True, help="Only the guests that --guest names."),
        click.option(
            "--cwd", type=NonEmptyPath(exists=True, file_okay=False), default=".", help="The project; this folder by default."
        ),
        click.option("--home", type=NonEmptyPath(file_okay=False), help="Where Serai keeps its things, instead of SERAI_HOME."),
        click.option("--guest", "--ext", "-e", "guests", type=PATH, multiple=True, help="Take this guest in too; repeatable."),
    ):
        wrapped = option(wrapped)
    return wrapped


def load_user_limits() -> Limits:
    """The usual ones, and what `[limits]` of the settings changes."""
    from serai import paths
    from serai.host.guest_settings import read_person_settings
    from serai.limits import Limits

    return Limits().but(**read_person_settings(paths.read_settings()).limits)


@asynccontextmanager
async def open_host(options: GuestOptions, *, command: str, surface: NoticeSurface | None = None) -> AsyncIterator[Host]:
    """A host with its guests started, on record as `command`. What went wrong with whom is told on stderr."""
    from serai.app.config import Config
    from serai.host.host import Host
    from serai.record import Recorder

    config = Config.load(options.cwd)
    recorder = Recorder.start(command=command, limits=config.limits)
    with recorder or nullcontext():
        host = Host.discover(
            options.cwd,
            guests=options.guests,
            installed=options.installed,
            config=config.settings,
            surface=surface or NoticeSurface(),
            recorder=recorder,
        )
        try:
            report = await host.start()
            for line in (*config.notes, *report.to_lines()):
                err(line)
            yield host
        finally:
            await host.close()


def run_async(main: Coroutine[Any, Any, ExitCode]) -> None:
    """Run it to its end and exit with its status."""
    try:
        from serai.cli.entry import raise_descriptor_limit
        from serai.wire import event_loop

        raise_descriptor_limit()
        status = event_loop.run(main)
    finally:
        main.close()  # Ctrl-C may have come before it began; Python would say that nobody awaited it
    if status is not ExitCode.OK:
        raise click.exceptions.Exit(status)


ENDING, _MANIFEST = ".yoi-plugin", "plugin.toml"


def is_plugin(path: str) -> bool:
    """Whether this is a plugin's package, folder or manifest: looked at, not read."""
    if os.path.isfile(path):
        return path.endswith(ENDING) or os.path.basename(path) == _MANIFEST
    if not os.path.exists(os.path.join(path, _MANIFEST)):
        return False
    from serai.host.guest_manifest import inspect_folder

    with suppress(BadManifest):
        folder = inspect_folder(Path(path))
        return folder is not None and folder.dialect == "yoi"
    return False
