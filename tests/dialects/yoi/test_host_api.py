"""What `request` refuses before any network, with the exact texts and in their order (spec yoi 4.3)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.plugins import targets
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.targets import ParsedUrl, parse_url
from tests.support.yoi.host_calls import DIGEST, Resolver, encode, open_calls, record, target

V1 = record(declared=[target(path_prefixes=("/v1/",))])
URL = "https://api.example.com/v1/x"
CREDENTIAL = "is credential-like and must be supplied by an explicit future secret-ref grant, not guest memory"


def header(name: str, value: str = "x") -> dict[str, Any]:
    return {"headers": [{"name": name, "value": value}]}


def get_refusal(text: Any, plugin: ResolvedPlugin = V1) -> str:
    with pytest.raises(HostCallDenied) as caught:
        host_api.check_request(plugin, text)
    return str(caught.value)


# What is wrong, from the first check to the last, and the beginning of what is said of it.
FAULTS: list[tuple[str, str, str]] = [
    ("2 size", encode(URL, body="x" * 49_152), "request descriptor exceeds 49152 bytes"),
    ("4 no JSON", "{", "invalid request JSON: "),
    ("4 unknown field", encode(URL, more=1), "invalid request JSON: "),
    ("4 unknown field of a header", encode(URL, headers=[{"name": "a", "value": "b", "c": 1}]), "invalid request JSON: "),
    ("4 missing field", json.dumps({"url": URL}), "invalid request JSON: "),
    ("4 wrong type", encode(URL, body=1), "invalid request JSON: "),
    ("4 headers null", encode(URL, headers=None), "invalid request JSON: "),
    ("4 half a character", encode(URL, body="\ud800"), "invalid request JSON: "),
    ("5 method", encode(URL, "TRACE"), "request method `TRACE` is not allowed"),
    ("5 lower case", encode(URL, "get"), "request method `get` is not allowed"),
    ("5 space", encode(URL, " GET"), "request method ` GET` is not allowed"),
    ("6 headers", encode(URL, headers=[{"name": "a", "value": "b"}] * 17), "request descriptor has too many headers (max 16)"),
    ("7 no name", encode(URL, **header("")), "request header name is invalid"),
    ("7 long name", encode(URL, **header("n" * 65)), "request header name is invalid"),
    ("7 long value", encode(URL, **header("n", "v" * 1025)), "request header `n` exceeds 1024 bytes"),
    ("7 credential", encode(URL, **header("Authorization")), f"request header `Authorization` {CREDENTIAL}"),
    ("7 upgrade", encode(URL, **header("Upgrade")), "persistent connection upgrade headers are not supported by host_api.request"),
    ("7 events", encode(URL, **header("accept", "text/event-stream")), "SSE/event-stream requests are not supported by host_api"),
    ("7 syntax", encode(URL, **header("a b")), "request header name is invalid"),
    ("8 body", encode(URL, "POST", body="x" * 32_769), "request body exceeds 32768 bytes"),
    ("9 URL", encode("http://"), "invalid request URL: "),
    ("9 no URL", encode("v1/x"), "invalid request URL: "),
    ("10 websocket", encode("wss://api.example.com/v1/x"), "WebSocket URLs are not supported by host_api.request"),
    ("10 scheme", encode("ftp://h/"), 'unsupported request URL scheme "ftp"; only http and https are allowed'),
    ("12 user", encode("https://u:p@api.example.com/v1/"), "request URLs with embedded credentials are not allowed"),
    (
        "13 manifest", encode("https://api.example.com/v2?key=1#f"),
        "host_api.request target GET https://api.example.com/v2 is not declared by the plugin manifest",
    ),
]  # fmt: skip


@pytest.mark.req("yoi.conform.24", "yoi.edge.16", "yoi.rule.024")
@pytest.mark.parametrize(("text", "said"), [pytest.param(text, said, id=name) for name, text, said in FAULTS])
async def test_each_check_has_its_text_and_comes_before_any_lookup(text: str, said: str) -> None:
    world = Resolver(("127.0.0.1",))
    async with open_calls(V1, world) as effects:
        with pytest.raises(HostCallDenied) as caught:
            await effects.call("request", "request", [text], 30.0)
    assert str(caught.value).startswith(said)
    assert not world.asked


@pytest.mark.req("yoi.conform.24")
async def test_the_authorisation_is_checked_twice_and_the_grants_last() -> None:
    asking = encode(URL)
    nothing = record(declared=[target()], apis=[])
    world = Resolver(("127.0.0.1",))
    async with open_calls(nothing, world) as effects:  # 1: as it is
        with pytest.raises(HostCallDenied, match="^requested host_api.request permission is missing$"):
            await effects.call("request", "request", [asking], 30.0)
    # 3: with the words of the second look
    assert get_refusal(asking, nothing) == "plugin host API dispatch denied: requested host_api.request permission is missing"
    assert get_refusal("x" * 49_153, nothing) == "request descriptor exceeds 49152 bytes"  # 2 comes before it
    with pytest.raises(HostCallDenied, match="^request URL must include a host$"):  # 11: no URL that parses comes here, so by hand
        host_api._check_request_url(ParsedUrl("http", "", 80, "/", "http:///"))
    narrow = record(declared=[target()], granted=[target(path_prefixes=("/v2",))])  # 14
    async with open_calls(narrow, world) as effects:
        with pytest.raises(HostCallDenied) as caught:
            await effects.call("request", "request", [asking], 30.0)
    assert str(caught.value) == f"host_api.request target GET {URL} is not covered by enabled request grants"
    assert not world.asked


@pytest.mark.req("yoi.rule.022")
def test_of_several_faults_the_first_is_told() -> None:
    faults: list[tuple[dict[str, Any], str]] = [  # each adds one before the others
        ({"url": "https://u@api.example.com/v2"}, "request URLs with embedded credentials are not allowed"),
        ({"url": "ftp://u@h/"}, 'unsupported request URL scheme "ftp"; only http and https are allowed'),
        ({"url": "http://"}, "invalid request URL: "),
        ({"body": "x" * 32_769}, "request body exceeds 32768 bytes"),
        (header("cookie"), f"request header `cookie` {CREDENTIAL}"),
        ({"headers": [{"name": "cookie", "value": "b"}] * 17}, "request descriptor has too many headers (max 16)"),
        ({"method": "trace"}, "request method `trace` is not allowed"),
        ({"more": 1}, "invalid request JSON: "),
        ({"padding": "x" * 49_152}, "request descriptor exceeds 49152 bytes"),
    ]
    document: dict[str, Any] = {"method": "GET", "url": "https://api.example.com/v2"}
    narrow = record(declared=[target(path_prefixes=("/v1",))], granted=[target(path_prefixes=("/v0",))])
    assert "is not declared by the plugin manifest" in get_refusal(json.dumps(document), narrow)  # before the grants
    for more, said in faults:
        document |= more
        assert get_refusal(json.dumps(document)).startswith(said)
    no_binding = msgspec.structs.replace(V1, digest=DIGEST[:-1] + "1")
    assert get_refusal(encode(URL), no_binding).startswith("plugin host API dispatch denied: ")


@pytest.mark.req("yoi.edge.16")
@pytest.mark.parametrize(
    "text",
    [
        '{"method": "GET", "method": "POST", "url": "https://api.example.com/v1/"}',
        '{"method": "GET", "url": "https://api.example.com/v1/", "headers": [{"name": "a", "name": "b", "value": "c"}]}',
    ],
)
def test_a_key_that_comes_twice_is_refused(text: str) -> None:
    assert get_refusal(text).startswith("invalid request JSON: ")


@pytest.mark.req("yoi.rule.023")
@pytest.mark.parametrize("name", sorted(host_api.CREDENTIALS))
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_credentials_are_refused_in_any_case(name: str, case: Any) -> None:
    assert get_refusal(encode(URL, **header(case(name)))) == f"request header `{case(name)}` {CREDENTIAL}"


@pytest.mark.req("yoi.rule.024")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("UPGRADE", "websocket", "persistent connection upgrade"),
        ("Connection", "keep-alive, Upgrade", "persistent connection upgrade"),
        ("Accept", "text/html, Text/Event-Stream;q=0.9", "SSE/event-stream"),
    ],
)
def test_what_does_not_end_is_refused(name: str, value: str, said: str) -> None:
    assert get_refusal(encode(URL, **header(name, value))).startswith(said)
    assert get_refusal(encode("ws://api.example.com/v1/")) == "WebSocket URLs are not supported by host_api.request"


SMUGGLED = [
    ("a\r\nx", "v"), ("a:", "v"), ("a ", "v"), ("é", "v"), ("a\0", "v"), ("a", "v\r\nHost: evil"), ("a", "v\n x"), ("a", "\0"),
    ("a", "é"), ("a", "\x7f"), ("Host", "evil"), ("hOsT", "api.example.com"), ("Content-Length", "0"), ("content-length", "+1"),
    ("Transfer-Encoding", "chunked"), ("TE", "trailers"), ("Trailer", "x"), ("Expect", "100-continue"),
    ("Connection", "close, x-auth"),
    ("Keep-Alive", "1"), ("X-Original-URL", "/admin"), ("X-Rewrite-URL", "/admin"), ("X-HTTP-Method-Override", "DELETE"),
    ("Authorization ", "x"), ("\tcookie", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), SMUGGLED)
def test_nothing_is_smuggled_in_a_header(name: str, value: str) -> None:
    assert get_refusal(encode(URL, **header(name, value))).startswith("request header ")


def test_what_is_granted_is_made_as_it_was_normalised() -> None:
    made = host_api.check_request(
        V1, encode("HTTPS://API.example.com:443/v0/../v1/a b?q=1#f", "POST", body="ü", **header("X-A", " b "))
    )
    assert made.method == "POST"
    assert made.body == "ü".encode()
    assert targets.get_resource(made.url) == "/v1/a%20b?q=1"
    assert made.head() == [
        ("host", "api.example.com"), ("user-agent", host_api.REQUEST_AGENT), ("accept", "*/*"), ("accept-encoding", "identity"),
        ("connection", "close"), ("content-length", "2"), ("X-A", "b"),
    ]  # fmt: skip
    own = host_api.check_request(V1, {"method": "GET", "url": URL, "headers": [{"name": "User-Agent", "value": "mine"}]})
    assert [value for name, value in own.head() if name.lower() == "user-agent"] == ["mine"]


def test_ours_stand_in_the_place_of_theirs() -> None:
    names = [{"name": "Connection", "value": "keep-alive"}, {"name": "Accept-Encoding", "value": "gzip"}]
    head = host_api.check_request(V1, encode(URL, headers=names)).head()
    assert ("connection", "close") in head
    assert ("accept-encoding", "identity") in head
    assert len(head) == len({name.lower() for name, _ in head})


@pytest.mark.req("yoi.edge.01")
@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1/../admin", "https://api.example.com/v1/%2e%2e/admin", "https://api.example.com/v1/.%2E/admin",
        "https://api.example.com\\v1\\..\\admin", "https://api.example.com/v1/\t../admin", "https://api.example.com/v1/.\n./admin",
        "https://api.example.com@evil.example/v1/", "https://api.example.com.evil.example/v1/", "https://evil.example#api.example.com/v1/",
        "https://evil.example/https://api.example.com/v1/", "https://api.example.com:444/v2/", "http://api.example.com/v1/",
        "https://api.example.com/v1", "https://api.example.com/V1/", "https://api.example.com//v1/", "https://0x7f.1/v1/",
        "https://api.example.com/v1/..%2fadmin", "https://api.example.com/v1/..%5Cadmin", "https://api.example.com/v1/%252e%252e/admin",
        "https://api.example.com/v1/%252e%252e%252fadmin", "https://api.example.com/v1/..;/admin", "https://api.example.com/v1/..%00/x",
        "https://api.example.com/v1/%" + "25" * 20 + "2e", "https://\u0430pi.example.com/v1/",
    ],
)  # fmt: skip
def test_no_way_of_writing_leaves_the_prefix(url: str) -> None:
    assert get_refusal(encode(url))


@pytest.mark.req("yoi.edge.01")
@pytest.mark.parametrize(
    "url",
    [
        "https://API.Example.COM/v1/", "https://api.example.com./v1/", "https://api.example.com/x/../v1/y",
        "https:\\\\api.example.com/v1/",        "https://api.example.com:443/v1/a%2Fb/..c/c..", " https://api.exa\tmple.com/v1/ ", "https://api.example.com/v1/?next=/../admin",
        "https://api.example.com/v1/%E2%80%A6", "https://@api.example.com/v1/",
    ],
)  # fmt: skip
def test_other_ways_of_writing_the_same_are_the_same(url: str) -> None:
    assert host_api.check_request(V1, encode(url)).url.path.startswith("/v1/")


@pytest.mark.req("yoi.edge.01")
def test_a_number_is_an_address() -> None:
    loopback = record(declared=[target("127.0.0.1", scheme="http")])
    for host in ("0x7f.1", "127.1", "2130706433", "0177.0.0.1", "127.0.0.1."):
        made = host_api.check_request(loopback, encode(f"http://{host}/"))
        assert targets.get_authority(made.url) == "127.0.0.1"


@given(st.text(max_size=80), st.text("./%2efF5c;\\\tv1a", max_size=40))
def test_whatever_is_asked_for_is_under_the_prefix_or_refused(free: str, path: str) -> None:
    for url in (free, f"https://api.example.com/v1/{path}", f"https://api.example.com/{path}"):
        try:
            made = host_api.check_request(V1, {"method": "GET", "url": url})
        except HostCallDenied:
            continue
        assert made.url.path.startswith("/v1/")
        assert targets.get_resource(made.url).startswith("/v1/")
        assert "#" not in targets.get_resource(made.url)
        assert not targets.climbs(made.url.path)


@pytest.mark.req("yoi.rule.025")
def test_a_url_in_an_error_keeps_its_secrets() -> None:
    path = "/" + "p" * 200
    said = get_refusal(encode(f"https://other.example:8443{path}?token=abc#frag"))
    assert said == f"host_api.request target GET https://other.example:8443{path[:120]}… is not declared by the plugin manifest"
    credentials = get_refusal(encode("https://name:word@api.example.com/v1/"))
    assert "word" not in credentials
    assert "name" not in credentials
    assert parse_url("https://u:p@h:443/x?y#z").safe == "https://h/x"


@pytest.mark.req("yoi.edge.12")
def test_a_body_that_was_cut_in_a_character_is_bounded_again() -> None:
    answer = json.loads(host_api.answer_request(200, [], b"a" + "…".encode() * 30_000))
    assert len(answer["body"].encode()) <= 65_536
    assert answer["truncated"] is True
    assert answer["body"].rstrip("\ufffd") == "a" + "…" * 21_845
    worse = json.loads(host_api.answer_request(200, [], b"\xff" * 40_000))  # three bytes for each of these
    assert len(worse["body"].encode()) <= 65_536
    assert set(worse["body"]) == {"\ufffd"}
    assert worse["truncated"] is True


@given(st.binary(max_size=40), st.integers(0, 12))
def test_lossy_text_never_exceeds_its_bound(data: bytes, most: int) -> None:
    text, cut = host_api.decode_lossy(data, most)
    assert len(text.encode()) <= most
    assert cut or text == data.decode(errors="replace")


PRIVATE = [
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
    "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%2", "fc00::1", "fd12::1", "fec0::1",
    "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1", "2001::1", "2001:db8::1",
]  # fmt: skip


@pytest.mark.req("yoi.rule.027")
@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known_in_every_dress(address: str) -> None:
    assert targets.is_private(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_public(address: str) -> None:
    assert not targets.is_private(address)
