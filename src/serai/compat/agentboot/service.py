"""The seed's front door: agents by their type, one of them the default, and the sessions that they keep (spec agents 1.2)."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from datetime import datetime
from threading import Lock
from typing import Any, Protocol, TypeVar

import msgspec

from serai.agents.drivers.claude.transcripts.files import ProjectNotFound
from serai.agents.drivers.claude.transcripts.metadata import SessionFilter, SessionMetadata
from serai.agents.drivers.claude.transcripts.reader import Project, Transcripts, TranscriptSummary, Where
from serai.compat.agentboot.codec import AgentType, OutputFormat
from serai.compat.agentboot.errors import (
    AgentNotRegistered,
    AgentNotSupported,
    InvalidLaunch,
    ReaderNotConfigured,
    SessionInUse,
    SessionUnknown,
)
from serai.compat.agentboot.execution import Handle
from serai.compat.agentboot.handlers import MessageSink, Prompter, run_with_prompter
from serai.compat.agentboot.messages import Waited
from serai.compat.agentboot.options import Agent, Config, ExecutionHandle, ExecutionOptions, fill_defaults
from serai.compat.agentboot.permissions import SECOND
from serai.errors import NoSession

Answer = TypeVar("Answer")

_MOMENT = 0.1  # seconds


class SessionReader(Protocol):
    """Reads the sessions that an agent's program keeps: `ClaudeStore` is one."""

    def list_projects(self) -> Any: ...
    def get_recent_sessions(self, project: Any, limit: int, /) -> Any: ...
    def get_session(self, id: str, /) -> Any: ...
    def get_session_summary(self, id: str, first_n: int, last_m: int, /) -> Any: ...


class ProjectStats(msgspec.Struct, frozen=True):
    """All sessions of a project together. Of long ones the sums are as a listing has them (see `SessionMetadata.partial`)."""

    project_path: str
    total_sessions: int
    active_sessions: int
    complete_sessions: int
    error_sessions: int
    unknown_sessions: int
    total_cost_usd: float
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    oldest: datetime | None
    newest: datetime | None


class ClaudeStore(Transcripts):
    """Claude Code's sessions, with the seed's further methods (spec agents 4.3)."""

    def list_sessions_filtered(self, project: Where, keep: SessionFilter | None) -> list[SessionMetadata]:
        """Those that the filter keeps."""
        return self.list_recent(project, 0, keep)

    def get_recent_sessions(self, project: Where, limit: int) -> list[SessionMetadata]:
        """The first so many of the list; all with 0."""
        return self.list_recent(project, limit, None)

    def project_stats(self, project: Where) -> ProjectStats:
        """Counts and sums over a project's sessions."""
        sessions = self.list_sessions(project)
        path = project.path if isinstance(project, Project) else os.fspath(project or "")
        if not sessions:
            raise ProjectNotFound(path)
        status = [one.status for one in sessions]
        begun = [one.start_time for one in sessions if one.start_time is not None]
        return ProjectStats(
            project_path=path,
            total_sessions=len(sessions),
            active_sessions=status.count("active"),
            complete_sessions=status.count("complete"),
            error_sessions=status.count("error"),
            unknown_sessions=status.count(""),
            total_cost_usd=sum(one.total_cost_usd for one in sessions),
            input_tokens=sum(one.input_tokens for one in sessions),
            output_tokens=sum(one.output_tokens for one in sessions),
            cache_read_tokens=sum(one.cache_read_tokens for one in sessions),
            oldest=min(begun, default=None),
            newest=max(begun, default=None),
        )


class RunRequest(msgspec.Struct, kw_only=True):
    """What `run` is to do; an empty type means the default agent."""

    type: AgentType = ""
    project_path: str = ""
    prompt: str = ""
    opts: ExecutionOptions = msgspec.field(default_factory=ExecutionOptions)


class AgentService:
    """Agents, and what they are asked to do. The registry may be used from any thread."""

    def __init__(self, config: Config | None = None, *, reader: SessionReader | msgspec.UnsetType | None = msgspec.UNSET) -> None:
        if reader is None:
            raise TypeError("a session reader is an object with sessions, not None: leave it out to have none")
        self._config = fill_defaults(config or Config())
        self._reader: SessionReader | None = None if isinstance(reader, msgspec.UnsetType) else reader
        self._agents: dict[AgentType, Agent] = {}
        self._default = self._config.default_agent
        self._lock = Lock()
        self._busy: dict[str, asyncio.Future[Any]] = {}  # sessions that a run works on, and its end

    # -- agents

    def register_agent(self, agent_type: AgentType, agent: Agent) -> None:
        """From now on this one is meant; one that was registered before is replaced."""
        with self._lock:
            self._agents[agent_type] = agent

    def get_agent(self, agent_type: AgentType) -> Agent:
        with self._lock:
            agent = self._agents.get(agent_type)
            known = ", ".join(sorted(self._agents)) or "none yet"
        if agent is None:
            raise AgentNotSupported(f"agent type not supported: {agent_type}", hint=f"registered: {known}")
        return agent

    must_get_agent = get_agent  # it raises, which is as much as the seed's panic

    def get_default_agent(self) -> Agent:
        return self.get_agent(self.default_agent)

    @property
    def default_agent(self) -> AgentType:
        with self._lock:
            return self._default

    def set_default_agent(self, agent_type: AgentType) -> None:
        with self._lock:
            if agent_type not in self._agents:
                raise AgentNotRegistered(f"agent type not registered: {agent_type}", hint="register it first")
            self._default = agent_type

    def list_agents(self) -> list[AgentType]:
        """Sorted (design rule 10)."""
        with self._lock:
            return sorted(self._agents)

    registered_agents = list_agents

    def get_config(self) -> Config:
        """A copy of it, with its defaults."""
        return msgspec.structs.replace(self._config, default_agent=self.default_agent)

    # -- executions

    async def execute(
        self, agent_type: AgentType, project_path: str, prompt: str, opts: ExecutionOptions | None = None
    ) -> ExecutionHandle:
        """Start a run; an empty type means the default agent. A session is worked on by one run at a time (spec agents 7.24)."""
        agent = self.get_agent(agent_type) if agent_type else self.get_default_agent()
        opts = self._apply_defaults(opts or ExecutionOptions(), project_path)
        id = opts.session_id
        if not id:
            return await agent.execute(prompt, opts)
        if (busy := self._busy.get(id)) is not None:
            await asyncio.wait([busy], timeout=_MOMENT)  # who was told of its end may be quicker than we are
            if id in self._busy:
                raise SessionInUse("another run works on this session", who=id, id=id)
        over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._busy[id] = over
        try:
            handle = await agent.execute(prompt, opts)
        except BaseException:
            self._release_session(id)
            raise
        # Not by way of the handle: who holds a dropped one keeps it from ending its execution (spec agents 7.8).
        ending = handle.finished if isinstance(handle, Handle) else asyncio.ensure_future(getattr(handle, "over", handle.wait)())
        ending.add_done_callback(lambda _: self._release_session(id))
        return handle

    def _release_session(self, id: str) -> None:
        self._busy.pop(id).set_result(None)

    async def execute_session(self, session_id: str, prompt: str, opts: ExecutionOptions | None = None) -> ExecutionHandle:
        return await self.execute_session_with_agent("", session_id, prompt, opts)

    async def execute_session_with_agent(
        self, agent_type: AgentType, session_id: str, prompt: str, opts: ExecutionOptions | None = None
    ) -> ExecutionHandle:
        """Go on with a session, in the folder where it was begun."""
        try:
            found = await self.get_session(session_id)
        except NoSession as error:
            raise SessionUnknown(f"session {session_id} not found: {error.message}", id=session_id) from error
        opts = msgspec.structs.replace(opts or ExecutionOptions(), session_id=session_id, resume=True)
        return await self.execute(agent_type, found.project_path, prompt, opts)

    async def run(self, request: RunRequest, prompter: Prompter, sink: MessageSink | None = None) -> Waited:
        """Execute, and play it to its end."""
        handle = await self.execute(request.type, request.project_path, request.prompt, request.opts)
        return await run_with_prompter(handle, prompter, sink)

    def resume_session(self, session_id: str) -> ExecutionOptions:
        """Options to go on with a session."""
        return ExecutionOptions(session_id=session_id, resume=True)

    def _apply_defaults(self, opts: ExecutionOptions, project_path: str) -> ExecutionOptions:
        timeout = opts.timeout or self._config.default_execution_timeout / SECOND
        format = OutputFormat(opts.output_format or self._config.default_format)
        return msgspec.structs.replace(opts, project_path=project_path, timeout=timeout, output_format=format)

    # -- sessions

    async def list_projects(self) -> Any:
        return await self._read(lambda reader: reader.list_projects())

    async def list_sessions(self, project_path: str, limit: int = 0) -> list[SessionMetadata]:
        """The newest first; all of them with a limit of 0 or less."""
        found: list[SessionMetadata] = await self._read(lambda reader: reader.get_recent_sessions(project_path, max(limit, 0)))
        return found

    list_recent_sessions = list_sessions

    async def get_session(self, session_id: str) -> SessionMetadata:
        found: SessionMetadata = await self._read(lambda reader: reader.get_session(session_id))
        return found

    async def get_session_summary(self, session_id: str, first_n: int, last_m: int) -> TranscriptSummary:
        found: TranscriptSummary = await self._read(lambda reader: reader.get_session_summary(session_id, first_n, last_m))
        return found

    async def _read(self, read: Callable[[SessionReader], Answer]) -> Any:
        """In a thread: there may be thousands of files."""
        if (reader := self._reader) is None:
            raise ReaderNotConfigured("session reader not configured")
        found = await asyncio.to_thread(read, reader)
        return await found if inspect.isawaitable(found) else found


class AgentBoot(AgentService):
    """The seed's own form of it: with a folder of Claude's projects in its configuration it reads the sessions there."""

    def __init__(self, config: Config | None = None, *, reader: SessionReader | msgspec.UnsetType | None = msgspec.UNSET) -> None:
        if reader is msgspec.UNSET and config is not None and config.claude_projects_dir:
            reader = new_claude_store(config.claude_projects_dir)
        super().__init__(config, reader=reader)


def new_claude_store(projects_dir: str = "") -> ClaudeStore:
    """The sessions that Claude Code keeps: those of that folder, else where it keeps them itself."""
    if projects_dir and os.path.exists(projects_dir) and not os.path.isdir(projects_dir):
        raise InvalidLaunch("the folder of Claude's projects is none", who=projects_dir, hint="give the folder, or leave it out")
    return ClaudeStore(projects_dir or None)


def new(config: Config | None = None) -> AgentBoot:
    return AgentBoot(config)


New = new
NewClaudeStore = new_claude_store
