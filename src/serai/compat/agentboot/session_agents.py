"""Any agent of Serai as the seed's `Agent`: its session's turn behind the same handle as a runner's.

The events of a session become the seed's messages (spec agents 1.19); events of an agent that has these messages itself keep them.
`ClaudeAgent` is Claude Code over Serai's own driver; `ClaudeDriver` is the seed's driver of it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any, Literal

import msgspec

from serai.agents.drivers.claude.installation import InstallLocations, find_rejection
from serai.agents.drivers.claude.launch import build_command_line
from serai.agents.drivers.claude.options import ClaudeOptions, build_environment, exclude_project
from serai.agents.factory import agent as open_agent
from serai.agents.session import Session
from serai.compat.agentboot.codec import (
    AgentType,
    AgentTypeClaude,
    Event,
    EventTypeSystem,
    EventTypeToolResult,
    EventTypeToolUse,
    OutputFormat,
    parse_object,
)
from serai.compat.agentboot.errors import AgentNotAvailable, StartFailed, UnknownRequestId
from serai.compat.agentboot.execution import Execution, Handle, build_decision, check_response, notify_store, to_stream_events
from serai.compat.agentboot.messages import (
    AgentMessage,
    ApprovalRequestEvent,
    AskRequestEvent,
    AssistantMessage,
    ContentBlock,
    ControlResponse,
    GenericMessage,
    MessageEvent,
    NoiseEvent,
    ResultMessage,
    RunAccount,
    StreamDeltaMessage,
    StreamEvent,
    message_from_event,
)
from serai.compat.agentboot.options import ExecutionOptions, LaunchSpec, RunnerConfig, check_folder, choose_timeout
from serai.compat.agentboot.process import parse_environment
from serai.dialects.claude.tools import ToolMap
from serai.errors import Closed, NoAgent, NoApproval, SeraiError, SpawnFailed
from serai.limits import Limits
from serai.model import events as model
from serai.model.approvals import Allow, Approval, Question
from serai.model.tools import TextBlock
from serai.wire.process import Spawner
from serai.wire.stream import Oversize

_STATUS = {"success": "success", "error": "error", "cancelled": "cancelled", "denied": "permission_denied"}


def to_messages(event: model.Event, agent: AgentType, session: str) -> list[AgentMessage]:
    """The messages that an event stands for: one, or none."""
    at = datetime.fromtimestamp(event.at, UTC)
    native = event.result.native if isinstance(event, model.TurnEnded) else event.native
    if isinstance(native, dict) and isinstance(kind := native.get("type"), str):  # an agent that speaks the seed's words
        return [message_from_event(Event(kind, {"session_id": session, **native}, at), agent)]
    common: dict[str, Any] = {"agent_type": agent, "session_id": event.session or session, "timestamp": at}
    beside = {"parent_tool_use_id": event.lane} if event.lane else {}
    match event:
        case model.Message():
            blocks = [ContentBlock(type="text", text=block.text) for block in event.content if isinstance(block, TextBlock)]
            extra = {**beside, **({"model": event.model} if event.model else {})}
            return [AssistantMessage(text="".join(block.text for block in blocks), content=blocks, extra=extra, **common)]
        case model.Text() if not event.lane:
            return [StreamDeltaMessage(delta=event.text, **common)]
        case model.ToolCalled(call=call):
            named = call.native or call
            data = {"tool_id": call.id, "tool_name": named.name, "input": named.arguments, **beside}
            return [GenericMessage(type=EventTypeToolUse, data=data, **common)]
        case model.ToolEnded(call=call, result=result):
            data = {"tool_use_id": call.id, "content": result.text, "is_error": result.is_error, **beside}
            return [GenericMessage(type=EventTypeToolResult, data=data, **common)]
        case model.Retrying():
            told = {"attempt": event.attempt, "max_retries": event.most, "retry_delay_ms": round(event.wait * 1000)}
            data = {"subtype": "api_retry", **told, "error": event.error}
            return [GenericMessage(type=EventTypeSystem, data=data, **common)]
        case model.NoticeEvent(notice=notice):
            data = {"subtype": "notice", "level": notice.level, "text": notice.text, **beside}
            return [GenericMessage(type=EventTypeSystem, data=data, **common)]
        case model.TurnEnded(result=result):
            return [_to_result_message(result, common)]
    return []


def _to_result_message(result: model.TurnResult, common: dict[str, Any]) -> ResultMessage:
    return ResultMessage(
        status=_STATUS[result.status],
        message=result.text,
        cost_usd=result.usage.cost_usd or 0.0,
        duration_ms=round(result.seconds * 1000),
        steps_completed=result.steps,
        is_error=result.status == "error",
        error=result.error,
        **common,
    )


def find_noise(event: model.Event) -> NoiseEvent | None:
    """A line that was no frame."""
    if isinstance(event, model.OtherEvent) and event.kind == "noise":
        text = event.native
        return NoiseEvent(text.encode() if isinstance(text, str) else b"", "not a JSON object")
    return None


class SessionAgent:
    """An agent by its name. Each execution opens a session, plays one prompt, and closes it."""

    def __init__(self, name: str, *, config: RunnerConfig | None = None, limits: Limits | None = None, **options: Any) -> None:
        """`options` are those of `serai.agent(name)`."""
        self._name = name
        self._config = config or RunnerConfig()
        self._format = self._config.default_format
        self._limits = limits or Limits()
        self._options = options

    def type(self) -> AgentType:
        return self._name

    def is_available(self) -> bool:
        from serai.agents.factory import load_agent_factory

        try:
            load_agent_factory(self._name)
        except NoAgent:
            return False
        return True

    def set_default_format(self, format: OutputFormat) -> None:
        self._format = OutputFormat(format)

    def get_default_format(self) -> OutputFormat:
        return self._format

    async def execute(self, prompt: str, opts: ExecutionOptions | None = None) -> Handle:
        opts = opts or ExecutionOptions()
        began = monotonic()
        if not prompt.strip():
            raise ValueError("an empty prompt asks nothing")
        check_folder(opts.project_path)
        account = RunAccount(format=OutputFormat(opts.output_format or self._format), session_id=opts.session_id)
        # An execution watches its time itself, and each agent has its own way to be interrupted.
        limits = self._config.build_limits(self._limits).but(agent_turn=None, interrupt=self._limits.interrupt)
        run = SessionRun(self.type(), opts, account, self._to_neutral)
        try:
            session = open_agent(self._name, **self._build_arguments(opts, run, limits))
            run.attach(session, raw=self._has_frames)
            await session.open()
        except SeraiError as error:
            raise self._record_start_failure(error, opts) from error
        execution = Execution(
            session,
            account,
            translate=run.translate,
            respond=run.respond,
            began=began,
            timeout=choose_timeout(opts.timeout, self._config.default_execution_timeout, self._limits),
            store=opts.store,
            session_id=opts.session_id,
            folder=opts.project_path,
        )
        return Handle(execution, await execution.begin(prompt))

    def _record_start_failure(self, error: SeraiError, opts: ExecutionOptions) -> SeraiError:
        """A program that is missing is told as what it is."""
        errno = error.errno if isinstance(error, SpawnFailed) else 0
        failure: SeraiError = error
        if not isinstance(error, NoAgent):
            failure = StartFailed(f"start process: {error}", who=self._name, errno=errno, hint=error.hint)
        if (store := opts.store) is not None and opts.session_id:
            notify_store(lambda: store.set_failed(opts.session_id, str(failure)))
        return failure

    # -- what an agent of its own says otherwise

    _has_frames = False  # its frames are told to the run's tap

    def _build_arguments(self, opts: ExecutionOptions, run: SessionRun, limits: Limits) -> dict[str, Any]:  # noqa: ARG002
        """For `serai.agent`: what every agent understands."""
        said: dict[str, Any] = {"limits": limits, **self._options}
        if opts.project_path:
            said["cwd"] = opts.project_path
        if opts.model:
            said["model"] = opts.model
        return said

    def _to_neutral(self, name: str, given: dict[str, Any]) -> Any:  # noqa: ARG002
        """The neutral arguments of a call in its own form."""
        return given


class SessionRun:
    """What one execution makes of its session: the account of it, and its events in the seed's words. It is a tap, too."""

    def __init__(
        self, agent: AgentType, opts: ExecutionOptions, account: RunAccount, to_neutral: Callable[[str, dict[str, Any]], Any]
    ) -> None:
        self._agent = agent
        self._opts = opts
        self._account = account
        self._to_neutral = to_neutral
        self._session: Session | None = None
        self._raw = False

    def attach(self, session: Session, *, raw: bool) -> None:
        """`raw`: the frames come to the tap; otherwise the messages stand for them."""
        self._session = session
        self._raw = raw
        session.listen(self._on_event)

    def _on_event(self, event: model.Event) -> None:
        if isinstance(event, model.Text) and self._account.format == OutputFormat.TEXT:
            self._account.output.append(event.text)
        if isinstance(event, model.SessionStarted) and event.session:
            self._account.session_id = event.session
        if not self._raw:
            self._account.events += [message.to_event() for message in self._to_messages(event)]

    def _to_messages(self, event: model.Event) -> list[AgentMessage]:
        return to_messages(event, self._agent, self._account.session_id)

    # -- a tap: every frame, as it came

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:  # noqa: ARG002
        if direction == "received" and self._account.format == OutputFormat.STREAM_JSON:
            self._account.lines.append((time(), run))

    def skipped(self, at: float, frame: Oversize) -> None:  # noqa: ARG002
        self._account.lines.append((time(), frame.head + b"\n"))

    def ended(self, at: float, cause: SeraiError) -> None:
        pass

    # -- for the handle

    def translate(self, event: model.Event) -> list[StreamEvent]:
        if isinstance(event, Approval):
            return [self._build_approval_event(event)] if not event.answered else []
        if isinstance(event, Question):
            return [self._build_ask_event(event)] if not event.answered else []
        if (noise := find_noise(event)) is not None:
            return [noise]
        return [*(MessageEvent(message) for message in self._to_messages(event)), *to_stream_events(event, self._account)]

    async def respond(self, id: str, response: ControlResponse) -> None:
        assert self._session is not None
        asked = next((one for one in self._session.pending if one.id == id), None)
        if asked is None or asked.answered:
            raise UnknownRequestId(who=self._agent, id=str(id))
        check_response(asked, response)
        decision = build_decision(asked, response)
        if isinstance(asked, Approval) and isinstance(decision, Allow) and isinstance(decision.arguments, dict):
            decision = self._convert_allow(asked, decision)
        try:
            await self._session.answer(id, decision)
        except (NoApproval, Closed):
            raise UnknownRequestId(who=self._agent, id=str(id)) from None

    def _convert_allow(self, asked: Approval, decision: Allow) -> Allow:
        """The caller has seen the agent's own form of the call, and changes that."""
        native = asked.call.native
        if native is None:
            return decision
        if decision.arguments == native.arguments:
            return msgspec.structs.replace(decision, arguments=msgspec.UNSET)
        return msgspec.structs.replace(decision, arguments=self._to_neutral(native.name, decision.arguments))

    def _build_stamps(self, asked: Approval | Question) -> dict[str, str]:
        routing = {**self._opts.routing, **asked.routing}
        return {"agent_type": self._agent, "session_id": asked.session or self._account.session_id} | {
            name: routing.get(name, "") for name in ("chat_id", "platform", "bot_uuid")
        }

    def _build_approval_event(self, asked: Approval) -> ApprovalRequestEvent:
        """Whoever is shown it may do with its input what they like (spec agents 7.20)."""
        native = asked.call.native
        given = asked.call.arguments if native is None else native.arguments
        return ApprovalRequestEvent(
            id=asked.id,
            tool_name=asked.tool if native is None else native.name,
            input=copy.deepcopy(given) if isinstance(given, dict) else {},
            title=asked.title,
            display_name=asked.display_name,
            description=asked.description,
            suggestions=asked.suggestions,
            blocked_path=asked.blocked_path,
            decision_reason=asked.reason,
            decision_reason_type=asked.reason_type,
            agent_id=asked.lane,
            tool_use_id=asked.call.id,
            requires_user_interaction=asked.needs_person,
            default_to_no=asked.default_no,
            suppress_always_allow=asked.no_always,
            **self._build_stamps(asked),
        )

    def _build_ask_event(self, asked: Question) -> AskRequestEvent:
        return AskRequestEvent(
            id=asked.id,
            type="question",
            tool_name=asked.tool,
            input=_get_question_input(asked),
            call_id=asked.call_id,
            message=asked.items[0].text if asked.items else "",
            **self._build_stamps(asked),
        )


def _get_question_input(asked: Question) -> dict[str, Any]:
    """The input of the tool that asks, as it came; else what it says."""
    if isinstance(asked.native, msgspec.Raw):
        request = parse_object(bytes(asked.native)).get("request")
        if isinstance(request, dict) and isinstance(given := request.get("input"), dict):
            return given
    questions = [
        {
            "question": item.text,
            "header": item.header,
            "multiSelect": item.several,
            "options": [{"label": choice.label, "description": choice.description} for choice in item.choices],
        }
        for item in asked.items
    ]
    return {"questions": questions}


def build_options(opts: ExecutionOptions, options: ClaudeOptions | None = None) -> ClaudeOptions:
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
    options = options or ClaudeOptions()
    changes: dict[str, Any] = {name: value for name, value in said.items() if value}
    return msgspec.structs.replace(options, **changes, env={**options.env, **parse_environment(opts.env)})


class ClaudeAgent(SessionAgent):
    """Claude Code. `options` are what all executions have; an execution's own count before them.

    `trusted`: whether the settings, hooks and servers of the folder count.
    """

    _has_frames = True

    def __init__(
        self,
        options: ClaudeOptions | None = None,
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
        self._claude = options or ClaudeOptions()
        self._environ = environ
        self._tools = ToolMap()

    def is_available(self) -> bool:
        return _find_program(self._claude, self._environ) != ""

    def _build_arguments(self, opts: ExecutionOptions, run: SessionRun, limits: Limits) -> dict[str, Any]:
        said = super()._build_arguments(opts, run, limits.but(agent_stop=limits.stop_polite))
        said.pop("model", None)
        format = OutputFormat(opts.output_format or self._format)
        return {**said, "options": build_options(opts, self._claude), "fmt": format.value, "tap": lambda _pid: run}

    def _to_neutral(self, name: str, given: dict[str, Any]) -> Any:
        return self._tools.to_neutral(name, given)[1]


class ClaudeDriver:
    """The seed's `AgentDriver` of Claude Code: how it would be started. Nothing is, and nobody is asked for a version."""

    def __init__(
        self, options: ClaudeOptions | None = None, *, trusted: bool = False, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._options = options or ClaudeOptions()
        self._trusted = trusted
        self._environ = environ

    def type(self) -> AgentType:
        return AgentTypeClaude

    def is_available(self) -> bool:
        return _find_program(self._options, self._environ) != ""

    def prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        """In stream-json the prompt goes over stdin, in text format it is the last argument (spec agents 7.22)."""
        check_folder(opts.project_path)
        program = _find_program(self._options, self._environ)
        if not program:
            raise AgentNotAvailable("agent CLI not available", who=AgentTypeClaude)
        folder = os.path.realpath(opts.project_path or ".")
        options = build_options(opts, self._options)
        options = options if self._trusted else exclude_project(options)
        text = opts.output_format == OutputFormat.TEXT
        command = build_command_line(program, options, fmt="text" if text else "stream-json", prompt=prompt, cwd=folder)
        said = {"type": "user", "message": {"role": "user", "content": prompt}}
        return LaunchSpec(
            command=command,
            env=build_environment(self._environ, options, folder),
            work_dir=folder,
            initial_input=() if text else (said,),
        )


def _find_program(options: ClaudeOptions, environ: Mapping[str, str]) -> str:
    """The first that is found, or "" (spec agents 2.1); which of several is the newest is found out when one is started."""
    if options.path:
        return "" if find_rejection(options.path) else options.path
    places = InstallLocations(environ)
    found = (one.path for group in (places.iter_path(), places.iter_bundled(), places.iter_installed()) for one in group)
    return next((path for path in found if not find_rejection(path)), "")
