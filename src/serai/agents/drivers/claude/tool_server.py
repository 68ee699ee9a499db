"""Our tools for Claude: an MCP server inside the control protocol, with no process of its own (spec agents 2.7).

A call is decided where it runs, by the `ToolBox` that we were given; Claude's own permission request for it is answered with yes,
because a call is decided once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from serai.agents.drivers.claude.connection import ClaudeConnection
from serai.agents.drivers.claude.launch import SERVER
from serai.agents.tool_results import fit_for_model
from serai.dialects.claude.events import McpMessage
from serai.dialects.claude.tools import ASKER, ToolMap
from serai.dialects.mcp.events import Called, Cancelled, Reply
from serai.dialects.mcp.peer_side import PeerSide
from serai.errors import NoApproval
from serai.model.events import Event, ToolProgress
from serai.model.tools import ToolBox, ToolCall, ToolResult
from serai.version import __version__

log = logging.getLogger("serai.agents")

_INTERNAL = -32603
_NO_SERVER = -32601


class ToolServer:
    """Serves the tools of one session. `tell` is for what a tool says while it works."""

    def __init__(self, tools: ToolBox | None, tell: Callable[[Event], None], most: int) -> None:
        """`most`: characters of one result."""
        self._box = tools
        self._most = most
        self._tell = tell
        self._server = PeerSide(SERVER, __version__, lambda: () if tools is None else tools.list())
        self._running: dict[bytes, asyncio.Task[ToolResult]] = {}  # by the id of the call
        self.tools = ToolMap(self._resolve_name)

    def _resolve_name(self, name: str) -> str | None:
        return self._server.names.find_original(name)

    def build_list_changed(self) -> dict[str, Any] | None:
        """What to tell it before a turn, when the tools are others than it knows: guests come and go."""
        try:
            message = self._server.notify_tools_changed() if self._server.changed else None
        except Exception:  # whoever has the tools: a turn needs none
            log.exception("the tools could not be listed")
            return None
        if message is None:
            return None
        return {"server_name": SERVER, "message": Raw(message)}

    async def serve(self, heard: McpMessage, connection: ClaudeConnection) -> None:
        """One message, and its answer when there is one. Withdrawn, the call ends."""
        try:
            frame = await self._build_frame(heard, connection)
        except NoApproval:  # withdrawn in the meantime
            return
        await connection.deliver(frame, "the answer of a tool")

    async def _build_frame(self, heard: McpMessage, connection: ClaudeConnection) -> bytes:
        try:
            answer = await self._answer(heard)
        except Exception as error:  # it would wait for ever
            log.exception("a message for our tools could not be answered")
            return connection.host_side.refuse(heard.id, f"it could not be answered: {error}")
        return connection.host_side.answer_mcp(heard.id, None if answer is None else Raw(answer))

    async def _answer(self, heard: McpMessage) -> bytes | None:
        if heard.server != SERVER or self._box is None:
            return b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"there is no such server"}}' % _NO_SERVER
        match self._server.receive(heard.message):
            case Reply(message=message):
                return message
            case Called() as called:
                return await self._call(self._box, called)
            case Cancelled(id=id):
                if (task := self._running.get(id)) is not None:
                    task.cancel()
        return None

    async def _call(self, box: ToolBox, called: Called) -> bytes | None:
        call = ToolCall(called.name, called.arguments, id=called.tool_use, asker=ASKER)

        def tell(text: str) -> None:
            self._tell(ToolProgress(call=call, text=text))

        task = asyncio.ensure_future(box.call(call, tell=tell))
        self._running[called.id] = task
        try:
            await asyncio.wait([task])
        finally:
            self._running.pop(called.id, None)
            task.cancel()
        result = ToolResult.error("tool execution cancelled") if task.cancelled() else _get_result(task, call)
        try:
            return self._server.answer(called.id, fit_for_model(result, self._most))
        except (TypeError, ValueError) as error:
            return self._server.fail(called.id, _INTERNAL, f"the result of {call.name} cannot be told: {error}")


def _get_result(task: asyncio.Task[ToolResult], call: ToolCall) -> ToolResult:
    if (error := task.exception()) is None:
        return task.result()
    log.error("the tool %s failed", call.name, exc_info=error)
    return ToolResult.error(f"{call.name} failed: {type(error).__name__}: {error}", code="INTERNAL")
