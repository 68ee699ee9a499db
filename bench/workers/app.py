"""The whole app in a fresh process: what it adds to a session, and what its tool calls take while a session is busy.

app events pieces|steps alone|app|guests COUNT        a turn of so many pieces or steps
app calls still|parrot|pieces|steps none|three COUNT  so many calls of a guest's tool, one by one, while such a turn runs

`alone` is the resident as one has it without the app: the same model, tools and store. `guests` and `three` are three guests that
hear of everything they can. Each call goes through the deny rules, the interceptor of one guest, a rule that allows, and the owner.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.workers import app_guest
from bench.workers.resident import PIECE, yes
from bench.workers.timing import Shape, cpu, measure
from serai.agents import agent, run_turn
from serai.agents.session import Session
from serai.app.app import App
from serai.limits import Limits
from serai.model.events import Event, Usage
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelRequest
from serai.model.surface import HeadlessSurface
from serai.model.tools import TextBlock, ToolCall
from serai.store import SessionFolder

LISTENERS = ("one", "two", "three")
CALLS = 5  # in each step of a turn of many
ENDLESS = 1 << 30
PROMPT = f"go\n>> repeat 10000000 say {PIECE}"
LIMITS = {"model_answer": ENDLESS, "steps": ENDLESS}
READ = {"path": "notes.txt"}
RULES = """
[[rule]]
id = "no-rm"
decide = "deny"
tool = "bash"
command = "rm **"
[[rule]]
id = "echo"
decide = "allow"
tool = "echo"
"""


class Quick:
    """A model that has it all at hand: so many pieces in each of so many steps, and calls of `read` in all but the last."""

    def __init__(self, pieces: int, steps: int = 1, calls: int = 0) -> None:
        self._pieces = pieces
        self._steps = steps
        self._calls = calls
        self._numbers = count(1)

    async def models(self) -> Sequence[Model]:
        return ()

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        number = next(self._numbers)
        chunk = Chunk(PIECE)
        for _ in range(self._pieces):
            yield chunk
        last = number >= self._steps
        calls = () if last else tuple(ToolCall("read", dict(READ), f"{number}-{place}") for place in range(self._calls))
        yield Completion(ModelMessage("assistant", (TextBlock("done"),), calls), "end" if last else "tool_use", Usage(1, 1))


MODEL = Model("quick")


class Ears:
    """Counts the events of a session."""

    def __init__(self, session: Session) -> None:
        self.heard = 0
        session.listen(self._hear)

    def _hear(self, _event: Event) -> None:
        self.heard += 1


# -- who is measured


def guest(place: Path, role: str, name: str) -> Path:
    """A folder with one of the guests of `app_guest`."""
    folder = place / name
    folder.mkdir()
    program = {"name": name, "exec": sys.executable, "args": ["-S", "-E", app_guest.__file__, role, name]}
    (folder / "extension.json").write_text(json.dumps(program))
    return folder


@asynccontextmanager
async def app_with(place: Path, listeners: Sequence[str], *more: Path, **choices: Any) -> AsyncIterator[App]:
    """The app as it usually is: the conversation is kept, every wire recorded, rules are judged."""
    rules = place / "rules.toml"
    rules.write_text(RULES)
    guests = [*(guest(place, "listener", name) for name in listeners), *more]
    app = App(cwd=project(place), environ=environ(place), policy=rules, guests=guests, limits=LIMITS, **choices)
    async with app:
        assert app.host.report.ok, app.host.report.to_lines()
        yield app


@asynccontextmanager
async def alone(place: Path, provider: Quick) -> AsyncIterator[Session]:
    """The resident with the same tools and the same store, and everything allowed."""
    folder, limits, env = project(place), Limits().but(**LIMITS), environ(place)
    stored = SessionFolder.usual(env, limits=limits).create(str(folder), agent="resident")
    given = {"model": MODEL, "provider": provider, "decide": yes, "settings": {}, "environ": env, "limits": limits}
    async with agent("resident", cwd=folder, store=stored, **given) as session:
        yield session
    stored.close()


def project(place: Path) -> Path:
    folder = place / "project"
    folder.mkdir(exist_ok=True)
    (folder / READ["path"]).write_text("nothing new\n")
    return folder


def environ(place: Path) -> Mapping[str, str]:
    return {**os.environ, "SERAI_HOME": str(place / "home")}


# -- events


async def events(what: str, who: str, size: int, place: Path) -> dict[str, float]:
    provider = Quick(size) if what == "pieces" else Quick(10, size, CALLS)
    if who == "alone":
        async with alone(place, provider) as session:
            surface = HeadlessSurface()
            return await told(session, lambda: run_turn(session.turn("go"), surface, surface.tell))
    listeners = LISTENERS if who == "guests" else ()
    steps = size if what == "steps" else 1
    async with app_with(place, listeners, options={"model": MODEL, "provider": provider}) as app:

        async def work() -> None:
            await app.submit("go")
            # Their wires keep the order: who says how much it has heard has heard all of it.
            heard = [(await app.host.call_tool(f"heard_{name}")).text for name in listeners]
            assert heard == [str(1 + 3 * steps + CALLS * (steps - 1))] * len(listeners), heard

        return await told(app.session, work)


async def told(session: Session, work: Callable[[], Awaitable[object]]) -> dict[str, float]:
    ears = Ears(session)
    wall, used = perf_counter(), cpu()
    await work()
    wall, used = perf_counter() - wall, cpu() - used
    return {"rate": ears.heard / wall, "us": wall / ears.heard * 1e6, "cpu": used / ears.heard * 1e6}


# -- calls


async def calls(what: str, who: str, number: int, place: Path) -> dict[str, float]:
    shape = Shape(100, number, 1)
    guests = guest(place, "guard", "guard"), guest(place, "echo", "echo")
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - mine or mine)  # for the guests: our own core is never idle
    async with app_with(place, LISTENERS if who == "three" else (), *guests, **busy_with(what)) as app:
        os.sched_setaffinity(0, mine)
        text, ears = shape.text, Ears(app.session)

        async def call() -> None:
            result = await app.call_tool(ToolCall("echo", {"text": text}, asker="bench"))
            assert result.text == text, result

        turn = None if what == "still" else asyncio.ensure_future(app.submit(PROMPT))
        while turn is not None and ears.heard < 100:
            await asyncio.sleep(0)
        heard, start = ears.heard, perf_counter()
        sample = await measure(call, shape)
        sample["rate"] = (ears.heard - heard) / (perf_counter() - start)
        if turn is not None:
            assert not turn.done(), turn
            await app.abort()
            await asyncio.wait([turn])
    return sample


def busy_with(what: str) -> dict[str, Any]:
    """The model of a turn that lasts, as the app takes it."""
    if what in ("still", "parrot"):
        return {"model": "parrot"}
    return {"options": {"model": MODEL, "provider": Quick(ENDLESS) if what == "pieces" else Quick(100, ENDLESS, 1)}}


async def main(what: str, *rest: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as folder:
        match what, *rest:
            case "events", kind, who, size:
                return await events(kind, who, int(size), Path(folder))
            case "calls", kind, who, number:
                return await calls(kind, who, int(number), Path(folder))
            case _:
                raise SystemExit(f"no such work: {what} {rest}")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
