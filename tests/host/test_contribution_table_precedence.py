"""Who has a name that several guests want, and who is asked then (design rule 10, spec piglet FIX-1 and FIX-11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from serai.errors import ModelFailed, NoCommand, Refused
from serai.model.actions import Action, NoAction, Notice, SubmitPrompt
from serai.model.contributions import Command, Compactor, Contributions, Provider, Shortcut
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelRequest
from serai.model.tools import TextBlock, ToolSpec
from tests.support.host.fake_guests import Fake, open_fake_host
from tests.support.host.zot_guests import AwaitableSurface

REQUEST = ModelRequest(Model("m", api="acme"), (ModelMessage("user", (TextBlock("hi"),)),))


class Keen(Fake):
    """Offers everything that has a name, under the same name as all others."""

    def __init__(self, name: str, **more: object) -> None:
        offers = Contributions(
            tools=(ToolSpec("same", name),),
            commands=(Command("same", name),),
            shortcuts=(Shortcut("ctrl+g", name),),
            providers=(Provider("acme"),),
            compactors=(Compactor(name),),
        )
        super().__init__(name, offers, **more)  # type: ignore[arg-type]
        self.keys: list[str] = []
        self.fails = ""
        self.closed = False

    async def run_shortcut(self, key: str) -> Action:
        self.keys.append(key)
        if self.fails:
            raise Refused(self.fails, who=f"fake:{self.name}")
        return SubmitPrompt(f"{self.name} was pressed")

    async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return (ModelMessage("user", (TextBlock(self.name),)),)

    async def stream(self, api: str, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        try:
            yield Chunk(f"{self.name} streams {request.model.id} of {api}")
            yield Completion(ModelMessage("assistant"))
        finally:
            self.closed = True


async def owner(host: object) -> set[str]:
    """Who has all those names: one for all, or the test has failed."""
    table = host.table  # type: ignore[attr-defined]
    assert table.compactor is not None
    return {
        table.tools["same"].owner.id,
        table.commands["same"][0].id,
        table.shortcuts["ctrl+g"][0].id,
        table.providers["acme"].id,
        table.compactor[0].id,
    }


@pytest.mark.parametrize(
    ("last_wins", "winner"),
    [((), "a"), (("a", "b", "c"), "c"), (("a", "c"), "c"), (("b", "c"), "a"), (("c",), "a")],
    ids=["first", "last", "last among others", "only among themselves", "alone"],
)
async def test_of_one_scope_the_first_has_a_name_or_the_last_where_the_protocol_has_it_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last_wins: tuple[str, ...], winner: str
) -> None:
    async with open_fake_host(monkeypatch, tmp_path, Keen("a"), Keen("b"), Keen("c"), last_wins=last_wins) as host:
        assert await owner(host) == {f"fake:{winner}"}
        others = {entry.guest for entry in host.table.shadowed}
        assert others == {f"fake:{name}" for name in {"a", "b", "c"} - {winner}}
        for name in {"a", "b", "c"} - {winner}:
            told = {entry.what: entry.by for entry in host.table.shadowed if entry.guest == f"fake:{name}"}
            assert told == dict.fromkeys(("tool", "command", "shortcut", "provider", "compactor"), f"fake:{winner}")


async def test_an_earlier_scope_has_a_name_before_a_later_one_whatever_the_protocol(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guests = Keen("p1", scope="project"), Keen("p2", scope="project"), Keen("u1", scope="user"), Keen("u2", scope="user")
    async with open_fake_host(monkeypatch, tmp_path, *guests, last_wins=("p1", "p2", "u1", "u2")) as host:
        assert await owner(host) == {"fake:p2"}
        for stopped, next in (("p2", "p1"), ("p1", "u2"), ("u2", "u1")):
            await host.guest(stopped).stop()
            assert await owner(host) == {f"fake:{next}"}


async def test_who_is_down_keeps_its_names_and_who_is_stopped_gives_them_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    early, late = Keen("early"), Keen("late")
    async with open_fake_host(monkeypatch, tmp_path, early, late, last_wins=("early", "late")) as host:
        provider = host.provider("acme")
        assert provider is not None
        assert [chunk.text async for chunk in provider.stream(REQUEST) if isinstance(chunk, Chunk)] == ["late streams m of acme"]
        late.die()
        assert await owner(host) == {"fake:late"}
        assert (await host.call_tool("same")).code == "TOOL_UNAVAILABLE"
        assert (await host.run_shortcut("ctrl+g")).code == "COMMAND_UNAVAILABLE"
        assert (await host.texts.compact(()), host.texts.compactor) == ((), Compactor("late"))
        with pytest.raises(ModelFailed, match="fake:late is backing off: ended") as raised:
            _ = [piece async for piece in provider.stream(REQUEST)]
        assert raised.value.temporary
        await host.guest("late").stop()
        assert await owner(host) == {"fake:early"}
        assert [message.content for message in await host.texts.compact(())] == [(TextBlock("early"),)]
        assert [chunk.text async for chunk in provider.stream(REQUEST) if isinstance(chunk, Chunk)] == ["early streams m of acme"]
        await host.guest("early").stop()
        with pytest.raises(ModelFailed, match="no guest streams models of the API acme any more"):
            _ = [piece async for piece in provider.stream(REQUEST)]
        assert (host.provider("acme"), list(host.shortcuts), host.texts.compactor) == (None, [], None)


async def test_a_stream_that_nobody_reads_to_its_end_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    guest = Keen("a")
    async with open_fake_host(monkeypatch, tmp_path, guest) as host:
        provider = host.provider("acme")
        assert provider is not None
        assert await provider.models() == ()
        stream = provider.stream(REQUEST)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert guest.closed


# -- shortcuts --------------------------------------------------------------------------------------------------------------------


async def test_a_pressed_key_reaches_its_guest_and_what_it_wants_is_the_callers_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guest = Keen("a")
    async with open_fake_host(monkeypatch, tmp_path, guest) as host:
        assert host.shortcuts == [Shortcut("ctrl+g", "a")]
        assert (await host.run_shortcut("ctrl+g")).action == SubmitPrompt("a was pressed")
        with pytest.raises(NoCommand, match="no guest has the shortcut ctrl\\+x"):
            await host.run_shortcut("ctrl+x")
    assert guest.keys == ["ctrl+g"]


async def test_a_shortcut_that_fails_is_told_to_the_person_and_to_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guest, window = Keen("a"), AwaitableSurface()
    guest.fails = "it has no idea"
    async with open_fake_host(monkeypatch, tmp_path, guest, surface=window) as host:
        outcome = await host.run_shortcut("ctrl+g")
        text = "ext a shortcut ctrl+g: it has no idea"
        assert (outcome.action, outcome.error, outcome.code) == (NoAction(), text, "REFUSED")
        assert window.actions == [Notice(text, "error", "serai")]


async def test_no_shortcut_runs_while_a_guard_is_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    guest, window = Keen("a"), AwaitableSurface()
    async with open_fake_host(monkeypatch, tmp_path, guest, Fake("gate", Contributions(), guard=True), surface=window) as host:
        outcome = await host.run_shortcut("ctrl+g")
        assert outcome.code == "BLOCKED"
        assert window.actions == [Notice(outcome.error, "error", "serai")]
    assert guest.keys == []
