"""What the author may say, what only the person may grant, and that a typing error is never taken for a no."""

from __future__ import annotations

import re
from typing import Any

import pytest

from serai.errors import BadManifest, BadSettings
from serai.host.guest_settings import (
    GROUPS,
    PROJECT,
    AuthorSettings,
    GuestSettings,
    PersonSettings,
    are_related,
    list_keys,
    merge_settings,
    narrow_limits,
    read_author_settings,
    read_person_settings,
)
from serai.limits import Limits


def settings(author: str = "", config: dict[str, Any] | None = None) -> GuestSettings:
    said = read_author_settings(author.encode(), who="/g")
    return merge_settings(said, read_person_settings(config or {}), dialect="zot", name="weather")


def test_without_a_word_nothing_is_granted_and_nothing_is_special() -> None:
    assert merge_settings(AuthorSettings(), PersonSettings(), dialect="zot", name="weather") == GuestSettings()


@pytest.mark.req("host.trust.grants")
def test_the_authors_narrowing_counts_at_once_and_the_rest_is_only_asked_for() -> None:
    found = settings(
        'guard = true\nexclusive = true\nwatch = false\nenv = ["A_TOKEN"]\nreplace = ["read"]\n[limits]\ntool = 5\nintercept = 1.5'
    )
    assert (found.guard, found.exclusive, found.watch) == (True, True, False)
    assert (found.limits, found.author_limits) == ({}, {"tool": 5, "intercept": 1.5})
    assert (found.env, found.replace) == ((), ())
    assert found.asked == ("env A_TOKEN", "replace read")


def test_the_person_grants_and_what_is_granted_is_not_asked_for_any_more() -> None:
    found = settings('env = ["A_TOKEN", "B_TOKEN"]', {"guest": {"zot:weather": {"env": ["A_TOKEN", "C"], "replace": ["read"]}}})
    assert (found.env, found.replace, found.asked) == (("A_TOKEN", "C"), ("read",), ("env B_TOKEN",))


@pytest.mark.req("host.trust.grants")
def test_a_trusted_project_has_what_it_asks_for() -> None:
    found = settings('env = ["A_TOKEN"]\nreplace = ["read"]', {"guest": {"weather": {"env": ["C"]}}}).as_granted()
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
    assert found.limits == {"tool": None, "hello": 2}
    assert found.author_limits == {"tool": 9, "ready": 4}


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
    assert read_person_settings({"guests": {"homes": homes}}).homes == searched
    assert read_person_settings({}).homes == ()


BAD_TABLES = [
    ({"gaurd": True}, "gaurd"),
    ({"guard": 1}, "guard"),
    ({"watch": "no"}, "watch"),
    ({"env": "A"}, "env"),
    ({"env": ["*_TOKEN"]}, r"env: '\*_TOKEN' is not the name of a variable"),
    ({"env": ["A=B"]}, "env: 'A=B'"),
    ({"replace": [""]}, "replace: a tool has a name"),
    ({"services": ["dialgos"]}, "services: there is no group 'dialgos'; there is dialogs$"),
    ({"services": ["x"]}, "services: there is no group 'x'; there is tools, config, credentials, "),
    ({"services": "tools"}, "services"),
    ({"keys": ["*"]}, r"keys: '\*' is not the name of a provider"),
    ({"keys": [""]}, "keys: '' is not the name of a provider"),
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
        read_person_settings({"guest": {"weather": table}}, who="/home/config.toml")
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
        ({"limits": 5}, "limits: "),
    ],
)
def test_tables_that_are_none_are_a_mistake_too(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        read_person_settings(config)


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(("config", "key"), [({"geust": {"gate": {"guard": True}}}, "geust"), ({"guard": True}, "guard")])
def test_a_guard_is_not_lost_by_a_typing_error_at_the_top(config: dict[str, Any], key: str) -> None:
    with pytest.raises(BadSettings, match=f"there is no setting '{key}'") as raised:
        read_person_settings(config, who="/home/config.toml")
    assert raised.value.who == "/home/config.toml"


def test_the_person_may_set_limits_for_all_guests() -> None:
    config = {
        "limits": {"tool": 1, "command": "none", "frame": 1000},
        "guest": {"weather": {"limits": {"tool": 5}}},
        "record": False,
    }
    person = read_person_settings(config)
    assert person.limits == {"tool": 1, "command": None, "frame": 1000}
    assert merge_settings(AuthorSettings(), person, dialect="zot", name="weather").limits == {"tool": 5}
    assert Limits().but(**person.limits).tool == 1
    assert read_person_settings({}).limits == {}


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tolo": 1}, "^limits: there is no limit tolo$"),
        ({"tool": 0}, "^limits: tool is a number above 0, not 0$"),
        ({"frame": 1.5}, "^limits: frame is a whole number above 0, not 1.5$"),
        ({"hello": "none"}, "^limits: hello is a number above 0, not 'none'$"),
        ({"tool": {"weather": 1}}, "^limits: tool is a number above 0"),
        ({"tool": 1e10}, "^limits: tool is at most 3153600000 seconds, not 10000000000.0$"),
        ({"remember": 36501}, "^limits: remember is at most 36500 days, not 36501$"),
        ({"frame": 1 << 40_000}, "^limits: frame is at most 1000000000000000 bytes, not one of so many digits$"),
        ({"frame": [1 << 40_000]}, "^limits: frame is a whole number above 0, not one of so many digits$"),
        ({"tool": "x" * 500}, "^limits: tool is a number above 0, not something so long$"),
    ],
)
def test_limits_for_all_are_checked_like_those_of_one(limits: dict[str, object], reason: str) -> None:
    with pytest.raises(BadSettings) as raised:
        read_person_settings({"limits": limits}, who="/home/config.toml")
    assert re.search(reason, raised.value.message)
    assert raised.value.who == "/home/config.toml"


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
        (b"a." * 4_000 + b"a = 1", "guest.toml: a line with more than 50 dots"),
    ],
)
def test_every_mistake_of_the_author_names_the_folder_and_the_key(text: bytes, reason: str) -> None:
    with pytest.raises(BadManifest, match=reason) as raised:
        read_author_settings(text, who="/g")
    assert raised.value.who == "/g"


@pytest.mark.req("host.trust.grants")
def test_a_guest_cannot_call_itself_by_the_id_of_another() -> None:
    """`[guest."zot:weather"]` is for that guest, and not for one whose name is `zot:weather`."""
    person = read_person_settings({"guest": {"zot:weather": {"env": ["A_TOKEN"], "guard": True}, "a:b": {"env": ["B"]}}})
    assert merge_settings(AuthorSettings(), person, dialect="zot", name="zot:weather") == GuestSettings()
    assert merge_settings(AuthorSettings(), person, dialect="zot", name="weather").env == ("A_TOKEN",)
    assert merge_settings(AuthorSettings(), person, dialect="zot", name="a:b").env == ("B",)  # there is no dialect a
    assert list_keys("zot", "piglet:x") == ("zot:piglet:x",)
    assert list_keys("zot", "x") == ("zot:x", "x")


def test_an_authors_limits_only_narrow() -> None:
    base = Limits().but(tool=60, command=None, restart_wait=1, restarts=5)
    less = {"stop_polite": 0.5, "hello": 3, "restarts": 1, "frame": 1000, "tool": 5, "command": 9, "restart_wait": 8}
    assert narrow_limits(less, base) == less
    more = {"stop_polite": 1e5, "hello": 1e6, "restarts": 10**6, "restart_wait": 0.001, "restart_healthy": 0.001, "frame": 10**12}
    assert narrow_limits(more, base) == {}


def test_an_author_may_let_its_own_callers_wait_but_not_for_ever() -> None:
    base = Limits().but(tool=60, command=60)
    assert narrow_limits({"tool": 300, "command": 100_000}, base) == {"tool": 300, "command": 600}
    assert narrow_limits({"tool": 100_000, "restart_wait_most": 1e300}, base.but(tool=900)) == {
        "tool": 900,
        "restart_wait_most": 3600,
    }


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
    assert read_person_settings(config).guards == {"zot:a", "b"}


# -- services and keys ------------------------------------------------------------------------------------------------------------


ALL_BUT_CREDENTIALS = frozenset(GROUPS) - {"credentials"}


@pytest.mark.req("app.config.services")
def test_without_a_word_a_guest_may_use_all_services_but_credentials() -> None:
    assert (settings().services, settings().groups) == (None, ALL_BUT_CREDENTIALS)


@pytest.mark.req("app.config.services")
def test_the_groups_that_the_person_lists_are_all_there_are_and_a_key_opens_credentials() -> None:
    found = settings(config={"guest": {"weather": {"services": ["dialogs", "tools"]}}})
    assert (found.services, found.groups) == (("tools", "dialogs"), frozenset({"tools", "dialogs"}))
    assert settings(config={"guest": {"weather": {"services": []}}}).groups == set()
    found = settings(config={"guest": {"weather": {"services": ["tools"], "keys": ["Anthropic", "anthropic"]}}})
    assert (found.keys, found.groups, found.grants) == (("anthropic",), frozenset({"tools", "credentials"}), ("key anthropic",))
    assert settings(config={"guest": {"weather": {"keys": ["openai"]}}}).groups == set(GROUPS)


@pytest.mark.req("app.config.services")
def test_an_author_may_narrow_the_services_and_only_ask_for_keys() -> None:
    found = settings('services = ["tools", "credentials"]\nkeys = ["anthropic"]')
    assert (found.services, found.keys, found.asked) == (("tools",), (), ("key anthropic",))
    assert found.groups == {"tools"}
    assert (found.as_granted().keys, found.as_granted().asked) == (("anthropic",), ())
    assert found.as_granted().groups == {"tools", "credentials"}
    found = settings('services = ["tools"]\nkeys = ["a", "b"]', {"guest": {"weather": {"services": ["bus"], "keys": ["A"]}}})
    assert (found.services, found.keys, found.asked_keys) == (("bus",), ("a",), ("b",))


# -- what a project adds ----------------------------------------------------------------------------------------------------------


def set_project(guest: dict[str, Any], author: str = "", mine: dict[str, Any] | None = None, **more: Any) -> GuestSettings:
    return settings(author, {"guest": mine or {}, PROJECT: {"guest": guest, **more}})


@pytest.mark.req("app.config.narrow")
@pytest.mark.parametrize("key", ["weather", "zot:weather"])
def test_a_project_switches_a_guest_off_but_never_a_guard_whoever_calls_it_one(key: str) -> None:
    off = {key: {"enabled": False}}
    assert not set_project(off).enabled
    assert not set_project(off, mine={"zot:weather": {"enabled": True}}).enabled
    assert set_project(off, "guard = true").enabled
    assert set_project(off, mine={"zot:weather": {"guard": True}}).enabled
    assert set_project(off, mine={"weather": {"guard": True}}).enabled
    assert set_project({key: {"enabled": False, "guard": True}}).enabled
    assert set_project({"other": {"enabled": False}}).enabled
    assert not set_project(off, "guard = true", mine={"weather": {"guard": False}}).enabled  # the person says that it is none


@pytest.mark.req("app.config.narrow")
def test_a_project_does_not_switch_on_what_the_person_has_switched_off() -> None:
    assert not set_project({"zot:weather": {"enabled": True, "guard": True}}, mine={"weather": {"enabled": False}}).enabled


@pytest.mark.req("app.config.narrow")
def test_a_project_makes_a_guard_and_does_not_unmake_one() -> None:
    assert set_project({"weather": {"guard": True}}, mine={"zot:weather": {"guard": False}}).guard
    assert set_project({"weather": {"guard": False}}, "guard = true").guard
    person = read_person_settings(
        {"guest": {"a": {"guard": True}}, PROJECT: {"guest": {"a": {"guard": True}, "b": {"guard": True}}}}
    )
    assert (person.guards, person.project_guards) == (frozenset("a"), frozenset("b"))


@pytest.mark.req("app.config.narrow")
def test_a_project_leaves_of_the_services_what_both_list_whatever_the_keys() -> None:
    wide = {"zot:weather": {"services": list(GROUPS)}}
    assert set_project(wide).groups == ALL_BUT_CREDENTIALS
    assert set_project(wide, mine={"weather": {"services": ["tools"]}}).groups == {"tools"}
    assert set_project(wide, 'services = ["bus"]').groups == {"bus"}
    assert set_project({"weather": {"services": ["tools"]}, "zot:weather": {"services": ["bus"]}}).groups == set()
    narrow = {"weather": {"services": ["tools"]}}
    found = set_project(narrow, 'keys = ["a"]', mine={"zot:weather": {"keys": ["b"]}})
    assert (found.groups, found.keys, found.asked) == (frozenset({"tools"}), (), ())  # a key would open the group again
    assert found.as_granted().groups == {"tools"}
    found = set_project({"weather": {"services": ["credentials"]}}, mine={"zot:weather": {"keys": ["b"]}})
    assert (found.groups, found.keys) == (frozenset({"credentials"}), ("b",))


@pytest.mark.req("app.config.narrow")
@pytest.mark.parametrize(("author", "mine"), [("guard = true", {}), ("", {"guard": True})])
def test_a_project_takes_nothing_from_a_guard_that_it_relies_on(author: str, mine: dict[str, Any]) -> None:
    base = Limits()
    theirs = {"weather": {"services": [], "limits": {"tool": 1}}}
    found = set_project(theirs, author, mine={"zot:weather": {"keys": ["a"], **mine}}, limits={"command": 1})
    assert (found.groups, found.keys, found.apply_limits(base)) == (frozenset(GROUPS), ("a",), base)
    made = set_project({"weather": {"guard": True, **theirs["weather"]}})  # a guard by the project's word alone is as it wants it
    assert (made.guard, made.groups, made.apply_limits(base).tool) == (True, frozenset(), 1)


def test_what_a_trusted_project_grants_comes_to_what_the_person_grants() -> None:
    theirs = {"env": ["A"], "replace": ["read"], "keys": ["B"], "exclusive": True, "watch": False}
    found = set_project({"weather": theirs}, 'env = ["A", "C"]\nkeys = ["b"]', mine={"zot:weather": {"env": ["D"], "watch": True}})
    assert (found.env, found.replace, found.keys, found.asked) == (("D", "A"), ("read",), ("b",), ("env C",))
    assert (found.exclusive, found.watch) == (True, False)


@pytest.mark.req("app.config.narrow")
def test_a_projects_limits_count_where_they_are_lower_than_all_others() -> None:
    base = Limits().but(tool=60, command=None)
    assert set_project({}, limits={"tool": 100}).apply_limits(base).tool == 60  # zot's is lower than what everybody may have
    assert set_project({}, limits={"tool": 10, "command": 5}).apply_limits(base) == base.but(tool=10, command=5)
    assert (
        set_project({"zot:weather": {"limits": {"tool": 300}}}).apply_limits(base).tool == 60
    )  # an author may raise it, a project not
    mine = {"weather": {"limits": {"tool": 50}}}
    assert set_project({"zot:weather": {"limits": {"tool": 55}}}, mine=mine).apply_limits(base).tool == 50
    assert set_project({"zot:weather": {"limits": {"tool": 7}}}, mine=mine).apply_limits(base).tool == 7
    assert set_project({"weather": {"limits": {"tool": 7}}}, limits={"tool": 3}).apply_limits(base).tool == 3
    assert set_project({}, "[limits]\ntool = 4", limits={"tool": 9}).apply_limits(base).tool == 4


def test_limits_are_the_dialects_narrowed_by_the_author_and_then_the_persons() -> None:
    base = Limits().but(tool=60)
    assert settings("[limits]\ntool = 30\nready = 1").apply_limits(base) == base.but(tool=30, ready=1)
    assert settings("[limits]\ntool = 30", {"guest": {"weather": {"limits": {"tool": 90}}}}).apply_limits(base) == base.but(tool=90)


def test_what_a_project_adds_is_checked_like_the_rest() -> None:
    with pytest.raises(BadSettings, match='project: guest."weather": limits: there is no limit tolo'):
        set_project({"weather": {"limits": {"tolo": 1}}})
    with pytest.raises(BadSettings, match="project: limits: there is no limit tolo"):
        set_project({}, limits={"tolo": 1})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a", True),
        ("zot:a", "a", True),
        ("a", "zot:a", True),
        ("zot:a", "piglet:a", False),
        ("a", "b", False),
        ("x:a", "b", False),
    ],
)
def test_a_name_and_an_id_may_mean_the_same_guest(one: str, other: str, same: bool) -> None:
    assert are_related(one, other) is same
