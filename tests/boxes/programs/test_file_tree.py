"""Files through a real box server: those of `init`, and one by one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.programs import file_tree
from serai.boxes.programs.frames import Refusal as FrameRefusal
from tests.support.boxes.box_servers import Refusal, ServerProcess, b64, file, start_server

ROOT = os.geteuid() == 0
OWN = (os.geteuid(), os.getegid())
OTHER = (1000, 1001) if ROOT else OWN  # an ordinary user can give files to himself alone


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_server(tmp_path) as server:
        yield server


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def read_owner(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_uid, info.st_gid


@pytest.mark.req("hooks.scenario.porter-01")
def test_init_writes_the_files_byte_by_byte(server: ServerProcess) -> None:
    content = bytes(range(256)) * 9
    answer = server.ask("init", files=[file("/etc/token", content), file("/root/empty")])
    assert answer == {"script_failed": False, "script_error": "", "script_output": ""}
    assert (server.root / "etc/token").read_bytes() == content
    assert (server.root / "root/empty").read_bytes() == b""


@pytest.mark.req("hooks.scenario.porter-02")
def test_a_file_without_a_mode_gets_the_default_and_mode_0_is_honoured(server: ServerProcess) -> None:
    server.ask("init", files=[file("/secret"), file("/closed", Mode=0), file("/open", Mode=0o4755)])
    assert read_mode(server.root / "secret") == 0o600
    assert read_mode(server.root / "closed") == 0
    assert read_mode(server.root / "open") == 0o755  # never one with set-id bits
    with server.connect() as wire:
        for path, wish in (("/put", {}), ("/put0", {"mode": 0})):
            wire.ask("putfile", path=path, size=0, **wish)
    assert read_mode(server.root / "put") == 0o644
    assert read_mode(server.root / "put0") == 0


@pytest.mark.req("hooks.naive.14", "hooks.owner.09")
def test_the_umask_narrows_neither_files_nor_folders(tmp_path: Path) -> None:
    with start_server(tmp_path, umask=0o077) as server:
        server.ask("init", files=[file("/a/b/open", Mode=0o666)])
        assert read_mode(server.root / "a/b/open") == 0o666
        assert [(read_mode(server.root / name), read_owner(server.root / name)) for name in ("a", "a/b")] == [(0o755, OWN)] * 2


@pytest.mark.req("hooks.scenario.porter-03", "hooks.naive.15", "hooks.owner.08")
def test_a_file_gets_mode_and_owner_and_the_folders_made_for_it_do_not(server: ServerProcess) -> None:
    server.ask("init", files=[file("/home/node/.secret/token", b"t", Mode=0o640, UID=OTHER[0], GID=OTHER[1])])
    token = server.root / "home/node/.secret/token"
    assert (read_mode(token), read_owner(token)) == (0o640, OTHER)
    assert read_owner(token.parent) == read_owner(token.parent.parent) == OWN


@pytest.mark.req("hooks.owner.07")
def test_a_new_file_for_root_stays_with_its_writer(server: ServerProcess) -> None:
    """In a folder that hands its group on: a chown would take that away. An ordinary user's box server could not do one at all."""
    shared = server.root / "shared"
    shared.mkdir()
    if ROOT:
        os.chown(shared, 0, 1234)
    shared.chmod(0o2775)
    server.ask("init", files=[file("/shared/file")])
    assert read_owner(shared / "file") == (OWN[0], 1234 if ROOT else OWN[1])


@pytest.mark.req("hooks.owner.10")
def test_folders_that_exist_keep_owner_and_mode(server: ServerProcess) -> None:
    home = server.root / "home"
    home.mkdir()
    if ROOT:
        os.chown(home, *OTHER)
    home.chmod(0o701)
    server.ask("init", files=[file("/home/file"), file("/home/new/file")])
    assert (read_mode(home), read_owner(home)) == (0o701, OTHER)


@pytest.mark.req("hooks.path.11")
def test_an_existing_file_is_rewritten_and_gets_mode_and_owner(server: ServerProcess) -> None:
    old, link = server.root / "old", server.root / "link"
    old.write_text("something much longer")
    old.chmod(0o666)
    link.hardlink_to(old)
    server.ask("init", files=[file("/old", b"new", Mode=0o640, UID=OTHER[0], GID=OTHER[1])])
    assert (link.read_bytes(), read_mode(old), read_owner(old)) == (b"new", 0o640, OTHER)


@pytest.mark.req("hooks.path.11")
def test_write_chmod_and_chown_come_in_this_order_and_never_may_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o666)
    done: list[object] = []
    for name in ("ftruncate", "write", "fchmod", "fchown"):
        real = getattr(os, name)

        def noting(descriptor: int, *rest: object, name: str = name, real: object = real) -> object:
            if name == "write":
                done.append((name, oct(os.fstat(descriptor).st_mode & 0o777)))
            else:
                done.append((name, oct(rest[0]) if name == "fchmod" and isinstance(rest[0], int) else rest))
            return real(descriptor, *rest)  # type: ignore[operator]

        monkeypatch.setattr(os, name, noting)
    tree = file_tree.BoxFileTree(str(tmp_path))
    tree.write("/old", b"secret", 0o644, *OTHER)
    tree.write("/new", b"secret", 0o644, *OTHER)
    both = [("write", "0o600"), ("fchmod", "0o644"), ("fchown", OTHER)]
    if OTHER == (0, 0):
        both.pop()
    assert done == [("fchmod", "0o600"), ("ftruncate", (0,)), *both, *both]


@pytest.mark.needs("root")
def test_an_existing_file_of_somebody_else_is_taken_for_root(server: ServerProcess) -> None:
    old = server.root / "old"
    old.write_text("x")
    os.chown(old, 1000, 1000)
    server.ask("init", files=[file("/old", b"new")])
    assert (old.read_bytes(), read_mode(old), read_owner(old)) == (b"new", 0o600, (0, 0))


@pytest.mark.req("hooks.path.12")
def test_a_target_that_is_no_regular_file_is_an_error(server: ServerProcess) -> None:
    os.mkfifo(server.root / "fifo")
    for path in ("/workspace", "/fifo"):
        with pytest.raises(Refusal, match=path):
            server.ask("init", files=[file(path, b"x")])
        with pytest.raises(Refusal, match=f"{path} is not a regular file"):
            server.ask("putfile", path=path, size=0)
        with pytest.raises(Refusal, match=f"{path} is not a regular file" if path == "/workspace" else "fifo"):
            server.ask("getfile", path=path)
    assert server.ask("hello")["initialised"] is False


@pytest.mark.parametrize("path", ["", "relative", "/", "/a/", "/../a", "/a/../b", "/a\0b"])
def test_a_path_that_is_none_is_refused(server: ServerProcess, path: str) -> None:
    for ask in ({"verb": "init", "files": [file(path)]}, {"verb": "putfile", "path": path}, {"verb": "getfile", "path": path}):
        with pytest.raises(Refusal, match="is no path"):
            server.ask(**ask)


def test_under_a_folder_no_link_is_followed(server: ServerProcess, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (server.root / "folder").symlink_to(outside)
    (server.root / "file").symlink_to(outside / "file")
    with pytest.raises(Refusal):
        server.ask("init", files=[file("/folder/file", b"yours")])
    for path in ("/folder/file", "/file"):
        with pytest.raises(Refusal):
            server.ask("getfile", path=path)
    with server.connect() as wire:
        wire.send("putfile", {"path": "/file", "size": 5})
        wire.socket.sendall(b"yours")
        wire.answer()
    assert (server.root / "file").read_text() == "yours"  # in place of the link
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "mine")]


def test_files_may_come_in_several_frames(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.ask("init", files=[file("/a", b"1"), file("/b", b"x")], more=True)
        assert wire.ask("hello")["initialised"] is False
        wire.ask("init", files=[file("/b", b"y", Append=True, Mode=0o444)], more=True)
        wire.ask("init", files=[file("/c", b"3")])
        assert wire.ask("hello")["initialised"] is True
        with pytest.raises(Refusal, match="already initialised"):
            wire.ask("init", files=[file("/d")], more=True)
    assert [(server.root / name).read_bytes() for name in "abc"] == [b"1", b"xy", b"3"]
    assert read_mode(server.root / "b") == 0o444


@pytest.mark.req("hooks.scenario.porter-15")
def test_putfile_streams_more_than_a_frame_holds(server: ServerProcess) -> None:
    content = os.urandom(1 << 20) * 17
    with server.connect() as wire:
        wire.send("putfile", {"path": "/new/big", "size": len(content), "mode": 0o600})
        wire.socket.sendall(content)
        assert wire.answer() == {}
        assert wire.ask("hello")["porter"] == 1
        assert wire.ask("getfile", path="/new/big") == {"size": len(content), "mode": 0o600, "uid": OWN[0], "gid": OWN[1]}
        assert wire.read(len(content)) == content
        assert wire.ask("hello")["porter"] == 1
    assert (server.root / "new/big").read_bytes() == content


@pytest.mark.req("hooks.scenario.porter-16")
@pytest.mark.parametrize(
    "wish", [{"path": "relative", "size": 99}, {"path": "/file", "size": -1}, {"path": "/file", "size": "9"}, {"path": 1}]
)
def test_a_refused_upload_is_never_read_as_frames(server: ServerProcess, wish: dict[str, object]) -> None:
    """The bytes of the file are a request: it must not be done."""
    trap = b'{"verb":"putfile","data":{"path":"/trapped","size":0}}'
    with server.connect() as wire:
        wire.send("putfile", wish, len(trap).to_bytes(4, "big") + trap)
        with pytest.raises(Refusal):
            wire.answer()
        assert wire.read_all() == b""
    assert server.ask("hello")["porter"] == 1
    assert sorted(path.name for path in server.root.iterdir()) == ["root", "workspace"]


def test_an_upload_that_breaks_off_leaves_what_was_there(server: ServerProcess) -> None:
    (server.root / "file").write_text("old")
    with server.connect() as wire:
        wire.send("putfile", {"path": "/file", "size": 100})
        wire.socket.sendall(b"new")
        wire.end()
        assert wire.read_all() == b""  # it has noticed, and cleaned up
    assert (server.root / "file").read_text() == "old"
    assert sorted(path.name for path in server.root.iterdir()) == ["file", "root", "workspace"]


def test_a_file_that_shrinks_while_it_is_read_ends_the_connection(server: ServerProcess) -> None:
    big = server.root / "big"
    with big.open("wb") as sparse:
        sparse.truncate(64 << 20)
    with server.connect() as wire:
        assert wire.ask("getfile", path="/big")["size"] == 64 << 20
        wire.read(10)
        big.write_bytes(b"")
        assert len(wire.read_all()) < 32 << 20


@pytest.mark.req("hooks.rule.4-files-before-script")
def test_the_files_are_there_when_the_script_runs(server: ServerProcess) -> None:
    answer = server.ask("init", init_script=b64(b"#!/bin/sh\ncat ../etc/token\n"), files=[file("/etc/token", b"t0k3n")])
    assert answer == {"script_failed": False, "script_error": "", "script_output": "t0k3n"}


def test_a_file_of_a_hook_takes_the_place_of_a_link(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (server.root / "token").symlink_to(tmp_path / "outside")
    server.ask("init", files=[file("/token", b"secret")], more=True)
    assert (server.root / "token").is_symlink() is False
    assert ((server.root / "token").read_bytes(), read_mode(server.root / "token")) == (b"secret", 0o600)
    (server.root / "token").unlink()
    (server.root / "token").symlink_to(tmp_path / "outside")
    with pytest.raises(Refusal):  # more of a file that is not there any more
        server.ask("init", files=[file("/token", b"secret", Append=True)])
    assert (tmp_path / "outside").read_text() == "mine"


def test_no_link_leads_what_is_written_into_a_descriptor_of_the_box_server(tmp_path: Path) -> None:
    """As in a box over a base tree that somebody else made: there links are followed, to folders."""
    tree = file_tree.BoxFileTree("/")
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "proc").symlink_to("/proc/self")
    with (tmp_path / "log").open("w") as log:
        (tmp_path / "real" / "token").symlink_to(f"/proc/self/fd/{log.fileno()}")
        tree.write(f"{tmp_path}/folder/token", b"secret", 0o600, 0, 0)
        with pytest.raises(FrameRefusal, match="is in /proc"):
            tree.write(f"{tmp_path}/proc/fd/{log.fileno()}", b"secret", 0o600, 0, 0)
        with pytest.raises(FrameRefusal, match="is in /proc"):
            tree.write(f"{tmp_path}/proc/comm", b"secret", 0o600, 0, 0)
    assert (tmp_path / "log").read_text() == ""
    assert (tmp_path / "real" / "token").read_text() == "secret"
