"""The steps that a handler of a stand-in guest takes, one after the other. Plain data: they go to the guest as JSON."""

from __future__ import annotations

import os
from typing import Any

Step = dict[str, Any]
Path = str | os.PathLike[str]

# What a guest may do wrong, at any step of any handler, and the options that each takes.
FAULTS: dict[str, dict[str, object]] = {
    "crash": {"code": 3, "signal": 0},  # ends in the middle of the call, after a line on stderr
    "long-line": {"bytes": 4 * 1024 * 1024 + 1},  # a line of so many bytes, its newline not counted
    "string-id": {"method": "host/extensionsDir", "id": "seven"},  # a request under a string id; says the raw answer
    "float-id": {"method": "host/extensionsDir", "id": 1.5},  # a request under a number that is no integer; waits for no answer
    "batch": {},  # an array of a request and a notification
    "prose": {"text": "a log line, no message"},  # a line on the wire that is no JSON
    "close-wire": {},  # closes the end that it writes to, and lives on
    "holder": {"pid_file": ""},  # starts a process that holds the wire open, then ends
    "stubborn": {},  # ignores SIGTERM and, from now on, the end of its input
    "stdout": {"bytes": 4 * 1024 * 1024, "text": ""},  # so many bytes to stdout, or this text
    "stderr": {"bytes": 4 * 1024 * 1024, "text": ""},
    "twice": {},  # answers this request now, and once more when it is over
    "stranger": {"ids": [999999, "nobody", 1.5, None]},  # answers that nobody asked for
    "empty-name": {},  # registers a tool and a command without a name, and a section without a title
    "bad-registration": {},  # registrations whose params cannot be decoded
    "raw": {"line": ""},  # this line on the wire, as it is
}


def say(text: str) -> Step:
    """Add a text to the answer. `$name` stands for an argument: `say("$city: 16 degrees")`.

    What that means is a matter of the handler: a tool answers with it, a command shows it, an interceptor blocks with it, an event
    handler or shortcut notifies, a message hook injects it, a transformer puts it in place of the input, a compactor leaves it as
    the only message, a provider streams it as a delta.
    """
    return {"say": text}


def echo() -> Step:
    """Say the params of this request as JSON."""
    return {"echo": True}


def result(value: object) -> Step:
    """Answer with exactly this, whatever was said: also what no host can decode."""
    return {"result": value}


def throw(message: str, code: int = -32603) -> Step:
    """Answer with an error of JSON-RPC."""
    return {"throw": message, "code": code}


def fail(text: str, *, code: str = "", hint: str = "") -> Step:
    """A tool's own failure: `isError`, with an `errorCode` and an `errorHint` if they are given (spec piglet 5.1)."""
    return {"fail": text, "code": code, "hint": hint}


def ask(method: str, params: object = None, *, cancel_when: Path = "", quiet: bool = False) -> Step:
    """Ask the host, and say its raw answer as JSON: `{"result": …}` or `{"error": …}`. Absent params are absent on the wire.

    `cancel_when` is a file: when it is there, the request is taken back, and the answer is waited for all the same.
    """
    return {"ask": method, "params": params, "when": os.fspath(cancel_when), "quiet": quiet}


def relay() -> Step:
    """Ask what the arguments name, `{"method": "host/chat", "params": {…}}`, or a command's JSON, and say the raw answer."""
    return {"relay": True}


def tell(method: str, params: object = None) -> Step:
    """Send a notification, such as `tell("setWidget", {…})`."""
    return {"tell": method, "params": params}


def subscribe(topic: str) -> Step:
    """Subscribe to a topic. Its events go into a channel that holds 64 and drops what comes when it is full."""
    return {"subscribe": topic}


def publish(topic: str, data: object) -> Step:
    return ask("host/publish", {"topic": topic, "data": data}, quiet=True)


def hear(topic: str, count: int = 1) -> Step:
    """Take so many events of a topic out of the channel, wait for them, and say each as JSON."""
    return {"hear": topic, "count": count}


def seen(method: str, count: int = 0) -> Step:
    """Say the params of all messages of that method that came so far, as one JSON list; wait until there are so many."""
    return {"seen": method, "count": count}


def wait(path: Path = "") -> Step:
    """Wait until there is such a file, or for ever; when the request is cancelled meanwhile, say `cancelled` and go on."""
    return {"wait": os.fspath(path)}


def note(path: Path, text: str = "") -> Step:
    """Write a file, whole at once: this text, or the process's number. So a test knows how far the guest has come."""
    return {"note": os.fspath(path), "text": text}


def where() -> Step:
    """Say, as JSON: `cwd` and `configDir` of initialize, `folder` (where it runs), `fd` (or stdio), `argv`, `environ`, `pid`."""
    return {"where": True}


def delta(text: str = "", **fields: object) -> Step:
    """Send a `provider/delta` for this stream: `delta("Hel")`, `delta(type="toolcall_end", index=1, tool={…})`."""
    return {"delta": {"type": "text_delta", **({"delta": text} if text else {}), **fields}}


def fault(name: str, **options: object) -> Step:
    """Do something that no guest should; `FAULTS` lists what there is."""
    if name not in FAULTS:
        raise ValueError(f"no fault {name!r}; there are: {', '.join(FAULTS)}")
    if unknown := sorted(options.keys() - FAULTS[name].keys()):
        raise ValueError(
            f"the fault {name!r} has no option {', '.join(unknown)}; it has: {', '.join(map(str, FAULTS[name])) or 'none'}"
        )
    return {"fault": name, **FAULTS[name], **options}


def crash(code: int = 3, *, signal: int = 0) -> Step:
    return fault("crash", code=code, signal=signal)
