"""Ctrl-C in a `serai run` while a plugin's code is at work."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.cli import runs
from tests.cli.guests import Shell
from tests.yoi import wat
from tests.yoi.guest.plugins import ID, Plugin


def endless(port: int) -> bytes:
    """Its tool `call` tells the server there that it has begun, and does not end."""
    guest = wat.Guest(imports=("request",))
    begun = guest.host("request", "request", f'{{"method":"GET","url":"http://127.0.0.1:{port}/"}}')
    return guest.tool("call", f"{begun} drop drop (call $forever) {guest.answer('{}')}").build()


@pytest.mark.req("app.run.interrupt")
@pytest.mark.timeout(120)
def test_an_interrupt_ends_a_plugin_that_does_not_end(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(runs.PATIENCE)
        port = server.getsockname()[1]
        tool = {"name": "call", "description": "it does not end", "timeout_ms": 60_000}
        target = {"scheme": "http", "host": "127.0.0.1", "port": port, "methods": ["GET"]}
        Plugin(shell.home / "guests", endless(port), tools=(tool,), apis=("request",), request=[target])
        granted = shell("guest", "grant", ID, "--request", f"GET http://127.0.0.1:{port}/", "--yes")
        assert granted.returncode == 0, granted.stderr
        with runs.Run(shell, "--model", "parrot", "--json", "--allow", "call", runs.script("say first", "call call {}")) as going:
            plugin, _ = server.accept()
            with plugin:
                assert plugin.recv(4096).startswith(b"GET / HTTP/1.1\r\n")
                plugin.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                while plugin.recv(4096):  # it has its answer
                    pass
            going.signal(signal.SIGINT)
            assert going.ends() == 130
            last = runs.result(going)
            assert (last["status"], last["text"]) == ("cancelled", "first")
    assert not list(shell.home.rglob(".*.part"))
