"""A turn driven to its end: what it asks goes to a surface, what it says to a sink (spec agents 1.13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from serai.agents.turn import Turn
from serai.errors import Closed
from serai.model.approvals import Approval, Decision, Deny, Question
from serai.model.events import Event, RequestCancelled, TurnResult
from serai.model.surface import PacedSurface, Surface

__all__ = ["drive", "put"]

log = logging.getLogger("serai.agents")


async def drive(
    turn: Turn, surface: Surface, sink: Callable[[Event], None] | None = None, *, left: dict[str, asyncio.Task[None]] | None = None
) -> TurnResult:
    """Play the turn; its result, or its error. A surface that is behind (`Paced`) is waited for.

    Each request is put to the surface in a task of its own, as an agent may have several open and goes on meanwhile; one that is
    withdrawn is taken back from the surface. A surface that fails denies, with the text of its failure (design rule 7). What is
    still asked when the turn is over, on behalf of work on the side, goes on in `left`, if there is one.
    """
    asking: dict[str, asyncio.Task[None]] = {}
    paced = surface if isinstance(surface, PacedSurface) else None
    try:
        async with turn:
            async for event in turn:
                if isinstance(event, Approval | Question) and not event.answered:  # else it is asked elsewhere
                    asking[event.id] = put(event, surface)
                elif isinstance(event, RequestCancelled) and event.id in asking:
                    asking.pop(event.id).cancel()
                if sink is not None:
                    sink(event)
                if paced is not None and paced.behind and not turn.done:
                    await _room(paced, turn)
    finally:
        for id, task in asking.items():
            if left is not None and turn.awaits(id):
                left[id] = task
                task.add_done_callback(partial(_forget, left, id))
            else:
                task.cancel()
        if sink is not None:  # how it ends is seen also by whoever was cancelled meanwhile
            for event in turn.unread():
                sink(event)
        await asyncio.gather(*(task for task in asking.values() if task.cancelling()), return_exceptions=True)
    return await turn.result()


async def _room(paced: PacedSurface, turn: Turn) -> None:
    """Until the surface has caught up, or the turn is over: then nothing more comes than is there."""
    waiting = [asyncio.ensure_future(paced.room()), asyncio.ensure_future(turn.over())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def put(request: Approval | Question, surface: Surface, asking: dict[str, asyncio.Task[None]] | None = None) -> asyncio.Task[None]:
    """Ask the surface, in a task, and tell whoever wants to know; among `asking` it is found by the request's id until then."""
    task = asyncio.get_running_loop().create_task(_put(request, surface), name=f"ask {request.id}")
    if asking is not None:
        asking[request.id] = task
        task.add_done_callback(partial(_forget, asking, request.id))
    return task


def _forget(asking: dict[str, asyncio.Task[None]], id: str, task: asyncio.Task[None]) -> None:
    if asking.get(id) is task:
        del asking[id]


async def _put(request: Approval | Question, surface: Surface) -> None:
    try:
        decision: Decision = await surface.ask(request)
        if not isinstance(decision, request.takes):
            decision = Deny(f"the surface answered {type(decision).__name__}, which is no answer to it")
    except Exception as error:
        log.warning("the surface failed when it was asked: %r", error)
        decision = Deny(str(error) or type(error).__name__)
    try:
        await request.decide(decision)
    except Closed:  # it was answered elsewhere, or withdrawn, in the meantime
        log.info("the answer to %s came too late", request.id)
