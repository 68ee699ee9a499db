"""The exit statuses of docs/cli.md, each from a command that ends with it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.contract.place import EXAMPLES, Place
from tests.contract.program import Ran

__all__ = ["iter_statuses"]

# Guests in shell, each with one tool: it answers with an error, or the guest ends when the tool is called.
FAILS = """#!/bin/sh
echo '{"type":"hello","name":"fails"}'
echo '{"type":"register_tool","name":"fail","description":"d","schema":{}}'
echo '{"type":"ready"}'
read -r ack
read -r call
echo '{"type":"tool_result","id":"1","is_error":true,"content":[{"type":"text","text":"no"}]}'
read -r shutdown
"""
CRASHES = """#!/bin/sh
echo '{"type":"hello","name":"crashes"}'
echo '{"type":"register_tool","name":"crash","description":"d","schema":{}}'
echo '{"type":"ready"}'
read -r ack
read -r call
exit 3
"""
FAILING_HOOK = "#!/bin/sh\ncat >/dev/null\necho no quota >&2\nexit 4\n"


def iter_statuses(place: Place) -> Iterator[tuple[str, Ran]]:
    """Runs one command per status and kind of command. Returns each by what it shows."""
    weather, guard = EXAMPLES / "zot" / "weather-python", EXAMPLES / "zot" / "guard-python"
    fails = _write_guest(place.root / "fails", FAILS)
    crashes = _write_guest(place.root / "crashes", CRASHES)
    down = _write_guest(place.root / "down", "#!/bin/sh\nexit 1\n", "guard = true\n")
    hook = _write_program(place.root / "hook.sh", FAILING_HOOK)

    def call(tool: str, arguments: str, *guests: Path) -> Ran:
        return place("tool", "call", tool, arguments, *(word for guest in guests for word in ("--guest", guest)))

    yield "no command: the help", place()
    yield "an unknown command", place("nothing")
    yield "an unknown option", place("run", "--nothing")
    yield "an empty path", place("guest", "list", "--cwd", "")

    yield "tool call: done", call("weather", '{"city":"Bern"}', weather)
    yield "tool call: no such tool", call("nothing", "{}", weather)
    yield "tool call: arguments that are not JSON", call("weather", "{", weather)
    yield "tool call: the tool answers with an error", call("fail", "{}", fails)
    yield "tool call: a guard refuses", call("weather", '{"city":"rm -rf /"}', weather, guard)
    yield "tool call: a guard is down", call("weather", '{"city":"Bern"}', weather, down)
    yield "tool call: the guest crashes", call("crash", "{}", crashes)
    yield "tool call: arguments that do not fit the schema", call("weather", '{"city":7}', weather)
    yield "command run: no such command", place("command", "run", "nothing", "--guest", weather)
    yield "guest show: no such guest", place("guest", "show", "nothing")
    yield "guest show: the guest is down", place("guest", "show", "down", "--guest", down)
    yield "guest check: it keeps to the protocol", place("guest", "check", weather, "--rule", "hello")
    yield "guest check: it breaks the protocol", place("guest", "check", down, "--rule", "hello")
    yield "guest check: no such path", place("guest", "check", "nothing")
    yield "guest check: no such rule", place("guest", "check", weather, "--rule", "nothing")
    yield "guest logs: no such log", place("guest", "logs", "nothing")

    parrot = ("run", "--model", "parrot")
    yield "run: success", place(*parrot, "hello")
    yield "run: no such model", place("run", "--model", "no-such-model", "hello")
    yield "run: no such session", place(*parrot, "--session", "nothing", "hello")
    yield "run: no prompt", place(*parrot)
    yield "run: the model fails", place(*parrot, ">> fail 400 no")
    yield "run: a guard is down", place(*parrot, "--guest", down, "hello")
    yield "run: --timeout", place(*parrot, "--timeout", "0.3", ">> hang")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        yield f"run: {number.name}", place(*parrot, "--json", ">> say one\n>> hang", signal_after=(number, '"type":"text"'))

    yield "policy test: any decision", place("policy", "test", "bash", '{"command":"rm x"}')
    yield "policy test: --expect, and it is so", place("policy", "test", "bash", '{"command":"rm x"}', "--expect", "ask")
    yield "policy test: --expect, and it is otherwise", place("policy", "test", "bash", '{"command":"rm x"}', "--expect", "allow")
    yield "policy test: arguments that are not JSON", place("policy", "test", "bash", "{")
    yield "policy answer: no such approval", place("policy", "answer", "nothing", "allow")
    yield "session show: no such session", place("session", "show", "nothing")
    yield "session list: a wrong option", place("session", "list", "--nothing")
    yield "record show: no such recording", place("record", "show", "nothing")
    yield "record list: a wrong option", place("record", "list", "--nothing")
    yield "model show: no such model", place("model", "show", "nothing")
    yield "config show: no such setting", place("config", "show", "nothing")
    yield "hook run: the hook fails", place("hook", "run", hook, "create")
    yield "hook check: it breaks the protocol", place("hook", "check", hook, "--rule", "answer")
    yield "box show: no such box", place("box", "show", "nothing")
    yield "box exec: no such box", place("box", "exec", "nothing", "true")
    yield "box destroy: it is gone", place("box", "destroy", "nothing")
    yield "box create: a wrong option", place("box", "create", "--memory", "much")

    yield "doctor: all is well", place("doctor")
    (place.home / "config.toml").write_text("gaurd = true\n")
    yield "doctor: settings are broken", place("doctor")
    yield "config show: settings are broken", place("config", "show")
    yield "run: settings are broken", place(*parrot, "hello")


def iter_box_statuses(place: Place) -> Iterator[tuple[str, Ran]]:
    """Those that need a working sandbox; nothing where there is none."""
    script = _write_program(place.root / "init.sh", "#!/bin/sh\nexit 9\n")
    if place("box", "create", "web").status == 0:
        yield "box exec: that of the command", place("box", "exec", "web", "exit 7")
        yield "box exec: killed by a signal", place("box", "exec", "web", "kill -9 $$")
        yield "box exec: no such program", place("box", "exec", "web", "no-such-program", "x")
        yield "box exec: --timeout", place("box", "exec", "--timeout", "0.2", "web", "sleep 9")
        yield "box create: the init script fails", place("box", "create", "half", "--init", script)
        yield "box create: the name is taken", place("box", "create", "web")
        yield "box pause", place("box", "pause", "web")
        yield "box exec: the box is paused", place("box", "exec", "web", "true")
        yield "box destroy: done", place("box", "destroy", "web", "half")


def _write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _write_guest(folder: Path, program: str, settings: str = "") -> Path:
    _write_program(folder / "guest.sh", program)
    (folder / "extension.json").write_text(json.dumps({"name": folder.name, "version": "1.0.0", "exec": "./guest.sh"}))
    if settings:
        (folder / "guest.toml").write_text(settings)
    return folder
