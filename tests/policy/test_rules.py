"""Rules as a person writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serai.errors import BadSettings
from serai.policy.rules import Rules, load_default_rules, parse_rule_flag, read_file, read_rule, read_toml
from tests.support.policy.rules import check, rule

WHOLE = b"""
mode = "auto"
profiles = { careful = "manual" }

[[rule]]
id = "tests"
decide = "allow"
who = "claude"
owner = "built-in"
tool = ["bash", "shell"]
command = ["make test", "pytest *"]
path = "./**"
host = "example.com"
cwd = "./**"
because = "they change nothing"
[rule.input]
city = ["Bern", "Thun"]
"deep.er" = "x"

[[rule]]
id = "no"
decide = "deny"
"""


ABOUT = "what is the pattern about? Say FIELD=PATTERN of the input of weather (--allow 'weather:city=Bern')"


def format_error(error: BadSettings) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)


@pytest.mark.req("policy.rule.toml")
def test_rules_are_read_with_all_their_keys_and_written_as_they_were() -> None:
    rules = read_toml(WHOLE, "rules.toml")
    tests, no = rules.rules
    assert (rules.mode, rules.profiles) == ("auto", {"careful": "manual"})
    assert tests.to_json() == {
        "id": "tests",
        "decide": "allow",
        "who": "claude",
        "owner": "built-in",
        "tool": ["bash", "shell"],
        "command": ["make test", "pytest *"],
        "path": "./**",
        "host": "example.com",
        "cwd": "./**",
        "input": {"city": ["Bern", "Thun"], "deep.er": "x"},
        "because": "they change nothing",
    }
    assert (no.to_json(), no.source) == ({"id": "no", "decide": "deny"}, "rules.toml")
    assert read_rule(tests.to_json(), "rules.toml") == tests
    assert (rules.select("allow"), rules.select("deny"), rules.select("ask")) == ((tests,), (no,), ())


@pytest.mark.req("policy.rule.toml")
@pytest.mark.parametrize(
    ("key", "patterns", "call", "other"),
    [
        ("tool", ["x", "ba*"], ("bash", {}), ("read", {})),
        ("command", ["x", "git *"], ("bash", {"command": "git log"}), ("bash", {"command": "rm x"})),
        ("path", ["/x", "./**"], ("read", {"path": "a"}), ("read", {"path": "/y"})),
        ("host", ["x", "*.com"], ("fetch", {"url": "http://a.com"}), ("fetch", {"url": "http://a.org"})),
        ("cwd", ["/x", "/nowhere/**"], ("bash", {"command": "x"}), ("bash", {"command": "x", "cwd": "/y"})),
        ("input", {"a": ["x", "y*"]}, ("t", {"a": "yes"}), ("t", {"a": "no"})),
        ("who", ["x", "cl*"], ("t", {}), None),
    ],
)
def test_one_pattern_of_a_list_is_enough_and_each_key_has_to_match(
    key: str, patterns: object, call: tuple[str, object], other: tuple[str, object] | None
) -> None:
    assert check(rule("allow", **{key: patterns}), *call).answer == "yes"
    if other is not None:
        assert check(rule("allow", **{key: patterns}), *other).answer == "no"
    both = {key: patterns, "who": "nobody"} if key != "who" else {key: patterns, "tool": "nothing"}
    assert check(rule("allow", **both), *call).answer == "no"


@pytest.mark.req("policy.rule.strict")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[rule]]\nid = "x"\ndecide = "allow"\ncomand = "x"',
            "f.toml: rule `x`: there is no key `comand` (do you mean `command`?)",
        ),
        ('rules = "x"', "f.toml: there is no key `rules` (do you mean `rule`?)"),
        ("zzz = 1", "f.toml: there is no key `zzz` (the file has mode, profiles, rule)"),
        (
            '[[rule]]\nid = "x"\ndecide = "deny"\n' + '[[rule]]\nid = "x"\ndecide = "ask"',
            "f.toml: there are two rules `x` (give each its own id)",
        ),
        ('[[rule]]\nid = "x"\ndecide = "maybe"', "f.toml: rule `x`: `decide` is allow, deny or ask, not 'maybe'"),
        ('[[rule]]\nid = "x"\ndecide = ["allow"]', "f.toml: rule `x`: `decide` is allow, deny or ask, not ['allow']"),
        ('[[rule]]\nid = "x"', "f.toml: rule `x`: `decide` is allow, deny or ask, not None"),
        ('[[rule]]\ndecide = "allow"', "f.toml: each rule has an `id` of letters, digits and . : _ -, not None"),
        ('[[rule]]\nid = "a b"\ndecide = "allow"', "f.toml: each rule has an `id` of letters, digits and . : _ -, not 'a b'"),
        ('mode = "yolo"', "f.toml: a mode is manual, auto, skip, not 'yolo'"),
        ('profiles = { x = "yolo" }', "f.toml: a mode is manual, auto, skip, not 'yolo'"),
        ("profiles = 1", "f.toml: `profiles` is a table of names and modes"),
        ("rule = 1", "f.toml: `rule` is a list: begin each rule with [[rule]]"),
        ("rule = [1]", "f.toml: `rule` is a list: begin each rule with [[rule]]"),
        ('[rule]\nid = "x"', "f.toml: `rule` is a list: begin each rule with [[rule]]"),
        ('[[rule]]\nid = "x"\ndecide = "deny"\ntool = ""', "f.toml: rule `x`: `tool` is a pattern or a list of patterns, not ''"),
        ('[[rule]]\nid = "x"\ndecide = "deny"\ntool = []', "f.toml: rule `x`: `tool` is a pattern or a list of patterns, not []"),
        ('[[rule]]\nid = "x"\ndecide = "deny"\npath = 1', "f.toml: rule `x`: `path` is a pattern or a list of patterns, not 1"),
        (
            '[[rule]]\nid = "x"\ndecide = "deny"\npath = "a**"',
            "f.toml: rule `x`: `**` stands alone between slashes, as in **/*.env, not as in 'a**'",
        ),
        (
            '[[rule]]\nid = "x"\ndecide = "deny"\nhost = "http://x"',
            "f.toml: rule `x`: a host pattern is a name such as *.example.com, with a port or without, not 'http://x'",
        ),
        (
            '[[rule]]\nid = "x"\ndecide = "deny"\ncommand = "\'x"',
            "f.toml: rule `x`: the command pattern `'x` has a quote that is not closed, or ends with a backslash",
        ),
        (
            '[[rule]]\nid = "x"\ndecide = "deny"\ninput = "x"',
            'f.toml: rule `x`: `input` is a table of fields and patterns, such as { city = "Bern" }',
        ),
        ('[[rule]]\nid = "x"\ndecide = "deny"\nbecause = 1', "f.toml: rule `x`: `because` is a text"),
        ('[[rule]]\nid = "x"\ndecide = "deny"\nexactly = "x"', "f.toml: rule `x`: there is no key `exactly` ("),
        ("a = ", "f.toml: it is no TOML: "),
        ("a = " + "[" * 100_000, "f.toml: it is no TOML: "),
        ("a = '\ud800'", "f.toml: it is no TOML: "),
    ],
    ids=lambda text: ascii(text[-30:]),
)
def test_what_is_wrong_in_a_file_is_said_with_the_file_and_the_rule(text: str, said: str) -> None:
    with pytest.raises(BadSettings) as caught:
        read_toml(text.encode(errors="surrogatepass"), "f.toml")
    assert format_error(caught.value).startswith(said)


@pytest.mark.req("policy.rule.strict")
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"#" * 1024 * 1024 + b"#")
    for name, said in {
        "gone": "cannot be read: No such file or directory",
        ".": "it is not a file",
        "pipe": "it is not a file",
        "long": "it is longer than 1 MiB",
    }.items():
        with pytest.raises(BadSettings, match=said):
            read_file(str(tmp_path / name))
    with pytest.raises(BadSettings, match="it is not a file"):
        read_file("/dev/zero")


def test_of_two_sources_the_first_says_the_mode() -> None:
    first = Rules(rules=(rule("deny"),), mode="manual", profiles={"a": "auto"}, notes=("one",))
    second = Rules(rules=(rule("ask"),), mode="skip", profiles={"a": "skip", "b": "skip"}, notes=("two",))
    both = first + second
    assert both == Rules(rules=first.rules + second.rules, mode="manual", profiles={"a": "auto", "b": "skip"}, notes=("one", "two"))
    assert (Rules() + second).mode == "skip"


@pytest.mark.req("policy.rule.flags")
@pytest.mark.parametrize(
    ("flag", "keys"),
    [
        ("bash", {"tool": "bash"}),
        ("bash:git status", {"tool": "bash", "command": "git status"}),
        ("fetch:example.com:8080", {"tool": "fetch", "host": "example.com:8080"}),
        ("read:/etc/*", {"tool": "read", "path": "/etc/*"}),
        ("write:./**", {"tool": "write", "path": "./**"}),
        ("weather:city=B*", {"tool": "weather", "input": {"city": "B*"}}),
        ("weather:city=", {"tool": "weather", "input": {"city": ""}}),
        ("mcp*", {"tool": "mcp*"}),
    ],
)
def test_a_flag_is_a_rule(flag: str, keys: dict[str, object]) -> None:
    made = parse_rule_flag(flag)
    assert made.to_json() == {"id": f"--allow {flag}", "decide": "allow", **keys}
    assert made.source == "the command line"


@pytest.mark.req("policy.rule.flags")
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("", "--allow : it is TOOL or TOOL:PATTERN (--allow 'bash:git status')"),
        (":x", "--allow :x: it is TOOL or TOOL:PATTERN (--allow 'bash:git status')"),
        ("bash:", "--allow bash:: it is TOOL or TOOL:PATTERN (--allow 'bash:git status')"),
        (
            "weather:Bern",
            f"--allow weather:Bern: {ABOUT}",
        ),
        (
            "weather:=Bern",
            f"--allow weather:=Bern: {ABOUT}",
        ),
        ("read:a**", "--allow read:a**: `**` stands alone between slashes, as in **/*.env, not as in 'a**' (correct the pattern)"),
    ],
)
def test_a_flag_that_is_none_says_how_it_is_written(flag: str, said: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse_rule_flag(flag)
    assert format_error(caught.value) == said


def test_what_is_shipped_is_one_rule_and_asks_for_the_rest() -> None:
    [looking] = load_default_rules().rules
    assert (looking.id, looking.decide, load_default_rules().mode) == ("default.look-around", "allow", "manual")
