"""Every frame that Claude Code writes and that Serai acts on (spec agents 2.5 and 2.7), and the frames that a host may write.

Names are those of the wire. An absent member reads as its zero value; a member of the wrong type does too, at the second, lenient
decode of `frame_reader`. Members that are not here are in the line, which goes along with every frame. Opaque members stay bytes
(`msgspec.Raw`) when they are read.

A host's line (spec agents 2.4, 2.6, 2.7) is encoded here only. A line that is not JSON, a wrong role and a `control_request`
without a `request` end the program at once (spec agents 2.6). So every line is read back strictly before it is returned. Members
that are not here go along unread.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw

from serai.dialects.claude.blocks import NOTHING, Message, StreamPart, UnknownPart, Usage, UserMessage
from serai.wire.codec import BAD_INPUT, Codec, encode, repair

# Frames that nobody acts on by their type: they stay `Unknown` with their line, and are no surprise (spec agents 2.5).
RARE = frozenset(
    {
        "active_goal",
        "auth_status",
        "command_lifecycle",
        "conversation_reset",
        "prompt_suggestion",
        "rate_limit_event",
        "tool_use_summary",
    }
)


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """One line."""

    session_id: str = ""
    uuid: str = ""


# -- what happens -----------------------------------------------------------------------------------------------------------------


class Assistant(Frame, frozen=True, tag="assistant", gc=False):
    """One finished block of the model's message. `error` is a category, such as `rate_limit`."""

    message: Message = Message()
    parent_tool_use_id: str | None = None
    error: str | None = None
    request_id: str | None = None
    user_message_uuid: str | None = None
    supersedes: list[str] | None = None
    aborted: bool | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None


class User(Frame, frozen=True, tag="user", gc=False):
    """A tool's result, an echo of a prompt (`isReplay`), or text that the program itself put in (`isSynthetic`)."""

    message: UserMessage = UserMessage()
    parent_tool_use_id: str | None = None
    tool_use_result: Raw = NOTHING
    tool_result_meta: Raw = NOTHING
    isSynthetic: bool | None = None  # noqa: N815  # the wire's names, all five
    isReplay: bool | None = None  # noqa: N815
    origin: Any = None
    agent_id: str | None = None


class StreamEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="stream_event", gc=False):
    """A piece of a message while it is made; only with `--include-partial-messages`.

    Nearly all frames are such pieces, and few are asked for their ids: those stay in the line (`StreamIds`).
    """

    event: StreamPart = UnknownPart()
    parent_tool_use_id: str | None = None
    abandoned_blocks: Any = None


class StreamIds(msgspec.Struct, frozen=True, gc=False):
    """What a stream event's line has besides (`frame_reader.read_stream_ids`)."""

    uuid: str = ""
    api_message_id: str | None = None


class ToolProgress(Frame, frozen=True, tag="tool_progress", gc=False):
    tool_use_id: str = ""
    tool_name: str = ""
    elapsed_time_seconds: float = 0.0
    parent_tool_use_id: str | None = None
    heartbeat: bool | None = None


class Result(Frame, frozen=True, tag="result", gc=False):
    """A turn is over, not the run (spec agents 2.11). `is_error` counts even with the subtype `success`."""

    subtype: str = ""
    is_error: Any = False
    result: str | None = None
    errors: list[Any] | None = None
    error: Any = None
    duration_ms: float = 0.0
    duration_api_ms: float = 0.0
    num_turns: int = 0
    stop_reason: str | None = None
    total_cost_usd: float | None = None
    usage: Usage | None = None
    modelUsage: dict[str, Any] | None = None  # noqa: N815
    permission_denials: list[Any] | None = None
    terminal_reason: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    queued_turn_count: int | None = None
    result_index: int | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    origin: Any = None
    structured_output: Raw = NOTHING
    deferred_tool_use: Any = None
    startup_failure_reason: str | None = None
    invalid_config_file: str | None = None

    @property
    def ok(self) -> bool:
        return self.subtype == "success" and not self.is_error


class System(Frame, frozen=True, tag="system", gc=False):
    """Everything else that happens, told apart by `subtype`: each subtype has some of these members (spec agents 2.5).

    One type for all, since the subtypes are an open set: an unknown one is a System too, with all it says in its line.
    """

    subtype: str = ""
    tool_use_id: str | None = None
    tool_name: str | None = None
    agent_id: str | None = None
    description: str | None = None
    message: Any = None
    content: Any = None
    error: Any = None
    # init
    cwd: str = ""
    model: str = ""
    permissionMode: str | None = None  # noqa: N815
    claude_code_version: str = ""
    apiKeySource: str | None = None  # noqa: N815
    output_style: str | None = None
    tools: list[str] = []
    mcp_servers: list[Any] = []
    slash_commands: list[str] = []
    agents: list[Any] = []
    skills: list[Any] = []
    plugins: list[Any] = []
    capabilities: list[str] = []
    # status, session_state_changed, compact_boundary
    status: str | None = None
    state: str | None = None
    compact_result: str | None = None
    compact_error: str | None = None
    compact_metadata: dict[str, Any] | None = None
    # api_retry
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    # task_*, background_tasks_changed
    task_id: str = ""
    task_type: str | None = None
    parent_task_id: str | None = None
    subagent_type: str | None = None
    is_backgrounded: bool | None = None
    summary: str | None = None
    last_tool_name: str | None = None
    output_file: str | None = None
    patch: dict[str, Any] | None = None
    tasks: list[Any] | None = None
    # permission_denied
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    # hook_*
    hook_id: str | None = None
    hook_name: str | None = None
    hook_event: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    output: Any = None
    exit_code: int | None = None
    outcome: str | None = None
    # informational, notification
    level: str | None = None
    key: str | None = None
    text: str | None = None
    priority: str | None = None
    # model_refusal_*
    original_model: str | None = None
    fallback_model: str | None = None
    trigger: str | None = None
    retracted_message_uuids: list[str] | None = None


class Retry(msgspec.Struct, frozen=True, gc=False):
    """The model's API failed and is asked again (`frame_reader.read_retry`). `status` is None when there was no answer at all."""

    attempt: int = 0
    most: int = 0
    delay_ms: float = 0.0
    error: str = ""
    status: int | None = None
    raw: dict[str, Any] = {}


# -- the control protocol (spec agents 2.7) ---------------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="subtype", gc=False):
    """What the program asks of us."""


class CanUseTool(Request, frozen=True, tag="can_use_tool", gc=False):
    """May this tool run? Also how a question to the person and the end of a plan come (spec agents 2.8, 2.9)."""

    tool_name: str
    input: dict[str, Any]
    tool_use_id: str = ""
    agent_id: str = ""
    display_name: str = ""
    title: str = ""
    description: str = ""
    permission_suggestions: list[Any] = []
    blocked_path: str = ""
    decision_reason: str = ""
    decision_reason_type: str = ""
    classifier_approvable: bool = False
    suppress_always_allow_rule: bool = False
    default_to_no: bool = False
    matched_ask_rule: dict[str, Any] | None = None
    requires_user_interaction: bool = False
    mcp_server: dict[str, Any] | None = None


class HookCallback(Request, frozen=True, tag="hook_callback", gc=False):
    callback_id: str
    input: dict[str, Any]
    tool_use_id: str = ""


class McpMessage(Request, frozen=True, tag="mcp_message", gc=False):
    server_name: str
    message: Raw


class Elicitation(Request, frozen=True, tag="elicitation", gc=False):
    """Its members are read from the request itself: what a server asks is an open set."""

    mcp_server_name: str = ""
    message: str = ""


class RequestUserDialog(Request, frozen=True, tag="request_user_dialog", gc=False):
    dialog_kind: str = ""
    payload: Raw = NOTHING
    tool_use_id: str = ""


class OtherRequest(Request, frozen=True, tag="?", gc=False):
    """A request that cannot be granted: of a subtype we do not know, or without what it cannot do without (`why`)."""

    kind: str = ""
    raw: Raw = NOTHING
    why: str = ""


CliRequest = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog | OtherRequest


class ControlRequest(msgspec.Struct, frozen=True, tag_field="type", tag="control_request", gc=False):
    request_id: str
    request: CliRequest
    number: int | None = msgspec.field(default=None, name="?")  # the id, when it came as a number: only the lenient look tells


class Response(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a request of ours went: `subtype` is success or error."""

    request_id: str
    subtype: str = ""
    response: Raw = NOTHING
    error: str | None = None
    error_code: str | None = None


class ControlResponse(msgspec.Struct, frozen=True, tag_field="type", tag="control_response", gc=False):
    response: Response


class ControlCancel(msgspec.Struct, frozen=True, tag_field="type", tag="control_cancel_request", gc=False):
    """A request is withdrawn; it needs no answer any more."""

    request_id: str


class KeepAlive(msgspec.Struct, frozen=True, tag_field="type", tag="keep_alive", gc=False):
    pass


FromCli = (
    System | Assistant | User | StreamEvent | Result | ToolProgress | ControlRequest | ControlResponse | ControlCancel | KeepAlive
)
FROM_CLI: Codec[FromCli] = Codec(FromCli)

# What a host may ask of the program, by name (spec agents 2.7). An open set: newer programs know more.
SUBTYPES = frozenset(
    {
        "initialize", "interrupt", "end_session", "set_permission_mode", "set_model", "set_max_thinking_tokens",
        "mcp_status", "mcp_set_servers", "mcp_reconnect", "mcp_toggle", "mcp_call", "mcp_read_resource", "mcp_message",
        "get_context_usage", "get_session_cost", "get_usage", "get_settings", "get_hooks_listing", "list_models",
        "list_permission_rules", "get_binary_version", "get_task_output", "file_suggestions", "read_file",
        "stop_task", "background_tasks", "cancel_async_message",
        "rename_session", "set_color", "rewind_files", "seed_read_state", "apply_flag_settings", "update_settings",
        "register_repo_root", "reload_plugins", "reload_skills", "reload_output_styles", "set_has_subscribers",
    }
)  # fmt: skip


class HostContent(msgspec.Struct, frozen=True):
    shown_as: ClassVar[str] = "Said"  # in what `serai record replay` prints
    role: Literal["user"]
    content: str | list[dict[str, Any]]


class Prompt(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    """A user's message."""

    message: HostContent
    session_id: str = ""
    uuid: str = ""
    parent_tool_use_id: str | None = None
    client_composed: bool = False


class HostRequest(msgspec.Struct, frozen=True, tag_field="type", tag="control_request"):
    request_id: str
    request: dict[str, Any]


class HostResult(msgspec.Struct, frozen=True):
    subtype: Literal["success", "error"]
    request_id: str | int
    response: dict[str, Any] = {}
    error: str = ""


class HostResponse(msgspec.Struct, frozen=True, tag_field="type", tag="control_response"):
    response: HostResult


class HostCancel(msgspec.Struct, frozen=True, tag_field="type", tag="control_cancel_request"):
    request_id: str


class HostKeepAlive(msgspec.Struct, frozen=True, tag_field="type", tag="keep_alive"):
    pass


FromHost = Prompt | HostRequest | HostResponse | HostCancel | HostKeepAlive
FROM_HOST: Codec[FromHost] = Codec(FromHost)

# Line ends to some readers of JavaScript, though not to JSON.
_ENDS = (("\u2028".encode(), rb"\u2028"), ("\u2029".encode(), rb"\u2029"))


def encode_line(frame: dict[str, Any]) -> bytes:
    """One line, or ValueError (TypeError for what no JSON has): nothing is sent that would end the program."""
    text = encode(frame)
    text = repair(text) or text
    try:
        if b"\n" in text[:-1] or b"\r" in text:  # white space between the parts of an opaque member
            text = encode(msgspec.json.decode(text))
        said = FROM_HOST.decoder.decode(text)
    except BAD_INPUT as error:
        raise ValueError(f"claude would not take this {frame.get('type')} line: {error}") from None
    if isinstance(said, Prompt) and not _is_content(said.message.content):
        raise ValueError("claude would not take this prompt: it is empty, or has a block without a type")
    if isinstance(said, HostRequest) and not (isinstance(subtype := said.request.get("subtype"), str) and subtype):
        raise ValueError("claude would not take this control_request: its request has no subtype")
    for end, escaped in _ENDS:
        if end in text:
            text = text.replace(end, escaped)
    return text


def _is_content(content: str | list[dict[str, Any]]) -> bool:
    return bool(content) and (isinstance(content, str) or all(isinstance(one.get("type"), str) for one in content))
