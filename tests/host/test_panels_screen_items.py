"""What guests put on the surface to stay goes with the process that put it there (spec piglet 8.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.host.panels import ScreenItems
from serai.model.actions import Action, CloseOverlay, Notice, Overlay, SetStatus, SetWidget, ShowOverlay
from serai.model.contributions import Contributions
from tests.support.host.fake_guests import Fake, open_fake_host
from tests.support.host.zot_guests import AwaitableSurface

SHOWN: tuple[Action, ...] = (
    SetWidget("w", "below-status", "7 degrees"),
    SetStatus("s", "3 calls"),
    ShowOverlay(Overlay("o", content="map")),
)
GONE: list[Action] = [SetWidget("w", "below-status", ""), SetStatus("s", ""), CloseOverlay("o")]


def act(guest: Fake, *actions: Action) -> None:
    assert guest.taking is not None
    for action in actions:
        guest.taking.listener.on_action(action)


@pytest.mark.parametrize("end", ["crash", "stop", "reload"])
async def test_it_is_taken_away_when_its_guest_stops_crashes_or_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str
) -> None:
    guest, window = Fake("a", Contributions()), AwaitableSurface()
    async with open_fake_host(monkeypatch, tmp_path, guest, surface=window) as host:
        act(guest, *SHOWN, Notice("hello"))
        assert window.actions == [*SHOWN, Notice("hello")]
        window.actions.clear()
        if end == "crash":
            guest.die()
        elif end == "stop":
            await host.guest("a").stop()
        else:
            await host.reload()
        assert [action for action in window.actions if not isinstance(action, Notice)] == GONE
        window.actions.clear()
    assert window.actions == []  # once


async def test_what_the_new_process_shows_before_it_takes_over_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Early(Fake):
        """Shows itself while it starts."""

        def greet(self) -> None:
            act(self, SetStatus("s", "here"))

    guest, window = Early("a", Contributions()), AwaitableSurface()
    async with open_fake_host(monkeypatch, tmp_path, guest, surface=window) as host:
        act(guest, SetStatus("s", "old"), SetWidget("w", "above-input", "old"))
        old = host.guest("a").run
        launch = host.guest("a")._launch

        async def launched(manifest: object) -> object:
            run = await launch(manifest)  # type: ignore[arg-type]
            guest.greet()
            return run

        monkeypatch.setattr(host.guest("a"), "_launch", launched)
        await host.reload()
        assert host.guest("a").run is not old
        assert window.actions[-2:] == [SetStatus("s", "here"), SetWidget("w", "above-input", "")]


async def test_a_key_that_another_guest_has_set_since_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, other, window = Fake("one", Contributions()), Fake("other", Contributions()), AwaitableSurface()
    async with open_fake_host(monkeypatch, tmp_path, one, other, surface=window) as host:
        act(one, *SHOWN)
        act(other, SetStatus("s", "mine"))
        window.actions.clear()
        await host.guest("one").stop()
        assert window.actions == [GONE[0], GONE[2]]
        window.actions.clear()
        await host.guest("other").stop()
        assert window.actions == [GONE[1]]


def test_what_was_taken_away_already_is_not_taken_away_again() -> None:
    told: list[Action] = []
    screen, owner = ScreenItems(told.append), object()
    for action in (*SHOWN, *GONE):
        screen.record(owner, action)
    screen.clear(owner)
    assert told == []


def test_of_more_than_anybody_looks_at_the_oldest_goes() -> None:
    told: list[Action] = []
    screen, owner, other = ScreenItems(told.append), object(), object()
    screen.record(other, SetStatus("theirs", "x"))
    for number in range(202):
        screen.record(owner, SetStatus(f"{number}", "x"))
    assert told == [SetStatus("0", ""), SetStatus("1", "")]
    screen.clear(owner)
    assert len(told) == 202
