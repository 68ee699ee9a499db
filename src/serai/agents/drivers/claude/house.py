"""What a session with Claude Code works with: how its process is started, who decides for it, what it is given."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from serai.agents.driver import Prompt
from serai.agents.drivers.claude.asking import HOOK
from serai.agents.drivers.claude.command import SERVER, check, command_line, redacted
from serai.agents.drivers.claude.environment import environment
from serai.agents.drivers.claude.finding import find
from serai.agents.drivers.claude.options import Options, without_project
from serai.agents.drivers.claude.settings import merged
from serai.agents.joining import Interceptors, Judge, NoInterceptors
from serai.errors import BadSettings
from serai.limits import Limits
from serai.model.contributions import PromptSection
from serai.model.tools import ToolBox
from serai.wire.channel import Tap
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner, stop_child

__all__ = ["House"]

log = logging.getLogger("serai.agents")


@dataclass(slots=True, kw_only=True)
class House:
    """`spawner` starts the process; one of our own is closed with the last session that uses it."""

    cwd: str
    options: Options
    environ: Mapping[str, str]
    limits: Limits
    spawner: Spawner | None = None
    judge: Judge | None = None
    interceptors: Interceptors = field(default_factory=NoInterceptors)
    tools: ToolBox | None = None
    sections: Callable[[], Iterable[PromptSection]] = tuple
    tap: Callable[[int], Tap | None] = lambda _pid: None
    program: str = ""  # where the person says that it is
    trusted: Callable[[], bool] = lambda: False  # whether the project's settings count; asked before each start: it may change
    _own: PlainSpawner | None = None
    _ending: set[asyncio.Task[Any]] = field(default_factory=set)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    async def spawn(self, *, text: Prompt | None = None) -> Child:
        """The process, started. What cannot be is told before anything runs. `text`: it answers this prompt, and ends."""
        _must_be_folder(self.cwd)
        options = self.options if self.trusted() else without_project(self.options)
        options = msgspec.structs.replace(options, serai_tools=self.tools is not None)
        if self.judge is not None:
            options = _guarded(options, self.cwd)
        env = environment(self.environ, options, self.cwd)
        check(options, env, self.cwd)
        spawner = self.spawner or self._spawner()
        program = await find(options, self.environ, limits=self.limits, configured=self.program, spawner=spawner)
        if text is None:
            argv = command_line(program.path, options, cwd=self.cwd)
        else:
            argv = command_line(program.path, options, fmt="text", prompt=text.text, cwd=self.cwd)
        log.debug("claude: %s", redacted(argv))
        argv = self._discreet(argv)
        stdin: Literal["pipe", "null"] = "pipe" if text is None else "null"
        return await spawner.spawn(Launch(argv=argv, env=env, cwd=self.cwd, who="claude", stdin=stdin))

    def _discreet(self, argv: list[str]) -> list[str]:
        """Everybody can read a command line: servers and settings may hold keys, so they go into files for us alone."""
        if not (self.options.settings or self.options.mcp_servers or self.options.extra):
            return argv  # all of it is our own
        said = []
        for word in argv:
            flag, equals, value = word.partition("=")
            if equals and flag in ("--mcp-config", "--settings") and value.lstrip().startswith("{"):
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="serai-claude-")  # 0700
                path = os.path.join(self._folder.name, f"{flag.strip('-')}.json")
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(value)
                said.append(f"{flag}={path}")
            else:
                said.append(word)
        return said

    def _spawner(self) -> PlainSpawner:
        if self._own is None:
            self._own = PlainSpawner(self.limits)
        return self._own

    def initialize(self) -> dict[str, Any]:
        """Our first request (spec agents 2.7). A hook for every call; one that gets no answer in time keeps it from running."""
        said: dict[str, Any] = {"hooks": None}
        if self.judge is not None:
            hook = {"matcher": None, "hookCallbackIds": [HOOK], "timeout": self.limits.agent_hook, "onFailure": "block"}
            said["hooks"] = {"PreToolUse": [hook]}
        if self.tools is not None:
            said["sdkMcpServers"] = [SERVER]
        if text := "\n\n".join(_section(one) for one in sorted(self.sections(), key=lambda one: one.order)):
            said["appendSystemPrompt"] = text
        return said

    def forked(self, session_id: str) -> House:
        options = msgspec.structs.replace(
            self.options, session_id=session_id, resume=True, fork=True, fork_id="", continue_last=False
        )
        return replace(self, options=options, _own=None, _ending=set(), _folder=None)

    def go_on(self, session_id: str) -> None:
        """The next process takes up this conversation."""
        self.options = msgspec.structs.replace(
            self.options, session_id=session_id, resume=True, fork=False, fork_id="", continue_last=False, resume_at=""
        )

    def end(self, child: Child, *, at_once: bool = False) -> None:
        """Its whole tree, by the ladder or without it; `ended` waits for that."""
        how = child.close() if at_once else stop_child(child, self.limits)
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(how, name="end claude")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def ended(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)

    async def close(self) -> None:
        await self.ended()
        if self._own is not None:
            await self._own.close()
        if self._folder is not None:
            self._folder.cleanup()


def _guarded(options: Options, cwd: str) -> Options:
    """Where somebody must be asked about every call: nobody would be about the shell lines of skills, nor about hooks of other
    people's, which can answer in our place and change what was judged; and rules know no other folder than ours."""
    wanted = {"disableSkillShellExecution": True} | ({} if options.own_hooks else {"disableAllHooks": True})
    settings = merged(options.settings, json.dumps(wanted), cwd=cwd)
    try:
        held = wanted.items() <= json.loads(settings).items()
    except (ValueError, AttributeError):
        held = False
    if not held:
        hint = "give them as JSON or as a file"
        raise BadSettings("its settings cannot be read, so that guards might not hold", who="claude", hint=hint)
    stay = {"CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1"}
    return msgspec.structs.replace(options, settings=settings, env={**options.env, **stay})


def _must_be_folder(cwd: str) -> None:
    if not os.path.isdir(cwd):
        raise BadSettings("it is no folder", who=cwd, hint="give an existing folder as cwd")


def _section(section: PromptSection) -> str:
    return f"# {section.title}\n\n{section.content}" if section.title else section.content
