"""One request, on its way to its one answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from serai.sdk import results
from serai.sdk.adapters import Adapter
from serai.sdk.answers import ToolError
from serai.sdk.calls import Call
from serai.sdk.remarks import Remarks

__all__ = ["KINDS", "CommandWork", "QuestionWork", "ToolWork", "Work"]


class Work(ABC):
    """What its handler returns is settled, what it raises fails it; `answer` sends the frame if no other went before."""

    kind: ClassVar[str]

    def __init__(self, id: str, name: str, adapter: Adapter, remarks: Remarks, answer: Callable[[Work, bytes], None]) -> None:
        self.id, self.name = id, name
        self.call = Call(id, name)
        self.claimed = False  # an answer is on its way
        self.adapter, self._remarks, self._answer = adapter, remarks, answer

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @abstractmethod
    def frame(self, value: object) -> bytes:
        """The answer when its handler returned this; raises when that is none."""

    @abstractmethod
    def failure(self, error: BaseException) -> bytes:
        """The answer when it raised this."""

    def settle(self, value: object) -> None:
        try:
            frame = self._fitting(self.frame(value))
        except BaseException as error:  # also what a value's own methods raise
            self.fail(error)
        else:
            self._answer(self, frame)

    def fail(self, error: BaseException) -> None:
        if not (self.claimed or isinstance(error, ToolError) or results.was_cancelled(error)):
            self._remarks.trace(f"{self} failed", error)
        try:
            frame = self._fitting(self.failure(error))
        except BaseException:  # its text cannot be told, or is too long to be told
            frame = self.failure(ToolError(f"{self} failed, and its error cannot be told"))
        self._answer(self, frame)

    def expire(self, seconds: float) -> None:
        """Its time is over, however its handler does."""
        if not self.claimed:
            self.fail(ToolError(f"{self} took longer than {seconds:g} seconds and was given up"))
            self.call.cancel()

    def _fitting(self, frame: bytes) -> bytes:
        most = self.adapter.max_line
        if len(frame) > most and max(map(len, frame.split(b"\n"))) >= most:  # an answer may be several lines
            text = f"the answer has {len(frame)} bytes, and {self.adapter.dialect} carries {most}"
            raise ToolError(f"{text}: ask for less, or write it into a file")
        return frame


class ToolWork(Work):
    kind = "tool"

    def frame(self, value: object) -> bytes:
        return self.adapter.tool_answer(self.id, results.resulted(value))

    def failure(self, error: BaseException) -> bytes:
        return self.adapter.tool_answer(self.id, results.failed_result(error, self.name))


class CommandWork(Work):
    kind = "command"

    def frame(self, value: object) -> bytes:
        return self.adapter.command_answer(self.id, results.answered(value))

    def failure(self, error: BaseException) -> bytes:
        return self.adapter.command_answer(self.id, results.failed_answer(error, self.name))


class QuestionWork(Work):
    kind = "question"

    def frame(self, value: object) -> bytes:
        return self.adapter.verdict(self.id, results.judged(value, self.name))

    def failure(self, error: BaseException) -> bytes:
        return self.adapter.verdict(self.id, results.failed_verdict(error, self.name))


KINDS: dict[str, type[Work]] = {work.kind: work for work in (ToolWork, CommandWork, QuestionWork)}
