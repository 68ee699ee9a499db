"""The shape of seed 002, agentboot, on Serai's sessions: no second runner (spec agents 1).

    boot = agentboot.new()
    boot.register_agent("claude", agentboot.ClaudeAgent())
    handle = await boot.execute("", "/my/project", "make the tests pass")
    async for event in handle.events():
        match event:
            case agentboot.MessageEvent(raw=message): print(message)
            case agentboot.ApprovalRequestEvent(id=id): await handle.respond(id, agentboot.ApprovalResponse(approved=False))
    result, error = await handle.wait()

Methods and functions have the seed's names in Python's spelling; its functions are here under their own names too. Where the seed
returns a value and an error, what fails raises; only `wait` gives both, as both are there. `docs/parity/002-agentboot.md` has each.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.agents.agentboot.claude import ClaudeAgent, ClaudeDriver
    from serai.agents.agentboot.codec import Decoder, Encoder
    from serai.agents.agentboot.composite import (
        ApprovalHandler,
        AskHandler,
        CompletionCallback,
        CompletionResult,
        CompositeHandler,
        MessageHandler,
        MessageStreamer,
        NewCompositeHandler,
        new_composite_handler,
        run_with_handler,
    )
    from serai.agents.agentboot.controlled import ControlledHandle, HandleControls, NewControlledHandle, new_controlled_handle
    from serai.agents.agentboot.errors import (
        AgentNotAvailable,
        AgentNotRegistered,
        AgentNotSupported,
        Cancelled,
        DeadlineExceeded,
        EncoderClosed,
        ErrHandleClosed,
        ErrUnknownRequestID,
        HandleClosed,
        InvalidLaunch,
        Killed,
        NotDelivered,
        NoTerminalResult,
        ProcessError,
        ProtocolError,
        ReaderNotConfigured,
        ResultError,
        SessionInUse,
        SessionUnknown,
        StartFailed,
        UnknownRequestId,
    )
    from serai.agents.agentboot.execution import Handle
    from serai.agents.agentboot.fakes import FakeFactory, FakeProcess, NewFakeFactory, new_fake_factory
    from serai.agents.agentboot.messages import (
        AgentMessage,
        AssistantMessage,
        BaseMessage,
        ContentBlock,
        GenericMessage,
        InitMessage,
        MessageFromEvent,
        NewAssistantMessage,
        NewInitMessage,
        NewPermissionRequestMessage,
        NewPermissionResultMessage,
        NewResultMessage,
        NewStreamDeltaMessage,
        PermissionRequestMessage,
        PermissionResultMessage,
        ResultMessage,
        StreamDeltaMessage,
        message_from_event,
        new_assistant_message,
        new_init_message,
        new_permission_request_message,
        new_permission_result_message,
        new_result_message,
        new_stream_delta_message,
    )
    from serai.agents.agentboot.options import (
        Config,
        DefaultConfig,
        DefaultPermissionConfig,
        ExecutionOptions,
        LaunchSpec,
        LifecycleStore,
        default_config,
        default_permission_config,
    )
    from serai.agents.agentboot.permissions import (
        SECOND,
        AskRequest,
        AskResult,
        PermissionConfig,
        PermissionRequest,
        PermissionResponse,
        PermissionResult,
    )
    from serai.agents.agentboot.process import Factory, OsFactory, ProcessHandle
    from serai.agents.agentboot.prompting import FakePrompter, MessageSink, Prompter, RunWithPrompter, run_with_prompter
    from serai.agents.agentboot.result import Result, Waited
    from serai.agents.agentboot.roles import Agent, AgentDriver, AgentTransport, ExecutionHandle
    from serai.agents.agentboot.runner import (
        NewRunner,
        NewRunnerWithFactory,
        Runner,
        RunnerConfig,
        new_runner,
        new_runner_with_factory,
    )
    from serai.agents.agentboot.service import (
        AgentBoot,
        AgentService,
        New,
        NewClaudeStore,
        RunRequest,
        SessionReader,
        new,
        new_claude_store,
    )
    from serai.agents.agentboot.sessions import SessionAgent
    from serai.agents.agentboot.stream import (
        ApprovalRequestEvent,
        ApprovalResponse,
        AskRequestEvent,
        AskResponse,
        ControlResponse,
        ErrorEvent,
        MessageEvent,
        NoiseEvent,
        RequestCancelled,
        StateChanged,
        Stderr,
        StreamEvent,
        TurnCompleted,
        TurnStarted,
    )
    from serai.agents.agentboot.words import (
        AgentType,
        AgentTypeClaude,
        AgentTypeMock,
        Event,
        EventKind,
        EventKindControl,
        EventKindIgnore,
        EventKindMessage,
        EventKindTerminalError,
        EventKindTerminalSuccess,
        EventKindTurnEnd,
        EventTypeAssistant,
        EventTypeError,
        EventTypeInit,
        EventTypePermissionRequest,
        EventTypePermissionResult,
        EventTypeResult,
        EventTypeStreamDelta,
        EventTypeSystem,
        EventTypeToolResult,
        EventTypeToolUse,
        EventTypeUser,
        OutputFormat,
        OutputFormatStreamJSON,
        OutputFormatText,
        PermissionMode,
        PermissionModeAuto,
        PermissionModeManual,
        PermissionModeSkip,
    )

__all__ = [
    "SECOND", "Agent", "AgentBoot", "AgentDriver", "AgentMessage", "AgentNotAvailable", "AgentNotRegistered",
    "AgentNotSupported", "AgentService", "AgentTransport", "AgentType", "AgentTypeClaude", "AgentTypeMock", "ApprovalHandler",
    "ApprovalRequestEvent", "ApprovalResponse", "AskHandler", "AskRequest", "AskRequestEvent", "AskResponse", "AskResult",
    "AssistantMessage", "BaseMessage", "Cancelled", "ClaudeAgent", "ClaudeDriver", "CompletionCallback", "CompletionResult",
    "CompositeHandler", "Config", "ContentBlock", "ControlResponse", "ControlledHandle", "DeadlineExceeded", "Decoder",
    "DefaultConfig", "DefaultPermissionConfig", "Encoder", "EncoderClosed", "ErrHandleClosed", "ErrUnknownRequestID",
    "ErrorEvent", "Event", "EventKind", "EventKindControl", "EventKindIgnore", "EventKindMessage", "EventKindTerminalError",
    "EventKindTerminalSuccess", "EventKindTurnEnd", "EventTypeAssistant", "EventTypeError", "EventTypeInit",
    "EventTypePermissionRequest", "EventTypePermissionResult", "EventTypeResult", "EventTypeStreamDelta", "EventTypeSystem",
    "EventTypeToolResult", "EventTypeToolUse", "EventTypeUser", "ExecutionHandle", "ExecutionOptions", "Factory", "FakeFactory",
    "FakeProcess", "FakePrompter", "GenericMessage", "Handle", "HandleClosed", "HandleControls", "InitMessage", "InvalidLaunch",
    "Killed", "LaunchSpec", "LifecycleStore", "MessageEvent", "MessageFromEvent", "MessageHandler", "MessageSink",
    "MessageStreamer", "New", "NewAssistantMessage", "NewClaudeStore", "NewCompositeHandler", "NewControlledHandle",
    "NewFakeFactory", "NewInitMessage", "NewPermissionRequestMessage", "NewPermissionResultMessage", "NewResultMessage",
    "NewRunner", "NewRunnerWithFactory", "NewStreamDeltaMessage", "NoTerminalResult", "NoiseEvent", "NotDelivered", "OsFactory",
    "OutputFormat", "OutputFormatStreamJSON", "OutputFormatText", "PermissionConfig", "PermissionMode", "PermissionModeAuto",
    "PermissionModeManual", "PermissionModeSkip", "PermissionRequest", "PermissionRequestMessage", "PermissionResponse",
    "PermissionResult", "PermissionResultMessage", "ProcessError", "ProcessHandle", "Prompter", "ProtocolError",
    "ReaderNotConfigured", "RequestCancelled", "Result", "ResultError", "ResultMessage", "RunRequest", "RunWithPrompter",
    "Runner", "RunnerConfig", "SessionAgent", "SessionInUse", "SessionReader", "SessionUnknown", "StartFailed", "StateChanged",
    "Stderr", "StreamDeltaMessage", "StreamEvent", "TurnCompleted", "TurnStarted", "UnknownRequestId", "Waited",
    "default_config", "default_permission_config", "message_from_event", "new", "new_assistant_message", "new_claude_store",
    "new_composite_handler", "new_controlled_handle", "new_fake_factory", "new_init_message", "new_permission_request_message",
    "new_permission_result_message", "new_result_message", "new_runner", "new_runner_with_factory", "new_stream_delta_message",
    "run_with_handler", "run_with_prompter",
]  # fmt: skip

_NAMES = {
    "claude": ("ClaudeAgent ClaudeDriver"),
    "codec": ("Decoder Encoder"),
    "composite": (
        "ApprovalHandler AskHandler CompletionCallback CompletionResult CompositeHandler MessageHandler MessageStreamer "
        "NewCompositeHandler new_composite_handler run_with_handler"
    ),
    "controlled": ("ControlledHandle HandleControls NewControlledHandle new_controlled_handle"),
    "errors": (
        "AgentNotAvailable AgentNotRegistered AgentNotSupported Cancelled DeadlineExceeded EncoderClosed ErrHandleClosed "
        "ErrUnknownRequestID HandleClosed InvalidLaunch Killed NoTerminalResult NotDelivered ProcessError ProtocolError "
        "ReaderNotConfigured ResultError SessionInUse SessionUnknown StartFailed UnknownRequestId"
    ),
    "execution": ("Handle"),
    "fakes": ("FakeFactory FakeProcess NewFakeFactory new_fake_factory"),
    "messages": (
        "AgentMessage AssistantMessage BaseMessage ContentBlock GenericMessage InitMessage MessageFromEvent "
        "NewAssistantMessage NewInitMessage NewPermissionRequestMessage NewPermissionResultMessage NewResultMessage "
        "NewStreamDeltaMessage PermissionRequestMessage PermissionResultMessage ResultMessage StreamDeltaMessage "
        "message_from_event new_assistant_message new_init_message new_permission_request_message "
        "new_permission_result_message new_result_message new_stream_delta_message"
    ),
    "options": (
        "Config DefaultConfig DefaultPermissionConfig ExecutionOptions LaunchSpec LifecycleStore default_config "
        "default_permission_config"
    ),
    "permissions": ("AskRequest AskResult PermissionConfig PermissionRequest PermissionResponse PermissionResult SECOND"),
    "process": ("Factory OsFactory ProcessHandle"),
    "prompting": ("FakePrompter MessageSink Prompter RunWithPrompter run_with_prompter"),
    "result": ("Result Waited"),
    "roles": ("Agent AgentDriver AgentTransport ExecutionHandle"),
    "runner": ("NewRunner NewRunnerWithFactory Runner RunnerConfig new_runner new_runner_with_factory"),
    "service": ("AgentBoot AgentService New NewClaudeStore RunRequest SessionReader new new_claude_store"),
    "sessions": ("SessionAgent"),
    "stream": (
        "ApprovalRequestEvent ApprovalResponse AskRequestEvent AskResponse ControlResponse ErrorEvent MessageEvent "
        "NoiseEvent RequestCancelled StateChanged Stderr StreamEvent TurnCompleted TurnStarted"
    ),
    "words": (
        "AgentType AgentTypeClaude AgentTypeMock Event EventKind EventKindControl EventKindIgnore EventKindMessage "
        "EventKindTerminalError EventKindTerminalSuccess EventKindTurnEnd EventTypeAssistant EventTypeError EventTypeInit "
        "EventTypePermissionRequest EventTypePermissionResult EventTypeResult EventTypeStreamDelta EventTypeSystem "
        "EventTypeToolResult EventTypeToolUse EventTypeUser OutputFormat OutputFormatStreamJSON OutputFormatText "
        "PermissionMode PermissionModeAuto PermissionModeManual PermissionModeSkip"
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__getattr__, __dir__ = lazy(__name__, _HOMES)
