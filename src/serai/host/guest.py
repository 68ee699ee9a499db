"""One guest: its place in the house, whatever state it is in, and what is asked of it.

A guest that is down stays in place (design rule 8): its tools answer `TOOL_UNAVAILABLE`, its interceptors answer by their
`on_failure`. `supervising` sees to its process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, cast

from serai.errors import SeraiError
from serai.host.adapter import Handles
from serai.host.life import State
from serai.host.logs import flooded
from serai.host.outcomes import code_of, command_code
from serai.host.supervising import Supervised
from serai.model.actions import CommandResult, NoAction, OpenPanel
from serai.model.contributions import Interceptor, InterceptPoint, InterceptResult, Pass, Refuse
from serai.model.events import Event
from serai.model.tools import ToolCall, ToolResult

__all__ = ["Guest", "State"]

_PASS = Pass()


class Guest(Supervised):
    """A guest as the host knows it."""

    @property
    def down(self) -> bool:
        return self.running is None

    def way(self) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        """What runs its tools at this moment; what goes wrong raises, and `failed` says what is told of it."""
        return self._unavailable if self.running is None else self.running.call_tool

    def failed(self, call: ToolCall, error: SeraiError) -> ToolResult:
        """An error result with a code of its own for each kind of failure (design rule 7), in the words of the dialect."""
        explain = self.house.adapter(self.manifest).explain
        return ToolResult.error(explain("tool", self.manifest.name, call.name, error), code=code_of(error), hint=error.hint)

    async def run_command(self, name: str, args: str) -> CommandResult:
        running = self.running
        if running is None:
            return CommandResult(NoAction(), f"extension /{name}: {self.why_down()}", "COMMAND_UNAVAILABLE")
        try:
            action = await running.run_command(name, args)
            if isinstance(action, OpenPanel) and running is not self.running:  # replaced meanwhile: who would draw it?
                action = NoAction()
            return CommandResult(action)
        except SeraiError as error:
            explain = self.house.adapter(self.manifest).explain
            return CommandResult(NoAction(), explain("command", self.manifest.name, name, error), command_code(error))

    async def handle(self, key: str) -> CommandResult:
        """A pressed shortcut; what goes wrong is told at once, as nobody waits for it (spec piglet 5.5)."""
        running = self.running
        why, code = self.why_down(), "COMMAND_UNAVAILABLE"
        if running is not None:
            try:
                return CommandResult(await cast("Handles", running).handle(key))
            except SeraiError as error:
                why, code = self.cause(error), command_code(error)
        text = f"ext {self.manifest.shown} shortcut {key}: {why}"
        self.house.notify("error", text)
        return CommandResult(NoAction(), text, code)

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any) -> InterceptResult:
        """Its verdict; what no verdict means is said by `on_failure`, or by its being a guard."""
        running = self.running
        if running is None:
            return self._no_verdict(interceptor, stage, self.why_down())
        asked = object()
        self.judging.add(asked)
        try:
            return await running.intercept(interceptor, stage, subject)
        except SeraiError as error:
            self.remark(f"intercept {stage} failed: {self.cause(error)}")
            return self._no_verdict(interceptor, stage, f"{self.id}: {self.cause(error)}")
        finally:
            self.judging.discard(asked)

    def tell(self, event: Event) -> None:
        if (running := self.running) is not None:
            running.tell(event)

    def unheld(self) -> str:
        """Why it is a guard and does not hold, or "". While it is down, its interceptors refuse by themselves.

        One that has not subscribed holds nothing: not before its first word, and after a crash not before it has said all of it
        again (design rule 8).
        """
        if not self.guard or self.state is State.STOPPED:
            return ""
        if not self.ever_ready:
            return self.why_down()
        stages = self._stages()
        if not stages:
            return f"{self.id} intercepts nothing"
        if missing := self._held - stages:
            return f"{self.id} does not intercept {', '.join(sorted(missing))} again yet"
        return ""

    def trim_log(self) -> None:
        """Keep its log small. One that fills the disk between two looks is ended at once, and started again as after any crash."""
        if self.log is None or not (written := self.log.look()):
            return
        flood = flooded(written, self.limits.log_flood, self.id)
        if flood is not None and not self._leaving:  # one that leaves may be the one, and ends anyway
            self._why = flood
            if self.running is not None and self.running.pid > 0:  # 0: it has no process, and to us it would be our own group
                os.kill(self.running.pid, signal.SIGKILL)
            elif self._launching is not None:
                self._launching.cancel()

    def _no_verdict(self, interceptor: Interceptor, stage: InterceptPoint, why: str) -> InterceptResult:
        # A result is there already: who cannot look at it is passed over, but for a guard (spec piglet 5.3).
        if not self.guard and (interceptor.on_failure == "open" or stage == "tool_result"):
            return _PASS
        return Refuse(f"{stage} refused: no answer from the {'guard' if self.guard else 'interceptor'} ({why})")

    def _joined(self) -> None:
        self.house.joined(self)

    async def _unavailable(self, call: ToolCall) -> ToolResult:
        hint = "the guest is down: try again later, or do without this tool"
        return ToolResult.error(f"{call.name} is not available: {self.why_down()}", code="TOOL_UNAVAILABLE", hint=hint)
