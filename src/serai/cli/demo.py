"""`serai demo`: one run of the whole house, told as a story. Offline, in seconds, leaves nothing behind.

Every line is printed from what really happened: events, decisions, files, processes, the recording.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from serai.cli import timeline
from serai.cli.demo_boxes import boxes
from serai.cli.demo_claude import claude
from serai.cli.demo_guests import guests
from serai.cli.demo_plugins import plugins
from serai.cli.plain import printable
from serai.record import Recorder, Recording, RecordingFolder
from serai.record.recording import TimelineItem
from serai.wire import event_loop, process_tree

__all__ = ["Stage", "demo"]

COLUMNS = 110
# What a child needs of the person's environment; nothing of it is theirs alone.
KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


class Shown(NamedTuple):
    """What is shown of an act's recording: so many items of these kinds on these wires, and the answers to them."""

    act: str
    wires: str
    kinds: tuple[str, ...]
    most: int


SHOWN = (
    Shown("rewritten", "zot:", ("event_intercept:tool_call", "tool_call"), 2),
    Shown("neighbours", "piglet:", ("interceptor/before",), 1),
    Shown("killed", "zot:guard", ("end", "open"), 2),
    Shown("plugin", "yoi:", ("host",), 2),
    Shown("claude", "claude", ("control_request:can_use_tool",), 1),
    Shown("box", "hook:token", ("object",), 2),
)


class Stage:
    """Where the acts play: a folder of their own with a home and a project in it, a recorder, and a printer."""

    def __init__(self, recorder: Recorder, place: Path, *, color: bool | None) -> None:
        self.recorder = recorder
        self.place = place
        self.project = place / "project"
        self.project.mkdir()
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])  # its python3 is ours
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environ = {**kept, "PATH": path, "HOME": str(place), "SERAI_HOME": str(place / "home")}
        self.guests: list[Path] = []  # the folders of those that take part
        self.tags: list[str] = []  # of the processes that are started
        self.began: dict[str, int] = {}  # each act, in microseconds since 1970
        self._color = color
        self._lost: OSError | None = None

    def begin(self, act: str, title: str) -> None:
        """A new act, unless nobody reads any more: the one place where that is raised, for a surface must not."""
        if self._lost is not None:
            raise self._lost
        self.began[act] = time.time_ns() // 1000
        self.write("\n" + click.style(f"{len(self.began)}  {title}", bold=True))

    def say(self, who: str, text: str, **style: Any) -> None:
        """Who said or did what, on one line."""
        line, room = printable(" ".join(text.split())), COLUMNS - 12
        line = line if len(line) <= room else line[: room - 1] + "…"
        self.write(click.style(f"   {who:<8} ", dim=True) + click.style(line, **style))

    def write(self, text: str) -> None:
        try:
            click.echo(text, color=self._color)
        except OSError as error:
            self._lost = error


@click.command()
@click.option("--color/--no-color", default=None, help="Colours; by default when the output is a terminal and NO_COLOR is not set.")
def demo(*, color: bool | None) -> None:
    """Tell one run of Serai as a story, with real child processes.

    A story in twelve short acts: a run with zot and piglet extensions, one of them a guard; what is allowed by a rule, asked,
    blocked and rewritten, across protocols too; the guard is killed; the conversation goes on; a WASM plugin wants a file outside
    of its grant; the guard over Claude Code; a box with a hook; and what is on record of all that.
    """
    with tempfile.TemporaryDirectory(prefix="serai-demo-") as name:
        place = Path(name).resolve()
        folder = RecordingFolder(place / "recordings")
        with Recorder(folder, command="serai demo") as recorder:
            stage = Stage(recorder, place, color=color)
            about = "One run of Serai, as it happens. The model is a parrot, who does what a script in the prompt says."
            stage.write(click.style(about, bold=True))
            event_loop.run(_play(stage))
        with Recording.open("", folder) as recording:
            _what_is_on_record(stage, recording)
    left = sum(any(process.carries(tag) for tag in stage.tags) for process in process_tree.scan_processes().values())
    gone = f"still there: {place}" if place.exists() else "removed, with the recording"
    stage.write("\n" + click.style(f"Processes of this story that are left: {left}. Its folder is {gone}.", bold=True))


async def _play(stage: Stage) -> None:
    await guests(stage)
    await plugins(stage)
    await claude(stage)
    await boxes(stage)


def _what_is_on_record(stage: Stage, recording: Recording) -> None:
    stage.begin("record", f"What is on record: {timeline.summary(recording)}")
    for item in _chosen(stage, recording):
        if item.what == "frame":
            took = f" after {item.latency / 1000:.1f} ms" if item.latency is not None and item.request is not None else ""
            head, rest = f"{'→' if item.way == 'sent' else '←'} {item.type}{took} ", timeline.shown(item.raw.strip(), 10 * COLUMNS)
        else:
            head, rest = f"· {item.what}: ", timeline.shown(item.text)
        head = f"   {timeline.moment(item.at)}  {recording.wires[item.wire].who:<14} {head}"
        room = COLUMNS - len(head)
        rest = rest if len(rest) <= room else "…" + rest[1 - room :]  # what a frame is about is at its end
        stage.write(head + click.style(rest, dim=True))


def _chosen(stage: Stage, recording: Recording) -> Iterator[TimelineItem]:
    """Some lines of the timeline; all of them would fill pages."""
    left = {shown: shown.most for shown in SHOWN}
    asked: set[int] = set()
    for item in recording.timeline():
        act = next((act for act, began in reversed(stage.began.items()) if began <= item.at), "")
        kind = item.type or item.what
        for shown in SHOWN:
            fits = act == shown.act and kind in shown.kinds and recording.wires[item.wire].who.startswith(shown.wires)
            if fits and left[shown]:
                left[shown] -= 1
                asked.add(item.number)
                yield item
        if item.request in asked:
            yield item
