"""`serai box exec`: a command in a box, with this one's input and output."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess

import pytest

from tests.support.boxes.launched_boxes import wait_until
from tests.support.cli.box_shell import BoxShell, boxes, find_by_words, shared, wait_until_gone, web

__all__ = ["boxes", "shared", "web"]

EVERY_BYTE = bytes(range(256))


# -- what goes through ------------------------------------------------------------------------------------------------------------


def test_input_and_output_go_through_byte_by_byte(web: BoxShell) -> None:
    for data in (EVERY_BYTE, b"no newline", b"", os.urandom(3_000_000)):
        ran = web.raw("exec", "web", "cat", "-", input=data)
        assert (ran.stdout == data, ran.stderr, ran.returncode) == (True, b"", 0)


def test_stdout_and_stderr_stay_apart(web: BoxShell) -> None:
    ran = web.raw("exec", "web", "printf 'out\\377'; printf 'err\\376' >&2")
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"out\xff", b"err\xfe", 0)


def test_ten_megabytes_come_through_a_pipe(web: BoxShell) -> None:
    size = 10_000_000
    line = f"'{{}}' -m serai box exec web 'head -c {size} /dev/zero; echo end' | sha256sum"
    ran = subprocess.run(
        ["sh", "-c", line.format(web.argv()[0])], env=web.env, cwd=web.cwd, capture_output=True, check=True, text=True
    )
    assert ran.stdout.split()[0] == hashlib.sha256(bytes(size) + b"end\n").hexdigest()
    assert ran.stderr == ""


def test_a_reader_that_has_read_enough_ends_the_command_quietly(web: BoxShell) -> None:
    mark = f"y{os.getpid()}"
    line = f"'{web.argv()[0]}' -m serai box exec web yes {mark} | head -1"
    ran = subprocess.run(["sh", "-c", line], env=web.env, cwd=web.cwd, capture_output=True, check=False, text=True, timeout=50)
    assert (ran.stdout, ran.stderr) == (f"{mark}\n", "")
    wait_until(lambda: not find_by_words(f"yes\0{mark}"))
    assert web.sh("web", "echo still there") == "still there\n"


def test_input_that_the_command_does_not_read_does_not_keep_it(web: BoxShell) -> None:
    ran = web.raw("exec", "web", "head -c 3", input=bytes(5_000_000))
    assert (ran.stdout, ran.stderr, ran.returncode) == (bytes(3), b"", 0)
    with web.started("exec", "web", "echo done") as command:  # whose input stays open
        assert command.stdout is not None
        assert command.stdout.read() == b"done\n"
        assert command.wait(timeout=50) == 0


# -- how it ends ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exec no-such-program", 127)],
)
def test_the_status_is_the_commands(web: BoxShell, command: str, status: int) -> None:
    ran = web.box("exec", "web", command)
    assert (ran.stdout, ran.returncode) == ("", status)


def test_a_program_that_is_not_there_is_127_and_one_that_is_none_is_126(web: BoxShell) -> None:
    missing = web.box("exec", "web", "no-such-program", "-x")
    assert (missing.stdout, missing.returncode) == ("", 127)
    assert missing.stderr == "serai: no-such-program: No such file or directory\n"
    none = web.box("exec", "web", "/etc/passwd", "-x")
    assert (none.stdout, none.returncode) == ("", 126)
    assert "ermission denied" in none.stderr


def test_a_box_that_is_not_there_is_125(boxes: BoxShell) -> None:
    ran = boxes.box("exec", "nobody", "true")
    assert (ran.stdout, ran.returncode) == ("", 125)
    assert ran.stderr.splitlines()[1] == "`serai box list` shows what there is"


def test_when_its_time_is_up_the_command_is_killed_and_the_status_is_124(web: BoxShell) -> None:
    mark = f"1000.{os.getpid()}"
    ran = web.box("exec", "--timeout", "3", "web", f"echo began; trap '' TERM; sleep {mark}; echo never")
    assert (ran.stdout, ran.returncode) == ("began\n", 124)
    assert ran.stderr == "serai: the command took longer than 3 s\n"
    wait_until(lambda: not find_by_words(mark))
    assert web.sh("web", "echo still there") == "still there\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command_in_the_box_and_leaves_the_box(web: BoxShell, number: signal.Signals, status: int) -> None:
    mark = f"1000.{os.getpid()}{int(number)}"
    with web.started("exec", "web", f"echo there; exec sleep {mark}") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"there\n"
        wait_until(lambda: find_by_words(f"sleep\0{mark}"))
        command.send_signal(number)
        out, told = command.communicate(timeout=50)
        assert (out, told, command.returncode) == (b"", b"", status)
    wait_until_gone(f"sleep\0{mark}")
    assert web.sh("web", "echo still there") == "still there\n"


# -- what is run ------------------------------------------------------------------------------------------------------------------


def test_one_word_is_a_line_for_the_shell_and_several_are_a_program(web: BoxShell) -> None:
    assert web.good("exec", "web", "echo a  b | tr a-z A-Z") == "A B\n"
    assert web.good("exec", "web", "echo", "a  b | tr a-z A-Z") == "a  b | tr a-z A-Z\n"
    assert web.good("exec", "web", "--", "printf", "%s;", "-n", "--json", "") == "-n;--json;;"
    assert web.good("exec", "web", "ls", "-d", "--", "/workspace") == "/workspace\n"


def test_options_say_where_and_with_what(web: BoxShell) -> None:
    assert web.good("exec", "--cwd", "/tmp", "--env", "A=1=2", "--env", "B=", "web", 'echo "$PWD $A ${B-unset}"') == "/tmp 1=2 \n"
    assert web.sh("web", 'pwd; echo "${A-unset}"') == "/workspace\nunset\n"
    ran = web.box("exec", "--cwd", "/nowhere", "web", "pwd")
    assert (ran.stdout, ran.stderr) == ("", "serai: cwd /nowhere: No such file or directory\n")
    assert ran.returncode in (125, 126, 127)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--env", "NAME", "web", "true"],
        ["--timeout", "0", "web", "true"],
        ["--timeout", "soon", "web", "true"],
        ["web"],
        ["web", "--"],
        ["--env", "=value", "web", "true"],
        ["--timout", "5", "web", "true"],
    ],
    ids=" ".join,
)
def test_bad_spelling_is_a_usage_error(boxes: BoxShell, wrong: list[str]) -> None:
    ran = boxes.box("exec", *wrong)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert ran.stderr.startswith("Usage: ")
    assert not boxes.home.exists()


@pytest.mark.parametrize("verb", ["exec", "shell"])
def test_an_option_behind_the_id_is_told_to_come_before_it(boxes: BoxShell, verb: str) -> None:
    ran = boxes.box(verb, "web", "--timeout", "5", "true")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "before the ID" in ran.stderr


def test_the_machines_own_environment_does_not_come_along(web: BoxShell) -> None:
    assert "SERAI" not in web.good("exec", "web", "env", "-0", MY_SECRET="x")
    assert "MY_SECRET" not in web.good("exec", "web", "env", "-0", MY_SECRET="x")


def test_json_has_what_it_printed_and_how_it_ended(web: BoxShell) -> None:
    ran = web.box("exec", "--json", "web", "echo out; echo err >&2; exit 3")
    assert (json.loads(ran.stdout), ran.stderr) == ({"stdout": "out\n", "stderr": "err\n", "exit_code": 3}, "")
    assert json.loads(web.good("exec", "--json", "web", "kill -9 $$"))["exit_code"] == -1
    assert json.loads(web.good("exec", "--json", "web", "exit 137"))["exit_code"] == 137
    assert json.loads(web.good("exec", "--json", "--timeout", "0.5", "web", "sleep", "1000"))["exit_code"] == 124
    cut = json.loads(web.good("exec", "--json", "web", "head -c 100000 /dev/zero | tr '\\0' x"))["stdout"]
    assert cut.startswith("x" * 65_000)
    assert "truncated" in cut[65_000:]


def test_input_goes_through_with_json_too(web: BoxShell) -> None:
    ran = web.box("exec", "--json", "web", "cat", "-", input="given\n")
    assert json.loads(ran.stdout)["stdout"] == "given\n"
    with web.started("exec", "--json", "web", "echo done") as command:  # whose input stays open
        assert command.stdout is not None
        assert json.loads(command.stdout.read())["stdout"] == "done\n"


@pytest.mark.parametrize(("program", "code", "why"), [("no-such-program", 127, "No such file"), ("/etc/passwd", 126, "Permission")])
def test_json_tells_also_what_could_not_be_started(web: BoxShell, program: str, code: int, why: str) -> None:
    told = json.loads(web.good("exec", "--json", "web", program, "-x"))
    assert (told["stdout"], told["exit_code"]) == ("", code)
    assert told["stderr"].startswith(f"{program}: {why}")


def test_two_commands_run_in_one_box_at_the_same_time(web: BoxShell) -> None:
    with web.started("exec", "web", "mkfifo pipe && echo there && cat pipe") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"there\n"
        assert web.sh("web", "echo hello > pipe") == ""
        assert reader.stdout.read() == b"hello\n"
        assert reader.wait(timeout=50) == 0


def test_a_box_of_the_backend_process_is_used_alike(boxes: BoxShell) -> None:
    boxes.make("plain", "--backend", "process")
    ran = boxes.raw("exec", "plain", "cat; echo err >&2; exit 5", input=EVERY_BYTE)
    assert (ran.stdout, ran.stderr, ran.returncode) == (EVERY_BYTE, b"err\n", 5)
