"""`serai tool …` as a person calls it: real guests, real processes."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from serai.cli.options import ExitCode
from tests.support.cli.shell import EXAMPLES, Shell, build_text, parse_objects, write_guest
from tests.support.processes import lives

WEATHER, GUARD, WORDS = EXAMPLES / "weather-python", EXAMPLES / "guard-python", EXAMPLES / "words-node"
BERN = '{"city":"Bern"}'
OPEN = "[weather] info: the weather station is open\n"


def test_a_tool_of_a_guest_by_hand_is_called(shell: Shell) -> None:
    ran = shell("tool", "call", "weather", BERN, "--guest", WEATHER)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("Bern: 16 degrees, fog\n", OPEN, 0)


@pytest.mark.req("host.cli.json")
def test_a_result_as_json_says_whose_it_is(shell: Shell) -> None:
    ran = shell("tool", "call", "weather", BERN, "--json", "--ext", WEATHER)
    content = [{"type": "text", "text": "Bern: 16 degrees, fog"}]
    assert parse_objects(ran) == [{"tool": "weather", "owner": "zot:weather", "is_error": False, "content": content}]


def test_arguments_come_from_the_line_from_stdin_or_from_a_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "city.json"
    file.write_text(BERN)
    for ran in (
        shell("tool", "call", "weather", "-", "-e", WEATHER, input=BERN),
        shell("tool", "call", "weather", f"@{file}", "-e", WEATHER),
    ):
        assert (ran.stdout, ran.returncode) == ("Bern: 16 degrees, fog\n", 0)


def test_no_arguments_are_an_empty_object(shell: Shell, tmp_path: Path) -> None:
    one = write_guest(tmp_path / "one", tools=["ping"], answers={"tool_call ping": [build_text("pong", "pang")]})
    assert shell("tool", "call", "ping", "-e", one).stdout == "pong\npang\n"
    ran = shell("record", "show", "--json", "--type", "tool_call")
    assert [item["frame"]["args"] for item in parse_objects(ran) if item["what"] == "frame"] == [{}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["weather", "{"], "Error: JSON: not JSON: "),
        (["weather", "\udcff"], "Error: JSON: not JSON: "),
        (["weather", "-"], "Error: stdin: not JSON: "),
        (["weather", "@no\x1bwhere"], "Error: no\\x1bwhere: No such file or directory\n"),
        (["weather", "{}", "-o", "."], "is a directory"),
        ([], "Missing argument 'NAME'"),
        (["weather", "{}", "--cwd", "nowhere"], "'nowhere' does not exist"),
        (["weather", "{}", "-o", "", "--force"], "the path is empty"),
        (["weather", "{}", "--guest", ""], "the path is empty"),
    ],
)
def test_a_wrong_call_of_the_command_starts_nobody(shell: Shell, arguments: list[str], said: str) -> None:
    ran = shell("tool", "call", *arguments, "-e", WEATHER)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert OPEN not in ran.stderr
    assert not (shell.home / "recordings").exists()


def test_an_unknown_tool_is_told_with_similar_names(shell: Shell) -> None:
    ran = shell("tool", "call", "wether", BERN, "-e", WEATHER)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", OPEN + "serai: there is no tool wether\nthere is weather\n", 1)
    ran = shell("tool", "call", "xyz", BERN, "-e", WEATHER)
    assert ran.stderr == OPEN + "serai: there is no tool xyz\n`serai tool list` shows what there is\n"


@pytest.mark.req("host.cli.status", "host.call.outcomes")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("{}", 6, 'weather: the arguments: "city" is a required property'),
        ("[]", 6, "weather: "),
        ('{"city":" "}', 3, 'weather needs a city, as in {"city": "Bern"}'),
    ],
)
def test_an_error_goes_to_stderr_and_its_kind_is_the_status(shell: Shell, arguments: str, status: int, said: str) -> None:
    ran = shell("tool", "call", "weather", arguments, "-e", WEATHER)
    assert (ran.stdout, ran.returncode) == ("", status)
    assert said in ran.stderr
    ran = shell("tool", "call", "weather", arguments, "-e", WEATHER, "--json")
    [form] = parse_objects(ran)
    assert (form["is_error"], ran.returncode, ran.stderr) == (True, status, OPEN)
    assert said in form["content"][0]["text"]


# -- guards -----------------------------------------------------------------------------------------------------------------------


def test_a_guard_blocks_what_the_person_calls(shell: Shell) -> None:
    ran = shell("tool", "call", "weather", '{"city":"rm -rf /"}', "-e", WEATHER, "-e", GUARD)
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert ran.stderr == OPEN + "weather: rm -rf is not run here; delete files by name\n"
    ran = shell("tool", "call", "weather", '{"city":"rm -rf /"}', "-e", WEATHER, "-e", GUARD, "--json")
    assert (parse_objects(ran)[0]["code"], ran.returncode) == ("BLOCKED", 4)


def test_a_guard_rewrites_what_the_person_calls(shell: Shell) -> None:
    ran = shell("tool", "call", "weather", '{"city":"Paris"}', "-e", WEATHER, "-e", GUARD)
    assert (ran.stdout, ran.returncode) == ("Bern: 16 degrees, fog\n", 0)


def test_a_guard_that_dies_when_it_is_asked_closes(shell: Shell, tmp_path: Path) -> None:
    subscribe = {"type": "subscribe", "intercept": ["tool_call"]}
    dies = {"event_intercept weather": [{"die": 3}]}
    lame = write_guest(tmp_path / "lame", subscribe, answers=dies, guest_toml="guard = true")
    ran = shell("tool", "call", "weather", BERN, "-e", WEATHER, "-e", lame)
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert "refused: no answer from the guard (zot:lame: ended (exit status 3))" in ran.stderr


def test_a_guard_that_does_not_start_closes(shell: Shell, tmp_path: Path) -> None:
    broken = write_guest(tmp_path / "broken", guest_toml="guard = true", exec="./missing")
    ran = shell("tool", "call", "weather", BERN, "-e", WEATHER, "-e", broken)
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert "the guard zot:broken is gone" in ran.stderr


def test_a_guard_that_cannot_be_read_closes(shell: Shell, tmp_path: Path) -> None:
    odd = write_guest(tmp_path / "odd", guest_toml="gaurd = true")
    ran = shell("tool", "call", "weather", BERN, "-e", WEATHER, "-e", odd)
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert "gaurd" in ran.stderr


# -- bad guests -------------------------------------------------------------------------------------------------------------------


def test_a_guest_that_dies_during_the_call_gives_no_answer(shell: Shell, tmp_path: Path) -> None:
    weak = write_guest(tmp_path / "weak", tools=["lift"], answers={"tool_call lift": [{"die": 3}]})
    ran = shell("tool", "call", "lift", "-e", weak)
    assert (ran.stdout, ran.returncode) == ("", 5)
    assert "extension weak/lift failed: ended (exit status 3)\n" in ran.stderr


def test_a_guest_that_is_too_late_gives_no_answer(shell: Shell, tmp_path: Path) -> None:
    slow = write_guest(tmp_path / "slow", tools=["wait"], guest_toml="[limits]\ntool = 0.05")
    ran = shell("tool", "call", "wait", "--json", "-e", slow)
    assert (parse_objects(ran)[0]["code"], ran.returncode) == ("TIMEOUT", 5)


@pytest.mark.req("zot.rule.1.2-one-bad-guest")
def test_bad_guests_are_told_by_folder_and_reason_and_stop_nobody(shell: Shell, tmp_path: Path) -> None:
    good = write_guest(tmp_path / "good", tools=["ping"], answers={"tool_call ping": [build_text("pong")]})
    folders = [
        write_guest(tmp_path / "nameless", name=""),
        write_guest(tmp_path / "missing", exec="./nothing"),
        write_guest(tmp_path / "rude", exec="/bin/echo", args=['{"type":"ready"}']),
    ]
    ran = shell("tool", "call", "ping", *(part for folder in [*folders, good] for part in ("-e", folder)))
    assert (ran.stdout, ran.returncode) == ("pong\n", 0)
    told = ran.stderr.splitlines()
    assert len(told) == len(folders)
    assert f"extension load: {tmp_path / 'nameless'}: manifest: name is required" in told
    assert any("missing" in line and "nothing" in line for line in told)
    assert any("rude" in line and "first frame must be hello" in line for line in told)


@pytest.mark.req("host.guard.missing")
def test_a_named_guest_that_is_not_there_may_have_been_a_guard(shell: Shell, tmp_path: Path) -> None:
    good = write_guest(tmp_path / "good", tools=["ping"], answers={"tool_call ping": [build_text("pong")]})
    ran = shell("tool", "call", "ping", "-e", good, "-e", tmp_path / "gaurd")
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert f"{tmp_path / 'gaurd'}: it cannot be told whether this is a guard: there is no such folder" in ran.stderr


@pytest.mark.req("host.cli.plain")
def test_what_a_guest_says_does_not_act_on_the_terminal(shell: Shell, tmp_path: Path) -> None:
    hostile = "a\x1b[2J\tb\r\n\x9bc"
    answers = {"tool_call ping": [build_text(hostile)], "tool_call fail": [build_text(hostile, is_error=True)]}
    notice = {"type": "notify", "level": "warn", "message": hostile}
    bad = write_guest(tmp_path / "bad", notice, tools=["ping", "fail"], answers=answers)
    spelt = "a\\x1b[2J   b\n\\x9bc"
    plain = shell("tool", "call", "ping", "-e", bad)
    assert plain.stdout == f"{hostile}\n".replace("\r\n", "\n")  # into a pipe as it is; text mode here makes one of its line ends
    assert plain.stderr == "[bad] warn: a\\x1b[2J   b\n[bad]   \\x9bc\n"
    assert shell("tool", "call", "fail", "-e", bad).stderr.endswith(f"{spelt}\n")
    as_json = shell("tool", "call", "ping", "--json", "-e", bad)
    assert parse_objects(as_json)[0]["content"][0]["text"] == hostile
    assert "\x9b" not in as_json.stdout
    assert run_on_terminal(shell, "tool", "call", "ping", "-e", bad) == f"{spelt}\n"


def run_on_terminal(shell: Shell, *arguments: str | Path, columns: int = 80) -> str:
    """What a terminal gets on stdout."""
    ours, theirs = pty.openpty()
    env = shell.env | {"COLUMNS": str(columns)}
    process = subprocess.Popen(shell.argv(*arguments), env=env, cwd=shell.cwd, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the other end is closed: so a terminal ends
        pass
    os.close(ours)
    assert process.wait(30) == 0
    return shown.decode().replace("\r\n", "\n")


# -- images -----------------------------------------------------------------------------------------------------------------------

PICTURE = b"\x89PNG, more or less"
IMAGE = {"type": "image", "mime_type": "image/png", "data": base64.b64encode(PICTURE).decode()}


def test_an_image_has_a_line_on_stderr_and_is_written_where_it_is_wanted(shell: Shell, tmp_path: Path) -> None:
    answers = {"tool_call draw": [build_text("a picture") | {"content": [IMAGE]}]}
    painter = write_guest(tmp_path / "painter", tools=["draw"], answers=answers)
    output = tmp_path / "picture.png"
    ran = shell("tool", "call", "draw", "-o", output, "-e", painter)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", f"[image image/png, {len(PICTURE)} bytes]\n", 0)
    assert output.read_bytes() == PICTURE
    output.write_bytes(b"mine")
    ran = shell("tool", "call", "draw", "-o", output, "-e", painter)
    assert ran.returncode == 2
    assert "exists already" in ran.stderr
    assert output.read_bytes() == b"mine"
    assert shell("tool", "call", "draw", "-o", output, "--force", "-e", painter).returncode == 0
    assert output.read_bytes() == PICTURE
    [form] = parse_objects(shell("tool", "call", "draw", "--json", "-e", painter))
    assert form["content"] == [{"type": "image", "data": IMAGE["data"], "mime": "image/png"}]


def test_an_image_that_cannot_be_written_is_told_and_no_text_is_lost(shell: Shell, tmp_path: Path) -> None:
    ran = shell("tool", "call", "weather", BERN, "-o", tmp_path / "none.png", "-e", WEATHER)
    assert (ran.stdout, ran.returncode) == ("Bern: 16 degrees, fog\n", 1)
    assert "there is no image in the result" in ran.stderr
    painter = write_guest(tmp_path / "painter", tools=["draw"], answers={"tool_call draw": [build_text("") | {"content": [IMAGE]}]})
    ran = shell("tool", "call", "draw", "-o", tmp_path / "no" / "picture.png", "-e", painter)
    assert ran.returncode == 1
    assert "not written: No such file or directory" in ran.stderr


# -- the list ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.rule.1.2-one-bad-guest")
def test_the_list_has_all_tools_of_those_that_came_in(shell: Shell, tmp_path: Path) -> None:
    one = write_guest(tmp_path / "one", tools=["ping", "longer"])
    bad = write_guest(tmp_path / "bad", exec="./missing")
    ran = shell("tool", "list", "-e", bad, "-e", one)
    assert ran.stdout == "ping    zot:one  the tool ping\nlonger  zot:one  the tool longer\n"
    assert ran.stderr.startswith(f"extension load: {bad}: zot:bad is gone: ")
    assert ran.returncode == 0
    forms = parse_objects(shell("tool", "list", "--json", "-e", bad, "-e", one))
    assert [form["name"] for form in forms] == ["ping", "longer"]
    assert forms[0] == {"name": "ping", "owner": "zot:one", "description": "the tool ping", "schema": {}, "state": "ready"}


def test_each_tool_stays_on_its_line_of_the_terminal(shell: Shell, tmp_path: Path) -> None:
    about = {"type": "register_tool", "name": "ping", "description": "first line\nsecond\x1b line", "schema": {}}
    one = write_guest(tmp_path / "one", about)
    assert shell("tool", "list", "-e", one).stdout == "ping  zot:one  first line second\\x1b line\n"
    assert run_on_terminal(shell, "tool", "list", "-e", one, columns=24) == "ping  zot:one  first li…\n"


def test_an_empty_list_says_so(shell: Shell) -> None:
    ran = shell("tool", "list")
    assert (ran.stdout, ran.returncode) == ("", 0)
    assert "there are no tools" in ran.stderr


@pytest.mark.req("zot.rule.1.2-no-ext")
@pytest.mark.parametrize("flag", ["--no-ext", "--no-extensions"])
def test_without_the_installed_ones_only_those_named_come_in(shell: Shell, tmp_path: Path, flag: str) -> None:
    write_guest(shell.home / "guests" / "mine", tools=["mine"])
    write_guest(shell.cwd / ".zot" / "extensions" / "ours", tools=["ours"])
    named = write_guest(tmp_path / "named", tools=["named"])
    shell("trust")
    assert list_tools(shell, "-e", named) == ["named", "ours", "mine"]
    assert list_tools(shell, "-e", named, flag) == ["named"]
    assert list_tools(shell, flag) == []


def list_tools(shell: Shell, *options: str | Path) -> list[str]:
    return [form["name"] for form in parse_objects(shell("tool", "list", "--json", *options))]


@pytest.mark.req("zot.edge.44")
def test_relative_folders_count_from_the_shell(shell: Shell, tmp_path: Path) -> None:
    write_guest(tmp_path / "place" / "guests" / "mine", tools=["mine"])
    write_guest(tmp_path / "work" / ".zot" / "extensions" / "ours", tools=["ours"])
    write_guest(tmp_path / "work" / "named", tools=["named"], exec="./run")
    program = tmp_path / "work" / "named" / "run"
    program.write_text(f"#!/bin/sh\nexec '{shell.argv()[0]}' -I -S guest.py\n")
    program.chmod(0o755)
    options = ("--home", "place", "--cwd", "work", "--guest", "work/named")
    assert shell("trust", *options, cwd=tmp_path).returncode == 0
    ran = shell("tool", "list", "--json", *options, cwd=tmp_path)
    assert [form["name"] for form in parse_objects(ran)] == ["named", "ours", "mine"]
    from_environment = shell("tool", "list", "--json", "--cwd", "work", cwd=tmp_path, SERAI_HOME="place")
    assert [form["name"] for form in parse_objects(from_environment)] == ["ours", "mine"]


@pytest.mark.req("host.cli.home")
def test_the_home_of_this_run_holds_all_that_it_writes(shell: Shell, tmp_path: Path) -> None:
    one = write_guest(tmp_path / "one", tools=["ping"], answers={"tool_call ping": [build_text("pong")]})
    assert shell("tool", "call", "ping", "--home", tmp_path / "other", "-e", one).returncode == 0
    assert not shell.home.exists()
    assert (tmp_path / "other" / "logs" / "ext-one.log").exists()
    assert len(list((tmp_path / "other" / "recordings").glob("*.rec"))) == 1


# -- on record, and the end -------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.cli.recorded")
def test_a_call_is_on_record_frame_by_frame(shell: Shell) -> None:
    shell("tool", "call", "weather", BERN, "-e", WEATHER)
    [run] = parse_objects(shell("record", "list", "--json"))
    assert run["command"] == "serai tool call weather"
    items = parse_objects(shell("record", "show", "--json", "--guest", "zot:weather"))
    assert "guest speaks zot" in items[0]["text"]
    frames = {item["type"]: item["frame"] for item in items if item["what"] == "frame"}
    assert frames["tool_call"]["args"] == {"city": "Bern"}
    assert frames["tool_result"]["content"] == [{"type": "text", "text": "Bern: 16 degrees, fog"}]
    assert "shutdown" in frames


def test_a_person_who_wants_no_recordings_gets_none(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("record = false\n")
    assert shell("tool", "call", "weather", BERN, "-e", WEATHER).returncode == 0
    assert not (shell.home / "recordings").exists()


def test_settings_that_cannot_be_are_told_in_two_lines(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[guest.weather]\ngaurd = true\n")
    ran = shell("tool", "call", "weather", BERN, "-e", WEATHER)
    assert (ran.stdout, ran.returncode, len(ran.stderr.splitlines())) == ("", 1, 2)
    assert "gaurd" in ran.stderr


@pytest.mark.req("host.cli.interrupt")
@pytest.mark.parametrize("patient", [True, False], ids=["in a call", "while it starts"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_it_and_leaves_no_process(shell: Shell, tmp_path: Path, patient: bool, number: int, status: int) -> None:
    working = {"type": "notify", "level": "info", "message": "at work as $pid"}
    if patient:
        deaf = write_guest(tmp_path / "deaf", tools=["wait"], answers={"tool_call wait": [working]})
    else:  # it goes on registering, so that it is not ready for a while
        deaf = write_guest(tmp_path / "deaf", working, tools=["wait"], ready=False)
        shell.home.mkdir()
        (shell.home / "config.toml").write_text("[guest.deaf.limits]\nready_idle = 30\nready = 30\n")
    argv = shell.argv("tool", "call", "wait", "-e", deaf)
    process = subprocess.Popen(argv, env=shell.env, cwd=shell.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    pid = int(re.fullmatch(r"\[deaf\] info: at work as (\d+)\n", line)[1])  # type: ignore[index]
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", status)
    assert not lives(pid)


def test_a_reader_that_leaves_early_hears_no_complaint(shell: Shell, tmp_path: Path) -> None:
    many = write_guest(tmp_path / "many", tools=["flood"], answers={"tool_call flood": [build_text("line\n" * 100_000)]})
    argv = shell.argv("tool", "call", "flood", "-e", many)
    process = subprocess.Popen(argv, env=shell.env, cwd=shell.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) in (0, 1)


def test_the_words_in_the_help_of_a_call_name_its_ways_in(shell: Shell) -> None:
    ran = shell("tool", "call", "--help")
    for option in ("--guest", "--ext", "--home", "--cwd", "--no-ext", "--no-extensions", "--json", "--output"):
        assert option in ran.stdout
    assert json.dumps({}) in ran.stdout


@pytest.mark.req("host.cli.status")
def test_every_status_is_documented() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "cli.md").read_text()
    assert [int(status) for status in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(ExitCode)
