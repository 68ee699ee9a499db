"""`serai box shell`, on a real terminal."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.boxes.launched_boxes import wait_until
from tests.support.cli.box_shell import BoxShell, Terminal, boxes, find_by_words, shared, wait_until_gone, web

__all__ = ["boxes", "shared", "web"]

# Says how large its terminal is, at first and when that changes.
SIZES = "trap 'stty size' WINCH; stty size; sleep 1000 & while ! wait; do :; done"


def test_a_shell_in_the_box_is_typed_to_and_its_status_is_ours(web: BoxShell) -> None:
    with Terminal(web, "shell", "web") as terminal:
        terminal.expect("# ")
        terminal.type("echo $((40 + 2)) $(hostname); tty\r")
        assert terminal.expect("42 web").count("$((40 + 2))") == 1  # the box's terminal echoes what is typed, ours does not as well
        terminal.expect("/dev/pts/")
        terminal.type("exit 7\r")
        assert terminal.status() == 7
        assert terminal.is_restored()


def test_what_is_typed_before_the_shell_is_there_is_not_lost(web: BoxShell) -> None:
    with Terminal(web, "shell", "web") as terminal:
        terminal.type("echo $((40 + 2)); exit 7\r")
        terminal.expect("42")
        assert terminal.status() == 7


def test_keys_go_to_the_box_as_they_are(web: BoxShell) -> None:
    mark = f"1000.{os.getpid()}"
    with Terminal(web, "shell", "web", "sh") as terminal:
        terminal.expect("# ")
        terminal.type(f"sleep {mark}\r")
        wait_until(lambda: find_by_words(f"sleep\0{mark}"))
        terminal.type("\x03")  # Ctrl-C
        wait_until_gone(f"sleep\0{mark}")
        terminal.expect("# ")
        terminal.type("echo still $((1 + 1))\r")
        terminal.expect("still 2")
        terminal.type("\x04")  # Ctrl-D
        assert terminal.status() == 0
        assert terminal.is_restored()


def test_a_command_on_the_terminal_may_have_options(web: BoxShell) -> None:
    with Terminal(web, "shell", "web", "sh", "-c", "test -t 1 && exit 9") as terminal:
        assert terminal.status() == 9


def test_the_terminal_is_as_large_as_ours_and_grows_with_it(web: BoxShell) -> None:
    with Terminal(web, "shell", "web", "--", "sh", "-c", SIZES, columns=93, rows=31) as terminal:
        terminal.expect("31 93")
        terminal.size(120, 40)
        terminal.expect("40 120")
        terminal.size(60, 20)
        terminal.expect("20 60")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_however_it_ends_the_terminal_is_as_it_was(web: BoxShell, number: signal.Signals, status: int) -> None:
    mark = f"1000.{os.getpid()}{int(number)}"
    with Terminal(web, "shell", "web", "--", "sh", "-c", f"echo there; exec sleep {mark}") as terminal:
        terminal.expect("there")
        assert not terminal.is_restored()
        terminal.signal(number)
        assert terminal.status() == status
        assert terminal.is_restored()
    wait_until_gone(f"sleep\0{mark}")
    assert web.sh("web", "echo still there") == "still there\n"


def test_a_box_that_goes_away_under_a_shell_gives_the_terminal_back(boxes: BoxShell) -> None:
    boxes.make("web")
    with Terminal(boxes, "shell", "web", "--", "sh", "-c", "echo there; exec sleep 1000") as terminal:
        terminal.expect("there")
        boxes.good("destroy", "web")
        assert terminal.status() != 0
        assert terminal.is_restored()
        assert b"Traceback" not in terminal.seen


def test_a_program_that_a_signal_ended_has_the_status_a_shell_gives(web: BoxShell) -> None:
    with Terminal(web, "shell", "web", "--", "sh", "-c", "kill -9 $$") as terminal:
        assert terminal.status() == 137


def test_without_a_terminal_lines_can_be_piped_into_it(web: BoxShell) -> None:
    ran = web.box("shell", "web", "sh", input="stty size; test -t 0 && echo a terminal; exit 5\n")
    assert ran.returncode == 5
    assert "24 80" in ran.stdout
    assert "\na terminal\n" in ran.stdout
    assert ran.stderr == ""


def test_the_end_of_piped_input_ends_the_shell(web: BoxShell) -> None:
    ran = web.box("shell", "web", "sh", input="echo $((20 + 3))\n")
    assert "23\n" in ran.stdout  # behind a prompt, or not: the line may come before the shell has written it
    assert ran.returncode == 0
