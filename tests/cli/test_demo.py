"""`serai demo` as a person starts it: real processes, with a home and a folder for temporary files of its own."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serai.boxes.backends.local import LocalBackend
from serai.cli.demo import COLUMNS, DemoContext, play_boxes
from serai.errors import BoxFailed
from serai.record import Recorder, RecordingFolder
from serai.testing.claude.script import Script, ScriptedClaude
from serai.wire import process_tree
from tests.support.typescript import write_node

# What each act must say, in this order; `…` stands for whatever is between.
STORY = """
weather  is ready after … ms: weather, /weather, /forecast
guard    is ready after … ms: guards assistant_message, guards tool_call, guards turn_start
harbour  is ready after … ms: tide, /logbook, guards tool_call, guards tool_result
1  A rule allows it
you      What is the weather in Bern?
parrot   wants weather {"city": "Bern"}
policy   allow: the rule `weather` allows it: the weather is no secret
weather  Bern: 16 degrees, fog
2  No rule knows it: a person is asked
parrot   wants write weather.txt
person   is asked about write: yes (a script answers in their place)
serai    weather.txt: made, 9 bytes
3  The guard blocks it
parrot   wants bash rm -rf build
guard    blocks it: bash: rm -rf is not run here; delete files by name
machine  in the project there are build, weather.txt
4  The guard rewrites it, and the rules judge what it made of it
parrot   wants weather {"city": "Paris"}
guard    rewrites it; what runs is weather {"city": "Bern"}
policy   allow: the rule `weather` allows it: the weather is no secret
weather  Bern: 16 degrees, fog
5  One house, several tongues: a piglet guest and a zot guest judge each other's tools
you      Is it fine in Atlantis?
parrot   wants weather {"city": "Atlantis"}
harbour  blocks it: harbour master: no ship has come back from Atlantis
you      How is the tide?
parrot   wants tide {"harbour": "rm -rf /"}
guard    blocks it: tide: rm -rf is not run here; delete files by name
you      I mean in Bergen.
parrot   wants tide {"harbour": "Bergen"}
policy   allow: the rule `sea` allows it: every sailor may know it
harbour  Bergen: the water stands at 364 cm
6  A guest's command writes a prompt
you      /forecast Oslo
prompt   What should I wear today? The weather in Oslo: -2 degrees, snow.
parrot   You said: What should I wear today? The weather in Oslo: -2 degrees, snow.
7  The guard is killed: nothing gets past it
machine  SIGKILL to process …
you      What is the weather in Rome?
serai    refused: the guard zot:guard is …
parrot   was asked 0 times
guard    is ready again after … s, as process …
8  The conversation goes on, also in another run
you      Remember a word: caravan.
parrot   The word is caravan.
serai    a new run goes on with session … and its … messages
you      What was the word?
parrot   The word is caravan.
9  A WASM plugin may read in the folder that it was granted, and nowhere else
person   and to read in shelf/, pinned to sha256:…
notes    is ready after … ms in a process that can do nothing else
parrot   wants wat_count {"path": "list.txt"}
policy   allow: the rule `notes` allows it: to count lines is harmless
notes-wat tool completed {"lines":2,"words":3}
parrot   wants wat_count {"path": "../secret.txt"}
notes    is ended: WASM execution error: FS path traversal outside the grant root is denied …
parrot   wants wat_count {"path": "rm -rf /"}
guard    blocks it: wat_count: rm -rf is not run here; delete files by name
10  The same guard over Claude Code
claude   is a stand-in that plays a script and asks as Claude Code does, which is not installed here
you      Tidy up.
claude   wants bash rm -rf build
guard    blocks it: bash: rm -rf is not run here; delete files by name
you      Everybody may run deploy.sh.
claude   wants bash chmod 777 deploy.sh; stat -c 'it has mode %a' deploy.sh
guard    rewrites it; what would run is bash chmod 755 deploy.sh; stat -c 'it has mode %a' deploy.sh
person   is asked about bash: yes (a script answers in their place)
claude   it has mode 755
11  A box, with a hook at its birth and death
token    the hook has done its work for the box demo; tokens at its server: 1
box      demo, uid 0; in sight: 0 homes, … processes, network lo; its token has mode 600 and 65 bytes
token    the box is destroyed; tokens at its server: 0
licence  no second box: exit status 3: the licence server is down; tokens at its server: 0
12  What is on record: …
… zot:guard      → event_intercept:tool_call …"tool_args":{"city":"Paris"}}
… zot:guard      ← event_intercept_response after … ms …"modified_args": {"city": "Bern"}}
… zot:weather    → tool_call …"name":"weather","args":{"city":"Bern"}}
… zot:weather    ← tool_result after … ms …"text": "Bern: 16 degrees, fog"}]}
… piglet:harbour → interceptor/before …"toolName":"weather","args":{"city":"Atlantis"}}}
… piglet:harbour ← result after … ms …no ship has come back from Atlantis"}}
… zot:guard      · end: ended (killed by SIGKILL)
… zot:guard      · open: wire … generation 2, pid …
… yoi:notes-wat  ← host …"function":"read","args":["{\\"path\\":\\"list.txt\\"}"]}
… yoi:notes-wat  → reply after … ms …
… yoi:notes-wat  ← host …"args":["{\\"path\\":\\"../secret.txt\\"}"]}
… yoi:notes-wat  → reply after … ms …FS path traversal outside the grant root is denied"}
… claude         ← control_request:can_use_tool …
… claude         → control_response:success after … ms …'it has mode %a' deploy.sh"}}}}
… hook:token     → object {"event":"box.create","box":{"box_id":"demo"}}
… hook:token     ← object …"mode":"0600"}],"state":"****************"}
Processes of this story that are left: 0. Its folder is removed, with the recording.
"""


class Person:
    """Somebody with settings, a key and nothing that a demonstration should touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.settings, self.temporary = root / "home", root / "settings", root / "t"
        for folder in (self.home, self.settings, self.temporary):
            folder.mkdir()
        (self.settings / "config.toml").write_text("agent = 'nobody'\nthis = 'is no setting'\n")

    def start(self, *arguments: str, stdout: int = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
        base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        base |= {"HOME": str(self.home), "SERAI_HOME": str(self.settings), "TMPDIR": str(self.temporary), "TERM": "xterm"}
        base |= {"OPENAI_API_KEY": "sk-of-the-person-and-nobody-else", "CLAUDE_CLI_PATH": str(self.root / "no-claude")}
        command = [sys.executable, "-m", "serai", "demo", *arguments]
        return subprocess.Popen(
            command, env=base | env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=self.home
        )

    def assert_nothing_is_left(self) -> None:
        assert sorted(self.root.rglob("*")) == [self.home, self.settings, self.settings / "config.toml", self.temporary]
        assert list(_find_processes(str(self.root))) == []


def _find_processes(text: str) -> Iterator[str]:
    """Those whose environment or command line speaks of it: all that a demonstration starts do."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        about = b"\0".join(process_tree.read_proc_file(f"/proc/{pid}/{name}") for name in ("environ", "cmdline"))
        if text.encode() in about and int(pid) != os.getpid():
            yield about.decode(errors="replace")


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def read_to_end(process: subprocess.Popen[str]) -> str:
    said, complaints = process.communicate(timeout=50)
    assert (process.returncode, complaints) == (0, "")
    return said


def read_terminal(master: int) -> str:
    """All that a terminal was given, until nobody has it open any more."""
    said = b""
    while True:
        try:
            said += os.read(master, 65536)
        except OSError:
            return said.decode()


def split_lines(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if line.strip()]


@pytest.mark.needs("namespaces")
@pytest.mark.req("app.demo.story", "app.demo.alone", "app.demo.tongues", "record.cli.demo")
def test_the_demo_tells_the_whole_story_from_what_happened_and_leaves_nothing(person: Person) -> None:
    said = read_to_end(person.start())
    told = iter(split_lines(said))
    for wanted in STORY.strip().splitlines():
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        assert any(re.fullmatch(pattern, line) for line in told), f"not told, or not in its place: {wanted}\n{said}"
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= COLUMNS
    assert len(said.splitlines()) <= 115
    person.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.req("app.demo.tongues")
def test_the_example_in_typescript_takes_part_where_node_runs_it(person: Person, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = f"{write_node(tmp_path_factory.mktemp('bin'))}{os.pathsep}{os.environ['PATH']}"
    told = iter(split_lines(read_to_end(person.start(PATH=path))))
    for begins in (
        "glossary is ready after ",
        'parrot   wants define {"term": "NDJSON"}',
        "glossary NDJSON: newline-delimited JSON",
    ):
        assert any(line.startswith(begins) for line in told), begins


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ScriptedClaude]:
    return lambda script: ScriptedClaude(tmp_path_factory.mktemp("installed"), script)


@pytest.mark.slow
@pytest.mark.req("app.demo.claude")
def test_the_claude_code_of_the_machine_plays_its_part(person: Person, installed: Callable[..., ScriptedClaude]) -> None:
    one, two = "rm -rf build", "chmod 777 deploy.sh; stat -c 'it has mode %a' deploy.sh"
    program = installed(Script().init().calls("t1", command=one).result(".").prompt().init().calls("t2", command=two).result("."))
    told = split_lines(read_to_end(person.start(CLAUDE_CLI_PATH=str(program.path))))
    assert "claude   is Claude Code 2.1.325 of this machine; its model is one of ours, which does what a script says" in told
    assert "guard    blocks it: bash: rm -rf is not run here; delete files by name" in told
    assert "claude   it has mode 755" in told
    given = program.given()
    assert {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"} <= set(given.env)
    assert "OPENAI_API_KEY" not in given.env
    assert f'>> call Bash {{"command": "{one}"}}' in given.frames[1]["message"]["content"]
    person.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.req("app.demo.claude")
def test_where_it_does_not_work_one_line_says_why_and_the_story_goes_on(
    person: Person, installed: Callable[..., ScriptedClaude]
) -> None:
    program = installed(Script(greeted=False).err("not logged in").exits(1))
    told = split_lines(read_to_end(person.start(CLAUDE_CLI_PATH=str(program.path))))
    [why] = [line for line in told if line.startswith("claude   it does not work here: ")]
    assert "not logged in" in why
    assert "11  A box, with a hook at its birth and death" in told
    person.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.req("app.demo.colours", "app.demo.alone")
def test_two_at_the_same_time_are_told_alike_with_colours_on_the_terminal_alone(person: Person) -> None:
    master, slave = pty.openpty()
    try:
        with person.start(stdout=slave) as coloured, person.start() as plain:
            os.close(slave)
            shown = read_terminal(master)
            read_to_end(coloured)
            said = read_to_end(plain)
    finally:
        os.close(master)
    assert "\x1b[1m" in shown
    assert "\x1b[32m" in shown
    assert "\x1b" not in said
    bare = re.sub(r"\x1b\[\d+m", "", shown)
    assert len(split_lines(bare)) == len(split_lines(said)) >= len(STORY.strip().splitlines())
    assert split_lines(bare)[-1] == split_lines(said)[-1] == STORY.strip().splitlines()[-1]
    person.assert_nothing_is_left()


@pytest.mark.req("app.demo.alone")
def test_a_demo_whose_reader_has_read_enough_ends_quietly_and_leaves_nothing(person: Person) -> None:
    with person.start() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(50) == 1
    person.assert_nothing_is_left()


@pytest.fixture
def demo_context(tmp_path: Path) -> Iterator[DemoContext]:
    with Recorder(RecordingFolder(tmp_path / "recordings"), command="a test") as recorder:
        yield DemoContext(recorder, tmp_path, color=False)


@pytest.mark.req("app.demo.boxes")
async def test_where_there_are_no_namespaces_one_line_says_so(
    demo_context: DemoContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalBackend, "missing", "the kernel has none")
    await play_boxes(demo_context)
    assert split_lines(capsys.readouterr().out) == [
        "1  A box, with a hook at its birth and death",
        "machine  no boxes here: the kernel has none",
    ]


@pytest.mark.needs("namespaces")
@pytest.mark.req("app.demo.boxes")
async def test_where_a_box_cannot_be_made_after_all_one_line_says_why(
    demo_context: DemoContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise BoxFailed("mount: not permitted", who="box demo")

    monkeypatch.setattr(LocalBackend, "provision", fails)
    await play_boxes(demo_context)
    _, why = split_lines(capsys.readouterr().out)
    assert why.startswith("machine  no box here: ")
    assert "mount: not permitted" in why
