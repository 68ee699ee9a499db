"""What a scripted Claude plays, step by step: the frames of Claude Code, with what a test does not care about filled in.

`ScriptedClaude` makes a `claude` that can be started, and reads what it was given.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from serai.testing.claude import program

Json = dict[str, Any]
MODEL = "claude-sonnet-4-5"


class Script:
    """Steps in order. It begins with what every host says: `initialize` and a prompt.

        Script().init().text("Let me look.").tool("t1", "Bash", command="ls").asks("r1", "t1").told("t1", "a.txt").result("done")

    Every step is a method that returns the script. `asks` and `hooked` wait for the host's answer; `prompt` for a further prompt.
    """

    def __init__(self, session: str = "s-1", *, greeted: bool = True) -> None:
        self.rows: list[Json] = [{"dir": "meta", "cmd": ["claude"]}]
        self.session = session
        self._messages = 0
        self._status: Any = 0
        self._eof = True
        if greeted:
            self.waits({"type": "control_request", "request_id": "init-1", "request": {"subtype": "initialize"}})
            self.prompt()
            answer = {"commands": [], "models": [], "claude_code_version": "2.1.325"}
            self.raw({"type": "control_response", "response": {"subtype": "success", "request_id": "init-1", "response": answer}})

    def write(self, path: Path) -> Path:
        closing = [{"dir": "in", "eof": True}] if self._eof else []
        rows = [*self.rows, *closing, {"dir": "meta", "exit": self._status}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    # -- what it waits for

    def waits(self, line: Json) -> Self:
        self.rows.append({"dir": "in", "line": line})
        return self

    def prompt(self) -> Self:
        return self.waits({"type": "user", "message": {"role": "user", "content": ""}})

    def request(self, subtype: str, response: Json | None = None) -> Self:
        """The host's request, and its answer."""
        self.waits({"type": "control_request", "request_id": f"recorded-{subtype}", "request": {"subtype": subtype}})
        return self.raw(_build_answer(f"recorded-{subtype}", response or {}))

    def interrupted(self) -> Self:
        """The host interrupts, and the turn ends as it does then."""
        self.request("interrupt", {"still_queued": []})
        return self.result(subtype="error_during_execution", is_error=True, errors=["interrupted"], terminal_reason="aborted_tools")

    # -- what it writes

    def raw(self, line: Json | str) -> Self:
        self.rows.append({"dir": "out", "line": line})
        return self

    def says(self, type: str, **fields: Any) -> Self:
        return self.raw({"type": type, **fields, "session_id": self.session})

    def system(self, subtype: str, **fields: Any) -> Self:
        return self.says("system", subtype=subtype, **fields)

    def init(self, **fields: Any) -> Self:
        more = {"model": MODEL, "permissionMode": "default", "tools": [], "mcp_servers": [], "claude_code_version": "2.1.325"}
        return self.system("init", cwd="/home/user/project", **{**more, **fields})

    def text(self, text: str, *, parent: str | None = None) -> Self:
        return self._add_assistant({"type": "text", "text": text}, parent)

    def thinking(self, text: str) -> Self:
        return self._add_assistant({"type": "thinking", "thinking": text, "signature": ""}, None)

    def tool(self, id: str, name: str, *, parent: str | None = None, **input: Any) -> Self:
        return self._add_assistant({"type": "tool_use", "id": id, "name": name, "input": input}, parent)

    def _add_assistant(self, block: Json, parent: str | None) -> Self:
        self._messages += 1
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        message: Json = {"id": f"msg_{self._messages}", "type": "message", "role": "assistant", "model": MODEL}
        message |= {"content": [block]}
        message |= {"stop_reason": stop, "usage": {"input_tokens": 10, "output_tokens": 5}}
        return self.says("assistant", message=message, parent_tool_use_id=parent, uuid=f"u-{len(self.rows)}")

    def told(self, id: str, content: Any, *, is_error: bool = False, parent: str | None = None) -> Self:
        """A tool's result."""
        block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
        message = {"role": "user", "content": [block]}
        return self.says("user", message=message, parent_tool_use_id=parent, uuid=f"u-{len(self.rows)}")

    def asks(self, request: str, tool_use: str, name: str = "Bash", *, answered: bool = True, **input: Any) -> Self:
        """May this tool run? With `answered` it waits; `answer(request)` waits later: several may be open at once."""
        self._add_request(request, _build_can_use_tool(tool_use, name, input))
        return self.answer(request) if answered else self

    def calls(self, id: str, name: str = "Bash", *, told: Any = None, **input: Any) -> Self:
        """A tool call as the program makes it: our hook is asked, then the host, and what comes of it is told as its result.

        `told` is what the tool says when it may run; without it a command really runs, where the process does.
        """
        self.tool(id, name, **input)
        hook = {"type": "control_request", "request_id": f"hook-{id}", "request": self._build_hook_request(id, name, input)}
        asks = {"type": "control_request", "request_id": f"ask-{id}", "request": _build_can_use_tool(id, name, input)}
        self.told(id, told)
        self.rows[-1] = {"dir": "call", "hook": hook, "asks": asks, "told": self.rows[-1]["line"]}
        return self

    def hooked(
        self, request: str, tool_use: str, name: str = "Bash", *, answered: bool = True, hook: str = "", **input: Any
    ) -> Self:
        """The PreToolUse hook. Without `hook` it is the host's own one, whatever its id."""
        self._add_request(request, self._build_hook_request(tool_use, name, input, hook))
        return self.answer(request) if answered else self

    def _build_hook_request(self, tool_use: str, name: str, input: Json, hook: str = "") -> Json:
        said = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input, "tool_use_id": tool_use}
        said |= {"session_id": self.session, "permission_mode": "default"}  # no cwd: where it runs is known to the program alone
        callback = hook or "recorded-hook"
        if not hook:
            initialize = self.rows[1]["line"]["request"]
            initialize["hooks"] = {"PreToolUse": [{"matcher": None, "hookCallbackIds": [callback]}]}
        return {"subtype": "hook_callback", "callback_id": callback, "input": said, "tool_use_id": tool_use}

    def mcp(self, request: str, message: Json, *, server: str = "serai", answered: bool = True) -> Self:
        self._add_request(request, {"subtype": "mcp_message", "server_name": server, "message": message})
        return self.answer(request) if answered else self

    def _add_request(self, request: str, fields: Json) -> None:
        self.raw({"type": "control_request", "request_id": request, "request": fields})

    def answer(self, request: str) -> Self:
        return self.waits(_build_answer(request, {}))

    def withdraws(self, request: str) -> Self:
        return self.raw({"type": "control_cancel_request", "request_id": request})

    def result(self, text: str = "", *, subtype: str = "success", is_error: bool = False, **fields: Any) -> Self:
        usage = {"input_tokens": 10, "output_tokens": 5}
        said: Json = {"subtype": subtype, "is_error": is_error, "num_turns": 1, "duration_ms": 5, "duration_api_ms": 3}
        said |= {"total_cost_usd": 0.001, "usage": usage, "permission_denials": [], "uuid": f"u-{len(self.rows)}"}
        if subtype == "success":
            said["result"] = text
        return self.says("result", **{**said, **fields})

    def err(self, line: str) -> Self:
        self.rows.append({"dir": "err", "line": line})
        return self

    def exits(self, status: int | str = 0, *, at_once: bool = True) -> Self:
        """How it ends: a status, a negative number for a signal, "killed": never. `at_once`: whether or not stdin is open."""
        self._status, self._eof = status, not at_once
        return self


def _build_can_use_tool(tool_use: str, name: str, input: Json) -> Json:
    return {"subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": tool_use}


def _build_answer(request: str, response: Json) -> Json:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": response}}


_LAUNCHER = """\
import os, sys
sys.path.insert(0, {folder!r})
import program
argv = sys.argv[1:]
if "--version" in argv or "-v" in argv:
    program.main([], argv)
else:
    number = 0
    while True:
        given = os.path.join({place!r}, f"given-{{number}}.jsonl")
        try:
            os.close(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            number += 1
    plays = {plays!r}
    program.main([*plays[min(number, len(plays) - 1)], "--given", given], argv)
"""


@dataclass(frozen=True, slots=True)
class Given:
    """What one start of it was given."""

    argv: list[str]
    env: list[str]  # names
    cwd: str
    pid: int
    lines: list[str] = field(default_factory=list)  # of stdin
    eof: bool = False
    grandchild: int = 0

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def answers(self) -> dict[str, dict[str, Any]]:
        """The host's answers to its requests, by their id."""
        found = [frame["response"] for frame in self.frames if frame.get("type") == "control_response"]
        return {response["request_id"]: response for response in found}

    def option(self, name: str) -> str | None:
        """The value of an option, `--name value` or `--name=value`; empty for a bare one."""
        for n, word in enumerate(self.argv):
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
            if word == name:
                after = self.argv[n + 1] if n + 1 < len(self.argv) else ""
                return "" if after.startswith("-") else after
        return None


class ScriptedClaude:
    """A `claude` in a folder. Each start plays the next of `scripts`, and the last again.

        claude = ScriptedClaude(tmp_path, Script().init().text("hello").result("hello"))
        PATH = claude.folder

    `options` are those of `python -m serai.testing.claude`: "--noise", "--die", "3", …
    """

    def __init__(self, folder: Path, *scripts: Script | Path, options: tuple[str, ...] = (), name: str = "claude") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / name
        self._place = folder / f".{name}"
        self._place.mkdir()
        plays = [[str(self._write_script(number, script)), *options] for number, script in enumerate(scripts or (Script(),))]
        launcher = self._place / "launch.py"
        here = os.path.dirname(program.__file__)
        launcher.write_text(_LAUNCHER.format(folder=here, place=str(self._place), plays=plays), "utf-8")
        command = shlex.join([sys.executable, "-ISB", str(launcher)])
        self.path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
        self.path.chmod(0o755)

    def _write_script(self, number: int, script: Script | Path) -> Path:
        return script if isinstance(script, Path) else script.write(self._place / f"script-{number}.jsonl")

    @property
    def starts(self) -> int:
        return len(list(self._place.glob("given-*.jsonl")))

    def given(self, start: int = 0) -> Given:
        """What a start was given so far."""
        rows = [json.loads(line) for line in (self._place / f"given-{start}.jsonl").read_text("utf-8").splitlines()]
        first = rows[0]
        return Given(
            first["argv"],
            first["env"],
            first["cwd"],
            first["pid"],
            [row["line"] for row in rows if "line" in row],
            any("eof" in row for row in rows),
            next((row["grandchild"] for row in rows if "grandchild" in row), 0),
        )
