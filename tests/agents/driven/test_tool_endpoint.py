"""The endpoint: who gets in, what they get, and that nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path
from typing import Literal

import pytest

from serai.agents.driven.tool_endpoint import TOKEN_VARIABLE, ToolEndpoint
from serai.dialects.mcp.events import Changed, Done, Failed, Listed, Pong
from serai.errors import Closed, NotWritten, SeraiError
from serai.limits import Limits
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolResult, ToolSpec
from serai.wire.stream import Oversize
from tests.support.mcp_endpoints import PROMPTLY, Box, Talker, open_endpoint

pytestmark = pytest.mark.loops

# -- tools


@pytest.mark.req("app.mcp.endpoint")
async def test_a_client_lists_and_calls_tools() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        talker = await Talker.greeted(endpoint)
        listed = await talker.ask(*talker.client.list_tools())
        assert isinstance(listed, Listed)
        assert {tool.name for tool in listed.tools} == {"add", "draw", "hold", "fail"}
        assert await talker.text("add", {"a": 1, "b": 2}, **{"claudecode/toolUseId": "toolu_1"}) == "3"
        assert [(call.name, call.arguments, call.id, call.asker) for call in box.calls] == [
            ("add", {"a": 1, "b": 2}, "toolu_1", "claude")
        ]
        drawn = await talker.ask(*talker.client.call_tool("draw"))
        assert isinstance(drawn, Done)
        assert drawn.result.content == (TextBlock("a dot"), ImageBlock(b"\x89PNG", "image/png"))
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_a_defect_of_a_tool_is_an_error_result_and_no_more() -> None:
    async with open_endpoint(Box()) as endpoint:
        talker = await Talker.greeted(endpoint)
        done = await talker.ask(*talker.client.call_tool("fail"))
        assert isinstance(done, Done)
        assert done.result.is_error
        assert "a defect" in done.result.text
        assert await talker.text("add", {"a": 1, "b": 1}) == "2"
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_a_block_that_is_no_json_fails_its_call_alone() -> None:
    class Odd(Box):
        async def call(self, call: object, *, tell: object = None) -> ToolResult:
            return ToolResult((OtherBlock("x", {"y": object()}),))

    async with open_endpoint(Odd()) as endpoint:
        talker = await Talker.greeted(endpoint)
        assert isinstance(await talker.ask(*talker.client.call_tool("add")), Failed)
        assert isinstance(await talker.ask(*talker.client.list_tools()), Listed)
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_calls_run_side_by_side_and_clients_too() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        first, second = await Talker.greeted(endpoint), await Talker.greeted(endpoint)
        held = [(talker, *talker.client.call_tool("hold")) for talker in (first, second, first)]
        for talker, _, message in held:
            talker.put(message)
        for _ in held:
            await asyncio.wait_for(box.begun.get(), PROMPTLY)
        assert endpoint.clients == 2
        assert await first.text("add", {"a": 2, "b": 2}) == "4"
        box.go.set()
        heard = [await talker.hear() for talker, _, _ in held]
        assert [one.result.text for one in heard if isinstance(one, Done)] == ["let go"] * 3
        first.close()
        second.close()


@pytest.mark.req("app.mcp.list")
async def test_a_change_is_told_to_those_who_are_ready() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        silent, talker = await Talker.come(endpoint), await Talker.greeted(endpoint)
        await talker.text("add", {"a": 1, "b": 1})  # so that it was heard to be ready
        assert isinstance(await silent.ask(*silent.client.ping()), Pong)
        box.tools.append(ToolSpec("new"))
        endpoint.notify_tools_changed()
        assert await talker.hear() == Changed()
        assert await talker.text("new") == "new ran"
        assert isinstance(await silent.ask(*silent.client.ping()), Pong)
        assert not silent.told
        silent.close()
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_a_tool_that_does_not_end_has_a_deadline() -> None:
    box = Box()
    async with open_endpoint(box, limits=Limits().but(call=0.05)) as endpoint:
        talker = await Talker.greeted(endpoint)
        assert "limit call" in await talker.text("hold")
        assert await asyncio.wait_for(box.cancelled.get(), PROMPTLY) == ""
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_a_long_result_is_cut_as_for_any_model() -> None:
    async with open_endpoint(Box(ToolSpec("long")), limits=Limits().but(tool_result=1000)) as endpoint:
        talker = await Talker.greeted(endpoint)
        text = await talker.text("long", {"size": 100_000})
        assert len(text) < 1200
        assert "left out" in text
        talker.close()


@pytest.mark.req("app.mcp.endpoint")
async def test_too_many_calls_at_once_are_refused_and_the_others_go_on() -> None:
    box = Box()
    async with open_endpoint(box, limits=Limits().but(requests=2)) as endpoint:
        talker = await Talker.greeted(endpoint)
        calls = [talker.client.call_tool("hold") for _ in range(3)]
        for _, message in calls:
            talker.put(message)
        refused = await talker.answer(calls[2][0])
        assert isinstance(refused, Done)
        assert refused.result.text.startswith("[error:BUSY]")
        box.go.set()
        assert isinstance(await talker.answer(calls[0][0]), Done)
        talker.close()


# -- who goes


@pytest.mark.req("app.mcp.cancel")
async def test_a_call_that_is_taken_back_is_cancelled() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        talker = await Talker.greeted(endpoint)
        call, message = talker.client.call_tool("hold", meta={"claudecode/toolUseId": "t1"})
        talker.put(message)
        await asyncio.wait_for(box.begun.get(), PROMPTLY)
        talker.put(talker.client.cancel(call) or b"")
        assert await asyncio.wait_for(box.cancelled.get(), PROMPTLY) == "t1"
        assert await talker.text("add", {"a": 1, "b": 2}) == "3"
        assert not talker.told  # nothing was said of the other
        talker.close()


@pytest.mark.req("app.mcp.gone")
async def test_the_calls_of_a_client_that_goes_are_cancelled() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        talker = await Talker.greeted(endpoint)
        talker.put(talker.client.call_tool("hold")[1])
        await asyncio.wait_for(box.begun.get(), PROMPTLY)
        talker.close()
        assert await asyncio.wait_for(box.cancelled.get(), PROMPTLY) == ""


@pytest.mark.req("app.mcp.gone")
async def test_what_was_asked_before_the_end_of_input_is_still_answered() -> None:
    async with open_endpoint(Box()) as endpoint:
        talker = await Talker.come(endpoint)
        call, message = talker.client.list_tools()
        talker.writer.write(message)  # and no line end
        talker.writer.write_eof()
        lines = (await talker.ended()).splitlines()
        heard = talker.client.receive(lines[0])
        assert isinstance(heard, Listed)
        assert heard.call is call
        talker.close()


@pytest.mark.req("app.mcp.gone")
async def test_closing_ends_everything_and_twice_is_once() -> None:
    box = Box()
    endpoint = await ToolEndpoint(box, agent="claude").open()
    talker = await Talker.greeted(endpoint)
    stranger_reader, stranger = await asyncio.open_unix_connection(endpoint.path)
    talker.put(talker.client.call_tool("hold")[1])
    await asyncio.wait_for(box.begun.get(), PROMPTLY)
    await asyncio.gather(endpoint.close(), endpoint.close())
    assert box.cancelled.qsize() == 1
    assert await talker.ended() == b""
    assert await asyncio.wait_for(stranger_reader.read(), PROMPTLY) == b""
    assert not os.path.exists(endpoint.folder)
    await endpoint.close()
    with pytest.raises(Closed):
        await endpoint.open()
    stranger.close()
    talker.close()


@pytest.mark.req("app.mcp.gone")
async def test_what_closes_the_endpoint_may_be_a_call() -> None:
    class Closing(Box):
        async def call(self, call: object, *, tell: object = None) -> ToolResult:
            await endpoint.close()
            return ToolResult()

    endpoint = await ToolEndpoint(Closing(), agent="claude").open()
    talker = await Talker.greeted(endpoint)
    talker.put(talker.client.call_tool("add")[1])
    assert await talker.ended() == b""
    assert not os.path.exists(endpoint.folder)
    talker.close()


# -- the door


@pytest.mark.req("app.mcp.door")
async def test_folder_socket_and_configuration_are_for_this_user_alone() -> None:
    async with open_endpoint(Box()) as endpoint:
        assert stat.S_IMODE(os.stat(endpoint.folder).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(endpoint.path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(endpoint.config).st_mode) == 0o600
        assert len(os.fsencode(endpoint.path)) <= 100


@pytest.mark.req("app.mcp.door")
@pytest.mark.parametrize("word", ["", "wrong", "x" * 43, "\x00", "é"])
async def test_a_wrong_word_ends_the_connection_and_nothing_is_told(word: str) -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        talker = await Talker.come(endpoint, word)
        talker.put(talker.client.list_tools()[1])
        assert await talker.ended() == b""
        assert (endpoint.clients, endpoint.refused) == (0, 1)
        talker.close()


@pytest.mark.req("app.mcp.door")
async def test_a_token_opens_its_own_endpoint_alone() -> None:
    async with open_endpoint(Box()) as one, open_endpoint(Box()) as other:
        assert one.launch.env != other.launch.env
        talker = await Talker.come(one, other.launch.env[TOKEN_VARIABLE])
        assert await talker.ended() == b""
        talker.close()


@pytest.mark.req("app.mcp.door")
async def test_a_token_may_come_in_pieces() -> None:
    async with open_endpoint(Box()) as endpoint:
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        for char in endpoint.launch.env[TOKEN_VARIABLE] + "\r":
            writer.write(char.encode())
            await writer.drain()
        talker = Talker(reader, writer)
        talker.put(b"")
        assert isinstance(await talker.ask(*talker.client.list_tools()), Listed)
        talker.close()


@pytest.mark.req("app.mcp.door")
async def test_another_user_is_refused_also_with_the_token() -> None:
    async with open_endpoint(Box()) as endpoint:
        endpoint._user += 1  # what the kernel says of the one who comes is not who is expected
        talker = await Talker.come(endpoint)
        assert await talker.ended() == b""
        assert endpoint.refused == 1
        talker.close()


def test_the_kernels_word_on_the_peer_is_read_right() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert ToolEndpoint._get_peer_user(one) == os.geteuid()
        raw = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        assert struct.unpack("3i", raw) == (os.getpid(), os.geteuid(), os.getegid())


@pytest.mark.req("app.mcp.door")
async def test_who_says_nothing_is_not_waited_for() -> None:
    async with open_endpoint(Box(), limits=Limits().but(hello=0.05)) as endpoint:
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        assert await asyncio.wait_for(reader.read(), PROMPTLY) == b""
        assert endpoint.refused == 1
        writer.close()


@pytest.mark.req("app.mcp.door")
async def test_clients_are_bounded_and_room_comes_back() -> None:
    async with open_endpoint(Box(), limits=Limits().but(mcp_clients=2)) as endpoint:
        first, second = await Talker.greeted(endpoint), await Talker.greeted(endpoint)
        third = await Talker.come(endpoint)
        assert await third.ended() == b""
        first.writer.write_eof()
        assert await first.ended() == b""
        fourth = await Talker.greeted(endpoint)
        for talker in (first, second, third, fourth):
            talker.close()


# -- how it is told to an agent


@pytest.mark.req("app.mcp.launch")
async def test_the_token_is_in_the_environment_and_never_in_the_command() -> None:
    async with open_endpoint(Box()) as endpoint:
        argv, env = endpoint.launch
        token = env[TOKEN_VARIABLE]
        assert len(token) >= 40
        assert argv == [sys.executable, "-P", "-m", "serai", "mcp-attach", endpoint.path]
        assert token not in " ".join(argv) + endpoint.path
        assert json.loads(Path(endpoint.config).read_text()) == {
            "mcpServers": {"serai": {"type": "stdio", "command": argv[0], "args": argv[1:], "env": env}}
        }


@pytest.mark.req("app.mcp.launch")
async def test_the_folder_is_where_its_path_is_short(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        async with open_endpoint(Box(), environ={"XDG_RUNTIME_DIR": str(long), "TMPDIR": short}) as endpoint:
            assert os.path.dirname(endpoint.folder) == short
        async with open_endpoint(Box(), environ={"XDG_RUNTIME_DIR": short}) as endpoint:
            assert os.path.dirname(endpoint.folder) == short
        async with open_endpoint(Box(), environ={"XDG_RUNTIME_DIR": "relative", "TMPDIR": os.path.join(short, "none")}) as endpoint:
            assert os.path.dirname(endpoint.folder) != short
    assert not os.listdir(long)


@pytest.mark.req("app.mcp.launch")
async def test_no_room_for_a_socket_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(NotWritten, match="No space left"):
        await ToolEndpoint(Box(), agent="claude").open()


# -- the record


class Tap:
    def __init__(self) -> None:
        self.frames_seen: list[tuple[str, bytes]] = []
        self.skips: list[Oversize] = []
        self.ends: list[SeraiError] = []

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        self.frames_seen.append((direction, run))

    def skipped(self, at: float, frame: Oversize) -> None:
        self.skips.append(frame)

    def ended(self, at: float, cause: SeraiError) -> None:
        self.ends.append(cause)


@pytest.mark.req("app.mcp.endpoint")
async def test_every_frame_is_on_record_but_not_the_token() -> None:
    tap = Tap()
    async with open_endpoint(Box(), tap=lambda: tap) as endpoint:
        talker = await Talker.greeted(endpoint)
        assert await talker.text("add", {"a": 1, "b": 2}) == "3"
        talker.close()
        token = endpoint.launch.env[TOKEN_VARIABLE].encode()
    all_of_it = b"".join(run for _, run in tap.frames_seen)
    assert token not in all_of_it
    assert [way for way, _ in tap.frames_seen] == ["received", "sent", "received", "received", "sent"]
    assert b'"tools/call"' in all_of_it
    assert len(tap.ends) == 1


@pytest.mark.req("app.mcp.endpoint")
async def test_a_tap_that_fails_does_not_end_the_wire() -> None:
    class Broken(Tap):
        def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
            raise OSError("full")

    async with open_endpoint(Box(), tap=Broken) as endpoint:
        talker = await Talker.greeted(endpoint)
        assert await talker.text("add", {"a": 1, "b": 2}) == "3"
        talker.close()
