"""`plugin.toml`: what is read, what is refused, and what a refusal says."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from serai.dialects.yoi import manifest
from serai.plugins.manifest import (
    INSTANCE,
    ManifestError,
    PluginManifest,
    Target,
    build_argv,
    check,
    check_package,
    parse,
    set_enabled,
)
from tests.support.yoi.resolved_plugins import FULL, HEAD, MANIFEST, RUNTIME

TOOL_WORLD = RUNTIME.replace("instance@", "tool@")


def get_refusal(text: str | bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        parse(text.encode() if isinstance(text, str) else text)
    assert len(str(caught.value).encode()) <= 240
    return str(caught.value)


def test_every_field_is_read() -> None:
    assert (MANIFEST.id, MANIFEST.name, MANIFEST.version, MANIFEST.description) == (
        "example.echo",
        "Echo",
        "0.1.0",
        "says it again",
    )
    assert MANIFEST.runtime is not None
    assert MANIFEST.runtime.world == INSTANCE
    assert [tool.timeout_ms for tool in MANIFEST.tools] == [0, 1500]
    assert MANIFEST.ingresses[0].sources == ("websocket:wss://example.com/socket",)
    assert [one.label for one in MANIFEST.permissions] == [
        "surfaces.tool", "surfaces.service", "surfaces.ingress", "tool_namespace.example_", "service.svc", "ingress.ws",
        "external_write", "host_api.request", "host_api.websocket", "host_api.fs",
    ]  # fmt: skip
    assert MANIFEST.request[0].path_prefixes == ("/v1",)


@pytest.mark.req("yoi.conform.09")
@pytest.mark.parametrize("key", ["schema_version", "id", "name", "version"])
def test_what_is_required(key: str) -> None:
    parse(HEAD.encode())
    assert get_refusal(re.sub(rf"\b{key} = .*\n", "", HEAD)) == f"plugin.toml: the key `{key}` is missing"


@pytest.mark.req("yoi.conform.09")
@pytest.mark.parametrize("key", ["name", "version"])
@pytest.mark.parametrize("blank", ["", " ", "\\t\\n"])
def test_a_blank_name_or_version(key: str, blank: str) -> None:
    assert (
        get_refusal(re.sub(rf"\b{key} = .*", rf'{key} = "{blank}"'.replace("\\", "\\\\"), HEAD))
        == f"plugin manifest {key} must not be blank"
    )


@pytest.mark.req("yoi.edge.22", "yoi.conform.10")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        (HEAD + "color = 1", ""),
        (HEAD + RUNTIME + "fuel = 1", "runtime: "),
        (HEAD + '[[hooks]]\nid = "a"\nfile = "a"\nx = 1', "hooks[0]: "),
        (HEAD + '[[tools]]\nname = "a"\ninputSchema = {}', "tools[0]: "),
        (HEAD + RUNTIME + '[[services]]\nname = "a"\nx = 1', "services[0]: "),
        (HEAD + RUNTIME + '[[ingresses]]\nname = "a"\n[[ingresses]]\nname = "b"\nx = 1', "ingresses[1]: "),
        (HEAD + '[[permissions]]\nkind = "external_write"\nx = 1', "permissions[0]: "),
        (HEAD + '[[request]]\nhost = "a"\nx = 1', "request[0]: "),
        (HEAD + '[[websocket]]\nhost = "a"\nx = 1', "websocket[0]: "),
        (HEAD + '[[request]]\nhost = "a"\n[[request]]\nhost = "b"\nprivate = false', "request[1]: "),
        (HEAD + '[[request]]\nhost = "a"\nprivate = true', "request[0]: "),
        (HEAD + '[[websocket]]\nhost = "a"\n[[websocket]]\nhost = "b"\nprivate = false', "websocket[1]: "),
        (HEAD + '[[websocket]]\nhost = "a"\nprivate = true', "websocket[0]: "),
        (HEAD + '[[websocket]]\nhost = "a"\nmethods = []', "websocket[0]: "),
        (HEAD + '[[websocket]]\nhost = "a"\nmethods = ["GET"]', "websocket[0]: "),
    ],
)
def test_an_unknown_key_at_every_level(text: str, where: str) -> None:
    assert get_refusal(text).startswith(f"plugin.toml: {where}there is no key `")


@pytest.mark.req("yoi.edge.22")
@pytest.mark.parametrize("value", ["true", "1.0", '"1"', "[1]"])
def test_a_schema_version_is_a_whole_number(value: str) -> None:
    assert get_refusal(HEAD.replace("schema_version = 1", f"schema_version = {value}")).startswith(
        "plugin.toml: schema_version: Expected `int`"
    )


@pytest.mark.req("yoi.rule.048")
@pytest.mark.parametrize("version", ["0", "2", "-1"])
def test_another_schema_version_whatever_else_it_has(version: str) -> None:
    text = HEAD.replace("schema_version = 1", f"schema_version = {version}") + "future = true\n"
    assert get_refusal(text) == "plugin schema/API version is unsupported"


@pytest.mark.req("yoi.rule.048")
@pytest.mark.parametrize("name", ["", ".a", "a.", ".", "a b", "a/b", "ä", "a\\n", "x" * 129, "a:b"])
def test_an_id_that_is_not_safe(name: str) -> None:
    assert get_refusal(HEAD.replace("example.echo", name)) == "plugin manifest id is not a safe local id"
    for what, table in (("service name", "services"), ("ingress name", "ingresses")):
        assert get_refusal(f'{HEAD}{RUNTIME}[[{table}]]\nname = "{name}"') == f"plugin manifest {what} is not a safe local id"
    assert get_refusal(f'{HEAD}[[hooks]]\nid = "{name}"\nfile = "f"') == "plugin manifest hook id is not a safe local id"


@pytest.mark.req("yoi.rule.048")
@pytest.mark.parametrize("name", ["a", "A.b_c-9", "-", "_", "a..b", "x" * 128])
def test_an_id_that_is(name: str) -> None:
    assert parse(HEAD.replace("example.echo", name).encode()).id == name


@pytest.mark.req("yoi.conform.11")
@pytest.mark.parametrize(("extra", "abi"), [("", "yoi-plugin-wasm-1"), ('abi = "own-2"', "own-2")])
def test_the_legacy_runtime(extra: str, abi: str) -> None:
    text = f'{HEAD}[runtime]\nkind = "wasm"\nentry = "a.wasm"\n{extra}'
    assert get_refusal(text) == f"legacy raw wasm plugin runtime `wasm` / `{abi}` is retired; use `wasm-component`"


@pytest.mark.req("yoi.rule.051")
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"wasm-component"', '"native"', "plugin runtime kind is unsupported"),
        ('kind = "wasm-component"', "", "plugin runtime kind is unsupported"),
        ("instance@1.0.0", "instance@2.0.0", "plugin component world is unsupported"),
        ('component = "plugin.component.wasm"', "", "plugin component runtime artifact is required"),
        ('component = "plugin.component.wasm"', 'component = ""', "plugin component runtime artifact is required"),
        ('"plugin.component.wasm"', '"../x.wasm"', "plugin package entry path escapes the archive root"),
        ('"plugin.component.wasm"', '"a//x.wasm"', "plugin package entry path escapes the archive root"),
        ('"plugin.component.wasm"', '"C:x.wasm"', "plugin package entry path escapes the archive root"),
        ('component = "', 'entry = "a"\ncomponent = "', "plugin component runtime must not declare raw WASM ABI metadata"),
        ('component = "', 'abi = "a"\ncomponent = "', "plugin component runtime must not declare raw WASM ABI metadata"),
        ('component = "', 'abi = ""\ncomponent = "', "plugin component runtime must not declare raw WASM ABI metadata"),
    ],
)
def test_the_runtime_table(old: str, new: str, reason: str) -> None:
    parse((HEAD + RUNTIME).encode())
    assert get_refusal(HEAD + RUNTIME.replace(old, new)) == reason


@pytest.mark.req("yoi.rule.050", "yoi.rule.051")
def test_the_files_that_it_names_are_in_the_package() -> None:
    there = {"plugin.toml", "plugin.component.wasm", "hooks/a.md"}
    check_package(MANIFEST, there)
    with pytest.raises(ManifestError, match="plugin component runtime artifact is not in the package"):
        check_package(MANIFEST, there - {"plugin.component.wasm"})
    with pytest.raises(ManifestError, match="plugin hook file of `notes` is not in the package"):
        check_package(MANIFEST, there - {"hooks/a.md"})


@pytest.mark.req("yoi.rule.050")
def test_hooks_are_checked() -> None:
    hook = HEAD + '[[hooks]]\nid = "a"\nfile = "hooks/a.md"\n'
    assert parse(hook.encode()).hooks[0].file == "hooks/a.md"
    assert get_refusal(hook.replace("hooks/a.md", "/etc/passwd")) == "plugin package entry path escapes the archive root"
    assert get_refusal(hook + hook.removeprefix(HEAD)) == "plugin manifest has the hook id `a` twice"
    assert get_refusal(hook.replace('id = "a"\n', "")) == "plugin.toml: hooks[0]: the key `id` is missing"


@pytest.mark.req("yoi.conform.12")
@pytest.mark.parametrize("table", ["services", "ingresses"])
@pytest.mark.parametrize("runtime", ["", TOOL_WORLD])
def test_services_and_ingresses_need_the_instance_world(table: str, runtime: str) -> None:
    reason = "plugin service/ingress declarations require the yoi:plugin/instance@1.0.0 component world"
    parse(f'{HEAD}{RUNTIME}[[{table}]]\nname = "a"'.encode())
    assert get_refusal(f'{HEAD}{runtime}[[{table}]]\nname = "a"') == reason


@pytest.mark.req("yoi.rule.049")
def test_what_is_declared_is_also_what_the_tables_imply() -> None:
    assert MANIFEST.surfaces == ("tool",)
    assert MANIFEST.declared == {"tool", "hook", "service", "ingress", "wasm"}
    assert parse((HEAD + 'surfaces = ["hook"]').encode()).declared == {"hook"}
    assert get_refusal(HEAD + 'surfaces = ["panel"]') == "plugin.toml: surfaces[0]: a value that is not known there"


@pytest.mark.req("yoi.rule.052")
def test_the_old_name_of_request() -> None:
    assert (
        get_refusal(HEAD + '[[permissions]]\nkind = "host_api"\napi = "https"')
        == "plugin.toml: permissions[0].api: a value that is not known there"
    )
    assert get_refusal(HEAD + '[[https]]\nhost = "a"') == "plugin.toml: there is no key `https`"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('kind = "tool"', "permission of the kind `tool`: the key `name` is missing"),
        ('kind = "surface"\nname = "tool"', "permission of the kind `surface`: the key `surface` is missing"),
        ('kind = "surface"\nsurface = "tool"\nname = "x"', "permission of the kind `surface`: there is no key `name`"),
        ('kind = "external_write"\nname = "x"', "permission of the kind `external_write`: there is no key `name`"),
        ('kind = "root"', "plugin.toml: permissions[0].kind: a value that is not known there"),
        ("", "plugin.toml: permissions[0]: the key `kind` is missing"),
    ],
)
def test_a_permission_has_the_fields_of_its_kind(table: str, reason: str) -> None:
    assert get_refusal(f"{HEAD}[[permissions]]\n{table}") == reason


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('[[request]]\nhost = "a"\nprivate = true', "plugin.toml: request[0]: there is no key `private`"),
        ('[[websocket]]\nhost = "a"\nprivate = false', "plugin.toml: websocket[0]: there is no key `private`"),
        ('[[websocket]]\nhost = "a"\nmethods = []', "plugin.toml: websocket[0]: there is no key `methods`"),
        ("[[request]]\nport = 65536", "request target: `port` is 0 to 65535"),
        ("[[request]]\nport = true", "plugin.toml: request[0].port: Expected `int | null`, got `bool`"),
        ('[[tools]]\nname = "a b"', "plugin tool name must be 1-128 bytes without whitespace and control characters"),
        (f'[[tools]]\nname = "{"ä" * 65}"', "plugin tool name must be 1-128 bytes without whitespace and control characters"),
        ('[[tools]]\nname = "a"', "plugin tool `a` input_schema: $: a schema must have a `type`"),
        ('[[tools]]\nname = "a"\ntimeout_ms = 60001\ninput_schema = {type = "object"}',
         "plugin tool `a`: timeout_ms is 0 to 60000"),
        ('[[tools]]\nname = "a"\ninput_schema = {type = "object"}\n' * 2, "plugin manifest has the tool name `a` twice"),
    ],
)  # fmt: skip
def test_targets_and_tools(table: str, reason: str) -> None:
    assert get_refusal(f"{HEAD}{table}") == reason


@pytest.mark.req("yoi.edge.36")
@pytest.mark.parametrize(
    "name",
    ["a b", "a\\tb", "a\\u0000", "a\\u001b[31m", "a\\u0085", "a\\u00a0b", "a\\u00ad", "a\\u200b", "a\\u202eb", "a\\u2028",
     "a\\u2066", "a\\u3000b", "a\\ufeff", "a\\U000e0041", "a\\ue000", "a\\u0378"],
)  # fmt: skip
def test_a_tools_name_has_nothing_that_nobody_sees(name: str) -> None:
    tool = '[[tools]]\nname = "%s"\ninput_schema = { type = "object" }'
    said = "plugin tool name must be 1-128 bytes without whitespace and control characters"
    assert get_refusal(HEAD + tool % name) == said
    for seen in ("a", "lesen_für", "読む", "a.b/c-d:e", "é" * 64):
        assert parse((HEAD + tool % seen).encode()).tools[0].name == seen


def test_dates_and_numbers_that_json_has_not() -> None:
    assert get_refusal(HEAD.replace('"Echo"', "1979-05-27")) == "plugin.toml: a value that JSON does not have"
    tool = '[[tools]]\nname = "a"\ninput_schema = { type = "object", enum = [%s] }'
    parse((HEAD + tool % "1").encode())
    assert get_refusal(HEAD + tool % "nan") == "plugin.toml: a number that JSON does not have"
    assert get_refusal(HEAD + tool % "99999999999999999999") == "plugin.toml: a number of more than 64 bits"


@pytest.mark.req("yoi.rule.057")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'id = "a"\nsecret-token-9 ! 1', "not valid TOML at bytes 24..25"),
        ("# ü\r\nname = 'ä' sk-9".encode(), "not valid TOML at bytes 18..19"),
        (b'id = "sk-9', "not valid TOML at bytes 10..10"),
        (b'id = "sk-9\xff"', "not UTF-8 at bytes 10..11"),
        (b"a = 1" + b"0" * 5000, "not valid TOML at bytes 0..5005"),
        (b"a = " + b"[" * 3000, "nested too deep at bytes 0..3004"),
        (b"a = 1\n" + b"a." * 51 + b"a = 1", "a line with more than 50 dots at bytes 6..113"),
        (b"a = " + b"[" * 80 + b"]" * 80, "nested too deep"),
    ],
)
def test_a_parse_error_tells_where_and_repeats_nothing(text: bytes, reason: str) -> None:
    said = get_refusal(text)
    assert said == f"plugin.toml: {reason}"
    assert "sk-9" not in said
    assert "secret" not in said


@pytest.mark.req("yoi.rule.057")
def test_a_refusal_is_short_and_harmless() -> None:
    assert get_refusal(HEAD + '"a\\u001b[31m" = 1') == "plugin.toml: there is no key of that name, which cannot be shown"
    assert get_refusal(HEAD + "k" * 300 + " = 1") == "plugin.toml: there is no key of that name, which cannot be shown"
    assert get_refusal(HEAD + 'surfaces = ["sk-9-secret"]') == "plugin.toml: surfaces[0]: a value that is not known there"
    said = get_refusal(f'{HEAD}[runtime]\nkind = "wasm"\nabi = "{"é" * 300}\\n\\u001b"')
    assert said.endswith("…")
    assert said.isprintable()


def test_it_is_bounded() -> None:
    parse(HEAD.encode() + b"#" * (65536 - len(HEAD)))
    assert get_refusal(HEAD.encode() + b"#" * (65537 - len(HEAD))) == "plugin.toml exceeds 65536 bytes"


def test_a_tool_has_a_minute_at_most() -> None:
    text = HEAD + '[[tools]]\nname = "a"\ntimeout_ms = %d\ninput_schema = { type = "object" }'
    assert parse((text % 60_000).encode()).tools[0].timeout_ms == 60_000
    assert get_refusal(text % -1) == get_refusal(text % 60_001) == "plugin tool `a`: timeout_ms is 0 to 60000"


def test_a_tools_name_has_128_bytes_at_most() -> None:
    text = HEAD + '[[tools]]\nname = "%s"\ninput_schema = { type = "object" }'
    for name in ("x" * 128, "é" * 64, "a" + "€" * 42 + "b"):
        assert parse((text % name).encode()).tools[0].name == name
        assert get_refusal(text % f"{name}x") == "plugin tool name must be 1-128 bytes without whitespace and control characters"
    assert get_refusal(text % "") == "plugin tool name must be 1-128 bytes without whitespace and control characters"


def test_targets_are_bounded() -> None:
    row = '[[request]]\nhost = "a"\n'
    assert len(parse((HEAD + row * 256).encode()).request) == 256
    assert get_refusal(HEAD + row * 257) == "plugin.toml: more than 256 targets"


def test_a_manifest_that_was_kept_is_checked_too() -> None:
    with pytest.raises(ManifestError, match="not a safe local id"):
        check(PluginManifest(schema_version=1, id="../x", name="x", version="1"))
    kept = PluginManifest(schema_version=1, id="x", name="x", version="1")
    for wrong in (replace(kept, request=(Target(private=True),)), replace(kept, websocket=(Target(private=True),))):
        with pytest.raises(ManifestError, match="`private` of a target is for the grant to say"):
            check(wrong)
    with pytest.raises(ManifestError, match="websocket target: there is no key `methods`"):
        check(replace(kept, websocket=(Target(methods=("GET",)),)))


def test_what_the_host_reads_of_it() -> None:
    said = manifest.parse(FULL.encode())
    assert (said.name, said.version, said.language, said.description, said.enabled) == (
        "example.echo",
        "0.1.0",
        "wasm",
        "says it again",
        True,
    )
    assert manifest.parse(HEAD.encode()).description == "Echo"
    assert build_argv(said, "/g") == ()
    assert not manifest.HAS_SWITCH
    with pytest.raises(ValueError, match="serai guest revoke"):
        set_enabled(FULL.encode(), False)


def assert_read_or_refused(text: bytes) -> None:
    said = ""
    try:
        check(parse(text))
    except ManifestError as error:
        said = str(error)
    assert len(said.encode()) <= 240
    assert said.isprintable()


_PARTS = st.sampled_from([*HEAD.splitlines(), *RUNTIME.splitlines(), *FULL.splitlines(), "= = =", '"', "[[x]]", "a.b.c = {", "\0"])


@given(st.binary(max_size=300) | st.lists(_PARTS, max_size=40).map(lambda lines: "\n".join(lines).encode()))
@example(b"\xef\xbb\xbf")
def test_any_bytes_are_a_manifest_or_a_refusal(text: bytes) -> None:
    assert_read_or_refused(text)


@given(st.data())
def test_a_manifest_with_a_few_bytes_changed(data: st.DataObject) -> None:
    text = bytearray(FULL.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    assert_read_or_refused(bytes(text))
