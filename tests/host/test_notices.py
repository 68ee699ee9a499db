"""Notes: what guests want a person to see, before and after there is somebody to see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serai.host.guest_manifest import GuestManifest
from serai.host.panels import fit_action
from serai.model.actions import Action, Display, NoAction, Notice, Overlay, SetStatus, SetWidget, ShowOverlay
from serai.model.surface import ScriptedSurface
from tests.support.host.zot_guests import AwaitableSurface, make, open_host, read_frames

TALKER = """
hello(tool("heard"), command("show"), ready=False)
send(type="notify", level="warn", message="before ready")
send(type="ready")
for frame in frames():
    if frame["type"] == "tool_call":
        for level, message in frame["args"].get("say", []):
            send(type="notify", level=level, message=message)
        answer(frame["id"], "[]")
    elif frame["type"] == "command_invoked":
        respond(frame["id"], "display", display=frame.get("args", ""))
"""


@pytest.mark.req("zot.ours.2.2-notes-buffered", "zot.edge.06")
async def test_what_was_said_before_a_surface_was_there_is_shown_once_it_is(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, TALKER)) as host:
        await host.call_tool("heard", {"say": [["info", "after ready"]]})
        window = AwaitableSurface()
        host.attach(window)
        assert window.actions == [Notice("before ready", "warn", "probe"), Notice("after ready", "info", "probe")]
        await host.call_tool("heard", {"say": [["success", "now"]]})
        assert window.actions[2:] == [Notice("now", "success", "probe")]
        again = AwaitableSurface()
        host.attach(again)
        assert again.actions == []


async def test_levels_that_are_none_are_shown_like_info_and_empty_notes_not_at_all(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, TALKER), surface=window) as host:
        await host.call_tool("heard", {"say": [["error", "bad"], ["loud", "odd"], ["", "nothing"], ["info", ""]]})
        await host.run_command("show", "")
    assert window.actions[1:] == [
        Notice("bad", "error", "probe"),
        Notice("odd", "info", "probe"),
        Notice("nothing", "info", "probe"),
    ]


@pytest.mark.req("zot.edge.24", "zot.edge.28")
async def test_notes_are_lines_with_the_guests_name_and_last_until_esc_clears_them(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, TALKER, name="weather")) as host:
        await host.run_command("show", "sun\nrain")
        await host.call_tool("heard", {"say": [["info", "one\ntwo"]]})
        assert list(host.context.notes) == [
            "[weather] before ready",
            "[weather] sun",
            "[weather] rain",
            "[weather] one",
            "[weather] two",
        ]
        assert host.context.handle_escape()
        assert list(host.context.notes) == []
        assert not host.context.handle_escape()  # the next Esc is for whoever runs


@pytest.mark.req("app.printing.progress")
async def test_no_guest_speaks_as_serai(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, TALKER, name="serai"), surface=window) as host:
        await host.run_command("show", "log in again")
        assert window.actions == [Notice("before ready", "warn", "zot:serai"), Display("log in again", "zot:serai")]
        assert list(host.context.notes) == ["[zot:serai] before ready", "[zot:serai] log in again"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("weather", "weather"),
        ("My weather_2.0-b", "My weather_2.0-b"),
        ("Serai", "zot:Serai"),
        ("5er4i", "zot:5er4i"),
        ("s-e-r-a-l", "zot:s-e-r-a-l"),
        ("the serai team", "zot:the serai team"),
        ("s\u0435rai", "zot:s\u0435rai"),  # with a letter of another script
        ("serai\u200b", "zot:serai\\u200b"),
        ("x] error: [y", "zot:x] error: [y"),
        (" x", "zot: x"),
        ("a\n[serai] b", "zot:a\\n[serai] b"),  # on one line: the next would be another's
        ("y" * 500, f"zot:{'y' * 76}…"),
    ],
)
def test_a_name_that_could_pass_for_another_is_shown_as_an_id(tmp_path: Path, name: str, shown: str) -> None:
    file = tmp_path / "extension.json"
    assert GuestManifest(dialect="zot", name=name, folder=tmp_path, file=file, scope="user", argv=("x",)).shown == shown


async def test_of_an_endless_notice_the_beginning_is_shown(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, TALKER), surface=window) as host:
        await host.call_tool("heard", {"say": [["info", "x" * 1_000_000]]})
    assert window.actions[1:] == [Notice("x" * 16384 + "…", "info", "probe")]


async def test_of_endless_texts_the_beginning_is_shown_and_the_newest_are_kept(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, TALKER)) as host:
        for letter in "abcdefghij":
            host.context.act(Display(letter * 3_000_000, "probe"))
        host.context.act(SetWidget("k", "above-input", "w" * 3_000_000))
        notes = list(host.context.notes)
        assert [note[8:10] for note in notes] == ["dd", "ee", "ff", "gg", "hh", "ii", "jj"]
        assert {len(note) for note in notes} == {len("[probe] ") + 1024 * 1024 + 1}
        window = AwaitableSurface()
        host.attach(window)
        assert [one.text for one in window.actions if isinstance(one, Display)] == [
            letter * 1024 * 1024 + "…" for letter in "defghij"
        ]  # the widget, of which the beginning is kept too, takes the place of none
        host.context.act(Notice("and on", "info", "probe"))
        assert list(host.context.notes)[-2:] == [notes[-1], "[probe] and on"]
        assert host.context.handle_escape()
        host.context.act(Notice("\n".join(map(str, range(2000))), "info", "probe"))
        assert [next(iter(host.context.notes)), len(host.context.notes)] == ["[probe] 1000", 1000]


@pytest.mark.req("zot.edge.28")
async def test_notes_are_no_part_of_the_session(tmp_path: Path) -> None:
    window = AwaitableSurface()
    watcher = make(tmp_path, "remember(subscribe(events=['assistant_message', 'turn_start']))", name="watcher")
    talker = make(tmp_path, TALKER.replace('tool("heard"), ', ""))
    async with open_host(tmp_path, talker, watcher, surface=window) as host:
        await host.run_command("show", "only for the eyes")
        assert window.events == []
        assert "only for the eyes" not in json.dumps(await read_frames(host))


async def test_a_surface_that_fails_does_not_reach_the_guest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedSurface):
        def act(self, action: Action) -> None:
            raise RuntimeError("the screen is gone")

    async with open_host(tmp_path, make(tmp_path, TALKER), surface=Broken()) as host:
        assert (await host.call_tool("heard", {"say": [["info", "x"]]})).text == "[]"
    assert [record.message for record in caplog.records].count("the surface failed on Notice") == 2


@pytest.mark.req("zot.edge.34")
async def test_what_a_guest_says_on_its_way_out_is_heard(tmp_path: Path) -> None:
    body = """
hello()
for frame in frames(): pass
send(type="notify", level="warn", message="the file could not be saved")
"""
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, body), surface=window):
        pass
    assert window.actions == [Notice("the file could not be saved", "warn", "probe")]


def test_what_stays_on_the_surface_is_no_longer_than_it_can_be_seen() -> None:
    long = "x" * 100_000
    assert (
        fit_action(SetWidget(long, "above-input", "a"))
        == fit_action(ShowOverlay(Overlay(long)))
        == fit_action(SetStatus(long, "a"))
        == NoAction()
    )
    widget, status = fit_action(SetWidget("k", "above-input", long)), fit_action(SetStatus("k", long))
    overlay = fit_action(ShowOverlay(Overlay("k", long, long)))
    assert isinstance(widget, SetWidget)
    assert isinstance(status, SetStatus)
    assert isinstance(overlay, ShowOverlay)
    assert len(widget.content) == len(status.text) == len(overlay.overlay.content) == 65537
    assert fit_action(SetWidget("k", "above-input", "a")) == SetWidget("k", "above-input", "a")
