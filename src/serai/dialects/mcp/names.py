"""Names of tools as every agent and every model takes them: letters, digits, `_` and `-`, at most 64 characters.

An agent puts its own word before the name, such as `mcp__serai__`, and that counts too: so there is less room for ours. One name
that is too long or has another character would fail a whole request to the model, also for the tools of everybody else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import count

__all__ = ["LONGEST", "NameMap", "prefix_of"]

LONGEST = 64
_BAD = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
_LEAST = 16  # characters: some of the name itself besides the digest


def prefix_of(server: str) -> int:
    """How many characters an agent puts before the tools of a server of that name: `mcp__serai__`."""
    return len(f"mcp__{server}__")


class NameMap:
    """A safe name for each of these names, and back.

    A name that is safe stays as it is. Any other has a digest of itself at its end, so what it becomes does not depend on the
    others, but for one whose very name is what this one would become. The same names give the same map, in any order.
    """

    __slots__ = ("_back", "_out", "room")

    def __init__(self, names: Iterable[str], *, prefix: int = 0) -> None:
        self.room = LONGEST - prefix
        if prefix < 0 or self.room < _LEAST:
            raise ValueError(f"a prefix of {prefix} characters leaves no room for names: the most is {LONGEST - _LEAST}")
        wanted = sorted(set(names))
        self._out = {name: name for name in wanted if self._is_safe(name)}
        self._back = dict(self._out)
        for name in wanted:
            if name not in self._out:
                made = next(made for made in self._made(name) if made not in self._back)
                self._out[name], self._back[made] = made, name

    def out(self, name: str) -> str:
        """The name that a model gets. `KeyError` for one that the map was not made of."""
        return self._out[name]

    def back(self, safe: str) -> str | None:
        """The true name, None when no tool has this one."""
        return self._back.get(safe)

    def __len__(self) -> int:
        return len(self._out)

    def _is_safe(self, name: str) -> bool:
        return 0 < len(name) <= self.room and not _BAD.search(name)

    def _made(self, name: str) -> Iterator[str]:
        stem = (_BAD.sub("_", name) or "tool")[: self.room - _DIGEST - 1]
        for number in count():
            text = f"{number} {name}" if number else name
            yield f"{stem}_{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:_DIGEST]}"
