"""A hook that does everything right. The broken ones of the tests each do one thing differently."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # a check starts it some dozens of times: what is not needed is not imported
if TYPE_CHECKING:
    from typing import Any

    Object = dict[str, Any]


class Well:
    """Mints a token in thought alone. With `DIARY` it keeps a list of the states that it gave and got back."""

    def run(self) -> None:
        self.say(self.answer(self.read()))

    def read(self) -> Any:
        return json.loads(sys.stdin.buffer.read())

    def answer(self, request: Object) -> Object:
        match request["event"]:
            case "box.create":
                return self.create(request["box"])
            case "box.destroy":
                return self.destroy(request)
        return self.unknown(request)

    def create(self, box: Object) -> Object:
        state = self.state(box)
        self.note("gave", state)
        return {"files": [{"path": "/root/token", "content": f"tok_{os.urandom(8).hex()}\n", **self.file(box)}], "state": state}

    def file(self, box: Object) -> Object:
        return {"mode": "0600"}

    def state(self, box: Object) -> str:
        return f"sta_{os.urandom(8).hex()}"

    def destroy(self, request: Object) -> Object:
        self.note("got", request["state"])
        return {}

    def unknown(self, request: Object) -> Object:
        return {}

    def say(self, answer: Object) -> None:
        json.dump(answer, sys.stdout)
        sys.stdout.flush()

    def note(self, what: str, state: str) -> None:
        if diary := os.environ.get("DIARY"):
            with open(diary, "a") as file:
                file.write(f"{what} {state}\n")
