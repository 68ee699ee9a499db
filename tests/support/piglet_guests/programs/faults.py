"""What no guest should do: one function for each name of `steps.FAULTS`. Each is a step of a handler at work."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.piglet_guests.programs.handler_run import Act

Options = Mapping[str, Any]


def note(path: str, text: str) -> None:
    """A file that is there with all its content, or not at all."""
    part = f"{path}~{threading.get_ident()}"
    with open(part, "w") as file:
        file.write(text)
    os.rename(part, path)


def crash(act: Act, options: Options) -> None:
    os.write(2, b"fatal: it was told to crash\n")
    if options["signal"]:
        os.kill(os.getpid(), options["signal"])
    os._exit(options["code"])


def long_line(act: Act, options: Options) -> None:
    head, tail = b'{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"', b'"}}'
    act.world.connection.write(head + b"x" * (options["bytes"] - len(head) - len(tail)) + tail + b"\n")


def float_id(act: Act, options: Options) -> None:
    _line(act, {"jsonrpc": "2.0", "id": options["id"], "method": options["method"], "params": {}})


def string_id(act: Act, options: Options) -> None:
    float_id(act, options)
    act.say(json.dumps(act.world.connection.answered(options["id"], act.cancelled)))


def batch(act: Act, options: Options) -> None:
    request = {"jsonrpc": "2.0", "id": 4242, "method": "host/extensionsDir", "params": {}}
    _line(act, [request, {"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": "in a batch"}}])


def prose(act: Act, options: Options) -> None:
    act.world.connection.write(options["text"].encode() + b"\n")


def raw(act: Act, options: Options) -> None:
    act.world.connection.write(options["line"].encode() + b"\n")


def close_wire(act: Act, options: Options) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, act.world.connection.writing)


def holder(act: Act, options: Options) -> None:
    """The child is a fresh program: a fork of one with threads may not do much. It keeps the end that its parent writes to."""
    writing, said = act.world.connection.writing, os.pipe()
    os.set_inheritable(writing, True)
    os.set_inheritable(said[1], True)
    held = f"import os, signal; os.write({said[1]}, str(os.getpid()).encode()); os.close({said[1]}); signal.pause()"
    os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", held], os.environ)
    os.close(said[1])
    number = os.read(said[0], 32).decode()
    if options["pid_file"]:
        note(options["pid_file"], number)
    os._exit(0)


def stubborn(act: Act, options: Options) -> None:
    act.world.stubborn = True


def _noise(descriptor: int) -> Callable[[Act, Options], None]:
    def write(act: Act, options: Options) -> None:
        rest = memoryview(options["text"].encode() or (b"chatter " * (options["bytes"] // 8 + 1))[: options["bytes"]] + b"\n")
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return write


def twice(act: Act, options: Options) -> None:
    act.again(act.result)


def stranger(act: Act, options: Options) -> None:
    for id in options["ids"]:
        _line(act, {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "for nobody"}]}})


def empty_name(act: Act, options: Options) -> None:
    act.tell("register/tool", {"name": "", "description": "nothing"})
    act.tell("register/command", {"name": "", "description": "nothing"})
    act.tell("register/promptSection", {"title": "", "content": "nothing"})
    act.tell("register/shortcut", {"key": "", "description": "nothing"})


def bad_registration(act: Act, options: Options) -> None:
    act.tell("register/tool", ["no", "object"])
    act.tell("register/tool", {"name": 7})
    act.tell("register/command", {"name": {"of": "a command"}})
    act.tell("register/promptSection", "text")


def _line(act: Act, message: object) -> None:
    act.world.connection.write(json.dumps(message).encode() + b"\n")


FAULTS: dict[str, Callable[[Act, Options], None]] = {
    "crash": crash,
    "long-line": long_line,
    "string-id": string_id,
    "float-id": float_id,
    "batch": batch,
    "prose": prose,
    "raw": raw,
    "close-wire": close_wire,
    "holder": holder,
    "stubborn": stubborn,
    "stdout": _noise(1),
    "stderr": _noise(2),
    "twice": twice,
    "stranger": stranger,
    "empty-name": empty_name,
    "bad-registration": bad_registration,
}
