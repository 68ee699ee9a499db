"""`manifest.yaml`: what is read, what is refused, and the command line that comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.dialects.piglet.manifest import Default, Manifest, ManifestError, build_argv, parse, set_enabled
from serai.errors import BadManifest
from serai.host import guest_manifest as host_manifest
from serai.host.adapters import DIALECTS, DialectRow
from serai.host.guest_settings import PersonSettings
from tests.support.profiles import examples

FULL = b"""\
name: weather
version: 1.10
runtime: python
entry: src/main.py
capabilities: [tool, "command"]
defaults:
  - src: prompt.md
    dest: extensions/weather/prompt.md
transport: stdio
description: Tells the weather.
intents: [rain, 7]
triggers: {when: always}
"""


def manifest(**fields: str) -> Manifest:
    return Manifest(**{"name": "weather", "runtime": "python"} | fields)  # type: ignore[arg-type]


@pytest.mark.req("piglet.rule.manifest-unknown-keys")
def test_every_key_is_read_and_unknown_ones_stay_readable() -> None:
    read = parse(FULL)
    assert (read.name, read.version, read.runtime, read.entry) == ("weather", "1.10", "python", "src/main.py")
    assert read.capabilities == ("tool", "command")
    assert read.defaults == (Default("prompt.md", "extensions/weather/prompt.md"),)
    assert (read.transport, read.description, read.language, read.enabled) == ("stdio", "Tells the weather.", "python", True)
    assert read.raw["intents"] == ["rain", 7]
    assert read.raw["triggers"] == {"when": "always"}
    assert set(read.raw) == {
        "name", "version", "runtime", "entry", "capabilities", "defaults", "transport", "description", "intents", "triggers"
    }  # fmt: skip


@pytest.mark.req("piglet.rule.manifest-unknown-keys")
@pytest.mark.parametrize("capabilities", [b"[]", b"[no-such-thing]", b"null", b"[tool, tool]"])
def test_capabilities_only_describe(capabilities: bytes) -> None:
    read = parse(b"name: a\nruntime: ./run\ncapabilities: " + capabilities)
    assert build_argv(read, "/g") == ("/g/run",)


@pytest.mark.req("piglet.rule.manifest-required")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "manifest: name is required"),
        (b"# nothing\n", "manifest: name is required"),
        (b"null", "manifest: name is required"),
        (b"{}", "manifest: name is required"),
        (b"name:\nruntime: x", "manifest: name is required"),
        (b'name: ""\nruntime: x', "manifest: name is required"),
        (b"name: ~\nruntime: x", "manifest: name is required"),
        (b"Name: a\nruntime: x", "manifest: name is required"),
        (b"name: a", "manifest: runtime is required"),
        (b"name: a\nruntime: ''", "manifest: runtime is required"),
        (b"[]", "parse manifest: it is no mapping"),
        (b"just text", "parse manifest: it is no mapping"),
        (b"name: [a]\nruntime: x", "parse manifest: name is no text"),
        (b"name: a\nruntime: {x: 1}", "parse manifest: runtime is no text"),
        (b"name: a\nruntime: x\ncapabilities: tool", "parse manifest: capabilities is no list"),
        (b"name: a\nruntime: x\ndefaults: [a]", "parse manifest: each of defaults"),
        (b"name: a\nruntime: x\nentry: [a]", "parse manifest: entry is no text"),
        (b"name: a\nruntime: x\ntransport: pipe", "manifest: transport is auto, fd or stdio, not 'pipe'"),
        (b'name: a\nruntime: "x\\0"', "parse manifest: runtime has a NUL"),
        (b"name: a\n  runtime: x", "parse manifest: mapping values are not allowed"),
        (b"name: 'a", "parse manifest: "),
        (b"\x00", "parse manifest: unacceptable character"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse(content)
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


@pytest.mark.req("piglet.rule.manifest-name-component")
@pytest.mark.parametrize("name", ["a/b", "/", ".", "..", "../a", "a/", "x" * 256])
def test_a_name_that_is_no_folders_name_is_refused(name: str) -> None:
    with pytest.raises(ManifestError, match="is not a single path component"):
        parse(f"name: {name}\nruntime: x".encode())


@pytest.mark.req("piglet.rule.manifest-name-component")
@pytest.mark.parametrize("name", ["a", "...", "a.b", "-a", "Wetter ä", "123", "true", "2026-02-03", "1.50"])
def test_a_name_is_the_text_that_is_written(name: str) -> None:
    assert parse(f"name: {name}\nruntime: x".encode()).name == name


@pytest.mark.req("piglet.rule.manifest-name-component")
@pytest.mark.parametrize("name", [" a", "a ", " ", "a\n[serai] b", "a\tb", "a\u001bb", "a\u200bb", "a\u202eb", "\u00a0"])
def test_a_name_that_is_not_seen_as_it_is_is_refused(name: str) -> None:
    with pytest.raises(ManifestError, match="name '.*' has blanks around it, or something that cannot be seen") as refused:
        parse(f"name: {json.dumps(name)}\nruntime: x".encode())
    assert str(refused.value).isprintable()


BOMBS = {
    "alias": b"a: &a [x]\nb: *a\nname: a\nruntime: x",
    "billion laughs": b"a: &a [x]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (n, n, n - 1, n - 1) for n in range(98, 120)),
    "itself": b"a: &a [*a]",
    "anchor": b"name: &n a\nruntime: x",
    "merged keys": b"<<: {name: a, runtime: x}",
    "merged keys by tag": b"!!merge '': {name: a, runtime: x}",
    "deep flow": b"a: " + b"[" * 60_000,
    "deep braces": b"{a: " * 10_000,
    "deep block": b"\n".join(b" " * n + b"a:" for n in range(300)),
    "wide": b"a: [" + b"x," * 30_000 + b"]",
    "long": b"a: " + b"x" * 70_000,
    "python object": b"a: !!python/object/apply:os.getpid []",
    "odd int": b'a: !!int ""',
    "odd date": b"a: !!timestamp x",
    "no date": b"a: 2026-99-99",
    "long number": b"a: " + b"1" * 5000,
    "unhashable key": b"? [a]\n: b\n? {c: d}\n: e",
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_what_is_small_to_write_and_large_to_build_is_refused_at_once(content: bytes) -> None:
    with pytest.raises(ManifestError, match=r"^parse manifest: "):
        parse(content)


def test_text_of_another_encoding_does_not_lose_the_guest() -> None:
    assert parse(b"\xef\xbb\xbfname: weather\nruntime: run\ndescription: f\xfcr").description == "f\ufffdr"
    assert parse(b'name: "a\\ud800b"\nruntime: run').name == "a?b"


def test_of_several_documents_the_first_counts() -> None:
    assert parse(b"---\nname: a\nruntime: x\n---\nname: b\n").name == "a"


@pytest.mark.parametrize("transport", ["auto", "fd", "stdio"])
def test_the_transport_may_be_named(transport: str) -> None:
    assert parse(f"name: a\nruntime: x\ntransport: {transport}".encode()).transport == transport
    assert parse(b"name: a\nruntime: x").transport == "auto"


@pytest.mark.req("piglet.rule.runtime-names")
@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        ("bun", ("bun", "run", "/g/src/x.ts")),
        ("node", ("node", "/g/src/x.ts")),
        ("deno", ("deno", "run", "--allow-all", "/g/src/x.ts")),
        ("python", ("python3", "/g/src/x.ts")),
    ],
)
def test_four_names_are_interpreters_from_path(runtime: str, command: tuple[str, ...]) -> None:
    assert build_argv(manifest(runtime=runtime, entry="src/x.ts"), "/g") == command
    assert build_argv(manifest(runtime=runtime, entry="./src/x.ts"), "/g") == command


@pytest.mark.parametrize(
    ("runtime", "program"),
    [
        ("/opt/run", "/opt/run"),
        ("./bin", "/g/bin"),
        ("bin", "/g/bin"),
        ("out/bin", "/g/out/bin"),
        ("python3", "/g/python3"),
        ("ruby", "/g/ruby"),
        ("Python", "/g/Python"),
        ("../shared/run", "/g/../shared/run"),
    ],
)
def test_every_other_runtime_is_a_file(runtime: str, program: str) -> None:
    assert build_argv(manifest(runtime=runtime), "/g") == (program,)
    assert build_argv(manifest(runtime=runtime, entry="x.py"), "/g") == (program, "/g/x.py")
    assert build_argv(manifest(runtime=runtime, entry="/x.py"), "/g") == (program, "/g/x.py")


def test_there_is_no_switch_in_it_and_the_error_says_where_one_is() -> None:
    with pytest.raises(ValueError, match=r'put `enabled = false` under `\[guest."piglet:weather"\]` in config.toml'):
        set_enabled(FULL, False)


@pytest.mark.req("piglet.rule.manifest-required")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"runtime: x", "manifest {}: name is required"),
        (b"name: a", "manifest {}: runtime is required"),
        (b"[", "parse manifest {}: "),
        (None, "read manifest {}: "),
    ],
)
def test_the_host_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, words: str) -> None:
    row = DialectRow("manifest.yaml", "serai.host.adapters.piglet:ADAPTER", "serai.dialects.piglet.manifest")
    monkeypatch.setitem(DIALECTS, "piglet", row)
    file = tmp_path / "manifest.yaml"
    if content is None:
        file.symlink_to(tmp_path / "nowhere")
    else:
        file.write_bytes(content)
    folder = host_manifest.inspect_folder(tmp_path)
    assert folder is not None
    with pytest.raises(BadManifest) as refused:
        host_manifest.read_manifest(folder, "user", PersonSettings())
    assert refused.value.message.startswith(words.format(file))
    assert "manifest.yaml" not in refused.value.message.removeprefix(words.format(file))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=80) | st.text(alphabet="namerutix: \n-[]{}&*!'\"\\#|>%@,?~0123", max_size=80).map(str.encode))
def test_any_text_is_a_manifest_or_a_manifest_error(content: bytes) -> None:
    try:
        read = parse(b"name: a\nruntime: b\n" + content)
    except ManifestError:
        return
    assert read.name
    assert not any("\0" in part for part in build_argv(read, "/g"))
