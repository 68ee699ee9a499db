"""A process that asks and waits, or answers.

`python -m tests.support.policy.approval_process FILE ask|ask-without-room COMMAND`, or `answer ID`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys

import msgspec

from serai.errors import NoApproval
from serai.model.approvals import Deny
from serai.policy.decision_store import DecisionStore
from tests.support.policy.approvals import HERE, AskedSurface, approval, block, make_approver


async def ask(decisions: DecisionStore, command: str) -> None:
    """Says `asked` when its surface has the approval, and how it was decided."""
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=decisions)

    async def tell() -> None:
        await surface.reached.wait()
        print("asked", flush=True)

    telling = asyncio.create_task(tell())
    ruling = await at.decide(approval(command), HERE)
    telling.cancel()
    print(msgspec.json.encode([ruling.by, ruling.decision, type(ruling.error).__name__]).decode(), flush=True)
    await at.close()


def answer(decisions: DecisionStore, id: str, why: str) -> None:
    """Says `ready`, and answers when it is told to."""
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        decisions.answer(id, Deny(why), why)
        print("won", flush=True)
    except NoApproval as error:
        print(error.message, flush=True)


def main(file: str, what: str, *rest: str) -> None:
    decisions = DecisionStore(file)
    if what == "answer":
        answer(decisions, *rest)
        return
    if what == "ask-without-room":
        size = max(os.path.getsize(file + suffix) for suffix in ("", "-wal"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # no file of ours grows any more: as on a full disk
    asyncio.run(ask(decisions, *rest))


if __name__ == "__main__":
    main(*sys.argv[1:])
