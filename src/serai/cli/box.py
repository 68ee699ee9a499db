"""`serai box`: sandboxes from the command line. Boxes made here are kept: each has a keeper, and outlives the command.

`serai box exec|shell|put|get` move things into a box and out of it, through the server inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serai.atomic_file import atomic_writer, write_all
from serai.cli import console
from serai.cli.options import JSON, ExitCode, NonEmptyPath, load_user_limits, run_async
from serai.errors import NotWritten, Refused, SeraiError
from serai.plain_text import escape_line
from serai.record import secret_patterns

if TYPE_CHECKING:
    from serai.boxes import BackendCapabilities, Box, Boxes, BoxRecord
    from serai.boxes.box_client import CommandStream

ID = click.argument("box_id", metavar="ID")
# All that comes after the ID is the command's, also what looks like an option.
_COMMAND = {"allow_interspersed_args": False}
# What the box server's refusals end with.
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
    words = _parse_command(command)
    if not words:
        raise click.UsageError("which command?")
    argv = ["/bin/sh", "-c", words[0]] if len(words) == 1 else words
    wishes = dict(options, env=parse_variables(env))
    _run(_exec_json(box_id, argv, **wishes) if as_json else _exec(box_id, argv, **wishes))


def _parse_command(command: tuple[str, ...]) -> list[str]:
    """The command that follows an ID. A dash at its beginning is rather an option of ours at the wrong place."""
    if command[:1] == ("--",):
        return list(command[1:])
    if command and command[0].startswith("-"):
        raise click.UsageError(f"options come before the ID; if {command[0]} is a program of the box, write -- before it")
    return list(command)


def parse_variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = [pair.partition("=") for pair in pairs]
    if not all(name and sign for name, sign, _ in found):
        raise click.BadParameter("give NAME=VALUE", param_hint="--env")
    return {name: value for name, _, value in found}


async def _exec(box_id: str, argv: list[str], *, timeout: float | None, **wishes: Any) -> int:
    ended = await _run_command(box_id, argv, write_all, timeout, wishes)
    if ended is None:
        console.err(f"serai: the command took longer than {timeout:g} s")
        return _TIME_UP
    return _to_status(ended)


async def _exec_json(box_id: str, argv: list[str], *, timeout: float | None, **wishes: Any) -> int:
    from serai.boxes.programs.box_command import OutputHead  # so it is cut as the box server cuts it

    printed = OutputHead()
    try:
        ended = await _run_command(box_id, argv, printed.add, timeout, wishes)
        code = _TIME_UP if ended is None else max(ended, -1)
    except Refused as error:
        printed.add(2, f"{error.message}\n".encode())
        code = _get_error_status(error)
    form: dict[str, object] = {"stdout": printed[1].decode(errors="replace"), "stderr": printed[2].decode(errors="replace")}
    console.out(console.dump_json(form | {"exit_code": code}))
    return 0


async def _run_command(box_id: str, argv: list[str], sink: Sink, timeout: float | None, wishes: dict[str, Any]) -> int | None:
    """The exit code of a command, or the number of the signal that ended it with a minus; None when its time was up."""
    async with _open_box(box_id, "exec") as box, await box.control.stream(argv, **wishes) as stream:
        try:
            async with asyncio.timeout(timeout):
                return await _relay_streams(stream, sink, feed=not sys.stdin.isatty())
        except SeraiError:  # a limit on silence is a time-out, too, but not this one
            raise
        except TimeoutError:  # it is hung up already, which ends the command
            return None


@click.command(context_settings=_COMMAND)
@ID
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(*, box_id: str, command: tuple[str, ...]) -> None:
    """A terminal in a box: its shell, or COMMAND. Exit with its status."""
    _run(_shell(box_id, _parse_command(command) or ["/bin/sh", "-c", "exec $(command -v bash || echo sh) -l"]))


async def _shell(box_id: str, argv: list[str]) -> int:
    size = os.get_terminal_size() if sys.stdin.isatty() else os.terminal_size((80, 24))
    async with _open_box(box_id, "shell") as box, await box.control.stream(argv, tty=(size.columns, size.lines)) as stream:
        loop = asyncio.get_running_loop()
        with _raw_terminal():
            if sys.stdin.isatty():
                loop.add_signal_handler(signal.SIGWINCH, lambda: stream.resize(*os.get_terminal_size()))
            return _to_status(await _relay_streams(stream, write_all, feed=True))


async def _relay_streams(stream: CommandStream, sink: Sink, *, feed: bool) -> int:
    """Our input to the command, its output to the sink, until it ends; its exit code, or minus the signal that ended it."""
    feeding = _start_feed(stream) if feed else None
    if feeding is None:
        stream.end_input()
    async for kind, data in stream:
        sink(2 if kind == "stderr" else 1, data)
    if feeding is not None:
        feeding.cancel()
    if stream.signal_number is not None:
        return -stream.signal_number
    return stream.exit_code if stream.exit_code is not None else _NOT_RUN


def _to_status(ended: int) -> int:
    """As a shell tells it."""
    return ended if ended >= 0 else 128 - ended


def _start_feed(stream: CommandStream) -> asyncio.Task[None]:
    """Read in a thread: files and terminals of a shell cannot all be waited for by a loop, and must not be made non-blocking.

    The thread is left to itself when the command ends before its input, and makes nothing that somebody would have to await.
    """
    import threading

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    taken = threading.Semaphore(1)

    async def write_input() -> None:
        with contextlib.suppress(SeraiError):  # whoever reads the output sees it, too
            while data := await queue.get():
                await stream.write(data)
                taken.release()
            stream.end_input()

    def read_input() -> None:
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

    threading.Thread(target=read_input, daemon=True, name="serai-stdin").start()
    return loop.create_task(write_input())


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
@click.argument("source", type=NonEmptyPath(exists=True, dir_okay=False, allow_dash=True))
@click.argument("target")
@click.option("--mode", type=Mode(), help="Its permissions, such as 0600; by default those of the file.")
def put(*, box_id: str, source: str, target: str, mode: int | None) -> None:
    """Copy a file into a box; `-` is this command's input. TARGET is its path there, or a folder in which it keeps its name."""
    name = "" if source == "-" else os.path.basename(source)
    with _open_source(source) as (data, own_mode):
        run_async(_put(box_id, data, target + name * target.endswith("/"), name, own_mode if mode is None else mode))


@contextlib.contextmanager
def _open_source(source: str) -> Iterator[tuple[bytes | BinaryIO, int]]:
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


async def _put(box_id: str, data: bytes | BinaryIO, target: str, name: str, mode: int) -> ExitCode:
    """What the box server will not replace may be a folder: then a file goes into it, by its name."""
    async with _open_box(box_id, "put") as box:
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
    return ExitCode.OK


@click.command()
@ID
@click.argument("source")
@click.argument("target", type=NonEmptyPath(allow_dash=True))
def get(*, box_id: str, source: str, target: str) -> None:
    """Copy a file out of a box; `-` is this command's output. SOURCE is its path there, absolute."""
    run_async(_get(box_id, source, target))


async def _get(box_id: str, source: str, target: str) -> ExitCode:
    async with _open_box(box_id, "get") as box:
        if target == "-":
            await box.control.get_into(source, lambda data: write_all(1, data))
            return ExitCode.OK
        place = os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target  # noqa: ASYNC240  (nobody waits)
        try:
            await _get_file(box, source, place)
        except SeraiError:
            raise
        except OSError as error:
            raise NotWritten(f"cannot write {place}: {error.strerror}") from None
    return ExitCode.OK


async def _get_file(box: Box, source: str, place: str) -> None:
    """To a draft first: what breaks off leaves the file that was there as it was."""
    with atomic_writer(place) as file:
        found = await box.control.get_into(source, file.write)
        os.fchmod(file.fileno(), found.mode & 0o777)


@contextlib.asynccontextmanager
async def _open_box(box_id: str, verb: str) -> AsyncIterator[Box]:

    async with open_boxes(f"serai box {verb} {box_id}") as boxes:
        yield await boxes.get(box_id)


def _run(main: Coroutine[Any, Any, int]) -> None:
    """As `run`, but the exit status is the command's, so ours is one that commands do not use."""
    from serai.wire import event_loop

    try:
        status = event_loop.run(main)
    except Refused as error:  # by the box server: there is no such program, or it cannot be executed
        _print_line(f"serai: {error.message}")
        status = _get_error_status(error)
    except SeraiError as error:
        print_error(error)
        status = _NOT_RUN
    if status:
        raise click.exceptions.Exit(status)


def _get_error_status(error: Refused) -> int:
    """The status for what the box server could not start, as a shell has it."""
    return 127 if error.message.endswith(_MISSING) else 126


def print_error(error: SeraiError) -> None:
    """As `serai.cli.command_table` does it for an error that ends a command."""
    for line in (f"serai: {error}", *error.hint.splitlines()):
        _print_line(line)


def _print_line(line: str) -> None:
    """Nothing is masked: it names what the person has named, and `/etc/passwd: …` looks like a password."""
    click.echo(escape_line(line), err=True)


_LOG = 1 << 20  # bytes of the end of a log that are shown
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class SizeType(click.ParamType[int]):
    """Bytes, such as 512M."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+)([kmg]?)(?:i?b)?", str(value).lower())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is no size: give 512M or 2G", param, ctx)
        return int(match[1]) * _SIZES[match[2]]


class Span(click.ParamType[float]):
    """Seconds, such as 90s or 2h."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no span of time: give 90s, 10m, 2h or 3d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.group()
def box() -> None:
    """Make, use, halt and destroy boxes: sandboxes with hooks at their birth and death.

    ID is a box's id or its generation.
    """


for _command in (exec_, get, put, shell):
    box.add_command(_command)


@box.command()
@click.argument("box_id", metavar="[ID]", default="")
@click.option("--backend", default="", help="What makes it; `serai box backends` tells what there is.")
@click.option(
    "--rootfs", type=NonEmptyPath(exists=True, file_okay=False), help="The base tree; by default the machine's /usr, read-only."
)
@click.option(
    "--hook", "hooks", type=NonEmptyPath(), multiple=True, help="Run this hook too, after those of the settings; repeatable."
)
@click.option("--init", type=NonEmptyPath(exists=True, dir_okay=False), help="A script to run in it at once; it needs a #! line.")
@click.option("--memory", type=SizeType(), help="As much memory as it may use, such as 512M.")
@click.option("--cpus", type=click.FloatRange(0, min_open=True), help="As many cores, such as 0.5.")
@click.option("--pids", type=click.IntRange(1), help="As many processes.")
@click.option("--ttl", type=Span(), help="Destroy it after so long, such as 2h.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="For every command in it. Not for secrets: those are for hooks.")
@click.option("--description", default="", help="Told to the hooks, and shown in lists.")
@JSON
def create(*, box_id: str, hooks: tuple[str, ...], init: str | None, env: tuple[str, ...], as_json: bool, **wishes: Any) -> None:
    """Make a box that is kept until it is destroyed or its time is over. Without an ID it gets a name."""
    from serai.boxes import Hook

    pairs = parse_variables(env)
    for path in hooks:
        if "/" not in path and os.path.exists(path) and shutil.which(path) is None:
            raise click.BadParameter(f"without a slash it is looked up in the PATH: name it ./{path}", param_hint="--hook")
    given = [Hook(path).settled() for path in hooks]
    script = Path(init).read_bytes() if init else None
    run_async(
        _create(box_id or f"box-{secrets.token_hex(4)}", dict(wishes, hooks=given, script=script, env=pairs), as_json=as_json)
    )


async def _create(box_id: str, wishes: dict[str, Any], *, as_json: bool) -> ExitCode:
    async with open_boxes(f"serai box create {box_id}") as boxes:
        made = await boxes.create(box_id, kept=True, **wishes)
        if as_json:
            console.out(console.dump_json(made.record.to_json() | {"token": made.token}))
        else:
            console.out(made.id)
        if made.record.status == "broken":
            for line in f"box {made.id} is there, but broken: {made.record.last_error}".splitlines():
                console.err(line)
            return ExitCode.ERROR
    return ExitCode.OK


@box.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are gone, which tell why.")
@JSON
def list_(*, everything: bool, as_json: bool) -> None:
    """The boxes there are, the newest first."""
    run_async(_list(everything=everything, as_json=as_json))


async def _list(*, everything: bool, as_json: bool) -> ExitCode:
    async with open_boxes("serai box list") as boxes:
        records = [record for record in await boxes.list() if everything or record.lifecycle != "terminated"]
    if as_json:
        for record in records:
            console.out(console.dump_json(record.to_json()))
    elif records:
        console.print_table([("id", "state", "backend", "age", "ends", "description"), *map(_build_row, records)])
    else:
        console.err("there are no boxes; make one: serai box create")
    return ExitCode.OK


def _build_row(record: BoxRecord) -> tuple[str, ...]:
    state = f"{record.state} ({record.status})" if record.status == "broken" else record.state
    age = time.time() - datetime.fromisoformat(record.created_at[:26] + "+00:00").timestamp()
    ends = "" if record.expires_at is None else f"in {_format_span(record.expires_at - time.time())}"
    about = record.last_error.splitlines()[0] if record.lifecycle == "terminated" and record.last_error else record.description
    return (record.box_id, state, record.backend, _format_span(age), ends, about)


def _format_span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


@box.command()
@ID
@JSON
def show(*, box_id: str, as_json: bool) -> None:
    """All that is on record of a box; also of one that is gone."""
    run_async(_show(box_id, as_json=as_json))


async def _show(box_id: str, *, as_json: bool) -> ExitCode:
    async with open_boxes("serai box show") as boxes:
        await boxes.list()
        record = await boxes.record(box_id)
        form = record.to_json()
        if as_json:
            console.out(console.dump_json(form))
        else:
            console.print_table(
                [(key, value if isinstance(value, str) else console.dump_json(value)) for key, value in form.items()]
            )
    return ExitCode.OK


@box.command()
@click.argument("box_ids", metavar="ID...", nargs=-1, required=True)
def destroy(*, box_ids: tuple[str, ...]) -> None:
    """End boxes: their processes, their disks, and with their hooks what those made. Fine for one that is gone already."""
    run_async(_destroy(box_ids))


async def _destroy(box_ids: Sequence[str]) -> ExitCode:
    async with open_boxes("serai box destroy") as boxes:
        ends = await asyncio.gather(*(_destroy_one(boxes, box_id) for box_id in box_ids))
    return next((worst for worst in (ExitCode.FAILED, ExitCode.ERROR) if worst in ends), ExitCode.OK)


async def _destroy_one(boxes: Boxes, box_id: str) -> ExitCode:
    """Whatever becomes of one, the others go."""
    try:
        failed = await boxes.destroy(box_id)
    except SeraiError as error:
        print_error(error)
        return ExitCode.FAILED
    if failed:
        console.err(f"a destroy hook failed; the box is gone, what the hook made may not be: {failed}")
        return ExitCode.ERROR
    return ExitCode.OK


def _add_command(name: str, doc: str) -> None:
    async def work(box_id: str) -> ExitCode:
        async with open_boxes(f"serai box {name}") as boxes:
            await getattr(boxes, name)(box_id)
        return ExitCode.OK

    @box.command(name, help=doc)
    @ID
    def command(*, box_id: str) -> None:
        run_async(work(box_id))


_add_command("pause", "Stop a box's processes and keep its disk. Its time to live stands still.")
_add_command("resume", "Start a paused box again from its disk.")
_add_command("freeze", "Let a box's processes stand still, with all they have in memory.")
_add_command("thaw", "Let a frozen box go on.")


@box.command()
@ID
def logs(*, box_id: str) -> None:
    """What a box's own programs said: launcher, porter, keeper. What looks like a secret is masked."""
    run_async(_logs(box_id))


async def _logs(box_id: str) -> ExitCode:
    from serai.boxes.backends.local import build_log_path

    async with open_boxes("serai box logs") as boxes:
        record = await boxes.record(box_id)
        try:
            with open(build_log_path(boxes.home, record.generation), "rb") as file:  # noqa: ASYNC230  (nobody else is here)
                file.seek(max(0, file.seek(0, 2) - _LOG))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            text = ""
    if text:
        console.write_result(secret_patterns.mask_text(text).rstrip("\n"))
    for line in record.last_error.splitlines():
        console.err(line)
    return ExitCode.OK


@box.command()
@JSON
def backends(*, as_json: bool) -> None:
    """What can make boxes on this machine, what each gives, and why one does not work."""
    from dataclasses import asdict

    from serai.boxes import backend as boxes_backend
    from serai.boxes.manager import Boxes

    boxes = Boxes()
    for name, line in boxes_backend.BACKENDS.items():
        backend = boxes.backend(name)
        gives = backend.capabilities
        if as_json:
            console.out(
                console.dump_json({"backend": name, "works": not backend.missing, "why_not": backend.missing, **asdict(gives)})
            )
            continue
        console.out(f"{name}: {line}")
        for text in (f"does not work here: {backend.missing}",) if backend.missing else _render_capabilities(gives):
            console.out(f"  {text}")


def _render_capabilities(gives: BackendCapabilities) -> list[str]:
    limits = [f"{name} for each process" if value == "process" else name for name, value in _list_limits(gives) if value]
    single = "one user, who is root inside" if gives.isolation == "namespaces" else "one user, yourself"
    ownership = "any uid and gid" if gives.ownership == "full" else single
    return [
        f"isolation {gives.isolation}, network {gives.network}, {ownership}",
        f"limits: {', '.join(limits) or 'none'}",
        f"freeze: {'yes' if gives.freeze else 'no'}; base trees: {'yes' if gives.rootfs else 'no'}",
        *gives.notes,
    ]


def _list_limits(gives: BackendCapabilities) -> list[tuple[str, str]]:
    return [("memory", gives.limits.memory), ("cpus", gives.limits.cpus), ("processes", gives.limits.pids)]


@asynccontextmanager
async def open_boxes(command: str) -> AsyncIterator[Boxes]:
    """The person's boxes, on record as `command` once there is something to record; what others left is settled first."""
    from serai.boxes.manager import Boxes
    from serai.record import Recorder

    limits = load_user_limits()
    with ExitStack() as recording:

        def start() -> Recorder | None:
            recorder = Recorder.start(command=command, limits=limits)
            return recording.enter_context(recorder) if recorder is not None else None

        async with Boxes.usual(recorder=start, limits=limits) as boxes:
            yield boxes
