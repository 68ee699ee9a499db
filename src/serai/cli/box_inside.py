"""`serai box exec|shell|put|get`: what goes into a box and comes out of it, through its porter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serai.cli import telling
from serai.cli.opening import JSON, NamedPath, Status, run
from serai.errors import Refused, SeraiError

if TYPE_CHECKING:
    from serai.boxes import Box
    from serai.boxes.streams import Stream

__all__ = ["exec_", "get", "put", "shell", "variables"]

ID = click.argument("box_id", metavar="ID")
# Serai itself could not do it: no status of a command's own, and what `env` and others use for the same.
_NOT_RUN = 125
_CHUNK = 65536


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@ID
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", help="Where in the box; /workspace by default.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="For this command; repeatable.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Kill it after so many seconds; its status is 124 then.")
@JSON
def exec_(*, box_id: str, command: tuple[str, ...], env: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Run a command in a box, with this one's input and output, and exit with its status.

    One word is a line for the shell: `serai box exec web 'ls | wc -l'`. Several are a program and its arguments. Options come
    before the ID. The status is 125 when the command could not be run at all. With --json the output is collected, at most 64 KiB
    of each.
    """
    command = command[command[:1] == ("--",) :]
    if not command:
        raise click.UsageError("which command?")
    argv = ["/bin/sh", "-c", command[0]] if len(command) == 1 else list(command)
    wishes = dict(options, env=variables(env))
    _run(_exec_json(box_id, argv, wishes) if as_json else _exec(box_id, argv, wishes))


def variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if len(found) < len({pair.partition("=")[0] for pair in pairs}):
        raise click.BadParameter("give NAME=VALUE", param_hint="--env")
    return found


async def _exec_json(box_id: str, argv: list[str], wishes: dict[str, Any]) -> int:
    async with _box(box_id, "exec") as box:
        result = await box.exec(argv, **wishes)
    form: dict[str, object] = {
        "stdout": result.stdout.decode(errors="replace"), "stderr": result.stderr.decode(errors="replace"),
        "exit_code": result.exit_code,
    }  # fmt: skip
    telling.say(telling.as_json(form))
    return 0


async def _exec(box_id: str, argv: list[str], wishes: dict[str, Any]) -> int:
    timeout = wishes.pop("timeout")
    async with _box(box_id, "exec") as box, await box.control.stream(argv, **wishes) as stream:
        try:
            async with asyncio.timeout(timeout):
                return await _converse(stream, feed=not sys.stdin.isatty())
        except TimeoutError:  # it is hung up already, which ends the command
            telling.tell(f"serai: the command took longer than {timeout:g} s")
            return 124


@click.command()
@ID
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(*, box_id: str, command: tuple[str, ...]) -> None:
    """A terminal in a box: its shell, or COMMAND. Exit with its status."""
    _run(_shell(box_id, list(command) or ["/bin/sh", "-c", "exec $(command -v bash || echo sh) -l"]))


async def _shell(box_id: str, argv: list[str]) -> int:
    size = os.get_terminal_size() if sys.stdin.isatty() else os.terminal_size((80, 24))
    async with _box(box_id, "shell") as box, await box.control.stream(argv, tty=(size.columns, size.lines)) as stream:
        loop = asyncio.get_running_loop()
        with _raw_terminal():
            if sys.stdin.isatty():
                loop.add_signal_handler(signal.SIGWINCH, lambda: stream.resize(*os.get_terminal_size()))
            return await _converse(stream, feed=True)


async def _converse(stream: Stream, *, feed: bool) -> int:
    """Our input to the command, its output to ours, until it ends; its status, as a shell tells it."""
    if feed:
        _feed(stream)
    else:
        stream.end_input()
    async for kind, data in stream:
        _write_all(2 if kind == "stderr" else 1, data)
    if stream.signal_number is not None:
        return 128 + stream.signal_number
    return stream.exit_code if stream.exit_code is not None else _NOT_RUN


def _feed(stream: Stream) -> None:
    """In a thread: files and terminals of a shell cannot all be waited for by a loop, and must not be made non-blocking."""
    loop = asyncio.get_running_loop()

    async def give(data: bytes) -> None:
        with contextlib.suppress(SeraiError):
            if data:
                await stream.write(data)
            else:
                stream.end_input()

    def read() -> None:
        while True:
            try:
                data = os.read(0, _CHUNK)
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(give(data), loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the command ended before its input
                return
            if not data:
                return

    import threading

    threading.Thread(target=read, daemon=True, name="serai-stdin").start()


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
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@click.command()
@ID
@click.argument("source", type=NamedPath(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target")
@click.option("--mode", default="", help="Its permissions, such as 0600; by default those of the file.")
def put(*, box_id: str, source: str, target: str, mode: str) -> None:
    """Copy a file into a box; `-` is this command's input. TARGET is its path there, or with a / at its end its folder."""
    try:
        bits = int(mode, 8) if mode else None
    except ValueError:
        raise click.BadParameter("give it as 0644", param_hint="--mode") from None
    if target.endswith("/") and source != "-":
        target += os.path.basename(source)
    if bits is None:
        bits = 0o644 if source == "-" else os.stat(source).st_mode & 0o777
    if source == "-":
        run(_put(box_id, sys.stdin.buffer.read(), target, bits))
    else:
        with open(source, "rb") as file:
            run(_put(box_id, file, target, bits))


async def _put(box_id: str, data: bytes | BinaryIO, target: str, mode: int) -> Status:
    async with _box(box_id, "put") as box:
        await box.control.put(target, data, mode=mode)
    return Status.OK


@click.command()
@ID
@click.argument("source")
@click.argument("target", type=NamedPath(allow_dash=True))
def get(*, box_id: str, source: str, target: str) -> None:
    """Copy a file out of a box; `-` is this command's output. SOURCE is its path there, absolute."""
    run(_get(box_id, source, target))


async def _get(box_id: str, source: str, target: str) -> Status:
    """To a draft first: what breaks off leaves the file that was there as it was."""
    place = os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target  # noqa: ASYNC240  (nobody waits)
    async with _box(box_id, "get") as box:
        if target == "-":
            await box.control.get_into(source, lambda data: _write_all(1, data))
            return Status.OK
        descriptor, draft = tempfile.mkstemp(prefix=".serai-", dir=os.path.dirname(place) or ".")
        try:
            with open(descriptor, "wb") as file:  # noqa: ASYNC230  (nobody waits)
                found = await box.control.get_into(source, file.write)
            os.chmod(draft, found.mode & 0o777)
            os.replace(draft, place)
        except BaseException:
            os.unlink(draft)
            raise
    return Status.OK


@contextlib.asynccontextmanager
async def _box(box_id: str, verb: str) -> AsyncIterator[Box]:
    from serai.cli.box import opened

    async with opened(f"serai box {verb} {box_id}") as boxes:
        yield await boxes.get(box_id)


def _run(main: Any) -> None:
    """As `run`, but the exit status is the command's, so ours is one that commands do not use."""
    from serai.wire import fast

    try:
        status = fast.run(main)
    except Refused as error:  # by the porter: there is no such program, or it cannot be executed
        telling.tell(f"serai: {error.message}")
        status = 127
    except SeraiError as error:
        telling.tell(f"serai: {error}")
        if error.hint:
            telling.tell(error.hint)
        status = _NOT_RUN
    if status:
        raise click.exceptions.Exit(status)
