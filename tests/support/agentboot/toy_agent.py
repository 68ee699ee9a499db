"""A small agent of the seed's kind: its frames are `say`, `ask`, `question`, `withdraw`, `turn`, `quiet` and `result`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from serai.compat.agentboot import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    Event,
    EventKind,
    ExecutionOptions,
    FakeFactory,
    FakeProcess,
    Handle,
    LaunchSpec,
    MessageEvent,
    RequestCancelled,
    Runner,
    RunnerConfig,
    StreamEvent,
    Waited,
)
from serai.limits import Limits

PATIENT = Limits().but(exit_grace=15.0, drain_grace=15.0)
Play = Callable[[LaunchSpec, FakeProcess], Awaitable[None]]


class Toy:
    """A driver: its program is whoever plays it."""

    def __init__(self, command: Sequence[str] = ("toy",), *, available: bool = True, **spec: Any) -> None:
        self._command = list(command)
        self._available = available
        self._spec = spec

    def prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        given: dict[str, Any] = {
            "initial_input": ({"type": "prompt", "text": prompt},),
            "work_dir": opts.project_path,
            **self._spec,
        }
        return LaunchSpec(command=list(self._command), **given)

    def is_available(self) -> bool:
        return self._available

    def type(self) -> str:
        return "toy"


class ToyTransport:
    """Stamps what it was told to, as the seed's transports do."""

    def __init__(self) -> None:
        self.stamps: dict[str, Any] = {}
        self.taken: list[str] = []

    def set_execution_context(self, session_id: str, chat_id: str, platform: str, bot_uuid: str) -> None:
        self.stamps = {"session_id": session_id, "chat_id": chat_id, "platform": platform, "bot_uuid": bot_uuid}

    def classify(self, event: Event) -> tuple[EventKind, StreamEvent | None]:
        data = event.data
        match event.type:
            case "say":
                return EventKind.MESSAGE, None
            case "ask":
                given = {"tool_name": data.get("tool", "Bash"), "input": data.get("input", {})}
                return EventKind.CONTROL, ApprovalRequestEvent(id=data["id"], **given, **self.stamps)
            case "question":
                return EventKind.CONTROL, AskRequestEvent(id=data["id"], message=data.get("text", ""), **self.stamps)
            case "withdraw":
                return EventKind.CONTROL, RequestCancelled(data["id"])
            case "turn":
                return EventKind.TURN_END, None
            case "result":
                return EventKind.TERMINAL_ERROR if data.get("is_error") else EventKind.TERMINAL_SUCCESS, None
            case "bad":
                raise RuntimeError("cannot read that")
        return EventKind.IGNORE, None

    def accumulate_message(self, event: Event) -> list[Any]:
        self.taken.append(event.data["text"])
        return [event.data["text"]]

    def encode_control_response(self, request_id: str, response: ControlResponse, original_input: dict[str, Any]) -> Any:
        if isinstance(response, AskResponse):
            return {"id": request_id, "approved": response.approved, "answer": response.response, "selection": response.selection}
        given = original_input if response.updated_input is None else response.updated_input
        return {"id": request_id, "approved": response.approved, "input": given, "reason": response.reason}


def say_frame(text: str) -> dict[str, Any]:
    return {"type": "say", "text": text}


def result(text: str = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "result", "result": text, **fields}


async def exit_when_stdin_closes(process: FakeProcess, code: int = 0) -> None:
    """As a good program ends: when its input does."""
    await process.stdin_closed.wait()
    process.finish_output()
    process.signal_exit(code)


def play_frames(*frames: dict[str, Any] | bytes | str) -> Play:
    """Waits for the prompt, says all of this, and ends with its input. A request is waited for."""

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        number = 1
        await process.stdin_line(0)
        for frame in frames:
            process.write_output(frame)
            if isinstance(frame, dict) and frame.get("type") in ("ask", "question"):
                await process.stdin_line(number)
                number += 1
        await exit_when_stdin_closes(process)

    return play


def runner(
    play: Play | None = None,
    *,
    driver: Toy | None = None,
    transport: Any = ToyTransport,
    factory: FakeFactory | None = None,
    config: RunnerConfig | None = None,
    limits: Limits = PATIENT,
    deaf: bool = False,
) -> Runner:
    factory = factory or FakeFactory(play, deaf=deaf, limits=limits)
    return Runner(driver or Toy(), transport, factory, config=config, limits=limits)


async def collect_events(handle: Handle, answer: ApprovalResponse | None = None) -> list[StreamEvent]:
    """All of its events; approvals are answered so, if they are to be."""
    events = []
    async for event in handle.events():
        events.append(event)
        if isinstance(event, ApprovalRequestEvent) and answer is not None:
            await handle.respond(event.id, answer)
    return events


def texts(events: Sequence[StreamEvent]) -> list[Any]:
    return [event.raw for event in events if isinstance(event, MessageEvent)]


async def run(play: Play, options: ExecutionOptions | None = None, **made: Any) -> tuple[list[StreamEvent], Waited]:
    """A whole run, its approvals answered with yes."""
    handle = await runner(play, **made).execute("go", options)
    events = await collect_events(handle, ApprovalResponse(approved=True))
    return events, await handle.wait()


class Store:
    """A lifecycle store that remembers what it was told."""

    def __init__(self, *, broken: bool = False) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._broken = broken

    def _told(self, *call: str) -> bool:
        self.calls.append(call)
        if self._broken:
            raise OSError("the disk is full")
        return True

    def set_running(self, session_id: str) -> bool:
        return self._told("running", session_id)

    def set_completed(self, session_id: str, response: str) -> bool:
        return self._told("completed", session_id, response)

    def set_failed(self, session_id: str, message: str) -> bool:
        return self._told("failed", session_id, message)
