"""`serai guest build` as far as it needs no tool chain: component text, what it refuses, and what it says is missing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from serai.authoring import build, build_python, component
from serai.dialects.yoi import worlds
from serai.errors import PeerTimeout
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects
from tests.support.yoi import components

EXAMPLES = Path(__file__).parents[2] / "examples" / "yoi"
MANIFEST = """\
schema_version = 1
id = "mine"
name = "mine"
version = "1"
permissions = [{permissions}]
[runtime]
kind = "wasm-component"
world = "yoi:plugin/{world}@1.0.0"
component = "plugin.component.wasm"
"""
SOURCES = {
    "python": 'from serai.sdk import Extension\next = Extension("mine")\n',
    "js": "export const call = () => '{}';\n",
    "c": "int x;\n",
}


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    return InProcessShell(tmp_path)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any tool chain: the folder of all its programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setattr(build, "find_spec", lambda _name: None)
    monkeypatch.setattr(build, "_get_python_folder", lambda: str(programs))
    return programs


def write_plugin(folder: Path, *, world: str = "tool", permissions: str = "", **sources: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "plugin.toml").write_text(MANIFEST.format(world=world, permissions=permissions))
    for language, source in sources.items():
        (folder / build.PROGRAMS[language]).write_text(source)
    return folder


def write_program(place: Path, name: str, body: str) -> Path:
    file = place / name
    file.write_text(f"#!{sys.executable}\n{body}")
    file.chmod(0o755)
    return file


def test_component_text_is_built_into_the_file_of_the_manifest(shell: InProcessShell) -> None:
    folder = write_plugin(shell.cwd / "mine", world="instance", wat=components.Guest().component())
    [form] = parse_objects(shell("guest", "build", "mine", "--json"))
    file = folder / "plugin.component.wasm"
    assert form == {
        "id": "yoi:mine", "file": str(file), "size": file.stat().st_size, "language": "wat", "world": "instance", "imports": [],
        "warnings": [],
    }  # fmt: skip
    assert component.read_interface_names(file.read_bytes()).exports == tuple(worlds.EXPORTS["instance"])
    assert sorted(path.name for path in folder.iterdir()) == ["extension.wat", "plugin.component.wasm", "plugin.toml"]
    told = shell("guest", "build", "mine")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("built yoi:mine: mine/plugin.component.wasm, ")
    assert "it imports nothing\n" in told.stdout


def test_an_import_that_nobody_asked_for_is_warned_of(shell: InProcessShell) -> None:
    write_plugin(shell.cwd / "mine", wat=components.Guest("tool", imports=("fs",)).component())
    told = shell("guest", "build", "mine")
    assert told.returncode == 0
    assert 'it imports yoi:host/fs@1.0.0 without asking for it: add the permission { kind = "host_api", api = "fs" }' in told.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(component", "it is no component text: "),
        ("(module)", "it is a core module, not a component"),
        ("(component)", "the component does not export call, which the world tool has"),
        (components.Guest().component(), "the component does not export call"),
        (
            components.Guest("tool").more('(import "wasi:cli/environment@0.2.0" (instance (export "go" (func))))').component(),
            "the component imports wasi:cli/environment@0.2.0, which no host of plugins has",
        ),
        (
            '(component (core module $m (func (export "f") (result i32))) (core instance (instantiate $m)))',
            "it is no valid component: ",
        ),
    ],
)
def test_what_no_host_would_take_is_not_built(shell: InProcessShell, text: str, said: str) -> None:
    folder = write_plugin(shell.cwd / "mine", wat=text)
    (folder / "plugin.component.wasm").write_text("as it was\n")
    told = shell("guest", "build", "mine")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"serai: mine/extension.wat: {said}")
    assert (folder / "plugin.component.wasm").read_text() == "as it was\n"


def test_what_a_folder_lacks_is_said(shell: InProcessShell) -> None:
    (shell.cwd / "empty").mkdir()
    told = shell("guest", "build", "empty")
    assert told.returncode == 1
    assert "there is no plugin.toml" in told.stderr
    write_plugin(shell.cwd / "mine")
    assert "it has none of extension.py, extension.js, extension.c, extension.wat" in shell("guest", "build", "mine").stderr
    write_plugin(shell.cwd / "mine", js="", c="")
    told = shell("guest", "build", "mine")
    assert "it has extension.js and extension.c\nsay which with --lang js|c" in told.stderr
    (shell.cwd / "mine" / "plugin.toml").write_text("schema_version = 1\n")
    assert "mine/plugin.toml: plugin.toml: the key `id` is missing" in shell("guest", "build", "mine").stderr
    (shell.cwd / "mine" / "plugin.toml").write_text('schema_version = 1\nid = "mine"\nname = "mine"\nversion = "1"\n')
    assert "it has no [runtime]" in shell("guest", "build", "mine").stderr
    write_plugin(shell.cwd / "mine")
    assert "mine/extension.wat: cannot be read: No such file" in shell("guest", "build", "mine", "--lang", "wat").stderr


@pytest.mark.parametrize(
    ("language", "install"),
    [("python", "pip install componentize-py"), ("js", "npm install componentize-qjs"), ("c", "pip install ziglang")],
)
def test_a_missing_tool_chain_is_named_with_what_to_install(shell: InProcessShell, bare: Path, language: str, install: str) -> None:
    write_plugin(shell.cwd / "mine", **{language: SOURCES[language]})
    told = shell("guest", "build", "mine", PATH=str(bare))
    assert (told.returncode, told.stdout) == (1, "")
    assert install in told.stderr
    write_program(bare, "node", "")
    if language == "js":
        assert "componentize-qjs is not installed" in shell("guest", "build", "mine", PATH=str(bare)).stderr


@pytest.mark.parametrize(("language", "tool"), [("python", "componentize-py"), ("js", "componentize-qjs"), ("c", "zig")])
def test_what_a_tool_says_when_it_fails_is_shown(shell: InProcessShell, bare: Path, language: str, tool: str) -> None:
    write_plugin(shell.cwd / "mine", **{language: SOURCES[language]})
    write_program(bare, tool, 'import sys; print("\\x1b[31mline 7: odd"); sys.stderr.write("gave up\\n"); sys.exit(3)\n')
    if language == "js":
        write_program(bare, "node", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])\n")
    told = shell("guest", "build", "mine", PATH=str(bare))
    assert (told.returncode, told.stdout) == (1, "")
    assert "line 7: odd" in told.stderr
    assert "gave up" in told.stderr
    assert "\x1b" not in told.stderr
    assert "could not build it (exit status 3)" in told.stderr


def test_a_tool_that_gives_nothing_is_told(shell: InProcessShell, bare: Path) -> None:
    write_plugin(shell.cwd / "mine", c=SOURCES["c"])
    write_program(bare, "zig", "")
    assert "said that all went well, and gave nothing" in shell("guest", "build", "mine", PATH=str(bare)).stderr


async def test_a_tool_that_does_not_end_is_ended(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(PeerTimeout, match="slow did not end within 1 seconds"):
        await build.run_tool_chain(argv, cwd=tmp_path, who="mine", what="slow", show=print, patience=0.6)


# -- Python, up to the tool chain -------------------------------------------------------------------------------------------------

KEEPS = """\
import json, os, sys
place = sys.argv[sys.argv.index("-p") + 1]
found = {}
for here, _, files in os.walk(place):
    for name in files:
        path = os.path.join(here, name)
        found[os.path.relpath(path, place)] = open(path, encoding="utf-8").read()
wit = sys.argv[sys.argv.index("-d") + 1]
json.dump({"argv": sys.argv[1:], "files": found, "wit": open(os.path.join(wit, "yoi-plugin.wit")).read()}, open(OUT, "w"))
sys.exit(9)
"""


def test_a_component_in_python_gets_the_extension_the_sdk_and_nothing_else(
    shell: InProcessShell, bare: Path, tmp_path: Path
) -> None:
    folder = write_plugin(
        shell.cwd / "mine", permissions='{ kind = "host_api", api = "fs" }', python="import words\n" + SOURCES["python"]
    )
    (folder / "words.py").write_text("HELLO = 1\n")
    (folder / "test_mine.py").write_text("")
    (folder / "plugin.component.wasm").write_text("not yet\n")
    write_program(bare, "componentize-py", KEEPS.replace("OUT", repr(str(tmp_path / "kept.json"))))
    assert shell("guest", "build", "mine", PATH=str(bare), VIRTUAL_ENV="/nowhere").returncode == 1
    kept = json.loads((tmp_path / "kept.json").read_text())
    own = {name for name in kept["files"] if not name.startswith("serai/")}
    assert own == {"extension.py", "words.py", "serai_component.py"}
    assert {"serai/sdk/adapters/yoi.py", "serai/dialects/yoi/peer_side.py"} <= kept["files"].keys()
    assert not any("msgspec" in text for name, text in kept["files"].items() if name.startswith("serai/dialects"))
    assert "--stub-wasi" in kept["argv"]
    assert "import yoi:host/fs@1.0.0;" in kept["wit"]
    assert "import yoi:host/request@1.0.0;" not in kept["wit"]
    compile(kept["files"]["serai_component.py"], "serai_component.py", "exec")


@pytest.mark.parametrize("world", worlds.EXPORTS)
def test_the_module_with_the_exports_hands_each_to_the_kit(world: str) -> None:
    text = build_python.format_entry("extension", world, ("fs",))
    for name, parameters in worlds.EXPORTS[world].items():
        called = name.replace("-", "_")
        taken = ", ".join(["self", *(parameter.replace("-", "_") for parameter, _ in parameters)])
        assert f"    def {called}({taken}):\n        return _exports.{called}(" in text
    assert 'exports(found_in(program), {"fs": host_fs})' in text


def test_what_the_manifest_declares_must_be_offered(shell: InProcessShell, bare: Path) -> None:
    folder = write_plugin(shell.cwd / "mine", python=SOURCES["python"])
    write_program(bare, "componentize-py", "")
    with open(folder / "plugin.toml", "a") as file:
        file.write('[[tools]]\nname = "gone"\ndescription = "d"\ninput_schema = { type = "object" }\n')
    told = shell("guest", "build", "mine", PATH=str(bare))
    assert told.returncode == 1
    assert "plugin.toml declares the tool 'gone', which extension.py does not offer" in told.stderr


def test_an_extension_that_cannot_be_imported_is_shown(shell: InProcessShell, bare: Path) -> None:
    write_plugin(shell.cwd / "mine", python='raise RuntimeError("on purpose")\n')
    write_program(bare, "componentize-py", "")
    told = shell("guest", "build", "mine", PATH=str(bare))
    assert told.returncode == 1
    assert "RuntimeError: on purpose" in told.stderr
    write_plugin(shell.cwd / "mine", python="import attrs_of_nobody\n")
    assert "a bundle cannot carry attrs_of_nobody" in shell("guest", "build", "mine", PATH=str(bare)).stderr
    write_plugin(shell.cwd / "mine", python=SOURCES["python"])
    (shell.cwd / "mine" / "wit_world.py").write_text("")
    assert "the component has a module of that name already" in shell("guest", "build", "mine", PATH=str(bare)).stderr


async def test_what_is_offered_and_not_declared_is_warned_of(tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES["python"] + "@ext.tool\ndef new(a: str) -> str:\n    return a\n@ext.command\ndef hello() -> None: ...\n"
    folder = write_plugin(tmp_path / "mine", python=source)
    (tmp_path / "made.wasm").write_bytes(components.tool())
    copy = f'import shutil, sys; shutil.copy({str(tmp_path / "made.wasm")!r}, sys.argv[sys.argv.index("-o") + 1])\n'
    write_program(bare, "componentize-py", copy)
    monkeypatch.setenv("PATH", os.pathsep.join([str(bare), os.environ["PATH"]]))
    planned = build.plan_build(folder, show=print)
    assert await build.build_component(planned) == components.tool()
    first, second = planned.warnings
    assert "the tool 'new' is not in plugin.toml" in first
    assert '[[tools]]\nname = "new"\ninput_schema = { type = "object"' in first
    assert second == "yoi has no command: 1 is left out"


def test_the_examples_are_found(tmp_path: Path) -> None:
    for name, language in (("python", "python"), ("javascript", "js"), ("wat", "wat")):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        planned = build.plan_build(tmp_path / name, show=print)
        assert (planned.language, planned.world, planned.apis) == (language, "instance", ("fs",))
