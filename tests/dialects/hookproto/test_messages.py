"""What a file says of its bytes and its mode, and what no message shows."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response, fold_case

GOOD_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def test_the_events_have_the_names_of_the_protocol() -> None:
    assert (EVENT_BOX_CREATE, EVENT_BOX_DESTROY) == ("box.create", "box.destroy")


@pytest.mark.req(
    "hooks.bytes.01", "hooks.bytes.02", "hooks.bytes.03", "hooks.bytes.05", "hooks.bytes.06", "hooks.bytes.07",
    "hooks.naive.11", "hooks.scenario.hooks-06",
)  # fmt: skip
@pytest.mark.parametrize(
    ("file", "content"),
    [
        (File("/f", content_base64="aGk="), b"hi"),
        (File("/f", content_base64="aG\nk=\r\n"), b"hi"),
        (File("/f", content_base64="aGl="), b"hi"),
        (File("/f", content_base64="aGl+/w=="), b"hi~\xff"),
        (File("/f", content_base64="aGk=", content="passed over"), b"hi"),
        (File("/f", content="line\r\nline\0é\n"), b"line\r\nline\0\xc3\xa9\n"),
        (File("/f"), b""),
    ],
)
def test_the_bytes_of_a_file_come_from_its_base64_else_from_its_text(file: File, content: bytes) -> None:
    assert file.bytes() == content


@pytest.mark.req(
    "hooks.bytes.08", "hooks.bytes.09", "hooks.bytes.10", "hooks.bytes.11", "hooks.bytes.12", "hooks.bytes.13",
    "hooks.naive.11", "hooks.scenario.hooks-06",
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["aGk", " aGk=", "aGk= ", "-_-_", "====", "!!", "Azrz=", "aG=k", "aGk=aGk=", "aGk\u00e9", "a===", "\n="]
)
def test_base64_that_is_none_is_an_error_that_names_the_file(text: str) -> None:
    with pytest.raises(ValueError, match=r'^decoding base64 content for "/etc/\\"x": illegal base64 data$'):
        File('/etc/"x', content_base64=text).bytes()


@pytest.mark.req("hooks.naive.11")
@given(st.text(st.sampled_from("AZaz09+/=\r\n -"), max_size=12))
def test_base64_is_taken_exactly_when_it_is_well_formed_but_for_line_ends(text: str) -> None:
    bare = text.replace("\r", "").replace("\n", "")
    if not text:
        assert File("/f", content_base64=text).bytes() == b""
    elif GOOD_BASE64.fullmatch(bare):
        assert File("/f", content_base64=text).bytes() == base64.b64decode(bare)
    else:
        with pytest.raises(ValueError, match="illegal base64 data"):
            File("/f", content_base64=text).bytes()


@given(st.binary())
def test_every_content_survives_base64(content: bytes) -> None:
    assert File("/f", content_base64=base64.encodebytes(content).decode()).bytes() == content


@pytest.mark.req("hooks.bytes.14")
@given(st.text(st.characters()))
def test_every_lone_surrogate_becomes_one_replacement_character(text: str) -> None:
    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert File("/f", content=text).bytes() == expected.encode()


@pytest.mark.req(
    "hooks.mode.01",
    "hooks.mode.02",
    "hooks.mode.03",
    "hooks.mode.07",
    "hooks.naive.12",
    "hooks.naive.13",
    "hooks.scenario.hooks-07",
)
@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("", 0o600),
        ("0755", 0o755),
        ("755", 0o755),
        ("+644", 0o644),
        ("0", 0),
        ("0000", 0),
        ("4755", 0o4755),
        ("00000000600", 0o600),
    ],
)
def test_a_mode_is_an_octal_number_in_a_string(mode: str, number: int) -> None:
    assert File("/f", mode=mode).file_mode() == number


@pytest.mark.req("hooks.mode.04", "hooks.mode.06", "hooks.mode.10", "hooks.naive.10", "hooks.scenario.hooks-07")
@pytest.mark.parametrize("mode", ["0o755", "98", " 0600", "0600\n", "6_0_0", "-644", "+", "++6", "0x1f", "rw-r--r--", "٦٠٠"])
def test_a_mode_that_is_no_octal_number_is_an_error_that_names_mode_and_file(mode: str) -> None:
    with pytest.raises(ValueError, match="not an octal number") as caught:
        File("/f", mode=mode).file_mode()
    assert str(caught.value).startswith(f'parsing mode {json.dumps(mode, ensure_ascii=False)} for "/f": ')


@pytest.mark.req("hooks.mode.09", "hooks.mode.10")
@pytest.mark.parametrize("mode", ["10000", "100644", "7" * 10_000])
def test_a_mode_above_7777_is_an_error(mode: str) -> None:
    with pytest.raises(ValueError, match='^parsing mode "[1-7].* for "/f": larger than 7777$') as caught:
        File("/f", mode=mode).file_mode()
    assert len(str(caught.value)) < 300


def test_no_message_shows_content_or_state() -> None:
    file = File("/root/token", content="hunter2", content_base64="aHVudGVyMg==", mode="0600")
    shown = repr([Request(EVENT_BOX_DESTROY, Box(box_id="a", description="mine"), "hunter2"), Response([file], state="hunter2")])
    assert "hunter2" not in shown
    assert "aHVudGVyMg" not in shown
    assert "/root/token" in shown
    assert "mine" in shown


def test_messages_are_equal_when_their_values_are() -> None:
    assert Response([File("/a", content="x")], "s") == Response((File("/a", content="x"),), "s")
    assert File("/a", content="x") != File("/a", content="y")
    assert Box() != Request("")
    assert Request("e") == Request("e", Box())


def test_names_fold_as_the_origin_s_parser_folds_them_and_no_further() -> None:
    """Of all characters only the long s and the sign of the kelvin are letters of ours in another form."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    others = {chr(code) for code in range(0x80, 0x110000) if fold_case(chr(code)) in set(letters)}
    assert others == {"\u017f", "\u212a"}
    assert fold_case("\u017fTATE") == "state"
    assert fold_case("CONTENT_BASE64") == "content_base64"
