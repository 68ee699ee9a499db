"""A group of services: a table of operations, each with what it takes and who does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

__all__ = ["Data", "Group", "NoArguments", "Operation", "Publishes"]

A = TypeVar("A", bound=msgspec.Struct)
Data = dict[str, Any]  # JSON data; the keys are snake_case


class NoArguments(msgspec.Struct, frozen=True):
    """For what needs none."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[A]):
    """`do` gets the id of the guest that asks, and its arguments as `takes`; it gives JSON data, or raises a `SeraiError`."""

    takes: type[A]
    do: Callable[[str, A], Awaitable[Any]]


class Group(Protocol):
    """What a guest may ask for under one name."""

    @property
    def operations(self) -> Mapping[str, Operation[Any]]: ...


@runtime_checkable
class Publishes(Protocol):
    """A group that has something to tell a guest again and again."""

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        """As `host.services.Services.subscribe`."""
        ...
