"""`serai agent sessions` and `serai agent show` as a person calls them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.claude.transcripts import TranscriptFolder, assistant, user, uuid
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects, read_lines

HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e"


@pytest.fixture
def home(tmp_path: Path) -> TranscriptFolder:
    return TranscriptFolder(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> InProcessShell:
    place = tmp_path / "shell"
    place.mkdir()
    return InProcessShell(place)


def run(shell: InProcessShell, home: TranscriptFolder, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return shell("agent", *arguments, cwd=home.project, CLAUDE_CONFIG_DIR=str(home.folder), TZ="UTC")


@pytest.mark.req("agents.must.09")
def test_the_sessions_of_this_folder_the_newest_first(shell: InProcessShell, home: TranscriptFolder, tmp_path: Path) -> None:
    home.real("two-prompts", 1)
    home.real("compacted", 4, pad=400_000)
    home.write(5, user("hi"))
    home.write(6, user("of another folder", cwd="/srv/other"), project=tmp_path / "other")
    said = read_lines(run(shell, home, "sessions"))
    assert said[0].split() == ["id", "begun", "status", "turns", "cost", "title", "folder"]
    assert [line.split()[0] for line in said[1:]] == ["00000004", "00000001"]
    assert "2026-11-16 18:01:21  complete  " in said[1]
    assert f"  $0.08  And now the second prompt >> say The second answer.  {home.project}" in said[2]
    assert len(read_lines(run(shell, home, "sessions", "--limit", "1"))) == 2
    assert len(read_lines(run(shell, home, "sessions", "--all"))) == 5
    [other] = parse_objects(run(shell, home, "sessions", "--project", tmp_path / "other", "--json"))
    assert (other["session_id"], other["project_path"], other["first_message"]) == (uuid(6), "/srv/other", "of another folder")


def test_there_may_be_none(shell: InProcessShell, home: TranscriptFolder) -> None:
    ran = run(shell, home, "sessions")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert f"there are no sessions of {home.project} in " in ran.stderr
    ran = run(shell, home, "sessions", "--all", "--project", "x")
    assert (ran.returncode, "exclude each other" in ran.stderr) == (2, True)


def test_one_of_them_is_shown_and_how_to_go_on_with_it(shell: InProcessShell, home: TranscriptFolder) -> None:
    home.real("two-prompts", 1)
    ran = run(shell, home, "show", "00000001")
    said = ran.stdout.splitlines()
    assert said[0] == "And now the second prompt >> say The second answer."
    assert said[1] == f"  {uuid(1)}, complete, claude-opus-5-5, version 2.1.325"
    assert said[3].endswith(", 2 turns, 35114 tokens in, 19 out, $0.0817")
    told = ("  Please list the files", "  And now the second prompt", "  The second answer.")
    assert tuple(line for line in said[5:] if line in told) == told
    assert ran.stderr == f"to go on with it: cd {home.project} && serai run --agent claude --session {uuid(1)} PROMPT\n"


def test_as_json_it_is_what_is_known_and_then_every_row(shell: InProcessShell, home: TranscriptFolder) -> None:
    path = home.write(1, user("do something", big=10**30), b'{"type":"odd","text":"caf\xe9"}\n', assistant("done"))
    known, *rows = read_lines(run(shell, home, "show", uuid(1), "--json"))
    assert json.loads(known)["first_message"] == "do something"
    assert [json.loads(row)["type"] for row in rows] == ["user", "odd", "assistant"]
    assert json.loads(rows[0]) == json.loads(path.read_bytes().splitlines()[0])


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_that_a_terminal_acts_upon_gets_out(shell: InProcessShell, home: TranscriptFolder, more: tuple[str, ...]) -> None:
    home.write(
        1, user(f"say {HOSTILE}\nagain", cwd=f"/srv/{HOSTILE}", gitBranch=HOSTILE, version=HOSTILE), assistant(HOSTILE, id=HOSTILE)
    )
    home.write(2, user("do it"), assistant(HOSTILE, isApiErrorMessage=True), {"type": "custom-title", "customTitle": HOSTILE})
    for arguments in (("sessions", "--all"), ("show", uuid(1)), ("show", uuid(2))):
        ran = run(shell, home, *arguments, *more)
        assert ran.returncode == 0
        assert not set(HOSTILE[:1] + "\x07\u202e") & set(ran.stdout + ran.stderr)


@pytest.mark.parametrize(
    ("id", "why"), [("nonsense", "no session id"), ("0000", "2 sessions begin so"), (uuid(9), "there is no such session")]
)
def test_what_is_not_there_is_an_error_that_says_so(shell: InProcessShell, home: TranscriptFolder, id: str, why: str) -> None:
    home.write(1, user("hello there"))
    home.write(2, user("hello there"))
    ran = run(shell, home, "show", id)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert why in ran.stderr


def test_long_texts_are_cut_in_what_a_person_reads(shell: InProcessShell, home: TranscriptFolder) -> None:
    home.write(1, user("\n".join(f"line {number}" for number in range(30))), assistant("x" * 500))
    [_, row] = read_lines(run(shell, home, "sessions", "--all"))
    assert "line 0 line 1 " in row
    assert "…  ?" in row
    assert "  … and 18 lines more\n" in run(shell, home, "show", uuid(1)).stdout
