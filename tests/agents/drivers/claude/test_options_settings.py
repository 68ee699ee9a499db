"""What is given to Claude Code with `--settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude.launch import build_command_line
from serai.agents.drivers.claude.options import ClaudeDefaults, ClaudeOptions, add_ask_rule, merge_options
from serai.agents.drivers.claude.options import merge_settings as merged_settings
from serai.errors import BadSettings

RULE = "AskUserQuestion"


def settings_of(line: list[str]) -> list[Any]:
    return [json.loads(word.partition("=")[2]) for word in line if word.partition("=")[0] == "--settings"]


@pytest.mark.req("agents.scenario.K1")
@pytest.mark.parametrize("base", ["", "  "])
def test_without_a_base_there_is_only_the_rule(base: str) -> None:
    assert json.loads(add_ask_rule(base)) == {"permissions": {"ask": [RULE]}}


@pytest.mark.req("agents.scenario.K2")
def test_a_files_rules_come_first_and_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    text = json.dumps({"model": "m", "permissions": {"ask": ["Read", "Bash"], "deny": ["Write"]}, "env": {"A": "é"}}, indent=2)
    file.write_text(text)
    wanted = {"model": "m", "permissions": {"ask": ["Read", "Bash", RULE], "deny": ["Write"]}, "env": {"A": "é"}}
    assert json.loads(add_ask_rule(str(file))) == wanted
    assert json.loads(add_ask_rule("settings.json", cwd=tmp_path)) == wanted
    assert file.read_text() == text


@pytest.mark.req("agents.scenario.K3")
def test_json_is_merged_too() -> None:
    assert json.loads(add_ask_rule(' {"a":1}')) == {"a": 1, "permissions": {"ask": [RULE]}}
    assert json.loads(add_ask_rule('{"permissions":{"allow":["Bash"]}}')) == {"permissions": {"allow": ["Bash"], "ask": [RULE]}}


@pytest.mark.req("agents.scenario.K4")
def test_a_rule_that_is_there_stays_where_it_is(tmp_path: Path) -> None:
    text = json.dumps({"permissions": {"ask": [RULE, "Bash"]}}, indent=1)
    assert add_ask_rule(text) == text
    file = tmp_path / "s.json"
    file.write_text(text)
    assert add_ask_rule(str(file)) == str(file)


@pytest.mark.req("agents.scenario.K5")
@pytest.mark.parametrize(
    "text",
    ["{", '{"a":}', '{"permissions":[]}', '{"permissions":null}', '{"permissions":{"ask":"x"}}', '{"permissions":{"ask":[1]}}'],
)
def test_what_cannot_be_understood_is_passed_on(tmp_path: Path, text: str) -> None:
    assert add_ask_rule(text) == text
    file = tmp_path / "s.json"
    file.write_text(text)
    assert add_ask_rule(str(file)) == str(file)


@pytest.mark.req("agents.scenario.K5")
def test_no_file_a_folder_and_other_json_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for name in ("missing.json", "list.json", "bytes.json", "deep.json", "."):
        assert add_ask_rule(str(tmp_path / name)) == str(tmp_path / name)


@pytest.mark.req("agents.scenario.K6")
def test_with_the_switch_on_there_is_one_value_of_settings() -> None:
    assert settings_of(build_command_line("claude", ClaudeOptions(ask_rule=True))) == [{"permissions": {"ask": [RULE]}}]
    assert settings_of(build_command_line("claude", ClaudeOptions())) == []


@pytest.mark.req("agents.scenario.K7")
def test_the_profiles_the_runs_and_the_rule_are_one_value(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"model":"m","permissions":{"ask":["Bash"]}}')
    options = merge_options(ClaudeDefaults(settings=str(profile), ask_rule=True), ClaudeOptions(settings='{"env":{"A":"1"}}'))
    wanted = {"model": "m", "permissions": {"ask": ["Bash", RULE]}, "env": {"A": "1"}}
    assert settings_of(build_command_line("claude", options)) == [wanted]
    alone = merge_options(ClaudeDefaults(settings=str(profile), ask_rule=True), ClaudeOptions())
    assert settings_of(build_command_line("claude", alone)) == [{"model": "m", "permissions": {"ask": ["Bash", RULE]}}]


@pytest.mark.req("agents.scenario.K8")
def test_in_text_format_there_is_no_rule() -> None:
    assert settings_of(build_command_line("claude", ClaudeOptions(ask_rule=True), fmt="text", prompt="p")) == []
    said = build_command_line("claude", ClaudeOptions(ask_rule=True, settings='{"a":1}'), fmt="text", prompt="p")
    assert settings_of(said) == [{"a": 1}]


# -- two of them ------------------------------------------------------------------------------------------------------------------


def test_one_alone_is_as_it_was() -> None:
    assert merged_settings("", "x.json") == merged_settings("x.json", "") == merged_settings("x.json", "x.json") == "x.json"


@pytest.mark.parametrize("base", ["missing.json", "{", "[]"])
def test_what_cannot_be_merged_is_an_error_that_does_not_quote_it(tmp_path: Path, base: str) -> None:
    for pair in ((base, '{"key":"hunter2"}'), ('{"key":"hunter2"}', base)):
        with pytest.raises(BadSettings, match="cannot be merged") as raised:
            merged_settings(*pair, cwd=tmp_path)
        assert raised.value.who == "claude"
        assert "hunter2" not in str(raised.value)


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=12,
)
_OBJECT = st.dictionaries(st.text(max_size=2), _JSON, max_size=4)


@given(base=_OBJECT, over=_OBJECT)
def test_the_second_wins_and_nothing_of_the_first_is_lost(base: dict[str, Any], over: dict[str, Any]) -> None:
    found = json.loads(merged_settings(json.dumps(base), json.dumps(over)))
    assert set(found) == {*base, *over}
    for key, value in found.items():
        if key not in over:
            assert value == base[key]
        elif not isinstance(over[key], dict | list) or key not in base:
            assert value == over[key]
    lists = {key for key in base if isinstance(base[key], list) and isinstance(over.get(key), list)}
    assert all(item in found[key] for key in lists for item in base[key] + over[key])


@given(_OBJECT)
def test_the_rule_changes_nothing_else_and_twice_is_once(base: dict[str, Any]) -> None:
    once = add_ask_rule(json.dumps(base))
    assert add_ask_rule(once) == once
    found = json.loads(once)
    assert {key: value for key, value in found.items() if key != "permissions"} == {
        key: value for key, value in base.items() if key != "permissions"
    }
