"""Names that every model takes: safe, short, unique, stable, and back again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.mcp.neutral import NameMap, measure_prefix

SAFE = re.compile(r"[A-Za-z0-9_-]+")
PREFIX = measure_prefix("serai")
names = st.lists(st.text(max_size=90) | st.text("ab.:_-", min_size=1, max_size=4), max_size=30)
prefixes = st.integers(0, 48)


@pytest.mark.req("app.mcp.names")
def test_the_prefix_is_the_one_that_agents_write() -> None:
    assert len("mcp__serai__") == PREFIX


@pytest.mark.req("app.mcp.names")
@given(names, prefixes)
def test_every_name_is_safe_unique_and_leads_back(names: list[str], prefix: int) -> None:
    made = NameMap(names, prefix=prefix)
    out = [made.get_safe_name(name) for name in set(names)]
    assert len(made) == len(set(out)) == len(set(names))
    assert all(SAFE.fullmatch(name) and len(name) + prefix <= 64 for name in out)
    assert all(made.find_original(made.get_safe_name(name)) == name for name in names)


@pytest.mark.req("app.mcp.names")
@given(names, prefixes, st.randoms())
def test_the_order_of_the_names_makes_no_difference(names: list[str], prefix: int, random: object) -> None:
    made = NameMap(names, prefix=prefix)
    mixed = [*names, *names[:3]]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    again = NameMap(mixed, prefix=prefix)
    assert [made.get_safe_name(name) for name in names] == [again.get_safe_name(name) for name in names]


@pytest.mark.req("app.mcp.names")
@given(names, prefixes)
def test_a_name_that_is_safe_stays_also_the_second_time(names: list[str], prefix: int) -> None:
    made = NameMap(names, prefix=prefix)
    assert all(made.get_safe_name(name) == name for name in names if SAFE.fullmatch(name) and len(name) + prefix <= 64)
    out = [made.get_safe_name(name) for name in names]
    again = NameMap(out, prefix=prefix)
    assert [again.get_safe_name(name) for name in out] == out


@pytest.mark.req("app.mcp.names")
def test_who_takes_the_name_that_another_would_get_keeps_it() -> None:
    taken = NameMap(["a.b"]).get_safe_name("a.b")
    made = NameMap(["a.b", taken])
    assert made.get_safe_name(taken) == taken
    assert made.get_safe_name("a.b") != taken
    assert made.find_original(made.get_safe_name("a.b")) == "a.b"


@pytest.mark.req("app.mcp.names")
def test_long_names_that_begin_alike_stay_apart() -> None:
    names = ["x" * 60 + end for end in "ab"]
    made = NameMap(names, prefix=PREFIX)
    assert made.get_safe_name(names[0]) != made.get_safe_name(names[1])
    assert len(made.get_safe_name(names[0])) == 64 - PREFIX
    assert made.find_original("x" * 52) is None


@pytest.mark.parametrize("prefix", [-1, 49, 64, 1000])
def test_a_prefix_that_leaves_no_room_is_refused(prefix: int) -> None:
    with pytest.raises(ValueError, match="no room"):
        NameMap(["a"], prefix=prefix)
