"""What looks like a secret is masked when shown; what does not is left alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.record.secret_patterns import mask, mask_run

# Made up, and put together here so that no scanner takes them for real ones.
TOKENS = [
    "sk-" + "ant-api03-abcdefghijklmnop",
    "sk-" + "proj-ABCDEFGHIJKLMNOPQRST",
    "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat" + "_11ABCDEFG0abcdefghijkl",
    "glpat-" + "abcdefghijklmnopqrst",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "AIza" + "SyA0123456789abcdefghijklmnopqrstuv",
    "xoxb-" + "123456789012-abcdefghijkl",
    "hf" + "_abcdefghijklmnopqrstuvwxyz",
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
    "xai-" + "abcdefghijklmnopqrstuvwxyz",
    "gsk_" + "abcdefghijklmnopqrstuvwxyz",
    "hvs." + "abcdefghijklmnopqrstuvwxyz",
    "GOCSPX-" + "abcdefghijklmnopqrst",
    "dckr_pat_" + "abcdefghijklmnopqrstu",
    "AGE-SECRET-KEY-" + "1QQQQQQQQQQQQQQQQQQQQQQQ",
]
CARRIERS = ["%s", "a %s b", "key=%s", "line\n%s\nline", "url?x=%s&y", "'%s'", "tab\t%s"]


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_tokens_that_say_what_they_are(token: str, carrier: str) -> None:
    text = carrier % token
    for frame in (text.encode(), json.dumps({"text": text}).encode(), json.dumps({"inner": json.dumps({"text": text})}).encode()):
        masked = mask(frame)
        assert token.encode() not in masked
        assert token[8:].encode() not in masked
        assert len(masked) == len(frame)


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://user:hunter22@host/db", "hunter22"),
        ("Authorization: Bearer abcdef.ghijkl", "abcdef.ghijkl"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabcd\nefgh\n-----END RSA PRIVATE KEY-----", "MIIEabcd"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEabcd and cut", "MIIEabcd"),
        ("DB_PASSWORD=correct-horse rest", "correct-horse"),
        ("export API_KEY='correct-horse'", "correct-horse"),
        ("password: correct-horse", "correct-horse"),
        ("x-api-key: correct-horse", "correct-horse"),
        ("Cookie: session=correct-horse", "correct-horse"),
        ("Authorization: Token correct-horse", "correct-horse"),
        ("login --password correct-horse --now", "correct-horse"),
        ("{'password': 'correct-horse'}", "correct-horse"),
        ("Server=db;Pwd=correct-horse;", "correct-horse"),
        ("https://correct-horse-token@host/x.git", "correct-horse-token"),
        ("https://hooks.slack.com/services/T00000000/B00000000/abcdefghijkl", "abcdefghijkl"),
        ("https://account.blob/?sv=2020&sig=correct-horse%3D", "correct-horse"),
        ("AccountName=a;AccountKey=correct-horse==;", "correct-horse"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBGabcd\n", "lQOYBGabcd"),
    ],
)
def test_secrets_by_what_stands_around_them(text: str, secret: str) -> None:
    for frame in (text.encode(), json.dumps({"text": text}).encode()):
        assert secret.encode() not in mask(frame)
        assert len(mask(frame)) == len(frame)


KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvAIB+DANBgkqhkiG/w0BAQEFAASC\n" * 6 + "q83=\n-----END PRIVATE KEY-----\n"


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize("levels", range(3))
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_key_is_masked_wherever_the_text_is_cut_before_its_end(line_end: str, levels: int) -> None:
    for cut in range(len(KEY)):
        text = (KEY[cut:] + "Traceback: Bern").replace("\n", line_end)
        for _ in range(levels):
            text = json.dumps({"text": text, "city": "Husum"})
        masked = mask(text.encode())
        assert len(masked) == len(text)
        for _ in range(levels):
            masked = json.loads(masked)["text"].encode()
        seen = masked.decode()
        assert seen.endswith("Traceback: Bern")
        if cut < KEY.index("-----END"):
            before = seen[: seen.index("-----END")].rpartition("-")[2]  # a part of the BEGIN may stand there
            assert set(before) <= set("*\r\n")


@pytest.mark.req("record.secrets.lookalikes")
def test_what_stands_before_a_key_is_left_alone() -> None:
    head = "the station's key, as it was read:\n"
    assert mask((head + KEY).encode()).startswith(head.encode())
    line = b"the end: -----END RSA PRIVATE KEY-----"
    assert mask(line) == line
    two = "MIIEa\n-----END RSA PRIVATE KEY-----\nplain text, and\nMIIEb\n-----END RSA PRIVATE KEY-----"
    masked = mask(two.encode()).decode()
    assert "plain text," in masked
    assert "MII" not in masked


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize("name", ["password", "apiKey", "api_key", "access_token", "client_secret", "Authorization", "set-cookie"])
def test_members_whose_name_says_it(name: str) -> None:
    frame = {"outer": {name: 'correct "horse" battery', "city": "Bern"}, "inner": json.dumps({name: "correct-horse"})}
    masked = mask(json.dumps(frame).encode())
    assert b"correct" not in masked
    assert b"battery" not in masked
    read = json.loads(masked)
    assert read["outer"]["city"] == "Bern"
    assert json.loads(read["inner"])[name] == "*************"


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize(
    "frame",
    [
        b'{"type":"tool_call","id":"7","name":"weather","args":{"city":"Bern"}}',
        b'{"usage":{"input_tokens":12,"max_tokens":4096},"key":"Enter"}',
        b'{"text":"the desk-top risk-management task-list-of-many-long-words"}',
        b"https://example.org/path?page=2",
    ],
)
def test_what_is_no_secret_is_left_alone(frame: bytes) -> None:
    assert mask(frame) == frame


@pytest.mark.req("record.secrets.lookalikes")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["password", "token", "text", "a"]) | st.text(), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_json_stays_json_of_the_same_shape(value: object) -> None:
    for ascii_only in (True, False):
        frame = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
        masked = mask(frame)
        assert len(masked) == len(frame)
        assert _reduce(json.loads(masked)) == _reduce(json.loads(frame))


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize("levels", range(4))
def test_json_inside_json_is_masked_at_any_depth_and_stays_json(levels: int) -> None:
    text = json.dumps({"password": 'co"rr\\ect-horse\\', "city": "Bern", "text": "plain"})
    for _ in range(levels):
        text = json.dumps({"text": text})
    masked = mask(text.encode())
    assert len(masked) == len(text.encode())
    assert b"horse" not in masked
    for _ in range(levels):
        masked = json.loads(masked)["text"].encode()
    assert json.loads(masked)["city"] == "Bern"


texts = st.lists(
    st.sampled_from(
        [
            "password",
            "token",
            "api_key",
            "=",
            ":",
            " ",
            "--",
            "\\",
            '"',
            "'",
            "\n",
            "\t",
            "é",
            "abcdefgh",
            "12345678",
            "{",
            "}",
            "://",
            "@",
            "Bearer ",
            "sk-",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
        ]
    ),
    max_size=12,
).map("".join)


@pytest.mark.req("record.secrets.lookalikes")
@given(texts, texts, st.integers(0, 3))
def test_json_stays_json_whatever_its_strings_say(name: str, text: str, levels: int) -> None:
    frame = json.dumps({name: text, "n": [-12345678, None]})
    for _ in range(levels):
        frame = json.dumps({"text": frame, name: text})
    masked = mask(frame.encode())
    assert len(masked) == len(frame.encode())
    assert _reduce(json.loads(masked)) == _reduce(json.loads(frame))


@pytest.mark.req("record.secrets.lookalikes")
def test_a_string_that_ends_early_ends_the_mask() -> None:
    frame = b'{"text":"{\\"password\\":\\"correct-horse","b":"plain text"}'
    masked = mask(frame)
    assert b"horse" not in masked
    assert json.loads(masked)["b"] == "plain text"


@pytest.mark.req("record.secrets.lookalikes")
def test_what_one_line_begins_is_not_the_next_ones_business() -> None:
    run = b'-----BEGIN PRIVATE KEY-----\n{"id":1,"result":"MIIE"}\n"password": "\n{"id":2}\n'
    assert mask_run(run) == run


@pytest.mark.slow
@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize(
    "hostile",
    [
        b"eyJ-" * 25_000,
        b"-eyJaaaaaaaa" * 9_000,
        b'{"token":"' + b"a" * 1_000_000 + b'"}',
        b'{"token":"' + b"\\" * 100_000,
        b'"token":"' * 12_000,
        b"token" * 20_000,
        b"token=" * 100_000,
        b"password:x" * 50_000,
        b"token " * 20_000,
        b"password: " * 10_000,
        b"://" * 40_000,
        b"https://" * 15_000,
        b"-----BEGIN PRIVATE KEY-----" * 4_000,
        b"-----END PRIVATE KEY-----" * 4_000,
        b"A" * 1_000_000 + b"-----END PRIVATE KEY-----",
        b"AAAA-----END PRIVATE KEY----" * 4_000,
        b"SG." * 40_000,
        b"bearer " * 15_000,
        b"--" * 60_000 + b"password x",
        b" " * 100_000 + b"=",
        b"'" * 100_000,
    ],
)
def test_hostile_input_costs_no_more_than_its_length(hostile: bytes) -> None:
    """Would not end within the suite's time limit if any pattern took quadratic time."""
    for _ in range(10):
        assert len(mask(hostile)) == len(hostile)


def _reduce(value: object) -> object:
    if isinstance(value, dict):
        return [_reduce(inner) for inner in value.values()]
    return [_reduce(inner) for inner in value] if isinstance(value, list) else type(value)
