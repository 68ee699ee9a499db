"""Every limit has its reason, and none waits for ever."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, asdict

import pytest

from serai.limits import HOUR, MIB, Limits

TABLE = Limits.explain()
UNITS = {"bytes", "seconds", "days"} | {
    *("requests", "events", "files", "names", "starts", "calls", "messages", "texts", "characters", "clients"),
}
DEADLINES = [(name, default) for name, default, unit, _ in TABLE if unit == "seconds"]


@pytest.mark.req("wire.limits.reasons")
def test_the_table_has_every_limit_with_its_default_in_order() -> None:
    assert [(name, default) for name, default, _, _ in TABLE] == list(asdict(Limits()).items())


@pytest.mark.req("wire.limits.reasons")
@pytest.mark.parametrize(("name", "default", "unit", "why"), TABLE, ids=[row[0] for row in TABLE])
def test_every_limit_has_a_sensible_default_a_unit_and_a_reason(name: str, default: object, unit: str, why: str) -> None:
    assert unit in UNITS
    assert isinstance(default, float if unit == "seconds" else int)
    assert default > 0
    assert len(why.split()) >= 3


@pytest.mark.req("wire.limits.reasons")
def test_a_copy_has_the_changed_values_and_keeps_the_others() -> None:
    usual = Limits()
    changed = usual.but(frame=4 * MIB, call=None)
    assert asdict(changed) == asdict(usual) | {"frame": 4 * MIB, "call": None}
    assert usual == Limits()


@pytest.mark.req("wire.limits.reasons")
def test_a_copy_refuses_a_name_that_is_no_limit() -> None:
    with pytest.raises(TypeError, match="patience"):
        Limits().but(patience=3)


def test_limits_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        Limits().frame = 1  # type: ignore[misc]


@pytest.mark.req("wire.limits.finite")
@pytest.mark.parametrize(("name", "default"), DEADLINES)
def test_no_deadline_is_longer_than_an_hour(name: str, default: object) -> None:
    assert isinstance(default, float)
    assert math.isfinite(default)
    assert default <= HOUR == 3600


@pytest.mark.req("wire.limits.finite")
def test_whatever_is_waited_for_is_a_deadline() -> None:
    waits = {"call", "exit_grace", "drain_grace", "stop_polite", "stop_term", "stop_kill", "see", "record_batch"}
    assert waits <= {name for name, _ in DEADLINES}


def test_what_was_changed_is_known_by_name() -> None:
    assert Limits().changes() == {}
    assert Limits().but(tool=5.0, call=None).changes() == {"call": None, "tool": 5.0}
