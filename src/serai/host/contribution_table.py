"""Who owns which name, and who is asked in which order. One immutable table, made anew when something has changed.

Everything is deterministic (design rule 10): built-ins first, then guests in load order, however late a registration arrived; but
of two guests of one scope whose protocol says so, the later has the name (spec piglet 1.2, FIX-1). Description, schema and routing
of a name come from the same owner, which keeps it while it is down, and every shadowed name is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from serai.errors import SeraiError
from serai.host.argument_schemas import ArgumentChecker, build_checker
from serai.host.guest import Guest, GuestState
from serai.model.contributions import (
    EVERY_EVENT,
    Command,
    Compactor,
    Contributions,
    Interceptor,
    InterceptPoint,
    Provider,
    Shortcut,
)
from serai.model.tools import BUILT_IN, ProgressCallback, ToolBox, ToolCall, ToolResult, ToolSpec

log = logging.getLogger("serai.host")

T = TypeVar("T")
STAGES: tuple[InterceptPoint, ...] = ("tool_call", "tool_result", "turn_start", "assistant_message")


_HOLDS = (GuestState.READY, GuestState.STOPPED)  # one that was stopped on purpose is no guard any more


class ToolOwner(Protocol):
    """Who runs a tool."""

    @property
    def id(self) -> str: ...

    @property
    def down(self) -> bool:
        """It runs nothing at this moment, and says so to every call."""
        ...

    def get_runner(self) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        """What runs its tools now."""
        ...

    def build_error_result(self, call: ToolCall, error: SeraiError) -> ToolResult:
        """What is told of a call that ended in this error."""
        ...


class BuiltInOwner:
    """Serai's own tools as an owner."""

    id = "serai"
    down = False

    def __init__(self, box: ToolBox) -> None:
        self.box = box

    def get_runner(self) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        return self.call

    async def call(self, call: ToolCall, tell: ProgressCallback | None = None) -> ToolResult:
        try:
            return await self.box.call(call, tell=tell)
        except SeraiError:
            raise
        except Exception as error:  # its defect is told like any other failure
            log.exception("the built-in tool %s failed", call.name)
            return ToolResult.error(f"{call.name} failed: {error!r}", code="FAILED")

    def build_error_result(self, call: ToolCall, error: SeraiError) -> ToolResult:
        return ToolResult.error(f"{call.name}: {error}", code="FAILED", hint=error.hint)


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool that can be called: what it is, who runs it, and how its arguments are checked.

    `run` is the way to the process that serves at this moment: whenever that changes, there is a new table.
    """

    spec: ToolSpec
    owner: ToolOwner
    run: Callable[[ToolCall], Awaitable[ToolResult]]
    check: Callable[[object], str]
    problem: str  # why its arguments go unchecked, or ""

    @classmethod
    def from_owner(cls, spec: ToolSpec, owner: ToolOwner, checked: ArgumentChecker) -> RegisteredTool:
        return cls(spec, owner, owner.get_runner(), checked.check, checked.problem)

    def run_watched(self, call: ToolCall, tell: ProgressCallback) -> Awaitable[ToolResult]:
        """Run it for somebody who watches; no guest's wire carries what its tool says meanwhile."""
        return self.owner.call(call, tell) if isinstance(self.owner, BuiltInOwner) else self.run(call)


class InterceptorEntry(NamedTuple):
    """One interceptor in its chain."""

    guest: Guest
    interceptor: Interceptor


class ShadowedName(NamedTuple):
    """A name that a guest offers in vain."""

    what: str  # tool, command, shortcut, provider or compactor
    name: str
    guest: str
    by: str

    def __str__(self) -> str:
        hint = (
            f'; `replace = ["{self.name}"]` among its settings would grant it' if self.by == "serai" and self.what == "tool" else ""
        )
        return f"its {self.what} {self.name} is shadowed by that of {self.by}{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContributionTable:
    """The state of the host at one moment."""

    tools: Mapping[str, RegisteredTool]
    commands: Mapping[str, tuple[Guest, Command]]
    shortcuts: Mapping[str, tuple[Guest, Shortcut]]  # by key
    providers: Mapping[str, Guest]  # by the API of the models they stream
    compactor: tuple[Guest, Compactor] | None
    chains: Mapping[InterceptPoint, tuple[InterceptorEntry, ...]]
    handlers: Mapping[str, tuple[Guest, ...]]  # by the kind of event; "*" for those that want all
    shadowed: tuple[ShadowedName, ...]
    missing: tuple[Guest, ...]  # guards that do not hold, or not yet
    down: str  # which guard is not ready, and why: also one that will be back
    plain: bool  # nobody wants to be asked about a tool call, before or after, and no guard is missing


class TableBuilder:
    """Makes the table. `guests` are in load order."""

    def __init__(
        self, guests: list[Guest], built_in: ToolBox | None, commands: Iterable[str], told: Callable[[ShadowedName], None]
    ) -> None:
        self.guests = guests
        self._built_in = None if built_in is None else BuiltInOwner(built_in)
        self._commands = frozenset(commands)
        self._told = told
        self._known: set[ShadowedName] = set()
        self._checked: dict[tuple[str, str], tuple[ToolSpec, ArgumentChecker]] = {}
        self.absent = ""  # which guard cannot be there at all, and why
        self.made: ContributionTable | None = None  # the latest table, None when it is out of date: read for every call

    def invalidate(self) -> None:
        """Something has changed: the next look makes a new table."""
        self.made = None

    @property
    def table(self) -> ContributionTable:
        if self.made is None:
            self.made = self._build_table()
        return self.made

    def _build_table(self) -> ContributionTable:
        present = [guest for guest in self.guests if guest.state not in (GuestState.FOUND, GuestState.STOPPED)]
        shadowed: list[ShadowedName] = []
        names = _Names(rank_guests(present), shadowed)
        chains = {stage: _build_chain(present, stage) for stage in STAGES}
        missing = tuple(guest for guest in self.guests if guest.explain_unheld())
        table = ContributionTable(
            tools=self._build_tools(names.guests, shadowed),
            commands=names.assign_owners("command", lambda offers: {one.name: one for one in offers.commands}, self._commands),
            shortcuts=names.assign_owners("shortcut", lambda offers: {one.key: one for one in offers.shortcuts}),
            providers={api: guest for api, (guest, _) in names.assign_owners("provider", _index_providers).items()},
            compactor=names.choose_compactor(),
            chains=chains,
            handlers=_index_handlers(present),
            shadowed=tuple(shadowed),
            missing=missing,
            down=next((guest.explain_down() for guest in self.guests if guest.guard and guest.state not in _HOLDS), ""),
            plain=not (chains["tool_call"] or chains["tool_result"] or missing or self.absent),
        )
        for entry in shadowed:
            if entry not in self._known:  # said once, in the guest's log (spec zot 2.3, ours)
                self._known.add(entry)
                self._told(entry)
        return table

    def _build_tools(self, present: list[Guest], shadowed: list[ShadowedName]) -> dict[str, RegisteredTool]:
        tools: dict[str, RegisteredTool] = {}
        reserved = set(BUILT_IN)  # whoever replaces one of them, nobody else gets it
        replaced = {name for guest in present for name in guest.manifest.settings.replace if _is_offered(guest, name)}
        if self._built_in is not None:
            for spec in self._built_in.box.list():
                reserved.add(spec.name)
                if spec.name not in replaced:
                    tools[spec.name] = RegisteredTool.from_owner(spec, self._built_in, self._get_checker("serai", spec))
        for guest in present:
            for spec in guest.tools:
                if spec.name in reserved and spec.name not in guest.manifest.settings.replace:
                    shadowed.append(ShadowedName("tool", spec.name, guest.id, "serai"))
                elif spec.name in tools:
                    shadowed.append(ShadowedName("tool", spec.name, guest.id, tools[spec.name].owner.id))
                else:
                    tools[spec.name] = RegisteredTool.from_owner(spec, guest, self._get_checker(guest.id, spec))
        return tools

    def _get_checker(self, owner: str, spec: ToolSpec) -> ArgumentChecker:
        """Kept as long as the tool is the same: to build a validator takes a while."""
        known = self._checked.get((owner, spec.name))
        if known is None or (known[0] is not spec and _encode_schema(known[0].schema) != _encode_schema(spec.schema)):
            known = (spec, build_checker(spec.schema, who=f"{owner}/{spec.name}"))
            self._checked[owner, spec.name] = known
        return known[1]


def rank_guests(guests: Iterable[Guest]) -> list[Guest]:
    """Whom a name goes to that several want, given those in load order: the earlier scope wins, and in it the earlier guest.

    But those whose protocol has it that the last one wins have their places among each other the other way round.
    """
    found: list[Guest] = []
    for _, scope in groupby(guests, key=lambda guest: guest.manifest.scope):
        places = list(scope)
        last = {guest.id: guest for guest in places if guest.context.get_adapter(guest.manifest).last_wins}
        backwards = reversed(last.values())
        found += [next(backwards) if guest.id in last else guest for guest in places]
    return found


class _Names:
    """Gives each name to one guest, and notes who wants it in vain."""

    def __init__(self, guests: list[Guest], shadowed: list[ShadowedName]) -> None:
        self.guests = guests
        self._shadowed = shadowed

    def assign_owners(
        self, what: str, offers: Callable[[Contributions], Mapping[str, T]], reserved: frozenset[str] = frozenset()
    ) -> dict[str, tuple[Guest, T]]:
        found: dict[str, tuple[Guest, T]] = {}
        for guest in self.guests:
            for name, one in offers(guest.contributions).items():
                if name in reserved:
                    self._shadowed.append(ShadowedName(what, name, guest.id, "serai"))
                elif name in found:
                    self._shadowed.append(ShadowedName(what, name, guest.id, found[name][0].id))
                else:
                    found[name] = (guest, one)
        return found

    def choose_compactor(self) -> tuple[Guest, Compactor] | None:
        """There is one place for all of them, whatever they are called; the last of one guest counts (spec piglet 3)."""
        offering = [(guest, guest.contributions.compactors[-1]) for guest in self.guests if guest.contributions.compactors]
        for guest, one in offering[1:]:
            self._shadowed.append(ShadowedName("compactor", one.name, guest.id, offering[0][0].id))
        return offering[0] if offering else None


def _index_providers(offers: Contributions) -> dict[str, Provider]:
    return {one.api: one for one in offers.providers}


def _encode_schema(schema: dict[str, Any]) -> bytes:
    """To compare: for Python `true` is 1."""
    return msgspec.json.encode(schema, order="sorted")


def _is_offered(guest: Guest, name: str) -> bool:
    return any(spec.name == name for spec in guest.tools)


def _build_chain(present: list[Guest], stage: InterceptPoint) -> tuple[InterceptorEntry, ...]:
    links = [InterceptorEntry(guest, one) for guest in present for one in guest.contributions.interceptors if stage in one.stages]
    return tuple(sorted(links, key=lambda link: -link.interceptor.priority))  # stable: then load order


def _index_handlers(present: list[Guest]) -> dict[str, tuple[Guest, ...]]:
    """A guest is told of an event once, in the place of the first of its handlers that wants it (spec piglet FIX-16)."""
    wanted: dict[str, list[tuple[int, Guest]]] = {}
    for guest in present:
        first: dict[str, int] = {}
        for handler in guest.contributions.event_handlers:
            for kind in handler.events:
                first[kind] = min(first.get(kind, handler.priority), handler.priority)
        for kind, priority in first.items():
            wanted.setdefault(kind, []).append((priority, guest))
    every = wanted.pop(next(iter(EVERY_EVENT)), [])
    told = {kind: tuple(guest for _, guest in _merge(some, every)) for kind, some in wanted.items()}
    return told | {"*": tuple(guest for _, guest in sorted(every, key=lambda pair: pair[0]))}


def _merge(some: list[tuple[int, Guest]], every: list[tuple[int, Guest]]) -> list[tuple[int, Guest]]:
    best: dict[str, tuple[int, Guest]] = {}
    for priority, guest in (*some, *every):
        if guest.id not in best or priority < best[guest.id][0]:
            best[guest.id] = (priority, guest)
    return sorted(best.values(), key=lambda pair: (pair[0], pair[1].order))
