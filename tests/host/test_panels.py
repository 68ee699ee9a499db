"""The one panel of the host: who may open, draw and close it, and where its keys go."""

from __future__ import annotations

import asyncio
import signal
from os import kill
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.zot import neutral
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.host.panels import KEYS, PanelSlot
from serai.model.actions import Action, ClosePanel, Notice, OpenPanel, Panel
from serai.model.contributions import Command, Contributions
from tests.support.host.fake_guests import Fake, open_fake_host
from tests.support.host.zot_guests import AwaitableSurface, Fifo, make, open_host, pid_of, read_frames, wait_for_state

# `/open ID` opens a panel; the tools draw or close one by its id. Every frame is remembered.
PAINTER = """
def paint(name, **first):
    hello(tool("heard " + name), tool("render " + name), tool("close " + name), command("open " + name))
    heard = []
    for frame in frames():
        heard.append(frame)
        if frame["type"] == "command_invoked":
            respond(frame["id"], "open_panel", open_panel={"id": frame.get("args", ""), **first})
        elif frame["type"] == "tool_call":
            kind = {"render": "panel_render", "close": "panel_close"}.get(frame["name"].split()[0])
            if kind:
                send(type=kind, **frame["args"])
            answer(frame["id"], json.dumps(heard))
"""


def write_painter(tmp_path: Path, name: str, first: str = "title='Title', lines=['one', 'two'], footer='foot'") -> Path:
    return make(tmp_path, f"{PAINTER}\npaint({name!r}, {first})", name=name)


async def panel_frames(host: Host, name: str) -> list[dict[str, Any]]:
    return [frame for frame in await read_frames(host, f"heard {name}") if frame["type"].startswith("panel")]


def build_panel(title: str = "Title", lines: tuple[str, ...] = ("one", "two"), footer: str = "foot", *, id: str = "p") -> Panel:
    return Panel(id, title, lines, footer, "zot:a")


@pytest.mark.req("zot.rule.4.6-one-slot", "zot.ours.4.6-displaced-told")
async def test_there_is_one_panel_and_whoever_is_displaced_is_told(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), write_painter(tmp_path, "b", ""), surface=window) as host:
        await host.run_command("open a", "p")
        assert window.actions == [OpenPanel(build_panel())]
        await host.run_command("open b", "q")
        assert window.actions[1:] == [OpenPanel(Panel("q", "b", owner="zot:b"))]  # an empty title shows the guest's name
        assert host.context.panels.open == Panel("q", "b", owner="zot:b")
        assert await panel_frames(host, "a") == [{"type": "panel_close", "panel_id": "p"}]
        host.context.panels.press("enter")
        assert await panel_frames(host, "a") == [{"type": "panel_close", "panel_id": "p"}]
        assert await panel_frames(host, "b") == [{"type": "panel_key", "panel_id": "q", "key": "enter"}]


@pytest.mark.req("zot.ours.4.6-displaced-told")
async def test_a_guest_that_opens_another_panel_is_told_of_its_first_and_not_when_it_opens_the_same(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        await host.run_command("open a", "p")
        await host.run_command("open a", "p")
        assert await panel_frames(host, "a") == []
        await host.run_command("open a", "q")
        assert await panel_frames(host, "a") == [{"type": "panel_close", "panel_id": "p"}]


@pytest.mark.req("zot.rule.4.6-one-slot")
async def test_a_render_opens_nothing(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), surface=window) as host:
        await host.call_tool("render a", {"panel_id": "p", "lines": ["x"]})
        assert host.context.panels.open is None
    assert window.actions == []


@pytest.mark.req("zot.edge.29")
async def test_a_render_without_title_keeps_it_and_without_lines_or_footer_removes_them(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), surface=window) as host:
        await host.run_command("open a", "p")
        await host.call_tool("render a", {"panel_id": "p", "lines": ["three"]})
        await host.call_tool("render a", {"panel_id": "p", "title": "New", "footer": "feet"})
        await host.call_tool("render a", {"panel_id": "p"})
    assert window.actions == [
        OpenPanel(build_panel()),
        OpenPanel(build_panel(lines=("three",), footer="")),
        OpenPanel(build_panel("New", (), "feet")),
        OpenPanel(build_panel("New", (), "")),
        ClosePanel(build_panel("New", (), "")),
    ]


@pytest.mark.req("zot.edge.30", "zot.rule.4.6-owner")
async def test_nobody_draws_or_closes_a_stale_panel_or_that_of_another(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), write_painter(tmp_path, "b"), surface=window) as host:
        await host.run_command("open a", "p")
        for tool, id in [("render a", "old"), ("close a", "old"), ("render b", "p"), ("close b", "p")]:
            await host.call_tool(tool, {"panel_id": id})
        assert host.context.panels.open == build_panel()
        assert window.actions == [OpenPanel(build_panel())]
        assert await panel_frames(host, "b") == []


@pytest.mark.req("zot.edge.31", "zot.rule.4.6-esc")
@pytest.mark.parametrize("key", ["esc", "ctrl+c"])
async def test_esc_and_ctrl_c_close_the_panel_and_never_reach_the_guest_as_keys(tmp_path: Path, key: str) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), surface=window) as host:
        await host.run_command("open a", "p")
        host.context.panels.press(key)
        assert host.context.panels.open is None
        assert window.actions[-1] == ClosePanel(build_panel())
        host.context.panels.press(key)  # nothing is open any more
        assert await panel_frames(host, "a") == [{"type": "panel_close", "panel_id": "p"}]


@pytest.mark.req("zot.edge.31", "zot.rule.4.6-esc")
async def test_our_esc_closes_the_panel_before_it_clears_the_notes(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        host.context.notify("info", "a note")
        await host.run_command("open a", "p")
        assert host.context.handle_escape()
        assert (host.context.panels.open, list(host.context.notes)) == (None, ["[serai] a note"])
        assert host.context.handle_escape()
        assert not host.context.notes


@pytest.mark.req("zot.edge.32")
async def test_a_guest_that_closes_its_own_panel_hears_no_echo(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), surface=window) as host:
        await host.run_command("open a", "p")
        await host.call_tool("close a", {"panel_id": "p"})
        assert host.context.panels.open is None
        assert window.actions[-1] == ClosePanel(build_panel())
        assert await panel_frames(host, "a") == []


@pytest.mark.req("zot.edge.33", "zot.ours.4.6-paste")
async def test_typed_and_pasted_text_arrives_as_one_key_for_each_character(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        await host.run_command("open a", "p")
        host.context.panels.press("rune", "é")
        host.context.panels.type("a 日🦊\r\nb\tc\x1b[A\x7f")
        host.context.panels.press("rune", "e\u0301")  # composed: two code points
        keys = [(frame["key"], frame.get("text")) for frame in await panel_frames(host, "a")]
    unknown = ("unknown", None)
    typed: list[tuple[str, str | None]] = [
        ("rune", "é"),
        ("rune", "a"),
        ("rune", " "),
        ("rune", "日"),
        ("rune", "🦊"),
        ("enter", None),
    ]
    typed += [("rune", "b"), ("tab", None), ("rune", "c"), unknown, ("rune", "["), ("rune", "A"), unknown]
    assert keys == [*typed, ("rune", "e"), ("rune", "\u0301")]


@pytest.mark.req("zot.ours.4.6-no-new-keys")
async def test_a_key_that_the_protocol_has_no_name_for_is_unknown(tmp_path: Path) -> None:
    assert frozenset(neutral.KEYS) == KEYS
    assert len(KEYS) == 14
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        await host.run_command("open a", "p")
        for key in ("up", "pagedown", "f1", "shift+tab", "ctrl+x", "Enter", ""):
            host.context.panels.press(key)
        frames = await panel_frames(host, "a")
    assert [frame["key"] for frame in frames] == ["up", "pagedown", "unknown", "unknown", "unknown", "unknown", "unknown"]
    assert not any("text" in frame for frame in frames)


class Listener:
    """A host with one guest, which notes its keys."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def find_running(self, guest: str) -> Listener:
        return self

    def show(self, action: object) -> None:
        pass

    def press(self, panel: str, key: str, text: str = "") -> None:
        self.keys.append((key, text))

    def close_panel(self, panel: str) -> None:
        pass


@pytest.mark.req("zot.ours.4.6-no-new-keys", "zot.edge.31")
@given(st.lists(st.one_of(st.text(), st.sampled_from(sorted(KEYS)))), st.text())
def test_whatever_is_pressed_or_pasted_guests_get_the_fourteen_names_and_single_characters(keys: list[str], text: str) -> None:
    harness = Listener()
    panels = PanelSlot(harness)  # type: ignore[arg-type]
    panels.show(Panel("p", owner="zot:a"))
    for key in keys:
        panels.press(key, text)
    panels.type(text)
    assert {key for key, _ in harness.keys} <= KEYS
    assert all((len(char) == 1 and char.isprintable() | (not char.isascii())) == (key == "rune") for key, char in harness.keys)


@pytest.mark.req("zot.ours.3.3-resize-sent")
async def test_the_size_is_told_for_the_open_panel_only_when_it_opens_and_when_it_changes(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        host.context.panels.resize(80, 24)  # nothing is open
        await host.run_command("open a", "p")
        host.context.panels.resize(100, 30)
        host.context.panels.press("esc")
        host.context.panels.resize(50, 10)
        frames = await panel_frames(host, "a")
    size = {"type": "panel_resize", "panel_id": "p"}
    assert frames == [
        {**size, "width": 80, "height": 24},
        {**size, "width": 100, "height": 30},
        {"type": "panel_close", "panel_id": "p"},
    ]


@pytest.mark.req("zot.ours.3.3-resize-sent")
async def test_no_size_is_told_before_it_is_known(tmp_path: Path) -> None:
    async with open_host(tmp_path, write_painter(tmp_path, "a")) as host:
        await host.run_command("open a", "p")
        assert await panel_frames(host, "a") == []


@pytest.mark.req("zot.ours.4.6-crash-closes")
async def test_the_panel_of_a_guest_that_crashes_is_closed(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write_painter(tmp_path, "a"), surface=window) as host:
        await host.run_command("open a", "p")
        kill(pid_of(host, "a"), signal.SIGKILL)
        await window.shown(lambda action: isinstance(action, ClosePanel))
        assert host.context.panels.open is None
        await wait_for_state(host, "a", GuestState.READY)
        host.context.panels.press("enter")
        assert await panel_frames(host, "a") == []


@pytest.mark.req("zot.ours.4.6-crash-closes")
async def test_a_guest_that_dies_with_its_answer_opens_no_panel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Dying(Fake):
        async def run_command(self, name: str, args: str) -> Action:
            self.die()
            return OpenPanel(Panel("p", owner="fake:dying"))

    window = AwaitableSurface()
    fake = Dying("dying", Contributions(commands=(Command("open"),)))
    async with open_fake_host(monkeypatch, tmp_path, fake, surface=window) as host:
        await host.run_command("open")
        assert host.context.panels.open is None
    assert not any(isinstance(action, OpenPanel) for action in window.actions)


@pytest.mark.req("zot.ours.4.6-reload-closes")
@pytest.mark.parametrize("exclusive", [False, True])
async def test_the_panel_of_a_guest_that_is_reloaded_is_closed_and_its_keys_go_nowhere(tmp_path: Path, exclusive: bool) -> None:
    window = AwaitableSurface()
    folder = write_painter(tmp_path, "a")
    (folder / "guest.toml").write_text(f"exclusive = {str(exclusive).lower()}")
    async with open_host(tmp_path, folder, surface=window) as host:
        await host.run_command("open a", "p")
        before = pid_of(host, "a")
        await host.reload("a")
        assert pid_of(host, "a") != before
        assert host.context.panels.open is None
        assert [action for action in window.actions if not isinstance(action, Notice)][-1] == ClosePanel(build_panel())
        host.context.panels.press("enter")
        host.context.panels.resize(1, 1)
        assert await panel_frames(host, "a") == []


@pytest.mark.req("zot.ours.4.6-reload-closes")
async def test_a_panel_that_the_replaced_process_asks_for_does_not_open(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        body = f"""
hello(command("open"), tool("heard"))
heard = []
for frame in frames():
    heard.append(frame)
    if frame["type"] == "command_invoked":
        send(type="notify", level="info", message="asked")
        wait({str(latch.path)!r})
        respond(frame["id"], "open_panel", open_panel={{"id": "p"}})
    elif frame["type"] == "tool_call":
        answer(frame["id"], json.dumps(heard))
"""
        window = AwaitableSurface()
        async with open_host(tmp_path, make(tmp_path, body), surface=window) as host:
            command = asyncio.create_task(host.run_command("open"))
            await window.shown(lambda action: action == Notice("asked", "info", "probe"))
            await host.reload("probe")
            latch.lift()
            await command
            assert host.context.panels.open is None
            host.context.panels.press("enter")
            assert [frame["type"] for frame in await read_frames(host)] == ["hello_ack", "tool_call"]


async def test_what_follows_the_answer_that_opens_a_panel_finds_it_open(tmp_path: Path) -> None:
    """A guest says it all in one breath: open, draw, close, and a word at the end."""
    body = """
hello(command("open"))
for frame in frames():
    if frame["type"] == "command_invoked":
        more = [{"type": "panel_render", "panel_id": "p", "lines": ["drawn"]}]
        more += [{"type": "panel_close", "panel_id": "p"}] if frame.get("args") else []
        more += [{"type": "notify", "level": "info", "message": "later"}]
        panel = {"id": "p", "lines": ["loading"]}
        first = {"type": "command_response", "id": frame["id"], "action": "open_panel", "open_panel": panel}
        raw("".join(json.dumps(one) + "\\n" for one in [first, *more]).encode())
"""
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, body), surface=window) as host:
        await host.run_command("open")
        await window.shown(lambda action: isinstance(action, Notice))
        assert [panel.lines for panel in (host.context.panels.open,) if panel] == [("drawn",)]
        await host.run_command("open", "close")
        assert host.context.panels.open is None
        assert [type(action) for action in window.actions][-3:] == [OpenPanel, ClosePanel, Notice]
