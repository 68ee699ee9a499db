"""What the SDKs of both languages do alike: the handshake, a thread for each request, and the end."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.piglet_guests.programs.connection import Connection, Message
from tests.support.piglet_guests.programs.handler_run import KINDS, Act, Refused, SharedState

Params = Mapping[str, Any]
Offers = list[dict[str, Any]]  # each a registration: its `params`, and what its handlers answer

# Spec piglet 4: the method by which each kind is registered, and the field that names it.
REGISTER = {
    "tools": ("register/tool", "name"),
    "commands": ("register/command", "name"),
    "sections": ("register/promptSection", "title"),
    "interceptors": ("register/interceptor", "name"),
    "handlers": ("register/eventHandler", "name"),
    "shortcuts": ("register/shortcut", "key"),
    "hooks": ("register/messageHook", "name"),
    "transformers": ("register/inputTransformer", "name"),
    "compactor": ("register/compactor", "name"),
    "providers": ("register/provider", "api"),
}


def behaviour(file: str) -> dict[str, Any]:
    """What `write` has put beside the program."""
    with open(os.path.join(os.path.dirname(os.path.abspath(file)), "behaviour.json")) as told:
        read: dict[str, Any] = json.load(told)
        return read


class Guest:
    """One extension. The SDKs differ in what they know of (`methods`) and in what they say where they know nothing."""

    capitals = False
    unknown_method = "unknown method: "
    shuffled: tuple[str, ...] = ()  # kinds that come from a hash map

    def __init__(self, told: Mapping[str, Any], reading: int, writing: int) -> None:
        self.told = told
        self.connection = Connection(reading, writing, told["journal"])
        self.world = SharedState(self.connection, capitals=self.capitals)
        self._running: dict[int, threading.Event] = {}
        self.methods = {
            "initialize": self.initialize,
            "shutdown": lambda _params, _act: None,
            "tool/execute": self.execute_tool,
            "command/execute": self.execute_command,
        }

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        self._aside("at_start")
        for message in self.connection.messages():
            if message.get("id") is None:
                self.notified(message["method"], message.get("params") or {})
            else:
                cancelled = self._running[message["id"]] = threading.Event()
                threading.Thread(target=self._serve, args=(message, cancelled), daemon=True).start()
        while self.world.stubborn:
            signal.pause()
        os._exit(0)  # EOF is the real signal to end (spec piglet 5.10)

    def notified(self, method: str, params: Params) -> None:
        """`shutdown` as a notification is ignored (spec piglet 5.10)."""

    def cancel(self, id: object) -> None:
        if isinstance(id, int) and (cancelled := self._running.get(id)):
            cancelled.set()

    def _serve(self, message: Message, cancelled: threading.Event) -> None:
        id, method = message["id"], message["method"]

        def answer(result: object) -> None:
            self.connection.send(id=id, result=result)

        try:
            if method not in self.methods:
                raise Refused(-32601, f"{self.unknown_method}{method}")  # noqa: TRY301 - each has its own code
            params = self.checked(method, message.get("params"))
            result = self.methods[method](params, Act(self.world, KINDS["initialize"], params, cancelled, answer))
        except Refused as refused:
            self.connection.send(id=id, error={"code": refused.code, "message": refused.message})
        except Exception as error:
            self.connection.send(id=id, error={"code": -32603, "message": str(error)})
        else:
            answer(result)
            if method == "initialize":
                self._register(late=True)
                self._aside("after_init")
            elif method == "shutdown":
                os._exit(0)
        finally:
            self._running.pop(id, None)

    def checked(self, method: str, params: object) -> Params:
        return params if isinstance(params, dict) else {}

    # -- the handshake ---------------------------------------------------------------------------------------------------------

    def initialize(self, params: Params, act: Act) -> object:
        self.world.cwd, self.world.config_dir = params.get("cwd", ""), params.get("configDir", "")
        self._aside("at_init")
        self._register(late=False)
        about = {"name": self.told["name"], "version": self.told["version"]}
        told = self.told["initialize"]
        return about if told is None else act.answer(told["answer"])

    def _register(self, *, late: bool) -> None:
        for kind, (method, key) in REGISTER.items():
            offers = [offer for offer in self.offers(kind) if (offer["params"][key] in self.told["late"]) is late]
            if kind in self.shuffled:
                random.shuffle(offers)
            for offer in offers:
                self.connection.notify(method, offer["params"])

    def offers(self, kind: str) -> Offers:
        offers: Offers = self.told["offers"].get(kind, [])
        return offers

    def _aside(self, when: str) -> None:
        """Steps that answer no request; what they ask is never taken back."""
        never = threading.Event()
        Act(self.world, KINDS["initialize"], {}, never, lambda _result: None).answer(self.told[when])

    def _terminated(self, number: int, _frame: object) -> None:
        if not self.world.stubborn:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # -- handlers --------------------------------------------------------------------------------------------------------------

    def named(self, kind: str, key: str, name: object) -> Iterator[dict[str, Any]]:
        return (offer for offer in self.offers(kind) if offer["params"][key] == name)

    def execute_tool(self, params: Params, act: Act) -> object:
        offer = next(self.named("tools", "name", params.get("name")), None)
        if offer is None:
            raise Refused(-32602, f"unknown tool: {params.get('name')}")
        return self.handle("tool", offer["answer"], params, act)

    def execute_command(self, params: Params, act: Act) -> object:
        offer = next(self.named("commands", "name", params.get("name")), None)
        if offer is None:
            raise Refused(-32602, f"unknown command: {params.get('name')}")
        return self.handle("command", offer["answer"], params, act)

    def handle(self, kind: str, deed: object, params: Params, act: Act) -> Any:
        return Act(self.world, KINDS[kind], params, act.cancelled, act.again).answer(deed)
