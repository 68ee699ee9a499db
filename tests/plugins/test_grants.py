"""Differences for people, and enablements as TOML that is read back."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.plugins import resolution
from serai.plugins.grants import (
    Enablement,
    FsGrant,
    Grants,
    diff_contents,
    format_enablement,
    format_granted,
    format_grants,
    format_requested,
    propose_enablement,
    to_enablement,
)
from serai.plugins.manifest import SURFACES, Permission, Target
from serai.plugins.resolution import resolve
from tests.support.yoi.resolved_plugins import (
    DIGEST,
    FS,
    FULL,
    GRANTS,
    HEAD,
    IDENTITY,
    MANIFEST,
    OTHER,
    discover,
    enablement,
    plugin,
    record,
)

replace = msgspec.structs.replace


def test_the_same_contents_have_no_difference() -> None:
    assert diff_contents(plugin(), plugin()) == []
    assert diff_contents(record(), plugin()) == []


def test_what_changed_is_a_line_each() -> None:
    changed = (
        FULL.replace('version = "0.1.0"', 'version = "0.2.0"')
        .replace('name = "example_echo"', 'name = "example_say"')
        .replace("timeout_ms = 1500", "timeout_ms = 2500")
        .replace('[[permissions]]\nkind = "host_api"\napi = "fs"\n', "")
        .replace('path_prefixes = ["/v1"]', 'path_prefixes = ["/"]')
        .replace('[[hooks]]\nid = "notes"\nfile = "hooks/a.md"\n', "")
    )
    kept = {"same": b"s", "plugin.component.wasm": b"1" * 1_200_000}
    old = plugin(files={**kept, "hooks/a.md": b"x", "small": b"1"})
    new = plugin(changed, OTHER, {**kept, "hooks/b.md": b"x" * 2000, "small": b"2", "plugin.component.wasm": b"1" * 1_300_000})
    assert diff_contents(old, new) == [
        "version 0.1.0 -> 0.2.0",
        "- surface hook",
        "+ tool example_say",
        "- tool example_echo",
        "~ tool example_write (timeout_ms)",
        "- hook notes",
        "- permission host_api.fs",
        "+ request target https://api.example.com GET,POST /",
        "- request target https://api.example.com GET,POST /v1",
        "- hooks/a.md (1 B)",
        "+ hooks/b.md (2.0 kB)",
        "~ plugin.component.wasm (1.2 MB -> 1.3 MB)",
        f"~ plugin.toml ({len(FULL) / 1000:.1f} kB -> {len(changed) / 1000:.1f} kB)",
        "~ small (1 B, other contents)",
    ]


def test_of_a_record_the_contents_are_compared_by_their_digest() -> None:
    assert diff_contents(record(), plugin(FULL.replace("0.1.0", "0.2.0"), OTHER)) == [
        "version 0.1.0 -> 0.2.0", f"~ contents ({DIGEST[:19]}… -> {OTHER[:19]}…)",
    ]  # fmt: skip
    assert diff_contents(record(), plugin(FULL.replace('name = "Echo"', 'name = "Ecco"'), OTHER))[0] == "name Echo -> Ecco"


def test_a_stranger_cannot_write_lines_of_ours() -> None:
    evil = FULL.replace('name = "Echo"', 'name = "Echo\\n+ nothing\\u001b[2J\\u202e"').replace('"/v1"', '"/v1\\n- permission all"')
    lines = diff_contents(plugin(), plugin(evil + "#", OTHER))
    assert lines[0] == "name Echo -> Echo + nothing"
    assert all(line.isprintable() for line in lines)
    assert "+ request target https://api.example.com GET,POST /v1 - permission all" in lines


def test_what_is_asked_for_and_what_is_granted() -> None:
    assert format_requested(MANIFEST)[-3:] == [
        "permission host_api.fs",
        "request target https://api.example.com GET,POST /v1",
        "websocket target wss://example.com /socket",
    ]
    private = replace(GRANTS, request=(Target(scheme="http", host="*", methods=("GET",), private=True),))
    assert format_granted(private)[-3:] == [
        "request target http://* GET * [broad-request] [private addresses too]", "websocket target wss://example.com /socket",
        "fs /data read,list",
    ]  # fmt: skip


def test_a_proposal_is_pinned_and_has_no_folder() -> None:
    made = propose_enablement(plugin(), "project")
    assert made == enablement(grants=replace(GRANTS, fs=()))
    assert propose_enablement(plugin(), "project", fs=(FS,)).grants == GRANTS
    nothing = propose_enablement(plugin(HEAD), "user", surfaces=("tool",), config=1)
    assert nothing == Enablement(id="user:example.echo", version="0.1.0", digest=DIGEST, surfaces=("tool",), config=1)
    assert not resolve(made, [discover()]).__class__.__name__.endswith("Diagnostic")


def test_the_snippet_is_readable() -> None:
    text = format_enablement(enablement(surfaces=("tool",), config={"level": 'con"cise', "a b": [1.5, True, {}]}))
    assert text.startswith(
        f'[[plugins.enabled]]\nid = "{IDENTITY}"\nversion = "0.1.0"\ndigest = "{DIGEST}"\nsurfaces = ["tool"]\n'
        'config = { level = "con\\"cise", "a b" = [1.5, true, {}] }\n\n[plugins.enabled.grants]\n'
    )
    assert '\npermissions = [\n  { kind = "surface", surface = "tool" },\n' in text
    assert text.endswith('\n[[plugins.enabled.grants.fs]]\nroot = "/data"\noperations = ["read", "list"]\n')


def test_a_record_and_its_enablement() -> None:
    assert to_enablement(record()) == enablement()
    assert to_enablement(record(enabled_surfaces=("tool",), config=[1])) == enablement(surfaces=("tool",), config=[1])
    assert format_enablement(record()) == format_enablement(enablement())


@pytest.mark.parametrize("config", [{"a": None}, [None], {"a": float("nan")}, "\ud800", {"\ud800": 1}, 2**70, object()])
def test_what_toml_has_no_form_for(config: object) -> None:
    with pytest.raises(ValueError, match="TOML has no null|a number|half a character|JSON does not have"):
        format_enablement(Enablement(id="user:a", config=config))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["." * 80, '"""', "\\", "\x7f\x00\x85\u2028", "#"]
)
NUMBERS = st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
CONFIG = st.recursive(
    NUMBERS | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
TARGETS = st.builds(
    Target, scheme=TEXT, host=TEXT, port=st.none() | st.integers(0, 65535), path_prefixes=st.lists(TEXT, max_size=2).map(tuple),
    private=st.booleans(),
)  # fmt: skip
PERMISSIONS = (
    st.builds(Permission, kind=st.sampled_from(["tool", "service", "ingress"]), name=TEXT)
    | st.builds(Permission, kind=st.just("tool_namespace"), namespace=TEXT)
    | st.builds(Permission, kind=st.just("surface"), surface=st.sampled_from(SURFACES))
    | st.builds(Permission, kind=st.just("external_write"))
)
ENABLEMENTS = st.builds(
    Enablement,
    id=TEXT,
    version=TEXT,
    digest=TEXT,
    surfaces=st.lists(st.sampled_from(SURFACES), max_size=3).map(tuple),
    config=st.none() | CONFIG,
    grants=st.builds(
        Grants,
        id=TEXT,
        permissions=st.lists(PERMISSIONS, max_size=3).map(tuple),
        request=st.lists(TARGETS, max_size=2).map(tuple),
        websocket=st.lists(TARGETS, max_size=2).map(tuple),
        fs=st.lists(st.builds(FsGrant, root=TEXT, operations=st.just(("read",)) | st.just(())), max_size=2).map(tuple),
    ),
)


@given(st.lists(ENABLEMENTS, max_size=3))
def test_what_is_written_is_read_back(enablements: list[Enablement]) -> None:
    text = format_grants(enablements)
    text.encode()
    assert all(character == "\n" or character.isprintable() for character in text)
    read = resolution.read_plugin_settings(tomllib.loads(text))
    assert read.on
    assert read.enabled == tuple(enablements)
    assert msgspec.json.encode([one.config for one in read.enabled]) == msgspec.json.encode([one.config for one in enablements])


def test_a_long_text_is_no_line_of_too_many_dots() -> None:
    text = format_enablement(Enablement(id="user:a", config={"a": "." * 200}))
    assert max(line.count(".") for line in text.splitlines()) <= 50
