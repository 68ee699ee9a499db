"""Who holds the processes of a box: this process, so that the box dies with it, or a keeper, so that it does not.

Either starts the launcher (`serai.boxes.programs.launcher`), reads its one line, and can end it; a backend does not know which. A
keeper is asked with one request on a connection of its own. Our programs are started from where this package is, whatever the
Python environment. A box's owner is a process, by an identity that is not reused, and one of the managers in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from serai import version
from serai.errors import BadFrame, BoxFailed, LimitHit, Refused
from serai.limits import BoxLimits
from serai.wire.plain_process import DetachedProcess
from serai.wire.process import Child, Launch, Spawner
from serai.wire.process_tree import get_own_identity

_HOME = str(Path(version.__file__).parents[1])


def build_program_command(module: str, function: str = "main", *, alone: bool = True) -> list[str]:
    """A command line that calls a function of ours with the arguments that are added to it.

    Imported and not run as a script, which would be compiled each time. `alone`: with the standard library only, which is quicker,
    and in an environment of nobody.
    """
    source = f"import sys; sys.path.insert(0, {_HOME!r}); from serai.boxes.{module} import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, *(["-I", "-S"] if alone else []), "-c", source]


_AGAIN = 0.005  # seconds


async def ask_keeper(folder: str, verb: str, *, timeout: float) -> dict[str, Any] | None:
    """What the keeper of the box in this folder answers; None when there is no keeper (any more)."""
    loop = asyncio.get_running_loop()
    try:
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BoxFailed(f"its folder cannot be entered: {error.strerror}", who=folder) from None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(timeout):
                await _connect(connection, f"/proc/self/fd/{at}/keeper.sock")
                body = json.dumps({"verb": verb}).encode()
                await loop.sock_sendall(connection, struct.pack(">I", len(body)) + body)
                return await _read_answer(connection, folder)
        except (FileNotFoundError, ConnectionError):
            return None
        except TimeoutError:
            limit = LimitHit("box_stop", timeout)
            hint = "is it stopped? Kill it, then try again"
            raise BoxFailed(f"the keeper did not answer `{verb}`", who=folder, limit=limit, hint=hint) from None
        except OSError as error:
            raise BoxFailed(f"its keeper cannot be reached: {error.strerror}", who=folder) from None
        finally:
            os.close(at)


async def _connect(connection: socket.socket, path: str) -> None:
    """The loop's own way takes a queue that is full for a connection."""
    while True:
        try:
            connection.connect(path)
        except BlockingIOError:
            await asyncio.sleep(_AGAIN)
        else:
            return


async def _read_answer(connection: socket.socket, folder: str) -> dict[str, Any] | None:
    loop = asyncio.get_running_loop()
    received = b""
    while piece := await loop.sock_recv(connection, 65536):
        received += piece
    if not received:
        return None  # it died over it
    try:
        answer = json.loads(received[4:])
        if "err" in answer:
            raise Refused(str(answer["err"]), who=folder)
        data: dict[str, Any] = answer["data"]
    except (ValueError, KeyError, TypeError):
        raise BadFrame("the keeper's answer cannot be understood", who=folder) from None
    return data


_LINE = 65536


class HeldBox(Protocol):
    """The processes of one box, started."""

    @property
    def owner_pid(self) -> int:
        """Who must live for the box to live."""
        ...

    def on_exit(self, callback: Callable[[], None]) -> None: ...
    def commit(self) -> None:
        """The box is registered: whoever holds it may go on without us."""
        ...

    async def end(self) -> None:
        """None of its processes is left on return. Idempotent."""
        ...


class BoxHolder(Protocol):
    """Starts the launcher of a box."""

    async def start(self, argv: Sequence[str], *, box_id: str, generation: str, folder: str, log: int) -> HeldBox:
        """The box server answers on return; `BoxFailed` has the launcher's reason."""
        ...


async def run_to_completion(work: Coroutine[None, None, None]) -> None:
    """Run it to its end also when we are cancelled meanwhile, once or more (spec hooks 13.24)."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: S110  (told below)
            pass
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class DirectHolder:
    """We hold it: our spawner's watchdog and the launcher's lifeline end it with us."""

    def __init__(self, spawner: Spawner, limits: BoxLimits) -> None:
        self._spawner = spawner
        self._limits = limits

    async def start(self, argv: Sequence[str], *, box_id: str, generation: str, folder: str, log: int) -> HeldBox:  # noqa: ARG002  (a keeper's)
        launch = Launch(argv=argv, env={"SERAI_BOX": generation}, who=f"box {box_id}", stderr=log)
        child = await self._spawner.spawn(launch)
        try:
            _check_started(await _read_line(child.stdout, self._limits, box_id), box_id)
        except BaseException:
            await asyncio.shield(child.close())
            raise
        return _Owned(child, self._limits)


class _Owned:
    def __init__(self, child: Child, limits: BoxLimits) -> None:
        self._child = child
        self._limits = limits

    @property
    def owner_pid(self) -> int:
        return os.getpid()

    def on_exit(self, callback: Callable[[], None]) -> None:
        self._child.on_exit(callback)

    def commit(self) -> None:
        """It stays with us."""

    async def end(self) -> None:
        if self._child.stdin >= 0:
            self._child.close_descriptor(self._child.stdin)  # its lifeline: it ends the box and then itself
        await asyncio.wait([self._child.exited], timeout=self._limits.box_stop)
        await self._child.close()


class KeeperHolder:
    """A keeper holds it. `environ` is what the hooks at its end will see; `settle` is how the keeper settles it.

    `abandoned`: what it does when we are gone before the box is registered. A resume leaves the box paused.
    """

    def __init__(
        self,
        limits: BoxLimits,
        *,
        environ: Mapping[str, str],
        settle: Sequence[str],
        expires_at: float | None,
        abandoned: Literal["settle", "stop"] = "settle",
    ) -> None:
        self._limits = limits
        self._environ = environ
        self._settle = settle
        self._expires_at = expires_at
        self._abandoned = abandoned

    async def start(self, argv: Sequence[str], *, box_id: str, generation: str, folder: str, log: int) -> KeptBox:
        config: dict[str, Any] = {
            "folder": folder,
            "generation": generation,
            "launcher": list(argv),
            "settle": list(self._settle),
            "expires_at": self._expires_at,
            "abandoned": self._abandoned,
            "stop": self._limits.box_stop,
        }
        launch = Launch(
            argv=[*build_program_command("programs.keeper"), json.dumps(config)],
            env=self._environ,
            who=f"the keeper of box {box_id}",
            stderr=log,
        )
        keeper = DetachedProcess(launch)
        try:
            _check_started(await _read_line(keeper.stdout, self._limits, box_id), box_id)
        except BaseException:
            # Gone before anything else is done: what it still starts would take the place of another that we start.
            with contextlib.suppress(OSError):
                os.write(keeper.stdin, b"stop\n")
            await run_to_completion(keeper.end(2 * self._limits.box_stop))
            raise
        return KeptBox(folder, self._limits, keeper)


class KeptBox:
    """A box that a keeper holds; also one that another process started."""

    def __init__(self, folder: str, limits: BoxLimits, keeper: DetachedProcess | None = None) -> None:
        self._folder = folder
        self._limits = limits
        self._keeper = keeper

    @property
    def owner_pid(self) -> int:
        return self._keeper.pid if self._keeper else 0

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Its keeper sees to its end."""

    def commit(self) -> None:
        if self._keeper is not None:
            try:
                os.write(self._keeper.stdin, b"kept\n")
            except OSError:
                raise BoxFailed("its keeper ended at once", who=self._folder) from None
            finally:
                self._keeper.let_go()

    def forget(self) -> None:
        """We go; its keeper stays."""
        if self._keeper is not None:
            self._keeper.forget()

    async def end(self) -> None:
        """Also when there is no keeper any more: then nothing holds the box, and the launcher ended it."""
        await self._request_end("stop")

    async def pause(self) -> bool:
        """Have its keeper mark it as paused and end its processes; False when there is no keeper."""
        return await self._request_end("pause")

    async def _request_end(self, verb: str) -> bool:
        patience = self._limits.box_stop * 3
        if await ask_keeper(self._folder, verb, timeout=patience) is not None:
            return True
        if await ask_keeper(self._folder, "state", timeout=patience) is not None:
            raise BoxFailed("its keeper did not stop it", who=self._folder, hint="try again")  # to kill its box would end both
        return False


async def _read_line(descriptor: int, limits: BoxLimits, box_id: str) -> bytes:
    """The launcher's line. Everything else that can be wrong with its start is told here too."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    found = b""
    loop.add_reader(descriptor, lambda: None if readable.done() else readable.set_result(None))
    try:
        async with asyncio.timeout(limits.box_start):
            while not found.endswith(b"\n") and len(found) < _LINE:
                await readable
                readable = loop.create_future()
                piece = os.read(descriptor, _LINE)
                found += piece
                if not piece:
                    break
    except TimeoutError:
        limit = LimitHit("box_start", limits.box_start)
        raise BoxFailed("the box did not start in time", who=f"box {box_id}", limit=limit) from None
    finally:
        loop.remove_reader(descriptor)
    return found


def _check_started(line: bytes, box_id: str) -> None:
    try:
        told = json.loads(line)
        if told.get("ready"):
            return
        message, hint = str(told.get("error")), str(told.get("hint", ""))
    except (ValueError, AttributeError):
        message, hint = "its launcher ended without a word", "see its log: `serai box logs`"
    raise BoxFailed(message, who=f"box {box_id}", hint=hint)


def make_manager_name() -> str:
    """A name for one manager in this process: there may be several. A keeper's name has no such ending."""
    return f"{get_own_identity()}#{secrets.token_hex(4)}"


def is_manager(owner: str) -> bool:
    return "#" in owner


def is_here(owner: str) -> bool:
    """Whether it is this process, whatever it was before: a keeper becomes the one that settles."""
    return owner.partition("#")[0] == get_own_identity()
