"""Patterns over one text, against a reference that nobody could get wrong; whom a URL reaches, and patterns over that."""

from __future__ import annotations

import http.client
import socket
import urllib.request

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.policy.patterns import HostPattern, compile_glob, escape_glob, parse_host, split_glob
from tests.support.policy.rules import check, judge_call, policy, rule
from tests.support.profiles import examples


def matches_by_trial(pattern: list[tuple[str, bool]], text: str) -> bool:
    """What a pattern means, by trying everything."""
    if not pattern:
        return not text
    (char, plain), rest = pattern[0], pattern[1:]
    if char == "*" and not plain:
        return any(matches_by_trial(rest, text[at:]) for at in range(len(text) + 1))
    if char == "?" and not plain:
        return bool(text) and matches_by_trial(rest, text[1:])
    return text[:1] == char and matches_by_trial(rest, text[1:])


@settings(max_examples=examples(500), deadline=None)
@given(st.text("ab*?\\\n", max_size=8), st.text("ab*\\\n", max_size=8))
def test_a_pattern_matches_what_the_reference_matches(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern).fullmatch(text)) is matches_by_trial(list(split_glob(pattern)), text)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=[]), max_size=10), st.text(st.characters(exclude_categories=[]), max_size=10))
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    assert compile_glob(escape_glob(text)).fullmatch(text)
    assert bool(compile_glob(escape_glob(text)).fullmatch(other)) is (text == other)


def test_upper_and_lower_case_are_apart() -> None:
    assert not compile_glob("Bash").fullmatch("bash")


@pytest.mark.req("policy.rule.linear")
@pytest.mark.timeout(20, method="signal")  # a pattern at work lets no other thread run
@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*a*a*a*b", "*a*a*a*a*ac", "a*" * 20 + "b", "*?*?*?*?*?*?b", "*" * 50 + "b"])
def test_a_nasty_pattern_takes_no_longer_for_a_text_that_is_made_for_it(pattern: str) -> None:
    assert not compile_glob(pattern).fullmatch("a" * 1_000_000)


@pytest.mark.req("policy.rule.host")
@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://example.com", "example.com", 443),
        ("HTTP://EXAMPLE.com/Path?q#f", "example.com", 80),
        ("https://example.com./", "example.com", 443),
        ("http://example.com:8080", "example.com", 8080),
        ("http://example.com:/x", "example.com", 80),
        ("wss://a_b-c.example", "a_b-c.example", 443),
        ("http://h?x@y", "h", 80),
        ("http://h#@y", "h", 80),
        ("http://h/@y:81", "h", 80),
        ("http://b\u00fccher.example", "xn--bcher-kva.example", 80),
        ("http://B\u00dcCHER.example", "xn--bcher-kva.example", 80),
        ("http://xn--bcher-kva.example", "xn--bcher-kva.example", 80),
        ("http://127.0.0.1", "127.0.0.1", 80),
        ("http://2130706433/", "127.0.0.1", 80),
        ("http://0x7f000001/", "127.0.0.1", 80),
        ("http://0X7F.1/", "127.0.0.1", 80),
        ("http://127.1/", "127.0.0.1", 80),
        ("http://0/", "0.0.0.0", 80),
        ("http://[::1]:9", "::1", 9),
        ("http://[0:0::1]", "::1", 80),
        ("http://[::FFFF:127.0.0.1]/", "127.0.0.1", 80),
        ("http://[::ffff:7f00:1]/", "127.0.0.1", 80),
        ("http://[2001:DB8::1]", "2001:db8::1", 80),
    ],
)
def test_the_host_is_the_one_that_is_reached(url: str, host: str, port: int) -> None:
    assert parse_host(url) == (host, port)


ODD = [
    "",
    "example.com",
    "//example.com/x",
    "/x",
    "http:///x",
    "http:example.com",
    "http:/example.com",
    "http://",
    "http://.",
    "http://example.com..",
    "http://a..b",
    "data:text/plain,x",
    "file:///etc/passwd",
    "file://example.com/x",
    "javascript:alert(1)",
    "gopher://example.com",
    "http://user@example.com",
    "http://good.com:x@evil.com",
    "http://good.com\\@evil.com",
    "http://evil.com\\.good.com",
    "http:\\\\evil.com",
    "http://evil.com\t.good.com",
    "http://evil.com\n",
    " http://good.com",
    "http://good.com\x00.evil.com",
    "http://evil%2ecom",
    "http://[fe80::1%25eth0]",
    "http://[fe80::1%eth0]",
    "http://[::1",
    "http://::1/",
    "http://[::1]evil.com/",
    "http://evil.com[::1]/",
    "http://[v1.x]/",
    "http://[example.com]/",
    "http://[1.2.3.4]/",
    "http://h:0",
    "http://h:65536",
    "http://h:" + "9" * 5000,
    "http://h:-1",
    "http://h:+80",
    "http://h:8_0",
    "http://h:\uff18\uff10",
    "http://h:80:80",
    "http://1.2.3.4.5",
    "http://256.256.256.256",
    "http://08.1",
    "http://010.0.0.1",
    "http://10.0.0.010",
    "http://\uff45xample.com",
    "http://example\u3002com",
    "http://example\uff0ecom",
    "http://evil.c\u2100.com",
    "http://fa\u00df.de",
    "http://\u1e9e.de",
    "http://\u03b2\u03cc\u03bb\u03bf\u03c2.com",
    "http://a\u200db.com",
    "http://a\u00adb.com",
    "http://\uff11\uff12\uff17.0.0.1",
    "http://\u2460.com",
    "http://\ud800.com",
    "http://-x.com",
    "http://x-.com",
    "http://a,b.com",
    "http://" + "a" * 300 + ".com",
    "http://" + "\u00fc" * 100_000,
]


@pytest.mark.req("policy.rule.host")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("url", ODD, ids=lambda url: ascii(url[:30]))
def test_a_url_that_can_be_read_in_two_ways_has_no_host(url: str) -> None:
    """So it is never allowed by a host, and asked where a rule against hosts may mean it."""
    with pytest.raises(ValueError, match=r"."):
        parse_host(url)
    assert check(rule("allow", tool="fetch", host="*"), "fetch", {"url": url}).answer == "no"
    denied = rule("deny", host="evil.com")
    assert check(denied, "fetch", {"url": url}).answer == "maybe"
    assert judge_call(policy(denied, mode="skip"), "fetch", {"url": url}).decision == "ask"


@pytest.mark.parametrize("url", [7, None, {"href": "http://evil.com"}, [["http://evil.com"]], ["http://good.com"] * 1001])
def test_what_is_no_url_at_all_is_odd_too(url: object) -> None:
    assert check(rule("allow", tool="fetch", host="*"), "fetch", {"url": url}).answer == "no"
    if url is not None:
        assert check(rule("deny", host="evil.com"), "fetch", {"url": url}).answer == "maybe"


def test_of_several_urls_each_has_to_be_allowed_and_any_is_denied() -> None:
    good = rule("allow", tool="fetch", host=["good.com", "*.good.com"])
    evil = rule("deny", host="evil.com")
    both = {"urls": ["https://good.com", "https://evil.com"]}
    assert check(good, "fetch", both) == ("no", "the host evil.com is not `good.com` or `*.good.com`", True)
    assert check(evil, "fetch", both).answer == "yes"
    assert check(good, "fetch", {"url": "https://good.com", "urls": ["https://www.good.com"]}).answer == "yes"
    assert check(good, "fetch", {"url": "https://good.com", "uri": "https://evil.com"}).answer == "no"
    assert check(evil, "fetch", {"url": "https://good.com"}) == ("no", "no host is `evil.com`", True)
    assert check(good, "fetch", {}) == ("no", "it has no URL", True)
    fooled = check(good, "fetch", {"url": "https://good.com@evil.com"})
    assert fooled == ("no", "it has a URL with a user name before its host", True)


@pytest.mark.parametrize(
    ("pattern", "host", "port", "matches"),
    [
        ("example.com", "example.com", 443, True),
        ("EXAMPLE.com.", "example.com", 443, True),
        ("example.com", "www.example.com", 443, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evil-example.com", 443, False),
        ("example.com", "exampleXcom", 443, False),
        ("*", "::1", 80, True),
        ("localhost:8080", "localhost", 8080, True),
        ("localhost:8080", "localhost", 80, False),
        ("*:22", "x", 22, True),
        ("127.1", "127.0.0.1", 80, True),
        ("[::FFFF:127.0.0.1]:80", "127.0.0.1", 80, True),
        ("[0::1]", "::1", 80, True),
        ("192.168.*", "192.168.1.2", 80, True),
        ("192.168.*", "192.168.1.evil.com", 80, False),
        ("*.1", "10.0.0.1", 80, True),
        ("1*", "1.evil.com", 80, False),
        ("b\u00fccher.example", "xn--bcher-kva.example", 80, True),
        ("*.b\u00fccher.example", "www.xn--bcher-kva.example", 80, True),
    ],
)
def test_patterns_over_hosts(pattern: str, host: str, port: int, matches: bool) -> None:
    assert HostPattern(pattern).matches(host, port) is matches


@pytest.mark.parametrize(
    "pattern", ["", "http://x", "x/y", "::1", "x y", "x:port", "[x]", "a..b", "*\u00fc.com", "010.1", "a\\*", "x:\u0661"]
)
def test_what_is_no_pattern_says_so(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"a host pattern is a name such as \*\.example\.com"):
        HostPattern(pattern)


# -- others' reading --------------------------------------------------------------------------------------------------------------


class Secure(http.client.HTTPConnection):
    """What `HTTPSConnection` is, without the keys."""

    default_port = http.client.HTTPS_PORT


def parse_url(url: str) -> tuple[str, int]:
    """Host and port as Python's own client would connect to them."""
    request = urllib.request.Request(url)
    made = {"http": http.client.HTTPConnection, "https": Secure}[request.type](request.host)
    return made.host.rstrip(".").encode("idna").decode().lower(), made.port


def look_up(host: str) -> str:
    """As addresses are compared: the number that the system makes of it."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        pass
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return host
    return socket.inet_ntoa(packed[12:]) if packed[:12] == bytes(10) + b"\xff\xff" else socket.inet_ntop(socket.AF_INET6, packed)


PIECES = [
    "http",
    "https",
    "HTTP",
    ":",
    "//",
    "/",
    "@",
    "\\",
    ".",
    "..",
    "a",
    "evil.com",
    "Good.Com",
    "127.0.0.1",
    "0x7f",
    "1",
    "010",
]
PIECES += [
    "[::1]",
    "[",
    "]",
    "::ffff:1.2.3.4",
    "80",
    "0",
    "?",
    "#",
    "%41",
    "%",
    " ",
    "\t",
    "b\u00fc",
    "\u00df",
    "\u3002",
    "\uff41",
    ";",
    "_",
    "-",
]


@settings(max_examples=examples(500), deadline=None)
@given(
    st.builds(
        lambda start, rest: start + "".join(rest),
        st.sampled_from(["http://", "https://", ""]),
        st.lists(st.sampled_from(PIECES), max_size=8),
    )
)
@example("http://a;b/")
@example("http://good.com#@evil.com")
def test_where_there_is_a_host_the_system_connects_to_that_one(url: str) -> None:
    try:
        ours = parse_host(url)
    except ValueError:
        return
    host, port = parse_url(url)
    assert (look_up(host), port) == ours
