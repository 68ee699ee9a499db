"""`serai box create`, `list`, `show`, `destroy` and `backends`, as a person calls them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serai.boxes.box_records import hash_token
from tests.support.boxes.launched_boxes import wait_until, write_base_tree
from tests.support.cli.box_shell import HALF, BoxShell, boxes, find_by_words, wait_until_gone
from tests.support.cli.shell import parse_objects

__all__ = ["boxes"]

# Makes a box of its own and holds it until its input ends.
OWNER = """
import asyncio, sys
from serai.boxes import Boxes

async def main():
    async with Boxes(sys.argv[1]) as boxes:
        await boxes.create("owned")
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
# Takes its time to revoke.
SLOW = """case $(cat) in *box.create*) echo '{"state":"s"}';; *) sleep 0.3;; esac"""


# -- create -----------------------------------------------------------------------------------------------------------------------


def test_a_box_is_made_under_the_id_one_gives_and_outlives_the_command(boxes: BoxShell) -> None:
    assert boxes.good("create", "web") == "web\n"
    assert boxes.sh("web", "hostname") == "web\n"


def test_a_box_without_an_id_gets_a_name(boxes: BoxShell) -> None:
    first, second = boxes.good("create").strip(), boxes.good("create").strip()
    assert re.fullmatch(r"box-[0-9a-f]{8}", first)
    assert first != second
    assert boxes.sh(first, "hostname").strip() == first


def test_the_token_is_shown_once_and_kept_nowhere(boxes: BoxShell) -> None:
    made = json.loads(boxes.good("create", "web", "--json"))
    token = made.pop("token")
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    assert (made["box_id"], made["state"], made["kept"], made["backend"]) == ("web", "running", True, "namespaces")
    assert re.fullmatch(r"[0-9a-f]{16}", made["generation"])
    shown = boxes.show("web")
    assert "token" not in shown
    assert (shown["box_id"], shown["generation"]) == ("web", made["generation"])
    everything = b"".join(path.read_bytes() for path in boxes.home.rglob("*") if path.is_file())
    assert token.encode() not in everything
    assert hash_token(token).encode() in everything


@pytest.mark.req("hooks.rule.2.1-every-hook")
def test_hooks_of_the_settings_run_for_every_box_and_those_of_the_command_after_them_all_in_order(boxes: BoxShell) -> None:
    told = boxes.cwd / "told"
    for name in ("a", "b", "c", "d"):
        boxes.hook(
            name,
            f'case $(cat) in *box.create*) e=create;; *) e=destroy;; esac; echo "{name} $e" >> {told}; echo \'{{"state":"s"}}\'',
        )
    boxes.settings(f'[boxes]\nhooks = ["{boxes.cwd}/c", {{ path = "{boxes.cwd}/b", name = "second" }}]\n')
    made = json.loads(boxes.good("create", "one", "--hook", "./d", "--hook", boxes.cwd / "a", "--json"))
    assert made["hooks"] == [f"{boxes.cwd}/c", "second", f"{boxes.cwd}/d", f"{boxes.cwd}/a"]
    boxes.make("two")
    births = [f"{name} create" for name in "cbdacb"]
    assert told.read_text().splitlines() == births
    boxes.good("destroy", "one")
    assert told.read_text().splitlines()[len(births) :] == [f"{name} destroy" for name in "cbda"]


def test_a_hook_that_fails_fails_the_create_and_nothing_is_left(boxes: BoxShell) -> None:
    boxes.hook("bad", "cat > /dev/null; echo no luck >&2; exit 9")
    ran = boxes.box("create", "web", "--hook", "./bad")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr.splitlines()[0] == f"serai: hook {boxes.cwd}/bad: exit status 9: no luck"
    assert boxes.generations == []
    assert boxes.good("list", "--all", "--json") == ""


@pytest.mark.parametrize(("hook", "told"), [("./nowhere", "no such file"), ("no-such-hook", "not found in $PATH")])
def test_a_hook_that_is_not_there_is_told_with_what_to_do(boxes: BoxShell, hook: str, told: str) -> None:
    ran = boxes.box("create", "web", "--hook", hook)
    assert ran.returncode == 1
    first, hint = ran.stderr.splitlines()
    assert told in first
    assert "path" in hint
    assert boxes.generations == []


def test_an_init_script_runs_before_the_box_is_there(boxes: BoxShell) -> None:
    boxes.hook("setup", "echo ready > /workspace/state")
    boxes.make("web", "--init", "setup")
    assert boxes.sh("web", "cat state") == "ready\n"
    assert "phase" not in boxes.show("web")


def test_a_failed_init_script_leaves_a_broken_box_to_look_at(boxes: BoxShell) -> None:
    boxes.hook("setup", "echo began > /workspace/state; echo it broke >&2; exit 7")
    ran = boxes.box("create", "web", "--init", "setup")
    assert (ran.stdout, ran.returncode) == ("web\n", 3)
    assert "box web is there, but broken" in ran.stderr
    assert "exit status 7" in ran.stderr
    assert "it broke" in ran.stderr
    assert boxes.sh("web", "cat state") == "began\n"
    shown = boxes.show("web")
    assert shown["phase"] == "broken"
    assert shown["last_error"] == "init script failed: exit status 7\n\nit broke"
    assert "running (broken)" in boxes.good("list")


def test_description_and_environment_go_where_they_belong(boxes: BoxShell) -> None:
    boxes.hook("tell", f'cat > {boxes.cwd}/request; echo "{{}}"')
    boxes.make("web", "--description", "for the tests", "--env", "COLOUR=blue=green", "--env", "EMPTY=", "--hook", "./tell")
    assert boxes.sh("web", 'echo "$COLOUR,${EMPTY-unset},$HOME"') == "blue=green,,/root\n"
    assert json.loads((boxes.cwd / "request").read_text())["box"] == {"box_id": "web", "description": "for the tests"}
    assert boxes.show("web")["description"] == "for the tests"
    assert boxes.good("list").splitlines()[1].endswith("for the tests")
    assert "COLOUR" not in boxes.good("show", "web", "--json")


def test_a_base_tree_is_all_the_box_sees_and_stays_as_it_was(boxes: BoxShell, tmp_path: Path) -> None:
    base = write_base_tree(str(tmp_path / "base"), "ls", "cat")
    (tmp_path / "base" / "motd").write_text("welcome\n")
    made = boxes.box("create", "web", "--rootfs", base)
    if not boxes.gives()["rootfs"]:
        assert made.returncode == 1
        assert "takes no base tree" in made.stderr
        return
    assert boxes.sh("web", "cat /motd; echo changed > /motd; cat /motd; [ -e /usr/bin/env ] || echo bare") == (
        "welcome\nchanged\nbare\n"
    )
    assert boxes.show("web")["rootfs"] == base
    assert (tmp_path / "base" / "motd").read_text() == "welcome\n"


def test_the_backend_process_is_had_by_asking_for_it(boxes: BoxShell) -> None:
    boxes.make("plain", "--backend", "process")
    assert boxes.sh("plain", "echo hi > file; cat file") == "hi\n"
    assert boxes.show("plain")["backend"] == "process"
    ran = boxes.box("create", "other", "--backend", "process", "--rootfs", boxes.cwd)
    assert ran.returncode == 1
    assert "takes no base tree" in ran.stderr
    assert boxes.good("list", "--json").count("\n") == 1


def test_an_unknown_backend_is_told_with_those_there_are(boxes: BoxShell) -> None:
    ran = boxes.box("create", "web", "--backend", "docker")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert ran.stderr == "serai: there is no backend 'docker'\nthere is namespaces, process\n"


def test_an_id_is_taken_once(boxes: BoxShell) -> None:
    generation = boxes.make("web")
    ran = boxes.box("create", "web")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert 'box ID "web" is already in use on "namespaces"; choose a different box ID' in ran.stderr
    assert boxes.generations == [generation]


def test_of_two_creates_at_once_with_one_id_one_wins(boxes: BoxShell) -> None:
    with boxes.started("create", "web") as one, boxes.started("create", "web") as other:
        assert sorted([one.wait(), other.wait()]) == [0, 1]
    assert len(boxes.generations) == 1


@pytest.mark.parametrize("box_id", ["Web", "-a", "a-", "a_b", "a.b", "a/b", "..", "ä", "x" * 64])
def test_an_id_that_is_no_host_name_is_told_with_the_rule(boxes: BoxShell, box_id: str) -> None:
    ran = boxes.box("create", "--", box_id)
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert f'invalid box ID "{box_id}"' in ran.stderr
    assert "1 to 63 characters" in ran.stderr
    assert boxes.generations == []


@pytest.mark.parametrize(
    "wrong",
    [
        ["--memory", "lots"], ["--memory", "0"], ["--memory", "-1M"], ["--cpus", "0"], ["--cpus", "many"], ["--pids", "0"],
        ["--pids", "1.5"], ["--ttl", "soon"], ["--ttl", "0"], ["--ttl", "-5s"], ["--env", "NAME"], ["--env", "=value"],
        ["--init", "nowhere"], ["--rootfs", "nowhere"], ["--hook", ""], ["--colour", "red"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_spelling_is_a_usage_error_and_nothing_is_made(boxes: BoxShell, wrong: list[str]) -> None:
    ran = boxes.box("create", "web", *wrong)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert f"{wrong[0]}" in ran.stderr
    assert not boxes.home.exists()


# -- list and show ----------------------------------------------------------------------------------------------------------------


def test_an_empty_list_says_so_beside_itself(boxes: BoxShell) -> None:
    ran = boxes.box("list")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "there are no boxes; make one: serai box create\n", 0)
    assert boxes.good("list", "--json") == ""


def test_the_list_has_the_newest_first(boxes: BoxShell) -> None:
    boxes.make("one")
    boxes.make("two", "--ttl", "3h", "--description", "for a while")
    head, two, one = boxes.good("list").splitlines()
    assert head.split() == ["id", "state", "backend", "age", "ends", "description"]
    assert re.fullmatch(r"two +running +namespaces +\d+s +in 3h +for a while", two)
    assert re.fullmatch(r"one +running +namespaces +\d+s", one)
    forms = parse_objects(boxes.box("list", "--json"))
    assert [form["box_id"] for form in forms] == ["two", "one"]
    assert "expires_at" in forms[0]
    assert "expires_at" not in forms[1]


@pytest.mark.parametrize("verb", ["show", "logs", "pause", "resume", "freeze", "thaw"])
def test_an_unknown_box_is_told_with_where_to_look(boxes: BoxShell, verb: str) -> None:
    ran = boxes.box(verb, "nobody")
    assert (ran.stdout, ran.returncode) == ("", 1)
    first, hint = ran.stderr.splitlines()
    assert 'no box found with box ID "nobody"' in first
    assert hint == "`serai box list` shows what there is"


def test_a_box_is_shown_by_its_id_or_its_generation(boxes: BoxShell) -> None:
    generation = boxes.make("web")
    assert boxes.show("web") | {"last_seen": ""} == boxes.show(generation) | {"last_seen": ""}
    lines = dict(line.split(maxsplit=1) for line in boxes.good("show", "web").splitlines())
    assert (lines["box_id"], lines["generation"], lines["state"]) == ("web", generation, "running")


def test_nothing_in_a_description_acts_on_the_terminal(boxes: BoxShell) -> None:
    boxes.make("web", "--description", "a\x1b[2J\x07\nb")
    for arguments in (["list"], ["list", "--json"], ["show", "web"], ["show", "web", "--json"]):
        assert not set("\x1b\x07\x9b") & set(boxes.good(*arguments))
    assert len(boxes.good("list").splitlines()) == 2


# -- destroy ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.naive.29")
@pytest.mark.parametrize("backend", ["namespaces", "process"])
def test_nothing_is_left_of_a_box_after_its_end(boxes: BoxShell, backend: str, tmp_path: Path) -> None:
    generation = boxes.make("web", "--backend", backend, "--memory", "256M")
    daemon = f"10000.{os.getpid()}"
    stubborn = f"trap '' HUP TERM; sleep {daemon} & wait"
    boxes.sh("web", f'(setsid sh -c "{stubborn}" > /dev/null 2>&1 < /dev/null &); mkdir -p deep/er')
    wait_until(lambda: find_by_words(daemon))
    assert find_by_words(generation)
    assert boxes.good("destroy", "web") == ""
    assert find_by_words(daemon) == {}
    assert boxes.left(generation) == []
    assert boxes.generations == []
    assert boxes.good("list", "--all", "--json") == ""


def test_several_are_destroyed_at_once_and_one_that_is_gone_is_fine(boxes: BoxShell) -> None:
    boxes.make("one")
    generation = boxes.make("two")
    assert boxes.good("destroy", "one", generation, "nobody") == ""
    assert boxes.generations == []
    assert boxes.good("destroy", "one") == ""


def test_a_destroy_of_nothing_is_a_usage_error(boxes: BoxShell) -> None:
    assert boxes.box("destroy").returncode == 2


def test_a_box_that_is_used_is_destroyed_all_the_same_and_its_command_told(boxes: BoxShell) -> None:
    boxes.make("web")
    with boxes.started("exec", "web", "echo there; exec sleep 1000") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"there\n"
        boxes.good("destroy", "web")
        _, told = command.communicate(timeout=50)
        assert command.returncode in (125, 137)
        assert b"Traceback" not in told
    assert boxes.generations == []


def test_a_failing_destroy_hook_is_told_and_keeps_no_box(boxes: BoxShell) -> None:
    boxes.hook("half", HALF)
    generation = boxes.make("web", "--hook", "./half")
    boxes.make("fine")
    ran = boxes.box("destroy", "web", "fine")
    assert (ran.stdout, ran.returncode) == ("", 3)
    assert "a destroy hook failed; the box is gone, what the hook made may not be" in ran.stderr
    assert "exit status 4: cannot revoke" in ran.stderr
    assert boxes.left(generation) == []
    assert boxes.good("list", "--all", "--json") == ""


def test_a_box_of_a_running_process_is_not_ours_to_destroy_and_the_others_go(boxes: BoxShell) -> None:
    argv = [sys.executable, "-c", OWNER, str(boxes.folder)]
    with subprocess.Popen(argv, env=boxes.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == b"there\n"
            generations = {boxes.show("owned")["generation"], boxes.make("kept", "--hook", boxes.hook("slow", SLOW))}
            ran = boxes.box("destroy", "owned", "kept")
            assert ran.returncode == 1
            assert f'box "owned" belongs to the running process {owner.pid} and ends with it' in ran.stderr
            assert [form["box_id"] for form in parse_objects(boxes.box("list", "--json"))] == ["owned"]
        finally:
            owner.stdin.close()
            owner.wait()
    assert [line for generation in generations for line in boxes.left(generation)] == []


# -- backends, homes, records -----------------------------------------------------------------------------------------------------


def test_the_backends_tell_what_they_give_here(boxes: BoxShell) -> None:
    forms = {form["backend"]: form for form in parse_objects(boxes.box("backends", "--json"))}
    assert list(forms) == ["namespaces", "process"]
    assert (forms["namespaces"]["works"], forms["namespaces"]["why_not"]) == (True, "")
    assert (forms["namespaces"]["isolation"], forms["namespaces"]["network"]) == ("namespaces", "none")
    assert forms["namespaces"]["ownership"] == ("full" if os.geteuid() == 0 else "single")
    assert set(forms["process"]["limits"]) == {"memory", "cpus", "pids"}
    text = boxes.good("backends")
    assert text.startswith("namespaces: ")
    assert "\n  isolation namespaces, network none, " in text
    assert "\nprocess: " in text
    assert not boxes.home.exists()


def test_another_home_sees_nothing_of_it_and_may_use_the_same_id(boxes: BoxShell, tmp_path: Path) -> None:
    boxes.make("web")
    other = {"SERAI_HOME": str(tmp_path / "other")}
    assert boxes.good("list", "--json", **other) == ""
    assert boxes.box("show", "web", **other).returncode == 1
    boxes.good("destroy", "web", **other)
    assert boxes.sh("web", "echo unharmed") == "unharmed\n"
    assert boxes.good("create", "web", **other) == "web\n"
    boxes.good("exec", "web", "echo theirs > mark", **other)
    assert boxes.sh("web", "ls") == ""
    boxes.good("destroy", "web", **other)
    assert boxes.sh("web", "echo unharmed") == "unharmed\n"


def test_looking_at_boxes_makes_no_recording_and_using_them_does(boxes: BoxShell) -> None:
    generation = boxes.make("web")
    assert boxes.recordings == ["serai box create web"]
    for arguments in (["list"], ["list", "--all"], ["show", "web"], ["logs", "web"], ["backends"]):
        boxes.good(*arguments)
    assert boxes.recordings == ["serai box create web"]
    boxes.good("exec", "web", "true")
    assert boxes.recordings[1:] == ["serai box exec web"]
    boxes.good("destroy", "web")
    wait_until_gone(generation)
    assert boxes.recordings[2:] in ([], [f"the end of box {generation}"])
