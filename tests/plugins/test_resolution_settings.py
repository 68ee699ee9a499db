"""`[feature.plugins]` and `[plugins]` of the settings."""

from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

import msgspec
import pytest

from serai.errors import BadSettings
from serai.limits import MIB
from serai.plugins.bounds import DEFAULT, STACK_MOST, UPSTREAM, Bounds
from serai.plugins.resolution import PackageDiagnostic, PluginPlan, PluginSettings, plan, read_plugin_settings
from tests.support.yoi.resolved_plugins import DIGEST, GRANTS, IDENTITY, discover, enablement, record

SPEC = f"""
[feature.plugins]
enabled = true

[[plugins.enabled]]
id = "{IDENTITY}"
version = "0.1.0"
digest = "{DIGEST}"
surfaces = ["tool"]
config = {{ level = "concise", since = 1979-05-27, at = 1979-05-27T07:32:00Z }}

[plugins.enabled.grants]
id = "{IDENTITY}"
version = "0.1.0"
digest = "{DIGEST}"
permissions = [ {{ kind = "surface", surface = "tool" }}, {{ kind = "tool", name = "example_echo" }} ]

[[plugins.enabled.grants.request]]
scheme = "https"
host = "api.example.com"
methods = ["GET"]
private = true
[[plugins.enabled.grants.websocket]]
scheme = "wss"
host = "example.com"
[[plugins.enabled.grants.fs]]
root = "/abs/dir"
operations = ["read", "list"]
"""


def get_refusal(text: str | dict[str, Any]) -> str:
    with pytest.raises(BadSettings) as caught:
        read_plugin_settings(tomllib.loads(text) if isinstance(text, str) else text, who="config.toml")
    return caught.value.message


def test_the_example_of_the_protocol() -> None:
    settings = read_plugin_settings(tomllib.loads(SPEC))
    assert settings.on
    assert settings.bounds == DEFAULT
    assert settings.resolved is None
    (only,) = settings.enabled
    assert only.config == {"level": "concise", "since": "1979-05-27", "at": "1979-05-27T07:32:00Z"}
    assert [one.label for one in only.grants.permissions] == ["surfaces.tool", "tool.example_echo"]
    assert only.grants.request[0].private
    assert only.grants.fs[0].operations == ("read", "list")


@pytest.mark.req("yoi.rule.059")
@pytest.mark.parametrize(
    "feature", [{}, {"feature": {}}, {"feature": {"plugins": {}}}, {"feature": {"plugins": {"enabled": False}}}]
)
def test_without_the_switch_nothing_is_on(feature: dict[str, Any]) -> None:
    listed = {"plugins": {"enabled": [msgspec.to_builtins(enablement())]}}
    settings = read_plugin_settings(feature | listed)
    assert not settings.on
    assert len(settings.enabled) == 1
    assert plan(settings.counting, [discover()]) == PluginPlan()
    switched = read_plugin_settings({"feature": {"plugins": {"enabled": True}}} | listed)
    assert [one.identity for one in plan(switched.counting, [discover()]).records] == [IDENTITY]


def test_nothing_said() -> None:
    assert read_plugin_settings({}) == PluginSettings()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[feature]\nplugins = true", "feature: plugins: Expected `object`, got `bool`"),
        ("[feature]\nplugin = {}", "feature: there is no key `plugin`"),
        ("[feature.plugins]\nenabled = 1", "feature: plugins.enabled: Expected `bool`, got `int`"),
        ("[plugins]\nenable = []", "plugins: there is no key `enable`"),
        ('[plugins]\npreset = "mine"', "plugins: preset: a value that is not known there"),
        ("[[plugins.enabled]]\nversion = '1'", "plugins: enabled[0]: the key `id` is missing"),
        ("[[plugins.enabled]]\nid = 'user:a'\ngrant = {}", "plugins: enabled[0]: there is no key `grant`"),
        ("[[plugins.enabled]]\nid = 'user:a'\ngrants = { https = [] }", "plugins: enabled[0].grants: there is no key `https`"),
        (
            "[[plugins.enabled]]\nid = 'user:a'\ngrants = { permissions = [{ kind = 'tool' }] }",
            "plugins: enabled[0]: permission of the kind `tool`: the key `name` is missing",
        ),
        (
            "[[plugins.enabled]]\nid = 'user:a'\ngrants = { request = [{ port = -1 }] }",
            "plugins: enabled[0]: request target: `port` is 0 to 65535",
        ),
        (
            "[[plugins.enabled]]\nid = 'user:a'\ngrants = { fs = [{ root = '/a', operations = ['delete'] }] }",
            "plugins: enabled[0].grants.fs[0].operations[0]: a value that is not known there",
        ),
        ("[[plugins.enabled]]\nid = 'user:a'\nconfig = { a = inf }", "plugins: enabled[0]: a number that JSON does not have"),
    ],
)
def test_a_typing_error_is_an_error(text: str, reason: str) -> None:
    assert get_refusal(text) == reason


@pytest.mark.req("yoi.rule.086")
def test_the_usual_bounds() -> None:
    assert (DEFAULT.memory, DEFAULT.instances, DEFAULT.tables, DEFAULT.memories) == (64 * MIB, 64, 16, 8)
    assert (DEFAULT.table_elements, DEFAULT.stack, DEFAULT.fuel) == (20_000, MIB, 0)
    assert read_plugin_settings({"plugins": {"bounds": {"fuel": True}}}).bounds.fuel == 2_000_000_000
    assert read_plugin_settings({"plugins": {"preset": "upstream", "bounds": {"fuel": False}}}).bounds.fuel == 0


@pytest.mark.req("yoi.rule.087")
def test_the_bounds_of_the_origin() -> None:
    origin = read_plugin_settings({"plugins": {"preset": "upstream"}}).bounds
    assert origin == UPSTREAM
    assert (origin.memory, origin.table_elements, origin.instances, origin.tables, origin.memories) == (2 * MIB, 256, 1, 1, 1)
    assert origin.fuel == 5_000_000
    assert (origin.strict_imports, origin.deny_private, origin.ratio) == (True, False, 0)
    assert origin.stack <= STACK_MOST


@pytest.mark.req("yoi.rule.087")
@pytest.mark.parametrize("preset", ["default", "upstream"])
def test_no_stack_is_more_than_the_process_can_bear(preset: str) -> None:
    assert STACK_MOST == 2 * MIB
    assert read_plugin_settings({"plugins": {"preset": preset, "bounds": {"stack": 2 * MIB}}}).bounds.stack == 2 * MIB
    assert get_refusal({"plugins": {"preset": preset, "bounds": {"stack": 2 * MIB + 1}}}) == "plugins.bounds: stack is 1 to 2097152"


def test_bounds_change_what_the_preset_has() -> None:
    changed = read_plugin_settings({"plugins": {"preset": "upstream", "bounds": {"tool": 20, "strict_imports": False}}}).bounds
    assert changed == msgspec.structs.replace(UPSTREAM, tool=20.0, strict_imports=False)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"stak": 1}, "there is no key `stak`"),
        ({"memory": 0}, "memory is 1 to 4294967296"),
        ({"memory": True}, "memory: Expected `int`, got `bool`"),
        ({"memory": 1.5}, "memory: Expected `int`, got `float`"),
        ({"tool": 0}, "tool is more than 0 and at most 60 seconds"),
        ({"tool": float("inf")}, "tool is more than 0 and at most 60 seconds"),
        ({"tool": float("nan")}, "tool is more than 0 and at most 60 seconds"),
        ({"tool": 60.001}, "tool is more than 0 and at most 60 seconds"),
        ({"tool_with_host": 61}, "tool_with_host is more than 0 and at most 60 seconds"),
        ({"start": 3600.1}, "start is more than 0 and at most 3600 seconds"),
        ({"fuel": -1}, "fuel is 0 to 9223372036854775807"),
        ({"entries": 2**31}, "entries is 1 to 2147483647"),
        ({"deny_private": "no"}, "deny_private: Expected `bool`, got `str`"),
    ],
)
def test_bounds_that_cannot_be(bounds: dict[str, Any], reason: str) -> None:
    assert get_refusal({"plugins": {"bounds": bounds}}) == f"plugins.bounds: {reason}"


def test_no_tool_has_more_than_a_minute() -> None:
    """Else it would be taken and have no effect: no call is longer (spec yoi 14.3)."""
    longest = read_plugin_settings(
        {"plugins": {"bounds": {"tool": 60, "tool_with_host": 60.0, "start": 3600, "ingress": 3600.0}}}
    ).bounds
    assert (longest.tool, longest.tool_with_host, longest.start, longest.ingress) == (60.0, 60.0, 3600.0, 3600.0)


def test_every_bound_can_be_set() -> None:
    assert read_plugin_settings({"plugins": {"bounds": msgspec.to_builtins(DEFAULT)}}).bounds == DEFAULT
    assert read_plugin_settings({"plugins": {"bounds": msgspec.to_builtins(UPSTREAM)}}).bounds == UPSTREAM
    assert isinstance(DEFAULT, Bounds)


@pytest.mark.req("yoi.rule.060")
def test_a_plan_that_was_kept_comes_back() -> None:
    kept = PluginPlan(
        records=(record(config={"a": 1}),), diagnostics=(PackageDiagnostic(kind="io", phase="discovery", message="m"),)
    )
    through = msgspec.json.decode(msgspec.json.encode({"plugins": {"resolved": kept}}))
    assert read_plugin_settings(through).resolved == kept
    assert read_plugin_settings({"plugins": {"resolved": {}}}).resolved is None


def test_a_plan_that_cannot_be() -> None:
    broken = msgspec.to_builtins(PluginPlan(records=(record(identity="user:x"),)))
    assert (
        get_refusal({"plugins": {"resolved": broken}}) == "plugins: resolved: resolved plugin record does not fit its own manifest"
    )
    drifted = msgspec.to_builtins(PluginPlan(records=(record(grants=msgspec.structs.replace(GRANTS, digest="")),)))
    assert (
        get_refusal({"plugins": {"resolved": drifted}})
        == "plugins: resolved: plugin grant is missing a deterministic digest binding"
    )


def test_dates_of_a_config_are_text() -> None:
    made = read_plugin_settings({"plugins": {"enabled": [{"id": "user:a", "config": [date(2020, 1, 2)]}]}})
    assert made.enabled[0].config == ["2020-01-02"]
