"""Guests of a few lines, for what no SDK would do: Python that has the wire in its own hands, or nothing but a shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from serai.host.host import Host
from serai.model.actions import Notice
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainChild
from tests.support.host.zot_guests import AwaitableSurface

# What a body can use: `say` and `lines` by descriptor, `note` for the test to wait for. It begins before `initialize` was read.
PRELUDE = """\
import json, os, select, signal, sys, time

begun = {}

def say(fd, *messages):
    data = b"".join((m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\\n" for m in messages)
    while data:
        data = data[os.write(fd, data):]

def lines(fd):
    while chunk := os.read(fd, 65536):
        *whole, begun[fd] = (begun.get(fd, b"") + chunk).split(b"\\n")
        yield from map(json.loads, whole)

def note(name, text=""):
    with open(name + "~", "w") as file:
        file.write(text)
    os.rename(name + "~", name)

def tool(name):
    return {"jsonrpc": "2.0", "method": "register/tool", "params": {"name": name, "parameters": {"type": "object"}}}

def hello(id=1, **more):
    return {"jsonrpc": "2.0", "id": id, "result": {"name": "bare", "version": "1", **more}}

def answer(id, text):
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}

def serve(read, write, reply=lambda m: answer(m["id"], m["params"]["name"])):
    for m in lines(read):
        if "id" in m and m.get("method"):
            say(write, reply(m))
"""


def write_bare_guest(place: Path, body: str, *, name: str = "bare", **manifest: object) -> Path:
    """The folder of a guest that runs this Python."""
    folder = place / name
    folder.mkdir(parents=True)
    program = folder / "guest"
    program.write_text(f"#!{sys.executable} -SE\n{PRELUDE}\n{body}\n")
    program.chmod(0o755)
    (folder / "manifest.yaml").write_text(json.dumps({"name": name, "runtime": "./guest", **manifest}))  # which is YAML, too
    return folder


# Answers `initialize` and one call on FD 3 and 4, and goes with its input.
_SHELL = """\
#!/bin/sh
read -r line <&3
printf '%s\\n' '{"method":"register/tool","params":{"name":"NAME","description":"","parameters":{"type":"object"}}}' >&4
printf '%s\\n' '{"id":1,"result":{"name":"NAME"}}' >&4
while read -r line <&3; do
  case "$line" in *tool/execute*) printf '%s\\n' '{"id":2,"result":{"content":[{"type":"text","text":"NAME"}]}}' >&4 ;; esac
done
"""


def write_tiny_guest(place: Path, name: str) -> Path:
    """The smallest guest, of which there can be hundreds. Its tool has its name, and answers once."""
    folder = place / name
    folder.mkdir(parents=True)
    program = folder / "guest"
    program.write_text(_SHELL.replace("NAME", name))
    program.chmod(0o755)
    (folder / "manifest.yaml").write_text(f"name: {name}\nruntime: ./guest\n")
    return folder


def child_of(host: Host, id: str) -> PlainChild:
    """The process that serves, as its adapter has it."""
    running = host.guest(id).running
    child = getattr(running, "_child", None)
    assert isinstance(child, PlainChild)
    return child


def rpc_of(host: Host, id: str) -> JsonRpcPeer:
    """The wire that it speaks on."""
    rpc = getattr(getattr(host.guest(id).running, "_wire", None), "rpc", None)
    assert isinstance(rpc, JsonRpcPeer)
    return rpc


def notices(window: AwaitableSurface) -> list[tuple[str, str]]:
    """What Serai itself has said to the person, and how loudly."""
    return [(one.level, one.text) for one in window.actions if isinstance(one, Notice) and one.source == "serai"]
