"""`serai mcp-attach` as a real child process between an agent's pipes and the endpoint's socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driven.tool_endpoint import TOKEN_VARIABLE, ToolEndpoint
from serai.dialects.mcp.events import Agreed, Done, Listed
from serai.dialects.mcp.host_side import HostSide
from serai.wire.stream import PendingCall
from tests.support.mcp_endpoints import PROMPTLY, Box, open_endpoint

pytestmark = pytest.mark.loops

START = 30.0  # for an interpreter to start on a busy machine
STARTED = """
import sys
from serai.cli import main

sys.argv = ["serai", "mcp-attach", "/none"]
try:
    main()
finally:
    print(*sys.modules)
"""


@asynccontextmanager
async def attach(endpoint: ToolEndpoint, environ: Mapping[str, str], cwd: Path) -> AsyncIterator[Process]:
    argv, env = endpoint.launch
    child = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env={**environ, **env}, limit=1 << 26
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def exchange(child: Process, client: HostSide, call: PendingCall[Any], message: bytes) -> object:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(message + b"\n")
    return client.receive(await asyncio.wait_for(child.stdout.readline(), START))


async def wait_for_end(child: Process) -> tuple[int, bytes, bytes]:
    """Its status, and what it still said."""
    assert child.stdout is not None
    assert child.stderr is not None
    out, err, status = await asyncio.wait_for(asyncio.gather(child.stdout.read(), child.stderr.read(), child.wait()), START)
    return status, out, err


@pytest.mark.req("app.mcp.attach", "app.mcp.launch")
async def test_an_agents_pipes_lead_to_the_tools(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit('the project was imported')\n")
    (tmp_path / "serai.py").write_text("raise SystemExit('the project was imported')\n")
    client = HostSide()
    async with open_endpoint(Box()) as endpoint, attach(endpoint, environ, tmp_path) as child:
        assert isinstance(await exchange(child, client, *client.initialize()), Agreed)
        assert isinstance(await exchange(child, client, *client.list_tools()), Listed)
        done = await exchange(child, client, *client.call_tool("add", {"a": 1, "b": 2}))
        assert isinstance(done, Done)
        assert done.result.text == "3"
        assert child.stdin is not None
        child.stdin.close()
        assert await wait_for_end(child) == (0, b"", b"")


@pytest.mark.req("app.mcp.attach")
async def test_megabytes_pass_as_they_are(environ: dict[str, str], tmp_path: Path) -> None:
    path, token = str(tmp_path / "s"), "the-token"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    there, back = os.urandom(3_000_001), os.urandom(3_000_001)
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    argv = [sys.executable, "-P", "-m", "serai", "mcp-attach", path]
    child = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**environ, TOKEN_VARIABLE: token}
    )
    with listener:
        connection, _ = await asyncio.wait_for(loop.sock_accept(listener), START)
    with connection:

        async def read() -> bytes:
            parts = []
            while part := await loop.sock_recv(connection, 1 << 20):
                parts.append(part)
            return b"".join(parts)

        reading = asyncio.ensure_future(read())
        writing = asyncio.ensure_future(loop.sock_sendall(connection, back))
        talking = asyncio.ensure_future(child.communicate(there))
        assert await asyncio.wait_for(reading, START) == token.encode() + b"\n" + there
        await asyncio.wait_for(writing, START)
        connection.shutdown(socket.SHUT_WR)
        out, err = await asyncio.wait_for(talking, START)
    assert out == back
    assert (child.returncode, err) == (0, b"")


@pytest.mark.req("app.mcp.attach")
async def test_the_last_answers_are_out_before_it_ends(environ: dict[str, str], tmp_path: Path) -> None:
    client = HostSide()
    calls = [client.list_tools() for _ in range(50)]
    async with open_endpoint(Box()) as endpoint, attach(endpoint, environ, tmp_path) as child:
        out, err = await asyncio.wait_for(child.communicate(b"\n".join(message for _, message in calls)), START)
        assert [type(client.receive(line)) for line in out.splitlines()] == [Listed] * 50
        assert (child.returncode, err) == (0, b"")


@pytest.mark.req("app.mcp.attach")
async def test_it_ends_with_the_endpoint_though_the_agent_waits(environ: dict[str, str], tmp_path: Path) -> None:
    client = HostSide()
    async with open_endpoint(Box()) as endpoint, attach(endpoint, environ, tmp_path) as child:
        assert isinstance(await exchange(child, client, *client.initialize()), Agreed)
        await endpoint.close()
        assert await wait_for_end(child) == (0, b"", b"")


@pytest.mark.req("app.mcp.attach", "app.mcp.gone")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_when_it_is_killed_its_calls_are_cancelled(environ: dict[str, str], tmp_path: Path, number: int) -> None:
    box, client = Box(), HostSide()
    async with open_endpoint(box) as endpoint, attach(endpoint, environ, tmp_path) as child:
        assert child.stdin is not None
        child.stdin.write(client.call_tool("hold")[1] + b"\n")
        await asyncio.wait_for(box.begun.get(), START)
        child.send_signal(number)
        assert await asyncio.wait_for(box.cancelled.get(), PROMPTLY) == ""
        assert await asyncio.wait_for(child.wait(), START) == -number  # by itself: a handler of Python's may come too late


@pytest.mark.req("app.mcp.attach")
async def test_an_agent_that_reads_no_more_ends_it(environ: dict[str, str], tmp_path: Path) -> None:
    read, write = os.pipe()
    async with open_endpoint(Box()) as endpoint:
        argv, env = endpoint.launch
        child = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=write, stderr=PIPE, env={**environ, **env})
        os.close(write)
        os.close(read)
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(HostSide().initialize()[1] + b"\n")
        err, status = await asyncio.wait_for(asyncio.gather(child.stderr.read(), child.wait()), START)
        assert (status, err) == (0, b"")
        child.stdin.close()


@pytest.mark.req("app.mcp.attach")
@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, "SERAI_MCP_TOKEN is not set"),
        ({TOKEN_VARIABLE: ""}, "SERAI_MCP_TOKEN is not set"),
        ({TOKEN_VARIABLE: "t0ken"}, "no Serai listens there"),
    ],
)
def test_without_token_or_socket_it_says_so(environ: dict[str, str], tmp_path: Path, env: dict[str, str], says: str) -> None:
    argv = [sys.executable, "-P", "-m", "serai", "mcp-attach", str(tmp_path / "none")]
    ran = subprocess.run(argv, env={**environ, **env}, input="", capture_output=True, text=True, timeout=START, check=False)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 2  # what it is, and what to do
    assert "t0ken" not in ran.stderr


@pytest.mark.req("app.mcp.attach")
def test_a_socket_that_nobody_serves_any_more_is_told(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 120)  # too long for an address
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/s")
        os.close(here)
    argv = [sys.executable, "-P", "-m", "serai", "mcp-attach", str(folder / "s")]
    ran = subprocess.run(
        argv, env={**environ, TOKEN_VARIABLE: "x"}, input="", capture_output=True, text=True, timeout=START, check=False
    )
    assert ran.returncode == 1
    assert "Connection refused" in ran.stderr


@pytest.mark.req("app.mcp.attach")
def test_it_imports_next_to_nothing(environ: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**environ, TOKEN_VARIABLE: "x"},
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )
    imported = set(ran.stdout.split())
    assert "serai.cli.mcp_attach" in imported
    assert not {"msgspec", "asyncio", "serai.limits", "serai.wire", "serai.model", "serai.app", "ssl"} & imported
