"""What the tool chains make runs under the default limits, in a real host, and is accepted by `check`."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from serai.authoring import component, scaffold
from serai.dialects.yoi import worlds
from serai.testing.yoi_host import YoiHost
from tests.real.toolchains.conftest import Built, build, link_packages
from tests.support.cli.scaffolded_extensions import run_own_tests
from tests.support.cli.shell import Shell, parse_objects
from tests.support.yoi.hosted_plugins import Folder, dispatch_text, guest_of, run_host

NOTE = 'one two\n three\t"four" \\ five\n\nlast, without its end'
both = pytest.mark.parametrize("name", ["python", "javascript"])


@pytest.mark.req("yoi.conform.67", "yoi.conform.68")
@both
async def test_an_example_in_a_host(built: Built, tmp_path: Path, name: str) -> None:
    """A tool, a service with its ingress, files: read, written, and refused beyond the grant."""
    folder, prefix = built(name), {"python": "py", "javascript": "js"}[name]
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(NOTE)
    (tmp_path / "secret.txt").write_text("not for plugins")
    async with run_host(tmp_path, Folder(folder, notes, config={"first": "zero"})) as host:
        counted = await host.call_tool(f"{prefix}_count", {"path": "a.txt"})
        assert '{"lines":4,"words":10}' in counted.text
        refused = await host.call_tool(f"{prefix}_count", {"path": "a.md"})
        assert "invalid_input" in refused.text
        report = await dispatch_text(host, f"notes-{name}", f"{prefix}_in", "höi")
        assert [one.status.value for one in report.output_command_results] == ["Recorded"]
        assert (notes / "heard-2.txt").read_text() == "höi"
        assert "zero; höi" in (await host.call_tool(f"{prefix}_heard", {})).text
        status = await guest_of(host, f"notes-{name}").refresh_status()
        assert status.component_status == {"state": "ready", "data": {"heard": 2}}
        escaped = await host.call_tool(f"{prefix}_count", {"path": "../secret.txt"})
        assert escaped.is_error
        assert "not for plugins" not in escaped.text


@pytest.mark.req("yoi.conform.67", "yoi.conform.68")
@both
def test_an_example_by_itself(built: Built, name: str) -> None:
    """Whatever goes wrong in it, the exports answer; only what the host refuses traps."""
    folder, prefix = built(name), {"python": "py", "javascript": "js"}[name]
    found = component.read_interface_names((folder / "plugin.component.wasm").read_bytes())
    assert found.imports == ("yoi:host/fs@1.0.0",)  # of three, what the manifest asks for
    assert set(worlds.EXPORTS["instance"]) <= set(found.exports)
    with YoiHost(folder, host={"fs.read": lambda _: "no JSON"}) as plugin:
        assert plugin.call(f"{prefix}_count", {"path": "a.txt"})["summary"] == "tool error: failed"
        assert plugin.call(f"{prefix}_count", {})["summary"] == "tool error: invalid_input"
        assert plugin.call("nothing")["summary"] == "tool error: unsupported_tool"
        assert "a note needs a text" in plugin.ingress(f"{prefix}_in", "text")["error"]["message"]
        assert "error" in plugin.ingress("nothing", "text")
        assert plugin.status()["state"] == "ready"
        with pytest.raises(Exception, match=r"no host function fs\.write"):
            plugin.ingress(f"{prefix}_in", "text", {"text": "x"})


@pytest.mark.req("yoi.rule.094")
@pytest.mark.parametrize("template", scaffold.PLUGINS)
def test_a_beginning_builds_into_a_package_that_check_accepts(built: Built, shell: Shell, template: str) -> None:
    folder = built(template)
    checked = shell("guest", "check", folder, "--json")
    [form] = parse_objects(checked)
    assert (checked.returncode, form["status"], form["diagnostics"]) == (0, "active", [])
    packed = shell("guest", "pack", folder, "--output", shell.cwd / "mine.yoi-plugin")
    assert packed.returncode == 0, packed.stderr
    [form] = parse_objects(shell("guest", "check", shell.cwd / "mine.yoi-plugin", "--json"))
    assert form["status"] == "active"


@pytest.mark.parametrize("template", [*scaffold.PLUGINS])
def test_a_beginning_gives_back_what_it_is_given(built: Built, template: str) -> None:
    text = 'a "word", a \\ and\na line: é😀'
    with YoiHost(built(template)) as plugin:
        assert plugin.text("example_echo", {"text": text}) == text
        assert plugin.call("example_echo", {"text": 7})["summary"] in ("tool error: invalid_input", "7")  # Python reads it as text
        assert plugin.call("example_echo", {})["summary"] == "tool error: invalid_input"
        assert plugin.call("other", {})["summary"] == "tool error: unsupported_tool"


async def test_a_plugin_in_c_in_a_host(built: Built, tmp_path: Path) -> None:
    async with run_host(tmp_path, Folder(built("c-component-tool"))) as host:
        for _ in range(3):
            assert (await host.call_tool("example_echo", {"text": "grüezi"})).text == "grüezi"


INSTANCE = """
#include "yoi.h"
static unsigned long heard;
static yoi_text on_start(yoi_text config) { heard = config.size; return YOI_TEXT("{\\"state\\":\\"ready\\"}"); }
static yoi_text on_tool(yoi_text name, yoi_text input) {
  yoi_text reply, content;
  if (!yoi_is(name, YOI_TEXT("c_read"))) return yoi_error(YOI_TEXT("unsupported_tool"), name);
  reply = yoi_read(input);
  if (!yoi_member(reply, YOI_TEXT("content"), &content)) return yoi_error(YOI_TEXT("failed"), reply);
  return yoi_output(YOI_TEXT("read"), content);
}
static yoi_text on_ingress(yoi_text name, yoi_text event) {
  heard += name.size + event.size;
  return YOI_TEXT("{\\"accepted\\":true}");
}
static yoi_text on_status(void) { return YOI_TEXT("{\\"state\\":\\"ready\\"}"); }
static yoi_text on_stop(void) { return YOI_TEXT("{\\"state\\":\\"stopped\\"}"); }
"""
MANIFEST = """\
schema_version = 1
id = "in-c"
name = "in C"
version = "1"
permissions = [
    { kind = "surface", surface = "tool" }, { kind = "surface", surface = "service" }, { kind = "surface", surface = "ingress" },
    { kind = "tool", name = "c_read" }, { kind = "service", name = "c" }, { kind = "ingress", name = "c_in" },
    { kind = "host_api", api = "fs" },
]
runtime = { kind = "wasm-component", world = "yoi:plugin/instance@1.0.0", component = "plugin.component.wasm" }
tools = [{ name = "c_read", description = "d", input_schema = { type = "object", properties = { path = { type = "string" } } } }]
services = [{ name = "c", description = "d" }]
ingresses = [{ name = "c_in", description = "d" }]
"""


@pytest.mark.req("yoi.conform.66")
async def test_a_guest_in_c_with_the_five_exports_and_a_host_interface(tmp_path: Path, path: str) -> None:
    folder, notes = tmp_path / "in-c", tmp_path / "notes"
    folder.mkdir()
    notes.mkdir()
    (folder / "extension.c").write_text(INSTANCE)
    (folder / "plugin.toml").write_text(MANIFEST)
    shutil.copy(Path(scaffold.__file__).parent / "templates" / "yoi" / "yoi.h.txt", folder / "yoi.h")
    build(folder, path)
    (notes / "a.txt").write_text(NOTE)
    async with run_host(tmp_path, Folder(folder, notes, ["read"])) as host:
        assert NOTE in (await host.call_tool("c_read", {"path": "a.txt"})).text
        report = await dispatch_text(host, "in-c", "c_in", "hello")
        assert report.accepted
        assert (await host.call_tool("c_read", {"path": "../notes/a.txt"})).is_error


def test_what_a_compiler_says_is_shown(shell: Shell) -> None:
    shell("guest", "new", "mine", "--dialect", "yoi", "--lang", "c")
    (shell.cwd / "mine" / "extension.c").write_text('#define YOI_TOOL\n#include "yoi.h"\nint broken(\n')
    told = shell("guest", "build", "mine")
    assert (told.returncode, told.stdout) == (1, "")
    assert "extension.c:3" in told.stderr
    assert "zig cc could not build it" in told.stderr


def test_what_a_component_of_javascript_lacks_is_said(shell: Shell) -> None:
    shell("guest", "new", "mine", "--dialect", "yoi", "--lang", "js")
    link_packages(shell.cwd / "mine")
    (shell.cwd / "mine" / "extension.js").write_text("export const call = (")
    told = shell("guest", "build", "mine")
    assert told.returncode == 1
    assert "componentize-qjs could not build it" in told.stderr


TRAPS = """
import time
from serai.sdk import Extension
ext = Extension("mine")

@ext.tool
def example_echo(text: str) -> str:
    if text == "clock":
        return str(time.time())
    if text == "file":
        return open("/etc/passwd").read()
    if text == "import":
        import sqlite3
        return sqlite3.version
    if text == "print":
        print("hello")
        ext.log.error("hello")
        ext.notify("info", "hello")
        return "printed"
    if text == "deep":
        return example_echo(text)
    if text == "exit":
        raise SystemExit(1)
    raise ValueError(text)
"""


@pytest.mark.req("yoi.rule.095")
def test_what_would_trap_in_python_is_an_answer(shell: Shell, path: str) -> None:
    """In one component: its build takes longer than all the rest."""
    shell("guest", "new", "mine", "--dialect", "yoi")
    (shell.cwd / "mine" / "extension.py").write_text(TRAPS)
    build(shell.cwd / "mine", path)
    with YoiHost(shell.cwd / "mine") as plugin:
        for text, said in (
            ("clock", "a plugin has no clock"), ("file", "a plugin has no files"), ("import", "sqlite3 was not imported"),
            ("deep", "RecursionError"), ("exit", "SystemExit"), ("other", "ValueError: other"),
        ):  # fmt: skip
            output = plugin.call("example_echo", {"text": text})
            assert output["summary"] == "tool error: failed", output
            assert said in json.loads(output["content"])["error"]["message"]
        assert plugin.text("example_echo", {"text": "print"}) == "printed"


def test_the_tests_of_a_new_plugin_in_c_pass(shell: Shell) -> None:
    shell("guest", "new", "first", "--dialect", "yoi", "--lang", "c")
    ran = run_own_tests(shell, shell.cwd / "first")
    assert re.search(r"^2 passed", ran.stdout, re.MULTILINE), ran.stdout
    assert os.listdir(shell.cwd) == ["first"]
