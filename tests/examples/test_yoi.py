"""The examples of plugins do what their comments say: the one in component text in a host, the one in Python as its source."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from serai.authoring import build
from serai.testing.yoi_host import YoiHost, YoiSource
from tests.support.yoi.hosted_plugins import EXAMPLES, Folder, dispatch_text, guest_of, run_host

README = (EXAMPLES / "README.md").read_text()
NOTE = 'one two\n three\t"four" \\ five\n\nlast, without its end'


def test_every_example_is_known_here() -> None:
    there = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert (
        there == sorted(re.findall(r"^\| \[(\w+)\]\(\1/plugin.toml\) \|", README, re.MULTILINE)) == ["javascript", "python", "wat"]
    )


def test_the_javascript_example_has_the_kit_of_the_templates() -> None:
    template = Path(build.__file__).parent / "templates" / "yoi" / "yoi.js.txt"
    assert (EXAMPLES / "javascript" / "yoi.js").read_text() == template.read_text()


@pytest.fixture
def wat(tmp_path: Path) -> Path:
    folder = tmp_path / "wat"
    shutil.copytree(EXAMPLES / "wat", folder)
    component = asyncio.run(build.build_component(build.plan_build(folder, show=print)))
    (folder / "plugin.component.wasm").write_bytes(component)
    return folder


def answer_read(text: str) -> str:
    path = json.loads(text)["path"]
    return json.dumps({"path": path, "content": NOTE, "truncated": False}, ensure_ascii=False)


def test_component_text_by_hand(wat: Path) -> None:
    with YoiHost(wat, host={"fs.read": answer_read}) as plugin:
        assert json.loads(plugin.text("wat_count", {"path": "a.txt"})) == {"lines": 4, "words": 10}
        assert plugin.ingress("wat_in", "text", {"text": "hi"})["data"] == {"heard": 1}
        assert plugin.text("wat_heard") == "1 heard"
        assert plugin.status() == {"state": "ready", "data": {"heard": 1}}
        assert plugin.call("other")["summary"] == "tool error: unsupported_tool"


def test_python_as_its_source() -> None:
    written: dict[str, Any] = {}

    def write(text: str) -> str:
        request = json.loads(text)
        written[request["path"]] = request["content"]
        return json.dumps({"path": request["path"], "bytes_written": len(request["content"])})

    with YoiSource(EXAMPLES / "python", config={"first": "zero"}, host={"fs.read": answer_read, "fs.write": write}) as plugin:
        assert json.loads(plugin.text("py_count", {"path": "a.txt"})) == {"lines": 4, "words": 10}
        assert plugin.call("py_count", {"path": "a.md"})["summary"] == "tool error: invalid_input"
        answer = plugin.ingress("py_in", "text", {"text": "hi"})
        assert answer["data"] == {"kept": 2}
        assert [one["kind"] for one in answer["output_commands"]] == ["diagnostic_status_update"]
        assert "a note needs a text" in plugin.ingress("py_in", "text")["error"]["message"]
        assert (plugin.text("py_heard"), plugin.status()["data"]) == ("zero; hi", {"heard": 2})
    assert written == {"heard-2.txt": "hi"}


async def test_component_text_in_a_host(tmp_path: Path) -> None:
    """A tool, a service with its ingress, and files: what was granted is read, and nothing beside it."""
    folder = tmp_path / "wat"
    shutil.copytree(EXAMPLES / "wat", folder)
    (folder / "plugin.component.wasm").write_bytes(await build.build_component(build.plan_build(folder, show=print)))
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(NOTE)
    (tmp_path / "secret.txt").write_text("not for plugins")
    plugin = Folder(folder, notes, ["read"])
    async with run_host(tmp_path, plugin) as host:
        counted = await host.call_tool("wat_count", {"path": "a.txt"})
        assert not counted.is_error
        assert '{"lines":4,"words":10}' in counted.text
        await dispatch_text(host, "notes-wat", "wat_in", "hello")
        assert "1 heard" in (await host.call_tool("wat_heard", {})).text
        status = guest_of(host, "notes-wat").get_status()
        assert (str(status.lifecycle.value), status.dispatch_counters.dispatched) == ("Running", 1)
        escaped = await host.call_tool("wat_count", {"path": "../secret.txt"})
        assert escaped.is_error
        assert "not for plugins" not in escaped.text
