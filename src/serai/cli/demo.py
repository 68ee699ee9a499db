"""`serai demo`: one run of the whole system in parts. Offline, in seconds, leaves nothing behind.

Every line is printed from what really happened: events, decisions, files, processes, the recording. Here are the part with a box
(a hook mints a token for it, a command runs in it, the token is revoked with it) and the part with a WASM plugin (it reads a note
in the folder that it was granted, and nothing outside of it).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click

from serai.app.app import App
from serai.boxes import Boxes, Hook
from serai.cli import record
from serai.cli.demo_agents import LIMITS, DemoSurface, play_claude, play_guests
from serai.errors import HookFailed, MachineError
from serai.model.tools import ToolCall, ToolResult
from serai.paths import examples_folder
from serai.plain_text import escape_line
from serai.record import Recorder, Recording, RecordingFolder
from serai.record.recording import TimelineItem
from serai.wire import event_loop, process_tree

COMMAND = """
echo "$(hostname), uid $(id -u); in sight: $(ls -A /home | wc -l) homes, $(ls /proc | grep -c "^[0-9]") processes," \
  "network $(sed -n 's/: .*//p' /proc/net/dev | xargs); $(stat -c 'its token has mode %a and %s bytes' /root/.config/token)"
"""


async def play_boxes(context: DemoContext) -> None:
    context.begin("box", "A box, with a hook at its birth and death")
    tokens = context.place / "tokens"
    tokens.mkdir()
    async with Boxes(str(context.place / "boxes"), recorder=context.recorder) as manager:
        context.tags.append(manager.spawner.tag)
        if missing := manager.backend("namespaces").missing:
            context.say("machine", f"no boxes here: {missing}", fg="yellow")
            return
        try:
            await _create_and_destroy(context, manager, tokens)
        except MachineError as error:  # it says no later than usual
            context.say("machine", f"no box here: {error}", fg="yellow")


async def _create_and_destroy(context: DemoContext, manager: Boxes, tokens: Path) -> None:
    def describe_tokens() -> str:
        return f"tokens at its server: {len(os.listdir(tokens))}"

    hook = Hook(
        str(examples_folder("hooks") / "token_sdk.py"), "token", {"TOKENS_DIR": str(tokens), "PATH": context.environ["PATH"]}
    )
    async with manager.box("demo", hooks=[hook]) as box:
        context.say(hook.name, f"the hook has done its work for the box {box.id}; {describe_tokens()}")
        result = await box.exec(COMMAND)
        context.say("box", result.text or result.stderr.decode(errors="replace"), fg="green" if result.exit_code == 0 else "red")
    context.say(hook.name, f"the box is destroyed; {describe_tokens()}")
    failing = context.place / "fails"
    failing.write_text("#!/bin/sh\necho the licence server is down >&2; exit 3\n")
    failing.chmod(0o755)
    try:
        await manager.create("second", hooks=[hook, Hook(str(failing), "licence")])
    except HookFailed as error:
        context.say("licence", f"no second box: {error.message}; {describe_tokens()}", fg="red")


RULES = """
rule = [{ id = "notes", decide = "allow", tool = "wat_count", because = "to count lines is harmless" }]
"""


class _DemoSurface(DemoSurface):
    def show_end(self, call: ToolCall, result: ToolResult) -> None:
        """Why it failed, without the words before that: which tool it was stands above."""
        text = result.text.partition(" failed closed: ")[2]
        if text:
            self.context.say("notes", f"is ended: {text}", fg="red")
        else:
            super().show_end(call, result)


async def play_plugins(context: DemoContext) -> None:
    context.begin("plugin", "A WASM plugin may read in the folder that it was granted, and nowhere else")
    if find_spec("wasmtime") is None:
        context.say("serai", "wasmtime is not installed, so there is no plugin: pip install 'serai[wasm]'", fg="yellow")
        return
    folder = context.project / "shelf"
    folder.mkdir()
    (folder / "list.txt").write_text("one two\nthree\n")
    (context.project / "secret.txt").write_text("nobody knows\n")
    (context.place / "notes.toml").write_text(RULES)
    plugin = context.place / "notes"
    surface = _DemoSurface(context)
    _grant(context, plugin, folder)
    async with App(
        cwd=context.project, model="parrot", guests=[examples_folder() / "guard-python", plugin], installed=False, surface=surface,
        policy=context.place / "notes.toml", record=context.recorder, environ=context.environ, limits=LIMITS,
    ) as app:  # fmt: skip
        surface.attach(app)
        [row] = [row for row in app.host.report.guests if row.id == "yoi:notes-wat"]
        context.say("notes", f"is {row.state} after {row.seconds * 1000:.0f} ms in a process that can do nothing else")
        await surface.submit('How long is the list?\n>> call wat_count {"path": "list.txt"}')
        await surface.submit('And the file above it?\n>> call wat_count {"path": "../secret.txt"}')
        await surface.submit('What of this one?\n>> call wat_count {"path": "rm -rf /"}')


def _grant(context: DemoContext, plugin: Path, folder: Path) -> None:
    """What `serai guest build` and `serai guest grant --fs` do, for a home that is gone when the story ends."""
    from serai.authoring.component import assemble
    from serai.plugins import grants
    from serai.plugins.bounds import DEFAULT
    from serai.plugins.grants import FsGrant
    from serai.plugins.grants_file import FILE, GrantsFile
    from serai.plugins.package_store import read_package

    shutil.copytree(examples_folder("yoi") / "wat", plugin)
    (plugin / "plugin.component.wasm").write_bytes(assemble((plugin / "extension.wat").read_text()))
    package = read_package(plugin, DEFAULT)
    granted = grants.propose_enablement(package, "user", fs=(FsGrant(root=str(folder), operations=("read",)),))
    GrantsFile(Path(context.environ["SERAI_HOME"]) / FILE).put(granted)
    labels = ", ".join(permission.label for permission in package.manifest.permissions)
    context.say("person", f"grants {granted.id} {labels}")
    context.say("person", f"and to read in {folder.name}/, pinned to {granted.digest[:19]}…")


COLUMNS = 110
# What a child needs of the person's environment; nothing of it is theirs alone.
KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


class Excerpt(NamedTuple):
    """What is shown of an act's recording: so many items of these kinds on these wires, and the answers to them."""

    act: str
    wires: str
    kinds: tuple[str, ...]
    most: int


SHOWN = (
    Excerpt("rewritten", "zot:", ("event_intercept:tool_call", "tool_call"), 2),
    Excerpt("neighbours", "piglet:", ("interceptor/before",), 1),
    Excerpt("killed", "zot:guard", ("end", "open"), 2),
    Excerpt("plugin", "yoi:", ("host",), 2),
    Excerpt("claude", "claude", ("control_request:can_use_tool",), 1),
    Excerpt("box", "hook:token", ("object",), 2),
)


class DemoContext:
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
        line, room = escape_line(" ".join(text.split())), COLUMNS - 12
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
            context = DemoContext(recorder, place, color=color)
            about = "One run of Serai, as it happens. The model is a parrot, who does what a script in the prompt says."
            context.write(click.style(about, bold=True))
            event_loop.run(_play(context))
        with Recording.open("", folder) as recording:
            _show_recording(context, recording)
    left = sum(any(process.carries(tag) for tag in context.tags) for process in process_tree.scan_processes().values())
    gone = f"still there: {place}" if place.exists() else "removed, with the recording"
    context.write("\n" + click.style(f"Processes of this story that are left: {left}. Its folder is {gone}.", bold=True))


async def _play(context: DemoContext) -> None:
    await play_guests(context)
    await play_plugins(context)
    await play_claude(context)
    await play_boxes(context)


def _show_recording(context: DemoContext, recording: Recording) -> None:
    context.begin("record", f"What is on record: {record.summarize(recording)}")
    for item in _select_items(context, recording):
        if item.what == "frame":
            took = f" after {item.latency / 1000:.1f} ms" if item.latency is not None and item.request is not None else ""
            head, rest = (
                f"{'→' if item.way == 'sent' else '←'} {item.type}{took} ",
                record.format_text(item.raw.strip(), 10 * COLUMNS),
            )
        else:
            head, rest = f"· {item.what}: ", record.format_text(item.text)
        head = f"   {record.format_time_of_day(item.at)}  {recording.wires[item.wire].who:<14} {head}"
        room = COLUMNS - len(head)
        rest = rest if len(rest) <= room else "…" + rest[1 - room :]  # what a frame is about is at its end
        context.write(head + click.style(rest, dim=True))


def _select_items(context: DemoContext, recording: Recording) -> Iterator[TimelineItem]:
    """Some lines of the timeline; all of them would fill pages."""
    left = {shown: shown.most for shown in SHOWN}
    asked: set[int] = set()
    for item in recording.iter_timeline():
        act = next((act for act, began in reversed(context.began.items()) if began <= item.at), "")
        kind = item.type or item.what
        for shown in SHOWN:
            fits = act == shown.act and kind in shown.kinds and recording.wires[item.wire].who.startswith(shown.wires)
            if fits and left[shown]:
                left[shown] -= 1
                asked.add(item.number)
                yield item
        if item.request in asked:
            yield item
