"""What the commands about guests share: their options, the way in and out of a host, and what their exit status means."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serai.cli.telling import Notices, tell
from serai.paths import absolute_path

if TYPE_CHECKING:
    from serai.host.discovery import DiscoveryResult
    from serai.host.host import Host
    from serai.limits import Limits

__all__ = ["JSON", "PATH", "NamedPath", "Options", "Status", "limits_of_the_person", "opened", "run", "status_of", "with_options"]

JSON = click.option("--json", "as_json", is_flag=True, help="JSON, one object per line.")


class Status(IntEnum):
    """What the exit status of a command says."""

    OK = 0
    FAILED = 1  # Serai could not do it: no such guest, no such tool, bad settings
    USAGE = 2  # the command line is wrong
    ERROR = 3  # the tool or the command answered with an error
    REFUSED = 4  # a guard or an interceptor refused, or a guard is down
    UNAVAILABLE = 5  # no answer: the guest is down, has crashed, was too late, or cannot be understood
    INVALID = 6  # the arguments do not fit the tool's schema
    HUNG_UP = 129  # its terminal is gone; this one and the next two are 128 and the signal's number (`serai.cli.main`)
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143


_STATUS = {
    "BLOCKED": Status.REFUSED,
    "DENIED": Status.REFUSED,
    "INVALID_ARGS": Status.INVALID,
    "UNKNOWN_TOOL": Status.FAILED,
    "TOOL_UNAVAILABLE": Status.UNAVAILABLE,
    "COMMAND_UNAVAILABLE": Status.UNAVAILABLE,
    "TIMEOUT": Status.UNAVAILABLE,
    "BAD_ANSWER": Status.UNAVAILABLE,
    "FAILED": Status.UNAVAILABLE,
}


def status_of(code: str) -> Status:
    """The status for the code of an error; a code of the guest's own is an answer."""
    return _STATUS.get(code, Status.ERROR)


@dataclass(frozen=True, slots=True)
class Options:
    """Where guests are looked for. All paths are absolute: nothing later depends on the folder of the shell (spec zot 7.44)."""

    cwd: Path
    guests: tuple[Path, ...] = ()
    installed: bool = True

    def find(self) -> DiscoveryResult:
        """Which guests there are; starts nothing."""
        from serai.app.config import Config
        from serai.host.discovery import find_guests

        return find_guests(cwd=self.cwd, guests=self.guests, installed=self.installed, config=Config.load(self.cwd).settings)


class NamedPath(click.Path):
    """A path that somebody gave. An empty one would be the folder of the shell, which nobody named: often a variable is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(readable=False)  # not looked at yet: it may also be a URL


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command about guests; the command gets them as one `options`."""

    @wraps(command)
    def wrapped(*arguments: Any, home: str | None, cwd: str, guests: tuple[str, ...], no_installed: bool, **others: Any) -> None:
        if home := home or os.environ.get("SERAI_HOME"):
            os.environ["SERAI_HOME"] = os.path.abspath(home)  # this is the entry point: for all of this run, guests included
        paths = tuple(Path(absolute_path(path)) for path in guests)
        options = Options(Path(os.path.abspath(cwd)), paths, not no_installed)
        command(*arguments, options=options, **others)

    for option in (
        click.option("--no-ext", "--no-extensions", "no_installed", is_flag=True, help="Only the guests that --guest names."),
        click.option(
            "--cwd", type=NamedPath(exists=True, file_okay=False), default=".", help="The project; this folder by default."
        ),
        click.option("--home", type=NamedPath(file_okay=False), help="Where Serai keeps its things, instead of SERAI_HOME."),
        click.option("--guest", "--ext", "-e", "guests", type=PATH, multiple=True, help="Take this guest in too; repeatable."),
    ):
        wrapped = option(wrapped)
    return wrapped


def limits_of_the_person() -> Limits:
    """The usual ones, and what `[limits]` of the settings changes."""
    from serai import paths
    from serai.host.guest_settings import read_person_settings
    from serai.limits import Limits

    return Limits().but(**read_person_settings(paths.read_settings()).limits)


@asynccontextmanager
async def opened(options: Options, *, command: str, surface: Notices | None = None) -> AsyncIterator[Host]:
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
            surface=surface or Notices(),
            recorder=recorder,
        )
        try:
            report = await host.start()
            for line in (*config.notes, *report.lines()):
                tell(line)
            yield host
        finally:
            await host.close()


def run(main: Coroutine[Any, Any, Status]) -> None:
    """Run it to its end and exit with its status."""
    try:
        from serai.cli.outside import enough_descriptors
        from serai.wire import event_loop

        enough_descriptors()
        status = event_loop.run(main)
    finally:
        main.close()  # Ctrl-C may have come before it began; Python would say that nobody awaited it
    if status is not Status.OK:
        raise click.exceptions.Exit(status)
