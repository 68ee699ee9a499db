"""What a scripted Claude plays, step by step: the frames of Claude Code, with what a test does not care about filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

__all__ = ["Script"]

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
        return self.raw(_answer(f"recorded-{subtype}", response or {}))

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
        return self._assistant({"type": "text", "text": text}, parent)

    def thinking(self, text: str) -> Self:
        return self._assistant({"type": "thinking", "thinking": text, "signature": ""}, None)

    def tool(self, id: str, name: str, *, parent: str | None = None, **input: Any) -> Self:
        return self._assistant({"type": "tool_use", "id": id, "name": name, "input": input}, parent)

    def _assistant(self, block: Json, parent: str | None) -> Self:
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
        self._asked(request, _can_use(tool_use, name, input))
        return self.answer(request) if answered else self

    def calls(self, id: str, name: str = "Bash", *, told: Any = None, **input: Any) -> Self:
        """A tool call as the program makes it: our hook is asked, then the host, and what comes of it is told as its result.

        `told` is what the tool says when it may run; without it a command really runs, where the process does.
        """
        self.tool(id, name, **input)
        hook = {"type": "control_request", "request_id": f"hook-{id}", "request": self._hook(id, name, input)}
        asks = {"type": "control_request", "request_id": f"ask-{id}", "request": _can_use(id, name, input)}
        self.told(id, told)
        self.rows[-1] = {"dir": "call", "hook": hook, "asks": asks, "told": self.rows[-1]["line"]}
        return self

    def hooked(
        self, request: str, tool_use: str, name: str = "Bash", *, answered: bool = True, hook: str = "", **input: Any
    ) -> Self:
        """The PreToolUse hook. Without `hook` it is the host's own one, whatever its id."""
        self._asked(request, self._hook(tool_use, name, input, hook))
        return self.answer(request) if answered else self

    def _hook(self, tool_use: str, name: str, input: Json, hook: str = "") -> Json:
        said = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input, "tool_use_id": tool_use}
        said |= {"session_id": self.session, "permission_mode": "default"}  # no cwd: where it runs is known to the program alone
        callback = hook or "recorded-hook"
        if not hook:
            initialize = self.rows[1]["line"]["request"]
            initialize["hooks"] = {"PreToolUse": [{"matcher": None, "hookCallbackIds": [callback]}]}
        return {"subtype": "hook_callback", "callback_id": callback, "input": said, "tool_use_id": tool_use}

    def mcp(self, request: str, message: Json, *, server: str = "serai", answered: bool = True) -> Self:
        self._asked(request, {"subtype": "mcp_message", "server_name": server, "message": message})
        return self.answer(request) if answered else self

    def _asked(self, request: str, fields: Json) -> None:
        self.raw({"type": "control_request", "request_id": request, "request": fields})

    def answer(self, request: str) -> Self:
        return self.waits(_answer(request, {}))

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


def _can_use(tool_use: str, name: str, input: Json) -> Json:
    return {"subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": tool_use}


def _answer(request: str, response: Json) -> Json:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": response}}
