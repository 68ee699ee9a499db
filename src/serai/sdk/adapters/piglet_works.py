"""Requests of a piglet host on their way to their answer: what goes wrong is an error of JSON-RPC (spec piglet 2.4)."""

from __future__ import annotations

from serai.sdk import handler_results
from serai.sdk.adapters.piglet import FAILED, INVALID, Piglet
from serai.sdk.answers import ToolError
from serai.sdk.workers import CommandAnswer, InterceptAnswer, PendingAnswer, ToolAnswer


def _failure(work: PendingAnswer, error: BaseException) -> bytes:
    adapter = work.adapter
    assert isinstance(adapter, Piglet)
    if isinstance(error, handler_results.NoHandler):
        return adapter.failure(work.id, INVALID, error.unknown)
    return adapter.failure(work.id, FAILED, handler_results.reason(error, work.name) or f"{work} failed and gave no reason")


class _Tool(ToolAnswer):
    def failure(self, error: BaseException) -> bytes:
        """A `ToolError` is a result for the model; all else is a tool that broke."""
        if isinstance(error, ToolError) and not isinstance(error, handler_results.NoHandler):
            return super().failure(error)
        return _failure(self, error)


class _Command(CommandAnswer):
    def failure(self, error: BaseException) -> bytes:
        return _failure(self, error) if isinstance(error, handler_results.NoHandler) else super().failure(error)


class _Question(InterceptAnswer):
    """A guard that stumbles is an error, and so blocks (spec piglet 5.3)."""

    failure = _failure


class _Any(PendingAnswer):
    """What settles it is what goes out."""

    kind = "request"

    def frame(self, value: object) -> bytes:
        assert isinstance(self.adapter, Piglet)
        return self.adapter.result(self.id, value)

    failure = _failure


KINDS: dict[str, type[PendingAnswer]] = {work.kind: work for work in (_Tool, _Command, _Question, _Any)}
