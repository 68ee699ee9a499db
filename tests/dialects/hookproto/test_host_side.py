"""Serai's side: what is written to a hook, what is read from it, and what its files come to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.hookproto.host_side import BadResponse, BoxFile, encode_request, read_response, resolve_file
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, EVENT_BOX_DESTROY, Box, File, Request, Response


def refuse(text: str) -> None:
    raise AssertionError(text)


# -- the request ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.rule.1.3-request", "hooks.decode.12")
@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (Request(EVENT_BOX_CREATE), b'{"event":"box.create","box":{}}'),
        (Request(EVENT_BOX_CREATE, Box(box_id="a")), b'{"event":"box.create","box":{"box_id":"a"}}'),
        (
            Request(EVENT_BOX_CREATE, Box(image="debian", box_id="a", description="é <b> & \U0001f600\n")),
            '{"event":"box.create","box":{"image":"debian","box_id":"a","description":"é <b> & \U0001f600\\n"}}'.encode(),
        ),
        (Request(EVENT_BOX_DESTROY, Box(box_id="a"), "s"), b'{"event":"box.destroy","box":{"box_id":"a"},"state":"s"}'),
        (Request(EVENT_BOX_DESTROY, Box(description="\udce9")), b'{"event":"box.destroy","box":{"description":"\xef\xbf\xbd"}}'),
    ],
)
def test_a_request_has_event_and_box_always_and_the_rest_when_it_is_not_empty(request_: Request, written: bytes) -> None:
    assert encode_request(request_) == written


# -- the response -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.decode.01", "hooks.decode.02", "hooks.decode.11", "hooks.rule.1.4-empty-state")
@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b"{}",
        b"null",
        b" {} \n\t\r\n",
        b"null\n",
        b'{"files":null,"state":null}',
        b'{"files":[],"state":""}',
        b'{"FILES":null}',
    ],
)
def test_what_says_nothing_is_an_empty_response(stdout: bytes) -> None:
    assert read_response(stdout) == Response()


@pytest.mark.req("hooks.decode.04", "hooks.naive.04")
@pytest.mark.parametrize("stdout", [b"\n", b"  \r\n\t", b"{", b'{"state":"x', b'{"files":[', b'{"state":', b'"', b'{"a":1'])
def test_what_ends_too_early_is_a_failure(stdout: bytes) -> None:
    with pytest.raises(BadResponse, match=r"^decoding response: unexpected end of JSON input$"):
        read_response(stdout)


@pytest.mark.req("hooks.decode.03", "hooks.decode.07", "hooks.decode.08", "hooks.decode.09", "hooks.decode.11")
@pytest.mark.parametrize(
    ("stdout", "response"),
    [
        (b'{"state":"x"}\n\n \t', Response(state="x")),
        (b'{"state":"x","more":{"a":[1,{"state":2}]},"":null}', Response(state="x")),
        (b'{"state":"a","state":"b"}', Response(state="b")),
        (b'{"State":"a","STATE":"b"}', Response(state="b")),
        (b'{"state":"a","STATE":"b","state":"c"}', Response(state="c")),
        ('{"\u017ftate":"a"}'.encode(), Response(state="a")),
        (b'{"state":"x","state":null}', Response(state="x")),
        (b'{"Files":[{"PATH":"/a","Content":"x","MODE":"0644","UID":5,"gId":6}]}', Response([File("/a", "x", "", "0644", 5, 6)])),
        (b'{"files":[{"path":"/a"}],"files":[{"path":"/b"}]}', Response([File("/b")])),
        (b'{"files":[null,{}]}', Response([File(""), File("")])),
        (b'{"files":[{"path":"/a","mode":null,"uid":null,"content":null}]}', Response([File("/a")])),
        (b'{"unknown":' + b"9" * 5000 + b',"state":"x"}', Response(state="x")),
        (b'{"unknown":1e999999,"state":"x"}', Response(state="x")),
    ],
)
def test_a_response_is_read_by_the_table(stdout: bytes, response: Response) -> None:
    assert read_response(stdout) == response


@pytest.mark.req("hooks.decode.05", "hooks.decode.06")
@pytest.mark.parametrize(
    "stdout",
    [
        b"{}{}", b"{} {}", b'{"state":"x"} done', b"null null", b"{}\x00", b"{}\xc2\xa0", b"{}\x0c", b"[]", b'"x"', b"1", b"true",
        b"\xef\xbb\xbf{}", b"ok", b"{'state':'x'}", b'{"state":"a\nb"}', b'{"state":"x",}', b'{"n":NaN}', b'{"n":-Infinity}',
        b"NaN", b'{"n":01}', b"\xff", b"{\xff}", b'{"state":"\\x"}', b'{"state":"\\ud8"}', "{}\u2028".encode(),
    ],
)  # fmt: skip
def test_what_is_not_one_object_is_a_failure(stdout: bytes) -> None:
    with pytest.raises(BadResponse, match=r"^decoding response: "):
        read_response(stdout)


@pytest.mark.req("hooks.decode.10", "hooks.mode.05", "hooks.owner.02", "hooks.owner.03", "hooks.naive.10")
@pytest.mark.parametrize(
    "stdout",
    [
        '{"state":1}', '{"state":{}}', '{"state":["x"]}', '{"state":true}', '{"state":1,"state":"x"}', '{"STATE":1}',
        '{"files":{}}', '{"files":"x"}', '{"files":[1]}', '{"files":[[]]}', '{"files":["x"]}', '{"files":[{"path":1}]}',
        '{"files":[{"content":1}]}', '{"files":[{"content_base64":[]}]}', '{"files":[{"mode":384}]}',
        '{"files":[{"uid":1000.0}]}', '{"files":[{"uid":1e3}]}', '{"files":[{"uid":"1000"}]}', '{"files":[{"uid":true}]}',
        '{"files":[{"gid":9223372036854775808}]}', '{"files":[{"gid":-9223372036854775809}]}',
        '{"files":[{"uid":%s}]}' % ("9" * 5000),
    ],
)  # fmt: skip
def test_a_wrong_type_anywhere_fails_the_whole_response(stdout: str) -> None:
    with pytest.raises(BadResponse, match=r"^decoding response: \w.* must be "):
        read_response(stdout.encode())


@pytest.mark.parametrize("stdout", [b"[" * 100_000, b'{"a":' * 100_000, b'{"files":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_endless_nesting_is_a_clean_failure(stdout: bytes) -> None:
    with pytest.raises(BadResponse, match=r"^decoding response: exceeded max depth$"):
        read_response(stdout)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xe2\x82b", "a\ufffd\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\\ud800", "\ufffd"),
        (b"\\ud800\\ud800x", "\ufffd\ufffdx"),
        (b"\\ud83d\xbdx", "\ufffd\ufffdx"),
        (b"\\ud83d\\ude00", "\U0001f600"),
        (b"\\u0000", "\0"),
    ],
)
@pytest.mark.req("hooks.bytes.14")
def test_bytes_that_are_no_text_become_one_replacement_character_each(raw: bytes, text: str) -> None:
    response = read_response(b'{"state":"%s","files":[{"path":"%s","content":"%s"}]}' % (raw, raw, raw))
    assert response == Response([File(text, content=text)], text)
    assert response.files[0].bytes() == text.encode()


def test_a_failure_shows_nothing_of_what_was_printed() -> None:
    for stdout in (b'{"state":"hunter2"} hunter2', b"hunter2", b'{"state":["hunter2"]}', b'{"state":"hunter2\n"}'):
        with pytest.raises(BadResponse) as caught:
            read_response(stdout)
        assert "hunter2" not in str(caught.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_response_or_a_clean_failure(stdout: bytes) -> None:
    try:
        read_response(stdout)
    except BadResponse as error:
        wrong = str(error)
    else:
        wrong = ""
    assert not wrong or wrong.startswith("decoding response: ")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["state", "Files", "path", "uid", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_any_json_is_a_response_or_a_clean_failure(value: object) -> None:
    try:
        response = read_response(json.dumps(value).encode())
    except BadResponse:
        return
    assert value is None or isinstance(value, dict)
    assert isinstance(response.state, str)
    assert {type(file.uid) for file in response.files} <= {int}


# -- the files --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.owner.01", "hooks.mode.01", "hooks.naive.12")
def test_a_file_that_says_little_is_root_s_and_nobody_else_s_to_read() -> None:
    for stdout in ('{"path":"/f"}', '{"path":"/f","mode":null}', '{"path":"/f","mode":""}'):
        [file] = read_response(f'{{"files":[{stdout}]}}'.encode()).files
        assert resolve_file(file, refuse) == BoxFile(path="/f", content=b"", mode=0o600, uid=0, gid=0)


@pytest.mark.req("hooks.bytes.01", "hooks.bytes.04")
def test_of_both_contents_the_base64_wins_with_a_warning_that_does_not_show_them() -> None:
    warnings: list[str] = []
    file = File("/f", content="hunter2", content_base64="aGk=")
    assert resolve_file(file, warnings.append).content == b"hi"
    [warning] = warnings
    assert "both content and content_base64" in warning
    assert "hunter2" not in warning


@pytest.mark.req("hooks.mode.08")
@pytest.mark.parametrize(("mode", "given_"), [("4755", 0o755), ("2700", 0o700), ("1777", 0o777), ("7000", 0)])
def test_set_id_and_sticky_bits_are_dropped_with_a_warning(mode: str, given_: int) -> None:
    warnings: list[str] = []
    assert resolve_file(File("/f", mode=mode), warnings.append).mode == given_
    assert len(warnings) == 1
    assert mode in warnings[0]


@pytest.mark.req("hooks.mode.07", "hooks.naive.13")
@pytest.mark.parametrize("mode", ["0", "0000"])
def test_mode_0_is_honoured(mode: str) -> None:
    assert resolve_file(File("/f", mode=mode), refuse).mode == 0


@pytest.mark.req("hooks.owner.04", "hooks.owner.05", "hooks.owner.06")
@pytest.mark.parametrize("owner", [-1, -(2**63), 2**32 - 1, 2**32, 2**63 - 1])
def test_an_owner_that_can_be_none_is_refused(owner: int) -> None:
    for file in (File("/f", uid=owner), File("/f", gid=owner)):
        with pytest.raises(ValueError, match=f'^owner of "/f": [ug]id {owner} is not between 0 and 4294967294$'):
            resolve_file(file, refuse)
    assert resolve_file(File("/f", uid=2**32 - 2, gid=1000), refuse) == BoxFile(
        path="/f", content=b"", mode=0o600, uid=2**32 - 2, gid=1000
    )


@pytest.mark.req(
    "hooks.path.01",
    "hooks.path.02",
    "hooks.path.03",
    "hooks.path.04",
    "hooks.path.05",
    "hooks.path.06",
    "hooks.path.07",
    "hooks.path.10",
)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "it is empty"),
        ("etc/passwd", "it is not absolute"),
        ("~/x", "it is not absolute"),
        ("/a\0b", "it has a NUL"),
        ("/a/../b", "it has a component `..`"),
        ("/..", "it has a component `..`"),
        ("/a/..", "it has a component `..`"),
        ("/", "it is that of a directory"),
        ("/a/", "it is that of a directory"),
        ("/a/.", "it is that of a directory"),
        ("/" + "é/" * 1400 + "x", "it is longer than 4096 bytes"),
        ("/" + "é" * 128, "it has a component longer than 255 bytes"),
        ("/proc/1/mem", "hooks may not write there"),
        ("/proc", "hooks may not write there"),
        ("//proc//x", "hooks may not write there"),
        ("/./sys/x", "hooks may not write there"),
        ("/dev/null", "hooks may not write there"),
        ("/run/llmbox/control.sock", "hooks may not write there"),
        ("/run/./llmbox", "hooks may not write there"),
    ],
)
def test_a_path_that_could_do_harm_is_refused(path: str, why: str) -> None:
    with pytest.raises(ValueError, match="^invalid path ") as caught:
        resolve_file(File(path), refuse)
    assert str(caught.value).endswith(f": {why}")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/etc/x", "/etc/x"),
        ("//etc/./x", "/etc/x"),
        ("/processes", "/processes"),
        ("/run/llmbox-x", "/run/llmbox-x"),
        ("/home/proc/x", "/home/proc/x"),
        ("/a/...", "/a/..."),
        ("/a/..b", "/a/..b"),
        ("/" + "é" * 127, "/" + "é" * 127),
        ("/a b\n", "/a b\n"),
    ],
)
def test_other_paths_are_taken_in_their_plain_form(path: str, plain: str) -> None:
    assert resolve_file(File(path), refuse).path == plain


@given(st.lists(st.sampled_from(["", ".", "..", "a", "proc", "run", "llmbox", "dev", "é"]), max_size=6).map("/".join))
def test_whatever_is_taken_is_absolute_plain_and_not_reserved(path: str) -> None:
    try:
        plain = resolve_file(File(path), refuse).path
    except ValueError:
        return
    names = plain.split("/")[1:]
    assert names
    assert not {"", ".", ".."} & set(names)
    assert names[0] not in {"proc", "dev"}
    assert names[:2] != ["run", "llmbox"]
    assert ".." not in path.split("/")


def test_an_injection_does_not_show_its_content() -> None:
    assert "hunter2" not in repr(resolve_file(File("/f", content="hunter2"), refuse))
