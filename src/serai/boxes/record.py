"""What is on disk of a box: enough for another process to end it and to undo what its hooks did."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from serai.boxes.backend import Allowance, Wanted
from serai.boxes.hooks import Hook
from serai.errors import BoxRefused

__all__ = ["BoxRecord", "Lifecycle", "check_id", "moment", "new_token", "now", "token_hash"]

# creating: an intent, its hooks may have run (spec hooks 2.4); running: it was made; terminated: a tombstone, which tells why.
Lifecycle = Literal["creating", "running", "terminated"]

_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRecord:
    """One box. The token itself is nowhere: only who made the box has it (spec hooks 3.1)."""

    token_hash: str
    generation: str
    box_id: str
    backend: str
    created_at: str
    description: str = ""
    status: Literal["ready", "broken"] = "ready"  # fixed at creation: whether its init script succeeded
    last_error: str = ""
    lifecycle: Lifecycle = "creating"
    hooks: Sequence[Hook] = field(default=(), repr=False)  # in order, with all they need to be told of its end
    hook_state: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials: never shown
    hooks_done: Sequence[str] = ()  # keys of those that have been told of its end
    owner: str = ""  # who looks after it (`serai.boxes.owners`)
    kept: bool = False
    expires_at: float | None = None  # seconds since the epoch
    time_left: float | None = None  # of its time to live, while it is paused
    rootfs: str | None = None
    allowance: Allowance = field(default_factory=Allowance)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    unreadable: str = ""  # why what its hooks need is not known: then it must not be ended without them
    observed_name: str = ""
    observed_image: str = ""
    observed_state: str = ""
    observed_at: str | None = None  # None: never

    @property
    def wanted(self) -> Wanted:
        return Wanted(box_id=self.box_id, generation=self.generation, rootfs=self.rootfs, allowance=self.allowance)

    @property
    def state(self) -> str:
        """What a person is shown (spec hooks 3.2)."""
        if self.lifecycle == "terminated":
            return "terminated"
        return "creating" if self.lifecycle == "creating" else self.observed_state or "running"

    def to_json(self) -> dict[str, object]:
        """What may be shown of it: neither states nor environment."""
        shown: dict[str, object] = {
            "box_id": self.box_id,
            "generation": self.generation,
            "backend": self.backend,
            "state": self.state,
            "kept": self.kept,
            "created_at": self.created_at,
            "hooks": [hook.key for hook in self.hooks],
        }
        if self.status == "broken":
            shown["phase"] = "broken"
        limits = {"memory": self.allowance.memory, "cpus": self.allowance.cpus, "pids": self.allowance.pids}
        more = {
            "description": self.description,
            "last_error": self.last_error or self.unreadable,
            "rootfs": self.rootfs,
            "image": self.observed_image,
            "last_seen": self.observed_at,
            "limits": {name: value for name, value in limits.items() if value is not None},
        }
        shown |= {key: value for key, value in more.items() if value}
        if self.expires_at is not None:
            shown["expires_at"] = moment(int(self.expires_at * 1e9))
        return shown


def check_id(box_id: str) -> None:
    """A box id is a host name, which it is inside the box (spec hooks 3.1)."""
    if not box_id:
        raise BoxRefused("a box ID is required", hint="such as `web-1`")
    if not _ID.fullmatch(box_id):
        raise BoxRefused(
            f'invalid box ID "{box_id}": must be a valid hostname (lowercase letters, digits, and hyphens)',
            hint="1 to 63 characters, the first and the last of them a letter or a digit",
        )


def new_token() -> str:
    return secrets.token_hex(32)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def now() -> str:
    return moment(time.time_ns())


def moment(nanoseconds: int) -> str:
    """RFC 3339 with nanoseconds, of one length so that it also sorts (spec hooks 5)."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
