"""`serai box put` and `get`: files into a box and out of it."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.box_shell import BoxShell, boxes, shared, web

__all__ = ["boxes", "shared", "web"]

LARGE = 20_000_000
SMALL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def large(web: BoxShell) -> Path:
    path = web.cwd / "large"
    with path.open("wb") as file:
        for _ in range(20):
            file.write(os.urandom(LARGE // 20))
    return path


def run_limited(web: BoxShell, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that may write files of 4 MiB and no larger."""
    argv = [sys.executable, "-I", "-S", "-c", SMALL, *web.argv("box", *arguments)]
    return subprocess.run(argv, env=web.env, cwd=web.cwd, capture_output=True, text=True, check=False, timeout=50)


def list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- put --------------------------------------------------------------------------------------------------------------------------


def test_a_file_keeps_its_bytes_and_its_mode(web: BoxShell) -> None:
    source = web.cwd / "tool"
    source.write_bytes(bytes(range(256)))
    for mode in (0o755, 0o600, 0o444):
        source.chmod(mode)
        assert web.good("put", "web", "tool", "/workspace/tool") == ""
        assert web.sh("web", "stat -c '%a %u:%g %s' tool") == f"{mode:o} 0:0 256\n"
    assert web.raw("exec", "web", "cat tool").stdout == bytes(range(256))


def test_the_mode_can_be_given(web: BoxShell) -> None:
    (web.cwd / "file").write_text("x")
    web.good("put", "--mode", "0640", "web", "file", "/workspace/file")
    assert web.sh("web", "stat -c %a file") == "640\n"


@pytest.mark.parametrize("mode", ["99", "rw", "-1", "77777", "4755", "0o644", "6_4_4", ""])
def test_a_mode_that_is_none_is_a_usage_error(boxes: BoxShell, mode: str) -> None:
    (boxes.cwd / "file").write_text("x")
    ran = boxes.box("put", "--mode", mode, "web", "file", "/workspace/file")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "give it as 0644" in ran.stderr
    assert not boxes.home.exists()


def test_a_dash_is_the_input(web: BoxShell) -> None:
    assert web.raw("put", "web", "-", "/workspace/file", input=b"\0\xff given").returncode == 0
    assert web.raw("exec", "web", "cat file; stat -c ' %a' file").stdout == b"\0\xff given 644\n"
    web.good("put", "web", "-", "/workspace/empty")
    assert web.sh("web", "stat -c %s empty") == "0\n"


def test_what_has_no_size_can_be_put_too(web: BoxShell) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"from a pipe")
    os.close(theirs)
    try:
        ran = web.raw("put", "web", f"/dev/fd/{ours}", "/workspace/piped", pass_fds=(ours,))
    finally:
        os.close(ours)
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"", b"", 0)
    assert web.sh("web", "cat piped") == "from a pipe"
    web.good("put", "web", "/proc/sys/kernel/ostype", "/workspace/kernel")
    assert web.sh("web", "cat kernel") == "Linux\n"


def test_a_large_file_goes_in_and_comes_out(web: BoxShell, large: Path) -> None:
    web.good("put", "web", "large", "/workspace/large")
    digest = hashlib.sha256(large.read_bytes()).hexdigest()
    assert web.sh("web", "sha256sum < large").split()[0] == digest
    web.good("get", "web", "/workspace/large", "back")
    assert hashlib.sha256((web.cwd / "back").read_bytes()).hexdigest() == digest
    assert hashlib.sha256(web.raw("get", "web", "/workspace/large", "-").stdout).hexdigest() == digest


def test_folders_on_the_way_are_made_and_an_old_file_is_replaced(web: BoxShell) -> None:
    web.good("put", "web", "-", "/workspace/deep/er/file", input="old and long")
    web.good("put", "web", "-", "/workspace/deep/er/file", input="new")
    assert web.sh("web", "cat deep/er/file; ls -A deep/er") == "newfile\n"


def test_a_folder_as_the_target_gets_the_file_by_its_name(web: BoxShell) -> None:
    (web.cwd / "file").write_text("x")
    for target in ("/workspace", "/workspace/deep/er/"):
        assert web.good("put", "web", "file", target) == ""
        assert web.sh("web", f"cat {target}/file; rm {target}/file") == "x"


def test_a_large_file_goes_into_a_folder_too_and_whole(web: BoxShell, large: Path) -> None:
    web.good("put", "web", "large", "/workspace")
    assert web.sh("web", "sha256sum < large").split()[0] == hashlib.sha256(large.read_bytes()).hexdigest()


def test_what_is_neither_a_file_nor_a_folder_is_not_replaced_and_what_has_no_name_goes_into_no_folder(web: BoxShell) -> None:
    (web.cwd / "file").write_text("x")
    web.sh("web", "mkfifo pipe; mkdir folder")
    for source, target in (("file", "pipe"), ("-", "folder")):
        ran = web.box("put", "web", source, f"/workspace/{target}")
        assert (ran.stdout, ran.returncode) == ("", 1)
        assert f"/workspace/{target} is not a regular file" in ran.stderr
    assert web.sh("web", "ls -A . folder; test -p pipe && echo a pipe") == ".:\nfolder\npipe\n\nfolder:\na pipe\n"


@pytest.mark.parametrize(
    ("source", "target", "status", "told"),
    [
        ("nowhere", "/workspace/x", 2, "does not exist"),
        (".", "/workspace/x", 2, "is a directory"),
        ("file", "relative", 1, "absolute"),
        ("file", "/workspace/../x", 1, "without .."),
        ("file", "/proc/x", 1, ""),
        ("file", "/usr/x", 1, ""),
    ],
)
def test_what_cannot_be_put_is_told_and_nothing_is_made(web: BoxShell, source: str, target: str, status: int, told: str) -> None:
    (web.cwd / "file").write_text("x")
    ran = web.box("put", "web", source, target)
    assert (ran.stdout, ran.returncode) == ("", status)
    assert told in ran.stderr
    assert ran.stderr
    assert "Traceback" not in ran.stderr
    assert web.sh("web", "ls -A") == ""


def test_a_put_that_breaks_off_leaves_no_half_file(boxes: BoxShell) -> None:
    ran = run_limited(boxes, "create", "web")  # and so the box may not write larger ones either
    assert (ran.stdout, ran.stderr) == ("web\n", "")
    (boxes.cwd / "large").write_bytes(bytes(LARGE))
    boxes.sh("web", "echo old > kept")
    for target in ("/workspace/kept", "/workspace/new"):
        broken = boxes.box("put", "web", "large", target)
        assert (broken.stdout, broken.returncode) == ("", 1)
        assert "File too large" in broken.stderr
    assert boxes.sh("web", "ls -A; cat kept") == "kept\nold\n"


# -- get --------------------------------------------------------------------------------------------------------------------------


def test_a_file_comes_out_with_its_bytes_and_its_mode(web: BoxShell) -> None:
    web.sh("web", "printf 'a\\0\\377b' > file; chmod 750 file")
    assert web.good("get", "web", "/workspace/file", "copy") == ""
    assert (web.cwd / "copy").read_bytes() == b"a\0\xffb"
    assert stat.S_IMODE((web.cwd / "copy").stat().st_mode) == 0o750
    assert web.raw("get", "web", "/workspace/file", "-").stdout == b"a\0\xffb"
    assert list_names(web.cwd) == {"copy"}


def test_a_setuid_bit_does_not_come_out(web: BoxShell) -> None:
    web.sh("web", "echo x > file; chmod 6755 file")
    web.good("get", "web", "/workspace/file", "copy")
    assert stat.S_IMODE((web.cwd / "copy").stat().st_mode) == 0o755


def test_a_folder_of_ours_gets_the_file_by_its_name(web: BoxShell) -> None:
    web.sh("web", "echo x > file")
    (web.cwd / "folder").mkdir()
    web.good("get", "web", "/workspace/file", "folder")
    web.good("get", "web", "/workspace/file", "./")
    assert list_names(web.cwd / "folder") == {"file"}
    assert list_names(web.cwd) == {"file", "folder"}


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("/nowhere", "copy", "No such file or directory"),
        ("/workspace", "copy", "not a regular file"),
        ("relative", "copy", "absolute"),
        ("/workspace/pipe", "copy", "not a regular file"),
        ("/workspace/file", "no/such/folder", "No such file or directory"),
    ],
)
def test_what_cannot_be_got_is_told_and_nothing_is_made(web: BoxShell, source: str, target: str, told: str) -> None:
    web.sh("web", "echo x > file; mkfifo pipe")
    ran = web.box("get", "web", source, target)
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list_names(web.cwd) == set()


def test_a_get_that_breaks_off_leaves_what_was_there(web: BoxShell) -> None:
    web.sh("web", f"head -c {LARGE} /dev/zero > large")
    (web.cwd / "copy").write_text("old")
    ran = run_limited(web, "get", "web", "/workspace/large", "copy")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (web.cwd / "copy").read_text() == "old"
    assert list_names(web.cwd) == {"copy"}


def test_no_other_file_of_ours_is_touched(web: BoxShell) -> None:
    """Whatever the draft is called, it is no file that was there."""
    web.sh("web", "echo new > file")
    others = {f"copy{ending}" for ending in (".part", ".new", ".tmp", "~", ".draft")}
    for name in others:
        (web.cwd / name).write_text("mine")
    web.good("get", "web", "/workspace/file", "copy")
    assert {name: (web.cwd / name).read_text() for name in others | {"copy"}} == dict.fromkeys(others, "mine") | {"copy": "new\n"}


def test_a_link_in_the_box_leads_nowhere_outside(web: BoxShell, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("the machine's own")
    web.sh("web", f"ln -s {tmp_path}/private link; ln -s / root; ln -s /proc/1/root/{tmp_path}/private proc")
    for path in ("link", f"root/{tmp_path}/private", "proc"):
        ran = web.box("get", "web", f"/workspace/{path}", "-")
        assert (ran.stdout, ran.returncode) == ("", 1)
