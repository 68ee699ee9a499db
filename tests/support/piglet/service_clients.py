"""The host as a guest sees it over its wire: a whole app, a real guest in it, and the raw answers to what that guest asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

from serai.app.app import App
from serai.app.assembly import AppOptions
from serai.model.actions import Display
from serai.model.approvals import Approval, Decision, Question
from tests.support.agents.scripted_models import Answers
from tests.support.app.apps import Person, open_app
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import relay

NAME = "weather"
ID = f"piglet:{NAME}"

Json = dict[str, Any]


class ServiceClient:
    """Has the guest ask, by its command `/ask` that a person types, and gives what it was answered.

    No turn runs meanwhile, unless the test has begun one. Without parameters the request has none at all on the wire.
    """

    def __init__(self, app: App, person: Person, journal: Path) -> None:
        self.app = app
        self.person = person
        self.journal = journal

    async def raw(self, method: str, params: Any = None) -> Json:
        """`{"result": …}` or `{"error": …}`, as it came."""
        [answer] = await self.run("ask", json.dumps({"method": method} | ({} if params is None else {"params": params})))
        assert isinstance(answer, dict)
        return answer

    async def run(self, command: str, args: str = "") -> list[Any]:
        """Have the person type a command of the guest; all that it showed, which is JSON."""
        before = len(self.person.actions)
        await self.app.submit(f"/{command} {args}")
        return [json.loads(one.text) for one in self.person.actions[before:] if isinstance(one, Display)]

    async def __call__(self, method: str, /, **params: Any) -> Any:
        """The result of `host/<method>`."""
        answer = await self.raw(f"host/{method}", params or None)
        assert set(answer) == {"result"}, answer
        return answer["result"]

    async def fails(self, method: str, /, **params: Any) -> tuple[int, str]:
        """The error of `host/<method>`."""
        return error_of(await self.raw(f"host/{method}", params or None))

    async def aside(self, method: str, /, **params: Any) -> Json:
        """The raw answer, asked by the guest's tool and beside what else it does; the agent has no part in it."""
        result = await self.app.host.call_tool("host", {"method": f"host/{method}"} | ({"params": params} if params else {}))
        assert not result.is_error, result
        answer: Json = json.loads(result.text)
        return answer

    async def asked(self, method: str, count: int = 1) -> int:
        """The id of the newest request of `host/<method>`, once so many have been sent and have begun."""
        async with asyncio.timeout(30.0):
            while len(found := read_ids(self.journal, f"host/{method}")) < count:
                await asyncio.sleep(0.002)
        await self("extensionsDir")  # the host reads in order: this is behind it
        return found[-1]

    def answered(self, id: int) -> list[Json]:
        """The answers that came to one of its requests, so far."""
        return [
            line["in"]
            for line in read_journal(self.journal)
            if "method" not in line.get("in", {"method": ""}) and line["in"]["id"] == id
        ]

    def entries(self) -> list[Json]:
        """All lines of the current session's file."""
        current = self.app.runtime.current
        assert current is not None
        return [json.loads(line) for line in Path(current.session.file).read_text().splitlines()]


def error_of(answer: Mapping[str, Any]) -> tuple[int, str]:
    assert set(answer) == {"error"}, answer
    assert set(answer["error"]) == {"code", "message"}
    return answer["error"]["code"], answer["error"]["message"]


def read_journal(journal: Path) -> list[Json]:
    """Every message of the guest's wire, each `{"in": …}` or `{"out": …}`, in order."""
    return [json.loads(line) for line in journal.read_text().split("\n")[:-1]]  # a last line without its end is being written


def read_ids(journal: Path, method: str) -> list[int]:
    """The ids of the guest's requests of that method."""
    return [line["out"]["id"] for line in read_journal(journal) if line.get("out", {}).get("method") == method]


def write_weather(tmp_path: Path, **offers: Any) -> Path:
    """The folder of the guest that asks: its command `ask` and its tool `host` relay what they are told."""
    tools, commands = offers.pop("tools", {}), offers.pop("commands", {})
    offers |= {"tools": {"host": [relay()], **tools}, "commands": {"ask": [relay()], **commands}}
    return write(tmp_path, NAME, journal=tmp_path / "journal", **offers)


@asynccontextmanager
async def open_client(
    tmp_path: Path,
    *,
    offers: Mapping[str, Any] | None = None,
    others: Sequence[Path] = (),
    person: Person | None = None,
    answers: Answers | None = None,
    **choices: Unpack[AppOptions],
) -> AsyncIterator[ServiceClient]:
    """An app with that guest, which offers this too, and with others."""
    choices["surface"] = person = person or Person()
    folder = write_weather(tmp_path, **(offers or {}))
    async with open_app(tmp_path, folder, *others, answers=answers, **choices) as app:
        yield ServiceClient(app, person, tmp_path / "journal")


class SilentPerson(Person):
    """Looks at a dialog and says nothing; `closed` counts those that were taken away again."""

    closed = 0

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.append(request)
        try:
            await asyncio.Event().wait()
        finally:
            self.closed += 1
        raise AssertionError
