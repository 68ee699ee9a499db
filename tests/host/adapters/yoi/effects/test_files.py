"""`fs` (spec yoi 6): the path table, the three operations, and every way out of a root that we know."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects import files
from serai.host.adapters.yoi.effects.threads import BoundedThreads, ThreadCaller
from serai.plugins.grants import FsGrant, Operation
from tests.support.yoi.host_calls import PATIENT, do, grant, open_calls, record

SECRET = "the content of a file outside"
OPERATIONS: tuple[Operation, ...] = ("read", "list", "write")


def perform(operation: Operation, path: str, *grants: FsGrant, content: str = "new", own: tuple[str, ...] = ()) -> Any:
    """One call without a thread."""
    plugin = record(fs=grants)
    given = {"path": path, "content": content} if operation == "write" else {"path": path}
    asked = host_api.check_fs(operation, json.dumps(given))
    return json.loads(
        files.perform(
            host_api.find_grants(plugin, operation), files.OwnFolders.from_paths(own), asked, ThreadCaller(), float("inf")
        )
    )


def get_refusal(operation: Operation, path: str, *grants: FsGrant, **more: Any) -> str:
    with pytest.raises(HostCallDenied) as caught:
        perform(operation, path, *grants, **more)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("inside")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    return root


async def test_the_three_operations_have_their_documents(root: Path) -> None:
    async with open_calls(record(fs=[grant(root)])) as effects:
        assert await do(effects, "fs", "read", json.dumps({"path": "sub/file"})) == {
            "path": "sub/file", "content": "inside", "truncated": False
        }  # fmt: skip
        written = await do(effects, "fs", "write", json.dumps({"path": "sub/new", "content": "häj"}))
        assert written == {"path": "sub/new", "bytes_written": 4}
        assert await do(effects, "fs", "list", json.dumps({"path": "sub"})) == {
            "path": "sub", "entries": [{"name": "file", "kind": "file"}, {"name": "new", "kind": "file"}], "truncated": False
        }  # fmt: skip
    assert (root / "sub" / "new").read_text() == "häj"


TABLE = [
    ("", "FS path must not be empty"),
    ("a" * 4097, "FS path exceeds 4096 bytes"),
    ("ä" * 2049, "FS path exceeds 4096 bytes"),
    ("a\0b", "FS path must not contain NUL"),
    ("/etc/passwd", "FS request paths must be relative to a configured fs grant root"),
    ("//x", "FS request paths must be relative to a configured fs grant root"),
    ("..", "FS path traversal outside the grant root is denied"),
    ("a/../b", "FS path traversal outside the grant root is denied"),
    ("./..", "FS path traversal outside the grant root is denied"),
    ("sub/..", "FS path traversal outside the grant root is denied"),
]


@pytest.mark.req("yoi.conform.35", "yoi.edge.20")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("path", "said"), TABLE)
def test_the_table_of_bad_paths(root: Path, operation: Operation, path: str, said: str) -> None:
    assert get_refusal(operation, path, grant(root)) == said


@pytest.mark.req("yoi.conform.35", "yoi.edge.20")
def test_dots_and_slashes_stay_inside(root: Path) -> None:
    for path in ("sub/./file", "sub//file", "./sub/file", "sub/file/", "sub/file/.", ".//sub///./file//"):
        assert perform("read", path, grant(root))["content"] == "inside"
    assert [entry["name"] for entry in perform("list", ".", grant(root))["entries"]] == ["sub"]
    for path in (".", "./", "././"):
        assert get_refusal("write", path, grant(root)) == "FS write path must name a file"
        assert get_refusal("read", path, grant(root)) == f"FS read target is not a regular file: {path}"
    (root / "..name").write_text("x")
    assert perform("read", "..name", grant(root))["content"] == "x"
    (root / "a\\..\\b").write_text("y")  # a backslash is a letter here
    assert perform("read", "a\\..\\b", grant(root))["content"] == "y"


@given(st.text(st.sampled_from("./a\\%~\0 sub"), max_size=30))
def test_no_path_has_components_that_lead_elsewhere(path: str) -> None:
    try:
        asked = host_api.check_fs("list", json.dumps({"path": path}))
    except HostCallDenied:
        return
    assert not set(asked.parts) & {"", ".", ".."}
    assert not any("/" in part or "\0" in part for part in asked.parts)


@pytest.mark.req("yoi.rule.039", "yoi.edge.16")
@pytest.mark.parametrize(
    ("operation", "text", "said"),
    [
        ("read", "x" * 65_537, "FS request exceeds 65536 bytes"),
        ("write", "x" * 65_537, "FS request exceeds 65536 bytes"),
        ("read", '{"path": "a", "more": 1}', "invalid FS request JSON: "),
        ("read", '{"path": "a", "content": "b"}', "invalid FS request JSON: "),
        ("list", '{"path": "a", "path": "b"}', "invalid FS request JSON: "),
        ("write", '{"path": "a"}', "invalid FS request JSON: "),
        ("write", '{"path": "a", "content": null}', "invalid FS request JSON: "),
        ("read", '{"path": "\\ud800"}', "invalid FS request JSON: "),
        ("read", "[]", "invalid FS request JSON: "),
    ],
)
def test_a_request_is_strict_and_bounded(operation: Operation, text: str, said: str) -> None:
    with pytest.raises(HostCallDenied) as caught:
        host_api.check_fs(operation, text)
    assert str(caught.value).startswith(said)


@pytest.mark.req("yoi.rule.039")
def test_the_content_of_a_write_is_bounded(root: Path) -> None:
    most = 65_536 - len(json.dumps({"path": "a", "content": ""}))
    assert perform("write", "a", grant(root), content="x" * most)["bytes_written"] == most
    with pytest.raises(HostCallDenied, match="^FS request exceeds 65536 bytes$"):  # so that more cannot be said at all
        host_api.check_fs("write", json.dumps({"path": "a", "content": "x" * (most + 1)}))


@pytest.mark.req("yoi.conform.36", "yoi.rule.040")
@pytest.mark.parametrize("held", OPERATIONS)
def test_no_operation_implies_another(root: Path, held: Operation) -> None:
    target = {"read": "sub/file", "list": "sub", "write": "sub/new"}
    for operation in OPERATIONS:
        if operation == held:
            assert perform(operation, target[operation], grant(root, held))
        else:
            said = get_refusal(operation, target[operation], grant(root, held))
            assert said == f"host_api.fs {operation} denied: no matching operation grant"


@pytest.mark.req("yoi.rule.040")
def test_grants_are_tried_in_their_order(tmp_path: Path, root: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "file").write_text("second")
    (root / "file").write_text("first")
    assert perform("read", "file", grant(root), grant(second))["content"] == "first"
    assert perform("read", "file", grant(second), grant(root))["content"] == "second"
    assert perform("read", "file", grant(root, "write"), grant(second))["content"] == "second"  # without the operation: skipped
    (root / "file").unlink()
    assert perform("read", "file", grant(root), grant(second))["content"] == "second"
    assert perform("read", "sub/file", grant(second), grant(root))["content"] == "inside"
    (second / "sub").symlink_to(root / "sub")
    assert "symlink escape" in get_refusal("read", "sub/none", grant(root), grant(second))  # the last one's
    assert "No such file" in get_refusal("read", "sub/none", grant(second), grant(root))
    assert perform("read", "sub/file", grant(tmp_path / "gone"), grant(root))["content"] == "inside"


@pytest.mark.req("yoi.rule.037")
async def test_a_root_is_a_folder_and_no_symlink_at_every_call(tmp_path: Path, root: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    for bad in (link, f"{link}/", f"{link}/.", f"{link}//./"):
        assert get_refusal("read", "sub/file", grant(bad)) == "FS grant root is a symlink"
    assert get_refusal("read", "file", grant(root / "sub" / "file")) == "FS grant root is not a directory"
    assert get_refusal("read", "file", grant(tmp_path / "none")).startswith("FS grant root cannot be opened: ")
    absolute = "FS grant root must be an absolute path of at most 4096 bytes without `..`"
    for bad in ("sub", "", "/" + "x" * 4096, f"{root}/sub/..", "/a\0b"):
        assert get_refusal("read", "sub/file", grant(bad)) == absolute
    async with open_calls(record(fs=[grant("sub")])) as effects:
        with pytest.raises(HostCallDenied, match="^granted host_api.fs scope allowlist is missing$"):
            await do(effects, "fs", "read", json.dumps({"path": "file"}))
    async with open_calls(record(fs=[grant(root)])) as effects:
        assert await do(effects, "fs", "list", json.dumps({"path": "."}))
        root.rename(tmp_path / "moved")
        root.symlink_to(tmp_path / "moved")
        with pytest.raises(HostCallDenied, match="^FS grant root is a symlink$"):
            await do(effects, "fs", "list", json.dumps({"path": "."}))


@pytest.mark.req("yoi.rule.037")
async def test_the_folder_of_the_agent_is_nobodys(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    async with open_calls(record()) as effects:
        with pytest.raises(HostCallDenied, match="^granted host_api.fs scope allowlist is missing$"):
            await do(effects, "fs", "read", json.dumps({"path": "sub/file"}))


@pytest.mark.req("yoi.conform.37", "yoi.edge.19")
@pytest.mark.parametrize("to", ["outside", "inside", "nowhere"])
def test_no_symlink_is_followed(tmp_path: Path, root: Path, to: str) -> None:
    folder = {"outside": tmp_path / "outside", "inside": root / "sub", "nowhere": tmp_path / "none"}[to]
    (root / "dir").symlink_to(folder)
    (root / "leaf").symlink_to(folder / "file")
    (root / "sub" / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    every: list[tuple[Operation, str]] = [
        ("read", "dir/file"), ("list", "dir"), ("list", "dir/"), ("list", "dir/."), ("write", "dir/file"), ("write", "dir/new"),
        ("read", "leaf"), ("read", "leaf/"), ("write", "leaf"), ("list", "leaf"), ("read", "sub/up/sub/file"),
        ("write", "sub/up/new"),        ("read", "loop"), ("write", "loop"), ("list", "loop"),
    ]  # fmt: skip
    for operation, path in every:
        assert get_refusal(operation, path, grant(root)) == f"FS path symlink escape is denied: {path}"
    assert os.listdir(tmp_path / "outside") == ["file"]
    assert (tmp_path / "outside" / "file").read_text() == SECRET
    assert sorted(os.listdir(root)) == ["dir", "leaf", "loop", "sub"]


@contextmanager
def swap_paths(place: Path, one: Path, other: Path) -> Iterator[None]:
    """Somebody who puts `one` and `other` at a place by turns, as fast as it can be done."""
    over = threading.Event()

    def flip() -> None:
        while not over.is_set():
            for thing in (one, other):
                os.rename(thing, place)
                os.rename(place, thing)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.req("yoi.edge.19")
@pytest.mark.parametrize("kind", ["dir", "leaf"])
def test_a_symlink_that_comes_between_the_check_and_the_open_is_not_followed(tmp_path: Path, root: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    place, real, link = root / "x", tmp_path / "real", tmp_path / "link"
    if kind == "dir":
        real.mkdir()
        (real / "file").write_text("inside")
        link.symlink_to(outside)
    else:
        real.write_text("inside")
        link.symlink_to(outside / "file")
    path = "x/file" if kind == "dir" else "x"
    seen, said = set(), set()
    with swap_paths(place, real, link):
        for number in range(3000):
            try:
                seen.add(perform("read", path, grant(root))["content"])
                if kind == "dir" and number % 10 == 0:
                    perform("write", path, grant(root), content="inside")
                    perform("list", "x", grant(root))
            except HostCallDenied as denied:
                said.add(str(denied))
    assert seen == {"inside"}
    assert not any(SECRET in text for text in said)
    assert (outside / "file").read_text() == SECRET
    assert os.listdir(outside) == ["file"]


def test_what_is_no_file_is_neither_read_nor_written_nor_waited_for(root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(root / "socket"))
    for name in ("fifo", "socket", "sub"):
        assert get_refusal("read", name, grant(root)) == f"FS read target is not a regular file: {name}"
        assert get_refusal("write", name, grant(root)) == f"FS write target is not a regular file: {name}"
    for name in ("fifo", "socket", "sub/file"):
        assert get_refusal("list", name, grant(root)) == f"FS list target is not a directory: {name}"
    for operation in OPERATIONS:
        assert "Not a directory" in get_refusal(operation, "sub/file/x", grant(root))
    kinds = {entry["name"]: entry["kind"] for entry in perform("list", ".", grant(root))["entries"]}
    assert kinds == {"fifo": "other", "socket": "other", "sub": "dir"}


@pytest.mark.parametrize("path", ["self/environ", "self/mem", "1/cmdline", "version"])
def test_the_kernels_files_are_never_granted(path: str) -> None:
    said = "the kernel's own files are never granted"
    for operation in ("read", "write"):
        assert said in get_refusal(operation, path, grant("/proc"))
        assert said in get_refusal(operation, f"proc/{path}", grant("/"))
    assert said in get_refusal("list", "kernel", grant("/sys"))


async def test_serais_own_folders_are_known_by_any_name(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alias").symlink_to(root)
    monkeypatch.setenv("SERAI_HOME", str(tmp_path / "alias" / "sub"))
    for own in (None, [str(tmp_path / "alias" / "sub")]):  # None: where Serai keeps its things
        async with open_calls(record(fs=[grant(root)]), own=own) as effects:
            assert await do(effects, "fs", "list", json.dumps({"path": "."}))
            with pytest.raises(HostCallDenied, match="^FS read denied: Serai's own files are never granted: sub/file$"):
                await do(effects, "fs", "read", json.dumps({"path": "sub/file"}))


def test_serais_own_files_are_never_granted(root: Path) -> None:
    config = root / "config"
    (config / "guests").mkdir(parents=True)
    (config / "plugins.toml").write_text(SECRET)
    own = (str(config),)
    for operation, path in (("read", "config/plugins.toml"), ("write", "config/plugins.toml"), ("list", "config")):
        said = get_refusal(operation, path, grant(root), own=own)  # type: ignore[arg-type]
        assert said == f"FS {operation} denied: Serai's own files are never granted: {path}"
    assert "never granted" in get_refusal("write", "new", grant(config / "guests"), own=own)
    assert [entry["name"] for entry in perform("list", ".", grant(root), own=own)["entries"]] == ["config", "sub"]
    (root / ".serai").mkdir()
    (root / ".serai" / "config.toml").write_text("x")
    assert perform("read", ".serai/config.toml", grant(root))["content"] == "x"
    assert "never granted" in get_refusal("write", ".serai/config.toml", grant(root))


def test_what_links_in_serais_own_folders_lead_to_is_never_granted(tmp_path: Path, root: Path) -> None:
    """Who keeps dot files in one folder has links where Serai looks."""
    config, dots = tmp_path / "config", root / "dots"
    (dots / "guests" / "echo").mkdir(parents=True)
    config.mkdir()
    for name in ("config.toml", "plugins.toml"):
        (dots / name).write_text(SECRET)
        (config / name).symlink_to(dots / name)
    (dots / "guests" / "echo" / "plugin.toml").write_text(SECRET)
    (config / "guests").symlink_to("../root/dots/guests")
    (config / "gone").symlink_to(dots / "later")
    (dots / "other").write_text("other")
    os.link(dots / "config.toml", root / "second")  # the same file by another name
    every: list[tuple[Operation, str]] = [
        ("read", "dots/config.toml"), ("write", "dots/config.toml"), ("write", "dots/plugins.toml"), ("list", "dots/guests"),
        ("read", "dots/guests/echo/plugin.toml"), ("write", "dots/guests/echo/plugin.toml"), ("write", "dots/guests/new"),
        ("write", "dots/later"), ("read", "second"), ("write", "second"),
    ]  # fmt: skip
    for operation, path in every:
        said = get_refusal(operation, path, grant(root), own=(str(config),))
        assert said == f"FS {operation} denied: Serai's own files are never granted: {path}"
    assert "never granted" in get_refusal("write", "new", grant(dots / "guests" / "echo"), own=(str(config),))
    assert (dots / "config.toml").read_text() == SECRET
    assert perform("read", "dots/other", grant(root), own=(str(config),))["content"] == "other"


async def test_serais_own_folders_are_known_by_what_they_are(tmp_path: Path, root: Path) -> None:
    """A mount shows a folder in another place; moving it does the same to its path, and anybody may."""
    config = tmp_path / "config"
    (config / "guests").mkdir(parents=True)
    (config / "plugins.toml").write_text(SECRET)
    above, itself = record(fs=[grant(root)]), record(fs=[grant(root / "moved")])
    async with open_calls(above, own=[str(config)]) as outer, open_calls(itself, own=[str(config)]) as inner:
        config.rename(root / "moved")
        every: list[tuple[Any, str, str]] = [
            (outer, "read", "moved/plugins.toml"), (outer, "write", "moved/plugins.toml"), (outer, "write", "moved/new"),
            (outer, "write", "moved/guests/new"), (outer, "list", "moved/guests"), (outer, "list", "moved"),
            (inner, "read", "plugins.toml"), (inner, "write", "plugins.toml"), (inner, "write", "new"), (inner, "list", "."),
        ]  # fmt: skip
        for effects, operation, path in every:
            asked = {"path": path, "content": "new"} if operation == "write" else {"path": path}
            with pytest.raises(HostCallDenied, match=f"^FS {operation} denied: Serai's own files are never granted: {path}$"):
                await do(effects, "fs", operation, json.dumps(asked))
        names = [entry["name"] for entry in (await do(outer, "fs", "list", json.dumps({"path": "."})))["entries"]]
        assert names == ["moved", "sub"]
    assert sorted(os.listdir(root / "moved")) == ["guests", "plugins.toml"]
    assert (root / "moved" / "plugins.toml").read_text() == SECRET


@pytest.mark.req("yoi.rule.038")
def test_the_path_in_an_answer_is_redacted_and_bounded(root: Path) -> None:
    long = "sub/" * 60 + "file"
    folder = root
    for _ in range(60):
        folder /= "sub"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("deep")
    assert perform("read", long, grant(root))["path"] == long[:160] + "…"
    (root / "token=abc").write_text("x")
    assert perform("read", "token=abc", grant(root))["path"] == "token=<redacted>"
    said = get_refusal("read", "password=abc/none", grant(root))
    assert "abc" not in said
    assert str(root) not in said


@pytest.mark.req("yoi.rule.038")
def test_errors_have_nothing_of_the_contents(root: Path) -> None:
    (root / "sub" / "file").write_text(SECRET)
    for operation, path in (("read", "sub/file/x"), ("list", "sub/file"), ("write", "sub/file/x"), ("write", "sub")):
        said = get_refusal(operation, path, grant(root), content="what was to be written")  # type: ignore[arg-type]
        assert "to be written" not in said


@pytest.mark.req("yoi.conform.38", "yoi.edge.12")
@pytest.mark.parametrize(("size", "cut"), [(65_536, False), (65_537, True), (200_000, True)])
def test_a_long_file_is_cut(root: Path, size: int, cut: bool) -> None:
    (root / "long").write_bytes(b"x" * size)
    answer = perform("read", "long", grant(root))
    assert answer["content"] == "x" * min(size, 65_536)
    assert answer["truncated"] is cut
    (root / "bytes").write_bytes(b"\xff" * size)
    assert len(perform("read", "bytes", grant(root))["content"].encode()) <= 65_536


@pytest.mark.req("yoi.conform.38", "yoi.rule.042")
@pytest.mark.parametrize(("count", "cut"), [(256, False), (257, True), (1000, True)])
def test_a_long_list_is_the_first_of_it_by_name(root: Path, count: int, cut: bool) -> None:
    folder = root / "many"
    folder.mkdir()
    names = [f"{(number * 7919) % 1000:03}" for number in range(count)]
    for name in names:
        (folder / name).touch()
    answer = perform("list", "many", grant(root))
    assert [entry["name"] for entry in answer["entries"]] == sorted(names)[:256]
    assert answer["truncated"] is cut


@pytest.mark.req("yoi.rule.042")
def test_a_list_tells_the_kinds_and_bears_any_name(root: Path) -> None:
    (root / "link").symlink_to("sub")
    (root / "plain").touch()
    os.mkfifo(root / "pipe")
    with open(os.path.join(os.fsencode(root), b"\xff-bad"), "w"):
        pass
    entries = perform("list", ".", grant(root))["entries"]
    assert [(entry["name"], entry["kind"]) for entry in entries] == [
        ("link", "symlink"), ("pipe", "other"), ("plain", "file"), ("sub", "dir"), ("\ufffd-bad", "file"),
    ]  # fmt: skip


@pytest.mark.req("yoi.rule.041")
def test_a_write_replaces_the_file_and_makes_no_folder(tmp_path: Path, root: Path) -> None:
    target = root / "sub" / "file"
    target.chmod(0o640)
    os.link(target, tmp_path / "other name")  # a file outside, by another name
    with target.open() as before:
        perform("write", "sub/file", grant(root), content="new content")
        assert before.read() == "inside"  # whoever has it open has the old one, whole
    assert target.read_text() == "new content"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert (tmp_path / "other name").read_text() == "inside"
    assert "No such file or directory" in get_refusal("write", "none/file", grant(root))
    assert sorted(os.listdir(root)) == ["sub"]
    assert os.listdir(root / "sub") == ["file"]  # nothing temporary is left


WRITER = """
import json, sys
from serai.dialects.yoi import host_api
from serai.plugins.grants import FsGrant
from serai.host.adapters.yoi.effects import files
from serai.host.adapters.yoi.effects.threads import ThreadCaller
grants = [FsGrant(root=sys.argv[1], operations=("write",))]
for number in range(10**9):
    asked = host_api.check_fs("write", json.dumps({"path": "file", "content": "ab"[number % 2] * 60_000}))
    files.perform(grants, files.OwnFolders.from_paths(()), asked, ThreadCaller(), float("inf"))
    print(number, flush=True)
"""


@pytest.mark.req("yoi.rule.041")
def test_a_writer_that_is_killed_leaves_the_old_content_or_the_new(root: Path) -> None:
    for rounds in (1, 2, 5):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(rounds):
                writer.stdout.readline()
            writer.kill()
        content = (root / "file").read_text()
        assert len(content) == 60_000
        assert set(content) in ({"a"}, {"b"})


@pytest.mark.req("yoi.conform.39")
async def test_writes_to_one_file_are_serialised(root: Path) -> None:
    contents = [chr(ord("a") + number) * 50_000 for number in range(12)]
    async with open_calls(record(fs=[grant(root)])) as one, open_calls(record(fs=[grant(root)])) as two:
        for start in range(0, 12, 4):
            batch = contents[start : start + 4]
            texts = [json.dumps({"path": "sub/file", "content": content}) for content in batch]
            await asyncio.gather(*(do((one, two)[number % 2], "fs", "write", text) for number, text in enumerate(texts)))
            assert (root / "sub" / "file").read_text() in batch
    assert os.listdir(root / "sub") == ["file"]


@pytest.mark.req("yoi.conform.39", "yoi.edge.30")
async def test_a_write_waits_for_the_one_before_as_long_as_its_call_may(root: Path) -> None:
    text = json.dumps({"path": "sub/file", "content": "late"})
    folder = os.open(root / "sub", os.O_RDONLY)
    try:
        async with open_calls(record(fs=[grant(root)])) as effects:
            fcntl.flock(folder, fcntl.LOCK_EX)  # somebody writes there
            with pytest.raises(HostCallDenied, match="^FS write timed out: "):
                await do(effects, "fs", "write", text, remaining=0.1)
            task = asyncio.ensure_future(do(effects, "fs", "write", text))
            done, _ = await asyncio.wait([task], timeout=0.05)
            assert not done
            assert (root / "sub" / "file").read_text() == "inside"
            fcntl.flock(folder, fcntl.LOCK_UN)
            await task
            assert (root / "sub" / "file").read_text() == "late"
    finally:
        os.close(folder)


def test_who_was_told_that_it_failed_has_not_written(root: Path) -> None:
    asker = ThreadCaller()
    asker.gone = True
    asked = host_api.check_fs("write", json.dumps({"path": "sub/file", "content": "x"}))
    with pytest.raises(HostCallDenied, match="^FS write was given up$"):
        files.perform([grant(root)], files.OwnFolders.from_paths(()), asked, asker, float("inf"))
    assert (root / "sub" / "file").read_text() == "inside"
    assert os.listdir(root / "sub") == ["file"]


async def test_hands_that_do_not_come_back_are_counted_and_not_waited_for() -> None:
    hands, go = BoundedThreads("disk", most=2), threading.Event()
    started: list[ThreadCaller] = []

    def hang(asker: ThreadCaller) -> None:
        started.append(asker)
        go.wait()

    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hands.submit(hang), 0.1)
    with pytest.raises(HostCallDenied, match="^disk is busy: 2 earlier calls have not come back$"):
        await hands.submit(lambda _: 1)
    assert all(asker.gone for asker in started)
    go.set()
    while hands._idle == []:
        await asyncio.sleep(0)  # until one is back
    assert await hands.submit(lambda _: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await hands.submit(lambda _: 1 // 0)
    hands.close()


@pytest.mark.req("yoi.edge.30")
async def test_a_call_without_time_is_not_made(root: Path) -> None:
    async with open_calls(record(fs=[grant(root)])) as effects:
        with pytest.raises(HostCallDenied, match="^host_api.fs timed out: its call has no time left$"):
            await do(effects, "fs", "read", json.dumps({"path": "sub/file"}), remaining=-1.0)


async def test_no_descriptor_is_left(root: Path) -> None:
    (root / "leaf").symlink_to("sub")
    before = len(os.listdir("/proc/self/fd"))
    for operation in OPERATIONS:
        for path in ("leaf", "leaf/file", "sub/file", "sub", "none", "none/x", "sub/file/x"):
            try:
                perform(operation, path, grant(root))
            except HostCallDenied:
                pass
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_call_costs_little_beside_its_deadline(root: Path) -> None:
    async with open_calls(record(fs=[grant(root)])) as effects:
        for _ in range(50):  # one thread does them all
            await do(effects, "fs", "read", json.dumps({"path": "sub/file"}), remaining=PATIENT)
        assert effects._threads._count == 1
