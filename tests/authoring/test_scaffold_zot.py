"""`serai guest new` as a person calls it: what it makes works as it stands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serai.authoring import scaffold
from serai.errors import BadSettings
from serai.testing.zot_host import ZotHost
from tests.support.cli.scaffolded_extensions import ADA, BAD, LANGUAGES, run_own_tests, write_programs
from tests.support.cli.shell import Shell, parse_objects, run_limited

# What programs in these languages need to run; to write one needs nothing.
NEED = {"node": pytest.mark.needs("node"), "shell": pytest.mark.needs("jq")}
every_language = pytest.mark.parametrize("language", ["python", *(pytest.param(name, marks=NEED[name]) for name in NEED)])


# -- what is made works -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.new.works")
@pytest.mark.parametrize("guard", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "guard"])
@pytest.mark.parametrize("language", ["python", *(pytest.param(name, marks=[NEED[name], pytest.mark.slow]) for name in NEED)])
def test_the_tests_of_a_new_extension_pass(shell: Shell, language: str, guard: bool) -> None:
    made = shell("guest", "new", "first", "--lang", language, *(["--guard"] if guard else []))
    assert made.returncode == 0, made.stderr
    ran = run_own_tests(shell, shell.cwd / "first")
    assert re.search(rf"^{5 if guard else 4} passed", ran.stdout, re.MULTILINE), ran.stdout
    assert ran.returncode == 0


@pytest.mark.slow
def test_two_new_extensions_are_tested_side_by_side(shell: Shell) -> None:
    for name in ("first", "a-b", "a_b"):
        shell("guest", "new", name)
    ran = run_own_tests(shell, shell.cwd, "-k", "greets")
    assert re.search(r"^6 passed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.slow
@every_language
def test_the_tests_of_a_new_extension_see_when_it_is_broken(shell: Shell, language: str) -> None:
    shell("guest", "new", "first", "--lang", language, "--guard")
    program = shell.cwd / "first" / scaffold.LANGUAGES[language].program
    program.write_text(program.read_text().replace("Hello", "Hullo").replace("rm -rf", "rm -fr"))
    ran = run_own_tests(shell, shell.cwd / "first", "-k", "greets or guard")
    assert re.search(r"^3 failed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guard"])
def test_a_new_extension_and_its_tests_are_typed(shell: Shell, tmp_path: Path, guard: bool) -> None:
    shell("guest", "new", "my-first", *(["--guard"] if guard else []))
    files = [shell.cwd / "my-first" / name for name in ("extension.py", "test_my-first.py")]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", *map(str, files)]
    ran = subprocess.run(command, env=shell.env, cwd=shell.cwd, capture_output=True, text=True, timeout=55, check=False)
    assert (ran.stdout, ran.returncode) == ("Success: no issues found in 2 source files\n", 0)


def nest(text: str) -> object:
    """That text within 600 lists: deeper than jq 1.6 reads, and than jq 1.8 prints."""
    nested: object = text
    for _ in range(600):
        nested = [nested]
    return nested


@every_language
def test_a_new_guard_blocks_what_it_cannot_read(shell: Shell, language: str) -> None:
    shell("guest", "new", "gate", "--lang", language, "--guard")
    with ZotHost(shell.cwd / "gate") as host:
        args = nest('a\\b, "c" rm -rf /')
        assert host.intercept("tool_call", tool_id="1", tool_name="bash", tool_args=args)["block"] is True
        assert not host.intercept("tool_call", tool_id="2", tool_name="bash", tool_args=["ls"]).get("block")
        assert host.call_text("greet", {"name": "Ada"}) == "Hello, Ada!"


@pytest.mark.needs("jq")
def test_a_new_guard_blocks_what_jq_reads_and_does_not_print(shell: Shell) -> None:
    shell("guest", "new", "gate", "--lang", "shell", "--guard")
    with ZotHost(shell.cwd / "gate") as host:  # in the words of jq 1.8 for what is nested too deep
        assert host.intercept("tool_call", tool_id="1", tool_name="bash", tool_args=["<skipped: too deep>"])["block"] is True


@every_language
def test_a_new_tool_answers_what_it_cannot_read(shell: Shell, language: str) -> None:
    shell("guest", "new", "first", "--lang", language)
    with ZotHost(shell.cwd / "first") as host:
        result = host.call_tool("greet", {"name": nest("a\\b, c")})
        assert result["is_error"] is True
        assert host.call_text("greet", {"name": "Ada"}) == "Hello, Ada!"


@pytest.mark.req("sdk.new.works")
@pytest.mark.parametrize("guard", [pytest.param(False, marks=pytest.mark.slow), True], ids=["plain", "guard"])
@every_language
def test_a_new_extension_serves_a_real_host(shell: Shell, language: str, guard: bool) -> None:
    shell("guest", "new", "first", "--lang", language, *(["--guard"] if guard else []))
    called = shell("tool", "call", "greet", ADA, "--guest", "first")
    assert (called.stdout, called.stderr, called.returncode) == ("Hello, Ada!\n", "", 0)
    typed = shell("command", "run", "greet", "Ada", "--guest", "first")
    assert (typed.stdout, typed.stderr, typed.returncode) == ("[first] Hello, Ada!\n", "", 0)
    odd = shell("tool", "call", "greet", BAD, "--guest", "first")
    if guard:
        assert (odd.stdout, odd.returncode) == ("", 4)
        assert odd.stderr == "greet: rm -rf is not run here; delete files by name\n"
    else:
        assert (odd.stdout, odd.returncode) == ("Hello, rm -rf /!\n", 0)
    [listed] = parse_objects(shell("guest", "list", "--json", "--guest", "first"))
    assert (listed["id"], listed["language"], listed["version"], listed["guard"]) == ("zot:first", language, "0.1.0", guard)


@pytest.mark.needs("node")
def test_a_new_guard_holds_when_it_cannot_start(shell: Shell) -> None:
    for name, options in (("gate", ["--guard"]), ("hello", [])):
        shell("guest", "new", name, "--lang", "node", *options)
    (shell.cwd / "gate" / "extension.mjs").write_text("process.exit(1)\n")
    assert shell("tool", "call", "greet", ADA, "--guest", "hello", "--guest", "gate").returncode == 4


@pytest.mark.parametrize("text", ["Zoë\n\"quoted\" 'twice' \\ $(touch x) `touch x` %s", "x" * 300_000, "bell\u0007line\u2028end"])
@every_language
def test_a_new_extension_takes_any_text(shell: Shell, language: str, text: str) -> None:
    shell("guest", "new", "first", "--lang", language)
    (shell.cwd / "args").write_text(json.dumps({"name": text}))
    ran = shell("tool", "call", "greet", "@args", "--guest", "first")
    assert (ran.stdout, ran.stderr) == (f"Hello, {text}!\n", "")
    assert not (shell.cwd / "first" / "x").exists()


@pytest.mark.slow
@pytest.mark.req("sdk.new.works")
@every_language
def test_what_it_says_to_do_next_can_be_done(shell: Shell, language: str) -> None:
    place = shell.cwd / "here and there"
    place.mkdir()
    made = shell("guest", "new", "first", "--lang", language, "--into", "here and there")
    call, check, test = (shlex.split(line) for line in made.stdout.partition("next:\n")[2].splitlines())
    assert (call[0], check[0], test[0]) == ("serai", "serai", "pytest")
    assert shell(*call[1:]).stdout == "Hello, Ada!\n"
    checked = shell(*check[1:])
    assert checked.returncode == 0, checked.stdout
    assert Path(shell.cwd, test[1]).resolve() == place / "first"


# -- what it tells ----------------------------------------------------------------------------------------------------------------


@pytest.mark.needs("node")
def test_it_tells_what_it_made(shell: Shell) -> None:
    ran = shell("guest", "new", "first", "--lang", "node", "--guard")
    told, _, _ = ran.stdout.partition("next:\n")
    files = ["extension.json", "extension.mjs", "test_first.py", "README.md", ".gitignore", "guest.toml"]
    assert told.split() == ["made", "zot:first:", "./first", *files]
    assert sorted(os.listdir(shell.cwd / "first")) == sorted(files)
    assert (ran.stderr, ran.returncode) == ("", 0)


def test_it_tells_the_same_as_json(shell: Shell) -> None:
    [form] = parse_objects(shell("guest", "new", "first", "--lang", "shell", "--json"))
    assert sorted(form.pop("files")) == sorted(os.listdir(shell.cwd / "first"))
    assert [line.split()[0] for line in form.pop("next")] == ["serai", "serai", "pytest"]
    assert form == {"id": "zot:first", "folder": str(shell.cwd / "first"), "language": "shell", "guard": False}


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_of_the_templates_own_marks_is_left(tmp_path: Path, language: str, guard: bool) -> None:
    made = scaffold.create_extension("first", tmp_path, language=language, guard=guard)
    texts = {file: (made.folder / file).read_text() for file in made.files}
    for file, text in texts.items():
        assert not re.search(r"@[A-Z]+@|^%%", text, re.MULTILINE), file
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
    guarding = {"extension.json", "README.md", "test_first.py", scaffold.LANGUAGES[language].program}
    assert {file for file, text in texts.items() if "rm -rf" in text} == (guarding if guard else set())


def test_every_template_is_used() -> None:
    templates = Path(scaffold.__file__).parent / "templates"
    for dialect, languages in scaffold.DIALECTS.items():
        used = {scaffold.LANGUAGES[language].program for language in languages} | {"test_extension.py", "README.md"}
        if dialect == "yoi":
            used |= {
                "plugin.toml",
                "plugin.component.wasm",
                "gitignore",
                *(file for files in scaffold.BESIDE.values() for file in files),
            }
        assert {file.name for file in (templates / dialect).iterdir()} == {f"{file}.txt" for file in used}
    assert {path.name for path in templates.iterdir()} == {*scaffold.DIALECTS, "gitignore.txt", "guest.toml.txt"}


# -- what starts it ---------------------------------------------------------------------------------------------------------------


def test_python3_starts_it_where_python3_has_the_sdk(shell: Shell, tmp_path: Path) -> None:
    path = write_programs(tmp_path / "bin", python3=f'exec {shlex.quote(sys.executable)} "$@"')
    ran = shell("guest", "new", "first", PATH=path)
    manifest = json.loads((shell.cwd / "first" / "extension.json").read_text())
    assert (manifest["exec"], manifest["args"], ran.stderr) == ("python3", ["extension.py"], "")


@pytest.mark.parametrize("script", ["exit 1", None], ids=["without the SDK", "not there"])
def test_this_interpreter_starts_it_elsewhere_and_it_says_so(shell: Shell, tmp_path: Path, script: str | None) -> None:
    path = write_programs(tmp_path / "bin", **({"python3": script} if script else {}))
    (shell.cwd / "serai").mkdir()  # what lies here is not the python3's own
    (shell.cwd / "serai" / "sdk.py").touch()
    ran = shell("guest", "new", "first", PATH=path)
    assert json.loads((shell.cwd / "first" / "extension.json").read_text())["exec"] == sys.executable
    assert (f"extension.json names {sys.executable}" in ran.stderr, ran.returncode) == (True, 0)


@pytest.mark.parametrize(("language", "program"), [("node", "node"), ("shell", "jq")])
def test_a_program_that_it_needs_and_that_is_not_there_is_named(shell: Shell, tmp_path: Path, language: str, program: str) -> None:
    ran = shell("guest", "new", "first", "--lang", language, PATH=write_programs(tmp_path / "bin"))
    assert (f"needs the program {program}" in ran.stderr, ran.returncode) == (True, 0)


def test_the_shell_extension_says_that_it_needs_jq(shell: Shell, tmp_path: Path) -> None:
    shell("guest", "new", "first", "--lang", "shell")
    sh = shutil.which("sh")
    ran = shell("tool", "call", "greet", "--guest", "first", PATH=write_programs(tmp_path / "bin", sh=f'exec {sh} "$@"'))
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "first needs the program jq: install it" in ran.stderr


# -- what is refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.new.refuses")
@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "../x", ".x", "-x", "ä", "x\n", "x\x1b[31m", "$(x)", "x" * 65])
def test_a_name_that_cannot_be_used_is_refused(shell: Shell, name: str) -> None:
    ran = shell("guest", "new", "--", name)
    assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 2, [])
    assert "letters, digits, - and _" in ran.stderr
    assert "\x1b" not in ran.stderr


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", ["x", "7", "_x", "Weather-2_b", "serai", "x" * 64])
def test_other_names_are_taken(shell: Shell, name: str) -> None:
    shell("guest", "new", name, "--lang", "node")
    assert shell("tool", "call", "greet", ADA, "--guest", name).stdout == "Hello, Ada!\n"


@pytest.mark.req("sdk.new.refuses")
@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling link"])
def test_what_is_there_is_left_as_it_is(shell: Shell, tmp_path: Path, kind: str) -> None:
    there, other = shell.cwd / "first", tmp_path / "other"
    if kind == "folder":
        there.mkdir()
        (there / ".hidden").write_text("mine")
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(other)
        if kind == "link":
            other.mkdir()
    ran = shell("guest", "new", "first", "--lang", "node")
    assert (ran.stdout, ran.returncode, len(ran.stderr.splitlines())) == ("", 1, 2)
    assert "first: it is there already" in ran.stderr
    assert os.listdir(shell.cwd) == ["first"]
    if kind == "folder":
        assert [file.read_text() for file in there.iterdir()] == ["mine"]
    assert not other.exists() or not os.listdir(other)


def test_an_empty_folder_is_filled(shell: Shell) -> None:
    (shell.cwd / "first").mkdir()
    assert shell("guest", "new", "first", "--lang", "node").returncode == 0
    assert (shell.cwd / "first" / "extension.json").is_file()


@pytest.mark.req("sdk.new.refuses")
def test_nothing_half_made_is_left_where_there_is_no_room(shell: Shell) -> None:
    ran = run_limited(shell, 400, "guest", "new", "first", "--lang", "node")
    assert (ran.stdout, ran.returncode, os.listdir(shell.cwd)) == ("", 1, [])
    assert "first: cannot be made: File too large" in ran.stderr


@pytest.mark.req("sdk.new.refuses")
def test_nothing_half_made_is_left_by_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scaffold._staging_folder(tmp_path / "first") as folder:
        (folder / "half").touch()
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_who_is_quicker_keeps_the_name(tmp_path: Path) -> None:
    target = tmp_path / "first"
    with pytest.raises(BadSettings, match="there already"), scaffold._staging_folder(target):
        target.mkdir()
        (target / "theirs").touch()
    assert os.listdir(target) == ["theirs"]
    assert os.listdir(tmp_path) == ["first"]


@pytest.mark.parametrize(
    "option", [["--lang", "cobol"], ["--dialect", "smoke"], ["--into", "nowhere"], ["--into", ""], ["--lang", "typescript"]]
)
def test_options_that_make_no_sense_are_refused(shell: Shell, option: list[str]) -> None:
    assert (shell("guest", "new", "first", *option).returncode, os.listdir(shell.cwd)) == (2, [])
