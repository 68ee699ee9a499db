"""The guest's side of a piglet wire (sans-IO): for fakes, bridges, and the other view of a replay.

The host's requests come as `Asked`, and each is owed one answer: a second one gives None. `ask` and `tell` take any method of the
table; what is said most has a word of its own.
"""

from __future__ import annotations

from typing import Any

from serai.dialects.piglet import messages
from serai.dialects.piglet.host_side import TypedSide
from serai.dialects.piglet.messages import ContentBlock, Wire
from serai.dialects.piglet.methods import METHODS
from serai.wire import jsonrpc

_REGISTER = {row.params: method for method, row in METHODS.items() if method.startswith("register/")}


class PeerSide(TypedSide):
    """The guest's end of its wire."""

    _sender = "host"

    def register(self, params: Wire) -> bytes:
        """Offer what these parameters describe, such as a `messages.RegisterToolParams`."""
        return self.tell(_REGISTER[type(params)], params)

    def register_tool(self, name: str, description: str = "", parameters: Any = None, **more: Any) -> bytes:
        """`more`: `prompt_hint`, `deferred`, `interrupt_behavior`."""
        return self.register(messages.RegisterToolParams(name, description, parameters, **more))

    def register_command(self, name: str, description: str = "", *, immediate: bool = False) -> bytes:
        return self.register(messages.RegisterCommandParams(name, description, immediate))

    def answer_initialize(self, request: jsonrpc.Request, name: str, version: str = "") -> bytes | None:
        """Answer `initialize`: what is registered so far is the batch (spec piglet 3)."""
        return self.answer(request, messages.InitializeResult(name, version))

    def answer_tool(self, request: jsonrpc.Request, text: str, *, is_error: bool = False) -> bytes | None:
        return self.answer(request, messages.ToolExecuteResult([ContentBlock("text", text)], is_error))

    def notify(self, message: str, level: str = "") -> bytes:
        return self.tell("notify", messages.NotifyParams(message, level))
