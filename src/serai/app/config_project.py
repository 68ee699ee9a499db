"""What a project's settings may do (design rule 12): one row for every key.

Until `serai trust` they may only narrow. What does not count has a reason, which the person is told.
"""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from typing import Any, Literal, NamedTuple

from serai.app.config_file import Path, flat, key_of, listed, read
from serai.host.guest_settings import PersonSettings, related

__all__ = ["DIALECTS_OWN", "LOWERED", "PROJECT_MAY", "May", "Outcome", "Wish", "granted_by_trust", "may"]

# The limits that a project may lower. All others hold something up: a frame that is refused, a guest that is given up too early or
# an interceptor that has no time lets through what it would have stopped; a shorter log, recording, session or undo loses what
# was done; a hook that is cut off does not give back what it was lent.
LOWERED = frozenset({
    "tool", "command", "approval", "steps", "background_steps", "tools_at_once", "model_calls", "model_attempts", "model_wait_told",
    "model_connect", "model_idle", "model_answer", "shell", "shell_most", "search", "tool_output", "tool_result", "read_file",
})  # fmt: skip
DIALECTS_OWN = frozenset({"tool", "command"})  # a dialect has lower ones already: only the host knows what is lower (`limits_on`)

_NO_GUARD = "unless it is a guard anyway"


class Wish(NamedTuple):
    """What a project says, what there is without it, and what the person says of guests."""

    path: Path
    value: Any
    now: Any
    person: PersonSettings


class Outcome(NamedTuple):
    """What counts of it, None for nothing; and why the rest does not."""

    counts: Any
    in_vain: str = ""
    note: str = ""


class May(NamedTuple):
    """`never`, once it is `trusted`, or always as far as it is `narrower`; `take` says what counts then."""

    when: Literal["never", "trusted", "narrower"]
    take: Callable[[Wish], Outcome]


def _never(why: str) -> May:
    return May("never", lambda _: Outcome(None, why))


def _tools(wish: Wish) -> Outcome:
    if wish.now is None:
        return Outcome(tuple(dict.fromkeys(wish.value)))
    left = [dumps(name, ensure_ascii=False) for name in wish.value if name not in wish.now]
    return Outcome(tuple(name for name in wish.now if name in wish.value), f"{listed(left)} is not among yours" if left else "")


def _limit(wish: Wish) -> Outcome:
    if wish.path[-1] not in LOWERED:
        return Outcome(None, "a project cannot change this limit: something may rely on it")
    if wish.value == "none" or (wish.now is not None and wish.value >= wish.now):
        return Outcome(None, "a project can only lower a limit")
    return Outcome(wish.value, note="for each guest but guards, where it is lower" if wish.path[-1] in DIALECTS_OWN else "")


def _guests_limit(wish: Wish) -> Outcome:
    if _guards_own(wish):
        return Outcome(None, "a project cannot lower a limit of a guard")
    found = _limit(wish)
    return found if found.counts is None else found._replace(note=_NO_GUARD)


def _guard(wish: Wish) -> Outcome:
    return Outcome(True) if wish.value else Outcome(None, "a project cannot take a guard back")


def _enabled(wish: Wish) -> Outcome:
    if wish.value:
        return Outcome(None, "a project cannot switch a guest on")
    if _guards_own(wish):
        return Outcome(None, "a project cannot switch a guard off")
    return Outcome(False, note="unless it is a guard")


def _services(wish: Wish) -> Outcome:
    if _guards_own(wish):
        return Outcome(None, "a project cannot take services from a guard")
    both = tuple(wish.value) if wish.now is None else tuple(group for group in wish.now if group in wish.value)
    return Outcome(both, note=_NO_GUARD)


def _plugins(wish: Wish) -> Outcome:
    if wish.path[1] != "enabled":
        return Outcome(None, "how much plugins may have is yours to say")
    if any(str(one.get("id", "")).partition(":")[0] != "project" for one in wish.value):
        return Outcome(None, "a project can enable its own plugins, `project:…`, and nobody else's")
    return Outcome((*(wish.now or ()), *wish.value))


def _feature(wish: Wish) -> Outcome:
    return Outcome(None, "a project cannot switch plugins on") if wish.value else Outcome(False)


def _guards_own(wish: Wish) -> bool:
    """Whether it is about a guest that the person calls a guard. What an author calls one is known only to the host."""
    return any(related(wish.path[1], guard) for guard in wish.person.guards)


_TAKEN = May("trusted", lambda wish: Outcome(wish.value))
_ADDED = May("trusted", lambda wish: Outcome(tuple(dict.fromkeys((*(wish.now or ()), *wish.value)))))

PROJECT_MAY: dict[str, May] = {
    "record": _never("what is recorded is yours to say"),
    "guests.*": _never("where guests are looked for is yours to say"),
    "boxes.*": _never("boxes and their hooks are yours to set"),
    "feature.*.enabled": May("narrower", _feature),
    "plugins.*": May("trusted", _plugins),
    "disabled_extensions": _never("a project switches a guest off with `enabled = false` under [guest.NAME]"),
    "agent": _TAKEN,
    "agents.*.path": _never("which program is started is yours to say"),
    "agents.*.model": _TAKEN,
    "agents.*.effort": _TAKEN,
    "agents.*.permission_mode": _never("what an agent may do without asking is yours to say"),
    "agents.*.allowed_tools": _never("what an agent may do without asking is yours to say"),
    "agents.*.hooks": _never("what an agent may do without asking is yours to say"),
    "agents.*.env": _never("what an agent gets to know is yours to say"),
    "default_model": _TAKEN,
    "small_model": _TAKEN,
    "system_prompt": _TAKEN,
    "prompt_order": _TAKEN,
    "compact_at": _TAKEN,
    "tools": May("narrower", _tools),
    "limits.*": May("narrower", _limit),
    "guest.*.env": _ADDED,
    "guest.*.replace": _ADDED,
    "guest.*.keys": _ADDED,
    "guest.*.exclusive": _TAKEN,
    "guest.*.watch": _TAKEN,
    "guest.*.guard": May("narrower", _guard),
    "guest.*.enabled": May("narrower", _enabled),
    "guest.*.services": May("narrower", _services),
    "guest.*.limits.*": May("narrower", _guests_limit),
}


def granted_by_trust(content: bytes, *, who: str) -> dict[str, object]:
    """What of a project's settings counts only once they are trusted, by key: that is what trusting them gives away."""
    return {key_of(path): value for path, value in flat(read(content, who)) if may(path).when == "trusted"}


def may(path: Path) -> May:
    """Its row: what somebody named is a star."""
    return PROJECT_MAY[".".join("*" if place % 2 else part for place, part in enumerate(path))]
