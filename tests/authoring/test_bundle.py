"""`serai guest bundle` as a person calls it, and the bundle as a bare Python runs it."""

from __future__ import annotations

import json
import marshal
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

import serai
from serai.authoring import bundle
from serai.testing.zot_host import ZotHost
from tests.support.cli.shell import EXAMPLES, Shell, parse_objects, run_limited

PACKAGE = Path(serai.__file__).parent
WEATHER = """
from serai.sdk import Extension
from skies import sky

ext = Extension("weather", version="1.0")

@ext.tool
async def weather(city: str) -> str:
    "The current weather in a city."
    return f"{city}: {sky(city)}"

@ext.tool
def cities() -> str:
    "The cities there are."
    import places.names
    return places.names.text()

ext.main()
"""
SKIES = 'def sky(city: str) -> str:\n    return {"Bern": "fog", "Rome": "sun"}.get(city, "rain")\n'
NAMES = "import pkgutil\n\ndef text() -> str:\n    return pkgutil.get_data(__name__, 'names.txt').decode()\n"
SAID = {"name": "weather", "version": "1.0", "description": "The weather.", "enabled": True}


def write_extension(
    folder: Path, program: str = WEATHER, files: Mapping[str, str] | None = None, *, args: tuple[str, ...] = ("weather.py",)
) -> Path:
    """An extension's folder: the program, a module beside it, a package with a data file, and further files."""
    sources = {"weather.py": program, "skies.py": SKIES, "places/__init__.py": "", "places/names.py": NAMES}
    sources |= {"places/names.txt": "Bern, Rome\n", **(files or {})}
    sources["extension.json"] = json.dumps({**SAID, "exec": sys.executable, "args": args})
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_extension(tmp_path / "source")


def run_bundle(shell: Shell, path: Path, *options: str, **env: str) -> dict[str, Any]:
    """Bundle it into the shell's folder; what `--json` says of that."""
    ran = shell("guest", "bundle", path, "--json", *options, input="", cwd=None, **env)
    assert ran.returncode == 0, ran.stderr
    [form] = parse_objects(ran)
    assert isinstance(form, dict)
    return form


def deploy(form: dict[str, Any], folder: Path) -> Path:
    """The bundle alone in a folder, with the manifest that came with it."""
    folder.mkdir()
    shutil.copy(form["file"], folder)
    (folder / "extension.json").write_text(json.dumps(form["manifest"]))
    return folder


def run_bare(file: Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Started somewhere else, with nothing in its environment, by a host that leaves at once."""
    command = [sys.executable, "-S", "-E", str(file)]
    return subprocess.run(command, cwd=cwd, env={}, input=b"", capture_output=True, timeout=50, check=False)


def read_contents(file: str | Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def iter_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from iter_codes(constant)


# -- it runs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.bundle.bare")
def test_a_bundle_runs_with_a_bare_python_where_nothing_else_is(shell: Shell, source: Path, tmp_path: Path) -> None:
    form = run_bundle(shell, source)
    shutil.rmtree(source)
    assert form["manifest"]["args"] == ["-S", "-E", "weather.pyz"]
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.hello["name"] == "weather"
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"
        assert host.call_text("cities", {}) == "Bern, Rome\n"
        assert (host.shutdown(), host.stderr) == (0, "")


@pytest.mark.req("sdk.bundle.bare")
def test_a_bundle_runs_from_any_folder_without_an_environment(shell: Shell, source: Path, tmp_path: Path) -> None:
    file = Path(run_bundle(shell, source)["file"])
    (tmp_path / "empty").mkdir()
    ran = run_bare(file, tmp_path / "empty")
    hello, *_, ready = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (hello["type"], hello["name"], ready["type"]) == ("hello", "weather", "ready")
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_bundle_is_a_program_of_its_own(shell: Shell, source: Path, environ: dict[str, str]) -> None:
    file = Path(run_bundle(shell, source)["file"])
    assert file.stat().st_mode & 0o777 == 0o755
    env = environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"}
    ran = subprocess.run([file], env=env, input=b"", capture_output=True, timeout=50, check=True)
    assert ran.stdout.startswith(b'{"type":"hello"')


def test_a_bundle_is_a_guest_like_any_other(shell: Shell, source: Path, tmp_path: Path) -> None:
    alone = deploy(run_bundle(shell, source), tmp_path / "alone")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = shell("tool", "call", "weather", '{"city":"Rome"}', "--guest", alone, PATH=path)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("Rome: sun\n", "", 0)


def test_a_new_extension_can_be_bundled(shell: Shell, tmp_path: Path) -> None:
    shell("guest", "new", "first", "--guard")
    ran = shell("guest", "bundle", "first")
    assert (ran.stdout.startswith("bundled first: ./first.pyz, "), ran.returncode) == (True, 0)
    assert ran.stderr == "guest.toml is not in it: put a copy beside the bundle, else it is no guard\n"
    form = run_bundle(shell, shell.cwd / "first")
    assert not {"test_extension.py", "guest.toml", "extension.json", ".gitignore"} & set(form["files"])
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("greet", {"name": "Ada"}) == "Hello, Ada!"
        assert host.intercept("tool_call", tool_id="1", tool_name="bash", tool_args={"command": "rm -rf /"})["block"]


@pytest.mark.parametrize("name", ["weather-python", "guard-python", "panel-python"])
def test_an_extension_without_the_sdk_can_be_bundled(shell: Shell, tmp_path: Path, name: str) -> None:
    with ZotHost(deploy(run_bundle(shell, EXAMPLES / name), tmp_path / "alone"), environ={}) as host:
        assert host.shutdown() == 0


# -- what is in it ----------------------------------------------------------------------------------------------------------------


def test_a_bundle_holds_the_extension_and_of_serai_what_the_sdk_needs(shell: Shell, source: Path) -> None:
    form = run_bundle(shell, source)
    own = {"__main__.py", "weather.py", "skies.py", "places/__init__.py", "places/names.py", "places/names.txt"}
    packages = (PACKAGE / "sdk", PACKAGE / "dialects" / "hookproto")
    sdk = {f"serai/{file.relative_to(PACKAGE).as_posix()}" for package in packages for file in package.rglob("*.py")}
    carried = ["__init__", "lazy", "version", "errors", "dialects/__init__"]
    carried += ["dialects/yoi/__init__", "dialects/yoi/peer_side"]
    stubs = {"serai/__init__.pyi", "serai/sdk/__init__.pyi"}
    sources = own | sdk | stubs | {f"serai/{name}.py" for name in carried}
    assert set(form["files"]) == sources | {f"{name}c" for name in sources if name.endswith(".py")}
    held = read_contents(form["file"])
    assert sorted(held) == form["files"]
    assert held["__main__.py"] == held["weather.py"] == WEATHER.encode()
    assert form["size"] == os.path.getsize(form["file"]) < 1280 * 1024


def test_what_is_only_for_the_author_stays_out(shell: Shell, tmp_path: Path) -> None:
    left_out = ["test_weather.py", "weather_test.py", "conftest.py", "tests/data.json", ".git/config", ".env", "places/.secret"]
    left_out += [
        "__pycache__/x.pyc",
        "old.pyz",
        "venv/lib/x.py",
        "env/pyvenv.cfg",
        "env/lib/x.py",
        "node_modules/x/x.py",
        "skies.py~",
    ]
    left_out += ["guest.toml"]
    source = write_extension(tmp_path / "source", files=dict.fromkeys(left_out, ""))
    names = set(run_bundle(shell, source)["files"])
    assert "skies.py" in names
    assert not names & set(left_out)


def test_a_link_that_leads_out_of_the_folder_stays_out_and_is_told(shell: Shell, source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("mine")
    (source / "away.txt").symlink_to(tmp_path / "secret.txt")
    (source / "folder").symlink_to(tmp_path)
    (source / "gone.txt").symlink_to(tmp_path / "nowhere")
    (source / "here.txt").symlink_to("places/names.txt")
    os.mkfifo(source / "pipe")
    form = run_bundle(shell, source)
    names = set(form["files"])
    assert not {"away.txt", "gone.txt", "folder/secret.txt", "pipe"} & names
    assert read_contents(form["file"])["here.txt"] == b"Bern, Rome\n"
    assert sum("away.txt" in warning or "/folder" in warning for warning in form["warnings"]) == 2


def test_a_program_alone_takes_along_only_the_modules_that_it_imports(shell: Shell, tmp_path: Path) -> None:
    source = write_extension(
        tmp_path / "home", files={"letters.txt": "private", "taxes.py": "import requests", "lib/deep/er.py": "X = 1"}
    )
    (source / "one.py").write_text(WEATHER + "\nfrom lib.deep import er\n")
    form = run_bundle(shell, source / "one.py")
    own = {name for name in form["files"] if not name.startswith("serai/") and not name.endswith("c")}
    assert own == {"__main__.py", "one.py", "skies.py", "places/__init__.py", "places/names.py", "lib/deep/er.py"}
    assert form["manifest"] == {"name": "one", "exec": "python3", "args": ["-S", "-E", "one.pyz"]}


def test_the_manifest_keeps_what_the_extension_says_of_itself(shell: Shell, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "source", args=("-u", "weather.py", "--station", "7"))
    about = {"name": "weather", "version": "1.0", "description": "The weather."}
    manifest = run_bundle(shell, source, "-o", "w")["manifest"]
    assert manifest == {**about, "exec": "python3", "args": ["-S", "-E", "-u", "w", "--station", "7"]}
    told = shell("guest", "bundle", source / "extension.json", "-o", "w").stdout
    assert json.loads(told[told.index("{") :]) == manifest


@pytest.mark.parametrize(
    ("before", "kept", "lost"),
    [
        ("-O -u", "-O -u", ""),
        ("-ESuB -S -I", "-uB -I", ""),
        ("-O -O", "-O -O", ""),
        ("-W ignore -u", "-u", "-W ignore"),
        ("-Xdev -i -b", "-b", "-Xdev -i"),
        ("run /usr/bin/python3.12 -O", "-O", "run"),
    ],
)
def test_options_of_the_interpreter_are_kept_or_told(shell: Shell, tmp_path: Path, before: str, kept: str, lost: str) -> None:
    form = run_bundle(shell, write_extension(tmp_path / "source", args=(*before.split(), "weather.py")))
    assert form["manifest"]["args"] == ["-S", "-E", *kept.split(), "weather.pyz"]
    told = f"what stands before the program is not in the new manifest: {lost}; add what the bundle needs"
    assert form["warnings"] == ([told] if lost else [])
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


@pytest.mark.parametrize(("options", "says"), [((), "debug documented"), (("-O",), "fast documented"), (("-OO",), "fast bare")])
def test_an_optimised_program_is_so_in_its_bundle(shell: Shell, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    skies = (
        'def sky(city):\n    "doc"\n    return ("debug " if __debug__ else "fast ") + ("documented" if sky.__doc__ else "bare")\n'
    )
    program = WEATHER.replace("@ext.tool", '@ext.tool(description="for the model")')
    source = write_extension(tmp_path / "source", program, {"skies.py": skies}, args=(*options, "weather.py"))
    for folder in (source, deploy(run_bundle(shell, source), tmp_path / "alone")):
        with ZotHost(folder, environ={"PYTHONDONTWRITEBYTECODE": "1"}) as host:
            assert host.call_text("weather", {"city": "Bern"}) == f"Bern: {says}"


def test_the_program_may_be_what_the_manifest_executes(shell: Shell, source: Path, tmp_path: Path) -> None:
    (source / "extension.json").write_text(json.dumps(SAID | {"exec": "./weather.py"}))
    with ZotHost(deploy(run_bundle(shell, source), tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


def test_a_program_in_a_folder_below_takes_that_folder(shell: Shell, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "source" / "code").parent
    (source / "code" / "extension.json").unlink()
    (source / "extension.json").write_text(json.dumps(SAID | {"exec": "python3", "args": ["code/weather.py"]}))
    form = run_bundle(shell, source)
    assert {"skies.py", "weather.py"} <= set(form["files"])
    assert any(f"only what is in {source / 'code'}" in warning for warning in form["warnings"])
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


# -- the same bytes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.bundle.same")
def test_the_same_extension_gives_the_same_bytes(shell: Shell, source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1e9, 1e9))
        file.chmod(0o700)
    first = Path(run_bundle(shell, source, PYTHONHASHSEED="1", TZ="UTC")["file"]).read_bytes()
    again = Path(run_bundle(shell, source, PYTHONHASHSEED="2", TZ="UTC")["file"]).read_bytes()
    other = Path(run_bundle(shell, copy, "-o", "other", PYTHONHASHSEED="3", TZ="Asia/Tokyo")["file"]).read_bytes()
    assert first == again == other


def test_a_bundle_in_the_folder_itself_does_not_get_into_the_next(shell: Shell, source: Path) -> None:
    first = Path(run_bundle(shell, source, "-o", str(source / "weather.pyz"))["file"]).read_bytes()
    assert Path(run_bundle(shell, source, "-o", str(source / "weather.pyz"))["file"]).read_bytes() == first


@pytest.mark.req("sdk.bundle.same")
def test_no_path_of_the_machine_is_in_it(shell: Shell, source: Path) -> None:
    form = run_bundle(shell, source)
    raw = Path(form["file"]).read_bytes()  # nothing is compressed
    for path in (source, PACKAGE, PACKAGE.parent, Path(sys.prefix), Path(sys.base_prefix), Path.home() / ".", shell.cwd):
        assert len(str(path)) < 6 or bytes(path) not in raw
    bytecode = {name: data for name, data in read_contents(form["file"]).items() if name.endswith(".pyc")}
    assert len(bytecode) > 10
    for name, data in bytecode.items():
        assert {code.co_filename for code in iter_codes(marshal.loads(data[16:]))} == {f"weather.pyz/{name[:-1]}"}


def rewrite(file: str | Path, change: dict[str, bytes]) -> None:
    held = read_contents(file) | change
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)


@pytest.mark.req("sdk.bundle.bare")
def test_bytecode_of_another_python_is_passed_over(shell: Shell, source: Path, tmp_path: Path) -> None:
    form = run_bundle(shell, source)
    other = {name: b"\x01\x02\r\n" + data[4:] for name, data in read_contents(form["file"]).items() if name.endswith(".pyc")}
    rewrite(form["file"], {name: data[:16] + b"no code" for name, data in other.items()})
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


def test_bytecode_of_this_python_is_used_without_a_look_at_the_source(shell: Shell, source: Path, tmp_path: Path) -> None:
    form = run_bundle(shell, source)
    held = read_contents(form["file"])
    assert all(data.startswith(MAGIC_NUMBER + b"\1\0\0\0") for name, data in held.items() if name.endswith(".pyc"))
    rewrite(form["file"], {name: b"raise SystemExit('compiled anew')" for name in held if name.endswith(".py")})
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


# -- what it cannot carry ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.bundle.imports")
@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import requests", "requests (weather.py:1)"),
        ("import requests.adapters as adapters", "requests (weather.py:1)"),
        ("from yaml import safe_load", "yaml (weather.py:1)"),
        ("import serai.host.host", "serai.host.host (weather.py:1)"),
        ("from serai.host import Host", "serai.host (weather.py:1)"),
        ("from serai import Host, sdk, SeraiError", "serai.Host (weather.py:1)"),
        ("import serai; serai.Limits", "serai.Limits (weather.py:1)"),
        ("from serai import *", "serai.* (weather.py:1)"),
        ("import serai.testing", "serai.testing (weather.py:1)"),
        ("def later():\n    import numpy", "numpy (weather.py:2)"),
        ("try:\n    import must\nfinally:\n    pass", "must (weather.py:2)"),
        ("try:\n    import must\nexcept ZeroDivisionError:\n    pass", "must (weather.py:2)"),
        ("try:\n    import must\nexcept (OSError, KeyError):\n    pass", "must (weather.py:2)"),
        ("try:\n    import json\nexcept ValueError:\n    import must\nexcept ImportError:\n    pass", "must (weather.py:4)"),
        ("try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    import must", "must (weather.py:6)"),
        ("try:\n    import json\nexcept ImportError:\n    pass\nimport must", "must (weather.py:5)"),
        ("import helpers", "attrs (helpers.py:1)"),
        ("import places.more", "attrs (places/more.py:1)"),
        ("from places import more", "attrs (places/more.py:1)"),
        ("from places import other", "attrs (places/more.py:1)"),
        ("import native", "native (weather.py:1)"),
        ("import away", "away (weather.py:1)"),
        ("import empty", "empty (weather.py:1)"),
    ],
)
def test_what_a_bundle_cannot_carry_is_named(shell: Shell, tmp_path: Path, line: str, named: str) -> None:
    others = {"helpers.py": "import attrs", "places/more.py": "import attrs", "places/other.py": "from . import more"}
    source = write_extension(tmp_path / "source", f"{line}\n{WEATHER}", {**others, "native.so": "", "empty/data.txt": ""})
    (tmp_path / "away.py").touch()
    (source / "away.py").symlink_to(tmp_path / "away.py")
    ran = shell("guest", "bundle", source)
    assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 1, [])
    said, *hints = ran.stderr.splitlines()
    assert said.startswith(f"serai: {source / 'weather.py'}: a bundle cannot carry {named}")
    assert len(hints) == 1


def test_what_a_bundle_carries_of_serai_needs_nothing_that_it_does_not_carry() -> None:
    files = [file for file in bundle.list_carried_files() if file.suffix == ".py"]
    assert len(files) > 10
    for file in files:
        visitor = bundle._ImportVisitor(".".join(file.relative_to(PACKAGE.parent).parts[:-1]))
        bundle._visit(visitor, file)
        needed = [found for found in visitor.imports if not found.optional]
        assert [name for found in needed for name in bundle._find_missing(found)] == [], file


@pytest.mark.parametrize(
    "line",
    [
        "import os.path, sys, json",
        "from __future__ import annotations",
        "import serai",
        "import serai; serai.__version__",
        "from serai import errors, sdk, __version__, SeraiError",
        "from serai.errors import BadExtension",
        "from serai.sdk.extension import Extension",
        "import skies, places.names",
        "serai = {}\nserai.get(1)",
        "import __main__",
        "from . import nothing",
    ],
)
def test_what_it_can_carry_needs_no_words(shell: Shell, tmp_path: Path, line: str) -> None:
    assert run_bundle(shell, write_extension(tmp_path / "source", f"{line}\n{WEATHER}"))["warnings"] == []


@pytest.mark.req("sdk.bundle.imports")
@pytest.mark.parametrize(
    "line",
    [
        "try:\n    import requests\nexcept ImportError:\n    pass",
        "try:\n    import requests\nexcept (KeyError, ModuleNotFoundError):\n    pass",
        "try:\n    import requests\nexcept Exception as error:\n    pass",
        "import builtins\ntry:\n    import requests\nexcept builtins.BaseException:\n    pass",
        "try:\n    import requests\nexcept ValueError:\n    pass\nexcept:\n    pass",
        "try:\n    import requests\nexcept* ImportError:\n    pass",
        "try:\n    import tomllib\nexcept ModuleNotFoundError:\n    import requests as tomllib",
        "try:\n    try:\n        import requests\n    finally:\n        pass\nexcept ImportError:\n    pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import requests",
        "import typing\nif typing.TYPE_CHECKING:\n    from requests import get",
    ],
)
def test_what_the_program_may_do_without_is_told_and_bundled(shell: Shell, tmp_path: Path, line: str) -> None:
    form = run_bundle(shell, write_extension(tmp_path / "source", f"{line}\n{WEATHER}"))
    [warning] = form["warnings"]
    assert "requests (weather.py:" in warning
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


def test_a_path_from_a_files_own_place_is_told_with_what_works_bundled_or_not(shell: Shell, tmp_path: Path) -> None:
    """The advice is followed to the letter: in the program, and in a module beside it."""
    files = {"helper.py": "print(__file__)\n", "data.txt": "fog"}
    form = run_bundle(shell, write_extension(tmp_path / "first", f"{WEATHER}\nimport helper\nopen(__file__)\n", files))
    (of_program, of_module) = form["warnings"]
    assert of_program.startswith("weather.py:21: __file__ will lie inside the bundle")
    assert of_module.startswith("helper.py:1: __file__ will lie inside the bundle")
    in_program, in_module = (re.findall(r"pkgutil\.get_data\(.*?\)", warning)[0] for warning in form["warnings"])
    files["helper.py"] = f"import pkgutil\nTEXT = {in_module}.decode()\n"
    program = f"import helper, pkgutil\nTEXT = {in_program}.decode() + helper.TEXT\n{WEATHER.replace('{sky(city)}', '{TEXT}')}"
    source = write_extension(tmp_path / "second", program, files)
    form = run_bundle(shell, source)
    assert form["warnings"] == []
    for folder in (source, deploy(form, tmp_path / "alone")):
        with ZotHost(folder) as host:
            assert host.call_text("weather", {"city": "Bern"}) == "Bern: fogfog"


@pytest.mark.req("sdk.bundle.imports")
@pytest.mark.parametrize("name", ["calendar.py", "turtle/__init__.py"])
def test_a_module_that_hides_one_of_the_standard_library_is_told(shell: Shell, tmp_path: Path, name: str) -> None:
    form = run_bundle(shell, write_extension(tmp_path / "source", files={name: "X = 1", "places/json.py": ""}))
    hidden = name.removesuffix(".py").removesuffix("/__init__")
    assert form["warnings"] == [f"{name} hides the standard library's {hidden}, also from the SDK: rename it if that is needed"]
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


def break_marshal(value: object, version: int) -> bytes:
    assert isinstance(value, CodeType)
    if "skies.py" in value.co_filename:
        raise ValueError("unmarshallable object")  # as Python 3.14 does with what this version of the format does not know
    return marshal.dumps(value, version)


def test_bytecode_that_cannot_be_made_is_left_out(
    shell: Shell, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "deep.py").write_text(f"X = {'-' * 100_000}1\n")
    (source / "template.py").write_text("def @NAME@():\n")
    monkeypatch.setattr(bundle, "marshal", SimpleNamespace(dumps=break_marshal))
    plan = bundle.plan_bundle(source)
    packed = bundle.pack_bundle(plan)
    assert {"skies.py", "deep.py", "template.py", "weather.pyc"} <= set(packed.names)
    assert not {"skies.pyc", "deep.pyc", "template.pyc"} & set(packed.names)
    bundle.write_bundle(packed.content, tmp_path / "weather.pyz")
    form = {"file": tmp_path / "weather.pyz", "manifest": plan.build_manifest("weather.pyz")}
    with ZotHost(deploy(form, tmp_path / "alone"), environ={}) as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: fog"


@pytest.mark.req("sdk.bundle.imports")
def test_what_is_no_extension_in_python_is_refused_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    cases = {
        "no extension.json": write_extension(tmp_path / "none"),
        "starts no Python program: node words.mjs": EXAMPLES / "words-node",
        "it is no Python: line 1": write_extension(tmp_path / "broken", "def:"),
        "nested too deep": write_extension(tmp_path / "deep", f"X = {'-' * 100_000}1"),
        "nested too deep to look for imports": write_extension(tmp_path / "sum", f"X = 1{'+1' * 900}"),
        "null bytes": write_extension(tmp_path / "zero", "x = 1\0"),
        "cannot be read: No such file": write_extension(tmp_path / "absent", args=("other.py",)),
        "lies outside of its folder": write_extension(tmp_path / "outside", args=("../none/weather.py",)),
        "it would hide the SDK": write_extension(tmp_path / "hides", files={"serai/sdk.py": ""}),
        "the bundle's own program has that name": write_extension(tmp_path / "main", files={"__main__.py": ""}),
        "neither the folder of an extension nor a Python program": tmp_path / "none" / "places" / "names.txt",
        "parse manifest": write_extension(tmp_path / "manifest"),
    }
    (tmp_path / "none" / "extension.json").unlink()
    (tmp_path / "manifest" / "extension.json").write_text("{")
    for reason, path in cases.items():
        ran = shell("guest", "bundle", path)
        assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 1, []), reason
        assert reason in ran.stderr.splitlines()[0]
        assert len(ran.stderr.splitlines()) == 2
    assert shell("guest", "bundle", tmp_path / "nowhere").returncode == 2


def test_a_folder_that_is_too_much_is_refused(shell: Shell, source: Path) -> None:
    with open(source / "film.bin", "wb") as film:
        film.truncate(65 * 1024 * 1024)
    ran = shell("guest", "bundle", source)
    assert ("more than 64 MiB" in ran.stderr, ran.returncode, os.listdir(shell.cwd)) == (True, 1, [])


# -- the file ---------------------------------------------------------------------------------------------------------------------


def test_a_bundle_is_replaced_and_nothing_else_is(shell: Shell, source: Path) -> None:
    assert shell("guest", "bundle", source).returncode == 0
    before = (shell.cwd / "weather.pyz").read_bytes()
    (source / "skies.py").write_text(f"# new\n{SKIES}")
    assert shell("guest", "bundle", source).returncode == 0
    assert (shell.cwd / "weather.pyz").read_bytes() != before
    with zipfile.ZipFile(shell.cwd / "other.zip", "w") as archive:
        archive.writestr("letter.txt", "mine")
    (shell.cwd / "notes.txt").write_text("mine")
    for name in ("other.zip", "notes.txt"):
        kept = (shell.cwd / name).read_bytes()
        ran = shell("guest", "bundle", source, "-o", name)
        assert ("no bundle" in ran.stderr, ran.returncode, (shell.cwd / name).read_bytes()) == (True, 1, kept)
        assert shell("guest", "bundle", source, "-o", name, "--force").returncode == 0
        assert zipfile.is_zipfile(shell.cwd / name)
    assert shell("guest", "bundle", source, "-o", ".", "--force").returncode == 2


@pytest.mark.parametrize("of", ["weather.py", "."])
def test_a_source_of_the_extension_is_never_replaced(shell: Shell, source: Path, of: str) -> None:
    ran = shell("guest", "bundle", source / of, "-o", source / "weather.py", "--force")
    assert ("it is a part of the extension" in ran.stderr, ran.returncode) == (True, 1)
    assert (source / "weather.py").read_text() == WEATHER


@pytest.mark.parametrize("options", [(), ("--force",)], ids=["", "forced"])
def test_a_source_that_is_a_zip_app_itself_is_never_replaced(shell: Shell, source: Path, options: tuple[str, ...]) -> None:
    with zipfile.ZipFile(source / "helper.zip", "w") as archive:
        archive.writestr("__main__.py", "print('mine')")
    kept = (source / "helper.zip").read_bytes()
    ran = shell("guest", "bundle", source, "-o", source / "helper.zip", *options)
    assert ("it is a part of the extension" in ran.stderr, ran.returncode) == (True, 1)
    assert (source / "helper.zip").read_bytes() == kept


def test_nothing_half_written_is_left_where_there_is_no_room(shell: Shell, source: Path) -> None:
    ran = run_limited(shell, 10_000, "guest", "bundle", str(source))
    assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 1, [])
    assert "weather.pyz: cannot be written: File too large" in ran.stderr
    assert "cannot be written" in shell("guest", "bundle", source, "-o", "nowhere/x.pyz").stderr
