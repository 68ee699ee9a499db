"""The keys of every `--json` output, from one scenario that runs each command once.

A key path joins names with dots; `[]` is an item of a list and `*` a key that is data, such as the name of a setting. Where an
output has several kinds of lines, the key that tells them apart stands before the path: `type=result usage.cost`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serai.testing.claude.script import Script, ScriptedClaude
from tests.contract.disk import CLOCK
from tests.contract.place import EXAMPLES, Place
from tests.contract.program import Ran

__all__ = ["NEED_A_BOX", "iter_scenario", "list_keys"]

# Rows that a machine without a working sandbox cannot produce.
NEED_A_BOX = ("box create", "box exec", "box list", "box show")
# What tells the lines of one output apart.
KINDS = {
    "record show": "what",
    "run": "type",
    "run --agent claude": "type",
    "run, an error": "type",
    "session export": "type",
    "session show": "role",
}
# Outputs whose lines are objects of a dialect: only the keys that all lines have are Serai's.
COMMON = ("record replay",)
# Objects whose keys are data.
MAPS = {
    "guest wit": ("files",),
    "policy list": ("profiles",),
    "trust": ("settings",),
}
OPAQUE = ("schema", "input", "arguments", "frame", "native", "input_schema")  # values of tools and wires, not of Serai
TRANSCRIPT = "0a1b2c3d-0000-4000-8000-000000000000"
HOOK = """#!/bin/sh
case $(cat) in
*box.create*) echo '{"files":[{"path":"/root/.token","content":"x","mode":"0600"}],"state":"s"}' ;;
*) echo '{}' ;;
esac
"""
RULES = '[[rule]]\nid = "tests"\ndecide = "allow"\ntool = "bash"\ncommand = "make test"\n'
SETTINGS = 'agent = "claude"\n[guest.weather]\nenv = ["WEATHER_TOKEN"]\n'


def iter_scenario(place: Place, disk: Place) -> Iterator[tuple[str, Ran]]:
    """Runs the commands in `place`, and in `disk`, which holds the old files, those that need a past. Returns each by its name."""
    weather, harbour = EXAMPLES / "zot" / "weather-python", EXAMPLES / "piglet" / "by-hand"
    hook = _write(place.root / "token.sh", HOOK, 0o755)
    claude = ScriptedClaude(place.root / "bin", Script().init().calls("t1", command="echo one").text("one").result("one"))
    _write(place.home / "config.toml", f'[agents.claude]\npath = "{claude.path}"\n[limits]\nagent_first = 50\n')
    project = re.sub("[^A-Za-z0-9]", "-", str(place.project))
    _write(place.root / ".claude" / "projects" / project / f"{TRANSCRIPT}.jsonl", _build_transcript())

    def run(name: str, *arguments: str | Path) -> tuple[str, Ran]:
        return name, place(*name.split(), *arguments, "--json")

    yield run("agent list")
    yield run("agent sessions", "--all")
    yield run("agent show", TRANSCRIPT)
    yield run("model list")
    yield run("model show", "parrot")
    yield run("config show", "--all")
    yield run("config path")
    yield run("doctor")
    yield run("policy test", "bash", '{"command":"make test"}')

    script = '>> think hm\n>> say I look.\n>> call weather {"city":"Bern"}\n>> call bash {"command":"rm x"}\n>> say Fog.'
    yield "run --agent claude", place("run", "--agent", "claude", "--allow", "bash:echo *", "look", "--json")
    yield run("run", "--model", "parrot", "--guest", weather, "--allow", "weather", script)
    yield "run, an error", place("run", "--model", "parrot", "--session", "nothing", "go", "--json")
    yield run("guest logs", "weather", "--guest", weather)
    yield run("session list")
    yield run("session show")
    yield run("session tree")
    yield run("session export")
    yield run("tool list", "--guest", weather)
    yield run("tool call", "weather", '{"city":"Bern"}', "--guest", weather)
    yield run("record list")
    yield run("record show")
    yield run("record replay", "--wire", "1")
    yield run("command list", "--guest", harbour)
    yield run("command run", "weather", "Bern", "--guest", weather)
    yield "tool call, a wrong argument", place("tool", "call", "weather", '{"city":7}', "--guest", weather, "--json")

    yield run("guest add", weather)
    yield run("guest list")
    yield "guest list --live", place("guest", "list", "--live", "--json")
    yield run("guest show", "weather")
    yield run("guest disable", "weather")
    yield run("guest enable", "weather")
    yield run("guest remove", "weather", "--yes")
    yield run("guest new", "mine")
    yield run("guest check", "mine", "--rule", "manifest", "--rule", "hello")
    yield run("guest bundle", "mine")

    plugin = Path(shutil.copytree(EXAMPLES / "yoi" / "wat", place.root / "notes-wat"))
    yield run("guest build", plugin)
    yield "guest check, a plugin", place("guest", "check", plugin, "--json")
    yield run("guest pack", plugin)
    yield run("guest wit")
    shutil.copytree(plugin, place.home / "guests" / "notes-wat")
    yield run("guest grant", "notes-wat", "--fs", f"{place.project}:read,list", "--yes")
    yield "guest list, a plugin", place("guest", "list", "--json")
    yield "guest show, a plugin", place("guest", "show", "notes-wat", "--json")
    yield run("guest run", plugin, "wat_heard")
    yield run("guest status", "notes-wat")
    yield run("guest restart", "notes-wat")
    yield run("guest revoke", "notes-wat")

    yield run("hook run", hook, "create", "--show-secrets")
    yield run("hook check", hook, "--rule", "start", "--rule", "answer")
    yield run("box backends")

    _write(place.project / ".serai" / "policy.toml", RULES)
    _write(place.project / ".serai" / "config.toml", SETTINGS)
    shutil.copytree(weather, place.project / ".zot" / "extensions" / "weather")
    yield run("trust")
    yield "trust --withdraw", place("trust", "--withdraw", "--json")

    yield "policy list", disk("policy", "list", "--json", clock=CLOCK)
    yield "policy pending", disk("policy", "pending", "--all", "--json", clock=CLOCK)

    created = place("box", "create", "web", "--hook", hook, "--description", "d", "--ttl", "1h", "--pids", "100", "--json")
    if created.status == 0:
        yield "box create", created
        yield run("box list")
        yield run("box show", "web")
        yield "box exec", place("box", "exec", "--json", "web", "echo hello")
        place("box", "destroy", "web")


def list_keys(name: str, ran: Ran) -> list[str]:
    """The key paths of all lines."""
    if name in COMMON:
        return sorted(set.intersection(*(set(line) for line in ran.objects)))
    kind = KINDS.get(name, "")
    found: set[str] = set()
    for line in ran.objects:
        before = f"{kind}={line[kind]} " if kind else ""
        found |= {before + path for path in _iter_paths(line, "", MAPS.get(name, ()))}
    return sorted(found)


def _iter_paths(value: Any, at: str, maps: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict) and value and at.rpartition(".")[2] not in OPAQUE:
        for key, item in value.items():
            name = "*" if at in maps else key
            yield from _iter_paths(item, f"{at}.{name}" if at else name, maps)
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for item in value:
            yield from _iter_paths(item, f"{at}[]", maps)
    else:
        yield at


def _write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def _build_transcript() -> str:
    at = "2026-02-03T10:00:00.000Z"
    usage = {"input_tokens": 1, "output_tokens": 2}
    said = {"id": "m1", "role": "assistant", "model": "m1", "content": [{"type": "text", "text": "hello"}], "usage": usage}
    rows = (
        {"type": "user", "message": {"role": "user", "content": "look at the tests"}, "timestamp": at, "sessionId": TRANSCRIPT},
        {"type": "assistant", "message": said, "timestamp": at, "sessionId": TRANSCRIPT},
        {"type": "result", "subtype": "success", "timestamp": at},
    )
    return "".join(f"{json.dumps(row)}\n" for row in rows)
