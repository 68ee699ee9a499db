"""What a guest asks of the host and no longer wants, or what takes too long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serai.host.adapters.piglet import LIMITS
from serai.limits import Limits
from serai.model.actions import Display
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.apps import PATIENT, Gated
from tests.support.piglet.journals import ONE_LOOP, read_messages, wait_for_note, write_models
from tests.support.piglet.service_clients import Json, ServiceClient, SilentPerson, open_client
from tests.support.piglet_guests.guest_folder import offer
from tests.support.piglet_guests.steps import ask, note, wait

pytestmark = ONE_LOOP

MODELS = '[[models]]\nid = "m1"\nprovider = "acme"\napi = "acme-api"\n'
PICK = {"title": "City", "items": [{"id": "b", "label": "Bern"}]}


@dataclass(frozen=True)
class Case:
    """A request that does not end by itself. `asks` is what the host asks of the guest for it, or of the person."""

    method: str
    params: Json | None
    doing: str
    asks: str = ""


CASES = [
    Case("host/chat", {"messages": [{"role": "user", "content": "hi"}], "model": "acme/m1"}, "chat", "provider/stream"),
    Case("host/agent.run", {"task": "count", "model": "acme/m1"}, "chat", "provider/stream"),
    Case("host/executeTool", {"name": "slow", "args": {}}, "tool execution", "tool/execute"),
    Case("host/waitForIdle", None, "wait for idle"),
    Case("host/showPicker", PICK, "picker", "dialog"),
    Case("host/askUser", {"prompt": "Send?", "choices": ["yes", "no"]}, "question", "dialog"),
    Case("host/triggerCompact", None, "compact", "compact/execute"),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.method.removeprefix("host/"))


class PendingRequest:
    """A guest that has asked for `case` and waits; `go` is the file at which it takes that back."""

    def __init__(self, host: ServiceClient, case: Case, begun: Path, go: Path) -> None:
        self.host, self.case, self.begun, self.go = host, case, begun, go

    async def under_way(self) -> None:
        """What it has asked for has begun, as far as that can be seen."""
        match self.case.asks:
            case "":
                await self.host.asked("waitForIdle")
            case "dialog":
                async with asyncio.timeout(30.0):
                    while not self.host.person.asked:
                        await asyncio.sleep(0.002)
            case _:
                await wait_for_note(self.begun)

    def ended(self) -> bool:
        """What was begun for it is over: the guest was told, or the dialog is closed."""
        match self.case.asks:
            case "":
                return True
            case "dialog":
                assert isinstance(self.host.person, SilentPerson)
                return self.host.person.closed == len(self.host.person.asked) == 1
            case method:
                [asked] = [one["id"] for one in read_messages(self.host.journal, method) if one["params"].get("name") != "host"]
                return [one["params"]["id"] for one in read_messages(self.host.journal, "$/cancelRequest")] == [asked]


@asynccontextmanager
async def open_pending_request(tmp_path: Path, case: Case, **limits: float) -> AsyncIterator[PendingRequest]:
    write_models(tmp_path, MODELS)
    begun, go = tmp_path / "begun", tmp_path / "go"
    hang = [note(begun), wait()]
    offers: dict[str, Any] = {
        "tools": {"slow": hang},
        "providers": {"acme-api": hang},
        "compactor": hang,
        "commands": {"begin": [ask(case.method, case.params, cancel_when=go)]},
    }
    model = Gated([reply("done")])
    async with open_client(tmp_path, offers=offers, person=SilentPerson(), answers=model, limits={**PATIENT, **limits}) as host:
        turn = None
        if case.method == "host/waitForIdle":  # there is something to wait for
            turn = asyncio.ensure_future(host.app.submit("go"))
            await model.began.get()
        yield PendingRequest(host, case, begun, go)
        model.go()
        if turn is not None:
            await turn


async def read_answer(host: ServiceClient) -> Json:
    """What the guest was answered in the end."""
    await host.app.submit("/begin")
    found = [json.loads(one.text) for one in host.person.actions if isinstance(one, Display)]
    [answer] = [one for one in found if "error" in one]
    assert isinstance(answer, dict)
    return answer


@pytest.mark.req("piglet.fix.07")
@by_name
async def test_what_a_guest_takes_back_is_ended_and_answered(tmp_path: Path, case: Case) -> None:
    async with open_pending_request(tmp_path, case) as at, asyncio.TaskGroup() as tasks:
        before = at.host.entries()
        answer = tasks.create_task(read_answer(at.host))
        await at.under_way()
        assert not answer.done()
        at.go.touch()
        assert await answer == {"error": {"code": -32603, "message": f"{case.doing} cancelled: context canceled"}}
        await at.host("extensionsDir")  # behind whatever the guest was told
        assert at.ended()
        assert at.host.entries() == before
        assert await at.host("lastAssistantText") == {"text": ""}  # the host goes on


@pytest.mark.req("piglet.rule.timeout-host-calls")
@pytest.mark.parametrize("case", [case for case in CASES if case.asks not in ("", "dialog")], ids=lambda case: case.method)
async def test_what_takes_too_long_is_ended_and_answered(tmp_path: Path, case: Case) -> None:
    assert (Limits().service, Limits().compact) == (300.0, 30.0)
    assert not {"service", "compact"} & set(LIMITS)  # piglet's are the same
    is_compact = case.method == "host/triggerCompact"
    async with open_pending_request(tmp_path, case, **({"compact": 0.3} if is_compact else {"service": 0.3})) as at:
        late = "context deadline exceeded"
        why = f"compact failed: {late}" if is_compact else f"{case.doing} cancelled: {late}"
        assert await read_answer(at.host) == {"error": {"code": -32603, "message": why}}
        await at.host("extensionsDir")
        if at.begun.exists():  # on a busy machine it may not have come so far
            assert at.ended()


@pytest.mark.req("piglet.rule.timeout-host-calls")
async def test_compaction_that_nobody_asked_for_is_given_up_too(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    offers = {"compactor": offer([note(begun), wait()], threshold=1)}
    limits = {**PATIENT, "compact": 0.3}
    async with open_client(tmp_path, offers=offers, answers=Answers([reply("Hello")]), limits=limits) as host:
        await host("setConversationMessages", messages=[{"type": "user", "data": {"content": "x"}}] * 8)
        await host.app.submit("hi")
        await wait_for_note(begun)
        [asked] = read_messages(host.journal, "compact/execute")
        async with asyncio.timeout(30.0):
            while not read_messages(host.journal, "$/cancelRequest"):
                await asyncio.sleep(0.002)
        assert [one["params"] for one in read_messages(host.journal, "$/cancelRequest")] == [{"id": asked["id"]}]
        assert len((await host("conversationMessages"))["messages"]) == 10
        assert not [entry for entry in host.entries() if entry["type"] == "compact"]
