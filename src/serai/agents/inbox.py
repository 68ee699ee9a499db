"""What people type while a turn runs: commands that may run at once do, everything else waits its turn (spec piglet 6.8)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from serai.agents.driver import Prompt
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import Closed, LimitHit, NotAllowed, TurnInFlight
from serai.model.events import Event, ToolEnded

log = logging.getLogger("serai.agents")


class _Item(NamedTuple):
    text: str
    is_command: bool
    fresh: bool = False  # nothing ran or waited when it came: it is a turn of its own


class Inbox:
    """The way into a session for somebody who types whenever they like.

    `play` is called with each turn and plays it to its end; `prepare` makes a prompt of a text, or nothing; `command` runs a
    command line. Texts that are typed during a turn are steered into it when a tool has ended, joined by blank lines; what is left
    at the end becomes one new turn, after the commands that waited.
    """

    def __init__(
        self,
        session: Session,
        play: Callable[[Turn], Awaitable[object]],
        *,
        prepare: Callable[[str, bool], Awaitable[Prompt | None]] | None = None,
        command: Callable[[str], Awaitable[object]] | None = None,
        is_command: Callable[[str], bool] = lambda _text: False,
        is_immediate: Callable[[str], bool] = lambda _text: False,
    ) -> None:
        self._session = session
        self._play = play
        self._prepare = prepare
        self._command = command
        self._is_command = is_command
        self._is_immediate = is_immediate
        self._waiting: deque[_Item] = deque()
        self._working: asyncio.Task[None] | None = None
        self._immediate: set[asyncio.Task[object]] = set()  # commands that run beside a turn
        self._most = session.limits.inputs
        self._stop_listening = session.listen(self._on_event)

    @property
    def busy(self) -> bool:
        return (self._working is not None and not self._working.done()) or self._session.state == "running"

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(item.text for item in self._waiting)

    def submit(self, text: str, *, plain: bool = False) -> None:
        """Have it done, now or later. Blank text is nothing; beyond `inputs` it is refused, and nothing that waits is lost.

        `plain`: it is for the model, also when it looks like a command.
        """
        if not text.strip():
            return
        is_command = not plain and self._is_command(text)
        if self.busy and is_command and self._is_immediate(text):
            if len(self._immediate) >= self._most:  # what waits does not keep a person from these
                raise NotAllowed("too many commands run already", limit=LimitHit("inputs", self._most), hint="wait for one to end")
            task = asyncio.ensure_future(self._run_command(text))
            self._immediate.add(task)
            task.add_done_callback(self._immediate.discard)
            return
        if len(self._waiting) >= self._most:
            raise NotAllowed("too much waits already", limit=LimitHit("inputs", self._most), hint="wait for the turn to end")
        self._waiting.append(_Item(text, is_command, fresh=not plain and not self.busy and not self._waiting))
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work(), name="inbox")

    async def wait_idle(self) -> None:
        """Until nothing runs and nothing waits."""
        while self._working is not None and not self._working.done():
            await asyncio.wait([self._working])
        if self._immediate:
            await asyncio.wait(self._immediate)

    async def close(self) -> None:
        """Forget what waits; what runs is the session's to end."""
        self._stop_listening()
        self._waiting.clear()
        mine = asyncio.current_task()  # a command may be the one that closes
        tasks = [task for task in (self._working, *self._immediate) if task is not None and task is not mine]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._session.limits.interrupt)

    # -- inside

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, ToolEnded) or event.lane or not self._session.capabilities.steer:
            return
        waiting = self._waiting.copy()
        if text := self._take_texts():
            try:
                self._session.steer(text)
            except Closed:  # the turn is about to end: they are the next one
                self._waiting = waiting

    def _take_texts(self) -> str:
        texts = [item.text for item in self._waiting if not item.is_command]
        self._waiting = deque(item for item in self._waiting if item.is_command)
        return "\n\n".join(texts)

    async def _work(self) -> None:
        while self._waiting:
            await self._session.free()
            if self._session.state == "closed":
                return
            for item in [item for item in self._waiting if item.is_command]:
                self._waiting.remove(item)
                await self._run_command(item.text)
            if self._waiting and self._waiting[0].fresh:
                await self._run_turn(self._waiting.popleft())
            elif text := self._take_texts():
                await self._run_turn(_Item(text, is_command=False))

    async def _run_turn(self, item: _Item) -> None:
        try:
            prompt = Prompt(item.text) if self._prepare is None else await self._prepare(item.text, item.fresh)
            if prompt is None:
                return
            turn = self._session.turn(prompt)
            turn.start()
        except TurnInFlight:  # somebody was quicker
            self._waiting.appendleft(item._replace(fresh=False))
            return
        except Closed:
            return
        except Exception as error:
            log.error("a prompt could not be sent: %s", error)
            return
        try:
            await self._play(turn)
        except Exception as error:  # those that wait do not suffer for it
            log.error("a turn failed: %s", error)

    async def _run_command(self, text: str) -> None:
        if self._command is None:
            return
        try:
            await self._command(text)
        except Exception:
            log.exception("a command failed")
