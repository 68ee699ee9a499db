"""`serai box exec|shell|put|get`: what goes into a box and comes out of it, through its porter."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serai import atomic_file
from serai.cli import telling
from serai.cli.opening import JSON, NamedPath, Status, run
from serai.cli.plain import printable
from serai.errors import NotWritten, Refused, SeraiError

if TYPE_CHECKING:
    from serai.boxes import Box
    from serai.boxes.box_client import CommandStream

__all__ = ["complain", "exec_", "get", "put", "shell", "variables"]

ID = click.argument("box_id", metavar="ID")
# All that comes after the ID is the command's, also what looks like an option.
_COMMAND = {"allow_interspersed_args": False}
# What the porter's refusals end with.
_MISSING = tuple(map(os.strerror, (errno.ENOENT, errno.ENOTDIR)))
_NO_FILE = "is not a regular file"
# Serai itself could not do it: no status of a command's own, and what `env` and others use for the same.
_NOT_RUN = 125
_TIME_UP = 124
_CHUNK = 65536
_SMALL = 1 << 20  # bytes of a file that is read before it is sent

Sink = Callable[[int, bytes], None]


class Mode(click.ParamType[int]):
    """Permissions, such as 0644."""

    name = "mode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not re.fullmatch(r"0*[0-7]{1,3}", str(value)):
            self.fail(f"{value!r} is no mode: give it as 0644, at most 0777", param, ctx)
        return int(value, 8)


@click.command("exec", context_settings=_COMMAND)
@ID
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", help="Where in the box; /workspace by default.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="For this command; repeatable.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Kill it after so many seconds; its status is 124 then.")
@JSON
def exec_(*, box_id: str, command: tuple[str, ...], env: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run a command in a box, with this one's input and output, and exit with its status.

    One word is a line for the shell: `serai box exec web 'ls | wc -l'`. Several are a program and its arguments. Options come
    before the ID. The status is 125 when the box could not be used, 126 for what is no program, 127 for what is not there. With
    --json the output is collected, at most 64 KiB of each.
    """
    words = _words(command)
    if not words:
        raise click.UsageError("which command?")
    argv = ["/bin/sh", "-c", words[0]] if len(words) == 1 else words
    wishes = dict(options, env=variables(env))
    _run(_exec_json(box_id, argv, **wishes) if as_json else _exec(box_id, argv, **wishes))


def _words(command: tuple[str, ...]) -> list[str]:
    """The command that follows an ID. A dash at its beginning is rather an option of ours at the wrong place."""
    if command[:1] == ("--",):
        return list(command[1:])
    if command and command[0].startswith("-"):
        raise click.UsageError(f"options come before the ID; if {command[0]} is a program of the box, write -- before it")
    return list(command)


def variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = [pair.partition("=") for pair in pairs]
    if not all(name and sign for name, sign, _ in found):
        raise click.BadParameter("give NAME=VALUE", param_hint="--env")
    return {name: value for name, _, value in found}


async def _exec(box_id: str, argv: list[str], *, timeout: float | None, **wishes: Any) -> int:
    ended = await _ended(box_id, argv, _write_all, timeout, wishes)
    if ended is None:
        telling.tell(f"serai: the command took longer than {timeout:g} s")
        return _TIME_UP
    return _status(ended)


async def _exec_json(box_id: str, argv: list[str], *, timeout: float | None, **wishes: Any) -> int:
    from serai.boxes.programs.box_command import OutputHead  # so it is cut as the porter cuts it

    printed = OutputHead()
    try:
        ended = await _ended(box_id, argv, printed.add, timeout, wishes)
        code = _TIME_UP if ended is None else max(ended, -1)
    except Refused as error:
        printed.add(2, f"{error.message}\n".encode())
        code = _unstartable(error)
    form: dict[str, object] = {"stdout": printed[1].decode(errors="replace"), "stderr": printed[2].decode(errors="replace")}
    telling.say(telling.as_json(form | {"exit_code": code}))
    return 0


async def _ended(box_id: str, argv: list[str], sink: Sink, timeout: float | None, wishes: dict[str, Any]) -> int | None:
    """The exit code of a command, or the number of the signal that ended it with a minus; None when its time was up."""
    async with _box(box_id, "exec") as box, await box.control.stream(argv, **wishes) as stream:
        try:
            async with asyncio.timeout(timeout):
                return await _converse(stream, sink, feed=not sys.stdin.isatty())
        except SeraiError:  # a limit on silence is a time-out, too, but not this one
            raise
        except TimeoutError:  # it is hung up already, which ends the command
            return None


@click.command(context_settings=_COMMAND)
@ID
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(*, box_id: str, command: tuple[str, ...]) -> None:
    """A terminal in a box: its shell, or COMMAND. Exit with its status."""
    _run(_shell(box_id, _words(command) or ["/bin/sh", "-c", "exec $(command -v bash || echo sh) -l"]))


async def _shell(box_id: str, argv: list[str]) -> int:
    size = os.get_terminal_size() if sys.stdin.isatty() else os.terminal_size((80, 24))
    async with _box(box_id, "shell") as box, await box.control.stream(argv, tty=(size.columns, size.lines)) as stream:
        loop = asyncio.get_running_loop()
        with _raw_terminal():
            if sys.stdin.isatty():
                loop.add_signal_handler(signal.SIGWINCH, lambda: stream.resize(*os.get_terminal_size()))
            return _status(await _converse(stream, _write_all, feed=True))


async def _converse(stream: CommandStream, sink: Sink, *, feed: bool) -> int:
    """Our input to the command, its output to the sink, until it ends; its exit code, or minus the signal that ended it."""
    feeding = _feed(stream) if feed else None
    if feeding is None:
        stream.end_input()
    async for kind, data in stream:
        sink(2 if kind == "stderr" else 1, data)
    if feeding is not None:
        feeding.cancel()
    if stream.signal_number is not None:
        return -stream.signal_number
    return stream.exit_code if stream.exit_code is not None else _NOT_RUN


def _status(ended: int) -> int:
    """As a shell tells it."""
    return ended if ended >= 0 else 128 - ended


def _feed(stream: CommandStream) -> asyncio.Task[None]:
    """Read in a thread: files and terminals of a shell cannot all be waited for by a loop, and must not be made non-blocking.

    The thread is left to itself when the command ends before its input, and makes nothing that somebody would have to await.
    """
    import threading

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    taken = threading.Semaphore(1)

    async def give() -> None:
        with contextlib.suppress(SeraiError):  # whoever reads the output sees it, too
            while data := await queue.get():
                await stream.write(data)
                taken.release()
            stream.end_input()

    def read() -> None:
        data = b"-"
        while data:
            taken.acquire()
            try:
                data = os.read(0, _CHUNK)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(queue.put_nowait, data)
            except RuntimeError:  # all is over
                return

    threading.Thread(target=read, daemon=True, name="serai-stdin").start()
    return loop.create_task(give())


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys go to the box as they are, Ctrl-C too; afterwards the terminal is as it was."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed meanwhile is not thrown away
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@click.command()
@ID
@click.argument("source", type=NamedPath(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target")
@click.option("--mode", type=Mode(), help="Its permissions, such as 0600; by default those of the file.")
def put(*, box_id: str, source: str, target: str, mode: int | None) -> None:
    """Copy a file into a box; `-` is this command's input. TARGET is its path there, or a folder in which it keeps its name."""
    name = "" if source == "-" else os.path.basename(source)
    with _content(source) as (data, own_mode):
        run(_put(box_id, data, target + name * target.endswith("/"), name, own_mode if mode is None else mode))


@contextlib.contextmanager
def _content(source: str) -> Iterator[tuple[bytes | BinaryIO, int]]:
    """What is in a file, and its permissions. What is large is read while it is sent."""
    if source == "-":
        yield sys.stdin.buffer.read(), 0o644
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(source, "rb"))
            about = os.fstat(file.fileno())
            # Of pipes, and of files that the kernel makes up, only reading tells the size.
            large = stat.S_ISREG(about.st_mode) and about.st_size > _SMALL
            data: bytes | BinaryIO = file if large else file.read()
        except OSError as error:
            raise NotWritten(f"cannot read {source}: {error.strerror}") from None
        yield data, about.st_mode & 0o777


async def _put(box_id: str, data: bytes | BinaryIO, target: str, name: str, mode: int) -> Status:
    """What the porter will not replace may be a folder: then a file goes into it, by its name."""
    async with _box(box_id, "put") as box:
        try:
            await box.control.put(target, data, mode=mode)
        except Refused as refused:
            if not name or not refused.message.endswith(_NO_FILE):
                raise
            if not isinstance(data, bytes):
                data.seek(0)
            try:
                await box.control.put(f"{target}/{name}", data, mode=mode)
            except Refused as inside:
                raise refused if inside.message.endswith(_MISSING) else inside from None  # a device or a pipe: nothing is in it
    return Status.OK


@click.command()
@ID
@click.argument("source")
@click.argument("target", type=NamedPath(allow_dash=True))
def get(*, box_id: str, source: str, target: str) -> None:
    """Copy a file out of a box; `-` is this command's output. SOURCE is its path there, absolute."""
    run(_get(box_id, source, target))


async def _get(box_id: str, source: str, target: str) -> Status:
    async with _box(box_id, "get") as box:
        if target == "-":
            await box.control.get_into(source, lambda data: _write_all(1, data))
            return Status.OK
        place = os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target  # noqa: ASYNC240  (nobody waits)
        try:
            await _get_file(box, source, place)
        except SeraiError:
            raise
        except OSError as error:
            raise NotWritten(f"cannot write {place}: {error.strerror}") from None
    return Status.OK


async def _get_file(box: Box, source: str, place: str) -> None:
    """To a draft first: what breaks off leaves the file that was there as it was."""
    with atomic_file.atomic_writer(place) as file:
        found = await box.control.get_into(source, file.write)
        os.fchmod(file.fileno(), found.mode & 0o777)


@contextlib.asynccontextmanager
async def _box(box_id: str, verb: str) -> AsyncIterator[Box]:
    from serai.cli.box import opened

    async with opened(f"serai box {verb} {box_id}") as boxes:
        yield await boxes.get(box_id)


def _run(main: Coroutine[Any, Any, int]) -> None:
    """As `run`, but the exit status is the command's, so ours is one that commands do not use."""
    from serai.wire import event_loop

    try:
        status = event_loop.run(main)
    except Refused as error:  # by the porter: there is no such program, or it cannot be executed
        _tell(f"serai: {error.message}")
        status = _unstartable(error)
    except SeraiError as error:
        complain(error)
        status = _NOT_RUN
    if status:
        raise click.exceptions.Exit(status)


def _unstartable(error: Refused) -> int:
    """The status for what the porter could not start, as a shell has it."""
    return 127 if error.message.endswith(_MISSING) else 126


def complain(error: SeraiError) -> None:
    """As `serai.cli.main` does it for an error that ends a command."""
    for line in (f"serai: {error}", *error.hint.splitlines()):
        _tell(line)


def _tell(line: str) -> None:
    """Nothing is masked: it names what the person has named, and `/etc/passwd: …` looks like a password."""
    click.echo(printable(line), err=True)
