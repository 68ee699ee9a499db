"""Peers that misbehave, as real child programs. Public: use them to test whatever talks to a child.

    launch = Launch(argv=faults.peer("dies"), env=os.environ)

Each is the same small program (`fault_program.py`, standard library only) with one bad habit. Apart from that it behaves: it
says its `prelude`, then answers every line that has an `id` with the `reply` template, in which `$id` stands for that id. So the
same faults serve every dialect: a zot guest that dies mid-call is `peer("dies", prelude=[hello, ready], reply=tool_result)`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["FAULTS", "JSONRPC_REPLY", "peer"]

JSONRPC_REPLY = '{"jsonrpc":"2.0","id":$id,"result":{"ok":true}}'

# What each fault does, and the options it takes with their defaults.
FAULTS: dict[str, tuple[str, dict[str, object]]] = {
    "none": ("behaves", {}),
    "silent": ("reads everything and never answers", {}),
    "slow": ("answers each call only after some seconds", {"seconds": 0.2}),
    "chatty": ("writes so many bytes to stderr before each answer", {"bytes": 1 << 20}),
    "banner": ("prints lines on stdout that are no frames, before the first frame and before each answer", {}),
    "huge": ("answers with a line of so many bytes", {"bytes": 1 << 20}),
    "half": ("writes half an answer, then ends", {}),
    "bad-utf8": ("puts bytes that are no UTF-8 into its answer", {}),
    "dies": ("ends in the middle of a call, by an exit code or a signal, after a line on stderr", {"code": 3, "signal": 0}),
    "stubborn": ("ignores SIGTERM, SIGINT, SIGHUP and the end of its input", {}),
    "holder": ("starts a process that holds its stdout and stderr open, then ends", {"pid_file": ""}),
    "daemon": (
        "answers, and leaves a process in a session of its own: without its parent (orphan), without its environment (clean)",
        {"pid_file": "", "orphan": True, "clean": False},
    ),
    "mute": ("closes its stdout but lives on", {}),
    "deaf": ("never reads its stdin", {}),
    "unplugged": ("closes its stdin but lives on", {}),
    "flood": ("writes frames without end, or so many, as fast as it can", {"frames": 0}),
    "twice": ("answers each call two times", {}),
    "stranger": ("answers calls that nobody made before the one that was", {}),
    "trickle": ("writes its answers in pieces of so many bytes", {"bytes": 1}),
}


def peer(
    fault: str = "none", *, prelude: Sequence[str] = (), reply: str = JSONRPC_REPLY, after: int = 0, **options: Any
) -> list[str]:
    """The command line of a peer that answers `after` calls well and then shows its `fault`."""
    if fault not in FAULTS:
        raise ValueError(f"no fault {fault!r}; there are: {', '.join(FAULTS)}")
    defaults = FAULTS[fault][1]
    if unknown := sorted(options.keys() - defaults.keys()):
        raise ValueError(f"the fault {fault!r} has no option {', '.join(unknown)}; it has: {', '.join(defaults) or 'none'}")
    program = str(Path(__file__).with_name("fault_program.py"))
    about = {"prelude": list(prelude), "reply": reply, "after": after, **defaults, **options}
    return [sys.executable, "-I", "-S", program, fault, json.dumps(about)]
