"""`extension.json`: what is read, what is refused, and what enable and disable leave alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.zot.manifest import Manifest, ManifestError, build_argv, parse, set_enabled

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELDS = ["name", "exec", "args", "version", "language", "description", "enabled", "other"]


def text(**fields: object) -> bytes:
    return json.dumps({"name": "weather", "exec": "python3", **fields}).encode()


@pytest.mark.req("zot.rule.1.3-args")
def test_every_field_is_read_and_unknown_ones_are_ignored() -> None:
    manifest = parse(text(args=["-c", "a b; $HOME"], version="1", language="python", description="d", enabled=True, extra=[1]))
    assert manifest == Manifest(
        name="weather", exec="python3", args=("-c", "a b; $HOME"), version="1", language="python", description="d", enabled=True
    )
    assert build_argv(manifest, "/g") == ("python3", "-c", "a b; $HOME")


@pytest.mark.req("zot.rule.1.3-required")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "parse manifest: "),
        (b"{", "parse manifest: "),
        (b"[]", "parse manifest: "),
        (b'{"name": "a", "exec": "b"} trailing', "parse manifest: "),
        (b"[" * 100_000, "parse manifest: "),
        (b"{}", "manifest: name is required"),
        (b'{"name": ""}', "manifest: name is required"),
        (b'{"name": null, "exec": "x"}', "manifest: name is required"),
        (b'{"name": "a"}', "manifest: exec is required"),
        (b'{"name": "a", "exec": ""}', "manifest: exec is required"),
        (text(name=1), "parse manifest: .*name"),
        (text(exec=["x"]), "parse manifest: .*exec"),
        (text(args="x"), "parse manifest: .*args"),
        (text(args=["x", 1]), "parse manifest: .*args"),
        (text(version=2), "parse manifest: .*version"),
        (text(enabled="no"), "parse manifest: .*enabled"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(ManifestError, match=f"^{reason}"):
        parse(content)


@pytest.mark.req("zot.rule.1.3-enabled")
@pytest.mark.parametrize(("fields", "enabled"), [({}, True), ({"enabled": None}, True), ({"enabled": False}, False)])
def test_only_false_disables(fields: dict[str, object], enabled: bool) -> None:
    assert parse(text(**fields)).enabled is enabled


def test_null_is_as_good_as_absent() -> None:
    assert parse(text(args=None, version=None, language=None, description=None)) == Manifest(name="weather", exec="python3")


def test_text_of_another_encoding_does_not_lose_the_guest() -> None:
    assert parse(b'\xef\xbb\xbf{"name": "weather", "exec": "run", "description": "f\xfcr"}').description == "f\ufffdr"


@pytest.mark.req("zot.rule.1.3-exec")
@pytest.mark.parametrize(
    ("program", "resolved"),
    [
        ("/opt/run", "/opt/run"),
        ("./run", "/g/run"),
        ("../run", "/g/../run"),
        ("bin/run", "/g/bin/run"),
        (".", "/g/."),
        ("..", "/g/.."),
    ],
)
def test_a_program_with_a_path_is_absolute_or_of_the_folder(program: str, resolved: str) -> None:
    assert build_argv(parse(text(exec=program)), "/g") == (resolved,)


@pytest.mark.req("zot.edge.45")
@pytest.mark.parametrize("program", ["run", "python3", ".hidden", "a b"])
def test_a_program_without_a_path_is_left_to_the_path(program: str) -> None:
    assert build_argv(parse(text(exec=program)), "/g") == (program,)


@given(st.binary() | st.dictionaries(st.sampled_from(FIELDS), JSON).map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_manifest_or_a_reason(content: bytes) -> None:
    try:
        manifest = parse(content)
    except ManifestError as error:
        reason = str(error)
    else:
        reason = ""
        assert manifest.name
        assert build_argv(manifest, "/g")[1:] == manifest.args
    assert reason.startswith(("parse manifest: ", "manifest: ")) or not reason


@pytest.mark.req("zot.rule.1.4-enable-disable")
def test_enable_and_disable_write_sorted_keys_and_keep_what_they_do_not_know() -> None:
    before = b'{"name":"weather","zoo":{"b":1.50,"a":[1e400, 12345678901234567890123]},"exec":"run","enabled":null}'
    assert set_enabled(before, enabled=False).decode() == (
        '{\n  "enabled": false,\n  "exec": "run",\n  "name": "weather",\n'
        '  "zoo": {\n    "b": 1.50,\n    "a": [\n      1e400,\n      12345678901234567890123\n    ]\n  }\n}\n'
    )


@pytest.mark.req("zot.rule.1.4-enable-disable")
@given(st.dictionaries(st.text(), JSON), st.booleans())
def test_enable_and_disable_change_enabled_alone(fields: dict[str, object], enabled: bool) -> None:
    after = json.loads(set_enabled(json.dumps(fields).encode(), enabled))
    assert after == {**fields, "enabled": enabled}
    assert list(after) == sorted(after)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": }'])
def test_what_is_no_object_is_not_rewritten(content: bytes) -> None:
    with pytest.raises(ManifestError, match="^parse manifest: "):
        set_enabled(content, enabled=True)
