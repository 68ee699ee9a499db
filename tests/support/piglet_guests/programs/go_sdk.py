"""A guest that behaves on the wire as one made with piglet's Go SDK (spec piglet 2, 5, 8.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tests.support.piglet_guests.programs.connection import FD, STDIO
from tests.support.piglet_guests.programs.guest import Guest, Offers, Params, behaviour
from tests.support.piglet_guests.programs.handler_run import Act, Refused

# The fields that the SDK decodes: whoever sends another type gets -32600 (spec piglet 2.4).
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "initialize": {"protocolVersion": str, "cwd": str, "configDir": str},
    "tool/execute": {"callId": str, "name": str, "args": dict},
    "command/execute": {"name": str, "args": str},
    "interceptor/before": {"name": str, "toolName": str, "args": dict},
    "interceptor/after": {"name": str, "toolName": str},
    "event/dispatch": {"type": str},
    "shortcut/handle": {"key": str},
    "messageHook/onMessage": {"message": str},
    "inputTransformer/transform": {"input": str},
    "compact/execute": {"messages": list},
    "provider/stream": {"requestId": int, "model": dict, "system": str, "messages": list, "tools": list, "options": dict},
}


class GoGuest(Guest):
    capitals = True
    shuffled = ("tools", "commands", "shortcuts")

    def __init__(self, told: Mapping[str, Any], reading: int, writing: int) -> None:
        super().__init__(told, reading, writing)
        self.methods |= {
            "interceptor/before": self.before,
            "interceptor/after": self.after,
            "event/dispatch": self.dispatch,
            "shortcut/handle": self.shortcut,
            "messageHook/onMessage": self.on_message,
            "inputTransformer/transform": self.transform,
            "compact/execute": self.compact,
            "provider/stream": self.stream,
        }

    def checked(self, method: str, params: object) -> Params:
        if method in FIELDS and not isinstance(params, dict):
            raise Refused(-32600, "invalid params: cannot unmarshal into an object")
        given = params if isinstance(params, dict) else {}
        for key, kind in FIELDS.get(method, {}).items():
            if given.get(key) is not None and not isinstance(given[key], kind):
                raise Refused(-32600, f"invalid params: cannot unmarshal {key}")
        return given

    def notified(self, method: str, params: Params) -> None:
        if method == "$/cancelRequest":
            self.cancel(params.get("id"))
        elif method == "eventBus/event":
            self.world.deliver(params)

    def before(self, params: Params, act: Act) -> object:
        """An empty name runs all, an unknown one allows unchanged (spec piglet 8.1)."""
        answer: Any = {"allow": True}
        for offer in self._interceptors(params):
            answer = self.handle("before", offer["before"], params, act)
            if not isinstance(answer, dict) or not answer.get("allow"):
                return answer
            params = {**params, **({"args": answer["args"]} if answer.get("args") else {})}
        return answer

    def after(self, params: Params, act: Act) -> object:
        answer: Any = {"details": params.get("details")}
        for offer in self._interceptors(params):
            answer = self.handle("after", offer["after"], params, act)
            if not isinstance(answer, dict):
                return answer
            params = {**params, "details": answer.get("details")}
        return answer

    def _interceptors(self, params: Params) -> Offers:
        name = params.get("name")
        return [offer for offer in self.offers("interceptors") if not name or offer["params"]["name"] == name]

    def dispatch(self, params: Params, act: Act) -> object:
        """The first handler that returns an action wins, the rest are skipped (spec piglet 8.1)."""
        for offer in self.offers("handlers"):
            events = offer["params"].get("events")
            if not events or params.get("type") in events:
                answer = self.handle("event", offer["answer"], params, act)
                if not isinstance(answer, dict) or answer.get("action"):
                    return answer
        return {}

    def shortcut(self, params: Params, act: Act) -> object:
        for offer in self.named("shortcuts", "key", params.get("key")):
            return self.handle("shortcut", offer["answer"], params, act)
        raise Refused(-32602, f"unknown shortcut: {params.get('key')}")

    def on_message(self, params: Params, act: Act) -> object:
        """The injections of all hooks, joined (spec piglet 8.1)."""
        injections = []
        for offer in self.offers("hooks"):
            answer = self.handle("hook", offer["answer"], params, act)
            if not isinstance(answer, dict):
                return answer
            injections += [answer["injection"]] if answer.get("injection") else []
        return {"injection": "\n".join(injections)}

    def transform(self, params: Params, act: Act) -> object:
        answer: Any = {"output": params["input"], "handled": False}
        for offer in sorted(self.offers("transformers"), key=lambda offer: offer["params"].get("priority", 0)):
            answer = self.handle("transformer", offer["answer"], params, act)
            if not isinstance(answer, dict) or answer.get("handled"):
                return answer
            params = {**params, "input": answer.get("output", "")}
        return answer

    def compact(self, params: Params, act: Act) -> object:
        for offer in self.offers("compactor"):
            return self.handle("compactor", offer["answer"], params, act)
        raise Refused(-32603, "no compactor registered")

    def stream(self, params: Params, act: Act) -> object:
        api = (params.get("model") or {}).get("api")
        for offer in (*self.named("providers", "api", api), *self.offers("providers")):
            return self.handle("provider", offer["answer"], params, act)
        raise Refused(-32603, "no stream handler registered")


def main(file: str, kind: type[GoGuest] = GoGuest) -> None:
    """FD 3 and 4 if and only if `PIGLET_FD` is exactly 1 (spec piglet 2.1). A test may have a `kind` of its own."""
    told = behaviour(file)
    use = FD if os.environ.get("PIGLET_FD") == "1" and not told["stdio"] else STDIO
    kind(told, *use).run()
