"""`serai session …` as a person calls it."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.store import AssistantMessage, SessionFolder, StoredSession, ToolResultMessage, UserMessage
from serai.store.messages import StoredImage, StoredText, StoredThinking, StoredToolCall
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import Shell, parse_objects, read_lines

HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e"
LONG = "\n".join(f"line {number}" for number in range(30))
AT = "2026-02-03T10:00:00Z"


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    return InProcessShell(tmp_path)


@pytest.fixture
def new(shell: Shell) -> Callable[..., StoredSession]:
    def make(cwd: str | Path | None = None, **about: str) -> StoredSession:
        return SessionFolder.usual({"SERAI_HOME": str(shell.home)}).create(str(cwd or shell.cwd), **about)

    return make


@pytest.fixture
def talk(new: Callable[..., StoredSession]) -> StoredSession:
    """A conversation with a tool, a label, and a second branch, which is the active one."""
    with new(title="make the tests pass", agent="claude", model="m1") as one:
        asked = one.append_user("please make\nthe tests pass")
        said = (
            StoredThinking("is there\na Makefile?"),
            StoredText("I run them."),
            StoredToolCall("c1", "bash", {"command": "make test"}),
        )
        one.say(AssistantMessage(said, "m1", timestamp=AT))
        one.say(ToolResultMessage("c1", "bash", (StoredText(LONG), StoredImage("aGVsbG8h", "image/png")), timestamp=AT))
        end = one.say(AssistantMessage((StoredText("They pass."),), "m1", timestamp=AT))
        one.label(asked.id, "start")
        one.branch(end.id, "")
        one.append_user("thank you")
    return one


def run(shell: Shell, *arguments: str) -> subprocess.CompletedProcess[str]:
    return shell("session", *arguments, TZ="UTC")


# -- list -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("store.cli.list")
def test_list_has_the_newest_first_and_a_star_for_those_of_this_folder(shell: Shell, new: Callable[..., StoredSession]) -> None:
    made = [new(title="first", agent="claude", model="m1"), new("/srv/other", title="second")]
    for one in made:
        one.close()
    said = read_lines(run(shell, "list"))
    assert said[0].split() == ["id", "begun", "agent", "title", "folder"]
    assert said[1].split()[0] == made[1].id[:8]
    assert said[1].endswith("  second  /srv/other")
    assert said[2].startswith(f"*  {made[0].id[:8]}  20")
    assert said[2].endswith(f"  claude m1  first   {shell.cwd}")
    assert len(read_lines(run(shell, "list", "--here"))) == 2
    assert [form["id"] for form in parse_objects(run(shell, "list", "--here", "--cwd", "/srv/other", "--json"))] == [made[1].id]


@pytest.mark.req("store.cli.list")
def test_list_as_json(shell: Shell, new: Callable[..., StoredSession]) -> None:
    with new(title="first", agent="claude", agent_session="abc") as one:
        pass
    [form] = parse_objects(run(shell, "list", "--json"))
    assert {key: form[key] for key in ("id", "title", "cwd", "agent", "agent_session", "here")} == {
        "id": one.id,
        "title": "first",
        "cwd": str(shell.cwd),
        "agent": "claude",
        "agent_session": "abc",
        "here": True,
    }
    assert form["bytes"] == os.path.getsize(one.file)
    assert form["created"] == one.meta.created


@pytest.mark.req("store.cli.list")
def test_one_bad_file_is_told_and_hides_no_other(shell: Shell, talk: StoredSession) -> None:
    (Path(talk.file).parent / "bad.jsonl").write_text("rubbish\n")
    ran = run(shell, "list")
    assert len(ran.stdout.splitlines()) == 2
    assert (ran.stderr, ran.returncode) == ("left out: bad.jsonl: session file has no metadata\n", 0)


@pytest.mark.req("store.cli.list")
def test_without_any_sessions_that_is_said_and_nothing_is_made(shell: Shell) -> None:
    ran = run(shell, "list")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", f"there are no sessions in {shell.home}/sessions\n", 0)
    assert run(shell, "list", "--json").stdout == ""
    assert not shell.home.exists()


# -- show -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("store.cli.show")
def test_show_is_the_conversation_of_the_active_branch(shell: Shell, talk: StoredSession) -> None:
    said = read_lines(run(shell, "show"))
    assert said[0] == "make the tests pass"
    assert said[1].startswith(f"  {talk.id}, claude, m1, {shell.cwd}, 20")
    assert said[3].startswith("you  20")
    assert said[4:12] == [
        "  please make",
        "  the tests pass",
        "",
        "claude  2026-02-03 10:00:00",
        "  (thinks, 20 characters)",
        "  I run them.",
        '  calls bash {"command":"make test"}',
        "",
    ]
    assert said[12:14] == ["bash answered  2026-02-03 10:00:00", "  line 0"]
    assert said[25:30] == [
        "  … and 18 lines more: --full shows them",
        "  [image image/png, 6 bytes]",
        "",
        "claude  2026-02-03 10:00:00",
        "  They pass.",
    ]
    assert said[-1] == "  thank you"


@pytest.mark.req("store.cli.show")
def test_show_can_be_full_and_can_be_the_end_only(shell: Shell, talk: StoredSession) -> None:
    full = read_lines(run(shell, "show", "--full"))
    assert "  line 29" in full
    assert full[full.index("  (thinks) is there") + 1] == "  (thinks) a Makefile?"
    said = read_lines(run(shell, "show", talk.id[:6], "--last", "1"))
    assert said[2] == "(4 earlier messages)"
    assert said[-1] == "  thank you"
    assert len(said) == 6
    assert read_lines(run(shell, "show", "--last", "0"))[2:] == ["(5 earlier messages)"]
    assert "earlier" not in run(shell, "show", "--last", "99").stdout


@pytest.mark.req("store.cli.show")
def test_show_as_json_has_each_message(shell: Shell, talk: StoredSession) -> None:
    forms = parse_objects(run(shell, "show", "--json"))
    assert [form["role"] for form in forms] == ["user", "assistant", "tool_result", "assistant", "user"]
    assert forms[0]["content"] == "please make\nthe tests pass"
    assert forms[1]["content"][2] == {"type": "tool_call", "id": "c1", "name": "bash", "arguments": {"command": "make test"}}
    assert parse_objects(run(shell, "show", "--json", "--last", "1")) == forms[-1:]


@pytest.mark.req("store.cli.show")
def test_without_an_id_the_latest_of_this_folder_is_meant(shell: Shell, new: Callable[..., StoredSession]) -> None:
    with new() as first, new() as second, new("/srv/other") as other:
        second.append_user("second")
        other.append_user("other")
        os.utime(first.file, (1, 1))
    assert "  second" in read_lines(run(shell, "show"))
    assert "  other" in read_lines(run(shell, "show", "--cwd", "/srv/other"))
    assert "  other" in read_lines(run(shell, "show", other.file))
    ran = run(shell, "show", "--cwd", "/")
    said = "serai: /: this folder has no sessions\n`serai session list` shows what there is\n"
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", said, 1)


@pytest.mark.req("store.cli.show")
def test_a_session_without_a_word_says_so(shell: Shell, new: Callable[..., StoredSession]) -> None:
    with new() as one:
        pass
    ran = run(shell, "show")
    assert ran.stdout.splitlines()[0] == f"session {one.id}"
    assert (ran.stderr, ran.returncode) == ("nothing was said yet\n", 0)


@pytest.mark.req("store.cli.show")
def test_what_cannot_be_read_of_a_session_is_told_beside_it(shell: Shell, talk: StoredSession) -> None:
    with open(talk.file, "ab") as file:
        file.write(b"rubbish\n")
    for command in ("show", "tree", "export"):
        ran = run(shell, command)
        assert "thank you" in ran.stdout
        assert ran.returncode == 0
        [told] = ran.stderr.splitlines()
        assert told.startswith(f"{talk.file}: some of it cannot be read and was left out: byte ")


# -- tree -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("store.cli.tree")
def test_tree_has_every_branch_the_labels_and_stars_for_the_active_one(shell: Shell, talk: StoredSession) -> None:
    shown = read_lines(run(shell, "tree"))[2:]
    assert [line[:2] for line in shown] == ["* "] * 6 + ["  "]
    assert shown[0].endswith("  user  please make the tests pass  [start]")
    assert shown[3].endswith("  assistant  They pass.")
    assert shown[4][:4] == "* + "
    assert shown[4].endswith("  branch_summary")
    assert shown[5][:4] == "*   "
    assert shown[5].endswith("  user  thank you")
    assert shown[6][:4] == "  + "
    assert shown[6].endswith("  label")


@pytest.mark.req("store.cli.tree")
def test_tree_as_json(shell: Shell, talk: StoredSession) -> None:
    forms = parse_objects(run(shell, "tree", "--json"))
    assert [form["type"] for form in forms] == [
        "user",
        "assistant",
        "tool_result",
        "assistant",
        "branch_summary",
        "user",
        "label",
    ]
    assert [form["active"] for form in forms] == [True] * 6 + [False]
    assert (forms[0]["label"], forms[3]["children"], forms[6]["parent"]) == ("start", 2, forms[3]["id"])


@pytest.mark.req("store.cli.tree")
def test_a_long_chain_goes_straight_down_and_many_forks_not_out_of_sight(shell: Shell, new: Callable[..., StoredSession]) -> None:
    with new() as one:
        for number in range(60):
            last = one.append_user(f"step {number}")
            one.append_user("aside")
            one.branch(last.id)
    shown = read_lines(run(shell, "tree"))[2:]
    assert len(shown) == 180
    assert max(len(line) - len(line[2:].lstrip(" +")) for line in shown) <= 2 + 2 * 20


# -- export -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("store.cli.export")
def test_export_is_a_markdown_page(shell: Shell, talk: StoredSession) -> None:
    page = run(shell, "export").stdout
    assert page.startswith("# make the tests pass\n\n- Session: `")
    assert LONG in page
    assert "is there\na Makefile?" in page
    assert page.index("please make") < page.index("They pass.") < page.index("thank you")


@pytest.mark.req("store.cli.export")
def test_export_writes_a_file_for_this_user_alone_and_replaces_none_unasked(shell: Shell, talk: StoredSession) -> None:
    page = run(shell, "export").stdout
    path = shell.cwd / "talk.md"
    ran = run(shell, "export", talk.id, "-o", "talk.md")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("talk.md: written\n", "", 0)
    assert path.read_text() == page
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("mine")
    ran = run(shell, "export", "-o", "talk.md")
    said = "serai: talk.md: the file exists already\nchoose another name, or replace it with --force\n"
    assert (ran.stdout, ran.stderr, ran.returncode, path.read_text()) == ("", said, 1, "mine")
    assert run(shell, "export", "-o", "talk.md", "--force").returncode == 0
    assert path.read_text() == page
    assert [child.name for child in shell.cwd.iterdir()] == ["talk.md"]


@pytest.mark.req("store.cli.export")
@pytest.mark.parametrize("place", ["nowhere/talk.md", "."])
def test_a_file_that_cannot_be_written_is_told_and_nothing_is_left(shell: Shell, talk: StoredSession, place: str) -> None:
    for force in ([], ["--force"]):
        ran = run(shell, "export", "-o", place, *force)
        assert (ran.stdout, ran.returncode) == ("", 1)
        assert ran.stderr.startswith(f"serai: {place}: the file ")
    assert list(shell.cwd.iterdir()) == []


@pytest.mark.req("store.cli.export")
def test_export_as_json_is_a_session_again(shell: Shell, talk: StoredSession, tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_text(run(shell, "export", "--json").stdout)
    with StoredSession(str(path)) as copy, StoredSession(talk.file) as one:
        assert copy.read_messages() == one.read_messages()
        assert [entry.id for entry in copy.read_path()] == [entry.id for entry in one.read_path()]
        assert copy.meta == one.meta


# -- all of them ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("store.cli.terminal")
@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "--full"],
        ["show", "--json"],
        ["tree"],
        ["tree", "--json"],
        ["export", "--json"],
    ],
)
def test_nothing_of_a_session_acts_on_the_terminal(shell: Shell, new: Callable[..., StoredSession], arguments: list[str]) -> None:
    write_hostile_session(new)
    ran = run(shell, *arguments)
    assert ran.returncode == 0
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(ran.stdout + ran.stderr)
    assert "\x1b[2J".encode("unicode_escape").decode() in ran.stdout or "\\u001b[2J" in ran.stdout


def write_hostile_session(new: Callable[..., StoredSession]) -> StoredSession:
    with new(title=f"{HOSTILE}\nyou", agent=HOSTILE, model=HOSTILE) as one:
        first = one.say(UserMessage(f"{HOSTILE}\r\n\nclaude", (StoredText(HOSTILE), StoredImage("aGk=", HOSTILE)), HOSTILE))
        one.say(
            AssistantMessage(
                (StoredThinking(HOSTILE), StoredText(HOSTILE), StoredToolCall(HOSTILE, HOSTILE, {HOSTILE: HOSTILE})), error=HOSTILE
            )
        )
        one.say(ToolResultMessage(HOSTILE, HOSTILE, (StoredText(HOSTILE),), True))
        one.append_entry(f"ext:{HOSTILE}", {HOSTILE: HOSTILE})
        one.label(first.id, HOSTILE)
    return one


@pytest.mark.req("store.cli.show")
@pytest.mark.parametrize(("term", "no_color", "coloured"), [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)])
def test_there_are_colours_unless_somebody_wants_none(
    shell: InProcessShell, talk: StoredSession, term: str, no_color: str, coloured: bool
) -> None:
    shell.coloured = True
    assert ("\x1b[" in shell("session", "show", TERM=term, NO_COLOR=no_color).stdout) is coloured


@pytest.mark.req("store.cli.terminal")
def test_no_text_can_be_taken_for_a_heading(shell: Shell, new: Callable[..., StoredSession]) -> None:
    with new() as one:
        one.append_user("hello\n\nclaude  2026-01-01 00:00:00\nI agree.")
    headings = [line for line in read_lines(run(shell, "show"))[2:] if line and not line.startswith("  ")]
    assert len(headings) == 1


@pytest.mark.req("store.cli.export")
def test_what_is_no_file_is_written_to_and_not_replaced(shell: Shell, talk: StoredSession) -> None:
    page = run(shell, "export").stdout
    pipe = shell.cwd / "pipe"
    os.mkfifo(pipe)
    assert "the file exists already" in run(shell, "export", "-o", "pipe").stderr
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ran = run(shell, "export", "-o", "pipe", "--force")
        assert (ran.stdout, ran.stderr, ran.returncode) == ("pipe: written\n", "", 0)
        assert os.read(reader, 65536).decode() == page
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    ran = run(shell, "export", "-o", ".", "--force")
    assert (ran.stderr, ran.returncode) == ("serai: .: the file cannot be written: Is a directory\nchoose another place\n", 1)


@pytest.mark.req("store.cli.terminal", "store.cli.export")
def test_a_page_goes_into_a_pipe_as_it_is_and_is_spelt_out_on_a_terminal(shell: Shell, new: Callable[..., StoredSession]) -> None:
    one = write_hostile_session(new)
    assert "\x1b[2J" in run(shell, "export").stdout
    master, slave = pty.openpty()
    try:
        ran = subprocess.run(
            shell.argv("session", "export", one.id), env=shell.env, stdout=slave, cwd=shell.cwd, timeout=50, check=False
        )
        os.close(slave)
        shown = os.read(master, 65536)
    finally:
        os.close(master)
    assert ran.returncode == 0
    assert b"\x1b" not in shown
    assert b"\\x1b[2J" in shown


@pytest.mark.req("store.cli.show")
@pytest.mark.parametrize("command", ["show", "tree", "export"])
@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("nonsense", "there is no session nonsense\n`serai session list` shows what there is\n"),
        ("", "there is no session \n"),
        ("./nowhere.jsonl", "there is no such session\n"),
        ("./\x1b[2J", "\\x1b[2J: there is no such session\n"),
        ("/", "it is no regular file\n"),
    ],
)
def test_what_is_no_session_is_told(shell: Shell, talk: StoredSession, command: str, id: str, said: str) -> None:
    ran = run(shell, command, id)
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.req("store.cli.show")
def test_the_start_of_an_id_has_to_be_of_one_session(shell: Shell, talk: StoredSession) -> None:
    path = Path(talk.file)
    (path.parent / f"{talk.id[:8]}-other.jsonl").write_bytes(path.read_bytes())
    ran = run(shell, "show", talk.id[:8])
    assert ran.returncode == 1
    assert f"2 sessions are called {talk.id[:8]}…: say more of the id" in ran.stderr
    assert run(shell, "show", talk.id).returncode == 0


ODD = [
    rb'{"type":"user","id":"x1","ts":"9999-99-99T00:00:00Z","data":{"content":"lone \ud800 and ' + b"\xff" + rb'"}}',
    rb'{"type":"assistant","id":"x2","parentId":"x1","data": { "content":	[{"weird":1e400},{"text":5}]}}',
    b'{"type":"user","id":"x3","parentId":"x2","data":{"content":' + b"[" * 900 + b"]" * 900 + b"}}",
    b'{"type":"custom_message","id":"x4","parentId":"x3","data":{"role":"user","content":"the end"}}',
]


@pytest.mark.req("store.cli.terminal")
def test_whatever_is_in_a_file_json_is_one_object_per_line_and_nothing_fails(shell: Shell, talk: StoredSession) -> None:
    with open(talk.file, "ab") as file:
        file.write(b"\n".join([*ODD, b""]))
    for options in (["show"], ["show", "--full"], ["tree"], ["export"]):
        ran = run(shell, *options)
        assert ran.returncode == 0
        assert "the end" in ran.stdout or "x4" in ran.stdout
    for command in ("list", "show", "tree", "export"):
        assert all(isinstance(json.loads(line), dict) for line in run(shell, command, "--json").stdout.splitlines())


@pytest.mark.parametrize(
    ("options", "said"), [(["show", "--last", "-1"], "-1 is not in the range"), (["export", "-o", ""], "empty")]
)
def test_a_wrong_command_line_is_told(shell: Shell, options: list[str], said: str) -> None:
    ran = run(shell, *options)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert said in ran.stderr
