"""The hook's side: `serve` over streams."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.hookproto.host_side import encode_request, read_response
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, Box, File, Request, Response
from serai.dialects.hookproto.peer_side import HookError, read_request, serve


def serve_requests(data: bytes, answer: Any) -> tuple[list[Request], bytes]:
    """The requests that the handler got, and what was written."""
    seen: list[Request] = []
    out = io.BytesIO()

    def handler(request: Request) -> Any:
        seen.append(request)
        return answer

    serve(io.BytesIO(data), out, handler)
    return seen, out.getvalue()


@pytest.mark.req("hooks.scenario.hooks-08", "hooks.rule.1.13-serve", "hooks.decode.12")
def test_serve_makes_the_round_trip() -> None:
    answer = Response([File("/a", content="é", mode="0644", uid=1), File("/b", content_base64="aGk=", gid=2), File("")], state="s")
    request = Request(EVENT_BOX_CREATE, Box(image="i", box_id="a", description="d"), "old")
    seen, written = serve_requests(encode_request(request), answer)
    assert seen == [request]
    assert (
        written
        == (
            '{"files":[{"path":"/a","content":"é","mode":"0644","uid":1},{"path":"/b","content_base64":"aGk=","gid":2},{"path":""}],'
            '"state":"s"}\n'
        ).encode()
    )
    assert read_response(written) == answer


@pytest.mark.req("hooks.rule.1.13-serve")
@pytest.mark.parametrize("answer", [None, Response(), Response(files=[], state="")])
def test_an_answer_with_nothing_in_it_is_an_empty_object(answer: Response | None) -> None:
    assert serve_requests(b"{}", answer) == ([Request("")], b"{}\n")


@pytest.mark.req("hooks.rule.1.13-serve")
@pytest.mark.parametrize(
    "data",
    [
        b'{"event":"box.create","box":{"box_id":"a"}}{"event":"other"}',
        b' \n{"event":"box.create","box":{"box_id":"a"}} and more',
        b'{"EVENT":"box.create","Box":{"BOX_ID":"a"},"new":1,"state":null}\xff',
    ],
)
def test_one_value_is_read_and_what_follows_is_ignored(data: bytes) -> None:
    assert read_request(data) == Request(EVENT_BOX_CREATE, Box(box_id="a"))


@pytest.mark.req("hooks.scenario.hooks-09")
def test_a_handler_that_raises_writes_nothing_and_its_error_goes_through() -> None:
    out = io.BytesIO()

    def handler(request: Request) -> Response:
        raise LookupError("no such vault")

    with pytest.raises(LookupError, match="no such vault"):
        serve(io.BytesIO(b"{}"), out, handler)
    assert out.getvalue() == b""


@pytest.mark.req("hooks.rule.1.13-serve-errors")
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[]", b"nonsense", b'{"event":1}', b'{"box":[]}', b'{"box":{"box_id":1}}', b'{"event":']
)
def test_a_bad_request_is_an_error_with_its_prefix_and_reaches_no_handler(data: bytes) -> None:
    def handler(request: Request) -> Response:
        raise AssertionError

    with pytest.raises(HookError, match="^decoding hook request: "):
        serve(io.BytesIO(data), io.BytesIO(), handler)


WRONG: list[tuple[Any, str]] = [
    ({"state": "x"}, "the handler returned dict, not a Response or None"),
    (Response(state=b"x"), "state must be a string, not bytes"),  # type: ignore[arg-type]
    (Response([{"path": "/a"}]), "files has dict, not a File"),  # type: ignore[list-item]
    (Response([File("/a", mode=0o600)]), 'mode must be a string such as "0600", not int'),  # type: ignore[arg-type]
    (Response([File("/a", content=b"x")]), r"content must be a string \(content_base64 carries bytes\), not bytes"),  # type: ignore[arg-type]
    (Response([File("/a", uid="1000")]), "uid must be an integer, not str"),  # type: ignore[arg-type]
    (Response([File("/a", gid=True)]), "gid must be an integer, not bool"),
]


@pytest.mark.req("hooks.rule.1.13-serve-errors")
@pytest.mark.parametrize(("answer", "why"), WRONG, ids=[why for _, why in WRONG])
def test_an_answer_of_wrong_types_is_told_to_its_author_and_not_written(answer: Any, why: str) -> None:
    out = io.BytesIO()
    with pytest.raises(HookError, match=f"^encoding hook response: {why}$"):
        serve(io.BytesIO(b"{}"), out, lambda request: answer)
    assert out.getvalue() == b""


@pytest.mark.req("hooks.rule.1.13-serve-errors")
def test_streams_that_fail_are_errors_with_the_same_prefixes() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("no input")

        def write(self, data: Any) -> int:
            raise BrokenPipeError("no output")

    with pytest.raises(HookError, match="^decoding hook request: no input$"):
        serve(Broken(), io.BytesIO(), lambda request: None)
    with pytest.raises(HookError, match="^encoding hook response: no output$"):
        serve(io.BytesIO(b"{}"), Broken(), lambda request: None)


TEXT = st.text()
FILES = st.builds(File, TEXT, TEXT, TEXT, TEXT, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))


@given(st.builds(Request, TEXT, st.builds(Box, TEXT, TEXT, TEXT), TEXT))
def test_every_request_is_read_as_it_was_written(request_: Request) -> None:
    assert read_request(encode_request(request_)) == request_


@given(st.builds(Response, st.lists(FILES, max_size=3), TEXT))
def test_every_response_is_read_as_it_was_written(response: Response) -> None:
    [[_], written] = serve_requests(b"{}", response)
    assert read_response(written) == response
