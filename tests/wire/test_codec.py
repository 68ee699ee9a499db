"""The codec: runs of lines in, one value for each line out, whatever the line."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from serai.wire.codec import Codec, LineReader, Noise, Unknown, decode, encode, find_key, repair
from tests.support.profiles import examples


class Say(msgspec.Struct, tag="say"):
    text: str


class Add(msgspec.Struct, tag="add"):
    n: int
    extra: Raw = Raw(b"null")


Message = Say | Add
CODEC: Codec[Message] = Codec(Message)

STRINGS = msgspec.json.Decoder(str)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def reader() -> LineReader[Message]:
    return CODEC.create_reader()


def read_one(line: bytes) -> Message | Unknown | Noise:
    [message] = reader().read(line + b"\n")
    return message


def read_raw(message: object) -> bytes:
    assert isinstance(message, Noise | Unknown)
    return message.raw


# -- runs -------------------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('a{}[]",:\\\n\u2028é'), max_size=6)
EXTRAS = st.sampled_from([b"1", b'"}{"', b"{}", b"[{}, {}]", b'{"a":{"b":1}}', b"1e400"])
VALID = st.builds(lambda text: encode(Say(text)).rstrip(), TEXTS) | st.builds(
    lambda n, extra: encode(Add(n, Raw(extra))).rstrip(), st.integers(-9, 9), EXTRAS
)
# Parts that look like the seams between frames; glued together they make what only a careful reader tells apart.
SEAMS = st.sampled_from(
    [b"{", b"}", b"}\n{", b"}{", b'"', b'"}\n{"', b",", b":", b"[", b"]", b"\n", b" ", b'"type"', b'"say"', b"{}"]
)
ODD = st.sampled_from(
    [
        b"",
        b"  \t",
        b"a banner",
        b"17",
        b"null",
        b"[1, 2]",
        b'[{"type":"add","n":1}]',
        b"{}",
        b'{"type":"sing","n":1}',
        b'{"type":"add","n":"one"}',
        b'{"type":"add","n":1',
        b'{"type":"say","text":"caf\xe9"}',
        b'{"type":"say","text":"\\ud83d"}',
        b'\xef\xbb\xbf{"type":"add","n":1}',
        b"\xff\xfe",
    ]
)


@st.composite
def spread(draw: st.DrawFn) -> bytes:
    """A valid frame with line ends put into it."""
    frame = draw(VALID)
    for place in draw(st.lists(st.integers(0, len(frame)), min_size=1, max_size=3)):
        frame = frame[:place] + b"\n" + frame[place:]
    return frame


LINES = st.one_of(
    VALID,
    VALID,
    ODD,
    spread(),
    st.builds(lambda first, gap, second: first + gap + second, VALID, st.sampled_from([b"", b" ", b","]), VALID),
    st.lists(VALID | SEAMS, max_size=6).map(b"".join),
)
RUNS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])).map(b"".join), max_size=6).map(b"".join)
REGULAR_RUNS = st.lists(VALID, max_size=8).map(lambda lines: b"".join(line + b"\n" for line in lines))


@pytest.mark.req("wire.codec.batch-equals-lines")
@settings(deadline=None, max_examples=examples(1500))
@given(st.lists(RUNS | REGULAR_RUNS, max_size=3))
@example([b'{"type":"add","n":1}{"type":"add","n":2}\n{"type":"add","n":3}\n'])
@example([b'{"type":"add",\n"n":1}\n{"type":"add","n":2}{"type":"add","n":3}\n'])
@example([b'{"type":"add","n":1,"extra":"}\n{"}{"type":"add","n":2}\n'])
def test_runs_read_in_batches_give_what_their_lines_give_one_by_one(runs: list[bytes]) -> None:
    batch = reader()
    together = [message for run in runs for message in batch.read(run)]
    lines = [line for run in runs for line in run.split(b"\n")]
    alone = [reader() for _ in lines]
    assert together == [message for one, line in zip(alone, lines, strict=True) for message in one.read(line + b"\n")]
    assert (batch.noise, batch.unknown, batch.repaired) == (
        sum(one.noise for one in alone),
        sum(one.unknown for one in alone),
        sum(one.repaired for one in alone),
    )


@pytest.mark.req("wire.codec.batch-equals-lines")
def test_each_line_gives_one_message_also_when_it_holds_two_objects_or_half_of_one() -> None:
    two, half, rest = b'{"type":"add","n":1}{"type":"add","n":2}', b'{"type":"add",', b'"n":3}'
    first, second, third, last = reader().read(b"\n".join([two, half, rest, b'{"type":"add","n":4}', b""]))
    assert [read_raw(first), read_raw(second), read_raw(third)] == [two, half, rest]
    assert last == Add(4)


@pytest.mark.req("wire.codec.batch-equals-lines")
def test_a_last_line_without_a_newline_is_read_like_any_other() -> None:
    assert reader().read(b'{"type":"add","n":1}') == [Add(1)]
    assert reader().read(b"") == []


@pytest.mark.req("wire.codec.fallback")
@pytest.mark.parametrize("bad", [b"banner", b'{"type":"sing"}', b'{"type":"add","n":{}}', b'{"n":1}}', b"\xff", b"{"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_line_does_not_lose_the_good_ones_around_it(bad: bytes, place: int) -> None:
    good = [b'{"type":"add","n":1}', b'{"type":"add","n":2}']
    lines = [*good[:place], bad, *good[place:]]
    connection = reader()
    for _ in range(2):  # the second time on a connection that was bad before
        messages = connection.read(b"\n".join([*lines, b""]))
        assert read_raw(messages.pop(place)) == bad
        assert messages == [Add(1), Add(2)]


@pytest.mark.req("wire.codec.batch-equals-lines")
@settings(deadline=None, max_examples=examples(500))
@given(RUNS | REGULAR_RUNS)
@example(b'\xef\xbb\xbf{"type":"add","n":1}\r\n')
@example(b'{"type":"add","n":1,"x":"\xff"}\n{"type":"add","n":2}\n')
@example(b'{"type":"add","n":1,"x":"\\ud83d\\ude00"}\n{"type":"add","n":2,"x":"\\uD83D"}')
def test_messages_come_with_the_lines_that_say_them(run: bytes) -> None:
    plain, paired = reader(), reader()
    messages = plain.read(run)
    pairs = [paired.repair_pair(*pair) for pair in paired.read_pairs(run)]
    assert [message for message, _ in pairs] == messages
    assert (paired.noise, paired.unknown) == (plain.noise, plain.unknown)
    spoken = [line for line in (line.strip(b" \t\r") for line in run.split(b"\n")) if line]
    for (message, line), whole in zip(pairs, spoken, strict=True):
        if isinstance(message, Noise | Unknown):
            assert line == message.raw == whole
        else:  # it can be put into other JSON as it is
            assert line.strip() == (repair(whole) or whole)
            assert json.loads(encode({"native": Raw(line)}))["native"]["type"] == json.loads(line)["type"]


@pytest.mark.req("wire.codec.bad-text")
def test_the_line_of_a_message_is_mended_where_no_type_looks_too() -> None:
    connection = reader()
    bad = b'{"type":"add","n":1,"new":"caf\xe9","newer":"\\udc00"}\n'
    sound = b'{"type":"add","n":2,"new":"\\ud83d\\ude00 \\\\ud83d"}\n'
    [(first, mended), (second, kept)] = [connection.repair_pair(*pair) for pair in connection.read_pairs(bad + sound)]
    assert (first, second) == (Add(1), Add(2))
    assert json.loads(mended) == {"type": "add", "n": 1, "new": "caf\ufffd", "newer": "\ufffd"}
    assert kept == sound.rstrip()
    assert connection.repaired == 1


# -- what fits nothing ------------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.codec.unknown")
@pytest.mark.parametrize(
    ("line", "kind", "why"),
    [
        (b'{"type":"sing","n": 1}', "sing", "Invalid value 'sing'"),
        (b'{"type":"add","n":"one"}', "add", r"Expected `int`, got `str` - at `\$.n`"),
        (b'{"n":1}', None, "missing required field `type`"),
        (b'{"type":7}', None, "Expected `str`"),
        (b"{}", None, "missing required field `type`"),
    ],
)
def test_an_object_that_fits_no_type_is_unknown_with_its_bytes_its_kind_and_the_reason(
    line: bytes, kind: str | None, why: str
) -> None:
    unknown = read_one(line)
    assert isinstance(unknown, Unknown)
    assert (unknown.raw, unknown.kind) == (line, kind)
    assert re.search(why, unknown.why)


@pytest.mark.req("wire.codec.unknown")
def test_the_kind_is_read_from_the_member_that_the_dialect_names() -> None:
    codec: Codec[Message] = Codec(Message, kind_field="method")
    assert [message.kind for message in codec.create_reader().read(b'{"method":"sing"}\n') if isinstance(message, Unknown)] == [
        "sing"
    ]


@pytest.mark.req("wire.codec.unknown-fields")
def test_unknown_fields_of_a_known_message_are_ignored() -> None:
    assert read_one(b'{"new":{"n":[2]},"type":"add","n":1,"newer":null}') == Add(1)


@pytest.mark.req("wire.codec.noise")
@pytest.mark.parametrize(
    "line", [b"17", b'"text"', b"null", b"[1, 2]", b'[{"type":"add","n":1}]', b"Listening on 0.0.0.0:80", b"\xff\xfe\x00"]
)
def test_what_is_no_object_at_all_is_noise_with_its_bytes(line: bytes) -> None:
    assert read_one(line) == Noise(line, "not a JSON object")


@pytest.mark.req("wire.codec.noise")
@pytest.mark.parametrize(
    "line", [b'{"type":"add"', b'{"type":"add","n":1}}', b"{type:1}", b"{\xff\xfe\x00", b"\xef\xbb\xbfBOM and text"]
)
def test_what_only_begins_like_an_object_is_noise_with_its_bytes_and_the_reason(line: bytes) -> None:
    noise = read_one(line)
    assert isinstance(noise, Noise)
    assert noise.raw == line
    assert re.fullmatch("not JSON: .+", noise.why)


@pytest.mark.req("wire.codec.noise")
def test_noise_and_unknown_messages_are_counted_apart_and_good_ones_are_not() -> None:
    connection = reader()
    connection.read(b'{"type":"add","n":1}\nbanner\n{"type":"sing"}\n[1]\n\n{"type":"add","n":1}\n')
    assert (connection.noise, connection.unknown) == (2, 1)
    connection.read(b"banner\n")
    connection.read(b"{}\n")
    assert (connection.noise, connection.unknown) == (3, 2)


@pytest.mark.req("wire.codec.depth-bomb")
@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"type":"add","n":1,"extra":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"\\ud800":' * 100_000,
    ],
    ids=["arrays", "objects", "closed arrays", "in an opaque part", "with text to repair"],
)
def test_a_bomb_of_brackets_is_noise_and_the_lines_around_it_are_read(bomb: bytes) -> None:
    before, noise, after = reader().read(b'{"type":"add","n":1}\n' + bomb + b'\n{"type":"add","n":2}\n')
    assert isinstance(noise, Noise)
    assert noise.raw == bomb
    assert (before, after) == (Add(1), Add(2))
    assert isinstance(read_one(bomb), Noise)


# -- opaque parts -----------------------------------------------------------------------------------------------------------

OPAQUE = b'{"z": 1,  "a" : [123456789012345678901234567890, 1e400, -0.0, 1.10],"z":2, "\\u0041":"\\/"}'


@pytest.mark.req("wire.codec.raw")
def test_opaque_parts_stay_the_bytes_of_the_peer_and_are_written_again_unchanged() -> None:
    line = b'{"type":"add","n":1,"extra":' + OPAQUE + b"}"
    message = read_one(line)
    assert isinstance(message, Add)
    assert bytes(message.extra) == OPAQUE
    assert encode(message) == line + b"\n"


@pytest.mark.req("wire.codec.raw")
def test_opaque_parts_survive_a_batch_and_the_end_of_its_run() -> None:
    run = b"".join(b'{"type":"add","n":%d,"extra": %s }\n' % (n, OPAQUE) for n in range(3))
    extras = [message.extra.copy() for message in reader().read(run) if isinstance(message, Add)]
    del run
    assert [bytes(extra) for extra in extras] == [OPAQUE] * 3


# -- bad text ---------------------------------------------------------------------------------------------------------------


@pytest.mark.req("wire.codec.bad-text")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"type":"say","text":"caf\xe9!"}', "caf\ufffd!"),
        (b'{"type":"say","text":"\xed\xa0\xbd"}', "\ufffd\ufffd\ufffd"),
        (b'{"type":"say","text":"cut \\ud83d"}', "cut \ufffd"),
        (b'{"type":"say","text":"\\uDE00\\uD83D\\uDE00"}', "\ufffd\U0001f600"),
        (b'\xef\xbb\xbf{"type":"say","text":"hello"}', "hello"),
    ],
    ids=["latin-1", "surrogate in UTF-8", "high surrogate", "low surrogate before a pair", "byte order mark"],
)
def test_bad_text_does_not_lose_the_frame_and_is_counted(line: bytes, text: str) -> None:
    connection = reader()
    good = b'{"type":"add","n":1}\n'
    assert connection.read(good + line + b"\n" + good) == [Add(1), Say(text), Add(1)]
    assert connection.repaired == 1
    assert connection.read(line + b"\n") == [Say(text)]
    assert connection.repaired == 2


@pytest.mark.req("wire.codec.bad-text")
def test_sound_text_is_not_counted_as_repaired() -> None:
    connection = reader()
    assert connection.read('{"type":"say","text":"é \\ud83d\\ude00 \\\\ud800"}\n'.encode()) == [Say("é \U0001f600 \\ud800")]
    connection.read(b"banner\n{}\n")
    assert connection.repaired == 0


@pytest.mark.req("wire.codec.bad-text")
def test_an_unknown_message_with_bad_text_keeps_its_own_bytes_and_its_repaired_kind() -> None:
    line = b'{"type":"caf\xe9"}'
    unknown = read_one(line)
    assert isinstance(unknown, Unknown)
    assert (unknown.raw, unknown.kind) == (line, "caf\ufffd")


@pytest.mark.req("wire.codec.bad-text")
def test_bad_text_in_an_opaque_part_is_repaired_when_the_part_is_decoded() -> None:
    message = read_one(b'{"type":"add","n":1,"extra":"caf\xe9"}')
    assert isinstance(message, Add)
    assert bytes(message.extra) == b'"caf\xe9"'
    assert decode(STRINGS, message.extra) == "caf\ufffd"


def test_decoding_a_part_that_no_repair_helps_raises_the_reason() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `str`"):
        decode(STRINGS, b"17")
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decode(msgspec.json.Decoder(int), b'"\xff"')


# Pieces of JSON strings, each valid text on its own, some of them broken Unicode.
PIECES = st.lists(
    st.sampled_from(
        [
            rb"\ud83d",
            rb"\uDE00",
            rb"\uDBFF",
            rb"\udfff",
            rb"\\",
            rb"\"",
            rb"\n",
            rb"\u0041",
            rb"\uD7ff",
            rb"\ue000",
            b"ud83d",
            b"u",
            b"x",
        ]
    ),
    max_size=8,
).map(b"".join)
RAW_BYTES = st.lists(
    st.sampled_from([b"\xff", b"\xe9", b"\xc3\xa9", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"a"]), max_size=6
).map(b"".join)


def replace_surrogates(value: Any) -> Any:
    """A value of the json module with its lone surrogates replaced."""
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [replace_surrogates(inner) for inner in value]
    return LONE_SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


@pytest.mark.req("wire.codec.bad-text")
@settings(deadline=None, max_examples=examples(1000))
@given(pieces=PIECES)
def test_lone_surrogates_and_only_they_are_replaced(pieces: bytes) -> None:
    line = b'{"a":"' + pieces + b'"}'
    value = json.loads(line)
    repaired = repair(line)
    assert (repaired is None) == (replace_surrogates(value) == value)
    assert msgspec.json.decode(repaired or line) == replace_surrogates(value)


BROKEN_TEXT = st.text(st.characters() | st.sampled_from('\ud83d\ude00\\"'), max_size=5)
BROKEN_VALUES = st.recursive(
    BROKEN_TEXT | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BROKEN_TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("wire.codec.bad-text")
@settings(deadline=None, max_examples=examples(500))
@given(value=BROKEN_VALUES, bom=st.booleans(), escaped=st.booleans())
def test_repair_gives_what_the_json_module_reads_with_lone_surrogates_replaced(value: Any, bom: bool, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode(errors="surrogatepass")
    line = b"\xef\xbb\xbf" * bom + text
    assert msgspec.json.decode(repair(line) or line) == replace_surrogates(json.loads(text.decode(errors="replace")))


@pytest.mark.req("wire.codec.bad-text")
@settings(deadline=None, max_examples=examples(500))
@given(raw=RAW_BYTES, pieces=PIECES)
def test_invalid_utf8_is_replaced_as_python_replaces_it(raw: bytes, pieces: bytes) -> None:
    line = b'["' + pieces + raw + pieces + b'"]'
    assert json.loads(repair(line) or line) == replace_surrogates(json.loads(line.decode(errors="replace")))


# -- the id in a head -------------------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SNEAKY = st.text(st.sampled_from('id":,{}[]\\ 7'), max_size=8) | st.sampled_from(
    ["id", '"id":7,', '{"id":7}', '\\"id\\":7,', ',"id":7,"']
)
KEYS = st.sampled_from(["id", "method", "params", "", "ID", '"id"', "i\\d"])
VALUES = st.recursive(
    SCALARS | SNEAKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def write_members(members: dict[str, Any], gap: str) -> tuple[bytes, bytes | None, int]:
    """The object as text, the text of its id if that is a scalar, and where that text ends."""
    text, id, end = "{", None, 0
    for number, (key, value) in enumerate(members.items()):
        text += f"{',' if number else ''}{gap}{json.dumps(key)}{gap}:{gap}{json.dumps(value)}"
        if key == "id" and not isinstance(value, list | dict):
            id, end = json.dumps(value).encode(), len(text)
        text += gap
    assert json.loads(text + "}") == members
    return (text + "}").encode(), id, end


@pytest.mark.req("wire.codec.find-key")
@settings(deadline=None, max_examples=examples(400))
@given(members=st.dictionaries(KEYS, VALUES, max_size=5), gap=st.sampled_from(["", " ", "\n\t"]))
@example(members={"params": {"id": 7, "x": ["id"]}, "id": 12, "result": {"id": 8}}, gap="")
@example(members={"method": "id", "params": ["id", {"id": 7}], "id": "a\\"}, gap=" ")
@example(members={"result": {"id": 7}}, gap="")
@example(members={"id": {"id": 7}}, gap="")
@example(members={"id": "1, 2"}, gap="")
def test_wherever_an_object_is_cut_its_id_is_found_once_it_is_whole_and_nothing_else_ever(
    members: dict[str, Any], gap: str
) -> None:
    text, id, end = write_members(members, gap)
    for cut in range(len(text) + 1):
        assert find_key(text[:cut], "id") == (id if cut > end else None), text[:cut]


@pytest.mark.req("wire.codec.find-key")
@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"banner",
        b'["id", 1, "id", 2]',
        b'[{"id":1}]',
        b'"id":1,',
        b'{"id"',
        b'{"id":',
        b'{"id":"1, 2',
        b"{]}",
        b'{"a":"cut \\"id\\":1,',
    ],
)
def test_a_head_that_names_no_id_gives_none(head: bytes) -> None:
    assert find_key(head, "id") is None


@pytest.mark.req("wire.codec.surrogates-out")
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80 from a file name"])
def test_half_a_surrogate_pair_is_written_as_the_replacement_character(text: str) -> None:
    clean = text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd").replace("\udc80", "\ufffd")
    written = encode({"plain": "𝄞", "text": text, text: [text, 1.5, float("nan"), None], "raw": msgspec.Raw(b'{"x": 1}')})
    assert msgspec.json.decode(written) == {"plain": "𝄞", "text": clean, clean: [clean, 1.5, None, None], "raw": {"x": 1}}
