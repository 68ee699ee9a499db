"""The act of `serai demo` with a WASM plugin: it reads a note in the folder that it was granted, and nothing outside of it."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from serai.app.app import App
from serai.cli.demo_guests import LIMITS, Teller, examples
from serai.model.tools import ToolCall, ToolResult

if TYPE_CHECKING:
    from serai.cli.demo import Stage

__all__ = ["plugins"]

RULES = """
rule = [{ id = "notes", decide = "allow", tool = "wat_count", because = "to count lines is harmless" }]
"""


class _Teller(Teller):
    def ended(self, call: ToolCall, result: ToolResult) -> None:
        """Why it failed, without the words before that: which tool it was stands above."""
        text = result.text.partition(" failed closed: ")[2]
        if text:
            self.stage.say("notes", f"is ended: {text}", fg="red")
        else:
            super().ended(call, result)


async def plugins(stage: Stage) -> None:
    stage.begin("plugin", "A WASM plugin may read in the folder that it was granted, and nowhere else")
    if find_spec("wasmtime") is None:
        stage.say("serai", "wasmtime is not installed, so there is no plugin: pip install 'serai[wasm]'", fg="yellow")
        return
    shelf = stage.project / "shelf"
    shelf.mkdir()
    (shelf / "list.txt").write_text("one two\nthree\n")
    (stage.project / "secret.txt").write_text("nobody knows\n")
    (stage.place / "notes.toml").write_text(RULES)
    plugin = stage.place / "notes"
    teller = _Teller(stage)
    _grant(stage, plugin, shelf)
    async with App(
        cwd=stage.project, model="parrot", guests=[examples() / "guard-python", plugin], installed=False, surface=teller,
        policy=stage.place / "notes.toml", record=stage.recorder, environ=stage.environ, limits=LIMITS,
    ) as app:  # fmt: skip
        teller.enter(app)
        [row] = [row for row in app.host.report.guests if row.id == "yoi:notes-wat"]
        stage.say("notes", f"is {row.state} after {row.seconds * 1000:.0f} ms in a process that can do nothing else")
        await teller.submit('How long is the list?\n>> call wat_count {"path": "list.txt"}')
        await teller.submit('And the file above it?\n>> call wat_count {"path": "../secret.txt"}')
        await teller.submit('What of this one?\n>> call wat_count {"path": "rm -rf /"}')


def _grant(stage: Stage, plugin: Path, shelf: Path) -> None:
    """What `serai guest build` and `serai guest grant --fs` do, for a home that is gone when the story ends."""
    from serai.cli.components import assembled
    from serai.cli.plugin_file import FILE, PluginFile
    from serai.plugins import grants
    from serai.plugins.bounds import DEFAULT
    from serai.plugins.grants import FsGrant
    from serai.plugins.package_store import read_package

    shutil.copytree(examples("yoi") / "wat", plugin)
    (plugin / "plugin.component.wasm").write_bytes(assembled((plugin / "extension.wat").read_text()))
    package = read_package(plugin, DEFAULT)
    granted = grants.propose_enablement(package, "user", fs=(FsGrant(root=str(shelf), operations=("read",)),))
    PluginFile(Path(stage.environ["SERAI_HOME"]) / FILE).put(granted)
    labels = ", ".join(permission.label for permission in package.manifest.permissions)
    stage.say("person", f"grants {granted.id} {labels}")
    stage.say("person", f"and to read in {shelf.name}/, pinned to {granted.digest[:19]}…")
