"""Any agent of Serai's as the seed's `Agent`: its session's turn behind the same handle as a runner's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from time import monotonic, time
from typing import Any, Literal

import msgspec

from serai.agents.agentboot.asking import decision_of, must_fit
from serai.agents.agentboot.codec import parsed
from serai.agents.agentboot.errors import StartFailed, UnknownRequestId
from serai.agents.agentboot.execution import Execution, Handle, keep, told
from serai.agents.agentboot.messages import AgentMessage
from serai.agents.agentboot.neutral import messages_of, noise_of
from serai.agents.agentboot.options import ExecutionOptions, patience
from serai.agents.agentboot.result import Account
from serai.agents.agentboot.runner import RunnerConfig, must_be_folder
from serai.agents.agentboot.stream import ApprovalRequestEvent, AskRequestEvent, ControlResponse, MessageEvent, StreamEvent
from serai.agents.agentboot.words import AgentType, OutputFormat
from serai.agents.opening import agent as open_agent
from serai.agents.session import Session
from serai.errors import Closed, NoAgent, NoApproval, SeraiError, SpawnFailed
from serai.limits import Limits
from serai.model import events as model
from serai.model.approvals import Allow, Approval, Question
from serai.wire.stream import Oversize

__all__ = ["SessionAgent", "SessionRun"]


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
        from serai.agents.opening import opener

        try:
            opener(self._name)
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
        must_be_folder(opts.project_path)
        account = Account(format=OutputFormat(opts.output_format or self._format), session_id=opts.session_id)
        # An execution watches its time itself, and each agent has its own way to be interrupted.
        limits = self._config.limits(self._limits).but(agent_turn=None, interrupt=self._limits.interrupt)
        run = SessionRun(self.type(), opts, account, self._neutral)
        try:
            session = open_agent(self._name, **self._arguments(opts, run, limits))
            run.attach(session, raw=self._has_frames)
            await session.open()
        except SeraiError as error:
            raise self._not_started(error, opts) from error
        execution = Execution(
            session,
            account,
            translate=run.translate,
            respond=run.respond,
            began=began,
            timeout=patience(opts.timeout, self._config.default_execution_timeout, self._limits),
            store=opts.store,
            session_id=opts.session_id,
            folder=opts.project_path,
        )
        return Handle(execution, await execution.begin(prompt))

    def _not_started(self, error: SeraiError, opts: ExecutionOptions) -> SeraiError:
        """A program that is missing is told as what it is."""
        errno = error.errno if isinstance(error, SpawnFailed) else 0
        failure: SeraiError = error
        if not isinstance(error, NoAgent):
            failure = StartFailed(f"start process: {error}", who=self._name, errno=errno, hint=error.hint)
        if (store := opts.store) is not None and opts.session_id:
            keep(lambda: store.set_failed(opts.session_id, str(failure)))
        return failure

    # -- what an agent of its own says otherwise

    _has_frames = False  # its frames are told to the run's tap

    def _arguments(self, opts: ExecutionOptions, run: SessionRun, limits: Limits) -> dict[str, Any]:  # noqa: ARG002
        """For `serai.agent`: what every agent understands."""
        said: dict[str, Any] = {"limits": limits, **self._options}
        if opts.project_path:
            said["cwd"] = opts.project_path
        if opts.model:
            said["model"] = opts.model
        return said

    def _neutral(self, name: str, given: dict[str, Any]) -> Any:  # noqa: ARG002
        """The neutral arguments of a call in its own form."""
        return given


class SessionRun:
    """What one execution makes of its session: the account of it, and its events in the seed's words. It is a tap, too."""

    def __init__(
        self, agent: AgentType, opts: ExecutionOptions, account: Account, neutral: Callable[[str, dict[str, Any]], Any]
    ) -> None:
        self._agent = agent
        self._opts = opts
        self._account = account
        self._neutral = neutral
        self._session: Session | None = None
        self._raw = False

    def attach(self, session: Session, *, raw: bool) -> None:
        """`raw`: the frames come to the tap; otherwise the messages stand for them."""
        self._session = session
        self._raw = raw
        session.listen(self._heard)

    def _heard(self, event: model.Event) -> None:
        if isinstance(event, model.Text) and self._account.format == OutputFormat.TEXT:
            self._account.output.append(event.text)
        if isinstance(event, model.SessionStarted) and event.session:
            self._account.session_id = event.session
        if not self._raw:
            self._account.events += [message.to_event() for message in self._messages(event)]

    def _messages(self, event: model.Event) -> list[AgentMessage]:
        return messages_of(event, self._agent, self._account.session_id)

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
            return [self._approval(event)] if not event.answered else []
        if isinstance(event, Question):
            return [self._question(event)] if not event.answered else []
        if (noise := noise_of(event)) is not None:
            return [noise]
        return [*(MessageEvent(message) for message in self._messages(event)), *told(event, self._account)]

    async def respond(self, id: str, response: ControlResponse) -> None:
        assert self._session is not None
        asked = next((one for one in self._session.pending if one.id == id), None)
        if asked is None or asked.answered:
            raise UnknownRequestId(who=self._agent, id=str(id))
        must_fit(asked, response)
        decision = decision_of(asked, response)
        if isinstance(asked, Approval) and isinstance(decision, Allow) and isinstance(decision.arguments, dict):
            decision = self._allow(asked, decision)
        try:
            await self._session.answer(id, decision)
        except (NoApproval, Closed):
            raise UnknownRequestId(who=self._agent, id=str(id)) from None

    def _allow(self, asked: Approval, decision: Allow) -> Allow:
        """The caller has seen the agent's own form of the call, and changes that."""
        native = asked.call.native
        if native is None:
            return decision
        if decision.arguments == native.arguments:
            return msgspec.structs.replace(decision, arguments=msgspec.UNSET)
        return msgspec.structs.replace(decision, arguments=self._neutral(native.name, decision.arguments))

    def _stamps(self, asked: Approval | Question) -> dict[str, str]:
        routing = {**self._opts.routing, **asked.routing}
        return {"agent_type": self._agent, "session_id": asked.session or self._account.session_id} | {
            name: routing.get(name, "") for name in ("chat_id", "platform", "bot_uuid")
        }

    def _approval(self, asked: Approval) -> ApprovalRequestEvent:
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
            **self._stamps(asked),
        )

    def _question(self, asked: Question) -> AskRequestEvent:
        return AskRequestEvent(
            id=asked.id,
            type="question",
            tool_name=asked.tool,
            input=_asked_input(asked),
            call_id=asked.call_id,
            message=asked.items[0].text if asked.items else "",
            **self._stamps(asked),
        )


def _asked_input(asked: Question) -> dict[str, Any]:
    """The input of the tool that asks, as it came; else what it says."""
    if isinstance(asked.native, msgspec.Raw):
        request = parsed(bytes(asked.native)).get("request")
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
