"""What a mock agent shall do: steps, as values, as plain data, or as text in TOML or JSON (spec agents 5.1).

    [[steps]]
    type = "assistant"
    text = "I will look at {prompt}"

    [[steps]]
    type = "permission"
    tool = "bash"
    input = { command = "ls" }

`{prompt}` in what it says is what it was told.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import msgspec

from serai.errors import BadSettings, SeraiError

LINEAR_TOOLS = ("mock_tool_read", "mock_tool_write", "mock_tool_execute", "mock_tool_search", "mock_tool_analyze")
LINEAR_TEXT = "[Mock Step {step}/{total}] Processing: {prompt}"
ASK_TOOL = "AskUserQuestion"  # that a question comes from

Status = Literal["success", "error", "cancelled", "permission_denied", "ask_denied"]


class MockStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Misspelt words are told, not ignored."""


class Assistant(MockStep, frozen=True, kw_only=True, tag="assistant"):
    """It says something. Right after stream deltas that say the same it is their whole."""

    text: str


class StreamDelta(MockStep, frozen=True, kw_only=True, tag="stream_delta"):
    """A piece of what it says."""

    text: str


class Thinking(MockStep, frozen=True, kw_only=True, tag="thinking"):
    text: str


class ToolUse(MockStep, frozen=True, kw_only=True, tag="tool_use"):
    """It uses a tool and asks nobody."""

    tool: str
    input: dict[str, Any] = {}
    id: str = ""


class ToolResult(MockStep, frozen=True, kw_only=True, tag="tool_result"):
    """What came of the tool of this id, or of the one that was used last. Left out when its use was denied."""

    text: str = ""
    is_error: bool = False
    id: str = ""


class Permission(MockStep, frozen=True, kw_only=True, tag="permission"):
    """It wants to use a tool, and asks. `step` and `total` are told along."""

    tool: str
    input: dict[str, Any] = {}
    reason: str = ""
    id: str = ""
    expect_approved: bool | None = None  # what the decision should be; another one makes the turn fail
    on_deny_terminate: bool = True  # a no ends the turn
    step: int = 0
    total: int = 0


class Ask(MockStep, frozen=True, kw_only=True, tag="ask"):
    """It asks something. A question is a text, or `{question, header?, options?, multiSelect?}` as Claude Code has it.

    `expect_answers` has them by the question's text, or by its place: "0" is the first.
    """

    questions: tuple[str | dict[str, Any], ...]
    id: str = ""
    expect_answers: dict[str, Any] | None = None
    on_deny_terminate: bool = True
    step: int = 0
    total: int = 0


class Result(MockStep, frozen=True, kw_only=True, tag="result"):
    """The turn is over. What follows in the script is not played."""

    status: Status = "success"
    message: str = ""  # else what it said last
    error: str = ""
    cost_usd: float | None = None
    duration_ms: int = 0


class Error(MockStep, frozen=True, kw_only=True, tag="error"):
    """Something went wrong that it can live with: it is told, and the turn goes on."""

    message: str


class Fail(MockStep, frozen=True, kw_only=True, tag="fail"):
    """The turn fails with this error; a text is that of an `AgentFailed`."""

    error: Any = "the mock agent failed, as its script says"
    kind: str = "error"

    def __post_init__(self) -> None:
        if not isinstance(self.error, str | SeraiError):
            raise TypeError("`error` is a text or an error of serai.errors")


class Wait(MockStep, frozen=True, kw_only=True, tag="wait"):
    """Until the event is set; without one, for so many seconds. `reached` is set when it waits."""

    event: Any = None  # asyncio.Event
    reached: Any = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if any(not isinstance(one, asyncio.Event | None) for one in (self.event, self.reached)):
            raise ValueError("`event` and `reached` are asyncio.Events: a script in a text has `seconds`")
        if not 0 <= self.seconds < 86400:
            raise ValueError("`seconds` is between 0 and a day")


class Background(MockStep, frozen=True, kw_only=True, tag="background"):
    """When this turn is over it begins one by itself: these steps. `prompt` is what that is about."""

    steps: tuple[Step, ...]
    prompt: str = "background"


Step = (
    Assistant | StreamDelta | Thinking | ToolUse | ToolResult | Permission | Ask | Result | Error | Fail | Wait | Background
)  # fmt: skip


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `steps`, which every prompt plays, or `turns`: the first for the first prompt, and so on; the last one again."""

    steps: tuple[Step, ...] = ()
    turns: tuple[tuple[Step, ...], ...] = ()
    fail_with: str = ""  # it cannot even be opened, and says this

    def __post_init__(self) -> None:
        if self.steps and self.turns:
            raise ValueError("a script has `steps` or `turns`")

    def get_steps(self, number: int) -> tuple[Step, ...]:
        """What the prompt of this number plays; the first is 0."""
        return self.turns[min(number, len(self.turns) - 1)] if self.turns else self.steps

    @classmethod
    def from_data(cls, said: Script | str | bytes | Mapping[str, Any] | Iterable[Any] | None) -> Self | Script:
        """From whatever somebody has at hand. Nothing at all is the linear script."""
        if said is None:
            return build_linear()
        if isinstance(said, Script):
            return said
        data = _parse(said) if isinstance(said, str | bytes) else said
        data = {"steps": data} if not isinstance(data, Mapping) else data
        plain = {key: _to_plain(value) for key, value in data.items()}
        try:
            return msgspec.convert(plain, Script)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise _make_error(str(error)) from None


def build_linear(steps: int = 5, *, question_every: int = 0) -> Script:
    """Asks for permission `steps` times, or a question every so many of them, and says something after each (spec agents 5.1)."""
    played: list[Step] = []
    for number in range(1, steps + 1):
        if question_every and number % question_every == 0:
            asked = {"question": f"How shall step {number} go on?", "options": [{"label": "Continue"}, {"label": "Skip"}]}
            played.append(Ask(questions=(asked,), step=number, total=steps))
        else:
            tool = LINEAR_TOOLS[(number - 1) % len(LINEAR_TOOLS)]
            played.append(Permission(tool=tool, input={"step": number}, step=number, total=steps))
        played.append(Assistant(text=LINEAR_TEXT.replace("{step}", str(number)).replace("{total}", str(steps))))
    return Script(tuple(played))


def _parse(text: str | bytes) -> Any:
    """JSON begins with a bracket, which no useful TOML of ours does: its tables have two, and a name."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        start = text.lstrip()
        if start.startswith("{") or (start.startswith("[") and start[1:].lstrip()[:1] in ("{", "]")):
            return json.loads(text)
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _make_error(f"it is neither TOML nor JSON: {error}") from None


def _to_plain(value: Any) -> Any:
    """Steps may be values or plain data, also side by side; msgspec takes values as they are only where no tag is looked for."""
    if isinstance(value, MockStep):
        fields = {name: _to_plain(getattr(value, name)) for name in value.__struct_fields__}
        return {"type": value.__struct_config__.tag, **fields}
    if isinstance(value, Mapping):
        return {key: _to_plain(one) for key, one in value.items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return tuple(_to_plain(one) for one in value)


def _make_error(why: str) -> BadSettings:
    return BadSettings(why, who="the script of the mock agent", hint="its steps are in serai.agents.drivers.mock.script")
