"""The tool `read`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from serai.limits import KIB, MIB
from serai.model.tools import ImageBlock
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Tools, is_failure, lines

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.mark.req("resident.tools.read")
async def test_lines_come_with_their_numbers(tools: Tools) -> None:
    tools.file("a.txt", "one\ntwo\r\n\nfour")
    assert lines(await tools("read", path="a.txt")) == ["1\tone", "2\ttwo", "3\t", "4\tfour"]
    assert lines(await tools("read", path=str(tools.folder / "a.txt"), offset=4)) == ["4\tfour"]


@pytest.mark.req("resident.tools.read")
async def test_a_part_says_what_was_left_out_and_how_to_go_on(tools: Tools) -> None:
    tools.file("a", "".join(f"line {number}\n" for number in range(1, 5001)))
    part = lines(await tools("read", path="a", offset=10, limit=2))
    assert part == ["10\tline 10", "11\tline 11", "[lines 10 to 11 of 5000; go on with offset=12]"]
    whole = lines(await tools("read", path="a", limit=100_000))
    assert whole[-1] == "[lines 1 to 2000 of 5000; go on with offset=2001]"
    assert len(whole) == 2001
    assert lines(await tools("read", path="a", offset=5000)) == ["5000\tline 5000"]
    assert is_failure(await tools("read", path="a", offset=5001), "INVALID_ARGS", "5000 lines")


@pytest.mark.req("resident.tools.read-bounded")
async def test_no_answer_is_longer_than_the_limit_and_going_on_reaches_everything(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(tool_output=2 * KIB))
    tools.file("a", "".join(f"{number} {'ä' * 60}\n" for number in range(100)))
    offset, seen = 1, 0
    while True:
        result = await tools("read", path="a", offset=offset)
        assert len(result.text.encode()) < 2 * KIB + 100
        *shown, last = lines(result)
        seen += len(shown)
        if not last.startswith("["):
            break
        offset = int(last.rpartition("=")[2].rstrip("]"))
    assert seen + 1 == 100


@pytest.mark.req("resident.tools.read-bounded")
async def test_a_line_of_ten_megabytes_is_cut(tools: Tools) -> None:
    tools.file("a", b"first\n" + b"x" * 10 * MIB + b"\nlast\n")
    first, long, last = lines(await tools("read", path="a"))
    assert (first, last) == ("1\tfirst", "3\tlast")
    assert len(long) < 3000
    assert long.endswith(f"[{10 * MIB - 2000} more characters]")


@pytest.mark.req("resident.tools.read-bounded")
async def test_a_file_beyond_the_limit_is_not_looked_into(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(read_file=1000))
    tools.file("a", "x" * 1001)
    assert is_failure(await tools("read", path="a"), "FILE_TOO_LARGE", "1001", "grep")
    with open(tools.folder / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert is_failure(await tools("read", path="sparse"), "FILE_TOO_LARGE")


@pytest.mark.req("resident.tools.read-image")
@pytest.mark.parametrize(
    ("start", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_an_image_is_known_by_its_bytes(tools: Tools, start: bytes, mime: str) -> None:
    tools.file("picture.txt", start)
    result = await tools("read", path="picture.txt")
    assert result.content[1] == ImageBlock(start, mime)
    assert mime in result.text


@pytest.mark.req("resident.tools.read-image")
async def test_an_image_that_no_model_takes_is_refused(tools: Tools) -> None:
    tools.file("a.png", PNG + bytes(5 * MIB))
    assert is_failure(await tools("read", path="a.png"), "FILE_TOO_LARGE")


@pytest.mark.req("resident.tools.read-odd")
async def test_what_is_no_text_says_so(tools: Tools) -> None:
    tools.file("binary", b"\x7fELF\0\0\0\1")
    tools.file("latin", "caf\xe9\n".encode("latin-1"))
    tools.file("replaced", "a \ufffd in its own right\n")
    tools.file("marked", b"\xef\xbb\xbffirst\n")
    tools.file("empty", b"")
    assert is_failure(await tools("read", path="binary"), "INVALID_ARGS", "binary", "8 bytes", "xxd")
    first, remark = lines(await tools("read", path="latin"))
    assert first == "1\tcaf\ufffd"
    assert "UTF-8" in remark
    assert lines(await tools("read", path="replaced")) == ["1\ta \ufffd in its own right"]
    assert lines(await tools("read", path="marked")) == ["1\tfirst"]
    assert lines(await tools("read", path="empty")) == ["[empty is empty]"]


@pytest.mark.req("resident.tools.not-regular")
async def test_what_is_no_file_is_refused_and_never_waited_for(tools: Tools) -> None:
    os.mkfifo(tools.folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(tools.folder, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        (tools.folder / "below").mkdir()
        for name, kind in (("pipe", "a pipe"), ("socket", "a socket"), ("below", "a folder"), (".", "a folder")):
            assert is_failure(await tools("read", path=name), "NOT_REGULAR_FILE", kind)
            assert is_failure(await tools("edit", path=name, old="a", new="b"), "NOT_REGULAR_FILE", kind)
            assert is_failure(await tools("write", path=name, content="x"), "NOT_REGULAR_FILE", kind)
    assert is_failure(await tools("grep", path="pipe", pattern="x"), "NOT_REGULAR_FILE", "a pipe")
    assert sorted(os.listdir(tools.folder)) == ["below", "pipe", "socket"]


@pytest.mark.req("resident.tools.not-regular")
@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/environ", "/proc/cpuinfo", "/proc/self/maps", "/dev/tty"])
async def test_what_the_kernel_makes_up_is_no_file(tmp_path: Path, spawner: PlainSpawner, path: str) -> None:
    tools = Tools(tmp_path, spawner, QUICK, outside=lambda _, __: True)
    assert is_failure(await tools("read", path=path), "NOT_REGULAR_FILE")


@pytest.mark.req("resident.tools.read")
async def test_any_name_that_a_file_can_have_will_do(tools: Tools) -> None:
    for name in ("two\nlines", "\udcff bytes", "-rf", "$HOME", "a b\t", "*", "nötig"):
        tools.file(name, "x\n")
        assert lines(await tools("read", path=name)) == ["1\tx"]
        result = await tools("write", path=name, content="y")
        assert not result.is_error
        result.text.encode()
        assert "\n" not in result.text


@pytest.mark.req("resident.tools.read")
async def test_a_link_that_stays_inside_is_followed(tools: Tools) -> None:
    tools.file("real/file", "x\n")
    (tools.folder / "link").symlink_to("real")
    assert lines(await tools("read", path="link/file")) == ["1\tx"]
    assert not (await tools("edit", path="real/file", old="x", new="y")).is_error  # it is the same file
