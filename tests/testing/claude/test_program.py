"""The scripted Claude: a program of its own, found as the real one is, that says what it was told to and shows what it got."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serai.testing.claude.script import Script, ScriptedClaude
from tests.support.cli.shell import parse_objects
from tests.support.processes import Ends

CAPTURES = Path(__file__).parents[2] / "captures"
INITIALIZE = {"type": "control_request", "request_id": "mine", "request": {"subtype": "initialize"}}
PROMPT = {"type": "user", "message": {"role": "user", "content": "go"}}


def encode_lines(*lines: dict[str, Any] | str) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def run(claude: ScriptedClaude, *lines: dict[str, Any] | str, argv: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([claude.path, *argv], input=encode_lines(*lines), capture_output=True, text=True, timeout=50, check=False)


def test_it_tells_its_version_as_the_real_one(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin")
    assert run(claude, argv=("--version",)).stdout == "2.1.325 (Claude Code)\n"
    assert claude.starts == 0


def test_it_waits_for_what_its_script_waits_for(tmp_path: Path) -> None:
    script = Script("old").init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").result("done")
    answer = {"type": "control_response", "response": {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow"}}}
    claude = ScriptedClaude(tmp_path / "bin", script)
    ran = run(claude, INITIALIZE, PROMPT, answer, argv=("-p", "--session-id", "new"))
    assert ran.returncode == 0
    kinds = [frame["type"] for frame in parse_objects(ran)]
    assert kinds == ["control_response", "system", "assistant", "control_request", "result"]
    assert parse_objects(ran)[0]["response"]["request_id"] == "mine"  # the host's own id, not the recorded one
    assert {frame["session_id"] for frame in parse_objects(ran) if "session_id" in frame} == {"new"}


def test_it_shows_what_it_was_given(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().init().result("done"))
    run(claude, INITIALIZE, PROMPT, argv=("-p", "--model", "m", "--verbose", "--resume=x"))
    given = claude.given()
    assert given.argv == ["-p", "--model", "m", "--verbose", "--resume=x"]
    assert (given.option("--model"), given.option("--verbose"), given.option("--resume")) == ("m", "", "x")
    assert given.option("--none") is None
    assert "PATH" in given.env
    assert given.frames == [INITIALIZE, PROMPT]
    assert given.eof


def test_each_start_plays_the_next_script(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", *(Script().result(text) for text in ("one", "two")))
    said = [parse_objects(run(claude, INITIALIZE, PROMPT))[-1]["result"] for _ in range(3)]
    assert said == ["one", "two", "two"]
    assert claude.starts == 3


def test_what_its_script_does_not_foresee_is_answered(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().result("done"))
    asked = {"type": "control_request", "request_id": "q", "request": {"subtype": "set_model"}}
    ran = run(claude, INITIALIZE, asked, PROMPT)
    [answer] = [frame["response"] for frame in parse_objects(ran) if frame.get("response", {}).get("request_id") == "q"]
    assert answer["subtype"] == "error"


def test_a_host_that_has_hooks_is_asked_by_its_own_id(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().init().hooked("r1", "t1", command="ls").result("done"))
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["ours"]}]}
    initialize = {**INITIALIZE, "request": {"subtype": "initialize", "hooks": hooks}}
    answer = {"type": "control_response", "response": {"subtype": "success", "request_id": "r1", "response": {}}}
    ran = parse_objects(run(claude, initialize, PROMPT, answer))
    [asked] = [frame["request"] for frame in ran if frame["type"] == "control_request"]
    assert asked["callback_id"] == "ours"
    assert ran[0]["response"]["response"]["hooks_applied"] is True


def test_one_that_has_none_is_not(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().init().hooked("r1", "t1", command="ls").result("done"))
    assert "control_request" not in [frame["type"] for frame in parse_objects(run(claude, INITIALIZE, PROMPT))]


def test_a_host_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    script = Script().init().asks("r1", "t1").result("done")
    claude = ScriptedClaude(tmp_path / "bin", script, options=("--patience", "0.2"))
    with subprocess.Popen(
        [claude.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(encode_lines(INITIALIZE, PROMPT))
        process.stdin.flush()
        assert process.stderr is not None
        assert "no control_response r1 from the host" in process.stderr.read()
        assert process.wait() == 97


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 3), (-9, -9), (143, 143)])
def test_it_exits_as_it_was_told(tmp_path: Path, status: int, expected: int) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().err("a last word").exits(status))
    ran = run(claude, INITIALIZE, PROMPT)
    assert (ran.returncode, ran.stderr) == (expected, "a last word\n")


@pytest.mark.parametrize(
    ("options", "ends", "lines"),
    [
        (("--noise",), "\n", 10),  # each frame has two lines of it before
        (("--truncate",), "", 2),
        (("--huge", "5000"), "\n", 4),
        (("--die", "2", "--die-with", "4"), "\n", 2),
    ],
)
def test_its_bad_habits(tmp_path: Path, options: tuple[str, ...], ends: str, lines: int) -> None:
    script = Script().init().result("hello")
    ran = run(ScriptedClaude(tmp_path / "bin", script, options=options), INITIALIZE, PROMPT)
    assert ran.stdout.count("\n") >= lines - 1
    assert ran.stdout.endswith("\n") == bool(ends)
    assert (max(map(len, ran.stdout.splitlines())) == 4999) == ("--huge" in options)
    assert ran.returncode == (4 if "--die" in options else 0)


def test_its_child_holds_its_stdout(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().result("done"), options=("--grandchild",))
    with subprocess.Popen([claude.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(encode_lines(INITIALIZE, PROMPT).encode())
        process.stdin.close()
        process.wait(50)
        with Ends([claude.given().grandchild]) as ends:
            assert ends.left_after(0)
            subprocess.run(["sh", "-c", f"kill -9 {claude.given().grandchild}"], check=True)
            assert not ends.left_after(15)


def test_a_file_is_played_by_itself() -> None:
    script = CAPTURES / "claude" / "oneshot.jsonl"
    command = [sys.executable, "-m", "serai.testing.claude", str(script)]
    ran = subprocess.run(command, input="", capture_output=True, text=True, timeout=50, check=True)
    assert parse_objects(ran)[-1]["type"] == "result"


def test_the_captures_have_no_traces_of_a_machine() -> None:
    for path in CAPTURES.glob("claude/*.jsonl"):
        text = path.read_text("utf-8")
        assert "/tmp/" not in text, path
        assert "/root" not in text, path
        for line in text.splitlines():
            assert json.loads(line)["dir"] in ("meta", "in", "out", "err"), path
