"""Known values are masked in every form, and frames stay what they were."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serai.record.secrets import SHORTEST, Secrets

SECRET = 'pa"ss/wörd\\<&>+1'

values = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\x85"), min_size=8
).filter(lambda value: len(value.strip()) >= 8 and len(set(value)) >= 5)


@pytest.mark.req("record.secrets.granted", "record.secrets.length")
@given(values, st.binary(max_size=7), st.binary(max_size=7))
def test_every_form_of_a_value_is_masked_at_equal_length(value: str, before: bytes, after: bytes) -> None:
    secrets = Secrets([("TOKEN", value)])
    inside = value.strip()
    raw = inside.encode()
    frames = [
        before + raw + after,
        json.dumps({"a": value}).encode(),
        json.dumps({"a": value}, ensure_ascii=False).encode(),
        msgspec.json.encode({"a": value}),
        json.dumps({"a": inside}).replace("/", "\\/").encode(),
        quote(inside, safe="").encode(),
        (before + raw + after).hex().encode(),
    ]
    for frame in frames:
        masked = secrets.mask(frame)
        assert len(masked) == len(frame)
        assert raw not in masked
        assert masked != frame


@pytest.mark.req("record.secrets.granted", "record.secrets.length")
@given(values, st.binary(max_size=7), st.binary(max_size=7))
def test_a_value_inside_base64_is_masked_at_every_alignment_and_still_decodes(value: str, before: bytes, after: bytes) -> None:
    raw = value.strip().encode()
    secrets = Secrets([("TOKEN", value)])
    for encode, decode in ((base64.b64encode, base64.b64decode), (base64.urlsafe_b64encode, base64.urlsafe_b64decode)):
        masked = decode(secrets.mask(encode(before + raw + after)))
        assert len(masked) == len(before + raw + after)
        middle = masked[len(before) + 1 : len(before) + len(raw) - 1]
        assert not any(raw[at : at + 4] in middle for at in range(len(raw) - 4))


AWKWARD = "pa\"ss/wo\\rd é+<&>'`!(1)"


@pytest.mark.req("record.secrets.granted")
@pytest.mark.parametrize(
    "carried",
    [
        json.dumps({"text": json.dumps({"p": AWKWARD})}),  # JSON in JSON, as tool results have it
        json.dumps({"text": json.dumps({"p": AWKWARD}, ensure_ascii=False)}, ensure_ascii=False),
        json.dumps(AWKWARD).replace("\\u00e9", "\\u00E9"),
        json.dumps(AWKWARD, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),  # Go
        "pa\\u0022ss/wo\\\\rd \\u00E9\\u002B\\u003C\\u0026\\u003E\\u0027\\u0060!(1)",  # .NET
        json.dumps(AWKWARD, ensure_ascii=False).replace("/", "\\/"),  # PHP
        quote(AWKWARD),
        quote(AWKWARD).lower(),
        quote(AWKWARD, safe="!'()*"),  # encodeURIComponent
        quote_plus(AWKWARD),
        AWKWARD.encode().hex().upper(),
        base64.b64encode(("?" * 40 + AWKWARD + "?" * 40).encode()).decode().replace("/", "\\/"),
        base64.b64encode(("?" * 40 + AWKWARD + "?" * 40).encode()).decode().replace("/", "%2F").replace("+", "%2B"),
        json.dumps(AWKWARD, ensure_ascii=False).translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&='"}),  # Gson
    ],
)
def test_no_encoder_carries_a_value_past_the_mask(carried: str) -> None:
    masked = Secrets([("TOKEN", AWKWARD)]).mask(carried.encode())
    assert len(masked) == len(carried.encode())
    assert max(len(run) for run in re.findall(rb"[*x1]*", masked)) >= len(AWKWARD)
    for piece in (b"(1)", b"ss/wo", b"ss\\/wo", b"rd%20", b"rd+", quote(AWKWARD)[6:20].encode(), b"706122", b"2831"):
        assert piece not in masked


@pytest.mark.req("record.secrets.granted")
def test_values_that_overlap_are_both_masked_whole() -> None:
    secrets = Secrets([("A", "acme-prod"), ("B", "acme-prod-9f8d7c6b5a"), ("C", "key-acme")])
    secrets.add(*((f"X{number}", f"filler-{number:04}") for number in range(30)))  # more than one searcher takes
    assert secrets.mask(b"acme-prod-9f8d7c6b5a, key-acme-prod.") == b"********************, *************."


@pytest.mark.req("record.secrets.granted")
def test_of_an_object_the_strings_are_secret_wherever_they_come_again() -> None:
    account = {"type": "service_account", "key": {"private": "-----BEGIN-----\nMIIEabcdef\n"}, "id": 7}
    secrets = Secrets([("ACCOUNT", json.dumps(account, indent=2))])
    masked = json.loads(secrets.mask(json.dumps({"account": account}).encode()))["account"]
    assert masked == {"type": "*" * 15, "key": {"private": "*" * 15 + "\n" + "*" * 10 + "\n"}, "id": 7}
    assert secrets.too_short == set()


@pytest.mark.req("record.secrets.granted", "record.secrets.short")
@pytest.mark.parametrize(
    "value", ["[12345678,87654321]", '{"pin":12345678}', '{"sk-live-key-abcdefgh":true}', "[not JSON, but secret"]
)
def test_an_object_without_strings_is_masked_all_the_same(value: str) -> None:
    assert Secrets([("ODD", value)]).mask(value.encode()) != value.encode()
    assert Secrets([("ODD", '{"a":"b"}')]).too_short == {"ODD"}


@pytest.mark.req("record.secrets.granted")
def test_a_value_that_is_no_utf8_is_found_as_it_is_and_as_it_is_shown() -> None:
    secrets = Secrets([("TOKEN", os.fsdecode(b"caf\xe9-passw0rd"))])
    assert b"passw0rd" not in secrets.mask(b"caf\xe9-passw0rd")
    assert b"passw0rd" not in secrets.mask(b"caf\xe9-passw0rd".decode(errors="replace").encode())


@pytest.mark.req("record.secrets.granted")
def test_a_tail_that_begins_in_the_middle_of_a_character_hides_no_part_of_a_value() -> None:
    value = "secret-é-hidden-value"
    tail = value.encode()[8:].decode(errors="replace")  # begins with the second byte of the é
    assert "hidden" not in Secrets([("TOKEN", value)]).mask_piece(tail.encode()).decode()


@pytest.mark.req("record.secrets.granted", "record.secrets.late")
def test_values_learned_by_several_threads_at_once_are_all_known() -> None:
    secrets = Secrets()
    start = threading.Barrier(4)

    def learn(who: int) -> None:
        start.wait()
        for number in range(20):
            secrets.add((f"T{who}", f"value-{who}-{number:04}"))

    threads = [threading.Thread(target=learn, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = " ".join(f"value-{who}-{number:04}" for who in range(4) for number in range(20))
    assert b"value" not in secrets.mask(everything.encode())


@pytest.mark.req("record.secrets.length")
@pytest.mark.parametrize("number", ["12345678", "-1234567", "1234.5678", "1e234567", "-1.25E-10"])
def test_a_number_stays_a_number(number: str) -> None:
    frame = b'{"pin":%s}' % number.encode()
    masked = Secrets([("PIN", number)]).mask(frame)
    assert masked != frame
    assert isinstance(json.loads(masked)["pin"], int | float)


@pytest.mark.req("record.secrets.granted")
@pytest.mark.parametrize("value", ["١٢٣٤٥٦٧", "00001½2¡"])
def test_characters_that_only_look_like_something_else(value: str) -> None:
    secrets = Secrets([("TOKEN", value)])
    assert secrets.mask(value.encode()) == b"*" * len(value.encode())
    assert secrets.mask_piece(value.encode()[-4:]) == b"****"


@pytest.mark.req("record.secrets.granted")
@pytest.mark.parametrize("text", ["\ud800", "x\udce9", "a\ud800b"])
def test_text_that_cannot_be_encoded_can_be_afterwards(text: str) -> None:
    Secrets([("ODD", f"{text}-something")]).mask_text(text).encode()


@pytest.mark.req("record.secrets.length")
def test_masked_frames_are_still_what_they_were() -> None:
    secrets = Secrets([("TOKEN", SECRET), ("PIN", "12345678")])
    frame = {"env": {"TOKEN": SECRET}, "pin": 12345678, "file": base64.b64encode(f"x={SECRET}".encode()).decode(), "other": "text"}
    masked = json.loads(secrets.mask(json.dumps(frame).encode()))
    assert masked["other"] == "text"
    assert set(masked["env"]["TOKEN"]) == {"*"}
    assert masked["pin"] == 11111111
    assert base64.b64decode(masked["file"], validate=True).startswith(b"x=")


@pytest.mark.req("record.secrets.length")
def test_what_holds_no_secret_is_the_very_same_object() -> None:
    frame = b'{"type":"hello"}\n'
    assert Secrets([("TOKEN", SECRET)]).mask(frame) is frame


@pytest.mark.req("record.secrets.granted")
def test_hundreds_of_values_are_all_found() -> None:
    values = [(f"T{number}", f"value-{number:04}-{'abc' * (number % 7)}") for number in range(300)]
    secrets = Secrets(values)
    assert b"value" not in secrets.mask(" ".join(value for _, value in values).encode())


@pytest.mark.req("record.secrets.granted")
def test_a_value_of_many_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhki\nG9w0BAQEFAASCBKcwgg\n-----END PRIVATE KEY-----\n"
    secrets = Secrets([("KEY", key)])
    for frame in (key.encode(), json.dumps({"key": key}).encode()):
        masked = secrets.mask(frame)
        assert b"MIIEv" not in masked
        assert b"G9w0B" not in masked
        assert masked.count(b"\n") == frame.count(b"\n")


@pytest.mark.req("record.secrets.granted")
@given(values, st.integers(0, 40), st.integers(0, 40))
def test_of_a_piece_the_parts_at_both_ends_are_masked(value: str, left: int, right: int) -> None:
    raw = value.strip().encode()
    left, right = min(left, len(raw) - 1), min(right, len(raw) - 1)
    assume(b"....." not in raw)
    piece = raw[len(raw) - left :] + b"....." + raw[:right]
    masked = Secrets([("TOKEN", value)]).mask_piece(piece)
    assert len(masked) == len(piece)
    assert left < 4 or raw[len(raw) - left :] not in masked[:left]
    assert right < 4 or raw[:right] not in masked[len(piece) - right :]


@pytest.mark.req("record.secrets.short")
@pytest.mark.parametrize("value", ["x", "1234", "a" * (SHORTEST - 1), " yes \n", "a line long enough\n1234"])
def test_a_value_too_short_is_named_and_not_masked(value: str) -> None:
    secrets = Secrets([("SHORT", value)])
    assert secrets.too_short == {"SHORT"}
    assert secrets.mask(b"x 1234 yes") == b"x 1234 yes"


def test_an_empty_value_is_nobodys_secret() -> None:
    secrets = Secrets([("EMPTY", ""), ("BLANK", "  \n")])
    assert (secrets.too_short, len(secrets)) == (set(), 0)


def test_everyday_words_of_a_family_of_credentials_are_not_masked() -> None:
    assert len(Secrets.from_env({"AWS_PROFILE": "default", "AWS_REGION": "eu-west-1"})) == 0


def test_of_an_environment_what_looks_like_a_credential_and_what_was_named() -> None:
    variables = {
        "GITHUB_TOKEN": "ghp-something",
        "FOO": "a granted value",
        "HOME": "/home/somebody",
        "DB": "postgres://u:pw-of-db@h/d",
    }
    secrets = Secrets.from_env(variables, "FOO")
    assert secrets.mask(" ".join(variables.values()).encode()) == b"************* *************** /home/somebody " + b"*" * 25


@pytest.mark.req("record.secrets.late")
def test_a_value_learned_later_is_masked_from_then_on() -> None:
    secrets = Secrets()
    assert secrets.mask(b"minted-by-a-hook") == b"minted-by-a-hook"
    secrets.add(("MINTED", "minted-by-a-hook"))
    assert secrets.mask(b"minted-by-a-hook") == b"*" * 16
