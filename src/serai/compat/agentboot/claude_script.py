"""A scripted Claude Code in memory, for the facade of seed 002: `ClaudeScript` says what it does, step by step (spec agents 5.1).

It is a spawner: the driver that it serves is the real one. `serai.testing.claude` is the same as a process of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from serai.agents.drivers.claude.options import ClaudeOptions
from serai.compat.agentboot import ClaudeAgent, FakeFactory, FakeProcess, LaunchSpec, RunnerConfig
from serai.limits import Limits

_BANNER = b"2.1.325 (Claude Code)\n"

Step = Callable[["_ScriptPlayer"], Awaitable[None]]


class ClaudeScript:
    """What happens after the prompt has come. Every method returns the script."""

    def __init__(self, *, session_id: str = "5ca1ab1e-0000-4000-8000-000000000001") -> None:
        self.session_id = session_id
        self.steps: list[Step] = []
        self._messages = 0

    def system(self, session_id: str = "", cwd: str = "/") -> Self:
        self.session_id = session_id or self.session_id
        frame = {
            "type": "system",
            "subtype": "init",
            "cwd": cwd,
            "tools": ["Bash"],
            "model": "scripted",
            "permissionMode": "default",
        }
        return self.raw(frame)

    def assistant_text(self, text: str) -> Self:
        return self._add_block({"type": "text", "text": text})

    def permission_request(self, id: str, tool: str, input: dict[str, Any], *, tool_use_id: str = "") -> Self:
        """A call: told, asked about, and, when the answer has come, answered."""
        call = tool_use_id or f"toolu_{id}"
        self._add_block({"type": "tool_use", "id": call, "name": tool, "input": input})
        self._add_request(id, {"tool_name": tool, "input": input, "tool_use_id": call})

        async def send_result(player: _ScriptPlayer) -> None:
            answer = (await player.wait_for_answer(id)).get("response", {})
            allowed = answer.get("behavior") == "allow"
            content = "done" if allowed else answer.get("message", "")
            block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": not allowed}
            player.send({"type": "user", "message": {"role": "user", "content": [block]}, "session_id": self.session_id})

        return self.then(send_result)

    def ask_question(self, id: str, tool_use_id: str, input: dict[str, Any]) -> Self:
        """Waits for the answer."""
        request = {"tool_name": "AskUserQuestion", "input": input, "tool_use_id": tool_use_id, "requires_user_interaction": True}
        return self._add_request(id, request)

    def result(self, text: str = "done", *, ok: bool = True, **fields: Any) -> Self:
        frame = {
            "type": "result", "subtype": "success" if ok else "error_during_execution", "is_error": not ok, "duration_ms": 1,
            "num_turns": 1, "total_cost_usd": 0.01, **({"result": text} if ok else {"errors": [text]}), **fields,
        }  # fmt: skip
        return self.raw(frame)

    def raw(self, frame: dict[str, Any]) -> Self:
        async def send_frame(player: _ScriptPlayer) -> None:
            player.send({"session_id": self.session_id, **frame})

        return self.then(send_frame)

    def then(self, step: Step) -> Self:
        self.steps.append(step)
        return self

    def _add_block(self, block: dict[str, Any]) -> Self:
        self._messages += 1
        message = {
            "id": f"msg_{self._messages}", "type": "message", "role": "assistant", "model": "scripted", "content": [block],
            "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        return self.raw({"type": "assistant", "message": message, "parent_tool_use_id": None})

    def _add_request(self, id: str, request: dict[str, Any]) -> Self:
        async def send_request(player: _ScriptPlayer) -> None:
            player.send({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool", **request}})
            await player.wait_for_answer(id)

        return self.then(send_request)


class ClaudeScriptFactory(FakeFactory):
    """Each start plays the next script, and the last again. `observe_stdin` gets each line that it is sent."""

    def __init__(
        self, *scripts: ClaudeScript, step_delay: float = 0.0, observe_stdin: Callable[[bytes], object] | None = None
    ) -> None:
        super().__init__(self._start)
        self._scripts = scripts
        self._delay = step_delay
        self._observe = observe_stdin
        self._started = 0

    def agent(self, folder: Path, *, config: RunnerConfig | None = None, limits: Limits | None = None, **more: Any) -> ClaudeAgent:
        """Claude Code as the facade has it, with these scripts for a program. `folder` gets a file that stands for it."""
        program = folder / "claude"
        program.write_text("#!/bin/sh\n")  # never run: it is only looked at
        program.chmod(0o700)
        environ = {"PATH": str(folder), "HOME": str(folder)}
        return ClaudeAgent(ClaudeOptions(path=str(program)), spawner=self, environ=environ, config=config, limits=limits, **more)

    async def _start(self, spec: LaunchSpec, process: FakeProcess) -> None:
        if "--version" in spec.command:
            process.write_output(_BANNER)
            process.finish_output()
            process.signal_exit()
            return
        script = self._scripts[min(self._started, len(self._scripts) - 1)]
        self._started += 1
        await _ScriptPlayer(process, self._observe).play(script, self._delay)


class _ScriptPlayer:
    """One process, from the prompt to the end of its input."""

    def __init__(self, process: FakeProcess, observe: Callable[[bytes], object] | None) -> None:
        self._process = process
        self._observe = observe
        self._prompt = asyncio.Event()
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}

    def send(self, frame: dict[str, Any]) -> None:
        self._process.write_output(frame)

    async def wait_for_answer(self, id: str) -> dict[str, Any]:
        """The answer to a request, or the end of the input."""
        return await self._answers.setdefault(id, asyncio.get_running_loop().create_future())

    async def play(self, script: ClaudeScript, delay: float) -> None:
        hearing = asyncio.ensure_future(self._read_input())
        await asyncio.wait([hearing, prompt := asyncio.ensure_future(self._prompt.wait())], return_when=asyncio.FIRST_COMPLETED)
        prompt.cancel()
        for step in script.steps:
            await asyncio.sleep(delay)
            await step(self)
        await hearing  # it ends with its input, as the program does
        self._process.finish_output()
        self._process.signal_exit()

    async def _read_input(self) -> None:
        number = 0
        while True:
            try:
                line = await self._process.stdin_line(number)
            except EOFError:
                break
            number += 1
            if self._observe is not None:
                self._observe(line)
            self._handle_frame(json.loads(line))
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result({})

    def _handle_frame(self, frame: dict[str, Any]) -> None:
        match frame.get("type"):
            case "user":
                self._prompt.set()
            case "control_request":
                response = {"subtype": "success", "request_id": frame["request_id"], "response": {"hooks_applied": True}}
                self.send({"type": "control_response", "response": response})
            case "control_response":
                id = frame["response"]["request_id"]
                waiting = self._answers.setdefault(id, asyncio.get_running_loop().create_future())
                if not waiting.done():
                    waiting.set_result(frame["response"])
