"""Claude Code as the seed's `Agent`: Serai's own driver behind a handle. `ClaudeDriver` is the seed's driver of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from serai.agents.agentboot.errors import AgentNotAvailable
from serai.agents.agentboot.options import ExecutionOptions, LaunchSpec
from serai.agents.agentboot.process import environment as variables
from serai.agents.agentboot.runner import RunnerConfig, must_be_folder
from serai.agents.agentboot.sessions import SessionAgent, SessionRun
from serai.agents.agentboot.words import AgentType, AgentTypeClaude, OutputFormat
from serai.agents.drivers.claude.command import command_line
from serai.agents.drivers.claude.environment import environment
from serai.agents.drivers.claude.options import Options, without_project
from serai.agents.drivers.claude.places import Places
from serai.agents.drivers.claude.versions import refused
from serai.dialects.claude.tools import ToolMap
from serai.limits import Limits
from serai.wire.process import Spawner

__all__ = ["ClaudeAgent", "ClaudeDriver", "options_of"]


def options_of(opts: ExecutionOptions, options: Options | None = None) -> Options:
    """What the seed's options mean to Claude Code (spec agents 1.17). Routing is stamped on requests, never on a command line."""
    said = {
        "model": opts.model,
        "fallback_model": opts.fallback_model,
        "max_turns": opts.max_turns,
        "system_prompt": opts.custom_system_prompt,
        "append_system_prompt": opts.append_system_prompt,
        "session_id": opts.session_id,
        "resume": opts.resume,
        "permission_mode": opts.permission_mode,
        "permission_prompt_tool": opts.permission_prompt_tool,
        "allowed_tools": tuple(opts.allowed_tools),
        "disallowed_tools": tuple(opts.disallowed_tools),
        "mcp_servers": dict(opts.mcp_servers),
        "strict_mcp": opts.strict_mcp_config,
        "settings": opts.settings_path,
        "metadata": opts.routing,
    }
    options = options or Options()
    changes: dict[str, Any] = {name: value for name, value in said.items() if value}
    return msgspec.structs.replace(options, **changes, env={**options.env, **variables(opts.env)})


class ClaudeAgent(SessionAgent):
    """Claude Code. `options` are what all executions have; an execution's own count before them.

    `trusted`: whether the settings, hooks and servers of the folder count.
    """

    _has_frames = True

    def __init__(
        self,
        options: Options | None = None,
        *,
        trusted: bool = False,
        spawner: Spawner | None = None,
        environ: Mapping[str, str] = os.environ,
        config: RunnerConfig | None = None,
        limits: Limits | None = None,
        **more: Any,
    ) -> None:
        """`more` are further options of `serai.agent("claude")`, such as a `judge`."""
        super().__init__(AgentTypeClaude, config=config, limits=limits, trusted=trusted, spawner=spawner, environ=environ, **more)
        self._claude = options or Options()
        self._environ = environ
        self._tools = ToolMap()

    def is_available(self) -> bool:
        return _program(self._claude, self._environ) != ""

    def _arguments(self, opts: ExecutionOptions, run: SessionRun, limits: Limits) -> dict[str, Any]:
        said = super()._arguments(opts, run, limits.but(agent_stop=limits.stop_polite))
        said.pop("model", None)
        format = OutputFormat(opts.output_format or self._format)
        return {**said, "options": options_of(opts, self._claude), "fmt": format.value, "tap": lambda _pid: run}

    def _neutral(self, name: str, given: dict[str, Any]) -> Any:
        return self._tools.neutral(name, given)[1]


class ClaudeDriver:
    """The seed's `AgentDriver` of Claude Code: how it would be started. Nothing is, and nobody is asked for a version."""

    def __init__(self, options: Options | None = None, *, trusted: bool = False, environ: Mapping[str, str] = os.environ) -> None:
        self._options = options or Options()
        self._trusted = trusted
        self._environ = environ

    def type(self) -> AgentType:
        return AgentTypeClaude

    def is_available(self) -> bool:
        return _program(self._options, self._environ) != ""

    def prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        """In stream-json the prompt goes over stdin, in text format it is the last argument (spec agents 7.22)."""
        must_be_folder(opts.project_path)
        program = _program(self._options, self._environ)
        if not program:
            raise AgentNotAvailable("agent CLI not available", who=AgentTypeClaude)
        folder = os.path.realpath(opts.project_path or ".")
        options = options_of(opts, self._options)
        options = options if self._trusted else without_project(options)
        text = opts.output_format == OutputFormat.TEXT
        command = command_line(program, options, fmt="text" if text else "stream-json", prompt=prompt, cwd=folder)
        said = {"type": "user", "message": {"role": "user", "content": prompt}}
        return LaunchSpec(
            command=command,
            env=environment(self._environ, options, folder),
            work_dir=folder,
            initial_input=() if text else (said,),
        )


def _program(options: Options, environ: Mapping[str, str]) -> str:
    """The first that is found, or "" (spec agents 2.1); which of several is the newest is found out when one is started."""
    if options.path:
        return "" if refused(options.path) else options.path
    places = Places(environ)
    found = (one.path for group in (places.on_path(), places.bundled(), places.installed()) for one in group)
    return next((path for path in found if not refused(path)), "")
