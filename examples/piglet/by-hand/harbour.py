"""The (made-up) tides of every harbour: a piglet extension by hand, with the standard library alone.

The host starts this program in this folder, as `manifest.yaml` says. Both sides speak JSON-RPC, one object per line: on the
descriptors 3 and 4 when PIGLET_FD is 1, else on stdin and stdout. Both ask and both answer, and each numbers its own requests.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import zlib
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

Object = dict[str, Any]

# Said between the host's `initialize` and our answer to it.
REGISTRATIONS: list[tuple[str, Object]] = [
    ("tool", {
        "name": "tide",
        "description": "How high the water stands in a harbour.",
        "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
    }),
    ("command", {"name": "logbook", "description": "what was done while this extension looked on"}),
    ("interceptor", {"name": "harbour master", "priority": 1000}),
    ("eventHandler", {"name": "logbook", "events": ["EventToolEnd"]}),
]  # fmt: skip

if os.environ.get("PIGLET_FD") == "1":
    incoming, outgoing = os.fdopen(3, "rb"), os.fdopen(4, "wb", buffering=0)
else:  # messages have stdout for themselves: a stray print goes to the log instead
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
writing = threading.Lock()
numbers = itertools.count(1)
waiting: dict[int, Future[Object]] = {}  # our own requests, by their number
logbook: list[str] = []  # the tools that have ended


def send(message: Object) -> None:
    """One message, whole: several threads answer."""
    with writing, suppress(BrokenPipeError):  # the host is gone, and so is our input: the read loop ends by itself
        outgoing.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def ask(method: str, **params: Any) -> Object:
    """A request to the host, from any thread but that of the read loop, which brings the answer."""
    number, answer = next(numbers), Future[Object]()
    waiting[number] = answer
    send({"id": number, "method": method, "params": params})
    reply = answer.result(timeout=10)
    if "error" in reply:
        raise RuntimeError(f"{method}: {reply['error']['message']}")
    return dict(reply["result"])


def initialize(_params: Object) -> Object:
    for method, params in REGISTRATIONS:
        send({"method": f"register/{method}", "params": params})
    return {"name": "harbour", "version": "1.0.0"}


def use_tool(params: Object) -> Object:
    """Arguments are whatever the model made of the schema, and null when it gave none."""
    if params.get("name") != "tide":
        raise ValueError(f"unknown tool: {params.get('name')}")
    harbour = (params.get("args") or {}).get("harbour")
    if not isinstance(harbour, str) or not harbour.strip():
        text = 'tide needs a harbour, as in {"harbour": "Bergen"}'
        return {"content": [{"type": "text", "text": text}], "isError": True, "errorCode": "INVALID_ARGS"}
    harbour = harbour.strip()
    water = zlib.crc32(harbour.casefold().encode("utf-8", "replace")) % 500  # not hash(): that differs from run to run
    return {"content": [{"type": "text", "text": f"{harbour}: the water stands at {water} cm"}]}


def run_command(params: Object) -> Object:
    """A command answers nothing: what is to be seen is sent before. The host can be asked while it runs."""
    if params.get("name") != "logbook":
        raise ValueError(f"unknown command: {params.get('name')}")
    try:
        there = f"{len(ask('host/toolDefs')['tools'])} tools are there"
    except RuntimeError as error:  # not every host has everything for everybody
        there = str(error)
    send({"method": "showMessage", "params": {"text": f"calls seen: {', '.join(logbook) or 'none'}; {there}"}})
    return {}


def judge(params: Object) -> Object:
    """Asked before every tool call, whoever's tool it is. It reads text, not minds: it stops accidents, a sandbox stops intent."""
    tool, args = params.get("toolName"), params.get("args") or {}
    if tool == "bash" and "push --force" in str(args.get("command")):
        return {"allow": False, "preview": "harbour master: nothing is pushed by force from here"}
    if tool == "weather" and args.get("city") == "Atlantis":
        return {"allow": False, "preview": "harbour master: no ship has come back from Atlantis"}
    return {"allow": True}  # an answer without it blocks


def hear(params: Object) -> Object:
    logbook.append(str(params["data"].get("ToolName")))
    return {"action": {"type": "setStatus", "payload": {"key": "harbour", "text": f"{len(logbook)} calls"}}}


HANDLERS = {
    "initialize": initialize,
    "tool/execute": use_tool,
    "command/execute": run_command,
    "interceptor/before": judge,
    "interceptor/after": lambda params: {"details": params.get("details")},  # what is not given back is gone
    "event/dispatch": hear,
}


def answer(request: Object) -> None:
    """Exactly one answer, whatever happens."""
    method, reply = str(request["method"]), {"id": request["id"]}
    try:
        reply["result"] = HANDLERS[method](request.get("params") or {})
    except Exception as error:
        unknown = method not in HANDLERS
        reply["error"] = {"code": -32601 if unknown else -32603, "message": f"unknown method: {method}" if unknown else str(error)}
    send(reply)


def main() -> None:
    for line in incoming:  # its end means shutdown
        try:
            message = json.loads(line)
            method, number = message.get("method"), message.get("id")
        except (ValueError, RecursionError, AttributeError):
            continue  # no message
        if method == "shutdown" and number is not None:
            send({"id": number, "result": None})
            break
        if method and number is not None:  # a thread each: a slow answer holds up nothing, and may ask the host meanwhile
            threading.Thread(target=answer, args=[message], daemon=True).start()
        elif number in waiting:
            waiting.pop(number).set_result(message)


main()
