"""`serai run` with plugins: beside guests of zot and piglet under one zot guard, and Ctrl-C while a plugin's code is at work."""

from __future__ import annotations

import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driven.tool_endpoint import ToolEndpoint
from serai.app.agent_tools import GuestTools
from serai.dialects.mcp.events import Done, Listed
from tests.support.app.apps import open_app
from tests.support.cli import run_process
from tests.support.cli.shell import EXAMPLES, Shell
from tests.support.mcp_endpoints import Talker
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import ID, Plugin

EVERY = EXAMPLES.parent
GUESTS = [EXAMPLES / "weather-python", EXAMPLES / "guard-python", EVERY / "piglet" / "by-hand"]
ALLOWED = ["--allow", "wat_count", "--allow", "weather", "--allow", "tide"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Somebody with the plugin among their guests, built and granted one folder."""
    shell = Shell(tmp_path)
    plugin, shelf = shell.home / "guests" / "notes", shell.cwd / "shelf"
    shutil.copytree(EVERY / "yoi" / "wat", plugin)
    shelf.mkdir()
    (shelf / "list.txt").write_text("one two\nthree\n")
    (shell.cwd / "secret.txt").write_text("nobody knows\n")
    assert shell("guest", "build", plugin).returncode == 0
    granted = shell("guest", "grant", "notes-wat", "--fs", f"{shelf}:read", "--yes")
    assert granted.returncode == 0, granted.stderr
    return shell


def read_results(ran: Any) -> dict[str, dict[str, Any]]:
    """What became of each tool call, by the tool's name."""
    return {one["call"]["name"]: one["result"] for one in run_process.parse_lines(ran.stdout) if one["type"] == "tool_ended"}


def join_text(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def run(shell: Shell, *calls: str) -> Any:
    words = [word for guest in GUESTS for word in ("--guest", str(guest))]
    return run_process.run(shell, *words, *ALLOWED, "--json", run_process.write_prompt(*(f"call {call}" for call in calls)))


@pytest.mark.timeout(120)
def test_a_plugins_tool_is_called_beside_those_of_zot_and_piglet(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "list.txt"}', 'weather {"city": "Bern"}', 'tide {"harbour": "Bergen"}')
    assert ran.returncode == 0, ran.stderr
    results = read_results(ran)
    assert join_text(results["wat_count"]) == 'tool completed\n{"lines":2,"words":3}'
    assert "Bern" in join_text(results["weather"])
    assert "Bergen" in join_text(results["tide"])


@pytest.mark.timeout(120)
def test_a_zot_guard_blocks_a_plugins_tool_before_the_plugin_hears_of_it(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "rm -rf /"}')
    [result] = read_results(ran).values()
    assert result["is_error"]
    assert result["code"] == "BLOCKED"
    # had the plugin been asked it would have failed in another way
    assert "failed closed" not in ran.stdout


@pytest.mark.timeout(120)
def test_a_plugin_is_refused_a_file_outside_of_its_grant_and_the_run_goes_on(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "../secret.txt"}', 'weather {"city": "Bern"}')
    results = read_results(ran)
    assert results["wat_count"]["is_error"]
    assert "FS path traversal outside the grant root is denied" in join_text(results["wat_count"])
    assert "Bern" in join_text(results["weather"])
    assert "nobody knows" not in ran.stdout + ran.stderr


@pytest.mark.timeout(120)
@pytest.mark.req("yoi.rule.105")
async def test_a_plugins_tool_is_offered_through_mcp_under_the_same_grant(shell: Shell, tmp_path: Path) -> None:
    """To a driven agent it is a tool of the server `serai`, and what it may do does not grow by that."""
    async with open_app(tmp_path, installed=True) as app:
        assert shell.home == tmp_path / "home"
        async with ToolEndpoint(GuestTools(app.runtime.tools, lambda: app.runtime.host), agent="claude") as endpoint:
            talker = await Talker.greeted(endpoint)
            listed = await talker.ask(*talker.client.list_tools())
            assert isinstance(listed, Listed)
            assert "wat_count" in {tool.name for tool in listed.tools}
            assert await talker.text("wat_count", {"path": "list.txt"}) == 'tool completed\n{"lines":2,"words":3}'
            refused = await talker.ask(*talker.client.call_tool("wat_count", {"path": "../secret.txt"}))
            assert isinstance(refused, Done)
            assert refused.result.is_error
            assert "FS path traversal outside the grant root is denied" in refused.result.text
            assert "nobody knows" not in refused.result.text
            talker.close()


def build_endless(port: int) -> bytes:
    """Its tool `call` tells the server there that it has begun, and does not end."""
    guest = components.Guest(imports=("request",))
    begun = guest.host("request", "request", f'{{"method":"GET","url":"http://127.0.0.1:{port}/"}}')
    return guest.tool("call", f"{begun} drop drop (call $forever) {guest.answer('{}')}").build()


@pytest.mark.req("app.run.interrupt")
@pytest.mark.timeout(120)
def test_an_interrupt_ends_a_plugin_that_does_not_end(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(run_process.PATIENCE)
        port = server.getsockname()[1]
        tool = {"name": "call", "description": "it does not end", "timeout_ms": 60_000}
        target = {"scheme": "http", "host": "127.0.0.1", "port": port, "methods": ["GET"]}
        Plugin(shell.home / "guests", build_endless(port), tools=(tool,), apis=("request",), request=[target])
        granted = shell("guest", "grant", ID, "--request", f"GET http://127.0.0.1:{port}/", "--yes")
        assert granted.returncode == 0, granted.stderr
        with run_process.Run(
            shell, "--model", "parrot", "--json", "--allow", "call", run_process.write_prompt("say first", "call call {}")
        ) as going:
            plugin, _ = server.accept()
            with plugin:
                assert plugin.recv(4096).startswith(b"GET / HTTP/1.1\r\n")
                plugin.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                while plugin.recv(4096):  # it has its answer
                    pass
            going.signal(signal.SIGINT)
            assert going.ends() == 130
            last = run_process.read_result(going)
            assert (last["status"], last["text"]) == ("cancelled", "first")
    assert not list(shell.home.rglob(".*.part"))
