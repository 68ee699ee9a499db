"""`serai guest logs` as a person calls it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.shell import Shell, parse_objects, write_guest

TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.req("zot.rule.2.1-log")
def test_a_log_has_the_guests_stderr_and_the_hosts_remarks(shell: Shell, tmp_path: Path) -> None:
    one = write_guest(tmp_path / "folder", name="one", stderr="hello\n")
    for _ in range(2):
        shell("tool", "list", "-e", one)
    log = shell.home / "logs" / "ext-one.log"
    lines = log.read_text().splitlines()
    assert lines.count("hello") == 2  # the second after the first
    assert any(line.startswith("[serai] ") and "starts one" in line for line in lines)
    ran = shell("guest", "logs", "folder", "-e", one)
    assert (ran.stdout, ran.stderr, ran.returncode) == (log.read_text(), "", 0)
    assert shell("guest", "logs", "one").stdout == log.read_text()  # by its own name it is known when it is gone, too


def write_logs(shell: Shell, older: bytes | None, newer: bytes) -> None:
    (shell.home / "logs").mkdir(parents=True)
    (shell.home / "logs" / "ext-one.log").write_bytes(newer)
    if older is not None:
        (shell.home / "logs" / "ext-one.log.1").write_bytes(older)


def test_the_older_half_of_a_log_comes_first(shell: Shell) -> None:
    write_logs(shell, b"a\nb\n", b"c\nd")
    assert shell("guest", "logs", "one").stdout == "a\nb\nc\nd\n"
    assert shell("guest", "logs", "one", "--lines", "3").stdout == "b\nc\nd\n"
    assert shell("guest", "logs", "one", "--lines", "0").stdout == ""
    assert shell("guest", "logs", "one", "--lines", "99").stdout == "a\nb\nc\nd\n"


@pytest.mark.req("host.life.log", "host.cli.plain")
def test_a_log_is_masked_and_does_not_act_on_the_terminal(shell: Shell) -> None:
    write_logs(shell, None, f"token {TOKEN}\n\x1b[2J\ttab\r\n\xff\n".encode("latin-1"))
    assert shell("guest", "logs", "one").stdout == f"token {'*' * len(TOKEN)}\n\\x1b[2J    tab\n\\xff\n"
    forms = parse_objects(shell("guest", "logs", "one", "--json"))
    assert forms[0] == {"guest": "one", "line": f"token {'*' * len(TOKEN)}"}
    assert [form["line"] for form in forms[1:]] == ["\x1b[2J\ttab\r", "\\xff"]


def test_a_key_over_several_lines_of_a_log_is_masked(shell: Shell) -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQ\nabc\n-----END PRIVATE KEY-----"
    write_logs(shell, None, f"{key}\nafter\n".encode())
    shown = shell("guest", "logs", "one").stdout.splitlines()
    assert shown[1:3] == ["******", "***"]
    assert shown[-1] == "after"


def test_a_key_that_is_written_bit_by_bit_is_masked_while_it_is_followed(shell: Shell) -> None:
    write_logs(shell, None, b"first\n-----BEGIN " + b"RSA PRIVATE KEY-----\n")
    process = follow_log(shell)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["first\n", "-----BEGIN " + "RSA PRIVATE KEY-----\n"]
    for piece, shown in (
        ("MIIEvQ\n", "******\n"),
        ("abc\n", "***\n"),
        ("-----END RSA PRIVATE KEY-----\n", None),
        ("after\n", None),
        ("-----BEGIN " + "PRIVATE KEY-----\n", None),
        ("MIIE\n", "****\n"),
    ):
        with (shell.home / "logs" / "ext-one.log").open("a") as file:
            file.write(piece)
        assert process.stdout.readline() == (shown or piece)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")


def test_a_key_in_a_log_masks_no_more_than_itself(shell: Shell) -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
    write_logs(shell, None, f'{key}\n{{"password": "correct-horse\nafter\n'.encode())
    assert shell("guest", "logs", "one").stdout.splitlines()[3:] == ['{"password": "*************', "after"]


def test_what_one_line_of_a_log_begins_masks_no_other(shell: Shell) -> None:
    write_logs(shell, None, b'{"password": "correct-horse\nafter\n')
    assert shell("guest", "logs", "one").stdout == '{"password": "*************\nafter\n'


def test_a_log_that_is_not_there_is_told_with_its_place(shell: Shell) -> None:
    place = shell.home / "logs" / "ext-one.log"
    ran = shell("guest", "logs", "one")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.splitlines()[0] == f'serai: no log for "one" at {place}'
    write_guest(shell.home / "guests" / "one")
    assert shell("guest", "logs", "one").stderr == f'serai: no log for "one" at {place}\nit was never started\n'


def test_a_log_that_is_a_pipe_is_not_waited_for(shell: Shell) -> None:
    write_logs(shell, None, b"newer\n")
    log = shell.home / "logs" / "ext-one.log"
    os.mkfifo(log.with_name(f"{log.name}.1"))
    assert shell("guest", "logs", "one").stdout == "newer\n"
    log.unlink()
    os.mkfifo(log)
    ran = shell("guest", "logs", "one")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "no log for" in ran.stderr


def follow_log(shell: Shell) -> subprocess.Popen[str]:
    argv = shell.argv("guest", "logs", "-f", "one")
    return subprocess.Popen(argv, env=shell.env, cwd=shell.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_log_is_followed_until_an_interrupt(shell: Shell) -> None:
    write_logs(shell, None, b"first\nhal")
    log = shell.home / "logs" / "ext-one.log"
    process = follow_log(shell)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    with log.open("ab") as file:
        file.write(b"f a line\nbegun")
    assert process.stdout.readline() == "half a line\n"
    log.write_bytes(b"cut\n")
    assert process.stdout.readline() == "cut\n"
    other = log.with_name("other")
    other.write_bytes(b"another file, which is longer\n")
    os.replace(other, log)
    assert process.stdout.readline() == "another file, which is longer\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", 130)
