"""Targets: what matches, and that no comparison of two of them is wider than what they match."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.plugins.manifest import Target
from serai.plugins.targets import (
    ParsedUrl,
    covers,
    format_target,
    intersects,
    is_broad,
    is_usable_request,
    is_usable_websocket,
    names_private,
    parse_url,
    request_matches,
    websocket_matches,
)
from tests.support.yoi.resolved_plugins import target


def matches(url: str, method: str = "GET", **fields: Any) -> bool:
    return request_matches(target(**fields), method, parse_url(url))


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "path", "normalised"),
    [
        ("HTTPS://EXAMPLE.com./v1/../admin?q#f", "https", "example.com.", 443, "/admin", "https://example.com./admin?q#f"),
        ("http://0x7f.1/", "http", "127.0.0.1", 80, "/", "http://127.0.0.1/"),
        ("http://[::FFFF]:8080\\a\\%2e%2e\\b", "http", "[::ffff]", 8080, "/b", "http://[::ffff]:8080/b"),
        ("ws://h\t", "ws", "h", 80, "/", "ws://h/"),
        ("wss://h:443/x", "wss", "h", 443, "/x", "wss://h/x"),
        ("mailto:a@b", "mailto", "", None, "a@b", "mailto:a@b"),
    ],
)
def test_a_url_is_read_by_the_rules_of_browsers(text: str, scheme: str, host: str, port: int, path: str, normalised: str) -> None:
    url = parse_url(text)
    assert url == ParsedUrl(scheme, host, port, path, normalised, False)
    assert parse_url(url.normalised) == url


def test_what_is_no_url_is_not_repeated() -> None:
    for text in ("", "sk-9", "http://", "http://a b", "http://h:99999", "http://a\ud800"):
        with pytest.raises(ValueError, match="^it is not a URL$"):
            parse_url(text)


def test_the_safe_form_has_no_secret() -> None:
    url = parse_url("https://user:pass@h:8443/a?token=1#f")
    assert url.credentials
    assert url.safe == "https://h:8443/a"
    assert parse_url("https://h:443/" + "ä" * 50).safe == "https://h/" + ("%C3%A4" * 20)[:119] + "…"


@pytest.mark.req("yoi.edge.04")
def test_what_a_blank_means() -> None:
    assert not matches("https://h.example/", methods=())
    assert matches("https://h.example/any/path", path_prefixes=())
    assert matches("https://h.example:8443/")
    assert matches("https://h.example/")
    for blank in ("", " "):
        assert not matches("https://h.example/", scheme=blank)
    assert not matches("https://h.example/", host="")
    assert not matches("https://h.example/", host=".")
    assert not matches("https://h.example/", path_prefixes=("",))


@pytest.mark.req("yoi.rule.028")
@pytest.mark.parametrize(
    ("url", "fields", "fits"),
    [
        ("https://H.example./", {}, True),
        ("https://h.example/", {"scheme": " HTTPS ", "host": "H.Example."}, True),
        ("http://h.example/", {}, False),
        ("http://h.example/", {"scheme": "*"}, True),
        ("https://other/", {"host": "*"}, True),
        ("https://a.h.example/", {}, False),
        ("https://a.h.example/", {"host": "*.h.example"}, False),
        ("https://h.example.evil/", {}, False),
        ("https://[::1]/", {"host": "::1"}, True),
        ("https://[::1]/", {"host": "[::1]"}, True),
        ("https://h.example/", {"port": 443}, True),
        ("https://h.example:443/", {"port": 443}, True),
        ("https://h.example:8443/", {"port": 443}, False),
        ("http://h.example/", {"scheme": "http", "port": 80}, True),
    ],
)
def test_scheme_host_and_port(url: str, fields: dict[str, Any], fits: bool) -> None:
    assert matches(url, **fields) is fits


@pytest.mark.req("yoi.rule.029")
@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("/v1", True), ("/v10", True), ("/v1/x?q=/v2", True), ("/v2?x=/v1", False), ("/V1", False), ("/v1/../admin", False),
        ("/v1/%2e%2e/admin", False), ("/x/../v1", True), ("\\v1", True),
    ],
)  # fmt: skip
def test_a_prefix_is_plain_text_of_the_normalised_path(path: str, fits: bool) -> None:
    assert matches(f"https://h.example{path}", path_prefixes=("/none", "/v1")) is fits


def test_a_method_has_no_case_and_no_wildcard() -> None:
    assert matches("https://h.example/", "POST", methods=("get", "post"))
    assert not matches("https://h.example/", "PUT", methods=("get", "post"))
    assert not matches("https://h.example/", "PUT", methods=("*",))


@pytest.mark.req("yoi.rule.063")
def test_what_can_let_anything_through() -> None:
    assert is_usable_request(target())
    assert is_usable_request(target(methods=("patch",)))
    for fields in ({"scheme": " "}, {"host": ""}, {"host": " "}, {"methods": ()}, {"methods": ("TRACE",)}):
        assert not is_usable_request(target(**fields))
    for scheme in ("ws", "WSS", "*"):
        assert is_usable_websocket(target(scheme=scheme))
    for fields in ({"scheme": "https"}, {"scheme": "ws", "host": ""}, {"scheme": ""}):
        assert not is_usable_websocket(target(**fields))


def test_labels() -> None:
    narrow = target(port=8443, methods=("get", "POST"), path_prefixes=("/a", "/b"))
    assert format_target(narrow, "request") == "https://h.example:8443 GET,POST /a,/b"
    assert not is_broad(narrow)
    assert format_target(target(), "request") == "https://h.example GET * [broad-request]"
    assert format_target(target(scheme="*", path_prefixes=("/a",)), "request") == "*://h.example GET /a [broad-request]"
    assert format_target(Target(), "request") == "<no-scheme>://<no-host> <no-methods> * [broad-request]"
    assert format_target(Target(scheme="wss", host="*", path_prefixes=("/s",)), "websocket") == "wss://* /s [broad-websocket]"
    assert format_target(Target(scheme="wss", host="h", path_prefixes=("/s",)), "websocket") == "wss://h /s"


def test_a_private_address_is_named_by_itself_only() -> None:
    assert names_private(target(host="127.0.0.1"), parse_url("http://0x7f.1/"))
    assert names_private(target(host="[::1]"), parse_url("http://[::1]/"))
    assert names_private(target(host="LOCALHOST."), parse_url("http://localhost/"))
    assert not names_private(target(host="*"), parse_url("http://127.0.0.1/"))
    assert not names_private(target(host="localhost"), parse_url("http://127.0.0.1/"))
    assert not names_private(target(host="127.0.0.1"), parse_url("http://10.0.0.5/"))
    assert not names_private(target(host="intra.example"), parse_url("http://intra.example/"))


@pytest.mark.parametrize(
    ("wide", "narrow", "all_of_it", "some_of_it"),
    [
        ({}, {}, True, True),
        ({"scheme": "*"}, {}, True, True),
        ({}, {"scheme": "*"}, False, True),
        ({"scheme": "http"}, {}, False, False),
        ({"host": "*"}, {}, True, True),
        ({}, {"host": "*"}, False, True),
        ({"host": "other"}, {}, False, False),
        ({}, {"port": 443}, True, True),
        ({"port": 443}, {}, False, True),
        ({"port": 443}, {"port": 80}, False, False),
        ({"port": 443}, {"port": 443}, True, True),
        ({"methods": ("GET", "PUT")}, {"methods": ("put",)}, True, True),
        ({"methods": ("GET",)}, {"methods": ("GET", "PUT")}, False, True),
        ({"methods": ("GET",)}, {"methods": ("PUT",)}, False, False),
        ({}, {"path_prefixes": ("/a",)}, True, True),
        ({"path_prefixes": ("/a",)}, {}, False, True),
        ({"path_prefixes": ("/a", "/b")}, {"path_prefixes": ("/a/x", "/b")}, True, True),
        ({"path_prefixes": ("/a",)}, {"path_prefixes": ("/a/x", "/b")}, False, True),
        ({"path_prefixes": ("/a/x",)}, {"path_prefixes": ("/a",)}, False, True),
        ({"path_prefixes": ("/a",)}, {"path_prefixes": ("/b",)}, False, False),
        ({}, {"scheme": ""}, False, False),
        ({"scheme": "*"}, {"scheme": ""}, False, False),
        ({"host": "*"}, {"host": ""}, False, False),
        ({}, {"methods": ()}, False, False),
        ({"methods": ()}, {"methods": ()}, False, False),
        ({}, {"path_prefixes": ("",)}, False, False),
        ({"path_prefixes": ("",)}, {}, False, False),
    ],
)
def test_how_two_targets_compare(wide: dict[str, Any], narrow: dict[str, Any], all_of_it: bool, some_of_it: bool) -> None:
    one, other = target(**wide), target(**narrow)
    assert covers(one, other, "request") is all_of_it
    assert intersects(one, other, "request") is some_of_it
    assert intersects(other, one, "request") is some_of_it
    if one.methods == other.methods == ("GET",):
        assert covers(one, other, "websocket") is all_of_it
        assert intersects(one, other, "websocket") is some_of_it


SCHEMES = ["", "https", "*", " HTTP", "wss"]
HOSTS = ["", "h", "*", "H.", "[::1]", "other"]
PREFIXES = ["", "/", "/v1", "/v1/a", "/v2"]
TARGETS = st.builds(
    Target,
    scheme=st.sampled_from(SCHEMES),
    host=st.sampled_from(HOSTS),
    port=st.sampled_from([None, 80, 443]),
    methods=st.lists(st.sampled_from(["", "GET", "post", "PUT"]), max_size=3).map(tuple),
    path_prefixes=st.lists(st.sampled_from(PREFIXES), max_size=3).map(tuple),
)
URLS = [
    parse_url(f"{scheme}://{host}{port}{path}")
    for scheme, host, port, path in product(
        ["https", "http", "wss"], ["h", "[::1]", "x"], ["", ":80", ":443"], ["/", "/v1", "/v1/ab", "/v2x"]
    )
]
METHODS = ["GET", "POST", "PUT"]


@given(TARGETS, TARGETS, st.sets(st.sampled_from(Target.__struct_fields__)))
def test_what_covers_lets_all_of_the_other_through(wide: Target, other: Target, kept: set[str]) -> None:
    narrow = msgspec.structs.replace(
        other, **{field: getattr(wide, field) for field in kept}
    )  # else hardly ever one covers another
    if not covers(wide, narrow, "request"):
        return
    assert intersects(wide, narrow, "request")
    assert intersects(narrow, wide, "request")
    for url, method in product(URLS, METHODS):
        assert not request_matches(narrow, method, url) or request_matches(wide, method, url)


@given(TARGETS, TARGETS)
def test_what_both_let_through_makes_them_intersect(one: Target, other: Target) -> None:
    met = intersects(one, other, "request")
    assert met == intersects(other, one, "request")
    for url, method in product(URLS, METHODS):
        if request_matches(one, method, url) and request_matches(other, method, url):
            assert met
    for url in URLS:
        if websocket_matches(one, url) and websocket_matches(other, url):
            assert intersects(one, other, "websocket")


@given(TARGETS)
def test_whoever_matches_covers_itself(one: Target) -> None:
    for url, method in product(URLS, METHODS):
        if request_matches(one, method, url):
            assert covers(one, one, "request")
            assert covers(one, one, "websocket")
            assert is_usable_request(one)


@given(TARGETS, st.sampled_from(URLS), st.sampled_from(METHODS))
def test_nothing_is_matched_that_no_field_says(one: Target, url: ParsedUrl, method: str) -> None:
    """Against the rule of 4.5 written once more, word by word."""
    host = url.host.strip("[]")
    expected = (
        one.scheme.strip().lower() in ("*", url.scheme)
        and one.host.rstrip(".").strip("[]").lower() in ("*", host)
        and (one.port is None or one.port == url.port)
        and method in [allowed.upper() for allowed in one.methods]
        and (not one.path_prefixes or any(prefix and url.path.startswith(prefix) for prefix in one.path_prefixes))
    )
    assert request_matches(one, method, url) is expected
