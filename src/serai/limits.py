"""Every deadline and every size, each with its reason: a record for each layer, and `Limits` with all of them.

A dialect ships its own values (`Limits().but(frame=4 * MIB)`), a person overrides them by name in the configuration, and every
error that a limit causes names it. `None` for a deadline means "wait for ever"; only a person's configuration may say that
(design rule 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Self

KIB = 1024
MIB = 1024 * KIB
HOUR = 3600.0


def _limit(value: float, unit: str, why: str) -> Any:
    """A field that carries its reason, so that documentation and error messages can show it."""
    return field(default=value, metadata={"unit": unit, "why": why})


@dataclass(frozen=True, kw_only=True)
class LimitSet:
    """Named positive numbers. Immutable; `but` makes a changed copy."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None and "None" in str(item.type):
                continue
            if not isinstance(value, int | float) or not 0 < value < inf:
                raise ValueError(f"the limit {item.name} must be a positive number, not {value!r}")

    def but(self, **changes: float | None) -> Self:
        """A copy with some limits changed; an unknown name is a `TypeError` at once."""
        return replace(self, **changes)

    def changes(self) -> dict[str, float | None]:
        """What differs from the defaults, by name."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) != item.default}

    @classmethod
    def explain(cls) -> list[tuple[str, object, str, str]]:
        """`(name, default, unit, why)` of every limit, in order: the table of the documentation."""
        return [(item.name, item.default, item.metadata["unit"], item.metadata["why"]) for item in fields(cls)]


@dataclass(frozen=True, kw_only=True)
class WireLimits(LimitSet):
    """Frames, requests and processes."""

    frame: int = _limit(
        64 * MIB, "bytes", "one line with its newline; a base64 screenshot passes 1 MiB and a replayed session 16 MiB"
    )
    frame_head: int = _limit(4 * KIB, "bytes", "what is kept of an oversize frame: enough to find the id of the call it answers")
    send: int = _limit(64 * MIB, "bytes", "the longest frame we send; a dialect sets what its peers can read")
    read: int = _limit(64 * KIB, "bytes", "one read; larger reads cost a large allocation each and make other wires wait")
    read_slice: float = _limit(0.0005, "seconds", "a busy wire reads again at once only this long, then the others get their turn")
    backlog: int = _limit(64 * MIB, "bytes", "frames waiting for a peer that does not read; beyond it the sender is told")
    pipe: int = _limit(1 * MIB, "bytes", "a pipe grows to this when a frame does not fit; small by default, for 500 guests' sake")
    stderr_tail: int = _limit(64 * KIB, "bytes", "the last of a peer's stderr, for error messages; the rest is drained")
    noise_tail: int = _limit(64 * KIB, "bytes", "the last of what a peer printed where only frames, or nothing, should be")
    requests: int = _limit(1000, "requests", "a peer's requests being served at once; beyond it they are refused")
    call: float | None = _limit(HOUR, "seconds", "an answer to a call for which the dialect sets no deadline of its own")
    exit_grace: float = _limit(1.0, "seconds", "from end of output to exit: only then is the exit status part of the error")
    drain_grace: float = _limit(1.0, "seconds", "from exit to end of output: a grandchild may hold the pipe for ever")
    stop_polite: float = _limit(2.0, "seconds", "after the polite frame and the end of its input, before SIGTERM")
    stop_term: float = _limit(2.0, "seconds", "after SIGTERM, before SIGKILL of the whole tree")
    stop_kill: float = _limit(5.0, "seconds", "for the kernel to end what was killed; past it the survivors are reported")
    see: float = _limit(1.0, "seconds", "how old the watchdog's picture of the descendants may be")


@dataclass(frozen=True, kw_only=True)
class CallLimits(WireLimits):
    """What tools, guests and agents share: calls, and how they end."""

    hello: float = _limit(10.0, "seconds", "from a guest's start to its first frame; a mute one must not hang the others")
    tool: float | None = _limit(HOUR, "seconds", "a guest's tool; a dialect sets its own, such as 60 for zot")
    compact: float = _limit(30.0, "seconds", "to shorten a conversation by a guest's compactor (spec piglet 2.7)")
    model_answer: int = _limit(8 * MIB, "bytes", "one answer of a model, its calls included; more is no answer but a fault")
    interrupt: float = _limit(5.0, "seconds", "for an interrupted turn to end by itself (spec agents 2.13)")
    drain: float = _limit(10.0, "seconds", "what a replaced guest still has under way may take so long to end")


@dataclass(frozen=True, kw_only=True)
class ToolLimits(CallLimits):
    """The built-in tools."""

    shell: float = _limit(120.0, "seconds", "a command of the built-in `bash` that does not ask for another time")
    shell_most: float = _limit(600.0, "seconds", "the longest time that a call of `bash` may ask for")
    search: float = _limit(30.0, "seconds", "a call of the built-in `grep` or `find`; a pattern may be hopeless, a tree endless")
    tool_output: int = _limit(48 * KIB, "bytes", "what a built-in tool tells the model; of more it gets the beginning and the end")
    read_file: int = _limit(16 * MIB, "bytes", "the longest file that the built-in `read` and `edit` look into")
    undo: int = _limit(10 * MIB, "bytes", "the longest file of which a copy is kept before it is changed (spec piglet 6.10)")


@dataclass(frozen=True, kw_only=True)
class PolicyLimits(WireLimits):
    """What a person is asked, and what is remembered of it."""

    approval: float = _limit(300.0, "seconds", "for a person to answer; then it is a no (spec agents 2.14). At most an hour")
    remember: int = _limit(1, "days", "a decision remembered for a session or a project (spec agents 1.16)")


@dataclass(frozen=True, kw_only=True)
class StoreLimits(LimitSet):
    """Session files."""

    session_lock: float = _limit(10.0, "seconds", "for another process to give back the lock of a session")
    session_line: int = _limit(10 * MIB, "bytes", "one entry of a session: what other readers take (spec piglet 6.1)")
    session_meta: int = _limit(48 * KIB, "bytes", "so much is written to a session before its title and model are written again")


@dataclass(frozen=True, kw_only=True)
class RecordLimits(LimitSet):
    """Recordings."""

    record_batch: float = _limit(0.05, "seconds", "frames wait so long to be written together: what a killed host loses")
    record_memory: int = _limit(16 * MIB, "bytes", "frames waiting for the disk; beyond it they are dropped, counted and told")
    record_segment: int = _limit(64 * MIB, "bytes", "a recording goes on in a new file beyond this, so that old parts can go")
    record_total: int = _limit(1024 * MIB, "bytes", "all recordings together; beyond it the oldest files go")
    record_age: int = _limit(14, "days", "older recordings go when a new one starts")


@dataclass(frozen=True, kw_only=True)
class HostLimits(CallLimits):
    """Guests: their start, their answers, their restarts."""

    ready: float = _limit(3.0, "seconds", "from a guest's hello to its ready; then it is taken as it is")
    ready_idle: float = _limit(
        0.25, "seconds", "a guest that says nothing for so long after its hello counts as ready (spec zot 2.2)"
    )
    command: float | None = _limit(HOUR, "seconds", "a guest's command; a dialect sets its own")
    intercept: float = _limit(30.0, "seconds", "one interceptor's answer; everything waits for it")
    inject: float = _limit(10.0, "seconds", "one guest's message hook; the turn waits for it (spec piglet 2.7)")
    transform: float = _limit(10.0, "seconds", "one guest's input transformer; the person waits for it (spec piglet 2.7)")
    shortcut: float = _limit(60.0, "seconds", "what a guest does for a pressed key (spec piglet 2.7)")
    event: float = _limit(60.0, "seconds", "a guest's answer to one event; the events behind it wait, nobody else does")
    flush: float = _limit(5.0, "seconds", "for a guest to take the last events of a run before it is stopped (spec piglet FIX-17)")
    provider: float | None = _limit(HOUR, "seconds", "one answer of a model that a guest streams")
    service: float = _limit(
        300.0, "seconds", "a tool, a model call or a private agent that a guest asks the host for (spec piglet 2.7)"
    )
    events: int = _limit(1000, "events", "waiting for a guest that is behind; beyond it the oldest events go, never a request")
    log: int = _limit(1 * MIB, "bytes", "a guest's log; beyond it the older half goes to a second file")
    registrations: int = _limit(1000, "names", "tools and commands of one guest; beyond it they are not taken, and that is told")
    registered: int = _limit(8 * MIB, "bytes", "all that one piglet guest registers; beyond it is not taken, and that is told")
    log_flood: int = _limit(64 * MIB, "bytes", "a guest that writes more into its log between two looks is ended")
    restarts: int = _limit(5, "starts", "again after a crash; then it stays down until it is reloaded")
    restart_wait: float = _limit(1.0, "seconds", "before the first start again; doubles with each crash")
    restart_wait_most: float = _limit(16.0, "seconds", "the longest wait before a start again")
    restart_healthy: float = _limit(30.0, "seconds", "a guest that lived so long has its restarts forgotten")
    reload_wait: float = _limit(0.5, "seconds", "after the last change of a guest's files, before it is started anew")


@dataclass(frozen=True, kw_only=True)
class BoxLimits(RecordLimits, WireLimits):
    """Boxes and their hooks."""

    hook_timeout: float = _limit(
        60.0, "seconds", "one run of a hook; then its whole tree is ended and it has failed (spec hooks 1.12)"
    )
    hook_grace: float = _limit(5.0, "seconds", "from SIGTERM to SIGKILL of the tree of a hook that was too long")
    hook_eof: float = _limit(2.0, "seconds", "from a hook's exit to its last output: a grandchild may still be writing it")
    hook_max_output: int = _limit(64 * MIB, "bytes", "what a hook may print; more ends it")
    hook_state: int = _limit(1 * MIB, "bytes", "the state of one hook: it is kept in the record of the box")
    max_inject_bytes: int = _limit(48 * MIB, "bytes", "all files that one create puts into a box")
    max_inject_files: int = _limit(4096, "files", "all files that one create puts into a box")
    box_start: float = _limit(30.0, "seconds", "from the start of a box to the first answer of its porter")
    box_script: float = _limit(300.0, "seconds", "the init script of a box; then it is ended and the box is broken")
    box_exec: float | None = _limit(HOUR, "seconds", "a command in a box for which the caller sets no time of its own")
    box_frame: int = _limit(16 * MIB, "bytes", "one frame between a porter and us (spec hooks 4)")
    box_dial: float = _limit(10.0, "seconds", "to reach a port inside a box")
    box_stop: float = _limit(5.0, "seconds", "for all processes of a box to be gone once they are killed")
    box_missing: float = _limit(60.0, "seconds", "a record this young is left alone although its backend does not list the box")
    box_tombstone: int = _limit(1, "days", "so long the record of a box that is gone tells why")


@dataclass(frozen=True, kw_only=True)
class AgentLimits(ToolLimits, PolicyLimits):
    """Turns: the resident's models, driven agents, what waits for a reader."""

    steps: int = _limit(30, "calls", "of the model for one prompt; a model that goes in circles must end (spec piglet 6.4)")
    background_steps: int = _limit(5, "calls", "of the model for one prompt in the background (spec piglet 6.7)")
    history: int = _limit(200, "messages", "of a conversation that a model is sent: the first and the newest (spec piglet 6.4)")
    tools_at_once: int = _limit(10, "calls", "of tools that one answer of the model may have running (spec piglet 6.4)")
    model_calls: int = _limit(1000, "calls", "of tools in one answer of a model; more is no answer but a fault")
    model_attempts: int = _limit(3, "calls", "of the model for one step, when it is overloaded or cannot be reached")
    model_wait: float = _limit(0.5, "seconds", "before the second attempt; doubles with each (spec piglet 6.4)")
    model_wait_most: float = _limit(5.0, "seconds", "the longest wait before an attempt that we choose ourselves")
    model_wait_told: float = _limit(60.0, "seconds", "the longest wait that a provider may ask for; beyond it the step has failed")
    model_connect: float = _limit(15.0, "seconds", "to reach a provider; one that cannot be reached is tried again")
    model_idle: float = _limit(300.0, "seconds", "between two pieces of an answer; a model that thinks may say nothing for minutes")
    agent_version: float = _limit(5.0, "seconds", "for an agent program to tell its version (spec agents 2.1)")
    agent_first: float = _limit(60.0, "seconds", "from an agent program's start to its first frame (spec agents 2.14)")
    agent_control: float = _limit(60.0, "seconds", "an agent's answer to a request, such as for another mode (spec agents 2.14)")
    agent_turn: float | None = _limit(HOUR, "seconds", "one prompt of a driven agent, by the clock on the wall: retries hold it up")
    agent_silent: float = _limit(300.0, "seconds", "an agent that says nothing for so long in a turn is told of as stalled")
    agent_background: float = _limit(600.0, "seconds", "for what an agent does on the side after its turn (spec agents 2.11)")
    agent_hook: float = _limit(600.0, "seconds", "for guards and rules to say of an agent's call; then it does not run")
    agent_stop: float = _limit(5.0, "seconds", "for an agent program to end by itself, and again after SIGTERM (spec agents 2.13)")
    mcp_clients: int = _limit(16, "clients", "of one agent at once at the endpoint for guests' tools; beyond it none is let in")
    mcp_stall: float = _limit(60.0, "seconds", "for such a client to take anything of what waits for it; then it is hung up on")
    waiting: int = _limit(1000, "events", "that nobody has read yet; then whoever can wait does, and pieces of text are joined")
    inputs: int = _limit(50, "texts", "typed while a turn runs; what comes beyond is refused (spec piglet 6.8)")
    tool_result: int = _limit(
        512 * KIB, "characters", "of text that a model is told of one result; of more the beginning and the end"
    )


@dataclass(frozen=True, kw_only=True)
class Limits(StoreLimits, AgentLimits, BoxLimits, HostLimits):
    """All of them."""
