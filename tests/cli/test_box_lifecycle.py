"""How much a box may use, how it is halted, when its time is over, and what the settings say of all boxes."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.support.boxes.harness import MINT, kill_box_server
from tests.support.boxes.launched_boxes import wait_until
from tests.support.cli.box_shell import HALF, BoxShell, boxes, find_by_words, wait_until_gone
from tests.support.cli.shell import parse_objects

__all__ = ["boxes"]


@pytest.fixture
def tokens(boxes: BoxShell) -> Path:
    """Where the hook `./mint` keeps the tokens that are good."""
    folder = boxes.cwd / "tokens"
    folder.mkdir()
    boxes.hook("mint", MINT.partition("\n")[2].replace("$TOKENS", str(folder)))
    return folder


def read_refusal(boxes: BoxShell, name: str, verb: str) -> str:
    """What every command is told that would go into a box which is halted."""
    [message] = {
        boxes.box(*arguments).stderr
        for arguments in (
            ["exec", name, "true"], ["exec", "--json", name, "true"], ["shell", name], ["put", name, "-", "/workspace/x"],
            ["get", name, "/etc/passwd", "-"],
        )
    }  # fmt: skip
    assert verb in message
    return message


# -- halting ----------------------------------------------------------------------------------------------------------------------


def test_a_paused_box_keeps_its_disk_and_takes_no_command(boxes: BoxShell) -> None:
    generation = boxes.make("web", "--env", "COLOUR=blue")
    boxes.sh("web", "echo kept > file")
    assert boxes.good("pause", "web") == ""
    assert find_by_words(f"SERAI_BOX={generation}") == {}
    wait_until_gone(generation)  # its keeper too, which ends a moment after it has answered
    assert boxes.show("web")["state"] == "paused"
    assert boxes.good("list").splitlines()[1].split()[:2] == ["web", "paused"]
    assert 'box "web" is paused; resume it before running commands' in read_refusal(boxes, "web", "resume")
    assert boxes.box("exec", "web", "true").returncode == 125
    again = boxes.box("pause", "web")
    assert (again.returncode, 'box "web" is paused already' in again.stderr) == (1, True)
    assert boxes.good("resume", "web") == ""
    assert boxes.show("web")["state"] == "running"
    assert boxes.sh("web", "cat file; echo $COLOUR") == "kept\nblue\n"
    twice = boxes.box("resume", "web")
    assert (twice.returncode, 'box "web" is not paused' in twice.stderr) == (1, True)


def test_a_frozen_box_stands_still_with_all_it_has_in_memory(boxes: BoxShell) -> None:
    boxes.make("web")
    if not boxes.gives()["freeze"]:
        ran = boxes.box("freeze", "web")
        assert (ran.returncode, "pause it instead" in ran.stderr) == (1, True)
        return
    mark = f"1000.{os.getpid()}"
    boxes.sh("web", f"setsid sleep {mark} > /dev/null 2>&1 < /dev/null &")
    wait_until(lambda: find_by_words(f"sleep\0{mark}"))
    processes = find_by_words(f"sleep\0{mark}").keys()
    assert boxes.good("freeze", "web") == ""
    assert boxes.show("web")["state"] == "frozen"
    assert 'box "web" is frozen; thaw it before running commands' in read_refusal(boxes, "web", "thaw")
    assert boxes.good("thaw", "web") == ""
    assert boxes.show("web")["state"] == "running"
    assert boxes.sh("web", "echo awake") == "awake\n"
    assert find_by_words(f"sleep\0{mark}").keys() == processes


def test_a_paused_box_cannot_be_frozen(boxes: BoxShell) -> None:
    boxes.make("web")
    boxes.good("pause", "web")
    ran = boxes.box("freeze", "web")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "paused" in ran.stderr or "cannot be frozen" in ran.stderr
    boxes.good("resume", "web")
    assert boxes.sh("web", "echo awake") == "awake\n"


def test_halted_boxes_are_destroyed_like_others(boxes: BoxShell, tokens: Path) -> None:
    generations = [boxes.make(name, "--hook", "./mint") for name in ("paused", "frozen")]
    boxes.good("pause", "paused")
    boxes.box("freeze", "frozen")
    assert len(os.listdir(tokens)) == 2
    assert boxes.good("destroy", "paused", "frozen") == ""
    assert os.listdir(tokens) == []
    assert [line for generation in generations for line in boxes.left(generation)] == []


# -- time to live -----------------------------------------------------------------------------------------------------------------


def test_when_its_time_is_over_a_box_and_its_token_go_without_any_command(boxes: BoxShell, tokens: Path) -> None:
    generation = boxes.make("web", "--ttl", "2s", "--hook", "./mint", "--description", "short")
    wait_until_gone(generation)
    assert os.listdir(tokens) == []
    assert [line for line in boxes.left(generation) if "/logs/" not in line] == []
    assert boxes.good("list", "--json") == ""
    _, row = boxes.good("list", "--all").splitlines()
    assert row.split()[:2] == ["web", "terminated"]
    assert row.endswith("its time to live is over")
    shown = boxes.show("web")
    assert (shown["generation"], shown["state"], shown["last_error"]) == (generation, "terminated", "its time to live is over")
    assert boxes.box("logs", "web").stderr == "its time to live is over\n"
    ran = boxes.box("exec", "web", "true")
    assert ran.returncode == 125
    assert 'box "web" is terminated (it no longer exists): its time to live is over' in ran.stderr
    assert boxes.make("web") != generation
    assert [form["generation"] for form in parse_objects(boxes.box("list", "--all", "--json"))] == boxes.generations


def test_while_a_box_is_paused_its_time_stands_still(boxes: BoxShell) -> None:
    boxes.make("web", "--ttl", "1h")
    assert "expires_at" in boxes.show("web")
    boxes.good("pause", "web")
    assert "expires_at" not in boxes.show("web")
    boxes.good("resume", "web")
    assert boxes.good("list").splitlines()[1].split()[4:6] in (["in", "60m"], ["in", "1h"])


def test_a_destroy_hook_that_failed_when_nobody_waited_is_told_in_the_log(boxes: BoxShell) -> None:
    boxes.hook("half", HALF)
    generation = boxes.make("web", "--hook", "./half", "--ttl", "1s")
    wait_until_gone(generation)
    assert "exit status 4: cannot revoke" in boxes.box("logs", "web").stdout
    boxes.good("destroy", "web")
    assert boxes.left(generation) == []
    assert boxes.good("list", "--all", "--json") == ""


def test_a_box_whose_processes_were_killed_leaves_its_reason_and_its_token_is_revoked(boxes: BoxShell, tokens: Path) -> None:
    generation = boxes.make("web", "--hook", "./mint")
    kill_box_server(generation)
    wait_until_gone(generation)
    assert os.listdir(tokens) == []
    assert boxes.show("web")["last_error"].startswith("its processes ended")
    assert "its processes ended" in boxes.box("logs", "web").stderr


def test_the_log_masks_what_looks_like_a_secret(boxes: BoxShell) -> None:
    generation = boxes.make("web")
    secret = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
    with open(boxes.folder / "logs" / f"{generation}.log", "a") as file:
        file.write(f"cannot log in with {secret}\n")
    assert boxes.good("logs", "web").endswith(f"cannot log in with {'*' * len(secret)}\n")


# -- limits -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [("memory", "64M", 64 << 20), ("cpus", "0.5", 0.5), ("pids", "20", 20)],
    ids=["memory", "cpus", "pids"],
)
def test_a_limit_is_on_record_where_it_holds_and_refused_where_it_does_not(
    boxes: BoxShell, option: str, text: str, value: float
) -> None:
    ran = boxes.box("create", "web", f"--{option}", text)
    if boxes.gives()["limits"][option]:
        assert (ran.stdout, ran.stderr, ran.returncode) == ("web\n", "", 0)
        assert boxes.show("web")["limits"] == {option: value}
    else:
        assert (ran.stdout, ran.returncode) == ("", 1)
        assert f"a limit of {option} cannot be held on this machine" in ran.stderr
        assert "make the box without it" in ran.stderr
        assert boxes.generations == []


def test_a_command_that_wants_more_memory_than_its_box_may_have_fails(boxes: BoxShell) -> None:
    boxes.make("web", "--memory", "64M")
    greedy = "head -c 300000000 /dev/zero | tail -n 1 | wc -c; true"
    assert boxes.box("exec", "web", greedy).stdout != "300000000\n"
    assert boxes.sh("web", "echo still there") == "still there\n"


def test_a_box_starts_no_more_processes_than_it_may(boxes: BoxShell) -> None:
    if not boxes.gives()["limits"]["pids"]:
        return  # refused, as the test above has it
    boxes.make("web", "--pids", "12")
    ran = boxes.box("exec", "web", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 1000 & done; echo all")
    assert ran.stdout == ""
    assert ran.returncode not in (0, 125)
    assert "fork" in ran.stderr


def test_too_little_for_a_box_is_told_with_the_least(boxes: BoxShell) -> None:
    ran = boxes.box("create", "web", "--memory", "1M")
    assert ran.returncode == 1
    assert ran.stderr == "serai: box web: memory = 1048576 is too little for a box\ngive it at least 32M\n"
    assert boxes.generations == []


# -- settings ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.rule.3.3-max-boxes")
def test_no_more_boxes_are_made_than_the_settings_allow(boxes: BoxShell, tokens: Path) -> None:
    boxes.settings("[boxes]\nmax_boxes = 2\n")
    boxes.make("one")
    boxes.make("two")
    ran = boxes.box("create", "three", "--hook", "./mint")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "box limit reached (2 boxes already running); destroy a box before creating another" in ran.stderr
    assert os.listdir(tokens) == []
    boxes.good("destroy", "one")
    boxes.make("three")


def test_the_settings_choose_the_backend_and_the_command_another(boxes: BoxShell) -> None:
    boxes.settings('[boxes]\nbackend = "process"\n')
    boxes.make("one")
    boxes.make("two", "--backend", "namespaces")
    assert (boxes.show("one")["backend"], boxes.show("two")["backend"]) == ("process", "namespaces")


def test_a_hook_of_the_settings_gets_its_variables(boxes: BoxShell) -> None:
    boxes.hook("tell", f'cat > /dev/null; echo "$COLOUR" >> {boxes.cwd}/told; echo \'{{"state":"s"}}\'')
    boxes.settings(f'[[boxes.hooks]]\npath = "{boxes.cwd}/tell"\nenv = {{ COLOUR = "blue" }}\n')
    boxes.make("web")
    boxes.settings("")
    boxes.good("destroy", "web")
    assert (boxes.cwd / "told").read_text() == "blue\nblue\n"


def test_with_a_key_the_state_of_hooks_is_encrypted_at_rest(boxes: BoxShell, tokens: Path) -> None:
    key = boxes.cwd / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    boxes.settings(f'[boxes]\nkey_file = "{key}"\n')
    boxes.make("web", "--hook", "./mint")
    [token] = os.listdir(tokens)
    files = list(boxes.folder.glob("boxes.db*"))
    assert token.encode() not in b"".join(path.read_bytes() for path in files)
    boxes.good("destroy", "web")
    assert os.listdir(tokens) == []


def test_without_a_key_the_state_is_in_the_records_alone_which_are_for_their_owner(boxes: BoxShell, tokens: Path) -> None:
    boxes.make("web", "--hook", "./mint")
    [token] = os.listdir(tokens)
    with sqlite3.connect(boxes.folder / "boxes.db") as records:
        [[state]] = records.execute("SELECT hook_state FROM boxes")
    records.close()
    assert json.loads(state) == {f"{boxes.cwd}/mint": token}
    assert {path.stat().st_mode & 0o777 for path in boxes.folder.glob("boxes.db*")} == {0o600}


def test_a_key_that_others_can_read_is_refused_before_any_hook_runs(boxes: BoxShell, tokens: Path) -> None:
    key = boxes.cwd / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o644)
    boxes.settings(f'[boxes]\nkey_file = "{key}"\n')
    ran = boxes.box("create", "web", "--hook", "./mint")
    assert ran.returncode == 1
    assert ran.stderr == f"serai: {key}: the key file can be read by others\nchmod 600 {key}\n"
    assert os.listdir(tokens) == []
    assert boxes.generations == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[boxes]\nhoks = []\n", "hoks"),
        ("[boxs]\nhooks = []\n", "boxs"),
        ("[boxes]\nmax_boxes = 'two'\n", "max_boxes"),
        ("[boxes]\nmax_boxes = -1\n", "max_boxes"),
        ("[[boxes.hooks]]\npth = 'x'\n", "pth"),
        ("[boxes]\nbackend = 'docker'\n", "docker"),
    ],
)
def test_a_typing_error_in_the_settings_is_told_before_anything_is_made(boxes: BoxShell, text: str, told: str) -> None:
    path = boxes.settings(text)
    ran = boxes.box("create", "web")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert told in ran.stderr
    assert str(path) in ran.stderr or told == "docker"
    assert "Traceback" not in ran.stderr
    assert boxes.generations == []
