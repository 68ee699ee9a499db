"""From a guest's request to the operation that serves it: which guest may ask, for what, with which arguments, and how much at
once.

A `ServiceGroup` is a table of operations, each with its arguments and its function. `ServiceGrants` says which services a guest
may use and whose keys it may have; only the person's settings say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from serai.errors import BadRequest, LimitHit, Refused, SeraiError
from serai.host.guest_settings import GROUPS, GuestSettings
from serai.limits import Limits

log = logging.getLogger("serai.app")

DEFAULT_GRANTS = frozenset(GROUPS) - {"credentials"}
# Other names of providers (spec piglet 7.1).
_ALIASES = {
    "gemini": "google",
    "vertex": "google-vertex",
    "bedrock": "amazon-bedrock",
    "copilot": "github-copilot",
    "azure": "azure-openai",
}


class ServiceGrants(msgspec.Struct, frozen=True):
    """`groups` by name; `keys` are the providers, by the names that `normalize_provider` gives, whose keys it may have."""

    groups: frozenset[str] = DEFAULT_GRANTS
    keys: frozenset[str] = frozenset()


NO_GRANTS = ServiceGrants(frozenset())  # for whoever is no guest here


def read_service_grants(settings: GuestSettings) -> ServiceGrants:
    """What a guest with these settings may use. A key that is granted opens `credentials`, and nothing else does."""
    groups = settings.groups if settings.keys else settings.groups - {"credentials"}
    return ServiceGrants(groups, frozenset(map(normalize_provider, settings.keys)))


def normalize_provider(name: str) -> str:
    """The one name of a provider that has several."""
    plain = name.strip().lower()
    return _ALIASES.get(plain, plain)


A = TypeVar("A", bound=msgspec.Struct)
Data = dict[str, Any]  # JSON data; the keys are snake_case


class NoArguments(msgspec.Struct, frozen=True):
    """For what needs none."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[A]):
    """`do` gets the id of the guest that asks, and its arguments as `takes`; it gives JSON data, or raises a `SeraiError`."""

    takes: type[A]
    do: Callable[[str, A], Awaitable[Any]]


class ServiceGroup(Protocol):
    """What a guest may ask for under one name."""

    @property
    def operations(self) -> Mapping[str, Operation[Any]]: ...


@runtime_checkable
class Subscribable(Protocol):
    """A group that has something to tell a guest again and again."""

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        """As `host.adapter.Services.subscribe`."""
        ...


_LISTED = 12  # names in a hint


class AppServices:
    """Implements `host.adapter.Services`. `granted` is asked at every request: a person may change their mind."""

    def __init__(
        self, groups: Mapping[str, ServiceGroup], *, granted: Callable[[str], ServiceGrants], limits: Limits | None = None
    ) -> None:
        self.groups = dict(groups)
        self.granted = granted
        self._limits = limits or Limits()
        self._open: Counter[str] = Counter()  # requests under way, by guest

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any] | None) -> Any:
        """Do it. Every failure is a `SeraiError`; whoever is cancelled here ends what they asked for."""
        operation = self._find_operation(guest, group, what)
        given = _convert_arguments(arguments, operation, f"{group}.{what}", guest)
        most = self._limits.requests
        if self._open[guest] >= most:
            raise Refused(f"{group}.{what}: too much is asked at once ({LimitHit('requests', most)})", who=guest)
        self._open[guest] += 1
        try:
            return await self._run_operation(guest, f"{group}.{what}", operation, given)
        finally:
            self._open[guest] -= 1
            if not self._open[guest]:
                del self._open[guest]

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        """Of the bus, for whoever is granted it."""
        bus = self._find_group(guest, "bus", "subscribe")
        if not isinstance(bus, Subscribable):
            raise BadRequest("there is no service bus.subscribe", who=guest)
        return bus.subscribe(guest, topic, deliver)

    def _find_group(self, guest: str, group: str, what: str) -> ServiceGroup:
        """The one that is asked for, if this guest may use it."""
        found = self.groups.get(group)
        if found is None:
            raise BadRequest(f"there is no service {group}.{what}", who=guest, hint=_suggest_names(group, self.groups))
        if group not in self.granted(guest).groups:
            grant = 'keys = ["PROVIDER"]' if group == "credentials" else f'services = ["{group}"]'
            raise Refused(f'{group}.{what} is not granted: `{grant}` under [guest."{guest}"] would grant it', who=guest)
        return found

    def _find_operation(self, guest: str, group: str, what: str) -> Operation[Any]:
        found = self._find_group(guest, group, what)
        operation = found.operations.get(what)
        if operation is None:
            raise BadRequest(f"there is no service {group}.{what}", who=guest, hint=_suggest_names(what, found.operations))
        return operation

    async def _run_operation(self, guest: str, name: str, operation: Operation[Any], given: msgspec.Struct) -> Any:
        deadline = asyncio.timeout(self._limits.call)
        try:
            async with deadline:
                return await operation.do(guest, given)
        except SeraiError:
            raise
        except Exception as error:
            if deadline.expired():
                limit = LimitHit("call", self._limits.call or 0)
                raise Refused(f"{name} was not done in time ({limit})", who=guest) from None
            log.exception("%s failed for %s", name, guest)
            raise Refused(f"{name} failed: {type(error).__name__}", who=guest) from error  # its text may be for nobody's eyes


def _convert_arguments(arguments: Mapping[str, Any] | None, operation: Operation[Any], name: str, guest: str) -> Any:
    """As the operation takes them; absent ones are none (spec piglet FIX-5)."""
    given = {} if arguments is None else dict(arguments)
    try:
        try:
            return msgspec.convert(given, operation.takes)
        except msgspec.ValidationError:
            return msgspec.convert(_convert_floats(given), operation.takes)
    except (msgspec.ValidationError, RecursionError) as error:
        takes = ", ".join(operation.takes.__struct_fields__)
        hint = f"it takes {takes}" if takes else "it takes nothing"
        raise BadRequest(f"{name}: {str(error).replace('`$.', '`')}", who=guest, hint=hint) from None


def _convert_floats(value: Any) -> Any:
    """With integers where others write `4242.0` (spec piglet 10.14). Only for what is refused otherwise."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _convert_floats(item) for key, item in value.items()}
    return [_convert_floats(item) for item in value] if isinstance(value, list | tuple) else value


def _suggest_names(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name[:100], names, n=3, cutoff=0.5) or names[:_LISTED]
    return f"there is {', '.join(near)}" if near else ""
