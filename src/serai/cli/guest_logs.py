"""`serai guest logs`: what a guest has written to stderr, and the host's remarks about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import click

from serai import paths
from serai.cli import telling
from serai.cli.completion import complete_guests
from serai.cli.opening import JSON, Options, with_options
from serai.errors import NoGuest
from serai.host import installation
from serai.host.guest_log import log_file, open_log
from serai.record import secret_patterns

__all__ = ["logs"]

# How often a log that is followed is looked at, in seconds: quick for an eye, nothing for the machine.
_LOOK = 0.2
# A key that begins in a text and has not ended with it, and the least that begins one (as `lookalikes` knows it).
_IN_KEY = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^\"'-]*+\Z")
_KEY = b"-----BEGIN " + b"PRIVATE KEY-----\n"


@click.command()
@click.argument("name", shell_complete=complete_guests)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--lines", "count", type=click.IntRange(0), help="Only so many, at the end.")
@with_options
@JSON
def logs(name: str, *, follow: bool, count: int | None, options: Options, as_json: bool) -> None:
    """Print a guest's log: its stderr, and the host's remarks. What looks like a secret is masked."""
    path, guest = _log_of(name, options)
    older, newer = _content(path.with_name(f"{path.name}.1")), _content(path)
    whole, rest = _whole(older + newer) if follow else (older + newer, b"")
    readable = _Readable()
    lines = list(readable.lines(whole))
    for line in lines if count is None else lines[max(len(lines) - count, 0) :]:
        _print(line, guest, as_json=as_json)
    if follow:
        for whole in _follow(path, len(newer), rest):
            for line in readable.lines(whole):
                _print(line, guest, as_json=as_json)


def _content(file: Path) -> bytes:
    if not file.is_file():  # a pipe would be waited for, for ever
        return b""
    try:
        with open_log(file) as opened:
            return opened.read()
    except OSError as error:
        raise NoGuest(f"the log cannot be read: {error.strerror}", who=str(file), hint="make it readable for you") from None


def _log_of(name: str, options: Options) -> tuple[Path, str]:
    """Where the log of that guest lies, and the guest's name. One that was removed has its log still, by the name it had."""
    nobody = None
    try:
        known = installation.choose(options.find(), name).name
    except NoGuest as error:
        known, nobody = name.partition(":")[2] or name, error
    path = log_file(Path(paths.state_folder()) / "logs", known)
    if not path.is_file():
        hint = f"{nobody.message}\n{nobody.hint}" if nobody else "it was never started"
        raise NoGuest(f'no log for "{name}" at {path}', hint=hint)
    return path, known


def _print(line: str, guest: str, *, as_json: bool) -> None:
    click.echo(telling.as_json({"guest": guest, "line": line}) if as_json else telling.safe(line))


class _Readable:
    """The lines of a log, each masked by itself, but for a key: that goes over several, which may not all be written yet."""

    def __init__(self) -> None:
        self._key = b""  # where a key began that has not ended, else nothing

    def lines(self, text: bytes) -> Iterator[str]:
        masked = b"".join(map(self._masked, text.splitlines(keepends=True)))
        if masked:
            yield from masked.decode(errors="backslashreplace").removesuffix("\n").split("\n")

    def _masked(self, line: bytes) -> bytes:
        begun, text = len(self._key), self._key + line
        self._key = _KEY if _IN_KEY.search(text) else b""
        return secret_patterns.mask(text)[begun:]  # as long as it was


def _whole(text: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and the beginning of the next."""
    end = text.rfind(b"\n") + 1
    return text[:end], text[end:]


def _follow(path: Path, place: int, rest: bytes) -> Iterator[bytes]:
    """What is written behind `place` from now on, in whole lines. A log may be cut, or another file take its name: that goes on."""
    inode = None
    while True:
        sleep(_LOOK)
        try:
            with open_log(path) as file:
                now = os.fstat(file.fileno())
                if inode not in (None, now.st_ino) or now.st_size < place:
                    place, rest = 0, b""
                file.seek(place)
                fresh = file.read()
        except OSError:  # it may come back
            continue
        inode, place = now.st_ino, place + len(fresh)
        whole, rest = _whole(rest + fresh)
        yield whole
