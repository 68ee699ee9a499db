"""One call of a handler: what it was given, the steps that it takes, and what it answers.

What each kind of handler answers, by what it has said (spec piglet 5).
"""

from __future__ import annotations

import json
import os
import queue
import string
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.piglet_guests.programs import faults
from tests.support.piglet_guests.programs.connection import Connection, wait_for

Step = Mapping[str, Any]
_UNSET = object()


class Refused(Exception):
    """What is answered as an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class SharedState:
    """What all calls of one guest share."""

    def __init__(self, connection: Connection, *, capitals: bool) -> None:
        self.connection = connection
        self.capitals = capitals  # the Go SDK's content blocks
        self.cwd = self.config_dir = ""
        self.stubborn = False
        self._channels: dict[str, queue.Queue[Any]] = {}
        self._topics: dict[int, str] = {}

    def block(self, text: str) -> dict[str, str]:
        """A text block as the SDK writes it (spec piglet 2.2)."""
        return {"Type": "text", "Text": text, "Data": "", "Mime": ""} if self.capitals else {"type": "text", "text": text}

    def subscribe(self, topic: str, cancelled: threading.Event) -> dict[str, Any]:
        """The channel is there before the host knows of it: an event may come before the answer is read."""
        self.channel(topic)
        return self.connection.request("host/subscribe", {"topic": topic}, cancelled=cancelled)

    def channel(self, topic: str) -> queue.Queue[Any]:
        return self._channels.setdefault(topic, queue.Queue(64))  # spec piglet 8.1

    def deliver(self, params: Mapping[str, Any]) -> None:
        try:
            self.channel(params.get("topic", "")).put_nowait(dict(params))
        except queue.Full:
            pass  # spec piglet 8.1: dropped


class Act:
    """A handler at work. `params` are those of the request, `words` what `$name` may stand for."""

    def __init__(
        self, world: SharedState, kind: Kind, params: Mapping[str, Any], cancelled: threading.Event, again: Callable[[object], None]
    ) -> None:
        self.world, self.kind, self.params, self.cancelled, self.again = world, kind, params, cancelled, again
        args = params.get("args")
        self.words = {**params, **(args if isinstance(args, dict) else {})}
        self.said: list[str] = []
        self.failure: dict[str, Any] = {}
        self._result: object = _UNSET

    def answer(self, deed: object) -> Any:
        """A text is what a handler of its kind says, a list are steps, and all else is the result as it is."""
        if isinstance(deed, str):
            self.say(string.Template(deed).safe_substitute(self.words))
        elif isinstance(deed, list):
            for step in deed:
                self.take(step)
        else:
            return deed
        return self.result

    @property
    def result(self) -> Any:
        return self.kind.result(self) if self._result is _UNSET else self._result

    def say(self, text: str) -> None:
        self.said.append(text)
        self.kind.saying(self, text)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def tell(self, method: str, params: object = None) -> None:
        self.world.connection.notify(method, params)

    def ask(self, method: str, params: object, when: str = "") -> dict[str, Any]:
        return self.world.connection.request(method, params, cancelled=self.cancelled, when=when)

    def take(self, step: Step) -> None:
        connection = self.world.connection
        match step:
            case {"say": text}:
                self.say(string.Template(text).safe_substitute(self.words))
            case {"echo": _}:
                self.say(json.dumps(self.params))
            case {"result": value}:
                self._result = value
            case {"throw": message, "code": code}:
                raise Refused(code, message)
            case {"fail": text, "code": code, "hint": hint}:
                self.failure = {"isError": True} | ({"errorCode": code} if code else {}) | ({"errorHint": hint} if hint else {})
                self.say(text)
            case {"ask": method, "params": params, "when": when, "quiet": quiet}:
                answer = self.ask(method, params, when)
                if not quiet:
                    self.say(json.dumps(answer))
            case {"relay": _}:
                wanted = self.words if isinstance(self.params.get("args"), dict) else json.loads(self.params["args"])
                self.say(json.dumps(self.ask(wanted["method"], wanted.get("params"))))
            case {"tell": method, "params": params}:
                self.tell(method, params)
            case {"subscribe": topic}:
                self.world.subscribe(topic, self.cancelled)
            case {"hear": topic, "count": count}:
                for _ in range(count):
                    self.say(json.dumps(self.world.channel(topic).get()))
            case {"seen": method, "count": count}:
                self.say(json.dumps([message.get("params") for message in connection.heard(method, count, self.cancelled)]))
            case {"wait": path}:
                if not wait_for(path, self.cancelled):
                    self.say("cancelled")
            case {"note": path, "text": text}:
                faults.note(path, text or str(os.getpid()))
            case {"where": _}:
                self.say(json.dumps(self._where()))
            case {"delta": fields}:
                self.said += [fields.get("delta", "")] if fields["type"] == "text_delta" else []  # the message has it, too
                self.tell("provider/delta", {"requestId": self.params.get("requestId"), **fields})
            case {"fault": name}:
                faults.FAULTS[name](self, step)

    def _where(self) -> dict[str, object]:
        return {
            "cwd": self.world.cwd,
            "configDir": self.world.config_dir,
            "folder": os.getcwd(),
            "fd": self.world.connection.reading == 3,
            "argv": sys.argv,
            "environ": dict(os.environ),
            "pid": os.getpid(),
        }


class Kind:
    """What saying a text means in one kind of handler, and what it answers without a `result` of its own."""

    def __init__(self, result: Callable[[Act], Any], saying: Callable[[Act, str], None] = lambda _act, _text: None) -> None:
        self.result, self.saying = result, saying


def _tool(act: Act) -> dict[str, Any]:
    return {"content": [act.world.block(text) for text in act.said], **act.failure}


def _show(act: Act, text: str) -> None:
    act.tell("showMessage", {"text": text})


def _before(act: Act) -> dict[str, Any]:
    return {"allow": False, "preview": act.text} if act.said else {"allow": True}


def _after(act: Act) -> dict[str, Any]:
    return {"details": {"content": [{"type": "text", "text": act.text}]} if act.said else act.params.get("details")}


def _action(act: Act) -> dict[str, Any]:
    return {"action": {"type": "notify", "payload": {"message": act.text}} if act.said else None}


def _transform(act: Act) -> dict[str, Any]:
    return {"output": act.text if act.said else act.params["input"], "handled": False}


def _compact(act: Act) -> dict[str, Any]:
    return {"messages": [{"type": "user", "data": {"content": act.text}}] if act.said else act.params["messages"]}


def _piece(act: Act, text: str) -> None:
    act.tell("provider/delta", {"requestId": act.params["requestId"], "type": "text_delta", "delta": text})


def _stream(act: Act) -> dict[str, Any]:
    model = act.params.get("model") or {}
    usage = {"inputTokens": 5, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0}
    about = {"model": model.get("id", ""), "provider": model.get("provider", ""), "usage": usage}
    return {
        "message": {
            "content": [{"text": "".join(act.said)}],
            **about,
            "stopReason": "stop",
            "timestamp": "2026-02-03T10:00:01.123456789Z",
        }
    }


KINDS = {
    "initialize": Kind(lambda _act: None),
    "tool": Kind(_tool),
    "command": Kind(lambda _act: {}, _show),
    "before": Kind(_before),
    "after": Kind(_after),
    "event": Kind(_action),
    "shortcut": Kind(_action),
    "hook": Kind(lambda act: {"injection": act.text}),
    "transformer": Kind(_transform),
    "compactor": Kind(_compact),
    "provider": Kind(_stream, _piece),
}
