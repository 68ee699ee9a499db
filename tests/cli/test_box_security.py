"""What a hook hands to a box is seen by that box alone; and what of a box can be seen and reached on the machine."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli.box_shell import BoxShell, boxes, find_by_words

__all__ = ["boxes"]

# Mints two secrets: one for the box, one to know at its end. It tells the tests, and nobody else.
MINT = """
case $(cat) in
*box.create*)
    content=for-the-box-$(od -An -N12 -tx1 /dev/urandom | tr -d ' \\n')
    state=for-the-end-$(od -An -N12 -tx1 /dev/urandom | tr -d ' \\n')
    printf '%s\\n%s\\n' "$content" "$state" > {told}
    echo "minted $content with $state" >&2
    printf '{{"files":[{{"path":"/root/.secret","content":"%s"}}],"state":"%s"}}' "$content" "$state"
    ;;
*) echo revoked > {told}.revoked ;;
esac
"""
USE = "cat /root/.secret; echo; cp /root/.secret /workspace/copy"


@dataclass
class Minted:
    """A box `web` whose hook minted these."""

    generation: str
    content: str
    state: str

    @property
    def both(self) -> tuple[str, str]:
        return self.content, self.state


@pytest.fixture
def minted(boxes: BoxShell) -> Minted:
    told = boxes.cwd / "told"
    boxes.hook("mint", MINT.format(told=told))
    generation = boxes.make("web", "--hook", "./mint", "--init", boxes.hook("init", "cat /root/.secret"))
    content, state = told.read_text().split()
    return Minted(generation, content, state)


def iter_files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All of them, but what is in the box itself."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def find_files_with(boxes: BoxShell, generation: str, *secrets: str) -> set[str]:
    """The names of files outside the box's disk that have one of these in them, in clear or in base64."""
    forms = [form for text in secrets for form in (text.encode(), b64encode(text.encode()).rstrip(b"=")[:-1])]
    disk = boxes.folder / generation
    return {
        str(path.relative_to(boxes.home))
        for path, data in iter_files(boxes.home)
        if not path.is_relative_to(disk) and any(form in data for form in forms)
    }


@pytest.mark.req("hooks.naive.18")
def test_a_secret_enters_a_box_as_a_file_for_its_owner_and_in_no_other_way(boxes: BoxShell, minted: Minted) -> None:
    assert boxes.sh("web", "stat -c '%a %u:%g' /root/.secret; cat /root/.secret") == f"600 0:0\n{minted.content}"
    [on_disk] = (boxes.folder / minted.generation).rglob(".secret")
    assert stat.S_IMODE(on_disk.stat().st_mode) == 0o600
    with boxes.started("exec", "web", "cat /root/.secret; echo; env; exec sleep 1000") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == minted.content.encode() + b"\n"
        for secret in minted.both:
            assert find_by_words(secret) == {}
    for secret in minted.both:
        assert secret not in boxes.good("exec", "web", "env")
        assert secret not in boxes.good("show", "web", "--json") + boxes.good("list", "--json")
    about = boxes.folder / minted.generation / "about.json"
    assert not any(secret in about.read_text() for secret in minted.both)


@pytest.mark.req("hooks.naive.18")
def test_after_a_whole_life_no_recording_and_no_log_has_a_secret(boxes: BoxShell, minted: Minted) -> None:
    assert boxes.good("exec", "web", USE) == f"{minted.content}\n"
    assert boxes.good("get", "web", "/workspace/copy", "-") == minted.content
    boxes.good("put", "web", "-", "/workspace/again", input=minted.content)
    assert boxes.box("shell", "web", "cat", "/root/.secret").stdout == minted.content
    boxes.good("pause", "web")
    boxes.good("resume", "web")
    records = {"boxes/boxes.db", "boxes/boxes.db-wal", "boxes/boxes.db-shm"}
    assert find_files_with(boxes, minted.generation, minted.content) == set()
    assert find_files_with(boxes, minted.generation, minted.state) <= records
    assert minted.content not in boxes.box("logs", "web").stdout
    boxes.good("destroy", "web")
    assert (boxes.cwd / "told.revoked").exists()
    assert boxes.left(minted.generation) == []
    assert len(boxes.recordings) >= 5
    assert find_files_with(boxes, minted.generation, *minted.both) <= records


@pytest.mark.req("hooks.naive.18")
def test_what_a_command_printed_is_collected_for_its_caller_and_not_recorded_with_a_secret(boxes: BoxShell, minted: Minted) -> None:
    assert minted.content in boxes.good("exec", "--json", "web", USE)
    assert find_files_with(boxes, minted.generation, minted.content) == set()


def test_the_state_of_hooks_is_not_in_the_records_any_more_when_the_box_is_gone(boxes: BoxShell, minted: Minted) -> None:
    boxes.good("destroy", "web")
    assert boxes.good("list", "--all", "--json") == ""
    assert find_files_with(boxes, minted.generation, *minted.both) == set()


def test_what_a_broken_init_script_printed_is_told_and_no_secret_of_it_recorded(boxes: BoxShell) -> None:
    boxes.hook("mint", MINT.format(told=boxes.cwd / "told"))
    boxes.hook("init", "cat /root/.secret; exit 3")
    assert boxes.box("create", "web", "--hook", "./mint", "--init", "init").returncode == 3
    content, _ = (boxes.cwd / "told").read_text().split()
    [generation] = boxes.generations
    assert {name for name in find_files_with(boxes, generation, content) if not name.startswith("boxes/boxes.db")} == set()


def test_variables_that_look_like_credentials_are_recorded_by_name_alone(boxes: BoxShell) -> None:
    generation = boxes.make("web", "--env", "API_TOKEN=hunter2-hunter2-hunter2")
    assert boxes.good("exec", "--env", "DB_PASSWORD=hunter3-hunter3", "web", 'echo "$API_TOKEN"') == "hunter2-hunter2-hunter2\n"
    recorded = {name for name in find_files_with(boxes, generation, "hunter2-hunter2", "hunter3-hunter3") if "recordings" in name}
    assert recorded == set()


# -- from outside -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.scenario.porter-19")
@pytest.mark.parametrize("backend", ["namespaces", "process"])
def test_the_control_socket_is_open_to_all_in_a_folder_that_is_not(boxes: BoxShell, backend: str) -> None:
    folder = boxes.folder / boxes.make("web", "--backend", backend)
    control = (folder / "control.sock").stat()
    assert (stat.S_ISSOCK(control.st_mode), stat.S_IMODE(control.st_mode)) == (True, 0o666)
    for path in (folder, boxes.folder, boxes.home):
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o700, os.geteuid())
    assert stat.S_IMODE((folder / "keeper.sock").stat().st_mode) == 0o600


def test_whatever_the_umask_what_is_made_is_for_its_owner(boxes: BoxShell) -> None:
    before = os.umask(0)
    try:
        generation = boxes.make("web")
        boxes.sh("web", "true")
    finally:
        os.umask(before)
    made = [boxes.home, boxes.folder, boxes.folder / "logs", boxes.folder / generation, boxes.home / "recordings"]
    made += [*(boxes.folder / "logs").iterdir(), *boxes.folder.glob("boxes.db*"), *(boxes.home / "recordings").iterdir()]
    assert {str(path): path.stat().st_mode & 0o077 for path in made if path.stat().st_mode & 0o077} == {}
    assert boxes.sh("web", "echo x > file; stat -c %a file") == "644\n"


def test_a_box_sees_neither_the_home_nor_the_processes_nor_the_network_of_the_machine(boxes: BoxShell, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("the machine's own")
    boxes.make("web")
    assert boxes.sh("web", f"cat {private} 2> /dev/null || echo no such file") == "no such file\n"
    assert boxes.sh("web", f"[ -e {boxes.home} ] || echo no such folder") == "no such folder\n"
    assert "\nserai\n" not in boxes.sh("web", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")  # as our own command line has it
    assert boxes.sh("web", "cat /proc/net/dev | grep -v lo: | wc -l") == "2\n"
    assert str(tmp_path) not in boxes.sh("web", "cat /proc/1/cmdline /proc/1/environ /proc/mounts 2> /dev/null | tr '\\0' '\\n'")


def test_one_box_sees_nothing_of_another(boxes: BoxShell) -> None:
    boxes.make("one")
    boxes.make("two")
    boxes.sh("one", "echo secret > /tmp/file; echo secret > /workspace/file; echo secret > /dev/shm/file; echo secret > /root/file")
    assert boxes.sh("two", "cat /tmp/file /workspace/file /dev/shm/file /root/file 2> /dev/null; echo nothing") == "nothing\n"
