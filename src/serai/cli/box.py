"""`serai box`: sandboxes from the command line. Made here they are kept: each has a keeper, and outlives the command."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serai.cli import telling
from serai.cli.box_inside import complain, exec_, get, put, shell, variables
from serai.cli.opening import JSON, NamedPath, Status, limits_of_the_person, run
from serai.errors import SeraiError
from serai.record import secret_patterns

if TYPE_CHECKING:
    from serai.boxes import BackendCapabilities, Boxes, BoxRecord

__all__ = ["box"]

ID = click.argument("box_id", metavar="ID")
_LOG = 1 << 20  # bytes of the end of a log that are shown
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Size(click.ParamType[int]):
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
    "--rootfs", type=NamedPath(exists=True, file_okay=False), help="The base tree; by default the machine's /usr, read-only."
)
@click.option(
    "--hook", "hooks", type=NamedPath(), multiple=True, help="Run this hook too, after those of the settings; repeatable."
)
@click.option("--init", type=NamedPath(exists=True, dir_okay=False), help="A script to run in it at once; it needs a #! line.")
@click.option("--memory", type=Size(), help="As much memory as it may use, such as 512M.")
@click.option("--cpus", type=click.FloatRange(0, min_open=True), help="As many cores, such as 0.5.")
@click.option("--pids", type=click.IntRange(1), help="As many processes.")
@click.option("--ttl", type=Span(), help="Destroy it after so long, such as 2h.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="For every command in it. Not for secrets: those are for hooks.")
@click.option("--description", default="", help="Told to the hooks, and shown in lists.")
@JSON
def create(*, box_id: str, hooks: tuple[str, ...], init: str | None, env: tuple[str, ...], as_json: bool, **wishes: Any) -> None:
    """Make a box that is kept until it is destroyed or its time is over. Without an ID it gets a name."""
    from serai.boxes import Hook

    pairs = variables(env)
    for path in hooks:
        if "/" not in path and os.path.exists(path) and shutil.which(path) is None:
            raise click.BadParameter(f"without a slash it is looked up in the PATH: name it ./{path}", param_hint="--hook")
    given = [Hook(path).settled() for path in hooks]
    script = Path(init).read_bytes() if init else None
    run(_create(box_id or f"box-{secrets.token_hex(4)}", dict(wishes, hooks=given, script=script, env=pairs), as_json=as_json))


async def _create(box_id: str, wishes: dict[str, Any], *, as_json: bool) -> Status:
    async with opened(f"serai box create {box_id}") as boxes:
        made = await boxes.create(box_id, kept=True, **wishes)
        if as_json:
            telling.say(telling.as_json(made.record.to_json() | {"token": made.token}))
        else:
            telling.say(made.id)
        if made.record.status == "broken":
            for line in f"box {made.id} is there, but broken: {made.record.last_error}".splitlines():
                telling.tell(line)
            return Status.ERROR
    return Status.OK


@box.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are gone, which tell why.")
@JSON
def list_(*, everything: bool, as_json: bool) -> None:
    """The boxes there are, the newest first."""
    run(_list(everything=everything, as_json=as_json))


async def _list(*, everything: bool, as_json: bool) -> Status:
    async with opened("serai box list") as boxes:
        records = [record for record in await boxes.list() if everything or record.lifecycle != "terminated"]
    if as_json:
        for record in records:
            telling.say(telling.as_json(record.to_json()))
    elif records:
        telling.table([("id", "state", "backend", "age", "ends", "description"), *map(_row, records)])
    else:
        telling.tell("there are no boxes; make one: serai box create")
    return Status.OK


def _row(record: BoxRecord) -> tuple[str, ...]:
    state = f"{record.state} ({record.status})" if record.status == "broken" else record.state
    age = time.time() - datetime.fromisoformat(record.created_at[:26] + "+00:00").timestamp()
    ends = "" if record.expires_at is None else f"in {_span(record.expires_at - time.time())}"
    about = record.last_error.splitlines()[0] if record.lifecycle == "terminated" and record.last_error else record.description
    return (record.box_id, state, record.backend, _span(age), ends, about)


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


@box.command()
@ID
@JSON
def show(*, box_id: str, as_json: bool) -> None:
    """All that is on record of a box; also of one that is gone."""
    run(_show(box_id, as_json=as_json))


async def _show(box_id: str, *, as_json: bool) -> Status:
    async with opened("serai box show") as boxes:
        await boxes.list()
        record = await boxes.record(box_id)
        form = record.to_json()
        if as_json:
            telling.say(telling.as_json(form))
        else:
            telling.table([(key, value if isinstance(value, str) else telling.as_json(value)) for key, value in form.items()])
    return Status.OK


@box.command()
@click.argument("box_ids", metavar="ID...", nargs=-1, required=True)
def destroy(*, box_ids: tuple[str, ...]) -> None:
    """End boxes: their processes, their disks, and with their hooks what those made. Fine for one that is gone already."""
    run(_destroy(box_ids))


async def _destroy(box_ids: Sequence[str]) -> Status:
    async with opened("serai box destroy") as boxes:
        ends = await asyncio.gather(*(_end(boxes, box_id) for box_id in box_ids))
    return next((worst for worst in (Status.FAILED, Status.ERROR) if worst in ends), Status.OK)


async def _end(boxes: Boxes, box_id: str) -> Status:
    """Whatever becomes of one, the others go."""
    try:
        failed = await boxes.destroy(box_id)
    except SeraiError as error:
        complain(error)
        return Status.FAILED
    if failed:
        telling.tell(f"a destroy hook failed; the box is gone, what the hook made may not be: {failed}")
        return Status.ERROR
    return Status.OK


def _halting(name: str, doc: str) -> None:
    async def work(box_id: str) -> Status:
        async with opened(f"serai box {name}") as boxes:
            await getattr(boxes, name)(box_id)
        return Status.OK

    @box.command(name, help=doc)
    @ID
    def command(*, box_id: str) -> None:
        run(work(box_id))


_halting("pause", "Stop a box's processes and keep its disk. Its time to live stands still.")
_halting("resume", "Start a paused box again from its disk.")
_halting("freeze", "Let a box's processes stand still, with all they have in memory.")
_halting("thaw", "Let a frozen box go on.")


@box.command()
@ID
def logs(*, box_id: str) -> None:
    """What a box's own programs said: launcher, porter, keeper. What looks like a secret is masked."""
    run(_logs(box_id))


async def _logs(box_id: str) -> Status:
    from serai.boxes.backends.local import log_path

    async with opened("serai box logs") as boxes:
        record = await boxes.record(box_id)
        try:
            with open(log_path(boxes.home, record.generation), "rb") as file:  # noqa: ASYNC230  (nobody else is here)
                file.seek(max(0, file.seek(0, 2) - _LOG))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            text = ""
    if text:
        telling.result(secret_patterns.mask_text(text).rstrip("\n"))
    for line in record.last_error.splitlines():
        telling.tell(line)
    return Status.OK


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
            telling.say(
                telling.as_json({"backend": name, "works": not backend.missing, "why_not": backend.missing, **asdict(gives)})
            )
            continue
        telling.say(f"{name}: {line}")
        for text in (f"does not work here: {backend.missing}",) if backend.missing else _gives(gives):
            telling.say(f"  {text}")


def _gives(gives: BackendCapabilities) -> list[str]:
    limits = [f"{name} for each process" if value == "process" else name for name, value in _limits(gives) if value]
    single = "one user, who is root inside" if gives.isolation == "namespaces" else "one user, yourself"
    ownership = "any uid and gid" if gives.ownership == "full" else single
    return [
        f"isolation {gives.isolation}, network {gives.network}, {ownership}",
        f"limits: {', '.join(limits) or 'none'}",
        f"freeze: {'yes' if gives.freeze else 'no'}; base trees: {'yes' if gives.rootfs else 'no'}",
        *gives.notes,
    ]


def _limits(gives: BackendCapabilities) -> list[tuple[str, str]]:
    return [("memory", gives.limits.memory), ("cpus", gives.limits.cpus), ("processes", gives.limits.pids)]


@asynccontextmanager
async def opened(command: str) -> AsyncIterator[Boxes]:
    """The person's boxes, on record as `command` once there is something to record; what others left is settled first."""
    from serai.boxes.manager import Boxes
    from serai.record import Recorder

    limits = limits_of_the_person()
    with ExitStack() as recording:

        def start() -> Recorder | None:
            recorder = Recorder.start(command=command, limits=limits)
            return recording.enter_context(recorder) if recorder is not None else None

        async with Boxes.usual(recorder=start, limits=limits) as boxes:
            yield boxes
