"""A manager that is killed at its Nth step, which is a number, a call or `hook`.

`python -m tests.support.boxes.crash_program FOLDER owned|kept STEP` starts it.

A step is the moment before or after anything that leaves a mark outside of the process: a transaction, a hook, a process started or
ended, files put into a box. It prints `done` when it lived through all of them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serai.boxes import hook_process, hooks, ownership
from serai.boxes.backends.local import LocalInstance
from serai.boxes.box_client import BoxClient
from serai.boxes.manager import Boxes
from serai.boxes.ownership import DirectHolder, KeeperHolder, KeptBox
from tests.support.boxes.harness import Harness

STEPS: list[tuple[Any, str]] = [
    (Boxes, "do"), (hooks, "run_hook"), (hook_process.AnswerFile, "remove"), (DirectHolder, "start"), (KeeperHolder, "start"),
    (KeptBox, "commit"), (BoxClient, "init"), (LocalInstance, "destroy"), (ownership, "ask_keeper"), (LocalInstance, "_stop"),
    (LocalInstance, "mark_resumed"),
]  # fmt: skip

# At the end of a box it kills its manager, once.
KILLER = """#!/bin/sh
grep -q box.create && exec echo '{"state":"s"}'
[ ! -e "$KILLINGS" ] || exec echo told >> "$KILLINGS"
echo killed > "$KILLINGS" && kill -KILL $PPID
"""


def die_at_step(fatal: int | str) -> None:
    """From now on the process dies at that step, or after a call of that name."""
    if isinstance(fatal, str):
        [(owner, name)] = [step for step in STEPS if f"{step[0].__name__}.{step[1]}" == fatal]
        setattr(owner, name, _wrap_step(getattr(owner, name), lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        return
    left = [fatal]

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in STEPS:
        setattr(owner, name, _wrap_step(getattr(owner, name), step, step))


def _wrap_step(function: Callable[..., Any], before: Callable[[], None], after: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def later(*arguments: Any, **named: Any) -> Any:
        before()
        try:
            return await function(*arguments, **named)
        finally:
            after()

    @functools.wraps(function)
    def now(*arguments: Any, **named: Any) -> Any:
        before()
        try:
            return function(*arguments, **named)
        finally:
            after()

    return later if asyncio.iscoroutinefunction(function) else now


async def _halt(boxes: Boxes, fatal: int) -> None:
    """A kept box is there, with something on its disk; then its pause and its resume are fatal."""
    box = await boxes.create("web", kept=True, ttl=3600)
    await box.exec("echo data > /workspace/data")
    die_at_step(fatal)
    await box.pause()
    await box.resume()
    await boxes.close()
    print("done")


async def main(folder: str, kind: str, fatal: str) -> None:
    harness = Harness(Path(folder))
    second = harness.hook("plain", "#!/bin/sh\n")
    if fatal == "hook":
        second = harness.hook("killer", KILLER, {"KILLINGS": f"{folder}/killings"})
    boxes = harness.boxes(hooks=[harness.mint, second])
    await boxes.open()
    if kind == "halting":
        await _halt(boxes, int(fatal))
        return
    if fatal != "hook":
        die_at_step(int(fatal) if fatal.isdigit() else fatal)
    box = await boxes.create("web", kept=kind == "kept", script=b"#!/bin/sh\n:\n")
    assert (await box.exec("true")).exit_code == 0
    await box.destroy()
    await boxes.close()
    print("done")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
