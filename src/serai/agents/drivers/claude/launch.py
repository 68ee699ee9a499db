"""How a process of Claude Code is started: its command line (spec agents 1.17, 2.3), and what a session with it works with.

`build_command_line` starts nothing, and equal options give an equal line. Values of the caller are written `--flag=value`: Claude's
parser would take a value with a leading dash for another flag. Every flag is there once; only `--add-dir` is repeated for each
folder, since it takes one at a time in that form. `ClaudeLaunch` has the rest: who decides for the agent, and which tools it gets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from serai.agents.driver import Interceptors, JudgeCall, NoInterceptors, Prompt
from serai.agents.drivers.claude.approvals import HOOK
from serai.agents.drivers.claude.installation import find_claude
from serai.agents.drivers.claude.options import (
    BYPASS,
    MODES,
    ClaudeOptions,
    add_ask_rule,
    build_environment,
    exclude_project,
    merge_settings,
)
from serai.errors import BadSettings, NotAllowed
from serai.limits import AgentLimits
from serai.model.contributions import PromptSection
from serai.model.tools import ToolBox
from serai.wire.channel import Tap
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner, stop_child

log = logging.getLogger("serai.agents")

launch_log = logging.getLogger("serai.agents.claude")

Format = Literal["stream-json", "text"]
SERVER = "serai"  # the name under which our tools are offered: Claude calls them `mcp__serai__…`

_SOURCES = ("user", "project", "local")
_STREAM = ("--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
_TEXT = ("--print", "--output-format", "text")
_SKIP = ("dangerously-skip-permissions", "allow-dangerously-skip-permissions")

# The flags whose values tell nothing of anybody. All others may hold a prompt, a key or somebody's words (spec agents 7.31).
_SHOWN = frozenset({
    "--effort", "--fallback-model", "--input-format", "--max-budget-usd", "--max-turns", "--model", "--output-format",
    "--permission-mode", "--permission-prompt-tool", "--permission-prompts", "--resume", "--session-id", "--setting-sources",
})  # fmt: skip


def build_command_line(
    program: str,
    options: ClaudeOptions,
    *,
    fmt: Format = "stream-json",
    prompt: str = "",
    cwd: str | os.PathLike[str] = ".",
) -> list[str]:
    """The program and its arguments. In text format the prompt is the last of them, else it goes over stdin (spec agents 7.22).

    `BadSettings` says what cannot be. `cwd` is where a file of settings is looked for whose path is relative.
    """
    line = [program, *_STREAM, *_iter_stream_flags(options)] if fmt == "stream-json" else [program, *_TEXT]
    line += [*_iter_session_flags(options), *_iter_model_flags(options), *_iter_tool_flags(options, fmt)]
    line += _iter_setting_flags(options, fmt, cwd)
    line += _list_extra_flags(options, line)
    if fmt == "text":
        if not prompt.strip():
            raise _error("the prompt is empty", "say what it shall do")
        line += ["--", prompt]  # behind it nothing is taken for a flag
    if any("\0" in word for word in line):
        raise _error("there is a NUL character in an option", "no argument of a program can have one")
    return line


def check_launch(options: ClaudeOptions, env: Mapping[str, str], cwd: str | os.PathLike[str], *, root: bool | None = None) -> None:
    """What the child's environment and folder must not be: better said here than found in its stderr (spec agents 7.21, 7.25)."""
    for name, value in env.items():
        if "\0" in name or "\0" in value:
            raise _error(f"there is a NUL character in the variable {name!r}", "no variable can have one")
    if "\0" in os.fsdecode(cwd):
        raise _error("there is a NUL character in the path of its folder", "no path can have one")
    bypass = options.permission_mode == BYPASS or any(flag in options.extra for flag in _SKIP)
    if bypass and (os.geteuid() == 0 if root is None else root) and env.get("IS_SANDBOX") != "1":
        hint = "use another permission mode or another user; in a sandbox set IS_SANDBOX=1 for it"
        raise NotAllowed("Claude Code does not run as root with all permissions bypassed", who="claude", hint=hint)


def redact_argv(argv: Sequence[str]) -> str:
    """A command line for a log: of most values only their length."""
    shown = list(argv[:1])
    words = iter(argv[1:])
    flag = ""
    for word in words:
        if word == "--":
            shown += ["--", *(_redact_value(rest) for rest in words)]
        elif word.startswith("--"):
            flag, equals, value = word.partition("=")
            shown.append(word if not equals or flag in _SHOWN else f"{flag}={_redact_value(value)}")
        else:
            shown.append(word if flag in _SHOWN else _redact_value(word))
    return " ".join(shown)


def _redact_value(value: str) -> str:
    return f"[{len(value)} characters]"


# -- the parts --------------------------------------------------------------------------------------------------------------------


def _iter_stream_flags(options: ClaudeOptions) -> Iterator[str]:
    if options.permission_prompt_tool == "stdio":
        yield from ("--permission-prompt-tool", "stdio")
    elif options.permission_prompt_tool:
        yield f"--permission-prompt-tool={options.permission_prompt_tool}"
    for wanted, flag in (
        (options.partial, "--include-partial-messages"),
        (options.hook_events, "--include-hook-events"),
        (options.replay, "--replay-user-messages"),
        (options.subagent_text, "--forward-subagent-text"),
    ):
        if wanted:
            yield flag


def _iter_session_flags(options: ClaudeOptions) -> Iterator[str]:
    goes_on = options.resume or options.continue_last
    if options.resume:
        if not options.session_id:
            raise _error("there is no session to resume: no id was given", "give `session_id`, or `continue_last` for the newest")
        yield f"--resume={options.session_id}"
    elif options.session_id:
        if options.continue_last:
            raise _error("an id was given and the newest session asked for too", "say one of the two; `fork_id` is that of a copy")
        yield f"--session-id={_check_uuid(options.session_id)}"
    if options.continue_last and not options.resume:
        yield "--continue"
    if options.fork:
        if not goes_on:
            raise _error("there is no session to fork", "say which by `resume` or `continue_last`")
        yield "--fork-session"
    if options.fork_id:
        if not options.fork:
            raise _error("`fork_id` is the id of a copy, and none is made", "say `fork=True` too")
        yield f"--session-id={_check_uuid(options.fork_id)}"  # beside --resume only then (spec agents 2.3)
    if options.resume_at:
        yield f"--resume-session-at={options.resume_at}"
    if not options.persist:
        yield "--no-session-persistence"


def _check_uuid(text: str) -> str:
    try:
        uuid.UUID(text)
    except ValueError:
        raise _error(f"the session id {text!r} is no UUID", "Claude Code takes nothing else for a new session") from None
    if len(text) != 36:  # Python also takes it in braces and without dashes
        raise _error(f"the session id {text!r} is not written as 8-4-4-4-12", "Claude Code takes nothing else for a new session")
    return text


def _iter_model_flags(options: ClaudeOptions) -> Iterator[str]:
    for flag, value in (
        ("--model", options.model),
        ("--fallback-model", options.fallback_model),
        ("--effort", options.effort),
        ("--system-prompt", options.system_prompt),
        ("--append-system-prompt", options.append_system_prompt),
    ):
        if value:
            yield f"{flag}={value}"
    if options.max_turns > 0:
        yield f"--max-turns={options.max_turns}"
    if options.max_budget > 0:
        yield f"--max-budget-usd={options.max_budget}"
    if options.json_schema is not None:
        yield f"--json-schema={_to_json(options.json_schema)}"


def _iter_tool_flags(options: ClaudeOptions, fmt: Format) -> Iterator[str]:
    if options.tools is not None:
        yield f"--tools={','.join(options.tools)}"
    if options.allowed_tools:
        yield f"--allowedTools={','.join(options.allowed_tools)}"
    if options.disallowed_tools:
        yield f"--disallowedTools={','.join(options.disallowed_tools)}"
    yield from (f"--add-dir={folder}" for folder in dict.fromkeys(options.add_dirs))
    servers = dict(options.mcp_servers)
    if options.serai_tools:
        if SERVER in servers:
            raise _error(f"an MCP server is called {SERVER}, which is the name of Serai's own", "give it another name")
        if fmt == "stream-json":  # its messages go over the control protocol
            servers[SERVER] = {"type": "sdk", "name": SERVER}
    if servers:
        yield f"--mcp-config={_to_json({'mcpServers': servers})}"
    if options.strict_mcp:
        yield "--strict-mcp-config"


def _iter_setting_flags(options: ClaudeOptions, fmt: Format, cwd: str | os.PathLike[str]) -> Iterator[str]:
    if options.permission_mode in MODES:
        yield f"--permission-mode={options.permission_mode}"
    elif options.permission_mode:
        launch_log.warning(
            "claude: there is no permission mode %r: left out; there is %s", options.permission_mode, ", ".join(MODES)
        )
    if options.permission_prompts:
        yield f"--permission-prompts={options.permission_prompts}"
    if options.setting_sources is not None:
        for source in options.setting_sources:
            if source not in _SOURCES:
                raise _error(f"there is no source of settings {source!r}", f"there is {', '.join(_SOURCES)}")
        yield f"--setting-sources={','.join(options.setting_sources)}"
    settings = add_ask_rule(options.settings, cwd=cwd) if options.ask_rule and fmt == "stream-json" else options.settings
    if settings:
        yield f"--settings={settings}"


def _list_extra_flags(options: ClaudeOptions, line: Sequence[str]) -> list[str]:
    there = {word.partition("=")[0] for word in line}
    for name in options.extra:
        if not name or name.startswith("-") or "=" in name or name != "".join(name.split()):
            raise _error(f"{name!r} is not the name of a flag", "without its dashes and its value")
        if f"--{name}" in there:
            raise _error(f"--{name} is on the command line already", "say it by the option that it has, or not at all")
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in options.extra.items()]


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), default=dict)
    except (TypeError, ValueError) as error:
        raise _error(f"an option is no JSON: {error}", "give objects, lists, texts, numbers, true, false and null") from None


def _error(message: str, hint: str) -> BadSettings:
    return BadSettings(message, who="claude", hint=hint)


@dataclass(slots=True, kw_only=True)
class ClaudeLaunch:
    """`spawner` starts the process; one of our own is closed with the last session that uses it."""

    cwd: str
    options: ClaudeOptions
    environ: Mapping[str, str]
    limits: AgentLimits
    spawner: Spawner | None = None
    judge: JudgeCall | None = None
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
        _check_folder(self.cwd)
        options = self.options if self.trusted() else exclude_project(self.options)
        options = msgspec.structs.replace(options, serai_tools=self.tools is not None)
        if self.judge is not None:
            options = _guard_options(options, self.cwd)
        env = build_environment(self.environ, options, self.cwd)
        check_launch(options, env, self.cwd)
        spawner = self.spawner or self._get_spawner()
        program = await find_claude(options, self.environ, limits=self.limits, configured=self.program, spawner=spawner)
        if text is None:
            argv = build_command_line(program.path, options, cwd=self.cwd)
        else:
            argv = build_command_line(program.path, options, fmt="text", prompt=text.text, cwd=self.cwd)
        log.debug("claude: %s", redact_argv(argv))
        argv = self._hide_secrets(argv)
        stdin: Literal["pipe", "null"] = "pipe" if text is None else "null"
        return await spawner.spawn(Launch(argv=argv, env=env, cwd=self.cwd, who="claude", stdin=stdin))

    def _hide_secrets(self, argv: list[str]) -> list[str]:
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

    def _get_spawner(self) -> PlainSpawner:
        if self._own is None:
            self._own = PlainSpawner(self.limits)
        return self._own

    def build_initialize(self) -> dict[str, Any]:
        """Our first request (spec agents 2.7). A hook for every call; one that gets no answer in time keeps it from running."""
        said: dict[str, Any] = {"hooks": None}
        if self.judge is not None:
            hook = {"matcher": None, "hookCallbackIds": [HOOK], "timeout": self.limits.agent_hook, "onFailure": "block"}
            said["hooks"] = {"PreToolUse": [hook]}
        if self.tools is not None:
            said["sdkMcpServers"] = [SERVER]
        if text := "\n\n".join(_format_section(one) for one in sorted(self.sections(), key=lambda one: one.order)):
            said["appendSystemPrompt"] = text
        return said

    def fork(self, session_id: str) -> ClaudeLaunch:
        options = msgspec.structs.replace(
            self.options, session_id=session_id, resume=True, fork=True, fork_id="", continue_last=False
        )
        return replace(self, options=options, _own=None, _ending=set(), _folder=None)

    def resume(self, session_id: str) -> None:
        """The next process takes up this conversation."""
        self.options = msgspec.structs.replace(
            self.options, session_id=session_id, resume=True, fork=False, fork_id="", continue_last=False, resume_at=""
        )

    def end(self, child: Child, *, at_once: bool = False) -> None:
        """Its whole tree, by the ladder or without it; `wait_ended` waits for that."""
        how = child.close() if at_once else stop_child(child, self.limits)
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(how, name="end claude")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def wait_ended(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)

    async def close(self) -> None:
        await self.wait_ended()
        if self._own is not None:
            await self._own.close()
        if self._folder is not None:
            self._folder.cleanup()


def _guard_options(options: ClaudeOptions, cwd: str) -> ClaudeOptions:
    """Where somebody must be asked about every call: nobody would be about the shell lines of skills, nor about hooks of other
    people's, which can answer in our place and change what was judged; and rules know no other folder than ours."""
    wanted = {"disableSkillShellExecution": True} | ({} if options.own_hooks else {"disableAllHooks": True})
    settings = merge_settings(options.settings, json.dumps(wanted), cwd=cwd)
    try:
        held = wanted.items() <= json.loads(settings).items()
    except (ValueError, AttributeError):
        held = False
    if not held:
        hint = "give them as JSON or as a file"
        raise BadSettings("its settings cannot be read, so that guards might not hold", who="claude", hint=hint)
    stay = {"CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1"}
    return msgspec.structs.replace(options, settings=settings, env={**options.env, **stay})


def _check_folder(cwd: str) -> None:
    if not os.path.isdir(cwd):
        raise BadSettings("it is no folder", who=cwd, hint="give an existing folder as cwd")


def _format_section(section: PromptSection) -> str:
    return f"# {section.title}\n\n{section.content}" if section.title else section.content
