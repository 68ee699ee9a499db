"""What the author may say, what only the person may grant, and that a typing error is never taken for a no."""

from __future__ import annotations

from typing import Any

import pytest

from serai.errors import BadManifest, BadSettings
from serai.host.settings import Author, GuestSettings, Person, combine, guards_named, read_author, read_person


def settings(author: str = "", config: dict[str, Any] | None = None) -> GuestSettings:
    said = read_author(author.encode(), who="/g")
    return combine(said, read_person(config or {}), dialect="zot", name="weather")


def test_without_a_word_nothing_is_granted_and_nothing_is_special() -> None:
    assert combine(Author(), Person(), dialect="zot", name="weather") == GuestSettings()


@pytest.mark.req("host.trust.grants")
def test_the_authors_narrowing_counts_at_once_and_the_rest_is_only_asked_for() -> None:
    found = settings(
        'guard = true\nexclusive = true\nwatch = false\nenv = ["A_TOKEN"]\nreplace = ["read"]\n[limits]\ntool = 5\nintercept = 1.5'
    )
    assert (found.guard, found.exclusive, found.watch) == (True, True, False)
    assert found.limits == {"tool": 5, "intercept": 1.5}
    assert (found.env, found.replace) == ((), ())
    assert found.asked == ("env A_TOKEN", "replace read")


def test_the_person_grants_and_what_is_granted_is_not_asked_for_any_more() -> None:
    found = settings('env = ["A_TOKEN", "B_TOKEN"]', {"guest": {"zot:weather": {"env": ["A_TOKEN", "C"], "replace": ["read"]}}})
    assert (found.env, found.replace, found.asked) == (("A_TOKEN", "C"), ("read",), ("env B_TOKEN",))


@pytest.mark.req("host.trust.grants")
def test_a_trusted_project_has_what_it_asks_for() -> None:
    found = settings('env = ["A_TOKEN"]\nreplace = ["read"]', {"guest": {"weather": {"env": ["C"]}}}).granted()
    assert (found.env, found.replace, found.asked) == (("C", "A_TOKEN"), ("read",), ())


def test_the_person_has_the_last_word_and_the_id_says_more_than_the_name() -> None:
    config = {
        "guest": {
            "weather": {"guard": True, "watch": False, "limits": {"tool": 1, "hello": 2}},
            "zot:weather": {"watch": True, "enabled": False, "limits": {"tool": "none"}},
            "piglet:weather": {"exclusive": True},
        }
    }
    found = settings("[limits]\ntool = 9\nready = 4", config)
    assert (found.guard, found.watch, found.enabled, found.exclusive) == (True, True, False, False)
    assert found.limits == {"tool": None, "hello": 2, "ready": 4}


def test_the_person_may_take_a_guard_back() -> None:
    assert not settings("guard = true", {"guest": {"weather": {"guard": False}}}).guard


@pytest.mark.parametrize(
    ("homes", "searched"),
    [
        (True, ("zot", "piglet")),
        (False, ()),
        ([], ()),
        (["piglet"], ("piglet",)),
    ],
)
def test_foreign_homes_are_switched_on_one_by_one_or_all(homes: object, searched: tuple[str, ...]) -> None:
    assert read_person({"guests": {"homes": homes}}).homes == searched
    assert read_person({}).homes == ()


BAD_TABLES = [
    ({"gaurd": True}, "gaurd"),
    ({"guard": 1}, "guard"),
    ({"watch": "no"}, "watch"),
    ({"env": "A"}, "env"),
    ({"env": ["*_TOKEN"]}, r"env: '\*_TOKEN' is not the name of a variable"),
    ({"env": ["A=B"]}, "env: 'A=B'"),
    ({"replace": [""]}, "replace: a tool has a name"),
    ({"limits": {"tolo": 1}}, "there is no limit tolo"),
    ({"limits": {"tool": 0}}, "tool is a number above 0, not 0"),
    ({"limits": {"tool": True}}, "tool is a number above 0, not True"),
    ({"limits": {"tool": "5"}}, "tool is a number above 0, not '5'"),
    ({"limits": {"tool": float("inf")}}, "tool is a number"),
    ({"limits": {"tool": float("nan")}}, "tool is a number"),
    ({"limits": {"frame": 1.5}}, "frame is a whole number above 0, not 1.5"),
    ({"limits": {"hello": "none"}}, "hello is a number"),
]


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(("table", "reason"), BAD_TABLES)
def test_every_mistake_of_the_person_names_file_and_key(table: dict[str, object], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason) as raised:
        read_person({"guest": {"weather": table}}, who="/home/config.toml")
    assert raised.value.who == "/home/config.toml"
    assert 'guest."weather"' in raised.value.message


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"guests": {"homes": ["pi"]}}, "guests: .*homes"),
        ({"guests": {"home": True}}, "guests: .*home"),
        ({"guests": []}, "guests: "),
        ({"guest": {"weather": 1}}, "guest: "),
        ({"guest": True}, "guest: "),
    ],
)
def test_tables_that_are_none_are_a_mistake_too(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        read_person(config)


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"guard = ", "guest.toml: "),
        (b"\xff", "guest.toml: "),
        (b"gaurd = true", "guest.toml: .*gaurd"),
        (b"guard = 'yes'", "guest.toml: .*guard"),
        (b"enabled = false", "guest.toml: .*enabled"),
        (b"limits = 5", "guest.toml: .*limits"),
        (b"[limits]\ntool = 'none'", "guest.toml: limits: tool without an end"),
        (b"a = " + b"[" * 100_000, "guest.toml: "),
    ],
)
def test_every_mistake_of_the_author_names_the_folder_and_the_key(text: bytes, reason: str) -> None:
    with pytest.raises(BadManifest, match=reason) as raised:
        read_author(text, who="/g")
    assert raised.value.who == "/g"


def test_guards_that_the_person_names_are_known_unless_switched_off() -> None:
    config = {
        "guest": {
            "zot:a": {"guard": True},
            "b": {"guard": True},
            "c": {"guard": False},
            "d": {"guard": True, "enabled": False},
            "e": {},
        }
    }
    assert guards_named(config) == {"zot:a", "b"}
